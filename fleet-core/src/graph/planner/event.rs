//! Events, actions, the observed state of the units, and the transitions that events cause.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::phase::{Activity, FailureCause, Phase, StopOutcome, StopReason};
use super::transitions::Units;
use crate::Timestamp;
use crate::graph::build::Graph;
use crate::graph::model::{
    EdgeKind, Exit, InitUnit, Name, OnCleanExit, Restart, ServiceType, Signal, Target,
};

/// Number that identifies one start of a unit. It is unique within one
/// [`InitState`](super::InitState), so events of an earlier start can be recognized as stale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Something to do for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnitAction {
    /// The unit.
    pub unit: Name,
    /// The incarnation that the action applies to. A start begins a new one.
    pub incarnation: Incarnation,
    /// The kind of action.
    pub kind: ActionKind,
    /// Definition that the incarnation runs or will run. The graph may contain a newer definition
    /// of the unit.
    pub definition: Arc<InitUnit>,
}

/// Kind of an action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionKind {
    /// Kill all remaining processes at once with the final signal.
    Kill,
    /// Stop the unit as its definition specifies. If its processes have already exited, only the
    /// commands that run after a stop are left to run.
    Stop {
        /// Why the unit stops.
        reason: StopReason,
        /// Whether the unit was active. A unit that was not yet active gets the stop signals, but
        /// its stop commands are not run.
        was_active: bool,
    },
    /// Reload the unit's configuration.
    Reload,
    /// Start the unit.
    Start,
}

/// Something that happened to a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitEvent {
    /// The unit.
    pub unit: Name,
    /// The incarnation. Events of an earlier incarnation are ignored.
    pub incarnation: Incarnation,
    /// The kind of event.
    pub kind: EventKind,
}

/// Kind of an event. [`AllGone`](Self::AllGone) is the last event of every incarnation, even of one
/// that could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The unit is ready or, if it was reloading, its reload is complete. The type of the unit
    /// determines in which of these ways it becomes ready:
    ///
    /// - It sent a notification.
    /// - Its program was executed, or stayed alive long enough.
    /// - It wrote the readiness line to its output, or wrote its PID file.
    /// - Its start script succeeded.
    Ready,
    /// The unit failed for this reason. The exit of its main process is reported as
    /// [`MainExited`](Self::MainExited) instead.
    Failed(FailureCause),
    /// The start was skipped because a condition does not hold.
    Skipped,
    /// The unit reloads its configuration without a request.
    Reloading,
    /// The reload commands have ended.
    ReloadEnded {
        /// Whether they succeeded.
        well: bool,
    },
    /// The unit announced that it stops.
    Stopping,
    /// The main process exited. For a oneshot, the main process is its last command, or the command
    /// that failed.
    MainExited(Exit),
    /// The unit asked for more time. The deadline of its current operation becomes at least this
    /// long from now.
    Extend(Duration),
    /// No process of the incarnation is left, and the supervisor will start no further ones for it.
    AllGone,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for UnitAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ActionKind::Kill => write!(f, "kill {}", self.unit),
            ActionKind::Stop { reason, .. } => write!(f, "stop {}: {reason}", self.unit),
            ActionKind::Reload => write!(f, "reload {}", self.unit),
            ActionKind::Start => write!(f, "start {}", self.unit),
        }
    }
}

/// Observed state of all units. Together with the graph and the settings, it determines the whole
/// state of the init. An [`InitState`](super::InitState) that is restored from an observation
/// continues where the previous one stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// Observed state of each unit that ever started or failed. Units without an entry are
    /// inactive.
    pub units: BTreeMap<Name, ObservedUnit>,
    /// Targets requested in addition to the goal.
    pub extra_targets: BTreeSet<Target>,
    /// Number of the last start of any unit.
    pub last: Incarnation,
}

