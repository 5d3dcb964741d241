//! Process 1 of a container: reaps orphans and restarts the fleet-init that supervises the units.
//!
//! A supervisor waits for its own processes one by one. A reaper waits for any child. In a single
//! process, each of them would consume exits that the other waits for, so they are two processes.
//! If the supervisor crashes, its units become children of process 1 and keep running. The next
//! supervisor adopts them.

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
const CHILD_MARKER: &str = "FLEET_INIT_WATCHED";

/// Delay before a crashed supervisor is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Interval at which a new supervisor's signal mask is checked.
const SIGNAL_MASK_POLL: Duration = Duration::from_millis(10);

/// Signals forwarded to the supervisor.
const FORWARDED: [(SignalKind, Signal); 4] = [
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::hangup(), Signal::HUP),
];

/// Whether this process is process 1, or must act like it.
pub(super) fn is_needed(reap: bool) -> bool {
    let is_watched = std::env::var_os(CHILD_MARKER).is_some();
    !is_watched && (reap || rustix::process::getpid().is_init())
}

/// Runs this program again with the arguments, until the new process exits or this one receives a
/// signal to end. `directory` holds the state of process 1.
pub(super) fn run(args: &[OsString], directory: &Path) -> Result<ExitCode, CliError> {
    let cannot = |error: io::Error| CliError::failed("cannot act as process 1").because(error);
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
    for (kind, forwarded) in FORWARDED {
        signals.push((signal(kind)?, forwarded));
    }
    let clock = SystemClock::start();
    let supervisor = Some(spawn_supervisor(args)?);
    let mut pid1 = Pid1 { supervisor, is_stopping: false, pending: Vec::new(), due: None };
    loop {
        pid1.forward();
        let wake = async {
            match pid1.wake(clock.now()) {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = children.recv() => {}
            forwarded = next(&mut signals) => pid1.take(forwarded),
            () = wake => {}
        }
        if let Some(status) = reap(pid1.supervisor)?
            && let Some(code) = pid1.on_exit(status, clock.now())
        {
            // After a crash its units may be adopted by another supervisor, so they stay.
            if pid1.is_stopping {
                orphans::end(&mut children, &clock, || reap(None).map(drop)).await?;
                fleet_agent::remove_empty_cgroups(directory);
            }
            return Ok(code);
        }
        if pid1.take_due_restart(clock.now()) {
            pid1.on_spawn(spawn_supervisor(args), clock.now());
        }
    }
}

/// State of process 1 about the supervisor process.
struct Pid1 {
    /// `None` once reaped, since the PID may be reused.
    supervisor: Option<Pid>,
    is_stopping: bool,
    /// Signals to send once the supervisor catches all forwarded signals.
    pending: Vec<Signal>,
    /// Time of the next restart.
    due: Option<Timestamp>,
}

impl Pid1 {
    /// Records a signal to forward. If a restart of the supervisor is pending and the signal
    /// requests the end, the restart happens at once. The units still run, and only a supervisor
    /// can stop them.
    fn take(&mut self, signal: Signal) {
        self.pending.push(signal);
        if signal != Signal::HUP {
            self.is_stopping = true;
            self.due = self.due.map(|_| Timestamp::from_millis(0));
        }
    }

    /// Forwards pending signals once the supervisor catches them.
    fn forward(&mut self) {
        let Some(supervisor) = self.supervisor.filter(|_| !self.pending.is_empty()) else { return };
        if catches_forwarded(supervisor) {
            // If it has just exited, `on_exit` handles that.
            self.pending.retain(|signal| kill_process(supervisor, *signal).is_err());
        }
    }

    /// Time of the next check if no event occurs.
    fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let look = self
            .supervisor
            .filter(|_| !self.pending.is_empty())
            .map(|_| now.after(SIGNAL_MASK_POLL));
        self.due.into_iter().chain(look).min()
    }

    /// Records the supervisor's exit. Returns the exit code with which this process ends. Returns
    /// `None` after a crash, because the supervisor is then restarted.
    fn on_exit(&mut self, status: WaitStatus, now: Timestamp) -> Option<ExitCode> {
        if status.exit_status().is_some() {
            let status = status.exit_status().and_then(|status| u8::try_from(status).ok());
            return Some(ExitCode::from(status.unwrap_or(1)));
        }
        // Logging may block on a slow reader, as it does for any program.
        let process = self.supervisor.map(Pid::as_raw_pid);
        let signal = status.terminating_signal();
        tracing::warn!(process, signal, "the supervisor crashed; restarting it");
        let due = if self.is_stopping { now } else { now.after(RESTART_DELAY) };
        (self.supervisor, self.due) = (None, Some(due));
        // Pending signals are lost with it; a reload is implied by the restart.
        self.pending = if self.is_stopping { vec![Signal::TERM] } else { Vec::new() };
        None
    }

    fn take_due_restart(&mut self, now: Timestamp) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Records the result of starting the supervisor. A failed start is tried again, because its
    /// cause may be temporary, for example lack of memory. Ending this process instead would end
    /// all units.
    fn on_spawn(&mut self, spawned: io::Result<Pid>, now: Timestamp) {
        match spawned {
            Ok(supervisor) => self.supervisor = Some(supervisor),
            Err(error) => {
                tracing::error!(%error, "cannot start the supervisor; will retry");
                self.due = Some(now.after(RESTART_DELAY));
            }
        }
    }
}

