//! Commands of `fleetctl` on units of the common types.

use std::fs;

use serde_json::Value;

use crate::cluster::{Cluster, MACHINES, SLEEP};
use crate::observe::wait_for;

const TASK: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\n";

/// Units that trigger others: name, text, and the sub state in which each is up.
const STARTERS: [(&str, &str, &str); 4] = [
    ("poke.socket", "[Socket]\nListenFIFO=/run/poke\n", "listening"),
    ("tick.timer", "[Timer]\nOnActiveSec=1ms\nAccuracySec=1ms\n", "running"),
    ("watch.path", "[Path]\nPathExists=/run/watched\n", "waiting"),
    ("group.target", "# Both start and stop together.\n[Unit]\nWants=group.service\n", "active"),
];

/// Triggered units: name, text, and whether they start without an external event.
const STARTED: [(&str, &str, bool); 4] = [
    ("poke.service", "ExecStart=/bin/sh -c 'read line </run/poke; echo printed $line'\n", false),
    ("tick.service", "ExecStart=/bin/echo tick\n", true),
    ("watch.service", "ExecStart=/bin/echo seen\n", false),
    ("group.service", "ExecStart=/bin/echo together\n", true),
];

/// Writes all files. Returns the names of the units that are not templates.
fn write_all(cluster: &Cluster) -> Vec<&'static str> {
    for (unit, text, _) in STARTED {
        cluster.write(unit, &format!("{TASK}{text}"));
    }
    for (unit, text, _) in STARTERS {
        let started = unit.split('.').next().unwrap();
        cluster.write(unit, &format!("{text}[X-Fleet]\nMachineOf={started}.service\n"));
    }
    cluster
        .write("work@.service", "[Service]\nExecStart=/bin/sh -c 'echo %i works; exec sleep 1d'\n");
    let started = STARTED.map(|(unit, ..)| unit).into_iter();
    started.chain(STARTERS.map(|(unit, ..)| unit)).chain(["work@1.service"]).collect()
}

/// Joins a command with its units.
fn with<'a>(verb: &[&'a str], units: &[&'a str]) -> Vec<&'a str> {
    [verb, units].concat()
}

#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn commands_work_on_units_of_every_type() {
    let cluster = Cluster::boot("30s");
    let units = write_all(&cluster);
    let starters = with(&STARTERS.map(|(unit, ..)| unit), &["work@1.service"]);
    check_submitted_files(&cluster, &units);
    cluster.succeed(&with(&["load"], &units));
    for unit in &units {
        let rows = cluster.rows(unit);
        assert_eq!(rows.len(), 1, "{unit}: {rows:?}");
        assert_eq!((&rows[0]["load"], &rows[0]["active"]), (&"loaded".into(), &"inactive".into()));
    }
    cluster.succeed(&with(&["start"], &starters));
    check_triggered_units(&cluster);
    check_status_and_journals(&cluster, &units);
    check_restart_stop_and_destroy(&cluster, &units, &starters);
    check_import(&cluster, &units);
}

fn check_submitted_files(cluster: &Cluster, units: &[&str]) {
    let files: Vec<_> = units.iter().filter(|unit| !unit.contains('@')).copied().collect();
    cluster.succeed(&with(&["verify", "work@.service"], &files));
    cluster.write("wrong.service", "[Service]\nExecStrat=/bin/true\n");
    cluster.refused(1, &["verify", "wrong.service"]);
    cluster.succeed(&with(&["submit", "work@.service"], units));
    let listed = cluster.succeed(&["list-unit-files", "-o", "name"]);
    for unit in units.iter().chain(&["work@.service"]) {
        assert!(listed.lines().any(|line| line == *unit), "{unit} is not in {listed}");
        let path = cluster.kit.share("units").join(unit.replace("@1", "@"));
        let text = fs::read_to_string(path).unwrap();
        assert_eq!(cluster.succeed(&["cat", unit]), text, "{unit}");
    }
    assert_eq!(cluster.listed("list-units"), [Value::Null; 0], "a unit is on a machine");
    cluster.refused(1, &["start", "work@.service"]);
}

fn check_triggered_units(cluster: &Cluster) {
    for (unit, _, sub) in STARTERS {
        wait_for(&format!("{unit} is {sub}"), || {
            let rows = cluster.rows(unit);
            rows.iter().any(|row| row["active"] == "active" && row["sub"] == sub).then_some(())
        });
    }
    let machine_of = |unit| cluster.wait_single_machine(unit);
    cluster.kit.exec(machine_of("watch.path"), "touch /run/watched");
    cluster.kit.exec(machine_of("poke.socket"), "echo hello >/run/poke");
    for (unit, ..) in STARTED {
        cluster.wait_single_machine(unit);
    }
}

