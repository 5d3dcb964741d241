//! What is wrong with the units of a system as a whole, put where it can be put right.

use std::collections::BTreeMap;

use fleet_unitfile::Span;

use super::candidates::Candidates;
use super::diagnostic::Problems;
use super::{Code, FileSet, Stanza};
use crate::graph::{DependencyCycle, EdgeKind, Graph, GraphError, Name, Target};

/// Which stanza depends on what, and how.
type Edge<'a> = (usize, EdgeKind, &'a Target);

/// Finds the places of flaws.
pub(super) struct Whole<'a> {
    sources: &'a FileSet,
    /// The stanzas of each name, as indices.
    named: BTreeMap<&'a Name, Vec<usize>>,
    /// Which stanza each unit of the graph is.
    candidates: Candidates,
    /// Where stanzas depend on targets, once one of those is not provided: a search of a stanza for
    /// each would take long where there are many.
    edges: Option<BTreeMap<Edge<'a>, Span>>,
    /// For each file, what is wrong in it.
    problems: Vec<Problems>,
}

impl<'a> Whole<'a> {
    pub(super) fn new(sources: &'a FileSet, candidates: Candidates) -> Self {
        let mut named: BTreeMap<&Name, Vec<usize>> = BTreeMap::new();
        for (index, (_, stanza)) in sources.stanzas.iter().enumerate() {
            if let Some(name) = &stanza.name {
                named.entry(name).or_default().push(index);
            }
        }
        let problems = sources.files.iter().map(|_| Problems::default()).collect();
        Self { named, candidates, edges: None, problems, sources }
    }

    /// What was found, file by file.
    pub(super) fn into_problems(self) -> Vec<Problems> {
        self.problems
    }

    /// Says what is wrong with the units.
    pub(super) fn flaw(&mut self, flaw: &GraphError) {
        match flaw {
            // Told of already, with its place.
            GraphError::DuplicateUnit { .. } | GraphError::NothingProvided { .. } => {}
            GraphError::DuplicateProvider { target, units } => {
                self.repeated_provider(target, units)
            }
            GraphError::NotProvided { unit, kind, target, near } => {
                self.not_provided(unit, *kind, target, near.as_ref());
            }
            GraphError::Cycle(circle) => self.circle(circle),
            GraphError::NoAlternative { target, unit } => self.no_alternative(target, unit),
            GraphError::NoGoal { goal, near } => self.no_goal(goal, near.as_ref()),
            GraphError::GoalMasked { goal } => {
                let message = format!("the goal `{goal}` is masked");
                self.at_goal(Code::BadGoal, message, "choose another goal, or unmask it");
            }
            GraphError::NothingMasked { target, near } => {
                self.nothing_masked(target, near.as_ref())
            }
            GraphError::TooMany { .. } => {
                self.add(0, Code::TooLarge, Span::default(), flaw.to_string(), "remove some");
            }
            // Stanzas that contradict themselves are refused before they become units.
            GraphError::ProvidedTwice { unit, .. } | GraphError::Conflict { unit, .. } => {
                if let Some((file, stanza)) = self.stanza(unit) {
                    let help = "change what contradicts itself";
                    self.add(file, Code::BadValue, stanza.name_span, flaw.to_string(), help);
                }
            }
        }
    }

    /// Says what is odd about a graph in which nothing is wrong.
    pub(super) fn warn(&mut self, graph: &Graph) {
        let Some(goal) = &self.sources.settings().goal else { return };
        let provider = graph.provider(goal).map(|unit| &unit.name);
        for unit in graph.units() {
            let Some((file, stanza)) = self.stanza(&unit.name) else { continue };
            let hard = stanza.edges.iter().find(|(kind, ..)| *kind == EdgeKind::DependsOn);
            let provides_something =
                unit.provides.iter().any(|it| graph.provider(it).is_some_and(|by| by == unit));
            if Some(&unit.name) == provider {
                if let Some((_, target, span)) = hard {
                    let message = format!("the goal goes down whenever `{target}` does");
                    self.add(file, Code::HardGoal, *span, message, "write waits-for");
                }
            } else if !is_needed_by_any(graph, &unit.name) && provides_something {
                let message = "neither the goal nor any other unit needs this one";
                let help = "name what it provides in another unit, if it is to run";
                self.add(file, Code::Unneeded, stanza.name_span, message.to_owned(), help);
            }
        }
    }

    /// Says which stanzas have the name of one before, whether they became units or not.
    pub(super) fn repeated_units(&mut self) {
        let several = self.named.iter().filter(|(_, stanzas)| stanzas.len() > 1);
        let several: Vec<_> = several.map(|(name, it)| (*name, it.clone())).collect();
        several.iter().for_each(|(name, stanzas)| self.repeated_unit(name, stanzas));
    }

    fn repeated_unit(&mut self, name: &Name, stanzas: &[usize]) {
        let Some((first, others)) = stanzas.split_first() else { return };
        let (file, stanza) = &self.sources.stanzas[*first];
        let first = format!("{}:{}", self.sources.files[*file].name, stanza.line);
        for other in others {
            let (file, stanza) = &self.sources.stanzas[*other];
            let message = format!("a unit is called `{name}` in {first} before");
            let help = "give each unit a name of its own";
            self.add(*file, Code::RepeatedUnit, stanza.name_span, message, help);
        }
    }

