//! Settings of a job and its schedule, from the options of `[X-Fleet]`.

use std::time::Duration;

use fleet_unitfile::calendar::Utc;
use fleet_unitfile::values::{Timespan, parse_bool, parse_timespan};
use fleet_unitfile::{Calendar, NameError, UnitName, UnitType};

use super::JobSettings;
use super::setting_error::{SettingError, SettingErrorKind};
use crate::schedule::{CatchUp, ConcurrencyPolicy, RunId, ScheduleSettings};
use crate::{Generation, Timestamp};

/// A job as its unit file defines it.
///
/// ```
/// use fleet_core::job::JobDefinition;
/// use fleet_unitfile::UnitName;
///
/// let name: UnitName = "backup.service".parse()?;
/// let options = [("RunOnce", "true"), ("Retries", "2"), ("Schedule", "*-*-* 02:00 UTC")];
/// let job = JobDefinition::parse(&name, options).unwrap().expect("it is a job");
/// assert_eq!(job.settings.retries, 2);
/// assert_eq!(job.schedule.unwrap().calendar.zone(), Some("UTC"));
///
/// let errors = JobDefinition::parse(&name, [("Retries", "2")]).unwrap_err();
/// assert_eq!(
///     errors[0].to_string(),
///     "Retries has no effect without RunOnce=true: add RunOnce=true, or remove Retries",
/// );
/// # Ok::<(), fleet_unitfile::NameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobDefinition {
    /// Settings of the job, or of each run if it has a schedule.
    pub settings: JobSettings,
    /// The schedule (`Schedule=` and its further options), if there is one.
    pub schedule: Option<ScheduleSettings>,
}

const JOB_OPTIONS: [&str; 4] = ["Retries", "Deadline", "KeepFor", "CountLost"];
const RUN_ONCE: &str = "RunOnce";
const SCHEDULE: &str = "Schedule";
const SCHEDULE_OPTIONS: [&str; 2] = ["ConcurrencyPolicy", "CatchUp"];

const MIN_DEADLINE: Duration = Duration::from_secs(1);

impl JobDefinition {
    /// Reads the definition from the options of `[X-Fleet]`, which are names and values in the
    /// order of the file. Returns `Ok(None)` for a unit that is not a job.
    ///
    /// The caller must have expanded the specifiers. Options of other subjects are ignored. Of
    /// several assignments of an option, the last one takes effect, and an empty one resets the
    /// option. Several `Schedule=` are an error.
    ///
    /// # Errors
    ///
    /// Returns all errors, in the order of the options.
    pub fn parse<'a>(
        name: &UnitName,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Option<Self>, Vec<SettingError>> {
        let options = options.into_iter().map(|(option, value)| (option, value.trim()));
        Self::read(
            name,
            options.map(|(option, value)| (option, Some(value).filter(|it| !it.is_empty()))),
        )
    }

    /// Reads the definition as [`parse`](Self::parse) does, but `None` resets an option. An empty
    /// value is an error, because only the expansion of specifiers makes one.
    pub(crate) fn read<'a>(
        name: &UnitName,
        options: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<Option<Self>, Vec<SettingError>> {
        let mut reader = Reader::default();
        for (index, (option, value)) in options.into_iter().enumerate() {
            reader.read(index, option, value);
        }
        reader.check(name);
        let Reader { mut errors, run_once, job, calendar, concurrency, catch_up, .. } = reader;
        if !errors.is_empty() {
            errors.sort_by_key(|error| error.index);
            return Err(errors);
        }
        let schedule =
            calendar.map(|(calendar, _)| ScheduleSettings { calendar, concurrency, catch_up });
        Ok(run_once.map(|_| Self { settings: job, schedule }))
    }

