//! Pure: whether somebody other than fleet stopped a unit.
//!
//! systemd does not say of a job that is over what it was for, nor who asked for it. So this goes
//! by what the unit did: a job that comes while the unit is up, is not fleet's, and leaves it down
//! has stopped it. A unit that ends by itself does so without a job, and one that its timer starts
//! is not up when the job comes.

/// What others do to a unit, as far as this daemon has seen it.
#[derive(Debug, Default)]
pub(crate) struct ExternalStopDetector {
    /// The job that came while the unit was up. A unit has one at a time.
    job: Option<String>,
    stopped: bool,
}

impl ExternalStopDetector {
    /// A job of the unit has come.
    pub(crate) fn on_job(&mut self, job: &str, is_up: bool) {
        self.job = is_up.then(|| job.to_owned());
    }

    /// A job of the unit is over; whether it is seen by that that somebody stopped it.
    pub(crate) fn on_job_end(&mut self, job: &str, is_ours: bool, is_down: bool) -> bool {
        let came = self.job.take_if(|came| came.as_str() == job).is_some();
        let stops = came && !is_ours && is_down;
        self.stopped |= stops;
        stops
    }

    /// The unit is up, or fleet has asked something of it: what was done before no longer counts.
    pub(crate) fn reset(&mut self) {
        self.stopped = false;
    }

    /// Whether somebody has stopped it, and it is so still.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stops_a_unit_is_seen_by_what_a_job_did_to_it() {
        // Whether it was up when the job came, whether the job is fleet's, whether it is down then.
        let rows = [
            ((true, false, true), true, "somebody stopped it"),
            ((true, true, true), false, "fleet stopped it"),
            ((true, false, false), false, "somebody restarted it"),
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
