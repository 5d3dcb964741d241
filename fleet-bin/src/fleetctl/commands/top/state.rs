//! Pure: the state of the live view: its rows, their order, and what the user has selected.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use fleet_core::Timestamp;
use fleet_http::wire;

use super::usage::{Rates, Sample};
use crate::fleetctl::format::{
    MachineLabels, first_clause, short_machine, unknown_for, with_health, without_name,
};

/// A list of the view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Pane {
    /// The machines.
    Machines,
    /// The units.
    #[default]
    Units,
}

/// Value of a cell, by which rows are sorted.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A text, sorted alphabetically.
    Text(String),
    /// An amount as text, sorted with the largest amount first. `None` comes last.
    Amount(Option<f64>, String),
}

impl Value {
    /// Creates an amount. An unknown amount is shown as a dash.
    pub(super) fn amount(amount: Option<f64>, format: impl FnOnce(f64) -> String) -> Self {
        Self::Amount(amount, amount.map_or_else(|| "-".to_owned(), format))
    }

    /// Returns the text to show.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Amount(_, text) => text,
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Amount(one, _), Self::Amount(other, _)) => match (one, other) {
                (Some(one), Some(other)) => other.total_cmp(one),
                (one, other) => other.is_some().cmp(&one.is_some()),
            },
            (one, other) => one.text().cmp(other.text()),
        }
    }
}

/// A row of a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Unit, if the row is one of a unit.
    pub(super) unit: String,
    /// ID of the machine; empty for a unit without one.
    pub(super) machine: String,
    /// Whether the unit has failed, or the machine is absent.
    pub(super) has_failed: bool,
    /// The cells, in the order of the columns.
    pub(super) cells: Vec<Value>,
}

/// Order, filter and selection of a list.
#[derive(Debug, Clone, Default)]
pub(super) struct ListView {
    /// Number of the column by which the rows are sorted.
    pub(super) sort: usize,
    /// Whether the order is reversed.
    pub(super) is_reversed: bool,
    /// Text that shown rows contain.
    pub(super) filter: String,
    /// Unit and machine of the selected row, and its last position.
    selected: (String, String, usize),
}

/// A text that covers the lists.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    /// First line.
    pub(super) title: String,
    /// All lines.
    pub(super) lines: Vec<String>,
    /// Number of lines above the screen; `None` shows the end, also if it grows.
    pub(super) above: Option<usize>,
}

impl Page {
    /// Maximum number of lines that are kept.
    const MAX_LINES: usize = 10_000;

    /// Adds a line at the end.
    pub(super) fn push(&mut self, line: String) {
        self.lines.push(line);
        let excess = self.lines.len().saturating_sub(Self::MAX_LINES);
        self.lines.drain(..excess);
        self.above = self.above.map(|above| above.saturating_sub(excess));
    }
}

/// The cluster, as last listed.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    /// Units and their states.
    pub(super) rows: Vec<wire::UnitRow>,
    /// Machines that are present.
    pub(super) machines: Vec<wire::MachineEntity>,
    /// Machines that have left recently.
    pub(super) absent: Vec<wire::MachineEntity>,
}

/// State of the live view.
#[derive(Debug, Default)]
pub(super) struct Top {
    cluster: Cluster,
    rates: Rates,
    /// The list with the focus.
    pub(super) focus: Pane,
    /// View of the machines.
    pub(super) machines: ListView,
    /// View of the units.
    pub(super) units: ListView,
    /// Whether only failed units are shown.
    pub(super) only_failed: bool,
    /// Whether the user types a filter.
    pub(super) is_typing: bool,
    /// Text over the lists: logs, a status or the help.
    pub(super) page: Option<Page>,
    /// Note about a connection loss or a failed request.
    pub(super) note: String,
    /// Number of rows on a page, for scrolling.
    pub(super) page_rows: usize,
    /// Whether the first answer of the cluster has arrived.
    pub(super) is_loaded: bool,
}

/// Names of the columns of the machines.
pub(super) const MACHINE_COLUMNS: [&str; 6] =
    ["machine", "units", "cpu%", "memory", "load", "state"];

