//! Reading what is readable of a damaged file.
//!
//! Each row of the table of keys has a checksum of its own, so rows can be used without a correct
//! file around them. Rows come from two sources:
//!
//! 1. The pages that belong to the table. Their rows are certain.
//! 2. All other pages of the file. redb never changes a page in place, so they have earlier
//!    versions of rows, and also rows that were deleted since. Where the table has an unreadable
//!    page, the page itself may be intact and only its parent damaged. So these rows are used only
//!    where the table has gaps, or if they are newer, and they are reported as uncertain.

mod pages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::Read as _;
use std::path::Path;

use fleet_core::{Epoch, Revision};
use fleet_unitfile::UnitName;
use redb::TableHandle as _;

use super::disk::{FileError, KEYS, checksum};
use crate::codec::decode_lineage;
use crate::mirror::export_of;
use crate::registry::Key;
use crate::transfer::Export;
use crate::{EmbeddedStore, Entry, Layout, Listing, StoreError};
use pages::{Pages, Part, RawRow, Root, number};

/// The readable part of a damaged store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Salvage {
    /// The cluster. It has no lineage if anything is lost or uncertain, so that no daemon takes an
    /// import of it for the whole cluster.
    pub export: Export,
    /// Descriptions of the unreadable parts of the file.
    pub unreadable: Vec<String>,
    /// Units with an unreadable record that other readable rows name. There can be more.
    pub lost_units: Vec<UnitName>,
    /// Objects from pages outside of the tables. They may be out of date or deleted.
    pub uncertain: Vec<String>,
}

impl EmbeddedStore {
    /// Reads what is readable of a damaged store or backup, and never writes to its file. `layout`
    /// must be the key layout of the cluster.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] when the file cannot be read; [`StoreError::InUse`] when a
    /// process has the file open; [`StoreError::Format`] when it contains no readable row.
    pub async fn salvage(path: impl AsRef<Path>, layout: &Layout) -> Result<Salvage, StoreError> {
        let (path, layout) = (path.as_ref().to_owned(), layout.clone());
        let read = tokio::task::spawn_blocking(move || {
            let bytes = read_locked(&path).map_err(|error| error.at(&path))?;
            salvage(&bytes, &layout).ok_or_else(|| {
                StoreError::Format(format!(
                    "{} has no readable row of a store: import a backup",
                    path.display()
                ))
            })
        });
        read.await.map_err(|error| StoreError::Unavailable(Box::new(error)))?
    }
}

