//! The tree of an expression: what it says of metadata, and how it is written.

use std::cmp::Ordering;
use std::fmt;

use super::number::Decimal;
use super::token::{Keyword, is_bare};
use crate::Metadata;

/// An expression, or a part of one. Its depth is bounded by the parser.
#[derive(Debug)]
pub(super) enum Node {
    /// All are true; at least two, none of them such a list itself.
    All(Vec<Self>),
    /// At least one is true; at least two, none of them such a list itself.
    Any(Vec<Self>),
    Not(Box<Self>),
    /// The machine has the key.
    Exists(String),
    /// The machine has one of the values of the key; at least one.
    In(String, Vec<String>),
    /// The machine does not have that value of the key.
    Differs(String, String),
    /// The machine's value of the key is a number on that side of this one.
    Compare(String, Side, String),
}

/// A side of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    Above,
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
            Self::Compare(key, side, number) => {
                let found = metadata.get(key).and_then(|found| Decimal::parse(found));
                let order = found.zip(Decimal::parse(number)).map(|(a, b)| a.compare(b));
                order.is_some_and(|order| side.holds(order))
            }
        }
    }

    /// The smallest part whose falseness alone makes the whole false, the first of several; `None`
    /// if the whole is true.
    pub(super) fn first_false(&self, metadata: &Metadata) -> Option<&Self> {
        match self {
            Self::All(parts) => parts.iter().find_map(|part| part.first_false(metadata)),
            _ => (!self.eval(metadata)).then_some(self),
        }
    }

    /// Adds the keys that are asked for and not in the list yet.
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

impl Side {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Below => "<",
            Self::Above => ">",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Below => order.is_lt(),
            Self::Above => order.is_gt(),
            Self::AtMost => order.is_le(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

/// Canonical text: as few parentheses and quotation marks as there can be.
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
            Self::Compare(key, side, number) => {
                write!(f, "{} {} {number}", Quoted(key), side.as_str())
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

/// A key or a value, with quotation marks if it needs them.
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