/// Names of the columns of the units.
pub(super) const UNIT_COLUMNS: [&str; 10] =
    ["unit", "machine", "active", "sub", "since", "cpu%", "memory", "tasks", "restarts", "reason"];

impl Top {
    /// Replaces the cluster.
    pub(super) fn set_cluster(&mut self, cluster: Cluster) {
        self.rates.retain(&cluster.machines);
        self.cluster = cluster;
        self.is_loaded = true;
        self.note.clear();
    }

    /// Records the usage of a machine.
    pub(super) fn add_sample(&mut self, machine: &str, sample: Sample) {
        self.rates.add(machine, sample);
    }

    /// Returns the machines that are present.
    pub(super) fn present(&self) -> &[wire::MachineEntity] {
        &self.cluster.machines
    }

    /// Returns the number of rows of units, and of those that have failed.
    pub(super) fn counts(&self) -> (usize, usize) {
        let failed = self.cluster.rows.iter().filter(|row| has_failed(row)).count();
        (self.cluster.rows.len(), failed)
    }

    /// Returns the view of a list.
    pub(super) fn view(&self, pane: Pane) -> &ListView {
        match pane {
            Pane::Machines => &self.machines,
            Pane::Units => &self.units,
        }
    }

    /// Returns the view of the list with the focus.
    pub(super) fn focused(&mut self) -> &mut ListView {
        match self.focus {
            Pane::Machines => &mut self.machines,
            Pane::Units => &mut self.units,
        }
    }

    /// Returns the rows to show, in order.
    pub(super) fn rows(&self, pane: Pane, now: Timestamp) -> Vec<Row> {
        let view = self.view(pane);
        let mut rows = match pane {
            Pane::Machines => self.machine_rows(),
            Pane::Units => self.unit_rows(now),
        };
        let filter = view.filter.to_lowercase();
        rows.retain(|row| {
            let is_wanted = pane == Pane::Machines || !self.only_failed || row.has_failed;
            is_wanted && row.cells.iter().any(|cell| cell.text().to_lowercase().contains(&filter))
        });
        rows.sort_by(|one, other| {
            let order = one.cells[view.sort].compare(&other.cells[view.sort]);
            if view.is_reversed { order.reverse() } else { order }
        });
        rows
    }

    fn machine_rows(&self) -> Vec<Row> {
        let labels = MachineLabels::new(&self.cluster.machines);
        let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
        for row in &self.cluster.rows {
            *counts.entry(&row.machine).or_default() += 1.0;
        }
        let all = self.cluster.machines.iter().chain(&self.cluster.absent);
        let row = |machine: &wire::MachineEntity| {
            let (id, usage) = (machine.id.as_str(), self.rates.machine(&machine.id));
            let state = match (machine.absent_for, machine.intent.as_str(), machine.cordoned) {
                (Some(seconds), ..) => format!("absent {}", unknown_for(seconds)),
                (None, "", true) => "cordoned".to_owned(),
                (None, "", false) => "present".to_owned(),
                (None, intent, _) => intent.to_owned(),
            };
            let memory = match (usage.memory_used, usage.memory_total) {
                (Some(used), Some(total)) => format!("{}/{}", bytes(used), bytes(total)),
                _ => "-".to_owned(),
            };
            let cells = vec![
                Value::Text(name(&labels, id)),
                Value::amount(Some(counts.get(id).copied().unwrap_or(0.0)), whole),
                Value::amount(usage.cpu, tenths),
                Value::Amount(usage.memory_used, memory),
                Value::amount(usage.load, |load| format!("{load:.2}")),
                Value::Text(state),
            ];
            let has_failed = machine.absent_for.is_some();
            Row { unit: String::new(), machine: id.to_owned(), has_failed, cells }
        };
        all.map(row).collect()
    }

