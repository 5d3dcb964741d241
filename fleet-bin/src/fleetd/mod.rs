//! `fleetd`, the daemon. It runs one machine of a cluster, or a whole cluster in one process.

mod accept_store;
mod auth_reload;
mod cli;
pub(crate) mod config;
mod dev;
mod directories;
mod earlier_manager;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod host_info;
mod identity;
mod journals;
mod loop_metrics;
mod machine;
mod notify;
pub(crate) mod offline;
mod reload;
mod remote;
mod run;
mod socket_activation;
mod summary;
mod systemd;
mod wire_up;

use std::process::ExitCode;

pub(crate) use self::auth_reload::certificate_warning;
use self::cli::Invocation;
use self::error::StartError;
use self::reload::ConfigSource;
use crate::ui::logging;

/// Runs the daemon, and returns its exit status.
///
/// | status | meaning |
/// |---|---|
/// | 0 | success, or stopped by a signal |
/// | 1 | the daemon could not start or failed |
/// | 2 | the command line or the configuration is wrong |
#[must_use]
pub fn main() -> ExitCode {
    match perform(cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say_error(&error.to_string());
            error.exit_code()
        }
    }
}

fn perform(request: Invocation) -> Result<(), StartError> {
    match request {
        Invocation::Run { file, flags } => {
            let (source, config) = ConfigSource::read(file, flags)?;
            let level = logging::start(logging::word(config.verbosity));
            block_on(run::run(config, source, level))
        }
        Invocation::CheckConfig { file, flags } => {
            let (_, config) = ConfigSource::read(Some(file.clone()), flags)?;
            auth_reload::load(&config.auth)?;
            wire_up::check_store_files(&config.store)?;
            let certificate = certificate_warning(&config);
            config.warnings.iter().chain(&certificate).for_each(|warning| say(warning));
            say(&format!("{}: no errors", file.display()));
            Ok(())
        }
        Invocation::AcceptStore { file } => {
            let (_, config) = ConfigSource::read(file, config::RawConfig::new())?;
            accept_store::run(&config)?;
            say(
                "the next fleetd on this machine follows the store that it finds, and stops units \
                 that are not in it: restart fleetd",
            );
            Ok(())
        }
        Invocation::Dev(args) => {
            logging::start("warn");
            block_on(dev::run(args))
        }
        Invocation::Version => {
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
    if let Err(error) = fleet_agent::set_cloexec_on_all() {
        tracing::warn!(%error, "cannot set close-on-exec on open files: units inherit the files");
    }
    if let Err(error) = fleet_agent::raise_file_limit() {
        tracing::warn!(%error, "cannot raise the limit of open files: few units can run");
    }
}

fn block_on(work: impl Future<Output = Result<(), StartError>>) -> Result<(), StartError> {
    prepare_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        error::Context::context(runtime, || "cannot start the threads of fleetd".to_owned())?;
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
