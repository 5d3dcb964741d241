//! Waiting: what is told meanwhile, and how it ends.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::cluster::Cluster;
use crate::fleetctl::{DEADLINE, Fleetctl, command};
use crate::puppet::Role;

async fn cluster(role: Role) -> Cluster {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.play.cast("web.service", role);
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_no_machine_takes_ends_the_wait_with_the_reason() {
    let cluster = cluster(Role::Unplaceable).await;
    insta::assert_snapshot!(cluster.run("start web").await, @r#"
    exit 1
    ---
    web.service: waiting: no machine is present
    fleetctl: web.service is not active
    help: the desired state stays; "fleetctl status web.service" shows how it goes on
    "#);
    assert_eq!(cluster.desired("web.service").await, "launched");
}

// Holds: D-42
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_unit_that_fails_does_not_hide_another_that_runs() {
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
    help: the desired state stays; "fleetctl status" shows how a unit goes on
    "#);
}

/// So many are looked at in lists, which do not show where a unit for every machine may run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_units_each_is_told_of_as_if_it_were_alone() {
    let cluster = cluster(Role::FailingBefore(u64::MAX)).await;
    let names: Vec<_> = (10..60).map(|number| format!("many{number}.service")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    cluster.write_sleepers(&names);
    cluster.write("all.service", "[Service]\nExecStart=/bin/a\n[X-Fleet]\nGlobal=true\n");
    cluster.play.cast("many40.service", Role::Unplaceable);
    cluster.play.cast("all.service", Role::Ignored);
    let args = format!("start -o name --wait-timeout 4 all web {}", names.join(" "));
    let run = cluster.run(&args).await;
    let mut told: Vec<_> = run.stdout.lines().collect();
    told.sort_unstable();
    let mut all = names.clone();
    all.extend(["all.service", "web.service"]);
    all.sort_unstable();
    assert_eq!(told, all, "{run}");
    // It is told once it is clear that it stays, and others go on meanwhile.
    let waits = "many40.service: waiting: no machine is present\n";
    assert_eq!(run.stderr.matches(waits).count(), 1, "{run}");
    insta::assert_snapshot!(run.stderr.replace(waits, ""), @r#"
    web.service: failed on m1: exited with status 3, result exit-code
      | web.service on m1: 1
      | web.service on m1: 2
      | web.service on m1: 3
    all.service: not in time: no machine has loaded it yet
    fleetctl: 3 of 52 units are not active
    help: the desired state stays; "fleetctl status" shows how a unit goes on
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_its_machine_cannot_do_is_told() {
    insta::assert_snapshot!(cluster(Role::Unsupported).await.run("start web").await, @r#"
    exit 1
    ---
    web.service: not loaded on m1: bad-setting: PrivateNetwork= needs systemd
      | web.service on m1: 1
      | web.service on m1: 2
      | web.service on m1: 3
    fleetctl: web.service is not active
    help: the desired state stays; "fleetctl status web.service" shows how it goes on
    "#);
}

// Holds: D-42
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_ends_well_has_started() {
    insta::assert_snapshot!(cluster(Role::Finishing).await.run("start web").await, @r"
    exit 0
    Unit web.service launched on m1/10.0.0.1
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_time_is_up_it_is_said_what_was_waited_for() {
    let starting = cluster(Role::Starting).await;
    starting.run("start --no-block web").await.ok();
    starting.wait_until(|it| it.states_of("web.service").count() == 1).await;
    insta::assert_snapshot!(starting.run("start --wait-timeout 0 web").await, @r#"
    exit 1
    ---
    web.service: not in time: it is activating (start-pre) on m1
    fleetctl: web.service is not active
    help: the desired state stays; "fleetctl status web.service" shows how it goes on
    "#);
    let ignored = cluster(Role::Ignored).await;
    ignored.run("load --no-block web").await.ok();
    ignored.wait_until(|it| it.placement("web.service").is_some()).await;
    insta::assert_snapshot!(ignored.run("load --wait-timeout 0 web").await, @r#"
    exit 1
    ---
    web.service: not in time: m1 has not loaded it yet
    fleetctl: web.service is not loaded
    help: the desired state stays; "fleetctl status web.service" shows how it goes on
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_global_unit_is_waited_for_on_the_machines_that_it_fits() {
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
    none.service: waiting: no machine that is present fits it
    fleetctl: none.service is not active
    help: the desired state stays; "fleetctl status none.service" shows how it goes on
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_the_wait_and_leaves_what_was_asked_for() {
    let cluster = cluster(Role::Unplaceable).await;
    let mut command = command(cluster.folder(), &cluster.endpoint(), "start web");
    let mut fleetctl = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(fleetctl.stderr.take().unwrap()).lines();
    // From here on it waits, and listens for the signal.
    let first = tokio::time::timeout(DEADLINE, stderr.next_line()).await.unwrap().unwrap();
    assert_eq!(first.unwrap(), "web.service: waiting: no machine is present");
    let pid = Pid::from_raw(fleetctl.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let second = tokio::time::timeout(DEADLINE, stderr.next_line()).await.unwrap().unwrap();
    assert_eq!(second.unwrap(), "fleetctl: interrupted; what was asked for stays asked for");
    let ended = tokio::time::timeout(DEADLINE, fleetctl.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(130));
    assert_eq!(cluster.desired("web.service").await, "launched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_without_limit_still_ends_when_nothing_more_can_come() {
    let cluster = cluster(Role::Unplaceable).await;
    let run: Fleetctl = cluster.run("start --block-attempts 0 web").await;
    assert_eq!(run.code, 1, "{run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_is_waited_for_as_far_as_it_is_said() {
    let starting = cluster(Role::Starting).await;
    insta::assert_snapshot!(starting.run("start --wait loaded web").await, @r"
    exit 0
    Unit web.service loaded on m1/10.0.0.1
    ");
    starting.write_sleepers(&["job.service", "db.service"]);
    starting.play.cast("job.service", Role::Finishing);
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
    db.service: not in time: it is active (running) on m1
    fleetctl: db.service is not finished
    help: the desired state stays; "fleetctl status db.service" shows how it goes on
    "#);
    assert_eq!(starting.run("start --wait sometime web").await.code, 2);
}
