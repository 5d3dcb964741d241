//! Headers of fleet's own.

use hyper::header::HeaderName;

/// Response header: number of seconds since the server lost contact with its store. Responses
/// during a store outage have this header, because they may be outdated.
pub(crate) const BEHIND: HeaderName = HeaderName::from_static("x-fleet-behind");

/// Request header: another daemon forwards the request on behalf of a client. The server responds
/// from its own machine, and does not forward the request again.
pub(crate) const PROXIED: HeaderName = HeaderName::from_static("x-fleet-proxied");

/// Response header of a journal: each line begins with its timestamp.
pub(crate) const TIMESTAMPS: HeaderName = HeaderName::from_static("x-fleet-timestamps");

/// Response header of a journal: each line begins with its cursor.
pub(crate) const CURSORS: HeaderName = HeaderName::from_static("x-fleet-cursors");

/// Response header of an export: `refuse` or `warn`. It shows how the server handles mistakes in
/// unit files that fleet v1 silently accepted.
pub(crate) const STRICTNESS: HeaderName = HeaderName::from_static("x-fleet-unknown-options");
