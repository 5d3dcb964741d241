//! Pure: expands ranges and lists such as `web@{1..9}` in arguments, as shells do.

use crate::ui::error::CliError;

/// Most arguments that one argument may expand to.
const MAX_EXPANSION: usize = 10_000;

/// Expands ranges and lists in braces: `web@{1..3}` becomes `web@1`, `web@2` and `web@3`. An
/// argument without them is returned unchanged.
///
/// # Errors
///
/// An end of a range is not a number, braces are nested, or there are more than [`MAX_EXPANSION`]
/// results.
pub(crate) fn expand(arg: &str) -> Result<Vec<String>, CliError> {
    let mut all = vec![String::new()];
    let mut rest = arg;
    while let Some((before, inside, after)) = group(rest) {
        let choices = choices(arg, inside)?;
        if all.len() * choices.len() > MAX_EXPANSION {
            return Err(wrong(arg, &format!("expands to more than {MAX_EXPANSION} units")));
        }
        let joined = |start: &String| {
            choices.iter().map(|choice| format!("{start}{before}{choice}")).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(joined).collect();
        rest = after;
    }
    Ok(all.into_iter().map(|start| start + rest).collect())
}

/// Expands all arguments.
///
/// # Errors
///
/// Some arguments are invalid; the error lists all of them.
pub(crate) fn expand_all(args: &[String]) -> Result<Vec<String>, CliError> {
    let expanded = args.iter().map(|arg| expand(arg)).collect();
    Ok(CliError::all_or_none(expanded)?.into_iter().flatten().collect())
}

/// Splits the text into the parts before, inside and after the first braces.
fn group(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (inside, after) = rest.split_once('}')?;
    Some((before, inside, after))
}

fn choices(arg: &str, inside: &str) -> Result<Vec<String>, CliError> {
    if inside.contains('{') {
        return Err(wrong(arg, "has nested braces"));
    }
    if inside.contains(',') {
        return Ok(inside.split(',').map(str::to_owned).collect());
    }
    match inside.split_once("..") {
        Some((from, to)) => range(arg, from, to),
        // As in a shell, braces without a range or a list are literal.
        None => Ok(vec![format!("{{{inside}}}")]),
    }
}

fn range(arg: &str, from: &str, to: &str) -> Result<Vec<String>, CliError> {
    let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse::<u32>().ok(),
        false => None,
    };
    let (Some(first), Some(last)) = (number(from), number(to)) else {
        return Err(wrong(arg, "has an invalid range: both ends must be numbers"));
    };
    if first.abs_diff(last) as usize >= MAX_EXPANSION {
        return Err(wrong(arg, &format!("expands to more than {MAX_EXPANSION} units")));
    }
    let is_padded = [from, to].iter().any(|text| text.len() > 1 && text.starts_with('0'));
    let width = if is_padded { from.len().max(to.len()) } else { 0 };
    let written = |number: u32| format!("{number:0width$}");
    Ok(match first <= last {
        true => (first..=last).map(written).collect(),
        false => (last..=first).rev().map(written).collect(),
    })
}

fn wrong(arg: &str, what: &str) -> CliError {
    CliError::usage(format!("{arg:?} {what}"))
        .help("use a range such as web@{1..9}, or a list such as {web,db}.service")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists_expand() {
        for (arg, expected) in [
            ("web", "web"),
            ("web@{1..3}", "web@1 web@2 web@3"),
            ("web@{3..1}.service", "web@3.service web@2.service web@1.service"),
            ("n{08..10}", "n08 n09 n10"),
            ("{web,db}.{service,socket}", "web.service web.socket db.service db.socket"),
            ("a{,b}", "a ab"),
            ("{one}", "{one}"),
            ("a{1..2", "a{1..2"),
            ("{7..7}", "7"),
        ] {
            assert_eq!(expand(arg).unwrap().join(" "), expected, "{arg}");
        }
        assert_eq!(expand("{1..10000}").unwrap().len(), MAX_EXPANSION);
    }

    #[test]
    fn invalid_ranges_are_usage_errors_with_help() {
        for arg in
            ["{a..z}", "{1..}", "{-1..2}", "{+1..2}", "{1..10001}", "{1..101}{1..100}", "{a,{b}}"]
        {
            let error = expand(arg).unwrap_err();
            assert_eq!(error.exit().code(), 2, "{arg}");
        }
        let args = ["{a..z}", "web", "{1..200000}"].map(str::to_owned);
        let mut text = Vec::new();
        expand_all(&args).unwrap_err().print(&mut text).unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @r#"
        fleetctl: "{a..z}" has an invalid range: both ends must be numbers
        help: use a range such as web@{1..9}, or a list such as {web,db}.service
        fleetctl: "{1..200000}" expands to more than 10000 units
        help: use a range such as web@{1..9}, or a list such as {web,db}.service
        "#);
    }
}
