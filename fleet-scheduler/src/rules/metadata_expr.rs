//! `MachineMetadataExpr=`: an expression that must be true of the machine's metadata. Whether it is
//! is known from the [filter](super::metadata) of the unit's class.

use fleet_core::{Machine, Refusal, Requirements};

use super::PlacementQuery;

pub(super) fn refusal_for(query: &PlacementQuery<'_>) -> Refusal {
    let told = refusal(&query.class.requirements, query.facts());
    told.unwrap_or(Refusal::Cordon {})
}

/// Which part of the expression is false of the machine, if it is false.
pub(crate) fn refusal(requirements: &Requirements, machine: &Machine) -> Option<Refusal> {
    let expression = requirements.metadata_expr.as_ref()?;
    let part = expression.first_false(&machine.metadata)?;
    Some(Refusal::MachineMetadataExpr { failed: part.part.into(), found: part.found.into() })
}
