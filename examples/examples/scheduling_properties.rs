//! Property tests for scheduling: rules that hold for every cluster.
//!
//! ```text
//! cargo run -p fleet-examples --example scheduling_properties
//! ```
//!
//! `proptest` generates clusters. A property is a function that returns an error if it does not
//! hold for a cluster. In that case, `proptest` shrinks the cluster to a small one for which the
//! property still fails. The seed is fixed, so every run is the same. In a test of your own, write
//! the same functions within `proptest! { ... }`.
//!
//! Look at the five properties first; the last one needs no knowledge of fleet's internals. Then
//! look at the two deliberate failures in the output, and at their shrunk clusters.
#![expect(clippy::print_stdout, reason = "the program demonstrates its results on standard output")]

use std::fmt;

use fleet_core::{
    Epoch, Machine, MachineId, Reason, Requirements, Revision, Snapshot, Strictness, TargetState,
    Unit,
};
use fleet_scheduler::{Plan, Step, StepAction, StepCause, Violation, apply, check, plan};
use fleet_unitfile::{UnitFile, UnitName};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use proptest::{option, prop_assert, prop_assert_eq};

type Verdict = Result<(), TestCaseError>;

fn main() {
    println!("== Properties that hold\n");
    holds("a plan breaks no rule", any_cluster(), breaks_no_rule);
    holds("a plan leaves nothing to do", any_cluster(), leaves_nothing_to_do);
    holds("nothing moves that need not", any_cluster(), moves_only_what_must);
    holds("every reason is true", any_cluster(), gives_true_reasons);
    holds("plain units are spread evenly", plain_clusters(), spreads_evenly);

    println!("\n== A scheduler with a defect\n");
    fails(any_cluster(), |cluster| {
        let found = check(&cluster.snapshot(), &careless_plan(&cluster.snapshot()));
        prop_assert!(found.is_empty(), "{}", listed(&found));
        Ok(())
    });

    println!("\n== A property that is too strict: there is no rebalancing\n");
    fails(any_cluster().prop_map(Cluster::without_requirements), spreads_evenly);
}

/// Property: a plan violates no rule. `check` is independent of the planner: it simulates the plan
/// and evaluates every rule.
fn breaks_no_rule(cluster: &Cluster) -> Verdict {
    let cluster = cluster.snapshot();
    prop_assert_eq!(check(&cluster, &plan(&cluster)), []);
    Ok(())
}

fn leaves_nothing_to_do(cluster: &Cluster) -> Verdict {
    let cluster = cluster.snapshot();
    let first = plan(&cluster);
    let second = plan(&apply(&cluster, &first));
    prop_assert!(second.is_empty(), "{first}\nthen\n{second}");
    Ok(())
}

/// Property: a unit leaves a machine that is present only if a rule would be violated otherwise.
fn moves_only_what_must(cluster: &Cluster) -> Verdict {
    let cluster = cluster.snapshot();
    let plan = plan(&cluster);
    for step in &plan.steps {
        if let StepAction::Move { from, .. } | StepAction::Remove { from } = &step.action {
            let stays = with_unit_on(&cluster, &plan, &step.unit, from);
            prop_assert!(!check(&cluster, &stays).is_empty(), "{step}");
        }
    }
    Ok(())
}

