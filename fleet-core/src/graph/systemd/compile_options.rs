//! Options of the compiler.

use std::collections::BTreeSet;

use fleet_unitfile::SpecifierContext;

/// The parts of the environment that compilation depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Values of the specifiers. If a unit uses a specifier that has no value, the unit is refused.
    pub specifiers: SpecifierContext,
    /// Names, without sections, of unsupported options that do not lead to a refusal, because the
    /// operator accepts their loss. The unit runs without these options, and a remark reports each
    /// of them.
    pub accept: BTreeSet<String>,
}
