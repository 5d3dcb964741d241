//! Pure: what a call that failed says about what was done. The rule is to doubt.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use etcd_client::Error as ClientError;
use tonic::{Code, ConnectError, Status};

use crate::StoreError;

/// Why a call to one endpoint failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    cause: Box<dyn Error + Send + Sync>,
}

/// What a failed call means for whoever made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// Nothing happened, and another endpoint, or this one later, may do it.
    NotDone,
    /// Nothing happened: the token was not accepted, and another one may be.
    BadToken,
    /// Nothing happened, and asking again will not help.
    Refused,
    /// Nobody knows whether it happened.
    Ambiguous,
    /// The request itself is wrong; nothing happened.
    Invalid(String),
    /// There is no such lease; nothing happened.
    NoLease,
    /// The revision that was asked for is no longer kept.
    Compacted,
    /// The response is larger than this client takes.
    TooLarge,
}

/// The time limit of a call was over.
#[derive(Debug, thiserror::Error)]
#[error("etcd at {endpoint} did not response within {limit:?}")]
pub(super) struct TimeoutError {
    pub(super) endpoint: String,
    pub(super) limit: Duration,
}

/// What an endpoint says, or what was in the way to it.
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

/// What the client library says for want of an response that it understands.
#[derive(Debug, thiserror::Error)]
#[error("no response from etcd at {endpoint}")]
struct NoResponse {
    endpoint: String,
    #[source]
    error: ClientError,
}

/// etcd said something that its protocol does not allow for.
#[derive(Debug, thiserror::Error)]
#[error("etcd broke its protocol: {0}")]
pub(super) struct ProtocolViolation(pub(super) &'static str);

impl Failure {
    /// What a call to `endpoint` ended with.
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

    /// The failure of a call that served another one, which was then not made.
    pub(super) fn as_not_done(mut self) -> Self {
        if self.kind == FailureKind::Ambiguous {
            self.kind = FailureKind::NotDone;
        }
        self
    }

    /// Whether another endpoint may do better.
    pub(super) fn is_endpoint_failure(&self) -> bool {
        matches!(self.kind, FailureKind::NotDone | FailureKind::Ambiguous)
    }

    /// The error of a call that changes nothing, or that may be repeated at will.
    pub(super) fn into_read_error(self) -> StoreError {
        match self.kind {
            FailureKind::Invalid(text) => StoreError::Invalid(text),
            _ => StoreError::Unavailable(self.cause),
        }
    }

    /// The error of a call that may have changed something.
    pub(super) fn into_write_error(self) -> StoreError {
        match self.kind {
            FailureKind::Ambiguous | FailureKind::TooLarge => StoreError::Unknown(self.cause),
            _ => self.into_read_error(),
        }
    }
}

/// What the library means by errors of its own.
fn kind_without_status(error: &ClientError) -> FailureKind {
    match error {
        // So it puts the response to a renewal in which no time is left.
        ClientError::LeaseKeepAliveError(text) if text == "lease not found" => FailureKind::NoLease,
        // A token that cannot be sent back.
        ClientError::InvalidMetadataValue(_) => FailureKind::Refused,
        _ => FailureKind::Ambiguous,
    }
}

/// What an response means. What is not known to say that nothing happened leaves it in doubt.
fn kind(status: &Status) -> FailureKind {
    let text = status.message();
    let says = |part: &str| text.contains(part);
    match status.code() {
        // It was never sent.
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
        // Asked of every request before it is looked at, since a leader is required.
        Code::Unavailable if says("no leader") => FailureKind::NotDone,
        // But "space exceeded" is said of the write that exceeds it, too, and that is done.
        Code::ResourceExhausted if says("too many requests") => FailureKind::NotDone,
        // Said by the library before it sends anything.
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
    fn what_is_not_known_to_be_undone_is_in_doubt() {
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
    fn a_connection_that_was_not_made_carried_nothing() {
        let refused = ConnectError("connection refused".into());
        assert_eq!(kind(&Status::from_error(Box::new(refused))), FailureKind::NotDone);
    }

    #[test]
    fn what_the_library_says_by_itself_is_in_doubt_but_for_what_it_surely_means() {
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
        let said = |text: &str| Failure::at("e", Status::unavailable(text).into());
        let ambiguous = || said("etcdserver: leader changed");
        assert!(matches!(ambiguous().into_write_error(), StoreError::Unknown(_)));
        assert!(matches!(ambiguous().into_read_error(), StoreError::Unavailable(_)));
        let as_not_done = said("etcdserver: no leader");
        assert!(matches!(as_not_done.into_write_error(), StoreError::Unavailable(_)));
    }
}
