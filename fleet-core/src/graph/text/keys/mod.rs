//! Keys of a stanza. Each key has a reader, a writer, and the types of units that may have it.

mod conditions;
mod exec;
mod exec_environment;
mod graph;
mod read;
mod resources;
mod restart;
mod stop;
mod write;

use super::diagnostic::Problems;
use super::draft::Draft;
use super::types::Types;
use super::value::Value;
use crate::graph::{InitUnit, Timeouts};

pub(super) use exec_environment::read_output;
pub(super) use read::{
    duration_or_none, is_variable, list, name, nearest, number, one_of, one_target, target,
    target_items,
};
pub(super) use stop::stop_timeout;
pub(super) use write::duration;

/// A key of a stanza.
pub(super) struct Key {
    /// The key as written.
    pub(super) name: &'static str,
    /// Types of units that may have the key.
    pub(super) types: Types,
    /// Rule for repeating the key and for continuing its value.
    pub(super) form: Form,
    /// Reads a non-empty value into the draft, or reports an error.
    pub(super) read: fn(&Value, &mut Draft, &mut Problems),
    /// Returns the values to write for a unit. The list is empty if the unit has the default, and
    /// has several values only if the key may be repeated.
    pub(super) write: fn(&InitUnit, &Timeouts) -> Vec<String>,
}

/// Rule for repeating a key and for continuing its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Once, in one line.
    Line,
    /// Once, with continuation lines.
    Fold,
    /// Several times, each in one line.
    Lines,
    /// Several times, each with continuation lines.
    Folds,
}

impl Key {
    const fn new(
        name: &'static str,
        types: Types,
        form: Form,
        read: fn(&Value, &mut Draft, &mut Problems),
        write: fn(&InitUnit, &Timeouts) -> Vec<String>,
    ) -> Self {
        Self { name, types, form, read, write }
    }

    /// Returns whether the value may have continuation lines.
    pub(super) fn folds(&self) -> bool {
        matches!(self.form, Form::Fold | Form::Folds)
    }

    /// Returns whether the key may be repeated.
    pub(super) fn repeats(&self) -> bool {
        matches!(self.form, Form::Lines | Form::Folds)
    }
}

/// Returns all keys in the order in which they are printed.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    let groups = [
        graph::KEYS,
        conditions::KEYS,
        exec::KEYS,
        stop::KEYS,
        restart::KEYS,
        exec_environment::KEYS,
        resources::KEYS,
    ];
    groups.into_iter().flatten()
}

/// Returns the key with this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    all().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_is_unique_and_documented() {
        let page = include_str!("../../../../../docs/reference/init-files.md");
        let mut seen = BTreeSet::new();
        for key in all() {
            assert!(seen.insert(key.name), "{} is there twice", key.name);
            assert!(page.contains(&format!("`{}`", key.name)), "{} is not documented", key.name);
        }
    }
}
