//! Calendar events with the time zones and timestamps of the crate jiff.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};

use crate::calendar::{Calendar, OffsetPeriod, Zone};

/// Available with the feature `jiff`.
impl Zone for TimeZone {
    fn offset_period(&self, at: i64) -> OffsetPeriod {
        // Times that jiff cannot represent have no transitions.
        let Ok(now) = Timestamp::from_second(at) else {
            return OffsetPeriod { offset: 0, since: None, until: None };
        };
        let after = Timestamp::from_second(at.saturating_add(1)).unwrap_or(now);
        let since = self.preceding(after).next().and_then(|change| {
            let since = change.timestamp().as_second();
            let before = Timestamp::from_second(since - 1).ok()?;
            Some((since, self.to_offset(before).seconds()))
        });
        let until = self.following(now).next().map(|change| change.timestamp().as_second());
        OffsetPeriod { offset: self.to_offset(now).seconds(), since, until }
    }
}

impl Calendar {
    /// Returns the event's time zone, or `default` for an event without one. `database` finds a
    /// time zone by its name; [`jiff::tz::db`] is that of the machine.
    ///
    /// Available with the feature `jiff`.
    ///
    /// # Errors
    ///
    /// Returns an error if the database does not have the time zone.
    ///
    /// ```
    /// use fleet_unitfile::Calendar;
    /// use jiff::tz::TimeZone;
    ///
    /// let database = jiff::tz::db();
    /// let zone = "09:00 Europe/Berlin".parse::<Calendar>()?.time_zone(&TimeZone::UTC, database)?;
    /// assert_eq!(zone.iana_name(), Some("Europe/Berlin"));
    /// let zone = "09:00 Europe/Nowhere".parse::<Calendar>()?.time_zone(&TimeZone::UTC, database);
    /// assert!(zone.is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_zone(
        &self,
        default: &TimeZone,
        database: &TimeZoneDatabase,
    ) -> Result<TimeZone, jiff::Error> {
        match self.zone() {
            None => Ok(default.clone()),
            Some(_) if self.is_utc() => Ok(TimeZone::UTC),
            Some(name) => database.get(name),
        }
    }

    /// Returns the first time later than `after` at which the event elapses, in the event's time
    /// zone. Returns `Ok(None)` if there is no such time before the end of 2199.
    ///
    /// An event without a time zone uses that of `after`. `database` finds a time zone by its name;
    /// [`jiff::tz::db`] is that of the machine. As with [`next_after`](Self::next_after), times are
    /// in whole microseconds, and the event does not elapse before 1970.
    ///
    /// Available with the feature `jiff`.
    ///
    /// # Errors
    ///
    /// Returns an error if the database does not have the time zone.
    ///
    /// ```
    /// use fleet_unitfile::Calendar;
    /// use jiff::Zoned;
    ///
    /// let workdays: Calendar = "Mon..Fri 09:00 Europe/Berlin".parse()?;
    /// let saturday: Zoned = "2026-10-24T12:00+02[Europe/Berlin]".parse()?;
    /// let next = workdays.next_zoned(&saturday, jiff::tz::db())?;
    /// // Winter time began on Sunday.
    /// assert_eq!(next, Some("2026-10-26T09:00+01[Europe/Berlin]".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_zoned(
        &self,
        after: &Zoned,
        database: &TimeZoneDatabase,
    ) -> Result<Option<Zoned>, jiff::Error> {
        let zone = self.time_zone(after.time_zone(), database)?;
        let after = after.timestamp();
        let after = if after < Timestamp::UNIX_EPOCH { -1 } else { after.as_microsecond() };
        let next = self.next_micros(after, &zone);
        next.map(|next| Ok(Timestamp::from_microsecond(next)?.to_zoned(zone))).transpose()
    }
}
