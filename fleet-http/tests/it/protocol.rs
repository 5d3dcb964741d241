//! Methods, paths and headers, and invalid HTTP.

use fleet_http::ListenAddress;

use crate::harness::Server;
use crate::http::{exchange, request};

const ONLY_GET: &str = "only GET supported against this resource";
const UNIT: &str = "only GET, PUT and DELETE supported against this resource";
const MACHINES: &str = "only GET and PATCH supported against this resource";
const NOWHERE: &str = "no such resource: see /fleet/v1/discovery";
const NOTHING: &str = "no resource has this path: see /fleet/v1/discovery";

#[tokio::test]
async fn wrong_methods_and_paths_match_version_1() {
    let server = Server::start().await;
    let cases = [
        ("PUT", "/units", 405, "only GET and POST supported against this resource"),
        ("DELETE", "/state", 405, ONLY_GET),
        ("PUT", "/state/a.service", 405, ONLY_GET),
        ("POST", "/units/a.service", 405, UNIT),
        ("PATCH", "/units/a.service", 405, UNIT),
        ("PUT", "/machines", 405, MACHINES),
        ("GET", "/units/a.service/restart", 405, "only POST supported against this resource"),
        ("POST", "/discovery", 400, "only HTTP GET supported against this resource"),
        ("GET", "", 405, NOTHING),
        ("POST", "", 405, NOTHING),
        ("GET", "/", 404, NOWHERE),
        ("GET", "/units/", 404, NOWHERE),
        ("GET", "/machines/", 404, NOWHERE),
        ("GET", "/machines/m1", 404, "machine \"m1\" is not present"),
        ("GET", "/units/a.service/b", 404, NOWHERE),
        ("GET", "/units/a%2Fb.service", 404, NOWHERE),
        ("GET", "/cats", 404, NOWHERE),
    ];
    for prefix in ["/fleet/v1", "/v1-alpha"] {
        for (method, path, status, message) in cases {
            let response = server.call(method, &format!("{prefix}{path}"), "").await;
            let found = (response.status, response.message());
            assert_eq!(found, (status, message.to_owned()), "{method} {prefix}{path}");
        }
    }
    let response = server.get("/elsewhere").await;
    assert_eq!((response.status, response.message().as_str()), (404, NOWHERE));
}

// Holds: D-14
#[tokio::test]
async fn options_and_405_list_methods() {
    let server = Server::start().await;
    let cases = [
        ("/fleet/v1/units", "GET, HEAD, POST, OPTIONS"),
        ("/fleet/v1/units/a.service", "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("/fleet/v1/units/a.service/restart", "POST, OPTIONS"),
        ("/fleet/v1/units/a.service/stop", "POST, OPTIONS"),
        ("/fleet/v1/machines", "GET, HEAD, PATCH, OPTIONS"),
        ("/fleet/v1/discovery", "GET, HEAD, OPTIONS"),
        ("/healthz", "GET, HEAD, OPTIONS"),
    ];
    for (path, methods) in cases {
        let response = server.call("OPTIONS", path, "").await;
        assert_eq!((response.status, response.header("allow")), (204, Some(methods)), "{path}");
        let response = server.call("TRACE", path, "").await;
        assert_eq!(response.header("allow"), Some(methods), "{path}");
    }
}

// Holds: D-14
#[tokio::test]
async fn head_is_get_without_a_body() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "inactive").await;
    for (path, status) in [("a.service", 200), ("b.service", 404)] {
        let path = format!("/fleet/v1/units/{path}");
        let (get, head) = (server.get(&path).await, server.call("HEAD", &path, "").await);
        assert_eq!((head.status, head.body.as_str()), (status, ""));
        assert_eq!(head.header("content-length"), get.header("content-length"));
        assert_eq!(head.header("content-type"), get.header("content-type"));
    }
}

#[tokio::test]
async fn unclean_paths_are_redirected() {
    let server = Server::start().await;
    for (path, location) in [
        ("/fleet/v1//units?alt=json", "/fleet/v1/units?alt=json"),
        ("//fleet/v1/units", "/fleet/v1/units"),
        ("/fleet/../fleet/v1/units", "/fleet/v1/units"),
    ] {
        let response = server.get(path).await;
        assert_eq!((response.status, response.header("location")), (301, Some(location)), "{path}");
    }
}

#[tokio::test]
async fn names_are_percent_decoded() {
    let server = Server::start().await;
    server.sleepers(&["a%5Cx2db.service", "b%40%31.service"], "inactive").await;
    let units = server.client().units().await.unwrap();
    let names: Vec<&str> = units.iter().map(|unit| unit.name.as_str()).collect();
    assert_eq!(names, [r"a\x2db.service", "b@1.service"]);
    let response = server.get("/fleet/v1/units/%ff.service").await;
    assert_eq!(response.status, 400);
    assert!(!response.message().is_empty());
}

