//! Pure: whether a unit has come where a command wanted it, as far as one look at it tells.

use std::collections::BTreeSet;

use fleet_core::TargetState;
use fleet_http::wire;

use super::args::Until;
use super::words::{short_machine, without_name};

/// What a command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Loaded on its machine.
    Loaded,
    /// Started, and found active by its service manager, or finished well; counting starts from
    /// this generation on.
    Active {
        /// The restart that is waited for, if one was requested.
        generation: u64,
    },
    /// Handed to its machine to be started; how that goes is not waited for.
    Begun,
    /// Started, and ended since, or done and still there for what it left behind; counting as for
    /// `Active`.
    Finished {
        /// The restart that is waited for, if one was requested.
        generation: u64,
    },
    /// Not running anywhere.
    Stopped,
    /// On no machine.
    Unplaced,
    /// Not known, and on no machine.
    Gone,
}

/// All that one look at a unit showed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sight {
    /// The unit, while the cluster knows it.
    pub(crate) unit: Option<wire::Unit>,
    /// Its states on machines.
    pub(crate) states: Vec<wire::UnitState>,
    /// For a global unit, the machines whose metadata it asks for.
    pub(crate) eligible: BTreeSet<String>,
}

/// What one look at a unit means for whoever waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The goal is reached.
    Reached,
    /// Its process runs. For most services that is all that a start means, and the next moment
    /// shows whether the process stays.
    Runs,
    /// The goal is reached wherever it can be at present; if that stays so, it will do.
    Enough(String),
    /// Not yet; it is on its way.
    Pending(String),
    /// Not yet, and something is in the way that hardly goes away by itself.
    Stuck(String),
    /// It will not be reached.
    Failed {
        /// What happened.
        text: String,
        /// Where, if it was on a machine.
        machine: Option<String>,
    },
}

impl Verdict {
    fn failed(text: impl Into<String>) -> Self {
        Self::Failed { text: text.into(), machine: None }
    }
}

impl Goal {
    /// That a start of this generation has come so far.
    pub(crate) const fn of_start(until: Until, generation: u64) -> Self {
        match until {
            Until::Loaded => Self::Begun,
            Until::Active => Self::Active { generation },
            Until::Finished => Self::Finished { generation },
        }
    }

