//! `fleetd`, the daemon, and its command line. It runs one machine of a cluster, or a whole cluster
//! in one process.

pub(crate) mod config;
mod dev;
mod directories;
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
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, value_parser};

use crate::fleetd::config::{
    DEV_KEYS, KEYS, Key, KeyStatus, RawConfig, RawEntry, RawValue, ValueOrigin,
};
use crate::ui::{error, logging};
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
            let (_, config) = ConfigSource::read(Some(file.clone()), RawConfig::new())?;
            reload::load_auth(&config.auth)?;
            wire_up::check_store_files(&config.store)?;
            let certificate = certificate_warning(&config);
            config.warnings.iter().chain(&certificate).for_each(|warning| say(warning));
            say(&format!("{}: no errors", file.display()));
            Ok(())
        }
        Some(Action::AcceptStore(ConfigArg { file })) => {
            let (_, config) = ConfigSource::read(file, RawConfig::new())?;
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
    if let Err(error) = fleet_agent::native::linux::set_cloexec_on_all() {
        tracing::warn!(%error, "cannot set close-on-exec on open files: units inherit the files");
    }
    if let Err(error) = fleet_agent::native::linux::raise_file_limit() {
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

/// Runs the units of a fleet cluster on this machine
#[derive(Debug, Parser)]
#[command(name = "fleetd", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) config: ConfigArg,
    #[command(flatten)]
    pub(crate) flags: Flags,
    #[command(subcommand)]
    pub(crate) action: Option<Action>,
}

/// The option for a configuration file.
#[derive(Debug, Args)]
pub(crate) struct ConfigArg {
    /// Read the configuration from FILE [default: /etc/fleet/fleet.conf]
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// An action other than running on this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run a whole cluster in this process, without root, systemd or etcd
    ///
    /// The cluster has an embedded store, an engine, and several machines whose units are real
    /// processes. Ctrl-C stops it and its units.
    Dev(DevArgs),
    /// Check a configuration file without running
    CheckConfig {
        /// Configuration file to check, such as /etc/fleet/fleet.conf
        file: PathBuf,
    },
    /// Let this machine follow another store than before
    ///
    /// The other store may be new and empty. A daemon that finds another store leaves its units
    /// running and does nothing else. After this command and a restart of the daemon, it follows
    /// the store that it finds, and stops all units that are not in it.
    AcceptStore(ConfigArg),
    /// Print the version
    Version,
}

/// Arguments of `fleetd dev`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DevArgs {
    /// Number of machines, from 1 to 1000
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = value_parser!(u16).range(1..=1000)
    )]
    pub(crate) machines: u16,
    /// Address of the API [default: a unix socket in the data directory]
    #[arg(long, value_name = "URL")]
    pub(crate) listen: Vec<String>,
    /// Directory for the cluster's files [default: fleet/dev in your state directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) native: NativeFlags,
    /// Unit files to launch, or directories of unit files
    #[arg(value_name = "UNIT-FILE")]
    pub(crate) units: Vec<PathBuf>,
}

/// One flag for each configuration key.
pub(crate) type Flags = KeyFlags<false>;

/// One flag for each configuration key that `fleetd dev` has too.
pub(crate) type NativeFlags = KeyFlags<true>;

/// Flags for configuration keys: all, or those of `fleetd dev`.
#[derive(Debug, Clone)]
pub(crate) struct KeyFlags<const DEV: bool>(pub(crate) RawConfig);

impl<const DEV: bool> KeyFlags<DEV> {
    fn keys() -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(|key| !DEV || DEV_KEYS.contains(&key.name))
    }
}

impl<const DEV: bool> Args for KeyFlags<DEV> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::keys().map(|key| {
            Arg::new(key.name)
                .long(key.flag())
                .alias(key.name)
                .value_name(key.value)
                .help(format!("{} [env: {}]", key.help, key.variable()))
                .hide(matches!(key.status, KeyStatus::Obsolete(_)))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const DEV: bool> FromArgMatches for KeyFlags<DEV> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = Self::keys().filter_map(|key| {
            let raw = RawValue::Text(matches.get_one::<String>(key.name)?.clone());
            Some((key.name, RawEntry { raw, origin: ValueOrigin::Flag(key.flag()) }))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
