//! `export` and `import`.

use fleet_core::{Intent, TargetState};
use fleet_store::EmbeddedStore;
use fleet_store::registry::{ExpectUnit, NewUnit};
use fleet_unitfile::UnitFile;

use crate::cluster::Cluster;

/// Starts a cluster with two units and metadata, and exports it.
async fn source() -> Cluster {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "db.service"]);
    cluster.run("start web db").await.ok();
    cluster.run("export cluster.jsonl").await.ok();
    cluster
}

/// Copies a file from one cluster's folder to another's.
fn copy_file(from: &Cluster, to: &Cluster, name: &str) {
    std::fs::copy(from.folder().join(name), to.folder().join(name)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_writes_a_file_or_standard_output() {
    let cluster = source().await;
    let out = cluster.run("export").await.ok();
    let file = std::fs::read_to_string(cluster.folder().join("cluster.jsonl")).unwrap();
    let units = |text: &str| text.matches("\"kind\":\"unit\"").count();
    assert_eq!((units(&out.stdout), units(&file)), (2, 2));
    let output = cluster.run("export -o json cluster.jsonl").await.ok().stdout;
    let output: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&output[0]["units"], &output[0]["file"]), (&2.into(), &"cluster.jsonl".into()));
    let folder = cluster.run("export .").await;
    assert_eq!(folder.code, 1);
    let expected = "fleetctl: cannot write .: it is a directory: give a file in it\n";
    assert_eq!(folder.stderr, expected);

    cluster.damage("web.service").await;
    let broken = cluster.run("export broken.jsonl").await;
    assert_eq!(broken.code, 1);
    insta::assert_snapshot!(broken.stderr.replace(": ", ":\n"), @r#"
    fleetctl:
    the export lacks units whose files cannot be read:
    web.service:
    the unit's record cannot be read:
    the value is damaged:
    expected value at line 1 column 1
    help:
    replace the files with "fleetctl submit --replace", or destroy the units, and export again
    "#);
    let file = std::fs::read_to_string(cluster.folder().join("broken.jsonl")).unwrap();
    assert!(file.contains("\"kind\":\"fault\"") && file.contains("\"kind\":\"end\""), "{file}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn import_prints_a_summary_and_is_repeatable() {
    let (from, to) = (source().await, Cluster::start(&["m1"]).await);
    copy_file(&from, &to, "cluster.jsonl");
    let header = std::fs::read_to_string(to.folder().join("cluster.jsonl")).unwrap();
    let revision = header.split("\"revision\":").nth(1).unwrap().split(',').next().unwrap();
    let of = |version| format!("fleet {version} at revision");
    let plain = |text: String| {
        let text = text.replace(&of(env!("CARGO_PKG_VERSION")), &of("VERSION"));
        let text = text.replace(&format!("revision {revision} "), "revision N ");
        text.replace("; read", ";\n  read")
    };
    let dry = to.run("import --dry-run cluster.jsonl").await.ok();
    insta::assert_snapshot!(plain(dry.stdout), @"
    cluster.jsonl: an export by fleet VERSION at revision N of lineage test
    dry run: nothing was written; these changes would be made:
    units: 2 created, 0 replaced, 0 unchanged
    placements: 2 left to the engine: the daemon's engine chooses the machines
    content sha256 4dca5a2b1ee07b6f9a348bb664ff9a75b27e317c8e48e95cc9e0ad6527bff978
    ");
    assert!(to.desired("web.service").await.is_empty());
    let first = to.run("import cluster.jsonl").await.ok();
    insta::assert_snapshot!(plain(first.stdout), @"
    cluster.jsonl: an export by fleet VERSION at revision N of lineage test
    units: 2 created, 0 replaced, 0 unchanged
    placements: 2 left to the engine: the daemon's engine chooses the machines
    content sha256 4dca5a2b1ee07b6f9a348bb664ff9a75b27e317c8e48e95cc9e0ad6527bff978;
      read back and verified
    ");
    assert_eq!(to.desired("web.service").await, "launched");
    let again = to.run("import cluster.jsonl").await.ok();
    insta::assert_snapshot!(plain(again.stdout), @"
    cluster.jsonl: an export by fleet VERSION at revision N of lineage test
    units: 0 created, 0 replaced, 2 unchanged
    content sha256 4dca5a2b1ee07b6f9a348bb664ff9a75b27e317c8e48e95cc9e0ad6527bff978;
      read back and verified
    ");
    let name = to.run("import -o name cluster.jsonl").await.ok();
    assert_eq!(name.stdout, "cluster.jsonl\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn import_refuses_differences_without_replace() {
    let (from, to) = (source().await, Cluster::start(&["m1"]).await);
    copy_file(&from, &to, "cluster.jsonl");
    to.write("web.service", "[Service]\nExecStart=/bin/other\n");
    to.run("submit web").await.ok();
    let refused = to.run("import cluster.jsonl").await;
    assert_eq!(refused.code, 1);
    let reasons =
        refused.stdout.lines().skip(1).map(|line| line.replace(": ", ":\n").replace(", ", ",\n"));
    insta::assert_snapshot!(reasons.collect::<String>(), @r"
    line 3:
    web.service:
    its unit file in the cluster is different:
    the hash is ec3b7e6a3cfb6d1936f92cf0fc0e7d38ca2225ad,
    in the file 6cff4623f30236de664919cd42d8a00601a43de5
    ");
    insta::assert_snapshot!(refused.stderr, @"
    fleetctl: nothing was imported from cluster.jsonl: 1 item was refused, as listed above
    help: if units differ in the cluster, add --replace to overwrite them
    help: add --keep-going to skip the refused items and import the rest
    ");
    assert!(to.desired("db.service").await.is_empty(), "nothing may be written");

    let rest = to.run("import --keep-going cluster.jsonl").await;
    assert_eq!((rest.code, to.desired("db.service").await.as_str()), (1, "launched"));
    let replaced = to.run("import --replace cluster.jsonl").await.ok();
    assert!(replaced.stdout.contains("0 created, 1 replaced, 1 unchanged"), "{replaced}");
    assert_eq!(to.desired("web.service").await, "launched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_imports_are_refused_with_help() {
    let cluster = source().await;
    let whole = std::fs::read_to_string(cluster.folder().join("cluster.jsonl")).unwrap();
    cluster.write("cut.jsonl", &whole[..whole.len() - 100]);
    cluster.write("list", "/_coreos.com/fleet/job\n");
    cluster.write("memory.toml", "store = \"memory\"\n");
    cluster.write("data.toml", "data_dir = \"data\"\n");
    cluster.write("wrong.toml", "stor = \"memory\"\n");
    let mut output = String::new();
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
            output += &format!(
                "{line}\n  {}\n",
                run.stderr.trim_end().replace(": ", ":\n  ").replace("with curl ", "with curl\n  ")
            );
        }
    }
    insta::assert_snapshot!(output, @r#"
    import none.jsonl
      fleetctl:
      cannot read none.jsonl:
      No such file or directory (os error 2)
    help:
      give a file that "fleetctl export FILE" wrote
    import cut.jsonl
      fleetctl:
      cannot import cut.jsonl:
      the export cannot be used:
      the export is cut off after line 3:
      its last line is missing
    import list
      fleetctl:
      cannot import list:
      the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1:
      line 1, column 1:
      expected value:
      create the dump with curl
      'http://ETCD:2379/v2/keys/_coreos.com/fleet?recursive=true'
    import --config memory.toml cluster.jsonl
      fleetctl:
      memory.toml selects the memory store, which only the running daemon can read:
      omit --config to use that daemon
    import --config wrong.toml cluster.jsonl
      fleetctl:
      wrong.toml:1:1:
      unknown key "stor":
      did you mean "store"?
    export --config data.toml out.jsonl
      fleetctl:
      the store data/store.redb does not exist
    "#);
    assert!(
        !cluster.folder().join("out.jsonl").exists() && !cluster.folder().join("data").exists()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offline_store_imports_an_export() {
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

/// A daemon that starts on the store of an unfinished import would take it for its cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_import_creates_no_store() {
    let cluster = source().await;
    cluster.write("data.toml", "data_dir = \"new/data\"\n");
    cluster.write("v1.json", r#"{"/f/job/web.service/object": "damaged"}"#);
    let before = cluster.folder().read_dir().unwrap().count();
    let refused = cluster.run("import --config data.toml v1.json").await;
    assert_eq!(refused.code, 1, "{refused}");
    assert!(
        refused.stderr.contains("nothing was imported from v1.json: 1 item was refused"),
        "{refused}"
    );
    assert_eq!(cluster.folder().read_dir().unwrap().count(), before, "a file is left behind");

    cluster.run("import --config data.toml cluster.jsonl").await.ok();
    let left: Vec<_> = cluster.folder().join("new/data").read_dir().unwrap().collect();
    assert_eq!((left.len(), cluster.folder().read_dir().unwrap().count()), (1, before + 1));
}

/// A killed import cannot remove its unfinished store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn import_removes_only_leftovers_of_a_killed_import() {
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
async fn store_in_use_is_named_once() {
    let cluster = Cluster::start(&[]).await;
    cluster.write("data.toml", "data_dir = \"data\"\n");
    std::fs::create_dir(cluster.folder().join("data")).unwrap();
    let _store = EmbeddedStore::open(cluster.folder().join("data/store.redb")).await.unwrap();
    let refused = cluster.run("export --config data.toml").await.stderr.replace(": ", ":\n");
    insta::assert_snapshot!(refused, @r"
    fleetctl:
    cannot open the store:
    data/store.redb is in use by another process:
    end that process, or choose another data directory
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intents_are_exported_and_imported() {
    let (from, to) = (source().await, Cluster::start(&["m2"]).await);
    from.run("machine cordon m1").await.ok();
    let output = from.run("export -o json cluster.jsonl").await.ok().stdout;
    assert!(output.contains("\"intents\": 1") || output.contains("\"intents\":1"), "{output}");
    copy_file(&from, &to, "cluster.jsonl");
    let imported = to.run("import cluster.jsonl").await.ok();
    assert!(imported.stdout.contains("\nmachine intents: 1 set\n"), "{imported}");
    let intents = to.registry.export().await.unwrap().intents;
    assert_eq!(
        intents.into_iter().collect::<Vec<_>>(),
        [("m1".parse().unwrap(), Intent::Cordoned)]
    );
    let again = to.run("import cluster.jsonl").await.ok();
    assert!(!again.stdout.contains("machine intents"), "{again}");
}

/// Returns the help of a command, without trailing blanks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_store_is_saved_and_imported() {
    let cluster = source().await;
    cluster.write("data.toml", "data_dir = \"data\"\n");
    cluster.write("new.toml", "data_dir = \"new\"\n");
    cluster.run("import --config data.toml cluster.jsonl").await.ok();
    // Opening the store moves all writes to its tables.
    cluster.run("export --config data.toml good.jsonl").await.ok();
    let path = cluster.folder().join("data/store.redb");
    let good = std::fs::read(&path).unwrap();

    // Without its first byte, the file is no database. All rows are readable.
    let mut bad = good.clone();
    bad[0] = 0;
    std::fs::write(&path, &bad).unwrap();
    let refused = cluster.run("export --config data.toml").await;
    let hint = "\"fleetctl export --salvage data/store.redb export.jsonl\"";
    assert!(refused.code == 1 && refused.stderr.contains(hint), "{}", refused.stderr);
    let saved = cluster.run("export --salvage data/store.redb saved.jsonl").await.ok();
    assert!(saved.stdout.starts_with("exported 2 units"), "{}", saved.stdout);
    assert_eq!(std::fs::read(&path).unwrap(), bad);

    // The record of a unit is damaged in all versions of its page.
    let mut bad = good.clone();
    let record = b"/fleet/units/web.service";
    let places = good.windows(record.len()).enumerate().filter(|(_, text)| text == record);
    places.for_each(|(at, text)| bad[at + text.len() - 1] ^= 1);
    std::fs::write(&path, &bad).unwrap();
    let saved = cluster.run("export --salvage data/store.redb saved.jsonl").await;
    assert_eq!(saved.code, 1);
    let lines = saved.stderr.replace(": ", ":\n").replace(", and", ",\nand");
    insta::assert_snapshot!(lines, @r#"
    fleetctl:
    data/store.redb is not fully readable:
      unreadable:
    1 of 8 rows of the table of keys
      lost:
    unit web.service
    help:
    import the export into a new store, compare it with your unit files,
    and run "fleetd accept-store" on each machine:
    this stops the units that are not in it
    "#);
    cluster.run("import --config new.toml saved.jsonl").await.ok();
    let moved = cluster.run("export --config new.toml -").await.ok().stdout;
    assert!(moved.contains("\"db.service\"") && !moved.contains("\"web.service\""), "{moved}");
}

async fn help(command: &str) -> String {
    let cluster = Cluster::start(&[]).await;
    let text = cluster.run(&format!("{command} --help")).await.ok().stdout;
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn export_help_describes_the_file() {
    insta::assert_snapshot!(help("export").await, @r#"
    Export the cluster to a file, as a backup or to migrate it.

    The file contains the unit files with their desired states and machines, the
    metadata that was set at run time, and all cordons and drains. All content is
    from one revision of the store, and the file has checksums. An existing file is
    only replaced after the export is complete.

    Usage: fleetctl export [OPTIONS] [FILE]

    Arguments:
      [FILE]
              File to write; an existing one is replaced; "-" is standard output

              [default: -]

    Options:
          --config <FLEETD.TOML>
              Read the store of this fleetd configuration directly, not through a
              daemon

          --salvage <STORE.REDB>
              Read what is readable of this damaged file of an embedded store; the
              file is not changed

      -h, --help
              Print help (see a summary with '-h')

    Global options: see `fleetctl --help`.
    "#);
}

#[tokio::test]
async fn import_help_describes_a_migration() {
    insta::assert_snapshot!(help("import").await, @r#"
    Import an export, or an etcd dump of fleet v1.

    fleetctl checks the whole file before the first write, and reads everything back
    after the last write. Units that are identical in the cluster are skipped, so an
    interrupted import can be run again.

    Usage: fleetctl import [OPTIONS] <FILE>

    Arguments:
      <FILE>
              File to read: an export, or an etcd dump (JSON) of fleet v1; "-" is
              standard input

    Options:
          --dry-run
              Check everything and print the changes, but write nothing

          --replace
              Replace units, metadata, cordons and drains of the cluster that differ
              from the file

          --keep-going
              Skip items that are refused, and import the others

          --config <FLEETD.TOML>
              Write to the store of this fleetd configuration directly, not through
              a daemon

      -h, --help
              Print help (see a summary with '-h')

    To migrate a cluster without restarting its units: export it, stop its daemons,
    import into the new store with --config, and start the daemons on it.

    Exit codes: 0 success; 1 something was refused, or was not read back as written;
    2 the command line or the configuration is wrong.

    Global options: see `fleetctl --help`.
    "#);
}

/// Regression: an online import began all units with generation 0, so that a pending restart was
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn online_import_keeps_restart_requests() {
    let cluster = source().await;
    cluster.run("restart web").await.ok();
    cluster.run("export cluster.jsonl").await.ok();
    let other = Cluster::start(&["m1"]).await;
    copy_file(&cluster, &other, "cluster.jsonl");
    other.run("import cluster.jsonl").await.ok();
    let generation = |cluster: &Cluster, unit: &str| {
        cluster.mirror.snapshot().unit(unit).expect("it exists").generation
    };
    for unit in ["web.service", "db.service"] {
        assert_eq!(generation(&other, unit), generation(&cluster, unit), "{unit}");
    }
    let before = generation(&other, "web.service");
    // The import has deposed the engine of the test.
    other.run("restart --no-block web").await.ok();
    assert!(generation(&other, "web.service") > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lenient_import_prints_warnings() {
    let cluster = Cluster::start(&["m1"]).await;
    let text = "[Service]\nExecStart=/bin/web\n[X-Fleet]\nMachineMetaData=disk=ssd\n";
    let file = UnitFile::parse(text).unwrap();
    let unit =
        NewUnit { name: "web.service".parse().unwrap(), file, desired: TargetState::Inactive };
    cluster.registry.put_unit(unit, ExpectUnit::Absent).await.unwrap();
    cluster.wait_until(|it| it.unit("web.service").is_some()).await;
    cluster.run("export cluster.jsonl").await.ok();
    cluster.write("data.toml", "data_dir = \"data\"\nunknown_options = \"warn\"\n");
    let imported = cluster.run("import --config data.toml cluster.jsonl").await.ok();
    let warning = "warning: line 2: web.service: 4:1: ignored: [X-Fleet] has no option";
    assert!(imported.stderr.contains(warning), "{imported}");
}
