//! Where the daemon's own messages go: standard error, as much as was asked for.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// The variable that chooses what is logged, for example `debug` or `fleet_agent=trace`.
const VARIABLE: &str = "FLEET_LOG";

/// Starts logging at `level`, unless the environment says otherwise.
///
/// Times are left out where a journal adds its own.
pub(crate) fn start(level: &str) {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(level));
    let terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .without_time()
        .with_target(false)
        .init();
}
