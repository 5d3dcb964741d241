//! Sets of exit statuses and signals.

use crate::graph::{Signal, StatusSet};

/// systemd's names of exit statuses.
const NAMES: [(&str, u8); 67] = [
    ("SUCCESS", 0),
    ("FAILURE", 1),
    ("INVALIDARGUMENT", 2),
    ("NOTIMPLEMENTED", 3),
    ("NOPERMISSION", 4),
    ("NOTINSTALLED", 5),
    ("NOTCONFIGURED", 6),
    ("NOTRUNNING", 7),
    ("USAGE", 64),
    ("DATAERR", 65),
    ("NOINPUT", 66),
    ("NOUSER", 67),
    ("NOHOST", 68),
    ("UNAVAILABLE", 69),
    ("SOFTWARE", 70),
    ("OSERR", 71),
    ("OSFILE", 72),
    ("CANTCREAT", 73),
    ("IOERR", 74),
    ("TEMPFAIL", 75),
    ("PROTOCOL", 76),
    ("NOPERM", 77),
    ("CONFIG", 78),
    ("CHDIR", 200),
    ("NICE", 201),
    ("FDS", 202),
    ("EXEC", 203),
    ("MEMORY", 204),
    ("LIMITS", 205),
    ("OOM_ADJUST", 206),
    ("SIGNAL_MASK", 207),
    ("STDIN", 208),
    ("STDOUT", 209),
    ("CHROOT", 210),
    ("IOPRIO", 211),
    ("TIMERSLACK", 212),
    ("SECUREBITS", 213),
    ("SETSCHEDULER", 214),
    ("CPUAFFINITY", 215),
    ("GROUP", 216),
    ("USER", 217),
    ("CAPABILITIES", 218),
    ("CGROUP", 219),
    ("SETSID", 220),
    ("CONFIRM", 221),
    ("STDERR", 222),
    ("PAM", 224),
    ("NETWORK", 225),
    ("NAMESPACE", 226),
    ("NO_NEW_PRIVILEGES", 227),
    ("SECCOMP", 228),
    ("SELINUX_CONTEXT", 229),
    ("PERSONALITY", 230),
    ("APPARMOR", 231),
    ("ADDRESS_FAMILIES", 232),
    ("RUNTIME_DIRECTORY", 233),
    ("CHOWN", 235),
    ("SMACK_PROCESS_LABEL", 236),
    ("KEYRING", 237),
    ("STATE_DIRECTORY", 238),
    ("CACHE_DIRECTORY", 239),
    ("LOGS_DIRECTORY", 240),
    ("CONFIGURATION_DIRECTORY", 241),
    ("NUMA_POLICY", 242),
    ("CREDENTIALS", 243),
    ("BPF", 244),
    ("EXCEPTION", 255),
];

/// Adds exit statuses and signal names; an empty value resets the set.
pub(super) fn add(set: &mut StatusSet, value: &str) -> Result<(), String> {
    if value.is_empty() {
        *set = StatusSet::default();
    }
    for word in value.split_whitespace() {
        // A plain number is an exit status, so signals are accepted by name only.
        let named = NAMES.iter().find(|(name, _)| *name == word).map(|(_, code)| *code);
        let is_word = !word.starts_with(|c: char| c.is_ascii_digit());
        if let Some(code) = word.parse().ok().filter(|_| !is_word).or(named) {
            set.codes.insert(code);
        } else if let Some(signal) = Signal::parse(word).filter(|_| is_word) {
            set.signals.insert(signal);
        } else {
            return Err(format!(
                "has {word:?}: write exit statuses from 0 to 255, or names such as TEMPFAIL or \
                 SIGKILL"
            ));
        }
    }
    Ok(())
}
