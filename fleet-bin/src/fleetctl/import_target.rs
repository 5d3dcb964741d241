//! Content of the cluster that an import writes to, read through its daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{Fault, Requirements, Snapshot, Strictness, Unit};
use fleet_store::transfer::{Export, ExportItem, ExportReader, ExportedUnit};
use fleet_unitfile::UnitFile;

use super::session::Session;
use crate::ui::error::CliError;

/// Content of a cluster, and the strictness of its daemon.
pub(crate) struct ImportTarget {
    /// Units, broken units, run-time metadata, and intents for machines.
    pub(crate) cluster: Export,
    /// Treatment of unit files with problems that fleet v1 ignored, as configured in the daemon.
    pub(crate) strictness: Strictness,
}

/// Reads the content of the cluster.
pub(crate) async fn read(session: &Session) -> Result<ImportTarget, CliError> {
    let mut bytes = session.export().await?;
    let mut reader = ExportReader::new();
    let (mut snapshot, mut intents) = (Snapshot::default(), BTreeMap::new());
    let wrong = |error| CliError::failed("cannot read the units of the cluster").because(error);
    while let Some(piece) = session.next_export_chunk(&mut bytes).await? {
        let take = &mut |item, _| match item {
            ExportItem::Intent(it) => drop(intents.insert(it.machine, it.intent)),
            item => add(&mut snapshot, item),
        };
        reader.push(&piece, take).map_err(wrong)?;
    }
    let (header, _) = reader.finish().map_err(wrong)?;
    snapshot.revision = header.revision;
    let (snapshot, max_epoch) = (Arc::new(snapshot), header.max_epoch);
    // A lineage of an unknown form cannot equal that of any file.
    let lineage = header.lineage.and_then(|it| it.parse().ok());
    let cluster = Export { snapshot, intents, lineage, max_epoch };
    Ok(ImportTarget { cluster, strictness: bytes.strictness() })
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

/// Parses a unit of the cluster. A unit that is valid for the daemon can still fail here, because
/// the daemon may be newer than this program.
fn unit(from: &ExportedUnit) -> Result<Unit, String> {
    let file = UnitFile::parse(&from.source).map_err(|error| error.to_string())?;
    let parsed = Requirements::parse(&from.name, &file, Strictness::Warn);
    let requirements = parsed.map_err(|error| error.to_string())?.requirements;
    Ok(Unit::new(from.name.clone(), file, requirements, from.desired))
}
