//! `list-unit-files` lists the units of the cluster with their desired and current states. `cat`
//! prints unit files as submitted; on a terminal, sanitized.

use fleet_http::wire;
use fleet_unitfile::UnitName;
use fleet_unitfile::specifier::expand_fleet_specifiers;
use serde::Serialize;

use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::ListUnitFilesArgs;
use crate::fleetctl::concurrent::buffered;
use crate::fleetctl::format::{Columns, MachineLabels, first_clause, machine_label, short_hash};
use crate::fleetctl::outdated::outdated_instances;
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::source;
use crate::fleetctl::unit_filter::NameFilter;
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::Record;
use crate::ui::table::{NOTHING, cell};

pub(super) const COLUMNS: Columns<Row> = Columns {
    all: &[
        ("unit", |row, _| row.unit.clone()),
        ("hash", |row, full| {
            cell(Some(if full { row.hash.clone() } else { short_hash(&row.hash) }))
        }),
        ("dstate", |row, _| cell(Some(row.desired.as_str()))),
        ("state", Row::state),
        ("target", Row::target),
        ("tmachine", Row::target),
        ("global", |row, _| row.global.to_string()),
        ("desc", |row, _| cell(Some(row.description.as_str()))),
        ("reason", |row, full| {
            cell(Some(match (full, row.summary.is_empty()) {
                (true, _) => row.reason.clone(),
                (false, true) => first_clause(&row.reason),
                (false, false) => row.summary.clone(),
            }))
        }),
    ],
    default: &["unit", "hash", "dstate", "state", "target"],
};

/// One unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    unit: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hash: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    desired: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    current: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    machine: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    ip: String,
    /// Name of the machine.
    #[serde(rename = "machineName", skip_serializing_if = "String::is_empty")]
    machine_name: String,
    global: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    /// Reason for having no machine, or problem of a broken unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// Short form of a reason for having no machine.
    #[serde(skip)]
    summary: String,
}

impl Record for Row {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl Row {
    fn from_unit(unit: wire::UnitEntity, machines: &MachineLabels) -> Self {
        let description = description(&unit);
        Self {
            unit: unit.name,
            hash: unit.hash,
            desired: unit.desired_state,
            current: unit.current_state,
            ip: machines.address(&unit.machine_id).to_owned(),
            machine_name: machines.name(&unit.machine_id).to_owned(),
            machine: unit.machine_id,
            global: unit.global,
            description,
            summary: if unit.problem.is_empty() { unit.reason_summary } else { String::new() },
            reason: if unit.problem.is_empty() { unit.reason } else { unit.problem },
        }
    }

    /// Returns the cell for the current state; a dash for a global unit, which has one per machine.
    fn state(&self, _full: bool) -> String {
        if self.global { NOTHING.to_owned() } else { cell(Some(self.current.as_str())) }
    }

