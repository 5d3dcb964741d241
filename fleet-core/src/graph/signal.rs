//! Signal names and numbers.

use std::fmt;

/// A signal that exists on every Linux architecture; real-time signals are not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(&'static str);

/// Names without `SIG`, ordered by their usual numbers; the first is 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

impl Signal {
    /// Numbers of the signals that usually end a process deliberately: HUP, INT, PIPE and TERM.
    pub(super) const USUAL: [u8; 4] = [1, 2, 13, 15];

    /// `SIGHUP`.
    pub const HUP: Self = Self("HUP");
    /// `SIGTERM`: the default stop signal.
    pub const TERM: Self = Self("TERM");
    /// `SIGKILL`: cannot be caught or ignored.
    pub const KILL: Self = Self("KILL");
    /// `SIGABRT`: systemd's signal for a missed watchdog.
    pub const ABRT: Self = Self("ABRT");

    /// Returns all signals in the order of their usual numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|name| Self(name))
    }

    /// Parses the name of a signal, with or without `SIG`, or its number on x86 and ARM.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse::<u8>() {
            return Self::from_number(number);
        }
        let name = text.strip_prefix("SIG").unwrap_or(text);
        NAMES.iter().find(|known| **known == name).map(|name| Self(name))
    }

    /// Returns the signal with this number on x86 and ARM.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let index = usize::from(number).checked_sub(1)?;
        NAMES.get(index).map(|name| Self(name))
    }

    /// Returns the signal's number on x86 and ARM.
    #[must_use]
    pub fn number(self) -> u8 {
        let index = NAMES.iter().position(|name| *name == self.0);
        index.and_then(|index| u8::try_from(index + 1).ok()).unwrap_or_default()
    }
}

impl fmt::Display for Signal {
    /// Formats the name with `SIG`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SIG{}", self.0)
    }
}
