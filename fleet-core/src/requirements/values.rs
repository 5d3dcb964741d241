//! Splitting of an option's line into values.

use super::FleetOption;

/// Returns the values of a line; none for an empty assignment.
pub(super) fn split(option: FleetOption, line: &str) -> Vec<String> {
    if option.takes_expressions() {
        let lines = (!line.is_empty()).then(|| line.to_owned());
        return lines.into_iter().collect();
    }
    let values = if is_quoted(line) { unquote(line) } else { vec![line.to_owned()] };
    if option.takes_units() {
        return values.iter().flat_map(|v| v.split_whitespace()).map(str::to_owned).collect();
    }
    values.into_iter().filter(|value| !value.is_empty()).collect()
}

/// Returns `true` if the line starts and ends with a quotation mark, so that it may hold several
/// values.
fn is_quoted(line: &str) -> bool {
    line.starts_with('"') && line.ends_with('"')
}

/// Splits a line at blanks outside quotes, and removes the quotes. Backslashes and tabs are
/// ordinary characters, because fleet v1 splits only at spaces.
fn unquote(line: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let mut inside = false;
    for c in line.chars() {
        match c {
            '"' => inside = !inside,
            ' ' if !inside => values.push(String::new()),
            _ => values.last_mut().expect("there is always a value being read").push(c),
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_line_has_several_values() {
        let cases: [(&str, &[&str]); 14] = [
            ("", &[]),
            ("\"\"", &[]),
            ("\"", &[]),
            ("a=b", &["a=b"]),
            ("\"a=b\" \"c=d\"", &["a=b", "c=d"]),
            ("\"a b\"", &["a b"]),
            ("a=b c=d", &["a=b c=d"]),
            ("\"a=b\"  \"c=d\"", &["a=b", "c=d"]),
            ("\"a=b\"\"c=d\"", &["a=bc=d"]),
            ("\"a\" b \"c\"", &["a", "b", "c"]),
            ("\"a\" \"", &["a"]),
            ("'a' 'b'", &["'a' 'b'"]),
            ("\"a=b\" \"c=d", &["\"a=b\" \"c=d"]),
            ("\"a\\\"\t\"b\"", &["a\\\tb"]),
        ];
        for (line, expected) in cases {
            assert_eq!(split(FleetOption::MachineMetadata, line), expected, "{line}");
        }
    }

    #[test]
    fn expression_keeps_quotation_marks() {
        for option in [FleetOption::MachineMetadataExpr, FleetOption::Prefer] {
            let line = "\"disk type\" = \"solid state\"";
            assert_eq!(split(option, line), [line], "{option}");
            assert!(split(option, "").is_empty(), "{option}");
        }
    }

    #[test]
    fn unit_names_are_always_split_at_blanks() {
        for option in [FleetOption::MachineOf, FleetOption::Conflicts, FleetOption::Replaces] {
            for line in ["a b\tc", "\"a\" \"b\" \"c\"", "\"a b\" \"c\"", "a  b   c"] {
                assert_eq!(split(option, line), ["a", "b", "c"], "{option}={line}");
            }
        }
    }
}
