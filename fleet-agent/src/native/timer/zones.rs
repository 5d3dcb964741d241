//! Time zones for calendar events, from the machine's database.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fleet_core::graph::systemd::{TimeZones, Timer};
use fleet_unitfile::{OffsetPeriod, Utc, Zone};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The local time zone, and those that timers name.
pub(crate) struct ZoneCache {
    /// Loaded on first use, since most machines run no unit that needs it.
    local: LazyLock<JiffZone>,
    named: BTreeMap<String, JiffZone>,
}

struct JiffZone(TimeZone);

/// Returns whether this machine knows a time zone.
pub(crate) fn is_zone(name: &str) -> bool {
    name.eq_ignore_ascii_case("UTC") || TimeZone::get(name).is_ok()
}

impl ZoneCache {
    /// Creates a cache of time zones. The local zone is read on first use. If the local zone is
    /// unknown, it counts as UTC.
    pub(crate) fn new() -> Self {
        Self { local: LazyLock::new(|| JiffZone(TimeZone::system())), named: BTreeMap::new() }
    }

    /// Loads all time zones that a timer names. A zone that is unknown here counts as UTC. This is
    /// rare, because a timer that names an unknown zone is refused when it is loaded.
    pub(crate) fn load(&mut self, timer: &Timer) {
        for name in timer.zones() {
            let found = TimeZone::get(name).ok().filter(|_| !self.named.contains_key(name));
            found.map(|zone| self.named.insert(name.to_owned(), JiffZone(zone)));
        }
    }
}

impl TimeZones for ZoneCache {
    fn zone(&self, name: Option<&str>) -> &dyn Zone {
        match name.map(|name| self.named.get(name)) {
            None => &*self.local,
            Some(Some(known)) => known,
            Some(None) => &Utc,
        }
    }
}

impl Zone for JiffZone {
    fn offset_period(&self, at: i64) -> OffsetPeriod {
        let Self(zone) = self;
        // Times out of range have no transitions.
        let Ok(now) = Timestamp::from_second(at) else {
            return OffsetPeriod { offset: 0, since: None, until: None };
        };
        let after = Timestamp::from_second(at.saturating_add(1)).unwrap_or(now);
        let since = zone.preceding(after).next().and_then(|change| {
            let since = change.timestamp().as_second();
            let before = Timestamp::from_second(since - 1).ok()?;
            Some((since, zone.to_offset(before).seconds()))
        });
        let until = zone.following(now).next().map(|change| change.timestamp().as_second());
        OffsetPeriod { offset: zone.to_offset(now).seconds(), since, until }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet_unitfile::Calendar;

    use super::*;

    #[test]
    fn zone_transitions_follow_the_database() {
        let zone = JiffZone(TimeZone::get("Europe/Berlin").expect("the machine knows it"));
        let spring = 1_774_746_000;
        let winter =
            OffsetPeriod { offset: 3600, since: Some((1_761_440_400, 7200)), until: Some(spring) };
        assert_eq!(zone.offset_period(spring - 1), winter);
        let summer = zone.offset_period(spring);
        assert_eq!((summer.offset, summer.since), (7200, Some((spring, 3600))));
        let calendar: Calendar = "02:30 Europe/Berlin".parse().expect("it is a calendar event");
        let next = calendar.next_after(Duration::from_secs(1_774_699_200), &zone);
        assert_eq!(next, Some(Duration::from_secs(1_774_830_600)), "02:30 is left out that day");
        assert!(calendar.next_after(Duration::from_secs(7_000_000_000), &zone).is_some());
    }

    #[test]
    fn only_existing_zones_are_known() {
        assert_eq!(JiffZone(TimeZone::UTC).offset_period(0), Utc.offset_period(0));
        assert!(is_zone("utc") && is_zone("Europe/Berlin") && !is_zone("Europe/Atlantis"));
    }
}
