//! Pure: evaluates one observation of a unit against the goal of a command.

use std::collections::BTreeSet;

use fleet_agent::is_wait_reason;
use fleet_core::TargetState;
use fleet_http::wire;

use super::args::WaitUntil;
use super::format::{short_machine, without_name};

/// Goal that a command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Loaded on its machine.
    Loaded,
    /// The unit is started and active according to its service manager, or has finished
    /// successfully. A state of an earlier generation does not count, because it describes the run
    /// before the restart.
    Active {
        /// Generation of the requested restart, or 0.
        generation: u64,
    },
    /// The machine has loaded the unit and got the request to start it. The start itself may still
    /// fail.
    StartRequested,
    /// The unit was started and has finished. A oneshot unit that stays active after its process
    /// has exited (`RemainAfterExit=`, substate `exited`) has also finished. A state of an earlier
    /// generation does not count, as for `Active`.
    Finished {
        /// Generation of the requested restart, or 0.
        generation: u64,
    },
    /// Not running on any machine.
    Stopped,
    /// On no machine.
    Unplaced,
    /// Unknown to the cluster, and on no machine.
    Gone,
}

/// One observation of a unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observation {
    /// The unit, if the cluster knows it.
    pub(crate) unit: Option<wire::UnitEntity>,
    /// States of the unit on machines.
    pub(crate) states: Vec<wire::UnitStateEntity>,
    /// Of a global unit: machines with the metadata that it requires.
    pub(crate) eligible: BTreeSet<String>,
}

/// Meaning of an observation for the wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The goal is reached.
    Reached,
    /// The main process runs. For most services systemd then reports the unit as active, although
    /// the process may still exit immediately. So this verdict must last before the wait ends.
    /// After an automatic restart the unit has another process, and so this is another verdict.
    Running(Vec<RunningProcess>),
    /// A global unit has reached the goal on some of its eligible machines, and the others have not
    /// loaded it. If this verdict lasts, the wait ends with success.
    PartlyReached(String),
    /// A condition of the unit does not hold, so there is nothing to start.
    Skipped(String),
    /// Not reached yet, but in progress.
    Pending(String),
    /// Not reached yet, because the start waits for another unit of the cluster.
    Held(String),
    /// Blocked by an obstacle that rarely disappears by itself.
    Stuck(String),
    /// The goal will not be reached.
    Failed {
        /// Description of the failure.
        text: String,
        /// Machine of the failure, if any.
        machine: Option<String>,
    },
}

/// The main process of a unit on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningProcess {
    machine: String,
    pid: Option<u32>,
    /// Number of automatic restarts before this process.
    restarts: u32,
}

impl Verdict {
    fn failed(text: impl Into<String>) -> Self {
        Self::Failed { text: text.into(), machine: None }
    }
}

impl Goal {
    /// Returns the goal of a start of this generation.
    pub(crate) const fn for_start(until: WaitUntil, generation: u64) -> Self {
        match until {
            WaitUntil::Loaded => Self::StartRequested,
            WaitUntil::Active => Self::Active { generation },
            WaitUntil::Finished => Self::Finished { generation },
        }
    }

