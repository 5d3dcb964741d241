//! The supervisor of `fleet-init`: the units of files, which a goal selects.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;

use fleet_core::graph::{Graph, Name, Settings, Target};
use fleet_core::journal::JournalQuery;
use tokio::sync::watch;

use crate::journal::Journal;
use crate::native::linux::process_table::Tracking;
use crate::native::log::journal;
use crate::native::state::manager_context::was_used_this_boot;
use crate::native::supervisor::command::{Command, SupervisorHandle, TargetCommand};
use crate::native::supervisor::{
    InitDryRun, InitDryRunResult, InitSnapshot, SupervisorConfig, SupervisorError, io_error,
};

/// Supervises the units of a graph. It starts the units that the goal needs, in dependency order,
/// and keeps them in the state that the graph prescribes.
///
/// Dropping the supervisor leaves the units running, as a crash does. The next supervisor of the
/// same directory adopts the units without a restart, and continues with the last desired targets.
/// After a reboot, the next supervisor starts with an empty state instead.
pub struct InitSupervisor(SupervisorHandle);

impl InitSupervisor {
    /// Starts to supervise the units of a graph, and adopts the units that an earlier supervisor
    /// left running.
    ///
    /// The goal and the masks are those of the settings, unless an operator has overridden them
    /// since the machine booted. If the graph no longer provides the targets of an override, the
    /// settings apply.
    ///
    /// # Errors
    ///
    /// - [`SupervisorError::Service`] if the directory is in use or cannot be used.
    /// - [`SupervisorError::InvalidTargets`] if the graph does not provide the goal of the
    ///   settings.
    pub async fn start(
        config: SupervisorConfig,
        graph: Graph,
        settings: &Settings,
    ) -> Result<Self, SupervisorError> {
        SupervisorHandle::open_files(config, graph, settings).await.map(Self)
    }

    /// Returns whether a supervisor has used a directory since the machine or its container was
    /// booted. If so, units may still be running, and the next supervisor will adopt them. Returns
    /// `false` if the check fails.
    #[must_use]
    pub fn has_used(directory: &Path) -> bool {
        was_used_this_boot(directory).unwrap_or_default()
    }

    /// Sets the goal and the extra targets. They stay in effect until the machine boots again, even
    /// if another supervisor takes over the directory.
    ///
    /// # Errors
    ///
    /// In all these cases nothing changes:
    ///
    /// - [`SupervisorError::InvalidTargets`] if no unit provides one of the targets, or if the goal
    ///   is masked.
    /// - [`SupervisorError::ShuttingDown`] once a [`shutdown`](Self::shutdown) has begun.
    /// - [`SupervisorError::Service`] if the choice cannot be stored.
    pub async fn set_goal(
        &self,
        goal: Option<Target>,
        extra_targets: BTreeSet<Target>,
    ) -> Result<(), SupervisorError> {
        let command = |reply| Command::SetGoal { goal, extra_targets, reply };
        self.0.commands().call(command).await?
    }

    /// Masks a target: its unit stops, and does not start. Like the goal, the mask stays in effect
    /// until the machine boots again. Returns `false` if the unit was already masked.
    ///
    /// # Errors
    ///
    /// In all these cases nothing changes:
    ///
    /// - [`SupervisorError::InvalidTargets`] if the unit provides the goal.
    /// - [`SupervisorError::Service`] if the mask cannot be stored.
    pub async fn mask(&self, target: &Target) -> Result<bool, SupervisorError> {
        self.0.commands().target(target, TargetCommand::Mask).await?
    }

    /// Removes all masks of the unit that provides a target. Returns `false` if there was none.
    ///
    /// # Errors
    ///
    /// In all these cases nothing changes:
    ///
    /// - [`SupervisorError::MaskedBySettings`] if the settings mask the unit.
    /// - [`SupervisorError::Service`] if the change cannot be stored.
    pub async fn unmask(&self, target: &Target) -> Result<bool, SupervisorError> {
        self.0.commands().target(target, TargetCommand::Unmask).await?
    }

    /// Sets the maximum number of units that may be starting at the same time. `None` sets no
    /// limit. The value stays in effect until the next [`reload`](Self::reload).
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn set_max_starting(&self, most: Option<NonZeroU32>) -> Result<(), SupervisorError> {
        Ok(self.0.commands().call(|reply| Command::SetMaxStarting { most, reply }).await?)
    }

