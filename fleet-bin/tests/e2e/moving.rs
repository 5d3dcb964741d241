//! Migrations of a cluster to another store, with real daemons and units that keep running.

#[cfg(feature = "etcd")]
mod etcd;

use std::process::Output;

use rustix::process::Pid;
use serde_json::Value;

use crate::daemon::{is_alive, main_pid, output_text, wait_for};
use crate::run::{Machine, UNIT};

impl Machine {
    /// Runs fleetctl, asserts its success, and returns its output.
    fn succeed(&self, args: &[&str]) -> String {
        let output = self.fleetctl(args);
        assert!(output.status.success(), "fleetctl {args:?}: {}", output_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn config(&self) -> String {
        self.path("fleet.conf").to_str().unwrap().to_owned()
    }

    /// Exports the cluster to a file, and returns the path of the file.
    fn export(&self, name: &str, args: &[&str]) -> String {
        let file = self.path(name).to_str().unwrap().to_owned();
        self.succeed(&[&["export", file.as_str()], args].concat());
        file
    }

    fn import(&self, args: &[&str]) -> Output {
        self.fleetctl(&[&["import", "-o", "json"], args].concat())
    }

    /// Waits until the daemon reports the unit as active, and asserts that its process has not
    /// changed.
    fn wait_undisturbed(&self, pid: Pid) {
        let row = wait_for("the unit is listed again", || self.row());
        assert_eq!(main_pid(&row), pid, "the unit was restarted");
    }
}

fn report(output: &Output) -> Value {
    let reports: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    reports.into_iter().next().unwrap_or_else(|| panic!("no report: {}", output_text(output)))
}

/// Returns the lines of an export about units.
fn units(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let units = text.lines().filter(|line| line.starts_with(r#"{"kind":"unit""#));
    units.map(str::to_owned).collect()
}

#[test]
fn lost_store_is_restored_from_an_export_without_restarts() {
    let mut machine = Machine::new();
    let pid = main_pid(&machine.start_with_unit());
    machine.succeed(&["restart", UNIT]);
    let restarted = main_pid(&wait_for("the unit is active", || machine.row()));
    assert_ne!(restarted, pid);
    let file = machine.export("backup", &[]);
    let busy = machine.import(&[&file, "--config", &machine.config()]);
    let errors = String::from_utf8_lossy(&busy.stderr);
    assert!(busy.status.code() == Some(1) && errors.contains("in use"), "{}", output_text(&busy));

    machine.end();
    let offline = machine.export("offline", &["--config", &machine.config()]);
    assert_eq!(units(&offline), units(&file));
    std::fs::remove_file(machine.path("data/store.redb")).unwrap();
    let dry = machine.import(&[&file, "--dry-run", "--config", &machine.config()]);
    assert_eq!(report(&dry)["kept"], 1, "{}", output_text(&dry));
    assert!(!machine.path("data/store.redb").exists(), "a dry run must not create a store");
    let imported = machine.import(&[&file, "--config", &machine.config()]);
    let imported = report(&imported);
    assert_eq!((&imported["created"], &imported["kept"]), (&1.into(), &1.into()), "{imported}");
    assert_eq!(imported["differing"], Value::Array(Vec::new()));

    machine.start();
    machine.wait_undisturbed(restarted);
    assert_eq!(units(&machine.export("after", &[])), units(&file));
    // New requests must be newer than the generations that the machine has recorded.
    machine.succeed(&["restart", UNIT]);
    let again = wait_for("the unit has restarted", || {
        machine.row().filter(|row| main_pid(row) != restarted)
    });
    machine.succeed(&["destroy", UNIT]);
    wait_for("the process has ended", || (!is_alive(main_pid(&again))).then_some(()));
    machine.end();
}

#[test]
fn running_cluster_imports_and_places_units() {
    let mut source = Machine::new();
    source.start_with_unit();
    let file = source.export("export", &[]);
    let mut target = Machine::new();
    target.start();
    let imported = target.import(&[&file]);
    let first = report(&imported);
    assert_eq!((&first["created"], &first["left"]), (&1.into(), &1.into()), "{first}");
    wait_for("the unit also runs on the target", || target.row());
    let second = report(&target.import(&[&file]));
    assert_eq!((&second["created"], &second["same"]), (&0.into(), &1.into()), "{second}");
    assert_eq!(second["content"], first["content"]);
    source.end();
    target.end();
}
