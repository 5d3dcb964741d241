//! Makes a valid graph of the converted units. Dependencies and units that would make the graph
//! invalid are removed and reported.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::{Dependency, Draft, Report};
use crate::graph::build::{DependencyCycle, Graph, GraphError, Settings};
use crate::graph::model::{EdgeKind, InitUnit, Name, Target};

/// Maximum number of rounds that remove only one edge per cycle. Later rounds remove all edges of
/// each cycle, so that the conversion ends soon even if there are many cycles.
const MAX_ROUNDS: usize = 100;

/// Turns declared dependencies into edges of a valid graph.
pub(super) fn fit(drafts: Vec<Draft>, report: &mut Report<'_>) -> Vec<Draft> {
    let mut fitter = Fitter { drafts: unique(drafts, report), report };
    fitter.assign_targets();
    fitter.dependencies();
    for round in 0.. {
        let units = fitter.drafts.iter().map(|draft| draft.unit.clone());
        let Err(errors) = Graph::strict(units, &Settings::default()) else { break };
        if !fitter.resolve(&errors, round >= MAX_ROUNDS) {
            break;
        }
    }
    fitter.drafts
}

/// Drops each unit with the name of an earlier one, and reports it.
pub(super) fn unique(drafts: Vec<Draft>, report: &mut Report<'_>) -> Vec<Draft> {
    let mut first: BTreeMap<Name, usize> = BTreeMap::new();
    let mut unique = Vec::new();
    for draft in drafts {
        if let Some(other) = first.get(&draft.unit.name) {
            let why = format!("{} has a unit of this name", report.path(*other));
            report.left_out(draft.file, 1, why, "give one of the two files another name");
            continue;
        }
        first.insert(draft.unit.name.clone(), draft.file);
        unique.push(draft);
    }
    unique
}

struct Fitter<'r, 'a> {
    drafts: Vec<Draft>,
    report: &'r mut Report<'a>,
}

impl Fitter<'_, '_> {
    /// Leaves one provider for each target: the unit with the target's name or, without such a
    /// unit, the first by name. Drops units that then provide no target.
    fn assign_targets(&mut self) {
        let mut claims: BTreeMap<Target, BTreeSet<Name>> = BTreeMap::new();
        for unit in self.drafts.iter().map(|draft| &draft.unit) {
            for target in &unit.provides {
                claims.entry(target.clone()).or_default().insert(unit.name.clone());
            }
        }
        claims.retain(|_, units| units.len() > 1);
        for (target, units) in &claims {
            let by_name = units.iter().find(|unit| unit.as_str() == target.as_str());
            let Some(owner) = by_name.or_else(|| units.first()) else { continue };
            for draft in self.drafts.iter_mut().filter(|it| it.unit.name != *owner) {
                let before = draft.unit.provides.len();
                draft.unit.provides.retain(|it| it != target);
                if draft.unit.provides.len() < before {
                    let message = format!(
                        "{} and {owner} both provide `{target}`: only {owner} keeps it",
                        draft.unit.name
                    );
                    let help = format!(
                        "write `provides: {target}` in both stanzas, and choose one in init.conf: \
                         `alternatives: {target}=UNIT`"
                    );
                    self.report.loss((draft.file, 1), message, help);
                }
            }
        }
        self.drafts.retain(|draft| {
            let provides = !draft.unit.provides.is_empty();
            if !provides {
                let why = "all of its targets are provided by others";
                self.report.left_out(draft.file, 1, why, "give it a unique target");
            }
            provides
        });
    }

    fn dependencies(&mut self) {
        let targets = self.drafts.iter().enumerate();
        let provided: BTreeMap<Target, usize> = targets
            .flat_map(|(at, it)| it.unit.provides.iter().map(move |target| (target.clone(), at)))
            .collect();
        let mut edges = Vec::new();
        for (at, draft) in self.drafts.iter().enumerate() {
            for dependency in &draft.dependencies {
                match provided.get(&dependency.target) {
                    Some(&other) if other == at => {
                        let message = format!(
                            "{} depends on `{}`, which it provides itself: this is dropped",
                            draft.unit.name, dependency.target
                        );
                        let help = "no action is needed";
                        self.report.remark((draft.file, dependency.line), message, help);
                    }
                    Some(&other) if dependency.before => {
                        let own = draft.unit.provides.first().cloned();
                        edges.extend(own.map(|own| (other, dependency.kind, own)));
                    }
                    Some(_) => edges.push((at, dependency.kind, dependency.target.clone())),
                    None => report_missing(self.report, draft.file, dependency),
                }
            }
        }
        for (at, kind, target) in edges {
            add_edge(&mut self.drafts[at].unit, kind, target);
        }
    }

