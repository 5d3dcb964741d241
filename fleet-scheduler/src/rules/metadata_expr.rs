//! `MachineMetadataExpr=`: an expression that must be true for the machine's metadata. The
//! [filter](super::metadata) of the unit's class evaluates the expression.

use fleet_core::{Machine, Refusal, Requirements};

use super::PlacementQuery;

pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let refusal = refusal(&query.class.requirements, query.facts());
    refusal.unwrap_or(Refusal::Cordon {})
}

/// Returns the refusal with the part of the expression that is not true for the machine, if any.
pub(crate) fn refusal(requirements: &Requirements, machine: &Machine) -> Option<Refusal> {
    let expression = requirements.metadata_expr.as_ref()?;
    let part = expression.first_false(&machine.metadata)?;
    Some(Refusal::MachineMetadataExpr { failed: part.part.into(), found: part.found.into() })
}