/// Observed state of one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedUnit {
    /// Current phase.
    pub phase: Phase,
    /// Time of the last change of phase.
    pub since: Timestamp,
    /// The last start.
    pub incarnation: Option<Incarnation>,
    /// Definition that the last start used.
    pub definition: Option<Arc<InitUnit>>,
    /// Whether processes of the unit may still exist. The unit does not start again before they
    /// have exited.
    pub processes: bool,
    /// Time since which the unit has been active; `None` while it is not active.
    pub active_since: Option<Timestamp>,
    /// Whether the main process exited successfully while the unit stays active.
    pub exited: bool,
    /// Exit of the main process, kept until all processes of the unit have exited. The restart
    /// policy uses this exit even if the unit failed for another reason.
    pub exit: Option<Exit>,
    /// Phase that follows the current stop.
    pub outcome: Option<StopOutcome>,
    /// Whether the current stop has sent the final signal.
    pub killed: bool,
    /// Deadline of the current operation.
    pub deadline: Option<Timestamp>,
    /// Cause of the last failure, kept until the unit is active again.
    pub cause: Option<FailureCause>,
    /// Number of consecutive unrequested exits without a long active time between them.
    pub attempts: u32,
    /// Number of failures since the last success, among the exits that `attempts` counts.
    pub failures: u32,
    /// Time of the next restart, if one is scheduled.
    pub retry_at: Option<Timestamp>,
    /// Whether the unit was not restarted because its restart limit is reached.
    pub gave_up: bool,
    /// Starts in the current rate limit interval.
    pub starts: StartRateLimit,
    /// Whether a restart with the same definition is requested.
    pub restart_requested: bool,
    /// Whether a reload is requested.
    pub reload_requested: bool,
    /// Whether the last requested reload failed.
    pub reload_failed: bool,
}

/// Starts of a unit in the rate limit interval of its last start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartRateLimit {
    /// Beginning of the interval.
    pub since: Timestamp,
    /// Number of starts in it.
    pub count: u32,
}

impl Observation {
    /// Records a virtual unit as active if the units that were found imply that it was active.
    ///
    /// A virtual unit has no processes by which it could be found. But a unit with a `depends-on`
    /// edge to it is starting or active only while the virtual unit is active. If such a dependent
    /// was found starting or active, the virtual unit was therefore active too.
    ///
    /// `is_found` selects the units that were found. Units with an observed state are not changed.
    pub fn add_virtual(&mut self, graph: &Graph, now: Timestamp, is_found: impl Fn(&Name) -> bool) {
        let runs = |seen: &ObservedUnit| seen.phase == Phase::Starting || seen.phase.is_active();
        let found = self.units.iter().filter(|(name, seen)| is_found(name) && runs(seen));
        let started = found.filter_map(|(_, seen)| seen.definition.as_deref());
        let mut open: Vec<Target> = started.flat_map(depends_on).cloned().collect();
        while let Some(unit) = open.pop().map(|target| graph.provider(&target)) {
            let Some(unit) = unit.filter(|unit| unit.is_virtual()) else { continue };
            if self.units.get(&unit.name).is_none_or(ObservedUnit::is_default) {
                self.units.insert(unit.name.clone(), ObservedUnit::virtual_up(unit, now));
                open.extend(depends_on(unit).cloned());
            }
        }
    }
}

fn depends_on(unit: &InitUnit) -> impl Iterator<Item = &Target> {
    let hard = unit.edges.iter().filter(|(kind, _)| *kind == EdgeKind::DependsOn);
    hard.map(|(_, target)| target)
}

impl ObservedUnit {
    fn virtual_up(unit: &Arc<InitUnit>, now: Timestamp) -> Self {
        Self {
            phase: Phase::Active(Activity::Running),
            since: now,
            active_since: Some(now),
            definition: Some(Arc::clone(unit)),
            ..Self::default()
        }
    }

    /// Resets the counts of unrequested exits and failures.
    pub(super) fn clear_attempts(&mut self) {
        (self.attempts, self.failures) = (0, 0);
    }

    /// Returns whether nothing has been observed of the unit.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Units {
    /// Handles an event, as [`InitState::on_event`](super::InitState::on_event) describes.
    pub(super) fn on_event(&mut self, event: &UnitEvent, now: Timestamp) -> bool {
        let at = self.nodes.find(&event.unit);
        let is_current =
            |&at: &u32| self.nodes.node(at).observed.incarnation == Some(event.incarnation);
        let Some(at) = at.filter(is_current) else {
            self.stale_events = self.stale_events.saturating_add(1);
            return false;
        };
        let handled = match self.nodes.node(at).observed.phase {
            Phase::Inactive | Phase::Completed => false,
            Phase::Starting => self.on_starting(at, event.kind, now),
            Phase::Active(activity) => self.on_active(at, activity, event.kind, now),
            Phase::Stopping => self.on_stopping(at, event.kind, now),
            Phase::Failed => self.on_failed(at, event.kind),
        };
        if let (true, EventKind::MainExited(exit)) = (handled, event.kind) {
            self.nodes.node_mut(at).observed.exit = Some(exit);
        }
        self.nodes.propagate();
        handled
    }

