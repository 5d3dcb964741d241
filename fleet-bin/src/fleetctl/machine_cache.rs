//! Cache of machines, for their addresses.

use std::collections::BTreeSet;

use fleet_http::wire;

use super::concurrent::buffered;
use super::error::CliError;
use super::format::MachineLabels;
use super::session::Session;

/// Largest number of machines to request one by one. A command that shows more machines has much
/// output anyway, so requesting the list of all machines adds little.
const MAX_SINGLE_REQUESTS: usize = 8;

/// Machines that a command has looked up. Each machine is requested only once. A command that shows
/// one unit must not fetch the machine list of a whole cluster.
#[derive(Debug, Default)]
pub(crate) struct MachineCache {
    requested: BTreeSet<String>,
    present: Vec<wire::MachineEntity>,
    has_all: bool,
}

impl MachineCache {
    /// Looks up the machines that are not cached yet. Empty IDs are ignored.
    ///
    /// # Errors
    ///
    /// A request failed. It is not an error if a machine is not present.
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
