//! Pure: a cluster as the lines of an export.

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;
use std::vec::IntoIter;

use fleet_core::snapshot::Fault;
use fleet_core::{Epoch, Intent, MachineId, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::line::{ContentDigest, Digest, ExportedMetadata, FORMAT, Line, VERSION};
use crate::registry::Lineage;

/// A cluster at one revision, which can be written to a portable file.
///
/// It does not include transient state: present machines, reported states, the leader and reasons.
/// [`Mirror::export`](crate::Mirror::export) and [`Registry::export`](crate::Registry::export)
/// create exports.
#[derive(Debug, Clone)]
pub struct Export {
    /// The cluster.
    pub snapshot: Arc<Snapshot>,
    /// Operators' intents for machines, present or not.
    pub intents: BTreeMap<MachineId, Intent>,
    /// Lineage of the store, if it has one.
    pub lineage: Option<Lineage>,
    /// Upper bound for the epochs of all placements made so far.
    pub max_epoch: Epoch,
}

impl Export {
    /// Returns the lines of the file in order, each with its line end.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use fleet_store::{Layout, MemoryStore, Registry};
    /// use fleet_store::transfer::ExportReader;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let registry = Registry::new(Arc::new(MemoryStore::new()), Layout::DEFAULT_PREFIX);
    /// let mut reader = ExportReader::new();
    /// for line in registry.export().await?.lines() {
    ///     reader.push(&line, &mut |_item, _line| {})?;
    /// }
    /// let (header, end) = reader.finish()?;
    /// assert_eq!((header.units, end.units), (0, 0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lines(self) -> ExportLines {
        ExportLines {
            metadata: metadata(&self.snapshot).into_iter(),
            intents: self.intents.clone().into_iter(),
            units: self.snapshot.units().cloned().collect::<Vec<_>>().into_iter(),
            faults: faults(&self.snapshot).into_iter(),
            counts: [0; 4],
            digest: Digest::default(),
            content: ContentDigest::default(),
            stage: Stage::Header,
            export: self,
        }
    }
}

pub(super) fn metadata(snapshot: &Snapshot) -> Vec<ExportedMetadata> {
    let machines = snapshot.all_dynamic_metadata();
    let pairs = machines.flat_map(|(machine, pairs)| {
        pairs.iter().map(|(key, value)| ExportedMetadata {
            machine: machine.clone(),
            key: key.clone(),
            value: value.clone(),
        })
    });
    pairs.collect()
}

fn faults(snapshot: &Snapshot) -> Vec<(UnitName, Arc<Fault>)> {
    snapshot.faults().map(|(name, fault)| (name.clone(), fault.clone())).collect()
}

/// Iterator over the lines of an export.
#[derive(Debug)]
pub struct ExportLines {
    export: Export,
    metadata: IntoIter<ExportedMetadata>,
    intents: btree_map::IntoIter<MachineId, Intent>,
    units: IntoIter<Arc<Unit>>,
    faults: IntoIter<(UnitName, Arc<Fault>)>,
    /// Number of lines of each of the four kinds above.
    counts: [u64; 4],
    digest: Digest,
    content: ContentDigest,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Header,
    Items,
    Done,
}

impl Iterator for ExportLines {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let line = match self.stage {
            Stage::Header => {
                self.stage = Stage::Items;
                self.header()
            }
            Stage::Items => match self.item() {
                Some(item) => item,
                None => {
                    self.stage = Stage::Done;
                    return Some(self.end().to_bytes());
                }
            },
            Stage::Done => return None,
        };
        let bytes = line.to_bytes();
        self.digest.update(&bytes);
        Some(bytes)
    }
}

impl ExportLines {
    fn header(&self) -> Line {
        Line::Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            fleet: env!("CARGO_PKG_VERSION").to_owned(),
            lineage: self.export.lineage.as_ref().map(ToString::to_string),
            revision: self.export.snapshot.revision.0,
            epochs: self.export.max_epoch.0,
            units: self.units.len() as u64,
        }
    }

    fn item(&mut self) -> Option<Line> {
        if let Some(ExportedMetadata { machine, key, value }) = self.metadata.next() {
            self.counts[0] += 1;
            self.content.metadata(machine.as_str(), &key, &value);
            return Some(Line::Metadata { machine: machine.to_string(), key, value });
        }
        if let Some((machine, intent)) = self.intents.next() {
            self.counts[1] += 1;
            self.content.intent(machine.as_str(), intent);
            return Some(Line::of_intent(&machine, intent));
        }
        if let Some(unit) = self.units.next() {
            self.counts[2] += 1;
            self.content.unit(unit.name.as_str(), unit.desired, unit.file.source());
            let placement = self.export.snapshot.placement(unit.name.as_str());
            return Some(Line::of_unit(&unit, placement.map(|placement| &placement.machine)));
        }
        let (unit, fault) = self.faults.next()?;
        self.counts[3] += 1;
        Some(Line::Fault { unit: unit.to_string(), problem: fault.message.clone() })
    }

    fn end(&mut self) -> Line {
        let [metadata, intents, units, faults] = self.counts;
        let content = std::mem::take(&mut self.content).finish();
        let sha256 = std::mem::take(&mut self.digest).finish();
        Line::End { units, metadata, intents, faults, content, sha256 }
    }
}
