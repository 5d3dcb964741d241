//! A long-lived index answers like one that is freshly loaded after each change.

use fleet_core::{Epoch, Snapshot};
use fleet_scheduler::testing::strategies::{
    History, HistoryEvent, HistoryStep, PlanOutcome, clusters, events, histories, histories_from,
    policies, wide_clusters,
};
use fleet_scheduler::{Change, Cluster, Plan, Policy, Step, apply, check};
use proptest::prelude::*;

use crate::config::cases;
use crate::features::FEATURES;

type Outcome = Result<(), TestCaseError>;

proptest! {
    #![proptest_config(cases(3))]

    #[test]
    fn long_lived_index_answers_like_a_fresh_one(history in histories(FEATURES, 14)) {
        replay_all(&history, Policy::default())?;
    }

    #[test]
    fn long_lived_index_with_custom_rules_answers_the_same(
        history in histories(FEATURES, 10),
        policy in policies(),
    ) {
        replay_all(&history, policy)?;
    }

    #[test]
    fn what_if_equals_the_later_plan(
        cluster in clusters(FEATURES),
        events in events(FEATURES, 4),
        policy in policies(),
    ) {
        let changes: Vec<Change> = events.iter().map(Change::from).collect();
        let mut replay = Replay::new(cluster.0.clone(), policy);
        // Before the first plan, after it, and after it was applied.
        replay.predicts_correctly(&events, &changes)?;
        let decided = replay.plans_like_a_fresh_index()?;
        replay.predicts_correctly(&events, &changes)?;
        replay.carry_out(&decided, PlanOutcome::Applied)?;
        replay.predicts_correctly(&events, &changes)?;
        replay.plans_like_a_fresh_index()?;
    }
}

proptest! {
    #![proptest_config(cases(1))]

    #[test]
    fn long_lived_index_of_many_machines_answers_the_same(
        history in histories_from(wide_clusters(FEATURES), FEATURES, 8),
        policy in prop_oneof![2 => Just(Policy::default()), 1 => policies()],
    ) {
        replay_all(&history, policy)?;
    }
}

fn replay_all(history: &History, policy: Policy) -> Outcome {
    let mut replay = Replay::new(Snapshot::clone(&history.start), policy);
    for step in &history.steps {
        match step {
            HistoryStep::Change(event) => replay.observe_event(event)?,
            HistoryStep::Plan(outcome) => {
                let plan = replay.compare()?;
                replay.carry_out(&plan, *outcome)?;
            }
        }
    }
    replay.compare().map(drop)
}

/// A cluster in two forms: a long-lived index and a snapshot.
struct Replay {
    policy: Policy,
    index: Cluster,
    cluster: Snapshot,
}

impl Replay {
    fn new(cluster: Snapshot, policy: Policy) -> Self {
        Self { index: Cluster::load(policy.clone(), &cluster), policy, cluster }
    }

    /// Applies a change, after predicting the plan that follows it.
    fn observe_event(&mut self, event: &HistoryEvent) -> Outcome {
        let before = self.index.plan();
        let predicted = self.index.what_if(&[Change::from(event)]);
        prop_assert_eq!(&before.steps, &self.index.plan().steps, "after a prediction");
        event.apply_to(&mut self.cluster);
        self.index.change(&Change::from(event));
        self.index.set_revision(self.cluster.revision);
        prop_assert_eq!(&predicted.steps, &self.index.plan().steps, "predicted for {}", event);
        Ok(())
    }

    fn predicts_correctly(&mut self, events: &[HistoryEvent], changes: &[Change]) -> Outcome {
        let mut after = self.cluster.clone();
        events.iter().for_each(|event| event.apply_to(&mut after));
        let expected = Cluster::load(self.policy.clone(), &after).plan();
        same(&self.index.what_if(changes), &expected)
    }

    /// Compares every query with that of a freshly loaded index.
    fn compare(&mut self) -> Result<Plan, TestCaseError> {
        let plan = self.plans_like_a_fresh_index()?;
        let mut fresh = Cluster::load(self.policy.clone(), &self.cluster);
        prop_assert_eq!(&plan, &fresh.plan());
        prop_assert_eq!(check(&self.cluster, &plan), []);
        let placements = self.cluster.placements().map(|(unit, at)| (unit, &at.machine));
        prop_assert!(self.index.placements().eq(placements), "the plan is not applied yet");
        for unit in self.cluster.units() {
            let result = self.index.explain(unit.name.as_str());
            prop_assert_eq!(result, fresh.explain(unit.name.as_str()), "{}", unit.name);
        }
        prop_assert_eq!(&self.index.plan().steps, &plan.steps, "repeated");
        Ok(plan)
    }

    /// Returns the plan of the index, after checking that a fresh index of the same cluster makes
    /// the same plan.
    fn plans_like_a_fresh_index(&mut self) -> Result<Plan, TestCaseError> {
        let found = self.index.plan();
        same(&found, &Cluster::load(self.policy.clone(), &self.cluster).plan())?;
        Ok(found)
    }

    fn carry_out(&mut self, plan: &Plan, outcome: PlanOutcome) -> Outcome {
        let epoch = Epoch(plan.based_on.0);
        match outcome {
            PlanOutcome::Applied => {
                self.index.plan();
                self.index.apply(plan);
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
        match step.to() {
            Some(machine) => {
                self.cluster.place(step.unit.clone(), machine.clone(), epoch);
                self.index.place(step.unit.clone(), machine.clone(), epoch);
            }
            None => {
                self.cluster.unplace(step.unit.as_str());
                self.index.unplace(step.unit.as_str());
            }
        }
    }
}

/// Checks that a long-lived index decides like a fresh one. Its plan may contain fewer of the
/// reasons.
fn same(found: &Plan, expected: &Plan) -> Outcome {
    prop_assert_eq!(&found.steps, &expected.steps, "{} instead of {}", found, expected);
    for (unit, reason) in &found.unplaced {
        prop_assert_eq!(Some(reason), expected.unplaced.get(unit), "of {}", unit);
    }
    Ok(())
}
