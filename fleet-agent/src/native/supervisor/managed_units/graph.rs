//! Rebuilds the graph when loaded units change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::graph::systemd::{ExternalUnits, LinkedUnits, Remark, UnitRefusal, link};
use fleet_core::graph::{
    DependencyCycle, Graph, GraphError, Incarnation, InitState, InitUnit, Name, ObservedUnit,
    Settings,
};

use super::super::Supervisor;
use super::super::command::CallResult;
use super::super::supervised_unit::SupervisedUnit;
use super::{Definition, LoadedUnit, ManagedUnits, name_of};
use crate::ServiceError;
use crate::lock::lock;
use crate::native::run::adopt::{resume, stop_only_definition};

/// Delay between a change of a unit file and the rebuilding of the graph. Changes made during this
/// delay share one rebuild, because rebuilding costs the same for one file as for all.
const RELINK_DELAY: Duration = Duration::from_millis(20);

/// Observation of a unit, with its name.
pub(super) type NamedObservation = (Name, ObservedUnit);

impl Supervisor {
    /// Rebuilds the graph if units were loaded or unloaded. Units are often loaded in batches, so
    /// the graph is only rebuilt when an operation depends on it.
    pub(in super::super) fn apply_pending_loads(&mut self) {
        if self.managed.graph_is_stale {
            self.relink(Vec::new());
        }
    }

    /// Rebuilds the graph if unit files have changed. Called before the planner acts, so that no
    /// action is based on the old content of a file.
    pub(in super::super) fn apply_pending_files(&mut self) {
        if self.managed.relink_by.is_some() {
            self.relink(Vec::new());
        }
    }

    /// Rebuilds the graph from the loaded units. Adds the observed unit states in `found` to those
    /// of the planner. Current runs continue, but will be stopped according to the new definition
    /// of their unit.
    pub(super) fn relink(&mut self, found: Vec<NamedObservation>) {
        let mut observed = self.planner.observation();
        let highest = found.iter().filter_map(|(_, observed)| observed.incarnation).max();
        observed.last = observed.last.max(highest.unwrap_or_default());
        let managed = &mut self.managed;
        for name in std::mem::take(&mut managed.taken_over) {
            observed.units.remove(&name);
        }
        let is_found: BTreeSet<Name> = found.iter().map(|(name, _)| name.clone()).collect();
        observed.units.extend(found);
        let busy = observed
            .units
            .iter()
            .filter(|(_, observed)| observed.phase.is_busy() || observed.processes);
        let mut graph = managed.build_graph(&busy.map(|(name, _)| name.clone()).collect());
        graph.share_unchanged(self.planner.graph());
        for (name, observed) in &mut observed.units {
            if let Some(unit) = graph.unit(name).filter(|_| observed.definition.is_some()) {
                observed.definition = Some(Arc::clone(unit));
            }
        }
        // A unit without processes has no stored run; `found` holds the state of those that must be
        // kept.
        observed.add_virtual(&graph, self.context.now(), |name| is_found.contains(name));
        // During a shutdown no unit is to run.
        observed.extra_targets =
            if self.shutting_down { BTreeSet::new() } else { managed.desired_targets(&graph) };
        self.touched.extend(managed.loaded_units.keys().cloned());
        let (mask, max_starting) = (self.selection.desired.mask.clone(), managed.max_starting);
        // Waiting for an external unit takes no start slot.
        let others = managed.externals.stand_ins().map(|(name, _)| name);
        let unlimited_starts = others.filter(|name| !managed.is_loaded(name)).cloned().collect();
        let settings = Settings { mask, max_starting, unlimited_starts, ..Settings::default() };
        match InitState::restore(graph, &settings, observed) {
            Ok(planner) => self.planner = planner,
            Err(error) => {
                tracing::error!(%error, "cannot add or remove units: keeping the earlier ones");
            }
        }
    }

