//! Makes a graph of converted units: what does not fit together is taken out, and told.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::{Draft, Wish};
use super::note::Report;
use crate::graph::{
    DependencyCycle, EdgeKind, Graph, GraphError, InitUnit, Name, Settings, Target,
};

/// How often circles are opened one by one; beyond, all of their dependencies are taken out.
const MOST_ROUNDS: usize = 100;

/// Makes edges of what units say of one another, so that they are fit for a graph.
pub(super) fn fit(drafts: Vec<Draft>, report: &mut Report<'_>) -> Vec<Draft> {
    let mut whole = Whole { drafts: unique(drafts, report), report };
    whole.claims();
    whole.wishes();
    for round in 0.. {
        let units = whole.drafts.iter().map(|draft| draft.unit.clone());
        let Err(flaws) = Graph::strict(units, &Settings::default()) else { break };
        if !whole.mend(&flaws, round >= MOST_ROUNDS) {
            break;
        }
    }
    whole.drafts
}

/// The drafts with names of their own. Of several the first stays.
pub(super) fn unique(drafts: Vec<Draft>, report: &mut Report<'_>) -> Vec<Draft> {
    let mut first: BTreeMap<Name, usize> = BTreeMap::new();
    let mut unique = Vec::new();
    for draft in drafts {
        if let Some(other) = first.get(&draft.unit.name) {
            let why = format!("{} has one of this name", report.path(*other));
            report.left_out(draft.file, 1, why, "give one of the two files another name");
            continue;
        }
        first.insert(draft.unit.name.clone(), draft.file);
        unique.push(draft);
    }
    unique
}

struct Whole<'r, 'a> {
    drafts: Vec<Draft>,
    report: &'r mut Report<'a>,
}

impl Whole<'_, '_> {
    /// Lets each target be provided once: by the unit whose name it is, or by the first by name.
    fn claims(&mut self) {
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
                    let message = format!("it provides `{target}`, which is left to {owner}");
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
                let why = "nothing is left that it provides";
                self.report.left_out(draft.file, 1, why, "give it a target of its own");
            }
            provides
        });
    }

    fn wishes(&mut self) {
        let targets = self.drafts.iter().enumerate();
        let provided: BTreeMap<Target, usize> = targets
            .flat_map(|(at, it)| it.unit.provides.iter().map(move |target| (target.clone(), at)))
            .collect();
        let mut edges = Vec::new();
        for (at, draft) in self.drafts.iter().enumerate() {
            for wish in &draft.wishes {
                match provided.get(&wish.target) {
                    Some(&other) if other == at => {
                        let message = format!("it depends on `{}` itself", wish.target);
                        let help = "nothing is to be written for that";
                        self.report.remark((draft.file, wish.line), message, help);
                    }
                    Some(&other) if wish.before => {
                        let own = draft.unit.provides.first().cloned();
                        edges.extend(own.map(|own| (other, wish.kind, own)));
                    }
                    Some(_) => edges.push((at, wish.kind, wish.target.clone())),
                    None => absent(self.report, draft.file, wish),
                }
            }
        }
        for (at, kind, target) in edges {
            add_edge(&mut self.drafts[at].unit, kind, target);
        }
    }

    /// Takes out what is in the way; says whether that was anything.
    fn mend(&mut self, flaws: &[GraphError], all: bool) -> bool {
        let mut mended = false;
        for flaw in flaws {
            mended |= match flaw {
                GraphError::Cycle(circle) => self.open(circle, all),
                other => self.leave_out(other),
            };
        }
        mended
    }

    /// Takes the weakest dependency of a circle for what has no order.
    fn open(&mut self, circle: &DependencyCycle, all: bool) -> bool {
        let steps = circle.steps.iter().enumerate();
        let weakest = steps.clone().max_by_key(|(at, (_, kind))| (*kind, *at));
        let chosen: Vec<usize> = match weakest {
            _ if all => steps.map(|(at, _)| at).collect(),
            weakest => weakest.map(|(at, _)| at).into_iter().collect(),
        };
        let mut opened = false;
        for at in chosen {
            let from = &circle.steps[at].0;
            let to = &circle.steps[(at + 1) % circle.steps.len()].0;
            opened |= self.take_order_out(from, to, circle);
        }
        opened
    }

    fn take_order_out(&mut self, from: &Name, to: &Name, circle: &DependencyCycle) -> bool {
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
        let message = format!("the units wait for one another, so {from} does not for {to}");
        let help = format!("choose which one begins, and write that into the stanzas: {circle}");
        self.report.loss((draft.file, 1), message, help);
        draft.unit.edges != before
    }

    fn leave_out(&mut self, flaw: &GraphError) -> bool {
        let units: Vec<Name> = flaw.units().into_iter().cloned().collect();
        let before = self.drafts.len();
        let report = &mut *self.report;
        self.drafts.retain(|draft| {
            let stays = !units.contains(&draft.unit.name);
            if !stays {
                report.left_out(draft.file, 1, flaw, "write its stanza by hand");
            }
            stays
        });
        self.drafts.len() < before
    }
}

fn add_edge(unit: &mut InitUnit, kind: EdgeKind, target: Target) {
    let known = unit.edges.iter_mut().find(|(_, it)| *it == target);
    match known {
        // Of what orders and what only requires, both are meant.
        Some((known, _)) => *known = (*known).min(kind),
        None => unit.edges.push((kind, target)),
    }
    unit.edges.sort();
}

/// Says that a target is not there.
fn absent(report: &mut Report<'_>, file: usize, wish: &Wish) {
    let Wish { kind, target, before, line } = wish;
    let place = (file, *line);
    if *before {
        let message = format!("it comes before `{target}`, which no file provides");
        return report.remark(place, message, "hand that file in, too, if it is to run");
    }
    let message = format!("`{target}` is provided by no file, so it is not waited for");
    let help = format!(
        "hand in the file that does, too; or write a stanza that provides it, and `{kind}: \
         {target}` in this one"
    );
    match kind {
        EdgeKind::After => report.remark(place, message, help),
        _ => report.loss(place, message, help),
    }
}
