//! Opens the units of a directory: what was loaded, what was asked, and what still runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_core::graph::{
    Graph, Incarnation, Name, Observation, Observed, Settings, Shown, System, Target,
};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::super::config::RunnerConfig;
use super::super::error::io_error;
use super::super::front::{WAITING_REPORTS, WAITING_REQUESTS};
use super::super::lead::{Lead, Logs, Request, lock};
use super::super::member::Member;
use super::super::recall::{go_on, is_busy, over};
use super::super::wanted::Choice;
use super::calls::name_of;
use super::outside::OfOthers;
use super::{Entry, Is, Services, Showcase, timers};
use crate::ServiceError;
use crate::native::compile::compile;
use crate::native::descriptors::see_to_room;
use crate::native::drive::Driver;
use crate::native::external::External;
use crate::native::identity::{Host, host};
use crate::native::life::{Memory, Phase};
use crate::native::machine::{Machine, WANTED};
use crate::native::outcome::Outcome;
use crate::native::record::{Owed, Run};
use crate::native::timer::is_timer;

/// How the units of fleet are run, besides as any runner's.
pub(in crate::native) struct ServicesConfig {
    pub(in crate::native) accept: BTreeSet<String>,
    pub(in crate::native) external: BTreeMap<UnitName, External>,
    pub(in crate::native) max_starting: Option<NonZeroU32>,
}

/// What leads the units of fleet, from outside.
pub(in crate::native) struct Opened {
    pub(in crate::native) machine: Arc<Machine>,
    pub(in crate::native) requests: mpsc::Sender<Request>,
    pub(in crate::native) showcase: Showcase,
    pub(in crate::native) host: Host,
    pub(in crate::native) lead: AbortHandle,
}

/// What is found of one unit.
struct Back {
    name: Name,
    entry: Entry,
    member: Member,
    seen: Option<Observed>,
    driver: Option<(Incarnation, Driver)>,
    /// What was asked of it and not done.
    owed: Owed,
}

/// Opens a directory, and goes on with all that is found there.
pub(in crate::native) async fn open_services(
    config: RunnerConfig,
    services: ServicesConfig,
) -> Result<Opened, ServiceError> {
    let ServicesConfig { accept, external, max_starting } = services;
    let machine = config.open().await?;
    let host = host(accept, machine.controllers());
    let record = config.directory.join(WANTED);
    let choice = Choice::read(&record).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot read which units were stopped");
        None
    });
    let mut timers = timers::Known::default();
    // Before it is read what is to run.
    let caught_up = machine.directories().and_then(|all| machine.end.catch_up(all.into_iter()));
    caught_up.map_err(io_error("finish the end of all units"))?;
    let logs = Logs::default();
    let backs = take_back(&machine, &host, &mut timers, &logs)
        .map_err(io_error("read the records of units"))?;
    let of_others = OfOthers::new(external);
    let found_up = of_others.found_up(&*machine.clock).await;
    let (outbox, reports) = mpsc::channel(WAITING_REPORTS);
    let none = Settings::default();
    let system = System::restore(Graph::default(), &none, Observation::default());
    let mut lead = Lead {
        host: host.clone(),
        machine: Arc::clone(&machine),
        system: system.expect("nothing is wrong with no goal"),
        choice: choice.unwrap_or_else(|| Choice::of(&none)),
        members: BTreeMap::new(),
        logs,
        record,
        changes: watch::channel(0).0,
        ends: false,
        until_rest: Vec::new(),
        reports,
        outbox,
        unbegun: VecDeque::new(),
        lost: BTreeMap::new(),
        services: Some(Services { max_starting, of_others, timers, ..Services::default() }),
        touched: BTreeSet::new(),
    };
    lead.go_on_with(backs, found_up);
    let showcase = lead.services.as_ref().map(Services::showcase).unwrap_or_default();
    let (requests, inbox) = mpsc::channel(WAITING_REQUESTS);
    let lead = tokio::spawn(lead.run(inbox)).abort_handle();
    Ok(Opened { machine, requests, showcase, host, lead })
}

