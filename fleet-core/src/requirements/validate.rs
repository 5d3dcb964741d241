//! Validation of requirements that were built as values, and the checks across options that it
//! shares with the parser.

use std::collections::BTreeSet;
use std::fmt;

use fleet_unitfile::{Span, UnitName};

use super::parse::{MAX_VALUES, SectionReader, Spanned};
use super::{
    FleetOption, OnPartition, Preference, RequirementErrorKind, RequirementWarningKind,
    Requirements, Reschedule, Spread, is_spread_key,
};
use crate::Pattern;
use crate::failures::FailureRecord;
use crate::health::{HealthCheck, HealthCheckError};
use crate::job::SettingErrorKind;
use crate::pattern::Peer;

/// A contradiction in [`Requirements`], reported by [`Requirements::validate`].
///
/// `Display` writes the problem and how to correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRequirements {
    /// Two options are mutually exclusive.
    MutuallyExclusive {
        /// The first option.
        one: FleetOption,
        /// The other option.
        other: FleetOption,
    },
    /// `MachineOf=` or `StartAfter=` names the unit itself.
    PeerIsSelf {
        /// The option.
        option: FleetOption,
        /// The unit.
        peer: UnitName,
    },
    /// `MachineOf=` or `StartAfter=` names a template, which never runs.
    PeerIsTemplate {
        /// The option.
        option: FleetOption,
        /// The template.
        peer: UnitName,
    },
    /// `MachineOf=` requires a unit that the unit itself excludes.
    PeerExcluded {
        /// The unit or the pattern in `MachineOf=`.
        peer: Peer,
        /// `Conflicts` or `Replaces`.
        option: FleetOption,
        /// The pattern that excludes the peer.
        pattern: Pattern,
    },
    /// `MaxPerMachine=` is 0, so no machine may run the unit.
    NoInstanceAllowed,
    /// `MoveAfterFailures=` is 0 or too large.
    FailureLimit,
    /// The weight of a `Prefer=` or `Spread=` is not in the allowed range.
    Weight {
        /// The option.
        option: FleetOption,
        /// The weight.
        weight: i32,
    },
    /// A `Spread=` is not a metadata key.
    SpreadKey {
        /// The key.
        key: String,
    },
    /// Two `Spread=` have the same key.
    RepeatedSpreadKey {
        /// The key.
        key: String,
    },
    /// The health check is invalid.
    HealthCheck {
        /// The error of the health check.
        cause: HealthCheckError,
    },
    /// The job or its schedule is invalid.
    Job {
        /// The error of the job.
        cause: SettingErrorKind,
    },
    /// An option has too many values.
    TooMany {
        /// The option.
        option: FleetOption,
        /// The maximum number of values.
        limit: usize,
    },
}

impl std::error::Error for InvalidRequirements {}

impl fmt::Display for InvalidRequirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MutuallyExclusive { one, other } => {
                write!(f, "{one} cannot be used together with {other}: remove one of them")
            }
            Self::PeerIsSelf { option, peer } => {
                write!(f, "{option}={peer} names the unit itself: remove it")
            }
            Self::PeerIsTemplate { option, peer } => {
                write!(f, "{option}={peer} names a template, which never runs itself: ")?;
                f.write_str("name one of its instances")
            }
            Self::PeerExcluded { peer, option, pattern } => {
                write!(f, "MachineOf={peer} cannot be satisfied, because {option}={pattern} ")?;
                f.write_str("excludes that unit: remove one of them")
            }
            Self::NoInstanceAllowed => {
                f.write_str("MaxPerMachine=0 allows no machine: use at least 1, or None")
            }
            Self::FailureLimit => {
                f.write_str("MoveAfterFailures is out of range: use 1 to 100, or None")
            }
            Self::Weight { option: FleetOption::Spread, weight } => {
                write!(f, "Spread has the weight {weight}: use one from 1 to 1000")
            }
            Self::Weight { option, weight } => {
                write!(f, "{option} has the weight {weight}: use one from -1000 to 1000 but 0")
            }
            Self::SpreadKey { key } => {
                write!(f, "Spread has the key {key:?}, which is not a metadata key: use one ")?;
                f.write_str("without blanks, control characters and \"=\"")
            }
            Self::RepeatedSpreadKey { key } => {
                write!(f, "Spread has the key {key} twice: keep one of them")
            }
            Self::HealthCheck { cause } => {
                write!(f, "the health check is invalid: {cause}: {}", cause.help())
            }
            Self::Job { cause } => write!(f, "{cause}: {}", cause.help()),
            Self::TooMany { option, limit } => {
                write!(f, "{option} has more than {limit} values: use patterns, or remove some")
            }
        }
    }
}

