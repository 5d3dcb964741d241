//! Features of generated clusters.

/// The options and conditions that generated clusters may have. A feature that is `false` occurs in
/// no cluster. Each of the other features occurs in some of the clusters.
///
/// ```
/// use fleet_scheduler::testing::strategies::Features;
///
/// let without_groups = Features { groups: false, ..Features::ALL };
/// assert!(without_groups.conflicts);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it is written out with `..Features::ALL`")]
#[expect(clippy::struct_excessive_bools, reason = "each is a feature of its own")]
pub struct Features {
    /// `MachineID=`.
    pub pins: bool,
    /// `MachineMetadata=`.
    pub metadata: bool,
    /// `MachineMetadataExpr=`.
    pub expressions: bool,
    /// `MachineOf=` with names.
    pub groups: bool,
    /// `MachineOf=` with patterns.
    pub peer_patterns: bool,
    /// `Conflicts=`.
    pub conflicts: bool,
    /// `Replaces=`.
    pub replaces: bool,
    /// `MaxPerMachine=`.
    pub limits: bool,
    /// `Reserve…=`, and the capacity of machines.
    pub reservations: bool,
    /// `Prefer=` and `Spread=`.
    pub preferences: bool,
    /// `Reschedule=never`.
    pub never: bool,
    /// `Global=`.
    pub globals: bool,
    /// Machines that are cordoned.
    pub cordons: bool,
    /// Units with unreadable records.
    pub faults: bool,
}

impl Features {
    /// All features.
    pub const ALL: Self = Self::from_bits(u16::MAX);

    /// Units that may be wanted and placed, without requirements.
    pub const NONE: Self = Self::from_bits(0);

    /// Creates features from a number, one bit each.
    pub(super) const fn from_bits(bits: u16) -> Self {
        const fn has(bits: u16, at: u16) -> bool {
            bits & (1 << at) != 0
        }
        Self {
            pins: has(bits, 0),
            metadata: has(bits, 1),
            groups: has(bits, 2),
            peer_patterns: has(bits, 3),
            conflicts: has(bits, 4),
            replaces: has(bits, 5),
            limits: has(bits, 6),
            reservations: has(bits, 7),
            preferences: has(bits, 8),
            never: has(bits, 9),
            globals: has(bits, 10),
            cordons: has(bits, 11),
            faults: has(bits, 12),
            expressions: has(bits, 13),
        }
    }

    /// Returns the features that both have.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            pins: self.pins && other.pins,
            metadata: self.metadata && other.metadata,
            expressions: self.expressions && other.expressions,
            groups: self.groups && other.groups,
            peer_patterns: self.peer_patterns && other.peer_patterns,
            conflicts: self.conflicts && other.conflicts,
            replaces: self.replaces && other.replaces,
            limits: self.limits && other.limits,
            reservations: self.reservations && other.reservations,
            preferences: self.preferences && other.preferences,
            never: self.never && other.never,
            globals: self.globals && other.globals,
            cordons: self.cordons && other.cordons,
            faults: self.faults && other.faults,
        }
    }
}
