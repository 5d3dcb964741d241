//! Units that are moved, or that ought to be.

use std::time::Duration;

use fleet_core::{Requirements, Snapshot};
use fleet_scheduler::{Drain, Rebalance};

use crate::clusters::{machine, machine_id, unit};
use crate::lives::{carry_out, micros, sorted};
use crate::{Measured, planned, timed};

/// How many units come.
const COMING: usize = 1000;

/// One machine in a hundred is to be emptied.
pub(crate) fn drain(cluster: &Snapshot) -> Measured {
    let (mut index, measured) = planned(cluster);
    let drained = (0..cluster.machines().len()).step_by(100);
    let drain = Drain::new(drained.map(|at| machine_id(at).parse().expect("a machine ID")));
    let (told, plan) = timed(|| index.drain(&drain));
    let more = format!(",\"moves\":{},\"held\":{}", told.plan.steps.len(), told.held.len());
    Measured { plan, more, ..measured }
}

/// Five machines have joined, and a hundred units may move there.
pub(crate) fn rebalance(cluster: &Snapshot) -> Measured {
    let (mut index, measured) = planned(cluster);
    let machines = cluster.machines().len();
    for at in machines..machines + 5 {
        index.put_machine(machine(at, 0));
    }
    carry_out(&mut index);
    let (told, plan) = timed(|| index.rebalance(&Rebalance::with_budget(100)));
    let more = format!(",\"moves\":{}", told.steps.len());
    Measured { plan, more, ..measured }
}

/// Units come one after the other that have nothing to do with those that are there.
pub(crate) fn coming(cluster: &Snapshot) -> Measured {
    let (mut index, measured) = planned(cluster);
    let took = (0..COMING).map(|turn| {
        let new = unit(&format!("zz-{turn:04}.service"), Requirements::default());
        let come = || {
            index.put_unit(&new);
            carry_out(&mut index)
        };
        let (_, took) = timed(come);
        // One that leaves may make room for those that ought to move.
        index.remove_unit(new.name.as_str());
        took
    });
    let mut took: Vec<Duration> = took.collect();
    let percent = sorted(&mut took);
    let (median, p99) = (micros(percent(50)), micros(percent(99)));
    let more = format!(",\"median_us\":{median:.1},\"p99_us\":{p99:.1}");
    Measured { plan: percent(50), more, ..measured }
}
