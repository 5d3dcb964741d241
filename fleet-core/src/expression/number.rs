//! Decimal numbers of any length with exact comparison.

use std::cmp::Ordering;

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
