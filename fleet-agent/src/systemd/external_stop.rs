//! Pure: no I/O, no clock. Detects that a unit was stopped outside of fleet, for example by
//! `systemctl stop`.
//!
//! systemd reports neither the type nor the requester of a finished job, so the stop is detected by
//! the unit's state. A job has stopped the unit if all of the following hold:
//!
//! - The unit was up when the job began.
//! - Fleet did not request the job.
//! - The unit is down when the job is over.
//!
//! A unit that ends by itself does so without a job. A unit that its timer starts is not up when
//! the job begins.

/// Detects external stops of one unit, from the jobs that this daemon has observed.
#[derive(Debug, Default)]
pub(crate) struct ExternalStopDetector {
    /// The unit's current job, if the unit was up when that job began; otherwise `None`. A unit has
    /// only one job at a time.
    job: Option<String>,
    stopped: bool,
}

impl ExternalStopDetector {
    /// Records that a job of the unit has begun.
    pub(crate) fn on_job(&mut self, job: &str, is_up: bool) {
        self.job = is_up.then(|| job.to_owned());
    }

    /// Records that a job of the unit is over. Returns whether this job has stopped the unit and
    /// was not requested by fleet.
    pub(crate) fn on_job_end(&mut self, job: &str, is_ours: bool, is_down: bool) -> bool {
        let came = self.job.take_if(|came| came.as_str() == job).is_some();
        let stops = came && !is_ours && is_down;
        self.stopped |= stops;
        stops
    }

    /// Clears the stop: the unit is up, or fleet has requested something else.
    pub(crate) fn reset(&mut self) {
        self.stopped = false;
    }

    /// Whether the unit was stopped by others, and still is.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_stop_is_detected_by_job_effect() {
        // Whether it was up when the job began, whether the job is fleet's, whether it is down
        // afterwards.
        let rows = [
            ((true, false, true), true, "stopped by others"),
            ((true, true, true), false, "fleet stopped it"),
            ((true, false, false), false, "restarted by others"),
            ((false, false, true), false, "a timer started it, and it has done its work"),
        ];
        for ((is_up, is_ours, is_down), stopped, what) in rows {
            let mut external_stop = ExternalStopDetector::default();
            external_stop.on_job("/job/1", is_up);
            assert!(!external_stop.on_job_end("/job/2", false, true), "another unit's: {what}");
            assert_eq!(external_stop.on_job_end("/job/1", is_ours, is_down), stopped, "{what}");
            assert_eq!(external_stop.is_stopped(), stopped, "{what}");
            external_stop.reset();
            assert!(!external_stop.is_stopped(), "{what}");
        }
    }
}
