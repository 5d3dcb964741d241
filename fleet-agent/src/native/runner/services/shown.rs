//! How fleet is shown its units: in systemd's words.

use std::sync::Arc;

use fleet_core::graph::{Name, Retry, Shown, State, Waiting};
use fleet_core::{ActiveState, LoadState, SystemdState};

use super::super::lead::{Lead, lock};
use super::super::member::Member;
use super::waiters::gave_up;
use super::{Seen, Services};
use crate::ManagedUnit;
use crate::native::life::{Memory, Phase};
use crate::native::outcome::Outcome;
use crate::native::words::state_of;

impl Lead {
    /// Shows a unit as it is now, and tells everybody if that is new.
    pub(in super::super) fn show(&self, name: &Name) {
        let Some(Services { entries, shown, .. }) = &self.services else { return };
        let (Some(entry), Some(member)) = (entries.get(name), self.members.get(name)) else {
            return;
        };
        let state = self.system.state(name);
        let seen = Arc::new(Seen {
            unit: ManagedUnit {
                unit: entry.unit.clone(),
                known: entry.known(),
                state: state_of_unit(state.as_ref(), member),
            },
            asked: entry.asked,
            log: Arc::clone(&member.log),
            status: member.memory.status.clone(),
        });
        let before = lock(shown).insert(entry.unit.clone(), Arc::clone(&seen));
        if before.is_none_or(|before| before.unit != seen.unit) {
            self.machine.feed.report(&entry.unit);
        }
    }
}

/// While it runs a run knows best what it is doing; what follows its end is decided by the graph.
fn state_of_unit(state: Option<&State>, member: &Member) -> SystemdState {
    let memory = &*member.memory;
    let Some(state) = state.filter(|_| member.live.is_none()) else { return state_of(memory) };
    let plain = |active, sub| SystemdState {
        result: Some("success".to_owned()),
        ..SystemdState::new(LoadState::Loaded, active, sub)
    };
    let as_if = |phase| state_of(&Memory { phase, ..memory.clone() });
    match &state.what {
        // It runs nothing: a target.
        Shown::Active(_) => plain(ActiveState::Active, "active"),
        what if gave_up(what) => state_of(&member.given_up()),
        Shown::Failed { retry: Retry::At(_), .. } | Shown::Ended(Retry::At(_)) if state.needed => {
            as_if(Phase::AutoRestart)
        }
        Shown::Waiting(Waiting::Doomed(_)) => {
            SystemdState { result: Some("dependency".to_owned()), ..as_if(Phase::Dead) }
        }
        Shown::Waiting(_) => as_if(Phase::Dead),
        // Its run could not be begun, and does not count as failed yet.
        Shown::Starting => as_if(Phase::Start),
        _ => state_of(memory),
    }
}

impl Member {
    /// What it remembers once it was tried too often.
    pub(super) fn given_up(&self) -> Memory {
        let memory = Memory::clone(&self.memory);
        let restarts = memory.restarts.saturating_add(1);
        let outcome = Some(Outcome::StartLimitHit);
        match memory.outcome {
            Some(Outcome::StartLimitHit) => memory,
            _ => Memory { phase: Phase::Failed, outcome, restarts, ..memory },
        }
    }

    /// It is not tried again: that is what it remembers from now on.
    pub(super) fn give_up(&mut self) -> std::io::Result<()> {
        self.remember(self.given_up())
    }

    /// It is not to be tried again, because nobody wants it.
    pub(in super::super) fn rest(&mut self) {
        let memory = Memory { phase: Phase::Dead, ..Memory::clone(&self.memory) };
        if let Err(error) = self.remember(memory) {
            tracing::warn!(%error, "cannot record that a unit is not tried again");
        }
    }

    /// It is to run again, however its last run ended.
    pub(super) fn forget_end(&mut self) {
        if let Err(error) = self.remember(Memory::default()) {
            tracing::warn!(%error, "cannot record that a unit is to run again");
        }
    }

    /// What it remembers while no run of it goes on, in place of what its last run did.
    pub(in super::super) fn remember(&mut self, memory: Memory) -> std::io::Result<()> {
        if *self.memory == memory || self.live.is_some() {
            return Ok(());
        }
        self.memory = Arc::new(memory.clone());
        let Some(mut run) = self.directory.read_run()? else { return Ok(()) };
        run.memory = memory;
        self.directory.write_run(&run)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;
    use std::time::Duration;

    use fleet_unitfile::{UnitFile, UnitName};
    use rustix::process::{Pid, Signal, kill_process};
    use tokio::sync::oneshot;

    use super::super::{Entry, Is, Opened, ServicesConfig, name_of, open_services};
    use super::*;
    use crate::RunnerConfig;
    use crate::clock::pause;
    use crate::native::compile::compile;
    use crate::native::record::Asked;
    use crate::native::runner::lead::Request;

    /// Has something done between two turns of the lead, which hears of no run meanwhile.
    pub(in super::super) async fn ask<T: Send + 'static>(
        opened: &Opened,
        what: impl FnOnce(&mut Lead) -> T + Send + 'static,
    ) -> T {
        let (reply, answer) = oneshot::channel();
        let request: Request = Box::new(move |lead| drop(reply.send(what(lead))));
        assert!(opened.requests.send(request).await.is_ok(), "somebody leads");
        answer.await.expect("somebody leads")
    }

