//! Pure: what an engine does next for the order to rebalance.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{ActiveState, Moving, Rebalancing, Snapshot};
use fleet_scheduler::{Action, Cause, Index, Rebalance, Step};

/// The order to rebalance, and what was last planned for it.
#[derive(Debug, Default)]
pub(crate) struct Balancing {
    /// Right as long as the index is no other.
    last: Option<(Rebalance, Vec<Step>)>,
    /// The same of whether units would move if those came up that may.
    hoped: Option<(Rebalance, bool)>,
}

/// What is to be done about an order.
#[derive(Debug)]
pub(crate) enum Next {
    /// These moves, and with them the note that they are made.
    Moves { steps: Vec<Step>, seen: Arc<Rebalancing>, noted: Rebalancing },
    /// Nothing until those who are under way have arrived, or enough are up.
    Wait,
    /// Nothing any more.
    Over(Arc<Rebalancing>),
}

impl Balancing {
    /// To be told of every change of the index.
    pub(crate) fn change(&mut self) {
        (self.last, self.hoped) = (None, None);
    }

    /// What is to be done now for the order; nothing if there is none. The index must be one that
    /// has nothing else to do.
    pub(crate) fn plan(&mut self, snapshot: &Snapshot, index: &mut Index) -> Option<Next> {
        let seen = snapshot.rebalancing.clone()?;
        let asked = Rebalance::wanted(snapshot)?;
        let steps = if asked.budget > 0 { self.steps(&asked, index) } else { Vec::new() };
        Some(match steps.is_empty() {
            false => Next::Moves { noted: noted(&seen, &steps, snapshot), steps, seen },
            true if seen.under_way(snapshot).next().is_some() => Next::Wait,
            true if self.is_hopeful(&asked, snapshot, index) => Next::Wait,
            true => Next::Over(seen),
        })
    }

    /// Whether units are only held back since others, which may come up, are down: an order must
    /// not end because an instance restarts at the moment.
    fn is_hopeful(&mut self, asked: &Rebalance, snapshot: &Snapshot, index: &mut Index) -> bool {
        let Some(hope) = asked.once_up(snapshot).filter(|hope| hope.budget > 0) else {
            return false;
        };
        let known = self.hoped.take().filter(|(before, _)| *before == hope);
        let known = known.unwrap_or_else(|| {
            let moves = !moves(&hope, index).is_empty();
            (hope, moves)
        });
        self.hoped.insert(known).1
    }

    fn steps(&mut self, asked: &Rebalance, index: &mut Index) -> Vec<Step> {
        let known = self.last.take().filter(|(before, _)| before == asked);
        let known = known.unwrap_or_else(|| (asked.clone(), moves(asked, index)));
        self.last.insert(known).1.clone()
    }
}

fn moves(asked: &Rebalance, index: &mut Index) -> Vec<Step> {
    let steps = index.rebalance(asked).steps.into_iter();
    steps.filter(|step| step.cause == Cause::Rebalanced).collect()
}

/// The order with these moves made. Who has arrived is forgotten.
fn noted(order: &Rebalancing, steps: &[Step], snapshot: &Snapshot) -> Rebalancing {
    let under_way = order.under_way(snapshot);
    let mut moving: BTreeMap<_, _> =
        under_way.map(|(unit, moving)| (unit.clone(), moving.clone())).collect();
    for step in steps {
        if let Action::Move { from, to } = &step.action {
            let state = snapshot.state(step.unit.as_str(), from.as_str());
            let was_up = state.is_some_and(|state| {
                matches!(state.systemd.active, ActiveState::Active | ActiveState::Reloading)
            });
            let (from, to) = (from.clone(), to.clone());
            moving.insert(step.unit.clone(), Moving { from, to, was_up });
        }
    }
    let made = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    Rebalancing { terms: order.terms, moved: order.moved.saturating_add(made), moving }
}
