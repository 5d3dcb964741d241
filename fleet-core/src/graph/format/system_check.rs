//! Reports errors that concern several units, at the positions where they can be corrected.

use std::collections::BTreeMap;

use fleet_unitfile::Span;

use super::diagnostic::{Code, Problems};
use super::file_set::{CandidateUnits, FileSet};
use super::stanza::Stanza;
use crate::graph::build::{DependencyCycle, Graph, GraphError};
use crate::graph::model::{EdgeKind, Name, ServiceType, Target};

/// Dependent stanza, kind and target of an edge.
type Edge<'a> = (usize, EdgeKind, &'a Target);

/// Maps graph errors to positions in the files.
pub(super) struct SystemCheck<'a> {
    file_set: &'a FileSet,
    /// Indices of the stanzas with each name.
    named: BTreeMap<&'a Name, Vec<usize>>,
    /// Stanza of each unit of the graph.
    candidates: CandidateUnits,
    /// Positions of all edges. They are collected once, when the first missing target is found,
    /// because searching all edges for each error would be slow.
    edges: Option<BTreeMap<Edge<'a>, Span>>,
    /// Problems of each file.
    problems: Vec<Problems>,
}

impl<'a> SystemCheck<'a> {
    pub(super) fn new(file_set: &'a FileSet, candidates: CandidateUnits) -> Self {
        let mut named: BTreeMap<&Name, Vec<usize>> = BTreeMap::new();
        for (index, (_, stanza)) in file_set.stanzas.iter().enumerate() {
            if let Some(name) = &stanza.name {
                named.entry(name).or_default().push(index);
            }
        }
        let problems = file_set.files.iter().map(|_| Problems::default()).collect();
        Self { named, candidates, edges: None, problems, file_set }
    }

    /// Returns the problems of each file.
    pub(super) fn into_problems(self) -> Vec<Problems> {
        self.problems
    }

    /// Reports a graph error.
    pub(super) fn report(&mut self, error: &GraphError) {
        match error {
            // Reported already, with a position.
            GraphError::DuplicateUnit { .. } | GraphError::NothingProvided { .. } => {}
            GraphError::DuplicateProvider { target, units } => {
                self.repeated_provider(target, units);
            }
            GraphError::NotProvided { unit, kind, target, near } => {
                self.not_provided(unit, *kind, target, near.as_ref());
            }
            GraphError::Cycle(cycle) => self.dependency_cycle(cycle),
            GraphError::NoAlternative { target, unit } => self.no_alternative(target, unit),
            GraphError::NoGoal { goal, near } => self.no_goal(goal, near.as_ref()),
            GraphError::GoalMasked { goal } => {
                let message = format!("the goal `{goal}` is masked");
                self.at_goal(Code::BadGoal, message, "choose another goal, or unmask it");
            }
            GraphError::NothingMasked { target, near } => {
                self.nothing_masked(target, near.as_ref());
            }
            GraphError::TooMany { .. } => {
                self.add(0, Code::TooLarge, Span::default(), error.to_string(), "remove some");
            }
            // Stanzas with conflicting settings are rejected before they become units.
            GraphError::ProvidedTwice { unit, .. } | GraphError::Conflict { unit, .. } => {
                if let Some((file, stanza)) = self.stanza(unit) {
                    let help = "resolve the conflict";
                    self.add(file, Code::BadValue, stanza.name_span, error.to_string(), help);
                }
            }
        }
    }

    /// Reports warnings about a valid graph.
    pub(super) fn warn(&mut self, graph: &Graph) {
        self.blocked_units(graph);
        let Some(goal) = &self.file_set.settings().goal else { return };
        let provider = graph.provider(goal).map(|unit| &unit.name);
        for unit in graph.units() {
            let Some((file, stanza)) = self.stanza(&unit.name) else { continue };
            let hard = stanza.edges.iter().find(|(kind, ..)| *kind == EdgeKind::DependsOn);
            let provides_something =
                unit.provides.iter().any(|it| graph.provider(it).is_some_and(|by| by == unit));
            if Some(&unit.name) == provider {
                if let Some((_, target, span)) = hard {
                    let message = format!("the goal stops whenever `{target}` stops");
                    let help = "if that is not intended, write waits-for instead of depends-on";
                    self.add(file, Code::HardGoal, *span, message, help);
                }
            } else if !is_needed_by_any(graph, &unit.name) && provides_something {
                let message = "neither the goal nor any other unit needs this one";
                let help = "if the unit should run, make another one depend on one of its targets";
                self.add(file, Code::Unneeded, stanza.name_span, message.to_owned(), help);
            }
        }
    }

