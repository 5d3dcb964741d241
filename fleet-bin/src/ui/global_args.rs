//! Global options, including those of fleet v1.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Global options.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Address of the daemon: unix:///path, https://host:port or http://host:port
    /// [default: unix:///run/fleet.sock]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) endpoint: Option<String>,

    /// Output format: table, json, jsonl (one document per line) or name [default: table]
    #[arg(short, long, global = true, value_name = "FORMAT", hide_possible_values = true)]
    pub(crate) output: Option<Format>,

    /// Log requests to the daemon on standard error.
    #[arg(long, global = true)]
    pub(crate) debug: bool,

    /// Reach the daemon through ssh on HOST; --endpoint is then an address on HOST.
    #[arg(long, global = true, value_name = "HOST[:PORT]")]
    pub(crate) tunnel: Option<String>,

    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,

    #[command(flatten)]
    pub(crate) old: V1Args,
}

/// Options to authenticate to the daemon, and to verify it.
#[derive(Debug, Args)]
pub(crate) struct CredentialArgs {
    /// CA certificates to verify the daemon with, as PEM [default: those of the system]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,

    /// Client certificate to present to the daemon, as PEM.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cert_file: Option<PathBuf>,

    /// Private key of the client certificate, as PEM.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// File of mode 0600 with an access token; its first token is sent to the daemon.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Do not verify the daemon's certificate. Insecure: a man in the middle can read and change
    /// everything.
    #[arg(long, global = true)]
    pub(crate) insecure_skip_tls_verify: bool,
}

/// Options of fleet v1.
///
/// - The options for ssh are passed to `ssh`.
/// - `--driver` must be `API`, because fleetctl always uses the API.
/// - All others have no effect.
#[derive(Debug, Clone, Args)]
pub(crate) struct V1Args {
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

impl V1Args {
    /// Takes missing options from environment variables, as in fleet v1.
    pub(crate) fn or_from_env(mut self, variable: &dyn Fn(&str) -> Option<String>) -> Self {
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

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    #[default]
    #[value(aliases = ["short", "cat"])]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document per line.
    Jsonl,
    /// Names only, one per line.
    Name,
}

/// Name of the socket in the data directory.
pub(crate) const SOCKET: &str = "fleet.sock";

/// Returns the default data directory: `fleet/dev` in the user's state directory.
///
/// `variable` looks up environment variables. The result is `None` if neither `XDG_STATE_HOME` nor
/// `HOME` is set.
pub(crate) fn default(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || Some(path("HOME")?.join(".local/state"));
    Some(path("XDG_STATE_HOME").or_else(home)?.join("fleet/dev"))
}
