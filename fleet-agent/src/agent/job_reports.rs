//! Facts about the jobs of this machine that the publisher adds to the states of their units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fleet_core::journal::{JournalQuery, Since};
use fleet_core::unit::LoadState;
use fleet_core::{ActiveState, Generation, TargetState, Timestamp};
use fleet_unitfile::UnitName;

use crate::journal::JournalReader;
use crate::{ChangeReceiver, ChangeSender, Clock, ManagedUnit, wall_time};

/// Number of lines of output that are reported with the end of an attempt.
const OUTPUT_LINES: usize = 10;

/// Maximum length of such a line, in bytes. The store keeps these lines for ten attempts.
const OUTPUT_LINE_BYTES: usize = 240;

/// Maximum wait for the output of one attempt.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Facts about the jobs of this machine.
#[derive(Default)]
pub(crate) struct JobReports {
    journals: Option<Arc<dyn JournalReader>>,
    facts: Mutex<Facts>,
    feed: ChangeSender,
}

#[derive(Default)]
struct Facts {
    jobs: BTreeSet<UnitName>,
    /// Attempts that an earlier daemon has recorded, and whose outcome is unknown.
    lost: BTreeMap<UnitName, Generation>,
    /// Time at which this daemon has begun the last attempt, by the wall clock.
    begun: BTreeMap<UnitName, Timestamp>,
}

impl JobReports {
    pub(crate) fn new(journals: Option<Arc<dyn JournalReader>>) -> Self {
        Self { journals, ..Self::default() }
    }

    pub(crate) fn changes(&self) -> ChangeReceiver {
        self.feed.subscribe()
    }

    /// Replaces the jobs of this machine, and the attempts that are lost.
    pub(crate) fn update(&self, jobs: BTreeSet<UnitName>, lost: BTreeMap<UnitName, Generation>) {
        let mut facts = self.lock();
        facts.begun.retain(|unit, _| jobs.contains(unit));
        let new: Vec<UnitName> = jobs.difference(&facts.jobs).cloned().collect();
        facts.jobs = jobs;
        let before = std::mem::replace(&mut facts.lost, lost.clone());
        drop(facts);
        let changed = |unit: &&UnitName| before.get(*unit) != lost.get(*unit);
        let changed = before.keys().chain(lost.keys()).filter(changed);
        changed.chain(&new).for_each(|unit| self.feed.report(unit));
    }

    /// Records that attempts of these jobs begin now.
    pub(crate) fn begin<'a>(&self, jobs: impl Iterator<Item = &'a UnitName>) {
        let now = wall_time();
        self.lock().begun.extend(jobs.map(|unit| (unit.clone(), now)));
    }

    /// Returns the attempt of a job whose outcome is unknown.
    pub(crate) fn lost_attempt(&self, unit: &UnitName) -> Option<Generation> {
        self.lock().lost.get(unit).copied()
    }

    /// Completes the state of a job that is requested to run and inactive, without a result.
    ///
    /// If the service manager still waits with the start, the attempt is under way. Otherwise it
    /// has ended while no daemon ran: systemd forgets such a unit, unless it has failed.
    pub(crate) fn complete(&self, unit: &mut ManagedUnit) {
        let state = &mut unit.state;
        let is_idle = unit.known.requested == TargetState::Launched
            && (state.load, state.active) == (LoadState::Loaded, ActiveState::Inactive)
            && state.result.is_none();
        let facts = self.lock();
        if !is_idle || !facts.jobs.contains(&unit.unit) {
            return;
        }
        if unit.waits_for.is_some() {
            (state.active, state.sub) = (ActiveState::Activating, "waiting".into());
        } else if !facts.begun.contains_key(&unit.unit) {
            // An attempt of this daemon may not have begun to run.
            state.result = Some("success".to_owned());
        }
    }

    /// Returns the last lines of output of a job that has ended; none for any other unit.
    pub(crate) async fn output(&self, unit: &ManagedUnit, clock: &dyn Clock) -> Vec<String> {
        let has_ended = unit.known.requested == TargetState::Launched
            && unit.state.active.has_ended()
            && unit.state.result.is_some();
        let since = {
            let facts = self.lock();
            if !has_ended || !facts.jobs.contains(&unit.unit) {
                return Vec::new();
            }
            facts.begun.get(&unit.unit).copied().map(Since::Time)
        };
        let Some(journals) = &self.journals else { return Vec::new() };
        let query = JournalQuery::default().with_lines(OUTPUT_LINES).with_since(since);
        let read = async {
            let mut lines = Vec::new();
            let mut journal = journals.journal(&unit.unit, query).await.ok()?;
            while let Some(line) = journal.next().await {
                lines.push(shortened(&line).to_owned());
            }
            Some(lines)
        };
        // The end of the attempt matters more than its output.
        let lines = tokio::select! {
            biased;
            lines = read => lines,
            () = clock.sleep(OUTPUT_TIMEOUT) => None,
        };
        lines.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the beginning of a line, cut between characters.
fn shortened(line: &str) -> &str {
    let mut ends = 0..=line.len().min(OUTPUT_LINE_BYTES);
    &line[..ends.rfind(|end| line.is_char_boundary(*end)).unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use fleet_core::{Epoch, KnownUnit, SystemdState};
    use fleet_unitfile::UnitFile;

    use super::*;

    /// Regression: a queued start counted as a success, after a restart of the daemon.
    #[test]
    fn idle_job_is_waiting_or_has_ended_without_a_daemon() {
        let reports = JobReports::default();
        let job: UnitName = "job.service".parse().expect("it is a name");
        reports.update([job.clone()].into(), BTreeMap::new());
        let (hash, epoch) = (UnitFile::default().hash(), Epoch(3));
        let known =
            KnownUnit { hash, requested: TargetState::Launched, epoch, generation: Generation(41) };
        let completed = |waits_for: Option<&str>| {
            let mut unit = ManagedUnit::new(job.clone(), known, SystemdState::loaded());
            unit.waits_for = waits_for.map(str::to_owned);
            reports.complete(&mut unit);
            (unit.state.active, unit.state.result)
        };
        let ended = (ActiveState::Inactive, Some("success".to_owned()));
        assert_eq!(completed(None), ended);
        assert_eq!(completed(Some("waits for a.service")), (ActiveState::Activating, None));
        reports.begin([&job].into_iter());
        assert_eq!(completed(None), (ActiveState::Inactive, None), "it has just been requested");
    }

    #[test]
    fn line_of_output_is_cut_between_characters() {
        let long = "ä".repeat(OUTPUT_LINE_BYTES);
        assert_eq!(shortened(&long).len(), OUTPUT_LINE_BYTES);
        assert_eq!(shortened(&long[..6]), "äää");
        assert_eq!(shortened(&format!("a{long}")).len(), OUTPUT_LINE_BYTES - 1);
    }
}
