//! Command line of the daemon.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, value_parser};

use super::config::{KEYS, KeyStatus, RawConfig, RawEntry, RawValue, ValueOrigin};

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
    /// Unit files to launch, or directories of unit files
    #[arg(value_name = "UNIT-FILE")]
    pub(crate) units: Vec<PathBuf>,
}

/// One flag for each configuration key.
#[derive(Debug)]
pub(crate) struct Flags(pub(crate) RawConfig);

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        command.args(KEYS.iter().map(|key| {
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

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = KEYS.iter().filter_map(|key| {
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
