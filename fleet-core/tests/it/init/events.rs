//! Second implementation of the transition table: effect of each event by phase and type,
//! independent of the model.

use fleet_core::graph::{
    Activity, EventKind, Exit, FailureCause, InitUnit, Observation, ObservedUnit, OnCleanExit,
    Phase, Restart, RestartWhen, ServiceType, StatusSet, StopOutcome, UnitEvent,
};

const RUNNING: Phase = Phase::Active(Activity::Running);
const RELOADING: Phase = Phase::Active(Activity::Reloading);
const EXITED: Phase = Phase::Active(Activity::Exited);

/// Phase of a unit, and its stop outcome while it stops.
type EventEffect = (Phase, Option<StopOutcome>);

/// Compares the effect of an event with the table. The restart policy is that of the graph, or that
/// of the running definition if the unit was removed.
pub(super) fn is_as_the_table_says(
    event: &UnitEvent,
    handled: bool,
    (before, after): (&Observation, &Observation),
    restart: Option<Restart>,
    is_needed: bool,
) {
    let seen = &before.units[&event.unit];
    let is_current = seen.incarnation == Some(event.incarnation);
    let restart = restart.or_else(|| Some(seen.definition.as_ref()?.restart.clone()));
    let line =
        restart.filter(|_| is_current).and_then(|it| line_of(seen, &it, event.kind, is_needed));
    let what = format!("{event:?} of a unit that is {}, {:?}", seen.phase, seen.outcome);
    assert_eq!(handled, line.is_some(), "{what}");
    let Some(line) = line else { return assert_eq!(after, before, "{what}") };
    let now = &after.units[&event.unit];
    assert_eq!((now.phase, now.outcome.clone()), line, "{what}");
    let mut others = after.clone();
    others.units.insert(event.unit.clone(), seen.clone());
    assert_eq!(others, *before, "{what} changed another unit");
}

/// Returns the effect of the first table line that matches the event, or `None` if no line does.
fn line_of(
    seen: &ObservedUnit,
    restart: &Restart,
    kind: EventKind,
    is_needed: bool,
) -> Option<EventEffect> {
    use EventKind::{AllGone, Extend, Failed, MainExited, Ready, ReloadEnded, Reloading, Skipped};
    use Phase::{Completed, Inactive, Starting, Stopping};
    let unit = seen.definition.as_deref()?;
    let oneshot = matches!(unit.kind, ServiceType::Oneshot { .. });
    let may_end_early = oneshot || matches!(unit.kind, ServiceType::ForegroundSupervised(_));
    let has_main = unit.kind != ServiceType::BackgroundScripted;
    let as_it_was = if seen.exited { EXITED } else { RUNNING };
    Some(match (seen.phase, kind) {
        (Inactive | Completed, _) => return None,

        (Starting, Ready) if !oneshot => (RUNNING, None),
        (Starting, MainExited(exit)) if may_end_early => at_the_end(unit, restart, exit),
        (Starting, MainExited(exit)) => failing(FailureCause::Exit(exit)),
        (Starting, Skipped) => (Stopping, Some(StopOutcome::Skipped)),
        (Starting, AllGone) => (Phase::Failed, None),

        (RUNNING, Reloading) => (RELOADING, None),
        (RELOADING, Ready | ReloadEnded { .. }) => (as_it_was, None),
        (RUNNING | RELOADING, MainExited(exit)) if !seen.exited => at_the_end(unit, restart, exit),
        (RUNNING | RELOADING, AllGone) if has_main && !seen.exited => (Phase::Failed, None),
        (RUNNING | RELOADING | EXITED, AllGone) => (seen.phase, None),

        (Starting | RUNNING | RELOADING, Failed(cause)) => failing(cause),
        (Starting | RUNNING | RELOADING, EventKind::Stopping) => {
            (Stopping, Some(StopOutcome::SelfInitiated))
        }

        (Stopping, AllGone) => (at_rest(seen), None),
        (Stopping, MainExited(exit)) if seen.outcome == Some(StopOutcome::SelfInitiated) => {
            at_the_end(unit, restart, exit)
        }
        (Stopping, MainExited(_)) => (Stopping, seen.outcome.clone()),
        (Stopping, Failed(cause)) => match (&seen.outcome, cause) {
            (Some(StopOutcome::Failed(first)), FailureCause::StopTimeout) => failing(*first),
            (_, FailureCause::StopTimeout) => failing(cause),
            (Some(StopOutcome::Completed(_) | StopOutcome::SelfInitiated), _) => failing(cause),
            (
                Some(StopOutcome::Inactive(_)),
                FailureCause::StopCommand(_) | FailureCause::StopCommandTimeout,
            ) if !is_needed => failing(cause),
            _ => return None,
        },

        (Phase::Failed, AllGone) if seen.processes => (Phase::Failed, None),
        (_, Extend(_)) if seen.deadline.is_some() => (seen.phase, seen.outcome.clone()),
        _ => return None,
    })
}

fn failing(cause: FailureCause) -> EventEffect {
    (Phase::Stopping, Some(StopOutcome::Failed(cause)))
}

/// Returns the phase of a stopping unit once its processes are gone.
fn at_rest(seen: &ObservedUnit) -> Phase {
    match seen.outcome {
        Some(StopOutcome::Inactive(_)) | None => Phase::Inactive,
        Some(StopOutcome::Failed(_) | StopOutcome::SelfInitiated) => Phase::Failed,
        Some(StopOutcome::Completed(_) | StopOutcome::Skipped) => Phase::Completed,
    }
}

/// Returns the effect of an unrequested exit of the main process.
fn at_the_end(unit: &InitUnit, restart: &Restart, exit: Exit) -> EventEffect {
    let stays = match unit.kind {
        ServiceType::Oneshot { remain } => remain,
        _ => unit.run.on_clean_exit != OnCleanExit::Complete,
    };
    if !is_good(unit, exit) {
        failing(FailureCause::Exit(exit))
    } else if stays && !is_tried_again(restart, exit) {
        (EXITED, None)
    } else {
        (Phase::Stopping, Some(StopOutcome::Completed(Some(exit))))
    }
}

fn is_good(unit: &InitUnit, exit: Exit) -> bool {
    let oneshot = matches!(unit.kind, ServiceType::Oneshot { .. });
    let may_end = unit.run.on_clean_exit != OnCleanExit::Fail;
    let usual = match exit {
        Exit::Status(status) => status == 0 && (oneshot || may_end),
        // HUP, INT, PIPE and TERM.
        Exit::Signal(number) => [1, 2, 13, 15].contains(&number) && may_end && !oneshot,
        Exit::Unknown => false,
    };
    usual || is_listed(&unit.run.success, exit)
}

/// Returns whether a restart follows a success, so that the unit does not stay active.
fn is_tried_again(restart: &Restart, exit: Exit) -> bool {
    let always = matches!(restart.when, RestartWhen::Always | RestartWhen::OnSuccess);
    !is_listed(&restart.prevent, exit) && (always || is_listed(&restart.force, exit))
}

fn is_listed(list: &StatusSet, exit: Exit) -> bool {
    match exit {
        Exit::Status(status) => list.codes.contains(&status),
        Exit::Signal(number) => {
            list.signals.iter().any(|it| u32::from(it.number()) == u32::from(number))
        }
        Exit::Unknown => false,
    }
}
