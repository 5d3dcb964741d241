//! How far the clocks of a zone are off from UTC, and from when to when.

/// A zone, by whose clocks a [`Calendar`](super::Calendar) is read.
///
/// Moments are seconds since the beginning of 1970 in UTC. Where time zones are known is outside of
/// this crate: a database of them says for a moment what [`Era`] it lies in.
pub trait Zone {
    /// The era that a moment lies in.
    fn era(&self, at: i64) -> Era;
}

/// A stretch of time in which the clocks of a zone are off from UTC by the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Era {
    /// How many seconds the clocks are ahead of UTC.
    pub offset: i32,
    /// The first second of it, and how far the clocks were ahead before; `None` if it has no
    /// beginning.
    pub since: Option<(i64, i32)>,
    /// The first second after it; `None` if it has no end.
    pub until: Option<i64>,
}

/// The zone without a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utc;

impl Zone for Utc {
    fn era(&self, _at: i64) -> Era {
        Era { offset: 0, since: None, until: None }
    }
}
