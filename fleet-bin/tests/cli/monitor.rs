//! `logs`, `events` and `doctor`.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::cluster::Cluster;
use crate::fake_engine::Role;
use crate::fleetctl::{DEADLINE, Fleetctl, command};

const GLOBAL: &str = "[Service]\nExecStart=/bin/sleep 1d\n[X-Fleet]\nGlobal=true\n";

/// Returns the first lines of a run that never ends.
async fn first_lines(cluster: &Cluster, line: &str, count: usize) -> Vec<String> {
    let mut command = command(cluster.folder(), &cluster.endpoint(), line);
    let mut fleetctl = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(fleetctl.stdout.take().unwrap()).lines();
    let mut read = Vec::new();
    while read.len() < count {
        let next = tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap();
        read.push(next.expect("stdout is open"));
    }
    fleetctl.kill().await.unwrap();
    read
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_label_lines_with_units_and_machines() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write_sleepers(&["web.service", "db.service", "idle.service"]);
    cluster.write("all.service", GLOBAL);
    cluster.run("start web db all").await.ok();
    cluster.run("submit idle").await.ok();
    insta::assert_snapshot!(cluster.run("logs web -n 1").await, @r"
    exit 0
    web.service on m1: 1
    ");
    insta::assert_snapshot!(cluster.run("logs web db -n 2").await, @r"
    exit 0
    web.service: web.service on m1: 1
    web.service: web.service on m1: 2
    db.service: db.service on m1: 1
    db.service: db.service on m1: 2
    ");
    insta::assert_snapshot!(cluster.run("logs * -n 1").await, @r"
    exit 0
    all.service on m1: all.service on m1: 1
    all.service on m2: all.service on m2: 1
    db.service on m1: db.service on m1: 1
    web.service on m1: web.service on m1: 1
    ");
    insta::assert_snapshot!(cluster.run("logs web all --machine m2 -o jsonl -n 1").await, @r#"
    exit 0
    {"line":"all.service on m2: 1","machine":"m2","unit":"all.service"}
    "#);
    insta::assert_snapshot!(cluster.run("logs --since 10min web").await, @r"
    exit 0
    web.service on m1: 1, at most 600s old
    web.service on m1: 2, at most 600s old
    web.service on m1: 3, at most 600s old
    web.service on m1: 4, at most 600s old
    ");
    insta::assert_snapshot!(cluster.run("logs idle").await, @r#"
    exit 1
    ---
    idle.service is on no machine
    fleetctl: no journal to read: no machine has idle
    help: "fleetctl list-units" shows which unit is on which machine
    "#);
    // An unknown unit does not hide the logs of others.
    insta::assert_snapshot!(cluster.run("logs wbe db").await, @r"
    exit 1
    db.service on m1: 1
    db.service on m1: 2
    db.service on m1: 3
    ---
    fleetctl: wbe.service is not known to the cluster
    help: did you mean web.service?
    ");
    insta::assert_snapshot!(cluster.run("logs -f web -o json").await, @"
    exit 2
    ---
    fleetctl: followed logs have no end, so they cannot be one JSON document
    help: use -o jsonl, which prints one document per line
    ");
    insta::assert_snapshot!(cluster.run("journal -f web -o json").await, @"
    exit 2
    ---
    fleetctl: followed journals have no end, so they cannot be one JSON document
    help: use -o jsonl, which prints one document per line
    ");
    let mut followed = first_lines(&cluster, "logs -f -n 2 web db", 4).await;
    followed.sort();
    assert_eq!(followed[3], "web.service: web.service on m1: 2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_logs_are_ordered_by_time() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["even.service", "odd.service"]);
    cluster.run("start even odd").await.ok();
    insta::assert_snapshot!(cluster.run("logs even odd -n 2").await, @r"
    exit 0
    Jan 01 00:00:00 odd.service: odd.service on m1: 1
    Jan 01 00:00:00 even.service: even.service on m1: 1
    Jan 01 00:00:00 odd.service: odd.service on m1: 2
    Jan 01 00:00:00 even.service: even.service on m1: 2
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_document_keeps_results_before_an_error() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["cut.service"]);
    cluster.run("start cut").await.ok();
    let run = cluster.run("journal cut -o json").await;
    let lines: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, lines[0]["line"].as_str()), (1, Some("cut.service on m1: 1")), "{run}");
    let help = "help: \"fleetctl status cut.service\" shows its machine, and \"fleetctl doctor\" \
                reports problems there; then try again\n";
    assert!(run.stderr.ends_with(help), "{run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_logs_do_not_hide_others() {
    let cluster = Cluster::start(&["m1", "far"]).await;
    cluster.write("all.service", GLOBAL);
    cluster.run("start all").await.ok();
    let run = cluster.run("logs all -n 1").await;
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (1, "all.service on m1: all.service on m1: 1\n"),
        "{run}"
    );
    assert!(run.stderr.contains("the journal is on machine far"), "{run}");
}

/// The command used to wait without limit, and printed no other lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_journal_is_named_and_delays_no_other() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["even.service", "slow.service"]);
    cluster.run("start even slow").await.ok();
    insta::assert_snapshot!(cluster.run("logs even slow -n 1").await, @r#"
    exit 1
    slow.service: slow.service on m1: 1
    Jan 01 00:00:00 even.service: even.service on m1: 1
    ---
    fleetctl: stopped reading the journal of slow.service on m1: no line arrived for 5 seconds
    help: "fleetctl journal slow.service" reads it without a time limit
    "#);
}

/// Removes the times of lines, such as `Nov 28 17:40:02`.
fn undated(text: &str) -> String {
    let is_dated = |line: &&str| line.get(9..10) == Some(":") && line.get(12..13) == Some(":");
    let undated = |line| if is_dated(&line) { &line[16..] } else { line };
    text.lines().map(undated).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_resume_after_the_last_id() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "db.service"]);
    let first = cluster.run("events -n 1 -o jsonl").await.ok().stdout;
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first["event"], "resync");
    let since = first["id"].as_str().expect("an id to resume from").to_owned();
    cluster.run("start web db").await.ok();
    cluster.run("destroy web").await.ok();
    let line = format!("events --since {since} --unit web -n 1");
    insta::assert_snapshot!(undated(&cluster.run(&line).await.to_string()), @"
    exit 0
    unit web.service: gone
    ");
    let names = cluster.run(&format!("events --since {since} -n 4 -o name")).await.ok().stdout;
    assert!(names.contains("db.service"), "{names}");
    let line = format!("events --since {since} --machine m1 --unit db -n 2");
    insta::assert_snapshot!(undated(&cluster.run(&line).await.to_string()), @"
    exit 0
    unit db.service: desired launched, current launched on m1
    state db.service on m1: active (running)
    ");
    insta::assert_snapshot!(cluster.run("events --since noon").await, @r#"
    exit 1
    ---
    fleetctl: cannot follow the events: invalid event ID "noon": use the ID of a received event
    "#);
    assert_eq!(cluster.run("events -o json").await.code, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followed_logs_report_missing_journals_at_once() {
    let cluster = Cluster::start(&["far", "m1"]).await;
    cluster.write("all.service", GLOBAL);
    cluster.run("start all").await.ok();
    let mut command = command(cluster.folder(), &cluster.endpoint(), "logs -f all");
    let mut fleetctl = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(fleetctl.stderr.take().unwrap()).lines();
    let warning = tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap();
    let warning = warning.expect("stderr is open");
    assert!(warning.starts_with("warning: cannot read the journal of all.service: "), "{warning}");
    assert!(warning.contains("far"), "{warning}");
    fleetctl.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_prints_problems_and_remedies() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    let other = "warning: fleetctl has version";
    let healthy = cluster.run("doctor").await;
    assert_eq!(healthy.code, 0, "{healthy}");
    assert!(healthy.stdout.starts_with(other), "{healthy}");
    cluster.write_sleepers(&["bad.service", "lost.service", "odd.service"]);
    cluster.roles.set("bad.service", Role::FailingBefore(u64::MAX));
    cluster.roles.set("lost.service", Role::Unplaceable);
    cluster.roles.set("odd.service", Role::Unsupported);
    cluster.run("start --no-block bad lost odd").await.ok();
    cluster.run("machine cordon m2").await.ok();
    cluster.wait_until(|it| it.states().count() == 2 && it.reason("lost.service").is_some()).await;
    let unhealthy = cluster.run("doctor").await;
    let output = unhealthy.to_string().replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!(output, @r#"
    exit 1
    problem: bad.service failed on m1/10.0.0.1: exit-code, exited with status 3
       help: see "fleetctl logs bad.service"; "fleetctl start bad.service" tries again
    problem: lost.service has no machine: no machine is present
       help: "fleetctl explain lost.service" shows the verdict of each machine
    problem: odd.service cannot run on m1/10.0.0.1: PrivateNetwork= needs systemd
       help: fix its unit file, then "fleetctl apply FILE"
    warning: fleetctl has version VERSION, and fleetd 1.2.3
       help: install both from one release: they may be incompatible
    warning: m2/10.0.0.2 is cordoned
       help: run "fleetctl machine uncordon m2" after its maintenance
    ---
    3 problems, 2 warnings
    "#);
    let names = cluster.run("doctor -o name").await;
    assert_eq!((names.code, names.stdout.lines().count()), (1, 5), "{names}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_prints_stuck_rebalancing() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write_sleepers(&["bad.service", "good.service"]);
    cluster.roles.set("bad.service", Role::FailingBefore(u64::MAX));
    cluster.run("start --no-block bad good").await.ok();
    cluster.wait_until(|it| it.states().count() == 2).await;
    cluster.store_rebalancing("m2", "m1", &["bad.service", "good.service"]).await;
    let output = cluster.run("doctor").await.stdout.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!(output, @r#"
    problem: bad.service failed on m1/10.0.0.1: exit-code, exited with status 3
       help: see "fleetctl logs bad.service"; "fleetctl start bad.service" tries again
    problem: rebalancing waits for bad.service on m1/10.0.0.1: it is failed (failed)
       help: see "fleetctl logs bad.service", or cancel with "fleetctl rebalance --stop"
    warning: fleetctl has version VERSION, and fleetd 1.2.3
       help: install both from one release: they may be incompatible
    "#);
}

#[tokio::test]
async fn doctor_prints_unreachable_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let run = Fleetctl::run(folder.path(), "unix:///none/f.sock", "doctor").await;
    insta::assert_snapshot!(run, @r#"
    exit 1
    problem: no fleetd answers at unix:///none/f.sock: No such file or directory (os error 2)
       help: start one ("systemctl start fleet" or "fleetd dev"), or set the --endpoint of another
    ---
    1 problem, 0 warnings
    "#);
}
