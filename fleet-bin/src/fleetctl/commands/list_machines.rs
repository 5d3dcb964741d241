//! `list-machines`: lists the machines that are present, and notes those that have left.

use std::collections::BTreeMap;

use fleet_http::wire;
use serde::Serialize;

use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::ListMachinesArgs;
use crate::fleetctl::diagnosis::is_draining;
use crate::fleetctl::format::{
    Columns, MachineLabels, machine_label, offers, short_machine, unknown_for,
};
use crate::fleetctl::session::machines::matches_machine;
use crate::ui::error::CliError;
use crate::ui::output::Record;
use crate::ui::table::cell;

pub(super) const COLUMNS: Columns<Row> = Columns {
    all: &[
        ("machine", |row, full| machine_label(&row.machine, &row.label, "", full)),
        ("ip", |row, _| cell(Some(row.ip.as_str()))),
        ("metadata", |row, _| cell(Some(pairs(&row.metadata)))),
        ("hostname", |row, _| cell(Some(row.hostname.as_str()))),
        ("version", |row, _| cell(Some(row.version.as_str()))),
        ("offers", |row, _| cell(Some(offers(&row.offers)))),
        ("intent", |row, _| cell(Some(row.intent.as_str()))),
        ("cordoned", |row, _| if row.cordoned { "yes".to_owned() } else { "no".to_owned() }),
    ],
    default: &["machine", "ip", "metadata"],
};

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    machine: String,
    /// Name in the table: that of the machine, if no other machine has the same.
    #[serde(skip)]
    label: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hostname: String,
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

/// Returns the rows of machines.
fn rows(machines: Vec<wire::MachineEntity>, labels: &MachineLabels) -> Vec<Row> {
    let row = |machine: wire::MachineEntity| Row {
        label: labels.name(&machine.id).to_owned(),
        machine: machine.id,
        hostname: machine.hostname,
        ip: machine.primary_ip,
        metadata: machine.metadata,
        version: machine.version,
        offers: machine.offers,
        cordoned: machine.cordoned,
        intent: machine.intent,
    };
    machines.into_iter().map(row).collect()
}

/// Runs the command.
pub(crate) async fn run(context: &mut Context, args: &ListMachinesArgs) -> Result<(), CliError> {
    COLUMNS.check(&args.list)?;
    let mut machines = context.session.machines().await?;
    if machines.iter().any(|machine| machine.intent == "drained") {
        let units = context.session.units().await?;
        for machine in machines.iter_mut().filter(|machine| is_draining(machine, &units)) {
            "draining".clone_into(&mut machine.intent);
        }
    }
    let labels = MachineLabels::new(&machines);
    let is_listed = |machine: &wire::MachineEntity| {
        args.machines.is_empty() || args.machines.iter().any(|it| matches_machine(it, machine))
    };
    machines.retain(is_listed);
    let rows = rows(machines, &labels);
    let table = COLUMNS.table(&args.list, &rows, Some("intent"), context.output.table_style())?;
    context.output.list(&rows, &table)?;
    let absent = context.session.absent_machines().await?;
    for machine in absent.into_iter().filter(is_listed) {
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
    use crate::fleetctl::args::subcommands::ListArgs;
    use crate::ui::table::TableStyle;

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
        let rows = rows(
            vec![machine("282f949fc0de", "10.10.20.1", &metadata), machine("m2", "", &[])],
            &MachineLabels::default(),
        );
        let table = |full| {
            let args = ListArgs { full, ..ListArgs::default() };
            COLUMNS
                .table(&args, &rows, Some("intent"), TableStyle::PLAIN)
                .unwrap()
                .replace('\t', "→")
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
        let machines = vec![machine("m1", 1500, true), machine("m2", 0, false)];
        let rows = rows(machines, &MachineLabels::default());
        let table = |fields| {
            let args = ListArgs { fields, ..ListArgs::default() };
            let table = COLUMNS.table(&args, &rows, Some("intent"), TableStyle::PLAIN);
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
