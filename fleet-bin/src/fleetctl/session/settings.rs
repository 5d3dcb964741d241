//! Settings from the command line and the environment, validated and with defaults.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

use super::credentials::CredentialFiles;
use super::ssh::Ssh;
use crate::fleetctl::args::WaitArgs;
use crate::ui::error::CliError;
use crate::ui::global_args;
use crate::ui::global_args::{Format, GlobalArgs, V1Args};

/// Default socket of a daemon.
const DEFAULT_SOCKET: &str = "/run/fleet.sock";

/// Default time limit of a wait. systemd gives a unit 90 seconds to start or stop, and this limit
/// is longer, so that the wait lasts until the result.
const DEFAULT_WAIT: Duration = Duration::from_secs(100);

/// Duration of an attempt in `--block-attempts` of fleet v1.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Looks up an environment variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Settings of all commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Endpoint of the daemon, not parsed yet.
    pub(crate) endpoint: String,
    /// Credentials for the daemon.
    pub(crate) credentials: CredentialFiles,
    /// Output format.
    pub(crate) format: Format,
    /// Whether to log requests to the daemon.
    pub(crate) debug: bool,
    /// Settings for `ssh`, and the host of the tunnel.
    pub(crate) ssh: Ssh,
    /// Default socket of `fleetd dev`, if the endpoint is the default one.
    dev_socket: Option<PathBuf>,
}

impl Settings {
    /// Takes each value from the command line, or else from the environment, or else uses the
    /// default.
    ///
    /// An empty environment variable counts as unset.
    pub(crate) fn new(args: &GlobalArgs, environment: Environment<'_>) -> Result<Self, CliError> {
        let variable = |name: &str| {
            let value = environment(name)?.to_string_lossy().into_owned();
            (!value.is_empty()).then_some(value)
        };
        let old = args.old.clone().or_from_env(&variable);
        refuse_v1(&old)?;
        let credentials = CredentialFiles::new(&args.credentials, &variable);
        let endpoint = args.endpoint.clone().or_else(|| variable("FLEETCTL_ENDPOINT"));
        let format = match (args.output, variable("FLEETCTL_OUTPUT")) {
            (Some(format), _) => format,
            (None, Some(word)) => format_named(&word)?,
            (None, None) => Format::default(),
        };
        let debug = args.debug || variable("FLEETCTL_DEBUG").is_some_and(|text| is_yes(&text));
        let tunnel = args.tunnel.clone().or_else(|| variable("FLEETCTL_TUNNEL"));
        let ssh = Ssh::new(&old, tunnel.filter(|host| !host.is_empty()))?;
        let is_default = endpoint.is_none() && ssh.tunnel().is_none();
        let dev_directory = global_args::default(environment).filter(|_| is_default);
        let dev_socket = dev_directory.map(|it| it.join(global_args::SOCKET));
        let default = || default_endpoint(dev_socket.as_deref(), Path::new(DEFAULT_SOCKET));
        let endpoint = endpoint.unwrap_or_else(default);
        Ok(Self { endpoint, credentials, format, debug, ssh, dev_socket })
    }

    /// Returns the hint to use the socket of `fleetd dev`, if it exists, no endpoint is set, and
    /// another daemon has the default socket.
    pub(crate) fn dev_hint(&self) -> Option<String> {
        let socket = self.dev_socket.as_ref().filter(|path| path.exists())?;
        let endpoint = format!("unix://{}", socket.display());
        let is_other = endpoint != self.endpoint;
        is_other.then(|| format!("for \"fleetd dev\", run \"export FLEETCTL_ENDPOINT={endpoint}\""))
    }
}

/// Returns the endpoint of the daemon of this host, or else of its `fleetd dev`.
fn default_endpoint(dev_socket: Option<&Path>, socket: &Path) -> String {
    let dev_socket = dev_socket.filter(|dev_socket| !socket.exists() && dev_socket.exists());
    format!("unix://{}", dev_socket.unwrap_or(socket).display())
}

/// Time that a command waits for units to reach their goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitTimeout {
    /// Does not wait.
    None,
    /// Waits up to this time.
    For(Duration),
    /// Waits until all units reach their goals or fail.
    Unlimited,
}

impl From<WaitArgs> for WaitTimeout {
    fn from(args: WaitArgs) -> Self {
        if args.no_block {
            return Self::None;
        }
        match (args.wait_timeout, args.block_attempts) {
            (Some(seconds), _) => Self::For(Duration::from_secs(seconds.into())),
            (None, None) => Self::For(DEFAULT_WAIT),
            (None, Some(attempts)) if attempts <= 0 => Self::Unlimited,
            (None, Some(attempts)) => {
                let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
                Self::For(ATTEMPT.saturating_mul(attempts))
            }
        }
    }
}

fn format_named(word: &str) -> Result<Format, CliError> {
    Format::from_str(word, false).map_err(|_unknown| {
        CliError::usage(format!("FLEETCTL_OUTPUT={word} is not an output format"))
            .help("use table, json, jsonl or name")
    })
}

fn is_yes(text: &str) -> bool {
    fleet_unitfile::values::parse_bool(text).unwrap_or(false)
}

