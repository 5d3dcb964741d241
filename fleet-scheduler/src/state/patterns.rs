//! Patterns over unit names. A pattern and a name are compared when one of them is added. The rules
//! then compare only numbers.
//!
//! A new name is compared only with the patterns whose key it contains. A new pattern is compared
//! only with the names that start with its literal prefix.
//!
//! A pattern has literal pieces between its wildcards. For example, `web-*-1.service` has one piece
//! at its start and one at its end. A matching name contains all of these pieces, so one of them is
//! the pattern's key. The index chooses the piece with the fewest other patterns, because many
//! patterns may start or end alike.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::Pattern;
use fleet_unitfile::UnitName;

use super::slots::{Lookup, OrderNo, PatternNo, Slots, UnitNo, index_slots};
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

/// The position of a literal piece in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum LiteralPosition {
    #[default]
    Prefix,
    Suffix,
    Infix,
}

/// A literal piece of a pattern.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LiteralKey {
    position: LiteralPosition,
    from: usize,
    to: usize,
}

/// Patterns by their literal keys.
#[derive(Debug, Default)]
pub(super) struct PatternIndex {
    prefixes: LiteralTable,
    suffixes: LiteralTable,
    infixes: LiteralTable,
}

/// The patterns with keys of the same position.
#[derive(Debug, Default)]
struct LiteralTable {
    by_text: Lookup<Box<str>, Vec<PatternNo>>,
    /// Number of patterns with a key of that length.
    lengths: BTreeMap<usize, u32>,
}

impl LiteralKey {
    /// Returns the text of the key within its pattern.
    fn text(self, pattern: &str) -> &str {
        &pattern[self.from..self.to]
    }
}

impl PatternIndex {
    pub(super) fn is_empty(&self) -> bool {
        [&self.prefixes, &self.suffixes, &self.infixes].iter().all(|table| table.lengths.is_empty())
    }

    /// Adds a pattern and returns its key.
    pub(super) fn insert(&mut self, pattern: &str, number: PatternNo) -> LiteralKey {
        let pieces = literal_keys(pattern).into_iter();
        let table_size = |key: &LiteralKey| self.table(key.position).count(key.text(pattern));
        // Of equally good keys, the longest is the most selective.
        let best = pieces.min_by_key(|a| (table_size(a), std::cmp::Reverse(a.to - a.from)));
        let key = best.unwrap_or_default();
        self.table_mut(key.position).insert(key.text(pattern), number);
        key
    }

    /// Removes a pattern that is filed under a key.
    pub(super) fn remove(&mut self, pattern: &str, key: LiteralKey, number: PatternNo) {
        self.table_mut(key.position).remove(key.text(pattern), number);
    }

    /// Returns the patterns with keys that occur in a name. Some patterns may occur twice in the
    /// result.
    pub(super) fn candidates(&self, name: &str) -> Vec<PatternNo> {
        let mut found = Vec::new();
        // Unit names are ASCII, so every length is a character boundary.
        for length in self.prefixes.lengths_up_to(name.len()) {
            self.prefixes.find(&name[..length], &mut found);
        }
        for length in self.suffixes.lengths_up_to(name.len()) {
            self.suffixes.find(&name[name.len() - length..], &mut found);
        }
        for length in self.infixes.lengths_up_to(name.len()) {
            for from in 0..=name.len() - length {
                self.infixes.find(&name[from..from + length], &mut found);
            }
        }
        found
    }

    fn table(&self, position: LiteralPosition) -> &LiteralTable {
        match position {
            LiteralPosition::Prefix => &self.prefixes,
            LiteralPosition::Suffix => &self.suffixes,
            LiteralPosition::Infix => &self.infixes,
        }
    }

    fn table_mut(&mut self, position: LiteralPosition) -> &mut LiteralTable {
        match position {
            LiteralPosition::Prefix => &mut self.prefixes,
            LiteralPosition::Suffix => &mut self.suffixes,
            LiteralPosition::Infix => &mut self.infixes,
        }
    }
}

impl LiteralTable {
    fn count(&self, text: &str) -> usize {
        self.by_text.get(text).map_or(0, Vec::len)
    }

    fn insert(&mut self, text: &str, number: PatternNo) {
        *self.lengths.entry(text.len()).or_default() += 1;
        self.by_text.get_or_insert(text.into(), Vec::new()).push(number);
    }

    fn remove(&mut self, text: &str, number: PatternNo) {
        if let Some(alike) = self.by_text.get_mut(text) {
            alike.retain(|other| *other != number);
            if alike.is_empty() {
                self.by_text.remove(text);
            }
        }
        if let Some(count) = self.lengths.get_mut(&text.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&text.len());
            }
        }
    }

    fn lengths_up_to(&self, most: usize) -> impl Iterator<Item = usize> {
        self.lengths.range(..=most).map(|(length, _)| *length)
    }

    fn find(&self, text: &str, found: &mut Vec<PatternNo>) {
        found.extend(self.by_text.get(text).into_iter().flatten());
    }
}

