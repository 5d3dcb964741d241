//! Pure: the snapshot as it follows from the store's entries, kept current change by change.
//!
//! A unit in the snapshot comes out of two entries, its record and its content, and a machine out
//! of its claim and its run-time metadata. So changes are first noted, then the units and machines
//! that they touch are put together anew. What a change costs depends on what it touches. A whole
//! listing is taken over in another way (`load`), with the same outcome.

mod assembly;
mod load;
mod placements;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use fleet_core::{Epoch, Fault, Intent, MachineId, Revision, Snapshot};
use fleet_unitfile::UnitName;

use super::changes::{ChangeSet, DeltaLog};
use super::contents::Contents;
use super::limits;
use super::machine_progress::AffectedMachines;
use super::requirements_cache::RequirementsCache;
use super::results::{ResultChange, ResultLog};
use super::stored_placements::StoredPlacements;
use crate::codec::{UnitRecord, decode_lineage};
use crate::registry::{Lineage, MachineRecord};
use crate::{Changes, CodecError, Export, Key, KeyChange, Layout, RegistryError, UnusedContent};

/// The snapshot with what it is made of.
#[derive(Debug)]
pub(super) struct View {
    layout: Layout,
    snapshot: Arc<Snapshot>,
    records: BTreeMap<UnitName, Result<UnitRecord, Box<Fault>>>,
    placements: StoredPlacements,
    contents: Contents,
    claims: BTreeMap<MachineId, MachineRecord>,
    intents: BTreeMap<MachineId, Intent>,
    requirements_cache: RequirementsCache,
    /// Which history this is, as it is stored.
    lineage: Option<Vec<u8>>,
    leader: Leader,
    /// The last revision that changes a unit, a machine or a placement.
    scheduling_revision: Revision,
    delta_log: DeltaLog,
    result_log: ResultLog,
    /// What the changes that are being taken over have changed of result_log.
    changed_results: Vec<ResultChange>,
    /// Whom the changes of late machine_progress.
    affected: AffectedMachines,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leader {
    None,
    Machine(MachineId),
    /// Somebody whose claim cannot be understood.
    Unknown,
}

impl View {
    /// The view of a store that nothing was read of yet.
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            snapshot: Arc::default(),
            records: BTreeMap::new(),
            placements: StoredPlacements::default(),
            contents: Contents::default(),
            claims: BTreeMap::new(),
            intents: BTreeMap::new(),
            requirements_cache: RequirementsCache::default(),
            lineage: None,
            leader: Leader::None,
            scheduling_revision: Revision::ZERO,
            delta_log: DeltaLog::new(),
            result_log: ResultLog::since_listing(Revision::ZERO),
            changed_results: Vec::new(),
            affected: AffectedMachines::default(),
        }
    }

    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What is different now from how it was at the revision `seen`; nothing if that is not known.
    pub(super) fn since(&self, seen: Revision) -> Option<ChangeSet> {
        self.delta_log.since(seen)
    }

    /// Which result_log of decisions are different now from how they were at the revision `seen`;
    /// nothing if that is not known.
    pub(super) fn results_since(&self, seen: Revision) -> Option<BTreeSet<ResultChange>> {
        self.result_log.since(seen)
    }

    /// Which history this is, if that is known and can be read.
    pub(super) fn lineage(&self) -> Option<Lineage> {
        decode_lineage(self.lineage.as_deref()?).ok()
    }

    /// What of the cluster can be exported.
    pub(super) fn export(&self) -> Result<Export, RegistryError> {
        let lineage = self.lineage.as_deref().map(decode_lineage).transpose();
        let key = || self.layout.key(&Key::Lineage);
        let lineage = lineage.map_err(|source| RegistryError::Value { key: key(), source })?;
        let epoch_base = lineage.as_ref().map_or(0, Lineage::epoch_base);
        let max_epoch = Epoch(epoch_base + self.snapshot.revision.0);
        let (snapshot, intents) = (self.snapshot.clone(), self.intents.clone());
        Ok(Export { snapshot, intents, lineage, max_epoch })
    }

    /// Whether what is stored as the lineage is that of this view, which may have none yet. Where
    /// it begins may be raised; it stays the same history.
    pub(super) fn is_of(&self, lineage: Option<&[u8]>) -> bool {
        let Some(own) = self.lineage.as_deref() else { return true };
        let same = |other| match (decode_lineage(own), decode_lineage(other)) {
            (Ok(own), Ok(other)) => own.same_history(&other),
            _ => own == other,
        };
        lineage.is_some_and(same)
    }

    /// Whether nobody leads but, perhaps, the candidate itself.
    pub(super) fn may_lead(&self, candidate: &MachineId) -> bool {
        match &self.leader {
            Leader::None => true,
            Leader::Machine(machine) => machine == candidate,
            Leader::Unknown => false,
        }
    }

    /// The machines whose claims one revision changed, and whether they are there now.
    pub(super) fn machines_in(&self, changes: &Changes) -> Vec<(MachineId, bool)> {
        let machines =
            changes.changes.iter().filter_map(|change| match self.layout.parse(&change.key)? {
                Key::Machine(machine) => Some((machine, change.value.is_some())),
                _ => None,
            });
        machines.collect()
    }

    /// Takes over what one revision changed.
    pub(super) fn apply(&mut self, revision_changes: &Changes) {
        let revision = revision_changes.revision;
        let mut changes = ChangeSet::default();
        for KeyChange { key, value, .. } in &revision_changes.changes {
            let Some(key) = self.layout.parse(key) else {
                continue;
            };
            match value {
                Some(value) => self.put(key, value, revision, None, &mut changes),
                None => self.delete(key, &mut changes),
            }
        }
        self.assemble(&changes, revision, None);
        let everywhere = self.snapshot.global_count() * self.snapshot.machines().len();
        let most = limits::names_for(self.records.len() + everywhere);
        self.delta_log.keep(most);
        self.result_log.keep(most);
        self.delta_log.follow(revision, changes);
        self.result_log.follow(revision, self.changed_results.drain(..));
    }

    /// The last revision that changes a unit, a machine or a placement.
    pub(super) fn scheduling_revision(&self) -> Revision {
        self.scheduling_revision
    }

    /// The contents that no unit has.
    pub(super) fn unused_contents(&self) -> Vec<UnusedContent> {
        self.contents.unused()
    }

    fn edit(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.snapshot)
    }

    /// The same name, sharing its text with the unit's record: most names come in many keys.
    fn shared_name(&self, name: UnitName) -> UnitName {
        self.records.get_key_value(&name).map_or(name, |(shared, _)| shared.clone())
    }

    fn shared_id(&self, id: MachineId) -> MachineId {
        self.claims.get_key_value(&id).map_or(id, |(shared, _)| shared.clone())
    }
}

/// A fault, with the whole chain of causes: it is only ever shown.
pub(super) fn fault(what: &str, error: &dyn std::error::Error) -> Fault {
    let mut message = format!("{what} cannot be understood: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    Fault { message }
}

fn warn(what: &str, of: &dyn Display, error: &CodecError) {
    tracing::warn!(%of, error = error as &dyn std::error::Error, "a stored {what} is passed over");
}
