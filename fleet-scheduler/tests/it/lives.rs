//! An index that lives on says after each change what one says that is loaded anew.

use fleet_core::{Epoch, Machine, Requirements, Snapshot};
use fleet_scheduler::strategies::{Carried, Event, Features, Happening, History, histories};
use fleet_scheduler::{Action, Change, Demand, Index, Plan, Policy, Ranking, Step, apply, check};
use fleet_unitfile::UnitName;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::config::cases;

/// A cluster twice: as an index that lives on, and as a snapshot.
struct Life {
    policy: Policy,
    index: Index,
    cluster: Snapshot,
}

fn change(event: &Event) -> Change {
    match event.clone() {
        Event::Machine(machine) => Change::PutMachine(machine),
        Event::Gone(machine) => Change::RemoveMachine(machine),
        Event::Unit(unit) => Change::PutUnit(Demand::from(&unit)),
        Event::Destroyed(unit) => Change::RemoveUnit(unit),
        Event::Unreadable(unit) => Change::PutUnreadable(unit),
        Event::Placed(unit, placement) => {
            Change::Place { unit, machine: placement.machine, epoch: placement.epoch }
        }
        Event::Unplaced(unit) => Change::Unplace(unit),
    }
}

impl Life {
    fn new(cluster: Snapshot, ranking: Ranking) -> Self {
        let policy = Policy { ranking, ..Policy::default() };
        Self { index: Index::load(policy.clone(), &cluster), policy, cluster }
    }

    fn loaded(&self) -> Index {
        Index::load(self.policy.clone(), &self.cluster)
    }

    /// Something changes; what would be planned then is known before.
    fn happen(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let before = self.index.plan();
        let guessed = self.index.what_if(&[change(event)]);
        prop_assert_eq!(&before.steps, &self.index.plan().steps, "after a guess");
        event.happen(&mut self.cluster);
        self.index.change(&change(event));
        prop_assert_eq!(&guessed.steps, &self.index.plan().steps, "{} was guessed", event);
        Ok(())
    }

    /// Everything that can be asked is answered as by an index that is loaded anew.
    fn compare(&mut self) -> Result<Plan, TestCaseError> {
        self.index.set_revision(self.cluster.revision);
        let plan = self.index.plan();
        let expected = self.loaded().plan();
        prop_assert_eq!(&plan.steps, &expected.steps);
        for (unit, reason) in &plan.unplaced {
            prop_assert_eq!(Some(reason), expected.unplaced.get(unit), "{}", unit);
        }
        let unplaced = self.index.reasons();
        prop_assert_eq!(&unplaced, &expected.unplaced);
        let whole = Plan { unplaced, ..plan.clone() };
        prop_assert_eq!(check(&self.cluster, &whole), []);
        for unit in self.cluster.units() {
            let told = self.index.explain(&unit.name);
            prop_assert_eq!(told, self.loaded().explain(&unit.name), "{}", unit.name);
        }
        prop_assert_eq!(&self.index.plan().steps, &plan.steps, "once more");
        Ok(plan)
    }

    fn carry(&mut self, plan: &Plan, carried: Carried) -> Result<(), TestCaseError> {
        match carried {
            Carried::Out => {
                self.index.plan();
                self.index.apply(plan, Epoch(plan.based_on.0));
                self.cluster = apply(&self.cluster, plan);
                prop_assert!(self.index.plan().is_empty());
            }
            Carried::InPart(bits) => {
                let steps = plan.steps.iter().zip(0..64).filter(|(_, bit)| bits >> bit & 1 == 1);
                steps.for_each(|(step, _)| self.observe(step, Epoch(plan.based_on.0)));
                self.cluster.revision = self.cluster.revision.next();
            }
            Carried::Not => {}
        }
        Ok(())
    }

