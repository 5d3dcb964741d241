//! `MachineMetadataExpr=`: an expression that must be true for the machine's metadata. It is
//! evaluated as part of the [filter](super::metadata) of the unit's class.

use fleet_core::{Machine, Refusal, Requirements};

use super::PlacementQuery;

pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let refusal = refusal(&query.class.requirements, query.facts());
    refusal.unwrap_or(Refusal::Cordon {})
}

/// Returns a refusal that names the first false part of the expression. Returns `None` if the
/// expression is true for the machine.
pub(crate) fn refusal(requirements: &Requirements, machine: &Machine) -> Option<Refusal> {
    let expression = requirements.metadata_expr.as_ref()?;
    let part = expression.first_false(&machine.metadata)?;
    Some(Refusal::MachineMetadataExpr { failed: part.part.into(), found: part.found.into() })
}
