//! Units that are moved or should be moved.

use std::time::Duration;

use fleet_core::{Requirements, Snapshot};
use fleet_scheduler::{Drain, Rebalance};

use crate::clusters::{machine, machine_id, unit};
use crate::operations::{carry_out, micros, sorted};
use crate::{Measurement, planned, timed};

/// Number of arriving units.
const ARRIVALS: usize = 1000;

/// Drains one machine in a hundred.
pub(crate) fn drain(cluster: &Snapshot) -> Measurement {
    let (mut index, measured) = planned(cluster);
    let drained = (0..cluster.machines().len()).step_by(100);
    let drain = Drain::new(drained.map(|at| machine_id(at).parse().expect("a machine ID")));
    let (result, plan) = timed(|| index.drain(&drain));
    let more = format!(",\"moves\":{},\"held\":{}", result.plan.steps.len(), result.held.len());
    Measurement { plan, more, ..measured }
}

/// Adds five machines and moves a hundred units to them.
pub(crate) fn rebalance(cluster: &Snapshot) -> Measurement {
    let (mut index, measured) = planned(cluster);
    let machines = cluster.machines().len();
    for at in machines..machines + 5 {
        index.add_machine(machine(at, 0));
    }
    carry_out(&mut index);
    let (result, plan) = timed(|| index.rebalance(&Rebalance::with_budget(100)));
    let more = format!(",\"moves\":{}", result.steps.len());
    Measurement { plan, more, ..measured }
}

/// Adds unrelated units one after the other.
pub(crate) fn arrivals(cluster: &Snapshot) -> Measurement {
    let (mut index, measured) = planned(cluster);
    let elapsed = (0..ARRIVALS).map(|turn| {
        let new = unit(&format!("zz-{turn:04}.service"), Requirements::default());
        let come = || {
            index.add(&new);
            carry_out(&mut index)
        };
        let (_, elapsed) = timed(come);
        // A departure may make room for units that should move.
        index.remove(new.name.as_str());
        elapsed
    });
    let mut elapsed: Vec<Duration> = elapsed.collect();
    let percent = sorted(&mut elapsed);
    let (median, p99) = (micros(percent(50)), micros(percent(99)));
    let more = format!(",\"median_us\":{median:.1},\"p99_us\":{p99:.1}");
    Measurement { plan: percent(50), more, ..measured }
}
