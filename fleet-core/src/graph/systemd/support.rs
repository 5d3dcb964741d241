//! Support for each systemd option; refusals of units, and remarks on accepted ones.
//!
//! An option is *ignored* if dropping it does not change the unit's permissions, runtime or
//! dependencies. Examples are texts for people, limits of resources, and options that tune systemd
//! itself. Every other option that is not honoured is refused, because a unit that asks for
//! confinement must not run unconfined, unless the operator accepts that.

use std::fmt;

use OptionGroup::{Lifecycle, Sandboxing};
use Support::{Honoured, Ignored, Informational, Refused, RefusedUnless};
use fleet_unitfile::values::parse_bool;
use fleet_unitfile::{Location, UnitName};

use super::accept::OptionGroup;
use super::condition::{CONDITIONS, NEWER};
use super::service_options::SERVICE;
use super::socket_options::{PATH, SOCKET};

/// The handling of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Honoured, or refused if its value cannot be honoured.
    Honoured,
    /// Ignored silently: it informs people only.
    Informational,
    /// Ignored with a remark, for this reason.
    Ignored(&'static str),
    /// Refused unless the value is one of these texts, which are neutral: dropping the option then
    /// changes nothing. The neutral value `no` stands for every spelling of false.
    RefusedUnless(&'static [&'static str], Unsupported),
    /// Refused.
    Refused(Unsupported),
}

/// An option that is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsupported {
    /// Group of the option, by which an operator can accept its loss.
    pub group: OptionGroup,
    /// Reason, with a remedy. It continues a sentence that begins with the option.
    pub reason: &'static str,
}

impl Unsupported {
    pub(super) const fn new(group: OptionGroup, reason: &'static str) -> Self {
        Self { group, reason }
    }
}

/// Options that share one kind of support.
pub(super) type Group = (Support, &'static [&'static str]);

impl Support {
    /// Returns whether the value is neutral, so that the option can be ignored.
    pub(super) fn is_neutral(self, value: &str) -> bool {
        let Self::RefusedUnless(neutral, _) = self else { return false };
        let is_no = neutral.contains(&"no") && parse_bool(value) == Some(false);
        is_no || neutral.contains(&value)
    }
}

/// Returns the handling of an option. Returns `None` if systemd has no such option in the section,
/// or if no supported unit type has the section.
///
/// ```
/// use fleet_core::graph::systemd::{Support, support};
///
/// assert_eq!(support("Service", "ExecStart"), Some(Support::Honoured));
/// assert!(matches!(support("Service", "PrivatePIDs"), Some(Support::RefusedUnless(..))));
/// assert_eq!(support("Service", "ExecStrat"), None);
/// ```
#[must_use]
pub fn support(section: &str, name: &str) -> Option<Support> {
    let find = |(support, names): &Group| names.contains(&name).then_some(*support);
    groups(section).iter().find_map(find)
}

/// Returns why a value of an honoured option is not supported, if an operator can accept the loss
/// of the option because of that value.
pub(super) fn unsupported_value(section: &str, name: &str, value: &str) -> Option<Unsupported> {
    match (section, name, value) {
        ("Service", "KillMode", "none") => Some(KILL_MODE_NONE),
        _ => None,
    }
}

const KILL_MODE_NONE: Unsupported = Unsupported::new(
    Lifecycle,
    "cannot be none, which leaves unsupervised processes behind: write process",
);

pub(super) fn groups(section: &str) -> &'static [Group] {
    match section {
        "Install" => INSTALL,
        "Path" => PATH,
        "Service" => SERVICE,
        "Socket" => SOCKET,
        "Timer" => TIMER,
        "Unit" => UNIT,
        _ => &[],
    }
}

pub(super) const NO: &[&str] = &["no"];
const NONE: &[&str] = &["none"];

