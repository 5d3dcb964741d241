//! What every command works with.

use std::io;

use fleet_agent::SystemClock;

use super::output::Output;
use super::progress::Progress;
use super::session::Session;
use super::ssh::Ssh;

/// What every command works with: the cluster, and the two ways to a person.
pub(crate) struct Context {
    /// Asks the cluster.
    pub(crate) session: Session,
    /// Prints results.
    pub(crate) output: Output<io::Stdout>,
    /// Tells of what goes on.
    pub(crate) progress: Progress<io::Stderr>,
    /// How ssh is called.
    pub(crate) ssh: Ssh,
    /// Measures how long is waited.
    pub(crate) clock: SystemClock,
}
