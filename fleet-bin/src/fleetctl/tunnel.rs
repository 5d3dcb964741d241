//! The way to a daemon through ssh: its socket, brought here by the system's own `ssh`.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use fleet_agent::{Clock as _, SystemClock};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::error::CliError;
use super::ssh::Ssh;

/// How often it is looked for the socket.
const PAUSE: Duration = Duration::from_millis(20);

/// How long `ssh` may take, a person who types a password included.
const PATIENCE: Duration = Duration::from_secs(120);

/// An open tunnel; dropped, it is closed.
pub(crate) struct Tunnel {
    _ssh: Child,
    folder: TempDir,
}

impl Tunnel {
    /// Opens the tunnel that was asked for, if one was. `endpoint` is where the daemon listens
    /// over there.
    ///
    /// # Errors
    ///
    /// There is no `ssh`, or it did not get there; it says itself why.
    pub(crate) async fn open(
        ssh: &Ssh,
        endpoint: &str,
        clock: &SystemClock,
    ) -> Result<Option<Self>, CliError> {
        let Some(host) = ssh.tunnel() else { return Ok(None) };
        let cannot = |error: io::Error| CliError::failed("cannot run ssh").because(error);
        let folder = tempfile::Builder::new().prefix("fleetctl-").tempdir().map_err(cannot)?;
        let socket = folder.path().join("s");
        let args = ssh.forward(host, &socket, remote(endpoint)?);
        let mut child = command(&args).stdin(Stdio::null()).spawn().map_err(no_ssh)?;
        let deadline = clock.now().after(PATIENCE);
        while !socket.exists() {
            let ended = child.try_wait().map_err(cannot)?;
            if ended.is_some() || clock.now() > deadline {
                let why = ended.map_or("it takes too long".to_owned(), |it| it.to_string());
                return Err(CliError::failed(format!("there is no way to {host}: ssh: {why}"))
                    .help(format!("see whether \"{}\" works", Ssh::by_hand(host)))
                    .help(format!("it must be allowed there to forward {}", what(endpoint))));
            }
            clock.sleep_until(clock.now().after(PAUSE)).await;
        }
        Ok(Some(Self { _ssh: child, folder }))
    }

    /// Where the daemon is to be found from here.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.folder.path().join("s").display())
    }
}

/// Does some work through a tunnel, until a signal ends it: a program that just dies leaves its
/// `ssh` and its folder behind.
///
/// # Errors
///
/// That of the work, or that a signal ended it, unless it took notice of that itself.
pub(crate) async fn closed_when_told<T>(
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let told = async {
        let [mut int, mut term, mut hangup] = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
            _ = hangup.recv() => {}
        }
        Ok::<_, io::Error>(())
    };
    tokio::select! {
        biased;
        done = work => done,
        told = told => {
            told.map_err(|error| CliError::failed("cannot listen for signals").because(error))?;
            Err(CliError::interrupted("interrupted; the tunnel is closed"))
        }
    }
}

/// The system's `ssh`, with these arguments; it ends with this program.
pub(crate) fn command(args: &[String]) -> Command {
    let mut command = Command::new("ssh");
    command.args(args).kill_on_drop(true);
    command
}

/// Why `ssh` cannot be run.
pub(crate) fn no_ssh(error: io::Error) -> CliError {
    CliError::failed("cannot run ssh").because(error).help("install OpenSSH's client")
}

/// What ssh forwards for an endpoint.
fn what(endpoint: &str) -> &'static str {
    if endpoint.contains(":///") { "unix sockets" } else { "ports" }
}

/// What ssh calls the endpoint: the path of a socket, or a host and its port.
fn remote(endpoint: &str) -> Result<&str, CliError> {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    match scheme {
        "unix" | "file" if rest.starts_with('/') => Ok(rest),
        "http" | "tcp" if rest.contains(':') => Ok(rest.trim_end_matches('/')),
        _ => Err(CliError::usage(format!("--endpoint {endpoint} cannot be had through a tunnel"))
            .help("write unix:///path or http://host:port, as they are over there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_those_over_there() {
        for (endpoint, expected) in [
            ("unix:///run/fleet.sock", Some("/run/fleet.sock")),
            ("http://127.0.0.1:4285/", Some("127.0.0.1:4285")),
            ("https://a:1", None),
            ("http://a", None),
            ("run/fleet.sock", None),
        ] {
            assert_eq!(remote(endpoint).ok(), expected, "{endpoint}");
        }
    }
}
