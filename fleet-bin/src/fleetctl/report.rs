//! Reports of commands, one for each unit.

use fleet_core::TargetState;
use fleet_http::wire;
use serde::Serialize;

use super::format::MachineLabels;
use super::wait::{Goal, Observation};
use crate::ui::output::Record;

/// Command that acts on units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Apply,
    Submit,
    Load,
    Start,
    Restart,
    Stop,
    Unload,
    Destroy,
}

impl Action {
    /// Returns the name of the command.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Submit => "submit",
            Self::Load => "load",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Stop => "stop",
            Self::Unload => "unload",
            Self::Destroy => "destroy",
        }
    }
}

/// Outcome of a command for one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnitOutcome {
    /// The unit has reached the goal.
    Reached,
    /// The change was requested, but not awaited.
    Triggered,
    /// There was nothing to do.
    Unchanged,
    /// The unit will not reach the goal.
    Failed,
    /// The unit did not reach the goal in time.
    Late,
}

/// Result of a command for one unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct UnitReport {
    /// Name of the unit.
    pub(crate) unit: String,
    /// Name of the command.
    pub(crate) action: &'static str,
    /// Outcome for the unit.
    pub(crate) outcome: UnitOutcome,
    /// Current state of the unit; empty if unknown or not awaited.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) state: String,
    /// Machines that the unit is on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) machines: Vec<String>,
    /// Reason for a failure, or a remark.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// Word to print in place of the unit's current state, if the unit has reached its goal.
    #[serde(skip)]
    pub(crate) word: Option<&'static str>,
}

impl Record for UnitReport {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl UnitReport {
    /// Creates a report without a state or machines.
    pub(crate) fn new(unit: &str, action: Action, outcome: UnitOutcome) -> Self {
        let (unit, action) = (unit.to_owned(), action.as_str());
        let word = (action == Action::Restart.as_str()).then_some("restarted");
        let (state, machines, message) = (String::new(), Vec::new(), String::new());
        Self { unit, action, outcome, state, machines, message, word }
    }

    /// Adds the state and the machines of an observation.
    pub(crate) fn with_observation(mut self, observation: &Observation) -> Self {
        let Some(unit) = &observation.unit else { return self };
        self.state = match (&unit.job, &unit.schedule) {
            (Some(job), _) => job.phase.clone(),
            (None, Some(schedule)) if schedule.state == "on" => "scheduled".to_owned(),
            (None, Some(schedule)) if schedule.state == "paused" => "scheduled, paused".to_owned(),
            (None, _) => current_state(unit, &observation.states),
        };
        self.machines = match unit.machine_id.as_str() {
            "" => observation.states.iter().map(|state| state.machine_id.clone()).collect(),
            machine => vec![machine.to_owned()],
        };
        self
    }

    /// Sets the message.
    pub(crate) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Returns the machine that the line for people names, if any.
    pub(crate) fn only_machine(&self) -> Option<&str> {
        match self.machines.as_slice() {
            [machine] if self.outcome == UnitOutcome::Reached && self.message.is_empty() => {
                Some(machine)
            }
            _ => None,
        }
    }

    /// Sets [`word`](Self::word) for two goals that no current state describes: to "loaded" for
    /// [`Goal::StartRequested`], and to "finished" for [`Goal::Finished`]. Other goals change
    /// nothing.
    pub(crate) fn for_goal(mut self, goal: Goal) -> Self {
        if let Goal::StartRequested | Goal::Finished { .. } = goal {
            self.word = Some(goal.word());
        }
        self
    }

    /// Formats the line for people, in the words of fleet v1. The text is empty if the unit was
    /// unchanged, and if it failed or was late, because the error then reports it.
    pub(crate) fn text(&self, machines: &MachineLabels) -> String {
        let Self { unit, action, .. } = self;
        let word = self.word.unwrap_or(&self.state);
        match self.outcome {
            UnitOutcome::Reached if *action == "destroy" => format!("Destroyed {unit}\n"),
            UnitOutcome::Reached => format!("Unit {unit} {word}{}\n", self.machine_text(machines)),
            UnitOutcome::Triggered => format!("Triggered unit {unit} {action}\n"),
            UnitOutcome::Unchanged | UnitOutcome::Failed | UnitOutcome::Late => String::new(),
        }
    }

