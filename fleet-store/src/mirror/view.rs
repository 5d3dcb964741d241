//! Pure: the snapshot as it follows from the store's entries, kept current change by change.
//!
//! A unit in the snapshot comes out of two entries, its record and its content, and a machine out
//! of its claim and its run-time metadata. So changes are first noted, then the units and machines
//! that they touch are put together anew. What a change costs depends on what it touches. A whole
//! listing is taken over in another way (`load`), with the same outcome.

mod assembly;
mod load;
mod placing;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use fleet_core::{Epoch, Fault, Intent, MachineId, Revision, Snapshot};
use fleet_unitfile::UnitName;

use super::concern::Concerned;
use super::contents::Contents;
use super::demands::Demands;
use super::difference::{Difference, Feed};
use super::places::Places;
use super::reports::{Report, Reports};
use super::room;
use crate::codec::{UnitRecord, decode_lineage};
use crate::registry::{Lineage, MachineRecord};
use crate::{Change, Changes, CodecError, Export, Key, Layout, RegistryError, UnusedContent};

/// The snapshot with what it is made of.
#[derive(Debug)]
pub(super) struct View {
    layout: Layout,
    snapshot: Arc<Snapshot>,
    records: BTreeMap<UnitName, Result<UnitRecord, Box<Fault>>>,
    places: Places,
    contents: Contents,
    claims: BTreeMap<MachineId, MachineRecord>,
    intents: BTreeMap<MachineId, Intent>,
    demands: Demands,
    /// Which history this is, as it is stored.
    lineage: Option<Vec<u8>>,
    leader: Leader,
    /// The last revision that touched a unit, a machine or a placement.
    decisive: Revision,
    feed: Feed,
    reports: Reports,
    /// What the changes that are being taken over have changed of reports.
    reported: Vec<Report>,
    /// Whom the changes of late concern.
    concerned: Concerned,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leader {
    Nobody,
    Engine(MachineId),
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
            places: Places::default(),
            contents: Contents::default(),
            claims: BTreeMap::new(),
            intents: BTreeMap::new(),
            demands: Demands::default(),
            lineage: None,
            leader: Leader::Nobody,
            decisive: Revision::ZERO,
            feed: Feed::new(),
            reports: Reports::since_listing(Revision::ZERO),
            reported: Vec::new(),
            concerned: Concerned::default(),
        }
    }

    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What is different now from how it was at the revision `seen`; nothing if that is not known.
    pub(super) fn since(&self, seen: Revision) -> Option<Difference> {
        self.feed.since(seen)
    }

    /// Which results of decisions are different now from how they were at the revision `seen`;
    /// nothing if that is not known.
    pub(super) fn reports_since(&self, seen: Revision) -> Option<BTreeSet<Report>> {
        self.reports.since(seen)
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
        let beginning = lineage.as_ref().map_or(0, Lineage::beginning);
        let epochs = Epoch(beginning + self.snapshot.revision.0);
        let (snapshot, intents) = (self.snapshot.clone(), self.intents.clone());
        Ok(Export { snapshot, intents, lineage, epochs })
    }

    /// Whether what is stored as the lineage is that of this view, which may have none yet. Where
    /// it begins may be raised; it stays the same history.
    pub(super) fn is_of(&self, lineage: Option<&[u8]>) -> bool {
        let Some(own) = self.lineage.as_deref() else { return true };
        let same = |other| match (decode_lineage(own), decode_lineage(other)) {
            (Ok(own), Ok(other)) => own.is_the_same_as(&other),
            _ => own == other,
        };
        lineage.is_some_and(same)
    }

    /// Whether nobody leads but, perhaps, the candidate itself.
    pub(super) fn is_open_to(&self, candidate: &MachineId) -> bool {
        match &self.leader {
            Leader::Nobody => true,
            Leader::Engine(machine) => machine == candidate,
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
    pub(super) fn apply(&mut self, changes: &Changes) {
        let mut touched = Difference::default();
        for Change { key, value, .. } in &changes.changes {
            let Some(key) = self.layout.parse(key) else {
                continue;
            };
            match value {
                Some(value) => self.put(key, value, changes.revision, None, &mut touched),
                None => self.delete(key, &mut touched),
            }
        }
        self.settle(&touched, changes.revision, None);
        let everywhere = self.snapshot.global_count() * self.snapshot.machines().len();
        let most = room::for_runs(self.records.len() + everywhere);
        self.feed.keep(most);
        self.reports.keep(most);
        self.feed.follow(changes.revision, touched);
        self.reports.follow(changes.revision, self.reported.drain(..));
    }

    /// The last revision that touched a unit, a machine or a placement.
    pub(super) fn decisive(&self) -> Revision {
        self.decisive
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
