//! Options of the compiler.

use std::collections::BTreeSet;

use fleet_unitfile::SpecifierContext;

/// The parts of the environment that compilation depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Values of the specifiers. If a unit uses a specifier that has no value, the unit is refused.
    pub facts: SpecifierContext,
    /// Names, without sections, of options that the operator accepts although they would be
    /// refused. The unit then runs without these options, and a remark reports that.
    pub accept: BTreeSet<String>,
}
