//! Drains and rebalancing: properties that hold for every cluster.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::requirements::Reschedule;
use fleet_core::{
    ActiveState, Epoch, Generation, Intent, Machine, MachineId, Requirements, Snapshot,
    SystemdState, TargetState, Unit, UnitState,
};
use fleet_scheduler::policy::{Policy, Ranking};
use fleet_scheduler::testing::naive;
use fleet_scheduler::testing::strategies::{Features, clusters};
use fleet_scheduler::{
    Cluster, Demand, Drain, DrainPlan, HoldReason, Plan, Rebalance, Step, StepAction, StepCause,
    apply, check, plan,
};
use fleet_unitfile::UnitName;
use proptest::prelude::*;

use crate::config::cases;
use crate::naive_planner::placements;

/// Returns the cluster after its plan, which has nothing left to do.
fn settled(cluster: &Snapshot) -> Snapshot {
    apply(cluster, &plan(cluster))
}

/// Returns the cluster with these machines cordoned.
fn cordoned(cluster: &Snapshot, machines: &BTreeSet<MachineId>) -> Snapshot {
    let mut cluster = cluster.clone();
    for id in machines {
        if let Some(machine) = cluster.machine(id.as_str()).map(AsRef::as_ref).cloned() {
            cluster.put_machine(Machine { cordoned: true, ..machine });
        }
    }
    cluster
}

fn drain(cluster: &Snapshot, drain: &Drain) -> DrainPlan {
    Cluster::load(Policy::default(), cluster).drain(drain)
}

fn rebalance(cluster: &Snapshot, request: &Rebalance) -> Plan {
    Cluster::load(Policy::default(), cluster).rebalance(request)
}

fn moved<'a>(plan: &'a Plan, cause: &StepCause) -> Vec<&'a Step> {
    plan.steps.iter().filter(|step| step.cause == *cause).collect()
}

fn single<'a>(cluster: &'a Snapshot, name: &UnitName) -> Option<&'a Unit> {
    let unit = cluster.unit(name.as_str()).map(AsRef::as_ref);
    unit.filter(|unit: &&Unit| unit.is_wanted() && !unit.is_global())
}

/// Returns the machines of the units that are up.
fn up(cluster: &Snapshot, down: &BTreeSet<UnitName>) -> BTreeMap<UnitName, MachineId> {
    let mut up = placements(cluster);
    up.retain(|name, machine| {
        let present = cluster.machine(machine.as_str()).is_some();
        present && single(cluster, name).is_some() && !down.contains(name)
    });
    up
}

/// Counts the instances of each template.
fn instances<'a>(names: impl Iterator<Item = &'a UnitName>) -> BTreeMap<UnitName, u32> {
    let mut counts = BTreeMap::new();
    for template in names.filter_map(UnitName::template) {
        *counts.entry(template).or_insert(0) += 1;
    }
    counts
}

/// Returns a template that a plan leaves with fewer running instances than the minimum, if there is
/// one. All steps of the plan must belong to a drain or a rebalancing.
fn below_minimum(
    cluster: &Snapshot,
    plan: &Plan,
    min_available: u32,
    down: &BTreeSet<UnitName>,
) -> Option<UnitName> {
    let mut up = up(cluster, down);
    let before = instances(up.keys());
    plan.steps.iter().for_each(|step| drop(up.remove(&step.unit)));
    let after = instances(up.keys());
    let left = |template: &UnitName| after.get(template).copied().unwrap_or(0);
    before.into_iter().find_map(|(template, before)| {
        let now = left(&template);
        (now < before && now < min_available).then_some(template)
    })
}

/// Generates drain requests.
pub(crate) fn drains() -> impl Strategy<Value = Drain> {
    let machines = prop::collection::btree_set(1..=5_u8, 1..=2);
    let down = prop::collection::btree_set(1..=3_u8, 0..=1);
    let max_moves = prop_oneof![3 => Just(u32::MAX), 1 => 0..=3_u32];
    (machines, 0..=2_u32, max_moves, down).prop_map(|(machines, min_available, max_moves, down)| {
        let machines = machines.into_iter().map(|at| format!("m{at}").parse().unwrap());
        let down = down.into_iter().map(|at| format!("d@{at}.service").parse().unwrap());
        Drain::new(machines).keep_available(min_available).move_at_most(max_moves).with_down(down)
    })
}

/// Generates rebalance requests.
pub(crate) fn rebalances() -> impl Strategy<Value = Rebalance> {
    let down = prop::collection::btree_set(1..=3_u8, 0..=1);
    let group_size = prop_oneof![3 => Just(None), 1 => (0..3_u32).prop_map(Some)];
    let parts = (0..8_u32, group_size, prop_oneof![3 => Just(0), 1 => 1..3_u32], 0..=2_u32, down);
    parts.prop_map(|(budget, max_group_size, gain, min_available, down)| {
        let down = down.into_iter().map(|at| format!("d@{at}.service").parse().unwrap());
        let request = Rebalance::with_budget(budget).with_gain(gain).with_down(down);
        let request = request.keep_available(min_available);
        max_group_size.into_iter().fold(request, Rebalance::with_max_group_size)
    })
}

