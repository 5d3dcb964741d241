//! Where the daemon's own messages go: standard error, as much as was asked for.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

/// The variable that chooses what is logged, for example `debug` or `fleet_agent=trace`.
const VARIABLE: &str = "FLEET_LOG";

/// How much is logged, which can be changed while the daemon runs.
pub(crate) struct Level(Box<dyn Fn(EnvFilter) + Send + Sync>);

impl Level {
    /// Logs so much from now on, unless the environment says otherwise.
    pub(crate) fn set(&self, verbosity: u8) {
        (self.0)(filter(word(verbosity)));
    }

    fn of<S: 'static>(handle: Handle<EnvFilter, S>) -> Self {
        Self(Box::new(move |filter| {
            if let Err(error) = handle.reload(filter) {
                tracing::warn!(%error, "cannot change how much is logged");
            }
        }))
    }
}

/// The level that a verbosity stands for.
pub(crate) fn word(verbosity: u8) -> &'static str {
    if verbosity > 0 { "debug" } else { "info" }
}

/// Starts logging at `level`, unless the environment says otherwise.
///
/// Times are left out where a journal adds its own.
pub(crate) fn start(level: &str) -> Level {
    let terminal = std::io::stderr().is_terminal();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(level))
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .without_time()
        .with_target(false)
        // A log that cannot be written is to end nobody: that could only be told by writing.
        .log_internal_errors(false)
        .with_filter_reloading();
    let level = Level::of(subscriber.reload_handle());
    subscriber.init();
    level
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(level))
}