    pub(in super::super) async fn load(opened: &Opened, unit: &UnitName, text: &str) {
        let file = UnitFile::parse(text).expect("it is well formed");
        let compiled = compile(unit, &file, &opened.host).expect("it can be obeyed").unit;
        let directory = opened.machine.directory(unit.as_str());
        directory.begin_runs().expect("it can be written");
        directory.write_unit(file.source(), Asked::default()).expect("it can be written");
        let is = Is::Fit(Box::new(compiled));
        let entry = Entry::new(unit.clone(), file.hash(), Asked::default(), is);
        ask(opened, |lead| lead.load(entry)).await.expect("it is taken in");
    }

    fn start(generation: u64) -> Asked {
        Asked { generation, launched: true, ..Asked::default() }
    }

    pub(in super::super) async fn opened(home: &Path) -> Opened {
        let services = ServicesConfig {
            accept: BTreeSet::new(),
            external: BTreeMap::new(),
            max_starting: None,
        };
        let config = RunnerConfig { control_groups: false, ..RunnerConfig::new(home) };
        open_services(config, services).await.expect("it opens")
    }

    /// Kills the main process of a unit and waits until its run is over.
    fn have_run_end(lead: &Lead, unit: &Name) {
        let member = &lead.members[unit];
        let main = member.memory.main.expect("it has a main process").pid;
        let main = i32::try_from(main).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(main, Signal::KILL).expect("it runs");
        let run = member.live.as_ref().expect("it has a run");
        let is_over = |_| {
            pause(Duration::from_millis(1));
            run.task.is_finished()
        };
        assert!((0..60_000).any(is_over), "its run does not end");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_done_is_written_down_where_the_run_had_ended_before_it_was_told() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let opened = opened(home.path()).await;
        let unit: UnitName = "a.service".parse().expect("it is a name");
        load(&opened, &unit, "[Service]\nExecStart=/bin/sleep 1000\n").await;
        let (reply, answer) = oneshot::channel();
        let name = unit.clone();
        ask(&opened, move |lead| lead.start(&name, start(1), reply)).await;
        answer.await.expect("it is answered").expect("it starts");
        let (reply, answer) = oneshot::channel();
        let name = unit.clone();
        let ended = move |lead: &mut Lead| {
            have_run_end(lead, &name_of(&name));
            // Nobody has heard of that yet.
            lead.start(&name, start(2), reply);
        };
        ask(&opened, ended).await;
        answer.await.expect("it is answered").expect_err("it has failed");
        let run = opened.machine.directory(unit.as_str()).read_run().expect("it can be read");
        assert_eq!(run.map(|run| run.asked), Some(start(2)), "the next daemon would start it");
        opened.lead.abort();
    }

    #[tokio::test]
    async fn a_unit_that_starts_again_is_not_shown_as_it_failed_before() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let opened = opened(home.path()).await;
        let unit: UnitName = "a.service".parse().expect("it is a name");
        load(&opened, &unit, "[Service]\nType=oneshot\nExecStart=/bin/false\n").await;
        let (reply, answer) = oneshot::channel();
        let name = unit.clone();
        ask(&opened, move |lead| lead.start(&name, start(1), reply)).await;
        answer.await.expect("it is answered").expect_err("it fails");
        let state = |seen: &Seen| {
            let state = &seen.unit.state;
            (state.active, state.sub.clone(), state.result.clone().unwrap_or_default())
        };
        let failed = state(&lock(&opened.showcase)[&unit]);
        assert_eq!(failed, (ActiveState::Failed, "failed".to_owned(), "exit-code".to_owned()));
        let (reply, answer) = oneshot::channel();
        let (name, shown) = (unit.clone(), opened.showcase.clone());
        let starting = ask(&opened, move |lead| {
            lead.start(&name, start(2), reply);
            lead.turn();
            state(&lock(&shown)[&name])
        });
        let starting = starting.await;
        assert_eq!(starting, (ActiveState::Activating, "start".to_owned(), "success".to_owned()));
        answer.await.expect("it is answered").expect_err("it fails again");
        opened.lead.abort();
    }
}
