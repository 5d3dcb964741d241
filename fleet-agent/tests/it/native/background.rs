//! Forking services, which leave the process ID of their main process in a file.

use std::sync::Arc;

use fleet_agent::ServiceManager;
use fleet_core::unit::ExitStatus;

use super::helper::{command_with_steps, does};
use crate::support::{Bench, name, runs, signal, wait_until};

fn unit(bench: &Bench, steps: &str) -> String {
    format!("Type=forking\nPIDFile={}\n{}", bench.path("pid").display(), does(steps))
}

/// Returns steps that leave a daemon behind, which writes its pid file once the gate is opened.
fn daemon(bench: &Bench, then: &str) -> String {
    let (gate, pid) = (bench.path("gate"), bench.path("pid"));
    format!("leave 0|await {}|pidfile {}|{then}", gate.display(), pid.display())
}

fn open(bench: &Bench, gate: &str) {
    std::fs::write(bench.path(gate), "").expect("it can be created");
}

// Holds: T-4, X-12
#[tokio::test]
async fn forking_service_is_active_once_its_pid_file_names_it() {
    for control_groups in [true, false] {
        let bench = Bench::with(|config| config.control_groups = control_groups).await;
        bench.begin(&unit(&bench, &daemon(&bench, "sleep"))).await;
        open(&bench, "gate");
        bench.wait_for_sub("a.service", "running").await;
        let written = bench.wait_for_lines("pid", 1).await;
        let pid = bench.pid("a.service").await;
        assert_eq!(written, [pid.to_string()]);
        bench.stop("a.service").await;
        assert!(!runs(pid));
        assert!(!bench.path("pid").exists(), "the pid file is removed");
        bench.clean_up().await;
    }
}

#[tokio::test]
async fn exit_before_the_pid_file_ends_the_wait() {
    for control_groups in [true, false] {
        let bench = Bench::with(|config| config.control_groups = control_groups).await;
        let steps = format!("leave 0|await {}|exit 0", bench.path("gate").display());
        bench.begin(&unit(&bench, &steps)).await;
        open(&bench, "gate");
        let state = bench.wait_for_sub("a.service", "failed").await;
        assert_eq!(state.result.as_deref(), Some("protocol"));
        bench.clean_up().await;
    }
}

#[tokio::test]
async fn exit_status_of_a_non_child_is_known_by_pidfd() {
    let bench = Bench::new().await;
    let end = format!("await {}|exit 7", bench.path("end").display());
    open(&bench, "gate");
    bench.run("a.service", &unit(&bench, &daemon(&bench, &end))).await;
    open(&bench, "end");
    let state = bench.wait_for_sub("a.service", "failed").await;
    let known = [Some(ExitStatus::Code(7)), Some(ExitStatus::Unknown)];
    assert!(known.contains(&state.exit), "{state:?}");
    bench.clean_up().await;
}

// Holds: T-7, X-10
#[tokio::test]
async fn pid_file_naming_a_foreign_process_is_rejected() {
    let bench = Bench::new().await;
    bench.run("other.service", "ExecStart=/bin/sleep 1000\n").await;
    let other = bench.pid("other.service").await;
    let own = std::process::id();
    let strangers = [1, own, other, 4_194_305].map(|pid| pid.to_string());
    for stranger in strangers.iter().map(String::as_str).chain(["nobody"]) {
        let pid = bench.path("pid");
        let steps = format!("pidfile {} {stranger}|leave 0|sleep", pid.display());
        let service = format!("TimeoutStartSec=300ms\n{}", unit(&bench, &steps));
        bench.load("a.service", &service).await;
        let error =
            bench.start("a.service").await.expect_err("the pid file names a foreign process");
        let error = error.to_string();
        let named = format!("PIDFile={}", pid.display());
        assert!(error.contains(&named), "{stranger}: {error}");
        assert_eq!(bench.state("a.service").await.result.as_deref(), Some("timeout"));
        bench.manager.unload(&name("a.service")).await.expect("it is unloaded");
    }
    assert!(runs(other), "another unit's process is left alone");
    bench.clean_up().await;
}

// Holds: X-12
#[tokio::test]
async fn wrong_pid_file_may_be_corrected() {
    let bench = Bench::new().await;
    std::fs::write(bench.path("pid"), "4194305\n").expect("it can be written");
    bench.begin(&unit(&bench, &daemon(&bench, "sleep"))).await;
    open(&bench, "gate");
    bench.wait_for_sub("a.service", "running").await;
    bench.clean_up().await;
}

// Holds: T-7, X-13
#[tokio::test]
async fn failing_command_stops_the_forked_process() {
    let bench = Bench::new().await;
    let [pid, child] = ["pid", "child"].map(|name| bench.path(name).display().to_string());
    let daemon = format!("leave 0|pidfile {pid}|pidfile {child}|sleep");
    let launch = format!(
        "{}; until [ -s {child} ]; do sleep 0.01; done; exit 4",
        command_with_steps(&daemon, &bench.path(""))
    );
    let service = format!("Type=forking\nPIDFile={pid}\nExecStart=/bin/sh -c '{launch}'\n");
    bench.load("a.service", &service).await;
    bench.start("a.service").await.expect_err("its command fails");
    let state = bench.state("a.service").await;
    assert_eq!(state.result.as_deref(), Some("exit-code"));
    let left = bench.wait_for_lines("child", 1).await;
    assert!(!runs(left[0].parse().expect("a number")), "it is left behind");
    bench.clean_up().await;
}

