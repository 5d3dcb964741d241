//! Process 1 of a container: reaps orphans, and restarts the supervisor, which is the fleet-init
//! that runs the units.
//!
//! The two roles are separate processes. The supervisor waits for each of its processes by PID, but
//! process 1 waits for any child. In one process, the second wait would consume exit statuses that
//! the first one needs.
//!
//! If the supervisor crashes, its units become children of process 1 and keep running. The next
//! supervisor adopts them.
//!
//! Without control groups, units are found by process group, parent and environment. A process that
//! changes all three is not found when its unit stops. When its parent exits, the kernel makes it a
//! child of process 1, which kills it at the end.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use fleet_agent::{Clock, SystemClock};
use fleet_core::Timestamp;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};
use tokio::signal::unix;
use tokio::signal::unix::{SignalKind, signal};

use crate::ui::error::CliError;

/// Environment variable that marks the supervisor process.
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

/// Gives the supervisor process the name of the program. The kernel names it `exe`, after the file
/// by which process 1 started it.
pub(super) fn name_supervisor() {
    if std::env::var_os(CHILD_MARKER).is_some() {
        // The name is for people only.
        let _kept = rustix::thread::set_name(c"fleet-init").is_err();
    }
}

/// Starts the supervisor, which is this program with the same arguments, and acts as process 1
/// until the supervisor exits. Restarts it if a signal killed it. Returns its exit code.
///
/// `directory` is the state directory, in which the control groups of the units are recorded.
pub(super) fn run(args: &[OsString], directory: &Path) -> Result<ExitCode, CliError> {
    let cannot = |error: io::Error| {
        CliError::failed("cannot adopt and reap orphaned processes like process 1").because(error)
    };
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
                end_orphans(&mut children, &clock, || reap(None).map(drop)).await?;
                fleet_agent::native::linux::remove_empty_cgroups(directory);
            }
            return Ok(code);
        }
        if pid1.take_due_restart(clock.now()) {
            pid1.on_spawn(spawn_supervisor(args), clock.now());
        }
    }
}

/// State that process 1 keeps about the supervisor process.
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
    /// Records a signal to forward to the supervisor.
    ///
    /// Only a supervisor can stop the units that still run. So if the signal asks this init to stop
    /// while no supervisor runs, the supervisor is restarted at once.
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

    /// Handles the end of the supervisor process. If the supervisor has exited, returns the exit
    /// code for this process. If a signal has killed it, schedules a restart and returns `None`.
    fn on_exit(&mut self, status: WaitStatus, now: Timestamp) -> Option<ExitCode> {
        if status.exit_status().is_some() {
            let status = status.exit_status().and_then(|status| u8::try_from(status).ok());
            return Some(ExitCode::from(status.unwrap_or(1)));
        }
        // Logging may block on a slow reader, as it does for any program.
        let process = self.supervisor.map(Pid::as_raw_pid);
        let signal = status.terminating_signal();
        tracing::warn!(
            process,
            signal,
            "the supervisor process crashed: restarting it; the units keep running"
        );
        let due = if self.is_stopping { now } else { now.after(RESTART_DELAY) };
        (self.supervisor, self.due) = (None, Some(due));
        // Pending signals are lost with it; a reload is implied by the restart.
        self.pending = if self.is_stopping { vec![Signal::TERM] } else { Vec::new() };
        None
    }

    fn take_due_restart(&mut self, now: Timestamp) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Handles the result of starting the supervisor. After a failure, schedules another attempt,
    /// because the cause may be temporary, such as a lack of memory. Without these attempts,
    /// process 1 would have to exit, and the kernel would then kill all units.
    fn on_spawn(&mut self, spawned: io::Result<Pid>, now: Timestamp) {
        match spawned {
            Ok(supervisor) => self.supervisor = Some(supervisor),
            Err(error) => {
                tracing::error!(
                    %error,
                    "cannot start the supervisor process: the units run unsupervised until a \
                     retry succeeds"
                );
                self.due = Some(now.after(RESTART_DELAY));
            }
        }
    }
}

/// Returns whether a process has installed handlers for all forwarded signals. Without a handler, a
/// forwarded signal would kill the process. Returns `true` if `/proc` cannot be read.
///
/// This function checks only SIGHUP, because supervisors install its handler last. A signal can be
/// lost if it arrives between the installation of its handler and the first wait for it. For SIGHUP
/// this is harmless: it requests a reload, and a new supervisor has not read its files yet.
fn catches_forwarded(process: Pid) -> bool {
    const LAST: Signal = Signal::HUP;
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    let caught = status.ok().and_then(|status| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(caught.trim(), 16).ok()
    });
    caught.is_none_or(|caught| caught & (1 << (LAST.as_raw() - 1)) != 0)
}

/// Starts the supervisor in a process group of its own. Otherwise Ctrl-C on a terminal would reach
/// the supervisor twice: from the terminal, and forwarded by process 1.
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

/// Reaps all children that have exited. Returns the wait status of `supervisor` if it is among
/// them.
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

/// Maximum time to wait until the killed processes have exited.
const GRACE: Duration = Duration::from_secs(10);

/// Kills all children of this process until none remains, including children that it inherits
/// during this call. Gives up after [`GRACE`].
///
/// `ends` reports that children may have exited; `reap` then collects their exit statuses.
async fn end_orphans(
    ends: &mut unix::Signal,
    clock: &SystemClock,
    mut reap: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let deadline = clock.now().after(GRACE);
    loop {
        let left = children()?;
        if left.is_empty() {
            return Ok(());
        }
        for orphan in &left {
            // It may have exited, but only this process reaps it, so the PID is not reused.
            let _ = kill_process(*orphan, Signal::KILL);
        }
        tokio::select! {
            _ = ends.recv() => {}
            () = clock.sleep_until(deadline) => {
                let processes: Vec<_> = left.iter().map(|pid| pid.as_raw_pid()).collect();
                tracing::warn!(?processes, "SIGKILL did not end all orphans: exiting anyway");
                return Ok(());
            }
        }
        reap()?;
    }
}

/// The children of this process; none on kernels without `CONFIG_PROC_CHILDREN`.
fn children() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        let list = std::fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        let numbers = list.split_ascii_whitespace().filter_map(|number| number.parse().ok());
        found.extend(numbers.filter_map(Pid::from_raw));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    use super::*;

    /// Returns whether this process ignores SIGHUP, as under `nohup`. A shell cannot set a trap for
    /// a signal that was ignored when the shell started.
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
