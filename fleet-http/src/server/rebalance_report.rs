//! Pure: what an order to rebalance comes to, and what it waits for.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{ActiveState, Machine, MachineId, Moving, Rebalancing, Snapshot};
use fleet_scheduler::{Action, Cause, Drain, Held, Index, Policy, Rebalance, Step, share};
use fleet_unitfile::UnitName;

use crate::wire::{self, BalanceMove, MachineLoad, RebalanceReport, UnderWay};

/// How many units are named at most that are waited for.
const MOST_NAMED: usize = 3;

/// What is left to be done for the order of a cluster, as if all of it were done now.
pub(super) fn rebalance_report(snapshot: &Snapshot, order: &Rebalancing) -> RebalanceReport {
    let asked = Rebalance::in_all(snapshot).unwrap_or_default();
    let mut index = Index::load(Policy::default(), snapshot);
    let mut moves = balance_moves(&mut index, &asked);
    let hope = asked.once_up(snapshot).filter(|_| moves.is_empty());
    if let Some(hope) = &hope {
        moves = balance_moves(&mut index, hope);
    }
    let machines = loads(snapshot, &moves);
    let under_way = order.under_way(snapshot).map(|(unit, moving)| awaited(snapshot, unit, moving));
    let under_way: Vec<UnderWay> = under_way.collect();
    let mut report = RebalanceReport {
        order: wire::rebalance_order(order),
        machines,
        moves,
        under_way,
        ..RebalanceReport::default()
    };
    if report.is_over() {
        return RebalanceReport { reason: why_none(order, &report.machines), ..report };
    }
    let hope = hope.filter(|_| !report.moves.is_empty());
    let awaited = hope.map(|hope| asked.down.difference(&hope.down).cloned().collect());
    let ups = || awaited.map(|awaited| for_ups(snapshot, &report.moves, &awaited));
    let wait = for_drain(snapshot, &mut index).or_else(ups);
    let waits_alone = order.room(snapshot) == 0 || report.moves.is_empty();
    let all_failed = order.under_way(snapshot).all(|(unit, _)| has_failed(snapshot, unit));
    report.stuck = all_failed && wait.as_ref().map_or(waits_alone, |wait| wait.stuck);
    report.waits = wait.map(|wait| wait.why).unwrap_or_default();
    report
}

/// What holds all moves up.
struct Wait {
    why: String,
    stuck: bool,
}

/// What is to be drained first. What holds that up holds the order up, too.
fn for_drain(snapshot: &Snapshot, index: &mut Index) -> Option<Wait> {
    let drain = Drain::wanted(snapshot, snapshot.machines().map(AsRef::as_ref))?;
    let plan = index.drain(&drain);
    let machines: Vec<&str> = drain.machines.iter().map(MachineId::short).collect();
    let first = format!("{} is drained first", machines.join(", "));
    let steps = plan.plan.steps.len();
    if steps > 0 {
        return Some(Wait { why: format!("{first}: {steps} units are to move"), stuck: false });
    }
    let is_short = |held: &Held| matches!(held, Held::KeepUp { .. });
    let (unit, held) = plan.held.iter().find(|(_, held)| is_short(held))?;
    let may_come = |unit: &UnitName| !has_failed(snapshot, unit);
    let stuck = !drain.down.iter().any(|unit| is_instance_of(unit, held) && may_come(unit));
    Some(Wait { why: format!("{first}, and {unit} stays for now: {held}"), stuck })
}

fn is_instance_of(unit: &UnitName, held: &Held) -> bool {
    matches!(held, Held::KeepUp { template, .. } if unit.template().as_ref() == Some(template))
}

/// Which instances have to come up before any of these moves is made.
fn for_ups(snapshot: &Snapshot, moves: &[BalanceMove], down: &BTreeSet<UnitName>) -> Wait {
    let units = moves.iter().filter_map(|it| it.unit.parse::<UnitName>().ok());
    let templates: BTreeSet<UnitName> = units.filter_map(|unit| unit.template()).collect();
    let is_meant = |unit: &&UnitName| unit.template().is_some_and(|it| templates.contains(&it));
    let awaited: Vec<&UnitName> = down.iter().filter(is_meant).collect();
    let stuck = awaited.iter().all(|unit| has_failed(snapshot, unit));
    let told = awaited.iter().take(MOST_NAMED).filter_map(|unit| {
        let at = &snapshot.placement(unit.as_str())?.machine;
        Some(format!("{unit} is not up on {}: {}", at.short(), what_is_known(snapshot, unit, at)))
    });
    let told = told.collect::<Vec<_>>().join("; ");
    Wait { why: format!("too few instances are up; {told}"), stuck }
}

/// Whether a unit does not come up where it is unless somebody sees to it.
fn has_failed(snapshot: &Snapshot, unit: &UnitName) -> bool {
    let Some(placement) = snapshot.placement(unit.as_str()) else { return false };
    let state = snapshot.state(unit.as_str(), placement.machine.as_str());
    state.is_some_and(|state| {
        let failed = state.systemd.active == ActiveState::Failed || state.problem.is_some();
        state.epoch == placement.epoch && failed
    })
}

fn balance_moves(index: &mut Index, asked: &Rebalance) -> Vec<BalanceMove> {
    let steps = index.rebalance(asked).steps;
    let moves = steps.iter().filter(|step| step.cause == Cause::Rebalanced);
    moves.filter_map(balance_move).collect()
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
