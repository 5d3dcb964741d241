//! Invariants of the state machine of a run, for random events.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{InitUnit, StopReason};
use proptest::prelude::*;

use super::ServiceRun;
use super::process_events::NotifyMessage;
use super::state::{Role, RunAction, ServicePhase};
use super::tests::spec;
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::ProcessId;

/// Event of a service, in any order.
#[derive(Debug, Clone)]
enum Event {
    Start,
    Stop,
    MainEnds(ProcessExit),
    ControlEnds(ProcessExit),
    Gone,
    TimePasses(u64),
    SpawnFails,
    DaemonEnds,
    Says(&'static str),
    NamesMain,
    Reload,
}

fn ends() -> impl Strategy<Value = ProcessExit> {
    prop_oneof![
        Just(ProcessExit::Code(0)),
        Just(ProcessExit::Code(1)),
        Just(ProcessExit::Signal(15)),
        Just(ProcessExit::Dumped(11)),
        Just(ProcessExit::Unobserved),
    ]
}

const SAYINGS: [&str; 8] = [
    "READY=1",
    "RELOADING=1",
    "RELOADING=1\nREADY=1",
    "STOPPING=1",
    "WATCHDOG=1",
    "WATCHDOG=trigger",
    "WATCHDOG_USEC=7000000",
    "EXTEND_TIMEOUT_USEC=5000000",
];

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Start),
        Just(Event::Stop),
        ends().prop_map(Event::MainEnds),
        ends().prop_map(Event::ControlEnds),
        Just(Event::Gone),
        (0_u64..200_000).prop_map(Event::TimePasses),
        Just(Event::SpawnFails),
        Just(Event::DaemonEnds),
        proptest::sample::select(SAYINGS.to_vec()).prop_map(Event::Says),
        Just(Event::NamesMain),
        Just(Event::Reload),
    ]
}

fn services() -> impl Strategy<Value = String> {
    let extras = proptest::sample::subsequence(
        vec![
            "ExecCondition=/may",
            "ExecStartPre=/pre",
            "ExecStartPre=-/pre2",
            "ExecStartPost=/post",
            "ExecStop=/stop",
            "ExecStop=/stop2",
            "ExecStopPost=/after",
            "ExecStopPost=-/after2",
            "RemainAfterExit=yes",
            "SendSIGKILL=no",
            "Restart=on-failure",
            "ExecReload=/reload",
            "WatchdogSec=20",
            "RuntimeMaxSec=40",
            "SendSIGHUP=yes",
            "NotifyAccess=all",
            "ExitType=cgroup",
        ],
        0..=17,
    );
    let modes = proptest::sample::select(vec!["control-group", "mixed", "process"]);
    let types = proptest::sample::select(vec![
        "simple",
        "oneshot",
        "notify",
        "notify-reload",
        "forking",
        "forking\nPIDFile=/run/a.pid",
    ]);
    (extras, modes, types).prop_map(|(mut extras, mode, kind)| {
        extras.retain(|extra| kind != "oneshot" || *extra != "ExitType=cgroup");
        format!("ExecStart=/main\nKillMode={mode}\nType={kind}\n{}\n", extras.join("\n"))
    })
}

/// A service, with a model of its processes.
struct World {
    spec: Arc<InitUnit>,
    service: ServiceRun,
    now: Timestamp,
    pids: u32,
    fail_next_spawn: bool,
    stopped: bool,
}

