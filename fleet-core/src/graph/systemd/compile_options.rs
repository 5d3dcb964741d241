//! Options of the compiler.

use std::collections::BTreeSet;

use fleet_unitfile::SpecifierContext;

/// The parts of the environment that compilation depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Values of specifiers. A unit that uses a specifier without a value is refused.
    pub facts: SpecifierContext,
    /// Names of options, without sections, that the operator accepts where they would be refused.
    /// The unit then runs without them, and a remark says so.
    pub accept: BTreeSet<String>,
}
