//! `cat`, `status`, `journal`, `verify` and `version`.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::fake_engine::Role;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cat_prints_every_byte() {
    let cluster = Cluster::start(&["m1"]).await;
    let source = b"# caf\xe9 \xff\r\n[Service]\r\nExecStart=/bin/sleep \\\r\n  1d";
    std::fs::write(cluster.folder().join("web.service"), source).unwrap();
    cluster.run("submit web").await.ok();
    let mut command =
        crate::fleetctl::command(cluster.folder(), &cluster.endpoint(), "cat web.service");
    assert_eq!(command.output().await.unwrap().stdout, source);
    let lines = cluster.run("cat web -o jsonl").await.ok().stdout;
    let document: Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(document["unit"], "web.service");
    assert!(document["source"].as_str().unwrap().ends_with("  1d"));
    insta::assert_snapshot!(cluster.run("cat wen").await, @r"
    exit 1
    ---
    fleetctl: wen.service is not known to the cluster
    help: did you mean web.service?
    ");
}

/// Starts a cluster with an active, a global, a failed and an unplaced unit.
async fn all_sorts() -> Cluster {
    let cluster = Cluster::start(&["m1", "far"]).await;
    let service = "[Service]\nExecStart=/bin/sleep 1d\n";
    cluster.write("web.service", &format!("[Unit]\nDescription=The web\n{service}"));
    cluster.write("all.service", &format!("{service}[X-Fleet]\nGlobal=true\n"));
    cluster.write_sleepers(&["bad.service", "lost.service"]);
    cluster.roles.set("bad.service", Role::FailingBefore(u64::MAX));
    cluster.roles.set("lost.service", Role::Unplaceable);
    cluster.run("start web all").await.ok();
    cluster.run("start --no-block bad lost").await.ok();
    cluster.wait_until(|it| it.states_of("bad.service").count() == 1).await;
    cluster.wait_until(|it| it.reason("lost.service").is_some()).await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_exit_codes_match_systemctl() {
    let cluster = all_sorts().await;
    insta::assert_snapshot!(cluster.run("status web").await, @r"
    exit 0
    web.service - The web
          Hash: 889ac14
       Desired: launched
       Current: launched
       Machine: m1/10.0.0.1
        Loaded: loaded
        Active: active (running)
      Main PID: 4711

    web.service on m1: 1
    web.service on m1: 2
    web.service on m1: 3
    ");
    insta::assert_snapshot!(cluster.run("status bad lost --lines 1").await, @r"
    exit 3
    bad.service
          Hash: 6cff462
       Desired: launched
       Current: launched
       Machine: m1/10.0.0.1
        Loaded: loaded
        Active: failed (failed)
        Result: exit-code
          Exit: exited with status 3

    bad.service on m1: 1

    lost.service
          Hash: 6cff462
       Desired: launched
       Current: inactive
        Reason: no machine is present
       Machine: none
    ");
}

// Holds: D-43
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_prints_all_machines_and_known_units() {
    let cluster = all_sorts().await;
    insta::assert_snapshot!(cluster.run("status all -n 2").await, @r"
    exit 0
    all.service
          Hash: 612415e
       Desired: launched
       Current: launched
       Machine: far/10.0.0.2
        Loaded: loaded
        Active: active (running)
      Main PID: 4711

    (the journal is on machine far, which has not published the URL of its API)

       Machine: m1/10.0.0.1
        Loaded: loaded
        Active: active (running)
      Main PID: 4711

    all.service on m1: 1
    all.service on m1: 2
    ");
    insta::assert_snapshot!(cluster.run("status -n 0 nothing bad").await, @r#"
    exit 4
    bad.service
          Hash: 6cff462
       Desired: launched
       Current: launched
       Machine: m1/10.0.0.1
        Loaded: loaded
        Active: failed (failed)
        Result: exit-code
          Exit: exited with status 3
    ---
    Unit nothing.service does not exist.
    help: "fleetctl list-unit-files" shows the units that are known
    "#);
    let document = cluster.run("status web lost -o json").await;
    let statuses: Value = serde_json::from_str(&document.stdout).unwrap();
    assert_eq!((document.code, statuses.as_array().unwrap().len()), (3, 2));
    assert_eq!(statuses[0]["machines"][0]["active"], "active");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journal_comes_from_the_chosen_machine() {
    let cluster = Cluster::start(&["m1", "m2", "far"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.write("all.service", "[Service]\nExecStart=/bin/sleep 1d\n[X-Fleet]\nGlobal=true\n");
    cluster.run("start web all").await.ok();
    insta::assert_snapshot!(cluster.run("journal web").await, @r"
    exit 0
    web.service on m1: 1
    web.service on m1: 2
    web.service on m1: 3
    ");
    insta::assert_snapshot!(cluster.run("journal --lines=1 --machine m2 all").await, @r"
    exit 0
    all.service on m2: 1
    ");
    insta::assert_snapshot!(cluster.run("journal -n1 -o jsonl web").await, @r#"
    exit 0
    {"line":"web.service on m1: 1","unit":"web.service"}
    "#);
    insta::assert_snapshot!(cluster.run("journal --since 1h30min web").await, @r"
    exit 0
    web.service on m1: 1, at most 5400s old
    web.service on m1: 2, at most 5400s old
    web.service on m1: 3, at most 5400s old
    web.service on m1: 4, at most 5400s old
    ");
    let all = cluster.run("journal --since infinity web").await.ok().stdout;
    assert_eq!(all.lines().count(), 4, "all, without a number");
    insta::assert_snapshot!(cluster.run("journal -S 90 -n 1 web").await, @r"
    exit 0
    web.service on m1: 1, at most 90s old
    ");
    let all = cluster.run("journal -n1 all").await.ok().stdout;
    let mut lines: Vec<&str> = all.lines().collect();
    lines.sort_unstable(); // who answers first comes first
    insta::assert_snapshot!(lines.join("\n"), @r"
    far: [the journal is on machine far, which has not published the URL of its API]
    m1: all.service on m1: 1
    m2: all.service on m2: 1
    ");
    insta::assert_snapshot!(cluster.run("journal --machine m all").await, @"
    exit 1
    ---
    fleetctl: several machine IDs start with m
    help: give a longer part of one ID: m1, m2
    ");
    insta::assert_snapshot!(cluster.run("journal --machine fra all").await, @r"
    exit 1
    ---
    fleetctl: no present machine has an ID or name that starts with fra
    help: did you mean far?
    ");
    let far = cluster.run("journal --machine far all").await;
    assert_eq!((far.code, far.stdout.as_str()), (1, ""), "{far}");
    assert!(far.stderr.contains("the journal is on machine far"), "{far}");
    insta::assert_snapshot!(cluster.run("journal wbe").await, @r"
    exit 1
    ---
    fleetctl: wbe.service is not known to the cluster
    help: did you mean web.service?
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followed_journal_arrives_line_by_line() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.run("start web").await.ok();
    let line = "journal -f -n 2 web";
    let mut command = crate::fleetctl::command(cluster.folder(), &cluster.endpoint(), line);
    let mut fleetctl = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(fleetctl.stdout.take().unwrap()).lines();
    for expected in ["web.service on m1: 1", "web.service on m1: 2"] {
        let next = tokio::time::timeout(crate::fleetctl::DEADLINE, lines.next_line());
        assert_eq!(next.await.unwrap().unwrap().unwrap(), expected);
    }
    fleetctl.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_needs_no_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("good.service", "[Service]\nExecStart=/bin/web\n");
    write("old.service", "[Service]\nExecStart=/bin/old\n[X-Fleet]\nX-Conflicts=web*\n");
    write("odd.service", "[Service]\nExecStart=/bin/odd\nNice=high\n");
    write("bad.service", "[Service]\n=/bin/web\nExecStart=web/run\n[X-Fleet]\nGlobl=true\n");
    write("bad name", "[Service]\n");
    let verify =
        |line: &'static str| crate::fleetctl::Fleetctl::run(folder.path(), "unix:///none", line);
    insta::assert_snapshot!(verify("verify good.service old.service").await, @r"
    exit 0
    old.service:4:1: warning: X-Conflicts is the old name of Conflicts
    help: write Conflicts
    ---
    good.service: ok
    old.service: ok
    ");
    insta::assert_snapshot!(verify("verify bad.service good.service").await, @r#"
    exit 1
    bad.service:2:1: missing option name before "=" in "=/bin/web" [U0008]
    help: write Name=value
    bad.service:3:11: ExecStart: "web/run" is neither an absolute path nor a plain name [U0301]
    help: write an absolute path
    bad.service:5:1: [X-Fleet] has no option "Globl"
    help: write Global, spelled exactly so
    ---
    good.service: ok
    fleetctl: 1 of 2 unit files have errors
    "#);
    insta::assert_snapshot!(verify("verify odd.service").await, @r#"
    exit 0
    odd.service:3:6: warning: Nice: "high" is not a whole number [U0204]
    help: write a whole number from -20 to 19
    ---
    odd.service: ok
    "#);
    std::fs::create_dir(folder.path().join("units")).unwrap();
    insta::assert_snapshot!(verify("verify units").await, @"
    exit 1
    ---
    fleetctl: no unit files in units
    help: the name of a unit file ends in its type, as in web.service
    ");
    write("units/good.service", "[Service]\nExecStart=/bin/web\n");
    write("units/README", "none");
    assert_eq!(verify("verify units").await.ok().stderr, "units/good.service: ok\n");
    insta::assert_snapshot!(verify("verify none.service").await, @"
    exit 1
    ---
    fleetctl: there is no file none.service
    help: give the path of a unit file
    ");
    let document: Value =
        serde_json::from_str(&verify("verify -o json bad.service").await.stdout).unwrap();
    assert_eq!(
        (document[0]["line"].as_u64(), document[0]["severity"].as_str()),
        (Some(2), Some("error"))
    );
    let codes: Vec<_> = document.as_array().unwrap().iter().map(|it| it["code"].as_str()).collect();
    assert_eq!(codes, [Some("U0008"), Some("U0301"), None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_checks_for_a_version_of_systemd() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[Service]\nExecStart=/bin/new\nPrivatePIDs=yes\n";
    std::fs::write(folder.path().join("new.service"), text).unwrap();
    let verify =
        |line: &'static str| crate::fleetctl::Fleetctl::run(folder.path(), "unix:///none", line);
    insta::assert_snapshot!(verify("verify --systemd-version 256 new.service").await, @"
    exit 0
    new.service:3:1: warning: systemd 256 has no option PrivatePIDs, which is new in 257 [U0110]
    help: remove it, or run the unit with systemd 257 or later
    ---
    new.service: ok
    ");
    let of_newest = verify("verify --systemd-version 257 new.service").await.ok();
    assert_eq!(of_newest.stdout, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_printed() {
    let cluster = Cluster::start(&[]).await;
    let version = env!("CARGO_PKG_VERSION");
    for line in ["version", "--version", "-v"] {
        let run = cluster.run(line).await.ok();
        assert_eq!(run.stdout, format!("fleetctl version {version}\n"), "{line}");
    }
    let both = cluster.run("version --server").await.ok().stdout;
    assert_eq!(both, format!("fleetctl version {version}\nfleetd version 1.2.3\n"));
}

#[tokio::test]
async fn verify_checks_a_drop_in_as_a_part_of_its_unit() {
    let cluster = Cluster::start(&[]).await;
    for folder in ["web.service.d", "db.service.d", "service.d"] {
        std::fs::create_dir(cluster.folder().join(folder)).unwrap();
    }
    cluster.write("web.service", "[Service]\nExecStart=/bin/web\n");
    cluster.write("web.service.d/again.conf", "[Service]\nExecStart=/bin/web --again\n");
    cluster.write("db.service.d/memory.conf", "[Service]\nMemoryMax=1G\n");
    cluster.write("service.d/typo.conf", "[Service]\nMemoryMax=much\n");
    cluster.run("verify db.service.d/memory.conf").await.ok();
    let run =
        cluster.run("verify --systemd-version 252 web.service.d/again.conf service.d/typo.conf");
    insta::assert_snapshot!(run.await.to_string().replace("conf:2:11: ", "conf:2:11:\n"), @r#"
    exit 1
    web.service.d/again.conf:2:11:
    ExecStart: only a oneshot service can have several commands [U0402]
    help: write Type=oneshot, or move all but the last command to ExecStartPre=
    service.d/typo.conf:2:11:
    warning: MemoryMax: "much" is neither a size nor a percentage [U0203]
    help: write a size such as 512M, a percentage up to 100%, or infinity
    ---
    service.d/typo.conf: ok
    fleetctl: 1 of 2 unit files have errors
    "#);
}
