//! A persistent ordered map: clones share all unchanged entries.

use std::borrow::Borrow;
use std::fmt;
use std::ops::RangeFrom;

use immutable_chunkmap::map::Map as Chunks;

/// Number of entries per chunk. While a clone is held, each change copies one chunk, so small
/// chunks make changes cheap. Large chunks make lookups and iteration cheap.
const CHUNK_SIZE: usize = 64;

/// Number of entries that [`Map::extend`] inserts at once. With larger batches `immutable_chunkmap`
/// would be slow, because it moves all remaining entries for each chunk.
const BATCH_SIZE: usize = 16 * CHUNK_SIZE;

/// An ordered map from `K` to `V`. Cloning costs almost nothing. While a clone is held, a change
/// takes logarithmic time.
pub(crate) struct Map<K: Ord + Clone, V: Clone>(Chunks<K, V, CHUNK_SIZE>);

impl<K: Ord + Clone, V: Clone> Map<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.get_mut_cow(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert_cow(key, value)
    }

    /// Inserts entries in the given order. A batch with ascending keys fills new chunks at once,
    /// which costs a fraction of inserting its entries one by one.
    pub(crate) fn extend(&mut self, entries: impl IntoIterator<Item = (K, V)>) {
        let mut entries = entries.into_iter();
        loop {
            let batch: Vec<_> = entries.by_ref().take(BATCH_SIZE).collect();
            match batch.is_empty() {
                true => return,
                false if batch.is_sorted_by(|one, other| one.0 < other.0) => {
                    self.0 = self.0.insert_many(batch);
                }
                false => batch.into_iter().for_each(|(key, value)| {
                    self.insert(key, value);
                }),
            }
        }
    }

    /// Removes an entry and returns its key and value.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let key = self.0.get_key(key)?.clone();
        let value = self.0.remove_cow::<K>(&key)?;
        Some((key, value))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        ExactIter { remaining: self.len(), entries: self.0.into_iter() }
    }

    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns the entries from `first` on.
    pub(crate) fn range(&self, first: RangeFrom<K>) -> impl Iterator<Item = (&K, &V)> {
        self.0.range(first)
    }
}

// A derive would add bounds on `K` and `V`.
impl<K: Ord + Clone, V: Clone> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Ord + Clone, V: Clone> Default for Map<K, V> {
    fn default() -> Self {
        Self(Chunks::new())
    }
}

impl<K: Ord + Clone + fmt::Debug, V: Clone + fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// An iterator with a known number of remaining entries.
struct ExactIter<I> {
    remaining: usize,
    entries: I,
}

impl<I: Iterator> Iterator for ExactIter<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let next = self.entries.next()?;
        self.remaining -= 1;
        Some(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<I: Iterator> ExactSizeIterator for ExactIter<I> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u16, u8),
        Remove(u16),
        Change(u16),
        /// Inserts a range of keys, given by its first key, its length, and whether the keys are in
        /// ascending order.
        Extend(u16, u16, bool),
        /// Keeps a clone that later steps must not change.
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..400u16, any::<u8>()).prop_map(|(key, value)| Step::Insert(key, value)),
            4 => (0..400u16).prop_map(Step::Remove),
            1 => (0..400u16).prop_map(Step::Change),
            1 => (0..400u16, 0..200u16, any::<bool>())
                .prop_map(|(first, count, ordered)| Step::Extend(first, count, ordered)),
            1 => Just(Step::Copy),
        ]
    }

    fn assert_same(map: &Map<u16, u8>, twin: &BTreeMap<u16, u8>) {
        assert_eq!(map.iter().len(), twin.len());
        assert!(map.iter().eq(twin.iter()));
        for key in [0, 1, 199, 200, 399, 400] {
            assert_eq!(map.get(&key), twin.get(&key));
            assert!(map.range(key..).eq(twin.range(key..)));
        }
    }

    proptest! {
        #[test]
        fn map_agrees_with_btree_map_and_clones_are_unchanged(steps in vec(step(), 0..600)) {
            let (mut map, mut twin) = (Map::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        assert_eq!(map.insert(key, value), twin.insert(key, value));
                    }
                    Step::Remove(key) => assert_eq!(map.remove(&key), twin.remove_entry(&key)),
                    Step::Change(key) => {
                        let (one, other) = (map.get_mut(&key), twin.get_mut(&key));
                        assert_eq!(one, other);
                        one.into_iter().chain(other).for_each(|value| *value ^= 1);
                    }
                    Step::Extend(first, count, ordered) => {
                        let mut entries: Vec<_> =
                            (first..first + count).map(|key| (key, key.to_le_bytes()[0])).collect();
                        if !ordered {
                            entries.reverse();
                        }
                        map.extend(entries.clone());
                        twin.extend(entries);
                    }
                    Step::Copy => copies.push((map.clone(), twin.clone())),
                }
            }
            copies.push((map, twin));
            copies.iter().for_each(|(map, twin)| assert_same(map, twin));
        }
    }
}
