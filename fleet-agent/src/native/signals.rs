//! Signals by name and number, without the numbers that differ between processors.

use rustix::process::Signal;

/// A signal that has a name on every Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sig(pub(crate) Signal);

/// Every signal that may be written in a unit file. Real-time signals are not among them.
const NAMES: [(&str, Signal); 30] = [
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

/// Lets a stopped process go on.
pub(crate) const CONT: Sig = Sig(Signal::CONT);

impl Sig {
    /// What a service is asked to end with, unless it says otherwise.
    pub(crate) const TERM: Self = Self(Signal::TERM);
    /// What no process can refuse.
    pub(crate) const KILL: Self = Self(Signal::KILL);

    /// What a process is ended with that missed its watchdog.
    pub(crate) const ABRT: Self = Self(Signal::ABORT);
    /// What tells a process that its terminal is gone.
    pub(crate) const HUP: Self = Self(Signal::HUP);

    /// Reads a name, with or without `SIG`, or a number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse::<i32>() {
            return Signal::from_named_raw(number).map(Self);
        }
        let found = NAMES.iter().find(|(name, _)| *name == text || &name[3..] == text);
        found.map(|&(_, signal)| Self(signal))
    }

    /// Its number on this machine.
    pub(crate) fn number(self) -> i32 {
        self.0.as_raw()
    }
}

/// The name of a signal without `SIG`, as systemd hands it to `ExecStopPost=`; the number of one
/// that has no name.
pub(crate) fn short_name(number: i32) -> String {
    let named = NAMES.iter().find(|(_, signal)| signal.as_raw() == number);
    named.map_or_else(|| number.to_string(), |(name, _)| name[3..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for text in ["SIGTERM", "TERM", "15"] {
            assert_eq!(Sig::parse(text), Some(Sig::TERM), "{text}");
        }
        for text in ["", "SIG", "sigterm", "0", "-1", "99", "SIGRTMIN+3"] {
            assert_eq!(Sig::parse(text), None, "{text}");
        }
        assert_eq!(short_name(9), "KILL");
        assert_eq!(short_name(40), "40");
    }
}
