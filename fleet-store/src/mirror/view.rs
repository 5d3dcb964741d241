//! Pure: the snapshot derived from the store's entries, updated change by change.
//!
//! A unit is assembled from its record and its content. A machine is assembled from its claim, its
//! run-time metadata and its intent. One revision may change several of these parts, so all its
//! changes are recorded first. Then each affected unit and machine is assembled once. The cost
//! depends only on the number of affected objects.
//!
//! The module `load` loads a whole listing in a different way, with the same result.

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
use crate::registry::{CodecError, Key, UnusedContent};
use crate::registry::{Lineage, MachineRecord};
use crate::transfer::Export;
use crate::{Changes, KeyChange, Layout, RegistryError};

/// The snapshot and the data that it is derived from.
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
    /// Stored lineage.
    lineage: Option<Vec<u8>>,
    leader: Leader,
    /// Last revision that changed a unit, a machine or a placement.
    scheduling_revision: Revision,
    delta_log: DeltaLog,
    result_log: ResultLog,
    /// Result changes of the revision being applied.
    changed_results: Vec<ResultChange>,
    /// Machines affected by recent changes.
    affected: AffectedMachines,
}

/// The current leader.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leader {
    None,
    Machine(MachineId),
    /// A leader with an unreadable claim.
    Unknown,
}

impl View {
    /// Creates the view of a store that was not read yet.
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

    /// Returns the changes since revision `seen`, or `None` if they are unknown.
    pub(super) fn since(&self, seen: Revision) -> Option<ChangeSet> {
        self.delta_log.since(seen)
    }

    /// Returns the result changes since revision `seen`, or `None` if they are unknown.
    pub(super) fn results_since(&self, seen: Revision) -> Option<BTreeSet<ResultChange>> {
        self.result_log.since(seen)
    }

    /// Returns the lineage, if it is known and readable.
    pub(super) fn lineage(&self) -> Option<Lineage> {
        decode_lineage(self.lineage.as_deref()?).ok()
    }

    /// Returns the exportable part of the cluster.
    pub(super) fn export(&self) -> Result<Export, RegistryError> {
        let lineage = self.lineage.as_deref().map(decode_lineage).transpose();
        let key = || self.layout.key(&Key::Lineage);
        let lineage = lineage.map_err(|source| RegistryError::Value { key: key(), source })?;
        let epoch_base = lineage.as_ref().map_or(0, Lineage::epoch_base);
        let max_epoch = Epoch(epoch_base + self.snapshot.revision.0);
        let (snapshot, intents) = (self.snapshot.clone(), self.intents.clone());
        Ok(Export { snapshot, intents, lineage, max_epoch })
    }

    /// Returns whether a stored lineage is that of the view, or the view has no lineage yet. A
    /// different epoch base does not matter.
    pub(super) fn is_of(&self, lineage: Option<&[u8]>) -> bool {
        let Some(own) = self.lineage.as_deref() else { return true };
        let same = |other| match (decode_lineage(own), decode_lineage(other)) {
            (Ok(own), Ok(other)) => own.same_history(&other),
            _ => own == other,
        };
        lineage.is_some_and(same)
    }

    /// Returns whether there is no leader other than the candidate.
    pub(super) fn may_lead(&self, candidate: &MachineId) -> bool {
        match &self.leader {
            Leader::None => true,
            Leader::Machine(machine) => machine == candidate,
            Leader::Unknown => false,
        }
    }

    /// Returns the machines with a claim that a revision changed. The `bool` is true if the machine
    /// is present after the change.
    pub(super) fn machines_in(&self, changes: &Changes) -> Vec<(MachineId, bool)> {
        let machines =
            changes.changes.iter().filter_map(|change| match self.layout.parse(&change.key)? {
                Key::Machine(machine) => Some((machine, change.value.is_some())),
                _ => None,
            });
        machines.collect()
    }

    /// Applies the changes of one revision.
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

    /// Returns the last revision that changed a unit, a machine or a placement.
    pub(super) fn scheduling_revision(&self) -> Revision {
        self.scheduling_revision
    }

    /// Returns the contents that no unit uses.
    pub(super) fn unused_contents(&self) -> Vec<UnusedContent> {
        self.contents.unused()
    }

    fn edit(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.snapshot)
    }

    /// Returns an equal name that shares its text with the name of the unit's record, if there is
    /// one. This saves memory, because most names occur in many keys.
    fn shared_name(&self, name: UnitName) -> UnitName {
        self.records.get_key_value(&name).map_or(name, |(shared, _)| shared.clone())
    }

    fn shared_id(&self, id: MachineId) -> MachineId {
        self.claims.get_key_value(&id).map_or(id, |(shared, _)| shared.clone())
    }
}

/// Creates a fault with the whole chain of causes. Faults are only displayed.
pub(super) fn fault(what: &str, error: &dyn std::error::Error) -> Fault {
    let mut message = format!("{what} cannot be read: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    Fault { message }
}

const UNREADABLE_STATE: &str = "cannot read the state of a unit on a machine: ignoring it";

/// Logs that the stored value of a unit or machine cannot be read.
fn warn(message: &str, of: &dyn Display, error: &CodecError) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(%of, error, "{message}");
}
