//! Kinds of values, and the check for each.

use std::borrow::Cow;

use crate::check::choices::WordList;
use crate::check::command::command;
use crate::check::finding::ValueError;
use crate::check::forms::Form;
use crate::check::{lists, numbers, specifiers, values};
use crate::name::{UnitName, UnitType};

pub(super) const U32_MAX: i64 = u32::MAX as i64;
pub(super) const I32_MIN: i64 = i32::MIN as i64;
pub(super) const I32_MAX: i64 = i32::MAX as i64;

/// The allowed words of an option.
pub(super) type Words = &'static [&'static str];

/// The kind of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ranges of network addresses.
    AddressRanges,
    /// Any text. Such a value is not checked, because the valid values depend on the machine or the
    /// systemd version, or because the option is very rare.
    Any,
    /// Source and target paths of bind mounts, with options.
    Binds,
    /// A boolean.
    Bool,
    /// A boolean, or one of some words.
    BoolOr(Words),
    /// A boolean, or a list of words.
    BoolOrList(&'static WordList),
    /// A name on D-Bus.
    BusName,
    /// A calendar event.
    Calendar,
    /// One of some words.
    Choice(Words),
    /// One of some words, or a number up to a maximum.
    ChoiceOrNumber(i64, Words),
    /// A command line.
    Command,
    /// A condition on something other than a path.
    Condition,
    /// Numbers of processors or NUMA nodes, and ranges of them.
    CpuSet,
    /// A device or device group, and the access to it.
    Device,
    /// Assignments to environment variables.
    Environment,
    /// An absolute path, with a leading dash if the file is optional.
    EnvironmentFile,
    /// Exit statuses and signals.
    ExitStatus,
    /// A boolean. systemd refuses the unit if it is invalid.
    FatalBool,
    /// A resource limit, or a soft and a hard limit.
    Limit(Measure),
    /// The address of a socket.
    Listen,
    /// The address of a socket on this machine.
    ListenLocal,
    /// A security label. systemd refuses the unit if its specifiers are invalid.
    Label,
    /// A size, a percentage or `infinity`.
    Memory,
    /// A file mode.
    Mode,
    /// A value with several parts.
    Form(Form),
    /// An absolute path.
    Path,
    /// An absolute path, one for each option of a list.
    PathEach,
    /// Absolute paths separated by colons.
    PathList,
    /// A condition on an absolute path.
    PathTest,
    /// Absolute paths, each with an optional leading dash or plus.
    Paths,
    /// Absolute paths.
    PathsOnly,
    /// A percentage.
    Percent,
    /// Paths relative to a directory that systemd chooses.
    RelativePaths,
    /// An absolute path. systemd refuses the unit if it is invalid.
    RootPath,
    /// The name of an architecture.
    Personality,
    /// A path, which may be relative. systemd refuses the unit if it leads upwards.
    PidFile,
    /// A signal, by name or number.
    Signal,
    /// A size in bytes.
    Size,
    /// A time span.
    Span,
    /// A time span, one for each option of a list.
    Spans,
    /// A number of tasks, a percentage or `infinity`.
    Tasks,
    /// Any text, in which specifiers are expanded.
    Text,
    /// The name of a unit of any type.
    Unit,
    /// The name of a unit of one type.
    UnitOf(UnitType),
    /// Names of units.
    Units,
    /// Names of units of one type.
    UnitsOf(UnitType),
    /// URLs of documents.
    Urls,
    /// The name or number of a user or group.
    User,
    /// Names or numbers of several users or groups.
    Users,
    /// Names of environment variables.
    Variables,
    /// An integer within bounds.
    Whole(i64, i64),
    /// An integer within bounds, or one of some words.
    WholeOr(i64, i64, Words),
    /// One of several words. A word that ends in a colon takes an argument, as in
    /// `file:/var/log/web`.
    WordOrArgument(Words),
    /// A list of words.
    Words(&'static WordList),
    /// The working directory of a process.
    WorkingDirectory,
}

/// The unit of a resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// A number of objects.
    Count,
    /// A nice level, or the kernel's number for it.
    Nice,
    /// A size in bytes.
    Size,
    /// A time span.
    Time,
}

