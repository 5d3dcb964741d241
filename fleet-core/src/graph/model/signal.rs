//! Signal names and numbers.

use std::fmt;

/// A signal that exists on every Linux architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Named(&'static str),
    /// A real-time signal, by its distance from `SIGRTMIN`.
    RealTime(u8),
}

/// Number of `SIGRTMIN` in systemd and most programs, which use glibc.
const RTMIN: u8 = 34;
/// Number of `SIGRTMAX`.
const RTMAX: u8 = 64;

/// Names without `SIG`, ordered by their usual numbers; the first is 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

impl Signal {
    /// Numbers of the signals that usually end a process deliberately: HUP, INT, PIPE and TERM.
    pub(in crate::graph) const USUAL: [u8; 4] = [1, 2, 13, 15];

    /// `SIGHUP`.
    pub const HUP: Self = Self(Kind::Named("HUP"));
    /// `SIGTERM`: the default stop signal.
    pub const TERM: Self = Self(Kind::Named("TERM"));
    /// `SIGKILL`: cannot be caught or ignored.
    pub const KILL: Self = Self(Kind::Named("KILL"));
    /// `SIGABRT`: systemd's signal for a missed watchdog.
    pub const ABRT: Self = Self(Kind::Named("ABRT"));

    /// Returns all signals with names of their own, in the order of their usual numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|name| Self(Kind::Named(name)))
    }

    /// Parses the name of a signal, with or without `SIG`, or its number on x86 and ARM. A
    /// real-time signal is written as `SIGRTMIN+3` or `SIGRTMAX-3`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse::<u8>() {
            return Self::from_number(number);
        }
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let distance = |text: &str, sign| match text {
            "" => Some(0),
            text => text.strip_prefix(sign)?.parse::<u8>().ok(),
        };
        let real_time = if let Some(above) = name.strip_prefix("RTMIN") {
            distance(above, '+').and_then(|above| RTMIN.checked_add(above))
        } else if let Some(below) = name.strip_prefix("RTMAX") {
            distance(below, '-').and_then(|below| RTMAX.checked_sub(below))
        } else {
            return NAMES.iter().find(|known| **known == name).map(|name| Self(Kind::Named(name)));
        };
        real_time.filter(|number| *number >= RTMIN).and_then(Self::from_number)
    }

    /// Returns the signal with this number on x86 and ARM.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        if (RTMIN..=RTMAX).contains(&number) {
            return Some(Self(Kind::RealTime(number - RTMIN)));
        }
        let index = usize::from(number).checked_sub(1)?;
        NAMES.get(index).map(|name| Self(Kind::Named(name)))
    }

    /// Returns the signal's number on x86 and ARM.
    #[must_use]
    pub fn number(self) -> u8 {
        match self.0 {
            Kind::RealTime(above) => RTMIN + above,
            Kind::Named(name) => {
                let index = NAMES.iter().position(|known| *known == name);
                index.and_then(|index| u8::try_from(index + 1).ok()).unwrap_or_default()
            }
        }
    }

    /// Returns the number of a real-time signal, which is the same on every architecture.
    #[must_use]
    pub fn real_time_number(self) -> Option<u8> {
        matches!(self.0, Kind::RealTime(_)).then(|| self.number())
    }
}

impl fmt::Display for Signal {
    /// Formats the name with `SIG`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Named(name) => write!(f, "SIG{name}"),
            Kind::RealTime(0) => f.write_str("SIGRTMIN"),
            Kind::RealTime(above) => write!(f, "SIGRTMIN+{above}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_signals_are_parsed_as_by_systemd() {
        let parsed = |text: &str| Signal::parse(text).map(|signal| signal.to_string());
        for (text, expected) in [
            ("SIGRTMIN", "SIGRTMIN"),
            ("RTMIN+3", "SIGRTMIN+3"),
            ("SIGRTMIN+30", "SIGRTMIN+30"),
            ("SIGRTMAX", "SIGRTMIN+30"),
            ("SIGRTMAX-27", "SIGRTMIN+3"),
            ("37", "SIGRTMIN+3"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["SIGRTMIN+31", "SIGRTMAX-31", "RTMIN-1", "RTMAX+1", "RTMIN3", "33", "65"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        for signal in Signal::all().chain((34..=64).filter_map(Signal::from_number)) {
            assert_eq!(Signal::from_number(signal.number()), Some(signal));
            assert_eq!(Signal::parse(&signal.to_string()), Some(signal));
        }
    }
}
