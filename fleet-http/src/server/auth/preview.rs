//! Previews: requests with the method of a write that change nothing.

use axum::extract::Request;
use axum::http::Method;

use crate::server::handlers::extract::Params;

/// Writes that support `dryRun=1`, as methods and route patterns below the prefix of the API.
///
/// A write is only listed if its handler decides by [`Params::dry_run`], as [`is_preview`] does.
const DRY_RUNS: [(Method, &str); 10] = [
    (Method::PUT, "/units/{name}"),
    (Method::DELETE, "/units/{name}"),
    (Method::POST, "/units/{name}/restart"),
    (Method::POST, "/units/{name}/stop"),
    (Method::PATCH, "/machines"),
    (Method::POST, "/machines/{id}/cordon"),
    (Method::POST, "/machines/{id}/uncordon"),
    (Method::POST, "/machines/{id}/drain"),
    (Method::POST, "/rebalance"),
    (Method::DELETE, "/rebalance"),
];

/// Returns whether a request is a preview: a plan, or the dry run of a write. `route` is its route
/// pattern below the prefix of the API.
///
/// Any other request may write, whatever its parameters are.
pub(crate) fn is_preview(request: &Request, route: &str) -> bool {
    let method = request.method();
    if (method, route) == (&Method::POST, "/plan") {
        return true;
    }
    let supports_dry_run = DRY_RUNS.iter().any(|(known, path)| (known, *path) == (method, route));
    supports_dry_run && Params::of(request.uri()).dry_run().unwrap_or(false)
}
