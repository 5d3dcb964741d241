//! Tests of the driver with real processes: readiness after a time or an output line, and logs of
//! units with a file size limit.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::graph::{InitUnit, LinePattern, Readiness, ServiceType, StopReason};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::driver::RunDriver;
use super::machine::ServiceRun;
use super::machine::state::{RunOutcome, RunState, ServicePhase};
use super::machine::tests::{ScriptedRun, spec};
use crate::SystemClock;
use crate::lock::acquire;
use crate::native::linux::exit::ProcessExit;
use crate::native::log::append;
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::runtime_directory::Directories;
use crate::native::state::unit_directory::RunRecord;

pub(crate) fn unit(service: &str, readiness: Readiness) -> Arc<InitUnit> {
    let unit = InitUnit::clone(&spec(service));
    Arc::new(InitUnit { kind: ServiceType::ForegroundSupervised(readiness), ..unit })
}

pub(crate) fn line(pattern: &str) -> Readiness {
    Readiness::Line(LinePattern::new(pattern).expect("it is well formed"))
}

#[test]
fn ready_after_running_for_a_while() {
    let mut life =
        ScriptedRun::of(unit("ExecStart=/main\n", Readiness::Alive(Duration::from_secs(3))));
    life.start().due();
    assert_eq!(life.now.as_millis(), 3000);
    life.stop().main(ProcessExit::Signal(15)).gone().start().main(ProcessExit::Code(0)).gone();
    insta::assert_snapshot!(life.story(), @r"
    start: new-run main => activating start success
    due: => active running success
    stop: signal-15-All => deactivating stop-sigterm success
    main Signal(15): => deactivating stop-sigterm success
    gone: => inactive dead success
    start: new-run main => activating start success
    main Code(0): signal-15-All => deactivating stop-sigterm success
    gone: => inactive dead success
    ");
}

#[test]
fn ready_after_an_output_line() {
    let mut life = ScriptedRun::of(unit("ExecStart=/main\nTimeoutStartSec=9\n", line("x")));
    life.start().step("line", ServiceRun::on_line);
    life.step("line", ServiceRun::on_line).stop().main(ProcessExit::Signal(15)).gone();
    life.start().due().main(ProcessExit::Signal(15)).gone();
    insta::assert_snapshot!(life.story(), @r"
    start: new-run main await-line => activating start success
    line: => active running success
    line: => active running success
    stop: signal-15-All => deactivating stop-sigterm success
    main Signal(15): => deactivating stop-sigterm success
    gone: => inactive dead success
    start: new-run main await-line => activating start success
    due: signal-15-All => deactivating stop-sigterm timeout
    main Signal(15): => deactivating stop-sigterm timeout
    gone: => failed failed timeout
    ");
}

const NAME: &str = "a.service";

fn driver(context: &Arc<ManagerContext>, unit: &Arc<InitUnit>) -> RunDriver {
    let place = context.directory(NAME);
    let log = context.open_log(place.log()).expect("it can be created");
    RunDriver::new(context, NAME, &place, log, Arc::clone(unit))
}

/// Driver of a single unit with real processes.
pub(crate) struct DriverHarness {
    pub(crate) context: Arc<ManagerContext>,
    unit: Arc<InitUnit>,
    pub(crate) driver: RunDriver,
    _directory: TempDir,
}

impl DriverHarness {
    pub(crate) async fn with(unit: Arc<InitUnit>) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let clock = Arc::new(SystemClock::start());
        let directories = Directories::one(directory.path().to_owned());
        let lock = acquire(directory.path(), &*clock).await.expect("it is free");
        let groups = Err("none are needed".to_owned());
        let context = ManagerContext::new(clock, Vec::new(), directories, 1 << 20, groups, lock);
        let context = Arc::new(context);
        let requested = crate::native::state::unit_directory::RequestedState::default();
        context.directory(NAME).write_unit(b"", requested).expect("it can be written");
        let driver = driver(&context, &unit);
        Self { context, unit, driver, _directory: directory }
    }

    /// Begins the next run.
    pub(crate) fn start(&mut self) {
        self.driver = driver(&self.context, &self.unit);
        self.driver.service.begin(None, self.context.now());
    }

    pub(crate) fn stop(&mut self) {
        self.driver.service.stop(&StopReason::Unneeded, self.context.now());
    }

    /// Drives the run until the unit reaches a phase.
    pub(crate) async fn wait_for(&mut self, phase: ServicePhase) {
        let go_on = async {
            self.driver.act();
            while self.driver.service.run_state().phase != phase {
                self.driver.wait().await;
                self.driver.act();
            }
        };
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, go_on).await.expect("it gets there");
    }
}

