//! Pure: the conversion of a backup's entries for a restored store.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Epoch, Revision};

use super::Lineage;
use crate::codec::{
    decode_lineage, decode_placement, encode_lineage, encode_placement, encode_term,
};
use crate::registry::{CodecError, Key};
use crate::{Entry, Layout};

/// Converts the entries of a backup for a restored store at `revision`. This revision must exceed
/// all revisions that the lost store can have reached.
///
/// Agents and engines compare some values with those that they remember. So these values must not
/// be lower than in the lost store:
///
/// - Every placement gets the epoch of `revision`, so no agent rejects it as stale.
/// - The last term becomes `revision`, which is at least as high as any earlier term.
/// - The epoch base of the new lineage is at least that of the old lineage.
///
/// Generations need no change: each is at most the revision that created it plus the epoch base, so
/// later restarts get higher generations.
///
/// Superseded placements are dropped, because they cannot be recognized once all placements have
/// the same epoch.
pub(crate) fn restored_entries(
    entries: Vec<Entry>,
    layout: &Layout,
    revision: Revision,
    lineage: &Lineage,
) -> Result<Vec<Entry>, CodecError> {
    let lineage_key = layout.key(&Key::Lineage);
    let before = entries.iter().find(|entry| entry.key == lineage_key);
    let before = before.map(|entry| decode_lineage(&entry.value)).transpose()?;
    let lineage = match before {
        Some(before) => {
            let epoch_base = before.epoch_base().max(lineage.epoch_base());
            lineage.clone().with_epoch_base(epoch_base).with_predecessor(&before)
        }
        None => lineage.clone(),
    };
    let epoch = Epoch(lineage.epoch_base() + revision.0);
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

/// Returns the new value of an entry; `None` if it is unchanged.
fn restored_value(
    layout: &Layout,
    entry: &Entry,
    revision: Revision,
    epoch: Epoch,
) -> Option<Vec<u8>> {
    match layout.parse(&entry.key)? {
        Key::Placement(..) => {
            // An unreadable placement stays unchanged; it is a fault of its unit.
            decode_placement(&entry.value).ok()?;
            Some(encode_placement(epoch))
        }
        Key::Term => Some(encode_term(revision.0)),
        _ => None,
    }
}

/// Returns the keys of superseded placements, by the same rule as the mirror.
fn superseded(entries: &[Entry], layout: &Layout) -> BTreeSet<String> {
    let mut preferred = BTreeMap::new();
    let mut superseded = BTreeSet::new();
    for entry in entries {
        let Some(Key::Placement(machine, unit)) = layout.parse(&entry.key) else { continue };
        let Ok(epoch) = decode_placement(&entry.value) else { continue };
        let rank = ((epoch, Reverse(machine)), &entry.key);
        match preferred.get(&unit) {
            Some(best) if *best > rank => superseded.insert(entry.key.clone()),
            _ => preferred.insert(unit, rank).is_none_or(|(_, key)| superseded.insert(key.clone())),
        };
    }
    superseded
}
