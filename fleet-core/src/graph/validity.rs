//! Validity rules for a single unit.

use std::collections::BTreeSet;

use super::{DelayGrowth, GraphError, InitUnit, RestartWhen, Run, ServiceType, SettingConflict};

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
