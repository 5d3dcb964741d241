//! Maps the requested states to the targets and masks of the planner.

use std::collections::BTreeSet;

use fleet_core::graph::{Graph, Name, Target};

use super::super::Supervisor;
use super::super::supervised_unit::SupervisedUnit;
use super::waiters::is_over;
use super::{LoadedUnit, ManagedUnits};

impl Supervisor {
    /// Requests the start of a unit, and unmasks everything that it requires.
    pub(super) fn request_start(&mut self, name: &Name) {
        let needed = requirements(self.planner.graph(), name);
        self.unmask(&needed);
        self.sync_desired(name);
        // A new attempt includes the failed units that it requires.
        for target in needed.iter().filter(|target| target.as_str() != name.as_str()) {
            let unit = self.planner.graph().provider(target).map(|unit| unit.name.clone());
            let Some(unit) = unit else { continue };
            if self.planner.status(&unit).is_some_and(|state| is_over(&state.state)) {
                self.reset_failed(target);
                // Otherwise the stored state would keep the next daemon from starting the unit.
                self.units.get_mut(&unit).into_iter().for_each(SupervisedUnit::clear_result);
            }
        }
    }

    pub(super) fn stop_with_dependents(&mut self, name: &Name) {
        self.sync_desired(name);
        let managed = &mut self.managed;
        let mut all = managed.linked.stopped_with(name);
        all.insert(name.clone());
        let (mut mask, mut over) = (Vec::new(), Vec::new());
        for unit in &all {
            let Some(loaded) = managed.loaded_units.get_mut(unit) else { continue };
            loaded.awaited = None;
            managed.pending_restarts.remove(unit);
            managed.waiters.refuse_starts(unit, &loaded.unit);
            if self.planner.status(unit).is_some_and(|state| state.needed) {
                mask.push(Target::from(unit));
            }
            if unit != name {
                over.push((unit.clone(), loaded.requested));
            }
        }
        self.mask(mask);
        // A pending start is cancelled, for the next daemon too.
        for (unit, requested) in over {
            self.record_applied(&unit, requested);
        }
    }

    /// Adds the target of a unit to the planner's extra targets if the unit should run and the
    /// graph provides the target. Removes the target if the unit should not run.
    pub(super) fn sync_desired(&mut self, name: &Name) {
        let loaded = self.managed.loaded_units.get(name).filter(|_| !self.shutting_down);
        let should_run = loaded.is_some_and(LoadedUnit::should_run);
        let (target, now) = (Target::from(name), self.context.now());
        if !should_run {
            self.planner.remove_extra_target(&target, now);
        } else if self.planner.graph().provider(&target).is_some()
            && let Err(error) = self.planner.add_extra_target(target, now)
        {
            tracing::error!(%error, unit = %name, "cannot start a unit that should run");
        }
    }

    fn mask(&mut self, more: Vec<Target>) {
        let now = self.context.now();
        let mut is_new = false;
        for target in more {
            is_new |= self.selection.desired.mask.insert(target.clone());
            // Without a goal every mask is valid.
            drop(self.planner.mask(target, now));
        }
        if is_new {
            self.write_mask();
        }
    }

    fn unmask(&mut self, less: &BTreeSet<Target>) {
        let now = self.context.now();
        let mask = &mut self.selection.desired.mask;
        let masked: Vec<&Target> = less.iter().filter(|target| mask.remove(*target)).collect();
        masked.iter().for_each(|target| self.planner.unmask(target, now));
        if !masked.is_empty() {
            self.write_mask();
        }
    }

    pub(super) fn write_mask(&self) {
        if let Err(error) = self.write_targets() {
            tracing::warn!(
                %error,
                file = %self.targets_file.display(),
                "cannot save which units were stopped by request: after this program restarts, \
                 those that other units require might start again"
            );
        }
    }
}

impl ManagedUnits {
    /// Returns the targets of all units that should run and are in the graph.
    pub(super) fn desired_targets(&self, graph: &Graph) -> BTreeSet<Target> {
        let wanted = self.loaded_units.iter().filter(|(_, loaded)| loaded.should_run());
        let targets = wanted.map(|(name, _)| Target::from(name));
        targets.filter(|target| graph.provider(target).is_some()).collect()
    }
}

/// Returns the targets of a unit and of all units that it requires.
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

    use super::super::status::tests::{call, load, open, request, start};
    use super::super::{Definition, name_of};
    use super::*;
    use crate::native::supervisor::compile::compile;

    fn another_file(supervisor: &Supervisor, unit: &UnitName) -> LoadedUnit {
        let text = "[Service]\nExecStart=/bin/sleep 1001\n";
        let file = UnitFile::parse(text).expect("it is well formed");
        let compiled = compile(unit, &file, &supervisor.host).expect("it is supported").unit;
        LoadedUnit::new(unit.clone(), file.hash(), start(1), Definition::Valid(Box::new(compiled)))
    }

    /// The requested state is read before the shutdown. It is passed to the supervisor only after
    /// the shutdown has begun, as happens when the disk is slow.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_overtaken_by_a_shutdown_starts_nothing() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let handle = open(home.path()).await;
        let units: Vec<UnitName> =
            ["a.service", "b.service"].map(|unit| unit.parse().expect("it is a name")).into();
        for unit in units.clone() {
            load(&handle, &unit, "[Service]\nExecStart=/bin/sleep 1000\n").await;
            let started = call(&handle, move |it| request(it, &unit, start(1))).await;
            started.await.expect("it is answered").expect("it starts");
        }
        let (replaced, noted) = (units[0].clone(), units[1].clone());
        let (reply, stopped) = oneshot::channel();
        call(&handle, move |supervisor| {
            supervisor.shut_down(reply);
            let loaded = another_file(supervisor, &replaced);
            supervisor.load(loaded).expect("it is loaded");
            supervisor.set_requested(&noted, start(1));
        })
        .await;
        assert!(stopped.await.expect("it is answered").is_empty(), "all units stop");
        for unit in units {
            let (busy, requested) = call(&handle, move |supervisor| {
                let name = name_of(&unit);
                supervisor.apply_pending_files();
                supervisor.turn();
                let requested = supervisor.managed.requested(&name);
                (supervisor.units[&name].handle.is_some(), requested)
            })
            .await;
            assert_eq!(
                (busy, requested),
                (false, Some(start(1).stopped())),
                "it was started again"
            );
        }
    }
}
