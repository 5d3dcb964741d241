//! Checks that a service manager provides the guarantees of [`ServiceManager`], one function each.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::journal::JournalQuery;
use fleet_core::unit::ExitStatus;
use fleet_core::{ActiveState, Epoch, Generation, SystemdState, TargetState};
use fleet_unitfile::UnitName;

use super::{Harness, ManagerWithJournals, UnitKind};
use crate::journal::JournalReader;
use crate::{ManagedUnit, ServiceError, ServiceManager};

/// Time limit for everything that has to happen.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// Checks all guarantees in sequence, on one machine. Leaves no unit behind.
///
/// # Panics
///
/// If a guarantee is broken. The message describes the guarantee.
pub async fn conformance(harness: &dyn Harness) {
    let check = Check::open(harness).await;
    check.a_loaded_unit_is_known_and_does_not_run().await;
    check.loading_the_same_file_only_records_the_epoch().await;
    check.invalid_unit_is_refused_and_not_known().await;
    check.an_unloaded_unit_is_forgotten().await;
    check.calls_for_unknown_units_fail().await;
    check.started_unit_is_active_with_its_generation().await;
    check.a_start_leaves_an_active_unit_as_it_is().await;
    check.a_stopped_unit_stays_loaded().await;
    check.restart_starts_a_new_process().await;
    check.oneshot_start_ends_with_its_process().await;
    check.failed_oneshot_is_reported_and_counts_as_launched().await;
    check.exit_is_observed_and_start_is_a_new_attempt().await;
    check.unit_that_ignores_stop_is_killed().await;
    check.a_reload_leaves_a_unit_running().await;
    check.failed_reload_is_reported_and_leaves_unit_alone().await;
    check.a_start_begins_a_new_count_of_failures().await;
    check.units_do_not_wait_for_each_other().await;
    check.calls_for_one_unit_take_effect_in_order().await;
    check.units_are_listed_in_order().await;
    check.every_change_is_reported().await;
    check.the_last_lines_come_oldest_first().await;
    check.since_excludes_earlier_lines().await;
    check.journal_resumes_after_cursor().await;
    check.followed_journal_ends_with_its_unit().await;
    let check = check.end_of_daemon_changes_nothing().await;
    let left = check.manager.list().await.expect("list");
    assert_eq!(left, [], "the suite leaves no unit behind");
}

pub(super) struct Check<'a> {
    pub(super) harness: &'a dyn Harness,
    pub(super) manager: Arc<dyn ServiceManager>,
    pub(super) journals: Arc<dyn JournalReader>,
}

impl<'a> Check<'a> {
    async fn open(harness: &'a dyn Harness) -> Self {
        let ManagerWithJournals { manager, journals } = harness.open().await;
        Self { harness, manager, journals }
    }

    async fn a_loaded_unit_is_known_and_does_not_run(&self) {
        let unit = self.load("loaded.service", UnitKind::RunsForEver).await;
        let found = self.get(&unit).await;
        assert_eq!(found.unit, unit);
        assert_eq!(found.known.requested, TargetState::Loaded, "only loading was asked");
        let hash = self.harness.unit(&unit, UnitKind::RunsForEver).hash();
        assert_eq!((found.known.hash, found.known.epoch), (hash, Epoch(1)));
        assert_eq!(found.known.generation, Generation::ZERO, "it was never started");
        assert_eq!(found.state, SystemdState::loaded(), "a loaded unit does not run");
        self.unload(&unit).await;
    }

    async fn loading_the_same_file_only_records_the_epoch(&self) {
        let unit = self.run("again.service", UnitKind::RunsForEver).await;
        let before = self.get(&unit).await;
        let file = self.harness.unit(&unit, UnitKind::RunsForEver);
        self.manager.load(&unit, &file, Epoch(9)).await.expect("load again");
        let mut expected = before;
        expected.known.epoch = Epoch(9);
        assert_eq!(self.get(&unit).await, expected, "only the epoch changes");
        self.unload(&unit).await;
    }

    async fn invalid_unit_is_refused_and_not_known(&self) {
        let unit = name("broken.service");
        let file = self.harness.unit(&unit, UnitKind::Broken);
        let error = self.manager.load(&unit, &file, Epoch(1)).await.expect_err("it is refused");
        assert!(matches!(error, ServiceError::BadSetting { .. }), "a bad setting, not {error}");
        assert_eq!(self.manager.get(&unit).await.expect("get"), None, "it is not known");
    }

