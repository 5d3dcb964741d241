//! Patterns over unit names. A pattern and a name are compared when one of them is added. The rules
//! then compare only numbers.
//!
//! A new name is compared only with the patterns that have a [key](super::pattern_index) contained
//! in the name. A new pattern is compared only with the names that start with its literal prefix.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::Pattern;
use fleet_unitfile::UnitName;

use super::pattern_index::{LiteralKey, PatternIndex};
use super::slots::Lookup;
use super::slots::{OrderNo, PatternNo, Slots, UnitNo, index_slots};
use super::units::PeerRef;

/// A pattern in use.
#[derive(Debug, Default)]
pub(crate) struct PatternSlot {
    pattern: Option<Pattern>,
    key: LiteralKey,
    /// Length of the text up to the first wildcard.
    literal: usize,
    /// Length of the text after the last wildcard.
    tail: usize,
    shape: Shape,
    /// Number of users: options of classes, peers of units, and template counters.
    users: u32,
    /// Number of classes with units that it matches.
    classes: u32,
    /// Number of matching units that are on a machine. A global unit is counted once for each
    /// machine that it is on.
    pub(crate) assigned: u32,
    /// The units that have it in `MachineOf=`.
    pub(crate) followers: Vec<UnitNo>,
    /// Those of the followers that are on no machine.
    pub(crate) unplaced_followers: BTreeSet<UnitNo>,
    /// The round of the retry queue in which all waiting followers were queued.
    pub(crate) requeued_in: u64,
    /// The matching units that have a class. The map exists only once some `MachineOf=` has the
    /// pattern.
    pub(crate) members: Option<BTreeMap<UnitName, UnitNo>>,
    /// The machine orders that count the matching units per machine.
    pub(crate) orders: Vec<OrderNo>,
}

/// The part after the literal prefix of a pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Shape {
    /// Empty.
    #[default]
    Exact,
    /// A single `*`.
    Beginning,
    /// Anything else.
    Glob,
}

/// All patterns in use.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    slots: Slots<PatternNo, PatternSlot>,
    by_text: Lookup<Box<str>, PatternNo>,
    index: PatternIndex,
}

impl PatternSlot {
    fn new(pattern: Pattern) -> Self {
        let text = pattern.as_str();
        let literal = text.find(['*', '?', '[']).unwrap_or(text.len());
        let shape = match &text[literal..] {
            "" => Shape::Exact,
            "*" => Shape::Beginning,
            _ => Shape::Glob,
        };
        let tail = text.rfind(['*', '?', ']']).map_or(text.len(), |at| text.len() - at - 1);
        Self { pattern: Some(pattern), literal, tail, shape, ..Self::default() }
    }

    pub(crate) fn pattern(&self) -> &Pattern {
        self.pattern.as_ref().expect("a slot in use has a pattern")
    }

    /// Returns the text up to the first wildcard.
    pub(crate) fn literal(&self) -> &str {
        &self.pattern().as_str()[..self.literal]
    }

    /// Returns whether the pattern matches a name.
    pub(crate) fn matches(&self, name: &UnitName) -> bool {
        let (text, name_text) = (self.pattern().as_str(), name.as_str());
        match self.shape {
            Shape::Exact => name_text == text,
            Shape::Beginning => name_text.starts_with(self.literal()),
            // The tail is cheap to compare, and many patterns differ only in their tails.
            Shape::Glob => {
                name_text.ends_with(&text[text.len() - self.tail..]) && self.pattern().matches(name)
            }
        }
    }
}

index_slots!(Patterns, PatternNo, PatternSlot);

impl Patterns {
    /// Increments the user count of a pattern, adding the pattern if it is unknown. Returns the
    /// number of the pattern, and whether the pattern is new.
    pub(crate) fn acquire(&mut self, pattern: &Pattern) -> (PatternNo, bool) {
        if let Some(number) = self.acquire_known(pattern.as_str()) {
            return (number, false);
        }
        let mut slot = PatternSlot::new(pattern.clone());
        slot.users = 1;
        let number = self.slots.insert(slot);
        self.slots[number].key = self.index.insert(pattern.as_str(), number);
        self.by_text.insert(pattern.as_str().into(), number);
        (number, true)
    }

    /// Returns the number of a known pattern after adding a user.
    pub(crate) fn acquire_known(&mut self, text: &str) -> Option<PatternNo> {
        let number = self.find(text)?;
        self.slots[number].users += 1;
        Some(number)
    }

    /// Removes a user.
    pub(crate) fn release(&mut self, pattern: PatternNo) {
        self.slots[pattern].users -= 1;
        self.forget_if_idle(pattern);
    }

    /// Records a class with units that these patterns match.
    pub(crate) fn add_class(&mut self, matched: &[PatternNo]) {
        matched.iter().for_each(|pattern| self.slots[*pattern].classes += 1);
    }

    /// Removes a class with units that these patterns matched.
    pub(crate) fn remove_class(&mut self, matched: &[PatternNo]) {
        for pattern in matched {
            self.slots[*pattern].classes -= 1;
            self.forget_if_idle(*pattern);
        }
    }

    fn forget_if_idle(&mut self, number: PatternNo) {
        let slot = &self.slots[number];
        if slot.users > 0 || slot.classes > 0 {
            return;
        }
        let slot = self.slots.remove(number);
        self.by_text.remove(slot.pattern().as_str());
        self.index.remove(slot.pattern().as_str(), slot.key, number);
    }

    /// Records that a unit with these peers has come to a machine or left it.
    pub(crate) fn set_follower_placed(&mut self, unit: UnitNo, peers: &[PeerRef], placed: bool) {
        for peer in peers {
            let PeerRef::Matching(pattern) = peer else { continue };
            let unplaced = &mut self.slots[*pattern].unplaced_followers;
            if placed {
                unplaced.remove(&unit)
            } else {
                unplaced.insert(unit)
            };
        }
    }

    /// Returns all patterns that match a name, in the order of their numbers.
    pub(crate) fn covering(&self, name: &UnitName) -> Vec<PatternNo> {
        let mut found = self.index.candidates(name.as_str());
        found.retain(|number| self.slots[*number].matches(name));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns whether there are no patterns.
    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the number of a known pattern.
    pub(crate) fn find(&self, text: &str) -> Option<PatternNo> {
        self.by_text.get(text).copied()
    }
}
