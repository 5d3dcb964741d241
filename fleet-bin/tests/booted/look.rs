//! What a story looks at, and how it waits.

use std::collections::BTreeMap;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, MACHINES};

/// How long a story waits for what must happen at all.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// How long to leave a condition alone between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A run of a unit, as the machine's systemd tells of it. Another run has another identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) active: String,
    pub(crate) main_pid: String,
    pub(crate) restarts: String,
    pub(crate) invocation: String,
}

impl Cluster {
    /// The rows of `list-units` that are about one unit; none while the machine that is asked
    /// does not answer.
    pub(crate) fn rows(&self, unit: &str) -> Vec<Value> {
        let mut rows = self.listed("list-units");
        rows.retain(|row| row["unit"] == unit);
        rows
    }

    /// All rows of a list.
    pub(crate) fn listed(&self, list: &str) -> Vec<Value> {
        serde_json::from_slice(&self.fleetctl(&[list, "-o", "json"]).stdout).unwrap_or_default()
    }

    /// The names of the machines on which the unit is active, as the cluster shows it.
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

    /// Waits until the unit is active on this many machines, and returns their names.
    pub(crate) fn wait_active(&self, unit: &str, machines: usize) -> Vec<&'static str> {
        wait_for(&format!("{unit} is active on {machines} machines"), || {
            let on = self.active_on(unit);
            (on.len() == machines).then_some(on)
        })
    }

    /// Waits until the cluster shows that the unit is active on one machine, and on which.
    pub(crate) fn wait_one(&self, unit: &str) -> &'static str {
        self.wait_active(unit, 1)[0]
    }

    /// Waits until the unit is active on these machines and no other, for the cluster as well as
    /// for the systemd of each machine.
    pub(crate) fn wait_exactly(&self, unit: &str, machines: &[&str]) {
        wait_for(&format!("{unit} is active on {machines:?} alone"), || {
            let mut runs = self.runs(unit);
            runs.retain(|_, run| run.active == "active");
            let there = runs.keys().map(|(machine, _)| *machine).eq(machines.iter().copied());
            (there && self.active_on(unit) == machines).then_some(())
        });
    }

    /// The names of the machines that are present.
    pub(crate) fn present(&self) -> Vec<&'static str> {
        let rows = self.listed("list-machines");
        let names = rows.iter().filter_map(|row| self.name_of(row["machine"].as_str()?));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }

    /// Waits until these machines are present, and no other.
    pub(crate) fn wait_present(&self, machines: &[&str]) {
        wait_for(&format!("{machines:?} are present"), || {
            (self.present() == machines).then_some(())
        });
    }

    /// A property of a unit, as a machine's systemd tells it.
    pub(crate) fn show(&self, machine: &str, unit: &str, property: &str) -> String {
        self.kit.exec(machine, &format!("systemctl show --value -p {property} '{unit}'"))
    }

    /// The runs of all units on a machine that match a pattern of systemd's.
    pub(crate) fn runs_on(&self, machine: &str, pattern: &str) -> BTreeMap<String, Run> {
        let properties = "Id,ActiveState,MainPID,NRestarts,InvocationID";
        let shown = self.kit.exec(machine, &format!("systemctl show -p {properties} '{pattern}'"));
        shown.split("\n\n").filter(|block| !block.is_empty()).map(run).collect()
    }

    /// The runs on all machines, by machine and unit.
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

/// Waits until `condition` gives something.
pub(crate) fn wait_for<T>(what: &str, condition: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits for a while in which something has to stay as it is.
pub(crate) fn wait_while(what: &str, long: Duration, so: impl Fn() -> bool) {
    let end = Instant::now() + long;
    while Instant::now() < end {
        assert!(so(), "no longer: {what}");
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// What a program printed, for a failure's message.
pub(crate) fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}
