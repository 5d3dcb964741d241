//! Time spans in systemd syntax.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A time span, which may be infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timespan {
    /// A finite span, in whole microseconds.
    Finite(Duration),
    /// An infinite span, longer than any other.
    Infinity,
}

impl Timespan {
    /// Returns the length; `None` if it is infinite.
    pub fn as_duration(self) -> Option<Duration> {
        match self {
            Self::Finite(duration) => Some(duration),
            Self::Infinity => None,
        }
    }

    /// Returns the length as a type of the crate jiff. Returns `None` if it is infinite, or longer
    /// than that type can hold. No parsed span is.
    ///
    /// Available with the feature `jiff`.
    ///
    /// ```
    /// let span = fleet_unitfile::values::parse_timespan("1h 30min")?;
    /// let start: jiff::Timestamp = "2026-11-22T12:00Z".parse()?;
    /// let end = span.as_signed_duration().map(|length| start + length);
    /// assert_eq!(end, Some("2026-11-22T13:30Z".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "jiff")]
    pub fn as_signed_duration(self) -> Option<jiff::SignedDuration> {
        self.as_duration()?.try_into().ok()
    }
}

/// Writes each nonzero time unit, longest first, as in `1min 30s 500ms`. (systemd shows fractions
/// of the last unit, as in `1min 30.500000s`.) A span of zero is written as `0`, and an infinite
/// span as `infinity`.
///
/// Fractions of a microsecond are dropped, so they are lost when the text is read back.
impl fmt::Display for Timespan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WRITTEN: [(&str, u64); 9] = [
            ("y", YEAR),
            ("month", MONTH),
            ("w", 7 * DAY),
            ("d", DAY),
            ("h", HOUR),
            ("min", MINUTE),
            ("s", SECOND),
            ("ms", 1000),
            ("us", 1),
        ];
        let Some(duration) = self.as_duration() else {
            return f.pad("infinity");
        };
        let mut left = duration.as_micros();
        let mut parts = Vec::new();
        for (unit, length) in WRITTEN {
            let count = left / u128::from(length);
            left %= u128::from(length);
            if count > 0 {
                parts.push(format!("{count}{unit}"));
            }
        }
        f.pad(if parts.is_empty() { "0".to_owned() } else { parts.join(" ") }.as_str())
    }
}

impl FromStr for Timespan {
    type Err = TimespanError;

    /// Parses a time span, like [`parse_timespan`].
    fn from_str(text: &str) -> Result<Self, TimespanError> {
        parse_timespan(text)
    }
}

/// Every time unit with its length in microseconds. The parser uses the first unit that matches, so
/// `minutes` comes before `min` and `m`.
const UNITS: [(&str, u64); 30] = [
    ("seconds", SECOND),
    ("second", SECOND),
    ("sec", SECOND),
    ("s", SECOND),
    ("minutes", MINUTE),
    ("minute", MINUTE),
    ("min", MINUTE),
    ("months", MONTH),
    ("month", MONTH),
    ("msec", 1000),
    ("ms", 1000),
    ("m", MINUTE),
    ("M", MONTH),
    ("hours", HOUR),
    ("hour", HOUR),
    ("hr", HOUR),
    ("h", HOUR),
    ("days", DAY),
    ("day", DAY),
    ("d", DAY),
    ("weeks", 7 * DAY),
    ("week", 7 * DAY),
    ("w", 7 * DAY),
    ("years", YEAR),
    ("year", YEAR),
    ("y", YEAR),
    ("usec", 1),
    ("us", 1),
    ("\u{b5}s", 1),
    ("\u{3bc}s", 1),
];

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// 30.4375 days, a twelfth of a year.
const MONTH: u64 = YEAR / 12;
/// 365.25 days.
const YEAR: u64 = 1461 * DAY / 4;

