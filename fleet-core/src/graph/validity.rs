//! What a unit has to be by itself, whatever the others are.

use std::collections::BTreeSet;

use super::{Contradiction, Flaw, Growth, Kind, RestartWhen, Run, Unit};

/// All that is wrong with a unit.
pub(super) fn flaws(unit: &Unit) -> Vec<Flaw> {
    let contradictions = contradictions(unit).into_iter();
    let flaws = contradictions
        .map(|problem| Flaw::Contradiction { unit: unit.name.clone(), problem })
        .chain(provided_twice(unit));
    flaws.chain(nothing_provided(unit)).collect()
}

fn nothing_provided(unit: &Unit) -> Option<Flaw> {
    unit.provides.is_empty().then(|| Flaw::NothingProvided { unit: unit.name.clone() })
}

fn provided_twice(unit: &Unit) -> impl Iterator<Item = Flaw> {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<_> =
        unit.provides.iter().filter(|target| !seen.insert(*target)).cloned().collect();
    let unit = unit.name.clone();
    twice.into_iter().map(move |target| Flaw::ProvidedTwice { unit: unit.clone(), target })
}

fn contradictions(unit: &Unit) -> Vec<Contradiction> {
    let run = &unit.run;
    let is_oneshot = matches!(unit.kind, Kind::Oneshot { .. });
    let may_start_nothing = unit.is_virtual() || (is_oneshot && !run.stop.is_empty());
    let is_scripted = unit.kind == Kind::BackgroundScripted;
    let restart = &unit.restart;
    let always = matches!(restart.when, RestartWhen::Always | RestartWhen::OnSuccess);
    let grows = match restart.growth {
        Growth::Factor(factor) => factor > 1,
        Growth::Steps(steps) => steps > 0,
    };
    let table = [
        (unit.is_virtual() && runs_something(run), Contradiction::VirtualRuns),
        (run.start.is_empty() && !may_start_nothing, Contradiction::RunsNothing),
        (!unit.is_virtual() && !is_oneshot && run.start.len() > 1, Contradiction::SeveralStarts),
        (is_scripted && run.stop.is_empty(), Contradiction::NoStop),
        (always && (is_oneshot || unit.is_virtual()), Contradiction::RestartedAlways),
        (restart.growth == Growth::Factor(0), Contradiction::NoFactor),
        (grows && restart.max_delay < restart.delay, Contradiction::DelaysCrossed),
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
