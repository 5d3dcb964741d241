//! An index that lives on from change to change decides as one that is made anew each time.

use fleet_core::{Epoch, Machine, Snapshot};
use fleet_scheduler::strategies::{
    Carried, Event, Happening, History, clusters, events, histories,
};
use fleet_scheduler::{Action, Change, Index, Plan, Policy, Step, apply, plan};
use proptest::prelude::*;

use crate::config::cases;
use crate::known::KNOWN;
use crate::language::unit;

type Verdict = Result<(), TestCaseError>;

proptest! {
    #![proptest_config(cases(3))]

    #[test]
    fn an_index_plans_as_if_it_were_made_anew(history in histories(KNOWN, 16)) {
        let mut life = Life::of(&history);
        for happening in &history.then {
            life.go_on(happening)?;
        }
        life.plans_as_anew()?;
    }

    #[test]
    fn a_plan_leaves_the_index_as_it_was(history in histories(KNOWN, 8)) {
        let mut life = Life::of(&history);
        for happening in &history.then {
            life.go_on(happening)?;
            let (one, other) = (life.index.plan(), life.index.plan());
            prop_assert_eq!(&one.steps, &other.steps, "{} then {}", one, other);
            same(&other, &plan(&life.cluster))?;
        }
    }

    #[test]
    fn what_if_is_what_would_be_planned(cluster in clusters(KNOWN), events in events(KNOWN, 4)) {
        let mut index = Index::load(Policy::default(), &cluster);
        let changes: Vec<Change> = events.iter().map(Change::from).collect();
        let mut after = cluster.0.clone();
        events.iter().for_each(|event| event.happen(&mut after));
        // Before the first plan, after it, and once it is carried out.
        same(&index.what_if(&changes), &plan(&after))?;
        let decided = index.plan();
        same(&decided, &plan(&cluster))?;
        same(&index.what_if(&changes), &plan(&after))?;
        let carried = apply(&cluster, &decided);
        index.apply(&decided, Epoch(cluster.revision.0));
        index.set_revision(carried.revision);
        let mut after = carried.clone();
        events.iter().for_each(|event| event.happen(&mut after));
        same(&index.what_if(&changes), &plan(&after))?;
        same(&index.plan(), &plan(&carried))?;
    }

    #[test]
    fn an_index_knows_the_reason_of_all_who_wait(history in histories(KNOWN, 8)) {
        let mut life = Life::of(&history);
        for happening in &history.then {
            life.go_on(happening)?;
        }
        life.go_on(&Happening::Plan(Carried::Out))?;
        let expected = plan(&life.cluster).unplaced;
        prop_assert_eq!(life.index.reasons(), expected);
    }
}

/// A unit waited in vain for the first one that its pattern matched, and was not told that a global
/// one had come meanwhile.
#[test]
fn a_global_unit_that_comes_ends_the_waiting_of_those_who_name_it() {
    let mut cluster = Snapshot::default();
    let mut index = Index::load(Policy::default(), &cluster);
    let units = [
        ("a1.service", "Global=true"),
        ("a2.service", "MachineOf=a*"),
        ("a3.service", "MachineOf=c2.socket"),
    ];
    for (name, option) in units {
        let unit = unit(name, "launched", &format!("[X-Fleet]\n{option}\n"));
        index.put_unit(&unit);
        cluster.put_unit(unit);
    }
    assert!(index.plan().is_empty());
    cluster.put_machine(Machine::new("m1".parse().unwrap()));
    index.put_machine(Machine::new("m1".parse().unwrap()));
    assert_eq!(index.plan().steps, plan(&cluster).steps);
}

