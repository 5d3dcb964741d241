//! Sizes in bytes and relative sizes.

use std::fmt;
use std::str::FromStr;

/// A size: in bytes, relative to a total, or unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Size {
    /// Number of bytes.
    Bytes(u64),
    /// Ten-thousandths of the machine's total.
    Permyriad(u32),
    /// Unlimited.
    Infinity,
}

/// The suffixes, largest first. Each suffix stands for 1024 times the next one; `B` and no suffix
/// stand for single bytes.
const SUFFIXES: [(&str, u64); 8] = [
    ("E", 1 << 60),
    ("P", 1 << 50),
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
    ("B", 1),
    ("", 1),
];

/// Parses the size in an option such as `MemoryMax=`: a number of bytes, a percentage, or
/// `infinity`.
///
/// A number of bytes may have a fraction and a suffix. The suffixes are `B` for bytes, and `K`,
/// `M`, `G`, `T`, `P` and `E`, each 1024 times the one before. Several terms are added up, as in
/// `1G 512M`, if each term has a smaller suffix than the term before it.
///
/// A percentage is parsed as by [`parse_permyriad`], but must not exceed 100%.
///
/// # Errors
///
/// Returns an error for any other text, and for a number of bytes that does not fit in 64 bits.
///
/// ```
/// use fleet_unitfile::values::{parse_size, Size};
///
/// assert_eq!(parse_size("1.5K")?, Size::Bytes(1536));
/// assert_eq!(parse_size("12.5%")?, Size::Permyriad(1250));
/// assert_eq!(Size::Bytes(3 << 30).to_string(), "3G");
/// # Ok::<(), fleet_unitfile::values::SizeError>(())
/// ```
pub fn parse_size(text: &str) -> Result<Size, SizeError> {
    const WHOLE: u32 = 10_000;
    if text == "infinity" {
        return Ok(Size::Infinity);
    }
    if text.ends_with(['%', '‰', '‱']) {
        let share = parse_permyriad(text)?;
        return if share <= WHOLE { Ok(Size::Permyriad(share)) } else { Err(SizeError::TooLarge) };
    }
    let (mut total, mut smaller, mut rest) = (0_u64, &SUFFIXES[..], text);
    loop {
        let at = text.len() - rest.len();
        let (term, after, left) = term(rest, smaller).ok_or(SizeError::Syntax { at })?;
        total = term.and_then(|it| total.checked_add(it)).ok_or(SizeError::TooLarge)?;
        if after.is_empty() {
            return Ok(Size::Bytes(total));
        }
        (smaller, rest) = (left, after);
    }
}

/// Parses a share of a whole and returns it in ten-thousandths. The number has at most:
///
/// - two decimals before `%` (per cent);
/// - one decimal before `‰` (per mille);
/// - no decimals before `‱` (ten-thousandths).
///
/// The share may exceed the whole, as in `CPUQuota=200%`.
///
/// # Errors
///
/// Returns an error for any other text, and for a share that does not fit in 31 bits.
///
/// ```
/// assert_eq!(fleet_unitfile::values::parse_permyriad("12.34%"), Ok(1234));
/// assert_eq!(fleet_unitfile::values::parse_permyriad("5‰"), Ok(50));
/// ```
pub fn parse_permyriad(text: &str) -> Result<u32, SizeError> {
    let wrong = SizeError::Syntax { at: 0 };
    let signs = [("%", 2_usize), ("‰", 1), ("‱", 0)];
    let found = signs.iter().find_map(|(sign, most)| Some((text.strip_suffix(sign)?, *most)));
    let (number, most) = found.ok_or(wrong)?;
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if (1..=most).contains(&fraction.len()) => (whole, fraction),
        Some(_) => return Err(wrong),
        None => (number, ""),
    };
    let whole = integer(whole).ok_or(wrong)?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong);
    }
    let fraction: i64 = format!("0{fraction:0<most$}").parse().map_err(|_| wrong)?;
    let scale = [1, 10, 100][most];
    let value = whole.checked_mul(scale).and_then(|it| it.checked_add(fraction));
    let value = value.and_then(|it| i32::try_from(it).ok()).ok_or(SizeError::TooLarge)?;
    u32::try_from(value).map_err(|_| wrong)
}

/// Error for a string that is not a size or a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// The text contains something other than numbers and suffixes.
    #[error("invalid size at byte {at}: write bytes as in \"512M\", or a percentage as in \"10%\"")]
    Syntax {
        /// Offset of the invalid part.
        at: usize,
    },
    /// The value does not fit.
    #[error("size is too large: write \"infinity\" for no limit")]
    TooLarge,
}

impl fmt::Display for Size {
    /// Writes the number with the largest suffix that needs no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Infinity => f.pad("infinity"),
            Self::Bytes(0) => f.pad("0"),
            Self::Bytes(bytes) => {
                let fits = |(suffix, _): &&(&str, u64)| *suffix != "B";
                let mut all = SUFFIXES.iter().filter(fits);
                let (suffix, factor) = all
                    .find(|(_, factor)| bytes.is_multiple_of(*factor))
                    .expect("one divides every number");
                f.pad(&format!("{}{suffix}", bytes / factor))
            }
            Self::Permyriad(share) if share.is_multiple_of(100) => {
                f.pad(&format!("{}%", share / 100))
            }
            Self::Permyriad(share) => f.pad(&format!("{}.{:02}%", share / 100, share % 100)),
        }
    }
}

