//! Pure: the stored unit files, which units have them, and which of them no unit has.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Fault, Revision};
use fleet_unitfile::{UnitFile, UnitName};

use super::view::fault;
use crate::codec::decode_content;
use crate::{ContentId, UnusedContent};

/// The unit files by their identities.
#[derive(Debug, Default)]
pub(super) struct Contents {
    files: BTreeMap<ContentId, Content>,
    /// Which units have which content, be the content there or not.
    users: BTreeSet<(ContentId, Option<UnitName>)>,
    /// The contents that are there and that no unit has.
    unused: BTreeSet<ContentId>,
}

/// A stored unit file, shared by all units that have it.
#[derive(Debug)]
struct Content {
    modified: Revision,
    file: Result<UnitFile, Box<Fault>>,
}

impl Contents {
    /// The file of a content, or what is wrong with it.
    pub(super) fn file(&self, id: ContentId) -> Result<UnitFile, Fault> {
        match self.files.get(&id) {
            Some(Content { file: Ok(file), .. }) => Ok(file.clone()),
            Some(Content { file: Err(fault), .. }) => Err(Fault::clone(fault)),
            None => Err(Fault { message: format!("the content {id} of the unit is missing") }),
        }
    }

    /// Takes over a stored content, and says whether it is another than before. A file that
    /// `known` has is not read once more.
    pub(super) fn put(
        &mut self,
        id: ContentId,
        value: &[u8],
        modified: Revision,
        known: Option<&Self>,
    ) -> bool {
        let same = self.with_bytes(id, value).is_some();
        let file = self.with_bytes(id, value).or_else(|| known?.with_bytes(id, value)).cloned();
        let file = file.map_or_else(|| read(id, value).map_err(Box::new), Ok);
        self.files.insert(id, Content { modified, file });
        self.note_use(id);
        !same
    }

    /// Gives back the room that trees keep free which were filled entry by entry.
    pub(super) fn tighten(&mut self) {
        self.files = std::mem::take(&mut self.files).into_iter().collect();
        self.users = std::mem::take(&mut self.users).into_iter().collect();
    }

    pub(super) fn remove(&mut self, id: ContentId) {
        self.files.remove(&id);
        self.note_use(id);
    }

    /// Notes which content a unit has instead of which.
    pub(super) fn change_use(
        &mut self,
        unit: &UnitName,
        before: Option<ContentId>,
        now: Option<ContentId>,
    ) {
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.users.remove(&(before, Some(unit.clone())));
            self.note_use(before);
        }
        if let Some(now) = now {
            self.users.insert((now, Some(unit.clone())));
            self.note_use(now);
        }
    }

    /// The units that have a content.
    pub(super) fn users(&self, id: ContentId) -> impl Iterator<Item = &UnitName> {
        let from = self.users.range((id, None)..);
        from.take_while(move |(of, _)| *of == id).filter_map(|(_, unit)| unit.as_ref())
    }

    pub(super) fn unused(&self) -> Vec<UnusedContent> {
        let of = |id: &ContentId| Some((*id, self.files.get(id)?.modified));
        let unused = self.unused.iter().filter_map(of);
        unused.map(|(id, modified)| UnusedContent { id, modified }).collect()
    }

    /// Keeps in mind whether the content is there for no unit.
    fn note_use(&mut self, id: ContentId) {
        if self.files.contains_key(&id) && self.users(id).next().is_none() {
            self.unused.insert(id);
        } else {
            self.unused.remove(&id);
        }
    }

    /// The file of a content that was read before, if this was and is read as its bytes.
    fn with_bytes(&self, id: ContentId, value: &[u8]) -> Option<&UnitFile> {
        let file = self.files.get(&id)?.file.as_ref().ok()?;
        decode_content(id, value).is_ok_and(|source| source == file.source()).then_some(file)
    }
}

/// Reads a stored unit file: what it is kept under must be what it is.
fn read(id: ContentId, value: &[u8]) -> Result<UnitFile, Fault> {
    let what = "the unit's content";
    let source = decode_content(id, value).map_err(|error| fault(what, &error))?;
    UnitFile::parse(source).map_err(|error| fault(what, &error))
}
