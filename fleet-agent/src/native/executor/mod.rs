//! The program between the supervisor and a confined process of a unit.
//!
//! A child of the supervisor may only make system calls between its birth and its exec, because it
//! is a copy of one thread. Mount namespaces, capabilities and filters of system calls need more
//! than that. So the supervisor executes its own program again, which calls [`run_if_invoked`]
//! first. This executor is a process with one thread. It reads an [`ExecPlan`] from its standard
//! input, confines itself, and executes the program of the unit. systemd does the same.
//!
//! | module | topic |
//! |---|---|
//! | `plan` | the steps, as data that the supervisor sends |
//! | `sandbox`, `filters` | a unit's sandbox to steps; runs in the supervisor |
//! | `steps`, `mounts`, `network` | carrying out the steps; runs in the executor |
//! | `users`, `keyring` | user namespaces and session keyrings; runs in the executor |
//! | `syscalls` | system calls that no library in use offers |

pub(in crate::native) mod filters;
mod keyring;
pub(in crate::native) mod mounts;
mod network;
pub(in crate::native) mod plan;
pub(in crate::native) mod sandbox;
mod steps;
mod syscalls;
mod users;

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plan::{ExecFailure, ExecPlan};

/// The name under which the executor runs.
pub(in crate::native) const NAME: &str = "fleet-executor";

/// The program that confines processes before it executes the programs of units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executor {
    program: PathBuf,
}

impl Executor {
    /// Uses this program, which must call [`run_if_invoked`] before anything else. The program file
    /// may be replaced while it runs.
    #[must_use]
    pub fn current_program() -> Self {
        Self { program: PathBuf::from("/proc/self/exe") }
    }

    /// Uses another program that calls [`run_if_invoked`] before anything else.
    #[must_use]
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Returns the path of the program.
    pub(in crate::native) fn program(&self) -> &Path {
        &self.program
    }
}

/// Confines this process and executes the program of a unit, if a supervisor has started this
/// process as its executor. Otherwise returns at once. Call it first in `main`, before the process
/// has threads.
pub fn run_if_invoked() {
    if std::env::args_os().next().as_deref() != Some(OsStr::new(NAME)) {
        return;
    }
    let failure = match receive() {
        Ok((connection, plan)) => {
            // The supervisor may be gone. Then the report has no reader.
            let ready = || drop((&connection).write_all(&[READY]));
            let failure = steps::execute(&plan, ready);
            drop(serde_json::to_writer(&connection, &failure));
            failure
        }
        Err(error) => ExecFailure::new(plan::EXIT_EXEC, "read the steps of its executor", &error),
    };
    std::process::exit(failure.code);
}

/// Reads the plan, and replaces the standard input by an empty one.
fn receive() -> io::Result<(UnixStream, ExecPlan)> {
    let mut connection = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    let mut text = Vec::new();
    connection.read_to_end(&mut text)?;
    Ok((connection, serde_json::from_slice(&text)?))
}

/// First byte of the report of an executor, which the description of a failure may follow. It is
/// sent before the last steps. Without it, the executor has ended during its set-up.
const READY: u8 = b'\n';

/// Sends the plan to an executor. Returns once it has executed the program of the unit, with the
/// failure if it could not. A failed executor may still be running: it may wait for a file system
/// whose server is gone. Each step of the connection may take `patience`.
pub(in crate::native) fn command(
    connection: &mut UnixStream,
    plan: &ExecPlan,
    patience: Duration,
) -> Option<ExecFailure> {
    let mut report = Vec::new();
    let mut exchange = || -> io::Result<()> {
        // The system has no timeout of zero.
        let patience = Some(patience.max(Duration::from_millis(1)));
        connection.set_write_timeout(patience)?;
        connection.set_read_timeout(patience)?;
        connection.write_all(&serde_json::to_vec(plan)?)?;
        connection.shutdown(Shutdown::Write)?;
        connection.read_to_end(&mut report).map(drop)
    };
    let exchanged = exchange();
    let lost = |step: String| ExecFailure { code: plan::EXIT_EXEC, step, errno: 0 };
    match exchanged {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let program = plan.arguments.first().map_or("", String::as_str);
            let seconds = patience.as_secs();
            Some(lost(format!("run {program}: the set-up took longer than {seconds} s")))
        }
        Ok(()) if report == [READY] => None,
        // The executor may end before it has read the plan.
        _ => Some(serde_json::from_slice(&report).unwrap_or_else(|_| {
            lost("set up its process: the executor ended before the program began".to_owned())
        })),
    }
}
