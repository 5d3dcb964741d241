//! `plan` and `explain`.

use crate::cluster::Cluster;
use crate::fake_engine::Role;

const WEB: &str = "[Service]\nExecStart=/bin/web\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_prints_the_engine_steps() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write("web.service", &format!("{WEB}[X-Fleet]\nMachineMetadata=rack=r2\n"));
    cluster.write("gpu.service", &format!("{WEB}[X-Fleet]\nMachineMetadata=gpu=yes\n"));
    cluster.write_sleepers(&["db.service"]);
    cluster.run("start db").await.ok();
    insta::assert_snapshot!(cluster.run("plan").await, @r"
    exit 0
    ---
    nothing to do
    ");
    let plan = cluster.run("plan web.service gpu.service --destroy d*").await;
    insta::assert_snapshot!("plan", plan);
    insta::assert_snapshot!(cluster.run("plan web -o jsonl").await, @r#"
    exit 5
    {"cause":"it is wanted","to":"m2","unit":"web.service"}
    "#);
    insta::assert_snapshot!(cluster.run("plan --destroy none").await, @r#"
    exit 1
    ---
    fleetctl: none.service is not known to the cluster
    help: "fleetctl list-unit-files" shows the units that are known
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unplaced_unit_that_stays_so_is_no_change() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster
        .write("gpu.service", "[Service]\nExecStart=/bin/a\n[X-Fleet]\nMachineMetadata=gpu=yes\n");
    let reason = "gpu.service has no machine: the only machine does not fit";
    let new = cluster.run("plan gpu").await;
    assert!(new.code == 5 && new.stdout.starts_with(reason), "{new}");
    cluster.roles.set("gpu.service", Role::Unplaceable);
    assert_eq!(cluster.run("start gpu").await.code, 1);
    for line in ["plan", "plan gpu"] {
        let plan = cluster.run(line).await.ok();
        assert!(plan.stdout.starts_with(reason) && plan.stderr == "nothing to do\n", "{plan}");
    }
    cluster.write_sleepers(&["web.service"]);
    cluster.run("start web").await.ok();
    cluster.write("web.service", "[Service]\nExecStart=/bin/sleep 2d\n");
    let note = "no placement would change; \"fleetctl diff\" shows the changed files\n";
    assert_eq!(cluster.run("plan web").await.ok().stderr, note);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_prints_every_verdict() {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write("web.service", &format!("{WEB}[X-Fleet]\nMachineMetadata=rack=r1\n"));
    cluster.write("gpu.service", &format!("{WEB}[X-Fleet]\nMachineMetadata=gpu=yes\n"));
    cluster.write("beside.service", &format!("{WEB}[X-Fleet]\nMachineOf=web.service\n"));
    cluster.roles.set("gpu.service", Role::Unplaceable);
    cluster.run("start web").await.ok();
    cluster.run("submit beside").await.ok();
    cluster.run("start --no-block gpu").await.ok();
    insta::assert_snapshot!("explanations", cluster.run("explain web beside gpu").await);
    insta::assert_snapshot!("explanation_as_json", cluster.run("explain gpu -o json").await);
    insta::assert_snapshot!(cluster.run("explain wbe").await, @r"
    exit 1
    ---
    fleetctl: wbe.service is not known to the cluster
    help: did you mean web.service?
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_prints_problems_of_the_machine() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["odd.service"]);
    cluster.roles.set("odd.service", Role::Unsupported);
    assert_eq!(cluster.run("start odd").await.code, 1);
    insta::assert_snapshot!(cluster.run("explain odd").await, @r"
    exit 0
    odd.service is on m1/10.0.0.1, which cannot run it
    MACHINE→→VERDICT→WHY
    m1/10.0.0.1→here→PrivateNetwork= needs systemd
    ");
}
