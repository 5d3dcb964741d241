//! What decides and what runs, joined in pure time: each line of the table of events as a run of
//! a unit tells it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::text::read_stanzas;
use fleet_core::graph::{
    Ending, Event, Graph, Incarnation, Name, Observed, Order, Phase, Settings, System, Target,
    TimeOuts, Unit,
};

use crate::native::life::{Action, Phase as Stage, ProcessId};
use crate::native::notice::Notice;
use crate::native::outcome::End;
use crate::native::service::Service;
use crate::native::service_tests::spec;

/// One unit, `a`, whose processes live as a test says.
struct One {
    system: System,
    service: Option<(Incarnation, Service)>,
    now: Timestamp,
    pids: u32,
    /// Whether its programs are not there.
    absent: bool,
    /// Whether a condition, or an assertion, of it does not hold.
    unmet: Option<bool>,
    /// The signals that were sent to it.
    signals: Vec<i32>,
    /// Whether what decides is the first to look when a time has come.
    hasty: bool,
    /// What its run was started from.
    definition: Option<Arc<Unit>>,
}

impl One {
    fn new(stanza: &str) -> Self {
        let text = format!("unit: a\nprovides: a\n{stanza}");
        let read = read_stanzas(text.as_bytes(), &TimeOuts::default());
        assert_eq!(read.diagnostics, [], "{text}");
        let mut units = read.stanzas.into_iter().filter_map(|stanza| stanza.unit);
        Self::of(units.next().expect("it is one unit"))
    }