    /// What the goal is called in a count of units.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Loaded | Self::Begun => "loaded",
            Self::Finished { .. } => "finished",
            Self::Active { .. } => "active",
            Self::Stopped => "stopped",
            Self::Unplaced => "unloaded",
            Self::Gone => "gone",
        }
    }

    /// Whether it is to be on a machine then, and a global unit on all machines that it fits.
    pub(crate) const fn is_to_be_there(self) -> bool {
        !matches!(self, Self::Stopped | Self::Unplaced | Self::Gone)
    }

    /// Judges what was seen of a unit.
    pub(crate) fn judge(self, sight: &Sight) -> Verdict {
        let Some(unit) = &sight.unit else {
            return match self {
                Self::Gone => gone(&sight.states),
                _ => Verdict::failed("it was destroyed meanwhile"),
            };
        };
        if let Some(verdict) = self.judge_desired(unit) {
            return verdict;
        }
        match self {
            Self::Loaded | Self::Begun | Self::Active { .. } | Self::Finished { .. } => {
                match unit.global {
                    true => self.everywhere(unit, sight),
                    false => self.on_its_machine(unit, &sight.states),
                }
            }
            Self::Stopped => stopped(unit, &sight.states),
            Self::Unplaced => unplaced(unit, &sight.states),
            Self::Gone => Verdict::Pending("the cluster still knows it".into()),
        }
    }

    /// That somebody else wants something else ends the wait; so does a unit that is broken.
    fn judge_desired(self, unit: &wire::Unit) -> Option<Verdict> {
        if !unit.problem.is_empty() && self != Self::Gone {
            return Some(Verdict::failed(unit.problem.clone()));
        }
        let wanted = match self {
            Self::Begun | Self::Active { .. } | Self::Finished { .. } => TargetState::Launched,
            Self::Loaded | Self::Stopped => TargetState::Loaded,
            Self::Unplaced => TargetState::Inactive,
            Self::Gone => return None,
        };
        let desired = unit.desired().filter(|desired| *desired != wanted)?;
        Some(Verdict::Stuck(format!("its desired state is {desired}, not {wanted}")))
    }

    /// A unit with one place.
    fn on_its_machine(self, unit: &wire::Unit, states: &[wire::UnitState]) -> Verdict {
        if unit.machine_id.is_empty() {
            return match unit.reason.as_str() {
                "" => Verdict::Pending("it has no machine yet".into()),
                reason => Verdict::Stuck(reason.into()),
            };
        }
        match states.iter().find(|state| state.machine_id == unit.machine_id) {
            Some(state) => self.on_machine(unit, state),
            None => {
                let machine = short_machine(&unit.machine_id);
                Verdict::Pending(format!("{machine} has not loaded it yet"))
            }
        }
    }

    /// A unit that belongs on every machine that its metadata allows. Which of these a conflict
    /// keeps it from is known to them alone, so that it stays away from some is no failure.
    fn everywhere(self, unit: &wire::Unit, sight: &Sight) -> Verdict {
        let verdicts = sight.states.iter().map(|state| self.on_machine(unit, state));
        let verdict = worst(verdicts);
        if !matches!(verdict, Verdict::Reached | Verdict::Runs) {
            return verdict;
        }
        let there: BTreeSet<_> = sight.states.iter().map(|state| &state.machine_id).collect();
        let missing: Vec<_> = sight
            .eligible
            .iter()
            .filter(|id| !there.contains(id))
            .map(|id| short_machine(id))
            .collect();
        match (there.len(), missing.as_slice()) {
            (0, []) => Verdict::Stuck("no machine that is present fits it".into()),
            (0, _) => Verdict::Pending("no machine has loaded it yet".into()),
            (_, []) => verdict,
            (count, missing) => Verdict::Enough(format!(
                "on {count} of {} machines; not on {}",
                count + missing.len(),
                missing.join(", ")
            )),
        }
    }

    /// What one machine says of it.
    fn on_machine(self, unit: &wire::Unit, state: &wire::UnitState) -> Verdict {
        let pending = |what: &str| {
            let machine = short_machine(&state.machine_id);
            match state.problem.as_str() {
                "" => Verdict::Pending(format!("{machine} {what}")),
                problem => Verdict::Stuck(format!("{machine}: {problem}")),
            }
        };
        if state.hash != unit.hash {
            return pending("has not loaded its present file yet");
        }
        if cannot_load(state) {
            return failed("not loaded", state, &state.systemd_load_state);
        }
        match self {
            Self::Active { generation } if is_started(unit, state, generation) => started(state),
            Self::Finished { generation } if is_started(unit, state, generation) => ended(state),
            Self::Active { .. } | Self::Finished { .. } => pending("has not started it yet"),
            Self::Begun => Verdict::Reached,
            _ if state.asked == "loaded" => Verdict::Reached,
            _ => pending("has not stopped it yet"),
        }
    }
}

/// Whether the machine cannot load the unit's file, which will not change by itself. A problem that
/// is no more than an error is tried again by the machine's agent.
fn cannot_load(state: &wire::UnitState) -> bool {
    let load = state.systemd_load_state.as_str();
    matches!(load, "bad-setting" | "masked" | "not-found")
        || (load == "error" && state.problem.is_empty())
}

/// Whether the state is one of after the start that is waited for.
fn is_started(unit: &wire::Unit, state: &wire::UnitState, generation: u64) -> bool {
    state.asked == "launched" && state.generation >= unit.generation.max(generation)
}

