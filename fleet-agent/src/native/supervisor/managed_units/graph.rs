//! The graph of the loaded units, which is rebuilt when they change, and the timers and activators
//! beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::systemd::{
    Effects, ExternalUnits, LinkedUnits, Relation, RelationKind, Remark, UnitRefusal, link,
};
use fleet_core::graph::{
    DependencyCycle, Graph, GraphError, InitState, Name, ObservedUnit, Settings, Target,
};
use fleet_unitfile::UnitName;

use super::super::core::Core;
use super::external::{External, ExternalRegistry};
use super::status::{Definition, LoadedUnit, LoadedUnits, name_of};
use crate::native::run::adopt::stop_only_definition;

/// Delay between a change of a unit file and the rebuilding of the graph. Changes made during this
/// delay share one rebuild, because rebuilding costs the same for one file as for all.
const RELINK_DELAY: Duration = Duration::from_millis(20);

/// Observation of a unit, with its name.
pub(super) type NamedObservation = (Name, ObservedUnit);

/// What the graph consists of beside the loaded units, and whether it has to be rebuilt.
#[derive(Default)]
pub(in super::super) struct LoadedGraph {
    externals: ExternalRegistry,
    starters: StarterIndex,
    max_starting: Option<NonZeroU32>,
    /// Relations between the loaded units.
    linked: LinkedUnits,
    /// Loaded units that the graph still contains as external units.
    taken_over: BTreeSet<Name>,
    /// Whether units were loaded or unloaded since the graph was built.
    is_stale: bool,
    /// Deadline for rebuilding the graph after files of its units have changed.
    due: Option<Timestamp>,
}

impl LoadedGraph {
    pub(super) fn new(
        externals: BTreeMap<UnitName, External>,
        max_starting: Option<NonZeroU32>,
    ) -> Self {
        let externals = ExternalRegistry::new(externals);
        Self { externals, max_starting, ..Self::default() }
    }

