//! What is known about where units run.

use std::collections::BTreeSet;

use fleet_unitfile::SpecifierContext;

/// Where units run, as far as their compilation depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// What specifiers stand for. One whose fact is missing is refused.
    pub facts: SpecifierContext,
    /// Names of options, without their sections, that an operator wants passed over where they
    /// would be refused: a unit then runs as if they did not stand there, and a remark says so.
    pub accept: BTreeSet<String>,
}
