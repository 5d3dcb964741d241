//! `apply` and `diff`.

use crate::cluster::Cluster;
use crate::fake_engine::Role;

const WEB: &str = "[Service]\nExecStart=/bin/web\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_makes_the_cluster_match_the_files() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write("web.service", WEB);
    cluster.write_sleepers(&["db.service", "job@.service"]);
    let line = "apply web db.service job@.service job@{1..2}";
    insta::assert_snapshot!(cluster.run(&format!("{line} --dry-run")).await, @"
    exit 5
    web.service: new, to be launched
    db.service: new, to be launched
    job@.service: new, to be inactive
    job@1.service: new, to be launched
    job@2.service: new, to be launched
    db.service is placed on m1/10.0.0.1: it is wanted
    job@1.service is placed on m2/10.0.0.2: it is wanted
    job@2.service is placed on m1/10.0.0.1: it is wanted
    web.service is placed on m2/10.0.0.2: it is wanted
    ");
    assert_eq!(cluster.desired("web.service").await, "", "a dry run must not upload");
    insta::assert_snapshot!(cluster.run(line).await.sorted(), @"
    exit 0
    web.service: new, to be launched
    db.service: new, to be launched
    job@.service: new, to be inactive
    job@1.service: new, to be launched
    job@2.service: new, to be launched
    db.service is placed on m1/10.0.0.1: it is wanted
    job@1.service is placed on m2/10.0.0.2: it is wanted
    job@2.service is placed on m1/10.0.0.1: it is wanted
    web.service is placed on m2/10.0.0.2: it is wanted
    Unit db.service launched on m1/10.0.0.1
    Unit job@.service inactive
    Unit job@1.service launched on m1/10.0.0.1
    Unit job@2.service launched on m1/10.0.0.1
    Unit web.service launched on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run(line).await.sorted(), @r"
    exit 0
    ---
    nothing to do
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_prints_and_replaces_different_files() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write("web.service", WEB);
    cluster.write_sleepers(&["db.service"]);
    let line = "apply web db.service";
    cluster.run(line).await.ok();
    cluster.write("web.service", &format!("# another one\n{WEB}"));
    cluster.run("stop db").await.ok();
    insta::assert_snapshot!(cluster.run("diff web.service db.service").await, @"
    exit 5
    # web.service: changed file
    --- cluster/web.service
    +++ web.service
    @@ -1,2 +1,3 @@
    +# another one
     [Service]
     ExecStart=/bin/web
    # db.service: loaded to launched
    ");
    insta::assert_snapshot!(cluster.run(line).await.sorted(), @"
    exit 0
    web.service: changed file
    --- cluster/web.service
    +++ web.service
    @@ -1,2 +1,3 @@
    +# another one
     [Service]
     ExecStart=/bin/web
    db.service: loaded to launched
    Unit db.service launched on m1/10.0.0.1
    Unit web.service launched on m1/10.0.0.1
    ");
    insta::assert_snapshot!(cluster.run("diff web db").await, @r"
    exit 0
    ---
    nothing to do
    ");
    let down = cluster.run("apply --state inactive db web -o jsonl").await;
    insta::assert_snapshot!(down.sorted(), @r#"
    exit 0
    {"action":"apply","outcome":"reached","state":"inactive","unit":"db.service"}
    {"action":"apply","outcome":"reached","state":"inactive","unit":"web.service"}
    "#);
    insta::assert_snapshot!(cluster.run("apply --dry-run -o json web").await, @r#"
    exit 5
    [
      {
        "change": "state",
        "desired": "launched",
        "unit": "web.service",
        "was": "inactive"
      },
      {
        "cause": "it is wanted",
        "to": "m1",
        "unit": "web.service"
      }
    ]
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_reads_the_unit_files_of_a_folder() {
    let cluster = Cluster::start(&["m1"]).await;
    std::fs::create_dir(cluster.folder().join("units")).unwrap();
    std::fs::create_dir(cluster.folder().join("empty")).unwrap();
    cluster.write_sleepers(&["units/b.service", "units/a.socket", "units/t@.service"]);
    cluster.write("units/README.md", "none\n");
    insta::assert_snapshot!(cluster.run("apply --state loaded units").await.sorted(), @"
    exit 0
    a.socket: new, to be loaded
    b.service: new, to be loaded
    t@.service: new, to be inactive
    a.socket is placed on m1/10.0.0.1: it is wanted
    b.service is placed on m1/10.0.0.1: it is wanted
    Unit a.socket loaded on m1/10.0.0.1
    Unit b.service loaded on m1/10.0.0.1
    Unit t@.service inactive
    ");
    insta::assert_snapshot!(cluster.run("apply empty none web@{1..2} {a..b}").await, @r#"
    exit 2
    ---
    fleetctl: "{a..b}" has an invalid range: both ends must be numbers
    help: use a range such as web@{1..9}, or a list such as {web,db}.service
    "#);
    insta::assert_snapshot!(cluster.run("apply empty none web@{1..2}").await, @"
    exit 1
    ---
    fleetctl: no unit files in empty
    help: the name of a unit file ends in its type, as in web.service
    ");
    insta::assert_snapshot!(cluster.run("apply none web@1").await, @"
    exit 1
    ---
    fleetctl: there is no file none.service
    help: give unit files, or folders with unit files
    fleetctl: there is no file web@1.service
    help: write that file, or its template web@.service
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_uploads_nothing_if_one_file_is_wrong() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write("good.service", WEB);
    cluster.write("bad.service", "[Service]\nExecStart=/bin/x\n[X-Fleet]\nGlobl=1\n");
    insta::assert_snapshot!(cluster.run("apply good bad").await, @r#"
    exit 1
    ---
    bad.service:4:1: [X-Fleet] has no option "Globl"
    help: write Global, spelled exactly so
    fleetctl: nothing was sent: a unit file has errors
    "#);
    // Each file is valid by itself, but together they form a cycle.
    cluster.write("x.service", &format!("{WEB}[X-Fleet]\nReplaces=y.service\n"));
    cluster.write("y.service", &format!("{WEB}[X-Fleet]\nReplaces=x.service\n"));
    insta::assert_snapshot!("cycle_is_refused", cluster.run("apply good x y").await);
    for command in ["apply --dry-run", "plan"] {
        assert_eq!(cluster.run(&format!("{command} good x y")).await.code, 1, "{command}");
    }
    assert_eq!(cluster.run("list-unit-files -o name").await.stdout, "");
    cluster.roles.set("good.service", Role::FailingBefore(u64::MAX));
    insta::assert_snapshot!(cluster.run("apply good").await, @r#"
    exit 1
    good.service: new, to be launched
    good.service is placed on m1/10.0.0.1: it is wanted
    ---
    good.service: failed on m1: exited with status 3, result exit-code
      | good.service on m1: 1
      | good.service on m1: 2
      | good.service on m1: 3
    fleetctl: good.service is not active
    help: correct the cause, then "fleetctl start good.service" tries again
    "#);
}

/// The second of three units is destroyed between the plan and the write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_writes_all_units_or_none() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["a.service", "b.service", "c.service"]);
    cluster.run("start a b").await.ok();
    cluster.write("a.service", "[Service]\nExecStart=/bin/sleep 2d\n");
    cluster.write("b.service", "[Service]\nExecStart=/bin/sleep 2d\n");
    let before = cluster.run("cat a").await.stdout;
    cluster.store.destroy_on_launch("b.service");
    let run = cluster.run("apply a b c").await;
    assert_eq!(run.code, 1, "{run}");
    insta::assert_snapshot!(run.stderr.replace(": ", ":\n  "), @r"
    fleetctl:
      cannot apply 3 units:
      nothing was written:
      b.service was destroyed by another client:
      read it again and retry
    help:
      run the same command again to see the new plan
    ");
    assert_eq!(cluster.run("cat a").await.stdout, before);
    assert_eq!(cluster.run("list-unit-files -o name").await.stdout, "a.service\n");
    assert_eq!(cluster.run("apply --if-unchanged a b c").await.code, 0);
    assert!(cluster.run("cat a").await.stdout.contains("2d"));
}

/// As a unit, the folder would be the instance `.service.d` of the template.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drop_ins_of_a_template_are_no_instance() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write("t@.service", WEB);
    std::fs::create_dir(cluster.folder().join("t@.service.d")).unwrap();
    cluster.write("t@.service.d/a.conf", "[Service]\nNice=1\n");
    cluster.run("apply t@.service t@.service.d").await.ok();
    assert_eq!(cluster.run("list-unit-files -o name").await.stdout, "t@.service\n");
    assert_eq!(cluster.run("submit t@.service.d").await.code, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_omits_unrelated_waiting_units() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write("gpu.service", &format!("{WEB}[X-Fleet]\nMachineMetadata=gpu=yes\n"));
    cluster.write_sleepers(&["db.service"]);
    cluster.roles.set("gpu.service", Role::Unplaceable);
    cluster.run("start --no-block gpu").await.ok();
    insta::assert_snapshot!(cluster.run("apply --dry-run db").await, @"
    exit 5
    db.service: new, to be launched
    db.service is placed on m1/10.0.0.1: it is wanted
    ");
    let both = cluster.run("apply --dry-run db gpu").await.stdout;
    assert!(both.contains("gpu.service has no machine"), "{both}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reapplying_a_failed_unit_is_a_failure() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["bad.service", "good.service"]);
    cluster.roles.set("bad.service", Role::FailingBefore(1));
    assert_eq!(cluster.run("apply bad good").await.code, 1);
    insta::assert_snapshot!(cluster.run("apply bad good").await, @r#"
    exit 1
    ---
    fleetctl: bad.service matches its file, but has failed
    help: see "fleetctl logs bad.service"; "fleetctl start bad.service" tries again
    "#);
    insta::assert_snapshot!(cluster.run("apply bad -o jsonl").await, @r#"
    exit 1
    {"action":"apply","machines":["m1"],"outcome":"failed","state":"launched","unit":"bad.service"}
    ---
    fleetctl: bad.service matches its file, but has failed
    help: see "fleetctl logs bad.service"; "fleetctl start bad.service" tries again
    "#);
    cluster.write_sleepers(&["lost.service"]);
    cluster.roles.set("lost.service", Role::Unplaceable);
    assert_eq!(cluster.run("apply lost").await.code, 1);
    insta::assert_snapshot!(cluster.run("apply lost").await, @r#"
    exit 1
    lost.service is placed on m1/10.0.0.1: it is wanted
    ---
    fleetctl: lost.service matches its file, but has no machine: no machine is present
    help: "fleetctl explain lost.service" shows the verdict of each machine
    "#);
    // With the desired state `loaded`, the earlier failure does not matter.
    cluster.run("stop bad").await.ok();
    cluster.run("apply --state loaded bad").await.ok();
}
