//! Tests with real processes: readiness after a time or an output line, logs of units with a file
//! size limit, and processes spawned inside control groups.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::graph::{InitUnit, LinePattern, Readiness, ServiceType, StopReason};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process};
use tempfile::TempDir;

use super::driver::RunDriver;
use super::exec_context::ExecContext;
use super::machine::ServiceRun;
use super::machine::state::{RunOutcome, RunState, ServicePhase};
use super::machine::tests::{ScriptedRun, spec};
use crate::lock::acquire;
use crate::native::linux::cgroup::Groups;
use crate::native::linux::child::{ChildSetup, Credentials, Program, WorkingDirectory};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::SYSTEMD_EXEC_PID;
use crate::native::linux::spawn::{Child, SpawnRequest};
use crate::native::log::append;
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::runtime_directory::Directories;
use crate::native::state::unit_directory::RunRecord;
use crate::{Clock as _, SystemClock};

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
        let context =
            ManagerContext::new(clock, Vec::new(), directories, 1 << 20, groups, None, lock);
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

fn text(text: &str) -> CString {
    CString::new(text).expect("it has no zero byte")
}

/// Runs a program in a control group of its own. Returns its exit and its output, or `None` if the
/// system has no control groups.
async fn run_program(program: &str, script: &str) -> Option<(io::Result<ProcessExit>, String)> {
    give_with(program, script, in_usr()).await
}

/// Setup of children without special needs.
fn in_usr() -> ChildSetup {
    let start = Some(WorkingDirectory { path: text("/usr"), optional: false });
    ChildSetup { umask: Some(0o27), start, ..ChildSetup::default() }
}

async fn give_with(
    program: &str,
    script: &str,
    setup: ChildSetup,
) -> Option<(io::Result<ProcessExit>, String)> {
    let home = tempfile::tempdir().expect("a directory can be made");
    let path = home.path().join("out");
    let ended = match begin(home.path(), program, script, setup)? {
        (Ok(mut child), groups) => (child.wait().await, groups),
        (Err(error), groups) => (Err(error), groups),
    };
    ended.1.remove_empty();
    Some((ended.0, std::fs::read_to_string(&path).expect("it can be read")))
}

/// Spawns a program in a control group of its own. Returns `None` if the system has no control
/// groups.
fn begin(
    home: &Path,
    program: &str,
    script: &str,
    setup: ChildSetup,
) -> Option<(io::Result<Child>, Groups)> {
    let groups = Groups::find(home).ok()?;
    let inside = groups.for_run("born", "0").open().expect("it can be created");
    let output = File::create(home.join("out")).expect("it can be created");
    let request = SpawnRequest {
        program: &Program::new(
            text(program),
            ["sh", "-c", script].map(text).to_vec(),
            vec![text("WHO=me"), text("PATH=/bin:/usr/bin")],
            |_| true,
        ),
        input: &File::open("/dev/null").expect("it is there"),
        outputs: &[Some(output), None],
        setup: &setup,
    };
    match request.clone_child(Some(std::os::fd::AsFd::as_fd(&inside))) {
        Ok(child) => Some((Ok(child?), groups)),
        Err(why) => Some((Err(why.error), groups)),
    }
}

#[tokio::test]
async fn program_starts_in_cgroup_with_its_setup() {
    let script = "echo $WHO $PWD $(umask) $(cut -d' ' -f5,6 /proc/$$/stat | grep -cx \"$$ $$\") \
                  $((SYSTEMD_EXEC_PID - $$)); grep -c /born.0 /proc/self/cgroup; kill -PIPE $$";
    // As a copy of this process too, which is used for children that drop privileges.
    let rights = || Credentials { uid: None, gid: None, groups: None };
    for identity in [None, Some(rights())] {
        let given = give_with("/bin/sh", script, ChildSetup { identity, ..in_usr() }).await;
        let Some((end, wrote)) = given else { return };
        // This test ignores the signal; the program does not.
        assert_eq!(end.expect("it ended"), ProcessExit::Signal(13));
        assert_eq!(wrote, "me /usr 0027 1 0\n1\n");
    }
}

