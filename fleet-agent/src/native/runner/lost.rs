//! Units that an earlier runner left, and that cannot be taken back.
//!
//! Something of them may run, so none is started beside that: such a unit is shown as failed, with
//! processes left and with the reason, until it can be taken back or somebody says that nothing of
//! it runs. No other unit is harmed by it. What it may write is kept within its limit, and can be
//! read.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_core::graph::{
    Cause, Event, Graph, Happening, Incarnation, Name, Observed, Phase, Settings, System,
};

use super::lead::{Lead, lock};
use super::member::Member;
use super::recall::Recalled;
use crate::native::adopt::only_to_stop;
use crate::native::record::Run;

/// What is known of a unit that cannot be taken back.
pub(super) fn lost(
    graph: &Graph,
    name: &Name,
    incarnation: Incarnation,
    now: Timestamp,
) -> Observed {
    let present = graph.unit(name).cloned();
    Observed {
        phase: Phase::Failed,
        since: now,
        incarnation: Some(incarnation),
        definition: Some(present.unwrap_or_else(|| Arc::new(only_to_stop(name.clone())))),
        processes: true,
        cause: Some(Cause::Lost),
        ..Observed::default()
    }
}

/// Why a unit cannot be taken back, and what to do, for a person.
pub(super) fn reason(error: &io::Error) -> String {
    format!(
        "{error}; it is tried again when the files are read again; if nothing of it runs any \
         more, reset it"
    )
}

impl Lead {
    /// Tries once more to take back what could not be.
    pub(super) fn take_lost_back(&mut self, max_starting: Option<NonZeroU32>) {
        if self.lost.is_empty() || self.ends {
            return;
        }
        let graph = self.system.graph().clone();
        let mut recalled = Recalled { seen: self.system.observation(), ..Recalled::default() };
        for name in self.lost.keys() {
            recalled.seen.units.remove(name);
            recalled.members.extend(self.members.remove_entry(name));
            recalled.take(&self.machine, &graph, name);
        }
        let Recalled { seen, members, runs, lost } = recalled;
        self.have_logs_of(&members);
        self.members.extend(members);
        let settings = Settings { max_starting, ..Settings::default() };
        match System::restore(graph, &self.choice.wanted.within(&settings), seen) {
            Ok(system) => self.system = system,
            Err(flaw) => return tracing::error!(%flaw, "cannot take up what was taken back"),
        }
        self.lost = lost;
        for (unit, incarnation, driver) in runs {
            self.follow(&unit, incarnation, driver);
        }
    }

    /// The logs of units that could not be taken back are those of these members from now on.
    fn have_logs_of(&self, members: &BTreeMap<Name, Member>) {
        let mut logs = lock(&self.logs);
        logs.retain(|unit, _| !self.lost.contains_key(unit));
        logs.extend(members.iter().map(|(unit, member)| (unit.clone(), Arc::clone(&member.log))));
    }

    /// Somebody says that nothing runs of a unit that could not be taken back, if this is one.
    pub(super) fn give_up_lost(&mut self, unit: &Name) {
        if self.lost.remove(unit).is_none() {
            return;
        }
        let gone = self.machine.record(unit.as_str()).write_run(&Run::default());
        if let Err(error) = gone {
            tracing::warn!(%unit, %error, "cannot record that nothing runs of a unit");
        }
        let incarnation = self.system.state(unit).and_then(|state| state.incarnation);
        if let Some(incarnation) = incarnation {
            let (unit, what) = (unit.clone(), Happening::AllGone);
            self.system.on_event(&Event { unit, incarnation, what }, self.machine.now());
        }
    }
}
