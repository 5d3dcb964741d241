//! Pure: formats machines, hashes and amounts for people, and the columns of lists.

use std::collections::BTreeMap;

use fleet_core::Resource;
use fleet_http::wire;

use super::args::subcommands::ListArgs;
use crate::ui::error::CliError;
use crate::ui::names::nearest;
use crate::ui::table::{NOTHING, TableStyle, painted};

/// Length of a shortened machine ID.
const SHORT_ID: usize = 8;

/// Length of a shortened hash.
const SHORT_HASH: usize = 7;

/// Names and addresses of the present machines, by ID.
#[derive(Debug, Clone, Default)]
pub(crate) struct MachineLabels(BTreeMap<String, (String, String)>);

impl MachineLabels {
    /// Creates the labels of these machines.
    pub(crate) fn new(machines: &[wire::MachineEntity]) -> Self {
        let mut users: BTreeMap<&str, usize> = BTreeMap::new();
        for name in machines.iter().filter_map(given_name) {
            *users.entry(name).or_default() += 1;
        }
        // The name that several machines have does not distinguish them.
        let label = |it: &wire::MachineEntity| {
            let name = given_name(it).filter(|name| users[name] == 1).unwrap_or_default();
            (it.id.clone(), (name.to_owned(), it.primary_ip.clone()))
        };
        Self(machines.iter().map(label).collect())
    }

    /// Returns a machine's name, if no other machine has the same; else empty.
    pub(crate) fn name(&self, id: &str) -> &str {
        self.0.get(id).map_or("", |(name, _)| name)
    }

    /// Returns a machine's address; empty if unknown.
    pub(crate) fn address(&self, id: &str) -> &str {
        self.0.get(id).map_or("", |(_, address)| address)
    }

    /// Formats a machine as its name or short ID with its address, or in full with its whole ID.
    pub(crate) fn label(&self, id: &str, full: bool) -> String {
        machine_label(id, self.name(id), self.address(id), full)
    }
}

/// Returns the name that a machine has apart from its ID: its metadata `name`, or its host name.
pub(crate) fn given_name(machine: &wire::MachineEntity) -> Option<&str> {
    let name = machine.metadata.get("name").map_or("", String::as_str);
    [name, machine.hostname.as_str()].into_iter().find(|name| !name.is_empty())
}

/// Formats a machine; a dash for an empty ID. A machine without a name has its ID as its label.
pub(crate) fn machine_label(id: &str, name: &str, address: &str, full: bool) -> String {
    let shown = match (full, name) {
        _ if id.is_empty() => return NOTHING.to_owned(),
        (true, _) => id.to_owned(),
        (false, "") => short_machine(id),
        (false, name) => name.to_owned(),
    };
    if address.is_empty() { shown } else { format!("{shown}/{address}") }
}

/// Formats the state of a unit with its health, as `running (unhealthy)`.
pub(crate) fn with_health(sub: &str, health: &str) -> String {
    if health.is_empty() { sub.to_owned() } else { format!("{sub} ({health})") }
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
    let memory = (memory > 0).then(|| format!("memory {}", bytes(memory)));
    let disk = (disk > 0).then(|| format!("disk {}", bytes(disk)));
    cpu.into_iter().chain(memory).chain(disk).collect::<Vec<_>>().join(", ")
}

/// Formats bytes in the largest unit that fits, rounded down to one decimal.
pub(crate) fn bytes(bytes: u64) -> String {
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

/// Name of a column, and the function that returns the column's cell for a row. Its `bool` argument
/// requests IDs and hashes in full length.
pub(crate) type Column<R> = (&'static str, fn(&R, bool) -> String);

/// Columns of a list.
pub(crate) struct Columns<R: 'static> {
    /// All columns.
    pub(crate) all: &'static [Column<R>],
    /// Names of the default columns.
    pub(crate) default: &'static [&'static str],
}

impl<R> Columns<R> {
    /// Formats rows as a table with the columns of `--fields`, or else with the default columns.
    ///
    /// The column `extra` is added to the default columns if some row has a value for it.
    ///
    /// # Errors
    ///
    /// `--fields` names an unknown column.
    pub(crate) fn table(
        &self,
        args: &ListArgs,
        rows: &[R],
        extra: Option<&'static str>,
        style: TableStyle,
    ) -> Result<String, CliError> {
        let columns = match &args.fields {
            Some(fields) => self.selected(fields)?,
            None => self.default_columns(rows, extra),
        };
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let cells = |row| columns.iter().map(|(_, show)| show(row, args.full)).collect();
        let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
        let style = if args.full { style.uncut() } else { style };
        Ok(painted(&names, !args.no_legend, &cells, style))
    }

