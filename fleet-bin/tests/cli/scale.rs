//! `scale`, and the patterns and ranges that all commands accept.

use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_sets_the_number_of_instances() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web@.service"]);
    insta::assert_snapshot!(cluster.run("scale web@ 3 --dry-run").await, @r"
    exit 5
    create web@1.service
    create web@2.service
    create web@3.service
    ");
    insta::assert_snapshot!(cluster.run("scale web@ 3").await.sorted(), @r"
    exit 0
    Unit web@1.service launched on m1/10.0.0.1
    Unit web@2.service launched on m1/10.0.0.1
    Unit web@3.service launched on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run("scale web@ 3").await.sorted(), @r"
    exit 0
    ---
    nothing to do
    ");
    cluster.run("start web@blue").await.ok();
    cluster.run("stop web@2").await.ok();
    insta::assert_snapshot!(cluster.run("scale web@.service 2").await, @"
    exit 0
    Unit web@2.service launched on m1/10.0.0.1
    Destroyed web@3.service
    ---
    skipped, because they have no number: web@blue.service
    ");
    insta::assert_snapshot!(cluster.run("scale web@ 1 -o jsonl --dry-run").await, @r#"
    exit 5
    {"change":"none","unit":"web@1.service"}
    {"change":"destroy","unit":"web@2.service"}
    ---
    skipped, because they have no number: web@blue.service
    "#);
    let both = cluster.run("scale web@ 1 -o json").await.ok();
    assert_eq!(both.stdout.matches("destroy").count(), 1, "{both}");
    let more = cluster.run("scale web@ 2 -o json").await.ok();
    let document: serde_json::Value = serde_json::from_str(&more.stdout).unwrap();
    assert_eq!(document[0]["unit"], "web@2.service");
    insta::assert_snapshot!(cluster.run("scale web 1").await, @r#"
    exit 2
    ---
    fleetctl: web.service is not a template
    help: the name of a template ends in "@", as in web@.service
    "#);
    insta::assert_snapshot!(cluster.run("scale none@ 1").await, @r"
    exit 1
    ---
    fleetctl: no template none@.service: the cluster does not know it, and there is no such file
    help: write that file in the current folder, or submit the template
    ");
    assert_eq!(cluster.run("scale web@ 20000").await.code, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_accept_patterns_and_ranges() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web@.service", "db.service"]);
    insta::assert_snapshot!(cluster.run("start web@{1..3} db").await.sorted(), @r"
    exit 0
    Unit db.service launched on m1/10.0.0.1
    Unit web@1.service launched on m1/10.0.0.1
    Unit web@2.service launched on m1/10.0.0.1
    Unit web@3.service launched on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run("stop web@[12].service").await.sorted(), @r"
    exit 0
    Unit web@1.service loaded on m1/10.0.0.1
    Unit web@2.service loaded on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run("unload web@*.service --no-block").await, @r"
    exit 0
    Triggered unit web@1.service unload
    Triggered unit web@2.service unload
    Triggered unit web@3.service unload
    ");
    insta::assert_snapshot!(cluster.run("restart *").await, @r"
    exit 0
    Unit db.service restarted on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run("status -n 0 web@{1,9} d*").await, @r"
    exit 4
    web@1.service
          Hash: 6cff462
       Desired: inactive
       Current: inactive
       Machine: none

    db.service
          Hash: 6cff462
       Desired: launched
       Current: launched
       Machine: m1/10.0.0.1
        Loaded: loaded
        Active: active (running)
      Main PID: 4711
    ---
    Unit web@9.service does not exist.
    help: did you mean web@1.service?
    ");
    insta::assert_snapshot!(cluster.run("cat db* -o name").await, @r"
    exit 0
    db.service
    ");
    insta::assert_snapshot!(cluster.run("restart web@*").await, @r#"
    exit 1
    ---
    fleetctl: 3 units match web@*, but none has the desired state launched
    help: "fleetctl list-unit-files" shows the desired states
    "#);
    insta::assert_snapshot!("patterns_that_match_nothing", cluster.run("destroy x* web@[").await);
    insta::assert_snapshot!(cluster.run("destroy --yes *").await.sorted(), @r"
    exit 0
    Destroyed db.service
    Destroyed web@1.service
    Destroyed web@2.service
    Destroyed web@3.service
    ");
}
