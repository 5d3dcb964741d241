//! Creating, changing, restarting and destroying units.

use fleet_core::{Generation, Revision, TargetState, Unit};
use fleet_unitfile::{UnitFile, UnitName};

use super::{Registry, RegistryError, unchanged};
use crate::codec::{UnitRecord, decode_unit, encode_content, encode_unit};
use crate::registry::{CodecError, ContentId, Key};
use crate::{Commit, Condition, Entry, Mirror, Transaction};

/// A unit to store. The caller must check its requirements.
#[derive(Debug, Clone)]
pub struct NewUnit {
    /// Its name.
    pub name: UnitName,
    /// Its unit file.
    pub file: UnitFile,
    /// Desired state.
    pub desired: TargetState,
}

/// Condition on the unit's name for storing a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectUnit {
    /// No unit has the name.
    Absent,
    /// A unit has the name; it is replaced.
    Present,
    /// A unit has the name and was not written after this revision; it is replaced. So the caller's
    /// snapshot of that revision shows exactly the unit that is replaced.
    UnchangedSince(Revision),
    /// No condition.
    Any,
}

/// A stored content that no unit uses, as seen by a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnusedContent {
    /// The content.
    pub id: ContentId,
    /// Revision that last wrote it.
    pub modified: Revision,
}

/// Maximum number of attempts when other writers change the unit concurrently.
const MAX_ATTEMPTS: usize = 10;

/// A unit's record as read.
struct LoadedUnit {
    record: UnitRecord,
    entry: Entry,
    /// Revision of the read.
    revision: Revision,
}

impl LoadedUnit {
    fn with_raised_generation(&self, epoch_base: u64) -> UnitRecord {
        with_raised_generation(self.record, epoch_base, self.revision)
    }
}

/// Returns a record, as read at that revision, with the next generation. No generation exceeds the
/// revision that created it. So this one is higher than those of a destroyed unit of the same name,
/// even of an earlier lineage, that machines may remember.
fn with_raised_generation(record: UnitRecord, epoch_base: u64, read: Revision) -> UnitRecord {
    UnitRecord { generation: raised_generation(record.generation, epoch_base, read), ..record }
}

pub(super) fn raised_generation(
    generation: Generation,
    epoch_base: u64,
    read: Revision,
) -> Generation {
    Generation(generation.next().0.max(epoch_base + read.0))
}

/// Returns the record of a unit whose restart is requested.
pub(super) fn restarted(record: UnitRecord, epoch_base: u64, read: Revision) -> UnitRecord {
    let raised = with_raised_generation(record, epoch_base, read);
    match raised.desired {
        TargetState::Loaded => raised.with_desired(TargetState::Launched),
        TargetState::Inactive | TargetState::Launched => raised,
    }
}

impl Registry {
    /// Stores a unit with its content and desired state in one step, and replaces an existing unit
    /// if `expect` allows that. A replaced unit's generation is kept, or raised if this stops the
    /// unit.
    ///
    /// # Errors
    ///
    /// [`RegistryError::AlreadyExists`], [`RegistryError::NotFound`] or [`RegistryError::Changed`]
    /// when the cluster does not match `expect`. [`RegistryError::Value`] when a newer version of
    /// fleet wrote the existing unit, because replacing it could lose data.
    /// [`RegistryError::Conflict`] when other writers keep changing the unit.
    pub async fn put_unit(
        &self,
        unit: NewUnit,
        expect: ExpectUnit,
    ) -> Result<Revision, RegistryError> {
        self.put_imported_unit(unit, Generation::ZERO, expect).await
    }

    /// Like [`put_unit`](Self::put_unit), but a created unit begins with this generation, which it
    /// had in another cluster. So a machine that knows the unit from there carries out a restart
    /// that was requested there, and no other one.
    ///
    /// The epochs of this cluster must have been [raised](Self::raise_epochs) above those of the
    /// other cluster, so that later requests get higher generations.
    ///
    /// # Errors
    ///
    /// As for [`put_unit`](Self::put_unit).
    pub async fn put_imported_unit(
        &self,
        unit: NewUnit,
        generation: Generation,
        expect: ExpectUnit,
    ) -> Result<Revision, RegistryError> {
        if expect == ExpectUnit::Absent {
            return self.create_unit(unit, generation).await;
        }
        for _ in 0..MAX_ATTEMPTS {
            let (entry, _) = self.get(&Key::Unit(unit.name.clone())).await?;
            match (expect, &entry) {
                (ExpectUnit::Present | ExpectUnit::UnchangedSince(_), None) => {
                    return Err(RegistryError::NotFound { name: unit.name });
                }
                (ExpectUnit::UnchangedSince(seen), Some(entry)) => {
                    check_unchanged(seen, &unit.name, entry)?;
                }
                _ => {}
            }
            let transaction = self.put_transaction(&unit, generation, entry.as_ref()).await?;
            if let Commit::Applied(revision) = self.commit_grouped(transaction).await? {
                return Ok(revision);
            }
        }
        Err(RegistryError::Conflict)
    }

