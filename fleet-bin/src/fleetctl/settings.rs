//! What the command line and the environment together ask for, checked and with its defaults.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;

use super::access::Access;
use super::args::WaitArgs;
use super::error::CliError;
use super::global_args::{Format, GlobalArgs, OldArgs};
use super::ssh::Ssh;

/// Where a daemon listens unless it is told otherwise.
const DEFAULT_ENDPOINT: &str = "unix:///run/fleet.sock";

/// Longer than the 90 seconds that systemd gives a start or a stop, so that its verdict is seen.
const DEFAULT_WAIT: Duration = Duration::from_secs(100);

/// How long one of v1's attempts lasts.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Looks a variable of the environment up.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What holds for every command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Where the daemon listens, not yet read.
    pub(crate) endpoint: String,
    /// What it takes to be let in.
    pub(crate) access: Access,
    /// How results are printed.
    pub(crate) format: Format,
    /// Whether to tell what is asked of the daemon.
    pub(crate) debug: bool,
    /// How ssh is called, and where a tunnel leads.
    pub(crate) ssh: Ssh,
}

impl Settings {
    /// Takes each from the command line, else from the environment, else its default.
    ///
    /// An empty variable counts as none.
    pub(crate) fn new(args: &GlobalArgs, environment: Environment<'_>) -> Result<Self, CliError> {
        let variable = |name: &str| {
            let value = environment(name)?.to_string_lossy().into_owned();
            (!value.is_empty()).then_some(value)
        };
        let old = args.old.clone().or_of(&variable);
        refuse_old(&old)?;
        let access = Access::new(&args.access, &variable);
        let endpoint = args.endpoint.clone().or_else(|| variable("FLEETCTL_ENDPOINT"));
        let format = match (args.output, variable("FLEETCTL_OUTPUT")) {
            (Some(format), _) => format,
            (None, Some(word)) => format_named(&word)?,
            (None, None) => Format::default(),
        };
        let debug = args.debug || variable("FLEETCTL_DEBUG").is_some_and(|text| is_yes(&text));
        let tunnel = args.tunnel.clone().or_else(|| variable("FLEETCTL_TUNNEL"));
        let ssh = Ssh::new(&old, tunnel.filter(|host| !host.is_empty()))?;
        let endpoint = endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.into());
        Ok(Self { endpoint, access, format, debug, ssh })
    }
}

/// How long a command waits for the cluster to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Up to so long.
    For(Duration),
    /// Until it is over, well or badly.
    Unlimited,
}

impl From<WaitArgs> for Patience {
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
        CliError::usage(format!("FLEETCTL_OUTPUT={word} is no output format"))
            .help("write table, json, jsonl or name")
    })
}

fn is_yes(text: &str) -> bool {
    fleet_unitfile::parse_bool(text).unwrap_or(false)
}

/// Refuses what fleet v1 could do and this version does another way.
fn refuse_old(old: &OldArgs) -> Result<(), CliError> {
    match old.driver.as_deref().filter(|driver| *driver != "API") {
        Some(driver) => Err(CliError::usage(format!("there is no driver {driver:?}"))
            .help("leave --driver out: fleetctl always talks to a fleetd, named by --endpoint")),
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
    fn the_command_line_wins_over_the_environment_and_that_over_the_default() {
        let environment = [("FLEETCTL_ENDPOINT", "tcp://a:1"), ("FLEETCTL_OUTPUT", "jsonl")];
        let cases = [
            ("fleetctl list-units", &[] as &[_], DEFAULT_ENDPOINT, Format::Table),
            ("fleetctl list-units", &environment, "tcp://a:1", Format::Jsonl),
            (
                "fleetctl list-units --endpoint tcp://b:2 -o name",
                &environment,
                "tcp://b:2",
                Format::Name,
            ),
            ("fleetctl list-units", &[("FLEETCTL_ENDPOINT", "")], DEFAULT_ENDPOINT, Format::Table),
        ];
        for (line, environment, endpoint, format) in cases {
            let settings = settings(line, environment).unwrap();
            assert_eq!((settings.endpoint.as_str(), settings.format), (endpoint, format), "{line}");
        }
    }

    #[test]
    fn debugging_is_asked_for_in_either_way() {
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
    fn what_is_gone_is_refused_with_another_way() {
        let refused = |line: &str| {
            let mut text = Vec::new();
            settings(line, &[("FLEETCTL_OUTPUT", "xml")]).unwrap_err().print(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        insta::assert_snapshot!(refused("fleetctl --driver etcd list-units"), @r#"
        fleetctl: there is no driver "etcd"
        help: leave --driver out: fleetctl always talks to a fleetd, named by --endpoint
        "#);
        insta::assert_snapshot!(refused("fleetctl --driver API list-units"), @r"
        fleetctl: FLEETCTL_OUTPUT=xml is no output format
        help: write table, json, jsonl or name
        ");
    }

    #[test]
    fn what_v1_read_from_the_environment_is_read_from_there() {
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
    fn patience_follows_the_flags() {
        for (flags, expected) in [
            ("", Patience::For(DEFAULT_WAIT)),
            (" --no-block", Patience::None),
            (" --no-block --block-attempts=4", Patience::None),
            (" --block-attempts=4", Patience::For(Duration::from_secs(8))),
            (" --block-attempts=0", Patience::Unlimited),
            (" --block-attempts -1", Patience::Unlimited),
            (" --wait-timeout 5", Patience::For(Duration::from_secs(5))),
        ] {
            let line = format!("fleetctl stop a.service{flags}");
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            let Some(crate::fleetctl::args::Command::Stop(args)) = cli.command else {
                panic!("{line}: another command");
            };
            assert_eq!(Patience::from(args.wait), expected, "{flags}");
        }
    }
}
