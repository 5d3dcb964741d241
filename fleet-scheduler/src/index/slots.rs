//! Numbered slots: items are found by small numbers, and a free number is reused.
//!
//! The number of an item depends on the history of an index, so numbers must not influence any
//! visible result.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

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
