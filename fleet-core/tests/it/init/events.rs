//! The table of events, written down once more: what each makes of a unit by its phase and its
//! kind, and by nothing that the model itself goes by.

use fleet_core::graph::{
    Activity, AfterExit, Cause, Ending, Event, Exit, Happening, Kind, Observation, Observed, Phase,
    Restart, RestartWhen, StatusSet, Unit,
};

const RUNNING: Phase = Phase::Up(Activity::Running);
const RELOADING: Phase = Phase::Up(Activity::Reloading);
const EXITED: Phase = Phase::Up(Activity::Exited);

/// What a unit is doing and, while it stops, what becomes of it then.
type Becomes = (Phase, Option<Ending>);

/// Holds what an event made of a system against the table. When its unit is started again is as it
/// is in the graph, or as it was if the unit is not there any more.
pub(super) fn is_as_the_table_says(
    event: &Event,
    heeded: bool,
    (before, after): (&Observation, &Observation),
    restart: Option<Restart>,
) {
    let seen = &before.units[&event.unit];
    let is_current = seen.incarnation == Some(event.incarnation);
    let restart = restart.or_else(|| Some(seen.definition.as_ref()?.restart.clone()));
    let line = restart.filter(|_| is_current).and_then(|it| line_of(seen, &it, event.what));
    let what = format!("{event:?} of one that is {}, {:?}", seen.phase, seen.ending);
    assert_eq!(heeded, line.is_some(), "{what}");
    let Some(line) = line else { return assert_eq!(after, before, "{what}") };
    let now = &after.units[&event.unit];
    assert_eq!((now.phase, now.ending.clone()), line, "{what}");
    let mut others = after.clone();
    others.units.insert(event.unit.clone(), seen.clone());
    assert_eq!(others, *before, "{what} concerns nobody else");
}

/// What the first line of the table that is about such an event makes of the unit; nothing if no
/// line is.
fn line_of(seen: &Observed, restart: &Restart, what: Happening) -> Option<Becomes> {
    use Happening::{AllGone, Extend, Failed, MainExited, Ready, ReloadEnded, Reloading, Skipped};
    use Phase::{Ended, Off, Starting, Stopping};
    let unit = seen.definition.as_deref()?;
    let oneshot = matches!(unit.kind, Kind::Oneshot { .. });
    let may_end_early = oneshot || matches!(unit.kind, Kind::ForegroundSupervised(_));
    let has_main = unit.kind != Kind::BackgroundScripted;
    let as_it_was = if seen.exited { EXITED } else { RUNNING };
    Some(match (seen.phase, what) {
        (Off | Ended, _) => return None,

        (Starting, Ready) if !oneshot => (RUNNING, None),
        (Starting, MainExited(exit)) if may_end_early => at_the_end(unit, restart, exit),
        (Starting, MainExited(exit)) => failing(Cause::Exit(exit)),
        (Starting, Skipped) => (Stopping, Some(Ending::Skipped)),
        (Starting, AllGone) => (Phase::Failed, None),

        (RUNNING, Reloading) => (RELOADING, None),
        (RELOADING, Ready | ReloadEnded { .. }) => (as_it_was, None),
        (RUNNING | RELOADING, MainExited(exit)) if !seen.exited => at_the_end(unit, restart, exit),
        (RUNNING | RELOADING, AllGone) if has_main && !seen.exited => (Phase::Failed, None),
        (RUNNING | RELOADING | EXITED, AllGone) => (seen.phase, None),

        (Starting | RUNNING | RELOADING, Failed(cause)) => failing(cause),
        (Starting | RUNNING | RELOADING, Happening::Stopping) => (Stopping, Some(Ending::ByItself)),

        (Stopping, AllGone) => (at_rest(seen), None),
        (Stopping, MainExited(exit)) if seen.ending == Some(Ending::ByItself) => {
            at_the_end(unit, restart, exit)
        }
        (Stopping, MainExited(_)) => (Stopping, seen.ending.clone()),
        (Stopping, Failed(cause)) => match (&seen.ending, cause) {
            (Some(Ending::Failed(first)), Cause::StopTimeOut) => failing(*first),
            (_, Cause::StopTimeOut) => failing(cause),
            (Some(Ending::Well(_) | Ending::ByItself), _) => failing(cause),
            _ => return None,
        },

        (Phase::Failed, AllGone) if seen.processes => (Phase::Failed, None),
        (_, Extend(_)) if seen.deadline.is_some() => (seen.phase, seen.ending.clone()),
        _ => return None,
    })
}

fn failing(cause: Cause) -> Becomes {
    (Phase::Stopping, Some(Ending::Failed(cause)))
}

/// What a unit that stops is when nothing of it is left.
fn at_rest(seen: &Observed) -> Phase {
    match seen.ending {
        Some(Ending::Off(_)) | None => Phase::Off,
        Some(Ending::Failed(_) | Ending::ByItself) => Phase::Failed,
        Some(Ending::Well(_) | Ending::Skipped) => Phase::Ended,
    }
}

/// What the end of its main process makes of a unit that nobody asked to stop.
fn at_the_end(unit: &Unit, restart: &Restart, exit: Exit) -> Becomes {
    let stays = match unit.kind {
        Kind::Oneshot { remain } => remain,
        _ => unit.run.after_exit != AfterExit::Rests,
    };
    if !is_good(unit, exit) {
        failing(Cause::Exit(exit))
    } else if stays && !is_tried_again(restart, exit) {
        (EXITED, None)
    } else {
        (Phase::Stopping, Some(Ending::Well(Some(exit))))
    }
}

fn is_good(unit: &Unit, exit: Exit) -> bool {
    let oneshot = matches!(unit.kind, Kind::Oneshot { .. });
    let may_end = unit.run.after_exit != AfterExit::Fails;
    let usual = match exit {
        Exit::Status(status) => status == 0 && (oneshot || may_end),
        // HUP, INT, PIPE and TERM.
        Exit::Signal(number) => [1, 2, 13, 15].contains(&number) && may_end && !oneshot,
        Exit::Unknown => false,
    };
    usual || is_listed(&unit.run.success, exit)
}

/// Whether a good end is followed by another start, so that the unit does not stay up.
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
