//! Checks the `Host` of requests, as a protection against DNS rebinding. Pure: no I/O, no clock.
//!
//! A web page can make its own host name resolve to this machine, and so send requests to a local
//! port. The browser then sends that host name as `Host`. Therefore, only names that always mean
//! this machine are accepted: `localhost` and loopback addresses.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::Request;
use axum::http::header::HOST;

/// Returns an error message if the request's host is neither `localhost` nor a loopback address.
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
