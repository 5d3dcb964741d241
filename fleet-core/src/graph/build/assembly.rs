//! Assembles a graph and reports every invalid unit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_unitfile::spelling::suggest;

use super::cycle::{components, shortest_cycle};
use super::error::{GraphError, SettingConflict};
use super::{Adjacency, Edge, Graph, Settings, number};
use crate::graph::model::{
    DelayGrowth, EdgeKind, InitUnit, Name, RestartWhen, Run, ServiceType, Target,
};

/// Maximum number of errors that get a suggestion of a similar target name. The number is limited
/// because each search compares the name with all targets.
const MAX_SEARCHES: usize = 20;

/// A graph under construction.
pub(super) struct Assembly {
    lenient: bool,
    /// Sorted by name, each name once.
    units: Vec<Arc<InitUnit>>,
    /// Units that are left out of the graph.
    excluded: BTreeSet<u32>,
    errors: Vec<GraphError>,
}

impl Assembly {
    pub(super) fn strict(
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> (Graph, Vec<GraphError>) {
        Self { lenient: false, units: Vec::new(), excluded: BTreeSet::new(), errors: Vec::new() }
            .run(units, settings)
    }

    pub(super) fn lenient(
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> (Graph, Vec<GraphError>) {
        Self { lenient: true, units: Vec::new(), excluded: BTreeSet::new(), errors: Vec::new() }
            .run(units, settings)
    }

    fn run(
        mut self,
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> (Graph, Vec<GraphError>) {
        self.collect_units(units.into_iter().map(Into::into).collect());
        self.check_each();
        self.drop_excluded();
        let providers = self.providers(settings);
        let mut graph = self.build(providers);
        self.check_cycles(&mut graph);
        self.check_missing(&graph);
        self.check_settings(&graph, settings);
        self.errors.sort();
        (graph, self.errors)
    }

    /// Sorts the units by name and reports each name that several units share. In lenient mode all
    /// units with that name are left out. In strict mode one of them is kept, so that its other
    /// errors are found too.
    fn collect_units(&mut self, mut units: Vec<Arc<InitUnit>>) {
        self.bound("units", units.len(), Graph::MAX_UNITS);
        units.truncate(Graph::MAX_UNITS);
        units.sort_by(|a, b| a.name.cmp(&b.name));
        for same in units.chunk_by(|a, b| a.name == b.name) {
            if let [unit, _, ..] = same {
                let name = unit.name.clone();
                self.errors.push(GraphError::DuplicateUnit { name, count: same.len() });
            }
            if same.len() == 1 || !self.lenient {
                self.units.push(Arc::clone(&same[0]));
            }
        }
    }

    fn check_each(&mut self) {
        for (at, unit) in (0..).zip(&self.units) {
            let errors = errors(unit);
            if self.lenient && !errors.is_empty() {
                self.excluded.insert(at);
            }
            self.errors.extend(errors);
        }
        let edges = self.units.iter().map(|unit| unit.edges.len()).sum();
        self.bound("dependencies", edges, Graph::MAX_EDGES);
        if edges > Graph::MAX_EDGES {
            self.excluded.extend(0..number(self.units.len()));
        }
    }

    fn bound(&mut self, what: &'static str, found: usize, most: usize) {
        if found > most {
            self.errors.push(GraphError::TooMany { what, found, most });
        }
    }

    fn drop_excluded(&mut self) {
        let excluded = std::mem::take(&mut self.excluded);
        let mut at = 0;
        self.units.retain(|_| {
            at += 1;
            !excluded.contains(&(at - 1))
        });
    }

    /// Returns the provider of each target. If several units provide a target, an alternative in
    /// the settings may choose one of them. If none is chosen, the target is reported as an error.
    /// Its provider is then the unit with the target's name or, without such a unit, the first by
    /// name.
    fn providers(&mut self, settings: &Settings) -> BTreeMap<Target, u32> {
        let mut claims: BTreeMap<&Target, Vec<u32>> = BTreeMap::new();
        for (at, unit) in (0..).zip(&self.units) {
            let provided: BTreeSet<&Target> = unit.provides.iter().collect();
            provided.into_iter().for_each(|target| claims.entry(target).or_default().push(at));
        }
        for (target, chosen) in &settings.alternatives {
            let claimed = claims.entry(target).or_default();
            let is_chosen = |at: &u32| self.units[*at as usize].name == *chosen;
            if claimed.iter().any(is_chosen) {
                claimed.retain(is_chosen);
            } else {
                let (target, unit) = (target.clone(), chosen.clone());
                self.errors.push(GraphError::NoAlternative { target, unit });
            }
        }
        let claims = claims.into_iter().map(|(target, units)| (target.clone(), units)).collect();
        self.choose_providers(claims)
    }

    fn choose_providers(&mut self, claims: BTreeMap<Target, Vec<u32>>) -> BTreeMap<Target, u32> {
        let mut providers = BTreeMap::new();
        for (target, mut claimed) in claims {
            claimed.retain(|at| !self.excluded.contains(at));
            let name = |at: u32| &self.units[at as usize].name;
            let own = |at: &&u32| name(**at).as_str() == target.as_str();
            let Some(&winner) = claimed.iter().find(own).or(claimed.first()) else { continue };
            if claimed.len() > 1 {
                let units: Vec<Name> = claimed.iter().map(|&at| name(at).clone()).collect();
                self.errors.push(GraphError::DuplicateProvider { target: target.clone(), units });
            }
            if self.lenient {
                self.excluded.extend(claimed.into_iter().filter(|&at| at != winner));
            }
            providers.insert(target, winner);
        }
        providers
    }

    /// Builds the graph of the units that are not excluded.
    fn build(&mut self, mut providers: BTreeMap<Target, u32>) -> Graph {
        providers.retain(|_, at| !self.excluded.contains(at));
        if !self.excluded.is_empty() {
            let left: Vec<u32> =
                (0..number(self.units.len())).filter(|at| !self.excluded.contains(at)).collect();
            // Every provider is kept, so the search finds it.
            let moved = |at: &u32| left.binary_search(at).map_or(0, number);
            providers.values_mut().for_each(|at| *at = moved(at));
            self.drop_excluded();
        }
        let (edges, missing) = edges(&self.units, &providers);
        let adjacency = Arc::new(Adjacency::new(self.units.len(), edges));
        Graph { units: self.units.clone(), providers, adjacency, missing }
    }

    fn check_cycles(&mut self, graph: &mut Graph) {
        for component in components(&graph.adjacency) {
            self.errors.push(GraphError::Cycle(shortest_cycle(
                &graph.adjacency,
                &component,
                &graph.units,
            )));
            self.excluded.extend(component);
        }
        if self.lenient && !self.excluded.is_empty() {
            *graph = self.build(std::mem::take(&mut graph.providers));
        }
    }

    fn check_missing(&mut self, graph: &Graph) {
        let mut searches = MAX_SEARCHES;
        for (&at, missing) in &graph.missing {
            let unit = &graph.units[at as usize].name;
            // `after` a missing target has no effect.
            for (kind, target) in missing.iter().filter(|(kind, _)| kind.requires()) {
                let (unit, kind) = (unit.clone(), *kind);
                let near = nearest(target, graph, &mut searches);
                self.errors.push(GraphError::NotProvided {
                    unit,
                    kind,
                    target: target.clone(),
                    near,
                });
            }
        }
    }

    fn check_settings(&mut self, graph: &Graph, settings: &Settings) {
        if let Some(goal) = &settings.goal {
            self.errors.extend(graph.goal_error(goal, &settings.mask));
        }
        let mut searches = MAX_SEARCHES;
        for target in settings.mask.iter().filter(|it| !graph.providers.contains_key(*it)) {
            let near = nearest(target, graph, &mut searches);
            self.errors.push(GraphError::NothingMasked { target: target.clone(), near });
        }
    }
}

impl Graph {
    /// Returns the error of a goal, if it has one.
    pub(in crate::graph) fn goal_error(
        &self,
        goal: &Target,
        mask: &BTreeSet<Target>,
    ) -> Option<GraphError> {
        let goal = goal.clone();
        let Some(&provider) = self.providers.get(&goal) else {
            let near = nearest(&goal, self, &mut 1);
            return Some(GraphError::NoGoal { goal, near });
        };
        let provided = mask.iter().filter_map(|target| self.providers.get(target));
        provided.into_iter().any(|&at| at == provider).then_some(GraphError::GoalMasked { goal })
    }
}

type MissingTargets = BTreeMap<u32, Vec<(EdgeKind, Target)>>;

fn edges(
    units: &[Arc<InitUnit>],
    providers: &BTreeMap<Target, u32>,
) -> (Vec<Edge>, MissingTargets) {
    let mut edges = Vec::with_capacity(units.iter().map(|unit| unit.edges.len()).sum());
    let mut missing = MissingTargets::new();
    for (at, unit) in (0..).zip(units) {
        for (kind, target) in &unit.edges {
            match providers.get(target) {
                // An edge that only requires adds nothing from a unit to itself.
                Some(&to) if to == at && !kind.orders() => {}
                Some(&to) => edges.push((at, *kind, to)),
                None => missing.entry(at).or_default().push((*kind, target.clone())),
            }
        }
    }
    (edges, missing)
}

/// Returns the target with the most similar name.
fn nearest(target: &Target, graph: &Graph, searches: &mut usize) -> Option<Target> {
    *searches = searches.checked_sub(1)?;
    let near = suggest(target.as_str(), graph.providers.keys().map(Target::as_str))?;
    graph.providers.keys().find(|target| target.as_str() == near).cloned()
}

/// Returns all errors of a unit.
pub(super) fn errors(unit: &InitUnit) -> Vec<GraphError> {
    let conflicts = conflicts(unit).into_iter();
    let errors = conflicts
        .map(|problem| GraphError::Conflict { unit: unit.name.clone(), problem })
        .chain(provided_twice(unit));
    errors.chain(nothing_provided(unit)).collect()
}

fn nothing_provided(unit: &InitUnit) -> Option<GraphError> {
    unit.provides.is_empty().then(|| GraphError::NothingProvided { unit: unit.name.clone() })
}

fn provided_twice(unit: &InitUnit) -> impl Iterator<Item = GraphError> {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<_> =
        unit.provides.iter().filter(|target| !seen.insert(*target)).cloned().collect();
    let unit = unit.name.clone();
    twice.into_iter().map(move |target| GraphError::ProvidedTwice { unit: unit.clone(), target })
}

fn conflicts(unit: &InitUnit) -> Vec<SettingConflict> {
    let run = &unit.run;
    let is_oneshot = matches!(unit.kind, ServiceType::Oneshot { .. });
    let may_start_nothing = unit.is_virtual() || (is_oneshot && !run.stop.is_empty());
    let is_scripted = unit.kind == ServiceType::BackgroundScripted;
    let restart = &unit.restart;
    let always = matches!(restart.when, RestartWhen::Always | RestartWhen::OnSuccess);
    let grows = match restart.growth {
        DelayGrowth::Factor(factor) => factor > 1,
        DelayGrowth::Steps(steps) => steps > 0,
    };
    let table = [
        (unit.is_virtual() && runs_something(run), SettingConflict::VirtualRuns),
        (run.start.is_empty() && !may_start_nothing, SettingConflict::RunsNothing),
        (!unit.is_virtual() && !is_oneshot && run.start.len() > 1, SettingConflict::SeveralStarts),
        (is_scripted && run.stop.is_empty(), SettingConflict::NoStop),
        (always && (is_oneshot || unit.is_virtual()), SettingConflict::RestartedAlways),
        (restart.growth == DelayGrowth::Factor(0), SettingConflict::NoFactor),
        (grows && restart.max_delay < restart.delay, SettingConflict::DelaysCrossed),
    ];
    table.into_iter().filter(|(found, _)| *found).map(|(_, problem)| problem).collect()
}

fn runs_something(run: &Run) -> bool {
    let commands = [
        &run.exec_condition,
        &run.start_pre,
        &run.start,
        &run.start_post,
        &run.reload,
        &run.stop,
        &run.stop_post,
    ];
    commands.iter().any(|commands| !commands.is_empty())
}
