//! What a planner says: what every machine answers, and what would be done.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ReasonDetail;

/// What every machine says to one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Explanation {
    /// The units that `MachineOf=` ties together with it, itself included, if there are others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// Every machine that is present, in order of their IDs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Verdict>,
    /// The unit.
    pub name: String,
    /// Why no machine takes it, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why no machine takes it, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_detail: Option<ReasonDetail>,
}

/// What a machine says to a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Verdict {
    /// How many wanted units are there, if it would take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<u32>,
    /// Its ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// The name of the rule that refuses.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rule: String,
    /// What the rule saw.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// `here`: the unit is there and may stay; `eligible`: it would take it; or `refused`.
    pub verdict: String,
}

/// What an engine would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Plan {
    /// What would happen to units, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<PlanStep>,
    /// The units that would have no machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<Unplaced>,
}

/// What would happen to one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PlanStep {
    /// Why, for people.
    pub cause: String,
    /// The ID of the machine that it leaves.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// The ID of the machine that it comes to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// The unit.
    pub unit: String,
}

/// A unit that would have no machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Unplaced {
    /// Why, for people.
    pub reason: String,
    /// Why, for programs.
    pub reason_detail: ReasonDetail,
    /// The unit.
    pub unit: String,
}

/// What every machine says to one unit.
pub(crate) fn explanation(told: &fleet_scheduler::Explanation) -> Explanation {
    let group = Some(&told.group).filter(|group| group.len() > 1);
    let verdicts = told.machines.iter().map(|(machine, verdict)| Verdict {
        machine_id: machine.to_string(),
        ..self::verdict(verdict)
    });
    Explanation {
        group: group.into_iter().flatten().map(ToString::to_string).collect(),
        machines: verdicts.collect(),
        name: told.unit.to_string(),
        reason: told.reason.as_ref().map_or_else(String::new, ToString::to_string),
        reason_detail: told.reason.as_ref().map(super::reason_detail),
    }
}

fn verdict(verdict: &fleet_scheduler::Verdict) -> Verdict {
    use fleet_scheduler::Verdict as Told;
    let named = |verdict: &str| Verdict { verdict: verdict.to_owned(), ..Verdict::default() };
    match verdict {
        Told::Here => named("here"),
        Told::Eligible { load } => Verdict { load: Some(*load), ..named("eligible") },
        Told::Refused(refusal) => Verdict {
            rule: refusal.rule_name().to_owned(),
            text: refusal.to_string(),
            ..named("refused")
        },
    }
}

/// What an engine would do.
pub(crate) fn plan(plan: &fleet_scheduler::Plan) -> Plan {
    let unplaced = plan.unplaced.iter().map(|(unit, reason)| Unplaced {
        reason: reason.to_string(),
        reason_detail: super::reason_detail(reason),
        unit: unit.to_string(),
    });
    Plan { steps: plan.steps.iter().map(step).collect(), unplaced: unplaced.collect() }
}

fn step(step: &fleet_scheduler::Step) -> PlanStep {
    use fleet_scheduler::Action;
    let (from, to) = match &step.action {
        Action::Place { machine } => (None, Some(machine)),
        Action::Move { from, to } => (Some(from), Some(to)),
        Action::Remove { from } => (Some(from), None),
    };
    let id = |id: Option<&fleet_core::MachineId>| id.map_or_else(String::new, ToString::to_string);
    let (unit, cause) = (step.unit.to_string(), step.cause.to_string());
    PlanStep { cause, from: id(from), to: id(to), unit }
}
