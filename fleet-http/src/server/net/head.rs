//! Checks request heads for what the HTTP library accepts but HTTP or the limits forbid. Pure: no
//! I/O, no clock.

use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, HOST};
use axum::http::{StatusCode, Version};

use crate::server::failure::Failure;

/// Bytes of a header line besides its name and value: `: ` and the line end.
const LINE_OVERHEAD: usize = 4;

/// Refuses heads of more than `limit` bytes, ambiguous hosts, and encoded bodies.
///
/// # Errors
///
/// The head is too large (431), HTTP/1.1 has no `Host` or several (400), or the body is encoded
/// (415).
pub(crate) fn check(request: &Request, limit: usize) -> Result<(), Failure> {
    if size(request) > limit {
        let message = format!("the request head is larger than {limit} bytes");
        return Err(Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    let hosts = request.headers().get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && request.version() == Version::HTTP_11) {
        let message = format!("{hosts} headers Host: send exactly one");
        return Err(Failure::bad_request(message));
    }
    let is_plain = |value: &[u8]| value.eq_ignore_ascii_case(b"identity");
    if !request.headers().get_all(CONTENT_ENCODING).iter().all(|it| is_plain(it.as_bytes())) {
        let message = "encoded bodies are not supported: omit the header Content-Encoding";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

/// Returns the size of the headers and of the path. The library has already normalized the head, so
/// the result can be a few bytes below the size on the wire.
fn size(request: &Request) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let line = |name: &str, value: &[u8]| name.len() + value.len() + LINE_OVERHEAD;
    let headers = request.headers().iter();
    path + headers.map(|(name, value)| line(name.as_str(), value.as_bytes())).sum::<usize>()
}
