//! The one task that owns what decides, and has it carried out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{
    Action, Cause, Event, Happening, Incarnation, Name, Order, Retry, Shown, System,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::course::{Course, Report};
use super::inbox::{Full, inbox};
use super::member::{Live, Member};
use super::services::Services;
use super::wanted::Choice;
use crate::clock::Sleep;
use crate::native::abilities::why_not;
use crate::native::drive::Driver;
use crate::native::identity::Host;
use crate::native::life::{Memory, Phase};
use crate::native::log::Log;
use crate::native::machine::Machine;
use crate::native::outcome::Outcome;
use crate::native::record::Asked;

/// How many reports and requests one turn takes before it looks at what is owed.
const MOST_AT_ONCE: usize = 256;

/// After how long a run that could not even be begun counts as failed. Were it at once, a unit that
/// is tried again without delay would leave no time for anything else.
const PAUSE_BEFORE_FAILURE: Duration = Duration::from_secs(1);

/// A request: it is carried out by the lead, between two turns.
pub(in crate::native) type Request = Box<dyn FnOnce(&mut Lead) + Send>;

/// The logs of all units that ran, for whoever reads them.
pub(in crate::native) type Logs = Arc<Mutex<BTreeMap<Name, Arc<Log>>>>;

/// Owns what decides, and all that it decides about.
pub(in crate::native) struct Lead {
    pub(super) machine: Arc<Machine>,
    pub(super) system: System,
    pub(super) choice: Choice,
    pub(super) members: BTreeMap<Name, Member>,
    pub(super) logs: Logs,
    /// Where it is written down what is wanted.
    pub(super) record: PathBuf,
    pub(super) changes: watch::Sender<u64>,
    /// Whether a shutdown has begun, so that nothing is started any more.
    pub(super) ends: bool,
    /// Who waits for all runs to be over, but for those that nothing can end.
    pub(super) until_rest: Vec<oneshot::Sender<()>>,
    /// The runs that could not be begun and do not count as failed yet, and when they do.
    pub(super) unbegun: VecDeque<(Timestamp, Action)>,
    pub(super) reports: mpsc::Receiver<Report>,
    /// For the runs to come.
    pub(super) outbox: mpsc::Sender<Report>,
    /// What can be done for a unit here.
    pub(super) host: Host,
    /// The units that could not be taken back, with the reason.
    pub(super) lost: BTreeMap<Name, String>,
    /// What fleet has loaded, where it is fleet that says what is wanted.
    pub(super) services: Option<Services>,
    /// Units that are to be shown to fleet anew, whatever the graph makes of them.
    pub(super) touched: BTreeSet<Name>,
}