    fn observe(&mut self, step: &Step, epoch: Epoch) {
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

fn live(history: &History, ranking: Ranking) -> Result<(), TestCaseError> {
    let mut life = Life::new(Snapshot::clone(&history.start), ranking);
    for happening in &history.then {
        match happening {
            Happening::Event(event) => life.happen(event)?,
            Happening::Plan(carried) => {
                let plan = life.compare()?;
                life.carry(&plan, *carried)?;
            }
        }
    }
    Ok(())
}

fn rankings() -> impl Strategy<Value = Ranking> {
    prop_oneof![
        3 => Just(Ranking::LeastLoaded),
        1 => Just(Ranking::BinPacking),
        1 => Just(Ranking::Spread),
    ]
}

proptest! {
    #![proptest_config(cases(1))]

    #[test]
    fn an_index_that_lives_on_answers_as_one_that_is_loaded_anew(
        history in histories(Features::ALL, 12),
        ranking in rankings(),
    ) {
        live(&history, ranking)?;
    }
}

fn put(index: &mut Index, name: &str, text: &str) {
    let name = name.parse().unwrap();
    let file = fleet_unitfile::UnitFile::parse(text).unwrap();
    let strict = fleet_core::Strictness::Refuse;
    let parsed = Requirements::parse(&name, &file, strict).unwrap();
    index.put(Demand { name, requirements: parsed.requirements.into(), wanted: true });
}

/// A unit that follows a pattern waited in vain for a unit that did, and was not tried again when a
/// global unit came that the pattern matches as well.
#[test]
fn a_global_unit_that_comes_wakes_who_waits_for_its_pattern() {
    let mut index = Index::new(Policy::default());
    put(&mut index, "d@2.service", "[X-Fleet]\nMachineOf=a.service\n");
    put(&mut index, "d@3.service", "[X-Fleet]\nGlobal=true\n");
    put(&mut index, "e.service", "[X-Fleet]\nMachineOf=d@*\n");
    assert!(index.plan().is_empty());
    index.put_machine(Machine::new("m1".parse().unwrap()));
    assert_eq!(index.plan().steps[0].to_string(), "place e.service on m1: it is wanted");
}

/// Instances were counted on a machine that had come back after its key was numbered.
#[test]
fn instances_on_a_machine_that_comes_back_are_counted() {
    let mut index = Index::new(Policy::default());
    let spread = "[X-Fleet]\nSpread=zone\n";
    put(&mut index, "a@1.service", spread);
    put(&mut index, "a@2.service", spread);
    index.place("a@1.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    assert_eq!(index.plan().steps.len(), 1, "a@1 is removed");
    let machine = |id: &str, zone| Machine::new(id.parse().unwrap()).with_metadata("zone", zone);
    index.put_machine(machine("m1", "one"));
    index.put_machine(machine("m2", "two"));
    let plan = index.plan();
    let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(steps, ["place a@2.service on m2: it is wanted"]);
}

/// A unit that fits nowhere, and asks for a reason whenever it comes.
fn hopeless(index: &mut Index, turn: usize) -> String {
    let name: UnitName = format!("hopeless-{turn}.service").parse().unwrap();
    let metadata = [("disk".into(), ["ssd".into()].into())].into();
    let requirements = Requirements { metadata, ..Requirements::default() }.into();
    index.put(Demand { name: name.clone(), requirements, wanted: true });
    index.plan().unplaced[&name].to_string()
}

#[test]
fn machines_that_come_back_in_another_order_are_told_by_their_own_ids() {
    let machine = |id: &str| Machine::new(id.parse().unwrap());
    let mut index = Index::new(Policy::default());
    for id in ["m1", "m2"] {
        index.put_machine(machine(id));
    }
    let told = hopeless(&mut index, 0);
    assert_eq!(hopeless(&mut index, 1), told);
    for id in ["m1", "m2"] {
        index.remove_machine(id);
    }
    for id in ["m1", "m2"] {
        index.put_machine(machine(id));
    }
    assert_eq!(hopeless(&mut index, 2), told);
}
