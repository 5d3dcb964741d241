//! Sockets and paths after the end of their daemon.

use std::os::unix::net::UnixStream;

use fleet_agent::ServiceManager;
use fleet_core::{Generation, TargetState};

use super::activators::ask;
use super::helper::does;
use crate::support::{Bench, name, runs, undated};

#[tokio::test]
async fn next_daemon_listens_again() {
    let bench = Bench::new().await;
    bench.load_server().await;
    bench.load_socket("RemoveOnStop=yes").await;
    bench.manager.start(&name("a.socket"), Generation(3)).await.expect("it starts");
    let before = bench.get("a.socket").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(undated(bench.get("a.socket").await), undated(before));
    assert_eq!(ask(&bench.path("socket")).await, "hello\n");
    bench.stop("a.socket").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.socket").await.sub, "dead");
    assert_eq!(bench.get("a.socket").await.known.requested, TargetState::Loaded);
    UnixStream::connect(bench.path("socket")).expect_err("it does not listen");
    bench.clean_up().await;
}

/// The address is in use until the service has ended.
#[tokio::test]
async fn socket_of_a_running_service_survives_its_daemon() {
    let bench = Bench::new().await;
    let listens = bench.path("listens").display().to_string();
    let steps = format!("listens {listens}|answer 3 one|answer 3 two|sleep");
    bench.load("a.service", &does(&steps)).await;
    bench.load_socket("").await;
    bench.start("a.socket").await.expect("it starts");
    assert_eq!(ask(&bench.path("socket")).await, "one\n");
    let pid = bench.pid("a.service").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.socket").await.sub, "running");
    assert_eq!(ask(&bench.path("socket")).await, "two\n", "the service keeps its socket");
    assert!(runs(pid));
    bench.manager.restart(&name("a.service"), Generation(2)).await.expect("it restarts");
    let lines = bench.wait_for_lines("listens", 2).await;
    assert_eq!(lines, ["1 a.socket true"; 2], "the socket is bound again");
    assert_eq!(ask(&bench.path("socket")).await, "one\n");
    bench.stop("a.service").await;
    bench.wait_for_sub("a.socket", "listening").await;
    bench.clean_up().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_daemon_watches_paths_again() {
    let bench = Bench::new().await;
    let file = bench.path("file");
    bench.load("a.service", "ExecStart=/bin/sleep 1000\n").await;
    bench.load_unit("a.path", &format!("[Path]\nPathExists={}\n", file.display())).await;
    bench.start("a.path").await.expect("it starts");
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.path").await.sub, "waiting");
    std::fs::write(&file, "").expect("it can be written");
    bench.wait_for_sub("a.service", "running").await;
    let bench = bench.kill().await.revive().await;
    assert_eq!(bench.state("a.path").await.sub, "running");
    bench.clean_up().await;
}
