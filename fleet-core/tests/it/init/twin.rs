//! Reference model of a graph: every query evaluates all units.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::graph::{EdgeKind, InitState, InitUnit, Name, ObservedUnit, Phase, Target};

/// Dependent, kind and dependency.
pub(super) type Edge = (Name, EdgeKind, Name);

/// The reference model.
#[derive(Debug, Clone)]
pub(super) struct Twin {
    pub(super) units: BTreeMap<Name, InitUnit>,
    pub(super) orphans: BTreeSet<Name>,
    pub(super) edges: Vec<Edge>,
    pub(super) needed: BTreeSet<Name>,
    pub(super) masked: BTreeSet<Name>,
    pub(super) seen: BTreeMap<Name, ObservedUnit>,
    providers: BTreeMap<Target, Name>,
}

impl Twin {
    /// Builds the model of a state with these edges of earlier graphs.
    pub(super) fn of(system: &InitState, mask: &BTreeSet<Target>, left: &[Edge]) -> Self {
        let mut twin = Self::without_earlier_edges(system, mask);
        twin.edges.extend(left.iter().cloned());
        let there = |name: &Name| twin.units.contains_key(name);
        let edges = std::mem::take(&mut twin.edges);
        twin.edges = edges.into_iter().filter(|(from, _, to)| there(from) && there(to)).collect();
        twin.needed = twin.closure(system.requested_targets());
        twin
    }

    /// Returns the edges of earlier graphs in a state whose graph was just replaced.
    pub(super) fn earlier_edges(system: &InitState) -> Vec<Edge> {
        let twin = Self::without_earlier_edges(system, &BTreeSet::new());
        twin.find_earlier_edges()
    }

    fn without_earlier_edges(system: &InitState, mask: &BTreeSet<Target>) -> Self {
        let graph = system.graph();
        let mut seen = system.observation().units;
        let mut units: BTreeMap<Name, InitUnit> =
            graph.units().map(|unit| (unit.name.clone(), InitUnit::clone(unit))).collect();
        let mut orphans = BTreeSet::new();
        for name in system.units().filter(|name| graph.unit(name).is_none()) {
            let definition = seen[name].definition.as_deref().unwrap().clone();
            units.insert(name.clone(), definition);
            orphans.insert(name.clone());
        }
        seen.retain(|name, _| units.contains_key(name));
        units.keys().for_each(|name| {
            seen.entry(name.clone()).or_default();
        });
        let provided = |unit: &InitUnit| -> Vec<(Target, Name)> {
            let all = unit.provides.iter().filter(|it| graph.provider(it).is_some());
            all.map(|it| (it.clone(), graph.provider(it).unwrap().name.clone())).collect()
        };
        let providers: BTreeMap<Target, Name> =
            graph.units().flat_map(|unit| provided(unit)).collect();
        let masked = mask.iter().filter_map(|it| providers.get(it)).cloned().collect();
        let (edges, needed) = (Vec::new(), BTreeSet::new());
        let mut twin = Self { units, orphans, edges, needed, masked, seen, providers };
        twin.edges = twin.strongest();
        twin
    }

    /// Returns the strongest kind between each two units. Requiring and ordering together give
    /// `waits-for`, and a requisite that is also required gives `depends-ms`.
    fn strongest(&self) -> Vec<Edge> {
        let mut kinds: BTreeMap<(Name, Name), BTreeSet<EdgeKind>> = BTreeMap::new();
        for unit in self.units.values().filter(|unit| !self.orphans.contains(&unit.name)) {
            for (kind, target) in &unit.edges {
                let Some(on) = self.providers.get(target) else { continue };
                if *on != unit.name {
                    kinds.entry((unit.name.clone(), on.clone())).or_default().insert(*kind);
                }
            }
        }
        let strongest = |kinds: BTreeSet<EdgeKind>| {
            if kinds == BTreeSet::from([EdgeKind::Pulls, EdgeKind::After]) {
                return EdgeKind::WaitsFor;
            }
            let first = *kinds.first().unwrap();
            let pulls = first == EdgeKind::Requisite && kinds.iter().any(|kind| kind.requires());
            if pulls { EdgeKind::DependsMs } else { first }
        };
        kinds.into_iter().map(|((from, to), kinds)| (from, strongest(kinds), to)).collect()
    }

