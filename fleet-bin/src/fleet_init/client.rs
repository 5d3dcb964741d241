//! Client of a running fleet-init, and the results of requests, also as JSON output.

use std::sync::Arc;

use fleet_agent::SystemClock;
use fleet_agent::remote::{Connection, ConnectionError, RequestError};
use serde::{Deserialize, Serialize};

use super::args::SocketArgs;
use super::paths;
use crate::ui::error::CliError;
use crate::ui::output::Record;

/// Name of the client, shown in the server's log.
pub(super) const PROGRAM: &str = concat!("fleet-init ", env!("CARGO_PKG_VERSION"));

/// Connects to the fleet-init at a socket and runs `question` with this connection.
pub(super) fn request<T>(
    args: &SocketArgs,
    question: impl AsyncFnOnce(&Connection) -> Result<T, CliError>,
) -> Result<T, CliError> {
    in_runtime(async { question(&connect(args).await.map_err(unreachable)?).await })
}

/// Connects to the fleet-init at a socket and runs `question` with this connection. Returns `None`
/// if no process listens at the socket.
pub(super) fn request_if_running<T>(
    args: &SocketArgs,
    question: impl AsyncFnOnce(&Connection) -> Result<T, CliError>,
) -> Result<Option<T>, CliError> {
    in_runtime(async {
        match connect(args).await {
            Ok(connection) => question(&connection).await.map(Some),
            Err(error) if is_not_listening(&error) => Ok(None),
            Err(error) => Err(unreachable(error)),
        }
    })
}

async fn connect(args: &SocketArgs) -> Result<Connection, ConnectionError> {
    let (socket, clock) = (paths::socket(args.socket.as_deref()), Arc::new(SystemClock::start()));
    Connection::connect_to_any_user(&socket, PROGRAM, clock).await
}

fn in_runtime<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        CliError::failed("cannot set up the event loop of this command").because(error)
    })?;
    runtime.block_on(work)
}

/// Whether nothing listens at the socket, as opposed to an unreachable server.
fn is_not_listening(error: &ConnectionError) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    let ConnectionError::Connect { source, .. } = error else { return false };
    matches!(source.kind(), ConnectionRefused | NotFound)
}

fn unreachable(error: ConnectionError) -> CliError {
    if let ConnectionError::Connect { socket: place, source } = &error
        && source.kind() == std::io::ErrorKind::PermissionDenied
    {
        let error = CliError::failed(format!("permission denied for the fleet-init at {place}"));
        return error.help(
            "run this command as the user of that fleet-init or as root, or name another socket \
             with --socket",
        );
    }
    let error = CliError::failed("cannot reach fleet-init").because(error);
    error.help("start fleet-init with `fleet-init run`, or give its socket with --socket")
}

impl From<RequestError> for CliError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Problem { problem, help } => {
                help.into_iter().fold(Self::failed(problem), Self::help)
            }
            RequestError::InvalidArgument(problem) => Self::usage(problem),
            RequestError::RunsForFleet => {
                Self::failed(error.to_string()).help("start and stop these units with fleetctl")
            }
            RequestError::Service(error) => {
                Self::failed("the service manager of fleet-init failed").because(error)
            }
            error => Self::failed(error.to_string()),
        }
    }
}

/// Status of a fleet-init without that of its units.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StatusHeader {
    pub(super) goal: Option<String>,
    pub(super) extra_targets: Vec<String>,
    /// Reason why processes are tracked by their environment, which is weaker than tracking them by
    /// control groups. `None` if they are tracked by control groups.
    pub(super) tracking_fallback: Option<String>,
    /// Whether fleetd chooses the units to run. There is then no goal.
    pub(super) fleet: bool,
}

/// A unit; also the JSON output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unit {
    pub(super) unit: String,
    pub(super) description: String,
    pub(super) provides: Vec<String>,
    /// One word: `running`, `waiting`, `failed`…
    pub(super) state: String,
    /// Reason for this state and the next step, for example `exit 3; retry in 2s`.
    pub(super) reason: Option<String>,
    /// Whether the unit is about to change its state: it starts, stops or reloads, or waits for a
    /// unit that does.
    pub(super) changing: bool,
    /// Number of its last start; `None` if it never started, or is virtual.
    pub(super) incarnation: Option<u64>,
    /// Whether its last requested reload failed.
    pub(super) reload_failed: bool,
    pub(super) needed: bool,
    pub(super) degraded_by: Vec<String>,
    /// Active targets of this unit that nothing needs: the unit is needed for another target of it.
    pub(super) coincidental: Vec<String>,
    #[serde(rename = "mainPID")]
    pub(super) main_pid: Option<u32>,
    /// Time in this state; `None` if nothing was observed yet.
    pub(super) milliseconds: Option<u64>,
    /// Time until the next retry.
    pub(super) retry_in_milliseconds: Option<u64>,
    /// Number of unrequested exits in a row.
    pub(super) attempts: u32,
    /// The unit's own status text (`STATUS=`).
    pub(super) status: Option<String>,
    pub(super) depends: Vec<Edge>,
}

/// A dependency of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Edge {
    pub(super) kind: String,
    pub(super) unit: String,
}

/// The goal and the extra targets; also the JSON output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Targets {
    pub(super) goal: Option<String>,
    pub(super) extra_targets: Vec<String>,
}

/// The planned action for a unit; also the JSON output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlannedUnit {
    pub(super) unit: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// One word: `start`, `stop`, `restart`, `stay`, or `wait` for a needed, inactive unit.
    pub(super) action: String,
    /// Wave of the stop.
    pub(super) stop_wave: Option<usize>,
    /// Wave of the start.
    pub(super) wave: Option<usize>,
    pub(super) why: String,
    /// Keys of its stanza that differ from the running definition.
    pub(super) changed: Vec<String>,
    /// Dependencies that order it.
    pub(super) after: Vec<Edge>,
    pub(super) needed_by: Vec<Edge>,
    /// Missing or degraded dependencies.
    pub(super) degraded_by: Vec<String>,
}

impl Record for Targets {
    fn name(&self) -> &str {
        self.goal.as_deref().unwrap_or_default()
    }
}

impl Record for PlannedUnit {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl Record for Unit {
    fn name(&self) -> &str {
        &self.unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_is_not_reported_as_missing() {
        let output = |kind: std::io::ErrorKind| {
            unreachable(ConnectionError::Connect { socket: "s".to_owned(), source: kind.into() })
                .parts()
                .0
        };
        assert_eq!(
            output(std::io::ErrorKind::PermissionDenied),
            "permission denied for the fleet-init at s"
        );
        assert!(output(std::io::ErrorKind::NotFound).contains("cannot connect to s"));
    }
}