/// Old kernels and seccomp filters refuse the call.
#[tokio::test]
async fn std_spawn_applies_the_same_setup() {
    let home = tempfile::tempdir().expect("a directory can be made");
    let begin = |program: &str| {
        let output = File::create(home.path().join("out")).expect("it can be created");
        let script =
            "echo $0 $WHO $PWD $(umask) $((SYSTEMD_EXEC_PID - $$)) $LOGNAME; kill -PIPE $$";
        let variables = [("WHO", "me"), (SYSTEMD_EXEC_PID, ""), ("PATH", "/bin:/usr/bin")];
        let plan = ExecContext {
            input: None,
            order: None,
            program: program.into(),
            name: "shell".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: variables.map(|(name, value)| (name.into(), value.into())).into(),
            outputs: [Some(output), None],
            setup: in_usr(),
        };
        let program = plan.program().expect("it has no zero byte");
        plan.spawn(program)
    };
    let end = begin("/bin/sh").expect("it starts").wait().await.expect("it ended");
    let wrote = std::fs::read_to_string(home.path().join("out")).expect("it can be read");
    assert_eq!((end, &*wrote), (ProcessExit::Signal(13), "shell me /usr 0027 0\n"));
    let error = begin("/etc/passwd").expect_err("it is no program");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn exec_failure_is_reported() {
    let Some((end, _)) = run_program("/etc/passwd", "").await else { return };
    assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::PermissionDenied));
    for (optional, expected) in [(false, Err(io::ErrorKind::NotFound)), (true, Ok("/\n"))] {
        let start = Some(WorkingDirectory { path: text("/nowhere"), optional });
        let given = give_with("/bin/sh", "pwd", ChildSetup { start, ..in_usr() }).await;
        let Some((end, wrote)) = given else { return };
        assert_eq!(end.map(|_| &*wrote).map_err(|error| error.kind()), expected);
    }
}

/// Without root, or in a container, little of this may be permitted.
#[tokio::test]
async fn unpermitted_limits_do_not_prevent_start() {
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
    let more = Rlimit { current: Some(7), maximum: None };
    let setup = ChildSetup {
        oom_score_adjust: Some("-900".to_owned()),
        nice: Some(-5),
        limits: vec![(Resource::Nofile, more)],
        ..in_usr()
    };
    let given = give_with("/bin/sh", "ulimit -Sn; ulimit -Hn", setup).await;
    let Some((end, wrote)) = given else { return };
    assert_eq!(end.expect("it ended"), ProcessExit::Code(0));
    // The kernel always limits open files.
    let most = hard.expect("the limit exists");
    assert_eq!(wrote, format!("7\n{most}\n"));
}

#[tokio::test]
async fn ignored_sigpipe_stays_ignored() {
    let setup = ChildSetup { ignore_sigpipe: true, ..in_usr() };
    let given = give_with("/bin/sh", "kill -PIPE $$; echo on", setup).await;
    let Some((end, wrote)) = given else { return };
    assert_eq!((end.expect("it ended"), &*wrote), (ProcessExit::Code(0), "on\n"));
}

async fn wait_until(mut so: impl FnMut() -> bool) {
    let clock = SystemClock::start();
    let wait = async {
        while !so() {
            clock.sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("in time");
}

/// The handle of the child is dropped while the daemon keeps running, as after the end of a
/// supervisor.
#[tokio::test]
async fn dropped_child_is_reaped() {
    let home = tempfile::tempdir().expect("a directory can be made");
    let path = home.path().join("out");
    let Some((child, groups)) = begin(home.path(), "/bin/sh", "echo x", in_usr()) else { return };
    let child = child.expect("it starts");
    let pid = child.id().expect("it was not waited for");
    drop(child);
    wait_until(|| std::fs::read_to_string(&path).is_ok_and(|text| text == "x\n")).await;
    wait_until(|| !Path::new(&format!("/proc/{pid}")).exists()).await;
    groups.remove_empty();
}

/// Regression: after the kill of a group, the kernel killed each program that was spawned in it. So
/// `ExecStopPost=` never ran after a stop that had timed out.
#[tokio::test]
async fn program_runs_in_a_cgroup_that_was_killed_before() {
    let home = tempfile::tempdir().expect("a directory can be made");
    let Ok(groups) = Groups::find(home.path()) else { return };
    let group = groups.for_run("born", "0");
    let inside = group.open().expect("it can be created");
    group.kill().expect("it has no process");
    let rights = || Credentials { uid: None, gid: None, groups: None };
    for identity in [None, Some(rights())] {
        let context = ExecContext {
            input: None,
            order: None,
            program: "/bin/sh".into(),
            name: "sh".into(),
            arguments: ["-c", "grep -q /born.0 /proc/self/cgroup"].map(Into::into).to_vec(),
            environment: [("PATH".into(), "/bin:/usr/bin".into())].into(),
            outputs: [None, None],
            setup: ChildSetup { identity, ..in_usr() },
        };
        let mut child = context.start_in_cgroup(&inside, || group.list()).expect("it starts");
        assert_eq!(child.wait().await.expect("it ended"), ProcessExit::Code(0));
    }
    groups.remove_empty();
}