    /// Edges of an earlier graph keep the order of stops, unless they close a cycle.
    fn find_earlier_edges(&self) -> Vec<Edge> {
        let mut of_them = Vec::new();
        let mut on_them = Vec::new();
        for (name, seen) in &self.seen {
            let Some(definition) = &seen.definition else { continue };
            let orders = definition.edges.iter().filter(|(kind, _)| kind.orders());
            for target in orders.map(|(_, target)| target) {
                let of_name = self.orphans.contains(name);
                let orphan =
                    self.orphans.iter().rfind(|it| self.units[*it].provides.contains(target));
                let provider = self.providers.get(target).filter(|_| of_name);
                for to in orphan.into_iter().chain(provider).filter(|to| *to != name) {
                    let edges = if of_name { &mut of_them } else { &mut on_them };
                    edges.push((name.clone(), EdgeKind::After, to.clone()));
                }
            }
        }
        let both = || of_them.iter().chain(&on_them).cloned().collect();
        let mut tries = [both(), of_them.clone(), Vec::new()].into_iter();
        let fits = |left: &Vec<Edge>| {
            is_acyclic(&self.edges.iter().chain(left).cloned().collect::<Vec<_>>())
        };
        tries.find(fits).unwrap_or_default()
    }

    fn closure<'a>(&self, goals: impl Iterator<Item = &'a Target>) -> BTreeSet<Name> {
        let mut needed: BTreeSet<Name> =
            goals.filter_map(|goal| self.providers.get(goal)).cloned().collect();
        needed.retain(|name| !self.masked.contains(name));
        loop {
            let requires = |from: &Name, kind: &EdgeKind, to: &Name| {
                needed.contains(from) && kind.requires() && !self.masked.contains(to)
            };
            let more: Vec<Name> = (self.edges.iter())
                .filter(|(from, kind, to)| requires(from, kind, to) && !needed.contains(to))
                .map(|(.., to)| to.clone())
                .collect();
            if more.is_empty() {
                return needed;
            }
            needed.extend(more);
        }
    }

    pub(super) fn on<'a>(
        &'a self,
        name: &'a Name,
        kinds: &'a [EdgeKind],
    ) -> impl Iterator<Item = &'a Name> {
        let from = move |it: &&Edge| it.0 == *name && kinds.contains(&it.1);
        self.edges.iter().filter(from).map(|(.., to)| to)
    }

    pub(super) fn by<'a>(
        &'a self,
        name: &'a Name,
        kinds: &'a [EdgeKind],
    ) -> impl Iterator<Item = &'a Name> {
        let to = move |it: &&Edge| it.2 == *name && kinds.contains(&it.1);
        self.edges.iter().filter(to).map(|(from, ..)| from)
    }

    /// Returns whether a unit depends on a missing target by one of these kinds.
    pub(super) fn lacks(&self, name: &Name, kinds: &[EdgeKind]) -> bool {
        let missing = |(kind, target): &(EdgeKind, Target)| {
            kinds.contains(kind) && !self.providers.contains_key(target)
        };
        !self.orphans.contains(name) && self.units[name].edges.iter().any(missing)
    }

    pub(super) fn provider(&self, target: &Target) -> Option<&Name> {
        self.providers.get(target)
    }

    pub(super) fn phase(&self, name: &Name) -> Phase {
        self.seen[name].phase
    }

    pub(super) fn active(&self, name: &Name) -> bool {
        self.phase(name).is_active()
    }

    /// Returns whether the running definition differs in what it runs. Uses its own list of
    /// settings, as the tested one may be wrong.
    pub(super) fn definition_changed(&self, name: &Name) -> bool {
        let Some(runs) = self.seen[name].definition.as_deref() else { return false };
        let now = &self.units[name];
        if self.phase(name) == Phase::Stopping {
            return runs.kind != now.kind || runs.run != now.run;
        }
        // Settings that a process gets at its start, for the changes that the tests make.
        let given = |unit: &InitUnit| {
            let start = (unit.kind.clone(), unit.run.start.clone());
            (start, unit.run.exec_environment.clone(), unit.run.watchdog)
        };
        given(runs) != given(now)
    }

    pub(super) fn must_stop(&self, name: &Name) -> bool {
        let seen = &self.seen[name];
        let redefined = || seen.restart_requested || self.definition_changed(name);
        let lost = |on: &Name| !self.active(on) || self.must_stop(on);
        (seen.phase == Phase::Starting || seen.phase.is_active())
            && (!self.needed.contains(name)
                || redefined()
                || self.lacks(name, &[EdgeKind::DependsOn])
                || self.on(name, &[EdgeKind::DependsOn]).any(lost))
    }

    pub(super) fn blocked(&self, name: &Name) -> bool {
        use EdgeKind::{DependsMs, DependsOn, Requisite};
        let dooms = |on: &Name| {
            self.phase(on) == Phase::Failed || self.masked.contains(on) || self.blocked(on)
        };
        let ended = |on: &Name| self.phase(on) == Phase::Completed;
        let unneeded = |on: &Name| !self.active(on) && !self.needed.contains(on);
        self.needed.contains(name)
            && self.phase(name) == Phase::Inactive
            && (self.lacks(name, &[DependsOn, DependsMs, Requisite])
                || self.on(name, &[DependsOn, DependsMs, Requisite]).any(dooms)
                || self.on(name, &[DependsOn, Requisite]).any(ended)
                || self.on(name, &[Requisite]).any(unneeded))
    }

    pub(super) fn settled(&self, name: &Name) -> bool {
        (self.active(name) && !self.must_stop(name))
            || matches!(self.phase(name), Phase::Failed | Phase::Completed)
            || self.masked.contains(name)
            || self.blocked(name)
    }

    pub(super) fn degraded(&self, name: &Name) -> bool {
        use EdgeKind::{DependsMs, DependsOn, Pulls, WaitsFor};
        let works = |on: &Name| self.active(on) || self.phase(on) == Phase::Completed;
        self.active(name)
            && (self.lacks(name, &[DependsOn, DependsMs, WaitsFor, Pulls])
                || self.on(name, &[DependsOn, DependsMs, WaitsFor, Pulls]).any(|on| !works(on))
                || self.on(name, &[DependsOn, DependsMs, WaitsFor]).any(|on| self.degraded(on)))
    }

    pub(super) fn startable(&self, name: &Name) -> bool {
        use EdgeKind::{After, DependsMs, DependsOn, Requisite, WaitsFor};
        let stays = |on: &Name| self.active(on) && !self.must_stop(on);
        self.needed.contains(name)
            && self.phase(name) == Phase::Inactive
            && !self.seen[name].processes
            && !self.lacks(name, &[DependsOn, DependsMs, Requisite])
            && self.on(name, &[DependsOn, Requisite]).all(stays)
            && self.on(name, &[DependsMs]).all(|on| stays(on) || self.phase(on) == Phase::Completed)
            && self.on(name, &[WaitsFor]).all(|on| self.settled(on))
            && self.on(name, &[After]).all(|on| !self.needed.contains(on) || self.settled(on))
    }

    /// Returns whether another unit has to be gone before this one stops.
    pub(super) fn waits_for_dependents(&self, name: &Name) -> bool {
        use EdgeKind::{After, DependsMs, DependsOn, Requisite, WaitsFor};
        self.by(name, &[DependsOn]).any(|by| self.phase(by).is_busy())
            || self
                .by(name, &[DependsOn, DependsMs, Requisite, WaitsFor, After])
                .any(|by| self.must_stop(by) || self.phase(by) == Phase::Stopping)
    }

    /// Returns the length of the longest chain of needed dependents.
    pub(super) fn height(&self, name: &Name) -> usize {
        use EdgeKind::{After, DependsMs, DependsOn, Requisite, WaitsFor};
        let above = self.by(name, &[DependsOn, DependsMs, Requisite, WaitsFor, After]);
        let above = above.filter(|by| self.needed.contains(*by));
        above.map(|by| self.height(by) + 1).max().unwrap_or(0)
    }
}

/// Returns whether the ordering edges can be removed one by one from their ends.
pub(super) fn is_acyclic(edges: &[Edge]) -> bool {
    let mut left: Vec<_> = edges.iter().filter(|(_, kind, _)| kind.orders()).collect();
    loop {
        let before = left.len();
        let froms: BTreeSet<Name> = left.iter().map(|(from, ..)| from.clone()).collect();
        left.retain(|(.., to)| froms.contains(to));
        if left.is_empty() || left.len() == before {
            return left.is_empty();
        }
    }
}
