//! UTC offsets of time zones, and the periods for which they are constant.

/// A time zone. Its local time determines when a [`Calendar`](super::Calendar) elapses.
///
/// This crate has no time zone database. Callers implement this trait on top of one. With the
/// feature `jiff`, `jiff::tz::TimeZone` implements it. All times are in seconds since 1 January
/// 1970 UTC.
pub trait Zone {
    /// Returns the offset period that contains a time.
    fn offset_period(&self, at: i64) -> OffsetPeriod;
}

/// A period with a constant UTC offset in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetPeriod {
    /// Seconds that local time is ahead of UTC.
    pub offset: i32,
    /// The first second of the period, and the UTC offset just before it. `None` if the period has
    /// no beginning.
    pub since: Option<(i64, i32)>,
    /// The first second after the period; `None` if it has no end.
    pub until: Option<i64>,
}

/// UTC, with a constant offset of zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utc;

impl Zone for Utc {
    fn offset_period(&self, _at: i64) -> OffsetPeriod {
        OffsetPeriod { offset: 0, since: None, until: None }
    }
}