    /// Reports each unit that can never be up, because a unit that it depends on is masked or does
    /// not stay active.
    fn blocked_units(&mut self, graph: &Graph) {
        let masked: BTreeMap<&Name, &Target> = (self.file_set.settings().mask.iter())
            .filter_map(|target| Some((&graph.provider(target)?.name, target)))
            .collect();
        let file_set = self.file_set;
        for (file, stanza) in &file_set.stanzas {
            for (kind, target, span) in &stanza.edges {
                let Some(needed) = graph.provider(target) else { continue };
                let is_hard = matches!(kind, EdgeKind::DependsOn | EdgeKind::DependsMs);
                let ends = matches!(needed.kind, ServiceType::Oneshot { remain: false });
                let mask = masked.get(&needed.name).filter(|_| is_hard);
                let (message, help) = if let Some(mask) = mask {
                    let message = format!("this unit never starts, because `{mask}` is masked");
                    (message, "unmask it, or write waits-for".to_owned())
                } else if ends && *kind == EdgeKind::DependsOn {
                    let message =
                        format!("`{target}` completes without staying active (`remain: no`)");
                    (message, format!("write depends-ms, or `remain: yes` in {}", needed.name))
                } else {
                    continue;
                };
                self.add(*file, Code::NeverStarts, *span, message, help);
            }
        }
    }

    /// Reports each stanza that has the name of an earlier stanza. This includes stanzas with
    /// errors, which have no unit.
    pub(super) fn repeated_units(&mut self) {
        let several = self.named.iter().filter(|(_, stanzas)| stanzas.len() > 1);
        let several: Vec<_> = several.map(|(name, it)| (*name, it.clone())).collect();
        several.iter().for_each(|(name, stanzas)| self.repeated_unit(name, stanzas));
    }

    fn repeated_unit(&mut self, name: &Name, stanzas: &[usize]) {
        let Some((first, others)) = stanzas.split_first() else { return };
        let (file, stanza) = &self.file_set.stanzas[*first];
        let first = format!("{}:{}", self.file_set.files[*file].name, stanza.line);
        for other in others {
            let (file, stanza) = &self.file_set.stanzas[*other];
            let message = format!("the name `{name}` is already used in {first}");
            let help = "give each unit a unique name";
            self.add(*file, Code::RepeatedUnit, stanza.name_span, message, help);
        }
    }

    fn repeated_provider(&mut self, target: &Target, units: &[Name]) {
        // An alternative may be chosen in a line that could not be read.
        if self.file_set.central.1.alternatives_incomplete {
            return;
        }
        let Some((first, others)) = units.split_first() else { return };
        let Some((file, stanza)) = self.stanza(first) else { return };
        let place = format!("{}:{}", self.file_set.files[file].name, stanza.line);
        let first = display_name(stanza);
        for other in others {
            let Some((file, stanza)) = self.stanza(other) else { continue };
            let found = stanza.provides.iter().find(|(it, _)| it == target);
            let span = found.map_or(stanza.name_span, |(_, span)| *span);
            let message = format!("`{target}` is also provided by {first} in {place}");
            let help = format!("choose one in the central settings: `alternatives: {target}=UNIT`");
            self.add(file, Code::RepeatedProvider, span, message, help);
        }
    }

    fn not_provided(
        &mut self,
        unit: &Name,
        kind: EdgeKind,
        target: &Target,
        near: Option<&Target>,
    ) {
        if !self.candidates.is_complete {
            return;
        }
        let Some(&at) = self.candidates.stanzas.get(unit) else { return };
        let file_set = self.file_set;
        let (file, stanza) = &file_set.stanzas[at];
        let edges = self.edges.get_or_insert_with(|| edges(file_set));
        let span = edges.get(&(at, kind, target)).copied().unwrap_or(stanza.name_span);
        let message = format!("no unit provides `{target}`");
        let help = self.help_for(target, near, REMOVE_OR_PROVIDE);
        self.add(*file, Code::NotProvided, span, message, help);
    }

    fn dependency_cycle(&mut self, cycle: &DependencyCycle) {
        let Some((unit, kind)) = cycle.steps.first() else { return };
        let next = cycle.steps.get(1).map_or(unit, |(next, _)| next);
        let Some((_, to)) = self.stanza(next) else { return };
        let Some((file, stanza)) = self.stanza(unit) else { return };
        let span = edge(stanza, *kind, |target| to.provides.iter().any(|(it, _)| it == target));
        let (code, message) = if cycle.steps.len() == 1 {
            (Code::DependsOnItself, "the unit provides this target itself".to_owned())
        } else {
            (Code::DependencyCycle, format!("dependency cycle: {}", self.format_cycle(cycle)))
        };
        self.add(file, code, span, message, "remove one of these dependencies");
    }