    fn repeated_provider(&mut self, target: &Target, units: &[Name]) {
        // One may be chosen where it could not be read.
        if self.sources.central.1.chooses_more {
            return;
        }
        let Some((first, others)) = units.split_first() else { return };
        let Some((file, stanza)) = self.stanza(first) else { return };
        let place = format!("{}:{}", self.sources.files[file].name, stanza.line);
        let first = called(stanza);
        for other in others {
            let Some((file, stanza)) = self.stanza(other) else { continue };
            let found = stanza.provides.iter().find(|(it, _)| it == target);
            let span = found.map_or(stanza.name_span, |(_, span)| *span);
            let message = format!("`{target}` is provided by {first} in {place}, too");
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
        if !self.candidates.are_complete {
            return;
        }
        let Some(&at) = self.candidates.stanzas.get(unit) else { return };
        let sources = self.sources;
        let (file, stanza) = &sources.stanzas[at];
        let edges = self.edges.get_or_insert_with(|| edges(sources));
        let span = edges.get(&(at, kind, target)).copied().unwrap_or(stanza.name_span);
        let message = format!("no unit provides `{target}`");
        let help = help_of(near);
        self.add(*file, Code::NotProvided, span, message, help);
    }

    fn circle(&mut self, circle: &DependencyCycle) {
        let Some((unit, kind)) = circle.steps.first() else { return };
        let next = circle.steps.get(1).map_or(unit, |(next, _)| next);
        let Some((_, to)) = self.stanza(next) else { return };
        let Some((file, stanza)) = self.stanza(unit) else { return };
        let span = edge(stanza, *kind, |target| to.provides.iter().any(|(it, _)| it == target));
        let (code, message) = if circle.steps.len() == 1 {
            (Code::DependsOnItself, "the unit provides this itself".to_owned())
        } else {
            (Code::DependencyCycle, format!("a circle: {}", self.spelt(circle)))
        };
        self.add(file, code, span, message, "take one of these dependencies out");
    }

    fn no_alternative(&mut self, target: &Target, unit: &Name) {
        let mut named = self.named.get(unit).into_iter().flatten();
        let may_provide = |stanza: &Stanza| {
            stanza.provides_more || stanza.provides.iter().any(|(it, _)| it == target)
        };
        if named.any(|&at| may_provide(&self.sources.stanzas[at].1)) {
            return;
        }
        let (file, central) = &self.sources.central;
        let place = file.zip(central.alternatives);
        if let Some((file, span)) = place {
            let message = format!("`{unit}` does not provide `{target}`");
            let help = "choose a unit that does, or none";
            self.add(file, Code::BadValue, span, message, help);
        }
    }

    fn nothing_masked(&mut self, target: &Target, near: Option<&Target>) {
        if !self.candidates.are_complete {
            return;
        }
        let (file, central) = &self.sources.central;
        let place = central.mask.iter().find(|(masked, _)| masked == target);
        if let Some((file, (_, span))) = file.zip(place) {
            let message = format!("no unit provides `{target}`");
            self.add(file, Code::BadValue, *span, message, help_of(near));
        }
    }

    fn no_goal(&mut self, goal: &Target, near: Option<&Target>) {
        if !self.candidates.are_complete {
            return;
        }
        let help = match near {
            Some(near) => format!("did you mean {near}?"),
            None => "choose a target that a unit provides".to_owned(),
        };
        self.at_goal(Code::BadGoal, format!("no unit provides the goal `{goal}`"), help);
    }

    fn at_goal(&mut self, code: Code, message: String, help: impl Into<String>) {
        let (file, central) = &self.sources.central;
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

    /// The stanza that a unit of the graph is, with the index of its file.
    fn stanza(&self, unit: &Name) -> Option<(usize, &'a Stanza)> {
        let (file, stanza) = self.sources.stanzas.get(*self.candidates.stanzas.get(unit)?)?;
        Some((*file, stanza))
    }

    /// A circle, as people call its units.
    fn spelt(&self, circle: &DependencyCycle) -> String {
        let called = |unit| self.stanza(unit).map_or("", |(_, stanza)| called(stanza));
        let steps = circle.steps.iter().map(|(unit, kind)| format!("{} -{kind}-> ", called(unit)));
        let first = circle.steps.first().map_or("", |(unit, _)| called(unit));
        steps.chain([first.to_owned()]).collect()
    }
}

/// Whether some other unit requires this one, and does not only order itself after it.
fn is_needed_by_any(graph: &Graph, unit: &Name) -> bool {
    graph.dependents(unit).iter().any(|(kind, _)| kind.requires())
}

/// What to do about a target that nobody provides.
fn help_of(near: Option<&Target>) -> String {
    match near {
        Some(near) => format!("did you mean {near}?"),
        None => "remove it, or write a unit that provides it".to_owned(),
    }
}

/// What a person calls the unit of a stanza.
fn called(stanza: &Stanza) -> &str {
    stanza.name.as_ref().map_or("a unit without a name", Name::as_str)
}

/// The first place of each edge of the stanzas.
fn edges(sources: &FileSet) -> BTreeMap<Edge<'_>, Span> {
    let mut places = BTreeMap::new();
    for (index, (_, stanza)) in sources.stanzas.iter().enumerate() {
        for (kind, target, span) in &stanza.edges {
            places.entry((index, *kind, target)).or_insert(*span);
        }
    }
    places
}

/// Where a stanza names a target in this way.
fn edge(stanza: &Stanza, kind: EdgeKind, is_it: impl Fn(&Target) -> bool) -> Span {
    let mut edges = stanza.edges.iter().filter(|(_, target, _)| is_it(target));
    let found = edges.clone().find(|(it, ..)| *it == kind).or_else(|| edges.next());
    found.map_or(stanza.name_span, |(_, _, span)| *span)
}
