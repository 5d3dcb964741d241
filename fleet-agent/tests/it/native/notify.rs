//! Notification messages of services, and reloads.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::unit::ExitStatus;
use fleet_core::{ActiveState, Generation};

use super::helper::{does, send_to};
use crate::support::{Bench, DEADLINE, name, runs, signal, wait_until};

#[tokio::test]
async fn service_is_active_after_ready() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let steps = format!("await {}|say READY=1,STATUS=at work|sleep", gate.display());
    bench.begin(&format!("Type=notify\n{}", does(&steps))).await;
    assert_eq!(bench.state("a.service").await.active, ActiveState::Activating);
    std::fs::write(gate, "").expect("it can be created");
    bench.wait_for_sub("a.service", "running").await;
    let status = bench.manager.status_text(&name("a.service"));
    assert_eq!(status.as_deref(), Some("at work"));
    bench.clean_up().await;
}

// Holds: X-9
#[tokio::test]
async fn exit_before_ready_is_a_failure() {
    let bench = Bench::new().await;
    for (steps, result) in [("exit 0", "protocol"), ("exit 3", "exit-code")] {
        bench.load("a.service", &format!("Type=notify\n{}", does(steps))).await;
        bench.start("a.service").await.expect_err("it never sends READY=1");
        assert_eq!(bench.state("a.service").await.result.as_deref(), Some(result), "{steps}");
    }
    bench.clean_up().await;
}

