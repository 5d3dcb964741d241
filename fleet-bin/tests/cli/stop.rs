//! `stop`, `unload`, `destroy` and `restart`.

use crate::cluster::Cluster;
use crate::fake_engine::Role;

// Holds: D-36
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unit_is_stopped_unloaded_and_destroyed() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.run("start web").await.ok();
    insta::assert_snapshot!(cluster.run("stop web").await, @r"
    exit 0
    Unit web.service loaded on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run("unload web").await, @r"
    exit 0
    Unit web.service inactive
    ");
    insta::assert_snapshot!(cluster.run("unload web").await, @r"
    exit 0
    Unit web.service inactive
    ");
    insta::assert_snapshot!(cluster.run("stop web").await, @r#"
    exit 1
    ---
    fleetctl: web.service: cannot stop a unit whose desired state is inactive: it is not started
    help: "fleetctl status web.service" shows its state
    "#);
    insta::assert_snapshot!(cluster.run("destroy web").await, @r"
    exit 0
    Destroyed web.service
    ");
    cluster.wait_until(|it| it.unit("web.service").is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_unit_fails_the_command_with_a_suggestion() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "db.service"]);
    cluster.run("start web db").await.ok();
    for command in ["stop", "unload", "restart"] {
        let run = cluster.run(&format!("{command} web bd something-else")).await;
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run}");
        assert_eq!(cluster.desired("web.service").await, "launched");
    }
    insta::assert_snapshot!(cluster.run("stop web bd something-else").await, @r#"
    exit 1
    ---
    fleetctl: bd.service is not known to the cluster
    help: did you mean db.service?
    fleetctl: something-else.service is not known to the cluster
    help: "fleetctl list-unit-files" shows the units that are known
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destroying_an_unknown_unit_succeeds_as_in_v1() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "db.service"]);
    cluster.run("start web db").await.ok();
    insta::assert_snapshot!(cluster.run("destroy web bd something-else").await, @r"
    exit 0
    Destroyed web.service
    ---
    nothing to destroy: bd.service is not known to the cluster
    help: did you mean db.service?
    nothing to destroy: something-else.service is not known to the cluster
    ");
    let json = cluster.run("destroy web -o jsonl").await.ok().stdout;
    assert!(json.contains(r#""outcome":"unchanged","unit":"web.service"}"#), "{json}");
    cluster.run("destroy web --no-block").await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destroying_a_pattern_of_several_units_needs_yes() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["a.service", "b.service", "web.service"]);
    cluster.run("submit a b web").await.ok();
    insta::assert_snapshot!(cluster.run("destroy web ?.service").await, @r"
    exit 1
    ---
    fleetctl: cannot destroy 2 units by a pattern without confirmation: a.service, b.service
    help: add --yes to destroy all of them
    ");
    assert_eq!(cluster.desired("web.service").await, "inactive");
    for line in ["destroy w*", "destroy a.* a.service", "destroy --yes *"] {
        cluster.run(line).await.ok();
    }
    assert_eq!(cluster.run("list-unit-files --no-legend").await.ok().stdout, "");
}

// Holds: D-23
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unplaced_unit_can_be_unloaded() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["a.service", "b.service"]);
    for unit in ["a.service", "b.service"] {
        cluster.roles.set(unit, Role::Unplaceable);
    }
    cluster.run("start --no-block a b").await.ok();
    insta::assert_snapshot!(cluster.run("stop a").await, @r"
    exit 0
    Unit a.service inactive
    ");
    insta::assert_snapshot!(cluster.run("unload b").await, @r"
    exit 0
    Unit b.service inactive
    ");
    let desired = (cluster.desired("a.service").await, cluster.desired("b.service").await);
    assert_eq!(desired, ("loaded".to_owned(), "inactive".to_owned()));
}

// Holds: D-28, D-43
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_waits_for_the_new_run_on_every_machine() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.write("all.service", "[Service]\nExecStart=/bin/sleep 1d\n[X-Fleet]\nGlobal=true\n");
    cluster.run("start web all").await.ok();
    insta::assert_snapshot!(cluster.run("restart web").await, @r"
    exit 0
    Unit web.service restarted on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run("restart all").await, @r"
    exit 0
    Unit all.service restarted on 2 machines
    ");
    let snapshot = cluster.mirror.snapshot();
    for unit in ["web.service", "all.service"] {
        let generation = snapshot.unit(unit).unwrap().generation;
        assert!(generation.0 > 0, "{unit}");
        assert!(snapshot.states_of(unit).all(|state| state.generation == generation), "{unit}");
    }
}

/// Like `systemctl restart`, which starts a stopped unit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_starts_a_loaded_unit() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.run("start web").await.ok();
    cluster.run("stop web").await.ok();
    insta::assert_snapshot!(cluster.run("restart web").await, @r"
    exit 0
    Unit web.service restarted on m1/10.0.0.1
    ");
    assert_eq!(cluster.desired("web.service").await, "launched");
    cluster.run("unload web").await.ok();
    insta::assert_snapshot!(cluster.run("restart web").await, @r#"
    exit 1
    ---
    fleetctl: cannot restart web.service: its desired state is inactive
    help: "fleetctl start web.service" starts it
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_unit_can_only_be_destroyed() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.run("submit web").await.ok();
    cluster.damage("web.service").await;
    let run = cluster.run("unload web").await;
    assert_eq!(run.code, 1, "{run}");
    assert!(
        run.stderr.starts_with("fleetctl: cannot unload web.service, which is broken: "),
        "{run}"
    );
    assert!(run.stderr.contains("help: \"fleetctl destroy web.service\" deletes it"), "{run}");
    cluster.run("destroy web").await.ok();
    assert_eq!(cluster.run("list-unit-files --no-legend").await.ok().stdout, "");
}
