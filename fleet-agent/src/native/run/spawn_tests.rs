//! Tests of processes spawned inside control groups, and of their ends.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};

use super::exec_context::ExecContext;
use crate::native::linux::cgroup::Groups;
use crate::native::linux::child::{ChildSetup, Credentials, WorkingDirectory};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::SYSTEMD_EXEC_PID;
use crate::native::linux::program::Program;
use crate::native::linux::spawn::{Child, SpawnRequest};
use crate::{Clock as _, SystemClock};

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
            true,
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