/// Parses a time span: numbers with units that add up, as in `1min 30s`, or `infinity`.
///
/// A number may have a fraction. A number without a unit is a number of seconds. Fractions of a
/// microsecond are truncated. The units are:
///
/// - `us`, `usec`, `µs`, `μs`;
/// - `ms`, `msec`;
/// - `s`, `sec`, `second`, `seconds`;
/// - `m`, `min`, `minute`, `minutes`;
/// - `h`, `hr`, `hour`, `hours`;
/// - `d`, `day`, `days`;
/// - `w`, `week`, `weeks`;
/// - `M`, `month`, `months` (30.4375 days);
/// - `y`, `year`, `years` (365.25 days).
///
/// # Errors
///
/// Returns an error for any other text, and for a sum that does not fit in 64 bits of microseconds.
///
/// ```
/// use std::time::Duration;
/// use fleet_unitfile::values::{parse_timespan, Timespan};
///
/// let time = parse_timespan("1min 30s")?;
/// assert_eq!(time, Timespan::Finite(Duration::from_secs(90)));
/// assert_eq!(parse_timespan("infinity")?, Timespan::Infinity);
/// # Ok::<(), fleet_unitfile::values::TimespanError>(())
/// ```
pub fn parse_timespan(text: &str) -> Result<Timespan, TimespanError> {
    let mut rest = skip_blanks(text);
    if let Some(after) = rest.strip_prefix("infinity") {
        let at = text.len() - after.len();
        let ends = skip_blanks(after).is_empty();
        return if ends { Ok(Timespan::Infinity) } else { Err(TimespanError::Syntax { at }) };
    }
    if rest.is_empty() {
        return Err(TimespanError::Empty);
    }
    let mut total = 0;
    while !rest.is_empty() {
        let at = text.len() - rest.len();
        let number = Number::read(rest).ok_or(TimespanError::Syntax { at })?;
        let (length, after) = unit(number.after);
        // A second dot must not be read as the start of a new number.
        if length.is_none() && !after.is_empty() && after.len() == number.after.len() {
            let at = text.len() - after.len();
            return Err(TimespanError::Syntax { at });
        }
        let term = number.times(length.unwrap_or(SECOND));
        let sum = term.and_then(|term| term.checked_add(total)).filter(|&sum| sum < u64::MAX);
        total = sum.ok_or(TimespanError::TooLong)?;
        rest = skip_blanks(after);
    }
    Ok(Timespan::Finite(Duration::from_micros(total)))
}

/// Error for a string that is not a time span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimespanError {
    /// The text is empty.
    #[error("empty time span: write a number with a unit such as \"5s\", or \"infinity\"")]
    Empty,
    /// The text contains something other than numbers and units.
    #[error("invalid time span at byte {at}: write numbers with units, such as \"1min 30s\"")]
    Syntax {
        /// Byte offset of the invalid part.
        at: usize,
    },
    /// The span is longer than 584,000 years.
    #[error("time span is too long: write \"infinity\" for a time span without an end")]
    TooLong,
}

/// A decimal number and the text after it.
struct Number<'a> {
    whole: u64,
    fraction: &'a str,
    after: &'a str,
}

impl<'a> Number<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let unsigned = text.strip_prefix('+');
        let (whole, rest) = digits(unsigned.unwrap_or(text));
        // A sign needs a digit behind it.
        if unsigned.is_some() && whole.is_empty() {
            return None;
        }
        let (fraction, after) = match rest.strip_prefix('.') {
            Some(rest) => Some(digits(rest)).filter(|(fraction, _)| !fraction.is_empty())?,
            None if whole.is_empty() => return None,
            None => ("", rest),
        };
        let whole = match whole {
            "" => 0,
            // A value beyond the signed range makes the span too long with any unit.
            _ => whole.parse::<i64>().map_or(u64::MAX, i64::unsigned_abs),
        };
        Some(Self { whole, fraction, after })
    }

    /// Multiplies the number by the length of a time unit; `None` on overflow.
    fn times(&self, length: u64) -> Option<u64> {
        // systemd also refuses the largest number of each unit.
        let mut total = self.whole * Some(length).filter(|it| self.whole < u64::MAX / it)?;
        let mut place = length / 10;
        for digit in self.fraction.bytes() {
            total = total.checked_add(u64::from(digit - b'0') * place)?;
            place /= 10;
        }
        Some(total)
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

/// Returns the length of the time unit at the start of a text, and the text after it. The length is
/// `None` if the text does not begin with a unit.
fn unit(text: &str) -> (Option<u64>, &str) {
    let text = skip_blanks(text);
    let found = UNITS.iter().find_map(|(word, length)| Some((*length, text.strip_prefix(word)?)));
    found.map_or((None, text), |(length, rest)| (Some(length), rest))
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r'])
}
