//! Errors in the options of a job, with their messages and remedies.

use std::fmt;

use fleet_unitfile::values::TimespanError;
use fleet_unitfile::{NameError, UnitName};

use super::JobSettings;

/// An error in an option of a job.
///
/// `Display` writes [message](Self::message) and [help](Self::help) on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingError {
    /// Index of the affected option among the options that were passed.
    pub index: usize,
    pub(super) kind: SettingErrorKind,
}

/// The kind of an error, with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingErrorKind {
    /// The value is not a boolean.
    NotABoolean {
        /// `RunOnce` or `CountLost`.
        option: &'static str,
        /// The value as written.
        value: String,
    },
    /// A `Retries=` is not a whole number in the allowed range.
    Retries {
        /// The value as written.
        value: String,
    },
    /// The value is not a time span.
    Timespan {
        /// `Deadline` or `KeepFor`.
        option: &'static str,
        /// The value as written.
        value: String,
        /// The error of the time span.
        cause: TimespanError,
    },
    /// A `Deadline=` is shorter than a second.
    ShortDeadline {
        /// The value as written.
        value: String,
    },
    /// A `Schedule=` is not a calendar event.
    Calendar {
        /// The value as written.
        value: String,
    },
    /// No time from 1970 to 2199 matches a `Schedule=`.
    NeverElapses {
        /// The value as written.
        value: String,
    },
    /// All times that match a `Schedule=` have passed.
    Elapsed {
        /// The event.
        event: String,
    },
    /// The machine does not know the time zone of a `Schedule=`.
    UnknownZone {
        /// The time zone.
        zone: String,
    },
    /// There are two `Schedule=`.
    RepeatedSchedule {
        /// The first value.
        first: String,
        /// The second value.
        second: String,
    },
    /// The value is not one of those that the option accepts.
    Choice {
        /// `ConcurrencyPolicy` or `CatchUp`.
        option: &'static str,
        /// The value as written.
        value: String,
    },
    /// Options need another one.
    Missing {
        /// The options, in the order of the file.
        options: Vec<&'static str>,
        /// The option that is missing, with its value.
        needs: &'static str,
    },
    /// A unit of this type does not run to completion.
    Type {
        /// The unit.
        unit: UnitName,
    },
    /// The name of the unit is too long for the names of its runs.
    RunName {
        /// The unit.
        unit: UnitName,
        /// The error of the longest name.
        cause: NameError,
    },
}

impl SettingError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &SettingErrorKind {
        &self.kind
    }

    /// Returns the description of the error.
    #[must_use]
    pub fn message(&self) -> String {
        self.kind.to_string()
    }

    /// Returns how to correct the error.
    #[must_use]
    pub fn help(&self) -> String {
        self.kind.help()
    }
}

impl SettingErrorKind {
    /// Returns how to correct the error.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::NotABoolean { .. } => "write true or false".into(),
            Self::Retries { .. } => {
                format!("write a number from 0 to {}", JobSettings::MAX_RETRIES)
            }
            Self::Timespan { option, .. } => {
                format!("write numbers with units, as in {option}=1h 30min, or infinity")
            }
            Self::ShortDeadline { .. } => {
                "write at least 1s, or remove the option for no deadline".into()
            }
            Self::Calendar { .. } => {
                "write an event as for OnCalendar, as in Schedule=Mon..Fri 02:00 Europe/Berlin"
                    .into()
            }
            Self::NeverElapses { .. } => {
                "write a day that exists in a year up to 2199, as in *-02-28, or *-02~01 for the \
                 last day of February"
                    .into()
            }
            Self::Elapsed { .. } => {
                "write a time in the future, or * in place of the year to repeat the event".into()
            }
            Self::UnknownZone { .. } => {
                "write a name such as Europe/Berlin or UTC, or install the package tzdata".into()
            }
            Self::RepeatedSchedule { .. } => {
                "keep one of them, write one event for both as in Mon,Thu 02:00, or make two units"
                    .into()
            }
            Self::Choice { option: "CatchUp", .. } => "write once or none".into(),
            Self::Choice { .. } => "write allow, forbid or replace".into(),
            Self::Missing { options, needs } => match options[..] {
                [option] => format!("add {needs}, or remove {option}"),
                _ => format!("add {needs}, or remove them"),
            },
            Self::Type { .. } => {
                "move the option to the .service or .container that does the work".into()
            }
            Self::RunName { .. } => "shorten the name of the unit".into(),
        }
    }
}

impl std::error::Error for SettingError {}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.help())
    }
}

impl fmt::Display for SettingErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotABoolean { option, value } => {
                write!(f, "{option}={value} is neither yes nor no")
            }
            Self::Retries { value } => write!(f, "Retries={value} is not a number of retries"),
            Self::Timespan { option, value, .. } => {
                write!(f, "{option}={value} is not a time span")
            }
            Self::ShortDeadline { value } => {
                write!(f, "Deadline={value} is too short for any attempt")
            }
            Self::Calendar { value } => write!(f, "Schedule={value} is not a calendar event"),
            Self::NeverElapses { value } => write!(f, "Schedule={value} never elapses"),
            Self::Elapsed { event } => {
                write!(f, "Schedule={event} has elapsed, and never elapses again")
            }
            Self::UnknownZone { zone } => {
                write!(f, "Schedule: the time zone {zone:?} is not known on this machine")
            }
            Self::RepeatedSchedule { first, second } => {
                write!(f, "Schedule={second} comes in addition to Schedule={first}")
            }
            Self::Choice { option, value } => write!(f, "{option}={value} is not a valid value"),
            Self::Missing { options, needs } => match &options[..] {
                [others @ .., last] if !others.is_empty() => {
                    write!(f, "{} and {last} have no effect without {needs}", others.join(", "))
                }
                _ => write!(f, "{} has no effect without {needs}", options.concat()),
            },
            Self::Type { unit } => {
                write!(f, "RunOnce: {unit} is a {}, which never completes", unit.unit_type())
            }
            Self::RunName { unit, .. } => {
                write!(f, "Schedule: the name {unit} is too long for the names of its runs")
            }
        }
    }
}