/// Returns the possible keys of a pattern: the pieces at its start and end and the longest piece
/// inside. Empty pieces are left out. A pattern without wildcards has only a piece at its start.
fn literal_keys(pattern: &str) -> Vec<LiteralKey> {
    let pieces = pieces(pattern);
    let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
    let mut all =
        vec![LiteralKey { position: LiteralPosition::Prefix, from: first.0, to: first.1 }];
    if pieces.len() > 1 {
        all.push(LiteralKey { position: LiteralPosition::Suffix, from: last.0, to: last.1 });
        let inside = &pieces[1..pieces.len() - 1];
        let longest = inside.iter().max_by_key(|(from, to)| to - from);
        all.extend(longest.map(|(from, to)| LiteralKey {
            position: LiteralPosition::Infix,
            from: *from,
            to: *to,
        }));
    }
    all.retain(|key| key.to > key.from);
    all
}

/// Returns the pieces between the wildcards of a pattern, including empty ones.
fn pieces(pattern: &str) -> Vec<(usize, usize)> {
    let (mut pieces, mut from, mut at) = (Vec::new(), 0, 0);
    while let Some(found) = pattern[at..].find(['*', '?', '[']) {
        pieces.push((from, at + found));
        at += found;
        at += if pattern[at..].starts_with('[') { class_length(&pattern[at..]) } else { 1 };
        from = at;
    }
    pieces.push((from, pattern.len()));
    pieces
}

/// Returns the length of the character class (such as `[a-z]`) at the start of a text. A closing
/// bracket right after the opening one belongs to the class.
fn class_length(text: &str) -> usize {
    let inner = text[1..].strip_prefix(['!', '^']).unwrap_or(&text[1..]);
    let first = inner.chars().next().map_or(0, char::len_utf8);
    let end = inner[first..].find(']').map_or(inner.len(), |end| first + end + 1);
    text.len() - inner.len() + end
}

#[cfg(test)]
mod tests {
    use fleet_core::Pattern;
    use fleet_unitfile::UnitName;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pattern_is_split_into_literal_pieces() {
        let cases = [
            ("web.service", "web.service"),
            ("web-*", "web-|"),
            ("*", "|"),
            ("*-1.service", "|-1.service"),
            ("web-*-1.service", "web-|-1.service"),
            ("*a?bc[0-9]d*", "|a|bc|d|"),
            ("x[]*]y[!]?]z", "x|y|z"),
            ("x[ü]y", "x|y"),
        ];
        for (pattern, expected) in cases {
            let found: Vec<&str> = pieces(pattern).iter().map(|(a, b)| &pattern[*a..*b]).collect();
            assert_eq!(found.join("|"), expected, "{pattern}");
        }
    }

    #[test]
    fn patterns_with_equal_prefixes_get_different_keys() {
        let mut index = PatternIndex::default();
        for number in 0..50_u32 {
            index.insert(&format!("web-*-{number:02}.service"), PatternNo(number));
            index.insert(&format!("*x{number:02}*.service"), PatternNo(50 + number));
        }
        assert!(index.candidates("web-9-17.service").len() < 4);
        assert!(index.candidates("web-x17.service").len() < 4);
    }

    proptest! {
        /// Every matching pattern is a candidate, and removed patterns leave nothing behind.
        #[test]
        fn every_matching_pattern_is_a_candidate(
            patterns in proptest::collection::vec("([ab.*?]|\\[[!^]?[]ab]{1,2}\\]){1,5}", 1..20),
            stem in "[ab.]{1,6}",
        ) {
            let name: UnitName = format!("{stem}.path").parse().unwrap();
            let suffixes = ["", ".path", "*"].into_iter().cycle();
            let patterns = patterns.iter().zip(suffixes);
            let patterns = patterns.map(|(start, end)| format!("{start}{end}"));
            let patterns: Vec<Pattern> = patterns.filter_map(|text| text.parse().ok()).collect();
            let mut index = PatternIndex::default();
            let mut filed = Vec::new();
            for (number, pattern) in (0..).map(PatternNo).zip(&patterns) {
                filed.push((pattern, index.insert(pattern.as_str(), number), number));
            }
            let found = index.candidates(name.as_str());
            for (pattern, _, number) in &filed {
                prop_assert!(!pattern.matches(&name) || found.contains(number), "{}", pattern);
            }
            for (pattern, key, number) in filed {
                index.remove(pattern.as_str(), key, number);
            }
            prop_assert!(index.is_empty() && index.candidates(name.as_str()).is_empty());
        }
    }
}
