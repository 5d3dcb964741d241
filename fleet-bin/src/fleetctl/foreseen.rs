//! What would happen, unit by unit, before anything does.

use fleet_http::wire;
use serde::Serialize;

use super::output::Record;
use super::wanted::{Change, Wanted};
use super::words::Machines;

/// What would happen to one unit: what a file changes of it, or what the engine would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Foreseen {
    unit: String,
    /// `create`, `replace`, `state` or `none`, where a file says what it is to be.
    #[serde(skip_serializing_if = "str::is_empty")]
    change: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    desired: String,
    /// The desired state that it has.
    #[serde(skip_serializing_if = "String::is_empty")]
    was: String,
    /// How its file differs, as a unified diff.
    #[serde(skip_serializing_if = "String::is_empty")]
    diff: String,
    /// The machine that the engine would take it from.
    #[serde(skip_serializing_if = "String::is_empty")]
    from: String,
    /// The machine that the engine would give it to.
    #[serde(skip_serializing_if = "String::is_empty")]
    to: String,
    /// Why the engine would do so.
    #[serde(skip_serializing_if = "String::is_empty")]
    cause: String,
    /// Why it would have no machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

impl Record for Foreseen {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl Foreseen {
    /// What a file changes.
    pub(crate) fn of_file(wanted: &Wanted) -> Self {
        Self {
            unit: wanted.name.to_string(),
            change: wanted.change().as_str(),
            desired: wanted.desired.to_string(),
            was: wanted.was().to_owned(),
            diff: wanted.diff(),
            ..Self::default()
        }
    }

    /// What the engine would do, unit by unit.
    pub(crate) fn of_plan(plan: &wire::Plan) -> Vec<Self> {
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

    /// Whether the engine would do something, or leave one of these without a machine: who has none
    /// already, and gets none, does not change.
    pub(crate) fn is_change(&self, changed: &[&Wanted]) -> bool {
        self.is_step() || changed.iter().any(|wanted| wanted.name.as_str() == self.unit)
    }

    fn is_step(&self) -> bool {
        !self.from.is_empty() || !self.to.is_empty()
    }

    /// The machines that it is about.
    pub(crate) fn machines(&self) -> [&str; 2] {
        [&self.from, &self.to]
    }

    /// What the engine would do, in words.
    pub(crate) fn sentence(&self, machines: &Machines) -> String {
        let Self { unit, from, to, cause, reason, .. } = self;
        let at = |id: &str| machines.legend(id, false);
        match (from.as_str(), to.as_str()) {
            ("", "") => format!("{unit} has no machine: {reason}\n"),
            ("", to) => format!("{unit} comes to {}: {cause}\n", at(to)),
            (from, "") => format!("{unit} leaves {}: {cause}\n", at(from)),
            (from, to) => format!("{unit} moves from {} to {}: {cause}\n", at(from), at(to)),
        }
    }
}

/// What files change and what the engine would then do, for people. Who has no machine now, and
/// would still have none, is only told of if a file speaks of it.
pub(crate) fn told(wanted: &[Wanted], plan: &[Foreseen], machines: &Machines) -> String {
    let changes = wanted.iter().map(|wanted| {
        // The whole of what is new can be read in its file.
        let diff = if wanted.change() == Change::Replace { wanted.diff() } else { String::new() };
        wanted.told() + &diff
    });
    let is_meant = |it: &&Foreseen| {
        let is_of = |unit: &str| unit == it.unit;
        it.is_step()
            || wanted.iter().any(|wanted| is_of(wanted.name.as_str()))
            || plan.iter().any(|step| step.is_step() && is_of(&step.unit))
    };
    let steps = plan.iter().filter(is_meant).map(|it| it.sentence(machines));
    changes.chain(steps).collect()
}
