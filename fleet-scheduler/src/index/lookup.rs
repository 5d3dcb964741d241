//! A hash map without iteration, so that the hash order cannot affect any output.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// Values by their keys, without iteration.
#[derive(Debug)]
pub(crate) struct Lookup<K, V>(HashTable<(K, V)>);

impl<K, V> Default for Lookup<K, V> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<K: Hash + Eq, V> Lookup<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let found = self.0.find(hash(key), |(other, _)| other.borrow() == key);
        found.map(|(_, value)| value)
    }

    pub(crate) fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let found = self.0.find_mut(hash(key), |(other, _)| other.borrow() == key);
        found.map(|(_, value)| value)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Returns the value of a key. If the key has no value, inserts the given value first.
    pub(crate) fn get_or_insert(&mut self, key: K, value: V) -> &mut V {
        let same = |(other, _): &(K, V)| *other == key;
        let entry = self.0.entry(hash(&key), same, |(key, _)| hash(key));
        &mut entry.or_insert_with(|| (key, value)).into_mut().1
    }

    /// Sets the value of a key. Returns whether it had none.
    pub(crate) fn insert(&mut self, key: K, value: V) -> bool {
        if let Some(old) = self.get_mut(&key) {
            *old = value;
            return false;
        }
        self.0.insert_unique(hash(&key), (key, value), |(key, _)| hash(key));
        true
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Ok(entry) = self.0.find_entry(hash(key), |(other, _)| other.borrow() == key) {
            entry.remove();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<K: Hash + Eq, V> FromIterator<(K, V)> for Lookup<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(all: I) -> Self {
        let mut lookup = Self::default();
        for (key, value) in all {
            lookup.insert(key, value);
        }
        lookup
    }
}

fn hash<Q: Hash + ?Sized>(key: &Q) -> u64 {
    FxBuildHasher.hash_one(key)
}
