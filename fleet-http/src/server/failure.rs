//! Why a request is not answered as its sender hoped: a status and words for people.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{ETAG, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use fleet_store::{RegistryError, StoreError};

use crate::wire::{ErrorBody, ErrorDetail, ErrorEntity, Unit};

/// In how many seconds to try again what cannot be done now.
const SOON: u64 = 1;

/// An answer of the 400s or 500s. There is always a message.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    message: String,
    details: Vec<ErrorDetail>,
    /// What is there instead of what was expected.
    now: Option<(Box<Unit>, HeaderValue)>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), details: Vec::new(), now: None }
    }

    /// 400: the request itself is wrong.
    pub(super) fn bad(message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message.to_string())
    }

    /// 400 with each thing that is wrong.
    pub(super) fn invalid(message: impl ToString, details: Vec<ErrorDetail>) -> Self {
        Self { details, ..Self::bad(message) }
    }

    /// The same, said of one of several things.
    pub(super) fn about(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// 404: there is no such thing.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 404 for a unit.
    pub(super) fn no_unit() -> Self {
        Self::not_found("unit does not exist")
    }

    /// 409: the request does not suit the state of things.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 503: not now.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// What is stored cannot be understood, but it can be got rid of.
    fn broken(error: &RegistryError) -> Self {
        Self::conflict(format!("{}: destroy the unit, or send its unit file again", chain(error)))
    }

    /// The unit is not what If-Match says; what there is of it now, with its tag.
    pub(super) fn changed(now: Option<(Unit, HeaderValue)>) -> Self {
        let message = match now {
            Some(_) => "the unit has changed since it was looked at: look again and decide again",
            None => "unit does not exist, and If-Match asks for one that does",
        };
        let now = now.map(|(unit, tag)| (Box::new(unit), tag));
        Self { now, ..Self::new(StatusCode::PRECONDITION_FAILED, message) }
    }

    /// The name is taken, but the request was to create only.
    pub(super) fn taken() -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "unit exists already, and If-None-Match: * asks not to replace it",
        )
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        let status = match &error {
            RegistryError::NotFound { .. } => return Self::no_unit(),
            RegistryError::AlreadyExists { .. } => return Self::taken(),
            RegistryError::Changed { .. } => return Self::changed(None),
            RegistryError::Conflict | RegistryError::NoLineage => StatusCode::CONFLICT,
            RegistryError::Value { .. } => return Self::broken(&error),
            RegistryError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            RegistryError::Store(StoreError::Invalid(_)) => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, chain(&error))
    }
}

/// The error and its causes in one line: the end of their way, so the place to spell them out.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self { status, message, details, now } = self;
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), message, "request failed");
        }
        let error = ErrorEntity { code: status.as_u16(), details, message };
        let (unit, tag) = now.unzip();
        let mut response = (status, Json(ErrorBody { error, unit })).into_response();
        response.headers_mut().extend(tag.map(|tag| (ETAG, tag)));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(SOON));
        }
        if status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer realm=\"fleet\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
        }
        response
    }
}
