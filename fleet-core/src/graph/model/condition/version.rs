//! The order of versions, as systemd compares them.

use std::cmp::Ordering;

/// Marks in front of a part of a version, from the strongest to the weakest. A version that
/// continues with the mark is older than one that continues otherwise.
const MARKS: [u8; 3] = [b'-', b'^', b'.'];

/// Compares two versions as systemd does (`systemd-analyze compare-versions`).
///
/// Versions consist of numbers and words. Numbers are compared as numbers, and are newer than
/// words. `~` begins a version before the release, `-` a release of a version, `^` a patch, and `.`
/// a point release. Other characters only separate parts.
///
/// ```
/// use fleet_core::graph::condition::compare_versions;
///
/// assert!(compare_versions("6.10", "6.9").is_gt());
/// assert!(compare_versions("6.10~rc1", "6.10").is_lt());
/// ```
#[must_use]
pub fn compare_versions(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        one = without_separators(one);
        other = without_separators(other);
        if let Err(order) = take_mark(b'~', &mut one, &mut other) {
            return order;
        }
        if one.is_empty() || other.is_empty() {
            return one.cmp(other);
        }
        for mark in MARKS {
            if let Err(order) = take_mark(mark, &mut one, &mut other) {
                return order;
            }
        }
        let is_digit = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
        let order = match (is_digit(one), is_digit(other)) {
            (true, true) => {
                let (first, second) = (take_number(&mut one), take_number(&mut other));
                first.len().cmp(&second.len()).then_with(|| first.cmp(second))
            }
            (false, false) => take(&mut one, u8::is_ascii_alphabetic)
                .cmp(take(&mut other, u8::is_ascii_alphabetic)),
            (first, second) => first.cmp(&second),
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn without_separators(text: &[u8]) -> &[u8] {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"~-^.".contains(byte);
    text.iter().position(is_part).map_or(&[], |at| &text[at..])
}

/// Removes a mark in front of both texts. Returns the order if only one of them has it.
fn take_mark(mark: u8, one: &mut &[u8], other: &mut &[u8]) -> Result<(), Ordering> {
    match (one.strip_prefix(&[mark]), other.strip_prefix(&[mark])) {
        (Some(first), Some(second)) => (*one, *other) = (first, second),
        (Some(_), None) => return Err(Ordering::Less),
        (None, Some(_)) => return Err(Ordering::Greater),
        (None, None) => {}
    }
    Ok(())
}

/// Removes a number in front of the text, and returns its digits without leading zeros.
fn take_number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    take(text, |byte| *byte == b'0');
    take(text, u8::is_ascii_digit)
}

fn take<'a>(text: &mut &'a [u8], matches: impl Fn(&u8) -> bool) -> &'a [u8] {
    let end = text.iter().position(|byte| !matches(byte)).unwrap_or(text.len());
    let (part, rest) = text.split_at(end);
    *text = rest;
    part
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Versions, each newer than the one before.
    const ASCENDING: [&str; 20] = [
        "~1",
        "",
        "6-a",
        "6-0",
        "6-1",
        "6.1~rc1",
        "6.1",
        "6.1-rc1",
        "6.1-1",
        "6.1-1.1",
        "6.1^post1",
        "6.1.a-1",
        "6.1.1-1",
        "6.1.9",
        "6.1.10",
        "6.1a-1",
        "6.2",
        "6.18.44-fc-v657",
        "60",
        "124-1",
    ];

    #[test]
    fn versions_are_ordered() {
        for (at, one) in ASCENDING.iter().enumerate() {
            for (after, other) in ASCENDING.iter().enumerate() {
                assert_eq!(compare_versions(one, other), at.cmp(&after), "{one} and {other}");
            }
        }
        assert!(compare_versions("6.01", "6.1").is_eq());
        assert!(compare_versions("6_1a", "6+1a").is_eq());
    }

    proptest! {
        #[test]
        fn order_is_antisymmetric(one in "[0-3ab.~^_-]{0,8}", other in "[0-3ab.~^_-]{0,8}") {
            let order = compare_versions(&one, &other);
            prop_assert_eq!(order, compare_versions(&other, &one).reverse());
            prop_assert_eq!(compare_versions(&one, &one), Ordering::Equal);
        }
    }
}