    fn no_alternative(&mut self, target: &Target, unit: &Name) {
        let mut named = self.named.get(unit).into_iter().flatten();
        let may_provide = |stanza: &Stanza| {
            stanza.provides_incomplete || stanza.provides.iter().any(|(it, _)| it == target)
        };
        if named.any(|&at| may_provide(&self.file_set.stanzas[at].1)) {
            return;
        }
        let (file, central) = &self.file_set.central;
        let place = file.zip(central.alternatives);
        if let Some((file, span)) = place {
            let message = format!("`{unit}` does not provide `{target}`");
            let help = "choose a unit that provides it, or remove the entry";
            self.add(file, Code::BadValue, span, message, help);
        }
    }

    fn nothing_masked(&mut self, target: &Target, near: Option<&Target>) {
        if !self.candidates.is_complete {
            return;
        }
        let (file, central) = &self.file_set.central;
        let place = central.mask.iter().find(|(masked, _)| masked == target);
        if let Some((file, (_, span))) = file.zip(place) {
            let message = format!("no unit provides `{target}`");
            let help = self.help_for(target, near, REMOVE_OR_PROVIDE);
            self.add(file, Code::BadValue, *span, message, help);
        }
    }

    fn no_goal(&mut self, goal: &Target, near: Option<&Target>) {
        if !self.candidates.is_complete {
            return;
        }
        let help = self.help_for(goal, near, "choose a target that a unit provides");
        self.at_goal(Code::BadGoal, format!("no unit provides the goal `{goal}`"), help);
    }

    /// Returns the remedy for a missing target. `near` is a target with a similar name, and `usual`
    /// the remedy if nothing better is known.
    fn help_for(&self, target: &Target, near: Option<&Target>, usual: &str) -> String {
        let named = Name::new(target.as_str()).ok();
        let stanzas = named.and_then(|name| self.named.get(&name)).into_iter().flatten();
        let mut provided = stanzas.flat_map(|&at| &self.file_set.stanzas[at].1.provides);
        match (provided.next(), near) {
            (Some((own, _)), _) => format!("the unit {target} provides `{own}`: write that target"),
            (None, Some(near)) => format!("did you mean {near}?"),
            (None, None) => usual.to_owned(),
        }
    }

    fn at_goal(&mut self, code: Code, message: String, help: impl Into<String>) {
        let (file, central) = &self.file_set.central;
        if let Some((file, span)) = file.zip(central.goal) {
            self.add(file, code, span, message, help);
        }
    }

    fn add(
        &mut self,
        file: usize,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if let Some(problems) = self.problems.get_mut(file) {
            problems.add(code, span, message, help);
        }
    }

    /// Returns the stanza of a unit, with the index of its file.
    fn stanza(&self, unit: &Name) -> Option<(usize, &'a Stanza)> {
        let (file, stanza) = self.file_set.stanzas.get(*self.candidates.stanzas.get(unit)?)?;
        Some((*file, stanza))
    }

    /// Formats a cycle with the names of the stanzas.
    fn format_cycle(&self, cycle: &DependencyCycle) -> String {
        let display_name = |unit| self.stanza(unit).map_or("", |(_, stanza)| display_name(stanza));
        let steps =
            cycle.steps.iter().map(|(unit, kind)| format!("{} -{kind}-> ", display_name(unit)));
        let first = cycle.steps.first().map_or("", |(unit, _)| display_name(unit));
        steps.chain([first.to_owned()]).collect()
    }
}

/// Returns whether another unit requires this one.
fn is_needed_by_any(graph: &Graph, unit: &Name) -> bool {
    graph.dependents(unit).iter().any(|(kind, _)| kind.requires())
}

/// The usual remedy for a missing target.
const REMOVE_OR_PROVIDE: &str = "remove it, or write a unit that provides it";

/// Returns the name of a stanza for messages.
fn display_name(stanza: &Stanza) -> &str {
    stanza.name.as_ref().map_or("an unnamed unit", Name::as_str)
}

/// Returns the first position of each edge.
fn edges(file_set: &FileSet) -> BTreeMap<Edge<'_>, Span> {
    let mut places = BTreeMap::new();
    for (index, (_, stanza)) in file_set.stanzas.iter().enumerate() {
        for (kind, target, span) in &stanza.edges {
            places.entry((index, *kind, target)).or_insert(*span);
        }
    }
    places
}

/// Returns the position at which a stanza names a matching target.
fn edge(stanza: &Stanza, kind: EdgeKind, is_it: impl Fn(&Target) -> bool) -> Span {
    let mut edges = stanza.edges.iter().filter(|(_, target, _)| is_it(target));
    let found = edges.clone().find(|(it, ..)| *it == kind).or_else(|| edges.next());
    found.map_or(stanza.name_span, |(_, _, span)| *span)
}