/// Returns the load of each machine, global units counted.
fn loads(cluster: &Snapshot) -> BTreeMap<MachineId, usize> {
    let load = |machine: &Machine| {
        let placed = cluster.placements().filter(|(name, at)| {
            let counts = single(cluster, name).is_some() || cluster.fault(name.as_str()).is_some();
            at.machine == machine.id && counts
        });
        placed.count() + naive::globals_on(cluster, machine).len()
    };
    cluster.machines().map(|machine| (machine.id.clone(), load(machine))).collect()
}

/// Returns the sum of the squared loads.
fn unevenness(cluster: &Snapshot) -> usize {
    loads(cluster).values().map(|load| load * load).sum()
}

/// Returns the score of a machine for a unit, as if the unit were not in the cluster.
fn score(cluster: &Snapshot, unit: &Unit, machine: &MachineId) -> i64 {
    let machine = cluster.machine(machine.as_str()).unwrap();
    let wants: &Requirements = &unit.requirements;
    let liked = wants.prefer.iter().filter(|it| it.expression.eval(&machine.metadata));
    let liked: i64 = liked.map(|it| i64::from(it.weight)).sum();
    let crowding = wants.spread.iter().map(|spread| {
        let value = machine.metadata.get(&spread.key);
        let alike = cluster.placements().filter(|(name, at)| {
            let there = cluster.machine(at.machine.as_str());
            name.template() == unit.name.template()
                && **name != unit.name
                && (single(cluster, name).is_some() || cluster.fault(name.as_str()).is_some())
                && there.is_some_and(|there| there.metadata.get(&spread.key) == value)
        });
        i64::from(spread.weight) * i64::try_from(alike.count()).unwrap()
    });
    let crowding: i64 = if unit.name.is_instance() { crowding.sum() } else { 0 };
    let failures = wants.failed_on.get(&machine.id).copied().unwrap_or_default();
    liked - crowding - (i64::from(failures) << 40)
}

