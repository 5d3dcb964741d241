//! Keys of systemd with the keys of stanzas that have their meaning, for suggestions.

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
    let hyphenated = || super::keys::find(&with_hyphens(key)).map(|key| key.name);
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
    use super::*;
    use crate::graph::text::keys;

    #[test]
    fn suggested_keys_exist() {
        for (known, name) in OTHER_NAMES {
            assert!(keys::find(name).is_some(), "{known}: {name}");
            assert_eq!(of_systemd(known), Some(name));
        }
        assert_eq!(of_systemd("ExecStartPre"), Some("exec-start-pre"));
        assert_eq!(of_systemd("PrivateTmp"), None);
    }
}
