//! Pure: how a cluster begins again from a backup.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Epoch, Revision};

use super::Lineage;
use crate::codec::{
    decode_lineage, decode_placement, encode_lineage, encode_placement, encode_term,
};
use crate::{CodecError, Entry, Key, Layout};

/// The entries of a backup as the beginning of a new life at `revision`, which is higher than any
/// that the lost life can have come to.
///
/// Whatever is compared with what agents and engines remember of the lost life is made to come
/// after it: every placement gets an epoch as if it were made at `revision`, so that no agent takes
/// it for overtaken, and the last term becomes `revision`, which is at least as high as any term.
/// No generation is higher than the revision that it was made at, so restarts to come are higher by
/// themselves. The new lineage begins no earlier than the one before it. Since all epochs become
/// the same, what was a stray among the placements does not come along.
pub(crate) fn restored_entries(
    entries: Vec<Entry>,
    layout: &Layout,
    revision: Revision,
    lineage: &Lineage,
) -> Result<Vec<Entry>, CodecError> {
    let lineage_key = layout.key(&Key::Lineage);
    let before = entries.iter().find(|entry| entry.key == lineage_key);
    let before = before.map(|entry| decode_lineage(&entry.value)).transpose()?;
    let epoch_base = before.map_or(0, |before| before.epoch_base()).max(lineage.epoch_base());
    let lineage = lineage.clone().with_epoch_base(epoch_base);
    let epoch = Epoch(epoch_base + revision.0);
    let superseded = superseded(&entries, layout);
    let mut entries: Vec<Entry> = entries
        .into_iter()
        .filter(|entry| entry.key != lineage_key && !superseded.contains(&entry.key))
        .map(|entry| match restored_value(layout, &entry, revision, epoch) {
            Some(value) => Entry { value, modified: revision, ..entry },
            None => entry,
        })
        .collect();
    let at = entries.partition_point(|entry| entry.key < lineage_key);
    let value = encode_lineage(&lineage);
    entries.insert(at, Entry { key: lineage_key, value, modified: revision, lease: None });
    Ok(entries)
}

/// The value that an entry gets in its new life, if it gets another.
fn restored_value(
    layout: &Layout,
    entry: &Entry,
    revision: Revision,
    epoch: Epoch,
) -> Option<Vec<u8>> {
    match layout.parse(&entry.key)? {
        Key::Placement(..) => {
            // One that cannot be understood stays what it is: a fault of its unit.
            decode_placement(&entry.value).ok()?;
            Some(encode_placement(epoch))
        }
        Key::Term => Some(encode_term(revision.0)),
        _ => None,
    }
}

/// The keys of the placements beside those that count, by the rule by which a mirror shows one.
fn superseded(entries: &[Entry], layout: &Layout) -> BTreeSet<String> {
    let mut counting = BTreeMap::new();
    let mut superseded = BTreeSet::new();
    for entry in entries {
        let Some(Key::Placement(machine, unit)) = layout.parse(&entry.key) else { continue };
        let Ok(epoch) = decode_placement(&entry.value) else { continue };
        let rank = ((epoch, Reverse(machine)), &entry.key);
        match counting.get(&unit) {
            Some(best) if *best > rank => superseded.insert(entry.key.clone()),
            _ => counting.insert(unit, rank).is_none_or(|(_, key)| superseded.insert(key.clone())),
        };
    }
    superseded
}
