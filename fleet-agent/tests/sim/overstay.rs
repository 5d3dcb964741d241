//! Units that run where they should not (I-1, I-7): for how long, and whether that is excused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::Snapshot;
use fleet_scheduler::share;
use fleet_unitfile::UnitName;
use tokio::time::Instant;

use crate::host::Host;

/// How long a machine without faults may have a unit that it should not have. It has to join and to
/// read everything again, each after a retry pause of up to ten seconds.
const BOUND: Duration = Duration::from_secs(30);

/// Machines with an unexcused unit, and since when.
#[derive(Default)]
pub(crate) struct Overstay {
    since: BTreeMap<(usize, UnitName), Instant>,
}

impl Overstay {
    /// Returns the units that have overstayed.
    pub(crate) fn check(&mut self, hosts: &[Host], now: &Snapshot) -> Vec<String> {
        let here: BTreeSet<(usize, UnitName)> = hosts
            .iter()
            .enumerate()
            .flat_map(|(machine, host)| {
                out_of_place(host, now).into_iter().map(move |unit| (machine, unit))
            })
            .collect();
        self.since.retain(|place, _| here.contains(place));
        for place in here {
            self.since.entry(place).or_insert_with(Instant::now);
        }
        let late = self.since.iter().filter(|((machine, _), since)| {
            since.elapsed() > BOUND && hosts[*machine].is_well_for(BOUND)
        });
        let text = |(machine, unit): &(usize, UnitName)| {
            let known = now.unit(unit.as_str()).is_some();
            let rule = if known { "I-1" } else { "I-7" };
            format!("{rule}: {unit} is still on {} after {BOUND:?}", hosts[*machine].id())
        };
        late.map(|(place, _)| text(place)).collect()
    }
}

fn out_of_place(host: &Host, now: &Snapshot) -> Vec<UnitName> {
    let share = share(now, host.id());
    let units = host.units().into_iter().map(|unit| unit.unit);
    units
        .filter(|unit| !share.units.contains_key(unit) && !share.undecided.contains(unit))
        .collect()
}
