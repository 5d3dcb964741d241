//! `fleetd`, the daemon. It runs one machine of a cluster, or a whole cluster in one process.

mod cli;
pub(crate) mod config;
mod dev;
mod directories;
mod earlier_manager;
#[cfg(feature = "etcd")]
mod etcd;
mod identity;
mod journals;
mod loop_metrics;
mod machine;
mod notify;
pub(crate) mod offline;
mod other_managers;
mod reload;
mod run;
mod summary;
mod wire_up;

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use clap::Parser as _;

use crate::ui::{error, logging};
use cli::{Action, Cli, ConfigArg};
use reload::ConfigSource;

pub(crate) use self::reload::certificate_warning;

/// Runs the daemon, and returns its exit status.
///
/// | status | meaning |
/// |---|---|
/// | 0 | success, or stopped by a signal |
/// | 1 | the daemon could not start or failed |
/// | 2 | the command line or the configuration is wrong |
#[must_use]
pub fn main() -> ExitCode {
    match perform(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say_error(&error.to_string());
            error.exit_code()
        }
    }
}

fn perform(cli: Cli) -> Result<(), StartError> {
    match cli.action {
        None => {
            let (source, config) = ConfigSource::read(cli.config.file, cli.flags.0)?;
            let level = logging::start(logging::word(config.verbosity));
            block_on(run::run(config, source, level))
        }
        Some(Action::CheckConfig { file }) => {
            let (_, config) = ConfigSource::read(Some(file.clone()), config::RawConfig::new())?;
            reload::load_auth(&config.auth)?;
            wire_up::check_store_files(&config.store)?;
            let certificate = certificate_warning(&config);
            config.warnings.iter().chain(&certificate).for_each(|warning| say(warning));
            say(&format!("{}: no errors", file.display()));
            Ok(())
        }
        Some(Action::AcceptStore(ConfigArg { file })) => {
            let (_, config) = ConfigSource::read(file, config::RawConfig::new())?;
            offline::accept_store(&config)?;
            say(
                "the next fleetd on this machine follows the store that it finds, and stops units \
                 that are not in it: restart fleetd",
            );
            Ok(())
        }
        Some(Action::Dev(args)) => {
            logging::start("warn");
            block_on(dev::run(args))
        }
        Some(Action::Version) => {
            say(&format!("fleetd version {}", env!("CARGO_PKG_VERSION")));
            Ok(())
        }
    }
}

/// Prepares the process's file descriptors for running units.
///
/// - Inherited descriptors become close-on-exec, so that units do not inherit them in turn.
/// - The limit of open files is raised to the hard limit, so that many units can run.
pub(crate) fn prepare_descriptors() {
    if let Err(error) = fleet_agent::native::host::set_cloexec_on_all() {
        tracing::warn!(%error, "cannot set close-on-exec on open files: units inherit the files");
    }
    if let Err(error) = fleet_agent::native::host::raise_file_limit() {
        tracing::warn!(%error, "cannot raise the limit of open files: few units can run");
    }
}

fn block_on(work: impl Future<Output = Result<(), StartError>>) -> Result<(), StartError> {
    prepare_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = Context::context(runtime, || "cannot start the threads of fleetd".to_owned())?;
    runtime.block_on(work)
}

/// Prints a line to standard output. Ignores a closed pipe.
fn say(line: &str) {
    use std::io::Write as _;
    let _unread = writeln!(std::io::stdout(), "{line}").is_err();
}

fn say_error(line: &str) {
    use std::io::Write as _;
    let _unread = writeln!(std::io::stderr(), "fleetd: {line}").is_err();
}

/// A failed action, its cause and the exit status.
#[derive(Debug)]
pub(crate) struct StartError {
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
    status: u8,
}

impl StartError {
    /// Creates an error with a self-explanatory message.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: None, status: 1 }
    }

    /// Creates an error of the command line or the configuration.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { status: 2, ..Self::new(what) }
    }

    /// Creates an error with a cause.
    pub(crate) fn because(
        what: impl Into<String>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { cause: Some(cause.into()), ..Self::new(what) }
    }

    /// Whether the command line or the configuration is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        self.status == 2
    }

    /// Returns the exit status for this error.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl fmt::Display for StartError {
    /// Formats the error with its chain of causes on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.as_deref().map(|cause| cause as &dyn Error);
        f.write_str(&error::in_one_line(&self.what, cause))
    }
}

/// Adds the failed action to an error.
pub(crate) trait Context<T> {
    /// Adds the action, for example `cannot open the store`.
    fn context(self, what: impl FnOnce() -> String) -> Result<T, StartError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Context<T> for Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, StartError> {
        self.map_err(|cause| StartError { what: what(), cause: Some(cause.into()), status: 1 })
    }
}