/// Rejects a driver of fleet v1 other than `API`.
fn refuse_v1(old: &V1Args) -> Result<(), CliError> {
    match old.driver.as_deref().filter(|driver| *driver != "API") {
        Some(driver) => Err(CliError::usage(format!("driver {driver:?} is not supported"))
            .help("omit --driver: fleetctl always connects to a fleetd, set by --endpoint")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::fleetctl::args::Cli;

    fn settings(line: &str, environment: &[(&str, &str)]) -> Result<Settings, CliError> {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let find = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        Settings::new(&cli.global, &find)
    }

    #[test]
    fn command_line_precedes_environment_and_default() {
        let environment = [("FLEETCTL_ENDPOINT", "tcp://a:1"), ("FLEETCTL_OUTPUT", "jsonl")];
        let cases = [
            ("fleetctl list-units", &[] as &[_], "unix:///run/fleet.sock", Format::Table),
            ("fleetctl list-units", &environment, "tcp://a:1", Format::Jsonl),
            (
                "fleetctl list-units --endpoint tcp://b:2 -o name",
                &environment,
                "tcp://b:2",
                Format::Name,
            ),
            (
                "fleetctl list-units",
                &[("FLEETCTL_ENDPOINT", "")],
                "unix:///run/fleet.sock",
                Format::Table,
            ),
        ];
        for (line, environment, endpoint, format) in cases {
            let settings = settings(line, environment).unwrap();
            assert_eq!((settings.endpoint.as_str(), settings.format), (endpoint, format), "{line}");
        }
    }

    #[test]
    fn dev_cluster_is_found_unless_a_daemon_runs() {
        let home = tempfile::tempdir().unwrap();
        let (dev, socket) = (home.path().join("dev.sock"), home.path().join("fleet.sock"));
        let found = || default_endpoint(Some(&dev), &socket);
        let endpoint = |path: &Path| format!("unix://{}", path.display());
        assert_eq!(found(), endpoint(&socket));
        std::fs::write(&dev, "").unwrap();
        assert_eq!(found(), endpoint(&dev));
        assert_eq!(default_endpoint(None, &socket), endpoint(&socket));
        std::fs::write(&socket, "").unwrap();
        assert_eq!(found(), endpoint(&socket));
    }

    #[test]
    fn dev_hint_needs_another_endpoint() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("fleet/dev");
        let variable = ("XDG_STATE_HOME", home.path().to_str().unwrap());
        let settings = |environment: &[_]| settings("fleetctl doctor", environment).unwrap();
        assert_eq!(settings(&[variable]).dev_hint(), None, "there is no socket");
        std::fs::create_dir_all(&state).unwrap();
        std::fs::write(state.join("fleet.sock"), "").unwrap();
        let endpoint = format!("unix://{}/fleet.sock", state.display());
        let other = Settings { endpoint: "unix:///run/fleet.sock".into(), ..settings(&[variable]) };
        let expected = format!("for \"fleetd dev\", run \"export FLEETCTL_ENDPOINT={endpoint}\"");
        assert_eq!(other.dev_hint(), Some(expected));
        assert_eq!(Settings { endpoint, ..other }.dev_hint(), None);
        assert_eq!(settings(&[variable, ("FLEETCTL_ENDPOINT", "unix:///a")]).dev_hint(), None);
    }

    #[test]
    fn debug_is_set_by_flag_or_variable() {
        for (line, variable, expected) in [
            ("fleetctl version", "", false),
            ("fleetctl version", "true", true),
            ("fleetctl version", "false", false),
            ("fleetctl version --debug", "false", true),
        ] {
            let settings = settings(line, &[("FLEETCTL_DEBUG", variable)]).unwrap();
            assert_eq!(settings.debug, expected, "{line} {variable}");
        }
    }

    #[test]
    fn removed_features_are_refused_with_help() {
        let refused = |line: &str| {
            let mut text = Vec::new();
            settings(line, &[("FLEETCTL_OUTPUT", "xml")]).unwrap_err().print(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        insta::assert_snapshot!(refused("fleetctl --driver etcd list-units"), @r#"
        fleetctl: driver "etcd" is not supported
        help: omit --driver: fleetctl always connects to a fleetd, set by --endpoint
        "#);
        insta::assert_snapshot!(refused("fleetctl --driver API list-units"), @r"
        fleetctl: FLEETCTL_OUTPUT=xml is not an output format
        help: use table, json, jsonl or name
        ");
    }

    #[test]
    fn v1_environment_variables_are_read() {
        let environment = [
            ("FLEETCTL_SSH_USERNAME", "core"),
            ("FLEETCTL_SSH_TIMEOUT", "3.0"),
            ("FLEETCTL_KNOWN_HOSTS_FILE", "known"),
            ("FLEETCTL_STRICT_HOST_KEY_CHECKING", "false"),
        ];
        let given = "fleetctl --ssh-username core --ssh-timeout 3.0 --known-hosts-file known \
                     --strict-host-key-checking=false version";
        let given = settings(given, &[]).unwrap().ssh;
        assert_eq!(settings("fleetctl version", &environment).unwrap().ssh, given);
        let other = settings("fleetctl --ssh-username me version", &environment).unwrap().ssh;
        assert_ne!(other, given);
        assert!(settings("fleetctl version", &[("FLEETCTL_DRIVER", "etcd")]).is_err());
        assert!(settings("fleetctl version", &[("FLEETCTL_DRIVER", "API")]).is_ok());
    }

    #[test]
    fn wait_timeout_follows_the_flags() {
        for (flags, expected) in [
            ("", WaitTimeout::For(DEFAULT_WAIT)),
            (" --no-block", WaitTimeout::None),
            (" --no-block --block-attempts=4", WaitTimeout::None),
            (" --block-attempts=4", WaitTimeout::For(Duration::from_secs(8))),
            (" --block-attempts=0", WaitTimeout::Unlimited),
            (" --block-attempts -1", WaitTimeout::Unlimited),
            (" --wait-timeout 5", WaitTimeout::For(Duration::from_secs(5))),
        ] {
            let line = format!("fleetctl stop a.service{flags}");
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            let Some(crate::fleetctl::args::Command::Stop(args)) = cli.command else {
                panic!("{line}: another command");
            };
            assert_eq!(WaitTimeout::from(args.wait), expected, "{flags}");
        }
    }
}
