//! Explanations of placements, and plans.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ReasonDetail;

/// Verdicts of all machines on a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PlacementExplanation {
    /// Units that must be on the same machine because of `MachineOf=`, including this unit. Empty
    /// if there is no other such unit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// Verdicts of all machines that are present, ordered by ID.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineVerdict>,
    /// The unit's name.
    pub name: String,
    /// Reason that no machine accepts the unit, as text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Reason that no machine accepts the unit, as data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_detail: Option<ReasonDetail>,
}

/// Verdict of a machine on a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MachineVerdict {
    /// Number of wanted units on the machine, if it is eligible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<u32>,
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Name of the rule that refuses the unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rule: String,
    /// Explanation of the refusal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The verdict:
    /// - `here`: the unit is placed on the machine and may stay.
    /// - `eligible`: the machine would accept the unit.
    /// - `refused`: the machine would not accept the unit, for the reason in `rule` and `text`.
    pub verdict: String,
}

/// Actions that the engine would take.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PlanReport {
    /// Steps in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<PlanStep>,
    /// Units that would be on no machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<UnplacedUnit>,
}

/// A step of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PlanStep {
    /// Cause of the step, as text.
    pub cause: String,
    /// ID of the machine that the unit leaves.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// ID of the machine that the unit is placed on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// The unit's name.
    pub unit: String,
}

/// A unit that would be on no machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UnplacedUnit {
    /// Reason, as text.
    pub reason: String,
    /// Reason, as data.
    pub reason_detail: ReasonDetail,
    /// The unit's name.
    pub unit: String,
}

/// Converts an explanation.
pub(crate) fn explanation(explanation: &fleet_scheduler::Explanation) -> PlacementExplanation {
    let group = Some(&explanation.group).filter(|group| group.len() > 1);
    let verdicts = explanation.machines.iter().map(|(machine, verdict)| MachineVerdict {
        machine_id: machine.to_string(),
        ..self::verdict(verdict)
    });
    PlacementExplanation {
        group: group.into_iter().flatten().map(ToString::to_string).collect(),
        machines: verdicts.collect(),
        name: explanation.unit.to_string(),
        reason: explanation.reason.as_ref().map_or_else(String::new, ToString::to_string),
        reason_detail: explanation.reason.as_ref().map(super::reason_detail),
    }
}

fn verdict(verdict: &fleet_scheduler::PlacementVerdict) -> MachineVerdict {
    use fleet_scheduler::PlacementVerdict;
    let named =
        |verdict: &str| MachineVerdict { verdict: verdict.to_owned(), ..MachineVerdict::default() };
    match verdict {
        PlacementVerdict::Here => named("here"),
        PlacementVerdict::Eligible { load } => {
            MachineVerdict { load: Some(*load), ..named("eligible") }
        }
        PlacementVerdict::Refused(refusal) => MachineVerdict {
            rule: refusal.rule_name().to_owned(),
            text: refusal.to_string(),
            ..named("refused")
        },
    }
}

/// Converts a plan.
pub(crate) fn plan(plan: &fleet_scheduler::Plan) -> PlanReport {
    let unplaced = plan.unplaced.iter().map(|(unit, reason)| UnplacedUnit {
        reason: reason.to_string(),
        reason_detail: super::reason_detail(reason),
        unit: unit.to_string(),
    });
    PlanReport { steps: plan.steps.iter().map(step).collect(), unplaced: unplaced.collect() }
}

fn step(step: &fleet_scheduler::Step) -> PlanStep {
    use fleet_scheduler::StepAction;
    let (from, to) = match &step.action {
        StepAction::Place { machine } => (None, Some(machine)),
        StepAction::Move { from, to } => (Some(from), Some(to)),
        StepAction::Remove { from } => (Some(from), None),
    };
    let id = |id: Option<&fleet_core::MachineId>| id.map_or_else(String::new, ToString::to_string);
    let (unit, cause) = (step.unit.to_string(), step.cause.to_string());
    PlanStep { cause, from: id(from), to: id(to), unit }
}
