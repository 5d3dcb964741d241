//! Extractors for names, query parameters and bodies.

use std::convert::Infallible;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::server::failure::Failure;
use crate::server::net::limits::ConnectionOrigin;

/// A percent-decoded name in the path.
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path(name) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| Failure::bad_request(rejection.body_text()))?;
        // An escaped slash makes two segments, and no resource matches those.
        if name.contains('/') {
            return Err(crate::server::router::no_resource());
        }
        Ok(Self(name))
    }
}

/// Query parameters, in order.
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Parses the query of a URI. Treats a malformed query as empty, like fleet v1.
    pub(crate) fn of(uri: &Uri) -> Self {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
        Self(pairs.map(|Query(pairs)| pairs).unwrap_or_default())
    }

    /// Returns the first value of a parameter.
    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns the first value of a parameter unless it is empty.
    pub(crate) fn non_empty(&self, name: &str) -> Option<&str> {
        self.first(name).filter(|value| !value.is_empty())
    }

    /// Returns the value of a boolean parameter; false if absent.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.first(name) {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(other) => Err(Failure::bad_request(format!(
                "query parameter {name:?}: {other:?} is neither 1 nor 0"
            ))),
        }
    }

    /// Returns whether the request is a dry run. Refuses misspellings of the parameter such as
    /// `dry_run`; if it ignored them, the write would be carried out.
    pub(crate) fn dry_run(&self) -> Result<bool, Failure> {
        let resembles_dry_run = |key: &str| key.to_lowercase().replace(['_', '-'], "") == "dryrun";
        let mut others = self.0.iter().map(|(key, _)| key).filter(|key| *key != "dryRun");
        match others.find(|key| resembles_dry_run(key)) {
            Some(other) => Err(Failure::bad_request(format!(
                "unknown query parameter {other:?}: use dryRun=1"
            ))),
            None => self.flag("dryRun"),
        }
    }

    /// Returns all values of a parameter.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.uri))
    }
}

/// Reads the whole body within the limits for size and time.
pub(crate) async fn read_body(head: &Parts, body: Body) -> Result<Bytes, Failure> {
    let limits =
        head.extensions.get::<ConnectionOrigin>().map(|origin| origin.limits).unwrap_or_default();
    let large = || {
        let message = format!("the body is larger than {} bytes", limits.body_size);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    // A body whose announced length is too large is refused without reading it.
    if body.size_hint().lower() > limits.body_size as u64 {
        return Err(large());
    }
    let whole = Limited::new(body, limits.body_size).collect();
    let slow = || Failure::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive");
    match timeout(limits.body_time, whole).await.map_err(|_| slow())? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(large()),
        Err(error) => Err(Failure::bad_request(format!("unable to read body: {error}"))),
    }
}
