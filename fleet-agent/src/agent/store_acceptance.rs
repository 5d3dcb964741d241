//! Which store may change the units of a machine.
//!
//! The machine's saved state has the lineage of the store that it is from. A store of another
//! lineage may be an emptied one, and following it would end all units. So a daemon follows it only
//! after a person has accepted it.

use std::io;

use fleet_core::MachineId;
use fleet_store::Lineage;

use super::desired_state::DesiredState;
use super::state::AgentState;

/// Returns the lineage that a store must continue to change the units of this machine, for
/// [`Mirror::start_expecting`](fleet_store::Mirror::start_expecting). Returns `None` if any store
/// may: the machine has no units, or a person has [accepted](accept_any_store) any store.
pub async fn protected_lineage(state: &dyn AgentState, machine: &MachineId) -> Option<Lineage> {
    // The agent logs an unusable state.
    DesiredState::try_read(state, machine).await.ok()?.protected_lineage()
}

/// Lets any store change the units of this machine, until its daemon has followed one. Call this
/// only for a person, and while the machine's agent does not run.
///
/// # Errors
///
/// The saved state cannot be written.
pub async fn accept_any_store(state: &dyn AgentState, machine: &MachineId) -> io::Result<()> {
    // An unusable state names no lineage.
    let saved = DesiredState::try_read(state, machine).await.unwrap_or_default();
    if saved.lineage.is_none() {
        return Ok(());
    }
    DesiredState { lineage: None, ..saved }.write(state, machine).await
}
