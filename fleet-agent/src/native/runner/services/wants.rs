//! What the graph is to want and what it masks, so that what fleet asks for comes of it.

use std::collections::BTreeSet;

use fleet_core::graph::{Graph, Name, Target};

use super::super::lead::Lead;
use super::super::member::Member;
use super::waiters::is_over;
use super::{Entry, Services};

impl Lead {
    /// A unit is wanted, and what was stopped of all that it needs may run again.
    pub(super) fn want(&mut self, name: &Name) {
        let needed = requirements(self.system.graph(), name);
        self.unmask(&needed);
        self.want_as_asked(name);
        // A new attempt is one for what failed of that, too.
        for target in needed.iter().filter(|target| target.as_str() != name.as_str()) {
            let unit = self.system.graph().provider(target).map(|unit| unit.name.clone());
            let Some(unit) = unit else { continue };
            if self.system.state(&unit).is_some_and(|state| is_over(&state.what)) {
                self.reset(target);
                // Its own record would keep the next daemon from that.
                self.members.get_mut(&unit).into_iter().for_each(Member::forget_end);
            }
        }
    }

    pub(super) fn end_with_all(&mut self, name: &Name) {
        self.want_as_asked(name);
        let Some(services) = &mut self.services else { return };
        let mut all = services.linked.stopped_with(name);
        all.insert(name.clone());
        let (mut mask, mut over) = (Vec::new(), Vec::new());
        for unit in &all {
            let Some(entry) = services.entries.get(unit) else { continue };
            services.again.remove(unit);
            services.waiters.refuse_starts(unit, &entry.unit);
            if self.system.state(unit).is_some_and(|state| state.needed) {
                mask.push(Target::from(unit));
            }
            if unit != name {
                over.push((unit.clone(), entry.asked));
            }
        }
        self.mask(mask);
        // Nothing comes of a start that was under way, neither here nor in the next daemon.
        for (unit, asked) in over {
            self.note_done(&unit, asked);
        }
    }

    /// Has the graph want a unit, or not any more, as fleet asks, if it can be had.
    pub(super) fn want_as_asked(&mut self, name: &Name) {
        let wants = |services: &Services| {
            !services.ends && services.entries.get(name).is_some_and(Entry::is_wanted)
        };
        let is_wanted = self.services.as_ref().is_some_and(wants);
        let (target, now) = (Target::from(name), self.machine.now());
        if !is_wanted {
            self.system.unwant(&target, now);
        } else if self.system.graph().provider(&target).is_some()
            && let Err(flaw) = self.system.want(target, now)
        {
            tracing::error!(%flaw, "what is asked cannot be wanted");
        }
    }

    fn mask(&mut self, more: Vec<Target>) {
        let now = self.machine.now();
        let mut is_new = false;
        for target in more {
            is_new |= self.choice.wanted.mask.insert(target.clone());
            // Nothing is wrong with a mask where there is no goal.
            drop(self.system.mask(target, now));
        }
        if is_new {
            self.write_mask();
        }
    }

    fn unmask(&mut self, less: &BTreeSet<Target>) {
        let now = self.machine.now();
        let mask = &mut self.choice.wanted.mask;
        let masked: Vec<&Target> = less.iter().filter(|target| mask.remove(*target)).collect();
        masked.iter().for_each(|target| self.system.unmask(target, now));
        if !masked.is_empty() {
            self.write_mask();
        }
    }

    pub(super) fn write_mask(&self) {
        if let Err(error) = self.write_wanted() {
            tracing::warn!(%error, "cannot record which units were stopped");
        }
    }
}

impl Services {
    /// The targets of all units that are to run, and that can be had; none once all are to end.
    pub(super) fn wanted(&self, graph: &Graph) -> BTreeSet<Target> {
        let is_wanted = |entry: &Entry| !self.ends && entry.is_wanted();
        let wanted = self.entries.iter().filter(|(_, entry)| is_wanted(entry));
        let targets = wanted.map(|(name, _)| Target::from(name));
        targets.filter(|target| graph.provider(target).is_some()).collect()
    }
}

/// The targets that are called as a unit and as all that it requires.
pub(super) fn requirements(graph: &Graph, name: &Name) -> BTreeSet<Target> {
    let mut found = BTreeSet::from([Target::from(name)]);
    let mut open = vec![name.clone()];
    while let Some(next) = open.pop() {
        for (_, unit) in graph.dependencies(&next).into_iter().filter(|(kind, _)| kind.requires()) {
            if found.insert(Target::from(&unit.name)) {
                open.push(unit.name.clone());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use fleet_unitfile::{UnitFile, UnitName};
    use tokio::sync::oneshot;

    use super::super::shown::tests::{ask, load, opened};
    use super::super::{Is, Opened, name_of};
    use super::*;
    use crate::native::compile::compile;
    use crate::native::record::Asked;

    fn started() -> Asked {
        Asked { generation: 1, launched: true, ..Asked::default() }
    }

    fn another_file(opened: &Opened, unit: &UnitName) -> Entry {
        let text = "[Service]\nExecStart=/bin/sleep 1001\n";
        let file = UnitFile::parse(text).expect("it is well formed");
        let compiled = compile(unit, &file, &opened.host).expect("it can be obeyed").unit;
        Entry::new(unit.clone(), file.hash(), started(), Is::Fit(Box::new(compiled)))
    }

    /// What had been asked was read before the end, and a disk that is slow came in between.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_load_that_the_end_of_all_units_overtakes_starts_none_again() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let opened = opened(home.path()).await;
        let units: Vec<UnitName> =
            ["a.service", "b.service"].map(|unit| unit.parse().expect("it is a name")).into();
        for unit in units.clone() {
            load(&opened, &unit, "[Service]\nExecStart=/bin/sleep 1000\n").await;
            let (reply, answer) = oneshot::channel();
            ask(&opened, move |lead| lead.start(&unit, started(), reply)).await;
            answer.await.expect("it is answered").expect("it starts");
        }
        let (loaded, noted) = (another_file(&opened, &units[0]), units[1].clone());
        let answers = ask(&opened, move |lead| {
            let answers = lead.stop_all(Asked::stopped);
            lead.load(loaded).expect("it is taken in");
            lead.note_epoch(&noted, started());
            answers
        });
        for answer in answers.await {
            answer.await.expect("it is answered").expect("it ends");
        }
        for unit in units {
            let (busy, asked) = ask(&opened, move |lead| {
                let name = name_of(&unit);
                lead.follow_files();
                lead.turn();
                let asked = lead.services.as_ref().and_then(|services| services.asked(&name));
                (lead.members[&name].live.is_some(), asked)
            })
            .await;
            assert_eq!((busy, asked), (false, Some(started().stopped())), "it was started again");
        }
        opened.lead.abort();
    }
}
