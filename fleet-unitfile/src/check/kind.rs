//! What kinds of value there are, and which rule each is checked by.

use super::command::command;
use super::flaw::Flaw;
use super::{access, calendar, lists, numbers, specifiers, values};
use crate::name::UnitName;
use crate::unit_type::UnitType;

pub(super) const U32_MAX: i64 = u32::MAX as i64;
pub(super) const I32_MIN: i64 = i32::MIN as i64;
pub(super) const I32_MAX: i64 = i32::MAX as i64;

/// The words of a choice.
pub(super) type Words = &'static [&'static str];

/// A kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ranges of addresses on a network.
    AddressRanges,
    /// Not checked: what it takes depends on the machine or the version, or hardly ever occurs.
    Any,
    /// Paths on both sides of a bind mount, with options.
    Binds,
    /// Yes or no.
    Bool,
    /// Yes, no or one of some words.
    BoolOr(Words),
    /// Yes, no or a list of some words, which a tilde turns round.
    BoolOrList(Words),
    /// A name that a service takes on the message bus.
    BusName,
    /// A rhythm or moment of the calendar.
    Calendar,
    /// One of some words.
    Choice(Words),
    /// The same, or a number.
    ChoiceOrNumber(Words),
    /// A command line.
    Command,
    /// A condition on anything but a path.
    Condition,
    /// Numbers of processors or memory nodes, and ranges of them.
    CpuSet,
    /// A device or a group of devices, and the rights to it.
    Device,
    /// Assignments to environment variables.
    Environment,
    /// An absolute path, with a dash before it if the file may be missing.
    EnvironmentFile,
    /// Exit statuses and signals.
    ExitStatus,
    /// Yes or no, without which systemd refuses the unit.
    FatalBool,
    /// A resource limit, or a soft and a hard one.
    Limit(Measure),
    /// The address of a socket.
    Listen,
    /// The address of a socket on this machine.
    ListenLocal,
    /// A size, a percentage or `infinity`.
    Memory,
    /// A file mode.
    Mode,
    /// An absolute path.
    Path,
    /// One of several absolute paths, each with an option of its own.
    PathEach,
    /// Absolute paths with colons between them.
    PathList,
    /// A condition on an absolute path.
    PathTest,
    /// Absolute paths, each with a dash or a plus before it if need be.
    Paths,
    /// Absolute paths.
    PathsOnly,
    /// A percentage.
    Percent,
    /// Paths below a folder that systemd chooses.
    RelativePaths,
    /// An absolute path, without which systemd refuses the unit.
    RootPath,
    /// The name of an architecture.
    Personality,
    /// A signal, by name or number.
    Signal,
    /// A size in bytes.
    Size,
    /// Absolute paths, each with more after a colon if need be.
    Sources,
    /// A span of time.
    Span,
    /// One of several spans of time, each with an option of its own.
    Spans,
    /// One of some words, or a word that ends in a colon and what follows it.
    Stream(Words),
    /// How many tasks: a number, a percentage or `infinity`.
    Tasks,
    /// Any text, with specifiers.
    Text,
    /// The name of a unit of any type.
    Unit,
    /// The name of a unit of one type.
    UnitOf(UnitType),
    /// Names of units.
    Units,
    /// Names of units of one type.
    UnitsOf(UnitType),
    /// Places of documents.
    Urls,
    /// The name or number of a user or group.
    User,
    /// The same, several of them.
    Users,
    /// Names of environment variables.
    Variables,
    /// An integer that has bounds.
    Whole(i64, i64),
    /// The same, or one of some words.
    WholeOr(i64, i64, Words),
    /// Words of some, which a tilde turns round.
    Words(Words),
    /// The folder that a process starts in.
    WorkingDirectory,
}

/// What a resource limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Things.
    Count,
    /// A nice level, or the number that the kernel has for it.
    Nice,
    /// Bytes.
    Size,
    /// Time.
    Time,
}

