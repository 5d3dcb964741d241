//! Tunnel to a daemon: its socket, forwarded by the system's `ssh`.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use fleet_agent::{Clock as _, SystemClock};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::ssh::Ssh;
use crate::ui::error::CliError;

/// Pause between two checks for the socket.
const PAUSE: Duration = Duration::from_millis(20);

/// Time limit for `ssh` to connect, including a password prompt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);

/// An open tunnel; closed on drop.
pub(crate) struct Tunnel {
    _ssh: Child,
    folder: TempDir,
}

impl Tunnel {
    /// Opens the tunnel, or returns `None` if the settings name no host for it. `endpoint` is the
    /// address of the daemon as seen from that host.
    ///
    /// # Errors
    ///
    /// `ssh` is missing, or could not connect. In the second case, `ssh` itself has printed the
    /// reason.
    pub(crate) async fn open(
        ssh: &Ssh,
        endpoint: &str,
        clock: &SystemClock,
    ) -> Result<Option<Self>, CliError> {
        let Some(host) = ssh.tunnel() else { return Ok(None) };
        let cannot = |error: io::Error| {
            CliError::failed(format!("cannot open the ssh tunnel to {host}")).because(error)
        };
        let folder = tempfile::Builder::new().prefix("fleetctl-").tempdir().map_err(cannot)?;
        let socket = folder.path().join("s");
        let args = ssh.forward(host, &socket, remote(endpoint)?);
        let mut child = command(&args).stdin(Stdio::null()).spawn().map_err(ssh_error)?;
        let deadline = clock.now().after(CONNECT_TIMEOUT);
        while !socket.exists() {
            let ended = child.try_wait().map_err(cannot)?;
            if ended.is_some() || clock.now() > deadline {
                let why = ended.map_or("timed out".to_owned(), |it| it.to_string());
                return Err(CliError::failed(format!(
                    "cannot open the ssh tunnel to {host}: {why}"
                ))
                .help(format!("check that \"{}\" works", Ssh::test_command(host)))
                .help(format!("the host must allow forwarding of {}", forwarded_kind(endpoint))));
            }
            clock.sleep_until(clock.now().after(PAUSE)).await;
        }
        Ok(Some(Self { _ssh: child, folder }))
    }

    /// Returns the local endpoint of the tunnel.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.folder.path().join("s").display())
    }
}

/// Runs `work` until it ends or a signal arrives. The signals must be handled, because the default
/// action would leave the `ssh` process and its temporary directory behind.
///
/// # Errors
///
/// The error of `work`, or an interruption if a signal arrived first.
pub(crate) async fn until_signal<T>(
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let signalled = async {
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
        result = work => result,
        received = signalled => {
            received.map_err(|error| CliError::failed("cannot listen for signals").because(error))?;
            Err(CliError::interrupted("interrupted; the tunnel is closed"))
        }
    }
}

/// Returns a command that runs the system's `ssh`. Dropping the child process kills it.
pub(crate) fn command(args: &[String]) -> Command {
    let mut command = Command::new("ssh");
    command.args(args).kill_on_drop(true);
    command
}

/// Returns the error for a failed start of `ssh`.
pub(crate) fn ssh_error(error: io::Error) -> CliError {
    CliError::failed("cannot run ssh").because(error).help("install OpenSSH's client")
}

/// Names the forwarding permission that an endpoint needs.
fn forwarded_kind(endpoint: &str) -> &'static str {
    if endpoint.contains(":///") { "unix sockets" } else { "ports" }
}

/// Converts an endpoint to the syntax of `ssh -L`: the path of a socket, or a host with its port.
fn remote(endpoint: &str) -> Result<&str, CliError> {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    match scheme {
        "unix" | "file" if rest.starts_with('/') => Ok(rest),
        "http" | "tcp" if rest.contains(':') => Ok(rest.trim_end_matches('/')),
        _ => Err(CliError::usage(format!("--endpoint {endpoint} cannot be used through a tunnel"))
            .help("use unix:///path or http://host:port, as seen from the host of the tunnel")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_convert_to_ssh_syntax() {
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
