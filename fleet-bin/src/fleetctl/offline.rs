//! Direct access to the store of a daemon's configuration, for `--config`.

use std::path::Path;

use super::session::context::Context;
use crate::fleetd::offline::{self, MissingStore, OfflineCluster};
use crate::ui::error::{CliError, Exit};

/// Opens the store, and prints warnings about the configuration.
pub(crate) async fn open(
    context: &mut Context,
    config: &Path,
    missing: MissingStore,
) -> Result<OfflineCluster, CliError> {
    let store = offline::open(config, missing).await.map_err(|error| {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Failure };
        CliError::failed(error.to_string()).with_exit(exit)
    })?;
    for remark in &store.warnings {
        context.progress.note(&format!("{}: {remark}", config.display()));
    }
    Ok(store)
}