impl Kind {
    /// Whether a later option takes the place of an earlier one instead of adding to it.
    pub(super) fn is_single(self) -> bool {
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
                | Self::Sources
                | Self::Spans
                | Self::Units
                | Self::UnitsOf(_)
                | Self::Urls
                | Self::Users
                | Self::Variables
                | Self::Words(_)
        )
    }

    /// What is wrong with a value of this kind, of a certain option, in a unit of this name.
    pub(super) fn check(self, option: &str, value: &str, unit: &UnitName) -> Vec<Flaw> {
        if value.is_empty() {
            return self.empty(option, unit).into_iter().collect();
        }
        if let Some(flaw) = specifiers::check(self, value) {
            return vec![flaw];
        }
        match self {
            Self::Command => command(value).into_iter().collect(),
            Self::Environment => lists::environment(value),
            Self::ExitStatus => lists::exit_statuses(value),
            Self::AddressRanges => access::address_ranges(value),
            Self::CpuSet => lists::cpu_set(value),
            Self::Paths => lists::paths(value),
            Self::PathsOnly => lists::paths_only(value),
            Self::Sources => lists::sources(value),
            Self::Users => lists::users(value),
            Self::Variables => lists::variables(value, option != "PassEnvironment"),
            Self::RelativePaths => lists::relative_paths(value),
            Self::Binds => lists::binds(value),
            Self::Units => lists::units(value, None, unit),
            Self::UnitsOf(unit_type) => lists::units(value, Some(unit_type), unit),
            Self::Urls => lists::urls(value),
            Self::Words(words) => lists::choices(value, words),
            Self::BoolOrList(words) => match crate::value::parse_bool(value) {
                Some(_) => Vec::new(),
                None => lists::choices(value, words),
            },
            Self::Memory => numbers::memory(option, value).into_iter().collect(),
            Self::Percent => numbers::percent(option, value).into_iter().collect(),
            _ => self.check_one(value, unit).into_iter().collect(),
        }
    }

    /// What is wrong with a value that is not a list.
    fn check_one(self, value: &str, unit: &UnitName) -> Option<Flaw> {
        match self {
            Self::Bool => values::boolean(value, &[]),
            Self::FatalBool => values::fatal_boolean(value),
            Self::BoolOr(words) => values::boolean(value, words),
            Self::BusName => values::bus_name(value),
            Self::Device => access::device(value),
            Self::Choice(words) => values::choice(value, words),
            Self::ChoiceOrNumber(_) if value.parse::<u32>().is_ok() => None,
            Self::ChoiceOrNumber(words) => values::choice(value, words),
            Self::Stream(words) => values::stream(value, words),
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
            Self::Personality => access::personality(value),
            Self::RootPath => values::root_path(value),
            Self::WorkingDirectory => values::working_directory(value),
            Self::Spans if value.contains('%') => None,
            Self::Span | Self::Spans => numbers::span(value),
            Self::Size => numbers::size(value),
            Self::Tasks => numbers::tasks(value),
            Self::Mode => numbers::mode(value),
            Self::Limit(measure) => numbers::limit(value, measure),
            Self::Whole(least, most) => numbers::whole(value, least, most, &[]),
            Self::WholeOr(least, most, words) => numbers::whole(value, least, most, words),
            Self::Calendar => calendar::check(value),
            _ => None,
        }
    }

    /// What is wrong with a value that is empty: lists and some others take it as going back to
    /// the default.
    fn empty(self, option: &str, unit: &UnitName) -> Option<Flaw> {
        let is_taken = TAKES_EMPTY.contains(&option) || super::table::is_newer(option);
        match self {
            _ if is_taken => None,
            Self::Bool
            | Self::BoolOr(_)
            | Self::BusName
            | Self::Choice(_)
            | Self::ChoiceOrNumber(_)
            | Self::FatalBool
            | Self::Limit(_)
            | Self::Mode
            | Self::Signal
            | Self::Size
            | Self::Span
            | Self::Stream(_)
            | Self::Unit
            | Self::UnitOf(_)
            | Self::Whole(..) => self.check_one("", unit),
            _ => None,
        }
    }
}

/// Options with one value for which, unlike for others of their kind, an empty one is the default.
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