impl Drop for DriverHarness {
    /// A failing test leaves no process behind.
    fn drop(&mut self) {
        let main = self.driver.service.run_state().main;
        let pid = main.and_then(|main| Pid::from_raw(i32::try_from(main.pid).ok()?));
        // In a passing test it has exited already.
        let _gone = pid.map(|pid| kill_process(pid, Signal::KILL));
    }
}

#[tokio::test]
async fn output_line_signals_readiness() {
    let script = "echo not yet; echo ready now >&2; exec sleep 1000";
    let service = format!("ExecStart=/bin/sh -c '{script}'\nExecStop=/bin/kill -s KILL $MAINPID\n");
    let mut stage = DriverHarness::with(unit(&service, line("^ready"))).await;
    for _ in 0..2 {
        stage.start();
        stage.wait_for(ServicePhase::Running).await;
        stage.stop();
        stage.wait_for(ServicePhase::Failed).await;
    }
}

#[tokio::test]
async fn output_of_an_earlier_run_is_ignored() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let mark = directory.path().join("mark");
    let script = format!("[ -e {0} ] || echo ready; : >{0}; exec sleep 1000", mark.display());
    let service = format!("ExecStart=/bin/sh -c '{script}'\nTimeoutStartSec=200ms\n");
    let mut stage = DriverHarness::with(unit(&service, line("^ready$"))).await;
    stage.start();
    stage.wait_for(ServicePhase::Running).await;
    stage.stop();
    stage.wait_for(ServicePhase::Dead).await;
    stage.start();
    stage.wait_for(ServicePhase::Failed).await;
    assert_eq!(stage.driver.service.run_state().outcome, Some(RunOutcome::Timeout));
}

/// The unit writes 30 megabytes before the readiness line and again after it, although its log is
/// limited to one megabyte.
#[tokio::test]
async fn readiness_line_is_found_in_fast_output() {
    let flood = format!("yes {} | head -c 30000000", "x".repeat(499));
    let service = format!("ExecStart=/bin/sh -c '{flood}; echo ready; {flood}; exec sleep 1000'\n");
    let mut stage = DriverHarness::with(unit(&service, line("^ready$"))).await;
    let keeping = tokio::spawn(Arc::clone(&stage.context).limit_logs());
    stage.start();
    stage.wait_for(ServicePhase::Running).await;
    keeping.abort();
    stage.stop();
    stage.wait_for(ServicePhase::Dead).await;
}

/// A unit that must not be killed because its log is too long.
const LIMITED: &str = "ExecStart=/bin/echo up\nLimitFSIZE=64K\n";

impl DriverHarness {
    /// Makes the log longer than the unit's file size limit.
    fn fill(&self) {
        let text = b"sixteen letters\n".repeat(1 << 13);
        let filled = append(self.log()).and_then(|mut file| file.write_all(&text));
        filled.expect("it can be written");
        assert_eq!(self.length(), 128 << 10);
    }

    fn log(&self) -> &Path {
        self.driver.log().path()
    }

    fn length(&self) -> u64 {
        std::fs::metadata(self.log()).expect("it is there").len()
    }
}

#[tokio::test]
async fn unit_survives_write_after_long_log() {
    let mut stage = DriverHarness::with(spec(LIMITED)).await;
    stage.start();
    stage.fill();
    stage.wait_for(ServicePhase::Dead).await;
    let run_state = stage.driver.service.run_state();
    assert_eq!(run_state.outcome, Some(RunOutcome::Success), "{run_state:?}");
    assert!(stage.length() < 64 << 10);
    let (text, _) = stage.driver.log().tail(Some(1), None).expect("it can be read");
    assert_eq!(text, b"up\n");
}

#[tokio::test]
async fn next_daemon_limits_log_of_running_unit() {
    let mut stage = DriverHarness::with(spec(LIMITED)).await;
    stage.fill();
    let service = ServiceRun::restore(spec(LIMITED), RunState::default(), stage.context.now());
    stage.driver.adopt(service, RunRecord::default(), Vec::new());
    assert!(stage.length() <= 32 << 10, "{}", stage.length());
}

#[tokio::test]
async fn new_file_size_limit_applies_to_next_process() {
    let mut stage = DriverHarness::with(spec("ExecStart=/bin/echo up\n")).await;
    stage.fill();
    stage.driver.set_definition(spec(LIMITED));
    assert!(stage.length() <= 32 << 10, "{}", stage.length());
}
