//! Links compiled units: turns their relations into edges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_unitfile::{UnitName, UnitType};

use super::compile::CompiledUnit;
use super::effects::Effects;
use super::relation::{Relation, RelationKind, Relations};
use super::support::{OptionPosition, RefusalCause, Remark, UnitRefusal};
use crate::graph::model::{EdgeKind, InitUnit, Name, Target};

/// Units that are not part of the graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalUnits {
    /// Units that are managed elsewhere and assumed to be active.
    pub assumed_active: BTreeSet<UnitName>,
    /// Timers, sockets and paths, which run outside the graph. A unit may require one.
    pub starters: BTreeSet<UnitName>,
    /// Units that were refused. A unit that requires one of them can never start.
    pub refused: BTreeSet<UnitName>,
}

/// Result of linking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkedUnits {
    /// Accepted units with their edges, sorted by name. A unit that gets neither edges nor aliases
    /// is not copied, but shared with its [`CompiledUnit`].
    pub units: Vec<Arc<InitUnit>>,
    /// Units that were refused because of a relation, each with its refusals. For example, a unit
    /// is refused if it requires a unit that does not exist.
    pub refused: BTreeMap<Name, Vec<UnitRefusal>>,
    /// Remarks per unit.
    pub remarks: BTreeMap<Name, Vec<Remark>>,
    /// For each unit, the units that systemd stops when it stops that unit. Only direct relations
    /// are included.
    pub stops: BTreeMap<Name, BTreeSet<Name>>,
    /// Effects of units on other units, by relations that are no dependencies.
    pub effects: Effects,
}

/// Links units by the relations that they declare.
///
/// For each other unit X, a unit gets the edge of the first row that applies:
///
/// | the unit declares for X | edge to X |
/// |---|---|
/// | `BindsTo=` | `depends-on` |
/// | `Requires=` and `After=` | `depends-ms` |
/// | `Requisite=`, and one of `Requires=`, `Wants=`, `Upholds=` | `depends-ms` |
/// | `Requisite=` | `requisite` |
/// | `Wants=` or `Upholds=`, and `After=` | `waits-for` |
/// | `Requires=`, `Wants=` or `Upholds=` | `pulls` |
/// | `After=` | `after` |
///
/// `Before=`, `RequiredBy=`, `WantedBy=` and `UpheldBy=` are the reverse of `After=`, `Requires=`,
/// `Wants=` and `Upholds=`.
/// If X declares `Before=` for the unit, for example, the unit gets an edge to X, as if it declared
/// `After=` for X. `PartOf=` gives no edge; it only adds to [`stops`](LinkedUnits::stops).
///
/// As in systemd, a target waits for the units that it requires or wants, even without `After=`. It
/// does not wait if the target or the other unit has `DefaultDependencies=no`, or if the other unit
/// is ordered after the target.
///
/// `OnFailure=`, `PropagatesStopTo=` and similar become [`effects`](LinkedUnits::effects).
///
/// If X does not exist, a unit with `Requires=` or `BindsTo=` for X is refused. All other relations
/// to a missing unit are ignored with a remark. A unit with `Conflicts=` for an X that exists is
/// refused.
#[must_use]
pub fn link<'a>(
    compiled: impl IntoIterator<Item = &'a CompiledUnit>,
    external: &'a ExternalUnits,
) -> LinkedUnits {
    let compiled: Vec<&CompiledUnit> = compiled.into_iter().collect();
    let mut linker = Linker::new(&compiled, external);
    for unit in &compiled {
        for relation in &unit.relations {
            linker.apply_relation(unit, relation);
        }
    }
    linker.order_targets();
    linker.finish()
}

/// Result of resolving a name.
enum Resolution {
    /// A unit of the graph, by index.
    Unit(usize),
    /// A refused unit.
    Refused,
    AssumedActive,
    Starter,
    Nowhere,
}

struct Linker<'a> {
    compiled: &'a [&'a CompiledUnit],
    external: &'a ExternalUnits,
    /// Names and aliases of all units.
    index: BTreeMap<&'a str, usize>,
    aliases: BTreeMap<usize, Vec<&'a UnitName>>,
    /// Relations from a unit to a dependency.
    relations: BTreeMap<(usize, usize), Relations>,
    /// Relations from a unit to a refused unit.
    to_refused: BTreeMap<(usize, &'a str), Relations>,
    linked: LinkedUnits,
}

