//! Observation of a cluster, and waiting for conditions.

use std::collections::BTreeMap;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, MACHINES};

/// Longest time to wait for a condition.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// Interval between checks of a condition.
const PAUSE: Duration = Duration::from_millis(50);

/// A run of a unit, as reported by the machine's systemd. Each run has its own invocation ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) active: String,
    pub(crate) main_pid: String,
    pub(crate) restarts: String,
    pub(crate) invocation: String,
}

impl Cluster {
    /// Returns the rows of `list-units` for one unit; none while the first machine does not
    /// respond.
    pub(crate) fn rows(&self, unit: &str) -> Vec<Value> {
        let mut rows = self.listed("list-units");
        rows.retain(|row| row["unit"] == unit);
        rows
    }

    /// Returns all rows of a list command.
    pub(crate) fn listed(&self, list: &str) -> Vec<Value> {
        serde_json::from_slice(&self.fleetctl(&[list, "-o", "json"]).stdout).unwrap_or_default()
    }

    /// Returns the machines on which the unit is active, as listed by the cluster.
    pub(crate) fn active_on(&self, unit: &str) -> Vec<&'static str> {
        let mut on: Vec<_> = self
            .rows(unit)
            .iter()
            .filter(|row| row["active"] == "active")
            .filter_map(|row| self.name_of(row["machine"].as_str()?))
            .collect();
        on.sort_unstable();
        on
    }

    /// Waits until the unit is active on this many machines. Returns their names.
    pub(crate) fn wait_active(&self, unit: &str, machines: usize) -> Vec<&'static str> {
        wait_for(&format!("{unit} is active on {machines} machines"), || {
            let on = self.active_on(unit);
            (on.len() == machines).then_some(on)
        })
    }

    /// Waits until the cluster lists the unit as active on one machine. Returns its name.
    pub(crate) fn wait_single_machine(&self, unit: &str) -> &'static str {
        self.wait_active(unit, 1)[0]
    }

    /// Waits until the unit is active on exactly these machines, according to the cluster and to
    /// each machine's systemd.
    pub(crate) fn wait_exactly(&self, unit: &str, machines: &[&str]) {
        wait_for(&format!("{unit} is active on {machines:?} alone"), || {
            let mut runs = self.runs(unit);
            runs.retain(|_, run| run.active == "active");
            let there = runs.keys().map(|(machine, _)| *machine).eq(machines.iter().copied());
            (there && self.active_on(unit) == machines).then_some(())
        });
    }

    /// Returns the names of the present machines.
    pub(crate) fn present(&self) -> Vec<&'static str> {
        let rows = self.listed("list-machines");
        let names = rows.iter().filter_map(|row| self.name_of(row["machine"].as_str()?));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }

    /// Waits until exactly these machines are present.
    pub(crate) fn wait_present(&self, machines: &[&str]) {
        wait_for(&format!("{machines:?} are present"), || {
            (self.present() == machines).then_some(())
        });
    }

    /// Returns a unit's property from a machine's systemd.
    pub(crate) fn show(&self, machine: &str, unit: &str, property: &str) -> String {
        self.kit.exec(machine, &format!("systemctl show --value -p {property} '{unit}'"))
    }

    /// Returns the runs of a machine's units that match a systemd pattern.
    pub(crate) fn runs_on(&self, machine: &str, pattern: &str) -> BTreeMap<String, Run> {
        let properties = "Id,ActiveState,MainPID,NRestarts,InvocationID";
        let shown = self.kit.exec(machine, &format!("systemctl show -p {properties} '{pattern}'"));
        shown.split("\n\n").filter(|block| !block.is_empty()).map(run).collect()
    }

    /// Returns the runs on all machines, by machine and unit.
    pub(crate) fn runs(&self, pattern: &str) -> BTreeMap<(&'static str, String), Run> {
        let on = |machine: &'static str| {
            let runs = self.runs_on(machine, pattern).into_iter();
            runs.map(move |(unit, run)| ((machine, unit), run))
        };
        MACHINES.into_iter().flat_map(on).collect()
    }
}

fn run(block: &str) -> (String, Run) {
    let of = |property: &str| {
        let value = block.lines().find_map(|line| line.strip_prefix(property)?.strip_prefix('='));
        value.unwrap_or_default().to_owned()
    };
    let run = Run {
        active: of("ActiveState"),
        main_pid: of("MainPID"),
        restarts: of("NRestarts"),
        invocation: of("InvocationID"),
    };
    (of("Id"), run)
}

/// Waits until `condition` returns a value.
pub(crate) fn wait_for<T>(what: &str, condition: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "timeout while waiting for: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Checks each second of a period that a condition stays true.
pub(crate) fn wait_while(what: &str, period: Duration, holds: impl Fn() -> bool) {
    let end = Instant::now() + period;
    while Instant::now() < end {
        assert!(holds(), "no longer: {what}");
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Waits while a fault lasts.
pub(crate) fn wait_out(fault: Duration) {
    std::thread::sleep(fault);
}

/// Formats a program's status and output for a failure message.
pub(crate) fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}
