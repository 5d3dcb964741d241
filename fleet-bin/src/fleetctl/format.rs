//! Pure: formats machines, hashes and amounts for people.

use std::collections::BTreeMap;

use fleet_core::Resource;
use fleet_http::wire;

use crate::ui::table::NOTHING;

/// Length of a shortened machine ID.
const SHORT_ID: usize = 8;

/// Length of a shortened hash.
const SHORT_HASH: usize = 7;

/// Addresses of the present machines by ID.
#[derive(Debug, Clone, Default)]
pub(crate) struct MachineLabels(BTreeMap<String, String>);

impl MachineLabels {
    /// Creates the labels of these machines.
    pub(crate) fn new(machines: &[wire::MachineEntity]) -> Self {
        Self(machines.iter().map(|it| (it.id.clone(), it.primary_ip.clone())).collect())
    }

    /// Returns a machine's address; empty if unknown.
    pub(crate) fn address(&self, id: &str) -> &str {
        self.0.get(id).map_or("", String::as_str)
    }

    /// Formats a machine as its ID, short or in full, with its address.
    pub(crate) fn label(&self, id: &str, full: bool) -> String {
        machine_label(id, self.address(id), full)
    }
}

/// Formats a machine; a dash for an empty ID.
pub(crate) fn machine_label(id: &str, address: &str, full: bool) -> String {
    if id.is_empty() {
        return NOTHING.to_owned();
    }
    let shown = if full { id.to_owned() } else { short_machine(id) };
    if address.is_empty() { shown } else { format!("{shown}/{address}") }
}

/// Formats the time for which the state of a unit has been unknown.
pub(crate) fn unknown_for(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match (hours, minutes) {
        (0, 0) => format!("for {seconds}s"),
        (0, _) => format!("for {minutes}min"),
        _ => format!("for {hours}h"),
    }
}

/// Shortens a machine ID; dots mark the omission.
pub(crate) fn short_machine(id: &str) -> String {
    let shown = start(id, SHORT_ID);
    if shown.len() < id.len() { format!("{shown}...") } else { id.to_owned() }
}

/// Shortens a hash.
pub(crate) fn short_hash(hash: &str) -> String {
    start(hash, SHORT_HASH).to_owned()
}

/// Removes the unit's name from the start of a problem, for output that already shows the name
/// (`web.service: no port` becomes `no port`).
pub(crate) fn without_name<'a>(problem: &'a str, unit: &str) -> &'a str {
    let rest = problem.strip_prefix(unit).unwrap_or("");
    rest.strip_prefix(": ").or_else(|| rest.strip_prefix(", ")).unwrap_or(problem)
}

/// Shortens a problem to its first clause, for a cell of a table. Dots mark further clauses.
pub(crate) fn first_clause(problem: &str) -> String {
    match problem.split_once("; ") {
        Some((first, _)) => format!("{first}; ..."),
        None => problem.to_owned(),
    }
}

/// Formats the resources that a machine offers; empty if there are none.
pub(crate) fn offers(offers: &wire::ResourceAmounts) -> String {
    let wire::ResourceAmounts { cpu, disk, memory } = *offers;
    let cpu = (cpu > 0).then(|| format!("cpu {}", Resource::Cpu.format(cpu)));
    let memory = (memory > 0).then(|| format!("memory {}", about(memory)));
    let disk = (disk > 0).then(|| format!("disk {}", about(disk)));
    cpu.into_iter().chain(memory).chain(disk).collect::<Vec<_>>().join(", ")
}

/// Formats bytes in the largest unit that fits, rounded down to one decimal.
fn about(bytes: u64) -> String {
    let units = [(1u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let Some((unit, suffix)) = units.into_iter().find(|(unit, _)| bytes >= *unit) else {
        return bytes.to_string();
    };
    let (whole, tenths) = (bytes / unit, u128::from(bytes % unit) * 10 / u128::from(unit));
    if tenths == 0 { format!("{whole}{suffix}") } else { format!("{whole}.{tenths}{suffix}") }
}

fn start(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_formatted_compactly() {
        let format_offers =
            |cpu, memory, disk| offers(&wire::ResourceAmounts { cpu, disk, memory });
        assert_eq!(format_offers(1500, 8_425_503_402, 1 << 40), "cpu 1.5, memory 7.8G, disk 1T");
        assert_eq!(format_offers(0, 1023, 0), "memory 1023");
        assert_eq!(format_offers(0, 512 << 20, u64::MAX), "memory 512M, disk 16777215.9T");
        assert_eq!(format_offers(0, 0, 0), "");
    }

    #[test]
    fn name_is_stripped_from_a_problem() {
        for (problem, expected) in [
            ("a.service: no", "no"),
            ("a.service, line 2: no", "line 2: no"),
            ("a.service did not start: no", "a.service did not start: no"),
            ("b.service: no", "b.service: no"),
            ("no", "no"),
        ] {
            assert_eq!(without_name(problem, "a.service"), expected);
        }
    }

    #[test]
    fn first_clause_marks_further_clauses() {
        for (problem, expected) in
            [("line 2: no; line 3: no", "line 2: no; ..."), ("no port", "no port"), ("", "")]
        {
            assert_eq!(first_clause(problem), expected);
        }
    }

    #[test]
    fn machine_label_has_the_known_address() {
        let machine = |id: &str, ip: &str| wire::MachineEntity {
            id: id.into(),
            primary_ip: ip.into(),
            ..wire::MachineEntity::default()
        };
        let machines =
            MachineLabels::new(&[machine("282f949fc0de", "10.0.0.1"), machine("m2", "")]);
        for (id, full, expected) in [
            ("282f949fc0de", false, "282f949f.../10.0.0.1"),
            ("282f949fc0de", true, "282f949fc0de/10.0.0.1"),
            ("m2", false, "m2"),
            ("away", true, "away"),
            ("", false, "-"),
        ] {
            assert_eq!(machines.label(id, full), expected);
        }
        let spans = [0, 59, 60, 3599, 3600, 200_000].map(unknown_for);
        assert_eq!(spans, ["for 0s", "for 59s", "for 1min", "for 59min", "for 1h", "for 55h"]);
        assert_eq!((short_hash("0123456789"), short_hash("ab")), ("0123456".into(), "ab".into()));
    }
}