    /// Checks a definition that was not [parsed](Self::parse) but built as a value, for the unit
    /// called `name`.
    ///
    /// # Errors
    ///
    /// Returns the first problem.
    pub fn validate(&self, name: &UnitName) -> Result<(), SettingErrorKind> {
        let JobSettings { retries, deadline, .. } = self.settings;
        if retries > JobSettings::MAX_RETRIES {
            return Err(SettingErrorKind::Retries { value: retries.to_string() });
        }
        if let Some(deadline) = deadline.filter(|it| *it < MIN_DEADLINE) {
            let value = Timespan::Finite(deadline).to_string();
            return Err(SettingErrorKind::ShortDeadline { value });
        }
        check_type(name)?;
        let Some(schedule) = &self.schedule else { return Ok(()) };
        check_elapses(&schedule.calendar, &schedule.calendar.to_string())?;
        check_run_names(name)
    }
}

/// The options read so far.
#[derive(Default)]
struct Reader {
    errors: Vec<SettingError>,
    /// Index of a true `RunOnce=`, if it is in effect.
    run_once: Option<usize>,
    job: JobSettings,
    /// The event, with its text.
    calendar: Option<(Calendar, String)>,
    concurrency: ConcurrencyPolicy,
    catch_up: CatchUp,
    /// The options that are set, with the index of the assignment.
    used: Vec<(&'static str, usize)>,
}

impl Reader {
    fn read(&mut self, index: usize, option: &str, value: Option<&str>) {
        let known = JOB_OPTIONS.iter().chain(&SCHEDULE_OPTIONS).chain([&RUN_ONCE, &SCHEDULE]);
        let Some(option) = known.copied().find(|known| *known == option) else {
            return;
        };
        let is_repeated_schedule = option == SCHEDULE && self.index_of(SCHEDULE).is_some();
        self.used.retain(|(used, _)| *used != option);
        let Some(value) = value else {
            return self.reset(option);
        };
        self.used.push((option, index));
        let first = self.calendar.as_ref().map(|(_, text)| text.clone());
        if let (true, Some(first)) = (is_repeated_schedule, first) {
            let second = value.to_owned();
            return self.refuse(index, SettingErrorKind::RepeatedSchedule { first, second });
        }
        if let Err(kind) = self.set(index, option, value) {
            self.refuse(index, kind);
        }
    }

    fn set(
        &mut self,
        index: usize,
        option: &'static str,
        value: &str,
    ) -> Result<(), SettingErrorKind> {
        match option {
            RUN_ONCE => self.run_once = flag(option, value)?.then_some(index),
            "CountLost" => self.job.count_lost = flag(option, value)?,
            "Retries" => self.job.retries = retries(value)?,
            "Deadline" => {
                let deadline = timespan(option, value)?;
                if deadline.is_some_and(|deadline| deadline < MIN_DEADLINE) {
                    return Err(SettingErrorKind::ShortDeadline { value: value.to_owned() });
                }
                self.job.deadline = deadline;
            }
            "KeepFor" => self.job.keep_for = timespan(option, value)?,
            SCHEDULE => {
                let value = value.to_owned();
                let Ok(calendar) = value.parse() else {
                    return Err(SettingErrorKind::Calendar { value });
                };
                check_elapses(&calendar, &value)?;
                self.calendar = Some((calendar, value));
            }
            "ConcurrencyPolicy" => {
                self.concurrency = choice(option, value, ConcurrencyPolicy::from_name)?;
            }
            _ => self.catch_up = choice(option, value, CatchUp::from_name)?,
        }
        Ok(())
    }

    fn reset(&mut self, option: &str) {
        match option {
            RUN_ONCE => self.run_once = None,
            "CountLost" => self.job.count_lost = false,
            "Retries" => self.job.retries = 0,
            "Deadline" => self.job.deadline = None,
            "KeepFor" => self.job.keep_for = None,
            SCHEDULE => self.calendar = None,
            "ConcurrencyPolicy" => self.concurrency = ConcurrencyPolicy::default(),
            _ => self.catch_up = CatchUp::default(),
        }
    }

