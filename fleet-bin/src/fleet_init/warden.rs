//! The first process of a container: reaps what nobody waits for, and watches over the fleet-init
//! that runs the units.
//!
//! Whoever runs units waits for their processes one by one, and whoever reaps orphans takes any
//! that has ended. In one process each would take from the other, so these are two. The second one
//! may break off: its units are then children of the first, run on, and are taken back.

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

/// The variable by which the second process knows that it is not the first.
const WATCHED: &str = "FLEET_INIT_WATCHED";

/// How long to wait before a fleet-init that broke off is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long to wait before looking again whether one that was begun listens to signals.
const LOOK: Duration = Duration::from_millis(10);

/// What is handed on to the one that runs the units.
const PASSED_ON: [(SignalKind, Signal); 4] = [
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::hangup(), Signal::HUP),
];

/// Whether this process is the first of a container, or is to be like one.
pub(super) fn is_needed(reap: bool) -> bool {
    let is_watched = std::env::var_os(WATCHED).is_some();
    !is_watched && (reap || rustix::process::getpid().is_init())
}

/// Runs this program once more with these arguments, until it ends by itself or is told to. Its
/// files are in that directory.
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
            // Where it was not told to end, its units may be taken back by another.
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

/// What the first process knows of the second.
struct Warden {
    /// None from the moment on in which it was waited for: its number may be another's then.
    watched: Option<Pid>,
    is_ending: bool,
    /// Signals that it is to be sent as soon as it listens to all that it may be sent.
    owed: Vec<Signal>,
    /// When the next one is to be begun.
    due: Option<Timestamp>,
}

impl Warden {
    /// Takes a signal to be passed on. Where one is to be begun, the end does not wait for it: the
    /// units of the one before run still, and are to be ended.
    fn take(&mut self, what: Signal) {
        self.owed.push(what);
        if what != Signal::HUP {
            self.is_ending = true;
            self.due = self.due.map(|_| Timestamp::from_millis(0));
        }
    }

    /// Passes on what the second process would not end of.
    fn pass_on(&mut self) {
        let Some(watched) = self.watched.filter(|_| !self.owed.is_empty()) else { return };
        if listens(watched) {
            // One that has just ended is seen below.
            self.owed.retain(|what| kill_process(watched, *what).is_err());
        }
    }

    /// When to look again if nothing happens.
    fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let look = self.watched.filter(|_| !self.owed.is_empty()).map(|_| now.after(LOOK));
        self.due.into_iter().chain(look).min()
    }

    /// Takes note of how the second process ended: with what this one ends, unless it broke off and
    /// is begun again.
    fn ended(&mut self, status: WaitStatus, now: Timestamp) -> Option<ExitCode> {
        if status.exit_status().is_some() {
            let status = status.exit_status().and_then(|status| u8::try_from(status).ok());
            return Some(ExitCode::from(status.unwrap_or(1)));
        }
        // This waits for whoever reads the log, as those who write much to it do long before.
        let process = self.watched.map(Pid::as_raw_pid);
        let signal = status.terminating_signal();
        tracing::warn!(process, signal, "what runs the units broke off; another is started");
        let due = if self.is_ending { now } else { now.after(PAUSE) };
        (self.watched, self.due) = (None, Some(due));
        // What it was told has gone with it. Files are read anyhow.
        self.owed = if self.is_ending { vec![Signal::TERM] } else { Vec::new() };
        None
    }

    fn is_to_begin(&mut self, now: Timestamp) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Takes note of whether one was begun. What kept it from that, such as memory that somebody
    /// else has, may be over a moment later; were this process to end, so would all units.
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

/// Whether a process listens to all that is passed on; one that has just been begun would end of
/// it. Where that cannot be seen, it does.
///
/// A signal that comes in the very moment in which a process begins to listen to it may be lost:
/// it is caught before anybody hears of it. So this looks for the last one that it begins to listen
/// to, as those do that are watched; were that lost, it has yet to read its files.
fn listens(process: Pid) -> bool {
    const LAST: Signal = Signal::HUP;
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    let caught = status.ok().and_then(|status| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(caught.trim(), 16).ok()
    });
    caught.is_none_or(|caught| caught & (1 << (LAST.as_raw() - 1)) != 0)
}

/// Starts the one that runs the units, in a process group of its own: what a terminal sends to the
/// first one's is passed on once.
fn begin(args: &[OsString]) -> io::Result<Pid> {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new("/proc/self/exe");
    // People who list processes look for the name that they know.
    let name = std::env::args_os().next().unwrap_or_else(|| "fleet-init".into());
    command.arg0(name).args(args).env(WATCHED, "1").process_group(0);
    // It is waited for with all others, not by its handle. Once this returns it runs its program,
    // so that the signals which it catches are its own.
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// The next signal to be passed on.
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

/// Reaps all that has ended; how the watched one did, if it is among them.
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

    /// A shell traps no signal that it was begun without, as by `nohup`.
    fn ignores_hangups() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 != 0
    }

    /// One that was told to end as soon as it caught that signal went on now and then.
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