/// What became of a start.
fn started(state: &wire::UnitState) -> Verdict {
    let machine = short_machine(&state.machine_id);
    let sub = &state.systemd_sub_state;
    match state.systemd_active_state.as_str() {
        "active" if sub == "running" => Verdict::Runs,
        "active" | "reloading" | "refreshing" => Verdict::Reached,
        "failed" => failed("failed", state, &outcome(state)),
        // One that has ended well has done what it was started for.
        "inactive" if state.result == "success" => Verdict::Reached,
        "inactive" if !state.problem.is_empty() => failed("not started", state, ""),
        "activating" if sub == "auto-restart" => {
            Verdict::Stuck(format!("{machine} starts it over and over: {}", outcome(state)))
        }
        active => Verdict::Pending(format!("it is {active} ({sub}) on {machine}")),
    }
}

/// Whether a start has come to its end.
fn ended(state: &wire::UnitState) -> Verdict {
    match (started(state), state.systemd_active_state.as_str()) {
        (Verdict::Reached | Verdict::Runs, "active") if state.systemd_sub_state != "exited" => {
            let sub = &state.systemd_sub_state;
            let machine = short_machine(&state.machine_id);
            Verdict::Pending(format!("it is active ({sub}) on {machine}"))
        }
        (Verdict::Reached | Verdict::Runs, "reloading" | "refreshing") => {
            Verdict::Pending("it is being reloaded".to_owned())
        }
        (verdict, _) => verdict,
    }
}

/// How a unit's last run ended: its result, its exit, or both; empty where neither is known.
fn outcome(state: &wire::UnitState) -> String {
    match (state.result.as_str(), state.exit.as_str()) {
        ("", exit) => exit.into(),
        (result, "") => format!("result {result}"),
        (result, exit) => format!("{exit}, result {result}"),
    }
}

fn stopped(unit: &wire::Unit, states: &[wire::UnitState]) -> Verdict {
    let running = states.iter().find(|state| state.asked == "launched" || !is_down(state));
    if let Some(state) = running {
        return still(state);
    }
    let machine = &unit.machine_id;
    if !machine.is_empty() && !states.iter().any(|state| state.machine_id == *machine) {
        return Verdict::Pending(format!("{} has not loaded it yet", short_machine(machine)));
    }
    Verdict::Reached
}

fn unplaced(unit: &wire::Unit, states: &[wire::UnitState]) -> Verdict {
    match states.first() {
        Some(state) => still(state),
        None if unit.machine_id.is_empty() => Verdict::Reached,
        None => {
            Verdict::Pending(format!("it is still placed on {}", short_machine(&unit.machine_id)))
        }
    }
}

fn gone(states: &[wire::UnitState]) -> Verdict {
    states.first().map_or(Verdict::Reached, still)
}

fn is_down(state: &wire::UnitState) -> bool {
    matches!(state.systemd_active_state.as_str(), "inactive" | "failed" | "")
}

/// It is still there on a machine.
fn still(state: &wire::UnitState) -> Verdict {
    let machine = short_machine(&state.machine_id);
    if !state.problem.is_empty() {
        return Verdict::Stuck(format!("{machine}: {}", problem_of(state)));
    }
    let (active, sub) = (&state.systemd_active_state, &state.systemd_sub_state);
    Verdict::Pending(format!("it is still {active} ({sub}) on {machine}"))
}

fn problem_of(state: &wire::UnitState) -> &str {
    without_name(&state.problem, &state.name)
}

/// It came to nothing on a machine: what, where, how, and what its agent says.
fn failed(what: &str, state: &wire::UnitState, how: &str) -> Verdict {
    let mut text = format!("{what} on {}", short_machine(&state.machine_id));
    for part in [how, problem_of(state)].into_iter().filter(|part| !part.is_empty()) {
        text.push_str(": ");
        text.push_str(part);
    }
    Verdict::Failed { text, machine: Some(state.machine_id.clone()) }
}

/// The verdict that counts for all machines together.
fn worst(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Failed { .. } => 0,
        Verdict::Stuck(_) => 1,
        Verdict::Pending(_) => 2,
        Verdict::Runs => 3,
        Verdict::Enough(_) | Verdict::Reached => 4,
    };
    verdicts.min_by_key(rank).unwrap_or(Verdict::Reached)
}

#[cfg(test)]
mod tests;
