//! Exporting and importing, by a daemon.

use fleet_core::Intent;
use fleet_store::EmbeddedStore;

use crate::cluster::Cluster;

/// A cluster with two units and metadata.
async fn source() -> Cluster {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "db.service"]);
    cluster.run("start web db").await.ok();
    cluster.run("export cluster.jsonl").await.ok();
    cluster
}

/// The file that the cluster made, for another one.
fn hand_over(from: &Cluster, to: &Cluster, name: &str) {
    std::fs::copy(from.folder().join(name), to.folder().join(name)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_goes_to_a_file_or_to_standard_output() {
    let cluster = source().await;
    let out = cluster.run("export").await.ok();
    let file = std::fs::read_to_string(cluster.folder().join("cluster.jsonl")).unwrap();
    let units = |text: &str| text.matches("\"kind\":\"unit\"").count();
    assert_eq!((units(&out.stdout), units(&file)), (2, 2));
    let told = cluster.run("export -o json cluster.jsonl").await.ok().stdout;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told[0]["units"], &told[0]["file"]), (&2.into(), &"cluster.jsonl".into()));
    let folder = cluster.run("export .").await;
    assert_eq!(folder.code, 1);
    let said = "fleetctl: cannot write .: it is a directory: name a file in it\n";
    assert_eq!(folder.stderr, said);

    cluster.damage("web.service").await;
    let broken = cluster.run("export broken.jsonl").await;
    assert_eq!(broken.code, 1);
    insta::assert_snapshot!(broken.stderr.replace(": ", ":\n"), @r#"
    fleetctl:
    what cannot be understood is not in the export:
    web.service:
    the unit's record cannot be understood:
    the value is damaged:
    expected value at line 1 column 1
    help:
    mend such a unit, by "fleetctl submit --replace", or destroy it, and export again
    "#);
    let file = std::fs::read_to_string(cluster.folder().join("broken.jsonl")).unwrap();
    assert!(file.contains("\"kind\":\"fault\"") && file.contains("\"kind\":\"end\""), "{file}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_is_told_and_can_be_repeated() {
    let (from, to) = (source().await, Cluster::start(&["m1"]).await);
    hand_over(&from, &to, "cluster.jsonl");
    let header = std::fs::read_to_string(to.folder().join("cluster.jsonl")).unwrap();
    let revision = header.split("\"revision\":").nth(1).unwrap().split(',').next().unwrap();
    let of = |version| format!("fleet {version} at revision");
    let plain = |text: String| {
        let text = text.replace(&of(env!("CARGO_PKG_VERSION")), &of("VERSION"));
        let text = text.replace(&format!("revision {revision} "), "revision N ");
        text.replace(": read", ":\n  read")
    };
    let dry = to.run("import --dry-run cluster.jsonl").await.ok();
    insta::assert_snapshot!(plain(dry.stdout), @r"
    cluster.jsonl: an export by fleet VERSION at revision N of lineage test
    dry run, nothing was written; this would be done:
    units: 2 created, 0 replaced, 0 the same already
    placements: 2 left to the engine: a running daemon was asked, and its engine chooses
    content sha256 4dca5a2b1ee07b6f9a348bb664ff9a75b27e317c8e48e95cc9e0ad6527bff978
    ");
    assert!(to.desired("web.service").await.is_empty());
    let first = to.run("import cluster.jsonl").await.ok();
    insta::assert_snapshot!(plain(first.stdout), @r"
    cluster.jsonl: an export by fleet VERSION at revision N of lineage test
    units: 2 created, 0 replaced, 0 the same already
    placements: 2 left to the engine: a running daemon was asked, and its engine chooses
    content sha256 4dca5a2b1ee07b6f9a348bb664ff9a75b27e317c8e48e95cc9e0ad6527bff978:
      read back, and the same
    ");
    assert_eq!(to.desired("web.service").await, "launched");
    let again = to.run("import cluster.jsonl").await.ok();
    insta::assert_snapshot!(plain(again.stdout), @r"
    cluster.jsonl: an export by fleet VERSION at revision N of lineage test
    units: 0 created, 0 replaced, 2 the same already
    content sha256 4dca5a2b1ee07b6f9a348bb664ff9a75b27e317c8e48e95cc9e0ad6527bff978:
      read back, and the same
    ");
    let name = to.run("import -o name cluster.jsonl").await.ok();
    assert_eq!(name.stdout, "cluster.jsonl\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_is_refused_unless_it_may_be_replaced() {
    let (from, to) = (source().await, Cluster::start(&["m1"]).await);
    hand_over(&from, &to, "cluster.jsonl");
    to.write("web.service", "[Service]\nExecStart=/bin/other\n");
    to.run("submit web").await.ok();
    let refused = to.run("import cluster.jsonl").await;
    assert_eq!(refused.code, 1);
    let told =
        refused.stdout.lines().skip(1).map(|line| line.replace(": ", ":\n").replace(", ", ",\n"));
    insta::assert_snapshot!(told.collect::<String>(), @r"
    line 3:
    web.service:
    the cluster has another:
    its hash is ec3b7e6a3cfb6d1936f92cf0fc0e7d38ca2225ad,
    here 6cff4623f30236de664919cd42d8a00601a43de5
    ");
    insta::assert_snapshot!(refused.stderr, @r"
    fleetctl: nothing was written: 1 refused, as told above
    help: --replace puts what is in the file in the place of what differs in the cluster
    help: --keep-going imports the rest
    ");
    assert!(to.desired("db.service").await.is_empty(), "something was written");

    let rest = to.run("import --keep-going cluster.jsonl").await;
    assert_eq!((rest.code, to.desired("db.service").await.as_str()), (1, "launched"));
    let replaced = to.run("import --replace cluster.jsonl").await.ok();
    assert!(replaced.stdout.contains("0 created, 1 replaced, 1 the same"), "{replaced}");
    assert_eq!(to.desired("web.service").await, "launched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_imported_is_refused_with_what_to_do() {
    let cluster = source().await;
    let whole = std::fs::read_to_string(cluster.folder().join("cluster.jsonl")).unwrap();
    cluster.write("cut.jsonl", &whole[..whole.len() - 100]);
    cluster.write("list", "/_coreos.com/fleet/job\n");
    cluster.write("memory.toml", "store = \"memory\"\n");
    cluster.write("data.toml", "data_dir = \"data\"\n");
    cluster.write("wrong.toml", "stor = \"memory\"\n");
    let mut told = String::new();
    for (line, code) in [
        ("import", 2),
        ("import none.jsonl", 1),
        ("import cut.jsonl", 1),
        ("import list", 1),
        ("import --config memory.toml cluster.jsonl", 2),
        ("import --config wrong.toml cluster.jsonl", 2),
        ("export --config data.toml out.jsonl", 1),
    ] {
        let run = cluster.run(line).await;
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{line}: {run}");
        if line != "import" {
            told += &format!(
                "{line}\n  {}\n",
                run.stderr.trim_end().replace(": ", ":\n  ").replace("by curl ", "by curl\n  ")
            );
        }
    }
    insta::assert_snapshot!(told, @r#"
    import none.jsonl
      fleetctl:
      cannot read none.jsonl:
      No such file or directory (os error 2)
    help:
      name a file that "fleetctl export FILE" wrote
    import cut.jsonl
      fleetctl:
      cannot import cut.jsonl:
      the export cannot be used:
      the export is cut off after line 3:
      its last line is missing
    import list
      fleetctl:
      cannot import list:
      the file is neither an export nor the keys of a fleet v1:
      line 1, column 1:
      expected value:
      get the keys with their values, as by curl
      http://ETCD:2379/v2/keys/_coreos.com/fleet?recursive=true
    import --config memory.toml cluster.jsonl
      fleetctl:
      memory.toml keeps the cluster in the memory of the daemon:
      ask the daemon, without --config
    import --config wrong.toml cluster.jsonl
      fleetctl:
      wrong.toml:1:1:
      unknown key "stor":
      did you mean "store"?
    export --config data.toml out.jsonl
      fleetctl:
      there is no store data/store.redb
    "#);
    assert!(
        !cluster.folder().join("out.jsonl").exists() && !cluster.folder().join("data").exists()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_a_daemon_takes_an_export_in() {
    let cluster = source().await;
    cluster.write("data.toml", "data_dir = \"data\"\n");
    let imported = cluster.run("import --config data.toml cluster.jsonl").await.ok();
    assert!(imported.stdout.contains("units: 2 created"), "{imported}");
    assert!(imported.stdout.contains("placements: 2 kept"), "{imported}");
    cluster.run("export --config data.toml moved.jsonl").await.ok();
    let units = |name: &str| {
        let text = std::fs::read_to_string(cluster.folder().join(name)).unwrap();
        text.lines().filter(|it| it.contains("\"unit\"")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(units("moved.jsonl"), units("cluster.jsonl"));
}

/// A daemon that starts on a store that was begun for an import would take it for its cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_is_refused_leaves_no_store_behind() {
    let cluster = source().await;
    cluster.write("data.toml", "data_dir = \"new/data\"\n");
    cluster.write("v1.json", r#"{"/f/job/web.service/object": "damaged"}"#);
    let before = cluster.folder().read_dir().unwrap().count();
    let refused = cluster.run("import --config data.toml v1.json").await;
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("nothing was written: 1 refused"), "{refused}");
    assert_eq!(cluster.folder().read_dir().unwrap().count(), before, "something was left behind");

    cluster.run("import --config data.toml cluster.jsonl").await.ok();
    let left: Vec<_> = cluster.folder().join("new/data").read_dir().unwrap().collect();
    assert_eq!((left.len(), cluster.folder().read_dir().unwrap().count()), (1, before + 1));
}

/// An import that is killed cannot clear away the store that it was making.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_clears_away_what_a_killed_one_left_and_nothing_else() {
    let cluster = source().await;
    cluster.write("data.toml", "data_dir = \"data\"\n");
    let folder = |name: &str| {
        let folder = cluster.folder().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("store.redb"), "").unwrap();
        folder
    };
    let left = folder(".fleet-import-left");
    let stay = [folder(".fleet-import-at-work"), folder(".fleet-imported")];
    let lock = std::fs::File::open(&stay[0]).unwrap();
    lock.lock().unwrap();
    let file = cluster.folder().join(".fleet-import-file");
    std::fs::write(&file, "").unwrap();

    cluster.run("import --config data.toml cluster.jsonl").await.ok();
    assert!(!left.exists());
    assert!(stay.iter().all(|folder| folder.join("store.redb").exists()) && file.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_is_named_once() {
    let cluster = Cluster::start(&[]).await;
    cluster.write("data.toml", "data_dir = \"data\"\n");
    std::fs::create_dir(cluster.folder().join("data")).unwrap();
    let _store = EmbeddedStore::open(cluster.folder().join("data/store.redb")).await.unwrap();
    let refused = cluster.run("export --config data.toml").await.stderr.replace(": ", ":\n");
    insta::assert_snapshot!(refused, @r"
    fleetctl:
    cannot open the store:
    data/store.redb is in use by another process:
    end it, or choose another data directory
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_become_of_machines_moves_with_the_cluster() {
    let (from, to) = (source().await, Cluster::start(&["m2"]).await);
    from.run("machine cordon m1").await.ok();
    let told = from.run("export -o json cluster.jsonl").await.ok().stdout;
    assert!(told.contains("\"intents\": 1") || told.contains("\"intents\":1"), "{told}");
    hand_over(&from, &to, "cluster.jsonl");
    let imported = to.run("import cluster.jsonl").await.ok();
    assert!(imported.stdout.contains("\nmachines to take no units: 1 noted\n"), "{imported}");
    let intents = to.registry.export().await.unwrap().intents;
    assert_eq!(
        intents.into_iter().collect::<Vec<_>>(),
        [("m1".parse().unwrap(), Intent::Cordoned)]
    );
    let again = to.run("import cluster.jsonl").await.ok();
    assert!(!again.stdout.contains("machines to take no units"), "{again}");
}

/// The same line, in two if it is too long for this file.
fn fitted(line: &str) -> String {
    let last_blank = line.get(..96).and_then(|start| start.rfind(' '));
    last_blank.map_or(line.to_owned(), |at| format!("{}\n{}", &line[..at], &line[at + 1..]))
}

/// What is said of a command, but for the options that all have.
async fn help(command: &str) -> String {
    let cluster = Cluster::start(&[]).await;
    let text = cluster.run(&format!("{command} --help")).await.ok().stdout;
    let lines = text.lines().map(|line| fitted(line.trim_end()));
    let text = lines.collect::<Vec<_>>().join("\n");
    let (mut kept, mut is_common) = (Vec::new(), false);
    for part in text.split("\n\n") {
        // What stands at the margin begins something else.
        if !part.starts_with(' ') {
            is_common = part.starts_with("Options of every command:");
        }
        if !is_common && !part.contains("-h, --help") {
            kept.push(part);
        }
    }
    kept.join("\n\n")
}

#[tokio::test]
async fn help_tells_what_moving_a_cluster_takes() {
    insta::assert_snapshot!(help("export").await, @r#"
    Write the cluster to one portable file: to back it up, or to move it.

    The file holds the units with their texts, desired states and machines, the metadata that was
    set,
    and what was said is to become of machines, at one revision, with checksums. It is written as a
    whole or not at all.

    Usage: fleetctl export [OPTIONS] [FILE]

    Arguments:
      [FILE]
              The file, which is replaced if it is there; "-" is standard output

              [default: -]

    Options:
          --config <FLEETD.TOML>
              Read the store that this configuration of fleetd names, instead of asking a daemon
    "#);
    insta::assert_snapshot!(help("import").await, @r#"
    Bring in what an export holds, or the keys of a fleet v1.

    Everything is checked before the first write, and read back after the last. What is there
    already is
    left, so an import that broke off is finished by running it again.

    Usage: fleetctl import [OPTIONS] <FILE>

    Arguments:
      <FILE>
              An export, or the keys of a fleet v1 as JSON; "-" is standard input

    Options:
          --dry-run
              Check everything, say what would be done, and write nothing

          --replace
              Put what is in the file in the place of what differs in the cluster

          --keep-going
              Leave out what is refused, and import the rest

          --config <FLEETD.TOML>
              Write to the store that this configuration of fleetd names, instead of asking a
    daemon

    A cluster that moves, so that nothing restarts: export it, end its daemons, import with
    --config
    into the new store, start the daemons on it.
    Exit codes: 0 all is there, 1 something was refused or is not as it was written, 2 the command
    line
    or the configuration is wrong.
    "#);
}
