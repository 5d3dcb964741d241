//! Units of an earlier supervisor that cannot be recovered.
//!
//! The processes of such a unit may still run, so the supervisor starts no new run beside them. It
//! reports the unit as failed with processes left, together with the reason, until the unit can be
//! recovered or an operator resets it. Other units are unaffected. The log of the unit is still
//! kept within its size limit, and can be read.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_core::graph::{
    EventKind, FailureCause, Graph, Incarnation, InitState, Name, ObservedUnit, Phase, Settings,
    UnitEvent,
};

use super::Supervisor;
use super::recovery::Recovery;
use super::supervised_unit::SupervisedUnit;
use crate::lock::lock;
use crate::native::run::adopt::stop_only_definition;
use crate::native::state::unit_directory::RunRecord;

/// Returns the observed state of a unit that cannot be recovered.
pub(super) fn unrecoverable_state(
    graph: &Graph,
    name: &Name,
    incarnation: Incarnation,
    now: Timestamp,
) -> ObservedUnit {
    let present = graph.unit(name).cloned();
    ObservedUnit {
        phase: Phase::Failed,
        since: now,
        incarnation: Some(incarnation),
        definition: Some(present.unwrap_or_else(|| Arc::new(stop_only_definition(name.clone())))),
        processes: true,
        cause: Some(FailureCause::Lost),
        ..ObservedUnit::default()
    }
}

/// Describes why a unit cannot be recovered and what to do about it.
pub(super) fn reason(unit: &Name, error: &io::Error) -> String {
    format!(
        "{error}; to try again, use \"fleet-init reload\"; if no process of the unit is left, use \
         \"fleet-init reset-failed {unit}\""
    )
}

impl Supervisor {
    /// Tries again to recover the units that could not be recovered.
    pub(super) fn retry_unrecoverable(&mut self, max_starting: Option<NonZeroU32>) {
        if self.unrecoverable.is_empty() || self.shutting_down {
            return;
        }
        let graph = self.planner.graph().clone();
        let mut recovery =
            Recovery { observation: self.planner.observation(), ..Recovery::default() };
        for name in self.unrecoverable.keys() {
            recovery.observation.units.remove(name);
            recovery.units.extend(self.units.remove_entry(name));
            recovery.recover_unit(&self.context, &graph, name);
        }
        let Recovery { observation, units, runs, unrecoverable } = recovery;
        self.replace_logs(&units);
        self.units.extend(units);
        let settings = Settings { max_starting, ..Settings::default() };
        match InitState::restore(graph, &self.selection.desired.apply_to(&settings), observation) {
            Ok(planner) => self.planner = planner,
            Err(error) => {
                tracing::error!(%error, "cannot supervise the recovered units: all stay failed");
                return;
            }
        }
        self.unrecoverable = unrecoverable;
        for (unit, incarnation, driver) in runs {
            self.spawn_run_task(&unit, incarnation, driver);
        }
    }

    /// Replaces the logs of unrecoverable units by those of `units`.
    fn replace_logs(&self, units: &BTreeMap<Name, SupervisedUnit>) {
        let mut logs = lock(&self.logs);
        logs.retain(|unit, _| !self.unrecoverable.contains_key(unit));
        logs.extend(units.iter().map(|(unit, entry)| (unit.clone(), Arc::clone(&entry.log))));
    }

    /// Treats an unrecoverable unit as gone; does nothing for any other unit.
    pub(super) fn forget_unrecoverable(&mut self, unit: &Name) {
        if self.unrecoverable.remove(unit).is_none() {
            return;
        }
        let written = self.context.storage(unit.as_str()).write_run(&RunRecord::default());
        if let Err(error) = written {
            tracing::warn!(
                %unit,
                %error,
                "cannot save the reset of a unit that could not be recovered: after fleet-init \
                 restarts, the unit is shown as failed again"
            );
        }
        let incarnation = self.planner.status(unit).and_then(|state| state.incarnation);
        if let Some(incarnation) = incarnation {
            let (unit, what) = (unit.clone(), EventKind::AllGone);
            self.planner.on_event(&UnitEvent { unit, incarnation, kind: what }, self.context.now());
        }
    }
}