proptest! {
    #![proptest_config(cases(2))]

    // Holds: I-4
    #[test]
    fn drain_breaks_no_rule(cluster in clusters(Features::ALL), request in drains()) {
        let result = drain(&cluster, &request);
        let cluster = cordoned(&cluster, &request.machines);
        prop_assert_eq!(check(&cluster, &result.plan), [], "{}", result);
    }

    // Holds: I-18
    #[test]
    fn drain_keeps_the_minimum_up(cluster in clusters(Features::ALL), request in drains()) {
        let cluster = settled(&cordoned(&cluster, &request.machines));
        let result = drain(&cluster, &request);
        let found = below_minimum(&cluster, &result.plan, request.min_available, &request.down);
        prop_assert_eq!(found, None, "{}", result);
    }

    #[test]
    fn drain_moves_or_explains_every_unit(cluster in clusters(Features::ALL), request in drains()) {
        let result = drain(&cluster, &request);
        let after = apply(&cordoned(&cluster, &request.machines), &result.plan);
        for (name, at) in placements(&after) {
            let counts = single(&after, &name).is_some() || after.fault(name.as_str()).is_some();
            let drained = request.machines.contains(&at) && after.machine(at.as_str()).is_some();
            prop_assert_eq!(result.held.contains_key(&name), counts && drained, "{}", name);
        }
        let moved = moved(&result.plan, &StepCause::Drained);
        let from_there = moved.iter().all(|step| {
            matches!(&step.action, StepAction::Move { from, .. } if request.machines.contains(from))
        });
        prop_assert!(from_there, "{}", result);
    }

    #[test]
    fn preview_leaves_the_index_unchanged(cluster in clusters(Features::ALL), request in drains()) {
        let mut index = Cluster::load(Policy::default(), &cluster);
        let before = index.plan();
        let result = index.drain(&request);
        prop_assert_eq!(&index.plan().steps, &before.steps);
        let plan = index.rebalance(&Rebalance::with_budget(5));
        prop_assert_eq!(&index.plan().steps, &before.steps);
        prop_assert_eq!(index.drain(&request).plan.steps, result.plan.steps);
        prop_assert_eq!(index.rebalance(&Rebalance::with_budget(5)).steps, plan.steps);
    }

    /// A unit that remains after a finished drain really has no other machine: the specification
    /// does not place it even if its placement is removed.
    #[test]
    fn finished_drain_leaves_no_movable_unit(
        cluster in clusters(Features { faults: false, ..Features::ALL }),
        request in drains(),
    ) {
        let request = Drain::new(request.machines).with_down(request.down);
        let mut cluster = settled(&cordoned(&cluster, &request.machines));
        for _ in 0..20 {
            let result = drain(&cluster, &request);
            if result.plan.is_empty() {
                break;
            }
            cluster = apply(&cluster, &result.plan);
        }
        let result = drain(&cluster, &request);
        prop_assert!(result.plan.is_empty(), "the drain does not end: {}", result);
        for (unit, reason) in &result.held {
            prop_assert!(matches!(reason, HoldReason::NowhereElse(_)));
            let mut alone = cluster.clone();
            alone.unplace(unit.as_str());
            let placed = naive::plan(&alone, &Policy::default());
            // If other units had to leave for it, the state before is not comparable.
            let others = placements(&alone);
            let kept = others.iter().all(|(name, at)| placed.get(name) == Some(at));
            prop_assert!(!kept || !placed.contains_key(unit), "{} could move: {}", unit, result);
        }
    }

    // Holds: I-4
    #[test]
    fn rebalancing_breaks_no_rule(
        cluster in clusters(Features::ALL),
        budget in 0..6_u32,
        gain in 0..3_u32,
    ) {
        let plan = rebalance(&cluster, &Rebalance::with_budget(budget).with_gain(gain));
        prop_assert_eq!(check(&cluster, &plan), [], "{}", plan);
    }

    // Holds: I-18
    #[test]
    fn rebalancing_respects_budget_and_minimum(
        cluster in clusters(Features::ALL),
        budget in 0..6_u32,
        min_available in 0..3_u32,
    ) {
        let cluster = settled(&cluster);
        let request = Rebalance::with_budget(budget).keep_available(min_available);
        let plan = rebalance(&cluster, &request);
        prop_assert!(plan.steps.len() <= usize::try_from(budget).unwrap(), "{}", plan);
        let below = below_minimum(&cluster, &plan, min_available, &request.down);
        prop_assert_eq!(below, None, "{}", plan);
        for step in &plan.steps {
            let wants = &cluster.unit(step.unit.as_str()).unwrap().requirements;
            prop_assert_eq!(&step.cause, &StepCause::Rebalanced);
            prop_assert_eq!(wants.reschedule, Reschedule::Always);
            prop_assert!(!wants.is_job(), "{}", step);
        }
    }

    #[test]
    fn rebalancing_evens_loads_until_it_ends(cluster in clusters(Features::ALL)) {
        let mut cluster = settled(&cluster);
        loop {
            let plan = rebalance(&cluster, &Rebalance::with_budget(3));
            if plan.is_empty() {
                break;
            }
            let after = apply(&cluster, &plan);
            prop_assert!(unevenness(&after) < unevenness(&cluster), "{}", plan);
            cluster = settled(&after);
        }
    }

    // Holds: I-18
    #[test]
    fn each_balance_move_gains_and_lowers_no_score(
        cluster in clusters(Features {
            groups: false,
            peer_patterns: false,
            globals: false,
            ..Features::ALL
        }),
        gain in 0..3_u32,
    ) {
        let mut cluster = settled(&cluster);
        let plan = rebalance(&cluster, &Rebalance::with_budget(5).with_gain(gain));
        for step in &plan.steps {
            let StepAction::Move { from, to } = &step.action else { panic!("{plan}") };
            let unit = Unit::clone(cluster.unit(step.unit.as_str()).unwrap());
            let before = score(&cluster, &unit, from);
            prop_assert!(score(&cluster, &unit, to) >= before, "{}", step);
            let full = loads(&cluster)[from];
            cluster.place(step.unit.clone(), to.clone(), Epoch(99));
            let gained = full.checked_sub(loads(&cluster)[to]);
            let gain = usize::try_from(gain).unwrap();
            prop_assert!(gained.is_some_and(|gained| gained > gain), "{}", step);
        }
    }

    #[test]
    fn plain_units_end_up_even(
        cluster in clusters(Features { faults: true, ..Features::NONE }),
        empty in 1..4_u8,
        gain in 0..3_u32,
    ) {
        let mut cluster = settled(&cluster);
        for at in 0..empty {
            cluster.put_machine(Machine::new(format!("new{at}").parse().unwrap()));
        }
        let mut rounds = 0;
        loop {
            let plan = rebalance(&cluster, &Rebalance::with_budget(2).with_gain(gain));
            if plan.is_empty() {
                break;
            }
            cluster = apply(&cluster, &plan);
            rounds += 1;
            prop_assert!(rounds < 50);
        }
        let loads = loads(&cluster);
        let most = loads.values().max().copied().unwrap_or(0);
        // Unreadable units do not move.
        let fixed = cluster.placements().filter(|(name, _)| cluster.fault(name.as_str()).is_some());
        let is_even = most - loads.values().min().unwrap() <= 1 + usize::try_from(gain).unwrap();
        prop_assert!(is_even || fixed.count() > 0, "{:?}", loads);
    }

    #[test]
    fn bin_packing_is_not_rebalanced(cluster in clusters(Features::NONE)) {
        let policy = Policy::new().with_ranking(Ranking::BinPacking);
        let mut index = Cluster::load(policy, &cluster);
        let plan = index.plan();
        prop_assert_eq!(index.rebalance(&Rebalance::with_budget(9)).steps, plan.steps);
    }
}