/// Returns whether a process catches all forwarded signals. A new process does not catch them yet
/// and would be killed. Returns `true` if `/proc` cannot be read.
///
/// A signal that arrives while a process installs its handler can be lost, because it is caught
/// before any task listens for it. So this function checks HUP, which is the signal with the
/// handler that supervisors install last. Losing a HUP is harmless at that time, because the files
/// are still to be read.
fn catches_forwarded(process: Pid) -> bool {
    const LAST: Signal = Signal::HUP;
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    let caught = status.ok().and_then(|status| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(caught.trim(), 16).ok()
    });
    caught.is_none_or(|caught| caught & (1 << (LAST.as_raw() - 1)) != 0)
}

/// Starts the supervisor in its own process group, so that it gets each signal of a terminal only
/// once.
fn spawn_supervisor(args: &[OsString]) -> io::Result<Pid> {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new("/proc/self/exe");
    // Keeps the program name that users look for in process lists.
    let name = std::env::args_os().next().unwrap_or_else(|| "fleet-init".into());
    command.arg0(name).args(args).env(CHILD_MARKER, "1").process_group(0);
    // The child is reaped with all others, not by this handle. `spawn` returns after the exec, so
    // caught signals are the program's own.
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// Returns the next signal to forward.
async fn next(signals: &mut [(unix::Signal, Signal)]) -> Signal {
    let waits = signals.iter_mut().map(|(signal, forwarded)| {
        let forwarded = *forwarded;
        Box::pin(async move {
            signal.recv().await;
            forwarded
        })
    });
    futures_util::future::select_all(waits).await.0
}

/// Reaps all exited children. Returns the status of `supervisor` if it is one of them.
fn reap(supervisor: Option<Pid>) -> io::Result<Option<WaitStatus>> {
    let mut found = None;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if Some(pid) == supervisor => found = Some(status),
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

    /// Regression: a supervisor stopped as soon as it caught TERM sometimes kept running.
    #[test]
    fn signals_wait_until_the_last_handler_is_installed() {
        let traps_hangups = !ignores_hangups();
        for (traps, is_ready) in
            [("TERM", false), ("TERM INT QUIT", false), ("TERM HUP", traps_hangups)]
        {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &format!("trap : {traps}; echo; read line")]);
            shell.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut shell = shell.spawn().unwrap();
            let out = shell.stdout.take().unwrap();
            BufReader::new(out).read_line(&mut String::new()).unwrap();
            let catches_forwarded = catches_forwarded(Pid::from_child(&shell));
            drop(shell.stdin.take());
            shell.wait().unwrap();
            assert_eq!(catches_forwarded, is_ready, "{traps}");
        }
    }
}
