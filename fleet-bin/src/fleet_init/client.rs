//! Client of a running fleet-init.

use std::sync::Arc;

use fleet_agent::SystemClock;
use fleet_agent::remote::{Connection, ConnectionError, RequestError};

use super::args::SocketArgs;
use super::paths;
use crate::ui::error::CliError;

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