    fn target(&self, full: bool) -> String {
        if self.global {
            return "global".to_owned();
        }
        machine_label(&self.machine, &self.machine_name, &self.ip, full)
    }
}

/// Runs the command.
pub(crate) async fn run(context: &mut Context, args: &ListUnitFilesArgs) -> Result<(), CliError> {
    COLUMNS.check(&args.list)?;
    let names = NameFilter::new(&args.units)?;
    let session = &context.session;
    let (units, machines) = futures_util::try_join!(session.units(), session.machines())?;
    let machines = MachineLabels::new(&machines);
    let outdated = outdated_instances(session, &units).await?;
    let units = units.into_iter().filter(|unit| names.matches(&unit.name));
    let rows: Vec<Row> = units.map(|unit| Row::from_unit(unit, &machines)).collect();
    let table = COLUMNS.table(&args.list, &rows, Some("reason"), context.output.table_style())?;
    context.output.list(&rows, &table)?;
    for instances in outdated {
        let (sentence, remedy) = (instances.sentence(), instances.remedy());
        context.progress.note(&format!("{sentence}\nhelp: {remedy}"));
    }
    Ok(())
}

/// Returns the last `Description=` of the unit's file.
///
/// Specifiers that depend only on the unit's name, such as `%i`, are expanded. If the text contains
/// specifiers of the machine, such as `%H`, it is returned unchanged.
pub(super) fn description(unit: &wire::UnitEntity) -> String {
    let mut options = unit.options.iter().rev();
    let found = options.find(|it| it.section == "Unit" && it.name == "Description");
    let text = found.map_or("", |option| option.value.as_str());
    let name = UnitName::parse(&unit.name).ok();
    let expanded = name.and_then(|name| expand_fleet_specifiers(text, &name).ok());
    expanded.unwrap_or_else(|| text.to_owned())
}

/// A unit and its file, as JSON. Bytes that are not UTF-8 are replaced, because JSON cannot contain
/// them; the plain output keeps them.
#[derive(Debug, Serialize)]
struct UnitSource {
    unit: String,
    hash: String,
    source: String,
}

impl Record for UnitSource {
    fn name(&self) -> &str {
        &self.unit
    }
}

/// Runs the command. Files are concatenated without separators.
pub(super) async fn cat(context: &mut Context, args: &[String]) -> Result<(), CliError> {
    let units = select(&context.session, args, DesiredFilter::All).await?;
    let session = &context.session;
    let known = buffered(units.iter().map(|unit| session.known_unit(&unit.name))).await;
    for unit in CliError::all_or_none(known)? {
        let bytes = source(&unit)?;
        if context.output.format() == Format::Table {
            context.output.document(&bytes)?;
            continue;
        }
        let source = String::from_utf8_lossy(&bytes).into_owned();
        context.output.record(&UnitSource { unit: unit.name, hash: unit.hash, source }, "")?;
    }
    context.output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleetctl::args::subcommands::ListArgs;
    use crate::ui::table::TableStyle;

    #[test]
    fn description_expands_instance_specifiers() {
        for (text, expected) in
            [("Worker %i of %p", "Worker 1 of worker"), ("100%% at %H", "100%% at %H"), ("", "")]
        {
            let (section, name) = ("Unit".into(), "Description".into());
            let unit = wire::UnitEntity {
                name: "worker@1.service".into(),
                options: vec![wire::UnitOptionEntity { section, name, value: text.into() }],
                ..wire::UnitEntity::default()
            };
            assert_eq!(description(&unit), expected);
        }
    }

    #[test]
    fn table_shows_every_kind_of_unit() {
        let option = wire::UnitOptionEntity {
            section: "Unit".into(),
            name: "Description".into(),
            value: "The web".into(),
        };
        let unit = |name: &str, desired: &str, machine: &str, reason: &str| wire::UnitEntity {
            name: name.into(),
            desired_state: desired.into(),
            current_state: if machine.is_empty() { "inactive" } else { desired }.into(),
            machine_id: machine.into(),
            reason: reason.into(),
            hash: "0123456789abcdef".into(),
            options: vec![option.clone()],
            ..wire::UnitEntity::default()
        };
        let units = vec![
            wire::UnitEntity { global: true, ..unit("all.service", "launched", "", "") },
            wire::UnitEntity {
                problem: "its text is gone".into(),
                name: "bad.service".into(),
                ..wire::UnitEntity::default()
            },
            unit("far.service", "launched", "", "no machine is present"),
            unit("web.service", "launched", "282f949fc0de", ""),
        ];
        let machine = wire::MachineEntity {
            id: "282f949fc0de".into(),
            primary_ip: "10.10.20.1".into(),
            ..wire::MachineEntity::default()
        };
        let machines = MachineLabels::new(&[machine]);
        let rows: Vec<Row> =
            units.into_iter().map(|unit| Row::from_unit(unit, &machines)).collect();
        let table = |fields: Option<&str>| {
            let args = ListArgs { fields: fields.map(str::to_owned), ..ListArgs::default() };
            COLUMNS
                .table(&args, &rows, Some("reason"), TableStyle::PLAIN)
                .unwrap()
                .replace('\t', "→")
        };
        insta::assert_snapshot!(table(None), @r"
        UNIT→→HASH→DSTATE→→STATE→→TARGET→→→REASON
        all.service→0123456→launched→-→→global→→→-
        bad.service→-→-→→-→→-→→→its text is gone
        far.service→0123456→launched→inactive→-→→→no machine is present
        web.service→0123456→launched→launched→282f949f.../10.10.20.1→-
        ");
        insta::assert_snapshot!(table(Some("unit,global,desc,tmachine")), @r"
        UNIT→→GLOBAL→DESC→TMACHINE
        all.service→true→The web→global
        bad.service→false→-→-
        far.service→false→The web→-
        web.service→false→The web→282f949f.../10.10.20.1
        ");
        insta::assert_snapshot!(serde_json::to_string_pretty(&rows[3]).unwrap(), @r#"
        {
          "unit": "web.service",
          "hash": "0123456789abcdef",
          "desired": "launched",
          "current": "launched",
          "machine": "282f949fc0de",
          "ip": "10.10.20.1",
          "global": false,
          "description": "The web"
        }
        "#);
    }
}
