//! `revisions`, `rollback`, and `diff` with a revision.

use crate::cluster::Cluster;

fn text(seconds: u32) -> String {
    format!("[Service]\nExecStart=/bin/sleep {seconds}\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_returns_to_an_earlier_file() {
    let cluster = Cluster::start(&["m1"]).await;
    for seconds in [1, 2, 3] {
        cluster.write("web.service", &text(seconds));
        cluster.run("apply web").await.ok();
    }
    let revisions = cluster.run("revisions web -o json").await.ok().stdout;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&revisions).unwrap();
    let numbers: Vec<_> = rows.iter().map(|row| (&row["revision"], &row["current"])).collect();
    let expected = serde_json::json!([[1, false], [2, false], [3, true]]);
    assert_eq!(serde_json::to_value(numbers).unwrap(), expected);
    assert!(rows.iter().all(|row| row["written_at"].is_string()), "{revisions}");
    let table = cluster.run("revisions web").await.ok().stdout;
    let columns = table.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>());
    insta::assert_snapshot!(columns.map(|it| it.join(" ")).collect::<Vec<_>>().join("\n"), @r"
    REVISION HASH
    1 0291f12
    2 2a7d31f
    3 73a7272
    ");

    insta::assert_snapshot!(cluster.run("diff web.service@1").await, @r"
    exit 5
    # web.service: changed file
    --- cluster/web.service
    +++ web.service@1
    @@ -1,2 +1,2 @@
     [Service]
    -ExecStart=/bin/sleep 3
    +ExecStart=/bin/sleep 1
    ");
    insta::assert_snapshot!(cluster.run("rollback --dry-run web").await, @r"
    exit 5
    web.service: changed file
    --- cluster/web.service
    +++ web.service@2
    @@ -1,2 +1,2 @@
     [Service]
    -ExecStart=/bin/sleep 3
    +ExecStart=/bin/sleep 2
    ");
    assert_eq!(cluster.run("cat web").await.stdout, text(3));
    cluster.run("rollback web").await.ok();
    assert_eq!(cluster.run("cat web").await.stdout, text(2));
    let hash = rows[0]["hash"].as_str().unwrap();
    cluster.run(&format!("rollback web --to {}", &hash[..6])).await.ok();
    assert_eq!(cluster.run("cat web").await.stdout, text(1));
    assert_eq!(cluster.desired("web.service").await, "launched");
    let revisions = cluster.run("revisions web").await.stdout;
    assert!(revisions.lines().any(|line| line.starts_with("5\t")), "{revisions}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outdated_instances_are_named() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write("web@.service", &text(1));
    cluster.run("start web@1 web@2").await.ok();
    cluster.run("submit web@").await.ok();
    // An instance with a file of its own is not outdated.
    cluster.write("web@3.service", &text(9));
    cluster.run("start web@3").await.ok();
    assert_eq!(cluster.run("list-unit-files -o name").await.stderr, "");
    cluster.write("web@.service", &text(2));
    cluster.run("submit --replace web@").await.ok();
    cluster.run("start --replace web@2").await.ok();
    let mut all = String::new();
    for line in ["list-unit-files -o name", "doctor", "scale web@ 3 --dry-run"] {
        all += &format!("$ {line}\n{}\n", cluster.run(line).await.stderr);
    }
    all += &cluster.run("doctor").await.stdout;
    let all = all.replace("instance, with", "instance,\n  with");
    insta::assert_snapshot!(all, @r#"
    $ list-unit-files -o name
    web@1.service has an earlier file of web@.service
    help: "fleetctl apply web@.service" updates them, with that file in the current folder

    $ doctor
    0 problems, 2 warnings

    $ scale web@ 3 --dry-run
    web@1.service has an earlier file of web@.service
    help: "fleetctl apply web@.service" updates them, with that file in the current folder
    nothing to do

    warning: fleetctl has version 0.1.0, and fleetd 1.2.3
       help: install both from one release: they may be incompatible
    warning: web@1.service has an earlier file of web@.service
       help: "fleetctl apply web@.service" updates them, with that file in the current folder
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_revisions_are_errors() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write("web.service", &text(1));
    cluster.run("submit web").await.ok();
    let mut all = String::new();
    for line in ["rollback web", "rollback web --to 7", "diff web.service@7", "history none"] {
        all += &format!("$ {line}\n{}\n", cluster.run(line).await);
    }
    insta::assert_snapshot!(all, @r#"
    $ rollback web
    exit 1
    ---
    fleetctl: web.service has no earlier revision
    help: a revision is kept whenever the unit's file is replaced

    $ rollback web --to 7
    exit 1
    ---
    fleetctl: web.service has no revision "7"
    help: "fleetctl revisions web.service" lists the revisions that are kept

    $ diff web.service@7
    exit 1
    ---
    fleetctl: web.service has no revision "7"
    help: "fleetctl revisions web.service" lists the revisions that are kept

    $ history none
    exit 1
    ---
    fleetctl: none.service is not known to the cluster
    help: "fleetctl list-unit-files" shows the units that are known
    "#);
}
