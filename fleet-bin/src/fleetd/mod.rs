//! `fleetd`, the daemon: one machine's part of a cluster, or a whole cluster in one process.

mod cli;
pub(crate) mod config;
mod counters;
mod dev;
mod doors;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod facts;
mod handed_over;
mod identity;
mod journals;
pub(crate) mod logging;
mod machine;
mod notify;
pub(crate) mod offline;
mod reload;
mod remote;
mod run;
mod summary;
mod systemd;
mod wire_up;

use std::process::ExitCode;

use self::cli::Request;
use self::error::StartError;
use self::reload::Source;

/// Does what the command line asks; the result is the process's exit status.
///
/// | status | meaning |
/// |---|---|
/// | 0 | done, or ended by a signal that asks for it |
/// | 1 | it could not start or go on |
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

fn perform(request: Request) -> Result<(), StartError> {
    match request {
        Request::Run { file, flags } => {
            let (source, config) = Source::read(file, flags)?;
            let level = logging::start(logging::word(config.verbosity));
            block_on(run::run(config, source, level))
        }
        Request::CheckConfig { file, flags } => {
            let (_, config) = Source::read(Some(file.clone()), flags)?;
            doors::load(&config.doors)?;
            config.remarks.iter().for_each(|remark| say(remark));
            say(&format!("{}: no errors", file.display()));
            Ok(())
        }
        Request::Dev(args) => {
            logging::start("warn");
            block_on(dev::run(args))
        }
        Request::Version => {
            say(&format!("fleetd version {}", env!("CARGO_PKG_VERSION")));
            Ok(())
        }
    }
}

/// Units have nothing of what whoever started this program left open, and as many of them run as
/// the hard limit of open files allows.
pub(crate) fn see_to_descriptors() {
    if let Err(error) = fleet_agent::set_cloexec_on_all() {
        tracing::warn!(%error, "units get the files that this program was started with");
    }
    if let Err(error) = fleet_agent::raise_file_limit() {
        tracing::warn!(%error, "few units can run: cannot raise the limit of open files");
    }
}

fn block_on(work: impl Future<Output = Result<(), StartError>>) -> Result<(), StartError> {
    see_to_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = error::Context::context(runtime, || "cannot start".to_owned())?;
    runtime.block_on(work)
}

/// Prints a line for the person at the terminal; one who no longer reads is no error.
fn say(line: &str) {
    use std::io::Write as _;
    let _unread = writeln!(std::io::stdout(), "{line}").is_err();
}

fn say_error(line: &str) {
    use std::io::Write as _;
    let _unread = writeln!(std::io::stderr(), "fleetd: {line}").is_err();
}