// Holds: D-15
#[tokio::test]
async fn every_response_has_server_header() {
    let server = Server::start().await;
    for path in ["/fleet/v1/units", "/fleet/v1/units/a.service", "/", "/healthz", "/nothing"] {
        let response = server.get(path).await;
        assert_eq!(response.header("server"), Some("fleetd/1.2.3"), "{path}");
    }
}

#[tokio::test]
async fn version_is_reported() {
    let server = Server::start().await;
    let response = server.get("/fleet/v1/version").await;
    assert_eq!(response.to_string(), r#"200 {"version":"1.2.3"}"#);
}

#[tokio::test]
async fn oversized_body_is_refused() {
    let server = Server::start().await;
    let headers = [("Content-Type", "application/json")];
    let body = format!(r#"{{"source":"{}"}}"#, "x".repeat(8 << 20));
    let response = request(&server.at, "PUT", "/fleet/v1/units/a.service", &headers, &body).await;
    assert_eq!(
        (response.status, response.message().as_str()),
        (413, "the body is larger than 8388608 bytes")
    );
    let response = server.call("PATCH", "/fleet/v1/machines", &body).await;
    assert_eq!(response.status, 413);
}

#[tokio::test]
async fn chunked_body_is_accepted() {
    let server = Server::start().await;
    let head = "PUT /fleet/v1/units/a.service HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = "b\r\n{\"source\":\"\r\n1a\r\n[Service]\\nType=exec\\n\"}  \r\n0\r\n\r\n";
    let response = exchange(&server.at, format!("{head}{chunks}").as_bytes()).await;
    assert!(response.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&response));
    assert_eq!(server.get("/fleet/v1/units/a.service").await.status, 200);
}

#[tokio::test]
async fn writes_with_origin_are_refused() {
    let server = Server::start_on_tcp().await;
    let headers = [("Origin", "https://example.com"), ("Content-Type", "application/json")];
    for (method, path) in [
        ("PUT", "/fleet/v1/units/a.service"),
        ("POST", "/fleet/v1/units/a.service/restart"),
        ("DELETE", "/fleet/v1/units/a.service"),
        ("PATCH", "/fleet/v1/machines"),
    ] {
        let response = request(&server.at, method, path, &headers, "[]").await;
        assert_eq!(response.status, 403, "{method}");
        assert!(!response.message().is_empty());
    }
    let response = request(&server.at, "GET", "/fleet/v1/units", &headers, "").await;
    assert_eq!(response.status, 200);
}

#[tokio::test]
async fn invalid_http_does_not_affect_others() {
    for server in [Server::start().await, Server::start_on_tcp().await] {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(128 << 10));
        for bytes in [
            &b"hello\r\n\r\n"[..],
            b"GET / HTTP/9\r\n\r\n",
            b"PUT /fleet/v1/units/a HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            long.as_bytes(),
        ] {
            let response = exchange(&server.at, bytes).await;
            assert!(response.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&response));
        }
        assert_eq!(server.get("/healthz").await.to_string(), "200 ok");
    }
}

#[tokio::test]
async fn connection_serves_several_requests() {
    let server = Server::start_on_tcp().await;
    let one = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let last = "GET /healthz HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n";
    let response = exchange(&server.at, format!("{one}{one}{last}").as_bytes()).await;
    let response = String::from_utf8(response).unwrap();
    assert_eq!(response.matches("HTTP/1.1 200 OK").count(), 3, "{response}");
    assert!(matches!(server.at, ListenAddress::Tcp(_)));
}

#[tokio::test]
async fn ambiguous_host_and_encoded_body_are_refused() {
    let server = Server::start().await;
    let (host, gzip) = ("Host: localhost\r\n", "Content-Encoding: gzip\r\n");
    for (version, method, headers, status) in [
        ("1.1", "GET", host.to_owned(), "200"),
        ("1.1", "GET", String::new(), "400"),
        ("1.1", "GET", host.repeat(2), "400"),
        ("1.0", "GET", String::new(), "200"),
        ("1.0", "GET", host.repeat(2), "400"),
        ("1.1", "PUT", format!("{host}{gzip}"), "415"),
        ("1.1", "GET", format!("{host}Content-Encoding: Identity\r\n"), "200"),
    ] {
        let head = format!(
            "{method} /fleet/v1/units HTTP/{version}\r\n{headers}Content-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        let response = String::from_utf8(exchange(&server.at, head.as_bytes()).await).unwrap();
        assert_eq!(response[9..12], *status, "{head}: {response}");
    }
}
