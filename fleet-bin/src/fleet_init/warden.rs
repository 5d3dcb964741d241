//! Process 1 of a container: reaps orphans and restarts the fleet-init that supervises the units.
//!
//! A supervisor waits for its processes one by one; a reaper takes the exit of any child. In one
//! process each would take exits from the other, so these are two processes. If the supervisor
//! crashes, its units become children of process 1, keep running, and are adopted by the next
//! supervisor.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use fleet_agent::{Clock as _, SystemClock};
use fleet_core::Timestamp;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};
use tokio::signal::unix::{self, SignalKind, signal};

use super::orphans;
use crate::fleetctl::error::CliError;

/// Environment variable that marks the second process.
const WATCHED: &str = "FLEET_INIT_WATCHED";

/// Delay before a crashed supervisor is restarted.
const PAUSE: Duration = Duration::from_secs(1);

/// Interval at which a new supervisor's signal mask is checked.
const LOOK: Duration = Duration::from_millis(10);

/// Signals forwarded to the supervisor.
const PASSED_ON: [(SignalKind, Signal); 4] = [
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::hangup(), Signal::HUP),
];

/// Whether this process is process 1, or must act like it.
pub(super) fn is_needed(reap: bool) -> bool {
    let is_watched = std::env::var_os(WATCHED).is_some();
    !is_watched && (reap || rustix::process::getpid().is_init())
}

/// Runs this program again with the arguments until it exits or is told to end. `directory` holds
/// its state.
pub(super) fn run(args: &[OsString], directory: &Path) -> Result<ExitCode, CliError> {
    let cannot = |error: io::Error| CliError::failed("cannot watch over processes").because(error);
    if !rustix::process::getpid().is_init() {
        let own = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(own)).map_err(|error| cannot(error.into()))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(cannot)?.block_on(watch(args, directory)).map_err(cannot)
}

async fn watch(args: &[OsString], directory: &Path) -> io::Result<ExitCode> {
    let mut children = signal(SignalKind::child())?;
    let mut signals = Vec::new();
    for (kind, what) in PASSED_ON {
        signals.push((signal(kind)?, what));
    }
    let clock = SystemClock::start();
    let watched = Some(begin(args)?);
    let mut warden = Warden { watched, is_ending: false, owed: Vec::new(), due: None };
    loop {
        warden.pass_on();
        let wake = async {
            match warden.wake(clock.now()) {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = children.recv() => {}
            what = next(&mut signals) => warden.take(what),
            () = wake => {}
        }
        if let Some(status) = reap(warden.watched)?
            && let Some(code) = warden.ended(status, clock.now())
        {
            // After a crash its units may be adopted by another supervisor, so they stay.
            if warden.is_ending {
                orphans::end(&mut children, &clock, || reap(None).map(drop)).await?;
                fleet_agent::remove_empty_cgroups(directory);
            }
            return Ok(code);
        }
        if warden.is_to_begin(clock.now()) {
            warden.begun(begin(args), clock.now());
        }
    }
}

/// State of process 1 about the supervisor process.
struct Warden {
    /// `None` once reaped, since the PID may be reused.
    watched: Option<Pid>,
    is_ending: bool,
    /// Signals to send once the supervisor listens to all forwarded signals.
    owed: Vec<Signal>,
    /// Time of the next restart.
    due: Option<Timestamp>,
}

impl Warden {
    /// Takes a signal to forward. If a restart is due, it happens at once: the units still run and
    /// must be stopped.
    fn take(&mut self, what: Signal) {
        self.owed.push(what);
        if what != Signal::HUP {
            self.is_ending = true;
            self.due = self.due.map(|_| Timestamp::from_millis(0));
        }
    }

    /// Forwards pending signals once the supervisor catches them.
    fn pass_on(&mut self) {
        let Some(watched) = self.watched.filter(|_| !self.owed.is_empty()) else { return };
        if listens(watched) {
            // If it has just exited, `ended` handles that.
            self.owed.retain(|what| kill_process(watched, *what).is_err());
        }
    }

    /// Time of the next check if no event occurs.
    fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let look = self.watched.filter(|_| !self.owed.is_empty()).map(|_| now.after(LOOK));
        self.due.into_iter().chain(look).min()
    }

    /// Records the supervisor's exit. Returns the exit code to end with, or `None` after a crash,
    /// when it is restarted.
    fn ended(&mut self, status: WaitStatus, now: Timestamp) -> Option<ExitCode> {
        if status.exit_status().is_some() {
            let status = status.exit_status().and_then(|status| u8::try_from(status).ok());
            return Some(ExitCode::from(status.unwrap_or(1)));
        }
        // Logging may block on a slow reader, as it does for any program.
        let process = self.watched.map(Pid::as_raw_pid);
        let signal = status.terminating_signal();
        tracing::warn!(process, signal, "what runs the units broke off; another is started");
        let due = if self.is_ending { now } else { now.after(PAUSE) };
        (self.watched, self.due) = (None, Some(due));
        // Pending signals are lost with it; a reload is implied by the restart.
        self.owed = if self.is_ending { vec![Signal::TERM] } else { Vec::new() };
        None
    }

    fn is_to_begin(&mut self, now: Timestamp) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Records the result of a start. Its failure, for example for lack of memory, may be
    /// temporary, and ending this process would end all units.
    fn begun(&mut self, begun: io::Result<Pid>, now: Timestamp) {
        match begun {
            Ok(watched) => self.watched = Some(watched),
            Err(error) => {
                tracing::error!(%error, "what runs the units cannot be started; it is tried again");
                self.due = Some(now.after(PAUSE));
            }
        }
    }
}

