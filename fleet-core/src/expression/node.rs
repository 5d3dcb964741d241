//! The syntax tree of an expression, its evaluation and its canonical text.

use std::cmp::Ordering;
use std::fmt;

use super::parser::{Keyword, is_bare};
use crate::Metadata;

/// A node of the tree. The parser bounds the depth.
#[derive(Debug)]
pub(super) enum Node {
    /// Conjunction of at least two nodes, none of them a conjunction itself.
    All(Vec<Self>),
    /// Disjunction of at least two nodes, none of them a disjunction itself.
    Any(Vec<Self>),
    Not(Box<Self>),
    /// The key exists.
    Exists(String),
    /// The key has one of the values; there is at least one.
    In(String, Vec<String>),
    /// The key does not have the value.
    Differs(String, String),
    /// The value of the key compares with the number in this way.
    Compare(String, Comparison, String),
}

/// A comparison of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    Greater,
    AtMost,
    AtLeast,
}

impl Node {
    pub(super) fn all(parts: Vec<Self>) -> Self {
        let flat = |part| if let Self::All(inner) = part { inner } else { vec![part] };
        let mut parts: Vec<Self> = parts.into_iter().flat_map(flat).collect();
        if parts.len() == 1 { parts.remove(0) } else { Self::All(parts) }
    }

    pub(super) fn any(parts: Vec<Self>) -> Self {
        let flat = |part| if let Self::Any(inner) = part { inner } else { vec![part] };
        let mut parts: Vec<Self> = parts.into_iter().flat_map(flat).collect();
        if parts.len() == 1 { parts.remove(0) } else { Self::Any(parts) }
    }

    pub(super) fn eval(&self, metadata: &Metadata) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.eval(metadata)),
            Self::Any(parts) => parts.iter().any(|part| part.eval(metadata)),
            Self::Not(part) => !part.eval(metadata),
            Self::Exists(key) => metadata.contains_key(key),
            Self::In(key, values) => metadata.get(key).is_some_and(|found| values.contains(found)),
            Self::Differs(key, value) => metadata.get(key) != Some(value),
            Self::Compare(key, comparison, number) => {
                let found = metadata.get(key).and_then(|found| Decimal::parse(found));
                let order = found.zip(Decimal::parse(number)).map(|(a, b)| a.compare(b));
                order.is_some_and(|order| comparison.holds(order))
            }
        }
    }

    /// Returns the part that makes the expression false: in a conjunction (`a and b`) the first
    /// false operand, otherwise the whole expression. Returns `None` if the expression is true.
    pub(super) fn first_false(&self, metadata: &Metadata) -> Option<&Self> {
        match self {
            Self::All(parts) => parts.iter().find_map(|part| part.first_false(metadata)),
            _ => (!self.eval(metadata)).then_some(self),
        }
    }

    /// Adds the keys of this node that are not in the list yet.
    pub(super) fn collect_keys<'a>(&'a self, keys: &mut Vec<&'a str>) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.collect_keys(keys));
            }
            Self::Not(part) => part.collect_keys(keys),
            Self::Exists(key)
            | Self::In(key, _)
            | Self::Differs(key, _)
            | Self::Compare(key, ..) => {
                if !keys.contains(&key.as_str()) {
                    keys.push(key);
                }
            }
        }
    }
}

impl Comparison {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::Greater => ">",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::Greater => order.is_gt(),
            Self::AtMost => order.is_le(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

/// Writes canonical text, with as few parentheses and quotation marks as possible.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(parts) => join(f, parts, Keyword::And, |part| matches!(part, Self::Any(_))),
            Self::Any(parts) => join(f, parts, Keyword::Or, |_| false),
            Self::Not(part) if matches!(**part, Self::All(_) | Self::Any(_)) => {
                write!(f, "not ({part})")
            }
            Self::Not(part) => write!(f, "not {part}"),
            Self::Exists(key) => write!(f, "exists {}", Quoted(key)),
            Self::In(key, values) => write_in(f, key, values),
            Self::Differs(key, value) => write!(f, "{} != {}", Quoted(key), Quoted(value)),
            Self::Compare(key, comparison, number) => {
                write!(f, "{} {} {number}", Quoted(key), comparison.as_str())
            }
        }
    }
}

fn join(
    f: &mut fmt::Formatter<'_>,
    parts: &[Node],
    by: Keyword,
    enclosed: fn(&Node) -> bool,
) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            write!(f, " {} ", by.as_str())?;
        }
        if enclosed(part) { write!(f, "({part})")? } else { write!(f, "{part}")? }
    }
    Ok(())
}

fn write_in(f: &mut fmt::Formatter<'_>, key: &str, values: &[String]) -> fmt::Result {
    if let [value] = values {
        return write!(f, "{} = {}", Quoted(key), Quoted(value));
    }
    let values: Vec<String> = values.iter().map(|value| Quoted(value).to_string()).collect();
    write!(f, "{} in ({})", Quoted(key), values.join(", "))
}

/// A key or a value, quoted if necessary.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_bare(self.0) {
            return f.write_str(self.0);
        }
        let escaped = self.0.replace('\\', "\\\\").replace('"', "\\\"");
        write!(f, "\"{escaped}\"")
    }
}

/// A decimal number such as `-12.5`, borrowed from its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decimal<'a> {
    negative: bool,
    /// The integer part without leading zeros; empty for zero.
    whole: &'a str,
    /// The decimals without trailing zeros; may be empty.
    decimals: &'a str,
}

impl<'a> Decimal<'a> {
    /// Parses digits with an optional minus and optional decimals.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, decimals) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) {
            return None;
        }
        let (whole, decimals) = (whole.trim_start_matches('0'), decimals.trim_end_matches('0'));
        let is_zero = whole.is_empty() && decimals.is_empty();
        Some(Self { negative: unsigned.len() < text.len() && !is_zero, whole, decimals })
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_sizes(other),
            (true, true) => other.compare_sizes(self),
        }
    }

    fn compare_sizes(self, other: Self) -> Ordering {
        let whole = self.whole.len().cmp(&other.whole.len()).then(self.whole.cmp(other.whole));
        whole.then(self.decimals.cmp(other.decimals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_parse_or_fail() {
        for good in ["0", "-0", "007", "1.50", "-12.5", "123456789012345678901234567890"] {
            assert!(Decimal::parse(good).is_some(), "{good}");
        }
        for bad in ["", "-", "+1", "1.", ".5", "1.2.3", "1e3", "0x1", "1 ", "--1", "1G", "٣"] {
            assert!(Decimal::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_compared_exactly() {
        let ordered = [
            "-10.5",
            "-10.05",
            "-9",
            "0",
            "0.05",
            "0.5",
            "2",
            "10",
            "9007199254740992",
            "9007199254740993",
        ];
        for (i, one) in ordered.iter().enumerate() {
            for (j, other) in ordered.iter().enumerate() {
                let parse = |text| Decimal::parse(text).unwrap();
                assert_eq!(parse(one).compare(parse(other)), i.cmp(&j), "{one} and {other}");
            }
        }
        for (one, other) in [("-0", "0.0"), ("007", "7.00"), ("-1.50", "-01.5")] {
            let parse = |text| Decimal::parse(text).unwrap();
            assert_eq!(parse(one).compare(parse(other)), Ordering::Equal, "{one} and {other}");
        }
    }
}