fn check_status_and_journals(cluster: &Cluster, units: &[&str]) {
    for unit in units {
        let shown = cluster.succeed(&["status", unit]);
        assert!(shown.contains(unit) && shown.contains("active"), "{shown}");
    }
    for (unit, line) in [
        ("work@1.service", "1 works"),
        ("poke.service", "printed hello"),
        ("tick.service", "tick"),
        ("group.service", "together"),
    ] {
        wait_for(&format!("the journal of {unit} has its line"), || {
            // A daemon reads the journal of its own machine.
            let journal =
                cluster.fleetctl_by(cluster.wait_single_machine(unit), &["journal", "--raw", unit]);
            String::from_utf8_lossy(&journal.stdout).contains(line).then_some(())
        });
    }
    cluster.succeed(&["export", "../results/export.jsonl"]);
    let exported = cluster.result_file("export.jsonl");
    for unit in units {
        assert!(exported.contains(&format!("\"{unit}\"")), "{unit} was not exported");
    }
}

fn check_restart_stop_and_destroy(cluster: &Cluster, units: &[&str], starters: &[&str]) {
    // systemd refuses to start a socket while its service runs. The earlier start must not count
    // as success.
    let printed = cluster.refused(1, &["restart", "poke.socket"]);
    assert!(printed.contains("systemd refuses it"), "{printed}");
    for unit in starters.iter().filter(|unit| **unit != "poke.socket") {
        let runs = || cluster.runs(unit).into_values().find(|run| run.active == "active");
        let before = runs().expect("the unit is active");
        cluster.succeed(&["restart", unit]);
        let after = runs().expect("the unit is active again");
        assert_ne!(after.invocation, before.invocation, "{unit} was not restarted");
    }
    cluster.succeed(&with(&["stop"], starters));
    for unit in starters {
        cluster.wait_exactly(unit, &[]);
        cluster.refused(3, &["status", unit]);
    }
    cluster.succeed(&with(&["unload"], units));
    assert_eq!(cluster.listed("list-units"), [Value::Null; 0], "a unit is on a machine");
    for unit in units {
        cluster.wait_exactly(unit, &[]);
    }
    cluster.succeed(&with(&["destroy", "work@.service"], units));
    cluster.refused(4, &["status", "work@1.service"]);
    cluster.refused(1, &["cat", "work@1.service"]);
    assert_eq!(cluster.listed("list-unit-files"), [Value::Null; 0], "unit files remain");
}

fn check_import(cluster: &Cluster, units: &[&str]) {
    cluster.succeed(&["import", "../results/export.jsonl"]);
    let listed = cluster.listed("list-unit-files");
    assert_eq!(listed.len(), units.len() + 1, "units and their template: {listed:?}");
    cluster.wait_single_machine("work@1.service");
    cluster.wait_single_machine("tick.service");
    cluster.succeed(&with(&["destroy", "work@.service"], units));
}

#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn machines_are_cordoned_drained_and_uncordoned() {
    let cluster = Cluster::boot("30s");
    let machines = cluster.listed("list-machines");
    for (machine, row) in MACHINES.iter().zip(&machines) {
        let name = cluster.name_of(row["machine"].as_str().unwrap()).unwrap();
        assert_eq!(row["metadata"]["name"], name, "{machine}: {machines:?}");
    }
    cluster.write("many@.service", SLEEP);
    let names: Vec<_> = (0..12).map(|number| format!("many@{number}.service")).collect();
    let names: Vec<_> = names.iter().map(|name| &**name).collect();
    let (drained, first) = (cluster.id("m2").to_owned(), &names[..6]);
    cluster.succeed(&with(&["start"], first));
    cluster.start("global.service", &format!("{SLEEP}[X-Fleet]\nGlobal=true\n"));
    let on = || cluster.runs_on("m2", "many@*").len();
    assert_eq!(on(), 2, "a third of the units");
    cluster.succeed(&["machine", "cordon", &drained]);
    cluster.succeed(&with(&["start"], &names[6..]));
    assert_eq!(on(), 2, "a cordoned machine took a unit");
    let shown = cluster.succeed(&["machine", "show", &drained]);
    assert!(shown.contains("cordoned") && shown.contains("many@"), "{shown}");

    cluster.succeed(&["machine", "drain", "--wait", &drained]);
    let after = cluster.runs_on("m2", "many@*");
    assert!(after.values().all(|run| run.active != "active"), "{after:?}");
    assert_eq!(cluster.runs("many@*").values().filter(|run| run.active == "active").count(), 12);
    cluster.succeed(&["machine", "uncordon", &drained]);
    cluster.start("heavy.service", &format!("{SLEEP}[X-Fleet]\nMachineID={drained}\n"));
    cluster.wait_exactly("heavy.service", &["m2"]);
    cluster.wait_exactly("global.service", &MACHINES);
}
