//! Client of a running fleet-init.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_agent::remote::{Connection, ConnectionError, RequestError, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::args::SocketArgs;
use super::asks::{Ask, OfInit, Refusal};
use super::places;
use crate::fleetctl::error::CliError;

/// Name of the client, shown in the server's log.
pub(super) const PROGRAM: &str = concat!("fleet-init ", env!("CARGO_PKG_VERSION"));

/// Limit for any response. A running fleet-init responds at once; a stopped process never does,
/// although the kernel still accepts connections for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a fleet-init.
pub(super) struct Asking {
    pub(super) socket: PathBuf,
    connection: Connection,
}

/// Reason for which there is no response.
pub(super) enum NoAnswer {
    /// It runs the units of fleetd and has no goal.
    RunsForFleet,
    /// Any other reason.
    Because(CliError),
}

/// Sends a request to the fleet-init at a socket.
pub(super) fn ask<T>(
    args: &SocketArgs,
    question: impl AsyncFnOnce(&Asking) -> Result<T, CliError>,
) -> Result<T, CliError> {
    in_runtime(async {
        let socket = places::socket(args.socket.as_deref());
        let connection =
            in_time(&socket, Connection::connect_to_any_user(&socket, PROGRAM)).await?;
        question(&Asking { connection: connection.map_err(unreachable)?, socket }).await
    })
}

/// Sends a request to the fleet-init at a socket; `None` if nothing listens there.
pub(super) fn ask_if_there<T>(
    args: &SocketArgs,
    question: impl AsyncFnOnce(&Asking) -> Result<T, CliError>,
) -> Result<Option<T>, CliError> {
    in_runtime(async {
        let socket = places::socket(args.socket.as_deref());
        match in_time(&socket, Connection::connect_to_any_user(&socket, PROGRAM)).await? {
            Ok(connection) => question(&Asking { connection, socket }).await.map(Some),
            Err(error) if is_nobody(&error) => Ok(None),
            Err(error) => Err(unreachable(error)),
        }
    })
}

fn in_runtime<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed("cannot begin").because(error))?;
    runtime.block_on(work)
}

/// Whether nothing listens at the socket, as opposed to an unreachable server.
fn is_nobody(error: &ConnectionError) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    let ConnectionError::Connect { source, .. } = error else { return false };
    matches!(source.kind(), ConnectionRefused | NotFound)
}

/// Waits for a message for a limited time.
async fn in_time<T>(socket: &Path, says: impl Future<Output = T>) -> Result<T, CliError> {
    tokio::time::timeout(PATIENCE, says).await.map_err(|_| {
        let problem = format!("the fleet-init at {} does not answer", socket.display());
        let help = "it may be stopped: `kill -CONT` its process has it go on";
        CliError::failed(problem).help(help)
    })
}

fn unreachable(error: ConnectionError) -> CliError {
    if let ConnectionError::Connect { socket: place, source } = &error
        && source.kind() == std::io::ErrorKind::PermissionDenied
    {
        let error = CliError::failed(format!("you may not ask the fleet-init at {place}"));
        return error.help("only its own user and root may, or name another by --socket");
    }
    let error = CliError::failed("cannot ask a fleet-init").because(error);
    error.help("start one with `fleet-init run`, or name its socket with --socket")
}

impl Asking {
    /// Sends a request and returns its response, item by item.
    pub(super) fn begin(&self, ask: Ask) -> Result<Response, NoAnswer> {
        self.connection.request(&OfInit { init: ask }).map_err(no_answer)
    }

    /// Returns the next item of a response.
    pub(super) async fn next(&self, answer: &mut Response) -> Result<Option<Value>, NoAnswer> {
        let next = in_time(&self.socket, answer.next()).await;
        next.map_err(NoAnswer::Because)?.map_err(no_answer)
    }

    /// Returns all items of a response from a fleet-init that runs the units of files.
    pub(super) async fn all(&self, ask: Ask) -> Result<Vec<Value>, CliError> {
        let all = async {
            let mut answer = self.begin(ask)?;
            let mut items = Vec::new();
            while let Some(item) = self.next(&mut answer).await? {
                items.push(item);
            }
            Ok(items)
        };
        all.await.map_err(NoAnswer::into_error)
    }
}

impl NoAnswer {
    /// Returns the error for commands that need a goal.
    pub(super) fn into_error(self) -> CliError {
        match self {
            Self::Because(error) => error,
            Self::RunsForFleet => {
                CliError::failed("this fleet-init runs the units of fleetd, and has no goal")
                    .help("fleetctl starts and stops them")
            }
        }
    }
}

/// Describes a failed request.
pub(super) fn no_answer(error: RequestError) -> NoAnswer {
    NoAnswer::Because(match error {
        RequestError::Failed(refusal) => match serde_json::from_value(refusal) {
            Ok(Refusal::RunsForFleet) => return NoAnswer::RunsForFleet,
            Ok(Refusal::Because { problem, help }) => {
                help.into_iter().fold(CliError::failed(problem), CliError::help)
            }
            Err(error) => not_understood(error),
        },
        RequestError::Refused(why) => CliError::failed(why),
        RequestError::Lost(why) => CliError::failed(format!("the connection is lost: {why}")),
    })
}

/// Decodes an item of a response.
pub(super) fn read<T: DeserializeOwned>(item: Value) -> Result<T, CliError> {
    serde_json::from_value(item).map_err(not_understood)
}

fn not_understood(error: serde_json::Error) -> CliError {
    let error = CliError::failed("the answer is not understood").because(error);
    error.help("run both programs from one release")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the kernel accepts connections for a stopped program.
    #[tokio::test(start_paused = true)]
    async fn one_that_is_stopped_is_not_waited_for_without_end() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        let _stopped = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let said = in_time(&socket, Connection::connect_to_any_user(&socket, PROGRAM)).await;
        let told = said.map(|_| "something").map_err(|error| error.parts().0);
        let expected = format!("the fleet-init at {} does not answer", socket.display());
        assert_eq!(told, Err(expected));
    }

    #[test]
    fn somebody_elses_socket_is_not_told_as_one_where_nobody_listens() {
        let told = |kind: std::io::ErrorKind| {
            unreachable(ConnectionError::Connect { socket: "s".to_owned(), source: kind.into() })
                .parts()
                .0
        };
        assert_eq!(
            told(std::io::ErrorKind::PermissionDenied),
            "you may not ask the fleet-init at s"
        );
        assert!(told(std::io::ErrorKind::NotFound).contains("cannot connect to s"));
    }
}
