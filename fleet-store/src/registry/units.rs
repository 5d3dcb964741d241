//! Units: submitting, wanting, restarting and destroying them.

use fleet_core::{Generation, Revision, TargetState, Unit};
use fleet_unitfile::{UnitFile, UnitName};

use super::{Registry, RegistryError, unchanged};
use crate::codec::{UnitRecord, decode_unit, encode_content, encode_unit};
use crate::{CodecError, Commit, Condition, ContentId, Entry, Key, Transaction};

/// A unit as it is to be stored. Whether its requirements make sense is the caller's to check.
#[derive(Debug, Clone)]
pub struct NewUnit {
    /// Its name.
    pub name: UnitName,
    /// Its unit file.
    pub file: UnitFile,
    /// The state that it is to be in.
    pub desired: TargetState,
}

/// What must be true of the unit's name for a unit to be stored under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectUnit {
    /// No unit has it.
    Absent,
    /// A unit has it, which is replaced.
    Present,
    /// A unit has it that was last written by this revision or an earlier one, and is replaced.
    /// Whatever a snapshot of that revision shows of it still holds.
    UnchangedSince(Revision),
    /// Anything.
    Any,
}

/// A stored content that no unit has, as a mirror saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnusedContent {
    /// The content.
    pub id: ContentId,
    /// The revision that last wrote it.
    pub modified: Revision,
}

/// How often an operation looks again when others write the same unit meanwhile.
const MAX_ATTEMPTS: usize = 10;

/// A unit's record as it was found.
struct LoadedUnit {
    record: UnitRecord,
    entry: Entry,
    /// The revision at which it was looked for.
    revision: Revision,
}

impl Registry {
    /// Stores a unit, new or in place of the one of that name, with its content and desired state
    /// in one step. The generation of a replaced unit is kept.
    ///
    /// # Errors
    ///
    /// [`RegistryError::AlreadyExists`], [`RegistryError::NotFound`] or [`RegistryError::Changed`]
    /// when `expect` is not so;
    /// [`RegistryError::Value`] when a newer version of fleet wrote the one that is there, of which
    /// something would be lost; [`RegistryError::Conflict`] when others keep writing the same unit.
    pub async fn put_unit(
        &self,
        unit: NewUnit,
        expect: ExpectUnit,
    ) -> Result<Revision, RegistryError> {
        if expect == ExpectUnit::Absent {
            return self.create_unit(unit).await;
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
            let transaction = self.put_transaction(&unit, entry.as_ref())?;
            if let Commit::Applied(revision) = self.commit_grouped(transaction).await? {
                return Ok(revision);
            }
        }
        Err(RegistryError::Conflict)
    }

    /// Nothing has to be read for it: the refusal tells that there is one.
    async fn create_unit(&self, unit: NewUnit) -> Result<Revision, RegistryError> {
        match self.commit_grouped(self.put_transaction(&unit, None)?).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { found: Some(Entry { modified, .. }), .. } => {
                Err(RegistryError::AlreadyExists { name: unit.name, modified })
            }
            // No condition but that one can be refused, and whatever is there has been written.
            Commit::Refused { found: None, .. } => Err(RegistryError::Conflict),
        }
    }

    /// Sets the state that a unit is to be in, which a mirror has shown: it is read only where it
    /// is not as it was seen. If it is in that state already, nothing is written.
    ///
    /// # Errors
    ///
    /// As [`set_desired`](Self::set_desired).
    pub async fn set_desired_optimistic(
        &self,
        seen: &Unit,
        desired: TargetState,
    ) -> Result<Revision, RegistryError> {
        let content = ContentId::of(seen.file.source());
        let before = UnitRecord { content, desired: seen.desired, generation: seen.generation };
        if before.desired != desired {
            let key = self.key(&Key::Unit(seen.name.clone()));
            let after = UnitRecord { desired, ..before };
            let same = Condition::value(&key, encode_unit(&before));
            let put = Transaction::new().when(same).put(key, encode_unit(&after));
            if let Commit::Applied(revision) = self.commit_grouped(put).await? {
                return Ok(revision);
            }
        }
        self.set_desired(&seen.name, desired).await
    }

    /// Sets the state that a unit is to be in. If it is that already, nothing is written.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`]; [`RegistryError::Conflict`] when others keep writing the unit.
    pub async fn set_desired(
        &self,
        name: &UnitName,
        desired: TargetState,
    ) -> Result<Revision, RegistryError> {
        let set = |found: &LoadedUnit| Ok(UnitRecord { desired, ..found.record });
        self.change_unit(name, set).await.map(|(revision, _)| revision)
    }

    /// The same of a unit that was last written by the revision `seen` or an earlier one.
    ///
    /// # Errors
    ///
    /// As [`set_desired`](Self::set_desired), and [`RegistryError::Changed`].
    pub async fn set_desired_if_unchanged(
        &self,
        name: &UnitName,
        desired: TargetState,
        seen: Revision,
    ) -> Result<Revision, RegistryError> {
        let set = |found: &LoadedUnit| {
            check_unchanged(seen, name, &found.entry)?;
            Ok(UnitRecord { desired, ..found.record })
        };
        self.change_unit(name, set).await.map(|(revision, _)| revision)
    }

    /// Asks for a restart of a unit: its generation rises.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`]; [`RegistryError::Conflict`] when others keep writing the unit.
    pub async fn request_restart(
        &self,
        name: &UnitName,
    ) -> Result<(Revision, Generation), RegistryError> {
        let epoch_base = self.epoch_base().await?;
        let raise = |found: &LoadedUnit| {
            // No generation is higher than the revision it was made at. So this one is higher than
            // those of a destroyed unit of the same name, which a machine may still remember, be
            // it from an earlier lineage.
            let next = found.record.generation.next().0.max(epoch_base + found.revision.0);
            Ok(UnitRecord { generation: Generation(next), ..found.record })
        };
        let (revision, record) = self.change_unit(name, raise).await?;
        Ok((revision, record.generation))
    }

    /// Deletes contents that no unit has, as [`Mirror::unused_contents`] lists them, and returns
    /// how many. One that was stored again meanwhile is left alone.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`]; some contents may have been deleted then.
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

    /// Changes a unit's record, on the condition that it is still the one that was read.
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

    /// The transaction that stores a unit in place of what was found under its name.
    fn put_transaction(
        &self,
        unit: &NewUnit,
        found: Option<&Entry>,
    ) -> Result<Transaction, RegistryError> {
        let content = ContentId::of(unit.file.source());
        let key = self.key(&Key::Unit(unit.name.clone()));
        let generation = match found.map(|entry| decode_unit(&entry.value)) {
            Some(Ok(record)) => record.generation,
            Some(Err(source @ CodecError::Newer { .. })) => {
                return Err(RegistryError::Value { key, source });
            }
            // A damaged record has no generation to keep; replacing it is how it is mended.
            Some(Err(_)) | None => Generation::ZERO,
        };
        let record = UnitRecord { content, desired: unit.desired, generation };
        // The content is written even if it is there, so that nobody collects it as unused.
        Ok(Transaction::new()
            .when(unchanged(&key, found))
            .put(self.key(&Key::Content(content)), encode_content(unit.file.source()))
            .put(key, encode_unit(&record)))
    }
}

/// Whether a unit is still what a snapshot of that revision shows.
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
