//! What fleet asks for, as a change of what the graph is to be.

use std::collections::BTreeSet;

use fleet_core::graph::{Incarnation, Name, NotReloadable, Shown, Target};
use fleet_unitfile::UnitName;
use tokio::sync::oneshot;

use super::super::lead::{Lead, lock};
use super::waiters::{answer, is_busy, is_there};
use super::{Done, Entry, Reply};
use crate::ServiceError;
use crate::native::end::refusal;
use crate::native::record::Asked;

impl Lead {
    /// Has a unit run; one that failed gets a new attempt, and one that is up stays as it is.
    pub(in crate::native) fn start(&mut self, unit: &UnitName, asked: Asked, reply: Reply) {
        let Some((name, reply)) = self.begin_start(unit, asked, reply) else { return };
        self.want(&name);
        let state = self.system.state(&name);
        let stopping = state.as_ref().filter(|it| matches!(it.what, Shown::Stopping(_)));
        let before = stopping.and_then(|state| state.incarnation);
        match (before, &state) {
            (Some(run), _) => self.start_again_after(&name, run),
            (None, Some(state)) if is_busy(&state.what) => self.note_done(&name, asked),
            _ => drop(self.reset(&Target::from(&name))),
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Has a unit end, if it runs, and run again; so do those that are stopped with it.
    pub(in crate::native) fn restart(&mut self, unit: &UnitName, asked: Asked, reply: Reply) {
        let Some((name, reply)) = self.begin_start(unit, asked, reply) else { return };
        self.want(&name);
        self.reset(&Target::from(&name));
        let state = self.system.state(&name).filter(|state| is_busy(&state.what));
        let before = state.and_then(|state| state.incarnation);
        for (unit, run) in self.renew_with_all(&name) {
            self.start_again_after(&unit, run);
        }
        if let Some(run) = before {
            self.start_again_after(&name, run);
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Has a unit run once more, within its limit of starts; one that is up stays as it is, and one
    /// that waits for its next attempt waits on. What was asked already is waited for.
    pub(in crate::native) fn trigger(&mut self, unit: &UnitName, asked: Asked, reply: Reply) {
        let before = self.services.as_ref().and_then(|services| services.asked(&name_of(unit)));
        let Some((name, reply)) = self.begin_start(unit, asked, reply) else { return };
        if before.is_some_and(|before| before.trigger == asked.trigger) {
            // Nothing more comes of it where the unit was stopped since.
            return match asked.is_wanted() {
                true => self.wait_for_start(&name, None, reply),
                false => answer(reply, Ok(())),
            };
        }
        self.want(&name);
        let state = self.system.state(&name);
        let stopping = state.as_ref().filter(|it| matches!(it.what, Shown::Stopping(_)));
        let before = stopping.and_then(|state| state.incarnation);
        match (before, &state) {
            (Some(run), _) => self.start_again_after(&name, run),
            (None, Some(state)) if is_busy(&state.what) => self.note_done(&name, asked),
            _ => self.try_again(&name),
        }
        self.wait_for_start(&name, before, reply);
    }

    /// Has a unit not run, and none that systemd would stop with it.
    pub(in crate::native) fn stop(&mut self, unit: &UnitName, asked: Asked, reply: Reply) {
        let Some((name, reply)) = self.begin_ask(unit, asked, reply) else { return };
        // It is done once it is known what stays down with it.
        self.end(&name, reply);
        self.note_done(&name, asked);
    }

    /// Has all units end: nothing is needed any more, so that they do in the order of the graph.
    pub(in crate::native) fn stop_all(
        &mut self,
        after: impl Fn(Asked) -> Asked,
    ) -> Vec<oneshot::Receiver<Done>> {
        self.follow_loads();
        let Some(services) = &mut self.services else { return Vec::new() };
        services.again.clear();
        services.ends = true;
        let mut all = Vec::new();
        for (name, entry) in &mut services.entries {
            entry.asked = after(entry.asked);
            services.waiters.refuse_starts(name, &entry.unit);
            all.push((name.clone(), entry.asked));
        }
        // Nothing is wrong with wanting nothing.
        drop(self.system.set_goal(None, BTreeSet::new(), self.machine.now()));
        all.into_iter().map(|(name, asked)| self.await_end(&name, asked)).collect()
    }

    fn await_end(&mut self, name: &Name, asked: Asked) -> oneshot::Receiver<Done> {
        let (reply, answer) = oneshot::channel();
        let state = self.system.state(name).filter(|state| is_there(&state.what));
        if let Some(services) = &mut self.services {
            let run = state.and_then(|state| state.incarnation);
            services.waiters.of(name).stops.push((run, reply));
        }
        self.note_done(name, asked);
        self.show(name);
        self.touched.insert(name.clone());
        answer
    }

    /// Has a unit end that is to be forgotten then.
    pub(in crate::native) fn begin_unload(&mut self, unit: &UnitName, reply: Reply) {
        let name = name_of(unit);
        // What was loaded or unloaded since has no say in how this one ends.
        self.follow_files();
        let entry = self.services.as_mut().and_then(|services| services.entries.get_mut(&name));
        let Some(entry) = entry else { return answer(reply, Ok(())) };
        entry.leaving = true;
        self.end(&name, reply);
    }

    /// Forgets a unit whose records are gone.
    pub(in crate::native) fn forget(&mut self, unit: &UnitName) {
        let name = name_of(unit);
        let Some(services) = &mut self.services else { return };
        services.entries.remove(&name);
        services.stale = true;
        lock(&services.shown).remove(unit);
        self.members.remove(&name);
        lock(&self.logs).remove(&name);
        // What decides learns of it together with the rest.
        if self.choice.wanted.mask.remove(&Target::from(&name)) {
            self.write_mask();
        }
        self.machine.feed.report(unit);
    }

    /// Has a unit read its configuration again.
    pub(in crate::native) fn reload_service(&mut self, unit: &UnitName, reply: Reply) {
        let name = name_of(unit);
        self.follow_loads();
        let Some(services) = &mut self.services else { return };
        if !services.entries.contains_key(&name) {
            return answer(reply, Err(ServiceError::NotLoaded { unit: unit.clone() }));
        }
        match self.system.request_reload(&Target::from(&name)) {
            Ok(()) => services.waiters.of(&name).reloads.push(reply),
            Err(why) => {
                let problem = match why {
                    NotReloadable::NoCommand => {
                        "its file does not say how: add an ExecReload=, or restart it"
                    }
                    _ => "it is not active: start it",
                };
                let (unit, problem) = (unit.clone(), problem.to_owned());
                answer(reply, Err(ServiceError::ReloadFailed { unit, problem }));
            }
        }
        self.touched.insert(name);
    }

    /// Remembers what is asked of a unit. One that is not loaded cannot be asked anything.
    ///
    /// Its run is told only where it is the one that is meant: it writes that down as done.
    fn begin_ask(&mut self, unit: &UnitName, asked: Asked, reply: Reply) -> Option<(Name, Reply)> {
        let name = name_of(unit);
        self.follow_loads();
        let entry = self.services.as_mut().and_then(|services| services.entries.get_mut(&name));
        let Some(entry) = entry else {
            answer(reply, Err(ServiceError::NotLoaded { unit: unit.clone() }));
            return None;
        };
        (entry.asked, entry.leaving) = (asked, false);
        // Whoever asks next goes by what is seen.
        self.show(&name);
        self.touched.insert(name.clone());
        Some((name, reply))
    }

    /// The same for what would have a unit run. Once all units are to end, none is started any
    /// more, also by a call that was on its way.
    fn begin_start(
        &mut self,
        unit: &UnitName,
        asked: Asked,
        reply: Reply,
    ) -> Option<(Name, Reply)> {
        if self.services.as_ref().is_some_and(|services| services.ends) {
            answer(reply, Err(refusal(unit)));
            return None;
        }
        self.begin_ask(unit, asked, reply)
    }

    fn try_again(&mut self, name: &Name) {
        if self.system.try_again(&Target::from(name), self.machine.now())
            && let Some(member) = self.members.get_mut(name)
        {
            member.retries = false;
        }
    }

    pub(super) fn wait_for_start(
        &mut self,
        name: &Name,
        before: Option<Incarnation>,
        reply: Reply,
    ) {
        let Some(services) = &mut self.services else { return };
        services.waiters.of(name).starts.push((before, reply));
    }

    fn start_again_after(&mut self, name: &Name, run: Incarnation) {
        if let Some(services) = &mut self.services {
            services.again.insert(name.clone(), run);
        }
    }

    /// Has a unit started anew, with those that are stopped along, and tells which runs of these
    /// end.
    fn renew_with_all(&mut self, name: &Name) -> Vec<(Name, Incarnation)> {
        let Some(services) = &self.services else { return Vec::new() };
        let mut ending = Vec::new();
        for unit in services.linked.stopped_with(name) {
            let run = self.system.state(&unit).and_then(|state| state.incarnation);
            if self.system.renew(&Target::from(&unit)) {
                ending.extend(Some(unit).zip(run));
            }
        }
        self.system.renew(&Target::from(name));
        ending
    }

    /// A unit ends, with all that are stopped with it; those that are needed all the same are
    /// masked until somebody starts what needs them.
    fn end(&mut self, name: &Name, reply: Reply) {
        let state = self.system.state(name).filter(|state| is_there(&state.what));
        self.end_with_all(name);
        if let Some(services) = &mut self.services {
            // It may have been waiting for its next attempt.
            let run = state.and_then(|state| state.incarnation);
            services.waiters.of(name).stops.push((run, reply));
        }
        self.touched.insert(name.clone());
    }

    /// What was asked of a unit is done, or nothing comes of it.
    pub(super) fn note_done(&mut self, name: &Name, asked: Asked) {
        let is_off = self.system.is_off(name);
        if let Some(member) = self.members.get_mut(name) {
            member.note_done(asked, is_off);
        }
    }
}

/// The unit as the graph calls it.
pub(in crate::native) fn name_of(unit: &UnitName) -> Name {
    Name::new(unit.as_str()).expect("each name of a unit of systemd is one of the graph")
}

impl Lead {
    /// Takes a unit in that is loaded, or another file of one that is.
    pub(in crate::native) fn load(&mut self, mut entry: Entry) -> Done {
        let name = name_of(&entry.unit);
        entry.asked = self.unless_all_end(entry.asked);
        if self.services.as_ref().is_some_and(|services| services.keeps(&name)) {
            self.take_file(&name, entry);
        } else {
            self.take_in(&name, entry)?;
        }
        self.show(&name);
        self.touched.insert(name);
        Ok(())
    }

    /// Remembers what is asked of a unit by its load.
    pub(in crate::native) fn note_epoch(&mut self, unit: &UnitName, asked: Asked) {
        let (name, asked) = (name_of(unit), self.unless_all_end(asked));
        let entry = self.services.as_mut().and_then(|services| services.entries.get_mut(&name));
        if let Some(entry) = entry {
            entry.asked = asked;
            self.show(&name);
        }
    }

    /// What is asked of a unit by a load, which had read what was asked before all were to end.
    fn unless_all_end(&self, asked: Asked) -> Asked {
        let ends = self.services.as_ref().is_some_and(|services| services.ends);
        if ends { asked.stopped() } else { asked }
    }
}
