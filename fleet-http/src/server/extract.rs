//! What handlers take out of a request: a name, query parameters, a body.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::failure::Failure;

/// How large a body may be, in bytes; what is larger is refused with 413.
const MOST_BODY: usize = 8 << 20;

/// How long a body may take to arrive; a slower one is refused with 408.
const BODY: Duration = Duration::from_secs(30);

/// The unit's name in the path, percent-decoded.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path(name) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| Failure::bad(rejection.body_text()))?;
        // An escaped slash makes two segments, and there is nothing below a unit.
        if name.contains('/') {
            return Err(super::router::no_resource());
        }
        Ok(Self(name))
    }
}

/// The query parameters, in order.
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    /// The first value of that parameter.
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The first value of that parameter, unless it is empty.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        self.first(name).filter(|value| !value.is_empty())
    }

    /// The values of that parameter.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Infallible;

    /// A query that cannot be read has no parameters, as it always was.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        Ok(Self(pairs.map(|Query(pairs)| pairs).unwrap_or_default()))
    }
}

/// The whole body, if it is not too large.
pub(super) async fn read_body(body: Body) -> Result<Bytes, Failure> {
    let whole = tokio::time::timeout(BODY, Limited::new(body, MOST_BODY).collect()).await;
    let slow = || Failure::new(StatusCode::REQUEST_TIMEOUT, "the body takes too long to arrive");
    match whole.map_err(|_| slow())? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than {} MiB", MOST_BODY >> 20),
        )),
        Err(error) => Err(Failure::bad(format!("unable to read body: {error}"))),
    }
}