/// Property: a unit without a machine violates a rule on every machine, and its reason counts these
/// rules correctly.
fn gives_true_reasons(cluster: &Cluster) -> Verdict {
    let cluster = cluster.snapshot();
    let plan = plan(&cluster);
    for (unit, reason) in &plan.unplaced {
        if matches!(**reason, Reason::NoMachineFitsGroup { .. }) {
            continue; // It may fit alone: it waits for the units of its group.
        }
        for machine in cluster.machines() {
            let forced = with_unit_on(&cluster, &plan, unit, &machine.id);
            prop_assert!(!check(&cluster, &forced).is_empty(), "{unit} fits on {}", machine.id);
        }
        let Reason::NoMachineFits { machines, tallies, .. } = reason.as_ref() else { continue };
        let counted: u32 = tallies.iter().map(|tally| tally.machines).sum();
        prop_assert_eq!(counted, *machines, "each machine is counted once");
        for tally in tallies {
            let found = check(&cluster, &with_unit_on(&cluster, &plan, unit, &tally.example));
            let mut broken = found.iter().filter_map(|violation| match violation {
                Violation::Broken { refusal, .. } => Some(refusal.rule()),
                _ => None,
            });
            let rule = tally.refusal.rule();
            prop_assert!(
                broken.any(|broken_rule| broken_rule == rule),
                "{unit}: {reason}\n{}",
                listed(&found)
            );
        }
    }
    Ok(())
}

/// Property: the loads of two machines differ by at most one unit. A property of your own can be
/// about anything.
fn spreads_evenly(cluster: &Cluster) -> Verdict {
    let cluster = cluster.snapshot();
    let after = apply(&cluster, &plan(&cluster));
    let load = |machine: &MachineId| {
        after.placements().filter(|(_, placement)| placement.machine == *machine).count()
    };
    let loads: Vec<usize> = after.machines().map(|machine| load(&machine.id)).collect();
    let (most, least) = (loads.iter().max(), loads.iter().min());
    prop_assert!(most <= least.map(|least| least + 1).as_ref(), "the loads are {loads:?}");
    Ok(())
}

/// A naive scheduler: assigns units to machines round robin.
fn careless_plan(cluster: &Snapshot) -> Plan {
    let mut plan = plan(cluster);
    let machines: Vec<_> = cluster.machines().collect();
    for (unit, machine) in cluster.units().zip(machines.into_iter().cycle()) {
        plan = with_unit_on(cluster, &plan, &unit.name, &machine.id);
    }
    plan
}

/// Returns the plan, changed so that it places one unit on the given machine.
fn with_unit_on(cluster: &Snapshot, plan: &Plan, unit: &UnitName, machine: &MachineId) -> Plan {
    let mut plan = plan.clone();
    plan.steps.retain(|step| step.unit != *unit);
    plan.unplaced.remove(unit);
    let (from, to) = (cluster.placement(unit.as_str()).map(|it| &it.machine), machine.clone());
    let action = match from.cloned() {
        Some(from) if from == to => return plan,
        Some(from) => StepAction::Move { from, to },
        None => StepAction::Place { machine: to },
    };
    plan.steps.push(Step::new(unit.clone(), action, StepCause::Wanted));
    plan
}

/// The generated input, small enough to follow by hand.
#[derive(Clone)]
struct Cluster {
    /// The disk of each machine.
    machines: Vec<&'static str>,
    units: Vec<Draft>,
}

#[derive(Debug, Clone)]
struct Draft {
    disk: Option<&'static str>,
    others: Option<Others>,
    /// The number of the unit's machine, which may be absent.
    on: Option<usize>,
}

