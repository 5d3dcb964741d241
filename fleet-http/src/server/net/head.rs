//! Checks request heads for what the HTTP library accepts but HTTP or the limits forbid, and their
//! `Host` as a protection against DNS rebinding. Pure: no I/O, no clock.

use std::net::{IpAddr, Ipv6Addr};

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

/// Returns an error message if the request's host is neither `localhost` nor a loopback address.
///
/// This protects against DNS rebinding. A web page can make its own host name resolve to this
/// machine, and so send requests to a local port. The browser then sends that host name as `Host`.
/// Therefore, only names that always mean this machine are accepted.
pub(crate) fn misdirected(request: &Request) -> Option<String> {
    let header = request.headers().get(HOST).map(|value| value.to_str().unwrap_or_default());
    let named = request.uri().authority().map(axum::http::uri::Authority::as_str).or(header)?;
    (!means_this_machine(named)).then(|| {
        format!("unexpected host {named:?}: use localhost, 127.0.0.1, [::1] or a unix socket")
    })
}

fn means_this_machine(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    }
    host.trim_end_matches('.').eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_accepted() {
        let cases = [
            ("localhost", true),
            ("LocalHost:4285", true),
            ("localhost.", true),
            ("127.0.0.1", true),
            ("127.8.9.1:80", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]", true),
            ("example.com", false),
            ("localhost.example.com:80", false),
            ("127.0.0.1.example.com", false),
            ("10.0.0.1:80", false),
            ("[::2]", false),
            ("user@localhost", false),
            ("", false),
        ];
        for (authority, expected) in cases {
            assert_eq!(means_this_machine(authority), expected, "{authority:?}");
        }
    }
}