    async fn an_unloaded_unit_is_forgotten(&self) {
        let unit = self.run("unloaded.service", UnitKind::RunsForEver).await;
        self.unload(&unit).await;
        assert_eq!(self.manager.get(&unit).await.expect("get"), None, "it is not known");
        self.unload(&unit).await;
        let unit = self.load("unloaded.service", UnitKind::RunsForEver).await;
        let found = self.get(&unit).await;
        assert_eq!(found.known.generation, Generation::ZERO, "nothing of it is remembered");
        self.unload(&unit).await;
    }

    async fn calls_for_unknown_units_fail(&self) {
        let unit = name("unknown.service");
        let query = JournalQuery::default();
        for result in [
            self.manager.start(&unit, Generation(1)).await,
            self.manager.restart(&unit, Generation(1)).await,
            self.manager.stop(&unit).await,
            self.manager.reload_unit(&unit).await,
            self.journals.journal(&unit, query).await.map(drop),
        ] {
            let error = result.expect_err("it is not known");
            assert!(matches!(error, ServiceError::NotLoaded { .. }), "not loaded, not {error}");
        }
    }

    async fn started_unit_is_active_with_its_generation(&self) {
        let unit = self.load("started.service", UnitKind::RunsForEver).await;
        self.manager.start(&unit, Generation(7)).await.expect("start");
        let found = self.get(&unit).await;
        assert_eq!(found.state.active, ActiveState::Active, "its start is over");
        assert!(found.state.main_pid.is_some(), "it has a main process");
        assert_eq!(found.known.requested, TargetState::Launched);
        assert_eq!(found.known.generation, Generation(7));
        self.unload(&unit).await;
    }

    async fn a_start_leaves_an_active_unit_as_it_is(&self) {
        let unit = self.run("active.service", UnitKind::RunsForEver).await;
        let before = self.get(&unit).await.state;
        self.manager.start(&unit, Generation(2)).await.expect("start again");
        let after = self.get(&unit).await;
        assert_eq!(after.state, before, "the same process runs");
        assert_eq!(after.known.generation, Generation(2), "the generation is remembered");
        self.unload(&unit).await;
    }

    async fn a_stopped_unit_stays_loaded(&self) {
        let unit = self.run("stopped.service", UnitKind::RunsForEver).await;
        self.manager.stop(&unit).await.expect("stop");
        let found = self.get(&unit).await;
        assert_eq!(found.state.active, ActiveState::Inactive, "its stop is over");
        assert_eq!(found.state.main_pid, None);
        assert_eq!(found.known.requested, TargetState::Loaded);
        self.manager.stop(&unit).await.expect("a stop of a stopped unit is no error");
        self.unload(&unit).await;
    }

    async fn restart_starts_a_new_process(&self) {
        let unit = self.run("restarted.service", UnitKind::RunsForEver).await;
        let before = self.get(&unit).await.state.main_pid;
        self.manager.restart(&unit, Generation(3)).await.expect("restart");
        let found = self.get(&unit).await;
        assert_eq!(found.state.active, ActiveState::Active);
        assert_ne!(found.state.main_pid, before, "another process runs");
        assert_eq!(found.known.generation, Generation(3));
        self.manager.stop(&unit).await.expect("stop");
        self.manager.restart(&unit, Generation(4)).await.expect("restart a stopped unit");
        assert_eq!(self.get(&unit).await.state.active, ActiveState::Active);
        self.unload(&unit).await;
    }

    async fn oneshot_start_ends_with_its_process(&self) {
        let unit = self.run("task.service", UnitKind::Succeeds).await;
        let state = self.get(&unit).await.state;
        assert_eq!(state.active, ActiveState::Inactive, "it is done");
        assert_eq!(state.result.as_deref(), Some("success"));
        self.unload(&unit).await;
    }

    async fn failed_oneshot_is_reported_and_counts_as_launched(&self) {
        let good = self.run("good.service", UnitKind::RunsForEver).await;
        let before = self.get(&good).await;
        let unit = self.load("failing.service", UnitKind::Fails).await;
        let error = self.manager.start(&unit, Generation(5)).await.expect_err("it fails");
        assert!(matches!(error, ServiceError::StartFailed { .. }), "start failed, not {error}");
        let found = self.get(&unit).await;
        assert_eq!(found.state.active, ActiveState::Failed);
        assert_eq!(found.state.exit, Some(ExitStatus::Code(3)));
        assert_eq!(found.known.requested, TargetState::Launched, "it counts as launched");
        assert_eq!(found.known.generation, Generation(5));
        assert_eq!(self.get(&good).await, before, "another unit is left alone");
        self.unload(&unit).await;
        self.unload(&good).await;
    }

