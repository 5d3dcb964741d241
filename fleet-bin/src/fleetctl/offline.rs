//! Direct access to the store of a daemon's configuration, for `--config`.

use std::path::Path;

use super::context::Context;
use super::error::{CliError, Exit};
use crate::fleetd::offline::{self, Missing, Offline};

/// Opens the store, and prints warnings about the configuration.
pub(crate) async fn open(
    context: &mut Context,
    config: &Path,
    missing: Missing,
) -> Result<Offline, CliError> {
    let store = offline::open(config, missing).await.map_err(|error| {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Failure };
        CliError::failed(error.to_string()).ends_in(exit)
    })?;
    for remark in &store.remarks {
        context.progress.note(&format!("{}: {remark}", config.display()));
    }
    Ok(store)
}
