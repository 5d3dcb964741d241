//! `run`: the long-lived parent of units, which fleetd orders about over a socket.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use fleet_agent::remote::serve;
use fleet_agent::{NativeConfig, NativeManager, ServiceManager, SystemClock};
use tokio::signal::unix::SignalKind;

use super::args::RunArgs;
use super::ending::{Ends, end, listen};
use super::{places, settle, warden};
use crate::fleetctl::error::CliError;

/// Who serves, for people.
const PROGRAM: &str = concat!("fleet-init ", env!("CARGO_PKG_VERSION"));

/// Runs the command.
pub(super) fn run(args: &RunArgs) -> ExitCode {
    if warden::is_needed(args.reap) {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        return warden::run(&words).unwrap_or_else(|error| settle(Err(error)));
    }
    crate::fleetd::logging::start("info");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ran = runtime.map_err(|error| CliError::failed("cannot begin").because(error));
    settle(ran.and_then(|runtime| runtime.block_on(serve_fleet(args))))
}

async fn serve_fleet(args: &RunArgs) -> Result<(), CliError> {
    let mut ends = Ends::listen()?;
    // There is nothing to read again; whoever asks for it must not end this process.
    let _hangups = listen(SignalKind::hangup())?;
    let directory = places::state_dir(args.state_dir.as_deref());
    let socket = places::socket(args.socket.socket.as_deref());
    // The directory first: whoever holds it may be about to leave, and its socket with it.
    let manager = NativeManager::open(NativeConfig::new(&directory)).await;
    let cannot = |error| {
        CliError::failed(format!("cannot take over {}", directory.display())).because(error)
    };
    let manager = manager.map_err(cannot)?;
    let listener = places::listen(&socket).await?;
    tracing::info!(socket = %socket.display(), directory = %directory.display(), "runs units");
    let clock = Arc::new(SystemClock::start());
    let shared: Arc<dyn ServiceManager> = manager.clone();
    tokio::select! {
        () = serve(listener, shared, PROGRAM, clock.clone()) => {}
        () = ends.next() => {}
    }
    // Nobody may start again what ends here.
    drop(std::fs::remove_file(&socket));
    tracing::info!("ends its units");
    end(&manager, &mut ends, args.stop_limit, &*clock).await
}
