//! What handlers take out of a request: a name, query parameters, a body.

use std::convert::Infallible;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use super::failure::Failure;
use super::limits::Door;

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

    /// A flag that is off unless it is given.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.first(name) {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(other) => Err(Failure::bad(format!("{name} cannot be {other:?}: write 1 or 0"))),
        }
    }

    /// Whether a write is only to be tried out. Another spelling must not have it carried out.
    pub(super) fn dry_run(&self) -> Result<bool, Failure> {
        let is_meant = |key: &str| key.to_lowercase().replace(['_', '-'], "") == "dryrun";
        let mut others = self.0.iter().map(|(key, _)| key).filter(|key| *key != "dryRun");
        match others.find(|key| is_meant(key)) {
            Some(other) => Err(Failure::bad(format!("{other:?} is unknown: write dryRun=1"))),
            None => self.flag("dryRun"),
        }
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

/// The whole body, if it is not too large and does not take too long.
pub(super) async fn read_body(head: &Parts, body: Body) -> Result<Bytes, Failure> {
    let limits = head.extensions.get::<Door>().map(|door| door.limits).unwrap_or_default();
    let large = || {
        let message = format!("the body is larger than {} bytes", limits.body_size);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    // What is announced to be too large is not waited for.
    if body.size_hint().lower() > limits.body_size as u64 {
        return Err(large());
    }
    let whole = Limited::new(body, limits.body_size).collect();
    let slow = || Failure::new(StatusCode::REQUEST_TIMEOUT, "the body takes too long to arrive");
    match timeout(limits.body_time, whole).await.map_err(|_| slow())? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(large()),
        Err(error) => Err(Failure::bad(format!("unable to read body: {error}"))),
    }
}
