//! Explanations of placements, plans, and the reasons for unplaced units.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Verdicts of all machines on a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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

/// Reason that a unit is not placed on any machine. The kind of the reason determines the fields
/// that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ReasonDetail {
    /// Units of a `MachineOf=` cycle; the last one refers to the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<String>,
    /// Units that must be placed together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// Kind of the reason: `noMachines`, `noMachineFits`, `noMachineFitsGroup`, `attemptLimit`,
    /// `peerUnknown`, `peerInactive`, `peersApart`, `cycle`, `notRescheduled`, `machineAwaited`,
    /// `mayStillRun`, or `other`. More kinds may be added.
    pub kind: String,
    /// Time within which the unit must have stopped, in seconds since the loss of its machine. Only
    /// in `mayStillRun`; absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// ID of the machine that the unit is placed on and waits for.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Number of machines considered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<u32>,
    /// Machine that passed the most rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestRefusal>,
    /// Units, or patterns of unit names, that this unit must be placed with. Each of them is listed
    /// with its machine, if that is relevant to the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<ReasonPeer>,
    /// Number of machines that each rule excluded. A machine that fails several rules is counted
    /// only under the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusalCount>,
}

/// A unit that another unit must be placed with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ReasonPeer {
    /// ID of its machine; empty if it has none.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// The unit's name.
    pub name: String,
}

/// Number of machines that refuse a unit by the same rule, with an example.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct RefusalCount {
    /// ID of one of these machines.
    pub example: String,
    /// Number of machines for which this rule was the first that refused.
    pub machines: u32,
    /// Name of the rule, for example `Cordon`. A rule that evaluates a unit option has the name of
    /// the option, for example `MachineMetadata`.
    pub rule: String,
    /// Explanation of the refusal by the example.
    pub text: String,
    /// Only if the units of a `MachineOf=` group were to be placed together: the unit of the group
    /// that the example machine refused. Otherwise empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// The refusing machine that passed the most rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct NearestRefusal {
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Name of the rule that refuses the unit.
    pub rule: String,
    /// Explanation of the refusal.
    pub text: String,
    /// Only if the units of a `MachineOf=` group were to be placed together: the unit of the group
    /// that the machine refused. Otherwise empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
}