impl Kind {
    /// Returns `true` if a later value of the option replaces an earlier one instead of adding to
    /// it.
    pub(super) fn is_single(self) -> bool {
        if let Self::Form(form) = self {
            return form.is_single();
        }
        !matches!(
            self,
            Self::AddressRanges
                | Self::Any
                | Self::Binds
                | Self::BoolOrList(_)
                | Self::Calendar
                | Self::Command
                | Self::Condition
                | Self::CpuSet
                | Self::Device
                | Self::Environment
                | Self::EnvironmentFile
                | Self::ExitStatus
                | Self::Listen
                | Self::ListenLocal
                | Self::PathEach
                | Self::PathList
                | Self::PathTest
                | Self::Paths
                | Self::PathsOnly
                | Self::RelativePaths
                | Self::Spans
                | Self::Units
                | Self::UnitsOf(_)
                | Self::Urls
                | Self::Users
                | Self::Variables
                | Self::Words(_)
        )
    }

    /// Returns the errors in a value of this kind. `option` is the name of the option that has the
    /// value, and `unit` is the name of the unit that has the option.
    pub(super) fn check(self, option: &str, value: &str, unit: &UnitName) -> Vec<ValueError> {
        if value.is_empty() {
            return self.empty(option, unit).into_iter().collect();
        }
        if let Some(error) = specifiers::check(self, value) {
            return vec![error];
        }
        match self {
            Self::Command => command(value, unit).into_iter().collect(),
            Self::Environment => lists::environment(value),
            Self::ExitStatus => lists::exit_statuses(value),
            Self::AddressRanges => values::address_ranges(value),
            Self::CpuSet => lists::cpu_set(option, value, unit),
            Self::Paths => lists::paths(value, unit),
            Self::PathsOnly => lists::paths_only(value, unit),
            Self::Form(form) => form.check(value, unit),
            Self::Users => lists::users(value, unit),
            Self::Variables => lists::variables(value, option != "PassEnvironment", unit),
            Self::RelativePaths => lists::relative_paths(option, value, unit),
            Self::Binds => lists::binds(value, unit),
            Self::Units => lists::units(option, value, None, unit),
            Self::UnitsOf(unit_type) => lists::units(option, value, Some(unit_type), unit),
            Self::Urls => lists::urls(value, unit),
            Self::Words(list) => lists::choices(value, list),
            Self::BoolOrList(list) => match crate::values::parse_bool(value) {
                Some(_) => Vec::new(),
                None => lists::choices(value, list),
            },
            Self::Memory => numbers::memory(option, value).into_iter().collect(),
            Self::Percent => numbers::percent(option, value).into_iter().collect(),
            _ => self.check_expanded(value, unit).into_iter().collect(),
        }
    }

    /// Checks a value that is not a list, after its specifiers are expanded.
    fn check_expanded(self, value: &str, unit: &UnitName) -> Option<ValueError> {
        let expanded = match self {
            Self::Path
            | Self::PathEach
            | Self::PathList
            | Self::PathTest
            | Self::EnvironmentFile
            | Self::RootPath
            | Self::WordOrArgument(_)
            | Self::WorkingDirectory => specifiers::path_form(value, unit),
            Self::BusName
            | Self::Calendar
            | Self::Listen
            | Self::ListenLocal
            | Self::PidFile
            | Self::Spans
            | Self::User => specifiers::expanded(value, unit)?,
            _ => Cow::Borrowed(value),
        };
        // Most options with one path read an empty one as a reset.
        if expanded.is_empty() && matches!(self, Self::Path | Self::RootPath) {
            return None;
        }
        let error = self.check_one(&expanded, unit)?;
        // The error is about the expanded text, which is not in the file.
        let at = if expanded == value { error.at } else { 0..0 };
        Some(ValueError { at, ..error })
    }

