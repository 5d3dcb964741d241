//! Units that somebody else runs, as far as those that are loaded depend on them.
//!
//! Of one that has to be looked for there is a stand-in in the graph: it starts when somebody needs
//! it, and is up once it is there. Nothing is run for it, and nothing written down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::graph::systemd::Compiled;
use fleet_core::graph::{
    Action, Activity, Happening, Incarnation, Name, Observed, Order, Phase as Doing,
};
use fleet_unitfile::UnitName;
use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::super::course::Report;
use super::super::inbox::{Inbox, inbox};
use super::super::lead::Lead;
use super::super::member::{Live, Member};
use super::calls::name_of;
use crate::Clock;
use crate::native::external::{External, stand_in};
use crate::native::life::{Memory, Phase};

/// All units that somebody else runs.
#[derive(Default)]
pub(super) struct OfOthers {
    pub(super) assumed_up: BTreeSet<UnitName>,
    sought: BTreeMap<Name, (External, Compiled)>,
}

impl OfOthers {
    pub(super) fn new(all: BTreeMap<UnitName, External>) -> Self {
        let mut of_others = Self::default();
        for (unit, external) in all {
            if external == External::Up {
                of_others.assumed_up.insert(unit);
            } else {
                of_others.sought.insert(name_of(&unit), (external, stand_in(&unit)));
            }
        }
        of_others
    }

    /// What stands for those that are looked for, with their names.
    pub(super) fn stand_ins(&self) -> impl Iterator<Item = (&Name, &Compiled)> {
        self.sought.iter().map(|(name, (_, compiled))| (name, compiled))
    }

    /// Those that are up at the moment.
    pub(super) async fn found_up(&self, clock: &dyn Clock) -> Vec<Name> {
        let looks = self
            .sought
            .iter()
            .map(async |(name, (external, _))| external.is_up(clock).await.then(|| name.clone()));
        join_all(looks).await.into_iter().flatten().collect()
    }

    /// What is known of one that is up before anybody needed it.
    pub(super) fn as_up(&self, name: &Name, run: Incarnation, clock: &dyn Clock) -> Observed {
        let unit = self.sought.get(name).map(|(_, compiled)| Arc::clone(&compiled.unit));
        Observed {
            phase: Doing::Up(Activity::Running),
            since: clock.now(),
            up_since: Some(clock.now()),
            incarnation: Some(run),
            definition: unit,
            processes: true,
            ..Observed::default()
        }
    }
}

impl Lead {
    /// Waits for a unit that somebody else runs. Tells whether it is such a one.
    pub(in super::super) fn await_other(&mut self, action: &Action) -> std::io::Result<bool> {
        let Some(services) = &self.services else { return Ok(false) };
        if services.keeps(&action.unit) {
            return Ok(false);
        }
        let Some((external, _)) = services.of_others.sought.get(&action.unit) else {
            return Ok(false);
        };
        let (outside, inbox) = inbox();
        let look = Look {
            external: external.clone(),
            clock: Arc::clone(&self.machine.clock),
            unit: action.unit.clone(),
            incarnation: action.incarnation,
            inbox,
            reports: self.outbox.clone(),
        };
        let mut member = Member::new(&self.machine, &action.unit)?;
        let task = tokio::spawn(look.run()).abort_handle();
        member.live = Some(Live { incarnation: action.incarnation, outside, task });
        self.members.insert(action.unit.clone(), member);
        Ok(true)
    }
}

impl Lead {
    /// A unit is loaded here by the name of one that somebody else ran: nothing of that counts any
    /// more.
    pub(super) fn take_over(&mut self, name: &Name) {
        let Some(services) = &mut self.services else { return };
        if services.of_others.sought.contains_key(name) {
            services.taken_over.insert(name.clone());
            // Nothing may be run by what stood for it.
            (services.stale, services.link_by) = (true, Some(self.machine.now()));
            if let Some(live) = self.members.remove(name).and_then(|member| member.live) {
                live.task.abort();
            }
        }
    }
}

/// One wait for a unit, and its being up.
struct Look {
    external: External,
    clock: Arc<dyn Clock>,
    unit: Name,
    incarnation: Incarnation,
    inbox: Inbox,
    reports: mpsc::Sender<Report>,
}

impl Look {
    async fn run(mut self) {
        let mut is_up = false;
        loop {
            tokio::select! {
                told = self.inbox.next() => {
                    let Some((_, order)) = told else { return };
                    if matches!(order, Some(Order::Stop { .. } | Order::Kill)) {
                        return self.tell(Happening::AllGone, Phase::Dead).await;
                    }
                }
                () = self.external.until_up(&*self.clock), if !is_up => {
                    is_up = true;
                    self.tell(Happening::Ready, Phase::Running).await;
                }
            }
        }
    }

    async fn tell(&self, happening: Happening, phase: Phase) {
        let report = Report {
            unit: self.unit.clone(),
            incarnation: self.incarnation,
            happenings: vec![happening],
            memory: Arc::new(Memory { phase, ..Memory::default() }),
            problem: None,
        };
        // Without a lead there is nobody whom it concerns.
        drop(self.reports.send(report).await);
    }
}
