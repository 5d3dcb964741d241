//! `machine`: show, cordon and drain.

use fleet_core::Intent;

use crate::cluster::Cluster;

async fn cluster() -> Cluster {
    let cluster = Cluster::start(&["m1", "282f949fc0de4711"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.write("here.service", "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineID=m1\n");
    cluster.write("all.service", "[Service]\nExecStart=/bin/true\n[X-Fleet]\nGlobal=true\n");
    cluster.run("start all here web").await.ok();
    cluster
}

/// Reason for refusing `here.service` on all other machines.
const WHY: &str = "none of 2 machines fits: Cordon refuses 1 (m1: it is cordoned and accepts \
                   no new units); MachineID refuses 1 (282f949f: the unit requires machine m1); \
                   nearest is 282f949f: the unit requires machine m1";

/// Runs a command, and abbreviates that reason in its output.
async fn run(cluster: &Cluster, line: &str) -> String {
    cluster.run(line).await.to_string().replace(WHY, "(why)")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machine_show_prints_units_and_drain() {
    let cluster = cluster().await;
    insta::assert_snapshot!(run(&cluster, "machine show m1").await, @r"
    exit 0
    m1
       Address: 10.0.0.1
       Version: 1.2.3
      Metadata: rack=r1
          Unit: all.service: active (running)
          Unit: here.service: active (running)
          Unit: web.service: active (running)
    ");
    insta::assert_snapshot!(run(&cluster, "machine drain m1 --dry-run").await, @r"
    exit 5
    web.service moves to 282f949f...
    here.service stays for now: (why)
    all.service stays: it is global
    ");
    insta::assert_snapshot!(cluster.run("list-machines --fields machine,intent").await, @r"
    exit 0
    MACHINE→→INTENT
    282f949f...→-
    m1→→-
    ");
    insta::assert_snapshot!(run(&cluster, "machine drain m1 --keep-up 2").await, @r"
    exit 0
    web.service moves to 282f949f...
    here.service stays for now: (why)
    all.service stays: it is global
    ");
    insta::assert_snapshot!(run(&cluster, "machine show m1").await, @"
    exit 0
    m1
       Address: 10.0.0.1
       Version: 1.2.3
      Metadata: rack=r1
        Intent: drained, keeping 2 instances of each template up
          Unit: all.service: active (running)
          Unit: here.service: active (running)
          Unit: web.service: active (running)
    web.service moves to 282f949f...
    here.service stays for now: (why)
    all.service stays: it is global
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_prints_why_a_unit_stays_on_a_drained_machine() {
    let cluster = cluster().await;
    cluster.run("machine drain m1").await.ok();
    insta::assert_snapshot!(run(&cluster, "status -n 0 here web").await, @r"
    exit 0
    here.service
          Hash: d86b6bb
       Desired: launched
       Current: launched
       Machine: m1/10.0.0.1
        Loaded: loaded
        Active: active (running)
      Main PID: 4711
     Held back: (why)

    web.service
          Hash: 6cff462
       Desired: launched
       Current: launched
       Machine: m1/10.0.0.1
        Loaded: loaded
        Active: active (running)
      Main PID: 4711
    ");
    let json = cluster.run("status -n 0 here web -o json").await.ok().stdout;
    let statuses: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(statuses[0]["machines"][0]["held"], WHY);
    assert_eq!(statuses[1]["machines"][0].get("held"), None, "it only has not moved yet");
    cluster.run("machine cordon m1").await.ok();
    let status = cluster.run("status -n 0 here").await.ok().stdout;
    assert!(!status.contains("Held back"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_prints_json_and_the_rest_after_a_timeout() {
    let cluster = cluster().await;
    insta::assert_snapshot!(run(&cluster, "machine drain m1 --keep-up 1 -o json").await, @r#"
    exit 0
    [
      {
        "global": [
          "all.service"
        ],
        "held": [
          {
            "reason": "(why)",
            "unit": "here.service"
          }
        ],
        "keepUp": 1,
        "machineID": "m1",
        "moves": [
          {
            "to": "282f949fc0de4711",
            "unit": "web.service"
          }
        ]
      }
    ]
    "#);
    insta::assert_snapshot!(cluster.run("list-machines --fields machine,intent").await, @r"
    exit 0
    MACHINE→→INTENT
    282f949f...→-
    m1→→draining
    ");
    // The fake engine never moves units.
    insta::assert_snapshot!(run(&cluster, "machine drain m1 --wait --wait-timeout 0").await, @r#"
    exit 1
    web.service moves to 282f949f...
    here.service stays for now: (why)
    all.service stays: it is global
    ---
    fleetctl: machine m1 still has units after 0 s: 1 to move, 0 stopping, 1 held back
    help: here.service stays for now: (why)
    help: the drain continues; "fleetctl machine cordon m1" ends it, and the remaining units stay
    "#);
    insta::assert_snapshot!(run(&cluster, "machine drain m1 --dry-run --wait").await, @r"
    exit 2
    ---
    error: the argument '--dry-run' cannot be used with '--wait'

    Usage: fleetctl machine drain --dry-run <MACHINE>

    For more information, try '--help'.
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machine_is_cordoned_until_it_is_uncordoned() {
    let cluster = cluster().await;
    insta::assert_snapshot!(cluster.run("machine cordon 282f").await, @"
    exit 0
    Machine 282f949f... is cordoned
    ");
    let intent =
        |cluster: &Cluster| cluster.mirror.snapshot().machine("282f949fc0de4711").unwrap().intent;
    assert_eq!(intent(&cluster), Some(Intent::Cordoned));
    insta::assert_snapshot!(cluster.run("machine uncordon 282f949f... -o json").await, @r#"
    exit 0
    [
      {
        "intent": "",
        "machine": "282f949fc0de4711"
      }
    ]
    "#);
    assert_eq!(intent(&cluster), None);
    insta::assert_snapshot!(cluster.run("machine cordon m3").await, @r"
    exit 1
    ---
    fleetctl: no present machine has an ID or name that starts with m3
    help: did you mean m1?
    ");
    let away = "00000000000000000000000000000000";
    cluster.run(&format!("machine uncordon {away}")).await.ok();
    assert_eq!(cluster.run(&format!("machine cordon {away}")).await.code, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_wait_ends_with_the_drain() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    insta::assert_snapshot!(cluster.run("machine drain m2 --wait").await, @r"
    exit 0
    ---
    Machine m2 is empty
    ");
}
