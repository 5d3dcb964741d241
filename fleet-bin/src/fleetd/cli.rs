//! Command line of the daemon.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::config::{KEYS, KeyStatus, RawConfig, RawEntry, RawValue, ValueOrigin};

/// A parsed command line.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// Run on this machine.
    Run { file: Option<PathBuf>, flags: RawConfig },
    /// Check a configuration file.
    CheckConfig { file: PathBuf, flags: RawConfig },
    /// Let this machine follow another store.
    AcceptStore { file: Option<PathBuf> },
    /// Run a whole cluster in this process.
    Dev(DevArgs),
    /// Print the version.
    Version,
}

/// Arguments of `fleetd dev`.
#[derive(Debug, Clone)]
pub(crate) struct DevArgs {
    pub(crate) machines: u16,
    pub(crate) listen: Vec<String>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) units: Vec<PathBuf>,
}

/// Parses the command line. Usage errors exit with status 2.
pub(crate) fn parse() -> Invocation {
    invocation(command().get_matches())
}

/// Returns the definition of the command line, for parsing and for tests.
pub(crate) fn command() -> Command {
    Command::new("fleetd")
        .about("Runs the units of a fleet cluster on this machine")
        .version(env!("CARGO_PKG_VERSION"))
        .args_conflicts_with_subcommands(true)
        .arg(config())
        .args(KEYS.iter().map(|key| {
            Arg::new(key.name)
                .long(key.flag())
                .alias(key.name)
                .value_name(key.value)
                .help(format!("{} [env: {}]", key.help, key.variable()))
                .hide(matches!(key.status, KeyStatus::Obsolete(_)))
        }))
        .subcommand(dev())
        .subcommand(check_config())
        .subcommand(accept_store())
        .subcommand(Command::new("version").about("Print the version"))
}

fn dev() -> Command {
    Command::new("dev")
        .about("Run a whole cluster in this process, without root, systemd or etcd")
        .long_about(
            "Run a whole cluster in this process: an embedded store, an engine, and several \
             machines whose units are real processes. Needs no root, systemd or etcd. Ctrl-C \
             stops it and its units.",
        )
        .arg(
            Arg::new("machines")
                .long("machines")
                .value_name("N")
                .default_value("3")
                .value_parser(value_parser!(u16).range(1..=1000))
                .help("Number of machines, from 1 to 1000"),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("URL")
                .action(ArgAction::Append)
                .help("Address of the API [default: a unix socket in the data directory]"),
        )
        .arg(
            Arg::new("data-dir")
                .long("data-dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help(
                    "Directory for the cluster's files \
                     [default: fleet/dev in your state directory]",
                ),
        )
        .arg(
            Arg::new("units")
                .value_name("UNIT-FILE")
                .num_args(0..)
                .value_parser(value_parser!(PathBuf))
                .help("Unit files to launch, or directories of unit files"),
        )
}

fn config() -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Read the configuration from FILE [default: /etc/fleet/fleet.conf]")
}

fn accept_store() -> Command {
    Command::new("accept-store")
        .about("Let this machine follow another store than before")
        .long_about(
            "Let this machine follow another store than before, such as a new and empty one. A \
             daemon that finds another store leaves its units running and does nothing else. After \
             this command and a restart of the daemon, it follows the store that it finds, and \
             stops all units that are not in it.",
        )
        .arg(config())
}

fn check_config() -> Command {
    Command::new("check-config").about("Check a configuration file without running").arg(
        Arg::new("file")
            .value_name("FILE")
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("Configuration file to check, such as /etc/fleet/fleet.conf"),
    )
}

fn invocation(matches: ArgMatches) -> Invocation {
    match matches.subcommand() {
        Some(("dev", dev)) => Invocation::Dev(DevArgs {
            machines: dev.get_one("machines").copied().unwrap_or(3),
            listen: dev.get_many("listen").unwrap_or_default().cloned().collect(),
            data_dir: dev.get_one("data-dir").cloned(),
            units: dev.get_many("units").unwrap_or_default().cloned().collect(),
        }),
        Some(("check-config", check)) => Invocation::CheckConfig {
            file: check.get_one("file").cloned().unwrap_or_default(),
            flags: RawConfig::new(),
        },
        Some(("accept-store", accept)) => {
            Invocation::AcceptStore { file: accept.get_one("config").cloned() }
        }
        Some(("version", _)) => Invocation::Version,
        _ => Invocation::Run { file: matches.get_one("config").cloned(), flags: flags(&matches) },
    }
}

fn flags(matches: &ArgMatches) -> RawConfig {
    let given = KEYS.iter().filter_map(|key| {
        let raw = RawValue::Text(matches.get_one::<String>(key.name)?.clone());
        Some((key.name, RawEntry { raw, origin: ValueOrigin::Flag(key.flag()) }))
    });
    given.collect()
}
