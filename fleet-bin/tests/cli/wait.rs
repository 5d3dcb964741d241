//! Waiting: progress messages and how a wait ends.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::cluster::Cluster;
use crate::fake_engine::Role;
use crate::fleetctl::{DEADLINE, Fleetctl, command};

async fn cluster(role: Role) -> Cluster {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.roles.set("web.service", role);
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unplaceable_unit_ends_the_wait_with_its_reason() {
    let cluster = cluster(Role::Unplaceable).await;
    insta::assert_snapshot!(cluster.run("start web").await, @r#"
    exit 1
    ---
    web.service: waiting: no machine is present
    fleetctl: web.service is not active
    help: the desired state stays; "fleetctl status web.service" shows the progress
    "#);
    assert_eq!(cluster.desired("web.service").await, "launched");
}

// Holds: D-42
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_unit_does_not_hide_running_ones() {
    let cluster = cluster(Role::FailingBefore(u64::MAX)).await;
    cluster.write_sleepers(&["db.service"]);
    insta::assert_snapshot!(cluster.run("start db web").await, @r#"
    exit 1
    Unit db.service launched on m1/10.0.0.1
    ---
    web.service: failed on m1: exited with status 3, result exit-code
      | web.service on m1: 1
      | web.service on m1: 2
      | web.service on m1: 3
    fleetctl: 1 of 2 units are not active
    help: correct the cause, then "fleetctl start UNIT" tries again
    "#);
}

/// This many units are polled through lists, which lack the eligible machines of global units.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_units_are_reported_individually() {
    let cluster = cluster(Role::FailingBefore(u64::MAX)).await;
    let names: Vec<_> = (10..60).map(|number| format!("many{number}.service")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    cluster.write_sleepers(&names);
    cluster.write("all.service", "[Service]\nExecStart=/bin/a\n[X-Fleet]\nGlobal=true\n");
    cluster.roles.set("many40.service", Role::Unplaceable);
    cluster.roles.set("all.service", Role::Ignored);
    let args = format!("start -o name --wait-timeout 4 all web {}", names.join(" "));
    let run = cluster.run(&args).await;
    let mut reported: Vec<_> = run.stdout.lines().collect();
    reported.sort_unstable();
    let mut all = names.clone();
    all.extend(["all.service", "web.service"]);
    all.sort_unstable();
    assert_eq!(reported, all, "{run}");
    // The obstacle is reported once it lasts, while other units proceed.
    let waits = "many40.service: waiting: no machine is present\n";
    assert_eq!(run.stderr.matches(waits).count(), 1, "{run}");
    insta::assert_snapshot!(run.stderr.replace(waits, ""), @r#"
    web.service: failed on m1: exited with status 3, result exit-code
      | web.service on m1: 1
      | web.service on m1: 2
      | web.service on m1: 3
    all.service: timed out: no machine has loaded it yet
    fleetctl: 3 of 52 units are not active
    help: the desired state stays; "fleetctl status UNIT" shows the progress
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn common_obstacle_of_many_units_is_reported_once() {
    let cluster = cluster(Role::Starting).await;
    let names: Vec<_> = (10..20).map(|number| format!("many{number}.service")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    cluster.write_sleepers(&names);
    names.iter().for_each(|name| cluster.roles.set(name, Role::Unplaceable));
    let run = cluster.run(&format!("start --wait-timeout 4 web {}", names.join(" "))).await;
    assert!(!run.stderr.contains(": waiting: "), "{run}");
    let notice = "waiting for 11 of 11 units: 1 in progress, 10 wait: no machine is present\n";
    assert_eq!(run.stderr.matches(notice).count(), 1, "{run}");
    assert_eq!(run.stderr.matches("waiting for").count(), 1, "{run}");
    assert_eq!(run.stderr.matches(".service: no machine is present").count(), 10, "{run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_of_the_machine_are_reported() {
    insta::assert_snapshot!(cluster(Role::Unsupported).await.run("start web").await, @r#"
    exit 1
    ---
    web.service: not loaded on m1: bad-setting: PrivateNetwork= needs systemd
      | web.service on m1: 1
      | web.service on m1: 2
      | web.service on m1: 3
    fleetctl: web.service is not active
    help: correct the cause, then "fleetctl start web.service" tries again
    "#);
}

// Holds: D-42
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successful_oneshot_unit_counts_as_started() {
    insta::assert_snapshot!(cluster(Role::Finishing).await.run("start web").await, @r"
    exit 0
    Unit web.service launched on m1/10.0.0.1
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_reports_the_last_state() {
    let starting = cluster(Role::Starting).await;
    starting.run("start --no-block web").await.ok();
    starting.wait_until(|it| it.states_of("web.service").count() == 1).await;
    insta::assert_snapshot!(starting.run("start --wait-timeout 0 web").await, @r#"
    exit 1
    ---
    web.service: timed out: it is activating (start-pre) on m1
    fleetctl: web.service is not active
    help: the desired state stays; "fleetctl status web.service" shows the progress
    "#);
    let ignored = cluster(Role::Ignored).await;
    ignored.run("load --no-block web").await.ok();
    ignored.wait_until(|it| it.placement("web.service").is_some()).await;
    insta::assert_snapshot!(ignored.run("load --wait-timeout 0 web").await, @r#"
    exit 1
    ---
    web.service: timed out: m1 has not loaded it yet
    fleetctl: web.service is not loaded
    help: the desired state stays; "fleetctl status web.service" shows the progress
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn global_unit_is_awaited_on_eligible_machines() {
    let cluster = Cluster::start(&["m1", "m2", "m3"]).await;
    let metadata = "MachineMetadata=rack=r1\nMachineMetadata=rack=r3\n";
    let service = "[Service]\nExecStart=/bin/sleep 1d\n[X-Fleet]\nGlobal=true\n";
    cluster.write("some.service", &format!("{service}{metadata}"));
    cluster.write("none.service", &format!("{service}MachineMetadata=rack=r9\n"));
    insta::assert_snapshot!(cluster.run("start some").await, @r"
    exit 0
    Unit some.service launched on 2 machines
    ");
    insta::assert_snapshot!(cluster.run("start none").await, @r#"
    exit 1
    ---
    none.service: waiting: no present machine fits it
    fleetctl: none.service is not active
    help: the desired state stays; "fleetctl status none.service" shows the progress
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_the_wait_but_keeps_desired_states() {
    let cluster = cluster(Role::Unplaceable).await;
    let mut command = command(cluster.folder(), &cluster.endpoint(), "start web");
    let mut fleetctl = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(fleetctl.stderr.take().unwrap()).lines();
    // After the first line, the command waits and handles the signal.
    let first = tokio::time::timeout(DEADLINE, stderr.next_line()).await.unwrap().unwrap();
    assert_eq!(first.unwrap(), "web.service: waiting: no machine is present");
    let pid = Pid::from_raw(fleetctl.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let second = tokio::time::timeout(DEADLINE, stderr.next_line()).await.unwrap().unwrap();
    assert_eq!(second.unwrap(), "fleetctl: interrupted: the requested changes remain in effect");
    let status = tokio::time::timeout(DEADLINE, fleetctl.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(cluster.desired("web.service").await, "launched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlimited_wait_ends_on_a_lasting_obstacle() {
    let cluster = cluster(Role::Unplaceable).await;
    let run: Fleetctl = cluster.run("start --block-attempts 0 web").await;
    assert_eq!(run.code, 1, "{run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_option_selects_the_awaited_state() {
    let starting = cluster(Role::Starting).await;
    insta::assert_snapshot!(starting.run("start --wait loaded web").await, @r"
    exit 0
    Unit web.service loaded on m1/10.0.0.1
    ");
    starting.write_sleepers(&["job.service", "db.service"]);
    starting.roles.set("job.service", Role::Finishing);
    insta::assert_snapshot!(starting.run("start --wait finished job").await, @r"
    exit 0
    Unit job.service finished on m1/10.0.0.1
    ");
    starting.run("destroy job").await.ok();
    insta::assert_snapshot!(starting.run("apply --wait finished job.service -o jsonl").await, @r#"
    exit 0
    {"action":"apply","machines":["m1"],"outcome":"reached","state":"launched","unit":"job.service"}
    "#);
    let line = "start --wait finished --wait-timeout 1 db";
    insta::assert_snapshot!(starting.run(line).await, @r#"
    exit 1
    ---
    db.service: timed out: it is active (running) on m1
    fleetctl: db.service is not finished
    help: the desired state stays; "fleetctl status db.service" shows the progress
    "#);
    assert_eq!(starting.run("start --wait sometime web").await.code, 2);
}