// Holds: T-4
#[tokio::test]
async fn message_at_the_exit_counts() {
    let bench = Bench::new().await;
    bench.load("a.service", &format!("Type=notify\n{}", does("say READY=1|exit 0"))).await;
    for _ in 0..20 {
        // It may be active too briefly to be observed.
        drop(bench.start("a.service").await);
        let state = bench.wait_for("a.service", |state| state.main_pid.is_none()).await;
        assert_eq!(state.result.as_deref(), Some("success"), "{state:?}");
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn notify_access_is_enforced() {
    let bench = Bench::new().await;
    let sent = bench.path("sent");
    let steps = format!("child|say READY=1|barrier|make {}|sleep", sent.display());
    for (access, sub) in [("main", "start"), ("exec", "start"), ("all", "running")] {
        bench.begin(&format!("Type=notify\nNotifyAccess={access}\n{}", does(&steps))).await;
        wait_until("the message is sent", async || sent.exists()).await;
        bench.wait_for_sub("a.service", sub).await;
        bench.stop("a.service").await;
        std::fs::remove_file(&sent).expect("it is there");
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn rejected_ready_message_names_the_option() {
    let bench = Bench::new().await;
    let steps = "child|say READY=1|barrier|sleep";
    let service = format!("Type=notify\nTimeoutStartSec=2s\n{}", does(steps));
    bench.load("a.service", &service).await;
    let error = bench.start("a.service").await.expect_err("no socket is bound").to_string();
    let expected = " sent READY=1, but only the main process may send it: see NotifyAccess=";
    assert!(error.ends_with(expected), "{error}");
    bench.clean_up().await;
}

#[tokio::test]
async fn notify_access_without_control_groups() {
    let bench = Bench::with(|config| config.control_groups = false).await;
    let unit = format!("Type=notify\nNotifyAccess=all\n{}", does("child|say READY=1|sleep"));
    bench.run("a.service", &unit).await;
    bench.clean_up().await;
}

/// Blocks until a file exists. The daemon shares this thread, so it receives no message meanwhile.
fn wait_blocking(file: &Path) {
    let deadline = Instant::now() + DEADLINE;
    while !file.exists() {
        assert!(Instant::now() < deadline, "the file is not created in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The message of an exited child counts: the child is not reaped yet, and the daemon receives the
/// message only after its exit.
async fn exited_sender_counts(bench: Bench) {
    let (gate, sent) = (bench.path("gate"), bench.path("sent"));
    let steps = format!("await {}|last READY=1|make {}|sleep", gate.display(), sent.display());
    bench.begin(&format!("Type=notify\nNotifyAccess=all\n{}", does(&steps))).await;
    bench.wait_for("a.service", |state| state.main_pid.is_some()).await;
    std::fs::write(gate, "").expect("it can be created");
    wait_blocking(&sent);
    bench.wait_for_sub("a.service", "running").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn message_of_an_exited_process_counts() {
    exited_sender_counts(Bench::new().await).await;
}

#[tokio::test]
async fn exited_sender_counts_without_control_groups() {
    exited_sender_counts(Bench::with(|config| config.control_groups = false).await).await;
}

// Holds: T-25
#[tokio::test]
async fn foreign_messages_are_ignored() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let steps = format!("await {}|say STATUS=me|barrier|sleep", gate.display());
    bench.begin(&format!("Type=notify\nNotifyAccess=all\n{}", does(&steps))).await;
    let state = bench.wait_for("a.service", |state| state.main_pid.is_some()).await;
    let main = state.main_pid.expect("it has a main process");
    // Between fork and exec the process still has our environment.
    let address = async || {
        let variables = std::fs::read(format!("/proc/{main}/environ")).unwrap_or_default();
        let mut variables = variables.split(|&byte| byte == 0);
        let found = variables.find_map(|it| it.strip_prefix(b"NOTIFY_SOCKET=@"));
        found.map(|name| SocketAddr::from_abstract_name(name).expect("it is short"))
    };
    wait_until("its program runs", async || address().await.is_some()).await;
    send_to(&address().await.expect("it is there"), "READY=1\nSTATUS=stranger");
    std::fs::write(gate, "").expect("it can be created");
    let unit = name("a.service");
    let is_set = async || bench.manager.status_text(&unit).as_deref() == Some("me");
    wait_until("the status is set", is_set).await;
    assert_eq!(bench.state("a.service").await.sub, "start");
    bench.clean_up().await;
}

/// Returns whether a socket is bound to this address.
fn has_listener(address: &str) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("it can be read");
    sockets.lines().any(|socket| socket.split(' ').next_back() == Some(address))
}

#[tokio::test]
async fn socket_closes_once_no_process_may_send() {
    let bench = Bench::new().await;
    let addresses = bench.path("addresses");
    let tell = format!("/bin/sh -c 'echo to:$$NOTIFY_SOCKET >>{}'", addresses.display());
    let commands = format!("ExecStart={tell}\nExecReload={tell}\nExecStop={tell}\n");
    for (access, is_accepted) in [("main", false), ("exec", true), ("all", true)] {
        let service = format!("Type=oneshot\nRemainAfterExit=yes\nNotifyAccess={access}\n");
        bench.load("a.service", &(service + &commands)).await;
        bench.start("a.service").await.expect("it is up");
        let addresses = bench.wait_for_lines("addresses", 1).await;
        let address = addresses[0].strip_prefix("to:").expect("it is reported");
        wait_until(access, async || has_listener(address) == is_accepted).await;
        bench.manager.reload_unit(&name("a.service")).await.expect("it can be");
        bench.stop("a.service").await;
        let commands = if is_accepted { &*addresses[0] } else { "to:" };
        assert_eq!(
            bench.wait_for_lines("addresses", 3).await,
            [&*addresses[0], commands, commands]
        );
        std::fs::remove_file(bench.path("addresses")).expect("it is there");
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn service_names_its_main_process() {
    let bench = Bench::new().await;
    let pid = bench.path("pid");
    let own = std::process::id();
    // The child may not send it itself: it is not the main process yet.
    let child = format!("pidfile {}|sleep", pid.display());
    let unit = format!("Type=notify\nNotifyAccess=all\n{}", does(&format!("child|{child}")));
    bench.begin(&unit).await;
    let main = bench.wait_for("a.service", |state| state.main_pid.is_some()).await.main_pid;
    bench.wait_for_lines("pid", 1).await;
    bench.stop("a.service").await;
    assert!(!main.is_some_and(runs));

    let unit = does(&format!(
        "say MAINPID={own},READY=1|barrier|make {}|sleep",
        bench.path("sent").display()
    ));
    bench.run("b.service", &format!("Type=notify\n{unit}")).await;
    assert_ne!(bench.pid("b.service").await, own, "a stranger is no main process");
    bench.clean_up().await;
}

#[tokio::test]
async fn silent_service_is_stopped_by_the_watchdog() {
    let bench = Bench::new().await;
    let unit = format!("Type=notify\nWatchdogSec=50ms\n{}", does("say READY=1|sleep"));
    bench.run("a.service", &unit).await;
    let state = bench.wait_for_sub("a.service", "failed").await;
    assert_eq!(state.result.as_deref(), Some("watchdog"));
    assert_eq!(state.exit, Some(ExitStatus::Signal(6)));
    bench.clean_up().await;
}

/// The later service has the longer timeout of the two.
#[tokio::test]
async fn service_can_extend_its_start_timeout() {
    let bench = Bench::new().await;
    let (gate, sent) = (bench.path("gate"), bench.path("sent"));
    let ask = format!("say EXTEND_TIMEOUT_USEC=600000000|barrier|make {}", sent.display());
    let steps = format!("{ask}|await {}|say READY=1|sleep", gate.display());
    let service = |steps: &str| format!("Type=notify\nTimeoutStartSec=3s\n{}", does(steps));
    bench.begin(&service(&steps)).await;
    wait_until("the timeout extension is sent", async || sent.exists()).await;
    bench.load("b.service", &service("sleep")).await;
    bench.start("b.service").await.expect_err("it takes too long");
    assert_eq!(bench.state("b.service").await.result.as_deref(), Some("timeout"));
    assert_eq!(bench.state("a.service").await.sub, "start");
    std::fs::write(gate, "").expect("it can be created");
    bench.wait_for_sub("a.service", "running").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn service_can_extend_its_stop_timeout() {
    let bench = Bench::new().await;
    let (gate, sent) = (bench.path("gate"), bench.path("sent"));
    let ask = format!("say EXTEND_TIMEOUT_USEC=600000000|barrier|make {}", sent.display());
    let steps = format!("trap TERM|say READY=1|hear|{ask}|await {}|exit 0", gate.display());
    let service = |steps: &str| format!("Type=notify\nTimeoutStopSec=3s\n{}", does(steps));
    bench.run("a.service", &service(&steps)).await;
    bench.run("b.service", &service("trap TERM|say READY=1|sleep")).await;
    let manager = Arc::clone(&bench.manager);
    let stop = tokio::spawn(async move { manager.stop(&name("a.service")).await });
    wait_until("the timeout extension is sent", async || sent.exists()).await;
    bench.stop("b.service").await;
    assert_eq!(bench.state("b.service").await.result.as_deref(), Some("timeout"));
    assert_eq!(bench.state("a.service").await.sub, "stop-sigterm");
    std::fs::write(gate, "").expect("it can be created");
    stop.await.expect("no panic").expect("it stops");
    let state = bench.state("a.service").await;
    assert_eq!((state.sub.as_str(), state.exit), ("dead", Some(ExitStatus::Code(0))));
    bench.clean_up().await;
}

#[tokio::test]
async fn service_announces_its_own_stop() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let steps = format!("say READY=1|say STOPPING=1|await {}|exit 0", gate.display());
    bench.load("a.service", &format!("Type=notify\n{}", does(&steps))).await;
    // It may be active too briefly to be observed.
    let manager = Arc::clone(&bench.manager);
    tokio::spawn(async move { drop(manager.start(&name("a.service"), Generation(1)).await) });
    bench.wait_for_sub("a.service", "stop-sigterm").await;
    std::fs::write(gate, "").expect("it can be created");
    let state = bench.wait_for_sub("a.service", "dead").await;
    assert_eq!(state.exit, Some(ExitStatus::Code(0)), "nothing was sent to it");
    bench.clean_up().await;
}

// Holds: R-10
#[tokio::test]
async fn next_daemon_receives_messages() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let steps = format!("await {}|say READY=1,STATUS=late|sleep", gate.display());
    let start = bench.begin(&format!("Type=notify\n{}", does(&steps))).await;
    let manager = Arc::downgrade(&bench.manager);
    start.abort();
    let dead = bench.kill().await;
    wait_until("no other reference to the manager", async || manager.strong_count() == 0).await;
    let bench = dead.revive().await;
    assert_eq!(bench.state("a.service").await.sub, "start");
    std::fs::write(gate, "").expect("it can be created");
    bench.wait_for_sub("a.service", "running").await;
    assert_eq!(bench.manager.status_text(&name("a.service")).as_deref(), Some("late"));
    bench.clean_up().await;
}

#[tokio::test]
async fn service_reloads_by_command() {
    let bench = Bench::new().await;
    let steps = "trap HUP|print up|hear|print again|hear|sleep";
    let reload = "ExecReload=/bin/kill -s HUP $MAINPID\n";
    bench.run("a.service", &format!("{}{reload}", does(steps))).await;
    let pid = bench.pid("a.service").await;
    let unit = name("a.service");
    let printed = async |text: &str| bench.log("a.service").await.iter().any(|line| line == text);
    wait_until("it traps the signal", async || printed("up").await).await;
    bench.manager.reload_unit(&unit).await.expect("the reload succeeds");
    wait_until("it has received the signal", async || printed("again").await).await;
    assert_eq!(bench.pid("a.service").await, pid);

    bench.run("b.service", "ExecStart=/bin/sleep 1000\nExecReload=/bin/false\n").await;
    let refused = bench.manager.reload_unit(&name("b.service")).await;
    assert!(matches!(refused, Err(ServiceError::ReloadFailed { .. })), "{refused:?}");
    assert_eq!(bench.state("b.service").await.sub, "running");
    bench.clean_up().await;
}

#[tokio::test]
async fn service_reloads_by_signal_and_reports_the_end() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let steps = format!(
        "trap HUP|say READY=1|hear|say RELOADING=1|await {}|say READY=1|sleep",
        gate.display()
    );
    bench.run("a.service", &format!("Type=notify-reload\n{}", does(&steps))).await;
    let manager = Arc::clone(&bench.manager);
    let reload = tokio::spawn(async move { manager.reload_unit(&name("a.service")).await });
    bench.wait_for_sub("a.service", "reload-notify").await;
    assert_eq!(bench.state("a.service").await.active, ActiveState::Reloading);
    assert!(!reload.is_finished());
    std::fs::write(gate, "").expect("it can be created");
    reload.await.expect("no panic").expect("it has reloaded");
    assert_eq!(bench.state("a.service").await.sub, "running");
    bench.clean_up().await;
}

#[tokio::test]
async fn exit_during_a_reload_is_reported() {
    let bench = Bench::new().await;
    let gate = bench.path("gate");
    let wait = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let unit = format!("ExecStart=/bin/sleep 1000\nExecReload=/bin/sh -c '{wait}'\n");
    bench.run("a.service", &unit).await;
    let pid = bench.pid("a.service").await;
    let manager = Arc::clone(&bench.manager);
    let reload = tokio::spawn(async move { manager.reload_unit(&name("a.service")).await });
    bench.wait_for_sub("a.service", "reload").await;
    signal(pid, "KILL");
    bench.wait_for("a.service", |state| state.main_pid.is_none()).await;
    assert_eq!(bench.state("a.service").await.sub, "reload", "its command is not done");
    std::fs::write(gate, "").expect("it can be created");
    let refused = reload.await.expect("no panic");
    assert!(matches!(refused, Err(ServiceError::ReloadFailed { .. })), "{refused:?}");
    bench.wait_for_sub("a.service", "failed").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn service_ignoring_all_signals_is_killed() {
    let bench = Bench::new().await;
    let unit = does("trap TERM|say READY=1|sleep");
    let unit = format!("Type=notify\nTimeoutStopSec=50ms\nFinalKillSignal=SIGUSR1\n{unit}");
    bench.run("a.service", &unit).await;
    bench.stop("a.service").await;
    let state = bench.state("a.service").await;
    assert_eq!((state.sub.as_str(), state.exit), ("failed", Some(ExitStatus::Signal(10))));
    bench.clean_up().await;
}

#[tokio::test]
async fn details_have_the_status_text() {
    let bench = Bench::new().await;
    let service = format!("Type=notify\n{}", does("say READY=1,STATUS=at work|sleep"));
    bench.load("a.service", &service).await;
    bench.start("a.service").await.expect("it is ready");
    let details = bench.manager.details(&name("a.service")).await.expect("it is loaded");
    assert_eq!(details.status_text.as_deref(), Some("at work"));
    bench.clean_up().await;
}