    /// Replaces the graph and the settings in one step.
    ///
    /// - Units with a change that needs a restart are restarted, removed units are stopped, and all
    ///   other units keep running. Other changes apply to their current run.
    /// - The goal and the masks become those of the settings, except where an operator has
    ///   overridden them.
    /// - Units of an earlier supervisor that could not be recovered are tried again.
    /// - Once a [`shutdown`](Self::shutdown) has begun, a reload starts no unit.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::InvalidTargets`] if the graph does not provide the goal. In that case
    /// nothing changes.
    pub async fn reload(&self, graph: Graph, settings: &Settings) -> Result<(), SupervisorError> {
        let settings = settings.clone();
        let command = |reply| Command::ReplaceGraph { graph, settings, reply };
        self.0.commands().call(command).await?
    }

    /// Applies other files or another goal to a copy of the planner, and returns the planner before
    /// and after the change. The supervised units are not affected.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::InvalidTargets`] if the change is impossible, for example because no unit
    /// provides the goal.
    pub async fn dry_run(&self, request: InitDryRun) -> Result<InitDryRunResult, SupervisorError> {
        self.0.commands().call(|reply| Command::DryRun { request, reply }).await?
    }

    /// Clears the failed or completed state of the unit that provides a target. If the unit is
    /// needed, it then starts at once. Returns whether there was a state to clear.
    ///
    /// For a unit of an earlier supervisor that could not be recovered, this call also declares
    /// that its processes have ended. If that unit is no longer in the graph, `target` has to be
    /// the name of the unit.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn reset_failed(&self, target: &Target) -> Result<bool, SupervisorError> {
        Ok(self.0.commands().target(target, TargetCommand::ResetFailed).await?)
    }

    /// Restarts the unit that provides a target, if the unit is starting or active. Otherwise does
    /// nothing and returns `false`.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn restart(&self, target: &Target) -> Result<bool, SupervisorError> {
        Ok(self.0.commands().target(target, TargetCommand::Restart).await?)
    }

    /// Requests a reload of the unit that provides a target. Does not wait for the reload; a later
    /// snapshot shows its result.
    ///
    /// # Errors
    ///
    /// [`SupervisorError::NotReloadable`] with the reason, for example that the unit is not active.
    pub async fn reload_unit(&self, target: &Target) -> Result<(), SupervisorError> {
        let done = self.0.commands().target(target, TargetCommand::Reload).await?;
        done.map_err(|why| SupervisorError::NotReloadable { target: target.clone(), why })
    }

    /// Returns the current status of all units.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn snapshot(&self) -> Result<InitSnapshot, SupervisorError> {
        Ok(self.0.commands().call(|reply| Command::Snapshot { reply }).await?)
    }

    /// Returns a counter that increases whenever a snapshot may have changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }

    /// Returns the output of a unit.
    ///
    /// # Errors
    ///
    /// - [`SupervisorError::NoLog`] if the unit has never run.
    /// - [`SupervisorError::Service`] if the log of the unit cannot be read.
    pub fn journal(&self, unit: &Name, query: &JournalQuery) -> Result<Journal, SupervisorError> {
        let no_log = || SupervisorError::NoLog { unit: unit.clone() };
        let log = self.0.log(unit).ok_or_else(no_log)?;
        Ok(journal::read(&log, query).map_err(io_error("read a log"))?)
    }

    /// Returns the method by which processes are tracked.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        self.0.context().tracking()
    }

    /// Stops all units in dependency order, and returns once they have stopped. It does not wait
    /// for stuck units, whose processes survive SIGKILL. Once this call has begun, the supervisor
    /// starts no unit.
    ///
    /// The shutdown does not change the stored targets, so the next supervisor starts the same
    /// units again.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn shutdown(&self) -> Result<(), SupervisorError> {
        self.0.commands().call(|reply| Command::Shutdown { reply }).await?;
        Ok(())
    }

    /// Kills all processes that can be found, of all units. The stop settings of the units do not
    /// matter. Does not wait for the processes to exit. Their exits are handled like any other
    /// exit.
    ///
    /// # Errors
    ///
    /// Only [`SupervisorError::Crashed`].
    pub async fn kill_all(&self) -> Result<(), SupervisorError> {
        Ok(self.0.commands().call(|reply| Command::KillAll { reply }).await?)
    }
}
