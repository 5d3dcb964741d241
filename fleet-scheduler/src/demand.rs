//! The demands of units, and the changes of a cluster's state.

use std::borrow::Cow;
use std::sync::Arc;

use fleet_core::expression::ExpressionError;
use fleet_core::machine::MachineIdError;
use fleet_core::pattern::{PatternError, PeerError};
use fleet_core::requirements::{
    InvalidRequirements, Preference, RequirementErrors, Reschedule, Spread,
};
use fleet_core::{Epoch, Machine, MachineId, Requirements, Resources, Strictness, Unit};
use fleet_unitfile::{NameError, ParseError, UnitFile, UnitName};

/// A unit as the scheduler sees it: its name, its requirements on a machine, and whether it is
/// wanted.
///
/// A demand is the part of a [`Unit`] that decides about its machine, so `Demand::from(&unit)`
/// converts one. Demands can also be made without any unit file:
///
/// ```
/// use fleet_scheduler::prelude::*;
///
/// let demand = Demand::new("db@1")?
///     .requires("disk", "ssd")
///     .conflicts("db@*")?
///     .reserves(cpu(2) + memory(gib(4)));
/// assert_eq!(demand.name().as_str(), "db@1.service");
///
/// // The same from the text of a unit file.
/// let text = "[X-Fleet]\n\
///     MachineMetadata=disk=ssd\nConflicts=db@*\nReserveCPU=2\nReserveMemory=4G\n";
/// assert_eq!(Demand::from_unit("db@1", text)?, demand);
/// # Ok::<(), fleet_scheduler::DemandError>(())
/// ```
///
/// Names are those of systemd's units, such as `web.service` or `db@1.service`. A name without a
/// dot is that of a service, as for `systemctl`. Any other name ends in a dot and a unit type, so
/// the workload `app.v2` needs the name `app.v2.service`. Methods that take the name of another
/// unit or a pattern treat it in the same way.
///
/// A template, such as `db@`, is never placed; its instances are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    pub(crate) name: UnitName,
    pub(crate) requirements: Arc<Requirements>,
    pub(crate) wanted: bool,
}