    fn on_starting(&mut self, at: u32, kind: EventKind, now: Timestamp) -> bool {
        match kind {
            EventKind::Ready if self.signals_readiness(at) => {
                self.activate(at, Activity::Running, now);
            }
            EventKind::Failed(cause) => self.fail(at, cause, now),
            EventKind::Skipped => self.finish(at, StopOutcome::Skipped, now),
            EventKind::Stopping => self.begin_self_stop(at, now),
            EventKind::MainExited(exit) => self.on_exit_before_ready(at, exit, now),
            EventKind::Extend(more) => return self.extend(at, now.after(more)),
            EventKind::AllGone => self.on_main_lost(at, now),
            EventKind::Ready | EventKind::Reloading | EventKind::ReloadEnded { .. } => {
                return false;
            }
        }
        true
    }

    fn on_active(&mut self, at: u32, activity: Activity, kind: EventKind, now: Timestamp) -> bool {
        match (activity, kind) {
            (Activity::Running, EventKind::Reloading) => {
                self.activate(at, Activity::Reloading, now);
            }
            (Activity::Reloading, EventKind::Ready) => self.end_reload(at, true, now),
            (Activity::Reloading, EventKind::ReloadEnded { well }) => {
                self.end_reload(at, well, now);
            }
            (_, EventKind::AllGone) if self.nodes.node(at).observed.exited => {
                self.forget_processes(at);
            }
            (Activity::Exited, _) => return false,
            (_, EventKind::MainExited(_)) if self.nodes.node(at).observed.exited => return false,
            (_, EventKind::Failed(cause)) => self.fail(at, cause, now),
            (_, EventKind::Stopping) => self.begin_self_stop(at, now),
            (_, EventKind::MainExited(exit)) => self.on_exit(at, exit, now),
            (_, EventKind::Extend(more)) => return self.extend(at, now.after(more)),
            (_, EventKind::AllGone) if self.nodes.node(at).running_definition().has_main() => {
                self.on_main_lost(at, now);
            }
            (_, EventKind::AllGone) => self.forget_processes(at),
            (
                _,
                EventKind::Ready
                | EventKind::Skipped
                | EventKind::Reloading
                | EventKind::ReloadEnded { .. },
            ) => return false,
        }
        true
    }

    fn on_stopping(&mut self, at: u32, kind: EventKind, now: Timestamp) -> bool {
        match kind {
            EventKind::AllGone => self.on_processes_gone(at, now),
            EventKind::MainExited(exit) if self.is_self_stop(at) => self.on_exit(at, exit, now),
            // The outcome is decided already; the exit only counts for the restart policy.
            EventKind::MainExited(_) => {}
            EventKind::Failed(cause) => return self.on_failing_end(at, cause, now),
            // Commands that run after a kill have a timeout of their own.
            EventKind::Extend(more) => return self.extend(at, now.after(more)),
            _ => return false,
        }
        true
    }

    /// Handles a failure that is reported while the unit is stopping. Returns whether the failure
    /// had an effect.
    ///
    /// - A stop timeout means that the supervisor has killed the unit, so the unit will fail. A
    ///   second stop timeout may follow, for the commands that run after the stop.
    /// - A failed stop command makes a unit fail that is not needed any more.
    /// - Any other failure has an effect only if the unit stops by itself. A requested stop does
    ///   not become a failure.
    fn on_failing_end(&mut self, at: u32, cause: FailureCause, now: Timestamp) -> bool {
        if cause == FailureCause::StopTimeout {
            self.mark_killed(at, now);
            return true;
        }
        // A unit that is still needed starts again after its stop, as after any requested stop.
        let is_needed = self.nodes.node(at).needed;
        let observed = &mut self.nodes.node_mut(at).observed;
        let handled = match observed.outcome {
            Some(StopOutcome::Completed(_) | StopOutcome::SelfInitiated) => true,
            Some(StopOutcome::Inactive(_)) if !is_needed => {
                matches!(cause, FailureCause::StopCommand(_) | FailureCause::StopCommandTimeout)
            }
            Some(StopOutcome::Inactive(_) | StopOutcome::Failed(_) | StopOutcome::Skipped)
            | None => false,
        };
        if handled {
            observed.outcome = Some(StopOutcome::Failed(cause));
            self.nodes.touch(at);
        }
        handled
    }

