//! Pure: the snapshot derived from the store's entries, updated change by change.
//!
//! A unit is assembled from its record and its content. A machine is assembled from its claim, its
//! run-time metadata and its intent. One revision may change several of these parts, so all its
//! changes are recorded first. Then each affected unit and machine is assembled once. The cost
//! depends only on the number of affected objects.
//!
//! The module `load` loads a whole listing in a different way, with the same result.

mod load;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use fleet_core::snapshot::Fault;
use fleet_core::{Epoch, Intent, Machine, MachineId, Revision, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::changes::{ChangeSet, DeltaLog, ResultChange, ResultLog};
use super::contents::Contents;
use super::follow::AffectedMachines;
use super::requirements_cache::RequirementsCache;
use super::stored_placements::StoredPlacements;
use crate::codec::{UnitRecord, decode_lineage};
use crate::mirror::changes;
use crate::mirror::changes::is_same_unit;
use crate::mirror::contents::Content;
use crate::registry::{CodecError, Key, Lineage, MachineRecord, UnusedContent};
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
        let most = changes::names_for(self.records.len() + everywhere);
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

impl View {
    /// Assembles the changed objects, and sets the revision of the snapshot.
    fn assemble(&mut self, changes: &ChangeSet, revision: Revision, known: Option<&Self>) {
        if !changes.is_empty() {
            self.scheduling_revision = revision;
        }
        for name in &changes.units {
            self.note_affected(name);
            match self.unit(name, known) {
                Some(Ok(unit)) => self.edit().put_unit(unit),
                Some(Err(fault)) => self.edit().put_fault(name.clone(), fault),
                None => self.edit().remove_unit(name.as_str()),
            }
            self.note_affected(name);
        }
        changes.machines.iter().for_each(|machine| self.affected.add(machine));
        for id in &changes.machines {
            match self.machine(id) {
                Some(machine) => self.edit().put_machine(machine),
                None => self.edit().remove_machine(id.as_str()),
            }
        }
        self.edit().revision = revision;
    }

    /// Assembles the unit from its record and content. Returns `None` if the unit has no record.
    fn unit(&mut self, name: &UnitName, known: Option<&Self>) -> Option<Result<Arc<Unit>, Fault>> {
        let record = match self.records.get(name)? {
            Ok(record) => *record,
            Err(fault) => return Some(Err(Fault::clone(fault))),
        };
        if let Some(fault) = self.placements.fault(name) {
            return Some(Err(fault.clone()));
        }
        let before = self.snapshot.unit(name.as_str());
        let before = before.or_else(|| known?.snapshot.unit(name.as_str())).cloned();
        let content = self.contents.get(record.content);
        Some(content.and_then(|content| self.unit_of(name, record, content, before)))
    }

    /// Assembles the unit of a record. Returns `before` if it is equal.
    fn unit_of(
        &mut self,
        name: &UnitName,
        record: UnitRecord,
        content: Content,
        before: Option<Arc<Unit>>,
    ) -> Result<Arc<Unit>, Fault> {
        let file = content.file;
        let before = before.filter(|before| before.file == file);
        let requirements = match (content.requirements, &before) {
            (Some(shared), _) => shared,
            (None, Some(before)) => before.requirements.clone(),
            (None, None) => self.requirements_cache.read(name, &file)?,
        };
        let (name, desired, generation) = (name.clone(), record.desired, record.generation);
        let unit = Arc::new(Unit { name, file, requirements, desired, generation });
        Ok(before.filter(|before| is_same_unit(before, &unit)).unwrap_or(unit))
    }

    /// Assembles a present machine from its claim, its run-time metadata and its intent. Run-time
    /// metadata overrides the configured metadata; an empty run-time value hides the key.
    fn machine(&self, id: &MachineId) -> Option<Machine> {
        let MachineRecord { id, address, api, mut metadata, version, offers, cordoned, .. } =
            self.claims.get(id)?.clone();
        for (key, value) in self.snapshot.dynamic_metadata(id.as_str()).into_iter().flatten() {
            if value.is_empty() {
                metadata.remove(key);
            } else {
                metadata.insert(key.clone(), value.clone());
            }
        }
        let intent = self.intents.get(&id).copied();
        let cordoned = cordoned || intent.is_some();
        Some(Machine { id, address, api, metadata, version, offers, cordoned, intent })
    }
}
