//! Pure: classification of failed calls by the effect that they may have had. A doubtful effect is
//! classified as unknown.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use etcd_client::Error as ClientError;
use tonic::{Code, ConnectError, Status};

use crate::StoreError;

/// A failed call to an endpoint.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    cause: Box<dyn Error + Send + Sync>,
}

/// Effect of a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// Not applied; another endpoint may succeed, or this one later.
    NotDone,
    /// Not applied: the token was rejected, and a new one may be accepted.
    BadToken,
    /// Not applied, and a retry will not help.
    Refused,
    /// Unknown whether applied.
    Ambiguous,
    /// Not applied, because the request is invalid.
    Invalid(String),
    /// Not applied, because the lease does not exist.
    NoLease,
    /// The requested revision is no longer kept.
    Compacted,
    /// The response is larger than the client accepts.
    TooLarge,
}

/// Timeout of a call.
#[derive(Debug, thiserror::Error)]
#[error("etcd at {endpoint} did not respond within {limit:?}")]
pub(super) struct TimeoutError {
    pub(super) endpoint: String,
    pub(super) limit: Duration,
}

/// Error status from an endpoint, or from the connection to it.
#[derive(Debug)]
struct EndpointStatus {
    endpoint: String,
    status: Status,
}

impl fmt::Display for EndpointStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, status } = self;
        match (status.message(), status.code()) {
            ("", code) => write!(f, "etcd at {endpoint}: {code}"),
            (text, _) => write!(f, "etcd at {endpoint}: {text}"),
        }
    }
}

impl Error for EndpointStatus {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.status.source()
    }
}

/// Error of the client library without a status.
#[derive(Debug, thiserror::Error)]
#[error("no response from etcd at {endpoint}")]
struct NoResponse {
    endpoint: String,
    #[source]
    error: ClientError,
}

