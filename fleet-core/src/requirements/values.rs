//! Splits an option's line into values, and parses options with independent values: amounts,
//! numbers, choices, preferences, expressions.

use std::fmt;

use fleet_unitfile::Span;

use super::parse::{SectionReader, depends_on_instance};
use super::{
    FleetOption, OnPartition, Preference, RequirementErrorKind as Kind, Reschedule, Spread,
    is_spread_key,
};
use crate::failures::FailureRecord;
use crate::{Expression, Resource};

/// Returns the values of a line; none for an empty assignment.
pub(super) fn split(option: FleetOption, line: &str) -> Vec<String> {
    if option.takes_whole_lines() {
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

/// The problem with a `MachineMetadata=` condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataProblem {
    /// The condition has no `=`.
    NoEquals,
    /// The condition has more than one `=`.
    SeveralEquals,
    /// The key is empty.
    NoKey,
    /// The value is empty.
    NoValue,
    /// The key contains a blank, or the `=` has one beside it.
    Blank,
    /// The condition contains a control character, such as a tab.
    Control,
    /// The condition starts with a quotation mark, but the line does not end with a quotation mark.
    OpenQuote,
}

impl fmt::Display for MetadataProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoEquals => "it has no \"=\"",
            Self::SeveralEquals => "it has more than one \"=\"",
            Self::NoKey => "nothing stands before the \"=\"",
            Self::NoValue => "nothing stands after the \"=\"",
            Self::Blank => "a blank stands in the key or beside the \"=\"",
            Self::Control => "it holds a control character",
            Self::OpenQuote => "its quotation mark is not closed",
        })
    }
}

/// Splits a condition into key and value.
pub(super) fn split_pair(text: &str) -> Result<(&str, &str), MetadataProblem> {
    let (key, value) = text.split_once('=').ok_or(MetadataProblem::NoEquals)?;
    let blank = |c: char| c == ' ';
    match (key, value) {
        _ if value.contains('=') => Err(MetadataProblem::SeveralEquals),
        _ if text.contains(char::is_control) => Err(MetadataProblem::Control),
        _ if key.starts_with('"') => Err(MetadataProblem::OpenQuote),
        ("", _) => Err(MetadataProblem::NoKey),
        (_, "") => Err(MetadataProblem::NoValue),
        _ if key.contains(blank) || value.starts_with(blank) || value.ends_with(blank) => {
            Err(MetadataProblem::Blank)
        }
        pair => Ok(pair),
    }
}

/// Returns the condition that was probably intended by an invalid one.
pub(super) fn suggestion(text: &str, problem: MetadataProblem) -> Option<String> {
    let bare = text.replace('"', " ");
    if matches!(problem, MetadataProblem::Blank | MetadataProblem::OpenQuote) {
        let (key, value) = bare.split_once('=')?;
        let pair = format!("{}={}", key.trim(), value.trim());
        if split_pair(&pair).is_ok() {
            return Some(pair);
        }
    }
    let pairs: Vec<&str> = bare.split_whitespace().collect();
    let several = pairs.len() > 1 && pairs.iter().all(|pair| split_pair(pair).is_ok());
    several.then(|| pairs.iter().map(|p| format!("\"{p}\"")).collect::<Vec<_>>().join(" "))
}

/// Weight of a preference or spread without an explicit weight.
const DEFAULT_WEIGHT: i32 = 1;

