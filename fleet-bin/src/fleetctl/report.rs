//! What is told of each unit that a command acted on.

use fleet_core::TargetState;
use fleet_http::wire;
use serde::Serialize;

use super::output::Record;
use super::wait::{Goal, Sight};
use super::words::Machines;

/// What was done to a unit, by its name on the command line.
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
    /// The command's name.
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

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The unit is where the command wanted it.
    Reached,
    /// It was asked for, and not waited for.
    Triggered,
    /// Nothing had to be done.
    Unchanged,
    /// The unit will not get there.
    Failed,
    /// The unit did not get there in time.
    Late,
}

/// One unit's part of a command's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    /// The unit.
    pub(crate) unit: String,
    /// What was asked for.
    pub(crate) action: &'static str,
    /// How it went.
    pub(crate) outcome: Outcome,
    /// The unit's current state; empty where it is not known, or was not waited for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) state: String,
    /// The machines on which it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) machines: Vec<String>,
    /// Why it did not get there, or what else there is to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// What people read of a unit that is there, if that is not its current state.
    #[serde(skip)]
    pub(crate) word: Option<&'static str>,
}

impl Record for Report {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl Report {
    /// Of a unit of which nothing more is known than what was asked for.
    pub(crate) fn new(unit: &str, action: Action, outcome: Outcome) -> Self {
        let (unit, action) = (unit.to_owned(), action.as_str());
        let word = (action == Action::Restart.as_str()).then_some("restarted");
        let (state, machines, message) = (String::new(), Vec::new(), String::new());
        Self { unit, action, outcome, state, machines, message, word }
    }

    /// The same with where the unit is.
    pub(crate) fn seen(mut self, sight: &Sight) -> Self {
        let Some(unit) = &sight.unit else { return self };
        self.state = current_state(unit, &sight.states);
        self.machines = match unit.machine_id.as_str() {
            "" => sight.states.iter().map(|state| state.machine_id.clone()).collect(),
            machine => vec![machine.to_owned()],
        };
        self
    }

    /// The same with something to say.
    pub(crate) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// The machine that the line for people names, if it names one.
    pub(crate) fn only_machine(&self) -> Option<&str> {
        match self.machines.as_slice() {
            [machine] if self.outcome == Outcome::Reached && self.message.is_empty() => {
                Some(machine)
            }
            _ => None,
        }
    }

    /// The same of a unit that was waited for until it has come so far.
    pub(crate) fn reaching(mut self, goal: Goal) -> Self {
        if let Goal::Begun | Goal::Finished { .. } = goal {
            self.word = Some(goal.word());
        }
        self
    }

    /// The line for people, in fleet v1's words; nothing where v1 said nothing, and for what went
    /// wrong, which is an error's to tell.
    pub(crate) fn text(&self, machines: &Machines) -> String {
        let Self { unit, action, .. } = self;
        let word = self.word.unwrap_or(&self.state);
        match self.outcome {
            Outcome::Reached if *action == "destroy" => format!("Destroyed {unit}\n"),
            Outcome::Reached => format!("Unit {unit} {word}{}\n", self.place(machines)),
            Outcome::Triggered => format!("Triggered unit {unit} {action}\n"),
            Outcome::Unchanged | Outcome::Failed | Outcome::Late => String::new(),
        }
    }

    fn place(&self, machines: &Machines) -> String {
        match (self.message.as_str(), self.machines.as_slice()) {
            ("", []) => String::new(),
            ("", [machine]) => format!(" on {}", machines.legend(machine, false)),
            ("", several) => format!(" on {} machines", several.len()),
            (message, _) => format!(" {message}"),
        }
    }
}

/// A unit's current state. What the server says of a global unit is the least of its machines.
fn current_state(unit: &wire::Unit, states: &[wire::UnitState]) -> String {
    let counts = |state: &&wire::UnitState| match unit.machine_id.as_str() {
        "" => unit.global || unit.current_state.is_empty(),
        machine => state.machine_id == machine,
    };
    let states = states.iter().filter(counts);
    let asked = states.filter_map(|state| state.asked.parse::<TargetState>().ok()).min();
    match asked {
        Some(asked) => asked.to_string(),
        None if unit.current_state.is_empty() => TargetState::Inactive.to_string(),
        None => unit.current_state.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(action: Action, machine: &str, on: &[&str], state: &str) -> Report {
        let unit = wire::Unit {
            machine_id: machine.into(),
            current_state: state.into(),
            ..wire::Unit::default()
        };
        let told = |id: &&str| wire::UnitState {
            machine_id: (*id).into(),
            asked: if state.is_empty() { "loaded".into() } else { state.into() },
            ..wire::UnitState::default()
        };
        let states = on.iter().map(told).collect();
        let sight = Sight { unit: Some(unit), states, ..Sight::default() };
        Report::new("web.service", action, Outcome::Reached).seen(&sight)
    }

    /// The unit and its states are asked for side by side, and the answers are of two moments. What
    /// was waited for was seen in the states.
    #[test]
    fn what_is_told_of_a_unit_is_what_was_waited_for() {
        let state = |machine: &str, asked: &str| wire::UnitState {
            machine_id: machine.into(),
            asked: asked.into(),
            ..wire::UnitState::default()
        };
        let unit = |machine: &str, global| wire::Unit {
            machine_id: machine.into(),
            current_state: "launched".into(),
            global,
            ..wire::Unit::default()
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
    fn the_words_are_those_of_v1() {
        let machine = wire::Machine {
            id: "1a2b3c4d5e6f".into(),
            primary_ip: "10.0.0.1".into(),
            ..wire::Machine::default()
        };
        let machines = Machines::new(&[machine]);
        let triggered = Report::new("web.service", Action::Start, Outcome::Triggered);
        let unchanged = Report::new("web.service", Action::Submit, Outcome::Unchanged);
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
    fn the_fields_are_stable() {
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
