//! Asks a fleet-init that runs.

use std::sync::Arc;

use fleet_agent::SystemClock;
use fleet_agent::remote::{RemoteConfig, RemoteManager};

use super::args::SocketArgs;
use super::places;
use crate::fleetctl::error::CliError;

/// Asks the fleet-init at a socket.
pub(super) fn ask<T>(
    args: &SocketArgs,
    question: impl AsyncFnOnce(Arc<RemoteManager>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed("cannot begin").because(error))?;
    let socket = places::socket(args.socket.as_deref());
    let config = RemoteConfig {
        socket: socket.clone(),
        directory: None,
        program: concat!("fleet-init ", env!("CARGO_PKG_VERSION")).to_owned(),
        clock: Arc::new(SystemClock::start()),
    };
    runtime.block_on(async {
        let manager = RemoteManager::open(config).await.map_err(|error| {
            let message = format!("cannot ask the fleet-init at {}", socket.display());
            let hint = "start one with `fleet-init run`, or name its socket with --socket";
            CliError::failed(message).because(error).help(hint)
        })?;
        question(manager).await
    })
}
