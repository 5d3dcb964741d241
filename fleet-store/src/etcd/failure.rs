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
    pub(super) kind: Kind,
    cause: Box<dyn Error + Send + Sync>,
}

/// What a failed call means for whoever made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing happened, and another endpoint, or this one later, may do it.
    NotDone,
    /// Nothing happened: the token was not accepted, and another one may be.
    BadToken,
    /// Nothing happened, and asking again will not help.
    Refused,
    /// Nobody knows whether it happened.
    Doubtful,
    /// The request itself is wrong; nothing happened.
    Invalid(String),
    /// There is no such lease; nothing happened.
    NoLease,
    /// The revision that was asked for is no longer kept.
    Compacted,
    /// The answer is larger than this client takes.
    TooLarge,
}

/// The time limit of a call was over.
#[derive(Debug, thiserror::Error)]
#[error("etcd at {endpoint} did not answer within {limit:?}")]
pub(super) struct Late {
    pub(super) endpoint: String,
    pub(super) limit: Duration,
}

/// What an endpoint says, or what was in the way to it.
#[derive(Debug)]
struct At {
    endpoint: String,
    status: Status,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, status } = self;
        match (status.message(), status.code()) {
            ("", code) => write!(f, "etcd at {endpoint}: {code}"),
            (text, _) => write!(f, "etcd at {endpoint}: {text}"),
        }
    }
}

impl Error for At {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.status.source()
    }
}

/// What the client library says for want of an answer that it understands.
#[derive(Debug, thiserror::Error)]
#[error("no answer from etcd at {endpoint}")]
struct NoAnswer {
    endpoint: String,
    #[source]
    error: ClientError,
}

