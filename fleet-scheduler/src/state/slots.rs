//! Numbered slots and hash maps.
//!
//! Items are found by small numbers, and a free number is reused. The number of an item depends on
//! the history of a cluster, and so does the order of a hash map. Numbers must therefore not
//! influence any visible result, and the hash map here has no iteration.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// Defines a number type for one kind of item.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub(crate) u32);

        impl $name {
            /// Returns the index into a vector with one element per number.
            pub(crate) fn at(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(at: usize) -> Self {
                Self(u32::try_from(at).expect("there are fewer than four billion of anything"))
            }
        }

        impl From<$name> for usize {
            fn from(number: $name) -> Self {
                number.at()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self(u32::MAX)
            }
        }
    };
}

/// Adds a number that stands for none.
macro_rules! optional {
    ($($name:ident)*) => {
        $(
            impl $name {
                /// The number that stands for none.
                pub(crate) const NONE: Self = Self(u32::MAX);

                /// Returns the number, unless it stands for none.
                pub(crate) fn some(self) -> Option<Self> {
                    (self != Self::NONE).then_some(self)
                }
            }
        )*
    };
}

number! {
    /// A unit, known or only named by another.
    UnitNo
}
number! {
    /// A machine, present or only named by a unit or a placement.
    MachineNo
}
number! {
    /// A pattern over unit names.
    PatternNo
}
number! {
    /// An equivalence class of units.
    ClassNo
}
number! {
    /// A filter on machines.
    FilterNo
}
number! {
    /// A machine order.
    OrderNo
}

optional! { MachineNo PatternNo ClassNo OrderNo }

/// Items of one kind, stored by their numbers. A free number has the default value.
#[derive(Debug, Default)]
pub(crate) struct Slots<N, T> {
    slots: Vec<T>,
    free: Vec<u32>,
    numbers: PhantomData<N>,
}

impl<N: From<usize> + Into<usize> + Copy, T: Default> Slots<N, T> {
    /// Adds an item and returns its number.
    pub(crate) fn insert(&mut self, thing: T) -> N {
        if let Some(free) = self.free.pop() {
            self.slots[free as usize] = thing;
            return N::from(free as usize);
        }
        self.slots.push(thing);
        N::from(self.slots.len() - 1)
    }

    /// Removes an item; its number is reused.
    pub(crate) fn remove(&mut self, number: N) -> T {
        let at: usize = number.into();
        self.free.extend(u32::try_from(at).ok());
        std::mem::take(&mut self.slots[at])
    }

    /// Returns the number of slots, including free ones.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns all numbers, including free ones.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = N> + use<N, T> {
        (0..self.slots.len()).map(N::from)
    }

    /// Reserves capacity.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.slots.reserve(more);
    }
}

impl<N: Into<usize>, T> Index<N> for Slots<N, T> {
    type Output = T;

    fn index(&self, number: N) -> &T {
        &self.slots[number.into()]
    }
}

impl<N: Into<usize>, T> IndexMut<N> for Slots<N, T> {
    fn index_mut(&mut self, number: N) -> &mut T {
        &mut self.slots[number.into()]
    }
}

/// Lets a table be indexed by the numbers of its `slots`.
macro_rules! index_slots {
    ($table:ident, $number:ident, $item:ident) => {
        impl std::ops::Index<$number> for $table {
            type Output = $item;

            fn index(&self, number: $number) -> &$item {
                &self.slots[number]
            }
        }

        impl std::ops::IndexMut<$number> for $table {
            fn index_mut(&mut self, number: $number) -> &mut $item {
                &mut self.slots[number]
            }
        }
    };
}
pub(crate) use index_slots;

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
