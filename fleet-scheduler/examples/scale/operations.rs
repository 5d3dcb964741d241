//! Operations on a planned cluster.

use std::time::Duration;

use fleet_core::{Requirements, Snapshot};
use fleet_scheduler::{Cluster, Plan, StepAction};

use crate::clusters::{conflicting, machine, machine_id, plain_name, unit};
use crate::{Measurement, planned, timed};

/// Number of measured changes.
const CHANGES: usize = 2000;

/// Makes one change after the other, and plans and applies after each.
pub(crate) fn change(cluster: &Snapshot, units: usize) -> Measurement {
    let (mut index, measured) = planned(cluster);
    let machines = cluster.machines().len();
    let elapsed = (0..CHANGES).map(|turn| {
        let at = turn.wrapping_mul(7919);
        let ((), elapsed) = timed(|| {
            one_change(&mut index, turn, at % units.max(1), at % machines.max(1));
            carry_out(&mut index);
        });
        elapsed
    });
    let mut elapsed: Vec<Duration> = elapsed.collect();
    let percent = sorted(&mut elapsed);
    let more = format!(
        ",\"median_us\":{:.1},\"p99_us\":{:.1},\"worst_us\":{:.1}",
        micros(percent(50)),
        micros(percent(99)),
        micros(percent(100)),
    );
    Measurement { plan: percent(50), more, ..measured }
}

fn one_change(index: &mut Cluster, turn: usize, at: usize, machine_at: usize) {
    match turn % 5 {
        0 => index.remove(&plain_name(at)),
        1 => index.add(&unit(&plain_name(at), conflicting("green-*"))),
        2 => index.add(&unit(&format!("new-{turn:06}.service"), Requirements::default())),
        3 => index.unplace(&plain_name(at)),
        _ => index.add_machine(machine(machine_at, turn as u64)),
    }
}

pub(crate) fn carry_out(index: &mut Cluster) -> Plan {
    let plan = index.plan_affected();
    index.apply(&plan);
    plan
}

/// Removes a tenth of the machines and plans the moves of their units.
pub(crate) fn lost(cluster: &Snapshot) -> Measurement {
    let (mut index, measured) = planned(cluster);
    for at in (0..cluster.machines().len()).step_by(10) {
        index.remove_machine(&machine_id(at));
    }
    let (decided, plan) = timed(|| index.plan_affected());
    let is_move = |action: &StepAction| matches!(action, StepAction::Move { .. });
    let moves = decided.steps.iter().filter(|step| is_move(&step.action)).count();
    let more = format!(",\"moves\":{moves},\"steps\":{}", decided.steps.len());
    Measurement { plan, more, ..measured }
}

/// Adds pairs of units and measures the addition of the second unit of each pair. In the first
/// series, both units of a pair fit. In the second, the first unit fits nowhere.
pub(crate) fn unplaceable(cluster: &Snapshot, units: usize) -> Measurement {
    let (mut index, measured) = planned(cluster);
    let count = (units / 10).clamp(1, 20_000);
    let mut pairs = |prefix: &str, first: &Requirements| {
        let mut elapsed: Vec<Duration> = Vec::with_capacity(count);
        for at in 0..count {
            index.add(&unit(&format!("{prefix}-{at}-a.service"), first.clone()));
            carry_out(&mut index);
            let second = unit(&format!("{prefix}-{at}-b.service"), Requirements::default());
            let (_, one) = timed(|| {
                index.add(&second);
                carry_out(&mut index)
            });
            elapsed.push(one);
        }
        sorted(&mut elapsed)(50)
    };
    let alone = pairs("p", &Requirements::default());
    let with_unplaceable = pairs("q", &nowhere());
    let slower = with_unplaceable.as_secs_f64() / alone.as_secs_f64();
    let (alone, each) = (micros(alone), micros(with_unplaceable));
    let more = format!(",\"slower\":{slower:.3},\"alone_us\":{alone:.1},\"each_us\":{each:.1}");
    Measurement { plan: with_unplaceable, more, ..measured }
}

/// Explains two units that fit nowhere, one because of its filter, and the other because of
/// conflicts.
pub(crate) fn explain(cluster: &Snapshot) -> Measurement {
    let (mut index, measured) = planned(cluster);
    index.add(&unit("filtered.service", nowhere()));
    index.add(&unit("blocked.service", conflicting("unit-*")));
    carry_out(&mut index);
    let plan = explained(&mut index, "filtered.service");
    let conflicting = explained(&mut index, "blocked.service").as_secs_f64();
    let machine_of = vec!["blocked.service".parse().expect("a peer")];
    let follower = Requirements::default().with_machine_of(machine_of);
    index.add(&unit("blocked-follower.service", follower));
    carry_out(&mut index);
    let grouped = explained(&mut index, "blocked-follower.service").as_secs_f64();
    let more =
        format!(",\"conflicting_seconds\":{conflicting:.6},\"grouped_seconds\":{grouped:.6}");
    Measurement { plan, more, ..measured }
}

/// Explains a unit without requirements that all others keep away.
pub(crate) fn blocked(cluster: &Snapshot) -> Measurement {
    let (mut index, measured) = planned(cluster);
    index.add(&unit("blocked.service", Requirements::default()));
    carry_out(&mut index);
    let plan = explained(&mut index, "blocked.service");
    Measurement { plan, ..measured }
}

/// Returns the best time of five explanations.
fn explained(index: &mut Cluster, name: &str) -> Duration {
    let elapsed = (0..5).map(|_| timed(|| index.explain(name)).1);
    elapsed.min().unwrap_or_default()
}

/// Returns requirements that no machine satisfies.
fn nowhere() -> Requirements {
    let metadata = [(String::from("zone"), [String::from("nowhere")].into())].into();
    Requirements::default().with_metadata(metadata)
}

/// Sorts durations. Returns a function that gives percentiles.
pub(crate) fn sorted(all: &mut [Duration]) -> impl Fn(usize) -> Duration {
    all.sort_unstable();
    |percent| all.get(all.len() * percent / 100).or(all.last()).copied().unwrap_or_default()
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
