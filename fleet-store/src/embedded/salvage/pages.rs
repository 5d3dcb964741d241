//! Pure: a reader of redb's file format for files with errors anywhere.
//!
//! redb itself refuses a file with an error, or panics. This reader needs neither correct checksums
//! nor a correct index, and returns what it can read. It knows format 3 of the file: a header, and
//! pages of 4 KiB or a power of two times as much. A branch page has the numbers of its children. A
//! leaf page has rows. In all tables that are read, keys and values have no fixed width.

use std::collections::BTreeSet;

/// Size of the header, and of the smallest page.
const PAGE_BYTES: usize = 4096;

const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
/// Place of the byte that names the current commit slot.
const GOD_BYTE: usize = 9;
/// Places of the two commit slots, and of fields in a slot.
const SLOTS: [usize; 2] = [64, 192];
const SLOT_ROOT: usize = 8;
const SLOT_TRANSACTION: usize = 104;
/// Places of the numbers of pages that a region has for its header and for data.
const REGION_HEADER: usize = 16;
const REGION_DATA: usize = 20;
/// Highest order of a page. A page of order n has as many bytes as 2^n of the smallest.
const MAX_ORDER: u32 = 20;

const LEAF: u8 = 1;
const BRANCH: u8 = 2;
const CHECKSUM_BYTES: usize = 16;

/// Deepest tree that is followed. A correct tree of this depth does not fit on any disk.
const MAX_DEPTH: usize = 32;

/// A row, as it is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawRow<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// A part of a table.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part<'a> {
    Row(RawRow<'a>),
    /// A row or page that cannot be read.
    Unreadable,
}

/// The content of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages<'a>(pub(super) &'a [u8]);

/// The root of a table, and its number of rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root {
    pub(super) page: u64,
    pub(super) rows: u64,
}

impl<'a> Pages<'a> {
    /// Returns the root of the table of tables, and whether it is certain. It is uncertain if the
    /// header is damaged or a commit was interrupted.
    pub(super) fn root(&self) -> Option<(u64, bool)> {
        let by_god_byte = usize::from(self.0.get(GOD_BYTE)? & 1 != 0);
        let transaction = |slot: usize| number(self.0, SLOTS[slot] + SLOT_TRANSACTION);
        let by_transaction = usize::from(transaction(1)? > transaction(0)?);
        let root = number(self.0, SLOTS[by_god_byte] + SLOT_ROOT)?;
        Some((root, by_god_byte == by_transaction && self.0.starts_with(MAGIC)))
    }

    /// Returns the root of a table from its row in the table of tables. A table without rows has no
    /// root. An unreadable definition is an error.
    pub(super) fn table_root(definition: &[u8]) -> Option<Option<Root>> {
        let (rows, has_root) = (number(definition, 1)?, definition.get(9)?);
        let page = number(definition, 10)?;
        match (has_root, rows) {
            (0, 0) => Some(None),
            (1, _) => Some(Some(Root { page, rows })),
            _ => None,
        }
    }

    /// Visits the parts of the table with this root page, in the order of its keys.
    pub(super) fn walk(&self, root: u64, visit: &mut impl FnMut(Part<'a>)) {
        self.descend(root, 0, &mut BTreeSet::new(), visit);
    }

    fn descend(
        &self,
        page: u64,
        depth: usize,
        seen: &mut BTreeSet<usize>,
        visit: &mut impl FnMut(Part<'a>),
    ) {
        let found = self.page(page).filter(|(at, _)| depth < MAX_DEPTH && seen.insert(*at));
        let Some((_, bytes)) = found else { return visit(Part::Unreadable) };
        match bytes.first() {
            Some(&LEAF) => rows(bytes).for_each(|row| match row {
                Some(row) => visit(Part::Row(row)),
                None => visit(Part::Unreadable),
            }),
            Some(&BRANCH) => children(bytes).for_each(|child| match child {
                Some(child) => self.descend(child, depth + 1, seen, visit),
                None => visit(Part::Unreadable),
            }),
            _ => visit(Part::Unreadable),
        }
    }

    /// Returns the place and the bytes of a page.
    fn page(&self, page: u64) -> Option<(usize, &'a [u8])> {
        let order = u32::try_from(page >> 59).ok().filter(|order| *order <= MAX_ORDER)?;
        let index = page & (0xf_ffff >> order);
        let region = page >> 20 & 0xf_ffff;
        let field = |at: usize| end(self.0, at).and_then(|number| u64::try_from(number).ok());
        let (header_pages, data_pages) = (field(REGION_HEADER)?, field(REGION_DATA)?);
        let before = region * (header_pages + data_pages) + 1 + header_pages + (index << order);
        let begin = usize::try_from(before.checked_mul(PAGE_BYTES as u64)?).ok()?;
        let end = begin.checked_add(PAGE_BYTES << order)?;
        Some((begin, self.0.get(begin..end)?))
    }

    /// Returns the rows of all places that look like leaf pages, including those that no table uses
    /// any longer. Ends at the first unreadable row of a place, so that the rows of a place that is
    /// no page do not overlap: their number has no other bound.
    pub(super) fn scan(&self) -> impl Iterator<Item = RawRow<'a>> {
        let file = self.0;
        let places = (PAGE_BYTES..file.len()).step_by(PAGE_BYTES);
        let leaves = places.filter(move |at| file[*at] == LEAF);
        leaves.flat_map(move |at| rows(&file[at..]).map_while(|row| row))
    }
}

/// Returns the children of a branch page. An unreadable child is `None`.
fn children(page: &[u8]) -> impl Iterator<Item = Option<u64>> {
    let count = count(page).unwrap_or(0) + 1;
    let numbers = 8 + count * CHECKSUM_BYTES;
    // A wrong count gives children that are no pages of the file. One of them is enough.
    let fit = page.len().saturating_sub(numbers) / 8;
    let beyond = (fit < count).then_some(None);
    (0..count.min(fit)).map(move |i| number(page, numbers + i * 8)).chain(beyond)
}

/// Returns the rows of a leaf page. An unreadable row is `None`.
///
/// A leaf has the ends of its keys, the ends of its values, the keys and the values.
fn rows(page: &[u8]) -> impl Iterator<Item = Option<RawRow<'_>>> {
    let count = count(page).unwrap_or(0);
    let key_end = move |i: usize| end(page, 4 + 4 * i);
    let value_end = move |i: usize| end(page, 4 + 4 * count + 4 * i);
    (0..count).map(move |i| {
        let key_begin = if i == 0 { Some(4 + 8 * count) } else { key_end(i - 1) };
        let value_begin = if i == 0 { key_end(count - 1) } else { value_end(i - 1) };
        let key = page.get(key_begin?..key_end(i)?)?;
        let value = page.get(value_begin?..value_end(i)?)?;
        Some(RawRow { key, value })
    })
}

fn count(page: &[u8]) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(*page.get(2..)?.first_chunk()?)))
}

fn end(page: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*page.get(at..)?.first_chunk()?)).ok()
}

/// Reads a number of eight bytes, little-endian.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