/// Reads a file that no other process has open.
fn read_locked(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut file = File::open(path)?;
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(FileError::InUse),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the cluster in the bytes of a file, or `None` if no row is readable.
fn salvage(bytes: &[u8], layout: &Layout) -> Option<Salvage> {
    let mut rows = Rows::read(Pages(bytes));
    if rows.latest.is_empty() {
        return None;
    }
    let lost_units = rows.lost_units(layout);
    let lineage = layout.key(&Key::Lineage);
    if rows.latest.get(&lineage).is_none_or(|row| decode_lineage(&row.value).is_err()) {
        rows.latest.remove(&lineage);
        rows.unreadable.push("the identity (lineage) of the store".to_owned());
    }
    let uncertain: BTreeSet<String> = rows
        .latest
        .iter()
        .filter(|(_, row)| !row.is_certain && row.is_lasting)
        .filter_map(|(key, _)| describe(&layout.parse(key)?))
        .collect();
    let revision = rows.latest.values().map(|row| row.revision).max().unwrap_or(Revision::ZERO);
    let entries = rows.latest.into_iter().filter(|(_, row)| row.is_lasting);
    let entries = entries.map(|(key, row)| {
        let (value, modified) = (row.value, row.revision);
        Entry { key, value, modified, lease: None }
    });
    let listing = Listing { revision, entries: entries.collect() };
    let mut export = export_of(layout.clone(), listing).ok()?;
    let unreadable = rows.unreadable;
    if !unreadable.is_empty() || !uncertain.is_empty() {
        export.lineage = None;
    }
    let placements = export.snapshot.placements().map(|(_, placement)| placement.epoch);
    export.max_epoch = placements.max().unwrap_or(Epoch::ZERO).max(export.max_epoch);
    let uncertain = uncertain.into_iter().collect();
    Some(Salvage { export, unreadable, lost_units, uncertain })
}

/// Returns the name of an exported object; `None` for other keys.
fn describe(key: &Key) -> Option<String> {
    match key {
        Key::Unit(unit) => Some(format!("unit {unit}")),
        Key::Placement(machine, unit) => Some(format!("placement of {unit} on {machine}")),
        Key::Metadata(machine, name) => Some(format!("metadata {name} of machine {machine}")),
        Key::Intent(machine) => Some(format!("cordon or drain of machine {machine}")),
        _ => None,
    }
}

/// A version of a key.
#[derive(Debug)]
struct Row {
    revision: Revision,
    value: Vec<u8>,
    /// Whether the key does not depend on a lease.
    is_lasting: bool,
    is_certain: bool,
}

/// The readable rows of a file.
#[derive(Debug, Default)]
struct Rows {
    /// Latest version of each key.
    latest: BTreeMap<String, Row>,
    unreadable: Vec<String>,
    /// Keys of rows with a readable key and another error.
    damaged_keys: BTreeSet<String>,
}

impl Rows {
    fn read(pages: Pages<'_>) -> Self {
        let mut rows = Self::default();
        let gaps = rows.read_keys(pages);
        rows.scan(pages, &gaps);
        rows
    }

    fn add(&mut self, key: &str, row: Row) {
        match self.latest.get_mut(key) {
            Some(known) if known.revision >= row.revision => {}
            Some(known) => *known = row,
            None => drop(self.latest.insert(key.to_owned(), row)),
        }
    }

    /// Reads the table of keys, and returns its gaps.
    fn read_keys(&mut self, pages: Pages<'_>) -> Gaps {
        let mut gaps = Gaps::default();
        let mut readable = 0;
        let (root, is_certain) = root_of_keys(pages);
        if let Some(Some(Root { page, .. })) = root {
            pages.walk(page, &mut |part| {
                let Part::Row(raw) = part else { return gaps.unreadable() };
                let Some((key, row)) = decode_row(raw, true) else {
                    self.damaged_keys.extend(std::str::from_utf8(raw.key).map(str::to_owned));
                    return gaps.unreadable();
                };
                gaps.readable(key);
                readable += 1;
                self.add(key, row);
            });
        }
        gaps.finish();
        if self.note_unreadable(root, readable) || !is_certain {
            gaps.extend_if_empty();
        }
        gaps
    }

    /// Notes the unreadable rows of the table of keys. Returns whether there are any.
    fn note_unreadable(&mut self, root: Option<Option<Root>>, readable: u64) -> bool {
        let Some(root) = root else {
            self.unreadable.push("the index of the table of keys".to_owned());
            return true;
        };
        let rows = root.map_or(0, |root| root.rows);
        if rows != readable {
            self.unreadable.push(match rows.checked_sub(readable) {
                Some(lost) => format!("{lost} of {rows} rows of the table of keys"),
                None => "the number of rows of the table of keys".to_owned(),
            });
        }
        rows != readable
    }

    /// Adds rows from all pages of the file: keys in gaps, and newer versions.
    fn scan(&mut self, pages: Pages<'_>, gaps: &Gaps) {
        for raw in pages.scan() {
            if let Some((key, row)) = decode_row(raw, false)
                && (self.latest.contains_key(key) || gaps.contains(key))
            {
                self.add(key, row);
            }
        }
    }

    /// Returns the units that rows name, but that have no record.
    fn lost_units(&self, layout: &Layout) -> Vec<UnitName> {
        let live = self.latest.iter().filter(|(_, row)| row.is_lasting && row.is_certain);
        let named = live.map(|(key, _)| key).chain(&self.damaged_keys);
        let units: BTreeSet<UnitName> = named
            .filter_map(|key| match layout.parse(key)? {
                Key::Unit(unit) | Key::Placement(_, unit) | Key::Reason(unit) => Some(unit),
                _ => None,
            })
            .filter(|unit| !self.latest.contains_key(&layout.key(&Key::Unit(unit.clone()))))
            .collect();
        units.into_iter().collect()
    }
}

/// Decodes a row of the table of keys; `None` if its checksum is wrong.
fn decode_row(raw: RawRow<'_>, is_certain: bool) -> Option<(&str, Row)> {
    // An early check, because a scan meets many bytes that are no rows.
    let key = std::str::from_utf8(raw.key).ok().filter(|key| !key.is_empty())?;
    let (modified, lease) = (number(raw.value, 0)?, number(raw.value, 8)?);
    let (sum, value) = (number(raw.value, 16)?, raw.value.get(24..)?);
    if sum != checksum(key, modified, lease, value) {
        return None;
    }
    let (value, is_lasting) = (value.to_vec(), lease == 0);
    Some((key, Row { revision: Revision(modified), value, is_lasting, is_certain }))
}

/// Returns the root of the table of keys, and whether it is certainly the current one. An unknown
/// root is `None`, that of an empty table `Some(None)`.
fn root_of_keys(pages: Pages<'_>) -> (Option<Option<Root>>, bool) {
    let mut root = None;
    let Some((tables, is_certain)) = pages.root() else { return (root, true) };
    pages.walk(tables, &mut |part| {
        if let Part::Row(RawRow { key, value }) = part
            && key == KEYS.name().as_bytes()
        {
            root = Pages::table_root(value);
        }
    });
    (root, is_certain)
}

/// The ranges of keys that unreadable parts of a table can have had. The ends are exclusive.
#[derive(Debug, Default)]
struct Gaps {
    ranges: Vec<(Option<String>, Option<String>)>,
    last: Option<String>,
    is_open: bool,
}

impl Gaps {
    fn unreadable(&mut self) {
        self.is_open = true;
    }

    fn readable(&mut self, key: &str) {
        let last = self.last.replace(key.to_owned());
        if std::mem::take(&mut self.is_open) {
            // A wrong index can give wrong neighbours.
            let is_ordered = last.as_deref().is_none_or(|last| last < key);
            let range = if is_ordered { (last, self.last.clone()) } else { (None, None) };
            self.ranges.push(range);
        }
    }

    fn finish(&mut self) {
        if self.is_open {
            self.ranges.push((self.last.take(), None));
        }
    }

    /// Makes all keys one gap, unless some other gap is known.
    fn extend_if_empty(&mut self) {
        if self.ranges.is_empty() {
            self.ranges.push((None, None));
        }
    }

    fn contains(&self, key: &str) -> bool {
        self.ranges.iter().any(|(begin, end)| {
            begin.as_deref().is_none_or(|begin| begin < key)
                && end.as_deref().is_none_or(|end| key < end)
        })
    }
}
