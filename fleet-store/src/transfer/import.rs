//! What a file wants a cluster to be, whichever of the two kinds of file it is.

use std::io::{self, Read};

use fleet_core::{Epoch, Generation, Intent, MachineId, TargetState};
use fleet_unitfile::UnitName;

use super::export::Export;
use super::line::{ExportEnd, ExportHeader, ExportItem, ExportedUnit};
use super::reader::{ExportError, ExportReader};
use super::report::RefusedImport;
use super::v1::{self, V1DumpError};

/// How large a dump may be, in bytes: all of it is held at once.
const MAX_DUMP: u64 = 1 << 30;

/// How much is read at once, in bytes.
const CHUNK: usize = 64 << 10;

/// What is in a file that is to be imported.
#[derive(Debug)]
pub struct Import {
    /// What kind of file it is.
    pub origin: ImportOrigin,
    /// The metadata that was set at run time, in order of machines and keys.
    pub metadata: Vec<ImportMetadata>,
    /// What is to become of machines, in their order.
    pub intents: Vec<ImportIntent>,
    /// The units, in order of names.
    pub units: Vec<ImportUnit>,
    /// What is no unit that could be imported, and why.
    pub refused: Vec<RefusedImport>,
    /// What a person should know though nothing is wrong, a sentence each.
    pub remarks: Vec<String>,
}

/// What kind of file was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOrigin {
    /// An export.
    Export {
        /// What it says of itself.
        header: ExportHeader,
        /// What it says at its end.
        end: ExportEnd,
    },
    /// The keys of a fleet v1.
    V1 {
        /// What the keys start with.
        prefix: String,
    },
}

/// A unit to be imported.
#[derive(Debug, Clone)]
pub struct ImportUnit {
    /// Where in the file it is.
    pub location: String,
    /// Its name.
    pub name: UnitName,
    /// Its unit file.
    pub source: Vec<u8>,
    /// The state that it is to be in.
    pub desired: TargetState,
    /// How often a restart of it was requested.
    pub generation: Generation,
    /// The machine that it was on, if it was on one.
    pub machine: Option<MachineId>,
}

/// A pair of metadata to be imported.
#[derive(Debug, Clone)]
pub struct ImportMetadata {
    /// Where in the file it is.
    pub location: String,
    /// The machine.
    pub machine: MachineId,
    /// The key.
    pub key: String,
    /// The value; an empty one hides the key.
    pub value: String,
}

/// What is to become of a machine, to be imported.
#[derive(Debug, Clone)]
pub struct ImportIntent {
    /// Where in the file it is.
    pub location: String,
    /// The machine.
    pub machine: MachineId,
    /// What is to become of it.
    pub intent: Intent,
}

/// Why a file cannot be imported, whatever is in the cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It cannot be read.
    #[error("the file cannot be read")]
    Read(#[from] io::Error),
    /// It is an export that is damaged, cut off or too new.
    #[error("the export cannot be used")]
    Export(#[from] ExportError),
    /// It is no export, and nothing that tells of a fleet v1.
    #[error("the file is neither an export nor the keys of a fleet v1")]
    V1(#[from] V1DumpError),
}

impl Import {
    /// No placement was made in a higher epoch where the file is from. None was where nobody knew
    /// of epochs.
    #[must_use]
    pub fn max_epoch(&self) -> Epoch {
        match &self.origin {
            ImportOrigin::Export { header, .. } => header.max_epoch,
            ImportOrigin::V1 { .. } => Epoch::ZERO,
        }
    }

    /// The [epochs](Self::epochs) that those of `cluster` have to be raised above: none if the file
    /// is one of its own, which it has gone on from.
    #[must_use]
    pub fn epoch_to_exceed(&self, cluster: &Export) -> Epoch {
        let own = cluster.lineage.as_ref().map(ToString::to_string);
        let is_own = match &self.origin {
            ImportOrigin::Export { header, .. } => own.is_some() && header.lineage == own,
            ImportOrigin::V1 { .. } => false,
        };
        if is_own && self.max_epoch() <= cluster.max_epoch { Epoch::ZERO } else { self.max_epoch() }
    }

    /// Reads a file of either kind to its end: an export, or the keys of a fleet v1 as JSON.
    ///
    /// # Errors
    ///
    /// [`ImportError`]; what was read until then is worth nothing.
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
                "{location}: {unit} could not be read where the export was made, and is not in it: \
                 {problem}"
            )),
        }
    }
}
