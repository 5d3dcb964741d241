//! Pure: the stored unit files, their units, and the files without units.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::iter::Peekable;
use std::sync::Arc;

use fleet_core::snapshot::Fault;
use fleet_core::{Requirements, Revision};
use fleet_unitfile::{UnitFile, UnitName};

use super::requirements_cache::RequirementsCache;
use super::view::fault;
use crate::codec::decode_content;
use crate::registry::{ContentId, UnusedContent};

/// Unit files by content ID.
#[derive(Debug, Default)]
pub(super) struct Contents {
    files: BTreeMap<ContentId, ContentEntry>,
    /// Units by the content that they use, whether it is stored or not.
    users: BTreeSet<(ContentId, Option<UnitName>)>,
    /// Stored contents that no unit uses.
    unused: BTreeSet<ContentId>,
}

/// A stored content, not yet parsed.
#[derive(Debug)]
pub(super) struct StoredContent {
    pub(super) value: Vec<u8>,
    pub(super) modified: Revision,
}

/// A parsed unit file, shared by all units that use it.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) file: UnitFile,
    /// Requirements of the file, if they do not depend on the unit's name.
    pub(super) requirements: Option<Arc<Requirements>>,
}

/// A content or its fault.
#[derive(Debug)]
struct ContentEntry {
    modified: Revision,
    content: Result<Content, Box<Fault>>,
}

impl Contents {
    /// Creates the contents of a whole cluster from its stored unit files. A file that `known` has
    /// already parsed is not parsed again. `users` has each unit with the content that it uses; the
    /// result is fastest if they are ordered by content and then by unit name.
    pub(super) fn of(
        stored: Vec<(ContentId, StoredContent)>,
        users: impl Iterator<Item = (ContentId, UnitName)>,
        known: &Self,
        requirements_cache: &mut RequirementsCache,
    ) -> Self {
        let read = |(id, StoredContent { value, modified }): (ContentId, StoredContent)| {
            let content = known.with_bytes(id, &value).cloned();
            let content = content.map_or_else(|| read(id, &value, requirements_cache), Ok);
            (id, ContentEntry { modified, content })
        };
        let files: BTreeMap<_, _> = stored.into_iter().map(read).collect();
        let users: BTreeSet<_> = users.map(|(id, unit)| (id, Some(unit))).collect();
        let mut used = users.iter().map(|(id, _)| *id).peekable();
        let unused = files.keys().copied().filter(|id| {
            while used.next_if(|user| user < id).is_some() {}
            used.peek() != Some(id)
        });
        let unused = unused.collect();
        Self { files, unused, users }
    }

    /// Returns the content with this ID, or its fault.
    pub(super) fn get(&self, id: ContentId) -> Result<Content, Fault> {
        content(id, self.files.get(&id))
    }

    /// Returns a lookup for queries in ID order.
    pub(super) fn ordered_lookup(&self) -> OrderedLookup<'_> {
        OrderedLookup { left: self.files.iter().peekable() }
    }

    /// Stores a content. Returns whether it differs from the previous one.
    pub(super) fn put(
        &mut self,
        id: ContentId,
        value: &[u8],
        modified: Revision,
        requirements_cache: &mut RequirementsCache,
    ) -> bool {
        let same = self.with_bytes(id, value).cloned();
        let is_other = same.is_none();
        let content = same.map_or_else(|| read(id, value, requirements_cache), Ok);
        self.files.insert(id, ContentEntry { modified, content });
        self.note_use(id);
        is_other
    }

    pub(super) fn remove(&mut self, id: ContentId) {
        self.files.remove(&id);
        self.note_use(id);
    }

    /// Updates the content that a unit uses.
    pub(super) fn set_content_of(
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

    /// Returns the units that use a content.
    pub(super) fn users(&self, id: ContentId) -> impl Iterator<Item = &UnitName> {
        let from = self.users.range((id, None)..);
        from.take_while(move |(of, _)| *of == id).filter_map(|(_, unit)| unit.as_ref())
    }

    pub(super) fn unused(&self) -> Vec<UnusedContent> {
        let of = |id: &ContentId| Some((*id, self.files.get(id)?.modified));
        let unused = self.unused.iter().filter_map(of);
        unused.map(|(id, modified)| UnusedContent { id, modified }).collect()
    }

    /// Updates the set of unused contents.
    fn note_use(&mut self, id: ContentId) {
        if self.files.contains_key(&id) && self.users(id).next().is_none() {
            self.unused.insert(id);
        } else {
            self.unused.remove(&id);
        }
    }

    /// Returns the content if it was parsed before from the same bytes.
    fn with_bytes(&self, id: ContentId, value: &[u8]) -> Option<&Content> {
        let content = self.files.get(&id)?.content.as_ref().ok()?;
        let is_same = |source| source == content.file.source();
        decode_content(id, value).is_ok_and(is_same).then_some(content)
    }
}

/// A lookup for queries in ID order.
pub(super) struct OrderedLookup<'a> {
    left: Peekable<btree_map::Iter<'a, ContentId, ContentEntry>>,
}

impl OrderedLookup<'_> {
    /// Returns the content with this ID, or its fault. The IDs of successive queries must not
    /// decrease.
    pub(super) fn get(&mut self, id: ContentId) -> Result<Content, Fault> {
        while self.left.next_if(|(other, _)| **other < id).is_some() {}
        content(id, self.left.peek().filter(|(other, _)| **other == id).map(|(_, entry)| *entry))
    }
}

fn content(id: ContentId, entry: Option<&ContentEntry>) -> Result<Content, Fault> {
    match entry.map(|entry| &entry.content) {
        Some(Ok(content)) => Ok(content.clone()),
        Some(Err(fault)) => Err(Fault::clone(fault)),
        None => Err(Fault { message: format!("the unit's file, with hash {id}, is missing") }),
    }
}

/// Parses a stored unit file after checking its bytes against its ID.
fn read(
    id: ContentId,
    value: &[u8],
    requirements_cache: &mut RequirementsCache,
) -> Result<Content, Box<Fault>> {
    let what = "the unit's file";
    let source = decode_content(id, value).map_err(|error| fault(what, &error))?;
    let file = UnitFile::parse(source).map_err(|error| fault(what, &error))?;
    let requirements = requirements_cache.read_shared(&file);
    Ok(Content { file, requirements })
}