    /// Returns the state that a summary prints for this goal.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Loaded | Self::StartRequested => "loaded",
            Self::Finished { .. } => "finished",
            Self::Active { .. } => "active",
            Self::Stopped => "stopped",
            Self::Unplaced => "unloaded",
            Self::Gone => "gone",
        }
    }

    /// Returns whether the goal requires that the unit is on its machine, or a global unit on all
    /// eligible machines. Goals of commands that stop, unload or destroy a unit do not require
    /// this.
    pub(crate) const fn expects_placement(self) -> bool {
        !matches!(self, Self::Stopped | Self::Unplaced | Self::Gone)
    }

    /// Evaluates an observation.
    pub(crate) fn evaluate(self, observation: &Observation) -> Verdict {
        let Some(unit) = &observation.unit else {
            return match self {
                Self::Gone => gone(&observation.states),
                _ => Verdict::failed("it was destroyed meanwhile"),
            };
        };
        if let Some(verdict) = self.evaluate_job(unit, &observation.states) {
            return verdict;
        }
        if let Some(verdict) = self.evaluate_desired(unit) {
            return verdict;
        }
        match self {
            Self::Loaded | Self::StartRequested | Self::Active { .. } | Self::Finished { .. } => {
                match unit.global {
                    true => self.evaluate_global(unit, observation),
                    false => self.evaluate_placed(unit, &observation.states),
                }
            }
            Self::Stopped => stopped(unit, &observation.states),
            Self::Unplaced => unplaced(unit, &observation.states),
            Self::Gone => Verdict::Pending("the cluster still knows it".into()),
        }
    }

    /// Evaluates a start or stop of a job, or of a schedule, which is on no machine. Returns `None`
    /// if the goal does not depend on the job.
    ///
    /// The leader makes an ended job inactive, so its desired state is not that of the command.
    fn evaluate_job(
        self,
        unit: &wire::UnitEntity,
        states: &[wire::UnitStateEntity],
    ) -> Option<Verdict> {
        let is_launched = unit.desired() == Some(TargetState::Launched);
        if unit.schedule.is_some() {
            return (is_launched && self.is_start()).then_some(Verdict::Reached);
        }
        let job = unit.job.as_ref()?;
        let awaits_end = matches!(self, Self::Finished { .. });
        match self {
            _ if self.is_start() && job.has_ended => Some(match job.phase.as_str() {
                "succeeded" => Verdict::Reached,
                _ => Verdict::failed(job.text.clone()),
            }),
            _ if self.is_start() && is_launched => match (job.attempt, awaits_end) {
                (0, _) => match unit.machine_id.as_str() {
                    "" if !unit.reason.is_empty() => Some(Verdict::Stuck(unit.reason.clone())),
                    _ => Some(Verdict::Pending("its first attempt has not begun".to_owned())),
                },
                (_, false) => Some(Verdict::Reached),
                (_, true) => Some(Verdict::Pending(job.text.clone())),
            },
            Self::Stopped if job.has_ended => Some(stopped(unit, states)),
            _ => None,
        }
    }

    /// Whether the goal is that of a start.
    const fn is_start(self) -> bool {
        matches!(self, Self::StartRequested | Self::Active { .. } | Self::Finished { .. })
    }

    /// Returns a verdict if the unit is broken, or if its desired state is not that of the command,
    /// because another client has changed it.
    fn evaluate_desired(self, unit: &wire::UnitEntity) -> Option<Verdict> {
        if !unit.problem.is_empty() && self != Self::Gone {
            return Some(Verdict::failed(unit.problem.clone()));
        }
        let wanted = match self {
            Self::StartRequested | Self::Active { .. } | Self::Finished { .. } => {
                TargetState::Launched
            }
            Self::Loaded | Self::Stopped => TargetState::Loaded,
            Self::Unplaced => TargetState::Inactive,
            Self::Gone => return None,
        };
        let desired = unit.desired().filter(|desired| *desired != wanted)?;
        Some(Verdict::Stuck(format!("its desired state is {desired}, not {wanted}")))
    }

    /// Evaluates a unit with a single machine.
    fn evaluate_placed(self, unit: &wire::UnitEntity, states: &[wire::UnitStateEntity]) -> Verdict {
        if unit.machine_id.is_empty() {
            return match unit.reason.as_str() {
                "" => Verdict::Pending("it has no machine yet".into()),
                reason => Verdict::Stuck(reason.into()),
            };
        }
        match states.iter().find(|state| state.machine_id == unit.machine_id) {
            Some(state) => self.evaluate_on_machine(unit, state),
            None => {
                let machine = short_machine(&unit.machine_id);
                Verdict::Pending(format!("{machine} has not loaded it yet"))
            }
        }
    }

    /// Evaluates a global unit. A machine that has not loaded the unit is not a failure: a conflict
    /// may keep the unit away, and only the machine itself knows that.
    fn evaluate_global(self, unit: &wire::UnitEntity, observation: &Observation) -> Verdict {
        let verdicts = observation.states.iter().map(|state| self.evaluate_on_machine(unit, state));
        let verdict = worst(verdicts);
        if !matches!(verdict, Verdict::Reached | Verdict::Running(_)) {
            return verdict;
        }
        let present: BTreeSet<_> =
            observation.states.iter().map(|state| &state.machine_id).collect();
        let missing: Vec<_> = observation
            .eligible
            .iter()
            .filter(|id| !present.contains(id))
            .map(|id| short_machine(id))
            .collect();
        match (present.len(), missing.as_slice()) {
            (0, []) => Verdict::Stuck("no present machine fits it".into()),
            (0, _) => Verdict::Pending("no machine has loaded it yet".into()),
            (_, []) => verdict,
            (count, missing) => Verdict::PartlyReached(format!(
                "on {count} of {} machines; not on {}",
                count + missing.len(),
                missing.join(", ")
            )),
        }
    }

    /// Evaluates the state on one machine.
    fn evaluate_on_machine(
        self,
        unit: &wire::UnitEntity,
        state: &wire::UnitStateEntity,
    ) -> Verdict {
        let pending = |what: &str| {
            let machine = short_machine(&state.machine_id);
            match state.problem.as_str() {
                "" => Verdict::Pending(format!("{machine} {what}")),
                wait if is_wait_reason(wait) => Verdict::Held(format!("on {machine} it {wait}")),
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
            Self::StartRequested => Verdict::Reached,
            _ if state.requested_state == "loaded" => Verdict::Reached,
            _ => pending("has not stopped it yet"),
        }
    }
}