    async fn exit_is_observed_and_start_is_a_new_attempt(&self) {
        let unit = self.run("ended.service", UnitKind::ExitsWith3).await;
        let failed = |state: &SystemdState| state.active == ActiveState::Failed;
        let state = self.wait_for(&unit, failed).await;
        assert_eq!(state.exit, Some(ExitStatus::Code(3)));
        assert_eq!(state.result.as_deref(), Some("exit-code"));
        let asked = self.get(&unit).await.known.requested;
        assert_eq!(asked, TargetState::Launched, "the request does not change");
        self.manager.start(&unit, Generation(1)).await.expect("a failed unit may try again");
        self.wait_for(&unit, failed).await;
        self.unload(&unit).await;
    }

    async fn unit_that_ignores_stop_is_killed(&self) {
        let unit = self.run("stubborn.service", UnitKind::IgnoresStop).await;
        self.manager.stop(&unit).await.expect("stop");
        assert_eq!(self.get(&unit).await.state.main_pid, None, "no process is left");
        self.unload(&unit).await;
    }

    async fn a_reload_leaves_a_unit_running(&self) {
        if !self.harness.can_reload() {
            return;
        }
        let unit = self.run("reloading.service", UnitKind::Reloads).await;
        let before = self.get(&unit).await;
        self.manager.reload_unit(&unit).await.expect("it can reload");
        let query = JournalQuery::default().with_follow(true);
        let mut journal = self.journals.journal(&unit, query).await.expect("a journal");
        let line = tokio::time::timeout(DEADLINE, journal.next()).await.expect("a line");
        assert_eq!(line.as_deref(), Some("reloaded"), "its reload command has run");
        let active = |state: &SystemdState| state.active == ActiveState::Active;
        self.wait_for(&unit, active).await;
        assert_eq!(self.get(&unit).await, before, "the same process runs");
        self.unload(&unit).await;
    }

    async fn failed_reload_is_reported_and_leaves_unit_alone(&self) {
        let unit = self.run("unreloading.service", UnitKind::RunsForEver).await;
        let before = self.get(&unit).await;
        let error = self.manager.reload_unit(&unit).await.expect_err("it cannot reload");
        assert!(matches!(error, ServiceError::ReloadFailed { .. }), "not reloaded, not {error}");
        assert_eq!(self.get(&unit).await, before, "it keeps running");
        self.unload(&unit).await;
        let unit = self.load("reloading.service", UnitKind::Reloads).await;
        let error = self.manager.reload_unit(&unit).await.expect_err("it does not run");
        assert!(matches!(error, ServiceError::ReloadFailed { .. }), "not reloaded, not {error}");
        assert_eq!(self.get(&unit).await.state.active, ActiveState::Inactive);
        self.unload(&unit).await;
    }

    /// Checks that each start resets the count of recent starts, by starting a failing unit twenty
    /// times. Without the reset, a service manager would refuse the start after a few attempts.
    async fn a_start_begins_a_new_count_of_failures(&self) {
        let unit = self.load("failing.service", UnitKind::Fails).await;
        for generation in 1..=20 {
            let error = self.manager.start(&unit, Generation(generation)).await;
            let error = error.expect_err("it fails");
            assert!(matches!(error, ServiceError::StartFailed { .. }), "start failed, not {error}");
            let state = self.get(&unit).await.state;
            assert_eq!(state.exit, Some(ExitStatus::Code(3)), "attempt {generation} was made");
            assert_eq!(state.result.as_deref(), Some("exit-code"), "attempt {generation}");
        }
        self.unload(&unit).await;
    }

    async fn units_do_not_wait_for_each_other(&self) {
        let slow = self.run("slow.service", UnitKind::HangsInStop).await;
        let manager = Arc::clone(&self.manager);
        let stopped = slow.clone();
        let stop = tokio::spawn(async move { manager.stop(&stopped).await });
        self.wait_for(&slow, |state| state.active == ActiveState::Deactivating).await;
        let quick = self.run("quick.service", UnitKind::RunsForEver).await;
        self.unload(&quick).await;
        assert!(!stop.is_finished(), "the slow one still stops");
        self.harness.release(&slow);
        stop.await.expect("no panic").expect("stop");
        self.unload(&slow).await;
    }