impl Requirements {
    /// Checks requirements that were not [parsed](Self::parse) but built as a value, for the unit
    /// called `name`. Parsed requirements always pass.
    ///
    /// The scheduler accepts any requirements. With requirements that fail this check, it may for
    /// example ignore an option of a global unit, or find no machine.
    ///
    /// ```
    /// use fleet_core::Requirements;
    /// use fleet_core::requirements::InvalidRequirements;
    ///
    /// let name = "web.service".parse()?;
    /// let wants = Requirements::default().with_max_per_machine(0);
    /// assert_eq!(wants.validate(&name), Err(InvalidRequirements::NoInstanceAllowed));
    /// assert_eq!(Requirements::default().validate(&name), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the first problem. Cycles of `MachineOf=` involve several units, so the scheduler
    /// reports them as the reason of each unit. [`start_after_cycle`] finds those of
    /// `StartAfter=`.
    ///
    /// [`start_after_cycle`]: crate::cycle::start_after_cycle
    pub fn validate(&self, name: &UnitName) -> Result<(), InvalidRequirements> {
        let exclusive =
            |(one, other): &&(FleetOption, FleetOption)| self.uses(*one) && self.uses(*other);
        if let Some((one, other)) = EXCLUSIVE_PAIRS.iter().find(exclusive).copied() {
            return Err(InvalidRequirements::MutuallyExclusive { one, other });
        }
        self.validate_counts()?;
        self.machine_of.iter().try_for_each(|peer| self.validate_peer(name, peer))?;
        let validate = |peer| validate_name(FleetOption::StartAfter, name, peer);
        self.start_after.iter().try_for_each(validate)?;
        self.validate_preferences()?;
        let health = self.health_check.as_ref().map_or(Ok(()), HealthCheck::validate);
        health.map_err(|cause| InvalidRequirements::HealthCheck { cause })?;
        let job = self.job.as_ref().map_or(Ok(()), |job| job.validate(name));
        job.map_err(|cause| InvalidRequirements::Job { cause })
    }

    /// Returns whether an option has an effect.
    fn uses(&self, option: FleetOption) -> bool {
        match option {
            FleetOption::Global => self.global,
            FleetOption::MachineId => self.machine_id.is_some(),
            FleetOption::MachineOf => !self.machine_of.is_empty(),
            FleetOption::MachineMetadata => !self.metadata.is_empty(),
            FleetOption::MachineMetadataExpr => self.metadata_expr.is_some(),
            FleetOption::Conflicts => !self.conflicts.is_empty(),
            FleetOption::Replaces => !self.replaces.is_empty(),
            FleetOption::MaxPerMachine => self.max_per_machine.is_some(),
            FleetOption::Prefer => !self.prefer.is_empty(),
            FleetOption::Spread => !self.spread.is_empty(),
            FleetOption::Reschedule => self.reschedule != Reschedule::default(),
            FleetOption::MoveAfterFailures => self.move_after_failures.is_some(),
            FleetOption::OnPartition => self.on_partition != OnPartition::default(),
            FleetOption::StartAfter => !self.start_after.is_empty(),
            FleetOption::HealthCheck
            | FleetOption::HealthInterval
            | FleetOption::HealthTimeout
            | FleetOption::HealthThreshold => self.health_check.is_some(),
            FleetOption::RunOnce
            | FleetOption::Retries
            | FleetOption::Deadline
            | FleetOption::KeepFor
            | FleetOption::CountLost => self.job.is_some(),
            FleetOption::Schedule | FleetOption::ConcurrencyPolicy | FleetOption::CatchUp => {
                self.is_schedule()
            }
            FleetOption::ReserveCpu | FleetOption::ReserveMemory | FleetOption::ReserveDisk => {
                option.reserves().is_some_and(|resource| self.reserve[resource] > 0)
            }
        }
    }

