//! Cases that run in a booted machine.

pub(crate) mod comparison;
pub(crate) mod conditions;
pub(crate) mod conformance;
pub(crate) mod content;
pub(crate) mod cost;
pub(crate) mod external_changes;
pub(crate) mod interruptions;
pub(crate) mod journals;
pub(crate) mod many_units;
pub(crate) mod quadlets;
pub(crate) mod unit_types;