    /// Adds the well-known external units that one of these units requires.
    pub(super) fn require_externals<'a>(
        &mut self,
        units: impl IntoIterator<Item = &'a LoadedUnit>,
    ) {
        for loaded in units {
            if let Definition::Valid(compiled) = &loaded.definition {
                self.externals.require(&compiled.relations);
            }
        }
    }

    pub(super) fn externals(&self) -> &ExternalRegistry {
        &self.externals
    }

    /// Returns the external unit that the stand-in of this name represents.
    pub(super) fn external(&self, name: &Name) -> Option<&External> {
        self.externals.get(name)
    }

    /// Returns the units that systemd would stop together with a unit.
    pub(super) fn stopped_with(&self, name: &Name) -> BTreeSet<Name> {
        self.linked.stopped_with(name)
    }

    /// Returns the units that systemd would stop if it stops a unit without starting it again.
    pub(super) fn stopped_after(&self, name: &Name) -> BTreeSet<Name> {
        self.linked.stopped_after(name)
    }

    /// Returns the effects of units on other units.
    pub(super) fn effects(&self) -> &Effects {
        &self.linked.effects
    }

    /// Returns the deadline for rebuilding the graph after files have changed.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Returns whether units were loaded or unloaded since the graph was built.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Notes that a unit was loaded or unloaded.
    pub(super) fn mark_stale(&mut self) {
        self.is_stale = true;
    }

    /// Notes that the file of a unit has changed.
    pub(super) fn on_file_changed(&mut self, now: Timestamp) {
        self.is_stale = true;
        self.due.get_or_insert(now.after(RELINK_DELAY));
    }

    /// Replaces the external unit of this name by a loaded one, and returns whether there was one.
    pub(super) fn take_over_external(&mut self, name: &Name, now: Timestamp) -> bool {
        if self.externals.get(name).is_none() {
            return false;
        }
        self.taken_over.insert(name.clone());
        (self.is_stale, self.due) = (true, Some(now));
        true
    }

    /// Adds a loaded timer or activator, with the relations that its file declares.
    pub(super) fn insert_starter(&mut self, starter: &UnitName, relations: &[Relation]) {
        self.starters.insert(starter, relations);
        self.is_stale = true;
    }

    /// Removes a timer or activator that is unloaded.
    pub(super) fn remove_starter(&mut self, starter: &UnitName) {
        self.starters.remove(starter);
        self.is_stale = true;
    }

    pub(super) fn has_starters(&self) -> bool {
        !self.starters.is_empty()
    }

    /// Returns the timers and activators that any of `units` pulls in.
    pub(super) fn starters_pulled_by(
        &self,
        units: &BTreeSet<Target>,
        loaded_units: &LoadedUnits,
    ) -> Vec<PulledStarter> {
        self.starters.pulled_by(units, loaded_units)
    }

    /// Rebuilds the graph of the planner from the loaded units. Adds the observed unit states in
    /// `found` to those of the planner. Current runs continue, but will be stopped according to the
    /// new definition of their unit.
    pub(super) fn relink(
        &mut self,
        loaded_units: &mut LoadedUnits,
        core: &mut Core,
        found: Vec<NamedObservation>,
    ) {
        let mut observed = core.planner.observation();
        let highest = found.iter().filter_map(|(_, observed)| observed.incarnation).max();
        observed.last = observed.last.max(highest.unwrap_or_default());
        for name in std::mem::take(&mut self.taken_over) {
            observed.units.remove(&name);
        }
        let is_found: BTreeSet<Name> = found.iter().map(|(name, _)| name.clone()).collect();
        observed.units.extend(found);
        let busy = observed
            .units
            .iter()
            .filter(|(_, observed)| observed.phase.is_busy() || observed.processes);
        let mut graph = self.build(loaded_units, &busy.map(|(name, _)| name.clone()).collect());
        graph.share_unchanged(core.planner.graph());
        for (name, observed) in &mut observed.units {
            if let Some(unit) = graph.unit(name).filter(|_| observed.definition.is_some()) {
                observed.definition = Some(Arc::clone(unit));
            }
        }
        // A unit without processes has no stored run; `found` holds the state of those that must be
        // kept.
        observed.add_virtual(&graph, core.now(), |name| is_found.contains(name));
        // During a shutdown no unit is to run.
        observed.extra_targets = if core.shutting_down {
            BTreeSet::new()
        } else {
            desired_targets(loaded_units, &graph)
        };
        let (mask, max_starting) = (core.targets.desired().mask.clone(), self.max_starting);
        // Waiting for an external unit takes no start slot.
        let others = self.externals.stand_ins().map(|(name, _)| name);
        let unlimited_starts =
            others.filter(|name| !loaded_units.contains_key(*name)).cloned().collect();
        let settings = Settings { mask, max_starting, unlimited_starts, ..Settings::default() };
        match InitState::restore(graph, &settings, observed) {
            Ok(planner) => core.planner = planner,
            Err(error) => {
                tracing::error!(%error, "cannot add or remove units: keeping the earlier ones");
            }
        }
    }

    /// Builds the graph of all units that are compatible with each other. Records a reason for each
    /// unit that is left out.
    fn build(&mut self, loaded_units: &mut LoadedUnits, busy: &BTreeSet<Name>) -> Graph {
        (self.is_stale, self.due) = (false, None);
        self.require_externals(loaded_units.values());
        let mut out: BTreeMap<Name, String> = BTreeMap::new();
        loop {
            let mut linked = self.link(loaded_units, &out);
            let mut units = std::mem::take(&mut linked.units);
            let invalid =
                loaded_units.iter().filter(|(name, it)| it.is_invalid() && busy.contains(*name));
            units.extend(invalid.map(|(name, _)| Arc::new(stop_only_definition(name.clone()))));
            let (graph, graph_errors) = Graph::lenient(units, &Settings::default());
            let cycle = graph_errors.iter().find_map(|error| match error {
                GraphError::Cycle(cycle) => Some(cycle),
                _ => None,
            });
            if let Some((last, cycle)) =
                cycle.and_then(|it| Some((newest_in(loaded_units, it)?, it)))
            {
                out.insert(last, format!("dependency cycle: {cycle}"));
                continue;
            }
            set_refusals(loaded_units, &linked, &out, busy);
            set_graph_errors(loaded_units, &graph, &graph_errors);
            self.log_remarks(&linked);
            self.linked = linked;
            return graph;
        }
    }

    fn link(&self, loaded_units: &LoadedUnits, out: &BTreeMap<Name, String>) -> LinkedUnits {
        let there = loaded_units.iter().filter(|(name, _)| !out.contains_key(*name));
        let valid = there.filter_map(|(_, loaded)| match &loaded.definition {
            Definition::Valid(compiled) => Some(&**compiled),
            Definition::Invalid(_) => None,
        });
        let others =
            self.externals.stand_ins().filter(|(name, _)| !loaded_units.contains_key(*name));
        let valid = valid.chain(others.map(|(_, compiled)| compiled));
        let refused = out.keys().filter_map(|name| Some(loaded_units.get(name)?.unit.clone()));
        let assumed_active = self.externals.assumed_active().clone();
        let starters = self.starters.names();
        link(valid, &ExternalUnits { assumed_active, starters, refused: refused.collect() })
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
}

/// Returns the targets of all units that should run and are in the graph.
fn desired_targets(loaded_units: &LoadedUnits, graph: &Graph) -> BTreeSet<Target> {
    let wanted = loaded_units.iter().filter(|(_, loaded)| loaded.should_run());
    let targets = wanted.map(|(name, _)| Target::from(name));
    targets.filter(|target| graph.provider(target).is_some()).collect()
}

/// Returns the unit of a dependency cycle that was loaded last. The caller leaves this unit out
/// of the graph, so that loading it does not affect the earlier units.
fn newest_in(loaded_units: &LoadedUnits, cycle: &DependencyCycle) -> Option<Name> {
    let units = cycle.steps.iter().map(|(unit, _)| unit);
    units.max_by_key(|unit| loaded_units.get(*unit).map(|loaded| loaded.load_number)).cloned()
}

