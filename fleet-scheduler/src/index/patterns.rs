//! Patterns over unit names. Each is compared with a name once; after that, numbers are compared.
//!
//! A name is compared only with the patterns that are filed under a piece of it, their
//! [key](super::pattern_index), and a new pattern only with the names that begin as it does.

use std::collections::BTreeMap;

use fleet_core::Pattern;
use fleet_unitfile::UnitName;

use super::lookup::Lookup;
use super::pattern_index::{LiteralKey, PatternIndex};
use super::slots::{OrderNo, PatternNo, Slots, UnitNo};

/// One pattern that somebody refreshes.
#[derive(Debug, Default)]
pub(crate) struct PatternSlot {
    pattern: Option<Pattern>,
    key: LiteralKey,
    /// How long the text is up to the first wildcard.
    literal: usize,
    /// How long it is after the last one.
    tail: usize,
    shape: Shape,
    /// How many users it has: options of classes, peers of units, counters of templates.
    users: u32,
    /// How many classes have units that it matches.
    classes: u32,
    /// How many of the units that it matches are somewhere, global ones once for each machine.
    pub(crate) assigned: u32,
    /// The units whose `MachineOf=` has it.
    pub(crate) followers: Vec<UnitNo>,
    /// Who it matches of those that take part or could, once some `MachineOf=` has it.
    pub(crate) members: Option<BTreeMap<UnitName, UnitNo>>,
    /// The orders that count the units that it matches by their machines.
    pub(crate) orders: Vec<OrderNo>,
}

/// What follows the literal beginning of a pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Shape {
    /// Nothing.
    #[default]
    Exact,
    /// A `*` and nothing more.
    Beginning,
    /// Anything else.
    Glob,
}

/// All patterns in use.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    pub(crate) slots: Slots<PatternNo, PatternSlot>,
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

    /// The text up to the first wildcard.
    pub(crate) fn literal(&self) -> &str {
        &self.pattern().as_str()[..self.literal]
    }

    /// Whether it covers a name.
    pub(crate) fn covers(&self, name: &UnitName) -> bool {
        let (text, name_text) = (self.pattern().as_str(), name.as_str());
        match self.shape {
            Shape::Exact => name_text == text,
            Shape::Beginning => name_text.starts_with(self.literal()),
            // The tail is seen at a glance, and many patterns differ in nothing else.
            Shape::Glob => {
                name_text.ends_with(&text[text.len() - self.tail..]) && self.pattern().matches(name)
            }
        }
    }
}

impl Patterns {
    /// The number of a pattern, which gets one more user; and whether it is new.
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

    /// The number of a pattern that has one, for one more user.
    pub(crate) fn acquire_known(&mut self, text: &str) -> Option<PatternNo> {
        let number = self.find(text)?;
        self.slots[number].users += 1;
        Some(number)
    }

    /// Takes a user away.
    pub(crate) fn release(&mut self, pattern: PatternNo) {
        self.slots[pattern].users -= 1;
        self.forget_if_idle(pattern);
    }

    /// A class has units that these match.
    pub(crate) fn add_class(&mut self, matched: &[PatternNo]) {
        matched.iter().for_each(|pattern| self.slots[*pattern].classes += 1);
    }

    /// The class is gone.
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

    /// All patterns that cover a name, in the order of their numbers.
    pub(crate) fn covering(&self, name: &UnitName) -> Vec<PatternNo> {
        let mut found = self.index.candidates(name.as_str());
        found.retain(|number| self.slots[*number].covers(name));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether there are no patterns at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The number of a pattern that has one.
    pub(crate) fn find(&self, text: &str) -> Option<PatternNo> {
        self.by_text.get(text).copied()
    }
}
