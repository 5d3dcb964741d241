//! Preview of changes, unit by unit.

use fleet_http::wire;
use serde::Serialize;

use super::format::MachineLabels;
use super::manifest_diff::{UnitChange, UnitDiff};
use crate::ui::output::Record;

/// Planned change of one unit, by a file or by the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PlannedChange {
    unit: String,
    /// Change that the file makes: `create`, `replace`, `state` or `none`. Empty if the change is a
    /// step of the engine.
    #[serde(skip_serializing_if = "str::is_empty")]
    change: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    desired: String,
    /// The unit's present desired state.
    #[serde(skip_serializing_if = "String::is_empty")]
    was: String,
    /// Unified diff of its file.
    #[serde(skip_serializing_if = "String::is_empty")]
    diff: String,
    /// Machine that the engine would remove the unit from.
    #[serde(skip_serializing_if = "String::is_empty")]
    from: String,
    /// Machine that the engine would place the unit on.
    #[serde(skip_serializing_if = "String::is_empty")]
    to: String,
    /// Reason of the engine's step.
    #[serde(skip_serializing_if = "String::is_empty")]
    cause: String,
    /// Reason for having no machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

impl Record for PlannedChange {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl PlannedChange {
    /// Creates the change by a file.
    pub(crate) fn from_diff(unit: &UnitDiff) -> Self {
        Self {
            unit: unit.name.to_string(),
            change: unit.change().as_str(),
            desired: unit.desired.to_string(),
            was: unit.current_desired().to_owned(),
            diff: unit.diff(),
            ..Self::default()
        }
    }

    /// Creates the changes of an engine's plan.
    pub(crate) fn from_plan(plan: &wire::PlanReport) -> Vec<Self> {
        let steps = plan.steps.iter().map(|step| Self {
            unit: step.unit.clone(),
            from: step.from.clone(),
            to: step.to.clone(),
            cause: step.cause.clone(),
            ..Self::default()
        });
        let unplaced = plan.unplaced.iter().map(|it| Self {
            unit: it.unit.clone(),
            reason: it.reason.clone(),
            ..Self::default()
        });
        steps.chain(unplaced).collect()
    }

    /// Returns whether this changes the cluster. That is so for each step of the engine, and for a
    /// unit in `changed` that will have no machine. Any other unit without a machine in the plan
    /// has none now either, so it does not change.
    pub(crate) fn is_change(&self, changed: &[&UnitDiff]) -> bool {
        self.is_step() || changed.iter().any(|unit| unit.name.as_str() == self.unit)
    }

    fn is_step(&self) -> bool {
        !self.from.is_empty() || !self.to.is_empty()
    }

    /// Returns the machines of the step; unused ones are empty.
    pub(crate) fn machines(&self) -> [&str; 2] {
        [&self.from, &self.to]
    }

    /// Describes the engine's step in a line.
    pub(crate) fn sentence(&self, machines: &MachineLabels) -> String {
        let Self { unit, from, to, cause, reason, .. } = self;
        let at = |id: &str| machines.label(id, false);
        match (from.as_str(), to.as_str()) {
            ("", "") => format!("{unit} has no machine: {reason}\n"),
            ("", to) => format!("{unit} is placed on {}: {cause}\n", at(to)),
            (from, "") => format!("{unit} is removed from {}: {cause}\n", at(from)),
            (from, to) => format!("{unit} moves from {} to {}: {cause}\n", at(from), at(to)),
        }
    }
}

/// Describes the changes by files, and then the engine's steps. A unit that stays without a machine
/// is described only if a file or a step concerns it.
pub(crate) fn preview_text(
    diffs: &[UnitDiff],
    plan: &[PlannedChange],
    machines: &MachineLabels,
) -> String {
    let changes = diffs.iter().map(|unit| {
        // New files are not printed in full.
        let diff = if unit.change() == UnitChange::Replace { unit.diff() } else { String::new() };
        unit.summary() + &diff
    });
    let is_relevant = |it: &&PlannedChange| {
        let is_same = |unit: &str| unit == it.unit;
        it.is_step()
            || diffs.iter().any(|unit| is_same(unit.name.as_str()))
            || plan.iter().any(|step| step.is_step() && is_same(&step.unit))
    };
    let steps = plan.iter().filter(is_relevant).map(|it| it.sentence(machines));
    changes.chain(steps).collect()
}