    /// Adds a unit that was not loaded. If the unit already runs, its run is adopted. (This happens
    /// if this daemon could not read the unit's stored state when it started.)
    pub(super) fn add_unit(&mut self, name: &Name, mut loaded: LoadedUnit) -> CallResult {
        let failed =
            |source| ServiceError::Io { action: format!("start to supervise {name}"), source };
        self.replace_external(name);
        let mut entry = SupervisedUnit::new(&self.context, name).map_err(failed)?;
        let run = entry.directory.read_run().map_err(failed)?;
        let run = run.filter(|run| run.run_state.is_in_progress());
        let incarnation = Incarnation(self.planner.last_incarnation().0 + 1);
        let mut found = None;
        if let Some(run) = run {
            let definition = loaded.definition();
            found = Some(resume(&self.context, &entry.stored(name, &definition), run, incarnation));
        }
        let found = found.transpose().map_err(failed)?;
        if let Some((observed, _)) = &found {
            entry.is_auto_restart = observed.retry_at.is_some();
        }
        lock(&self.logs).insert(name.clone(), Arc::clone(&entry.log));
        self.units.insert(name.clone(), entry);
        let managed = &mut self.managed;
        managed.load_count += 1;
        loaded.load_number = managed.load_count;
        managed.loaded_units.insert(name.clone(), loaded);
        managed.graph_is_stale = true;
        if let Some((observed, driver)) = found {
            self.relink(vec![(name.clone(), observed)]);
            self.spawn_run_task(name, incarnation, driver);
        }
        Ok(())
    }

    /// Replaces the unit file of a loaded unit. The current run continues, but will be stopped
    /// according to the new definition. The graph is rebuilt after a short delay, or before the
    /// next start if that comes first.
    pub(super) fn replace_file(&mut self, name: &Name, new: LoadedUnit) {
        let managed = &mut self.managed;
        let Some(loaded) = managed.loaded_units.get_mut(name) else { return };
        (loaded.hash, loaded.requested, loaded.definition) =
            (new.hash, new.requested, new.definition);
        managed.graph_is_stale = true;
        managed.relink_by.get_or_insert(self.context.now().after(RELINK_DELAY));
        if let Some(entry) = self.units.get(name) {
            entry.set_definition(loaded.definition());
        }
    }
}

impl ManagedUnits {
    /// Builds the graph of all units that are compatible with each other. Records a reason for each
    /// unit that is left out.
    fn build_graph(&mut self, busy: &BTreeSet<Name>) -> Graph {
        (self.graph_is_stale, self.relink_by) = (false, None);
        let mut out: BTreeMap<Name, String> = BTreeMap::new();
        loop {
            let mut linked = self.link(&out);
            let mut units = std::mem::take(&mut linked.units);
            let invalid = self
                .loaded_units
                .iter()
                .filter(|(name, it)| it.is_invalid() && busy.contains(*name));
            units.extend(invalid.map(|(name, _)| Arc::new(stop_only_definition(name.clone()))));
            let (graph, graph_errors) = Graph::lenient(units, &Settings::default());
            let cycle = graph_errors.iter().find_map(|error| match error {
                GraphError::Cycle(cycle) => Some(cycle),
                _ => None,
            });
            if let Some((last, cycle)) = cycle.and_then(|it| Some((self.newest_in(it)?, it))) {
                out.insert(last, format!("dependency cycle: {cycle}"));
                continue;
            }
            self.set_refusals(&linked, &out, busy);
            self.set_graph_errors(&graph, &graph_errors);
            self.log_remarks(&linked);
            self.linked = linked;
            return graph;
        }
    }

    fn link(&self, out: &BTreeMap<Name, String>) -> LinkedUnits {
        let there = self.loaded_units.iter().filter(|(name, _)| !out.contains_key(*name));
        let valid = there.filter_map(|(_, loaded)| match &loaded.definition {
            Definition::Valid(compiled) => Some(&**compiled),
            Definition::Invalid(_) => None,
        });
        let others = self.externals.stand_ins().filter(|(name, _)| !self.is_loaded(name));
        let valid = valid.chain(others.map(|(_, compiled)| compiled));
        let refused = out.keys().filter_map(|name| Some(self.loaded_units.get(name)?.unit.clone()));
        let assumed_active = self.externals.assumed_active.clone();
        let timers = self.timers.names();
        link(valid, &ExternalUnits { assumed_active, timers, refused: refused.collect() })
    }

