//! Large groups of units that `MachineOf=` ties together.

use std::time::Duration;

use fleet_core::Snapshot;
use fleet_scheduler::{Cluster, Drain, Rebalance};

use crate::clusters::{machine_id, plain_name};
use crate::operations::carry_out;
use crate::{Measurement, planned, timed};

/// Puts a group unit by unit, then loses its machine, then removes its first unit, then the others.
pub(crate) fn lost(cluster: &Snapshot) -> Measurement {
    let (mut index, measured) = planned(cluster);
    let (mut fresh, one_by_one) = timed(|| {
        let mut fresh = Cluster::new();
        cluster.machines().for_each(|machine| fresh.add_machine((**machine).clone()));
        cluster.units().for_each(|unit| fresh.add(unit));
        fresh
    });
    let (_, first) = timed(|| carry_out(&mut fresh));
    let (decided, plan) = timed(|| {
        index.remove_machine(&machine_id(0));
        carry_out(&mut index)
    });
    let (_, head) = timed(|| {
        index.remove(&plain_name(0));
        index.plan_affected()
    });
    let names: Vec<_> = cluster.units().map(|unit| unit.name.clone()).collect();
    let (_, removed) = timed(|| names.iter().for_each(|name| fresh.remove(name.as_str())));
    let more = format!(
        ",\"moves\":{},\"put_seconds\":{:.6},\"head_seconds\":{:.6},\"removed_seconds\":{:.6}",
        decided.steps.len(),
        (one_by_one + first).as_secs_f64(),
        head.as_secs_f64(),
        removed.as_secs_f64()
    );
    Measurement { plan, more, ..measured }
}

/// Drains the machine of a group that no other machine accepts, then rebalances.
pub(crate) fn bound(cluster: &Snapshot) -> Measurement {
    let (mut index, measured) = planned(cluster);
    let drain = Drain::new([machine_id(0).parse().expect("a machine ID")]);
    let (drained, plan) = timed(|| index.drain(&drain));
    let (_, rebalanced): (_, Duration) = timed(|| index.rebalance(&Rebalance::with_budget(100)));
    let more = format!(
        ",\"held\":{},\"rebalance_seconds\":{:.6}",
        drained.held.len(),
        rebalanced.as_secs_f64()
    );
    Measurement { plan, more, ..measured }
}
