//! Parsing of booleans, and a validity check for calendar events.

use crate::Calendar;

/// Parses a boolean as systemd does. Returns `None` if the text is not a boolean.
///
/// The texts `1`, `yes`, `y`, `true`, `t` and `on` are true. The texts `0`, `no`, `n`, `false`, `f`
/// and `off` are false. Case is ignored. Blanks are not skipped.
///
/// ```
/// assert_eq!(fleet_unitfile::parse_bool("Yes"), Some(true));
/// assert_eq!(fleet_unitfile::parse_bool("off"), Some(false));
/// assert_eq!(fleet_unitfile::parse_bool("maybe"), None);
/// ```
pub fn parse_bool(text: &str) -> Option<bool> {
    let is = |word: &&str| text.eq_ignore_ascii_case(word);
    if ["1", "yes", "y", "true", "t", "on"].iter().any(is) {
        Some(true)
    } else if ["0", "no", "n", "false", "f", "off"].iter().any(is) {
        Some(false)
    } else {
        None
    }
}

/// Returns `true` if a string is a calendar event, as used in `OnCalendar=`. Such a string parses
/// as a [`Calendar`].
///
/// ```
/// use fleet_unitfile::is_calendar;
///
/// assert!(is_calendar("Sat,Sun *-*-* 10:00/15"));
/// assert!(!is_calendar("*-13-01"));
/// ```
pub fn is_calendar(text: &str) -> bool {
    text.parse::<Calendar>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boolean_words() {
        for (words, meaning) in [
            (&["1", "yes", "y", "true", "t", "on", "YES", "On", "tRuE"][..], Some(true)),
            (&["0", "no", "n", "false", "f", "off", "No", "OFF"][..], Some(false)),
            (&["", " yes", "yes ", "2", "01", "ye", "enable", "ÿes"][..], None),
        ] {
            for word in words {
                assert_eq!(parse_bool(word), meaning, "{word:?}");
            }
        }
    }
}
