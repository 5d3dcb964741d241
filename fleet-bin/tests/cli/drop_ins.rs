//! Unit files with drop-ins.

use crate::cluster::Cluster;
use crate::fleetctl::Fleetctl;

const WEB: &str = "[Service]\nExecStart=/bin/web\n";
const LIMITS: &str = "[Service]\nMemoryMax=1G\n";

/// Writes files, and creates their folders.
fn write(cluster: &Cluster, files: &[(&str, &str)]) {
    for (path, text) in files {
        std::fs::create_dir_all(cluster.folder().join(path).parent().unwrap()).unwrap();
        cluster.write(path, text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cat_prints_a_unit_with_its_drop_ins() {
    let cluster = Cluster::start(&["m1"]).await;
    let more = ("units/web.service.d/50-more.conf", "[X-Fleet]\nGlobal=yes");
    write(&cluster, &[("units/web.service", WEB), more]);
    write(&cluster, &[("units/web.service.d/10-limits.conf", LIMITS)]);
    cluster.run("submit units/web").await.ok();
    insta::assert_snapshot!(cluster.run("cat web").await, @"
    exit 0
    # web.service
    [Service]
    ExecStart=/bin/web

    # web.service.d/10-limits.conf
    [Service]
    MemoryMax=1G

    # web.service.d/50-more.conf
    [X-Fleet]
    Global=yes
    ");
    let listed = cluster.run("list-unit-files --no-legend --fields unit,global").await.ok();
    assert_eq!(listed.stdout, "web.service\ttrue\n");
    // The text does not depend on the path of the folder.
    std::fs::rename(cluster.folder().join("units"), cluster.folder().join("other")).unwrap();
    let diff = cluster.run("diff --state inactive other").await.ok();
    assert_eq!(diff.stderr, "nothing to do\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_drop_in_changes_its_unit() {
    let cluster = Cluster::start(&["m1"]).await;
    write(&cluster, &[("units/web.service", WEB), ("units/web.service.d/limits.conf", LIMITS)]);
    let all = "apply units/web.service units/web.service.d units/web.service.d/limits.conf";
    cluster.run(all).await.ok();
    cluster.write("units/web.service.d/limits.conf", "[Service]\nMemoryMax=2G\n");
    insta::assert_snapshot!(cluster.run("apply units").await, @"
    exit 0
    web.service: changed file
    --- cluster/web.service
    +++ units/web.service
    @@ -4,4 +4,4 @@
     
     # web.service.d/limits.conf
     [Service]
    -MemoryMax=1G
    +MemoryMax=2G
    Unit web.service launched on m1/10.0.0.1
    ");
    std::fs::remove_dir_all(cluster.folder().join("units/web.service.d")).unwrap();
    cluster.run("start --replace units/web.service").await.ok();
    assert_eq!(cluster.run("cat web").await.ok().stdout, WEB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drop_ins_need_their_unit_file() {
    let cluster = Cluster::start(&["m1"]).await;
    write(&cluster, &[("units/db.service", WEB), ("units/web.service.d/limits.conf", LIMITS)]);
    write(&cluster, &[("web.service", WEB)]);
    cluster.run("start web.service").await.ok();
    insta::assert_snapshot!(cluster.run("apply units").await, @"
    exit 1
    ---
    units/web.service.d:1:1: drop-ins are not used without their unit file
    help: add the file web.service beside this folder, even if the cluster has the unit
    fleetctl: nothing was sent: a unit file has errors
    ");
    insta::assert_snapshot!(cluster.run("verify units").await, @"
    exit 1
    units/web.service.d:1:1: drop-ins are not used without their unit file
    help: add the file web.service beside this folder, even if the cluster has the unit
    ---
    units/db.service: ok
    fleetctl: 1 of 2 unit files have errors
    ");
    insta::assert_snapshot!(cluster.run("apply units/web.service.d").await, @"
    exit 1
    ---
    fleetctl: cannot send the drop-ins in units/web.service.d alone
    help: give the path of the unit file: the drop-ins beside it are sent with it
    ");
    insta::assert_snapshot!(cluster.run("start units/web").await, @"
    exit 0
    Unit web.service launched on m1/10.0.0.1
    ---
    units/web.service.d:1:1: warning: drop-ins are not used without their unit file
    help: add the file web.service beside this folder, even if the cluster has the unit
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_use_drop_ins_of_their_template() {
    let cluster = Cluster::start(&["m1"]).await;
    write(
        &cluster,
        &[
            ("web@.service", WEB),
            ("web@.service.d/limits.conf", LIMITS),
            ("web@2.service.d/limits.conf", "[Service]\nMemoryMax=2G\n"),
        ],
    );
    cluster.run("scale web@ 2").await.ok();
    insta::assert_snapshot!(cluster.run("cat web@1 web@2").await, @"
    exit 0
    # web@.service
    [Service]
    ExecStart=/bin/web

    # web@.service.d/limits.conf
    [Service]
    MemoryMax=1G
    # web@.service
    [Service]
    ExecStart=/bin/web

    # web@2.service.d/limits.conf
    [Service]
    MemoryMax=2G
    ");
    cluster.run("submit web@").await.ok();
    std::fs::rename(cluster.folder().join("web@.service"), cluster.folder().join("old")).unwrap();
    insta::assert_snapshot!(cluster.run("submit web@2 web@3").await, @"
    exit 0
    Unit web@3.service inactive
    ---
    web@2.service.d:1:1: warning: drop-ins are not used without their unit file
    help: add the file web@.service beside this folder, even if the cluster has the unit
    web@.service.d:1:1: warning: drop-ins are not used without their unit file
    help: add the file web@.service beside this folder, even if the cluster has the unit
    ");
    insta::assert_snapshot!(cluster.run("cat web@3").await, @"
    exit 0
    # web@.service
    [Service]
    ExecStart=/bin/web

    # web@.service.d/limits.conf
    [Service]
    MemoryMax=1G
    ");
}

#[tokio::test]
async fn problems_are_reported_in_their_drop_in() {
    let cluster = Cluster::start(&[]).await;
    let shown = |run: Fleetctl| {
        run.to_string()
            .replace("Global, only", "Global,\nonly")
            .replace("StartAfter and", "StartAfter\nand")
            .replace(": \"bin", ":\n\"bin")
            .replace("read: ", "read:\n")
    };
    write(
        &cluster,
        &[
            ("web.service", "[Service]\nRestart=no\n[X-Fleet]\nGlobal=yes\n"),
            ("web.service.d/a.conf", "# more\n[Service]\nExecStart=bin/web\nRestart=always\n"),
            ("web.service.d/b.conf", "Nice=1\n[X-Fleet]\nMachineOf=db.service\nGlobl=yes\n"),
        ],
    );
    insta::assert_snapshot!(shown(cluster.run("submit web").await), @r#"
    exit 1
    ---
    web.service:4:8: Global cannot be used together with MachineOf (web.service.d/b.conf:3)
    help: remove one of them: with Global,
    only MachineMetadata, MachineMetadataExpr, Conflicts, OnPartition, StartAfter
    and health checks apply
    web.service.d/b.conf:1:1: option before the first section in "Nice=1" [U0006]
    help: put a section header such as [Unit] above the option
    web.service.d/b.conf:4:1: [X-Fleet] has no option "Globl"
    help: write Global, spelled exactly so
    fleetctl: nothing was sent: 2 unit files have errors
    "#);
    let verify = shown(cluster.run("verify --systemd-version 252 web.service").await);
    insta::assert_snapshot!(verify, @r#"
    exit 1
    web.service:1:1: the service has nothing to run [U0401]
    help: add ExecStart= to [Service]
    web.service:4:8: Global cannot be used together with MachineOf (web.service.d/b.conf:3)
    help: remove one of them: with Global,
    only MachineMetadata, MachineMetadataExpr, Conflicts, OnPartition, StartAfter
    and health checks apply
    web.service.d/a.conf:3:11: ExecStart:
    "bin/web" is neither an absolute path nor a plain name [U0301]
    help: write an absolute path
    web.service.d/b.conf:1:1: option before the first section in "Nice=1" [U0006]
    help: put a section header such as [Unit] above the option
    web.service.d/b.conf:4:1: [X-Fleet] has no option "Globl"
    help: write Global, spelled exactly so
    ---
    fleetctl: 1 of 1 unit files have errors
    "#);
    let both = shown(cluster.run("verify --manager native web.service web.service.d").await);
    insta::assert_snapshot!(both, @r#"
    exit 1
    web.service:4:8: Global cannot be used together with MachineOf (web.service.d/b.conf:3)
    help: remove one of them: with Global,
    only MachineMetadata, MachineMetadataExpr, Conflicts, OnPartition, StartAfter
    and health checks apply
    web.service.d/a.conf:3:1: ExecStart= cannot be read:
    program at byte 0 is neither an absolute path nor a name
    help: write an absolute path
    web.service.d/b.conf:1:1: option before the first section in "Nice=1" [U0006]
    help: put a section header such as [Unit] above the option
    web.service.d/b.conf:4:1: [X-Fleet] has no option "Globl"
    help: write Global, spelled exactly so
    ---
    fleetctl: 3 of 3 unit files have errors
    "#);
}
