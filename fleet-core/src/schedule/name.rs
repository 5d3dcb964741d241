//! Names of runs.

use std::fmt;

use fleet_unitfile::{NameError, UnitName};

use super::RunId;
use crate::Timestamp;

const DAY: u64 = 24 * 3_600_000;

impl RunId {
    /// Returns the name of the run's unit. The same run always has the same name, and two runs of a
    /// unit have two names.
    ///
    /// The run of a template is an instance of it. Otherwise, the stem gets a suffix.
    ///
    /// ```
    /// use fleet_core::schedule::RunId;
    /// use fleet_core::{Generation, Timestamp};
    /// use fleet_unitfile::UnitName;
    ///
    /// let run = RunId::Elapse(Timestamp::from_millis(1_795_831_200_000));
    /// for (unit, name) in [
    ///     ("backup.service", "backup-20261128T020000Z.service"),
    ///     ("backup@.service", "backup@20261128T020000Z.service"),
    ///     ("backup@db.service", "backup@db-20261128T020000Z.service"),
    /// ] {
    ///     assert_eq!(run.unit_name(&unit.parse()?)?.as_str(), name);
    /// }
    /// let manual = RunId::Manual(Generation(3)).unit_name(&"backup.service".parse()?)?;
    /// assert_eq!(manual.as_str(), "backup-manual-3.service");
    /// # Ok::<(), fleet_unitfile::NameError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the name is too long.
    pub fn unit_name(&self, unit: &UnitName) -> Result<UnitName, NameError> {
        let separator = if unit.is_template() { "" } else { "-" };
        UnitName::parse(&format!("{}{separator}{self}.{}", unit.stem(), unit.unit_type()))
    }
}

/// Writes the time in UTC in the basic format of ISO 8601, as in `20261128T020000Z`, or
/// `manual-3`. Milliseconds are written unless they are zero.
impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manual(request) => write!(f, "manual-{request}"),
            Self::Elapse(at) => write_time(*at, f),
        }
    }
}

fn write_time(at: Timestamp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let millis = at.as_millis();
    let (year, month, day) = date(millis / DAY);
    let (second, millis) = (millis % DAY / 1000, millis % 1000);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(f, "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}")?;
    match millis {
        0 => f.write_str("Z"),
        _ => write!(f, ".{millis:03}Z"),
    }
}

/// Returns year, month and day of a day counted from 1 January 1970.
fn date(day: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day comes last. The calendar repeats itself
    // after 400 years, which have 146,097 days.
    let day = day + 719_468;
    let (cycle, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + 400 * cycle + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_civil_calendar() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for number in 0..100_000 {
            assert_eq!(date(number), (year, month, day), "day {number}");
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }
}
