//! `rebalance`: planned moves, waiting and cancelling.

use crate::cluster::Cluster;
use crate::fake_engine::Role;

/// Starts a cluster with all units on the first of two machines.
async fn lopsided() -> Cluster {
    let cluster = Cluster::start(&["m1", "282f949fc0de4711"]).await;
    cluster.run("machine cordon 282f").await.ok();
    cluster.write_sleepers(&["a.service", "b.service", "c.service", "d.service"]);
    cluster.run("start a b c d").await.ok();
    cluster.run("machine uncordon 282f").await.ok();
    cluster
}

fn is_rebalancing(cluster: &Cluster) -> bool {
    cluster.mirror.snapshot().rebalancing.is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_prints_moves_and_changes_nothing() {
    let cluster = lopsided().await;
    insta::assert_snapshot!(cluster.run("rebalance --dry-run").await, @"
    exit 5
    a.service moves from m1 to 282f949f...
    b.service moves from m1 to 282f949f...
    282f949f...: 0 units now, 2 afterwards
    m1: 4 units now, 2 afterwards
    ");
    insta::assert_snapshot!(cluster.run("rebalance --dry-run --max 1 -o json").await, @r#"
    exit 5
    [
      {
        "machines": [
          {
            "after": 1,
            "machineID": "282f949fc0de4711",
            "units": 0
          },
          {
            "after": 3,
            "machineID": "m1",
            "units": 4
          }
        ],
        "moves": [
          {
            "from": "m1",
            "to": "282f949fc0de4711",
            "unit": "a.service"
          }
        ],
        "order": {
          "atOnce": 1,
          "gain": 0,
          "keepUp": 0,
          "most": 1,
          "moved": 0
        }
      }
    ]
    "#);
    let output = cluster.run("rebalance --dry-run --gain 3").await.ok().stdout;
    let reason = "nothing to do: the machines have 0 to 4 units, and no allowed move \
                  would improve the balance\n";
    assert_eq!(output, reason);
    assert!(!is_rebalancing(&cluster));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebalancing_is_awaited_and_cancelled() {
    let cluster = lopsided().await;
    // Nobody moves units in this cluster.
    let line = "rebalance --at-once 2 --wait --wait-timeout 0";
    insta::assert_snapshot!(cluster.run(line).await, @r#"
    exit 1
    a.service moves from m1 to 282f949f...
    b.service moves from m1 to 282f949f...
    282f949f...: 0 units now, 2 afterwards
    m1: 4 units now, 2 afterwards
    ---
    fleetctl: rebalancing has not finished within 0 s: 0 moved, 0 moving, 2 to move
    help: the rebalancing continues; "fleetctl rebalance --stop" cancels it
    "#);
    assert!(is_rebalancing(&cluster));
    insta::assert_snapshot!(cluster.run("rebalance --stop").await, @"
    exit 0
    Rebalancing is cancelled
    ");
    cluster.run("rebalance --stop").await.ok();
    assert!(!is_rebalancing(&cluster));
    cluster.run("rebalance").await.ok();
    assert!(is_rebalancing(&cluster));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_rebalancing_ends_the_wait() {
    let cluster = lopsided().await;
    let stop = async {
        cluster.wait_until(|it| it.rebalancing.is_some()).await;
        cluster.run("rebalance --stop").await.ok();
    };
    let (waited, ()) = tokio::join!(cluster.run("rebalance --at-once 2 --wait"), stop);
    insta::assert_snapshot!(waited, @r#"
    exit 1
    a.service moves from m1 to 282f949f...
    b.service moves from m1 to 282f949f...
    282f949f...: 0 units now, 2 afterwards
    m1: 4 units now, 2 afterwards
    ---
    fleetctl: rebalancing was cancelled: 2 units are left to move
    help: "fleetctl rebalance" moves them
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_rebalancing_ends_the_wait() {
    let cluster = Cluster::start(&["m1", "282f949fc0de4711"]).await;
    cluster.write_sleepers(&["b.service", "c.service"]);
    cluster.roles.set("b.service", Role::FailingBefore(u64::MAX));
    cluster.run("start --no-block b c").await.ok();
    cluster.wait_until(|it| it.states().count() == 2).await;
    cluster.store_rebalancing("282f949fc0de4711", "m1", &["b.service"]).await;
    insta::assert_snapshot!(cluster.run("rebalance --wait").await, @r#"
    exit 1
    b.service is moving to m1: it is failed (failed)
    b.service moves from m1 to 282f949f...
    282f949f...: 0 units now, 1 afterwards
    m1: 2 units now, 1 afterwards
    ---
    fleetctl: rebalancing is stuck: 1 moved, 1 moving, 1 to move
    help: b.service on m1: it is failed (failed)
    help: without these obstacles, the rebalancing continues; "fleetctl rebalance --stop" cancels it
    "#);
    assert!(is_rebalancing(&cluster), "it continues when the unit is fixed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_to_do_starts_no_rebalancing() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    insta::assert_snapshot!(cluster.run("rebalance --wait").await, @r"
    exit 0
    nothing to do: each machine has 0 units
    ");
    assert!(!is_rebalancing(&cluster));
}

/// The limit is smaller than each pair of co-located units.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebalancing_without_moves_is_not_cancelled() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.run("machine cordon m2").await.ok();
    for (one, other) in [("a", "b"), ("c", "d")] {
        cluster.write(&format!("{one}.service"), "[Service]\nExecStart=/bin/sleep 1d\n");
        let with = format!("[X-Fleet]\nMachineOf={one}.service\n");
        let text = format!("[Service]\nExecStart=/bin/sleep 1d\n{with}");
        cluster.write(&format!("{other}.service"), &text);
    }
    cluster.run("start a b c d").await.ok();
    cluster.run("machine uncordon m2").await.ok();
    let both = cluster.run("rebalance --dry-run --at-once 2").await;
    assert_eq!(both.code, 5, "there is something to move: {both}");
    let run = cluster.run("rebalance --at-once 2 --max 1 --wait").await.ok();
    assert!(run.stdout.starts_with("nothing to do: "), "{run}");
    assert!(!is_rebalancing(&cluster));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_units_do_not_make_rebalancing_look_cancelled() {
    let cluster = lopsided().await;
    cluster.write_sleepers(&["e.service", "f.service", "g.service", "h.service"]);
    let carry_out = async {
        cluster.wait_until(|it| it.rebalancing.is_some()).await;
        cluster.run("start e f g h").await.ok();
        cluster.carry_out("m1", "282f949fc0de4711", &["a.service", "b.service"]).await;
    };
    let (waited, ()) = tokio::join!(cluster.run("rebalance --max 2 --wait"), carry_out);
    insta::assert_snapshot!(waited, @"
    exit 0
    a.service moves from m1 to 282f949f...
    b.service moves from m1 to 282f949f...
    282f949f...: 0 units now, 2 afterwards
    m1: 4 units now, 2 afterwards
    ---
    Rebalancing is complete; 2 more units could move
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradicting_options_are_usage_errors() {
    let cluster = Cluster::start(&["m1"]).await;
    for line in ["--at-once 0", "--at-once 101", "--max 0", "--stop --wait", "--dry-run --wait"] {
        assert_eq!(cluster.run(&format!("rebalance {line}")).await.code, 2, "{line}");
    }
}
