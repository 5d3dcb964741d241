//! Makes edges of what units say of one another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_unitfile::{UnitName, UnitType};

use super::compile::CompiledUnit;
use super::refusal::{OptionPosition, RefusalCause, Remark, UnitRefusal};
use super::relation::{Relation, RelationKind};
use crate::graph::{EdgeKind, InitUnit, Name, Target};

/// What is known of units that are not run here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalUnits {
    /// Units that somebody else runs, and that are taken to be up.
    pub assumed_up: BTreeSet<UnitName>,
    /// Timers that are run beside the graph. Who requires one does not miss it.
    pub timers: BTreeSet<UnitName>,
    /// Units that were handed in and refused. Who needs one of them can never start.
    pub refused: BTreeSet<UnitName>,
}

/// Units with their edges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkedUnits {
    /// Those that can be run, in the order of their names; one without edges and aliases is the
    /// one that was compiled.
    pub units: Vec<Arc<InitUnit>>,
    /// Those that cannot, because a unit which they require is not there.
    pub refused: BTreeMap<Name, Vec<UnitRefusal>>,
    /// What a person should know.
    pub remarks: BTreeMap<Name, Vec<Remark>>,
    /// For each unit those that systemd would stop with it, directly.
    pub stops: BTreeMap<Name, BTreeSet<Name>>,
}

/// Gives units the edges that follow from what they say of one another.
///
/// | said of X | edge |
/// |---|---|
/// | `BindsTo=` | `depends-on` |
/// | `Requires=` and `After=` | `depends-ms` |
/// | `Wants=` and `After=` | `waits-for` |
/// | `Requires=` or `Wants=` | `pulls` |
/// | `After=` | `after` |
///
/// `Before=`, `RequiredBy=` and `WantedBy=` say the same from the other side. A target waits for
/// what it requires and wants, as with systemd, unless one of both has `DefaultDependencies=no`. Of
/// units that are not there, `After=`, `Wants=` and the like say nothing; `Requires=` and
/// `BindsTo=` of one that nobody runs make the unit refused.
#[must_use]
pub fn link<'a>(
    compiled: impl IntoIterator<Item = &'a CompiledUnit>,
    outside: &'a ExternalUnits,
) -> LinkedUnits {
    let compiled: Vec<&CompiledUnit> = compiled.into_iter().collect();
    let mut linker = Linker::new(&compiled, outside);
    for unit in &compiled {
        for relation in &unit.relations {
            linker.relate(unit, relation);
        }
    }
    linker.order_targets();
    linker.finish()
}

impl LinkedUnits {
    /// All units that systemd would stop with one, directly or by way of others; not itself.
    #[must_use]
    pub fn stopped_with(&self, unit: &Name) -> BTreeSet<Name> {
        let mut found = BTreeSet::new();
        let mut open = vec![unit];
        while let Some(next) = open.pop() {
            let more = self.stops.get(next).into_iter().flatten();
            open.extend(more.filter(|name| *name != unit && found.insert((*name).clone())));
        }
        found
    }
}

/// All that one unit says of another, and that others say of both.
#[derive(Debug, Clone, Copy, Default)]
struct Bond {
    binds: bool,
    requires: bool,
    wants: bool,
    after: bool,
}

/// Where a name leads.
enum Found {
    /// To a unit that is run, by its index.
    Unit(usize),
    /// To a unit that was refused.
    Refused,
    AssumedUp,
    Timer,
    Nowhere,
}

struct Linker<'a> {
    compiled: &'a [&'a CompiledUnit],
    outside: &'a ExternalUnits,
    /// Names and aliases of all units.
    index: BTreeMap<&'a str, usize>,
    aliases: BTreeMap<usize, Vec<&'a UnitName>>,
    /// From a unit to what it depends on.
    bonds: BTreeMap<(usize, usize), Bond>,
    /// From a unit to one that was refused.
    lost: BTreeMap<(usize, &'a str), Bond>,
    linked: LinkedUnits,
}

