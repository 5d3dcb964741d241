//! Error responses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::UnitEntity;

/// Message of the errors of a daemon that refuses its store.
pub const OTHER_STORE: &str = "the store was emptied or replaced, so this daemon leaves its units \
     running and does nothing else: restore the store, or accept the present one with \
     \"fleetd accept-store\", then restart fleetd";

/// Body of every response with status 4xx or 5xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorEntity,
    /// The unit's current state, with status 412.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Box<UnitEntity>>,
}

/// An error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ErrorEntity {
    /// HTTP status of the response.
    pub code: u16,
    /// Errors in the submitted unit file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ErrorDetail>,
    /// Explanation of the error.
    pub message: String,
}

/// An error in a unit file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ErrorDetail {
    /// Column in characters, counted from one; zero if the error has no position.
    #[serde(skip_serializing_if = "is_zero")]
    pub column: usize,
    /// Correction to make.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub help: String,
    /// Line, counted from one; zero if the error has no position.
    #[serde(skip_serializing_if = "is_zero")]
    pub line: usize,
    /// Description of the error.
    pub message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
