//! Patterns of `Conflicts=` and `Replaces=`, each matched against the names once.

use std::collections::BTreeMap;

use fleet_core::Pattern;

use super::{Entry, UnitNo};

/// A pattern of the roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PatternNo(u32);

impl PatternNo {
    /// The place in a vector that has one element for each pattern.
    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

/// Numbers the patterns, each text once, and notes which names they match.
pub(super) fn intern<'a>(units: &mut [Entry<'a>]) -> Vec<&'a Pattern> {
    let mut numbers: BTreeMap<&'a str, PatternNo> = BTreeMap::new();
    let mut patterns: Vec<&'a Pattern> = Vec::new();
    for unit in units.iter_mut() {
        let mut number = |pattern: &'a Pattern| {
            *numbers.entry(pattern.as_str()).or_insert_with(|| {
                patterns.push(pattern);
                let last = patterns.len() - 1;
                PatternNo(u32::try_from(last).expect("there are fewer than four billion patterns"))
            })
        };
        let requirements = unit.requirements;
        unit.conflicts = requirements.conflicts.iter().map(&mut number).collect();
        if !requirements.global {
            unit.replaces = requirements.replaces.iter().map(number).collect();
        }
    }
    for (number, pattern) in (0..).map(PatternNo).zip(&patterns) {
        for unit in matches(units, pattern) {
            units[unit.at()].matched_by.push(number);
        }
    }
    patterns
}

/// The units whose names the pattern matches. The names are in order, so only those that begin as
/// the pattern does are tried.
fn matches(units: &[Entry<'_>], pattern: &Pattern) -> Vec<UnitNo> {
    let text = pattern.as_str();
    let literal = &text[..text.find(['*', '?', '[']).unwrap_or(text.len())];
    let first = units.partition_point(|unit| unit.name.as_str() < literal);
    let tried = units[first..].iter().take_while(|unit| unit.name.as_str().starts_with(literal));
    let numbered = (first..).map(UnitNo::new).zip(tried);
    numbered.filter(|(_, unit)| pattern.matches(unit.name)).map(|(number, _)| number).collect()
}
