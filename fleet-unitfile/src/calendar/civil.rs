//! Conversion between calendar dates and day numbers, in the proleptic Gregorian calendar.

/// A calendar date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Date {
    pub(super) year: u32,
    /// Counted from one.
    pub(super) month: u32,
    /// Counted from one.
    pub(super) day: u32,
}

/// Number of days in four hundred years, the period of the calendar.
const DAYS_IN_400_YEARS: i64 = 146_097;

/// Days from 1 March of the year zero to 1 January 1970.
const EPOCH: i64 = 719_468;

impl Date {
    /// Converts a day number, counted from 1 January 1970.
    pub(super) fn from_number(number: i64) -> Self {
        let number = number + EPOCH;
        let (cycle, day) =
            (number.div_euclid(DAYS_IN_400_YEARS), number.rem_euclid(DAYS_IN_400_YEARS));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // Years begin in March here, so that the leap day comes last.
        let month = (5 * day + 2) / 153;
        let year = year + cycle * 400 + i64::from(month >= 10);
        let number = |number: i64| u32::try_from(number).unwrap_or(0);
        Self {
            year: number(year),
            month: number(if month < 10 { month + 3 } else { month - 9 }),
            day: number(day - (153 * month + 2) / 5 + 1),
        }
    }

    /// Returns the day number, counted from 1 January 1970.
    pub(super) fn number(self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = i64::from(self.year) - i64::from(month <= 2);
        let (cycle, year) = (year.div_euclid(400), year.rem_euclid(400));
        let month = if month > 2 { month - 3 } else { month + 9 };
        let day = (153 * month + 2) / 5 + day - 1;
        cycle * DAYS_IN_400_YEARS + year * 365 + year / 4 - year / 100 + day - EPOCH
    }

    /// Returns the day of the week; zero is Monday.
    pub(super) fn weekday(self) -> i64 {
        // 1 January 1970 was a Thursday.
        (self.number() + 3).rem_euclid(7)
    }
}

/// Returns the number of days in a month.
pub(super) fn days_in(year: u32, month: u32) -> u32 {
    let leaps = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leaps => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_numbers_are_consecutive() {
        let mut date = Date { year: 1969, month: 12, day: 30 };
        for number in -2..90_000 {
            assert_eq!((Date::from_number(number), date.number()), (date, number));
            assert_eq!(date.weekday(), (number + 3).rem_euclid(7));
            date.day += 1;
            if date.day > days_in(date.year, date.month) {
                (date.month, date.day) = (date.month + 1, 1);
            }
            if date.month > 12 {
                (date.year, date.month) = (date.year + 1, 1);
            }
        }
        let known = Date { year: 2026, month: 11, day: 22 };
        assert_eq!((known.number(), known.weekday()), (20_779, 6));
        assert_eq!([1900, 2000, 2024, 2100].map(|year| days_in(year, 2)), [28, 29, 29, 28]);
    }
}