/// Response of etcd that violates its protocol.
#[derive(Debug, thiserror::Error)]
#[error("unexpected behavior of etcd: {0}")]
pub(super) struct ProtocolViolation(pub(super) &'static str);

impl Failure {
    /// Converts the error of a call to `endpoint`.
    pub(super) fn at(endpoint: &str, error: ClientError) -> Self {
        let endpoint = endpoint.to_owned();
        match error {
            ClientError::GRpcStatus(status) => {
                Self::new(kind(&status), EndpointStatus { endpoint, status })
            }
            error => Self::new(kind_without_status(&error), NoResponse { endpoint, error }),
        }
    }

    pub(super) fn new(kind: FailureKind, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { kind, cause: Box::new(cause) }
    }

    /// Converts the failure of a preparatory call: the actual call was not made.
    pub(super) fn into_not_done(mut self) -> Self {
        if self.kind == FailureKind::Ambiguous {
            self.kind = FailureKind::NotDone;
        }
        self
    }

    /// Returns whether another endpoint may succeed.
    pub(super) fn is_endpoint_failure(&self) -> bool {
        matches!(self.kind, FailureKind::NotDone | FailureKind::Ambiguous)
    }

    /// Converts the failure of a call that changes nothing or is idempotent.
    pub(super) fn into_read_error(self) -> StoreError {
        match self.kind {
            FailureKind::Invalid(text) => StoreError::Invalid(text),
            _ => StoreError::Unavailable(self.cause),
        }
    }

    /// Converts the failure of a call that may have changed something.
    pub(super) fn into_write_error(self) -> StoreError {
        match self.kind {
            FailureKind::Ambiguous | FailureKind::TooLarge => StoreError::Unknown(self.cause),
            _ => self.into_read_error(),
        }
    }
}

/// Classifies the library's own errors.
fn kind_without_status(error: &ClientError) -> FailureKind {
    match error {
        // The library returns this for renewals with no remaining time.
        ClientError::LeaseKeepAliveError(text) if text == "lease not found" => FailureKind::NoLease,
        // The token cannot be sent in a header.
        ClientError::InvalidMetadataValue(_) => FailureKind::Refused,
        _ => FailureKind::Ambiguous,
    }
}

/// Classifies a status. The result is ambiguous unless the status proves that the call was not
/// applied.
fn kind(status: &Status) -> FailureKind {
    let text = status.message();
    let says = |part: &str| text.contains(part);
    match status.code() {
        // The request was never sent.
        _ if is_connect_error(status) => FailureKind::NotDone,
        Code::Unauthenticated => FailureKind::BadToken,
        Code::InvalidArgument if says("revision of auth store is old") => FailureKind::BadToken,
        Code::InvalidArgument if says("user name is empty") => FailureKind::BadToken,
        Code::InvalidArgument if says("user") || says("auth") => FailureKind::Refused,
        Code::InvalidArgument => FailureKind::Invalid(text.to_owned()),
        Code::PermissionDenied => FailureKind::Refused,
        Code::NotFound if says("lease not found") => FailureKind::NoLease,
        Code::OutOfRange if says("compacted") => FailureKind::Compacted,
        Code::OutOfRange if says("message length too large") => FailureKind::TooLarge,
        // Checked before every request is processed, because a leader is required.
        Code::Unavailable if says("no leader") => FailureKind::NotDone,
        // "space exceeded" is ambiguous: etcd also returns it for the write that exceeds the quota,
        // which is applied.
        Code::ResourceExhausted if says("too many requests") => FailureKind::NotDone,
        // Returned by the library before it sends the request.
        Code::Unknown if text.starts_with("Service was not ready") => FailureKind::NotDone,
        _ => FailureKind::Ambiguous,
    }
}

fn is_connect_error(status: &Status) -> bool {
    let mut next = status.source();
    while let Some(error) = next {
        if error.is::<ConnectError>() {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclassified_status_is_ambiguous() {
        let table = [
            (Code::Unavailable, "etcdserver: no leader", FailureKind::NotDone),
            (Code::Unavailable, "etcdserver: leader changed", FailureKind::Ambiguous),
            (Code::Unavailable, "etcdserver: request timed out", FailureKind::Ambiguous),
            (Code::Unavailable, "etcdserver: server stopped", FailureKind::Ambiguous),
            (Code::Unavailable, "", FailureKind::Ambiguous),
            (Code::ResourceExhausted, "etcdserver: too many requests", FailureKind::NotDone),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                FailureKind::Ambiguous,
            ),
            (Code::Unauthenticated, "etcdserver: invalid auth token", FailureKind::BadToken),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
                FailureKind::BadToken,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", FailureKind::BadToken),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                FailureKind::Refused,
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", FailureKind::Refused),
            (
                Code::InvalidArgument,
                "etcdserver: request is too large",
                FailureKind::Invalid("etcdserver: request is too large".to_owned()),
            ),
            (Code::NotFound, "etcdserver: requested lease not found", FailureKind::NoLease),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                FailureKind::Compacted,
            ),
            (Code::Cancelled, "", FailureKind::Ambiguous),
            (Code::DeadlineExceeded, "", FailureKind::Ambiguous),
            (Code::Internal, "", FailureKind::Ambiguous),
            (Code::Unknown, "raft proposal dropped", FailureKind::Ambiguous),
            (Code::Unknown, "Service was not ready: transport error", FailureKind::NotDone),
        ];
        for (code, text, expected) in table {
            assert_eq!(kind(&Status::new(code, text)), expected, "{code:?} {text:?}");
        }
    }

    #[test]
    fn connect_error_means_not_done() {
        let refused = ConnectError("connection refused".into());
        assert_eq!(kind(&Status::from_error(Box::new(refused))), FailureKind::NotDone);
    }

    #[test]
    fn library_errors_are_ambiguous_unless_known() {
        let table = [
            (ClientError::LeaseKeepAliveError("lease not found".to_owned()), FailureKind::NoLease),
            (ClientError::LeaseKeepAliveError("channel closed".to_owned()), FailureKind::Ambiguous),
            (
                ClientError::WatchError("failed to create lease keeper".to_owned()),
                FailureKind::Ambiguous,
            ),
        ];
        for (error, expected) in table {
            assert_eq!(Failure::at("e", error).kind, expected);
        }
    }

    #[test]
    fn only_a_change_can_be_unknown() {
        let failure = |text: &str| Failure::at("e", Status::unavailable(text).into());
        let ambiguous = || failure("etcdserver: leader changed");
        assert!(matches!(ambiguous().into_write_error(), StoreError::Unknown(_)));
        assert!(matches!(ambiguous().into_read_error(), StoreError::Unavailable(_)));
        let not_done = failure("etcdserver: no leader");
        assert!(matches!(not_done.into_write_error(), StoreError::Unavailable(_)));
    }
}