impl Lead {
    /// Leads until nobody can ask for anything any more.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut sleep = Sleep::new(&self.machine.clock);
        loop {
            self.turn();
            let unbegun = self.unbegun.front().map(|(due, _)| *due);
            let files = self.files_due();
            let due = self.system.due().into_iter().chain(unbegun).chain(files).min();
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => request(&mut self),
                    None => return,
                },
                Some(report) = self.reports.recv() => self.on_report(report),
                () = sleep.until(due) => {}
            }
            // What is there already costs one turn together.
            for _ in 0..MOST_AT_ONCE {
                let Ok(report) = self.reports.try_recv() else { break };
                self.on_report(report);
            }
        }
    }

    /// Has carried out what is owed, and tells everybody what is new.
    pub(super) fn turn(&mut self) {
        let now = self.machine.now();
        let unbegun = self.unbegun.front().map(|(due, _)| *due);
        let mut due = self.system.due().into_iter().chain(unbegun).chain(self.files_due());
        if due.any(|due| due <= now) {
            self.follow_files();
        }
        self.fail_unbegun(now);
        // What is owed to a run of which nothing is left is told at once, and may make more owed.
        let mut changed = BTreeSet::new();
        loop {
            let actions = self.system.next_actions(now);
            let news = self.system.take_changed();
            let again = self.begin_again(&news);
            changed.extend(news);
            if actions.is_empty() && !again {
                break;
            }
            actions.iter().for_each(|action| self.carry_out(action, now));
        }
        self.publish(changed);
        if !self.until_rest.is_empty() && self.is_at_rest() {
            for waiter in self.until_rest.drain(..) {
                // Whoever asked may have gone away, which changes nothing.
                let _ = waiter.send(());
            }
        }
    }

    fn is_at_rest(&self) -> bool {
        let is_stuck = |unit| {
            let state = self.system.state(unit);
            state.is_some_and(|state| matches!(state.what, Shown::Failed { stuck: true, .. }))
        };
        let mut running = self.members.iter().filter(|(_, member)| member.live.is_some());
        running.all(|(unit, _)| is_stuck(unit))
    }

    fn carry_out(&mut self, action: &Action, now: Timestamp) {
        tracing::debug!(%action, incarnation = %action.incarnation, "decided");
        if !action.is_start() {
            return self.order(action);
        }
        if let Err(error) = self.begin(action) {
            tracing::error!(unit = %action.unit, %error, "cannot begin a run");
            if let Some(member) = self.members.get_mut(&action.unit) {
                member.problem = Some(format!("cannot begin: {error}"));
                let outcome = Some(Outcome::Resources);
                member.memory =
                    Arc::new(Memory { phase: Phase::Failed, outcome, ..Memory::default() });
            }
            self.unbegun.push_back((now.after(PAUSE_BEFORE_FAILURE), action.clone()));
        }
    }

    fn begin(&mut self, action: &Action) -> std::io::Result<()> {
        if self.await_other(action)? {
            return Ok(());
        }
        if !self.members.contains_key(&action.unit) {
            let member = Member::new(&self.machine, &action.unit)?;
            lock(&self.logs).insert(action.unit.clone(), Arc::clone(&member.log));
            self.members.insert(action.unit.clone(), member);
        }
        let Some(member) = self.members.get_mut(&action.unit) else { return Ok(()) };
        let asked = match &self.services {
            // The unit's own file says it.
            Some(services) => services.asked_to_run(&action.unit)?,
            None => {
                // Of fleet's units that is asked when they are loaded.
                why_not(&action.definition.run, &self.host).map_err(std::io::Error::other)?;
                member.write_definition(&action.definition)?;
                Asked::default()
            }
        };
        let (unit, spec) = (action.unit.as_str(), Arc::clone(&action.definition));
        let (directory, log) = (&member.directory, Arc::clone(&member.log));
        let mut driver = Driver::new(&self.machine, unit, directory, log, spec);
        driver.asked(asked);
        member.done = asked;
        if let Some(state) = self.system.state(&action.unit) {
            driver.service.count_from(state.attempts, state.failures);
        }
        let before = member.retries.then_some(&*member.memory);
        driver.service.begin_after(before, self.machine.now());
        if driver.service.is_seen_to_start() {
            // How it ended before is over, though it may take a while until this run is heard of.
            member.memory = Arc::new(driver.service.memory().clone());
            member.problem = None;
        }
        member.retries = false;
        self.follow(&action.unit, action.incarnation, driver);
        Ok(())
    }

    /// Follows a run from now on.
    pub(super) fn follow(&mut self, unit: &Name, incarnation: Incarnation, driver: Driver) {
        let (outside, inbox) = inbox();
        let (unit_name, reports) = (unit.clone(), self.outbox.clone());
        let course = Course { driver, unit: unit_name, incarnation, inbox, reports };
        let Some(member) = self.members.get_mut(unit) else { return };
        let task = tokio::spawn(Box::new(course).run()).abort_handle();
        member.live = Some(Live { incarnation, outside, task });
    }

    /// Tells which runs have failed that could not be begun. They wait in the order of their times.
    fn fail_unbegun(&mut self, now: Timestamp) {
        let is_due = |(due, _): &(Timestamp, Action)| *due <= now;
        let due = self.unbegun.iter().take_while(|it| is_due(it)).count();
        for (_, action) in self.unbegun.drain(..due) {
            for what in [Happening::Failed(Cause::Resources), Happening::AllGone] {
                let (unit, incarnation) = (action.unit.clone(), action.incarnation);
                self.system.on_event(&Event { unit, incarnation, what }, now);
            }
        }
    }

    /// Has all processes of all runs killed. What becomes of the runs is told by their ends.
    pub(in crate::native) fn kill_all(&mut self) {
        let lives = self.members.values().filter_map(|member| member.live.as_ref());
        lives.for_each(|live| live.outside.tell(|news| news.kill = true));
    }

    fn order(&mut self, action: &Action) {
        let live = self.members.get(&action.unit).and_then(|member| member.live.as_ref());
        let live = live.filter(|live| live.incarnation == action.incarnation);
        match live.map(|live| live.outside.order(action.what.clone())) {
            Some(Ok(())) => {}
            Some(Err(Full)) => tracing::error!(%action, "an order is lost: too many wait"),
            None if matches!(action.what, Order::Reload) => {}
            // Nothing of it is left that could say so.
            None => self.gone(action),
        }
    }

    fn gone(&mut self, action: &Action) {
        let (unit, incarnation) = (action.unit.clone(), action.incarnation);
        let event = Event { unit, incarnation, what: Happening::AllGone };
        self.system.on_event(&event, self.machine.now());
    }

    fn on_report(&mut self, report: Report) {
        let now = self.machine.now();
        let Some(member) = self.members.get_mut(&report.unit) else { return };
        let is_present =
            member.live.as_ref().is_some_and(|live| live.incarnation == report.incarnation);
        if !is_present {
            return;
        }
        let is_up = report.memory.phase.is_up();
        (member.memory, member.problem) = (report.memory, report.problem);
        self.follow_files();
        let Some(member) = self.members.get_mut(&report.unit) else { return };
        let over = report.happenings.contains(&Happening::AllGone);
        let mut unread = None;
        if over {
            unread = member.live.take().and_then(|live| live.outside.unread());
        }
        for what in report.happenings {
            let (unit, incarnation) = (report.unit.clone(), report.incarnation);
            self.system.on_event(&Event { unit, incarnation, what }, now);
        }
        if over {
            // One that ended because nobody needs it is not tried again, however it ended.
            let state = self.system.state(&report.unit).filter(|state| state.needed);
            let again = state.filter(|state| {
                matches!(
                    state.what,
                    Shown::Failed { retry: Retry::At(_), .. } | Shown::Ended(Retry::At(_))
                )
            });
            let is_off = self.system.is_off(&report.unit);
            if let Some(member) = self.members.get_mut(&report.unit) {
                member.retries = again.is_some();
                again.iter().for_each(|state| member.keep_counts(state));
                // It had ended before it was told, so it has not written this down.
                unread.into_iter().for_each(|asked| member.write_done(asked, is_off));
            }
        }
        if self.services.is_some() {
            if is_up {
                self.show(&report.unit);
                self.answer_up(&report.unit, report.incarnation);
            }
            self.touched.insert(report.unit);
        }
        self.changes.send_modify(|count| *count += 1);
    }

    fn publish(&mut self, changed: BTreeSet<Name>) {
        for unit in &changed {
            let Some(member) = self.members.get_mut(unit) else { continue };
            let kept = self.services.as_ref().is_some_and(|services| services.keeps(unit));
            match self.system.is_left_off(unit) {
                Some(true) if std::mem::take(&mut member.retries) && kept => member.rest(),
                None if !kept => {
                    self.members.remove(unit);
                    lock(&self.logs).remove(unit);
                    if let Err(error) = self.machine.record(unit.as_str()).remove() {
                        tracing::warn!(%unit, %error, "cannot remove the records of a unit");
                    }
                }
                _ => {}
            }
        }
        if !changed.is_empty() {
            self.changes.send_modify(|count| *count += 1);
        }
        if self.services.is_some() {
            let mut touched = std::mem::take(&mut self.touched);
            touched.extend(changed);
            self.note_give_ups(&touched);
            for unit in &touched {
                self.show(unit);
                self.answer_waiters(unit);
            }
        } else {
            self.keep_give_ups(&changed);
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // Processes go on; what looks after them ends.
        let lives = self.members.values().filter_map(|member| member.live.as_ref());
        lives.for_each(|live| live.task.abort());
    }
}

/// Takes the lock; what it guards is whole even if a holder panicked.
pub(in crate::native) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