impl SectionReader<'_> {
    /// Resets an option to its default.
    pub(super) fn reset_scalar(&mut self, option: FleetOption) {
        let scalars = &mut self.scalars;
        match option {
            FleetOption::MachineMetadataExpr => scalars.metadata_expr = None,
            FleetOption::MaxPerMachine => scalars.max_per_machine = None,
            FleetOption::Prefer => scalars.prefer.clear(),
            FleetOption::Spread => scalars.spread.clear(),
            FleetOption::Reschedule => scalars.reschedule = Reschedule::default(),
            FleetOption::OnPartition => scalars.on_partition = OnPartition::default(),
            FleetOption::MoveAfterFailures => scalars.move_after_failures = None,
            _ if self.health.reset(option) => {}
            _ => {
                if let Some(resource) = option.reserves() {
                    scalars.reserve[resource] = 0;
                }
            }
        }
    }

    /// Parses a value after the expansion of specifiers.
    pub(super) fn read_scalar(&mut self, option: FleetOption, value: String, span: Span) {
        match option {
            FleetOption::MaxPerMachine => self.read_max_per_machine(value, span),
            FleetOption::MoveAfterFailures => self.read_move_after_failures(value, span),
            FleetOption::Spread => self.read_spread(&value, span),
            FleetOption::Reschedule => match Reschedule::from_name(&value) {
                Some(choice) => self.scalars.reschedule = choice,
                None => self.refuse_choice(option, value, span),
            },
            FleetOption::OnPartition => match OnPartition::from_name(&value) {
                Some(choice) => self.scalars.on_partition = choice,
                None => self.refuse_choice(option, value, span),
            },
            _ => self.read_health_setting(option, value, span),
        }
    }

    /// Parses a reserved amount. A percent sign at the very end (`150%`) is literal, so it need not
    /// be doubled like the percent sign of other values.
    pub(super) fn read_amount(
        &mut self,
        resource: Resource,
        option: FleetOption,
        value: &str,
        span: Span,
    ) {
        let (number, sign) = match value.strip_suffix('%') {
            Some(number) if !number.ends_with('%') => (number, "%"),
            _ => (value, ""),
        };
        let Some(number) = self.expand(option, number, span) else {
            return;
        };
        match resource.parse(&format!("{number}{sign}")) {
            Ok(amount) => self.scalars.reserve[resource] = amount,
            Err(cause) => self.reports.refuse(span, Kind::Amount { option, cause }),
        }
    }

    /// Parses an expression and joins it to earlier ones by `and`.
    pub(super) fn read_metadata_expr(&mut self, text: &str, span: Span) {
        let option = FleetOption::MachineMetadataExpr;
        let Some(demand) = self.read_expression(option, text, span) else {
            return;
        };
        let before = self.scalars.metadata_expr.take();
        match before.map_or(Ok(demand.clone()), |before| before.and(&demand)) {
            Ok(all) => self.scalars.metadata_expr = Some(all),
            Err(cause) => self.reports.refuse(span, Kind::Expression { option, cause }),
        }
    }

    /// Parses `weight: expression`, or an expression alone.
    pub(super) fn read_preference(&mut self, value: &str, span: Span) {
        let option = FleetOption::Prefer;
        if let Some(kind) = self.missing_colon(option, value) {
            return self.reports.refuse(span, kind);
        }
        let (weight, text) = split_weight(value);
        let end = span.end;
        let of_text = match value.len() == end - span.start {
            true => Span { start: end - text.len(), end },
            false => span,
        };
        let weight = self.read_weight(option, weight, span);
        let expression = self.read_expression(option, text, of_text);
        if let (Some(weight), Some(expression)) = (weight, expression) {
            let preference = Preference { weight, expression };
            if !self.scalars.prefer.contains(&preference) {
                self.scalars.prefer.push(preference);
            }
        }
    }

    /// Parses `weight: key`, or a key alone. If a key occurs several times, its last weight takes
    /// effect.
    fn read_spread(&mut self, value: &str, span: Span) {
        let option = FleetOption::Spread;
        if let Some(kind) = self.missing_colon(option, value) {
            return self.reports.refuse(span, kind);
        }
        let (weight, key) = split_weight(value);
        if !is_spread_key(key) {
            let value = key.to_owned();
            return self.reports.refuse(span, Kind::SpreadKey { value });
        }
        let Some(weight) = self.read_weight(option, weight, span) else {
            return;
        };
        match self.scalars.spread.iter_mut().find(|spread| spread.key == key) {
            Some(spread) => spread.weight = weight,
            None => self.scalars.spread.push(Spread { weight, key: key.to_owned() }),
        }
    }

    /// Returns an error if the colon after the weight seems to be missing, as in `5 zone` instead
    /// of `5: zone`. That is the case if the value is valid only without its leading number.
    fn missing_colon(&self, option: FleetOption, value: &str) -> Option<Kind> {
        let (weight, rest) = value.split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        weight.parse::<i32>().ok()?;
        let is_expression = |text| Expression::parse_of(text, self.name).is_ok();
        let missing = match option {
            FleetOption::Spread => !rest.is_empty() && !rest.contains([':', '=', ' ', '\t']),
            _ => !rest.starts_with(':') && !is_expression(value) && is_expression(rest),
        };
        let (weight, rest) = (weight.to_owned(), rest.to_owned());
        missing.then_some(Kind::MissingColon { option, weight, rest })
    }

    /// Parses the weight before a colon. Without a weight, returns the default.
    fn read_weight(&mut self, option: FleetOption, text: Option<&str>, span: Span) -> Option<i32> {
        let Some(text) = text else {
            return Some(DEFAULT_WEIGHT);
        };
        let text = self.expand(option, text, span)?;
        let (allowed, zero) = match option {
            FleetOption::Spread => (Spread::WEIGHTS, false),
            _ => (Preference::WEIGHTS, true),
        };
        let weight = text.parse().ok().filter(|weight| allowed.contains(weight));
        let weight = weight.filter(|weight| *weight != 0 || !zero);
        if weight.is_none() {
            self.reports.refuse(span, Kind::Weight { option, value: text });
        }
        weight
    }

    fn read_expression(
        &mut self,
        option: FleetOption,
        text: &str,
        span: Span,
    ) -> Option<Expression> {
        if self.name.is_template() && depends_on_instance(text) {
            return None;
        }
        match Expression::parse_of(text, self.name) {
            Ok(expression) => Some(expression),
            Err(cause) => {
                let span = within(span, text, cause.span);
                self.reports.refuse(span, Kind::Expression { option, cause });
                None
            }
        }
    }

    fn read_max_per_machine(&mut self, value: String, span: Span) {
        let digits = value.bytes().all(|b| b.is_ascii_digit());
        match value.parse() {
            Ok(limit @ 1..) if digits => self.scalars.max_per_machine = Some(limit),
            _ => self.reports.refuse(span, Kind::MaxPerMachine { value }),
        }
    }

    fn read_move_after_failures(&mut self, value: String, span: Span) {
        let digits = value.bytes().all(|b| b.is_ascii_digit());
        match value.parse() {
            Ok(limit @ 0..=FailureRecord::MAX_LIMIT) if digits => {
                self.scalars.move_after_failures = Some(limit).filter(|limit| *limit > 0);
            }
            _ => self.reports.refuse(span, Kind::MoveAfterFailures { value }),
        }
    }

    fn refuse_choice(&mut self, option: FleetOption, value: String, span: Span) {
        self.reports.refuse(span, Kind::Choice { option, value });
    }
}