    fn of(unit: Unit) -> Self {
        let settings = Settings { goal: unit.provides.first().cloned(), ..Settings::default() };
        let graph = Graph::strict([unit], &settings).expect("nothing is wrong with it");
        let system = System::new(graph, &settings).expect("it is the goal");
        let now = Timestamp::from_millis(0);
        Self {
            system,
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

    /// Does one step, and all that follows from it at once.
    fn step(&mut self, step: &str) {
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        let number = || rest.parse::<i32>().expect("a number");
        match verb {
            "absent" => self.absent = true,
            "unmet" => self.unmet = Some(rest == "assertion"),
            "hasty" => self.hasty = true,
            "start" => {}
            "taken-back" => self.take_back(),
            "says" => {
                let notice = Notice::parse(rest.replace(' ', "\n").as_bytes());
                self.tell(|service, now| service.on_notice(&notice, now));
            }
            "exits" => self.main_ends(End::Code(number())),
            "killed" => self.main_ends(End::Signal(number())),
            "ends" => {
                let (_, service) = self.service.as_ref().expect("it runs");
                let control = service.memory().control.expect("it has a control process");
                let end = End::Code(number());
                self.tell(|service, now| service.on_exited(control, end, now));
            }
            "named" => self.tell(|service, now| service.on_main(process(99), now)),
            "line" => self.tell(Service::on_line),
            "kill" => self.tell(Service::kill),
            "gone" => self.gone(),
            "pass" => self.pass(Duration::from_secs(rest.parse().expect("seconds"))),
            "unwanted" => drop(self.system.set_goal(None, BTreeSet::new(), self.now)),
            "reload" => self.system.request_reload(&target()).expect("it can be reloaded"),
            _ => panic!("{step} is no step"),
        }
        self.settle();
    }

    fn tell(&mut self, input: impl FnOnce(&mut Service, Timestamp)) {
        // What is decided of a run that is over comes too late.
        if let Some((_, service)) = &mut self.service {
            input(service, self.now);
        }
    }

    fn main_ends(&mut self, end: End) {
        let (_, service) = self.service.as_ref().expect("it runs");
        let main = service.memory().main.expect("it has a main process");
        self.tell(|service, now| service.on_exited(main, end, now));
    }

    /// Whatever is left ends by the signal that it was sent.
    fn gone(&mut self) {
        let (_, service) = self.service.as_ref().expect("it runs");
        let memory = service.memory();
        for process in [memory.main, memory.control].into_iter().flatten() {
            self.tell(|service, now| service.on_exited(process, End::Signal(15), now));
        }
        self.tell(Service::on_gone);
    }

    /// Another daemon goes on with the run.
    fn take_back(&mut self) {
        let (_, service) = self.service.as_mut().expect("it runs");
        let definition = self.definition.clone().expect("it was started");
        *service = Service::restore(definition, service.memory().clone(), self.now);
    }

    /// Lets time pass, and everybody have it who asked for it.
    fn pass(&mut self, span: Duration) {
        let until = self.now.after(span);
        loop {
            let (system, service) = (self.system.due(), self.service.as_ref());
            let service = service.and_then(|(_, service)| service.due());
            let Some(due) = system.into_iter().chain(service).min().filter(|due| *due <= until)
            else {
                break;
            };
            self.now = self.now.max(due);
            if self.hasty {
                self.settle();
            }
            if service.is_some_and(|due| due <= self.now) {
                self.tell(Service::on_time);
            }
            self.settle();
        }
        self.now = until;
    }

    fn settle(&mut self) {
        loop {
            self.run();
            let actions = self.system.next_actions(self.now);
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action.what {
                    Order::Start => {
                        let mut service = Service::new(Arc::clone(&action.definition));
                        service.begin_after(None, self.now);
                        self.definition = Some(action.definition);
                        self.service = Some((action.incarnation, service));
                    }
                    Order::Stop { reason, .. } => {
                        self.tell(|service, now| service.end(&reason, now));
                    }
                    Order::Kill => self.tell(Service::kill),
                    Order::Reload => self.tell(Service::obey_reload),
                }
            }
        }
    }

    /// Does what the run wants done, and tells what it has to tell.
    fn run(&mut self) {
        let Some((incarnation, service)) = &mut self.service else { return };
        while let Some(action) = service.next_action() {
            match action {
                Action::NewRun => {
                    if let Some(is_failure) = self.unmet {
                        service.on_condition(is_failure, self.now);
                    }
                }
                Action::Spawn { .. } if self.absent => {
                    service.on_spawn_failed(End::Code(203), self.now);
                    service.on_gone(self.now);
                }
                Action::Spawn { .. } => {
                    self.pids += 1;
                    service.on_spawned(process(self.pids), self.now);
                }
                Action::Signal { signal, .. } => self.signals.push(signal.number()),
                _ => {}
            }
        }
        let unit = "a".parse::<Name>().expect("it is a name");
        for what in service.take_happenings() {
            let event = Event { unit: unit.clone(), incarnation: *incarnation, what };
            self.system.on_event(&event, self.now);
        }
        if service.is_at_rest() {
            self.service = None;
        }
    }

    /// What is known of it, in words.
    fn told(&self) -> String {
        let seen = self.system.observation().units.into_values().next().unwrap_or_default();
        let Observed { phase, ending, cause, reload_failed, processes, .. } = seen;
        match (phase, ending, cause) {
            (Phase::Stopping, Some(Ending::Off(reason)), _) => format!("stopping: {reason}"),
            (Phase::Stopping, Some(Ending::Failed(cause)), _) => format!("stopping: {cause}"),
            (Phase::Stopping, Some(Ending::Well(_)), _) => "stopping: Well".to_owned(),
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

fn check(stanza: &str, rows: &[(&str, &str)]) {
    let stanza = stanza.replace("; ", "\n") + "\nrestart: never\n";
    for (steps, expected) in rows {
        let mut one = One::new(&stanza);
        // What is so before it starts comes first.
        steps.split(", ").for_each(|step| one.step(step));
        assert_eq!(one.told(), *expected, "{stanza} {steps}");
    }
}

const STATUS_0: &str = "failed: its main process ended with status 0";
const LATE: &str = "failed: it did not end in time";
const STATUS_1: &str = "failed: its main process ended with status 1";

#[test]
fn one_that_says_when_it_is_ready() {
    let stanza = "type: foreground-notified; exec-start: /main; success-exit: 3; watchdog: 5s; \
                  runtime-max: 20s; stop-timeout: 30s";
    check(
        stanza,
        &[
            ("start", "starting"),
            ("absent, start", "failed: a process of it could not be started"),
            ("unmet condition, start", "ended"),
            ("unmet assertion, start", "failed: an assertion of it does not hold"),
            ("start, says READY=1", "running"),
            ("start, exits 0", "stopping: its main process ended with status 0"),
            ("start, exits 0, gone", STATUS_0),
            ("start, pass 90", "stopping: it was not up in time"),
            ("start, pass 90, says READY=1", "stopping: it was not up in time"),
            ("start, pass 90, gone", "failed: it was not up in time"),
            ("start, pass 80, says EXTEND_TIMEOUT_USEC=60000000, pass 59", "starting"),
            ("start, says READY=1, says RELOADING=1", "reloading"),
            ("start, says READY=1, says RELOADING=1, says READY=1", "running"),
            ("start, says READY=1, says STOPPING=1", "stopping: ByItself"),
            ("start, says READY=1, says STOPPING=1, exits 1, gone", STATUS_1),
            ("start, says READY=1, says STOPPING=1, exits 3", "exited"),
            ("start, says READY=1, exits 1, gone", STATUS_1),
            ("start, says READY=1, exits 3", "exited"),
            ("start, says READY=1, pass 5", "stopping: it did not say in time that it works"),
            ("start, says READY=1, pass 5, gone", "failed: it did not say in time that it works"),
        ],
    );
}

#[test]
fn one_that_is_there() {
    let stanza = "type: foreground-supervised; exec-start: /main; success-exit: 3; exec-stop: \
                  /stop; exec-stop-post: /after; runtime-max: 20s; stop-timeout: 30s";
    check(
        stanza,
        &[
            ("start", "running"),
            ("start, exits 3", "exited"),
            ("start, exits 0, gone", "stopping: its main process ended with status 0"),
            ("start, exits 0, gone, ends 0, gone", STATUS_0),
            ("start, pass 20", "stopping: it ran for longer than it may"),
            ("start, unwanted", "stopping: nothing needs it"),
            ("start, unwanted, ends 0, gone, ends 0, gone", "off"),
            ("start, unwanted, ends 1, gone, ends 1, gone", "off"),
            ("start, unwanted, pass 59", "stopping: nothing needs it"),
            // The command, the signal, and then the last one.
            ("start, unwanted, pass 60", "stopping: it did not end in time"),
            ("start, unwanted, pass 60, gone, ends 0, gone", LATE),
            // What is run after it was killed has a time of its own, and so has its last signal.
            ("start, unwanted, pass 60, gone, pass 10", "stopping: it did not end in time"),
            ("start, unwanted, pass 60, gone, pass 29, ends 0, gone", LATE),
            ("start, unwanted, pass 60, gone, pass 69", "stopping: it did not end in time"),
            (
                "start, unwanted, pass 60, gone, pass 70",
                "stuck: it did not even end when it was killed",
            ),
            ("start, unwanted, pass 60, gone, pass 61, gone", LATE),
            ("start, unwanted, pass 70", "stuck: it did not even end when it was killed"),
            ("start, unwanted, pass 9999", "stuck: it did not even end when it was killed"),
            (
                "start, unwanted, pass 70, gone, ends 0, gone",
                "failed: it did not even end when it was killed",
            ),
        ],
    );
}

#[test]
fn when_one_that_is_there_is_ready() {
    let wait = "type: foreground-supervised; exec-start: /main; success-exit: 3; ready-wait: 2s";
    check(
        wait,
        &[
            ("start", "starting"),
            ("start, pass 1", "starting"),
            ("start, pass 2", "running"),
            ("start, exits 3", "exited"),
            ("start, exits 0, gone", STATUS_0),
            ("start, unwanted, gone", "off"),
        ],
    );
    let line = "type: foreground-supervised; exec-start: /main; ready-grep: ^up$";
    check(line, &[("start", "starting"), ("start, line", "running")]);
}

#[test]
fn one_in_the_background() {
    let stanza = "type: background-pidfile; exec-start: /main; pidfile: /run/a; success-exit: 3";
    check(
        stanza,
        &[
            ("start", "starting"),
            ("start, ends 0", "starting"),
            ("start, ends 0, named", "running"),
            ("start, ends 0, pass 90", "stopping: its pidfile names no process of it"),
            ("start, ends 1, gone", "failed: a command of it ended with status 1"),
            ("start, ends 0, named, exits 1, gone", STATUS_1),
            ("start, ends 0, named, exits 3", "exited"),
        ],
    );
}

#[test]
fn why_nobody_was_named_in_time_is_the_same_whoever_looks_first() {
    let stanza = "type: background-pidfile; exec-start: /main; pidfile: /run/a";
    let unnamed = "stopping: its pidfile names no process of it";
    for first in ["", "hasty, "] {
        for (steps, expected) in [
            ("start, ends 0, pass 89", "starting"),
            ("start, ends 0, pass 90", unnamed),
            ("start, pass 89, ends 0, pass 1", unnamed),
            ("start, says EXTEND_TIMEOUT_USEC=200000000, ends 0, pass 200", unnamed),
            ("start, ends 0, says EXTEND_TIMEOUT_USEC=200000000, pass 199", "starting"),
            ("start, ends 0, says EXTEND_TIMEOUT_USEC=200000000, pass 200", unnamed),
            ("start, ends 0, pass 50, taken-back, pass 89", "starting"),
            ("start, ends 0, pass 50, taken-back, pass 90", unnamed),
            // Its own command is late, and nobody was looked for.
            ("start, pass 90", "stopping: it was not up in time"),
        ] {
            check(stanza, &[(&format!("{first}{steps}"), expected)]);
        }
    }
}

#[test]
fn one_that_its_commands_start_and_end() {
    let stanza = "type: background-scripted; exec-start: /on; exec-stop: /off; exec-reload: /re";
    check(
        stanza,
        &[
            ("start", "starting"),
            ("start, ends 0", "running"),
            ("start, ends 2, gone", "failed: a command of it ended with status 2"),
            ("start, ends 0, reload", "reloading"),
            ("start, ends 0, reload, ends 0", "running"),
            ("start, ends 0, reload, ends 1", "running, not reloaded"),
            ("start, ends 0, reload, pass 30", "running, not reloaded"),
            ("start, ends 0, unwanted, ends 0, gone", "off"),
        ],
    );
}

#[test]
fn one_that_ends_to_be_up() {
    let stanza = "type: oneshot; exec-start: /1; exec-start: -/2; exec-start-post: /post";
    check(
        stanza,
        &[
            ("start, exits 0", "starting"),
            ("start, exits 0, exits 7", "starting"),
            ("start, exits 0, exits 7, ends 0", "exited"),
            (
                "start, exits 0, exits 7, ends 1, gone",
                "failed: a command of it ended with status 1",
            ),
            ("start, exits 1, gone", STATUS_1),
            ("start, killed 9, gone", "failed: its main process ended with SIGKILL"),
            ("start, exits 0, exits 0, ends 0, unwanted, gone", "off"),
        ],
    );
    let passing = "type: oneshot; exec-start: /1; remain: no; exec-stop: /stop";
    check(
        passing,
        &[
            ("start, exits 0", "stopping: Well"),
            ("start, exits 0, ends 0, gone", "ended"),
            ("start, exits 0, ends 1, gone", "failed: a command of it ended with status 1"),
        ],
    );
}

#[test]
fn what_a_good_end_makes_of_one() {
    let stanza = "type: foreground-supervised; exec-start: /main; after-exit: ";
    let rests = format!("{stanza}rests");
    check(&rests, &[("start, exits 0, gone", "ended"), ("start, killed 15, gone", "ended")]);
    let remains = format!("{stanza}remains");
    check(&remains, &[("start, exits 0", "exited"), ("start, exits 0, unwanted, gone", "off")]);
}

#[test]
fn which_ends_are_followed_by_a_restart() {
    use End::{Code, Dumped, Signal, Unseen};
    let ends = [Code(0), Signal(15), Code(1), Signal(9), Dumped(11), Unseen];
    for (policy, expected) in [
        ("no", [false; 6]),
        ("always", [true; 6]),
        ("on-success", [true, true, false, false, false, false]),
        ("on-failure", [false, false, true, true, true, true]),
        ("on-abnormal", [false, false, false, true, true, true]),
        ("on-abort", [false, false, false, true, true, true]),
        ("on-watchdog", [false; 6]),
        ("always\nRestartPreventExitStatus=1 SIGKILL", [true, true, false, false, true, true]),
        ("no\nRestartForceExitStatus=0 SIGSEGV", [true, false, false, false, true, false]),
        ("on-failure\nSuccessExitStatus=1 SIGKILL", [false, false, false, false, true, true]),
    ] {
        for (end, restarts) in ends.into_iter().zip(expected) {
            let unit = Unit::clone(&spec(&format!("ExecStart=/main\nRestart={policy}\n")));
            let name: Name = "a".parse().expect("it is a name");
            let provides = vec![Target::from(&name)];
            let unit = Unit { name: name.clone(), provides, ..unit };
            let mut one = One::of(unit);
            one.settle();
            one.main_ends(end);
            one.settle();
            one.step("gone");
            let seen = one.system.observation().units.remove(&name).expect("it ran");
            assert_eq!(seen.retry_at.is_some(), restarts, "{policy} after {end:?}");
        }
    }
}

/// Who decides counts on it that nothing goes on after this but what is run at the very end.
#[test]
fn who_loses_patience_has_what_is_left_killed() {
    let stanza = "type: foreground-supervised\nexec-start: /main\nexec-stop: /stop\n\
                  exec-stop-post: /after\nrestart: never\n";
    for (kills, steps, signals, after, told) in [
        (true, "start", vec![9], Some(Stage::StopSigkill), "stopping"),
        (true, "start, unwanted", vec![9], Some(Stage::StopSigkill), "stopping"),
        (true, "start, unwanted, ends 0", vec![9], Some(Stage::StopSigkill), "stopping"),
        (true, "start, unwanted, ends 0, kill", vec![], Some(Stage::StopSigkill), "stopping"),
        (true, "start, unwanted, ends 0, gone", vec![9], Some(Stage::FinalSigkill), "stopping"),
        (
            true,
            "start, unwanted, ends 0, gone, kill",
            vec![],
            Some(Stage::FinalSigkill),
            "stopping",
        ),
        (false, "start, unwanted", vec![], Some(Stage::StopPost), "stopping"),
        (false, "start, unwanted, ends 0", vec![], Some(Stage::StopPost), "stopping"),
        (false, "start, unwanted, ends 0, gone", vec![], None, "off"),
    ] {
        let kills = if kills { "" } else { "stop-final-signal: none\n" };
        let mut one = One::new(&format!("{stanza}{kills}"));
        steps.split(", ").for_each(|step| one.step(step));
        one.signals.clear();
        one.step("kill");
        let stage = one.service.as_ref().map(|(_, service)| service.memory().phase);
        assert_eq!((&one.signals, stage), (&signals, after), "{kills}{steps}");
        assert!(one.told().starts_with(told), "{kills}{steps}: {}", one.told());
    }
}