pub(super) const ACTION: Unsupported = Unsupported::new(
    Lifecycle,
    "is not supported: the supervisor cannot reboot or power off the machine: \
     remove it, or run the unit under systemd",
);
const JOBS: Unsupported = Unsupported::new(
    Lifecycle,
    "is not supported: there are no jobs here: remove it, and limit the start with \
     TimeoutStartSec=",
);
const CLOCK_CHANGES: Unsupported = Unsupported::new(
    Lifecycle,
    "is not supported: a timer elapses only at its scheduled times, and \
     follows clock changes: remove it, or run the unit under systemd",
);
const WAKING: Unsupported = Unsupported::new(
    Lifecycle,
    "is not supported: machines are not woken: remove it; an elapse missed \
     during sleep happens on wake-up",
);
const DEFERRING: Unsupported = Unsupported::new(
    Lifecycle,
    "is not supported: calendar events count from the last elapse: remove it",
);
const OFFSETS: Unsupported = Unsupported::new(
    Lifecycle,
    "is not supported: calendar events are not shifted as a whole: write \
     RandomizedDelaySec= and FixedRandomDelay=yes",
);

/// `[Unit]`.
pub(super) const UNIT: &[Group] = &[
    (Informational, &["Documentation"]),
    (Honoured, CONDITIONS),
    (
        Honoured,
        &[
            "After",
            "Before",
            "BindTo",
            "BindsTo",
            "Conflicts",
            "DefaultDependencies",
            "Description",
            "OnFailure",
            "OnSuccess",
            "PartOf",
            "PropagateReloadFrom",
            "PropagateReloadTo",
            "PropagatesReloadTo",
            "PropagatesStopTo",
            "ReloadPropagatedFrom",
            "Requires",
            "RequiresOverridable",
            "Requisite",
            "RequisiteOverridable",
            "StartLimitBurst",
            "StartLimitInterval",
            "StartLimitIntervalSec",
            "StopPropagatedFrom",
            "StopWhenUnneeded",
            "Upholds",
            "Wants",
        ],
    ),
    (Ignored("affects only `systemctl isolate`"), &["AllowIsolate", "IgnoreOnIsolate"]),
    (Ignored("affects only systemd's memory"), &["CollectMode"]),
    (Ignored("only names the source of the file"), &["SourcePath"]),
    (
        Ignored("has no effect: nothing is mounted here, but /etc/fstab is mounted before"),
        &["RequiresMountsFor", "WantsMountsFor"],
    ),
    (
        Ignored("has no effect: fleet starts and stops units to reach their requested state"),
        &["RefuseManualStart", "RefuseManualStop"],
    ),
    (
        Ignored("has no effect without an action"),
        &["FailureActionExitStatus", "SuccessActionExitStatus"],
    ),
    (Ignored("has no effect: starting a unit never stops another one"), UNIT_JOB_MODES),
    (
        RefusedUnless(NONE, ACTION),
        &["FailureAction", "JobTimeoutAction", "StartLimitAction", "SuccessAction"],
    ),
    (Refused(ACTION), &["JobTimeoutRebootArgument", "RebootArgument"]),
    (RefusedUnless(&["0", "infinity"], JOBS), &["JobRunningTimeoutSec", "JobTimeoutSec"]),
    (
        RefusedUnless(
            NO,
            Unsupported::new(
                Lifecycle,
                "is not supported: all units stop with the supervisor: set it to no",
            ),
        ),
        &["SurviveFinalKillSignal"],
    ),
    (
        Refused(Unsupported::new(
            Sandboxing,
            "is not supported: units have no namespaces to join: remove it",
        )),
        &["JoinsNamespaceOf"],
    ),
    (
        Refused(NEWER),
        &["AssertFraction", "AssertMachineTag", "ConditionFraction", "ConditionMachineTag"],
    ),
];

const UNIT_JOB_MODES: &[&str] = &["OnFailureIsolate", "OnFailureJobMode", "OnSuccessJobMode"];

/// `[Install]`.
pub(super) const INSTALL: &[Group] = &[
    (Honoured, &["Alias", "RequiredBy", "UpheldBy", "WantedBy"]),
    (Ignored("installs nothing here: submit the other unit as well"), &["Also"]),
    (Ignored("has no effect, because instances are always named"), &["DefaultInstance"]),
];