/// etcd said something that its protocol does not allow for.
#[derive(Debug, thiserror::Error)]
#[error("etcd broke its protocol: {0}")]
pub(super) struct Odd(pub(super) &'static str);

impl Failure {
    /// What a call to `endpoint` ended with.
    pub(super) fn at(endpoint: &str, error: ClientError) -> Self {
        let endpoint = endpoint.to_owned();
        match error {
            ClientError::GRpcStatus(status) => Self::new(kind(&status), At { endpoint, status }),
            error => Self::new(kind_without_status(&error), NoAnswer { endpoint, error }),
        }
    }

    pub(super) fn new(kind: Kind, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { kind, cause: Box::new(cause) }
    }

    /// The failure of a call that served another one, which was then not made.
    pub(super) fn undone(mut self) -> Self {
        if self.kind == Kind::Doubtful {
            self.kind = Kind::NotDone;
        }
        self
    }

    /// Whether another endpoint may do better.
    pub(super) fn blames_endpoint(&self) -> bool {
        matches!(self.kind, Kind::NotDone | Kind::Doubtful)
    }

    /// The error of a call that changes nothing, or that may be repeated at will.
    pub(super) fn of_question(self) -> StoreError {
        match self.kind {
            Kind::Invalid(text) => StoreError::Invalid(text),
            _ => StoreError::Unavailable(self.cause),
        }
    }

    /// The error of a call that may have changed something.
    pub(super) fn of_change(self) -> StoreError {
        match self.kind {
            Kind::Doubtful | Kind::TooLarge => StoreError::Unknown(self.cause),
            _ => self.of_question(),
        }
    }
}

/// What the library means by errors of its own.
fn kind_without_status(error: &ClientError) -> Kind {
    match error {
        // So it puts the answer to a renewal in which no time is left.
        ClientError::LeaseKeepAliveError(text) if text == "lease not found" => Kind::NoLease,
        // A token that cannot be sent back.
        ClientError::InvalidMetadataValue(_) => Kind::Refused,
        _ => Kind::Doubtful,
    }
}

/// What an answer means. What is not known to say that nothing happened leaves it in doubt.
fn kind(status: &Status) -> Kind {
    let text = status.message();
    let says = |part: &str| text.contains(part);
    match status.code() {
        // It was never sent.
        _ if is_connect_error(status) => Kind::NotDone,
        Code::Unauthenticated => Kind::BadToken,
        Code::InvalidArgument if says("revision of auth store is old") => Kind::BadToken,
        Code::InvalidArgument if says("user name is empty") => Kind::BadToken,
        Code::InvalidArgument if says("user") || says("auth") => Kind::Refused,
        Code::InvalidArgument => Kind::Invalid(text.to_owned()),
        Code::PermissionDenied => Kind::Refused,
        Code::NotFound if says("lease not found") => Kind::NoLease,
        Code::OutOfRange if says("compacted") => Kind::Compacted,
        Code::OutOfRange if says("message length too large") => Kind::TooLarge,
        // Asked of every request before it is looked at, since a leader is required.
        Code::Unavailable if says("no leader") => Kind::NotDone,
        // But "space exceeded" is said of the write that exceeds it, too, and that is done.
        Code::ResourceExhausted if says("too many requests") => Kind::NotDone,
        // Said by the library before it sends anything.
        Code::Unknown if text.starts_with("Service was not ready") => Kind::NotDone,
        _ => Kind::Doubtful,
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
            (Code::Unavailable, "etcdserver: no leader", Kind::NotDone),
            (Code::Unavailable, "etcdserver: leader changed", Kind::Doubtful),
            (Code::Unavailable, "etcdserver: request timed out", Kind::Doubtful),
            (Code::Unavailable, "etcdserver: server stopped", Kind::Doubtful),
            (Code::Unavailable, "", Kind::Doubtful),
            (Code::ResourceExhausted, "etcdserver: too many requests", Kind::NotDone),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Kind::Doubtful),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Kind::BadToken),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", Kind::BadToken),
            (Code::InvalidArgument, "etcdserver: user name is empty", Kind::BadToken),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Kind::Refused,
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", Kind::Refused),
            (
                Code::InvalidArgument,
                "etcdserver: request is too large",
                Kind::Invalid("etcdserver: request is too large".to_owned()),
            ),
            (Code::NotFound, "etcdserver: requested lease not found", Kind::NoLease),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                Kind::Compacted,
            ),
            (Code::Cancelled, "", Kind::Doubtful),
            (Code::DeadlineExceeded, "", Kind::Doubtful),
            (Code::Internal, "", Kind::Doubtful),
            (Code::Unknown, "raft proposal dropped", Kind::Doubtful),
            (Code::Unknown, "Service was not ready: transport error", Kind::NotDone),
        ];
        for (code, text, expected) in table {
            assert_eq!(kind(&Status::new(code, text)), expected, "{code:?} {text:?}");
        }
    }

    #[test]
    fn a_connection_that_was_not_made_carried_nothing() {
        let refused = ConnectError("connection refused".into());
        assert_eq!(kind(&Status::from_error(Box::new(refused))), Kind::NotDone);
    }

    #[test]
    fn what_the_library_says_by_itself_is_in_doubt_but_for_what_it_surely_means() {
        let table = [
            (ClientError::LeaseKeepAliveError("lease not found".to_owned()), Kind::NoLease),
            (ClientError::LeaseKeepAliveError("channel closed".to_owned()), Kind::Doubtful),
            (ClientError::WatchError("failed to create lease keeper".to_owned()), Kind::Doubtful),
        ];
        for (error, expected) in table {
            assert_eq!(Failure::at("e", error).kind, expected);
        }
    }

    #[test]
    fn only_a_change_can_be_unknown() {
        let said = |text: &str| Failure::at("e", Status::unavailable(text).into());
        let doubtful = || said("etcdserver: leader changed");
        assert!(matches!(doubtful().of_change(), StoreError::Unknown(_)));
        assert!(matches!(doubtful().of_question(), StoreError::Unavailable(_)));
        let undone = said("etcdserver: no leader");
        assert!(matches!(undone.of_change(), StoreError::Unavailable(_)));
    }
}
