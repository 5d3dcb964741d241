//! Authentication, and the limits of read-only callers.

pub(super) mod auth_policy;
pub(super) mod tokens;