fn index(machines: &[&str]) -> Cluster {
    let mut index = Cluster::new();
    for id in machines {
        index.add_machine(Machine::new(id.parse().unwrap()));
    }
    index
}

fn put(index: &mut Cluster, name: &str, at: &str, text: &str) {
    index.add(Demand::from_unit(name, &format!("[X-Fleet]\n{text}")).unwrap());
    index.place(name.parse().unwrap(), at.parse().unwrap(), Epoch(1));
}

// Holds: I-18
#[test]
fn units_making_room_for_a_drain_count_for_the_minimum() {
    let mut index = index(&["m1", "m2", "m3"]);
    put(&mut index, "new.service", "m1", "Replaces=web@*\n");
    put(&mut index, "web@1.service", "m2", "");
    put(&mut index, "full.service", "m3", "");
    put(&mut index, "fuller.service", "m3", "");
    let result = index.drain(&Drain::new(["m1".parse().unwrap()]).keep_available(1));
    let web = "web@.service".parse().unwrap();
    let held = HoldReason::MinAvailable { template: web, up: 1, min_available: 1 };
    assert_eq!(result.held.into_values().collect::<Vec<_>>(), [held]);
    assert!(result.plan.is_empty());
    let result = index.drain(&Drain::new(["m1".parse().unwrap()]));
    let steps: Vec<_> = result.plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "move web@1.service from m2 to m3: new.service replaces it",
            "move new.service from m1 to m2: the machine is drained",
        ]
    );
}

#[test]
fn two_peers_of_a_unit_leave_together_with_it() {
    let mut index = index(&["m1", "m2"]);
    put(&mut index, "a.service", "m1", "");
    put(&mut index, "b.service", "m1", "");
    put(&mut index, "c.service", "m1", "MachineOf=a.service\nMachineOf=b.service\n");
    let result = index.drain(&Drain::new(["m1".parse().unwrap()]));
    assert_eq!((result.plan.steps.len(), result.held.len()), (3, 0), "{result}");
}

#[test]
fn drain_is_derived_from_the_intents_of_a_snapshot() {
    let mut cluster = Snapshot::default();
    let drained = |id: &str, min_available| {
        Machine::new(id.parse().unwrap()).with_intent(Intent::Drained { min_available })
    };
    let wanted =
        |cluster: &Snapshot| Drain::from_intents(cluster, cluster.machines().map(AsRef::as_ref));
    cluster.put_machine(drained("m1", 1));
    cluster.put_machine(drained("m2", 2));
    cluster.put_machine(Machine::new("m3".parse().unwrap()).with_intent(Intent::Cordoned));
    assert_eq!(wanted(&cluster), None, "the machines are empty");
    let [one, two]: [UnitName; 2] =
        ["a@1.service", "a@2.service"].map(|name| name.parse().unwrap());
    cluster.place(one.clone(), "m1".parse().unwrap(), Epoch(1));
    cluster.place(two.clone(), "m3".parse().unwrap(), Epoch(1));
    let mut drain = Drain::new(["m1".parse().unwrap()]).keep_available(1);
    drain.down = [one.clone(), two.clone()].into();
    assert_eq!(wanted(&cluster), Some(drain.clone()), "no unit state is reported");
    for active in [ActiveState::Failed, ActiveState::Active] {
        cluster.put_state(state(&two, "m3", active));
        cluster.put_state(state(&one, "m2", active)); // a machine on which it is not placed
    }
    drain.down = [one].into();
    assert_eq!(wanted(&cluster), Some(drain));
    cluster.put_machine(drained("m1", 0));
    assert_eq!(
        wanted(&cluster),
        Some(Drain::new(["m1".parse().unwrap()])),
        "unit states do not matter without a minimum"
    );
}

fn state(unit: &UnitName, machine: &str, active: ActiveState) -> UnitState {
    UnitState {
        unit: unit.clone(),
        machine: machine.parse().unwrap(),
        hash: fleet_unitfile::UnitFile::parse("").unwrap().hash(),
        requested: TargetState::Launched,
        epoch: Epoch(1),
        generation: Generation(0),
        systemd: SystemdState { active, ..SystemdState::loaded() },
        problem: None,
        health: None,
        output: Vec::new(),
    }
}