    /// Checks the options against each other and against the unit.
    fn check(&mut self, name: &UnitName) {
        if self.run_once.is_none() && !self.has_invalid_run_once() {
            self.refuse_without("RunOnce=true", |option| {
                option == SCHEDULE || JOB_OPTIONS.contains(&option)
            });
        }
        if self.index_of(SCHEDULE).is_none() {
            self.refuse_without("Schedule", |option| SCHEDULE_OPTIONS.contains(&option));
        }
        let Some(index) = self.run_once else {
            return;
        };
        if let Err(kind) = check_type(name) {
            return self.refuse(index, kind);
        }
        if let Some(index) = self.index_of(SCHEDULE)
            && let Err(kind) = check_run_names(name)
        {
            self.refuse(index, kind);
        }
    }

    /// Refuses the set options of a kind together, because they lack the same option.
    fn refuse_without(&mut self, needs: &'static str, is_of_kind: impl Fn(&str) -> bool) {
        let mut set: Vec<_> = self.used.iter().filter(|(option, _)| is_of_kind(option)).collect();
        set.sort_by_key(|(_, index)| *index);
        let options = set.iter().map(|(option, _)| *option).collect();
        if let Some((_, index)) = set.first() {
            self.refuse(*index, SettingErrorKind::Missing { options, needs });
        }
    }

    /// Whether an unreadable `RunOnce=` was reported, which hides that it is missing.
    fn has_invalid_run_once(&self) -> bool {
        let is_invalid = |kind: &SettingErrorKind| {
            matches!(kind, SettingErrorKind::NotABoolean { option: RUN_ONCE, .. })
        };
        self.errors.iter().any(|error| is_invalid(&error.kind))
    }

    fn index_of(&self, option: &str) -> Option<usize> {
        self.used.iter().find(|(used, _)| *used == option).map(|(_, index)| *index)
    }

    fn refuse(&mut self, index: usize, kind: SettingErrorKind) {
        self.errors.push(SettingError { index, kind });
    }
}

/// Checks that units of this type run to completion.
fn check_type(name: &UnitName) -> Result<(), SettingErrorKind> {
    match name.unit_type() {
        UnitType::Service | UnitType::Container => Ok(()),
        _ => Err(SettingErrorKind::Type { unit: name.clone() }),
    }
}

/// Checks that the event elapses at some time, in whatever time zone.
fn check_elapses(calendar: &Calendar, value: &str) -> Result<(), SettingErrorKind> {
    match calendar.next_after(Duration::ZERO, &Utc) {
        Some(_) => Ok(()),
        None => Err(SettingErrorKind::NeverElapses { value: value.to_owned() }),
    }
}

/// Checks that the names of all runs of the unit are valid.
fn check_run_names(name: &UnitName) -> Result<(), SettingErrorKind> {
    let error = |cause| SettingErrorKind::RunName { unit: name.clone(), cause };
    longest_run_name(name).map_err(error)
}

/// Checks the longest names that runs of the unit can have.
fn longest_run_name(unit: &UnitName) -> Result<(), NameError> {
    // The calendar ends with the year 2199, and milliseconds are written unless they are zero.
    RunId::Elapse(Timestamp::from_millis(1)).unit_name(unit)?;
    RunId::Manual(Generation(u64::MAX)).unit_name(unit)?;
    Ok(())
}

fn flag(option: &'static str, value: &str) -> Result<bool, SettingErrorKind> {
    let error = || SettingErrorKind::NotABoolean { option, value: value.to_owned() };
    parse_bool(value).ok_or_else(error)
}

fn retries(value: &str) -> Result<u32, SettingErrorKind> {
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    let number = value.parse().ok().filter(|number| *number <= JobSettings::MAX_RETRIES && digits);
    number.ok_or_else(|| SettingErrorKind::Retries { value: value.to_owned() })
}

/// Parses a time span; `None` if it is infinite.
fn timespan(option: &'static str, value: &str) -> Result<Option<Duration>, SettingErrorKind> {
    let error = |cause| SettingErrorKind::Timespan { option, value: value.to_owned(), cause };
    parse_timespan(value).map(Timespan::as_duration).map_err(error)
}

fn choice<T>(
    option: &'static str,
    value: &str,
    from_name: impl Fn(&str) -> Option<T>,
) -> Result<T, SettingErrorKind> {
    from_name(value).ok_or_else(|| SettingErrorKind::Choice { option, value: value.to_owned() })
}
