//! The units that fleet has loaded, and what it asks of them.
//!
//! What fleet asks is what a graph is asked for: units that are to run are wanted beside the goal,
//! of which there is none; to load a unit is to take it into the graph. Who asked for something
//! waits here until the unit is as it should be. All of it belongs to the lead.

mod calls;
mod linking;
mod outside;
mod recall;
mod shown;
mod timers;
mod waiters;
mod wants;

pub(in crate::native) use self::calls::name_of;
pub(in crate::native) use self::recall::{Opened, ServicesConfig, open_services};
pub(in crate::native) use self::timers::Wanted;
pub(super) use self::waiters::gave_up;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use fleet_core::graph::systemd::{Compiled, Linked};
use fleet_core::graph::{Incarnation, Name, Target};
use fleet_core::{Epoch, Generation, KnownUnit, TargetState, Timestamp};
use fleet_unitfile::{UnitHash, UnitName};
use tokio::sync::oneshot;

use self::outside::OfOthers;
use self::waiters::Waiters;
use super::lead::Lead;
use crate::native::log::Log;
use crate::native::record::Asked;
use crate::{ManagedUnit, ServiceError};

/// What a call comes to.
pub(in crate::native) type Done = Result<(), ServiceError>;

/// Where that is told.
pub(in crate::native) type Reply = oneshot::Sender<Done>;

/// All units that fleet has loaded.
#[derive(Default)]
pub(in crate::native) struct Services {
    entries: BTreeMap<Name, Entry>,
    waiters: Waiters,
    /// Units that are to be started anew as soon as this run of them is over, however it ends.
    again: BTreeMap<Name, Incarnation>,
    of_others: OfOthers,
    timers: timers::Known,
    /// Units that are loaded by now, and of which the graph knows only what others did.
    taken_over: BTreeSet<Name>,
    /// Which units are stopped with which.
    linked: Linked,
    /// Whether something was loaded or unloaded that the graph does not know of yet.
    stale: bool,
    /// When the graph is made anew at the latest, because files of units in it have changed.
    link_by: Option<Timestamp>,
    /// How many units were ever loaded: the later one gives way where two cannot be together.
    loads: u64,
    /// Whether all units were told to end, so that nothing is started any more.
    ends: bool,
    max_starting: Option<NonZeroU32>,
    shown: Showcase,
}

/// What everybody may see of all units.
pub(in crate::native) type Showcase = Arc<Mutex<BTreeMap<UnitName, Arc<Seen>>>>;

/// What everybody may see of a unit.
#[derive(Debug)]
pub(in crate::native) struct Seen {
    pub(in crate::native) unit: ManagedUnit,
    pub(in crate::native) asked: Asked,
    pub(in crate::native) log: Arc<Log>,
    /// What it last said of itself.
    pub(in crate::native) status: Option<String>,
}

/// A unit that is loaded.
pub(in crate::native) struct Entry {
    pub(in crate::native) unit: UnitName,
    pub(in crate::native) hash: UnitHash,
    pub(in crate::native) asked: Asked,
    pub(in crate::native) is: Is,
    /// Which of all loads was its own.
    pub(in crate::native) load: u64,
    /// Why it is not in the graph.
    pub(in crate::native) refused: Option<String>,
    /// It is on its way out.
    pub(in crate::native) leaving: bool,
}

/// What is known of how to run a unit.
pub(in crate::native) enum Is {
    /// All that its file says.
    Fit(Box<Compiled>),
    /// Its file cannot be obeyed any more. What an earlier version has started runs on, and can be
    /// stopped.
    Unfit(String),
}

impl Entry {
    /// A unit that comes now.
    pub(in crate::native) fn new(unit: UnitName, hash: UnitHash, asked: Asked, is: Is) -> Self {
        Self { unit, hash, asked, is, load: 0, refused: None, leaving: false }
    }

    /// Whether it is to run as its own file says: fleet wants it to, or a timer did.
    fn is_wanted(&self) -> bool {
        self.asked.is_wanted() && !self.leaving
    }

    fn known(&self) -> KnownUnit {
        let launched = self.asked.launched;
        KnownUnit {
            hash: self.hash,
            asked: if launched { TargetState::Launched } else { TargetState::Loaded },
            epoch: Epoch(self.asked.epoch),
            generation: Generation(self.asked.generation),
        }
    }
}

impl Services {
    /// What everybody may see.
    pub(in crate::native) fn showcase(&self) -> Showcase {
        Arc::clone(&self.shown)
    }

    /// Whether the records of a unit are to be kept, in the graph or not.
    pub(super) fn keeps(&self, unit: &Name) -> bool {
        self.entries.contains_key(unit)
    }

    /// What was last asked of a unit that is about to be started.
    ///
    /// # Errors
    ///
    /// Why it cannot be, if that is so.
    pub(super) fn asked_to_run(&self, unit: &Name) -> io::Result<Asked> {
        match self.entries.get(unit) {
            Some(Entry { is: Is::Unfit(problem), .. }) => Err(io::Error::other(problem.clone())),
            Some(entry) => Ok(entry.asked),
            None => Err(io::Error::other("it is not loaded any more")),
        }
    }

    /// What was last asked of a unit.
    pub(super) fn asked(&self, unit: &Name) -> Option<Asked> {
        self.entries.get(unit).map(|entry| entry.asked)
    }
}

impl Lead {
    /// Has those that are to be started anew forget how they ended, of these that have changed.
    /// Tells whether there was one.
    pub(super) fn begin_again(&mut self, changed: &[Name]) -> bool {
        let Some(services) = &mut self.services else { return false };
        if services.again.is_empty() {
            return false;
        }
        let mut begun = Vec::new();
        for unit in changed {
            let Some(run) = services.again.get(unit) else { continue };
            let state = self.system.state(unit);
            let state = state.filter(|state| state.incarnation == Some(*run));
            let is_over = state.as_ref().is_some_and(|state| waiters::is_over(&state.what));
            if is_over || state.is_none() {
                services.again.remove(unit);
            }
            begun.extend(is_over.then_some(unit));
        }
        for unit in &begun {
            self.reset(&Target::from(*unit));
        }
        !begun.is_empty()
    }

    /// Writes down that a unit was tried too often, for who takes it back: its last run does not
    /// know.
    pub(super) fn note_give_ups(&mut self, units: &BTreeSet<Name>) {
        for unit in units {
            let state = self.system.state(unit).map(|state| state.what);
            if !state.is_some_and(|what| gave_up(&what)) {
                continue;
            }
            let Some(member) = self.members.get_mut(unit) else { continue };
            if let Err(error) = member.give_up() {
                tracing::warn!(%unit, %error, "cannot record that a unit was given up");
            }
        }
    }
}
