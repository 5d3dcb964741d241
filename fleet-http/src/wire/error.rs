//! How a failure is told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Unit;

/// The body of every answer of the 400s and 500s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorEntity,
    /// With status 412: the unit as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Box<Unit>>,
}

/// What went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ErrorEntity {
    /// The answer's status.
    pub code: u16,
    /// Each thing that is wrong with the unit file that was sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ErrorDetail>,
    /// An explanation for people.
    pub message: String,
}

/// One thing that is wrong with a unit file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ErrorDetail {
    /// The column, in characters, counted from one; zero if there is no place.
    #[serde(skip_serializing_if = "is_zero")]
    pub column: usize,
    /// What to write instead.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub help: String,
    /// The line, counted from one; zero if there is no place.
    #[serde(skip_serializing_if = "is_zero")]
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
