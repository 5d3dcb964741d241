//! Shared state of a running command.

use std::io;

use fleet_agent::SystemClock;

use super::Session;
use super::ssh::Ssh;
use crate::fleetctl::progress::Progress;
use crate::ui::output::Output;

/// Session, outputs and clock of a running command.
pub(crate) struct Context {
    /// Connection to the cluster.
    pub(crate) session: Session,
    /// Prints results.
    pub(crate) output: Output<io::Stdout>,
    /// Prints progress and notices.
    pub(crate) progress: Progress<io::Stderr>,
    /// Settings for running `ssh`.
    pub(crate) ssh: Ssh,
    /// Clock for timeouts and pauses.
    pub(crate) clock: SystemClock,
}
