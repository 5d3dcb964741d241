//! The graph of the units that are loaded, made anew when they change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::systemd::{Linked, Outside, Refusal, Remark, link};
use fleet_core::graph::{Circle, Flaw, Graph, Incarnation, Name, Observed, Settings, System, Unit};

use super::super::lead::{Lead, lock};
use super::super::member::Member;
use super::super::recall::{go_on, is_busy};
use super::{Done, Entry, Is, Services, name_of};
use crate::ServiceError;
use crate::native::adopt::only_to_stop;

/// For how long files that have changed wait for more of them: to make the graph anew costs as much
/// for one as for all.
const PAUSE_FOR_FILES: Duration = Duration::from_millis(20);

/// A unit that was found as it is.
pub(super) type Found = (Name, Observed);

impl Lead {
    /// Takes into the graph what was loaded, and out of it what was unloaded, since it was made.
    /// Files come in batches, so this waits until something depends on it.
    pub(super) fn follow_loads(&mut self) {
        if self.services.as_ref().is_some_and(|services| services.stale) {
            self.link_anew(Vec::new());
        }
    }

    /// Takes into the graph the files that have changed, before anything comes of what they said
    /// before.
    pub(in super::super) fn follow_files(&mut self) {
        if self.services.as_ref().is_some_and(|services| services.link_by.is_some()) {
            self.link_anew(Vec::new());
        }
    }

    /// When files that have changed have waited for long enough.
    pub(in super::super) fn files_due(&self) -> Option<Timestamp> {
        self.services.as_ref().and_then(|services| services.link_by)
    }

    /// Makes the graph anew. What runs goes on as it is; it is ended by its new file.
    pub(super) fn link_anew(&mut self, found: Vec<Found>) {
        let mut seen = self.system.observation();
        let highest = found.iter().filter_map(|(_, seen)| seen.incarnation).max();
        seen.last = seen.last.max(highest.unwrap_or_default());
        let Some(services) = &mut self.services else { return };
        for name in std::mem::take(&mut services.taken_over) {
            seen.units.remove(&name);
        }
        let is_found: BTreeSet<Name> = found.iter().map(|(name, _)| name.clone()).collect();
        seen.units.extend(found);
        let busy = seen.units.iter().filter(|(_, seen)| seen.phase.is_busy() || seen.processes);
        let mut graph = services.join(&busy.map(|(name, _)| name.clone()).collect());
        graph.share(self.system.graph());
        for (name, seen) in &mut seen.units {
            if let Some(unit) = graph.unit(name).filter(|_| seen.definition.is_some()) {
                seen.definition = Some(Arc::clone(unit));
            }
        }
        // What runs nothing has no records of a run: what was found to run must not lose it.
        seen.add_virtual(&graph, self.machine.now(), |name| is_found.contains(name));
        seen.beside = services.wanted(&graph);
        self.touched.extend(services.entries.keys().cloned());
        let (mask, max_starting) = (self.choice.wanted.mask.clone(), services.max_starting);
        // To wait for others is no work.
        let others = services.of_others.stand_ins().map(|(name, _)| name);
        let roomless = others.filter(|name| !services.keeps(name)).cloned().collect();
        let settings = Settings { mask, max_starting, roomless, ..Settings::default() };
        match System::restore(graph, &settings, seen) {
            Ok(system) => self.system = system,
            Err(flaw) => tracing::error!(%flaw, "cannot take up the units that were loaded"),
        }
    }

    /// Takes in a unit that was not known. It may run all the same, if its other records could not
    /// be read when this daemon began; then that run is ended first.
    pub(super) fn take_in(&mut self, name: &Name, mut entry: Entry) -> Done {
        let failed =
            |source| ServiceError::Io { action: format!("begin to see to {name}"), source };
        self.take_over(name);
        let mut member = Member::new(&self.machine, name).map_err(failed)?;
        let run = member.directory.read_run().map_err(failed)?;
        let run = run.filter(|run| is_busy(&run.memory));
        let incarnation = Incarnation(self.system.last().0 + 1);
        let mut found = None;
        if let Some(run) = run {
            let definition = entry.definition();
            found = Some(go_on(&self.machine, name, &member, &definition, run, incarnation));
        }
        let found = found.transpose().map_err(failed)?;
        if let Some((seen, _)) = &found {
            member.retries = seen.retry_at.is_some();
        }
        lock(&self.logs).insert(name.clone(), Arc::clone(&member.log));
        self.members.insert(name.clone(), member);
        let Some(services) = &mut self.services else { return Ok(()) };
        services.loads += 1;
        entry.load = services.loads;
        services.entries.insert(name.clone(), entry);
        services.stale = true;
        if let Some((seen, driver)) = found {
            self.link_anew(vec![(name.clone(), seen)]);
            self.follow(name, incarnation, driver);
        }
        Ok(())
    }

    /// Takes another file of a unit that is known; what runs of it goes on, and is ended by that.
    /// The graph follows soon, and before anything is started.
    pub(super) fn take_file(&mut self, name: &Name, new: Entry) {
        let Some(services) = &mut self.services else { return };
        let Some(entry) = services.entries.get_mut(name) else { return };
        (entry.hash, entry.asked, entry.is) = (new.hash, new.asked, new.is);
        services.stale = true;
        services.link_by.get_or_insert(self.machine.now().after(PAUSE_FOR_FILES));
        if let Some(member) = self.members.get(name) {
            member.replace(entry.definition());
        }
    }
}

