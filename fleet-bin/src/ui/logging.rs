//! Logging to standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

/// Environment variable with the log filter, for example `debug` or `fleet_agent=trace`.
const VARIABLE: &str = "FLEET_LOG";

/// Log level, which can be changed at run time.
pub(crate) struct Level(Box<dyn Fn(EnvFilter) + Send + Sync>);

impl Level {
    /// Sets the log level, unless the environment variable is set.
    pub(crate) fn set(&self, verbosity: u8) {
        (self.0)(filter(word(verbosity)));
    }

    fn of<S: 'static>(handle: Handle<EnvFilter, S>) -> Self {
        Self(Box::new(move |filter| {
            let level = filter.to_string();
            if let Err(error) = handle.reload(filter) {
                tracing::warn!(level, %error, "cannot set the log level: keeping the previous one");
            }
        }))
    }
}

/// Returns the log level of a verbosity.
pub(crate) fn word(verbosity: u8) -> &'static str {
    if verbosity > 0 { "debug" } else { "info" }
}

/// Starts logging to standard error at `level`, unless the environment variable sets another
/// filter.
///
/// Lines have no timestamps, because systemd's journal adds them.
pub(crate) fn start(level: &str) -> Level {
    let terminal = std::io::stderr().is_terminal();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(level))
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .without_time()
        .with_target(false)
        // A failure to write the log must not end the process, and could not be reported anyway.
        .log_internal_errors(false)
        .with_filter_reloading();
    let level = Level::of(subscriber.reload_handle());
    subscriber.init();
    level
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(level))
}
