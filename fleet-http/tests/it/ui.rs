//! The local port that opens the page of a server.

use fleet_http::ui::UiProxy;
use fleet_http::{ListenAddress, Listener, serve};
use tokio::sync::oneshot;

use crate::harness::Server;
use crate::http::exchange;

const LINK: &str = "the-secret-of-the-link";
const SESSION: &str = "the-secret-of-the-session";

/// A proxy, and the requests of a browser to it.
struct Port {
    at: ListenAddress,
    host: String,
    _stop: oneshot::Sender<()>,
}

impl Port {
    async fn open(server: &Server) -> Self {
        let listener = Listener::bind(&"tcp://127.0.0.1:0".parse().unwrap()).await.unwrap();
        let at = listener.local_address().clone();
        let ListenAddress::Tcp(address) = at else { panic!("{at}") };
        let (link, session) = (LINK.parse().unwrap(), SESSION.parse().unwrap());
        let proxy = UiProxy::new(server.client(), address, link, session);
        assert_eq!(proxy.url(), format!("http://{address}/?token={LINK}"));
        let (stop, stopped) = oneshot::channel();
        let shutdown = async { drop(stopped.await) };
        tokio::spawn(serve(listener, proxy.router(), shutdown));
        Self { at, host: address.to_string(), _stop: stop }
    }

    fn cookie(&self) -> String {
        let port = self.host.rsplit_once(':').unwrap().1;
        format!("Cookie: other=1; fleet-ui-{port}={SESSION}\r\n")
    }

    async fn send(&self, line: &str, headers: &str, body: &str) -> String {
        let length = body.len();
        let more = format!("Connection: close\r\nContent-Length: {length}\r\n{headers}");
        let request = format!("{line} HTTP/1.1\r\n{more}\r\n{body}");
        String::from_utf8(exchange(&self.at, request.as_bytes()).await).unwrap()
    }

    /// Sends a request with the right host and more headers. Returns the status.
    async fn status(&self, line: &str, headers: &str) -> u16 {
        let headers = format!("Host: {}\r\n{headers}", self.host);
        let response = self.send(line, &headers, "").await;
        response.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

// Holds: I-20
#[tokio::test]
async fn port_needs_the_cookie_that_the_link_gives_once() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    let port = Port::open(&server).await;
    let cookie = port.cookie();
    for path in ["/", "/ui/machines", "/fleet/v1/units"] {
        assert_eq!(port.status(&format!("GET {path}"), "").await, 401, "{path}");
        let wrong = cookie.replace("session", "guess");
        assert_eq!(port.status(&format!("GET {path}"), &wrong).await, 401, "{path}");
    }
    assert_eq!(port.status("GET /?token=guess", "").await, 403);
    let line = format!("GET /?token={LINK}");
    let response = port.send(&line, &format!("Host: {}\r\n", port.host), "").await;
    assert!(response.starts_with("HTTP/1.1 303 "), "{response}");
    let set = cookie.trim_end().replace("Cookie: other=1; ", "set-cookie: ");
    assert!(response.contains(&format!("{set}; Path=/; HttpOnly; SameSite=Strict")), "{response}");
    assert_eq!(port.status(&line, "").await, 403, "the link works once");
    assert_eq!(port.status(&line, &cookie).await, 303, "the browser may load it again");
    for (path, status) in [
        ("/", 200),
        ("/ui/units/a.service", 200),
        ("/ui/units/none.service", 404),
        ("/fleet/v1/units", 200),
        ("/metrics", 404),
    ] {
        assert_eq!(port.status(&format!("GET {path}"), &cookie).await, status, "{path}");
    }
}

// Holds: I-20
#[tokio::test]
async fn port_accepts_only_forms_of_its_own_page() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    let port = Port::open(&server).await;
    let (cookie, host) = (port.cookie(), port.host.clone());
    let form = "POST /ui/units/a.service";
    let own = format!("{cookie}Host: {host}\r\nOrigin: http://{host}\r\n");
    let response = port.send(form, &own, "action=stop").await;
    assert!(response.starts_with("HTTP/1.1 303 "), "{response}");
    let unit = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(unit["desiredState"], "loaded");
    for (line, headers, status) in [
        (form, format!("Origin: http://{host}\r\n"), 401),
        (form, format!("{cookie}Origin: http://example.com\r\n"), 403),
        (form, format!("{cookie}Sec-Fetch-Site: cross-site\r\n"), 403),
        ("POST /fleet/v1/units/a.service/restart", cookie.clone(), 404),
        ("DELETE /fleet/v1/units/a.service", cookie.clone(), 404),
    ] {
        assert_eq!(port.status(line, &headers).await, status, "{line} {headers}");
    }
    let rebound = format!("{cookie}Host: example.com\r\n");
    let response = port.send("GET /", &rebound, "").await;
    assert!(response.starts_with("HTTP/1.1 421 "), "{response}");
}

#[tokio::test]
async fn streams_stay_streams_and_lost_server_is_reported() {
    let server = Server::start().await;
    let port = Port::open(&server).await;
    let headers = format!("{}Host: {}\r\n", port.cookie(), port.host);
    let stream = "GET /ui/live?view=units&since=1-other";
    let following = port.send(stream, &headers, "");
    // The stream ends with the server, and until then its first event has arrived.
    let stopping = async {
        while !server.get("/metrics").await.body.contains("/ui/live") {
            tokio::task::yield_now().await;
        }
        server.stop().await;
    };
    let (response, ()) = tokio::join!(following, stopping);
    assert!(response.contains("event: reload"), "{response}");
    let lost = port.send("GET /", &headers, "").await;
    assert!(lost.starts_with("HTTP/1.1 502 ") && lost.contains("does not respond"), "{lost}");
}
