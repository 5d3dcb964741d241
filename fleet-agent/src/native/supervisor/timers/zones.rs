//! Time zones for calendar events, from the machine's database.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fleet_core::graph::systemd::{TimeZones, Timer};
use fleet_unitfile::{Utc, Zone};
use jiff::tz::TimeZone;

/// The local time zone, and those that timers name.
pub(super) struct ZoneCache {
    /// Loaded on first use, since most machines run no unit that needs it.
    local: LazyLock<TimeZone>,
    named: BTreeMap<String, TimeZone>,
}

impl ZoneCache {
    /// Creates a cache of time zones. The local zone is read on first use. If the local zone is
    /// unknown, it counts as UTC.
    pub(super) fn new() -> Self {
        Self { local: LazyLock::new(TimeZone::system), named: BTreeMap::new() }
    }

    /// Loads all time zones that a timer names. A zone that is unknown here counts as UTC. This is
    /// rare, because a timer that names an unknown zone is refused when it is loaded.
    pub(super) fn load(&mut self, timer: &Timer) {
        for name in timer.zones() {
            let found = TimeZone::get(name).ok().filter(|_| !self.named.contains_key(name));
            found.map(|zone| self.named.insert(name.to_owned(), zone));
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