    /// Checks a value that is not a list.
    fn check_one(self, value: &str, unit: &UnitName) -> Option<ValueError> {
        match self {
            Self::Form(form) => form.check(value, unit).pop(),
            Self::Bool => values::boolean(value, &[]),
            Self::FatalBool => values::fatal_boolean(value),
            Self::BoolOr(words) => values::boolean(value, words),
            Self::BusName => values::bus_name(value),
            Self::Device => values::device(value, unit),
            Self::Choice(words) => values::choice(value, words),
            Self::ChoiceOrNumber(most, words) => numbers::choice_or_number(value, most, words),
            Self::WordOrArgument(words) => values::word_or_argument(value, words),
            Self::Signal => values::signal(value),
            Self::Listen => values::address(value),
            Self::ListenLocal => values::local_address(value),
            Self::User => values::user(value),
            Self::Unit => values::unit(value, None, unit),
            Self::UnitOf(unit_type) => values::unit(value, Some(unit_type), unit),
            Self::Path | Self::PathEach => values::path(value),
            Self::PathList => values::path_list(value),
            Self::EnvironmentFile => values::path(value.strip_prefix('-').unwrap_or(value)),
            Self::PathTest => values::path_test(value),
            Self::PidFile => values::pid_file(value),
            Self::Personality => values::personality(value),
            Self::RootPath => values::root_path(value),
            Self::WorkingDirectory => values::working_directory(value),
            Self::Span | Self::Spans => numbers::span(value),
            Self::Size => numbers::size(value),
            Self::Tasks => numbers::tasks(value),
            Self::Mode => numbers::mode(value),
            Self::Limit(measure) => numbers::limit(value, measure),
            Self::Whole(least, most) => numbers::whole(value, least, most, &[]),
            Self::WholeOr(least, most, words) => numbers::whole(value, least, most, words),
            Self::Calendar => values::calendar(value),
            _ => None,
        }
    }

    /// Checks an empty value. Lists accept it as a reset. Some options with a single value, such as
    /// those in [`TAKES_EMPTY`], accept it as the default.
    fn empty(self, option: &str, unit: &UnitName) -> Option<ValueError> {
        let is_taken = TAKES_EMPTY.contains(&option) || crate::check::table::is_newer(option);
        match self {
            _ if is_taken => None,
            // The priority of a swap.
            Self::Whole(-1, _) => None,
            Self::Bool
            | Self::BoolOr(_)
            | Self::BusName
            | Self::Choice(_)
            | Self::ChoiceOrNumber(..)
            | Self::FatalBool
            | Self::Limit(_)
            | Self::Mode
            | Self::Signal
            | Self::Size
            | Self::Span
            | Self::Unit
            | Self::UnitOf(_)
            | Self::Whole(..)
            | Self::WordOrArgument(_)
            | Self::Form(Form::Nanoseconds | Form::QueueSize) => self.check_one("", unit),
            _ => None,
        }
    }
}

/// Options with a single value for which an empty value stands for the default. Other options of
/// the same kind do not accept an empty value.
const TAKES_EMPTY: [&str; 24] = [
    "BlockIOWeight",
    "CPUQuotaPeriodSec",
    "CPUSchedulingPolicy",
    "CPUShares",
    "FailureActionExitStatus",
    "IOSchedulingClass",
    "IOSchedulingPriority",
    "IOWeight",
    "IPTOS",
    "KillMode",
    "ManagedOOMMemoryPressure",
    "ManagedOOMSwap",
    "MountAPIVFS",
    "MountFlags",
    "NUMAPolicy",
    "Nice",
    "OOMScoreAdjust",
    "StartupBlockIOWeight",
    "StartupCPUShares",
    "StartupIOWeight",
    "SuccessActionExitStatus",
    "TTYColumns",
    "TTYRows",
    "TimeoutAbortSec",
];