/// Returns whether the machine can never load the unit's current file. The load state `error` with
/// a problem is not final, because the agent then tries again.
fn cannot_load(state: &wire::UnitStateEntity) -> bool {
    let load = state.systemd_load_state.as_str();
    matches!(load, "bad-setting" | "masked" | "not-found")
        || (load == "error" && state.problem.is_empty())
}

/// Whether the state belongs to the awaited start.
fn is_started(unit: &wire::UnitEntity, state: &wire::UnitStateEntity, generation: u64) -> bool {
    state.requested_state == "launched" && state.generation >= unit.generation.max(generation)
}

/// Evaluates the state after a start.
fn started(state: &wire::UnitStateEntity) -> Verdict {
    let machine = short_machine(&state.machine_id);
    let sub = &state.systemd_sub_state;
    match state.systemd_active_state.as_str() {
        "active" if sub == "running" => Verdict::Running(vec![RunningProcess {
            machine: state.machine_id.clone(),
            pid: state.main_pid,
            restarts: state.restarts,
        }]),
        "active" | "reloading" | "refreshing" => Verdict::Reached,
        "failed" => failed("failed", state, &state.outcome()),
        // A unit that finished successfully has done its work.
        "inactive" if state.result == "success" => Verdict::Reached,
        "inactive" if is_skipped(state) => {
            Verdict::Skipped(format!("on {machine}, but was skipped: {}", state.problem))
        }
        "inactive" if is_wait_reason(&state.problem) => {
            Verdict::Stuck(format!("on {machine} it {}", state.problem))
        }
        "inactive" if !state.problem.is_empty() => failed("not started", state, ""),
        "activating" if sub == "auto-restart" => {
            let why = match state.problem.as_str() {
                "" => state.outcome(),
                problem => problem.to_owned(),
            };
            Verdict::Stuck(format!("{machine} keeps restarting it: {why}"))
        }
        active => Verdict::Pending(format!("it is {active} ({sub}) on {machine}")),
    }
}

/// Returns whether the last start was skipped, because a condition did not hold.
pub(crate) fn is_skipped(state: &wire::UnitStateEntity) -> bool {
    state.result == "exec-condition"
}