impl<'a> Linker<'a> {
    fn new(compiled: &'a [&'a CompiledUnit], outside: &'a ExternalUnits) -> Self {
        let index = compiled.iter().enumerate().map(|(at, unit)| (unit.unit.name.as_str(), at));
        let mut linker = Self {
            compiled,
            outside,
            index: index.collect(),
            aliases: BTreeMap::new(),
            bonds: BTreeMap::new(),
            lost: BTreeMap::new(),
            linked: LinkedUnits::default(),
        };
        // By the order of names, whatever the order in which they were handed in.
        let units: Vec<usize> = linker.index.values().copied().collect();
        for at in units {
            for alias in &compiled[at].aliases {
                linker.alias(at, alias);
            }
        }
        linker
    }

    /// A name that is taken already stays with whoever has it.
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
                let text = format!("leaves {alias} to {other}");
                let position = self.compiled[at].position_of("Install", "Alias");
                self.remark(at, position, text);
            }
        }
    }

    fn find(&self, name: &UnitName) -> Found {
        match self.index.get(name.as_str()) {
            Some(at) => Found::Unit(*at),
            None if self.outside.refused.contains(name) => Found::Refused,
            None if self.outside.assumed_up.contains(name) => Found::AssumedUp,
            None if self.outside.timers.contains(name) => Found::Timer,
            None => Found::Nowhere,
        }
    }

    fn relate(&mut self, unit: &'a CompiledUnit, relation: &'a Relation) {
        let Some(&from) = self.index.get(unit.unit.name.as_str()) else { return };
        match self.find(&relation.unit) {
            Found::Unit(to) if to == from => {
                let text = format!("says nothing of {}, which is the unit itself", relation.unit);
                self.remark(from, Some(relation.position.clone()), text);
            }
            Found::Unit(to) => self.bind(from, to, relation.kind),
            Found::Refused => self.miss(from, relation),
            Found::AssumedUp => self.assume(from, relation),
            Found::Timer => self.pass_over_timer(from, relation),
            Found::Nowhere => self.drop_or_refuse(from, relation),
        }
    }

    fn bind(&mut self, from: usize, to: usize, kind: RelationKind) {
        let turned = matches!(
            kind,
            RelationKind::Before | RelationKind::RequiredBy | RelationKind::WantedBy
        );
        let (dependent, dependency) = if turned { (to, from) } else { (from, to) };
        if kind != RelationKind::PartOf {
            self.bonds.entry((dependent, dependency)).or_default().add(kind);
        }
        let stops = matches!(
            kind,
            RelationKind::BindsTo
                | RelationKind::PartOf
                | RelationKind::RequiredBy
                | RelationKind::Requires
        );
        if stops {
            let name = |at: usize| self.compiled[at].unit.name.clone();
            let (dependency, dependent) = (name(dependency), name(dependent));
            self.linked.stops.entry(dependency).or_default().insert(dependent);
        }
    }

    /// The edge leads to what nobody provides, so that the graph knows the unit for doomed.
    fn miss(&mut self, from: usize, relation: &'a Relation) {
        let name = &relation.unit;
        match relation.kind {
            RelationKind::BindsTo | RelationKind::Requires => {
                self.lost.entry((from, name.as_str())).or_default().add(relation.kind);
                let text = format!("keeps it from starting, as {name} was refused");
                self.remark(from, Some(relation.position.clone()), text);
            }
            _ => {
                let text = format!("says nothing of {name}, which was refused");
                self.remark(from, Some(relation.position.clone()), text);
            }
        }
    }

    fn assume(&mut self, from: usize, relation: &Relation) {
        let name = &relation.unit;
        if relation.kind == RelationKind::PartOf {
            let problem = format!(
                "names {name}, which is not run here, so that nobody sees it stop: take it out"
            );
            return self.refuse(from, relation, RefusalCause::Setting, problem);
        }
        let text = format!("takes {name} to be up, as this machine's operator says");
        self.remark(from, Some(relation.position.clone()), text);
    }

    /// Whoever starts the unit starts the timers that it names, and a timer is up at once.
    fn pass_over_timer(&mut self, from: usize, relation: &Relation) {
        if relation.kind == RelationKind::PartOf {
            let text =
                format!("says nothing of {}: who stops a timer stops it alone", relation.unit);
            self.remark(from, Some(relation.position.clone()), text);
        }
    }

    fn drop_or_refuse(&mut self, from: usize, relation: &Relation) {
        let name = &relation.unit;
        if matches!(relation.kind, RelationKind::BindsTo | RelationKind::Requires) {
            let problem = format!(
                "names {name}, which is not run here: hand it in as well, write Wants=, or have \
                 the operator say that it is up"
            );
            return self.refuse(from, relation, RefusalCause::NotFound, problem);
        }
        let text = format!("says nothing of {name}, which is not run here");
        self.remark(from, Some(relation.position.clone()), text);
    }

    fn refuse(&mut self, at: usize, relation: &Relation, cause: RefusalCause, problem: String) {
        let name = self.compiled[at].unit.name.clone();
        let refusal = UnitRefusal { position: Some(relation.position.clone()), cause, problem };
        self.linked.refused.entry(name).or_default().push(refusal);
    }

    fn remark(&mut self, at: usize, position: Option<OptionPosition>, text: String) {
        let name = self.compiled[at].unit.name.clone();
        let remarks = self.linked.remarks.entry(name).or_default();
        remarks.extend(position.map(|position| Remark { position, text }));
    }

    /// A target waits for what it requires and wants, but for what waits for it.
    fn order_targets(&mut self) {
        let is_usual = |at: usize| self.compiled[at].default_dependencies;
        let pairs: Vec<(usize, usize)> = self.bonds.keys().copied().collect();
        for (from, to) in pairs {
            let turned = self.bonds.get(&(to, from)).is_some_and(|bond| bond.after);
            if turned || !self.is_target(from) || !is_usual(from) || !is_usual(to) {
                continue;
            }
            if let Some(bond) = self.bonds.get_mut(&(from, to)) {
                bond.after |= bond.requires || bond.wants;
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
        for ((from, to), bond) in &self.bonds {
            let name = &self.compiled[*to].unit.name;
            let refused = self.linked.refused.contains_key(name);
            let kind = if refused { bond.edge_to_refused() } else { bond.edge() };
            edges.entry(*from).or_default().extend(kind.zip(Some(Target::from(name))));
        }
        for ((from, to), bond) in &self.lost {
            let target = Target::new(to).ok();
            edges.entry(*from).or_default().extend(bond.edge_to_refused().zip(target));
        }
        let own: Vec<usize> = (0..self.compiled.len()).collect();
        for at in own {
            self.place_unit(at, edges.remove(&at).unwrap_or_default());
        }
        self.linked.units.sort_by(|a, b| a.name.cmp(&b.name));
        self.linked
    }

    fn place_unit(&mut self, at: usize, mut edges: Vec<(EdgeKind, Target)>) {
        let unit = &self.compiled[at].unit;
        // Of two files of one name the last counts; the refused ones are not run.
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

    /// `BindsTo=` orders by itself, so what it names cannot come after the unit.
    fn check_bindings(&mut self) {
        for unit in self.compiled {
            for relation in &unit.relations {
                let Some(&from) = self.index.get(unit.unit.name.as_str()) else { continue };
                let Found::Unit(to) = self.find(&relation.unit) else { continue };
                if relation.kind != RelationKind::BindsTo || from == to {
                    continue;
                }
                let after = |from, to| self.bonds.get(&(from, to)).is_some_and(|bond| bond.after);
                let name = &relation.unit;
                if after(to, from) {
                    let problem = format!(
                        "names {name}, which comes after this unit: what a unit is bound to \
                         starts before it: write Requires="
                    );
                    self.refuse(from, relation, RefusalCause::Setting, problem);
                } else if !after(from, to) {
                    let text = format!("has the unit start after {name} as well");
                    self.remark(from, Some(relation.position.clone()), text);
                }
            }
        }
    }
}

impl Bond {
    fn add(&mut self, kind: RelationKind) {
        match kind {
            RelationKind::After | RelationKind::Before => self.after = true,
            RelationKind::BindsTo => self.binds = true,
            RelationKind::Requires | RelationKind::RequiredBy => self.requires = true,
            RelationKind::Wants | RelationKind::WantedBy => self.wants = true,
            RelationKind::PartOf => {}
        }
    }

    fn edge(self) -> Option<EdgeKind> {
        match self {
            Self { binds: true, .. } => Some(EdgeKind::DependsOn),
            Self { requires: true, after: true, .. } => Some(EdgeKind::DependsMs),
            Self { wants: true, after: true, .. } => Some(EdgeKind::WaitsFor),
            Self { requires: true, .. } | Self { wants: true, .. } => Some(EdgeKind::Pulls),
            Self { after: true, .. } => Some(EdgeKind::After),
            _ => None,
        }
    }

    /// Nobody provides the target of a refused unit, so the graph knows who requires it for doomed,
    /// in whatever order; with systemd it cannot be started either.
    fn edge_to_refused(self) -> Option<EdgeKind> {
        let requires = self.binds || self.requires;
        requires.then_some(if self.binds { EdgeKind::DependsOn } else { EdgeKind::DependsMs })
    }
}
