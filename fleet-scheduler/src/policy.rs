//! What an embedder chooses.

/// Which of the machines that take a unit is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ranking {
    /// The one with the fewest units.
    #[default]
    LeastLoaded,
    /// The one with the most units.
    BinPacking,
    /// The one with the fewest instances of the unit's template, then with the fewest units.
    Spread,
}

/// What an embedder chooses.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Which of the machines that take a unit is taken.
    pub ranking: Ranking,
}