/// `[Timer]`.
pub(super) const TIMER: &[Group] = &[
    (
        Honoured,
        &[
            "FixedRandomDelay",
            "OnActiveSec",
            "OnBootSec",
            "OnCalendar",
            "OnStartupSec",
            "OnUnitActiveSec",
            "OnUnitInactiveSec",
            "Persistent",
            "RandomizedDelaySec",
            "RemainAfterElapse",
            "Unit",
        ],
    ),
    (Ignored("has no effect: every timer elapses exactly on time"), &["AccuracySec"]),
    (RefusedUnless(NO, CLOCK_CHANGES), &["OnClockChange", "OnTimezoneChange"]),
    (RefusedUnless(NO, WAKING), &["WakeSystem"]),
    (RefusedUnless(NO, DEFERRING), &["DeferReactivation"]),
    (RefusedUnless(&["0"], OFFSETS), &["RandomizedOffsetSec"]),
];

/// Position of an option in a unit file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OptionPosition {
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// The option with its section, such as `Service.Type`.
    pub option: String,
}

/// One reason to refuse a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRefusal {
    /// Position of the option. `None` if the refusal concerns the whole file.
    pub position: Option<OptionPosition>,
    /// Kind of the reason.
    pub cause: RefusalCause,
    /// Group of the option if the operator can accept its loss.
    pub group: Option<OptionGroup>,
    /// Problem and remedy.
    pub problem: String,
}

/// Kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause {
    /// The unit has a setting that cannot be honoured.
    Setting,
    /// The unit requires a unit that does not exist.
    NotFound,
}

/// All reasons to refuse a unit that were found, at most a hundred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRefusals {
    /// The unit.
    pub unit: UnitName,
    /// At least one refusal, ordered by line. Refusals that concern the whole file come last.
    pub all: Vec<UnitRefusal>,
}

impl OptionPosition {
    pub(super) fn new(location: Location, section: &str, name: &str) -> Self {
        let Location { line, column, .. } = location;
        Self { line, column, option: format!("{section}.{name}") }
    }

    /// Returns whether this is the position of that option.
    pub(super) fn is_of(&self, section: &str, name: &str) -> bool {
        self.option.split_once('.') == Some((section, name))
    }

    /// Returns the option's name without its section.
    #[must_use]
    pub fn name(&self) -> &str {
        self.option.split_once('.').map_or(&self.option, |(_, name)| name)
    }
}

impl fmt::Display for OptionPosition {
    /// Formats the position as `3:1: Service.Type`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.option)
    }
}

impl fmt::Display for UnitRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.position {
            Some(position) => write!(f, "{position} {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl fmt::Display for UnitRefusals {
    /// Formats one refusal per line, each with the name of the unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refusal) in self.all.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            let mark = if refusal.position.is_some() { ":" } else { ": " };
            write!(f, "{end}{}{mark}{refusal}", self.unit)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnitRefusals {}

/// A remark on a unit that is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remark {
    /// The option concerned.
    pub position: OptionPosition,
    /// Text of the remark. It continues a sentence that begins with the option, such as
    /// `Service.Type is treated as simple`.
    pub text: String,
    /// Kind of the remark.
    pub kind: RemarkKind,
}

/// Kind of a remark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemarkKind {
    /// The option has no effect here, or a different one. The unit works without it.
    Difference,
    /// The unit runs without the option, because the operator accepts its loss. Contains the group
    /// of the option, if it has one.
    Accepted(Option<OptionGroup>),
    /// The machine cannot enforce the option, which limits the resources of the unit's processes.
    Unenforced,
    /// The option is not known here. It is probably newer than the table of options.
    Unknown,
}

impl Remark {
    /// Creates a remark on an option that has no effect here, or a different one.
    #[must_use]
    pub fn new(position: OptionPosition, text: impl Into<String>) -> Self {
        Self { position, text: text.into(), kind: RemarkKind::Difference }
    }

    /// Sets the kind of the remark.
    #[must_use]
    pub fn with_kind(self, kind: RemarkKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns whether the unit loses an option that confines its processes, limits their resources
    /// or changes their privileges.
    #[must_use]
    pub fn loses_sandboxing(&self) -> bool {
        matches!(self.kind, RemarkKind::Accepted(Some(Sandboxing)) | RemarkKind::Unenforced)
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.position, self.text)
    }
}