/// Error in a part of a [`Demand`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum DemandError {
    /// The name of the unit is invalid.
    Name(#[from] NameError),
    /// The ID of a machine is invalid.
    Machine(#[from] MachineIdError),
    /// A pattern is invalid.
    Pattern(#[from] PatternError),
    /// The name or pattern of a peer is invalid.
    Peer(#[from] PeerError),
    /// An expression is invalid.
    Expression(#[from] ExpressionError),
    /// The text is not a unit file.
    File(#[from] ParseError),
    /// The `[X-Fleet]` section is invalid.
    Requirements(#[from] RequirementErrors),
    /// The requirements contradict each other.
    Contradiction(#[from] InvalidRequirements),
}

impl Demand {
    /// Creates the demand of a wanted unit that runs on any machine.
    ///
    /// # Errors
    ///
    /// Returns an error if this is not the name of a unit.
    pub fn new(name: &str) -> Result<Self, DemandError> {
        Ok(Self::with_requirements(full_name(name).parse()?, Requirements::default()))
    }

    /// Creates the demand of a wanted unit from the text of its unit file. The scheduler reads only
    /// the section `[X-Fleet]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the name, the file or its section is invalid.
    pub fn from_unit(name: &str, text: &str) -> Result<Self, DemandError> {
        let name: UnitName = full_name(name).parse()?;
        let file = UnitFile::parse(text)?;
        let parsed = Requirements::parse(&name, &file, Strictness::Refuse)?;
        Ok(Self::with_requirements(name, parsed.requirements))
    }

    /// Creates the demand of a wanted unit with these requirements.
    pub fn with_requirements(name: UnitName, requirements: impl Into<Arc<Requirements>>) -> Self {
        Self { name, requirements: requirements.into(), wanted: true }
    }

    /// Requires a machine with this metadata. Several values of one key are alternatives.
    #[must_use]
    pub fn requires(mut self, key: &str, value: &str) -> Self {
        let values = self.edit().metadata.entry(key.to_owned()).or_default();
        values.insert(value.to_owned());
        self
    }

    /// Requires a machine with metadata for which an expression is true, such as `cores >= 8 and
    /// not exists retired`.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression is invalid.
    pub fn requires_that(mut self, expression: &str) -> Result<Self, DemandError> {
        self.edit().metadata_expr = Some(expression.parse()?);
        Ok(self)
    }

    /// Requires the machine with this ID.
    ///
    /// # Errors
    ///
    /// Returns an error if this is not a machine ID.
    pub fn only_on(mut self, machine: &str) -> Result<Self, DemandError> {
        self.edit().machine_id = Some(machine.parse()?);
        Ok(self)
    }

    /// Requires the machine of another unit, or of a unit that the pattern matches.
    ///
    /// # Errors
    ///
    /// Returns an error if this is neither a unit name nor a pattern.
    pub fn same_machine_as(mut self, peer: &str) -> Result<Self, DemandError> {
        self.edit().machine_of.push(full_name(peer).parse()?);
        Ok(self)
    }

    /// Keeps the unit apart from all other units that the pattern matches. It is enough that one of
    /// two units conflicts with the other.
    ///
    /// # Errors
    ///
    /// Returns an error if the pattern is invalid.
    pub fn conflicts(mut self, pattern: &str) -> Result<Self, DemandError> {
        self.edit().conflicts.push(full_name(pattern).parse()?);
        Ok(self)
    }

    /// Moves the units that the pattern matches away from the machine to which this unit comes.
    ///
    /// # Errors
    ///
    /// Returns an error if the pattern is invalid.
    pub fn replaces(mut self, pattern: &str) -> Result<Self, DemandError> {
        self.edit().replaces.push(full_name(pattern).parse()?);
        Ok(self)
    }

    /// Reserves resources of the machine.
    #[must_use]
    pub fn reserves(mut self, amounts: Resources) -> Self {
        self.edit().reserve = amounts;
        self
    }

    /// Limits the instances of the unit's template on one machine.
    #[must_use]
    pub fn max_per_machine(mut self, most: u32) -> Self {
        self.edit().max_per_machine = Some(most);
        self
    }

    /// Prefers machines with metadata for which an expression is true. Of the machines that accept
    /// the unit, those with the highest sum of weights come first.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression is invalid.
    pub fn prefers(mut self, expression: &str, weight: i32) -> Result<Self, DemandError> {
        let expression = expression.parse()?;
        self.edit().prefer.push(Preference { expression, weight });
        Ok(self)
    }

    /// Spreads the instances of the unit's template over the values of a metadata key. Each
    /// instance with the same value lowers the score of a machine by the weight.
    #[must_use]
    pub fn spreads_over(mut self, key: &str, weight: i32) -> Self {
        self.edit().spread.push(Spread { key: key.to_owned(), weight });
        self
    }

    /// Avoids a machine on which the unit has failed, unless no other machine accepts the unit. Of
    /// such machines, the one with the fewest failures comes first.
    ///
    /// # Errors
    ///
    /// Returns an error if this is not a machine ID.
    pub fn failed_on(mut self, machine: &str, failures: u32) -> Result<Self, DemandError> {
        self.edit().failed_on.insert(machine.parse()?, failures);
        Ok(self)
    }

    /// Runs the unit on every machine that meets its metadata requirements and conflicts.
    #[must_use]
    pub fn everywhere(mut self) -> Self {
        self.edit().global = true;
        self
    }

    /// Leaves the unit without a machine while its machine is gone.
    #[must_use]
    pub fn never_rescheduled(mut self) -> Self {
        self.edit().reschedule = Reschedule::Never;
        self
    }

    /// Marks the unit as known but not wanted: it gets no machine.
    #[must_use]
    pub fn unwanted(self) -> Self {
        Self { wanted: false, ..self }
    }

    /// Checks that the requirements do not contradict each other, which [`from_unit`] has done
    /// already. The planner accepts any requirements.
    ///
    /// [`from_unit`]: Self::from_unit
    ///
    /// # Errors
    ///
    /// Returns an error for requirements that a unit file could not have.
    pub fn validated(self) -> Result<Self, DemandError> {
        self.requirements.validate(&self.name)?;
        Ok(self)
    }

    /// Returns the full name of the unit.
    #[must_use]
    pub fn name(&self) -> &UnitName {
        &self.name
    }

    /// Returns the requirements on a machine.
    #[must_use]
    pub fn requirements(&self) -> &Requirements {
        &self.requirements
    }

    /// Returns whether the unit is to run. A template never runs, and neither does a schedule.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted && !self.name.is_template() && !self.requirements.is_schedule()
    }

    fn edit(&mut self) -> &mut Requirements {
        Arc::make_mut(&mut self.requirements)
    }
}

impl From<&Unit> for Demand {
    fn from(unit: &Unit) -> Self {
        let (name, requirements) = (unit.name.clone(), unit.requirements.clone());
        Self { name, requirements, wanted: unit.is_wanted() }
    }
}

impl From<&Arc<Unit>> for Demand {
    fn from(unit: &Arc<Unit>) -> Self {
        Self::from(&**unit)
    }
}

/// Adds the type to the name of a service without one. Patterns stay as they are.
pub(crate) fn full_name(name: &str) -> Cow<'_, str> {
    if name.contains(['.', '*', '?', '[']) { name.into() } else { format!("{name}.service").into() }
}

/// A change of a cluster's state. Each variant is named after the method of
/// [`Cluster`](crate::Cluster) with the same effect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Adds or replaces a unit.
    Add(Demand),
    /// Removes a unit. Its placement stays until it is removed separately.
    Remove(UnitName),
    /// Marks a unit's stored record as unreadable.
    MarkUnreadable(UnitName),
    /// Adds or replaces a machine.
    AddMachine(Machine),
    /// Removes a machine.
    RemoveMachine(MachineId),
    /// Records the placement of a unit.
    Place {
        /// The unit.
        unit: UnitName,
        /// The machine.
        machine: MachineId,
        /// The epoch of the placement.
        epoch: Epoch,
    },
    /// Removes the placement of a unit.
    Unplace(UnitName),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_type_are_services() {
        for (name, full) in [("db@1", "db@1.service"), ("a.socket", "a.socket"), ("db@*", "db@*")] {
            assert_eq!(full_name(name), full);
        }
    }

    #[test]
    fn only_units_that_run_themselves_are_wanted() {
        let section = |text| Demand::from_unit("a", &format!("[X-Fleet]\n{text}")).unwrap();
        assert!(section("RunOnce=true\n").is_wanted());
        assert!(!section("RunOnce=true\n").unwanted().is_wanted());
        assert!(!section("RunOnce=true\nSchedule=daily\n").is_wanted());
        assert!(!Demand::new("a@").unwrap().is_wanted());
    }

    #[test]
    fn invalid_parts_of_a_demand_are_refused() {
        let demand = || Demand::new("a").unwrap();
        assert!(matches!(Demand::new("a/b"), Err(DemandError::Name(_))));
        assert!(matches!(Demand::from_unit("a", "["), Err(DemandError::File(_))));
        let unknown = Demand::from_unit("a", "[X-Fleet]\nConflict=b\n");
        assert!(matches!(unknown, Err(DemandError::Requirements(_))));
        assert!(matches!(demand().requires_that("and"), Err(DemandError::Expression(_))));
        assert!(matches!(demand().conflicts("b["), Err(DemandError::Pattern(_))));
        assert!(matches!(demand().only_on(""), Err(DemandError::Machine(_))));
        let contradiction = demand().everywhere().never_rescheduled().only_on("m1").unwrap();
        assert!(matches!(contradiction.validated(), Err(DemandError::Contradiction(_))));
    }
}
