//! The cluster that something is imported into, as its daemon shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Fault, Requirements, Snapshot, Strictness, Unit};
use fleet_store::{Export, ExportItem, ExportReader, ExportedUnit};
use fleet_unitfile::UnitFile;

use super::error::CliError;
use super::session::Session;

/// What a cluster holds, and how strict its daemon is.
pub(crate) struct Target {
    /// The units, those that cannot be understood, the metadata that was set, and what is to become
    /// of machines.
    pub(crate) cluster: Export,
    /// What the daemon does about what the old program passed over in silence.
    pub(crate) strictness: Strictness,
}

/// Reads all that the cluster holds.
pub(crate) async fn read(session: &Session) -> Result<Target, CliError> {
    let mut bytes = session.export().await?;
    let mut reader = ExportReader::new();
    let (mut snapshot, mut intents) = (Snapshot::default(), BTreeMap::new());
    let wrong = |error| CliError::failed("cannot read the cluster").because(error);
    while let Some(piece) = session.more(&mut bytes).await? {
        let take = &mut |item, _| match item {
            ExportItem::Intent(it) => drop(intents.insert(it.machine, it.intent)),
            item => add(&mut snapshot, item),
        };
        reader.push(&piece, take).map_err(wrong)?;
    }
    let (header, _) = reader.finish().map_err(wrong)?;
    snapshot.revision = header.revision;
    let (snapshot, epochs) = (Arc::new(snapshot), header.epochs);
    // One of another form is that of no file that this program can compare it with.
    let lineage = header.lineage.and_then(|it| it.parse().ok());
    let cluster = Export { snapshot, intents, lineage, epochs };
    Ok(Target { cluster, strictness: bytes.strictness() })
}

fn add(snapshot: &mut Snapshot, item: ExportItem) {
    match item {
        ExportItem::Metadata(it) => snapshot.put_dynamic_metadata(it.machine, it.key, it.value),
        ExportItem::Intent(_) => {}
        ExportItem::Fault { unit, problem } => snapshot.put_fault(unit, Fault { message: problem }),
        ExportItem::Unit(it) => match unit(&it) {
            Ok(unit) => snapshot.put_unit(unit),
            Err(message) => snapshot.put_fault(it.name, Fault { message }),
        },
    }
}

/// What the daemon takes for a unit, this program may not, if it is an older one.
fn unit(from: &ExportedUnit) -> Result<Unit, String> {
    let file = UnitFile::parse(&from.source).map_err(|error| error.to_string())?;
    let parsed = Requirements::parse(&from.name, &file, Strictness::Warn);
    let requirements = parsed.map_err(|error| error.to_string())?.requirements;
    Ok(Unit::new(from.name.clone(), file, requirements, from.desired))
}
