//! An index that lives on from change to change answers as one that is loaded anew each time.

use fleet_core::{Epoch, Snapshot};
use fleet_scheduler::strategies::{
    ClusterEvent, History, HistoryStep, PlanOutcome, clusters, events, histories, histories_from,
    policies, wide_clusters,
};
use fleet_scheduler::{ClusterChange, Index, Plan, Policy, Step, StepAction, apply, check};
use proptest::prelude::*;

use crate::config::cases;
use crate::known::KNOWN;

type Verdict = Result<(), TestCaseError>;

proptest! {
    #![proptest_config(cases(3))]

    #[test]
    fn an_index_that_lives_on_answers_as_one_that_is_loaded_anew(history in histories(KNOWN, 14)) {
        live(&history, Policy::default())?;
    }

    #[test]
    fn with_rules_of_your_own_it_does_so_too(
        history in histories(KNOWN, 10),
        policy in policies(),
    ) {
        live(&history, policy)?;
    }

    #[test]
    fn what_if_is_what_would_be_planned(
        cluster in clusters(KNOWN),
        events in events(KNOWN, 4),
        policy in policies(),
    ) {
        let changes: Vec<ClusterChange> = events.iter().map(ClusterChange::from).collect();
        let mut life = Life::new(cluster.0.clone(), policy);
        // Before the first plan, after it, and once it is carried out.
        life.guesses_right(&events, &changes)?;
        let decided = life.plans_as_anew()?;
        life.guesses_right(&events, &changes)?;
        life.carry(&decided, PlanOutcome::Applied)?;
        life.guesses_right(&events, &changes)?;
        life.plans_as_anew()?;
    }
}

proptest! {
    #![proptest_config(cases(1))]

    #[test]
    fn among_many_machines_it_does_so_too(
        history in histories_from(wide_clusters(KNOWN), KNOWN, 8),
        policy in prop_oneof![2 => Just(Policy::default()), 1 => policies()],
    ) {
        live(&history, policy)?;
    }
}

fn live(history: &History, policy: Policy) -> Verdict {
    let mut life = Life::new(Snapshot::clone(&history.start), policy);
    for happening in &history.steps {
        match happening {
            HistoryStep::Change(event) => life.happen(event)?,
            HistoryStep::Plan(carried) => {
                let plan = life.compare()?;
                life.carry(&plan, *carried)?;
            }
        }
    }
    life.compare().map(drop)
}

/// A cluster twice: as an index that lives on, and as a snapshot.
struct Life {
    policy: Policy,
    index: Index,
    cluster: Snapshot,
}

impl Life {
    fn new(cluster: Snapshot, policy: Policy) -> Self {
        Self { index: Index::load(policy.clone(), &cluster), policy, cluster }
    }

    /// Something changes; what would be planned then is known before.
    fn happen(&mut self, event: &ClusterEvent) -> Verdict {
        let before = self.index.plan();
        let guessed = self.index.what_if(&[ClusterChange::from(event)]);
        prop_assert_eq!(&before.steps, &self.index.plan().steps, "after a guess");
        event.apply_to(&mut self.cluster);
        self.index.change(&ClusterChange::from(event));
        self.index.set_revision(self.cluster.revision);
        prop_assert_eq!(&guessed.steps, &self.index.plan().steps, "{} was guessed", event);
        Ok(())
    }

    fn guesses_right(&mut self, events: &[ClusterEvent], changes: &[ClusterChange]) -> Verdict {
        let mut after = self.cluster.clone();
        events.iter().for_each(|event| event.apply_to(&mut after));
        let expected = Index::load(self.policy.clone(), &after).plan();
        same(&self.index.what_if(changes), &expected)
    }

    /// Everything that can be asked is answered as by an index that is loaded anew.
    fn compare(&mut self) -> Result<Plan, TestCaseError> {
        let plan = self.plans_as_anew()?;
        let mut anew = Index::load(self.policy.clone(), &self.cluster);
        let unplaced = self.index.reasons();
        prop_assert_eq!(&unplaced, &anew.plan().unplaced);
        let whole = Plan { unplaced, ..plan.clone() };
        prop_assert_eq!(check(&self.cluster, &whole), []);
        for unit in self.cluster.units() {
            let told = self.index.explain(&unit.name);
            prop_assert_eq!(told, anew.explain(&unit.name), "{}", unit.name);
        }
        prop_assert_eq!(&self.index.plan().steps, &plan.steps, "once more");
        Ok(plan)
    }

    /// The plan of the index, if it is the one of the snapshot.
    fn plans_as_anew(&mut self) -> Result<Plan, TestCaseError> {
        let found = self.index.plan();
        same(&found, &Index::load(self.policy.clone(), &self.cluster).plan())?;
        Ok(found)
    }

    fn carry(&mut self, plan: &Plan, carried: PlanOutcome) -> Verdict {
        let epoch = Epoch(plan.based_on.0);
        match carried {
            PlanOutcome::Applied => {
                self.index.plan();
                self.index.apply(plan, epoch);
                self.cluster = apply(&self.cluster, plan);
                prop_assert!(self.index.plan().is_empty());
            }
            PlanOutcome::AppliedPartly(bits) => {
                let steps = plan.steps.iter().zip(0..64).filter(|(_, bit)| bits >> bit & 1 == 1);
                steps.for_each(|(step, _)| self.observe(step, epoch));
                self.cluster.revision = self.cluster.revision.next();
            }
            PlanOutcome::Discarded => {}
        }
        self.index.set_revision(self.cluster.revision);
        Ok(())
    }

    fn observe(&mut self, step: &Step, epoch: Epoch) {
        match &step.action {
            StepAction::Place { machine } | StepAction::Move { to: machine, .. } => {
                self.cluster.place(step.unit.clone(), machine.clone(), epoch);
                self.index.place(step.unit.clone(), machine.clone(), epoch);
            }
            StepAction::Remove { .. } => {
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
