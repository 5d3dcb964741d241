//! Authentication, and the limits of read-only callers.

pub(super) mod auth_policy;
pub(super) mod preview;
pub(super) mod read_share;
pub(super) mod tokens;
