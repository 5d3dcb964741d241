//! What would follow from other files or another goal: tried on a copy.

use std::collections::BTreeSet;

use fleet_core::Timestamp;
use fleet_core::graph::{Graph, Settings, System, Target};

use super::error::RunnerError;
use super::front::Runner;
use super::lead::Lead;
use super::wanted::Wanted;

/// What is to be tried.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    /// Another graph with its settings, as by [`Runner::reload`].
    pub files: Option<(Graph, Settings)>,
    /// Another goal, as by [`Runner::set_goal`]; it wins over that of the settings.
    pub goal: Option<Target>,
    /// What is wanted beside the goal instead. With neither this nor a goal, that stays as it is.
    pub beside: BTreeSet<Target>,
}

/// How the units are, and how they would be right after what was tried.
#[derive(Debug, Clone)]
pub struct Tried {
    /// The moment.
    pub now: Timestamp,
    /// What would be wanted.
    pub wanted: Wanted,
    /// What decides as it is.
    pub before: System,
    /// What would decide, before it has.
    pub after: System,
}

impl Runner {
    /// Tries other files or another goal on a copy of what decides. Nothing changes.
    ///
    /// # Errors
    ///
    /// [`RunnerError::Wanted`] where trying it in earnest would be refused.
    pub async fn try_out(&self, trial: Trial) -> Result<Tried, RunnerError> {
        self.ask(move |lead| lead.try_out(trial)).await?
    }
}

impl Lead {
    fn try_out(&self, trial: Trial) -> Result<Tried, RunnerError> {
        let now = self.machine.now();
        let (mut after, mut wanted) = (self.system.clone(), self.choice.wanted.clone());
        if let Some((graph, settings)) = trial.files {
            wanted = self.choice.under(&settings).wanted;
            wanted.goal = trial.goal.clone().or(wanted.goal);
            let done = after.reload_with(graph, &wanted.within(&settings), now);
            done.map_err(RunnerError::Wanted)?;
        }
        if trial.goal.is_some() || !trial.beside.is_empty() {
            wanted.goal = trial.goal.or(wanted.goal);
            wanted.beside = trial.beside;
            let done = after.set_goal(wanted.goal.clone(), wanted.beside.clone(), now);
            done.map_err(RunnerError::Wanted)?;
        }
        Ok(Tried { now, wanted, before: self.system.clone(), after })
    }
}
