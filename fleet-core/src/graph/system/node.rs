//! A unit in a system: what is known of it, and what is counted of its neighbours.

use std::cmp::Reverse;
use std::sync::Arc;

use super::face::{Effect, Face};
use super::weight::Weight;
use crate::Timestamp;
use crate::graph::{Activity, FailureCause, InitUnit, ObservedUnit, Phase};

/// A unit in a system.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) unit: Arc<InitUnit>,
    /// It is not in the graph any more.
    pub(super) orphan: bool,
    pub(super) seen: ObservedUnit,
    pub(super) needed: bool,
    pub(super) masked: bool,
    /// What runs is not what would be started now.
    pub(super) redefined: bool,
    /// Its start takes no room.
    pub(super) unlimited_start: bool,
    pub(super) missing: Missing,
    pub(super) weight: Weight,
    /// How long the longest chain of needed dependents above it is; nothing if it is not needed.
    pub(super) height: Option<u32>,
    pub(super) counts: Counts,
    pub(super) face: Face,
    pub(super) place: Place,
}

/// Whether it depends on targets that nobody provides.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Missing {
    /// By `depends-on`.
    pub(super) on: bool,
    /// By `depends-on` or `depends-ms`.
    pub(super) hard: bool,
    /// By any kind that requires.
    pub(super) any: bool,
}

/// How many dependencies have which effect on it, and how many dependents have to go first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    lost: u32,
    dooms: u32,
    unready: u32,
    pub(super) blockers: u32,
}

/// In which queues it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) reset: bool,
    pub(super) lapsed: bool,
    pub(super) stop: bool,
    pub(super) free_start: bool,
    pub(super) start: Option<Reverse<u32>>,
    pub(super) reload: bool,
    pub(super) timer: Option<Timestamp>,
}

impl Node {
    pub(super) fn new(unit: Arc<InitUnit>, orphan: bool, seen: ObservedUnit) -> Self {
        Self {
            redefined: redefined(&unit, orphan, &seen),
            unlimited_start: false,
            unit,
            orphan,
            seen,
            needed: false,
            masked: false,
            missing: Missing::default(),
            weight: Weight::default(),
            height: None,
            counts: Counts::default(),
            face: Face::default(),
            place: Place::default(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.counts.lost > 0 || self.missing.on
    }

    /// The face that it should have.
    pub(super) fn next_face(&self) -> Face {
        let phase = self.seen.phase;
        let active = phase.is_active();
        let stoppable = active || phase == Phase::Starting;
        let dooming = self.counts.dooms > 0 || self.missing.hard;
        Face {
            needed: self.needed,
            masked: self.masked,
            active,
            failed: phase == Phase::Failed,
            ended: phase == Phase::Completed,
            stopping: phase == Phase::Stopping,
            must_stop: stoppable && (!self.needed || self.starts_anew() || self.is_lost()),
            doomed: self.needed && phase == Phase::Inactive && dooming,
        }
    }

    pub(super) fn is_startable(&self) -> bool {
        let ready = self.counts.unready == 0 && !self.missing.hard;
        self.needed && self.seen.phase == Phase::Inactive && !self.seen.processes && ready
    }

    /// The queues that it should stand in.
    pub(super) fn next_place(&self) -> Place {
        let startable = self.is_startable();
        let is_free = self.unit.is_virtual() || self.unlimited_start;
        let runs = matches!(self.seen.phase, Phase::Active(Activity::Running | Activity::Exited));
        Place {
            reset: self.is_forgotten(),
            lapsed: self.is_lapsed(),
            stop: self.face.must_stop && self.counts.blockers == 0,
            free_start: startable && is_free,
            start: (startable && !is_free).then(|| Reverse(self.height.unwrap_or(0))),
            reload: self.seen.reload_wanted && runs && !self.face.must_stop,
            timer: self.timer(),
        }
    }

    /// Whether how it ended, or is about to, is forgotten as soon as anything else is wanted.
    pub(super) fn is_lapsed(&self) -> bool {
        !self.needed && matches!(self.seen.phase, Phase::Failed | Phase::Stopping)
    }

    /// Whether it starts anew after this run, however that ends.
    pub(super) fn starts_anew(&self) -> bool {
        self.redefined || self.seen.restart_requested
    }

    /// Whether what is known of its end is of no use any more, because it is not needed. That it
    /// could not be stopped is kept until something else is wanted.
    fn is_forgotten(&self) -> bool {
        let kept = matches!(
            self.seen.cause,
            Some(FailureCause::StopTimeout | FailureCause::Unkillable | FailureCause::Lost)
        );
        !self.needed
            && match self.seen.phase {
                Phase::Failed => !kept,
                Phase::Completed => true,
                Phase::Inactive => self.seen.attempts > 0,
                Phase::Starting | Phase::Active(_) | Phase::Stopping => false,
            }
    }

    fn timer(&self) -> Option<Timestamp> {
        match self.seen.phase {
            Phase::Failed | Phase::Completed if !self.needed || self.seen.processes => None,
            Phase::Failed | Phase::Completed => self.seen.retry_at,
            _ => self.seen.deadline,
        }
    }
}

impl Counts {
    /// One dependency has another effect than before.
    pub(super) fn replace(&mut self, before: Effect, after: Effect) {
        self.lost = recount(self.lost, before.lost, after.lost);
        self.dooms = recount(self.dooms, before.dooms, after.dooms);
        self.unready = recount(self.unready, before.unready, after.unready);
    }

    /// One dependent blocks, or does not block any more.
    pub(super) fn replace_blocker(&mut self, before: bool, after: bool) {
        self.blockers = recount(self.blockers, before, after);
    }
}

/// What was counted before is taken away, so a count never falls below zero.
fn recount(count: u32, before: bool, after: bool) -> u32 {
    count + u32::from(after) - u32::from(before)
}

fn redefined(unit: &InitUnit, orphan: bool, seen: &ObservedUnit) -> bool {
    let started_from = seen.definition.as_deref().filter(|_| !orphan && seen.phase.is_busy());
    started_from.is_some_and(|definition| definition.needs_restart_for(unit))
}
