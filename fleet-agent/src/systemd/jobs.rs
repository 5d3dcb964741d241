//! Jobs requested from systemd, and the signals of their ends.
//!
//! systemd returns a job's path in the response to the call that requests the job. The signal of
//! the job's end may be read before that response, when the requester of the job is not yet known.
//! So each call is registered before it is sent. Until its response arrives, the ends of all jobs
//! of the unit are recorded. `connection.rs` reads the signals, and `refresh.rs` finds the ends of
//! jobs whose signals were missed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_unitfile::{Severity, UnitFile, UnitName, UnitType};
use tokio::sync::oneshot;

use super::state::ObservedState;
use crate::ServiceError;

/// Result of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// The result reported by systemd: `done`, `failed`, `canceled`…
    Result(String),
    /// The job is over, but the signal with its result was missed.
    Unknown,
}

/// All jobs with a waiting caller.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Per unit in systemd: calls without a response yet, and jobs that have ended meanwhile.
    call: BTreeMap<UnitName, (usize, BTreeMap<String, String>)>,
    /// Per job: its unit in systemd, and the waiting caller.
    waiting: BTreeMap<String, (UnitName, oneshot::Sender<JobEnd>)>,
}

/// A registered call that requests a job of a unit.
#[derive(Debug)]
pub(crate) struct PendingCall<'a> {
    jobs: &'a Jobs,
    unit: UnitName,
}