impl<'a> Linker<'a> {
    fn new(compiled: &'a [&'a CompiledUnit], external: &'a ExternalUnits) -> Self {
        let index = compiled.iter().enumerate().map(|(at, unit)| (unit.unit.name.as_str(), at));
        let mut linker = Self {
            compiled,
            external,
            index: index.collect(),
            aliases: BTreeMap::new(),
            relations: BTreeMap::new(),
            to_refused: BTreeMap::new(),
            linked: LinkedUnits::default(),
        };
        // Aliases are assigned in the order of unit names, independent of the input order.
        let units: Vec<usize> = linker.index.values().copied().collect();
        for at in units {
            for alias in &compiled[at].aliases {
                linker.alias(at, alias);
            }
        }
        linker
    }

    /// Adds an alias. If the name is already taken, it stays with the unit that has it.
    fn alias(&mut self, at: usize, alias: &'a UnitName) {
        let taken = self.index.get(alias.as_str()).copied();
        match taken {
            None => {
                self.index.insert(alias.as_str(), at);
                self.aliases.entry(at).or_default().push(alias);
            }
            Some(other) if other == at => {}
            Some(other) => {
                let other = &self.compiled[other].unit.name;
                let text = format!("yields {alias} to {other}");
                let position = self.compiled[at].position_of("Install", "Alias");
                self.remark(at, position, text);
            }
        }
    }

    fn find(&self, name: &UnitName) -> Resolution {
        match self.index.get(name.as_str()) {
            Some(at) => Resolution::Unit(*at),
            None if self.external.refused.contains(name) => Resolution::Refused,
            None if self.external.assumed_active.contains(name) => Resolution::AssumedActive,
            None if self.external.starters.contains(name) => Resolution::Starter,
            None => Resolution::Nowhere,
        }
    }

    fn apply_relation(&mut self, unit: &'a CompiledUnit, relation: &'a Relation) {
        let Some(&from) = self.index.get(unit.unit.name.as_str()) else { return };
        if relation.kind == RelationKind::Conflicts {
            return self.check_conflict(from, relation);
        }
        if relation.kind.is_effect() {
            return self.add_effect(from, relation);
        }
        match self.find(&relation.unit) {
            Resolution::Unit(to) if to == from => self.ignore_itself(from, relation),
            Resolution::Unit(to) => self.bind(from, to, relation.kind),
            Resolution::Refused => self.link_to_refused(from, relation),
            Resolution::AssumedActive => self.assume_active(from, relation),
            Resolution::Starter => self.link_to_starter(from, relation),
            Resolution::Nowhere => self.drop_or_refuse(from, relation),
        }
    }

    fn ignore_itself(&mut self, from: usize, relation: &Relation) {
        let text = format!("ignores {}, which is the unit itself", relation.unit);
        self.remark(from, Some(relation.position.clone()), text);
    }

    /// Adds an effect on another unit. A unit that a result starts may be missing.
    fn add_effect(&mut self, from: usize, relation: &Relation) {
        let name = &relation.unit;
        let other = match self.find(name) {
            Resolution::Unit(to) if to == from => return self.ignore_itself(from, relation),
            Resolution::Unit(to) => Some(self.compiled[to].unit.name.clone()),
            _ if relation.kind.is_trigger() => Name::new(name.as_str()).ok(),
            resolution => {
                let text = match resolution {
                    Resolution::Refused => format!("ignores {name}, which was refused"),
                    Resolution::Starter => format!("ignores {name}, which only starts its unit"),
                    _ => format!("ignores {name}, which is not run here"),
                };
                return self.remark(from, Some(relation.position.clone()), text);
            }
        };
        if let Some(other) = other {
            let own = &self.compiled[from].unit.name;
            self.linked.effects.add(relation.kind, own, &other);
        }
    }

    /// Refuses a unit that conflicts with another unit of the graph. A conflict with any other unit
    /// has no effect, because this supervisor never starts that unit.
    fn check_conflict(&mut self, from: usize, relation: &Relation) {
        if matches!(self.find(&relation.unit), Resolution::Unit(to) if to != from) {
            let problem = format!(
                "names {}, which is run here too: starting a unit never stops another: unload one \
                 of them",
                relation.unit
            );
            self.refuse(from, relation, RefusalCause::Setting, problem);
        }
    }

    fn bind(&mut self, from: usize, to: usize, kind: RelationKind) {
        let reversed = matches!(
            kind,
            RelationKind::Before
                | RelationKind::RequiredBy
                | RelationKind::UpheldBy
                | RelationKind::WantedBy
        );
        let (dependent, dependency) = if reversed { (to, from) } else { (from, to) };
        if kind != RelationKind::PartOf {
            self.relations.entry((dependent, dependency)).or_default().add(kind);
        }
        let stops = matches!(
            kind,
            RelationKind::BindsTo
                | RelationKind::PartOf
                | RelationKind::RequiredBy
                | RelationKind::Requires
                | RelationKind::Requisite
        );
        let name = |at: usize| self.compiled[at].unit.name.clone();
        let (dependency, dependent) = (name(dependency), name(dependent));
        if matches!(kind, RelationKind::UpheldBy | RelationKind::Upholds) {
            self.linked.effects.add_upheld(&dependent, &dependency);
        }
        if stops {
            self.linked.stops.entry(dependency).or_default().insert(dependent);
        }
    }

    /// Handles a relation to a refused unit. `BindsTo=`, `Requires=` and `Requisite=` become an
    /// edge to a target without a provider, so that the graph blocks the dependent. Other relations
    /// are ignored with a remark.
    fn link_to_refused(&mut self, from: usize, relation: &'a Relation) {
        let name = &relation.unit;
        match relation.kind {
            RelationKind::BindsTo | RelationKind::Requires | RelationKind::Requisite => {
                self.to_refused.entry((from, name.as_str())).or_default().add(relation.kind);
                let text = format!("blocks the unit, because {name} was refused");
                self.remark(from, Some(relation.position.clone()), text);
            }
            _ => {
                let text = format!("ignores {name}, which was refused");
                self.remark(from, Some(relation.position.clone()), text);
            }
        }
    }

    fn assume_active(&mut self, from: usize, relation: &Relation) {
        let name = &relation.unit;
        if matches!(relation.kind, RelationKind::BindsTo | RelationKind::PartOf) {
            let text = format!("does not observe stops of {name}, which is not run here");
            self.remark(from, Some(relation.position.clone()), text);
        }
    }

    /// Handles a relation to a timer, socket or path. No edge is needed, because such a unit is
    /// active as soon as it is started. Starting a unit also starts the timers, sockets and paths
    /// that it names.
    ///
    /// Stopping a socket or path also stops the units that require it, as in systemd. Stopping a
    /// timer stops nothing else, so `PartOf=` for a timer gets a remark.
    fn link_to_starter(&mut self, from: usize, relation: &Relation) {
        let name = &relation.unit;
        let is_timer = name.unit_type() == UnitType::Timer;
        match relation.kind {
            RelationKind::PartOf if is_timer => {
                let text = format!("ignores {name}: stopping a timer stops nothing else");
                self.remark(from, Some(relation.position.clone()), text);
            }
            RelationKind::BindsTo | RelationKind::PartOf | RelationKind::Requires if !is_timer => {
                if let Ok(starter) = Name::new(name.as_str()) {
                    let dependent = self.compiled[from].unit.name.clone();
                    self.linked.stops.entry(starter).or_default().insert(dependent);
                }
            }
            _ => {}
        }
    }

    fn drop_or_refuse(&mut self, from: usize, relation: &Relation) {
        let name = &relation.unit;
        if matches!(
            relation.kind,
            RelationKind::BindsTo | RelationKind::Requires | RelationKind::Requisite
        ) {
            let problem = format!(
                "names {name}, which is not run on this machine: submit it as well (MachineOf= in \
                 [X-Fleet] keeps both on one machine), write Wants=, or declare it active: \
                 native_external = [\"{name}=up\"], or \"fleetd dev --native-external \
                 {name}=up\""
            );
            return self.refuse(from, relation, RefusalCause::NotFound, problem);
        }
        let text = format!("ignores {name}, which is not run here");
        self.remark(from, Some(relation.position.clone()), text);
    }

    fn refuse(&mut self, at: usize, relation: &Relation, cause: RefusalCause, problem: String) {
        let name = self.compiled[at].unit.name.clone();
        let position = Some(relation.position.clone());
        let refusal = UnitRefusal { position, cause, group: None, problem };
        self.linked.refused.entry(name).or_default().push(refusal);
    }

    fn remark(&mut self, at: usize, position: Option<OptionPosition>, text: String) {
        let name = self.compiled[at].unit.name.clone();
        let remarks = self.linked.remarks.entry(name).or_default();
        remarks.extend(position.map(|position| Remark::new(position, text)));
    }

    /// Orders each target after the units that it requires or wants, if both have default
    /// dependencies. A unit that is already ordered after the target is skipped, because the order
    /// would be a cycle.
    fn order_targets(&mut self) {
        let has_defaults = |at: usize| self.compiled[at].default_dependencies;
        let pairs: Vec<(usize, usize)> = self.relations.keys().copied().collect();
        for (from, to) in pairs {
            let reversed = self.relations.get(&(to, from)).is_some_and(|relation| relation.after);
            if reversed || !self.is_target(from) || !has_defaults(from) || !has_defaults(to) {
                continue;
            }
            if let Some(relation) = self.relations.get_mut(&(from, to)) {
                relation.after |= relation.requires || relation.wants;
            }
        }
    }

    fn is_target(&self, at: usize) -> bool {
        let name = self.compiled[at].unit.name.as_str().parse::<UnitName>();
        name.is_ok_and(|name| name.unit_type() == UnitType::Target)
    }

    fn finish(mut self) -> LinkedUnits {
        self.check_bindings();
        let mut edges: BTreeMap<usize, Vec<(EdgeKind, Target)>> = BTreeMap::new();
        self.add_unneeded();
        for ((from, to), relation) in &self.relations {
            let name = &self.compiled[*to].unit.name;
            let refused = self.linked.refused.contains_key(name);
            let kind = if refused { relation.edge_to_refused() } else { relation.edge() };
            edges.entry(*from).or_default().extend(kind.zip(Some(Target::from(name))));
        }
        for ((from, to), relation) in &self.to_refused {
            let target = Target::new(to).ok();
            edges.entry(*from).or_default().extend(relation.edge_to_refused().zip(target));
        }
        let own: Vec<usize> = (0..self.compiled.len()).collect();
        for at in own {
            self.add_unit(at, edges.remove(&at).unwrap_or_default());
        }
        self.linked.units.sort_by(|a, b| a.name.cmp(&b.name));
        self.linked
    }

    /// Finds the units that need each unit with `StopWhenUnneeded=`.
    fn add_unneeded(&mut self) {
        let mut needed_by: BTreeMap<usize, Vec<&Name>> = BTreeMap::new();
        for (at, unit) in self.compiled.iter().enumerate().filter(|(_, it)| it.stop_when_unneeded) {
            if self.index.get(unit.unit.name.as_str()) == Some(&at) {
                needed_by.insert(at, Vec::new());
            }
        }
        if needed_by.is_empty() {
            return;
        }
        for ((from, to), relation) in &self.relations {
            if let Some(by) = needed_by.get_mut(to).filter(|_| relation.needs()) {
                by.push(&self.compiled[*from].unit.name);
            }
        }
        for (at, by) in needed_by {
            self.linked.effects.add_needed_by(&self.compiled[at].unit.name, by.into_iter());
        }
    }

    fn add_unit(&mut self, at: usize, mut edges: Vec<(EdgeKind, Target)>) {
        let unit = &self.compiled[at].unit;
        // Of two files with one name the last one counts; refused units are left out.
        let counts = self.index.get(unit.name.as_str()) == Some(&at);
        if !counts || self.linked.refused.contains_key(&unit.name) {
            return;
        }
        edges.sort();
        let aliases = self.aliases.get(&at).into_iter().flatten();
        let aliases: Vec<Target> =
            aliases.filter_map(|alias| Target::new(alias.as_str()).ok()).collect();
        let mut unit = Arc::clone(unit);
        if unit.edges != edges || !aliases.is_empty() {
            let changed = Arc::make_mut(&mut unit);
            changed.edges = edges;
            changed.provides.extend(aliases);
        }
        self.linked.units.push(unit);
    }

    /// Checks the order of each unit with `BindsTo=` or `Requisite=` and the unit that it names.
    /// Unlike in systemd, these imply here that the first unit starts after the named unit.
    ///
    /// - If the named unit is ordered after the first unit, the first unit is refused.
    /// - If the first unit has no `After=` for the named unit, a remark reports the implied order.
    fn check_bindings(&mut self) {
        for unit in self.compiled {
            for relation in &unit.relations {
                let Some(&from) = self.index.get(unit.unit.name.as_str()) else { continue };
                let Resolution::Unit(to) = self.find(&relation.unit) else { continue };
                let orders =
                    matches!(relation.kind, RelationKind::BindsTo | RelationKind::Requisite);
                if !orders || from == to {
                    continue;
                }
                let after = |from, to| {
                    self.relations.get(&(from, to)).is_some_and(|relation| relation.after)
                };
                let name = &relation.unit;
                if after(to, from) {
                    let problem = format!(
                        "names {name}, which is ordered after this unit, but {}= needs the \
                         opposite order: write Requires=",
                        relation.position.name()
                    );
                    self.refuse(from, relation, RefusalCause::Setting, problem);
                } else if !after(from, to) {
                    let text = format!("also orders the unit after {name}");
                    self.remark(from, Some(relation.position.clone()), text);
                }
            }
        }
    }
}