    fn machine_text(&self, machines: &MachineLabels) -> String {
        match (self.message.as_str(), self.machines.as_slice()) {
            ("", []) => String::new(),
            ("", [machine]) => format!(" on {}", machines.label(machine, false)),
            ("", several) => format!(" on {} machines", several.len()),
            (message, _) => format!(" {message}"),
        }
    }
}

/// Returns the current state of a unit, as reported by its machine. For a global unit, returns the
/// lowest state of all machines (loaded is lower than launched).
fn current_state(unit: &wire::UnitEntity, states: &[wire::UnitStateEntity]) -> String {
    let counts = |state: &&wire::UnitStateEntity| match unit.machine_id.as_str() {
        "" => unit.global || unit.current_state.is_empty(),
        machine => state.machine_id == machine,
    };
    let states = states.iter().filter(counts);
    let requested =
        states.filter_map(|state| state.requested_state.parse::<TargetState>().ok()).min();
    match requested {
        Some(requested) => requested.to_string(),
        None if unit.current_state.is_empty() => TargetState::Inactive.to_string(),
        None => unit.current_state.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(action: Action, machine: &str, on: &[&str], state: &str) -> UnitReport {
        let unit = wire::UnitEntity {
            machine_id: machine.into(),
            current_state: state.into(),
            ..wire::UnitEntity::default()
        };
        let state_on = |id: &&str| wire::UnitStateEntity {
            machine_id: (*id).into(),
            requested_state: if state.is_empty() { "loaded".into() } else { state.into() },
            ..wire::UnitStateEntity::default()
        };
        let states = on.iter().map(state_on).collect();
        let observation = Observation { unit: Some(unit), states, ..Observation::default() };
        UnitReport::new("web.service", action, UnitOutcome::Reached).with_observation(&observation)
    }

    /// The unit and its states are requested concurrently, so the unit can be older than its
    /// states. The report uses the states, because the wait also does.
    #[test]
    fn reported_state_comes_from_the_unit_states() {
        let state = |machine: &str, asked: &str| wire::UnitStateEntity {
            machine_id: machine.into(),
            requested_state: asked.into(),
            ..wire::UnitStateEntity::default()
        };
        let unit = |machine: &str, global| wire::UnitEntity {
            machine_id: machine.into(),
            current_state: "launched".into(),
            global,
            ..wire::UnitEntity::default()
        };
        let (old, new) = (state("m1", "launched"), state("m2", "loaded"));
        let states = [old, new];
        assert_eq!(current_state(&unit("m2", false), &states), "loaded");
        assert_eq!(current_state(&unit("", true), &states), "loaded");
        assert_eq!(
            current_state(&unit("m3", false), &states),
            "launched",
            "nothing newer is known"
        );
        assert_eq!(current_state(&unit("", false), &states), "launched", "it has no machine");
    }

    #[test]
    fn report_lines_match_v1() {
        let machine = wire::MachineEntity {
            id: "1a2b3c4d5e6f".into(),
            primary_ip: "10.0.0.1".into(),
            ..wire::MachineEntity::default()
        };
        let machines = MachineLabels::new(&[machine]);
        let triggered = UnitReport::new("web.service", Action::Start, UnitOutcome::Triggered);
        let unchanged = UnitReport::new("web.service", Action::Submit, UnitOutcome::Unchanged);
        let lines = [
            report(Action::Start, "1a2b3c4d5e6f", &["1a2b3c4d5e6f"], "launched"),
            report(Action::Restart, "1a2b3c4d5e6f", &["1a2b3c4d5e6f"], "launched"),
            report(Action::Unload, "", &[], "inactive"),
            report(Action::Load, "", &["m1", "m2"], ""),
            report(Action::Start, "", &["m1"], "launched")
                .with_message("on 1 of 2 machines; not on m2"),
            report(Action::Destroy, "", &[], ""),
            triggered,
            unchanged,
        ];
        let text: String = lines.iter().map(|line| line.text(&machines)).collect();
        insta::assert_snapshot!(text, @r"
        Unit web.service launched on 1a2b3c4d.../10.0.0.1
        Unit web.service restarted on 1a2b3c4d.../10.0.0.1
        Unit web.service inactive
        Unit web.service loaded on 2 machines
        Unit web.service launched on 1 of 2 machines; not on m2
        Destroyed web.service
        Triggered unit web.service start
        ");
    }

    #[test]
    fn json_fields_are_stable() {
        let report = report(Action::Start, "m1", &["m1"], "launched").with_message("why");
        insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap(), @r#"
        {
          "unit": "web.service",
          "action": "start",
          "outcome": "reached",
          "state": "launched",
          "machines": [
            "m1"
          ],
          "message": "why"
        }
        "#);
    }
}