/// Evaluates whether a start has finished.
fn ended(state: &wire::UnitStateEntity) -> Verdict {
    match (started(state), state.systemd_active_state.as_str()) {
        (Verdict::Reached | Verdict::Running(_), "active")
            if state.systemd_sub_state != "exited" =>
        {
            let sub = &state.systemd_sub_state;
            let machine = short_machine(&state.machine_id);
            Verdict::Pending(format!("it is active ({sub}) on {machine}"))
        }
        (Verdict::Reached | Verdict::Running(_), "reloading" | "refreshing") => {
            Verdict::Pending("it is reloading".to_owned())
        }
        (verdict, _) => verdict,
    }
}

fn stopped(unit: &wire::UnitEntity, states: &[wire::UnitStateEntity]) -> Verdict {
    let running =
        states.iter().find(|state| state.requested_state == "launched" || !is_down(state));
    if let Some(state) = running {
        return still_on_machine(state);
    }
    let machine = &unit.machine_id;
    if !machine.is_empty() && !states.iter().any(|state| state.machine_id == *machine) {
        return Verdict::Pending(format!("{} has not loaded it yet", short_machine(machine)));
    }
    Verdict::Reached
}

fn unplaced(unit: &wire::UnitEntity, states: &[wire::UnitStateEntity]) -> Verdict {
    match states.first() {
        Some(state) => still_on_machine(state),
        None if unit.machine_id.is_empty() => Verdict::Reached,
        None => {
            Verdict::Pending(format!("it is still placed on {}", short_machine(&unit.machine_id)))
        }
    }
}

fn gone(states: &[wire::UnitStateEntity]) -> Verdict {
    states.first().map_or(Verdict::Reached, still_on_machine)
}

/// Returns whether the unit has no run.
pub(crate) fn is_down(state: &wire::UnitStateEntity) -> bool {
    matches!(state.systemd_active_state.as_str(), "inactive" | "failed" | "")
}

/// Returns the verdict for a unit that is still on a machine.
fn still_on_machine(state: &wire::UnitStateEntity) -> Verdict {
    let machine = short_machine(&state.machine_id);
    if !state.problem.is_empty() {
        return Verdict::Stuck(format!("{machine}: {}", problem_of(state)));
    }
    let (active, sub) = (&state.systemd_active_state, &state.systemd_sub_state);
    Verdict::Pending(format!("it is still {active} ({sub}) on {machine}"))
}

fn problem_of(state: &wire::UnitStateEntity) -> &str {
    without_name(&state.problem, &state.name)
}

/// Returns the verdict for a failure on a machine. The text consists of `what`, the machine, `how`,
/// and the problem that the agent reports for the unit.
fn failed(what: &str, state: &wire::UnitStateEntity, how: &str) -> Verdict {
    let mut text = format!("{what} on {}", short_machine(&state.machine_id));
    for part in [how, problem_of(state)].into_iter().filter(|part| !part.is_empty()) {
        text.push_str(": ");
        text.push_str(part);
    }
    Verdict::Failed { text, machine: Some(state.machine_id.clone()) }
}

/// Returns the verdict that decides for all machines together.
fn worst(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Failed { .. } => 0,
        Verdict::Stuck(_) => 1,
        Verdict::Pending(_) | Verdict::Held(_) => 2,
        Verdict::Running(_) => 3,
        Verdict::PartlyReached(_) | Verdict::Reached | Verdict::Skipped(_) => 4,
    };
    let worse = |one: Verdict, other: Verdict| match (one, other) {
        (Verdict::Running(mut one), Verdict::Running(other)) => {
            one.extend(other);
            Verdict::Running(one)
        }
        (one, other) => {
            if rank(&other) < rank(&one) {
                other
            } else {
                one
            }
        }
    };
    verdicts.reduce(worse).unwrap_or(Verdict::Reached)
}

#[cfg(test)]
mod tests;