#[tokio::test]
async fn forked_process_is_adopted() {
    let bench = Bench::new().await;
    open(&bench, "gate");
    bench.run("a.service", &unit(&bench, &daemon(&bench, "sleep"))).await;
    let pid = bench.pid("a.service").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.pid("a.service").await, pid);
    signal(pid, "KILL");
    let state = bench.wait_for_sub("a.service", "failed").await;
    let known = [Some(ExitStatus::Signal(9)), Some(ExitStatus::Unknown)];
    assert!(known.contains(&state.exit), "{state:?}");
    bench.clean_up().await;
}

// Holds: X-14
#[tokio::test]
async fn successor_in_the_pid_file_becomes_the_main_process() {
    for (control_groups, is_watched) in [(true, true), (true, false), (false, true), (false, false)]
    {
        let bench = Bench::with(|config| config.control_groups = control_groups).await;
        open(&bench, "gate");
        let [pid, on, next] = ["pid", "on", "next"].map(|name| bench.path(name));
        let more = format!(
            "await {}|child|pidfile {}|make {}|sleep",
            on.display(),
            pid.display(),
            next.display()
        );
        bench.run("a.service", &unit(&bench, &daemon(&bench, &more))).await;
        let first = bench.pid("a.service").await;
        // A process named before the first read becomes the main process, without a predecessor.
        open(&bench, "on");
        wait_until("its successor is named", async || next.exists()).await;
        let bench = if is_watched {
            signal(first, "QUIT");
            bench
        } else {
            let dead = bench.kill().await;
            signal(first, "QUIT");
            wait_until("it has ended", async || !runs(first)).await;
            dead.revive().await
        };
        let named = bench.wait_for_lines("pid", 1).await;
        let is_it = async || vec![bench.pid("a.service").await.to_string()] == named;
        wait_until("its successor is the main process", is_it).await;
        assert_eq!(bench.state("a.service").await.sub, "running");
        let second: u32 = named[0].parse().expect("a number");
        signal(second, "KILL");
        bench.wait_for_sub("a.service", "failed").await;
        bench.clean_up().await;
    }
}

/// Regression: after an adoption, only pid files of root were accepted.
#[tokio::test]
async fn adopted_service_of_another_user_follows_its_successor() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for ends_unseen in [false, true] {
        let bench = Bench::new().await;
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(bench.path(""), open_to_all)
            .expect("the directory belongs to this user");
        let script = "echo $$ >pid; until test -e on; do sleep 0.01; done\n\
                      sleep 1000 & echo $! >new; mv new pid; : >next; wait\n";
        std::fs::write(bench.path("daemon"), script).expect("it can be written");
        let (at, next) = (bench.path("").display().to_string(), bench.path("next"));
        let service = format!(
            "Type=forking\nUser=nobody\nWorkingDirectory={at}\nPIDFile={at}/pid\n\
             ExecStart=/bin/sh -c '/bin/sh daemon &'\n"
        );
        bench.run("a.service", &service).await;
        let first = bench.pid("a.service").await;
        open(&bench, "on");
        wait_until("its successor is named", async || next.exists()).await;
        let dead = bench.kill().await;
        if ends_unseen {
            signal(first, "KILL");
            wait_until("it has ended", async || !runs(first)).await;
        }
        let bench = dead.revive().await;
        if !ends_unseen {
            signal(first, "KILL");
        }
        let named = bench.wait_for_lines("pid", 1).await;
        let is_it = |state: &fleet_core::SystemdState| {
            state.main_pid.is_some_and(|main| [main.to_string()] == *named)
        };
        let state = bench.wait_for("a.service", is_it).await;
        assert_eq!(state.sub, "running");
        bench.clean_up().await;
    }
}

#[tokio::test]
async fn wait_for_the_pid_file_is_continued_after_a_crash() {
    let bench = Bench::new().await;
    let start = bench.begin(&unit(&bench, &daemon(&bench, "sleep"))).await;
    let record = bench.path("native/units/a.service/run.json");
    let awaited = async || {
        std::fs::read_to_string(&record).is_ok_and(|run| run.contains("\"awaits_main\":true"))
    };
    wait_until("the main process is awaited", awaited).await;
    let manager = Arc::downgrade(&bench.manager);
    start.abort();
    let dead = bench.kill().await;
    wait_until("no other reference to the manager", async || manager.strong_count() == 0).await;
    let bench = dead.revive().await;
    open(&bench, "gate");
    bench.wait_for_sub("a.service", "running").await;
    bench.clean_up().await;
}

/// Without a main process, the unit runs until its last process has exited, also under the next
/// daemon.
#[tokio::test]
async fn unit_without_main_process_is_adopted() {
    for control_groups in [true, false] {
        for kind in ["Type=forking", "ExitType=cgroup"] {
            let bench = Bench::with(|config| config.control_groups = control_groups).await;
            let pids = bench.path("pids");
            let script = "for it in 1 2; do sleep 1000 & echo $$!; done";
            let service = format!("{kind}\nExecStart=/bin/sh -c '{script} >>{}'\n", pids.display());
            bench.run("a.service", &service).await;
            let pids = bench.wait_for_lines("pids", 2).await;
            let state = bench.wait_for("a.service", |it| it.main_pid.is_none()).await;
            assert_eq!(state.sub, "running", "{kind}");
            let bench = bench.kill().await.revive().await;
            let [one, other] = [0, 1].map(|at| pids[at].parse().expect("it is a number"));
            signal(one, "KILL");
            assert_eq!(bench.state("a.service").await.sub, "running", "{kind}");
            signal(other, "KILL");
            bench.wait_for_sub("a.service", "dead").await;
            bench.clean_up().await;
        }
    }
}
