//! Random moves, applicable to any units.

use std::time::Duration;

use fleet_core::graph::{EventKind, Exit, FailureCause};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A move in a test script.
#[derive(Debug, Clone)]
pub(super) enum Move {
    /// A starting unit becomes active, or fails.
    Answer {
        who: Index,
        well: bool,
    },
    /// A stopping unit is gone.
    Gone {
        who: Index,
    },
    /// Any event for any unit, of the current or an earlier start.
    Event {
        who: Index,
        kind: EventKind,
        late: bool,
    },
    /// Time passes.
    Pass(Duration),
    /// Time passes until this many milliseconds after the next deadline.
    Due(u64),
    /// The goal and the extra targets change.
    Goal(Option<Index>, Option<Index>),
    /// The mask is replaced.
    Mask(Option<Index>),
    /// One extra target is added or removed.
    Want(Index, bool),
    /// One target is masked or unmasked.
    MaskOne(Index, bool),
    /// `max_starting` changes.
    Room(Option<u32>),
    Reset(Index),
    Renew(Index),
    TryAgain(Index),
    Reread(Index),
    /// The units are reloaded.
    Reload(Edit),
}

/// Change of the units before a reload.
#[derive(Debug, Clone)]
pub(super) enum Edit {
    Nothing,
    /// One unit gets other commands.
    Runs(Index),
    /// One unit gets another description, restart policy or timeout.
    Live(Index, u8),
    Remove(Index),
    /// A target moves to another unit.
    Hand(Index, Index),
    /// All units are as at the beginning.
    Restore,
}

pub(super) fn moves(most: usize) -> impl Strategy<Value = Vec<Move>> {
    prop::collection::vec(a_move(), 0..=most)
}

fn a_move() -> impl Strategy<Value = Move> {
    let who = any::<Index>;
    prop_oneof![
        12 => (who(), prop::bool::weighted(0.75))
            .prop_map(|(who, well)| Move::Answer { who, well }),
        8 => who().prop_map(|who| Move::Gone { who }),
        8 => (who(), event_kind(), prop::bool::weighted(0.1))
            .prop_map(|(who, kind, late)| Move::Event { who, kind, late }),
        2 => select(vec![0, 1, 999, 10_000, 90_000]).prop_map(|it| {
            Move::Pass(Duration::from_millis(it))
        }),
        5 => (0..2u64).prop_map(Move::Due),
        4 => (prop::option::weighted(0.9, who()), prop::option::weighted(0.4, who()))
            .prop_map(|(goal, with)| Move::Goal(goal, with)),
        1 => prop::option::of(who()).prop_map(Move::Mask),
        3 => (who(), any::<bool>()).prop_map(|(it, more)| Move::Want(it, more)),
        2 => (who(), any::<bool>()).prop_map(|(it, more)| Move::MaskOne(it, more)),
        1 => prop::option::of(1..3u32).prop_map(Move::Room),
        1 => who().prop_map(Move::Reset),
        1 => who().prop_map(Move::Renew),
        1 => who().prop_map(Move::TryAgain),
        1 => who().prop_map(Move::Reread),
        2 => edit().prop_map(Move::Reload),
    ]
}

pub(super) fn edit() -> impl Strategy<Value = Edit> {
    let who = any::<Index>;
    prop_oneof![
        Just(Edit::Nothing),
        who().prop_map(Edit::Runs),
        (who(), 0..3u8).prop_map(|(it, what)| Edit::Live(it, what)),
        who().prop_map(Edit::Remove),
        (who(), who()).prop_map(|(from, to)| Edit::Hand(from, to)),
        Just(Edit::Restore),
    ]
}

pub(super) fn event_kind() -> impl Strategy<Value = EventKind> {
    select(vec![
        EventKind::Ready,
        EventKind::Failed(FailureCause::Spawn),
        EventKind::Failed(FailureCause::Watchdog),
        EventKind::Failed(FailureCause::StopTimeout),
        EventKind::Failed(FailureCause::StopCommand(Exit::Status(1))),
        EventKind::Skipped,
        EventKind::Reloading,
        EventKind::ReloadEnded { well: true },
        EventKind::ReloadEnded { well: false },
        EventKind::Stopping,
        EventKind::MainExited(Exit::Status(0)),
        EventKind::MainExited(Exit::Status(1)),
        EventKind::MainExited(Exit::Status(3)),
        EventKind::MainExited(Exit::Signal(15)),
        EventKind::MainExited(Exit::Signal(11)),
        EventKind::Extend(Duration::from_secs(100)),
        EventKind::AllGone,
    ])
}
