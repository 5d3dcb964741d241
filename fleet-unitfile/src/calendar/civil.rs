//! Days of the calendar as numbers, and back. The calendar is the Gregorian one, for all time.

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Date {
    pub(super) year: u32,
    /// From one.
    pub(super) month: u32,
    /// From one.
    pub(super) day: u32,
}

/// How many days there are in four hundred years, after which all begins anew.
const ERA: i64 = 146_097;

/// From 1 March of the year zero to the beginning of 1970.
const EPOCH: i64 = 719_468;

impl Date {
    /// The day by its number, counted from the beginning of 1970.
    pub(super) fn of_number(number: i64) -> Self {
        let number = number + EPOCH;
        let (era, day) = (number.div_euclid(ERA), number.rem_euclid(ERA));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // Years begin in March here, so that the day that leaps comes last.
        let month = (5 * day + 2) / 153;
        let year = year + era * 400 + i64::from(month >= 10);
        let number = |number: i64| u32::try_from(number).unwrap_or(0);
        Self {
            year: number(year),
            month: number(if month < 10 { month + 3 } else { month - 9 }),
            day: number(day - (153 * month + 2) / 5 + 1),
        }
    }

    /// The number of the day, counted from the beginning of 1970.
    pub(super) fn number(self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = i64::from(self.year) - i64::from(month <= 2);
        let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
        let month = if month > 2 { month - 3 } else { month + 9 };
        let day = (153 * month + 2) / 5 + day - 1;
        era * ERA + year * 365 + year / 4 - year / 100 + day - EPOCH
    }

    /// The day of the week, from zero for Monday.
    pub(super) fn weekday(self) -> i64 {
        // The first day of 1970 was a Thursday.
        (self.number() + 3).rem_euclid(7)
    }
}

/// How many days a month has.
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
    fn each_day_follows_the_one_before() {
        let mut date = Date { year: 1969, month: 12, day: 30 };
        for number in -2..90_000 {
            assert_eq!((Date::of_number(number), date.number()), (date, number));
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