fn set_refusals(
    loaded_units: &mut LoadedUnits,
    linked: &LinkedUnits,
    out: &BTreeMap<Name, String>,
    busy: &BTreeSet<Name>,
) {
    for (name, loaded) in loaded_units {
        let why = linked.refused.get(name).and_then(|all| all.first()).map(describe_refusal);
        loaded.refused = match &loaded.definition {
            Definition::Invalid(problem) if !busy.contains(name) => Some(problem.clone()),
            _ => why.or_else(|| out.get(name).cloned()),
        };
    }
}

/// Records a reason for each unit that is not in the graph and has no reason yet. Callers that
/// wait for such a unit then get an error.
fn set_graph_errors(loaded_units: &mut LoadedUnits, graph: &Graph, graph_errors: &[GraphError]) {
    for (name, loaded) in loaded_units {
        if loaded.refused.is_none() && graph.unit(name).is_none() {
            let error = graph_errors.iter().find(|error| error.units().contains(&name));
            let other = || "it cannot be combined with the other loaded units".to_owned();
            loaded.refused = Some(error.map_or_else(other, ToString::to_string));
        }
    }
}

fn describe_refusal(refusal: &UnitRefusal) -> String {
    let place = refusal.position.as_ref();
    let place = place.map(|place| format!("line {}: {}= ", place.line, place.name()));
    format!("{}{}", place.unwrap_or_default(), refusal.problem)
}

/// A timer or activator that a unit starts, and whether the unit requires it.
pub(in super::super) type PulledStarter = (UnitName, bool);

/// Index of the loaded timers and activators, and of the units that start them.
///
/// They are not part of the graph. As with systemd, starting a unit also starts those that the unit
/// wants or requires. After that, they no longer depend on the unit.
#[derive(Default)]
pub(super) struct StarterIndex {
    /// Units that the `[Install]` section of each starter names.
    starters: BTreeMap<UnitName, Vec<Name>>,
    /// Starters whose `[Install]` section names the unit.
    by_unit: BTreeMap<Name, BTreeSet<PulledStarter>>,
}

impl StarterIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.starters.is_empty()
    }

    pub(super) fn names(&self) -> BTreeSet<UnitName> {
        self.starters.keys().cloned().collect()
    }

    /// Adds a starter, or updates it after its file has changed.
    pub(super) fn insert(&mut self, starter: &UnitName, relations: &[Relation]) {
        self.remove(starter);
        let mut units = Vec::new();
        for relation in relations {
            let is_required = match relation.kind {
                RelationKind::RequiredBy => true,
                RelationKind::WantedBy => false,
                _ => continue,
            };
            let unit = name_of(&relation.unit);
            self.by_unit.entry(unit.clone()).or_default().insert((starter.clone(), is_required));
            units.push(unit);
        }
        self.starters.insert(starter.clone(), units);
    }

    pub(super) fn remove(&mut self, starter: &UnitName) {
        for unit in self.starters.remove(starter).into_iter().flatten() {
            if let Some(starters) = self.by_unit.get_mut(&unit) {
                starters.retain(|(other, _)| other != starter);
                if starters.is_empty() {
                    self.by_unit.remove(&unit);
                }
            }
        }
    }

    /// Returns the starters that any of `units` pulls in.
    pub(super) fn pulled_by(
        &self,
        units: &BTreeSet<Target>,
        loaded_units: &LoadedUnits,
    ) -> Vec<PulledStarter> {
        // A starter that any unit requires is required, even if others merely want it.
        let mut wanted: BTreeMap<&UnitName, bool> = BTreeMap::new();
        for unit in units.iter().filter_map(|unit| Name::new(unit.as_str()).ok()) {
            for (starter, is_required) in self.by_unit.get(&unit).into_iter().flatten() {
                *wanted.entry(starter).or_default() |= is_required;
            }
            let loaded = loaded_units.get(&unit);
            let Some(Definition::Valid(compiled)) = loaded.map(|loaded| &loaded.definition) else {
                continue;
            };
            for relation in &compiled.relations {
                let is_required = match relation.kind {
                    RelationKind::Requires | RelationKind::BindsTo => true,
                    RelationKind::Wants => false,
                    _ => continue,
                };
                if self.starters.contains_key(&relation.unit) {
                    *wanted.entry(&relation.unit).or_default() |= is_required;
                }
            }
        }
        wanted.into_iter().map(|(starter, is_required)| (starter.clone(), is_required)).collect()
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::graph::InitUnit;

    use super::super::name_of;
    use super::super::status::tests::{call, load, open};
    use super::*;
    use crate::native::supervisor::Supervisor;

    /// Returns a unit as it is in the graph.
    fn linked(supervisor: &mut Supervisor, unit: &str) -> Arc<InitUnit> {
        supervisor.managed.apply_pending_loads(&mut supervisor.core);
        let name = name_of(&unit.parse().expect("it is a name"));
        Arc::clone(supervisor.core.planner.graph().unit(&name).expect("it is in the graph"))
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