    /// Returns the unit of a dependency cycle that was loaded last. The caller leaves this unit out
    /// of the graph, so that loading it does not affect the earlier units.
    fn newest_in(&self, cycle: &DependencyCycle) -> Option<Name> {
        let units = cycle.steps.iter().map(|(unit, _)| unit);
        units
            .max_by_key(|unit| self.loaded_units.get(*unit).map(|loaded| loaded.load_number))
            .cloned()
    }

    fn set_refusals(
        &mut self,
        linked: &LinkedUnits,
        out: &BTreeMap<Name, String>,
        busy: &BTreeSet<Name>,
    ) {
        for (name, loaded) in &mut self.loaded_units {
            let why = linked.refused.get(name).and_then(|all| all.first()).map(describe_refusal);
            loaded.refused = match &loaded.definition {
                Definition::Invalid(problem) if !busy.contains(name) => Some(problem.clone()),
                _ => why.or_else(|| out.get(name).cloned()),
            };
        }
    }

    /// Logs each new remark on a unit's relations.
    fn log_remarks(&self, linked: &LinkedUnits) {
        for (unit, remarks) in &linked.remarks {
            let logged = self.linked.remarks.get(unit);
            let is_new = |remark: &&Remark| logged.is_none_or(|logged| !logged.contains(remark));
            for remark in remarks.iter().filter(is_new) {
                tracing::info!(%unit, %remark, "a dependency works differently than under systemd");
            }
        }
    }

    /// Records a reason for each unit that is not in the graph and has no reason yet. Callers that
    /// wait for such a unit then get an error.
    fn set_graph_errors(&mut self, graph: &Graph, graph_errors: &[GraphError]) {
        for (name, loaded) in &mut self.loaded_units {
            if loaded.refused.is_none() && graph.unit(name).is_none() {
                let error = graph_errors.iter().find(|error| error.units().contains(&name));
                let other = || "it cannot be combined with the other loaded units".to_owned();
                loaded.refused = Some(error.map_or_else(other, ToString::to_string));
            }
        }
    }
}

fn describe_refusal(refusal: &UnitRefusal) -> String {
    let place = refusal.position.as_ref();
    let place = place.map(|place| format!("line {}: {}= ", place.line, place.name()));
    format!("{}{}", place.unwrap_or_default(), refusal.problem)
}

impl LoadedUnit {
    pub(super) fn is_invalid(&self) -> bool {
        matches!(self.definition, Definition::Invalid(_))
    }

    /// Returns the definition of the unit, based on its own unit file alone.
    pub(super) fn definition(&self) -> Arc<InitUnit> {
        match &self.definition {
            Definition::Valid(compiled) => Arc::clone(&compiled.unit),
            Definition::Invalid(_) => Arc::new(stop_only_definition(name_of(&self.unit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_of;
    use super::super::status::tests::{call, load, open};
    use super::*;

    /// Returns a unit as it is in the graph.
    fn linked(supervisor: &mut Supervisor, unit: &str) -> Arc<InitUnit> {
        supervisor.apply_pending_loads();
        let name = name_of(&unit.parse().expect("it is a name"));
        Arc::clone(supervisor.planner.graph().unit(&name).expect("it is in the graph"))
    }

    #[tokio::test]
    async fn unchanged_unit_is_shared_after_relink() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let handle = open(home.path()).await;
        let text = "[Unit]\nAfter=a.service\n[Service]\nExecStart=/bin/true\n";
        for unit in ["a.service", "b.service"] {
            load(&handle, &unit.parse().expect("it is a name"), text).await;
        }
        let before = call(&handle, |supervisor| linked(supervisor, "b.service")).await;
        assert_eq!(before.edges.len(), 1, "it is not the one that was compiled");
        load(&handle, &"c.service".parse().expect("it is a name"), text).await;
        let after = call(&handle, |supervisor| linked(supervisor, "b.service")).await;
        assert!(Arc::ptr_eq(&before, &after));
    }
}
