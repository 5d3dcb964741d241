//! The properties of the default planner also hold for custom policies and for clusters of many
//! machines.

use fleet_core::refusal::Rule;
use fleet_core::{Epoch, Machine, Resources, Snapshot};
use fleet_scheduler::policy::{Candidate, HardRule, Policy, RetryOn, View};
use fleet_scheduler::testing::naive;
use fleet_scheduler::testing::strategies::{clusters, policies, wide_clusters};
use fleet_scheduler::{Cluster, Plan, Violation, apply, check, check_with};
use proptest::prelude::*;

use crate::config::{cases, few_cases};
use crate::features::FEATURES;
use crate::language::unit;
use crate::naive_planner::placements;

/// Returns the plan after comparing it with the specification.
fn planned(policy: &Policy, cluster: &Snapshot) -> Result<Plan, TestCaseError> {
    let plan = Cluster::load(policy.clone(), cluster).plan();
    let expected = naive::plan(cluster, policy);
    prop_assert_eq!(placements(&apply(cluster, &plan)), expected, "{}", plan);
    Ok(plan)
}

/// Checks that, after a plan was applied, each of its reasons is true and the next plan has no
/// steps.
fn is_settled(policy: &Policy, cluster: &Snapshot, plan: &Plan) -> Result<(), TestCaseError> {
    let after = apply(cluster, plan);
    let next = Cluster::load(policy.clone(), &after).plan();
    prop_assert!(next.is_empty(), "{plan}\nthen {next}");
    prop_assert_eq!(&next.unplaced, &plan.unplaced);
    for (name, reason) in &plan.unplaced {
        let checked = naive::check_reason(&after, policy, name, reason);
        prop_assert_eq!(checked.map_err(|wrong| wrong.to_string()), Ok(()), "{}", plan);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(3))]

    #[test]
    fn plan_with_custom_rules_matches_the_specification(
        cluster in clusters(FEATURES),
        policy in policies(),
    ) {
        let plan = planned(&policy, &cluster)?;
        is_settled(&policy, &cluster, &plan)?;
    }

    #[test]
    fn custom_rules_hold_after_the_plan(cluster in clusters(FEATURES), policy in policies()) {
        // A rule that looks at other machines may hold only at the time of the decision.
        let lasts = |rule: &dyn HardRule| rule.retry_on() != RetryOn::AnyChange;
        prop_assume!(policy.rules.iter().all(|rule| lasts(&**rule)));
        let plan = Cluster::load(policy.clone(), &cluster).plan();
        prop_assert_eq!(check_with(&policy, &cluster, &plan), [], "{}", plan);
    }
}

proptest! {
    #![proptest_config(few_cases(2))]

    #[test]
    fn plan_for_many_machines_matches_the_specification(cluster in wide_clusters(FEATURES)) {
        let plan = planned(&Policy::default(), &cluster)?;
        is_settled(&Policy::default(), &cluster, &plan)?;
        prop_assert_eq!(check(&cluster, &plan), [], "{}", plan);
    }

    #[test]
    fn custom_plan_for_many_machines_matches_the_specification(
        cluster in wide_clusters(FEATURES),
        policy in policies(),
    ) {
        planned(&policy, &cluster)?;
    }
}

/// Refuses every machine that has a unit.
#[derive(Debug)]
struct Alone;

impl HardRule for Alone {
    fn name(&self) -> &str {
        "Alone"
    }

    fn retry_on(&self) -> RetryOn {
        RetryOn::Departure
    }

    fn refuse(&self, view: &View<'_>, _: Candidate<'_>, machine: &Machine) -> Option<String> {
        let first = view.units_on(&machine.id).next();
        first.map(|other| format!("{} is there", other.name))
    }
}

fn alone() -> Policy {
    Policy::new().with_rule(Alone)
}

/// Returns machines `m1` and so on, and launched units with an option each.
fn cluster(machines: u8, units: &[(&str, &str)]) -> Snapshot {
    let mut cluster = Snapshot::default();
    for at in 1..=machines {
        cluster.put_machine(Machine::new(format!("m{at}").parse().unwrap()));
    }
    for (name, option) in units {
        cluster.put_unit(unit(name, "launched", &format!("[X-Fleet]\n{option}\n")));
    }
    cluster
}

