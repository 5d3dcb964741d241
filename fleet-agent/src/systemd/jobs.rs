//! The jobs that systemd was asked for, and the news of their ends.
//!
//! systemd tells a job's path in the answer to the call, and its end in a signal that may be read
//! before the answer is. So whoever is about to ask says so, and ends are kept for who does.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_unitfile::UnitName;
use tokio::sync::oneshot;

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// In systemd's word: `done`, `failed`, `canceled`...
    Result(String),
    /// It is over, and nobody heard how.
    Unknown,
}

/// All jobs that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many calls about a unit have no answer yet, and what ended meanwhile.
    call: BTreeMap<UnitName, (usize, BTreeMap<String, String>)>,
    waiting: BTreeMap<String, oneshot::Sender<JobEnd>>,
}

/// Somebody is call for a job about a unit.
#[derive(Debug)]
pub(crate) struct PendingCall<'a> {
    jobs: &'a Jobs,
    unit: UnitName,
}

impl Jobs {
    /// Comes before the call that asks for a job.
    pub(crate) fn begin_call(&self, unit: &UnitName) -> PendingCall<'_> {
        self.lock().call.entry(unit.clone()).or_default().0 += 1;
        PendingCall { jobs: self, unit: unit.clone() }
    }

    /// A job is over. Returns whether it may be one that was asked for here.
    pub(crate) fn on_removed(&self, path: &str, unit: &str, result: &str) -> bool {
        let mut state = self.lock();
        if let Some(waiting) = state.waiting.remove(path) {
            // Who waited may have gone.
            drop(waiting.send(JobEnd::Result(result.to_owned())));
            return true;
        }
        let Some((_, ended)) = state.call.get_mut(unit) else { return false };
        ended.insert(path.to_owned(), result.to_owned());
        true
    }

    /// The paths of all jobs that are waited for.
    pub(crate) fn waited_for(&self) -> Vec<String> {
        let mut state = self.lock();
        state.waiting.retain(|_, waiting| !waiting.is_closed());
        state.waiting.keys().cloned().collect()
    }

    /// A job is gone, and its end was not heard.
    pub(crate) fn on_gone(&self, path: &str) {
        if let Some(waiting) = self.lock().waiting.remove(path) {
            drop(waiting.send(JobEnd::Unknown));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingCall<'_> {
    /// Tells the end of the job, once it has come.
    pub(crate) fn wait_for(self, path: String) -> oneshot::Receiver<JobEnd> {
        let (sender, end) = oneshot::channel();
        let mut state = self.jobs.lock();
        let ended = state.call.get_mut(&self.unit).and_then(|(_, ended)| ended.remove(&path));
        match ended {
            Some(result) => drop(sender.send(JobEnd::Result(result))),
            None => drop(state.waiting.insert(path, sender)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn end(mut receiver: oneshot::Receiver<JobEnd>) -> Option<JobEnd> {
        receiver.try_recv().ok()
    }

    #[test]
    fn an_end_is_heard_before_and_after_the_answer() {
        let jobs = Jobs::default();
        let unit: UnitName = "a.service".parse().expect("it is a name");
        let result = |result: &str| Some(JobEnd::Result(result.to_owned()));

        let call = jobs.begin_call(&unit);
        assert!(jobs.on_removed("/job/1", "a.service", "failed"));
        assert!(!jobs.on_removed("/job/2", "b.service", "done"), "nobody asked for it");
        assert_eq!(end(call.wait_for("/job/1".into())), result("failed"));

        let receiver = jobs.begin_call(&unit).wait_for("/job/2".into());
        jobs.on_removed("/job/3", "a.service", "done");
        assert_eq!(jobs.waited_for(), ["/job/2"]);
        jobs.on_removed("/job/2", "a.service", "canceled");
        assert_eq!(end(receiver), result("canceled"));

        let receiver = jobs.begin_call(&unit).wait_for("/job/4".into());
        jobs.on_gone("/job/4");
        assert_eq!(end(receiver), Some(JobEnd::Unknown));

        drop(jobs.begin_call(&unit).wait_for("/job/5".into()));
        assert_eq!(jobs.waited_for(), [""; 0], "nobody waits any more");
        assert_eq!(jobs.lock().call.len(), 0, "nobody asks any more");
    }
}
