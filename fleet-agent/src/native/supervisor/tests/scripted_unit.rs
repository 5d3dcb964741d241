//! A scripted unit with its planner and its run, in simulated time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::format::read_stanzas;
use fleet_core::graph::{
    ActionKind, Graph, Incarnation, InitState, InitUnit, Name, ObservedUnit, Phase, Settings,
    StopOutcome, Target, Timeouts, UnitEvent,
};

use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::ProcessId;
use crate::native::run::machine::ServiceRun;
use crate::native::run::machine::process_events::NotifyMessage;
use crate::native::run::machine::state::RunAction;

/// The unit `a`, with scripted processes.
pub(super) struct ScriptedUnit {
    pub(super) planner: InitState,
    pub(super) service: Option<(Incarnation, ServiceRun)>,
    now: Timestamp,
    pids: u32,
    /// Whether its programs are missing.
    absent: bool,
    /// Whether a condition, or an assertion, does not hold.
    unmet: Option<bool>,
    /// Signals that were sent to it.
    pub(super) signals: Vec<i32>,
    /// Whether the planner handles a deadline before the run.
    hasty: bool,
    /// Definition that its run was started from.
    definition: Option<Arc<InitUnit>>,
}

impl ScriptedUnit {
    pub(super) fn new(stanza: &str) -> Self {
        let text = format!("unit: a\nprovides: a\n{stanza}");
        let read = read_stanzas(text.as_bytes(), &Timeouts::default());
        assert_eq!(read.diagnostics, [], "{text}");
        let mut units = read.stanzas.into_iter().filter_map(|stanza| stanza.unit);
        Self::of(units.next().expect("it is one unit"))
    }

    pub(super) fn of(unit: InitUnit) -> Self {
        let settings = Settings { goal: unit.provides.first().cloned(), ..Settings::default() };
        let graph = Graph::strict([unit], &settings).expect("the call succeeds");
        let planner = InitState::new(graph, &settings).expect("it is the goal");
        let now = Timestamp::from_millis(0);
        Self {
            planner,
            service: None,
            now,
            pids: 0,
            absent: false,
            unmet: None,
            signals: vec![],
            hasty: false,
            definition: None,
        }
    }

    /// Does one step, with all its immediate consequences.
    pub(super) fn step(&mut self, step: &str) {
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        let number = || rest.parse::<i32>().expect("a number");
        match verb {
            "absent" => self.absent = true,
            "unmet" => self.unmet = Some(rest == "assertion"),
            "hasty" => self.hasty = true,
            "start" => {}
            "taken-back" => self.take_back(),
            "says" => {
                let notice = NotifyMessage::parse(rest.replace(' ', "\n").as_bytes());
                self.apply(|service, now| service.on_message(&notice, now));
            }
            "exits" => self.main_ends(ProcessExit::Code(number())),
            "killed" => self.main_ends(ProcessExit::Signal(number())),
            "ends" => {
                let (_, service) = self.service.as_ref().expect("it runs");
                let control = service.run_state().control.expect("it has a control process");
                let end = ProcessExit::Code(number());
                self.apply(|service, now| service.on_exited(control, end, now));
            }
            "named" => self.apply(|service, now| service.on_main(process(99), now)),
            "line" => self.apply(ServiceRun::on_line),
            "kill" => self.apply(ServiceRun::kill),
            "gone" => self.gone(),
            "pass" => self.pass(Duration::from_secs(rest.parse().expect("seconds"))),
            "unwanted" => drop(self.planner.set_goal(None, BTreeSet::new(), self.now)),
            "reload" => self.planner.request_reload(&target()).expect("it can be reloaded"),
            _ => panic!("{step} is no step"),
        }
        self.settle();
    }

    fn apply(&mut self, input: impl FnOnce(&mut ServiceRun, Timestamp)) {
        // A decision about a finished run comes too late.
        if let Some((_, service)) = &mut self.service {
            input(service, self.now);
        }
    }

    pub(super) fn main_ends(&mut self, end: ProcessExit) {
        let (_, service) = self.service.as_ref().expect("it runs");
        let main = service.run_state().main.expect("it has a main process");
        self.apply(|service, now| service.on_exited(main, end, now));
    }