    /// Creates a unit without reading first: a refusal shows that it exists.
    async fn create_unit(
        &self,
        unit: NewUnit,
        generation: Generation,
    ) -> Result<Revision, RegistryError> {
        let transaction = self.put_transaction(&unit, generation, None).await?;
        match self.commit_grouped(transaction).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { found: Some(Entry { modified, .. }), .. } => {
                Err(RegistryError::AlreadyExists { name: unit.name, modified })
            }
            // Only the absence condition can fail, and an existing entry has a revision.
            Commit::Refused { found: None, .. } => Err(RegistryError::Conflict),
        }
    }

    /// Like [`set_desired`](Self::set_desired), but faster, because the caller already has the unit
    /// from a mirror. If `seen` is up to date and its desired state differs from `desired`, this
    /// writes without reading the unit from the store. In all other cases, it calls `set_desired`.
    ///
    /// # Errors
    ///
    /// The same as for [`set_desired`](Self::set_desired).
    pub async fn set_desired_optimistic(
        &self,
        seen: &Unit,
        desired: TargetState,
    ) -> Result<Revision, RegistryError> {
        let content = ContentId::of(seen.file.source());
        let before = UnitRecord { content, desired: seen.desired, generation: seen.generation };
        if before.desired != desired {
            let key = self.key(&Key::Unit(seen.name.clone()));
            let after = before.with_desired(desired);
            let same = Condition::value(&key, encode_unit(&before));
            let put = Transaction::new().when(same).put(key, encode_unit(&after));
            if let Commit::Applied(revision) = self.commit_grouped(put).await? {
                return Ok(revision);
            }
        }
        self.set_desired(&seen.name, desired).await
    }

    /// Sets the desired state of a unit. If the unit already has that desired state, nothing is
    /// written. If the unit was launched and is now stopped, its generation is raised.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`] when the unit does not exist; [`RegistryError::Conflict`] when
    /// other writers keep changing the unit.
    pub async fn set_desired(
        &self,
        name: &UnitName,
        desired: TargetState,
    ) -> Result<Revision, RegistryError> {
        let set = |found: &LoadedUnit| Ok(found.record.with_desired(desired));
        self.change_unit(name, set).await.map(|(revision, _)| revision)
    }

    /// Like [`set_desired`](Self::set_desired), but only if the unit was not written after revision
    /// `seen`.
    ///
    /// # Errors
    ///
    /// The same as for [`set_desired`](Self::set_desired), and [`RegistryError::Changed`] when the
    /// unit was written after `seen`.
    pub async fn set_desired_if_unchanged(
        &self,
        name: &UnitName,
        desired: TargetState,
        seen: Revision,
    ) -> Result<Revision, RegistryError> {
        let set = |found: &LoadedUnit| {
            check_unchanged(seen, name, &found.entry)?;
            Ok(found.record.with_desired(desired))
        };
        self.change_unit(name, set).await.map(|(revision, _)| revision)
    }

    /// Requests a restart of a unit by raising its generation. Makes `launched` the desired state
    /// of a loaded unit.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`] when the unit does not exist; [`RegistryError::Conflict`] when
    /// other writers keep changing the unit.
    pub async fn request_restart(
        &self,
        name: &UnitName,
    ) -> Result<(Revision, Generation), RegistryError> {
        let epoch_base = self.epoch_base().await?;
        let raise = |found: &LoadedUnit| Ok(restarted(found.record, epoch_base, found.revision));
        let (revision, record) = self.change_unit(name, raise).await?;
        Ok((revision, record.generation))
    }

    /// Returns the generation that [`request_restart`](Self::request_restart) would give to a unit
    /// of a snapshot of this revision.
    #[must_use]
    pub fn restart_generation(unit: &Unit, mirror: &Mirror, seen: Revision) -> Generation {
        let epoch_base = mirror.lineage().map_or(0, |lineage| lineage.epoch_base());
        raised_generation(unit.generation, epoch_base, seen)
    }

    /// Requests the stop of a unit that is launched, or of the run of a loaded unit that a timer, a
    /// socket or another unit started. Makes `loaded` the desired state of a launched unit. Raises
    /// the generation of both, and does not change an inactive unit.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`] when the unit does not exist; [`RegistryError::Conflict`] when
    /// other writers keep changing the unit.
    pub async fn request_stop(
        &self,
        name: &UnitName,
    ) -> Result<(Revision, Generation), RegistryError> {
        let epoch_base = self.epoch_base().await?;
        let stop = |found: &LoadedUnit| {
            Ok(match found.record.desired {
                TargetState::Inactive => found.record,
                TargetState::Loaded => found.with_raised_generation(epoch_base),
                TargetState::Launched => found.record.with_desired(TargetState::Loaded),
            })
        };
        let (revision, record) = self.change_unit(name, stop).await?;
        Ok((revision, record.generation))
    }

    /// Deletes contents that no unit uses, as listed by [`Mirror::unused_contents`]. Returns the
    /// number of deleted contents. A content that was stored again since then is skipped, because a
    /// unit may use it now.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails; some contents may already be deleted.
    ///
    /// [`Mirror::unused_contents`]: crate::Mirror::unused_contents
    pub async fn collect_contents(&self, unused: &[UnusedContent]) -> Result<usize, RegistryError> {
        let mut collected = 0;
        for content in unused {
            let key = self.key(&Key::Content(content.id));
            let same = Condition::modified_at(&key, content.modified);
            let commit = self.store.commit(Transaction::new().when(same).delete(key)).await?;
            collected += usize::from(matches!(commit, Commit::Applied(_)));
        }
        Ok(collected)
    }

    /// Reads a unit's record, and replaces it with the result of `change` if no other writer has
    /// changed it meanwhile. Otherwise tries again.
    async fn change_unit(
        &self,
        name: &UnitName,
        change: impl Fn(&LoadedUnit) -> Result<UnitRecord, RegistryError> + Send + Sync,
    ) -> Result<(Revision, UnitRecord), RegistryError> {
        for _ in 0..MAX_ATTEMPTS {
            let found = self.find_unit(name).await?;
            let record = change(&found)?;
            let entry = found.entry;
            if record == found.record {
                return Ok((entry.modified, record));
            }
            let same = Condition::modified_at(&entry.key, entry.modified);
            let put = Transaction::new().when(same).put(entry.key, encode_unit(&record));
            if let Commit::Applied(revision) = self.commit_grouped(put).await? {
                return Ok((revision, record));
            }
        }
        Err(RegistryError::Conflict)
    }

    async fn find_unit(&self, name: &UnitName) -> Result<LoadedUnit, RegistryError> {
        let (entry, revision) = self.get(&Key::Unit(name.clone())).await?;
        let entry = entry.ok_or_else(|| RegistryError::NotFound { name: name.clone() })?;
        let record = decode_unit(&entry.value)
            .map_err(|source| RegistryError::Value { key: entry.key.clone(), source })?;
        Ok(LoadedUnit { record, entry, revision })
    }

    /// Returns the transaction that stores a unit in place of the entry found under its name. A new
    /// unit gets the generation `first`.
    pub(super) async fn put_transaction(
        &self,
        unit: &NewUnit,
        first: Generation,
        found: Option<&Entry>,
    ) -> Result<Transaction, RegistryError> {
        let content = ContentId::of(unit.file.source());
        let key = self.key(&Key::Unit(unit.name.clone()));
        let (generation, before) = match found.map(|entry| decode_unit(&entry.value)) {
            Some(Ok(record)) => {
                (record.with_desired(unit.desired).generation, Some(record.content))
            }
            Some(Err(source @ CodecError::Newer { .. })) => {
                return Err(RegistryError::Value { key, source });
            }
            // A damaged record has no generation to keep. Replacing it repairs the unit.
            Some(Err(_)) | None => (first, None),
        };
        let record = UnitRecord { content, desired: unit.desired, generation };
        let put = self.content_transaction(unchanged(&key, found), unit, key, &record);
        let revision = match before {
            None => self.first_revision(&unit.name, content),
            Some(before) if before == content => return Ok(put),
            Some(before) => {
                let source = self.stored_file(before).await.ok();
                let after = (content, unit.file.source().len());
                self.next_revision(&unit.name, (before, source.as_deref()), after).await?
            }
        };
        Ok(put.and(revision))
    }

    /// Returns the transaction that stores the record of a unit and its content.
    pub(super) fn content_transaction(
        &self,
        same: Condition,
        unit: &NewUnit,
        key: String,
        record: &UnitRecord,
    ) -> Transaction {
        // Write the content even if it exists, so that it is not collected as unused.
        Transaction::new()
            .when(same)
            .put(self.key(&Key::Content(record.content)), encode_content(unit.file.source()))
            .put(key, encode_unit(record))
    }
}

/// Checks that a unit has not changed since a snapshot of that revision.
pub(super) fn check_unchanged(
    seen: Revision,
    name: &UnitName,
    entry: &Entry,
) -> Result<(), RegistryError> {
    let modified = entry.modified;
    if modified > seen {
        return Err(RegistryError::Changed { name: name.clone(), modified });
    }
    Ok(())
}