/// Splits a value into weight and rest at its first colon, if the text before the colon is a
/// number. The number may contain specifiers.
fn split_weight(value: &str) -> (Option<&str>, &str) {
    let Some((weight, rest)) = value.split_once(':') else {
        return (None, value);
    };
    let weight = weight.trim_end();
    let digits = weight.strip_prefix(['-', '+']).unwrap_or(weight);
    let mut characters = digits.chars();
    let mut is_number = !digits.is_empty();
    while let Some(c) = characters.next() {
        is_number &= c.is_ascii_digit() || (c == '%' && characters.next().is_some());
    }
    if is_number { (Some(weight), rest.trim_start()) } else { (None, value) }
}

/// Returns the position in the file of a part of `text`, which itself is at `span`. If the text
/// does not appear literally in the file, or if the part is empty, returns `span`.
fn within(span: Span, text: &str, part: Span) -> Span {
    if span.end - span.start != text.len() || part.start == part.end {
        return span;
    }
    Span { start: span.start + part.start, end: span.start + part.end }
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

    #[test]
    fn condition_has_one_key_and_one_value() {
        let cases = [
            ("a=b", Ok(("a", "b"))),
            ("a=b c", Ok(("a", "b c"))),
            ("a", Err(MetadataProblem::NoEquals)),
            ("a=b=c", Err(MetadataProblem::SeveralEquals)),
            ("=b", Err(MetadataProblem::NoKey)),
            ("a=", Err(MetadataProblem::NoValue)),
            ("a = b", Err(MetadataProblem::Blank)),
            ("a=b ", Err(MetadataProblem::Blank)),
            ("a=b\tc", Err(MetadataProblem::Control)),
            ("\"a=b", Err(MetadataProblem::OpenQuote)),
            ("a=5\"", Ok(("a", "5\""))),
        ];
        for (text, expected) in cases {
            assert_eq!(split_pair(text), expected, "{text:?}");
        }
    }

    #[test]
    fn suggestion_is_always_valid() {
        let cases = [
            ("a=b c=d", Some("\"a=b\" \"c=d\"")),
            ("\"a=b\" \"c=d", Some("\"a=b\" \"c=d\"")),
            ("a=b\tc=d", Some("\"a=b\" \"c=d\"")),
            ("a = b", Some("a=b")),
            ("\"a=b", Some("a=b")),
            ("a b = c", None),
            ("a=b=c", None),
            ("a=b c", None),
        ];
        for (text, expected) in cases {
            let problem = split_pair(text).err().unwrap_or(MetadataProblem::NoEquals);
            assert_eq!(suggestion(text, problem).as_deref(), expected, "{text:?}");
        }
    }
}