/// Units that waited as one class were tied one by one when a unit came that named all of them by a
/// pattern which was known already; then only the first was told of a machine that takes them.
#[test]
fn units_that_a_known_pattern_ties_all_hear_of_a_machine() {
    let mut cluster = Snapshot::default();
    for (name, option) in [
        ("a@1.service", "MaxPerMachine=1"),
        ("a@2.service", "MachineMetadataExpr=not exists retired"),
        ("a@3.service", "MachineMetadataExpr=not exists retired"),
        ("a@4.service", "Conflicts=a@*"),
    ] {
        cluster.put_unit(unit(name, "launched", &format!("[X-Fleet]\n{option}\n")));
    }
    cluster.put_machine(Machine::new("m1".parse().unwrap()));
    let mut index = Index::load(Policy::default(), &cluster);
    let decided = index.plan();
    index.apply(&decided, Epoch(1));
    cluster = apply(&cluster, &decided);
    let namer = unit("b.service", "launched", "[X-Fleet]\nMachineOf=a@*\n");
    index.put_unit(&namer);
    cluster.put_unit(namer);
    cluster.put_machine(Machine::new("m2".parse().unwrap()));
    index.put_machine(Machine::new("m2".parse().unwrap()));
    assert_eq!(index.plan().steps, plan(&cluster).steps);
}

/// What was known of the zones of no machine at all was taken for what is known of the first one.
#[test]
fn a_machine_that_comes_back_to_units_that_spread_is_counted() {
    let mut cluster = Snapshot::default();
    let spread = unit("d@2.service", "launched", "[X-Fleet]\nSpread=zone\n");
    cluster.put_unit(spread);
    cluster.put_unit(unit("d@3.service", "launched", ""));
    cluster.place("d@3.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    let mut index = Index::load(Policy::default(), &cluster);
    assert_eq!(index.plan().steps, plan(&cluster).steps);
    cluster.put_machine(Machine::new("m1".parse().unwrap()));
    index.put_machine(Machine::new("m1".parse().unwrap()));
    assert_eq!(index.plan().steps, plan(&cluster).steps);
}

/// A cluster and an index that has seen all that happened to it.
struct Life {
    cluster: Snapshot,
    index: Index,
}

impl Life {
    fn of(history: &History) -> Self {
        let cluster = history.start.0.clone();
        let index = Index::load(Policy::default(), &cluster);
        Self { cluster, index }
    }

    fn go_on(&mut self, happening: &Happening) -> Verdict {
        match happening {
            Happening::Event(event) => self.happens(event),
            Happening::Plan(carried) => {
                let plan = self.plans_as_anew()?;
                self.carry(&plan, *carried);
            }
        }
        Ok(())
    }

    fn happens(&mut self, event: &Event) {
        event.happen(&mut self.cluster);
        self.index.change(&Change::from(event));
        self.index.set_revision(self.cluster.revision);
    }

    /// The plan of the index, if it is the one of the snapshot.
    fn plans_as_anew(&mut self) -> Result<Plan, TestCaseError> {
        let found = self.index.plan();
        same(&found, &plan(&self.cluster))?;
        Ok(found)
    }

    fn carry(&mut self, plan: &Plan, carried: Carried) {
        let epoch = Epoch(plan.based_on.0);
        match carried {
            Carried::Not => {}
            Carried::Out => {
                self.cluster = apply(&self.cluster, plan);
                self.index.apply(plan, epoch);
            }
            Carried::InPart(bits) => {
                let seen = plan.steps.iter().take(64).enumerate();
                let seen = seen.filter(|(at, _)| bits & (1 << at) != 0);
                seen.for_each(|(_, step)| self.sees(step, epoch));
                self.cluster.revision = self.cluster.revision.next();
            }
        }
        self.index.set_revision(self.cluster.revision);
    }

    fn sees(&mut self, step: &Step, epoch: Epoch) {
        match &step.action {
            Action::Place { machine } | Action::Move { to: machine, .. } => {
                self.cluster.place(step.unit.clone(), machine.clone(), epoch);
                self.index.place(step.unit.clone(), machine.clone(), epoch);
            }
            Action::Remove { .. } => {
                self.cluster.unplace(step.unit.as_str());
                self.index.unplace(step.unit.as_str());
            }
        }
    }
}

/// Whether an index decides what is decided from scratch; it may tell of fewer units why they wait.
fn same(found: &Plan, expected: &Plan) -> Verdict {
    prop_assert_eq!(&found.steps, &expected.steps, "{} instead of {}", found, expected);
    for (unit, reason) in &found.unplaced {
        prop_assert_eq!(Some(reason), expected.unplaced.get(unit), "of {}", unit);
    }
    Ok(())
}
