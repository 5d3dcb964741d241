//! Parsing of the options of jobs and schedules.

use std::collections::BTreeSet;

use fleet_unitfile::calendar::Zone;
use fleet_unitfile::values::parse_bool;
use fleet_unitfile::{OptionView, Span, UnitFile};

use super::parse::SectionReader;
use super::{
    FleetOption, RequirementError, RequirementErrorKind as Kind, RequirementErrors, Requirements,
};
use crate::Timestamp;
use crate::job::{JobDefinition, SettingErrorKind};

/// The options read so far. They are parsed together once all are known.
#[derive(Default)]
pub(super) struct JobOptions {
    /// All assignments, in the order of the file.
    assignments: Vec<Assignment>,
    /// Options whose last value could not be expanded, or depends on the instance of a template.
    unknown: BTreeSet<FleetOption>,
    /// Position of a true `RunOnce=`, if it is still in effect.
    pub(super) run_once: Option<Span>,
}

/// An assignment of an option.
struct Assignment {
    option: FleetOption,
    /// The value after the expansion of specifiers; `None` resets the option.
    value: Option<String>,
    span: Span,
}

impl JobOptions {
    /// Resets an option to its default. Returns `false` if the option is of another kind.
    pub(super) fn reset(&mut self, option: FleetOption, span: Span) -> bool {
        if !option.defines_job() {
            return false;
        }
        if option == FleetOption::RunOnce {
            self.run_once = None;
        }
        self.unknown.remove(&option);
        self.assignments.push(Assignment { option, value: None, span });
        true
    }

    /// Returns whether the error only follows from an option with an unknown value.
    fn hides(&self, error: &SettingErrorKind) -> bool {
        let SettingErrorKind::Missing { needs, .. } = error else { return false };
        let needed = match *needs {
            "Schedule" => FleetOption::Schedule,
            _ => FleetOption::RunOnce,
        };
        self.unknown.contains(&needed)
    }
}

impl Requirements {
    /// Checks that the schedule elapses after `now`, if the unit has one. `zone` is the time zone
    /// of its event, or `None` if the machine does not know it. `file` is the file of the unit.
    ///
    /// # Errors
    ///
    /// The time zone is unknown, or the event never elapses again.
    pub fn check_schedule(
        &self,
        file: &UnitFile,
        zone: Option<&dyn Zone>,
        now: Timestamp,
    ) -> Result<(), RequirementErrors> {
        let schedule = self.job.as_ref().and_then(|job| job.schedule.as_ref());
        let Some(schedule) = schedule else { return Ok(()) };
        let cause = match zone.map(|zone| schedule.next_elapse(zone, now)) {
            Some(Some(_)) => return Ok(()),
            Some(None) => SettingErrorKind::Elapsed { event: schedule.calendar.to_string() },
            None => {
                let zone = schedule.calendar.zone().unwrap_or_default().to_owned();
                SettingErrorKind::UnknownZone { zone }
            }
        };
        let option = file.effective("X-Fleet", FleetOption::Schedule.as_str()).next_back();
        let span = option.map_or(Span { start: 0, end: 0 }, OptionView::value_span);
        let error = RequirementError::new(span, file.location(span.start), Kind::Job { cause });
        RequirementErrors::new(vec![error]).map_or(Ok(()), Err)
    }
}

impl SectionReader<'_> {
    /// Reads an option of a job. Its value is parsed by [`read_job`](Self::read_job).
    pub(super) fn read_job_option(&mut self, option: FleetOption, value: &str, span: Span) {
        let Some(value) = self.expand(option, value, span) else {
            self.job.unknown.insert(option);
            return;
        };
        let job = &mut self.job;
        job.unknown.remove(&option);
        if option == FleetOption::RunOnce {
            match parse_bool(&value) {
                Some(true) => _ = job.run_once.get_or_insert(span),
                Some(false) => job.run_once = None,
                None => {}
            }
        }
        job.assignments.push(Assignment { option, value: Some(value), span });
    }

    /// Parses the options of the job together, and records their errors. An error of a value is
    /// reported at the value, and a wrong combination at the option.
    pub(super) fn read_job(&mut self) {
        let options = self.job.assignments.iter();
        let options = options.map(|it| (it.option.as_str(), it.value.as_deref().map(str::trim)));
        let errors = match JobDefinition::read(self.name, options) {
            Ok(job) => {
                self.scalars.job = job;
                return;
            }
            Err(errors) => errors,
        };
        for error in errors.iter().filter(|error| !self.job.hides(error.kind())) {
            let Assignment { option, span, .. } = self.job.assignments[error.index];
            let span = match error.kind() {
                SettingErrorKind::Missing { .. }
                | SettingErrorKind::Type { .. }
                | SettingErrorKind::RunName { .. } => self.used(option).unwrap_or(span),
                _ => span,
            };
            self.reports.refuse(span, Kind::Job { cause: error.kind().clone() });
        }
    }

    /// Refuses options with which a job would not run to completion once, or with which systemd
    /// would forget a failure.
    pub(super) fn check_job_service(&mut self) {
        let Some(run_once) = self.job.run_once else {
            return;
        };
        let line = self.reports.line(run_once);
        let repeats: fn(&str) -> bool = |value| value != "no";
        let remains: fn(&str) -> bool = |value| parse_bool(value) == Some(true);
        let forgets: fn(&str) -> bool = |value| value == "inactive-or-failed";
        for (section, option, is_refused) in [
            ("Service", "Restart", repeats),
            ("Service", "RemainAfterExit", remains),
            ("Unit", "CollectMode", forgets),
        ] {
            let last = self.file.effective(section, option).next_back();
            if let Some(found) = last.filter(|it| is_refused(it.value())) {
                let value = found.value().to_owned();
                self.reports.refuse(found.value_span(), Kind::JobService { option, value, line });
            }
        }
    }
}