impl FromStr for Size {
    type Err = SizeError;

    /// Parses a size, like [`parse_size`].
    fn from_str(text: &str) -> Result<Self, SizeError> {
        parse_size(text)
    }
}

type Suffixes = &'static [(&'static str, u64)];

/// Parses the first term of a text, such as `1G` in `1G 512M`. Returns the term's number of bytes
/// (`None` on overflow), the text after it, and the suffixes that later terms may have.
fn term(text: &str, suffixes: Suffixes) -> Option<(Option<u64>, &str, Suffixes)> {
    let blanks = [' ', '\t', '\n', '\r'];
    let text = text.trim_start_matches(blanks);
    let (whole, rest) = digits(text.strip_prefix('+').unwrap_or(text));
    if whole.is_empty() {
        return None;
    }
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    let rest = rest.trim_start_matches(blanks);
    let place = suffixes.iter().position(|(suffix, _)| rest.starts_with(suffix))?;
    let (suffix, factor) = suffixes[place];
    Some((bytes(whole, fraction, factor), &rest[suffix.len()..], &suffixes[place + 1..]))
}

/// Multiplies the decimal number `whole.fraction` by a factor, and truncates the product to whole
/// bytes. Returns `None` on overflow.
fn bytes(whole: &str, fraction: &str, factor: u64) -> Option<u64> {
    let (mut value, mut place) = (0_u128, 1_u128);
    // Eighteen digits distinguish the bytes of an exbibyte.
    for digit in fraction.bytes().take(18) {
        (value, place) = (value * 10 + u128::from(digit - b'0'), place * 10);
    }
    let part = value * u128::from(factor) / place;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(factor)?.checked_add(u64::try_from(part).ok()?)
}

/// Parses an integer as systemd does: with an optional sign, and decimal unless a prefix marks it
/// as hexadecimal, octal or binary.
pub(crate) fn integer(value: &str) -> Option<i64> {
    let (sign, digits) = match value.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, value.strip_prefix('+').unwrap_or(value)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    let number = i128::from_str_radix(digits, radix).ok().filter(|_| plain)?;
    i64::try_from(sign * number).ok()
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, size, written) in [
            ("0", Size::Bytes(0), "0"),
            ("1", Size::Bytes(1), "1"),
            ("1B", Size::Bytes(1), "1"),
            ("1024", Size::Bytes(1024), "1K"),
            ("1025", Size::Bytes(1025), "1025"),
            ("1.5M", Size::Bytes(3 << 19), "1536K"),
            ("10.M", Size::Bytes(10 << 20), "10M"),
            (" 1G 512M", Size::Bytes(3 << 29), "1536M"),
            ("1K1", Size::Bytes(1025), "1025"),
            ("15E", Size::Bytes(15 << 60), "15E"),
            ("0.0001K", Size::Bytes(0), "0"),
            ("infinity", Size::Infinity, "infinity"),
            ("100%", Size::Permyriad(10_000), "100%"),
            ("0.5%", Size::Permyriad(50), "0.50%"),
            ("12.3‰", Size::Permyriad(123), "1.23%"),
            ("7‱", Size::Permyriad(7), "0.07%"),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
            assert_eq!(size.to_string(), written, "{text}");
            assert_eq!(written.parse(), Ok(size), "{text}");
        }
    }

    #[test]
    fn integers_are_read_in_four_bases() {
        for (value, expected) in [
            ("0", Some(0)),
            ("-5", Some(-5)),
            ("+5", Some(5)),
            ("0x10", Some(16)),
            ("010", Some(8)),
            ("0b11", Some(3)),
            ("0o17", Some(15)),
            ("", None),
            ("-", None),
            ("5 ", None),
            ("08", None),
            ("--5", None),
            ("9223372036854775808", None),
            ("ä5", None),
        ] {
            assert_eq!(integer(value), expected, "{value:?}");
        }
    }

    #[test]
    fn integer_part_of_a_percentage_takes_all_bases() {
        for (text, share) in [("+1%", 100), ("0x10%", 1600), ("010%", 800), ("-0.5%", 50)] {
            assert_eq!(parse_permyriad(text), Ok(share), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for (text, error) in [
            ("", SizeError::Syntax { at: 0 }),
            ("K", SizeError::Syntax { at: 0 }),
            ("-1", SizeError::Syntax { at: 0 }),
            (".5K", SizeError::Syntax { at: 0 }),
            ("1KB", SizeError::Syntax { at: 2 }),
            ("1K 1M", SizeError::Syntax { at: 4 }),
            ("1K ", SizeError::Syntax { at: 2 }),
            ("1k", SizeError::Syntax { at: 1 }),
            ("16E", SizeError::TooLarge),
            ("18446744073709551616", SizeError::TooLarge),
            ("101%", SizeError::TooLarge),
            ("1.234%", SizeError::Syntax { at: 0 }),
            ("1.%", SizeError::Syntax { at: 0 }),
            ("1.5‱", SizeError::Syntax { at: 0 }),
            ("-1%", SizeError::Syntax { at: 0 }),
            ("08%", SizeError::Syntax { at: 0 }),
        ] {
            assert_eq!(parse_size(text), Err(error), "{text}");
        }
        assert_eq!(parse_permyriad("300%"), Ok(30_000));
        assert_eq!(parse_permyriad("99999999999%"), Err(SizeError::TooLarge));
    }
}
