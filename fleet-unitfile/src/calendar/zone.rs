//! UTC offsets of time zones, and the periods for which they are constant.

/// A time zone. A [`Calendar`](super::Calendar) elapses in the local time of its time zone.
///
/// Times are in seconds since 1970 in UTC. This crate has no time zone database. An implementation
/// looks up the [`OffsetPeriod`] of a time in such a database.
pub trait Zone {
    /// Returns the offset period that contains a time.
    fn offset_period(&self, at: i64) -> OffsetPeriod;
}

/// A period with a constant UTC offset in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetPeriod {
    /// Seconds that local time is ahead of UTC.
    pub offset: i32,
    /// The first second of the period, and the offset before that second. `None` if the period has
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