    async fn calls_for_one_unit_take_effect_in_order(&self) {
        let unit = self.load("ordered.service", UnitKind::RunsForEver).await;
        // All are called before any has returned; a start that is cancelled may return an error.
        let (_, stopped, started) = tokio::join!(
            self.manager.start(&unit, Generation(1)),
            self.manager.stop(&unit),
            self.manager.start(&unit, Generation(2)),
        );
        stopped.expect("stop");
        started.expect("the last start");
        let found = self.get(&unit).await;
        assert_eq!(found.state.active, ActiveState::Active, "the last call decides");
        assert_eq!(found.known.generation, Generation(2));
        self.unload(&unit).await;
    }

    async fn units_are_listed_in_order(&self) {
        let mut units = Vec::new();
        for unit in ["b.service", "c.service", "a.service"] {
            units.push(self.load(unit, UnitKind::RunsForEver).await);
        }
        units.sort();
        let listed = self.manager.list().await.expect("list");
        let names: Vec<_> = listed.iter().map(|found| found.unit.clone()).collect();
        assert_eq!(names, units);
        assert_eq!(listed[0], self.get(&units[0]).await, "list and get agree");
        for unit in &units {
            self.unload(unit).await;
        }
    }

    async fn every_change_is_reported(&self) {
        let unit = self.load("reported.service", UnitKind::RunsForEver).await;
        let mut changes = self.manager.changes();
        self.manager.start(&unit, Generation(1)).await.expect("start");
        let reported = tokio::time::timeout(DEADLINE, changes.next()).await.expect("a change");
        assert!(reported.contains(&unit), "a start is a change");
        self.unload(&unit).await;
        let reported = tokio::time::timeout(DEADLINE, changes.next()).await.expect("a change");
        assert!(reported.contains(&unit), "an unload is a change");
    }

    async fn end_of_daemon_changes_nothing(self) -> Self {
        let running = self.run("survivor.service", UnitKind::RunsForEver).await;
        let stopped = self.load("sleeper.service", UnitKind::RunsForEver).await;
        let (wrote, cursor) = self.cursor_of_two().await;
        let before = self.manager.list().await.expect("list");
        let Self { harness, manager, journals } = self;
        drop((manager, journals));
        let check = Self::open(harness).await;
        let after = check.manager.list().await.expect("list");
        assert_eq!(undated(after), undated(before), "all is as it was");
        check.journal_still_resumes(&wrote, cursor).await;
        check.unload(&wrote).await;
        check.manager.stop(&running).await.expect("a recovered unit can be stopped");
        assert_eq!(check.get(&running).await.state.main_pid, None);
        check.manager.start(&running, Generation(2)).await.expect("and started");
        check.unload(&running).await;
        check.unload(&stopped).await;
        check
    }

    pub(super) async fn load(&self, unit: &str, kind: UnitKind) -> UnitName {
        let unit = name(unit);
        let file = self.harness.unit(&unit, kind);
        self.manager.load(&unit, &file, Epoch(1)).await.expect("load");
        self.manager.reload().await.expect("reload");
        unit
    }

    pub(super) async fn run(&self, unit: &str, kind: UnitKind) -> UnitName {
        let unit = self.load(unit, kind).await;
        self.manager.start(&unit, Generation(1)).await.expect("start");
        unit
    }

    pub(super) async fn unload(&self, unit: &UnitName) {
        self.manager.unload(unit).await.expect("unload");
    }

    async fn get(&self, unit: &UnitName) -> ManagedUnit {
        self.manager.get(unit).await.expect("get").expect("the unit is known")
    }

    async fn wait_for(
        &self,
        unit: &UnitName,
        good: impl Fn(&SystemdState) -> bool,
    ) -> SystemdState {
        let mut changes = self.manager.changes();
        let wait = async {
            loop {
                let state = self.get(unit).await.state;
                if good(&state) {
                    return state;
                }
                changes.next().await;
            }
        };
        tokio::time::timeout(DEADLINE, wait).await.expect("the state comes about in time")
    }
}

fn name(text: &str) -> UnitName {
    text.parse().expect("the names of the suite are well formed")
}

/// Removes the times since which units have their states. A restarted manager may know them less
/// precisely.
fn undated(mut units: Vec<ManagedUnit>) -> Vec<ManagedUnit> {
    units.iter_mut().for_each(|unit| unit.state.since = None);
    units
}
