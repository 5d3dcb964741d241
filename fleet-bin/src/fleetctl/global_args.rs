//! The command line's options that every command takes, those of fleet v1 among them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct GlobalArgs {
    /// Where the daemon listens: unix:///path, https://host:port or http://host:port
    /// [default: unix:///run/fleet.sock]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) endpoint: Option<String>,

    /// How results are printed: table, json, jsonl (a document a line) or name [default: table]
    #[arg(short, long, global = true, value_name = "FORMAT", hide_possible_values = true)]
    pub(crate) output: Option<Format>,

    /// Tell on standard error what is asked of the daemon.
    #[arg(long, global = true)]
    pub(crate) debug: bool,

    /// Reach the daemon through ssh to this host; --endpoint is then the one over there.
    #[arg(long, global = true, value_name = "HOST[:PORT]")]
    pub(crate) tunnel: Option<String>,

    #[command(flatten)]
    pub(crate) access: AccessArgs,

    #[command(flatten)]
    pub(crate) old: OldArgs,
}

/// What it takes to be let in by a daemon, and to know it for the right one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct AccessArgs {
    /// The authority of the daemon's certificate, as PEM [default: those that this computer trusts]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,

    /// The certificate to show to the daemon, as PEM.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cert_file: Option<PathBuf>,

    /// The private key of that certificate, as PEM.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// A file of mode 0600 whose first token is shown to the daemon.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Take whoever answers for the daemon: anybody on the way can read and change everything.
    #[arg(long, global = true)]
    pub(crate) insecure_skip_tls_verify: bool,
}

/// Options of fleet v1. Those about ssh are handed to it, some have nothing left to do, and the
/// others are refused with what to do instead.
#[derive(Debug, Clone, Args)]
pub(crate) struct OldArgs {
    #[arg(long, global = true, hide = true)]
    pub(crate) driver: Option<String>,
    #[arg(long, global = true, hide = true)]
    etcd_key_prefix: Option<String>,
    #[arg(long, global = true, hide = true)]
    request_timeout: Option<String>,
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true)]
    experimental_api: Option<Option<String>>,
    #[arg(long, global = true, hide = true)]
    pub(crate) ssh_username: Option<String>,
    #[arg(long, global = true, hide = true)]
    pub(crate) ssh_timeout: Option<String>,
    #[arg(long, global = true, hide = true)]
    pub(crate) known_hosts_file: Option<String>,
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true)]
    pub(crate) strict_host_key_checking: Option<Option<String>>,
}

impl OldArgs {
    /// What the command line leaves open is taken from variables, as fleet v1 took it.
    pub(crate) fn or_of(mut self, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let strict = &mut self.strict_host_key_checking;
        *strict = strict.take().or_else(|| variable("FLEETCTL_STRICT_HOST_KEY_CHECKING").map(Some));
        for (option, name) in [
            (&mut self.driver, "FLEETCTL_DRIVER"),
            (&mut self.ssh_username, "FLEETCTL_SSH_USERNAME"),
            (&mut self.ssh_timeout, "FLEETCTL_SSH_TIMEOUT"),
            (&mut self.known_hosts_file, "FLEETCTL_KNOWN_HOSTS_FILE"),
        ] {
            *option = option.take().or_else(|| variable(name));
        }
        self
    }
}

/// How results are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    #[value(alias = "short")]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
    /// Names only, one a line.
    Name,
}