    fn on_failed(&mut self, at: u32, kind: EventKind) -> bool {
        let handled = kind == EventKind::AllGone && self.nodes.node(at).observed.processes;
        if handled {
            self.forget_processes(at);
            self.nodes.node_mut(at).observed.definition = None;
        }
        handled
    }

    /// Handles the exit of the main process before the unit was active.
    fn on_exit_before_ready(&mut self, at: u32, exit: Exit, now: Timestamp) {
        let may_end = matches!(
            self.nodes.node(at).running_definition().kind,
            ServiceType::Oneshot { .. } | ServiceType::ForegroundSupervised(_)
        );
        if may_end {
            self.on_exit(at, exit, now);
        } else {
            self.fail(at, FailureCause::Exit(exit), now);
        }
    }

    /// Handles an unrequested exit of the main process.
    fn on_exit(&mut self, at: u32, exit: Exit, now: Timestamp) {
        let unit = self.nodes.node(at).running_definition();
        if !unit.is_success(exit) {
            self.fail(at, FailureCause::Exit(exit), now);
        } else if unit.stays_active() && !self.nodes.node(at).unit.restart.follows_success(exit) {
            self.activate(at, Activity::Exited, now);
        } else {
            self.finish(at, StopOutcome::Completed(Some(exit)), now);
        }
    }

    /// Handles the case that all processes have exited, but the exit of the main process was not
    /// reported. The unit fails with an unknown exit.
    fn on_main_lost(&mut self, at: u32, now: Timestamp) {
        self.nodes.node_mut(at).observed.processes = false;
        self.enter_failed(at, FailureCause::Exit(Exit::Unknown), now);
    }

    fn extend(&mut self, at: u32, until: Timestamp) -> bool {
        let Some(deadline) = &mut self.nodes.node_mut(at).observed.deadline else { return false };
        *deadline = until.max(*deadline);
        self.nodes.touch(at);
        true
    }

    fn forget_processes(&mut self, at: u32) {
        self.nodes.node_mut(at).observed.processes = false;
        self.nodes.touch(at);
    }

    fn is_self_stop(&self, at: u32) -> bool {
        self.nodes.node(at).observed.outcome == Some(StopOutcome::SelfInitiated)
    }

    /// Returns whether a readiness notification makes the unit active. For a oneshot it does not,
    /// because a oneshot becomes active only once its commands have ended.
    fn signals_readiness(&self, at: u32) -> bool {
        !matches!(self.nodes.node(at).running_definition().kind, ServiceType::Oneshot { .. })
    }
}

impl InitUnit {
    /// Returns whether this exit of the main process is a success. These exits are:
    ///
    /// - an exit that the unit lists as successful
    /// - any known exit, if the failures of all start commands are ignored
    /// - status 0, unless the unit treats every clean exit as a failure; for a oneshot, always
    /// - a signal that usually ends a process deliberately (such as SIGTERM), unless the unit is a
    ///   oneshot or treats every clean exit as a failure
    #[must_use]
    pub fn is_success(&self, exit: Exit) -> bool {
        let is_oneshot = matches!(self.kind, ServiceType::Oneshot { .. });
        let may_end = self.run.on_clean_exit != OnCleanExit::Fail;
        let start = &self.run.start;
        let may_fail = !start.is_empty() && start.iter().all(|command| command.ignore_failure);
        self.run.success.contains(exit)
            || (may_fail && exit != Exit::Unknown)
            || match exit {
                Exit::Status(0) => may_end || is_oneshot,
                Exit::Signal(number) => may_end && !is_oneshot && Signal::USUAL.contains(&number),
                Exit::Status(_) | Exit::Unknown => false,
            }
    }

    /// Returns whether the unit stays active after its main process exited successfully.
    #[must_use]
    pub fn stays_active(&self) -> bool {
        match self.kind {
            ServiceType::Oneshot { remain } => remain,
            _ => self.run.on_clean_exit != OnCleanExit::Complete,
        }
    }
}

impl Restart {
    fn follows_success(&self, exit: Exit) -> bool {
        self.applies(None, Some(exit))
    }
}
