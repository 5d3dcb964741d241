//! What is told once in a while, however often it happens: a disk that is full keeps every unit
//! from being written down, at each of its steps.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fleet_core::Timestamp;

/// How long nothing more of the kind is told.
const QUIET: Duration = Duration::from_secs(60);

/// One kind of trouble.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    last: Option<Timestamp>,
    untold: u64,
}

impl Seldom {
    /// It has happened: whether it is to be told, and how often it happened since it last was.
    pub(crate) fn happens(&self, now: Timestamp) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.last.is_some_and(|last| now.since(last) < QUIET) {
            told.untold = told.untold.saturating_add(1);
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_again_and_again_is_told_once_a_minute_with_how_often() {
        let seldom = Seldom::default();
        let told = [0, 1, 59, 60, 61, 100, 119, 120, 300]
            .map(|second| seldom.happens(Timestamp::from_millis(second * 1000)));
        let (none, some) = (None, Some);
        assert_eq!(told, [some(0), none, none, some(2), none, none, none, some(3), some(0)]);
    }
}
