//! Pure: arguments for the system's `ssh`. fleetctl runs that program so that the user's ssh
//! configuration, agents and jump hosts work.

use std::path::Path;

use crate::ui::error::CliError;
use crate::ui::global_args::V1Args;

/// Settings for `ssh`, and the host of the tunnel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ssh {
    /// Host of the tunnel with an optional port, as given by the user.
    tunnel: Option<String>,
    options: Vec<String>,
}

impl Ssh {
    /// Translates the options of fleet v1 to options of `ssh`. `tunnel` is the host of the tunnel,
    /// from the command line or the environment.
    ///
    /// # Errors
    ///
    /// A value is invalid.
    pub(crate) fn new(args: &V1Args, tunnel: Option<String>) -> Result<Self, CliError> {
        let mut options = Vec::new();
        let mut option = |key: &str, value: &str| {
            options.extend(["-o".to_owned(), format!("{key}={value}")]);
        };
        if let Some(user) = &args.ssh_username {
            option("User", user);
        }
        if let Some(file) = &args.known_hosts_file {
            option("UserKnownHostsFile", file);
        }
        if let Some(seconds) = &args.ssh_timeout {
            let number = seconds.trim_end_matches('s').parse::<f64>().ok();
            let number = number.filter(|it| (0.0..1e6).contains(it)).ok_or_else(|| {
                CliError::usage(format!("--ssh-timeout {seconds} is not a number of seconds"))
                    .help("use a number such as 10")
            })?;
            option("ConnectTimeout", &format!("{:.0}", number.ceil()));
        }
        if let Some(text) = &args.strict_host_key_checking {
            option("StrictHostKeyChecking", strictness(text.as_deref())?);
        }
        if let Some(host) = tunnel.as_deref().filter(|host| host.starts_with('-')) {
            return Err(CliError::usage(format!("--tunnel requires a host, not {host:?}"))
                .help("use HOST or HOST:PORT"));
        }
        Ok(Self { tunnel, options })
    }

    /// Returns the host of the tunnel, if any.
    pub(crate) fn tunnel(&self) -> Option<&str> {
        self.tunnel.as_deref()
    }

    /// Returns a command to test the connection to a host by hand.
    pub(crate) fn test_command(host: &str) -> String {
        match with_port(host) {
            (host, Some(port)) => format!("ssh -p {port} {host}"),
            (host, None) => format!("ssh {host}"),
        }
    }

    /// Returns the arguments that forward a remote socket to a local one.
    pub(crate) fn forward(&self, host: &str, local: &Path, remote: &str) -> Vec<String> {
        let mut args = self.options.clone();
        args.extend(["-o".to_owned(), "ExitOnForwardFailure=yes".to_owned()]);
        let (host, port) = with_port(host);
        args.extend(port.into_iter().flat_map(|port| ["-p".to_owned(), port.to_owned()]));
        let forward = format!("{}:{remote}", local.display());
        args.extend(["-N".to_owned(), "-T".to_owned(), "-L".to_owned(), forward]);
        args.extend(["--".to_owned(), host.to_owned()]);
        args
    }

    /// Returns the arguments that run a command on a machine, or a shell if `command` is empty.
    ///
    /// If a tunnel is configured, its host is the jump host, unless it is the machine itself.
    pub(crate) fn shell(
        &self,
        address: &str,
        port: Option<u16>,
        forward_agent: bool,
        command: &[String],
    ) -> Vec<String> {
        let mut args = self.options.clone();
        args.extend(forward_agent.then(|| "-A".to_owned()));
        let port = port.map(|port| port.to_string());
        // The machine may itself be the host of the tunnel. ssh cannot jump through a host to
        // itself.
        let (host, port, jump) = match self.tunnel.as_deref().map(|it| (it, with_port(it))) {
            Some((_, (host, tunnel_port))) if without_user(host) == address => {
                (host, port.or(tunnel_port.map(str::to_owned)), None)
            }
            Some((tunnel, _)) => (address, port, Some(tunnel)),
            None => (address, port, None),
        };
        args.extend(port.into_iter().flat_map(|port| ["-p".to_owned(), port]));
        args.extend(jump.into_iter().flat_map(|jump| ["-J".to_owned(), jump.to_owned()]));
        args.extend(["--".to_owned(), host.to_owned()]);
        args.extend(command.iter().cloned());
        args
    }
}

fn without_user(host: &str) -> &str {
    host.rsplit_once('@').map_or(host, |(_, host)| host)
}