fn take_back(
    machine: &Arc<Machine>,
    host: &Host,
    timers: &mut timers::Known,
    logs: &Logs,
) -> io::Result<Vec<Back>> {
    let (mut backs, mut running) = (Vec::new(), 0);
    for name in machine.known()? {
        let Ok(unit) = UnitName::parse(&name) else { continue };
        if is_timer(&unit) {
            // Those who see to timers take them back. Here it counts who starts them.
            know_timer(machine, host, &unit, timers);
            continue;
        }
        let incarnation = Incarnation(backs.len() as u64 + 1);
        let found = take_one_back(machine, host, &unit, incarnation);
        let may_run = match &found {
            Ok(back) => back.as_ref().is_some_and(|back| back.driver.is_some()),
            Err(_) => true,
        };
        if may_run {
            see_to_room(running)?;
            running += 1;
        }
        match found {
            Ok(back) => backs.extend(back),
            // One unit that cannot be read must not keep the others from being taken back. It is
            // not loaded, and cannot be where its run would make no sense.
            Err(error) => {
                tracing::error!(%unit, %error, "cannot take a unit back");
                keep_log(machine, &unit, logs);
            }
        }
    }
    // Which came first is not known any more; those that run shall not give way to others.
    let runs = |back: &Back| back.driver.is_some();
    backs.sort_by(|a, b| (!runs(a), &a.name).cmp(&(!runs(b), &b.name)));
    Ok(backs)
}

/// Keeps the log of a unit short that cannot be taken back, as its processes may write on.
fn keep_log(machine: &Machine, unit: &UnitName, logs: &Logs) {
    match machine.open_log(machine.directory(unit.as_str()).log()) {
        Ok(log) => drop(lock(logs).insert(name_of(unit), log)),
        Err(error) => tracing::error!(%unit, %error, "cannot keep the log of a unit short"),
    }
}

fn know_timer(machine: &Machine, host: &Host, unit: &UnitName, timers: &mut timers::Known) {
    // Of one that cannot be read those tell who see to it.
    let Ok(Some((source, ..))) = machine.directory(unit.as_str()).read() else { return };
    if let Ok(compiled) = compile(unit, &UnitFile::parse_collecting(&source).0, host) {
        timers.insert(unit, &compiled.unit.relations);
    }
}

fn take_one_back(
    machine: &Arc<Machine>,
    host: &Host,
    unit: &UnitName,
    incarnation: Incarnation,
) -> io::Result<Option<Back>> {
    let name = name_of(unit);
    let directory = machine.directory(unit.as_str());
    let Some((source, asked, run)) = directory.read()? else {
        directory.remove()?;
        return Ok(None);
    };
    let (file, _) = UnitFile::parse_collecting(&source);
    let is = compile(unit, &file, host).map_or_else(
        |bad| {
            tracing::warn!(%unit, line = bad.line, problem = bad.problem, "cannot run it again");
            Is::Unfit(bad.problem)
        },
        |compiled| Is::Fit(Box::new(compiled.unit)),
    );
    let entry = Entry::new(unit.clone(), file.hash(), asked, is);
    let mut member = Member::new(machine, &name)?;
    let run = match run {
        Some(run) => run,
        // Earlier daemons kept none of what has no processes, such as a target. What had been asked
        // of it may be long done, so it is no order of now: nothing else that was stopped starts.
        None => {
            let run = Run { asked, ..Run::default() };
            directory.write_run(&run)?;
            run
        }
    };
    let owed = asked.owed(run.asked);
    member.done = run.asked;
    let (seen, driver) = as_it_was(machine, &entry, &mut member, run, owed, incarnation)?;
    let driver = driver.map(|driver| (incarnation, driver));
    Ok(Some(Back { name, entry, member, seen, driver, owed }))
}