    /// Resolves graph errors. Returns whether anything was changed.
    fn resolve(&mut self, errors: &[GraphError], all: bool) -> bool {
        let mut changed = false;
        for error in errors {
            changed |= match error {
                GraphError::Cycle(cycle) => self.break_cycle(cycle, all),
                other => self.drop_units(other),
            };
        }
        changed
    }

    /// Breaks a cycle of units that wait for one another. At the weakest edge of the cycle, or at
    /// every edge if `all` is set, the dependent no longer waits for the dependency. If the removed
    /// edge also made the dependency needed, a `pulls` edge replaces it. Returns whether any edge
    /// was changed.
    fn break_cycle(&mut self, cycle: &DependencyCycle, all: bool) -> bool {
        let steps = cycle.steps.iter().enumerate();
        let weakest = steps.clone().max_by_key(|(at, (_, kind))| (*kind, *at));
        let chosen: Vec<usize> = match weakest {
            _ if all => steps.map(|(at, _)| at).collect(),
            weakest => weakest.map(|(at, _)| at).into_iter().collect(),
        };
        let mut changed = false;
        for at in chosen {
            let from = &cycle.steps[at].0;
            let to = &cycle.steps[(at + 1) % cycle.steps.len()].0;
            changed |= self.remove_order(from, to, cycle);
        }
        changed
    }

    fn remove_order(&mut self, from: &Name, to: &Name, cycle: &DependencyCycle) -> bool {
        let provider = self.drafts.iter().find(|draft| draft.unit.name == *to);
        let Some(targets) = provider.map(|draft| draft.unit.provides.clone()) else { return false };
        let Some(draft) = self.drafts.iter_mut().find(|it| it.unit.name == *from) else {
            return false;
        };
        let before = draft.unit.edges.clone();
        let between = |target: &Target| from != to && targets.contains(target);
        draft.unit.edges.retain(|(_, target)| !targets.contains(target));
        let needed = before.iter().find(|(kind, target)| kind.requires() && between(target));
        if let Some((_, target)) = needed {
            draft.unit.edges.push((EdgeKind::Pulls, target.clone()));
            draft.unit.edges.sort();
        }
        let message =
            format!("units wait for one another: the order of {from} after {to} is dropped");
        let help = format!(
            "choose which unit starts first, and write the order into the stanzas: {cycle}"
        );
        self.report.loss((draft.file, 1), message, help);
        draft.unit.edges != before
    }

    fn drop_units(&mut self, error: &GraphError) -> bool {
        let units: Vec<Name> = error.units().into_iter().cloned().collect();
        let before = self.drafts.len();
        let report = &mut *self.report;
        self.drafts.retain(|draft| {
            let stays = !units.contains(&draft.unit.name);
            if !stays {
                report.left_out(draft.file, 1, error, "write its stanza by hand");
            }
            stays
        });
        self.drafts.len() < before
    }
}

fn add_edge(unit: &mut InitUnit, kind: EdgeKind, target: Target) {
    let known = unit.edges.iter_mut().find(|(_, it)| *it == target);
    match known {
        // An ordering and a requiring edge are combined.
        Some((known, _)) => *known = (*known).min(kind),
        None => unit.edges.push((kind, target)),
    }
    unit.edges.sort();
}

/// Reports a missing target.
fn report_missing(report: &mut Report<'_>, file: usize, dependency: &Dependency) {
    let Dependency { kind, target, before, line } = dependency;
    let position = (file, *line);
    if *before {
        let message = format!("the unit starts before `{target}`, which no file provides");
        let help = format!("if `{target}` should run, also submit the file that provides it");
        return report.remark(position, message, help);
    }
    let message = format!("no file provides `{target}`, so the unit does not wait for it");
    let help = format!(
        "also submit the file that provides `{target}`; or write a stanza that does, and add \
         `{kind}: {target}` to this unit's stanza"
    );
    match kind {
        EdgeKind::After => report.remark(position, message, help),
        _ => report.loss(position, message, help),
    }
}
