//! `rebalance`: what would move, and how the order is given, looked at and taken back.

use crate::cluster::Cluster;
use crate::puppet::Role;

/// All units came before the second machine took any.
async fn lopsided() -> Cluster {
    let cluster = Cluster::start(&["m1", "282f949fc0de4711"]).await;
    cluster.run("machine cordon 282f").await.ok();
    cluster.write_sleepers(&["a.service", "b.service", "c.service", "d.service"]);
    cluster.run("start a b c d").await.ok();
    cluster.run("machine uncordon 282f").await.ok();
    cluster
}

fn is_ordered(cluster: &Cluster) -> bool {
    cluster.mirror.snapshot().rebalancing.is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_move_is_told_and_nothing_is_changed() {
    let cluster = lopsided().await;
    insta::assert_snapshot!(cluster.run("rebalance --dry-run").await, @r"
    exit 5
    a.service moves from m1 to 282f949f...
    b.service moves from m1 to 282f949f...
    282f949f... has 0 units, and then 2
    m1 has 4 units, and then 2
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
    let told = cluster.run("rebalance --dry-run --gain 3").await.ok().stdout;
    let reason = "nothing to do: the machines have from 0 to 4 units, and no unit may move to \
                  where that would be worth it\n";
    assert_eq!(told, reason);
    assert!(!is_ordered(&cluster));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_waited_for_and_taken_back() {
    let cluster = lopsided().await;
    // Nobody moves units in this cluster.
    let line = "rebalance --at-once 2 --wait --wait-timeout 0";
    insta::assert_snapshot!(cluster.run(line).await, @r#"
    exit 1
    a.service moves from m1 to 282f949f...
    b.service moves from m1 to 282f949f...
    282f949f... has 0 units, and then 2
    m1 has 4 units, and then 2
    ---
    fleetctl: the units are not spread yet: 0 moved, 0 under way, 2 to move
    help: it goes on; "fleetctl rebalance --stop" leaves the others where they are
    "#);
    assert!(is_ordered(&cluster));
    insta::assert_snapshot!(cluster.run("rebalance --stop").await, @r"
    exit 0
    No unit is moved for the sake of balance any more
    ");
    cluster.run("rebalance --stop").await.ok();
    assert!(!is_ordered(&cluster));
    cluster.run("rebalance").await.ok();
    assert!(is_ordered(&cluster));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_is_told_that_the_order_was_taken_back() {
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
    282f949f... has 0 units, and then 2
    m1 has 4 units, and then 2
    ---
    fleetctl: somebody took the order to rebalance back: 2 units are left
    help: "fleetctl rebalance" goes on with them
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_what_cannot_come_by_itself_is_told_so() {
    let cluster = Cluster::start(&["m1", "282f949fc0de4711"]).await;
    cluster.write_sleepers(&["b.service", "c.service"]);
    cluster.play.cast("b.service", Role::FailingBefore(u64::MAX));
    cluster.run("start --no-block b c").await.ok();
    cluster.wait_until(|it| it.states().count() == 2).await;
    cluster.order_moves("282f949fc0de4711", "m1", &["b.service"]).await;
    insta::assert_snapshot!(cluster.run("rebalance --wait").await, @r#"
    exit 1
    b.service is under way to m1: it is failed (failed)
    b.service moves from m1 to 282f949f...
    282f949f... has 0 units, and then 1
    m1 has 2 units, and then 1
    ---
    fleetctl: the order to rebalance does not go on by itself: 1 moved, 1 under way, 1 to move
    help: b.service on m1: it is failed (failed)
    help: mend that and it goes on; "fleetctl rebalance --stop" leaves the others where they are
    "#);
    assert!(is_ordered(&cluster), "it goes on when the unit is mended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nothing_is_to_be_done_nothing_is_ordered_or_waited_for() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    insta::assert_snapshot!(cluster.run("rebalance --wait").await, @r"
    exit 0
    nothing to do: each machine has 0 units
    ");
    assert!(!is_ordered(&cluster));
}

/// The bound is less than the two that only move together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_moves_nobody_is_not_one_that_was_taken_back() {
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
    assert!(!is_ordered(&cluster));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_that_come_while_an_order_is_carried_out_do_not_make_it_one_that_was_taken_back() {
    let cluster = lopsided().await;
    cluster.write_sleepers(&["e.service", "f.service", "g.service", "h.service"]);
    let carry_out = async {
        cluster.wait_until(|it| it.rebalancing.is_some()).await;
        cluster.run("start e f g h").await.ok();
        cluster.carry_out("m1", "282f949fc0de4711", &["a.service", "b.service"]).await;
    };
    let (waited, ()) = tokio::join!(cluster.run("rebalance --max 2 --wait"), carry_out);
    insta::assert_snapshot!(waited, @r"
    exit 0
    a.service moves from m1 to 282f949f...
    b.service moves from m1 to 282f949f...
    282f949f... has 0 units, and then 2
    m1 has 4 units, and then 2
    ---
    The order is carried out, and 2 more could be moved
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_meant_is_a_mistake_of_the_command_line() {
    let cluster = Cluster::start(&["m1"]).await;
    for line in ["--at-once 0", "--at-once 101", "--max 0", "--stop --wait", "--dry-run --wait"] {
        assert_eq!(cluster.run(&format!("rebalance {line}")).await.code, 2, "{line}");
    }
}