    /// All remaining processes exit by the signal that was sent.
    fn gone(&mut self) {
        let (_, service) = self.service.as_ref().expect("it runs");
        let run_state = service.run_state();
        for process in [run_state.main, run_state.control].into_iter().flatten() {
            self.apply(|service, now| service.on_exited(process, ProcessExit::Signal(15), now));
        }
        self.apply(ServiceRun::on_all_gone);
    }

    /// Another daemon adopts the run.
    fn take_back(&mut self) {
        let (_, service) = self.service.as_mut().expect("it runs");
        let definition = self.definition.clone().expect("it was started");
        *service = ServiceRun::restore(definition, service.run_state().clone(), self.now);
    }

    /// Lets time pass, and handles all deadlines.
    fn pass(&mut self, span: Duration) {
        let until = self.now.after(span);
        loop {
            let (planner, service) = (self.planner.next_deadline(), self.service.as_ref());
            let service = service.and_then(|(_, service)| service.due());
            let Some(due) = planner.into_iter().chain(service).min().filter(|due| *due <= until)
            else {
                break;
            };
            self.now = self.now.max(due);
            if self.hasty {
                self.settle();
            }
            if service.is_some_and(|due| due <= self.now) {
                self.apply(ServiceRun::on_time);
            }
            self.settle();
        }
        self.now = until;
    }

    pub(super) fn settle(&mut self) {
        loop {
            self.run();
            let actions = self.planner.next_actions(self.now);
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action.kind {
                    ActionKind::Start => {
                        let mut service = ServiceRun::new(Arc::clone(&action.definition));
                        service.begin(None, self.now);
                        self.definition = Some(action.definition);
                        self.service = Some((action.incarnation, service));
                    }
                    ActionKind::Stop { reason, .. } => {
                        self.apply(|service, now| service.stop(&reason, now));
                    }
                    ActionKind::Kill => self.apply(ServiceRun::kill),
                    ActionKind::Reload => self.apply(ServiceRun::reload_or_report),
                }
            }
        }
    }

    /// Carries out the actions of the run, and passes on its events.
    fn run(&mut self) {
        let Some((incarnation, service)) = &mut self.service else { return };
        while let Some(action) = service.next_action() {
            match action {
                RunAction::NewRun => {
                    if let Some(is_failure) = self.unmet {
                        service.on_condition(is_failure, self.now);
                    }
                }
                RunAction::Spawn { .. } if self.absent => {
                    service.on_spawn_failed(ProcessExit::Code(203), self.now);
                    service.on_all_gone(self.now);
                }
                RunAction::Spawn { .. } => {
                    self.pids += 1;
                    service.on_spawned(process(self.pids), self.now);
                }
                RunAction::Signal { signal, .. } => self.signals.push(signal.number()),
                _ => {}
            }
        }
        let unit = "a".parse::<Name>().expect("it is a name");
        for kind in service.take_events() {
            let event = UnitEvent { unit: unit.clone(), incarnation: *incarnation, kind };
            self.planner.on_event(&event, self.now);
        }
        if service.is_idle() {
            self.service = None;
        }
    }

    /// Describes the observed state.
    pub(super) fn summary(&self) -> String {
        let seen = self.planner.observation().units.into_values().next().unwrap_or_default();
        let ObservedUnit { phase, outcome: ending, cause, reload_failed, processes, .. } = seen;
        match (phase, ending, cause) {
            (Phase::Stopping, Some(StopOutcome::Inactive(reason)), _) => {
                format!("stopping: {reason}")
            }
            (Phase::Stopping, Some(StopOutcome::Failed(cause)), _) => format!("stopping: {cause}"),
            (Phase::Stopping, Some(StopOutcome::Completed(_)), _) => "stopping: Well".to_owned(),
            (Phase::Stopping, Some(ending), _) => format!("stopping: {ending:?}"),
            (Phase::Failed, _, Some(cause)) if processes => format!("stuck: {cause}"),
            (Phase::Failed, _, Some(cause)) => format!("failed: {cause}"),
            (phase, ..) if reload_failed => format!("{phase}, not reloaded"),
            (phase, ..) => phase.to_string(),
        }
    }
}

fn target() -> Target {
    "a".parse().expect("it is a name")
}

fn process(pid: u32) -> ProcessId {
    ProcessId { pid, start: 0 }
}