impl World {
    fn apply(&mut self, event: &Event) {
        let (main, control) = (self.service.run_state().main, self.service.run_state().control);
        match event {
            Event::Start if self.service.is_idle() => {
                self.stopped = false;
                self.service = ServiceRun::new(Arc::clone(&self.spec));
                self.service.begin(None, self.now);
            }
            Event::Start => {}
            Event::Stop => {
                self.stopped = true;
                self.service.stop(&StopReason::Unneeded, self.now);
            }
            Event::MainEnds(end) => {
                main.into_iter().for_each(|main| self.service.on_exited(main, *end, self.now));
            }
            Event::ControlEnds(end) => {
                control.into_iter().for_each(|pid| self.service.on_exited(pid, *end, self.now));
            }
            Event::Gone => {
                // The kernel only reports it when it is true.
                if main.is_none() && control.is_none() {
                    self.service.on_all_gone(self.now);
                }
            }
            Event::TimePasses(millis) => {
                self.now = self.now.after(Duration::from_millis(*millis));
                self.service.on_time(self.now);
            }
            Event::Says(words) => {
                self.service.on_message(&NotifyMessage::parse(words.as_bytes()), self.now);
            }
            Event::NamesMain => {
                self.pids += 1;
                self.service.on_main(ProcessId { pid: self.pids, start: 0 }, self.now);
            }
            // A reload may be refused.
            Event::Reload => drop(self.service.reload(self.now)),
            Event::SpawnFails => self.fail_next_spawn = true,
            Event::DaemonEnds => {
                let run_state = self.service.run_state().clone();
                let restored = ServiceRun::restore(Arc::clone(&self.spec), run_state, self.now);
                self.service = restored;
            }
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.service.next_action() {
            if action == RunAction::AwaitMain && self.service.run_state().awaits_main {
                self.service.on_no_main(self.now);
            }
            let RunAction::Spawn { role, .. } = action else { continue };
            let run_state = self.service.run_state();
            let taken = if role == Role::Main { run_state.main } else { run_state.control };
            assert_eq!(taken, None, "nothing runs twice");
            let limits = &self.spec.timeouts;
            let limit = match run_state.phase {
                phase if phase.is_starting() => limits.start,
                phase if phase.is_reloading() => limits.reload,
                _ => limits.stop,
            };
            let whole = limit.map(|limit| self.now.after(limit));
            // The watchdog may expire earlier.
            let has_whole = self.service.due() == whole || run_state.phase.is_reloading();
            assert!(has_whole, "a command has the whole timeout: {run_state:?}");
            let stopping = run_state.phase.is_stopping();
            assert!(!self.stopped || stopping, "a stop is followed by no start");
            if std::mem::take(&mut self.fail_next_spawn) {
                self.service.on_spawn_failed(ProcessExit::Code(203), self.now);
            } else {
                self.pids += 1;
                self.service.on_spawned(ProcessId { pid: self.pids, start: 0 }, self.now);
            }
        }
    }

    fn check(&self) {
        let run_state = self.service.run_state();
        assert_eq!(run_state.spawning, None, "every spawn is answered");
        if self.service.is_idle() {
            assert_eq!(
                (run_state.main, run_state.control),
                (None, None),
                "what rests has no process"
            );
            assert_eq!(self.service.due(), None, "an idle service has no actions");
        }
        let killed =
            matches!(run_state.phase, ServicePhase::StopSigkill | ServicePhase::FinalSigkill);
        let transient = run_state.phase.is_stopping() && !killed || run_state.phase.is_reloading();
        assert!(!transient || self.service.due().is_some(), "every transitional phase ends");
        let running = run_state.phase == ServicePhase::Running;
        let runs_main = run_state.main.is_some() || self.service.awaits_last_process();
        assert!(!running || runs_main, "a running unit has a main process");
    }
}

proptest! {
    #[test]
    fn invariants_hold_for_random_events(
        service in services(),
        events in prop::collection::vec(events(), 0..40),
    ) {
        let spec = spec(&service);
        let service = ServiceRun::new(Arc::clone(&spec));
        let now = Timestamp::from_millis(0);
        let mut world = World {
            spec, service, now, pids: 0,
            fail_next_spawn: false, stopped: false,
        };
        for event in &events {
            world.apply(event);
            world.check();
        }
        // After a stop request, time leads to an idle state, if killed processes exit.
        world.apply(&Event::Stop);
        for _ in 0..20 {
            world.check();
            world.apply(&Event::TimePasses(90_000));
            let phase = world.service.run_state().phase;
            if matches!(phase, ServicePhase::StopSigkill | ServicePhase::FinalSigkill) {
                world.apply(&Event::MainEnds(ProcessExit::Signal(9)));
                world.apply(&Event::ControlEnds(ProcessExit::Signal(9)));
                world.apply(&Event::Gone);
            }
        }
        prop_assert!(world.service.is_idle(), "{:?}", world.service.run_state());
    }
}