/// What is known of a unit, and its run if that goes on.
fn as_it_was(
    machine: &Arc<Machine>,
    entry: &Entry,
    member: &mut Member,
    run: Run,
    owed: Owed,
    incarnation: Incarnation,
) -> io::Result<(Option<Observed>, Option<Driver>)> {
    let definition = entry.definition();
    member.memory = Arc::new(at_rest(run.memory.clone()));
    if is_busy(&run.memory) {
        let name = name_of(&entry.unit);
        let (seen, driver) = go_on(machine, &name, member, &definition, run, incarnation)?;
        return Ok((Some(seen), Some(driver)));
    }
    let now: Timestamp = machine.now();
    let is_to_run = matches!(owed, Owed::Start | Owed::Restart | Owed::Elapse);
    let seen = (!is_to_run).then(|| over(&definition, &member.memory, now));
    member.retries = seen.as_ref().is_some_and(|seen| seen.retry_at.is_some());
    Ok((seen, None))
}

/// Earlier daemons remembered a run that was to be tried again as one that goes on.
fn at_rest(memory: Memory) -> Memory {
    let good = memory.outcome == Some(Outcome::Success);
    let phase = match memory.phase {
        Phase::AutoRestart if good => Phase::Dead,
        Phase::AutoRestart => Phase::Failed,
        phase => phase,
    };
    Memory { phase, ..memory }
}

impl Lead {
    /// Goes on with all that was found, and does what was asked and not begun.
    fn go_on_with(&mut self, backs: Vec<Back>, up: Vec<Name>) {
        let first = backs.len() as u64 + 1;
        let (mut found, mut drivers, mut owed) = (Vec::new(), Vec::new(), Vec::new());
        let Some(services) = &mut self.services else { return };
        for Back { name, mut entry, member, seen, driver, owed: is_owed } in backs {
            services.loads += 1;
            entry.load = services.loads;
            services.entries.insert(name.clone(), entry);
            lock(&self.logs).insert(name.clone(), Arc::clone(&member.log));
            self.members.insert(name.clone(), member);
            found.extend(seen.map(|seen| (name.clone(), seen)));
            if is_owed != Owed::Nothing {
                let run = driver.as_ref().map(|(run, _)| *run);
                owed.push((name.clone(), is_owed, run));
            }
            drivers.extend(driver.map(|(run, driver)| (name, run, driver)));
        }
        // Units that go on must not lose what they depend on.
        let up = up.into_iter().filter(|name| !services.keeps(name));
        for (name, run) in up.zip((first..).map(Incarnation)) {
            let seen = services.of_others.as_up(&name, run, &*self.machine.clock);
            found.push((name, seen));
        }
        self.link_anew(found);
        for (name, run, driver) in drivers {
            self.follow(&name, run, driver);
        }
        for (name, owed, run) in owed {
            self.catch_up(&name, owed, run);
        }
        // What is known at once can be seen at once.
        let names: Vec<Name> = self.members.keys().cloned().collect();
        names.iter().for_each(|name| self.show(name));
    }

    /// Does what was asked of a unit and not done. A run that goes on until it is started anew is
    /// not told of that: its record would say that it is done.
    fn catch_up(&mut self, name: &Name, owed: Owed, run: Option<Incarnation>) {
        let asked = self.services.as_ref().and_then(|it| it.asked(name)).unwrap_or_default();
        match owed {
            Owed::Nothing => return,
            Owed::Stop => {
                self.end_with_all(name);
                return self.note_done(name, asked);
            }
            Owed::Start | Owed::Restart | Owed::Elapse => self.want(name),
        }
        let Some(run) = run else {
            // A target has no run that would say that it is done: it is noted as for a call.
            return self.wait_for_start(name, None, oneshot::channel().0);
        };
        let state = self.system.state(name);
        let is_stopping = state.is_some_and(|state| matches!(state.what, Shown::Stopping(_)));
        if owed != Owed::Restart && !is_stopping {
            return self.note_done(name, asked);
        }
        self.system.renew(&Target::from(name));
        if let Some(services) = &mut self.services {
            services.again.insert(name.clone(), run);
        }
    }
}