impl Jobs {
    /// Registers a call, before it is sent.
    pub(crate) fn begin_call(&self, unit: &UnitName) -> PendingCall<'_> {
        let unit = unit.systemd_name();
        self.lock().call.entry(unit.clone()).or_default().0 += 1;
        PendingCall { jobs: self, unit }
    }

    /// Records the end of a job. Returns whether this daemon has requested the job, or may have
    /// done so.
    pub(crate) fn on_removed(&self, path: &str, unit: &str, result: &str) -> bool {
        let mut state = self.lock();
        if let Some((_, waiting)) = state.waiting.remove(path) {
            // The receiver may be gone.
            drop(waiting.send(JobEnd::Result(result.to_owned())));
            return true;
        }
        let Some((_, ended)) = state.call.get_mut(unit) else { return false };
        ended.insert(path.to_owned(), result.to_owned());
        true
    }

    /// Returns the paths of all jobs with a waiting caller.
    pub(crate) fn waited_for(&self) -> Vec<String> {
        let mut state = self.lock();
        state.waiting.retain(|_, (_, waiting)| !waiting.is_closed());
        state.waiting.keys().cloned().collect()
    }

    /// Whether a caller waits for a job of the unit.
    pub(crate) fn is_awaited(&self, unit: &UnitName) -> bool {
        let (state, unit) = (self.lock(), unit.systemd_name());
        state.waiting.values().any(|(of, waiting)| *of == unit && !waiting.is_closed())
    }

    /// Records that a job is gone and its signal was missed.
    pub(crate) fn on_gone(&self, path: &str) {
        if let Some((_, waiting)) = self.lock().waiting.remove(path) {
            drop(waiting.send(JobEnd::Unknown));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingCall<'_> {
    /// Returns a receiver for the result of the job.
    pub(crate) fn wait_for(self, path: String) -> oneshot::Receiver<JobEnd> {
        let (sender, end) = oneshot::channel();
        let mut state = self.jobs.lock();
        let ended = state.call.get_mut(&self.unit).and_then(|(_, ended)| ended.remove(&path));
        match ended {
            Some(result) => drop(sender.send(JobEnd::Result(result))),
            None => drop(state.waiting.insert(path, (self.unit.clone(), sender))),
        }
        drop(state);
        end
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        let mut state = self.jobs.lock();
        if let Some((count, _)) = state.call.get_mut(&self.unit) {
            *count -= 1;
            if *count == 0 {
                state.call.remove(&self.unit);
            }
        }
    }
}

/// Returns the error for a unit file that systemd or podman has refused. The reason is the first
/// error that fleet's own check finds. If the check finds none, the reason is `refusal`, which is
/// their message and contains few details.
pub(crate) fn bad_file(unit: &UnitName, file: &UnitFile, refusal: String) -> ServiceError {
    let findings = file.check(unit);
    let fatal = findings.iter().find(|finding| finding.severity() == Severity::Error);
    let (line, problem) = match fatal {
        Some(finding) if finding.help().is_empty() => {
            (finding.location().line, finding.message().to_owned())
        }
        Some(finding) => {
            (finding.location().line, format!("{}: {}", finding.message(), finding.help()))
        }
        None => (0, refusal),
    };
    ServiceError::BadSetting { unit: unit.clone(), line, problem }
}

/// Returns the reason why a start failed, derived from the result of its job and the state of the
/// unit.
pub(crate) fn start_problem(unit: &UnitName, result: &str, observed: &ObservedState) -> String {
    match result {
        // systemd refuses such a unit without a failed state.
        "failed" if triggers(unit) && !observed.has_failed() => {
            "systemd refuses it without a reason: see systemd's journal".to_owned()
        }
        "failed" => observed.failure(),
        "dependency" => "a unit that it requires did not start".to_owned(),
        "timeout" => "its start exceeded the timeout of its job".to_owned(),
        "canceled" => "a later request has cancelled it".to_owned(),
        "skipped" => "systemd skipped it, since one of its conditions does not hold".to_owned(),
        "assert" => "one of its assertions does not hold".to_owned(),
        "unsupported" => "this machine cannot run units of its type".to_owned(),
        "once" => "it runs only once per boot, and already has".to_owned(),
        other => format!("the result of its start is {other:?}"),
    }
}

/// Whether a unit's only purpose is to start another.
pub(crate) fn triggers(unit: &UnitName) -> bool {
    matches!(unit.unit_type(), UnitType::Path | UnitType::Socket | UnitType::Timer)
}

/// Returns why a reload failed, by the result of its job.
pub(crate) fn reload_problem(result: &str) -> String {
    match result {
        "failed" => "its reload command failed: see its log for the reason".to_owned(),
        "timeout" => "it exceeded the timeout of its job".to_owned(),
        "canceled" => "a later request has cancelled it".to_owned(),
        // It has ended since it was checked.
        "invalid" => "it is not active: start it".to_owned(),
        other => format!("the result of its reload is {other:?}"),
    }
}

/// Returns why a stop failed, by the result of its job.
pub(crate) fn stop_problem(result: &str) -> String {
    match result {
        "timeout" => "its stop exceeded the timeout of its job".to_owned(),
        "canceled" => "a later request has cancelled it".to_owned(),
        other => format!("the result of its stop is {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bus::States;
    use super::*;

    fn end(mut receiver: oneshot::Receiver<JobEnd>) -> Option<JobEnd> {
        receiver.try_recv().ok()
    }

    #[test]
    fn job_end_is_matched_before_and_after_response() {
        let jobs = Jobs::default();
        let unit: UnitName = "a.service".parse().expect("it is a name");
        let result = |result: &str| Some(JobEnd::Result(result.to_owned()));

        let call = jobs.begin_call(&unit);
        assert!(jobs.on_removed("/job/1", "a.service", "failed"));
        assert!(!jobs.on_removed("/job/2", "b.service", "done"), "it was not requested");
        assert_eq!(end(call.wait_for("/job/1".into())), result("failed"));

        let receiver = jobs.begin_call(&unit).wait_for("/job/2".into());
        jobs.on_removed("/job/3", "a.service", "done");
        assert_eq!(jobs.waited_for(), ["/job/2"]);
        assert!(jobs.is_awaited(&unit));
        jobs.on_removed("/job/2", "a.service", "canceled");
        assert_eq!(end(receiver), result("canceled"));

        let receiver = jobs.begin_call(&unit).wait_for("/job/4".into());
        jobs.on_gone("/job/4");
        assert_eq!(end(receiver), Some(JobEnd::Unknown));

        drop(jobs.begin_call(&unit).wait_for("/job/5".into()));
        assert!(!jobs.is_awaited(&unit), "no caller waits");
        assert_eq!(jobs.waited_for(), [""; 0], "no caller waits");
        assert_eq!(jobs.lock().call.len(), 0, "no call is registered");
    }

    fn observed(active: &str) -> ObservedState {
        let mut observed = ObservedState::default();
        let [load, active, sub] = ["loaded", active, ""].map(str::to_owned);
        let (name, job) = (String::new(), String::new());
        observed.on_states(&States { name, load, active, sub, job }, true);
        observed
    }

    #[test]
    fn failed_start_has_a_reason() {
        let rows = [
            ("a.service", "failed", "failed", "systemd gives no reason"),
            ("a.timer", "failed", "failed", "systemd gives no reason"),
            (
                "a.timer",
                "failed",
                "inactive",
                "systemd refuses it without a reason: see systemd's journal",
            ),
            ("a.service", "dependency", "inactive", "a unit that it requires did not start"),
            ("a.service", "canceled", "inactive", "a later request has cancelled it"),
            ("a.service", "odd", "inactive", "the result of its start is \"odd\""),
        ];
        for (unit, result, active, expected) in rows {
            let unit: UnitName = unit.parse().expect("it is a name");
            assert_eq!(start_problem(&unit, result, &observed(active)), expected);
        }
    }

    #[test]
    fn bad_file_is_refused_with_its_line() {
        let unit: UnitName = "a.service".parse().expect("it is a name");
        let refused = |text: &str| {
            let file = UnitFile::parse(text).expect("it is well formed");
            bad_file(&unit, &file, "refused".to_owned()).to_string()
        };
        assert_eq!(
            refused("[Unit]\n[Service]\nRestart=always\n"),
            "a.service, line 2: the service has nothing to run: add ExecStart= to [Service]"
        );
        assert_eq!(refused("[Service]\nExecStart=/bin/true\n"), "a.service: refused");
    }
}
