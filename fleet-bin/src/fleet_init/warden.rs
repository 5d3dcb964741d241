//! The first process of a container: reaps what nobody waits for, and watches over the fleet-init
//! that runs the units.
//!
//! Whoever runs units waits for their processes one by one, and whoever reaps orphans takes any
//! that has ended. In one process each would take from the other, so these are two. The second one
//! may break off: its units are then children of the first, run on, and are taken back.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};
use std::time::Duration;

use fleet_agent::{Clock as _, SystemClock};
use fleet_core::Timestamp;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::fleetctl::error::CliError;

/// The variable by which the second process knows that it is not the first.
const WATCHED: &str = "FLEET_INIT_WATCHED";

/// How long to wait before a fleet-init that broke off is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// What is handed on to the one that runs the units.
const PASSED_ON: [(SignalKind, Signal); 3] = [
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::hangup(), Signal::HUP),
];

/// Whether this process is the first of a container, or is to be like one.
pub(super) fn is_needed(reap: bool) -> bool {
    let is_watched = std::env::var_os(WATCHED).is_some();
    !is_watched && (reap || rustix::process::getpid().is_init())
}

/// Runs this program once more with these arguments, until it ends by itself or is told to.
pub(super) fn run(args: &[OsString]) -> Result<ExitCode, CliError> {
    let cannot = |error: io::Error| CliError::failed("cannot watch over processes").because(error);
    if !rustix::process::getpid().is_init() {
        let own = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(own)).map_err(|error| cannot(error.into()))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(cannot)?.block_on(watch(args)).map_err(cannot)
}

async fn watch(args: &[OsString]) -> io::Result<ExitCode> {
    let mut children = signal(SignalKind::child())?;
    let mut signals = Vec::new();
    for (kind, what) in PASSED_ON {
        signals.push((signal(kind)?, what));
    }
    let clock = SystemClock::start();
    // None from the moment on in which it was waited for: its number may be another's then.
    let mut watched = Some(begin(args)?);
    let mut is_ending = false;
    let mut due: Option<Timestamp> = None;
    loop {
        let wake = async {
            match due {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = children.recv() => {}
            what = next(&mut signals) => {
                is_ending |= what != Signal::HUP;
                if due.is_some() && is_ending {
                    return Ok(ExitCode::FAILURE); // between one that broke off and the next
                }
                // One that has just ended is seen below.
                let _gone = watched.map(|watched| kill_process(watched, what));
            }
            () = wake => {
                due = None;
                watched = Some(begin(args)?);
            }
        }
        match reap(watched)? {
            None => {}
            Some(ended) if ended.exit_status().is_none() && !is_ending => {
                watched = None;
                due = Some(clock.now().after(PAUSE));
            }
            Some(ended) => {
                let status = ended.exit_status().and_then(|status| u8::try_from(status).ok());
                return Ok(ExitCode::from(status.unwrap_or(1)));
            }
        }
    }
}

/// Starts the one that runs the units, in a process group of its own: what a terminal sends to the
/// first one's is passed on once.
fn begin(args: &[OsString]) -> io::Result<Pid> {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new("/proc/self/exe");
    // People who list processes look for the name that they know.
    let name = std::env::args_os().next().unwrap_or_else(|| "fleet-init".into());
    command.arg0(name).args(args).env(WATCHED, "1").process_group(0);
    // It is waited for with all others, not by its handle.
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
