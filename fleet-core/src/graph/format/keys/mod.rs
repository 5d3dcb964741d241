//! Keys of a stanza. Each key has a reader, a writer, and the types of units that may have it.

mod exec;
mod exec_environment;
mod graph;
mod read;

use super::diagnostic::Problems;
use super::lexer::Value;
use super::stanza::{Draft, Types};
use crate::graph::model::{InitUnit, Timeouts};

pub(super) use self::exec::stop_timeout;
pub(super) use exec_environment::read_output;
pub(super) use read::{
    duration_or_none, is_variable, list, name, number, one_target, target, target_items,
};

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
        graph::CONDITION_KEYS,
        exec::KEYS,
        exec::STOP_KEYS,
        exec::RESTART_KEYS,
        exec_environment::KEYS,
        exec_environment::RESOURCE_KEYS,
    ];
    groups.into_iter().flatten()
}

/// Returns the key with this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    all().find(|key| key.name == name)
}

/// Keys that differ in more than hyphens and case.
const OTHER_NAMES: [(&str, &str); 27] = [
    ("After", "after"),
    ("BindsTo", "depends-on"),
    ("CPUQuota", "cpu-quota"),
    ("CPUWeight", "cpu-weight"),
    ("Environment", "env"),
    ("EnvironmentFile", "env-file"),
    ("IOWeight", "io-weight"),
    ("IgnoreSIGPIPE", "ignore-sigpipe"),
    ("KillMode", "stop-mode"),
    ("KillSignal", "stop-signal"),
    ("OOMScoreAdjust", "oom-score-adjust"),
    ("PIDFile", "pidfile"),
    ("PassEnvironment", "pass-env"),
    ("RemainAfterExit", "remain"),
    ("Requires", "depends-ms"),
    ("RestartSec", "restart-delay"),
    ("RuntimeMaxSec", "runtime-max"),
    ("StandardError", "error-output"),
    ("StandardOutput", "output"),
    ("SuccessExitStatus", "success-exit"),
    ("SupplementaryGroups", "groups"),
    ("TimeoutStartSec", "start-timeout"),
    ("TimeoutStopSec", "stop-timeout"),
    ("UMask", "umask"),
    ("Wants", "waits-for"),
    ("WatchdogSec", "watchdog"),
    ("WorkingDirectory", "directory"),
];

/// Returns the key of stanzas for a key of systemd: `exec-start` for `ExecStart`.
pub(super) fn of_systemd(key: &str) -> Option<&'static str> {
    let other = OTHER_NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(key));
    let hyphenated = || find(&with_hyphens(key)).map(|key| key.name);
    other.map(|(_, name)| *name).or_else(hyphenated)
}

/// Writes a key such as `ExecStart` in the spelling of stanzas, `exec-start`.
fn with_hyphens(key: &str) -> String {
    let mut text = String::new();
    for (at, letter) in key.char_indices() {
        if at > 0 && letter.is_ascii_uppercase() {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
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

    #[test]
    fn suggested_keys_exist() {
        for (known, name) in OTHER_NAMES {
            assert!(find(name).is_some(), "{known}: {name}");
            assert_eq!(of_systemd(known), Some(name));
        }
        assert_eq!(of_systemd("ExecStartPre"), Some("exec-start-pre"));
        assert_eq!(of_systemd("PrivateTmp"), None);
    }
}
