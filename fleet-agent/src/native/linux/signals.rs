//! Signals by name and number, independent of the numbers of an architecture.

use fleet_core::graph;
use rustix::process::Signal;

/// A signal that exists on every Linux architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sig(pub(crate) Signal);

/// The signals that unit files may use, besides real-time signals.
const NAMES: [(&str, Signal); 31] = [
    ("SIGHUP", Signal::HUP),
    ("SIGINT", Signal::INT),
    ("SIGQUIT", Signal::QUIT),
    ("SIGILL", Signal::ILL),
    ("SIGTRAP", Signal::TRAP),
    ("SIGABRT", Signal::ABORT),
    ("SIGBUS", Signal::BUS),
    ("SIGFPE", Signal::FPE),
    ("SIGKILL", Signal::KILL),
    ("SIGUSR1", Signal::USR1),
    ("SIGSEGV", Signal::SEGV),
    ("SIGUSR2", Signal::USR2),
    ("SIGPIPE", Signal::PIPE),
    ("SIGALRM", Signal::ALARM),
    ("SIGTERM", Signal::TERM),
    ("SIGSTKFLT", Signal::STKFLT),
    ("SIGCHLD", Signal::CHILD),
    ("SIGCONT", Signal::CONT),
    ("SIGSTOP", Signal::STOP),
    ("SIGTSTP", Signal::TSTP),
    ("SIGTTIN", Signal::TTIN),
    ("SIGTTOU", Signal::TTOU),
    ("SIGURG", Signal::URG),
    ("SIGXCPU", Signal::XCPU),
    ("SIGXFSZ", Signal::XFSZ),
    ("SIGVTALRM", Signal::VTALARM),
    ("SIGPROF", Signal::PROF),
    ("SIGWINCH", Signal::WINCH),
    ("SIGIO", Signal::IO),
    ("SIGPWR", Signal::POWER),
    ("SIGSYS", Signal::SYS),
];

/// Resumes a stopped process.
pub(crate) const CONT: Sig = Sig(Signal::CONT);

impl Sig {
    /// Cannot be caught or ignored.
    pub(crate) const KILL: Self = Self(Signal::KILL);

    /// Reports the loss of the terminal.
    pub(crate) const HUP: Self = Self(Signal::HUP);

    /// Converts a number of this architecture to that of x86 and ARM.
    pub(crate) fn portable_number(here: i32) -> Option<u8> {
        let index = NAMES.iter().position(|(_, signal)| signal.as_raw() == here);
        let number = index.and_then(|index| i32::try_from(index + 1).ok()).unwrap_or(here);
        u8::try_from(number).ok()
    }

    /// Returns its number on this machine.
    #[cfg(test)]
    pub(crate) fn number(self) -> i32 {
        self.0.as_raw()
    }
}

impl From<graph::Signal> for Sig {
    fn from(signal: graph::Signal) -> Self {
        if let Some(number) = signal.real_time_number() {
            return Self(real_time(number));
        }
        let name = signal.to_string();
        let found = NAMES.iter().find(|(known, _)| *known == name);
        Self(found.expect("a test checks that both lists have the same names").1)
    }
}

/// Returns a real-time signal.
#[expect(unsafe_code, reason = "rustix makes only signals with names without it")]
fn real_time(number: u8) -> Signal {
    // SAFETY: the number is a real-time signal that the C library does not reserve for itself, and
    // these signals are only sent to other processes, never handled in this one.
    unsafe { Signal::from_raw_unchecked(i32::from(number)) }
}

/// Returns the name of a signal without `SIG` (`KILL`), as systemd passes it to `ExecStopPost=`.
/// Returns the number as text if the signal has no name.
pub(crate) fn short_name(number: i32) -> String {
    let real_time = || {
        let signal = graph::Signal::from_number(u8::try_from(number).ok()?)?;
        signal.real_time_number().map(|_| signal.to_string())
    };
    let named = NAMES.iter().find(|(_, signal)| signal.as_raw() == number);
    let name = named.map(|(name, _)| (*name).to_owned()).or_else(real_time);
    name.map_or_else(|| number.to_string(), |name| name[3..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_file_signal_has_a_number() {
        let real_time = (34..=64).filter_map(graph::Signal::from_number);
        for signal in graph::Signal::all().chain(real_time) {
            let number = Sig::from(signal).number();
            assert_eq!(format!("SIG{}", short_name(number)), signal.to_string());
        }
        assert_eq!(Sig::from(graph::Signal::KILL), Sig::KILL);
        assert_eq!(short_name(9), "KILL");
        assert_eq!(short_name(40), "RTMIN+6");
        assert_eq!(short_name(33), "33");
    }
}
