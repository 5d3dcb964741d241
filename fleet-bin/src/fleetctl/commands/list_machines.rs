//! `list-machines`: lists the machines that are present, and notes those that have left.

use std::collections::BTreeMap;

use fleet_http::wire;
use serde::Serialize;

use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::ListArgs;
use crate::fleetctl::diagnosis::is_draining;
use crate::fleetctl::format::{Columns, offers, short_machine, unknown_for};
use crate::ui::error::CliError;
use crate::ui::output::Record;
use crate::ui::table::cell;

const COLUMNS: Columns<Row> = Columns {
    all: &[
        (
            "machine",
            |row, full| {
                if full { row.machine.clone() } else { short_machine(&row.machine) }
            },
        ),
        ("ip", |row, _| cell(Some(row.ip.as_str()))),
        ("metadata", |row, _| cell(Some(pairs(&row.metadata)))),
        ("version", |row, _| cell(Some(row.version.as_str()))),
        ("offers", |row, _| cell(Some(offers(&row.offers)))),
        ("intent", |row, _| cell(Some(row.intent.as_str()))),
        ("cordoned", |row, _| if row.cordoned { "yes".to_owned() } else { "no".to_owned() }),
    ],
    default: &["machine", "ip", "metadata"],
};

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    machine: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    ip: String,
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(skip_serializing_if = "wire::ResourceAmounts::is_nothing")]
    offers: wire::ResourceAmounts,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cordoned: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    intent: String,
}

impl Record for Row {
    fn name(&self) -> &str {
        &self.machine
    }
}

impl From<wire::MachineEntity> for Row {
    fn from(machine: wire::MachineEntity) -> Self {
        let wire::MachineEntity {
            cordoned, id, intent, metadata, offers, primary_ip, version, ..
        } = machine;
        Self { machine: id, ip: primary_ip, metadata, version, offers, cordoned, intent }
    }
}

/// Runs the command.
pub(crate) async fn run(context: &mut Context, args: &ListArgs) -> Result<(), CliError> {
    COLUMNS.check(args)?;
    let mut machines = context.session.machines().await?;
    if machines.iter().any(|machine| machine.intent == "drained") {
        let units = context.session.units().await?;
        for machine in machines.iter_mut().filter(|machine| is_draining(machine, &units)) {
            "draining".clone_into(&mut machine.intent);
        }
    }
    let rows: Vec<Row> = machines.into_iter().map(Row::from).collect();
    let table = COLUMNS.table(args, &rows, Some("intent"), context.output.colour())?;
    context.output.list(&rows, &table)?;
    for machine in context.session.absent_machines().await? {
        let lasting = unknown_for(machine.absent_for.unwrap_or_default());
        context.progress.note(&format!("{} is absent {lasting}", short_machine(&machine.id)));
    }
    Ok(())
}

fn pairs(metadata: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::table::Colour;

    #[test]
    fn machine_table_matches_the_documentation() {
        let machine = |id: &str, ip: &str, metadata: &[(&str, &str)]| wire::MachineEntity {
            id: id.into(),
            primary_ip: ip.into(),
            metadata: metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            version: "0.1.0".into(),
            ..wire::MachineEntity::default()
        };
        let metadata = [("region", "us-east-1"), ("diskType", "SSD")];
        let rows: Vec<Row> =
            [machine("282f949fc0de", "10.10.20.1", &metadata), machine("m2", "", &[])]
                .map(Row::from)
                .into();
        let table = |full| {
            let args = ListArgs { full, no_legend: false, fields: None, watch: false };
            COLUMNS.table(&args, &rows, Some("intent"), Colour::Off).unwrap().replace('\t', "→")
        };
        insta::assert_snapshot!(table(false), @r"
        MACHINE→→IP→→METADATA
        282f949f...→10.10.20.1→diskType=SSD,region=us-east-1
        m2→→-→→-
        ");
        insta::assert_snapshot!(table(true), @r"
        MACHINE→→IP→→METADATA
        282f949fc0de→10.10.20.1→diskType=SSD,region=us-east-1
        m2→→-→→-
        ");
    }

    #[test]
    fn offers_are_shown_on_request() {
        let machine = |id: &str, cpu, cordoned| wire::MachineEntity {
            id: id.into(),
            offers: wire::ResourceAmounts { cpu, disk: 0, memory: u64::from(cordoned) << 30 },
            cordoned,
            intent: if cordoned { "drained".into() } else { String::new() },
            ..wire::MachineEntity::default()
        };
        let rows: Vec<Row> =
            [machine("m1", 1500, true), machine("m2", 0, false)].map(Row::from).into();
        let table = |fields| {
            let args = ListArgs { full: false, no_legend: false, fields, watch: false };
            let table = COLUMNS.table(&args, &rows, Some("intent"), Colour::Off);
            table.unwrap().replace('\t', "→")
        };
        insta::assert_snapshot!(table(None), @r"
        MACHINE→IP→METADATA→INTENT
        m1→-→-→→drained
        m2→-→-→→-
        ");
        let table = table(Some("machine,offers,cordoned".to_owned()));
        insta::assert_snapshot!(table, @r"
        MACHINE→OFFERS→→→CORDONED
        m1→cpu 1.5, memory 1G→yes
        m2→-→→→no
        ");
    }
}
