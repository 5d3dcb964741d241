//! Client of a running fleet-init.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_agent::remote::{Connection, ConnectionError, RequestError, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::args::SocketArgs;
use super::paths;
use super::protocol::{InitRequest, Refusal, Request};
use crate::ui::error::CliError;

/// Name of the client, shown in the server's log.
pub(super) const PROGRAM: &str = concat!("fleet-init ", env!("CARGO_PKG_VERSION"));

/// Time limit for each item of a response. A running fleet-init responds at once, but a suspended
/// one (SIGSTOP) never does, although the kernel still accepts connections to its socket.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a fleet-init.
pub(super) struct InitClient {
    pub(super) socket: PathBuf,
    connection: Connection,
}

/// Reason for which there is no response.
pub(super) enum NoResponse {
    /// The fleet-init runs the units of fleetd and has no goal.
    RunsForFleet,
    /// Any other reason.
    Because(CliError),
}

/// Connects to the fleet-init at a socket and runs `question` with this connection.
pub(super) fn request<T>(
    args: &SocketArgs,
    question: impl AsyncFnOnce(&InitClient) -> Result<T, CliError>,
) -> Result<T, CliError> {
    in_runtime(async {
        let socket = paths::socket(args.socket.as_deref());
        let connection =
            with_timeout(&socket, Connection::connect_to_any_user(&socket, PROGRAM)).await?;
        question(&InitClient { connection: connection.map_err(unreachable)?, socket }).await
    })
}

/// Connects to the fleet-init at a socket and runs `question` with this connection. Returns `None`
/// if no process listens at the socket.
pub(super) fn request_if_running<T>(
    args: &SocketArgs,
    question: impl AsyncFnOnce(&InitClient) -> Result<T, CliError>,
) -> Result<Option<T>, CliError> {
    in_runtime(async {
        let socket = paths::socket(args.socket.as_deref());
        match with_timeout(&socket, Connection::connect_to_any_user(&socket, PROGRAM)).await? {
            Ok(connection) => question(&InitClient { connection, socket }).await.map(Some),
            Err(error) if is_not_listening(&error) => Ok(None),
            Err(error) => Err(unreachable(error)),
        }
    })
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

/// Waits for a message for a limited time.
async fn with_timeout<T>(socket: &Path, says: impl Future<Output = T>) -> Result<T, CliError> {
    tokio::time::timeout(RESPONSE_TIMEOUT, says).await.map_err(|_| {
        let problem = format!("the fleet-init at {} does not respond", socket.display());
        let help = "if its process is suspended, resume it with `kill -CONT PID`";
        CliError::failed(problem).help(help)
    })
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

impl InitClient {
    /// Sends a request and returns its response, item by item.
    pub(super) fn begin(&self, ask: Request) -> Result<Response, NoResponse> {
        self.connection.request(&InitRequest { init: ask }).map_err(no_response)
    }

    /// Returns the next item of a response.
    pub(super) async fn next(&self, answer: &mut Response) -> Result<Option<Value>, NoResponse> {
        let next = with_timeout(&self.socket, answer.next()).await;
        next.map_err(NoResponse::Because)?.map_err(no_response)
    }

    /// Sends a request and returns all items of the response. Returns an error if the fleet-init
    /// runs the units of fleetd.
    pub(super) async fn request_all(&self, ask: Request) -> Result<Vec<Value>, CliError> {
        let all = async {
            let mut answer = self.begin(ask)?;
            let mut items = Vec::new();
            while let Some(item) = self.next(&mut answer).await? {
                items.push(item);
            }
            Ok(items)
        };
        all.await.map_err(NoResponse::into_error)
    }
}

impl NoResponse {
    /// Converts to the error of a command that needs a goal.
    pub(super) fn into_error(self) -> CliError {
        match self {
            Self::Because(error) => error,
            Self::RunsForFleet => {
                CliError::failed("this fleet-init runs the units of fleetd and has no goal")
                    .help("start and stop these units with fleetctl")
            }
        }
    }
}

/// Describes a failed request.
pub(super) fn no_response(error: RequestError) -> NoResponse {
    NoResponse::Because(match error {
        RequestError::Failed(refusal) => match serde_json::from_value(refusal) {
            Ok(Refusal::RunsForFleet) => return NoResponse::RunsForFleet,
            Ok(Refusal::Because { problem, help }) => {
                help.into_iter().fold(CliError::failed(problem), CliError::help)
            }
            Err(error) => not_decodable(error),
        },
        RequestError::Refused(why) => {
            CliError::failed(format!("fleet-init did not complete the request: {why}"))
        }
        RequestError::Lost(why) => {
            CliError::failed(format!("lost the connection to fleet-init: {why}"))
        }
    })
}

/// Decodes an item of a response.
pub(super) fn read<T: DeserializeOwned>(item: Value) -> Result<T, CliError> {
    serde_json::from_value(item).map_err(not_decodable)
}

fn not_decodable(error: serde_json::Error) -> CliError {
    let error = CliError::failed("cannot decode the response of fleet-init").because(error);
    error.help("use the same release for this command and the running fleet-init")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a request to a suspended fleet-init waited forever, because the kernel accepts
    /// connections for it.
    #[tokio::test(start_paused = true)]
    async fn requests_to_a_stopped_fleet_init_time_out() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        let _stopped = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let response =
            with_timeout(&socket, Connection::connect_to_any_user(&socket, PROGRAM)).await;
        let output = response.map(|_| "something").map_err(|error| error.parts().0);
        let expected = format!("the fleet-init at {} does not respond", socket.display());
        assert_eq!(output, Err(expected));
    }

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