#[test]
fn plan_breaking_a_custom_rule_is_reported() {
    let mut cluster = cluster(2, &[("a.service", ""), ("b.service", ""), ("c.service", "")]);
    cluster.place("a.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    let careless = Cluster::load(Policy::default(), &cluster).plan();
    let found = check_with(&alone(), &cluster, &careless);
    let result: Vec<String> = found.iter().map(ToString::to_string).collect();
    // Of the units that share a machine, the earlier one is not checked.
    assert_eq!(result, ["c.service is on m1, refused by Alone: a.service is there"]);
    assert!(
        matches!(&found[0], Violation::Broken { refusal, .. } if refusal.rule() == Rule::Custom)
    );
    let right = Cluster::load(alone(), &cluster).plan();
    assert_eq!(check_with(&alone(), &cluster, &right), []);
}

/// Explanations once called all custom rules `Custom`.
#[test]
fn explanation_names_the_custom_rule() {
    let mut cluster = cluster(2, &[("a.service", ""), ("b.service", ""), ("c.service", "")]);
    cluster = apply(&cluster, &Cluster::load(alone(), &cluster).plan());
    let result = Cluster::load(alone(), &cluster).explain("c.service");
    let result = result.unwrap().to_string();
    assert!(result.ends_with("m2  refused by Alone: b.service is there"), "{result}");
}

/// A custom rule that counts the units on a machine does not count those that are to be replaced.
#[test]
fn custom_rule_does_not_see_units_to_be_replaced() {
    let mut cluster = cluster(
        2,
        &[
            ("new.service", "MachineMetadata=disk=ssd\nReplaces=old.service"),
            ("old.service", ""),
            ("with.service", "MachineOf=old.service"),
        ],
    );
    cluster.put_machine(Machine::new("m1".parse().unwrap()).with_metadata("disk", "ssd"));
    for name in ["old.service", "with.service"] {
        cluster.place(name.parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    }
    // The two units leave together, and no machine could hold each alone.
    let plan = Cluster::load(alone(), &cluster).plan();
    let reason = plan.unplaced["new.service"].to_string();
    assert!(plan.is_empty() && reason.contains("no other machine accepts that unit"), "{plan}");
    cluster.remove_unit("with.service");
    cluster.unplace("with.service");
    let plan = Cluster::load(alone(), &cluster).plan();
    let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    let expected = [
        "move old.service from m1 to m2: new.service replaces it",
        "place new.service on m1: it is wanted",
    ];
    assert_eq!(steps, expected, "{plan}");
}

/// Refuses a machine for one unit if a predicate holds.
#[derive(Debug)]
struct Refuses(&'static str, fn(&View<'_>, &Machine) -> bool);

impl HardRule for Refuses {
    fn name(&self) -> &str {
        "Refuses"
    }

    fn retry_on(&self) -> RetryOn {
        RetryOn::Departure
    }

    fn refuse(&self, view: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> Option<String> {
        let refuses = unit.name.as_str() == self.0 && (self.1)(view, machine);
        refuses.then(|| String::from("it is not as it should be"))
    }
}

#[test]
fn no_view_query_shows_units_to_be_replaced() {
    let mut cluster = cluster(
        2,
        &[
            ("new.service", "MachineMetadata=at=m1\nReplaces=old.service"),
            ("old.service", "ReserveDisk=1G"),
        ],
    );
    for id in ["m1", "m2"] {
        let offers = Resources { disk: 1 << 30, ..Resources::ZERO };
        let machine = Machine::new(id.parse().unwrap()).with_metadata("at", id);
        cluster.put_machine(Machine { offers, ..machine });
    }
    cluster.place("old.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    let looks: [fn(&View<'_>, &Machine) -> bool; 3] = [
        |view, machine| view.units_on(&machine.id).next().is_some(),
        |view, machine| view.machine_of(&"old.service".parse().unwrap()) == Some(machine),
        |view, machine| view.used(&machine.id) != Resources::ZERO,
    ];
    for (way, look) in looks.into_iter().enumerate() {
        let policy = Policy::new().with_rule(Refuses("new.service", look));
        let plan = Cluster::load(policy, &cluster).plan();
        assert_eq!(plan.steps.len(), 2, "way {way}: {plan}");
    }
}