    fn validate_counts(&self) -> Result<(), InvalidRequirements> {
        let values = self.metadata.values().map(BTreeSet::len).sum();
        let counts = [
            (FleetOption::MachineOf, self.machine_of.len()),
            (FleetOption::MachineMetadata, values),
            (FleetOption::Conflicts, self.conflicts.len()),
            (FleetOption::Replaces, self.replaces.len()),
            (FleetOption::Prefer, self.prefer.len()),
            (FleetOption::Spread, self.spread.len()),
            (FleetOption::StartAfter, self.start_after.len()),
        ];
        match counts.into_iter().find(|(_, count)| *count > MAX_VALUES) {
            Some((option, _)) => Err(InvalidRequirements::TooMany { option, limit: MAX_VALUES }),
            None if self.max_per_machine == Some(0) => Err(InvalidRequirements::NoInstanceAllowed),
            None if self.move_after_failures.is_some_and(|it| !FAILURE_LIMITS.contains(&it)) => {
                Err(InvalidRequirements::FailureLimit)
            }
            None => Ok(()),
        }
    }

    fn validate_peer(&self, name: &UnitName, peer: &Peer) -> Result<(), InvalidRequirements> {
        peer.name().map_or(Ok(()), |peer| validate_name(FleetOption::MachineOf, name, peer))?;
        let lists =
            [(FleetOption::Conflicts, &self.conflicts), (FleetOption::Replaces, &self.replaces)];
        for (option, patterns) in lists {
            if let Some(pattern) = patterns.iter().find(|pattern| excludes(pattern, peer)) {
                let (peer, pattern) = (peer.clone(), pattern.clone());
                return Err(InvalidRequirements::PeerExcluded { peer, option, pattern });
            }
        }
        Ok(())
    }

    fn validate_preferences(&self) -> Result<(), InvalidRequirements> {
        let allowed = |weight: i32| weight != 0 && Preference::WEIGHTS.contains(&weight);
        if let Some(preference) = self.prefer.iter().find(|it| !allowed(it.weight)) {
            let (option, weight) = (FleetOption::Prefer, preference.weight);
            return Err(InvalidRequirements::Weight { option, weight });
        }
        for (at, Spread { weight, key }) in self.spread.iter().enumerate() {
            if !Spread::WEIGHTS.contains(weight) {
                let (option, weight) = (FleetOption::Spread, *weight);
                return Err(InvalidRequirements::Weight { option, weight });
            }
            if !is_spread_key(key) {
                return Err(InvalidRequirements::SpreadKey { key: key.clone() });
            }
            if self.spread[..at].iter().any(|other| other.key == *key) {
                return Err(InvalidRequirements::RepeatedSpreadKey { key: key.clone() });
            }
        }
        Ok(())
    }
}

/// Checks a unit in an option of the unit called `name`.
fn validate_name(
    option: FleetOption,
    name: &UnitName,
    peer: &UnitName,
) -> Result<(), InvalidRequirements> {
    let peer = peer.clone();
    if peer == *name {
        return Err(InvalidRequirements::PeerIsSelf { option, peer });
    }
    if peer.is_template() {
        return Err(InvalidRequirements::PeerIsTemplate { option, peer });
    }
    Ok(())
}

/// The allowed values of `move_after_failures`.
const FAILURE_LIMITS: std::ops::RangeInclusive<u32> = 1..=FailureRecord::MAX_LIMIT;

