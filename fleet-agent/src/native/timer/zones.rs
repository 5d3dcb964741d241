//! The zones that calendars are read by, from the machine's database of them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fleet_core::graph::systemd::{Timer, Zones};
use fleet_unitfile::{Era, Utc, Zone};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The machine's own zone, and those that timers name.
pub(crate) struct KnownZones {
    /// Read when a calendar goes by it: most machines run units without any.
    local: LazyLock<Known>,
    named: BTreeMap<String, Known>,
}

struct Known(TimeZone);

/// Whether this machine knows a zone.
pub(crate) fn is_zone(name: &str) -> bool {
    name.eq_ignore_ascii_case("UTC") || TimeZone::get(name).is_ok()
}

impl KnownZones {
    /// The machine's zone, as it is when a calendar first goes by it; UTC, where nothing tells it.
    pub(crate) fn new() -> Self {
        Self { local: LazyLock::new(|| Known(TimeZone::system())), named: BTreeMap::new() }
    }

    /// Looks up all zones that a timer names. One that this machine does not know is read as UTC;
    /// a timer that names such is not loaded.
    pub(crate) fn learn(&mut self, timer: &Timer) {
        for name in timer.zones() {
            let found = TimeZone::get(name).ok().filter(|_| !self.named.contains_key(name));
            found.map(|zone| self.named.insert(name.to_owned(), Known(zone)));
        }
    }
}

impl Zones for KnownZones {
    fn zone(&self, name: Option<&str>) -> &dyn Zone {
        match name.map(|name| self.named.get(name)) {
            None => &*self.local,
            Some(Some(known)) => known,
            Some(None) => &Utc,
        }
    }
}

impl Zone for Known {
    fn era(&self, at: i64) -> Era {
        let Self(zone) = self;
        // What no calendar reaches has no changes.
        let Ok(now) = Timestamp::from_second(at) else {
            return Era { offset: 0, since: None, until: None };
        };
        let after = Timestamp::from_second(at.saturating_add(1)).unwrap_or(now);
        let since = zone.preceding(after).next().and_then(|change| {
            let since = change.timestamp().as_second();
            let before = Timestamp::from_second(since - 1).ok()?;
            Some((since, zone.to_offset(before).seconds()))
        });
        let until = zone.following(now).next().map(|change| change.timestamp().as_second());
        Era { offset: zone.to_offset(now).seconds(), since, until }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet_unitfile::Calendar;

    use super::*;

    #[test]
    fn the_clocks_of_a_zone_are_set_when_its_database_says_so() {
        let zone = Known(TimeZone::get("Europe/Berlin").expect("the machine knows it"));
        let spring = 1_774_746_000;
        let winter = Era { offset: 3600, since: Some((1_761_440_400, 7200)), until: Some(spring) };
        assert_eq!(zone.era(spring - 1), winter);
        let summer = zone.era(spring);
        assert_eq!((summer.offset, summer.since), (7200, Some((spring, 3600))));
        let calendar: Calendar = "02:30 Europe/Berlin".parse().expect("it is a rhythm");
        let next = calendar.next_after(Duration::from_secs(1_774_699_200), &zone);
        assert_eq!(next, Some(Duration::from_secs(1_774_830_600)), "02:30 is left out that day");
        assert!(calendar.next_after(Duration::from_secs(7_000_000_000), &zone).is_some());
    }

    #[test]
    fn only_zones_that_there_are_can_be_learnt() {
        assert_eq!(Known(TimeZone::UTC).era(0), Utc.era(0));
        assert!(is_zone("utc") && is_zone("Europe/Berlin") && !is_zone("Europe/Atlantis"));
    }
}
