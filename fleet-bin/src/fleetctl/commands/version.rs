//! `version`: prints the version of this program and optionally of the daemon.

use serde::Serialize;

use crate::fleetctl::session::context::Context;
use crate::ui::error::CliError;
use crate::ui::output::Record;

/// A program and its version.
#[derive(Debug, Serialize)]
struct Version {
    program: &'static str,
    version: String,
}

impl Record for Version {
    fn name(&self) -> &str {
        &self.version
    }
}

/// Runs the command.
pub(super) async fn run(context: &mut Context, server: bool) -> Result<(), CliError> {
    let own = env!("CARGO_PKG_VERSION").to_owned();
    let mut versions = vec![Version { program: "fleetctl", version: own }];
    if server {
        let version = context.session.daemon().await?.version;
        versions.push(Version { program: "fleetd", version });
    }
    let line = |it: &Version| format!("{} version {}\n", it.program, it.version);
    let text: String = versions.iter().map(line).collect();
    context.output.list(&versions, &text)
}