    /// Checks `--fields` before any request is sent.
    ///
    /// # Errors
    ///
    /// As for [`table`](Self::table).
    pub(crate) fn check(&self, args: &ListArgs) -> Result<(), CliError> {
        args.fields.as_ref().map_or(Ok(()), |fields| self.selected(fields).map(drop))
    }

    fn selected(&self, fields: &str) -> Result<Vec<&Column<R>>, CliError> {
        fields.split(',').map(|field| self.find(field).ok_or_else(|| self.unknown(field))).collect()
    }

    fn default_columns(&self, rows: &[R], extra: Option<&'static str>) -> Vec<&Column<R>> {
        let has_value = |(_, show): &&Column<R>| rows.iter().any(|row| show(row, false) != NOTHING);
        let extra = extra.and_then(|name| self.find(name)).filter(has_value);
        self.default.iter().filter_map(|name| self.find(name)).chain(extra).collect()
    }

    fn find(&self, name: &str) -> Option<&Column<R>> {
        self.all.iter().find(|(known, _)| *known == name)
    }

    /// Returns the names of all columns.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.all.iter().map(|(name, _)| *name).collect()
    }

    fn unknown(&self, field: &str) -> CliError {
        let names = self.names();
        let error = CliError::usage(format!("--fields: unknown field {field:?}"));
        let error = match nearest(field, names.iter().copied()) {
            Some(near) => error.help(format!("did you mean {near}?")),
            None => error,
        };
        error.help(format!("the fields are {}", names.join(", ")))
    }
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
        let named = |id: &str, name: &str| wire::MachineEntity {
            metadata: [("name".to_owned(), name.to_owned())].into(),
            hostname: "host".into(),
            ..machine(id, "10.0.0.3")
        };
        let machines = MachineLabels::new(&[
            machine("282f949fc0de", "10.0.0.1"),
            machine("m2", ""),
            named("c3f0aa112233", "dev-1"),
            named("c3f0aa112244", ""),
            named("d6", "twin"),
            named("e7", "twin"),
        ]);
        for (id, full, expected) in [
            ("282f949fc0de", false, "282f949f.../10.0.0.1"),
            ("282f949fc0de", true, "282f949fc0de/10.0.0.1"),
            ("m2", false, "m2"),
            ("c3f0aa112233", false, "dev-1/10.0.0.3"),
            ("c3f0aa112233", true, "c3f0aa112233/10.0.0.3"),
            ("c3f0aa112244", false, "host/10.0.0.3"),
            ("d6", false, "d6/10.0.0.3"),
            ("away", true, "away"),
            ("", false, "-"),
        ] {
            assert_eq!(machines.label(id, full), expected);
        }
        let spans = [0, 59, 60, 3599, 3600, 200_000].map(unknown_for);
        assert_eq!(spans, ["for 0s", "for 59s", "for 1min", "for 59min", "for 1h", "for 55h"]);
        assert_eq!((short_hash("0123456789"), short_hash("ab")), ("0123456".into(), "ab".into()));
    }

    const COLUMNS: Columns<(&str, &str)> = Columns {
        all: &[
            ("machine", |row, full| if full { row.0.into() } else { row.0[..1].into() }),
            ("reason", |row, _| row.1.into()),
        ],
        default: &["machine"],
    };

    fn table(fields: Option<&str>, full: bool, rows: &[(&'static str, &'static str)]) -> String {
        let args = ListArgs { full, fields: fields.map(str::to_owned), ..ListArgs::default() };
        let mut text = Vec::new();
        match COLUMNS.table(&args, rows, Some("reason"), TableStyle::PLAIN) {
            Ok(table) => return table,
            Err(error) => error.print(&mut text).unwrap(),
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn extra_column_appears_if_a_row_has_a_value() {
        assert_eq!(table(None, false, &[("abc", "-")]), "MACHINE\na\n");
        assert_eq!(table(None, true, &[("abc", "full")]), "MACHINE\tREASON\nabc\tfull\n");
        assert_eq!(
            table(Some("reason,machine"), false, &[("abc", "-")]),
            "REASON\tMACHINE\n-\ta\n"
        );
    }

    #[test]
    fn unknown_field_is_refused() {
        insta::assert_snapshot!(table(Some("machin"), false, &[]), @r#"
        fleetctl: --fields: unknown field "machin"
        help: did you mean machine?
        help: the fields are machine, reason
        "#);
        insta::assert_snapshot!(table(Some(""), false, &[]), @r#"
        fleetctl: --fields: unknown field ""
        help: the fields are machine, reason
        "#);
    }
}
