//! Pure: how a cluster begins again from a backup.

use fleet_core::{Epoch, Placement, Revision};

use super::Lineage;
use crate::codec::{
    decode_epochs, decode_placement, encode_lineage, encode_placement, encode_term,
};
use crate::{Entry, Key, Layout};

/// The entries of a backup as the beginning of a new life at `revision`, which is higher than any
/// that the lost life can have come to.
///
/// Whatever is compared with what agents and engines remember of the lost life is made to come
/// after it: every placement gets the epoch of `revision`, so that no agent takes it for overtaken,
/// and the last term becomes `revision`, which is at least as high as any term. No generation is
/// higher than the epoch of the revision that it was made at, so restarts to come are higher by
/// themselves.
pub(crate) fn new_life(
    entries: Vec<Entry>,
    layout: &Layout,
    revision: Revision,
    lineage: &Lineage,
) -> Vec<Entry> {
    let lineage_key = layout.key(&Key::Lineage);
    let epochs = layout.key(&Key::Epochs);
    let ahead = entries.iter().find(|entry| entry.key == epochs);
    // If it cannot be read, nobody can lead before a person has mended it.
    let ahead = ahead.and_then(|entry| decode_epochs(&entry.value).ok()).unwrap_or(0);
    let mut entries: Vec<Entry> = entries
        .into_iter()
        .filter(|entry| entry.key != lineage_key)
        .map(|entry| match reborn(layout, &entry, revision, ahead) {
            Some(value) => Entry { value, modified: revision, ..entry },
            None => entry,
        })
        .collect();
    let at = entries.partition_point(|entry| entry.key < lineage_key);
    let value = encode_lineage(lineage);
    entries.insert(at, Entry { key: lineage_key, value, modified: revision, lease: None });
    entries
}

/// The value that an entry gets in its new life, if it gets another.
fn reborn(layout: &Layout, entry: &Entry, revision: Revision, ahead: u64) -> Option<Vec<u8>> {
    match layout.parse(&entry.key)? {
        Key::Placement(_) => {
            // One that cannot be understood stays what it is: a fault of its unit.
            let Placement { machine, .. } = decode_placement(&entry.value).ok()?;
            Some(encode_placement(&Placement { machine, epoch: Epoch(revision.0 + ahead) }))
        }
        Key::Term => Some(encode_term(revision.0)),
        _ => None,
    }
}
