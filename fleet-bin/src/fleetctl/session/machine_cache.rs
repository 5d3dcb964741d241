//! Cache of machines, for their addresses.

use std::collections::BTreeSet;

use fleet_http::wire;

use super::Session;
use crate::fleetctl::concurrent::buffered;
use crate::fleetctl::format::MachineLabels;
use crate::ui::error::CliError;

/// Maximum number of machines that are requested one by one. Beyond it, a single request for the
/// list of all machines is cheaper.
const MAX_SINGLE_REQUESTS: usize = 8;

/// Machines that a command has looked up, each requested only once.
///
/// A few machines are requested one by one. A command that shows one unit therefore does not fetch
/// the list of all machines of a large cluster.
#[derive(Debug, Default)]
pub(crate) struct MachineCache {
    requested: BTreeSet<String>,
    present: Vec<wire::MachineEntity>,
    has_all: bool,
}

impl MachineCache {
    /// Looks up machines that are not in the cache yet. Ignores empty IDs, and IDs of machines that
    /// are not present.
    ///
    /// # Errors
    ///
    /// A request failed.
    pub(crate) async fn load<'a>(
        &mut self,
        session: &Session,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), CliError> {
        let is_new = |id: &&str| !id.is_empty() && !self.requested.contains(*id);
        let missing: BTreeSet<&str> = ids.into_iter().filter(is_new).collect();
        if self.has_all || missing.is_empty() {
            return Ok(());
        }
        if self.requested.len() + missing.len() > MAX_SINGLE_REQUESTS {
            return self.load_all(session).await;
        }
        let loaded = buffered(missing.iter().map(|id| session.machine(id))).await;
        self.present.extend(CliError::all_or_none(loaded)?.into_iter().flatten());
        self.requested.extend(missing.into_iter().map(str::to_owned));
        Ok(())
    }

    /// Looks up all machines that are present.
    ///
    /// # Errors
    ///
    /// The request failed.
    pub(crate) async fn load_all(&mut self, session: &Session) -> Result<(), CliError> {
        if !self.has_all {
            self.present = session.machines().await?;
            self.has_all = true;
        }
        Ok(())
    }

    /// Returns the cached machines that are present.
    pub(crate) fn present(&self) -> &[wire::MachineEntity] {
        &self.present
    }

    /// Returns labels for the cached machines.
    pub(crate) fn labels(&self) -> MachineLabels {
        MachineLabels::new(&self.present)
    }
}
