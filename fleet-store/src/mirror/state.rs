//! What all handles of a mirror and its task share: the view, and since when it is what it is.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use fleet_core::{Revision, Timestamp};
use tokio::sync::watch as signal;

use super::absent::Absent;
use super::concern::Followers;
use super::view::View;
use super::{News, Progress};
use crate::Changes;
use crate::clock::Clock;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) state: RwLock<State>,
    /// May be held while the state is read, and is never asked for while that is written.
    pub(super) followers: Mutex<Followers>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) view: View,
    /// Since when the view may be behind the store; nothing while it is current.
    pub(super) behind_since: Option<Timestamp>,
    /// Since when the view has been current, if it is.
    pub(super) current_since: Timestamp,
    /// How often it has become current.
    pub(super) gaps: u64,
    pub(super) began: Timestamp,
    pub(super) absent: Absent,
    /// Where progress is told; nothing once the mirror was shut down, after which nothing makes it
    /// current again.
    pub(super) tell: Option<signal::Sender<Progress>>,
}

impl Shared {
    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state, then tells how far it has come. Not while it is locked: whoever is told
    /// may look at it.
    pub(super) fn change(&self, work: impl FnOnce(&mut State)) {
        let (tell, progress, concerned) = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            work(&mut state);
            (state.tell.clone(), state.progress(), state.view.take_concerned())
        };
        if let Some(tell) = tell {
            tell.send_if_modified(|told| std::mem::replace(told, progress) != progress);
            self.followers().tell(&concerned, progress.concern());
        }
    }

    pub(super) fn followers(&self) -> MutexGuard<'_, Followers> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the view is not current from now on, if it was until now.
    pub(super) fn lose(&self) {
        let now = self.clock.now();
        self.change(|state| {
            state.behind_since.get_or_insert(now);
        });
    }

    /// Notes that nobody keeps the view current any more.
    pub(super) fn close(&self) {
        self.lose();
        self.change(|state| state.tell = None);
        self.followers().end();
    }
}

impl State {
    /// Takes over a view that is complete and watched from now on.
    pub(super) fn resume(&mut self, view: View, now: Timestamp) {
        let lost = self.behind_since.unwrap_or(now);
        self.absent.compare(self.view.snapshot(), view.snapshot(), lost);
        self.view = view;
        if self.tell.is_some() {
            self.behind_since = None;
            self.current_since = now;
            self.gaps += 1;
        }
    }

    /// Takes over what one revision changed.
    pub(super) fn apply(&mut self, changes: &Changes, now: Timestamp) {
        for (machine, is_present) in self.view.machines_in(changes) {
            self.absent.note(machine, is_present, now);
        }
        self.view.apply(changes);
    }

    pub(super) fn news_since(&self, seen: Revision) -> News {
        News {
            snapshot: self.view.snapshot().clone(),
            is_current: self.behind_since.is_none(),
            difference: self.view.since(seen),
        }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            revision: self.view.snapshot().revision,
            decisive: self.view.decisive(),
            is_current: self.behind_since.is_none(),
        }
    }
}
