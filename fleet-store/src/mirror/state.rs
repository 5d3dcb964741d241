//! What all handles of a mirror and its task share: the view, and since when it is what it is.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use fleet_core::{Revision, Timestamp};
use tokio::sync::watch as signal;

use super::last_seen::LastSeen;
use super::machine_progress::MachineWatchers;
use super::view::View;
use super::{Delta, Progress};
use crate::Changes;
use crate::clock::Clock;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) state: RwLock<State>,
    /// May be held while the state is read, and is never asked for while that is written.
    pub(super) watchers: Mutex<MachineWatchers>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) view: View,
    /// Since when the view may be behind the store; nothing while it is current.
    pub(super) behind_since: Option<Timestamp>,
    /// Since when the view has been current, if it is.
    pub(super) current_since: Timestamp,
    /// How often it has become current.
    pub(super) resyncs: u64,
    pub(super) began: Timestamp,
    pub(super) last_seen: LastSeen,
    /// Where progress is told; nothing once the mirror was shut down, after which nothing makes it
    /// current again.
    pub(super) publisher: Option<signal::Sender<Progress>>,
}

impl Shared {
    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state, then tells how far it has come. Not while it is locked: whoever is told
    /// may look at it.
    pub(super) fn change(&self, work: impl FnOnce(&mut State)) {
        let (publisher, progress, affected) = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            work(&mut state);
            (state.publisher.clone(), state.progress(), state.view.take_affected())
        };
        if let Some(publisher) = publisher {
            publisher.send_if_modified(|told| std::mem::replace(told, progress) != progress);
            self.watchers().publish(&affected, progress.machine_progress());
        }
    }

    pub(super) fn watchers(&self) -> MutexGuard<'_, MachineWatchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the view is not current from now on, if it was until now.
    pub(super) fn mark_behind(&self) {
        let now = self.clock.now();
        self.change(|state| {
            state.behind_since.get_or_insert(now);
        });
    }

    /// Notes that nobody keeps the view current any more.
    pub(super) fn close(&self) {
        self.mark_behind();
        self.change(|state| state.publisher = None);
        self.watchers().end();
    }
}

impl State {
    /// Takes over a view that is complete and watched from now on.
    pub(super) fn resume(&mut self, view: View, now: Timestamp) {
        let lost = self.behind_since.unwrap_or(now);
        self.last_seen.compare(self.view.snapshot(), view.snapshot(), lost);
        self.view = view;
        if self.publisher.is_some() {
            self.behind_since = None;
            self.current_since = now;
            self.resyncs += 1;
        }
    }

    /// Takes over what one revision changed.
    pub(super) fn apply(&mut self, changes: &Changes, now: Timestamp) {
        for (machine, is_present) in self.view.machines_in(changes) {
            self.last_seen.note(machine, is_present, now);
        }
        self.view.apply(changes);
    }

    pub(super) fn delta_since(&self, seen: Revision) -> Delta {
        Delta {
            snapshot: self.view.snapshot().clone(),
            is_current: self.behind_since.is_none(),
            changes: self.view.since(seen),
        }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            revision: self.view.snapshot().revision,
            scheduling_revision: self.view.scheduling_revision(),
            is_current: self.behind_since.is_none(),
        }
    }
}
