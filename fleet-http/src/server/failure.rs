//! Error responses.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{ETAG, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use fleet_store::{RegistryError, StoreError};

use crate::wire::{ErrorBody, ErrorDetail, ErrorEntity, UnitEntity};

/// Delay suggested to clients after a temporary failure, in seconds.
const RETRY_AFTER_SECONDS: u64 = 1;

/// An error response with status 4xx or 5xx. The message is never empty.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    message: String,
    details: Vec<ErrorDetail>,
    /// Current state of the unit, if a precondition failed.
    current: Option<(Box<UnitEntity>, HeaderValue)>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), details: Vec::new(), current: None }
    }

    /// 400: the request is invalid.
    pub(crate) fn bad_request(message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message.to_string())
    }

    /// 400 with a list of errors.
    pub(crate) fn invalid(message: impl ToString, details: Vec<ErrorDetail>) -> Self {
        Self { details, ..Self::bad_request(message) }
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Prefixes the message with the item that it is about.
    pub(crate) fn with_context(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// 404: the resource does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 404 for a unit.
    pub(crate) fn no_unit() -> Self {
        Self::not_found("unit does not exist")
    }

    /// 409: the request conflicts with the current state.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 503: temporarily unavailable.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// 409: the stored unit cannot be decoded. It can still be destroyed or replaced.
    fn unreadable(error: &RegistryError) -> Self {
        Self::conflict(format!(
            "{}: destroy the unit, or send its unit file again",
            error_chain(error)
        ))
    }

    /// 412: the unit does not match `If-Match`. The response contains the unit's current state and
    /// tag.
    pub(crate) fn precondition_failed(current: Option<(UnitEntity, HeaderValue)>) -> Self {
        let message = match current {
            Some(_) => "the unit was modified in the meantime: read it again and retry",
            None => "unit does not exist, but If-Match requires it",
        };
        let current = current.map(|(unit, tag)| (Box::new(unit), tag));
        Self { current, ..Self::new(StatusCode::PRECONDITION_FAILED, message) }
    }

    /// 412: the unit already exists and the request is create-only.
    pub(crate) fn already_exists() -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "unit already exists, and If-None-Match: * forbids replacing it",
        )
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        let status = match &error {
            RegistryError::NotFound { .. } => return Self::no_unit(),
            RegistryError::AlreadyExists { .. } => return Self::already_exists(),
            RegistryError::Changed { .. } => return Self::precondition_failed(None),
            RegistryError::NoRollout { .. } | RegistryError::NoSchedule { .. } => {
                StatusCode::NOT_FOUND
            }
            RegistryError::Conflict
            | RegistryError::NoLineage
            | RegistryError::RolloutRequest(_) => StatusCode::CONFLICT,
            RegistryError::Value { .. } => return Self::unreadable(&error),
            RegistryError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            RegistryError::Store(StoreError::Invalid(_)) => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error_chain(&error))
    }
}

/// Formats an error with its causes on one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Message of an error response, as an extension of the response. The middleware logs that of a 5xx
/// status together with the request, and shows it on the page.
#[derive(Clone)]
pub(crate) struct FailureMessage(pub(crate) String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self { status, message, details, current } = self;
        let shown = FailureMessage(message.clone());
        let error = ErrorEntity { code: status.as_u16(), details, message };
        let (unit, tag) = current.unzip();
        let mut response = (status, Json(ErrorBody { error, unit })).into_response();
        response.headers_mut().extend(tag.map(|tag| (ETAG, tag)));
        response.extensions_mut().insert(shown);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"fleet\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
