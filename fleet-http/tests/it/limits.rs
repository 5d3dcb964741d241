//! Slow, greedy, numerous and misdirected clients do not affect others.

use std::time::Duration;

use fleet_http::{ListenAddress, ServerLimits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::harness::Server;
use crate::http::{DEADLINE, exchange};

const SOON: Duration = Duration::from_millis(50);

async fn unix(server: &Server) -> UnixStream {
    let ListenAddress::Unix(path) = &server.at else { panic!("not a unix socket") };
    UnixStream::connect(path).await.unwrap()
}

/// Sends the byte repeatedly until the other end closes the connection.
async fn wait_until_closed(stream: &mut (impl tokio::io::AsyncWrite + Unpin), byte: u8) {
    let dripping = async {
        while stream.write_all(&[byte]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, dripping).await.expect("the server did not close the connection");
}

async fn is_served(server: &Server) -> bool {
    server.get("/healthz").await.to_string() == "200 ok"
}

const ANNOUNCED: &str = "PUT /fleet/v1/units/a.service HTTP/1.1\r\nHost: localhost\r\n\
                         Content-Type: application/json\r\nContent-Length: 1073741824\r\n\r\n";

#[tokio::test]
async fn huge_announced_body_is_refused_early() {
    let server = Server::start().await;
    let mut stream = unix(&server).await;
    stream.write_all(ANNOUNCED.as_bytes()).await.unwrap();
    let mut response = [0; 12];
    timeout(DEADLINE, stream.read_exact(&mut response)).await.unwrap().unwrap();
    assert_eq!(&response, b"HTTP/1.1 413");
}

#[tokio::test]
async fn oversized_unannounced_body_gets_a_response() {
    for server in [Server::start().await, Server::start_on_tcp().await] {
        let bytes = [ANNOUNCED.as_bytes(), &vec![b' '; 32 << 20]].concat();
        let response = exchange(&server.at, &bytes).await;
        assert!(response.starts_with(b"HTTP/1.1 413"), "{:?}", String::from_utf8_lossy(&response));
        assert!(is_served(&server).await);
    }
}

#[tokio::test]
async fn slow_request_head_times_out() {
    let server = Server::start_within(ServerLimits::default().with_head_time(SOON)).await;
    let mut stream = unix(&server).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nX: ").await.unwrap();
    wait_until_closed(&mut stream, b'x').await;
    assert!(is_served(&server).await);
}

#[tokio::test]
async fn slow_request_body_times_out() {
    let server = Server::start_within(ServerLimits::default().with_body_time(SOON)).await;
    let (mut read, mut write) = unix(&server).await.into_split();
    let head = ANNOUNCED.replace("1073741824", "100000");
    write.write_all(head.as_bytes()).await.unwrap();
    wait_until_closed(&mut write, b' ').await;
    let mut response = Vec::new();
    let _cut = read.read_to_end(&mut response).await;
    assert!(response.starts_with(b"HTTP/1.1 408"), "{:?}", String::from_utf8_lossy(&response));
    assert!(is_served(&server).await);
}

#[tokio::test]
async fn client_that_reads_nothing_is_closed() {
    let server = Server::start_within(ServerLimits::default().with_write_time(SOON)).await;
    let value = "x".repeat(400 << 10);
    let body = format!(r#"{{"source":"[Service]\nExecStart=/bin/{value}\n"}}"#);
    for n in 0..10 {
        let response = server.put(&format!("/fleet/v1/units/{n}.service"), &body).await;
        assert_eq!(response.to_string(), "201");
    }
    let mut stream = unix(&server).await;
    let get = b"GET /fleet/v1/units HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(get).await.unwrap();
    wait_until_closed(&mut stream, b' ').await;
    let mut response = Vec::new();
    let _cut = stream.read_to_end(&mut response).await;
    assert!(response.len() < 4000 << 10, "{}", response.len());
    assert!(is_served(&server).await);
}

#[tokio::test]
async fn idle_connections_make_room() {
    let server = Server::start_within(ServerLimits::default().with_connections(100)).await;
    let mut idle = Vec::new();
    for _ in 0..1000 {
        let mut stream = unix(&server).await;
        stream.write_all(b"GET /healthz HT").await.unwrap();
        idle.push(stream);
        if idle.len() % 100 == 0 {
            assert!(is_served(&server).await, "beside {}", idle.len());
        }
    }
    // The first connection was closed to make room.
    let mut first = Vec::new();
    let read = timeout(DEADLINE, idle[0].read_to_end(&mut first)).await;
    assert!(read.is_ok() && first.is_empty(), "{first:?}");
    // The last one was not.
    let last = idle.last_mut().unwrap();
    last.write_all(b"TP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut response = [0; 12];
    timeout(DEADLINE, last.read_exact(&mut response)).await.unwrap().unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
}

#[tokio::test]
async fn slow_body_makes_room() {
    let server = Server::start_within(ServerLimits::default().with_connections(10)).await;
    let head = ANNOUNCED.replace("1073741824", "100000");
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = unix(&server).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        for stream in &mut slow {
            let _given_up = UnixStream::write(stream, b" ").await;
        }
        slow.push(stream);
        assert!(is_served(&server).await, "beside {}", slow.len());
    }
    let mut first = Vec::new();
    let read = timeout(DEADLINE, slow[0].read_to_end(&mut first)).await;
    assert!(read.is_ok(), "closed by the server");
    assert_eq!(server.get("/fleet/v1/units").await.to_string(), "200 {}");
}

#[tokio::test]
async fn busy_connections_are_kept() {
    let server = Server::start_within(ServerLimits::default().with_connections(1)).await;
    let _presence = server.machine("m1", &[]).await;
    server.sleepers(&["a.service"], "launched").await;
    server.decide(&[("a.service", "m1")], &[]).await;
    let mut busy = unix(&server).await;
    let follow = b"GET /fleet/v1/units/a.service/journal?follow=1 HTTP/1.1\r\nHost: a\r\n\r\n";
    busy.write_all(follow).await.unwrap();
    let mut response = [0; 12];
    timeout(DEADLINE, busy.read_exact(&mut response)).await.unwrap().unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
    let mut next = unix(&server).await;
    next.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(timeout(SOON, next.read_u8()).await.is_err(), "the only slot is taken");
    drop(busy);
    timeout(DEADLINE, next.read_exact(&mut response)).await.unwrap().unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
}

#[tokio::test]
async fn unread_response_keeps_its_connection() {
    let server = Server::start_within(ServerLimits::default().with_connections(1)).await;
    let comments = format!("# {}\\n", "x".repeat(1000)).repeat(900);
    let body = format!(r#"{{"source":"[Service]\nExecStart=/bin/true\n{comments}"}}"#);
    assert_eq!(server.put("/fleet/v1/units/a.service", &body).await.status, 201);
    let mut busy = unix(&server).await;
    let ask = "GET /fleet/v1/units/a.service HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    busy.write_all(ask.as_bytes()).await.unwrap();
    let mut response = [0; 12];
    timeout(DEADLINE, busy.read_exact(&mut response)).await.unwrap().unwrap();
    let mut next = unix(&server).await;
    next.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(timeout(SOON, next.read_u8()).await.is_err(), "the only slot is taken");
    let mut rest = Vec::new();
    timeout(DEADLINE, busy.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.ends_with(b"}"), "{} bytes came", rest.len());
    timeout(DEADLINE, next.read_exact(&mut response)).await.unwrap().unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
}

#[tokio::test]
async fn foreign_host_is_refused_on_ports() {
    let server = Server::start_on_tcp().await;
    let ask = |target: &str, host: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
    };
    for (target, host, status) in [
        ("/fleet/v1/units", "evil.example:4285", "421"),
        ("http://evil.example/fleet/v1/units", "localhost", "421"),
        ("/fleet/v1/units", "localhost:4285", "200"),
        ("/fleet/v1/units", "127.0.0.1", "200"),
    ] {
        let response = String::from_utf8(exchange(&server.at, &ask(target, host)).await).unwrap();
        assert_eq!(response[9..12], *status, "{target} {host}");
    }
    let server = Server::start().await;
    let response = exchange(&server.at, &ask("/fleet/v1/units", "evil.example")).await;
    assert!(response.starts_with(b"HTTP/1.1 200"), "unix sockets do not check the host");
}

#[tokio::test]
async fn large_responses_are_compressed_if_accepted() {
    let server = Server::start().await;
    let names: Vec<String> = (0..50).map(|n| format!("a{n:02}.service")).collect();
    server.sleepers(&names.iter().map(String::as_str).collect::<Vec<_>>(), "inactive").await;
    let ask = async |path: &str, accept: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{accept}\r\n");
        let response = exchange(&server.at, head.as_bytes()).await;
        let text = String::from_utf8_lossy(&response).into_owned();
        (text.contains("content-encoding: gzip"), text.contains("vary"), response.len() < 2000)
    };
    let gzip = "Accept-Encoding: gzip\r\n";
    assert_eq!(ask("/fleet/v1/units", gzip).await, (true, true, true));
    assert_eq!(ask("/fleet/v1/units", "").await, (false, true, false));
    assert_eq!(ask("/fleet/v1/version", gzip).await, (false, false, true));
}

/// The library reads more than the limit if the bytes are already there.
#[tokio::test]
async fn head_above_the_limit_is_refused() {
    let server = Server::start().await;
    for (length, status) in [(60_000, "200"), (66_000, "431"), (200_000, "431")] {
        let value = "x".repeat(length);
        let head = format!(
            "GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: {value}\r\nConnection: close\r\n\r\n"
        );
        let response = String::from_utf8(exchange(&server.at, head.as_bytes()).await).unwrap();
        assert_eq!(response[9..12], *status, "{length}: {response}");
    }
}