impl Services {
    /// The graph of all units that can be together. Why another is not among them is kept with it.
    fn join(&mut self, busy: &BTreeSet<Name>) -> Graph {
        (self.stale, self.link_by) = (false, None);
        let mut out: BTreeMap<Name, String> = BTreeMap::new();
        loop {
            let mut linked = self.link(&out);
            let mut units = std::mem::take(&mut linked.units);
            let unfit =
                self.entries.iter().filter(|(name, it)| it.is_unfit() && busy.contains(*name));
            units.extend(unfit.map(|(name, _)| Arc::new(only_to_stop(name.clone()))));
            let (graph, flaws) = Graph::lenient(units, &Settings::default());
            let circle = flaws.iter().find_map(|flaw| match flaw {
                Flaw::Circle(circle) => Some(circle),
                _ => None,
            });
            if let Some((last, circle)) = circle.and_then(|it| Some((self.last_of(it)?, it))) {
                out.insert(last, format!("it would wait for itself: {circle}"));
                continue;
            }
            self.note_refused(&linked, &out, busy);
            self.note_flaws(&graph, &flaws);
            self.tell_remarks(&linked);
            self.linked = linked;
            return graph;
        }
    }

    fn link(&self, out: &BTreeMap<Name, String>) -> Linked {
        let there = self.entries.iter().filter(|(name, _)| !out.contains_key(*name));
        let fit = there.filter_map(|(_, entry)| match &entry.is {
            Is::Fit(compiled) => Some(&**compiled),
            Is::Unfit(_) => None,
        });
        let others = self.of_others.stand_ins().filter(|(name, _)| !self.keeps(name));
        let fit = fit.chain(others.map(|(_, compiled)| compiled));
        let refused = out.keys().filter_map(|name| Some(self.entries.get(name)?.unit.clone()));
        let assumed_up = self.of_others.assumed_up.clone();
        let timers = self.timers.names();
        link(fit, &Outside { assumed_up, timers, refused: refused.collect() })
    }

    /// Of units in a circle the one that came last gives way, so that it harms none but itself.
    fn last_of(&self, circle: &Circle) -> Option<Name> {
        let units = circle.steps.iter().map(|(unit, _)| unit);
        units.max_by_key(|unit| self.entries.get(*unit).map(|entry| entry.load)).cloned()
    }

    fn note_refused(
        &mut self,
        linked: &Linked,
        out: &BTreeMap<Name, String>,
        busy: &BTreeSet<Name>,
    ) {
        for (name, entry) in &mut self.entries {
            let why = linked.refused.get(name).and_then(|all| all.first()).map(words);
            entry.refused = match &entry.is {
                Is::Unfit(problem) if !busy.contains(name) => Some(problem.clone()),
                _ => why.or_else(|| out.get(name).cloned()),
            };
        }
    }

    /// What a person should know of what a unit says of others is told once.
    fn tell_remarks(&self, linked: &Linked) {
        for (unit, remarks) in &linked.remarks {
            let told = self.linked.remarks.get(unit);
            let is_new = |remark: &&Remark| told.is_none_or(|told| !told.contains(remark));
            for remark in remarks.iter().filter(is_new) {
                tracing::info!(%unit, %remark, "what is said of another unit is to be known");
            }
        }
    }

    /// Whoever is left out for any other reason is told, too, so that nobody waits for it.
    fn note_flaws(&mut self, graph: &Graph, flaws: &[Flaw]) {
        for (name, entry) in &mut self.entries {
            if entry.refused.is_none() && graph.unit(name).is_none() {
                let flaw = flaws.iter().find(|flaw| flaw.units().contains(&name));
                let other = || "it cannot be run together with the others".to_owned();
                entry.refused = Some(flaw.map_or_else(other, ToString::to_string));
            }
        }
    }
}

fn words(refusal: &Refusal) -> String {
    let place = refusal.place.as_ref();
    let place = place.map(|place| format!("line {}: {}= ", place.line, place.name()));
    format!("{}{}", place.unwrap_or_default(), refusal.problem)
}

impl Entry {
    pub(super) fn is_unfit(&self) -> bool {
        matches!(self.is, Is::Unfit(_))
    }

    /// What it is run by, as far as its own file tells.
    pub(super) fn definition(&self) -> Arc<Unit> {
        match &self.is {
            Is::Fit(compiled) => Arc::clone(&compiled.unit),
            Is::Unfit(_) => Arc::new(only_to_stop(name_of(&self.unit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_of;
    use super::super::shown::tests::{ask, load, opened};
    use super::*;

    /// A unit as it is in the graph.
    fn linked(lead: &mut Lead, unit: &str) -> Arc<Unit> {
        lead.follow_loads();
        let name = name_of(&unit.parse().expect("it is a name"));
        Arc::clone(lead.system.graph().unit(&name).expect("it is in the graph"))
    }

    #[tokio::test]
    async fn a_unit_that_is_linked_anew_as_it_was_is_there_once() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let opened = opened(home.path()).await;
        let text = "[Unit]\nAfter=a.service\n[Service]\nExecStart=/bin/true\n";
        for unit in ["a.service", "b.service"] {
            load(&opened, &unit.parse().expect("it is a name"), text).await;
        }
        let before = ask(&opened, |lead| linked(lead, "b.service")).await;
        assert_eq!(before.edges.len(), 1, "it is not the one that was compiled");
        load(&opened, &"c.service".parse().expect("it is a name"), text).await;
        let after = ask(&opened, |lead| linked(lead, "b.service")).await;
        assert!(Arc::ptr_eq(&before, &after));
        opened.lead.abort();
    }
}