/// Relation of a unit to others: it excludes some, or requires one. Not both, because parsing
/// refuses a unit that requires and excludes the same unit.
#[derive(Debug, Clone, Copy)]
enum Others {
    Conflicts(&'static str),
    /// Requires the unit that is this number of places before it in the list, so there are no
    /// cycles.
    MachineOf(usize),
}

const NAMES: [&str; 6] =
    ["a1.service", "a2.service", "b1.service", "b2.service", "c1.service", "c2.service"];

/// Generates clusters in which units often interact, because names, patterns and disks come from
/// small sets.
fn any_cluster() -> impl Strategy<Value = Cluster> {
    let disks = || select(vec!["hdd", "ssd"]);
    let others = prop_oneof![
        select(vec!["a*", "b2.service", "[bc]1*", "*"]).prop_map(Others::Conflicts),
        (1..=2_usize).prop_map(Others::MachineOf),
    ];
    let parts =
        (option::weighted(0.3, disks()), option::weighted(0.6, others), option::of(1..=4_usize));
    let unit = parts.prop_map(|(disk, others, on)| Draft { disk, others, on });
    // Fields are shrunk in order, so those that others refer to come last.
    (vec(unit, 0..=NAMES.len()), vec(disks(), 0..=4))
        .prop_map(|(units, machines)| Cluster { machines, units })
}

/// Generates clusters without placements and without requirements.
fn plain_clusters() -> impl Strategy<Value = Cluster> {
    any_cluster().prop_map(|cluster| {
        let mut cluster = cluster.without_requirements();
        cluster.units.iter_mut().for_each(|unit| unit.on = None);
        cluster
    })
}

impl Cluster {
    fn without_requirements(mut self) -> Self {
        for unit in &mut self.units {
            (unit.disk, unit.others) = (None, None);
        }
        self
    }

    fn snapshot(&self) -> Snapshot {
        let mut cluster = Snapshot::default();
        cluster.revision = Revision(10);
        for (number, disk) in (1..).zip(&self.machines) {
            cluster.put_machine(Machine::new(machine_id(number)).with_metadata("disk", disk));
        }
        for (at, draft) in self.units.iter().enumerate() {
            let name: UnitName = NAMES[at].parse().expect("the names are valid");
            if let Some(number) = draft.on {
                cluster.place(name.clone(), machine_id(number), Epoch(1));
            }
            let file = UnitFile::parse(self.text(at)).expect("the generated text is valid");
            let read = Requirements::parse(&name, &file, Strictness::Refuse);
            let requirements = read.expect("the generated section is valid").requirements;
            cluster.put_unit(Unit::new(name, file, requirements, TargetState::Launched));
        }
        cluster
    }

    /// Returns the unit file of the unit at an index.
    fn text(&self, at: usize) -> String {
        let unit = &self.units[at];
        let disk = unit.disk.map(|disk| format!("MachineMetadata=disk={disk}\n"));
        let others = unit.others.and_then(|others| match others {
            Others::Conflicts(pattern) => Some(format!("Conflicts={pattern}\n")),
            Others::MachineOf(back) => {
                at.checked_sub(back).map(|at| format!("MachineOf={}\n", NAMES[at]))
            }
        });
        ["[X-Fleet]\n".to_owned()].into_iter().chain(disk).chain(others).collect()
    }
}

/// A readable form, which a failing property prints.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, disk) in (1..).zip(&self.machines) {
            write!(f, "\n  m{number}: disk={disk}")?;
        }
        for (at, draft) in self.units.iter().enumerate() {
            let on = draft.on.map(|number| format!(", on m{number}")).unwrap_or_default();
            let options = self.text(at).replace("[X-Fleet]", "").trim_end().replace('\n', ", ");
            write!(f, "\n  {}{on}{options}", NAMES[at])?;
        }
        Ok(())
    }
}

fn machine_id(number: usize) -> MachineId {
    format!("m{number}").parse().expect("a letter and a number are a machine ID")
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("\n  {violation}")).collect()
}

fn runner() -> TestRunner {
    let config = Config { cases: 500, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn holds(name: &str, clusters: impl Strategy<Value = Cluster>, property: fn(&Cluster) -> Verdict) {
    match runner().run(&clusters, |cluster| property(&cluster)) {
        Ok(()) => println!("{name}"),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Runs a property that does not hold, and prints the smallest cluster for which it fails.
fn fails(clusters: impl Strategy<Value = Cluster>, property: fn(&Cluster) -> Verdict) {
    match runner().run(&clusters, |cluster| property(&cluster)) {
        Err(TestError::Fail(why, cluster)) => println!("refuted by{cluster:?}\nbecause {why}"),
        other => panic!("this should have been refuted: {other:?}"),
    }
}