/// Whether a process catches all forwarded signals. A new process would be killed by them. Assumes
/// so if `/proc` cannot be read.
///
/// A signal that arrives while a process installs its handler can be lost: it is caught before any
/// task listens. So this checks the signal whose handler supervisors install last (HUP), whose loss
/// is harmless since the files are yet to be read.
fn listens(process: Pid) -> bool {
    const LAST: Signal = Signal::HUP;
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    let caught = status.ok().and_then(|status| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(caught.trim(), 16).ok()
    });
    caught.is_none_or(|caught| caught & (1 << (LAST.as_raw() - 1)) != 0)
}

/// Starts the supervisor in its own process group, so that signals of a terminal arrive once.
fn begin(args: &[OsString]) -> io::Result<Pid> {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new("/proc/self/exe");
    // Keeps the program name that users look for in process lists.
    let name = std::env::args_os().next().unwrap_or_else(|| "fleet-init".into());
    command.arg0(name).args(args).env(WATCHED, "1").process_group(0);
    // The child is reaped with all others, not by this handle. `spawn` returns after the exec, so
    // caught signals are the program's own.
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// Returns the next signal to forward.
async fn next(signals: &mut [(unix::Signal, Signal)]) -> Signal {
    let waits = signals.iter_mut().map(|(signal, what)| {
        let what = *what;
        Box::pin(async move {
            signal.recv().await;
            what
        })
    });
    futures_util::future::select_all(waits).await.0
}

/// Reaps all exited children and returns the status of `watched` if it is among them.
fn reap(watched: Option<Pid>) -> io::Result<Option<WaitStatus>> {
    let mut found = None;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if Some(pid) == watched => found = Some(status),
            Ok(Some(_)) => {}
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(found),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    use super::*;

    /// A shell cannot trap a signal that was ignored when it started, as under `nohup`.
    fn ignores_hangups() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 != 0
    }

    /// Regression: a supervisor told to end as soon as it caught TERM sometimes kept running.
    #[test]
    fn one_that_has_yet_to_listen_to_its_last_signal_is_sent_none() {
        let hears = !ignores_hangups();
        for (traps, is_ready) in [("TERM", false), ("TERM INT QUIT", false), ("TERM HUP", hears)] {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &format!("trap : {traps}; echo; read line")]);
            shell.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut shell = shell.spawn().unwrap();
            let out = shell.stdout.take().unwrap();
            BufReader::new(out).read_line(&mut String::new()).unwrap();
            let listens = listens(Pid::from_child(&shell));
            drop(shell.stdin.take());
            shell.wait().unwrap();
            assert_eq!(listens, is_ready, "{traps}");
        }
    }
}