/// Pairs of mutually exclusive options.
///
/// - `MachineID=` fixes the machine, so the unit cannot depend on peers, replace units, or be
///   global.
/// - A global unit runs on every eligible machine, so it has no reservations, limits, preferences
///   or peers, and replaces no unit.
/// - A unit that replaces another must be able to run on the other unit's machine, so it cannot
///   also have conflicts.
/// - A job runs once in the cluster, so it cannot be global. Its exit status decides about its
///   success, so it has no health check.
/// - A unit that moves after failures needs a choice of machines. A job has `Retries=` instead.
///
/// Unlike in fleet v1, `MachineID=` and `Conflicts=` are allowed together. The combination only
/// narrows the choice of machines, and the documentation of fleet v1 does not forbid it.
pub(super) const EXCLUSIVE_PAIRS: [(FleetOption, FleetOption); 18] = [
    (FleetOption::MachineId, FleetOption::MachineOf),
    (FleetOption::MachineId, FleetOption::Global),
    (FleetOption::MachineId, FleetOption::Replaces),
    (FleetOption::MachineOf, FleetOption::Global),
    (FleetOption::Global, FleetOption::Replaces),
    (FleetOption::Conflicts, FleetOption::Replaces),
    (FleetOption::Global, FleetOption::ReserveCpu),
    (FleetOption::Global, FleetOption::ReserveMemory),
    (FleetOption::Global, FleetOption::ReserveDisk),
    (FleetOption::Global, FleetOption::MaxPerMachine),
    (FleetOption::Global, FleetOption::Prefer),
    (FleetOption::Global, FleetOption::Spread),
    (FleetOption::Global, FleetOption::Reschedule),
    (FleetOption::Global, FleetOption::RunOnce),
    (FleetOption::HealthCheck, FleetOption::RunOnce),
    (FleetOption::MoveAfterFailures, FleetOption::MachineId),
    (FleetOption::MoveAfterFailures, FleetOption::Global),
    (FleetOption::MoveAfterFailures, FleetOption::RunOnce),
];

/// Checks the options of a unit against each other.
pub(super) fn check(reader: &mut SectionReader<'_>) {
    check_pairs(reader);
    check_peers(reader);
    check_instance_options(reader);
    check_health_options(reader);
    reader.check_job_service();
}

fn check_pairs(reader: &mut SectionReader<'_>) {
    for (a, b) in EXCLUSIVE_PAIRS {
        let (Some(at_a), Some(at_b)) = (reader.used(a), reader.used(b)) else {
            continue;
        };
        let mut in_order = [(at_a, a), (at_b, b)];
        in_order.sort_unstable();
        let [(span, one), (other_span, other)] = in_order;
        let line = reader.reports.line(other_span);
        reader.reports.refuse(span, RequirementErrorKind::MutuallyExclusive { one, other, line });
    }
}

/// Warns about options for instances, if the unit is not an instance.
fn check_instance_options(reader: &mut SectionReader<'_>) {
    if reader.name.is_instance() || reader.name.is_template() {
        return;
    }
    for option in FleetOption::ALL.into_iter().filter(|option| option.counts_instances()) {
        if let Some(span) = reader.used(option) {
            reader.reports.warn(span, RequirementWarningKind::NoEffect { option });
        }
    }
}

/// Warns about options that adjust a health check, if the unit has none.
fn check_health_options(reader: &mut SectionReader<'_>) {
    if reader.used(FleetOption::HealthCheck).is_some() {
        return;
    }
    for option in FleetOption::ALL.into_iter().filter(|option| option.adjusts_health_check()) {
        if let Some(span) = reader.used(option) {
            reader.reports.warn(span, RequirementWarningKind::NoHealthCheck { option });
        }
    }
}

/// Refuses a peer that the unit also excludes.
fn check_peers(reader: &mut SectionReader<'_>) {
    for (span, kind) in excluded_peers(reader) {
        reader.reports.refuse(span, kind);
    }
}

fn excluded_peers(reader: &SectionReader<'_>) -> Vec<(Span, RequirementErrorKind)> {
    let lists =
        [(FleetOption::Conflicts, &reader.conflicts), (FleetOption::Replaces, &reader.replaces)];
    let mut found = Vec::new();
    for peer in &reader.machine_of {
        for (option, patterns) in lists {
            let covering = patterns.iter().find(|pattern| excludes(&pattern.value, &peer.value));
            let Some(Spanned { value: pattern, span }) = covering else {
                continue;
            };
            let kind = RequirementErrorKind::PeerExcluded {
                peer: peer.value.clone(),
                option,
                pattern: pattern.clone(),
                line: reader.reports.line(*span),
            };
            found.push((peer.span, kind));
        }
    }
    found
}

/// Returns `true` if the pattern excludes the peer. A peer that is itself a pattern counts as
/// excluded only if the two patterns are equal, because other overlaps are not examined.
pub(super) fn excludes(pattern: &Pattern, peer: &Peer) -> bool {
    match peer {
        Peer::Named(name) => pattern.matches(name),
        Peer::Matching(other) => pattern == other,
    }
}
