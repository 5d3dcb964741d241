//! The content of a file to import, of either kind.

use std::io;
use std::io::Read;

use fleet_core::{Epoch, Generation, Intent, MachineId, TargetState};
use fleet_unitfile::UnitName;

use super::apply::RefusedImport;
use super::export::Export;
use super::line::{ExportEnd, ExportHeader, ExportItem, ExportedUnit};
use super::reader::{ExportError, ExportReader};
use super::v1;
use super::v1::V1DumpError;
use crate::registry::Lineage;

/// Maximum size of a dump of fleet v1, in bytes. The whole dump is kept in memory.
const MAX_DUMP: u64 = 1 << 30;

/// Size of a read in bytes.
const CHUNK: usize = 64 << 10;

/// Content of a file to import.
#[derive(Debug)]
#[non_exhaustive]
pub struct Import {
    /// Kind of the file.
    pub origin: ImportOrigin,
    /// Run-time metadata, ordered by machine and key.
    pub metadata: Vec<ImportMetadata>,
    /// Intents, ordered by machine.
    pub intents: Vec<ImportIntent>,
    /// Units, ordered by name.
    pub units: Vec<ImportUnit>,
    /// Objects that cannot be imported, with the reasons.
    pub refused: Vec<RefusedImport>,
    /// Remarks for the operator that are not errors, one sentence each.
    pub remarks: Vec<String>,
}

/// Kind of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOrigin {
    /// An export.
    Export {
        /// First line of the export.
        header: ExportHeader,
        /// Last line of the export.
        end: ExportEnd,
    },
    /// A dump of the keys of fleet v1.
    V1 {
        /// Common prefix of the keys.
        prefix: String,
    },
}

/// A unit to import.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImportUnit {
    /// Location in the file.
    pub location: String,
    /// Name of the unit.
    pub name: UnitName,
    /// Unit file.
    pub source: Vec<u8>,
    /// Desired state.
    pub desired: TargetState,
    /// Number of requested restarts.
    pub generation: Generation,
    /// Machine that the unit was placed on, if any.
    pub machine: Option<MachineId>,
}

/// A metadata entry to import.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImportMetadata {
    /// Location in the file.
    pub location: String,
    /// The machine.
    pub machine: MachineId,
    /// The key.
    pub key: String,
    /// Value; an empty one hides the key.
    pub value: String,
}

/// An intent to import.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImportIntent {
    /// Location in the file.
    pub location: String,
    /// The machine.
    pub machine: MachineId,
    /// Intent for the machine.
    pub intent: Intent,
}

/// Error of a file that cannot be imported into any cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error("the input cannot be read")]
    Read(#[from] io::Error),
    /// The file is an export that is damaged, truncated or of another version.
    #[error("the export cannot be used")]
    Export(#[from] ExportError),
    /// The file is neither an export nor a usable dump of fleet v1.
    #[error("the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1")]
    V1(#[from] V1DumpError),
}

impl Import {
    /// Returns an upper bound for the epochs of the cluster in the file. It is zero for fleet v1,
    /// which had no epochs.
    #[must_use]
    pub fn max_epoch(&self) -> Epoch {
        match &self.origin {
            ImportOrigin::Export { header, .. } => header.max_epoch,
            ImportOrigin::V1 { .. } => Epoch::ZERO,
        }
    }

    /// Returns the lineage of the cluster in the file, if the file names one.
    #[must_use]
    pub fn lineage(&self) -> Option<Lineage> {
        match &self.origin {
            ImportOrigin::Export { header, .. } => header.lineage.as_ref()?.parse().ok(),
            ImportOrigin::V1 { .. } => None,
        }
    }

    /// Returns the epoch that all later epochs of `cluster` must exceed. This is
    /// [`max_epoch`](Self::max_epoch). If the file is an earlier export of `cluster` itself, its
    /// epochs are already higher, and the result is zero.
    #[must_use]
    pub fn epoch_to_exceed(&self, cluster: &Export) -> Epoch {
        let own = cluster.lineage.as_ref().map(ToString::to_string);
        let is_own = match &self.origin {
            ImportOrigin::Export { header, .. } => own.is_some() && header.lineage == own,
            ImportOrigin::V1 { .. } => false,
        };
        if is_own && self.max_epoch() <= cluster.max_epoch { Epoch::ZERO } else { self.max_epoch() }
    }

    /// Reads a whole file, which is an export or the keys of fleet v1 as JSON.
    ///
    /// # Errors
    ///
    /// [`ImportError`] when the file is not a valid import. Then no part of it can be used.
    pub fn read(mut from: impl Read) -> Result<Self, ImportError> {
        let mut beginning = Vec::new();
        from.by_ref().take(CHUNK as u64).read_to_end(&mut beginning)?;
        if ExportReader::is_export(&beginning) {
            return read_export(beginning, from);
        }
        let mut text = beginning;
        from.take(MAX_DUMP).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_DUMP {
            return Err(V1DumpError::TooLarge { most: MAX_DUMP }.into());
        }
        Ok(v1::read(&text)?)
    }
}

fn read_export(mut chunk: Vec<u8>, mut from: impl Read) -> Result<Import, ImportError> {
    let mut reader = ExportReader::new();
    let mut items = Vec::new();
    while !chunk.is_empty() {
        reader.push(&chunk, &mut |item, line| items.push((item, line)))?;
        chunk.clear();
        from.by_ref().take(CHUNK as u64).read_to_end(&mut chunk)?;
    }
    let (header, end) = reader.finish()?;
    let mut import = Import::empty(ImportOrigin::Export { header, end });
    items.into_iter().for_each(|(item, line)| import.add(item, line));
    Ok(import)
}

impl Import {
    pub(super) fn empty(origin: ImportOrigin) -> Self {
        let (metadata, intents, units, refused, remarks) = Default::default();
        Self { origin, metadata, intents, units, refused, remarks }
    }

    fn add(&mut self, item: ExportItem, line: u64) {
        let location = format!("line {line}");
        match item {
            ExportItem::Metadata(it) => {
                let (machine, key, value) = (it.machine, it.key, it.value);
                self.metadata.push(ImportMetadata { location, machine, key, value });
            }
            ExportItem::Intent(it) => {
                let (machine, intent) = (it.machine, it.intent);
                self.intents.push(ImportIntent { location, machine, intent });
            }
            ExportItem::Unit(unit) => {
                let ExportedUnit { name, source, desired, generation, machine } = unit;
                let unit = ImportUnit { location, name, source, desired, generation, machine };
                self.units.push(unit);
            }
            ExportItem::Fault { unit, problem } => self.remarks.push(format!(
                "{location}: {unit} is not in the export, because its file could not be read: \
                 {problem}"
            )),
        }
    }
}