    fn unit_rows(&self, now: Timestamp) -> Vec<Row> {
        let labels = MachineLabels::new(&self.cluster.machines);
        let row = |row: &wire::UnitRow| {
            let usage = self.rates.unit(&row.machine, &row.unit);
            let sub = match row.unknown_for {
                Some(seconds) => unknown_for(seconds),
                None => with_health(&row.sub, &row.health),
            };
            let age = row.since.map(|since| now.since(since.timestamp()));
            let cells = vec![
                Value::Text(row.unit.clone()),
                Value::Text(text_or_dash(&name(&labels, &row.machine))),
                Value::Text(text_or_dash(&row.active)),
                Value::Text(text_or_dash(&sub)),
                // The youngest state comes first.
                Value::Amount(
                    age.map(|age| -age.as_secs_f64()),
                    age.map_or_else(|| "-".to_owned(), crate::ui::time::span),
                ),
                Value::amount(usage.cpu, tenths),
                Value::amount(usage.memory, bytes),
                Value::amount(usage.tasks, whole),
                Value::amount(Some(f64::from(row.restarts)), whole),
                Value::Text(text_or_dash(&reason(row))),
            ];
            let (unit, machine) = (row.unit.clone(), row.machine.clone());
            Row { unit, machine, has_failed: has_failed(row), cells }
        };
        self.cluster.rows.iter().map(row).collect()
    }
}

impl ListView {
    /// Returns the position of the selected row. If that row is gone, returns its last position, or
    /// the end of the list.
    pub(super) fn position(&self, rows: &[Row]) -> usize {
        let (unit, machine, last) = &self.selected;
        let same = rows.iter().position(|row| row.unit == *unit && row.machine == *machine);
        same.unwrap_or(*last).min(rows.len().saturating_sub(1))
    }

    /// Selects the row at a position, or the last one.
    pub(super) fn select(&mut self, at: usize, rows: &[Row]) {
        let at = at.min(rows.len().saturating_sub(1));
        if let Some(row) = rows.get(at) {
            self.selected = (row.unit.clone(), row.machine.clone(), at);
        }
    }
}

/// Returns whether a unit has failed, is unhealthy, or has no machine although it should.
fn has_failed(row: &wire::UnitRow) -> bool {
    row.active == "failed"
        || row.health == "unhealthy"
        || row.active == "unknown"
        || (row.active.is_empty() && !row.reason.is_empty())
}

fn reason(row: &wire::UnitRow) -> String {
    match row.reason_summary.as_str() {
        "" => first_clause(without_name(&row.reason, &row.unit)),
        summary => summary.to_owned(),
    }
}

/// Returns the name of a machine, or its short ID.
fn name(labels: &MachineLabels, id: &str) -> String {
    match labels.name(id) {
        "" => short_machine(id),
        name => name.to_owned(),
    }
}

fn text_or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn whole(amount: f64) -> String {
    format!("{amount:.0}")
}

fn tenths(amount: f64) -> String {
    format!("{amount:.1}")
}

/// Formats an amount of memory with three digits or fewer.
fn bytes(amount: f64) -> String {
    let units = ["", "K", "M", "G", "T", "P"];
    let (mut amount, mut unit) = (amount, 0);
    while amount >= 1000.0 && unit + 1 < units.len() {
        (amount, unit) = (amount / 1024.0, unit + 1);
    }
    let has_fraction = unit > 0 && amount < 9.95;
    if has_fraction {
        format!("{amount:.1}{}", units[unit])
    } else {
        format!("{amount:.0}{}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_at_most_three_digits() {
        for (amount, expected) in [
            (0.0, "0"),
            (999.0, "999"),
            (1000.0, "1.0K"),
            (10240.0, "10K"),
            (1048576.0, "1.0M"),
            (1.5e9, "1.4G"),
            (4.2e9, "3.9G"),
            (9.99e9, "9.3G"),
            (1.1e11, "102G"),
        ] {
            assert_eq!(bytes(amount), expected);
        }
    }

    #[test]
    fn unknown_amounts_come_last() {
        let amount = |amount: Option<f64>| Value::amount(amount, whole);
        let mut values = [amount(None), amount(Some(1.0)), amount(Some(3.0)), amount(None)];
        values.sort_by(Value::compare);
        let texts: Vec<&str> = values.iter().map(Value::text).collect();
        assert_eq!(texts, ["3", "1", "-", "-"]);
    }
}