/// Returns the value of `StrictHostKeyChecking`. fleet v1 asked the user about unknown hosts.
fn strictness(text: Option<&str>) -> Result<&'static str, CliError> {
    match fleet_unitfile::values::parse_bool(text.unwrap_or("true")) {
        Some(true) => Ok("ask"),
        Some(false) => Ok("no"),
        None => Err(CliError::usage(format!(
            "--strict-host-key-checking={} is neither true nor false",
            text.unwrap_or_default()
        ))
        .help("use --strict-host-key-checking=true, or omit the flag to use the settings of ssh")),
    }
}

/// Splits off the port of a host, if there is one.
fn with_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.ends_with(':') => {
            (name.trim_start_matches('[').trim_end_matches(']'), Some(port))
        }
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::fleetctl::args::Cli;

    #[test]
    fn test_command_includes_the_port() {
        assert_eq!(Ssh::test_command("core@box"), "ssh core@box");
        assert_eq!(Ssh::test_command("core@box:2222"), "ssh -p 2222 core@box");
        assert_eq!(Ssh::test_command("[::1]:2222"), "ssh -p 2222 ::1");
    }

    fn ssh(line: &str) -> Ssh {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        Ssh::new(&cli.global.old, cli.global.tunnel).unwrap()
    }

    #[test]
    fn v1_options_are_passed_to_ssh() {
        let all = "fleetctl --ssh-username core --ssh-timeout 2.5 --known-hosts-file k \
                   --strict-host-key-checking=false --tunnel a:2222 version";
        let ssh = ssh(&all.split_whitespace().collect::<Vec<_>>().join(" "));
        let host = ssh.tunnel().unwrap();
        let forward = ssh.forward(host, Path::new("l"), "/run/fleet.sock").join(" ");
        insta::assert_snapshot!(forward.replace(" -", "\n-"), @r"
        -o User=core
        -o UserKnownHostsFile=k
        -o ConnectTimeout=3
        -o StrictHostKeyChecking=no
        -o ExitOnForwardFailure=yes
        -p 2222
        -N
        -T
        -L l:/run/fleet.sock
        -- a
        ");
        let shell = ssh.shell("10.0.0.1", Some(22), true, &["uptime".to_owned()]).join(" ");
        assert!(shell.ends_with("-A -p 22 -J a:2222 -- 10.0.0.1 uptime"), "{shell}");
    }

    #[test]
    fn tunnel_host_is_reached_directly() {
        let direct = |tunnel: &str, port| {
            let ssh = ssh(&format!("fleetctl --tunnel {tunnel} version"));
            ssh.shell("10.0.0.1", port, false, &[]).join(" ")
        };
        assert_eq!(direct("core@10.0.0.1:2222", None), "-p 2222 -- core@10.0.0.1");
        assert_eq!(direct("10.0.0.1:2222", Some(22)), "-p 22 -- 10.0.0.1");
        assert_eq!(direct("core@10.0.0.11", None), "-J core@10.0.0.11 -- 10.0.0.1");
    }

    #[test]
    fn unset_options_are_not_passed_to_ssh() {
        let ssh = ssh("fleetctl --tunnel core@a version");
        let forward = ssh.forward("core@a", Path::new("l"), "r").join(" ");
        assert_eq!(forward, "-o ExitOnForwardFailure=yes -N -T -L l:r -- core@a");
        for (host, expected) in
            [("a", ("a", None)), ("a:1", ("a", Some("1"))), ("[::1]:22", ("::1", Some("22")))]
        {
            assert_eq!(with_port(host), expected);
        }
    }

    #[test]
    fn host_key_checking_follows_the_option() {
        for (flag, expected) in [("", "ask"), ("=true", "ask"), ("=false", "no"), ("=0", "no")] {
            let ssh = ssh(&format!("fleetctl --strict-host-key-checking{flag} version"));
            let shell = ssh.shell("a", None, false, &[]).join(" ");
            assert_eq!(shell, format!("-o StrictHostKeyChecking={expected} -- a"), "{flag}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for line in [
            "--ssh-timeout x",
            "--ssh-timeout -1",
            "--tunnel=-oProxyCommand=x",
            "--strict-host-key-checking=nope",
        ] {
            let line = format!("fleetctl {line} version");
            let cli = Cli::try_parse_from(line.split(' '));
            let refused = cli.map(|cli| Ssh::new(&cli.global.old, cli.global.tunnel).is_err());
            assert!(refused.unwrap_or(true), "{line}");
        }
    }
}
