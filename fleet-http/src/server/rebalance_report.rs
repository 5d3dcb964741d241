//! Pure: what an order to rebalance comes to.

use std::collections::BTreeMap;

use fleet_core::{Machine, MachineId, Moving, Rebalancing, Snapshot};
use fleet_scheduler::{Action, Cause, Index, Policy, Rebalance, Step, share};
use fleet_unitfile::UnitName;

use crate::wire::{self, BalanceMove, MachineLoad, RebalanceReport, UnderWay};

/// What is left to be done for the order of a cluster, as if all of it were done now.
pub(super) fn rebalance_report(snapshot: &Snapshot, order: &Rebalancing) -> RebalanceReport {
    let asked = Rebalance::in_all(snapshot).unwrap_or_default();
    let plan = Index::load(Policy::default(), snapshot).rebalance(&asked);
    let moves = plan.steps.iter().filter(|step| step.cause == Cause::Rebalanced);
    let moves: Vec<BalanceMove> = moves.filter_map(balance_move).collect();
    let machines = loads(snapshot, &moves);
    let under_way = order.under_way(snapshot).map(|(unit, moving)| awaited(snapshot, unit, moving));
    let under_way: Vec<UnderWay> = under_way.collect();
    let is_over = moves.is_empty() && under_way.is_empty();
    let reason = if is_over { why_none(order, &machines) } else { String::new() };
    RebalanceReport { order: wire::rebalance_order(order), machines, moves, reason, under_way }
}

fn balance_move(step: &Step) -> Option<BalanceMove> {
    let Action::Move { from, to } = &step.action else { return None };
    let unit = step.unit.to_string();
    Some(BalanceMove { from: from.to_string(), to: to.to_string(), unit })
}

/// What the machines have to do, before and after the moves.
fn loads(snapshot: &Snapshot, moves: &[BalanceMove]) -> Vec<MachineLoad> {
    let mut changes: BTreeMap<&str, i64> = BTreeMap::new();
    for it in moves {
        *changes.entry(&it.from).or_default() -= 1;
        *changes.entry(&it.to).or_default() += 1;
    }
    let load = |machine: &Machine| {
        let units = u32::try_from(share(snapshot, &machine.id).units.len()).unwrap_or(u32::MAX);
        let change = changes.get(machine.id.as_str()).copied().unwrap_or(0);
        let after = u32::try_from(i64::from(units) + change).unwrap_or(0);
        MachineLoad { after, machine_id: machine.id.to_string(), units }
    };
    snapshot.machines().map(|machine| load(machine)).collect()
}

/// Why nobody is to move.
fn why_none(order: &Rebalancing, machines: &[MachineLoad]) -> String {
    if order.left() == 0 {
        return format!("{} were moved, and no more may be", order.moved);
    }
    let loads = machines.iter().map(|machine| machine.units);
    match (loads.clone().min(), loads.max()) {
        (Some(least), Some(most)) if machines.len() > 1 && least == most => {
            format!("each machine has {most} units")
        }
        (Some(least), Some(most)) if machines.len() > 1 => format!(
            "the machines have from {least} to {most} units, and no unit may move to where that \
             would be worth it"
        ),
        _ => "there is no other machine".to_owned(),
    }
}

fn awaited(snapshot: &Snapshot, unit: &UnitName, moving: &Moving) -> UnderWay {
    let reason = what_is_known(snapshot, unit, &moving.to);
    UnderWay { reason, to: moving.to.to_string(), unit: unit.to_string() }
}

fn what_is_known(snapshot: &Snapshot, unit: &UnitName, machine: &MachineId) -> String {
    let Some(state) = snapshot.state(unit.as_str(), machine.as_str()) else {
        return "its machine has not told of it yet".to_owned();
    };
    let systemd = &state.systemd;
    match &state.problem {
        Some(problem) => problem.clone(),
        None => format!("it is {} ({})", systemd.active, systemd.sub),
    }
}
