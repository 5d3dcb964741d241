//! Plans, explanations of placements, and reasons for unplaced units. Also the progress of a
//! rebalancing, and the remaining work of a drain.

use fleet_core::rebalancing::{RebalanceLimits, Rebalancing};
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
    /// State of the cluster that the plan is made for, as an opaque text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Steps in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<PlanStep>,
    /// Units that would be on no machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<UnplacedUnit>,
}

/// Result of a write of several units.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct BulkReport {
    /// Number of the rollout that updates units, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<u64>,
    /// The written units that exist now, in the order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<WrittenUnit>,
}

/// A unit after a write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct WrittenUnit {
    /// The unit's generation: the number of requested restarts.
    pub generation: u64,
    /// The unit's name.
    pub name: String,
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
    PlanReport {
        revision: String::new(),
        steps: plan.steps.iter().map(step).collect(),
        unplaced: unplaced.collect(),
    }
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

/// A rebalancing or its dry run, with the remaining work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct RebalanceReport {
    /// The order.
    pub order: RebalanceOrder,
    /// Machines that are present, ordered by ID.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineLoad>,
    /// Remaining moves in their order, including moves that must wait until other units are up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<RebalanceMove>,
    /// Reason that no unit is to move.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Units that have left their source machine but are not yet up on the destination machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub under_way: Vec<PendingMove>,
    /// Reason why no remaining move can start now, as text. Empty if the remaining moves wait only
    /// for the units in `underWay`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waits: String,
    /// Whether the rebalancing can continue only after an intervention, as far as the server knows.
    /// For example, every unit that it waits for has failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
}

impl RebalanceReport {
    /// Whether no work is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.moves.is_empty() && self.under_way.is_empty()
    }
}

/// The limits of a rebalancing, and its progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RebalanceOrder {
    /// Maximum number of units that move at the same time.
    pub at_once: u32,
    /// Additional difference in load that a move requires. Before the move, the source must have at
    /// least `gain + 1` more units than the destination has after it. With 0, a unit moves from a
    /// machine with five units to one with three (four each afterwards), but not to one with four.
    pub gain: u32,
    /// Minimum number of instances of each template that must stay up.
    #[serde(rename = "keepUp")]
    pub min_available: u32,
    /// Maximum number of moves in total; unlimited if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Number of units moved so far.
    pub moved: u32,
    /// The latest moves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moving: Vec<RebalanceMove>,
}

/// A move of a unit for balance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct RebalanceMove {
    /// ID of the source machine.
    pub from: String,
    /// ID of the destination machine.
    pub to: String,
    /// The unit's name.
    pub unit: String,
}

/// A unit that was moved and is not up yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct PendingMove {
    /// Its current status, as text.
    pub reason: String,
    /// ID of the destination machine.
    pub to: String,
    /// The unit's name.
    pub unit: String,
}

/// Load of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct MachineLoad {
    /// Number of units after all moves.
    pub after: u32,
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Current number of units, including global units.
    pub units: u32,
}

/// Converts a rebalancing order.
pub(crate) fn rebalance_order(order: &Rebalancing) -> RebalanceOrder {
    let RebalanceLimits { max_in_flight: at_once, gain, min_available, max_moves: most } =
        order.limits;
    let moving = order.moves.iter().map(|(unit, moving)| RebalanceMove {
        from: moving.from.to_string(),
        to: moving.to.to_string(),
        unit: unit.to_string(),
    });
    let (moved, moving) = (order.moved, moving.collect());
    RebalanceOrder { at_once, gain, min_available, most, moved, moving }
}

/// A drain or its dry run, with the units on the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct DrainReport {
    /// Global units on the machine. A drain does not stop them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<String>,
    /// Units that cannot move yet, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldUnit>,
    /// Minimum number of instances of each template that must stay up.
    #[serde(rename = "keepUp")]
    pub min_available: u32,
    /// Units that are still running although they are no longer placed there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Units that move next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<UnitMove>,
}

impl DrainReport {
    /// Whether no unit is left that the drain must remove.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.leaving.is_empty() && self.moves.is_empty()
    }
}

/// A unit that cannot leave the drained machine yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct HeldUnit {
    /// Reason, as text.
    pub reason: String,
    /// The unit's name.
    pub unit: String,
}

/// A unit that moves to another machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct UnitMove {
    /// ID of the destination machine.
    pub to: String,
    /// The unit's name.
    pub unit: String,
}
