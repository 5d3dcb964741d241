//! Asks a fleet-init that runs.

use std::path::PathBuf;

use fleet_agent::remote::{Answer, AskError, Link, LinkError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::args::SocketArgs;
use super::asks::{Ask, OfInit, Refusal};
use super::places;
use crate::fleetctl::error::CliError;

/// Who asks, for people.
pub(super) const PROGRAM: &str = concat!("fleet-init ", env!("CARGO_PKG_VERSION"));

/// The fleet-init at a socket.
pub(super) struct Asking {
    pub(super) socket: PathBuf,
    link: Link,
}

/// Why there is no answer.
pub(super) enum NoAnswer {
    /// It runs the units of fleetd, and has nothing to say of a goal.
    RunsForFleet,
    /// For this reason.
    Because(CliError),
}

/// Asks the fleet-init at a socket.
pub(super) fn ask<T>(
    args: &SocketArgs,
    question: impl AsyncFnOnce(&Asking) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed("cannot begin").because(error))?;
    let socket = places::socket(args.socket.as_deref());
    runtime.block_on(async {
        let link = Link::connect(&socket, PROGRAM).await.map_err(unreachable)?;
        question(&Asking { socket, link }).await
    })
}

fn unreachable(error: LinkError) -> CliError {
    let error = CliError::failed("cannot ask a fleet-init").because(error);
    error.help("start one with `fleet-init run`, or name its socket with --socket")
}

impl Asking {
    /// The answer to an ask, item by item.
    pub(super) fn begin(&self, ask: Ask) -> Result<Answer, NoAnswer> {
        self.link.ask(&OfInit { init: ask }).map_err(no_answer)
    }

    /// All items of the answer to an ask, in a fleet-init that runs the units of files.
    pub(super) async fn all(&self, ask: Ask) -> Result<Vec<Value>, CliError> {
        let all = async {
            let mut answer = self.begin(ask)?;
            let mut items = Vec::new();
            while let Some(item) = answer.next().await.map_err(no_answer)? {
                items.push(item);
            }
            Ok(items)
        };
        all.await.map_err(|error: NoAnswer| match error {
            NoAnswer::Because(error) => error,
            NoAnswer::RunsForFleet => {
                CliError::failed("this fleet-init runs the units of fleetd, and has no goal")
                    .help("fleetctl starts and stops them")
            }
        })
    }
}

/// Why there is no answer, in words for a person.
pub(super) fn no_answer(error: AskError) -> NoAnswer {
    NoAnswer::Because(match error {
        AskError::Failed(refusal) => match serde_json::from_value(refusal) {
            Ok(Refusal::RunsForFleet) => return NoAnswer::RunsForFleet,
            Ok(Refusal::Because { problem, help }) => {
                help.into_iter().fold(CliError::failed(problem), CliError::help)
            }
            Err(error) => not_understood(error),
        },
        AskError::Refused(why) => CliError::failed(why),
        AskError::Lost(why) => CliError::failed(format!("the connection is lost: {why}")),
    })
}

/// Reads an item of an answer.
pub(super) fn read<T: DeserializeOwned>(item: Value) -> Result<T, CliError> {
    serde_json::from_value(item).map_err(not_understood)
}

fn not_understood(error: serde_json::Error) -> CliError {
    let error = CliError::failed("the answer is not understood").because(error);
    error.help("run both programs from one release")
}
