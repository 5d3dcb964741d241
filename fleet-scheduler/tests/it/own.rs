//! Policies of an embedder's own, and clusters of many machines: what holds of the default planner
//! and a few machines holds of these as well.

use fleet_core::{Epoch, Machine, Resources, Rule, Snapshot};
use fleet_scheduler::strategies::{clusters, policies, wide_clusters};
use fleet_scheduler::{
    Candidate, HardRule, Index, Plan, Policy, RetryOn, View, Violation, apply, check, check_with,
    naive,
};
use proptest::prelude::*;

use crate::config::{cases, few_cases};
use crate::known::KNOWN;
use crate::language::unit;
use crate::twin::placements;

/// The plan, if it is that of the rule_set.
fn planned(policy: &Policy, cluster: &Snapshot) -> Result<Plan, TestCaseError> {
    let plan = Index::load(policy.clone(), cluster).plan();
    let expected = naive::plan(cluster, policy);
    prop_assert_eq!(placements(&apply(cluster, &plan)), expected, "{}", plan);
    Ok(plan)
}

/// Whether each reason of a plan is true, and the next plan has nothing to do.
fn is_settled(policy: &Policy, cluster: &Snapshot, plan: &Plan) -> Result<(), TestCaseError> {
    let after = apply(cluster, plan);
    let next = Index::load(policy.clone(), &after).plan();
    prop_assert!(next.is_empty(), "{plan}\nthen {next}");
    prop_assert_eq!(&next.unplaced, &plan.unplaced);
    for (name, reason) in &plan.unplaced {
        let judged = naive::check_reason(&after, policy, name, reason);
        prop_assert_eq!(judged.map_err(|untrue| untrue.to_string()), Ok(()), "{}", plan);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(3))]

    #[test]
    fn with_rules_of_your_own_a_plan_is_that_of_the_letter(
        cluster in clusters(KNOWN),
        policy in policies(),
    ) {
        let plan = planned(&policy, &cluster)?;
        is_settled(&policy, &cluster, &plan)?;
    }

    #[test]
    fn rules_of_your_own_hold_after_the_plan(cluster in clusters(KNOWN), policy in policies()) {
        // What looks elsewhere may be true of the moment alone.
        let lasts = |rule: &dyn HardRule| rule.retry_on() != RetryOn::AnyChange;
        prop_assume!(policy.rules.iter().all(|rule| lasts(&**rule)));
        let plan = Index::load(policy.clone(), &cluster).plan();
        prop_assert_eq!(check_with(&policy, &cluster, &plan), [], "{}", plan);
    }
}

proptest! {
    #![proptest_config(few_cases(2))]

    #[test]
    fn among_many_machines_a_plan_is_that_of_the_letter(cluster in wide_clusters(KNOWN)) {
        let plan = planned(&Policy::default(), &cluster)?;
        is_settled(&Policy::default(), &cluster, &plan)?;
        prop_assert_eq!(check(&cluster, &plan), [], "{}", plan);
    }

    #[test]
    fn among_many_machines_with_rules_of_your_own_it_is_so_too(
        cluster in wide_clusters(KNOWN),
        policy in policies(),
    ) {
        planned(&policy, &cluster)?;
    }
}

/// Nobody may come to a machine where anybody is.
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
    Policy { rules: vec![std::sync::Arc::new(Alone)], ..Policy::default() }
}

/// Machines `m1` and so on, and launched units `a.service` and so on with an option each.
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
fn a_plan_that_breaks_a_rule_of_your_own_is_found_out() {
    let mut cluster = cluster(2, &[("a.service", ""), ("b.service", ""), ("c.service", "")]);
    cluster.place("a.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    let careless = Index::load(Policy::default(), &cluster).plan();
    let found = check_with(&alone(), &cluster, &careless);
    let told: Vec<String> = found.iter().map(ToString::to_string).collect();
    // Of those that share a machine, the one that was there before is not asked.
    assert_eq!(told, ["c.service is on m1, refused by Alone: a.service is there"]);
    assert!(
        matches!(&found[0], Violation::Broken { refusal, .. } if refusal.rule() == Rule::Custom)
    );
    let right = Index::load(alone(), &cluster).plan();
    assert_eq!(check_with(&alone(), &cluster, &right), []);
}

/// All rules of an embedder were called `Custom` there.
#[test]
fn an_explanation_calls_a_rule_of_your_own_by_its_name() {
    let mut cluster = cluster(2, &[("a.service", ""), ("b.service", ""), ("c.service", "")]);
    cluster = apply(&cluster, &Index::load(alone(), &cluster).plan());
    let told = Index::load(alone(), &cluster).explain(&"c.service".parse().unwrap());
    let told = told.unwrap().to_string();
    assert!(told.ends_with("m2  refused by Alone: b.service is there"), "{told}");
}

/// Who is replaced is on its way: a rule that counts does not count it.
#[test]
fn a_rule_of_your_own_does_not_see_who_is_about_to_be_replaced() {
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
    // The two leave together, and nowhere could both be alone.
    let plan = Index::load(alone(), &cluster).plan();
    let why = plan.unplaced["new.service"].to_string();
    assert!(plan.is_empty() && why.contains("no other machine takes that unit"), "{plan}");
    cluster.remove_unit("with.service");
    cluster.unplace("with.service");
    let plan = Index::load(alone(), &cluster).plan();
    let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    let expected = [
        "move old.service from m1 to m2: new.service replaces it",
        "place new.service on m1: it is wanted",
    ];
    assert_eq!(steps, expected, "{plan}");
}

/// Refuses one unit a machine of which something is true.
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
fn whichever_way_a_rule_of_your_own_looks_it_does_not_see_who_is_about_to_be_replaced() {
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
        let rule = std::sync::Arc::new(Refuses("new.service", look));
        let policy = Policy { rules: vec![rule], ..Policy::default() };
        let plan = Index::load(policy, &cluster).plan();
        assert_eq!(plan.steps.len(), 2, "way {way}: {plan}");
    }
}
