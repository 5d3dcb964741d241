//! `submit`, `load` and `start`.

use fleet_http::client::StateFilter;

use crate::cluster::Cluster;
use crate::fleetctl::Fleetctl;

const TWO: &[&str] = &["m1", "m2"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submit_load_and_start_print_as_v1() {
    let cluster = Cluster::start(TWO).await;
    cluster.write_sleepers(&["web.service"]);
    insta::assert_snapshot!(cluster.run("submit web").await, @r"
    exit 0
    Unit web.service inactive
    ");
    // Submitting again changes and prints nothing.
    insta::assert_snapshot!(cluster.run("submit web").await, @"exit 0");
    insta::assert_snapshot!(cluster.run("load web").await, @r"
    exit 0
    Unit web.service loaded on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run("start web").await, @r"
    exit 0
    Unit web.service launched on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run("start web -o jsonl").await, @r#"
    exit 0
    {"action":"start","machines":["m1"],"outcome":"reached","state":"launched","unit":"web.service"}
    "#);
    insta::assert_snapshot!(cluster.run("submit web -o json").await, @r#"
    exit 0
    [
      {
        "action": "submit",
        "machines": [
          "m1"
        ],
        "outcome": "unchanged",
        "state": "launched",
        "unit": "web.service"
      }
    ]
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_unknown_units_start_in_one_command() {
    let cluster = Cluster::start(TWO).await;
    cluster.write_sleepers(&["a.service", "b.service", "c.timer"]);
    let run = cluster.run("start -o name a b.service c.timer").await.ok();
    let mut names: Vec<_> = run.stdout.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["a.service", "b.service", "c.timer"]);
}

/// All runs miss the units, and all but one find them created meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_starts_of_the_same_units_succeed() {
    let cluster = Cluster::start(TWO).await;
    let names: Vec<_> = (0..16).map(|number| format!("web-{number}.service")).collect();
    cluster.write_sleepers(&names.iter().map(|name| &**name).collect::<Vec<_>>());
    let start = format!("start -o name {}", names.join(" "));
    for run in futures_util::future::join_all((0..4).map(|_| cluster.run(&start))).await {
        assert_eq!(run.ok().stdout.lines().count(), names.len());
    }
}

/// All units are checked together, and none is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependency_cycle_among_uploads_is_refused() {
    let cluster = Cluster::start(TWO).await;
    cluster.write_sleepers(&["c.service", "d.service"]);
    let beside =
        |peer: &str| format!("[Service]\nExecStart=/bin/a\n[X-Fleet]\nMachineOf={peer}.service\n");
    cluster.write("a.service", &beside("b"));
    cluster.write("b.service", &beside("a"));
    let run = cluster.run("start a b c d").await;
    assert!(
        run.code == 1 && run.stderr.contains("dependency cycle: b.service -> a.service"),
        "{run}"
    );
    assert_eq!(cluster.run("list-unit-files -o name").await.stdout, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_block_only_triggers() {
    let cluster = Cluster::start(&[]).await;
    cluster.write_sleepers(&["web.service"]);
    insta::assert_snapshot!(cluster.run("start --no-block web").await, @r"
    exit 0
    Triggered unit web.service start
    ");
    assert_eq!(cluster.desired("web.service").await, "launched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_uses_local_or_cluster_template() {
    let cluster = Cluster::start(TWO).await;
    cluster.write("web@.service", "# a template\n[Service]\nExecStart=/bin/web %i\n");
    cluster.run("start web@1").await.ok();
    assert_eq!(
        cluster.run("cat web@1").await.stdout,
        "# a template\n[Service]\nExecStart=/bin/web %i\n"
    );

    cluster.run("submit web@").await.ok();
    std::fs::remove_file(cluster.folder().join("web@.service")).unwrap();
    cluster.run("start web@2").await.ok();
    assert_eq!(
        cluster.run("cat web@2").await.stdout,
        "# a template\n[Service]\nExecStart=/bin/web %i\n"
    );
    let template = cluster.run("start web@").await;
    insta::assert_snapshot!(template, @r"
    exit 1
    ---
    fleetctl: cannot start web@.service: it is a template
    help: start an instance of it, such as web@1.service
    ");
    insta::assert_snapshot!(cluster.run("start other@1").await, @r"
    exit 1
    ---
    fleetctl: other@1.service is not known to the cluster, and there is no file other@1.service
    help: write that file, or submit its template other@.service
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_file_errors_are_reported_before_upload() {
    let cluster = Cluster::start(TWO).await;
    cluster.write_sleepers(&["good.service"]);
    cluster.write("web.service", "[Service]\nExecStart=/bin/web\n[Install\nAlias=a\n");
    cluster.write("db.service", "[X-Fleet]\nConflict=web*\nMachineID=1a2b3c4d\n");
    insta::assert_snapshot!(cluster.run("start good web db").await, @r#"
    exit 1
    ---
    web.service:3:1: section header without "]" at its end in "[Install" [U0003]
    help: write [Section], and put further text on the next line
    db.service:2:1: [X-Fleet] has no option "Conflict"
    help: write Conflicts, spelled exactly so
    db.service:3:11: MachineID=1a2b3c4d is only the beginning of a machine ID
    help: write the entire ID, as "fleetctl list-machines --full" prints it
    fleetctl: nothing was sent: 2 unit files have errors
    "#);
    let bad_name = cluster.run("submit good bad!name").await;
    assert_eq!(bad_name.code, 1, "{bad_name}");
    let expected = "fleetctl: invalid unit \"bad!name\": unit name \"bad!name.service\" has ";
    assert!(bad_name.stderr.starts_with(expected), "{bad_name}");
    assert_eq!(cluster.run("submit good nothing").await.code, 1);
    assert_eq!(cluster.desired("good.service").await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_file_causes_a_warning_as_in_v1() {
    let cluster = Cluster::start(TWO).await;
    cluster.write_sleepers(&["web.service", "other.service"]);
    cluster.run("start web").await.ok();
    cluster.write("web.service", "[Service]\nExecStart=/bin/new\n");
    for line in ["start other web", "submit web"] {
        let run = cluster.run(line).await.ok();
        let warning = "warning: web.service (hash 6384608) is not used: it differs from \
                       web.service in the cluster (hash 6cff462)\n\
                       help: add --replace to use web.service\n\
                       help: \"fleetctl cat web.service\" shows the cluster's file\n";
        assert_eq!(run.stderr, warning, "{line}");
        assert_eq!(cluster.desired("web.service").await, "launched", "{line}");
        assert!(cluster.run("cat web").await.stdout.contains("sleep"), "{line}");
    }
    assert_eq!(cluster.desired("other.service").await, "launched");
    insta::assert_snapshot!(cluster.run("submit --replace web").await, @r#"
    exit 1
    ---
    fleetctl: cannot submit a different web.service while its desired state is launched
    help: "fleetctl start --replace web.service" replaces the file and keeps that desired state
    "#);
    assert!(cluster.run("cat web").await.stdout.contains("sleep"));

    insta::assert_snapshot!(cluster.run("start --replace web").await, @r"
    exit 0
    Unit web.service launched on m1/10.0.0.1
    ");
    assert!(cluster.run("cat web").await.stdout.contains("/bin/new"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_side_errors_are_printed() {
    let cluster = Cluster::start(TWO).await;
    cluster.write("a.service", "[X-Fleet]\nMachineOf=b.service\n");
    cluster.write("b.service", "[X-Fleet]\nMachineOf=a.service\n");
    let run: Fleetctl = cluster.run("start a b").await;
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("cannot start 2 units: b.service: MachineOf"), "{run}");
    assert_eq!(cluster.run("list-unit-files -o name").await.stdout, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_a_failed_unit_retries() {
    let cluster = Cluster::start(TWO).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.roles.set("web.service", crate::fake_engine::Role::FailingBefore(1));
    insta::assert_snapshot!(cluster.run("start web").await, @r#"
    exit 1
    ---
    web.service: failed on m1: exited with status 3, result exit-code
      | web.service on m1: 1
      | web.service on m1: 2
      | web.service on m1: 3
    fleetctl: web.service is not active
    help: correct the cause, then "fleetctl start web.service" tries again
    "#);
    insta::assert_snapshot!(cluster.run("start web").await, @r"
    exit 0
    Unit web.service launched on m1/10.0.0.1
    ");
}

/// Regression: the command printed "launched" and did nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_a_unit_that_was_stopped_by_hand_starts_it() {
    let cluster = Cluster::start(TWO).await;
    cluster.write_sleepers(&["web.service", "job.service"]);
    cluster.roles.set("web.service", crate::fake_engine::Role::StoppedBefore(1));
    cluster.roles.set("job.service", crate::fake_engine::Role::Finishing);
    cluster.run("start web job").await.ok();
    let doctor = cluster.run("doctor").await;
    let remedy = "problem: web.service was stopped on m1/10.0.0.1, but not by fleet, which leaves \
                  it so\n   help: \"fleetctl start web.service\" starts it again\n";
    assert!(doctor.code == 1 && doctor.stdout.starts_with(remedy), "{doctor}");
    insta::assert_snapshot!(cluster.run("start web").await, @r"
    exit 0
    Unit web.service launched on m1/10.0.0.1
    ");
    let web = StateFilter::default().with_unit("web.service");
    let states = cluster.client().states(&web).await.unwrap();
    assert!(states[0].systemd_active_state == "active" && states[0].generation > 0, "{states:?}");
    let again = cluster.run("start web job").await.ok();
    assert_eq!(
        again.stderr,
        "job.service is not running: it has ended, or was stopped on its machine\n\
         help: \"fleetctl restart job.service\" runs it again\n"
    );
}

/// Regression: the command did nothing, although its own error named it as the remedy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_a_skipped_unit_tries_again() {
    let cluster = Cluster::start(TWO).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.roles.set("web.service", crate::fake_engine::Role::SkippedBefore(1));
    insta::assert_snapshot!(cluster.run("start web").await, @r"
    exit 0
    Unit web.service launched on m1, but was skipped: its condition does not hold
    ");
    insta::assert_snapshot!(cluster.run("start web").await, @r"
    exit 0
    Unit web.service launched on m1/10.0.0.1
    ");
}

/// Regression: the command said that the unit has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_a_waiting_unit_again_says_nothing() {
    let cluster = Cluster::start(TWO).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.roles.set("web.service", crate::fake_engine::Role::Waiting);
    cluster.run("start --no-block web").await.ok();
    cluster.wait_until(|snapshot| snapshot.state("web.service", "m1").is_some()).await;
    let again = cluster.run("start --no-block web").await.ok();
    assert_eq!((&*again.stdout, &*again.stderr), ("Triggered unit web.service start\n", ""));
}
