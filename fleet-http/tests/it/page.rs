//! The web page: its documents, their headers and escapes, forms, and live changes.

use fleet_core::Reason;
use fleet_http::{AuthPolicy, ListenAddress, ServerLimits, Tokens};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::harness::{Server, name, running};
use crate::http::{DEADLINE, HttpResponse, request};

const HOSTILE: &str = "</pre></td><script>alert(1)</script><img src=x onerror=alert(1)>";

/// Error of a damaged record.
const DAMAGE: &str =
    "the unit's record cannot be read: the value is damaged: expected value at line 1 column 1";

const SITE: &str = "http://localhost";

/// Sends a form of the page, as a browser does.
async fn submit(server: &Server, path: &str, body: &str) -> HttpResponse {
    let headers = [
        ("Origin", SITE),
        ("Sec-Fetch-Site", "same-origin"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    request(&server.at, "POST", path, &headers, body).await
}

/// Starts a server with a running unit on `m1`, an unplaced unit, and a second machine.
async fn cluster() -> (Server, [fleet_store::registry::Presence; 2]) {
    let server = Server::start().await;
    let presences =
        [server.machine("m1", &[("rack", HOSTILE)]).await, server.machine("m2", &[]).await];
    server.sleepers(&["a.service", "lost.service"], "launched").await;
    server.decide(&[("a.service", "m1")], &[("lost.service", Reason::NoMachines)]).await;
    let mut state = running("a.service", "m1");
    state.problem = Some(HOSTILE.to_owned());
    server.publish(&presences[0], state).await;
    (server, presences)
}

const PAGES: [&str; 8] = [
    "/",
    "/?q=a.service&from=a.service",
    "/ui/units/a.service",
    "/ui/units/lost.service?explain=1",
    "/ui/machines",
    "/ui/machines/m1",
    "/ui/machines/m1/drain?keepUp=1",
    "/ui/apply",
];

// Holds: I-20
#[tokio::test]
async fn every_page_is_html_with_a_strict_policy() {
    let (server, _presences) = cluster().await;
    for (path, status) in PAGES.into_iter().map(|path| (path, 200)).chain([
        ("/ui/units/none.service", 404),
        ("/ui/machines/m9", 404),
        ("/ui/nothing", 404),
        ("/ui/units/a%2Fb", 404),
        ("/ui/live?view=nothing", 400),
        ("/ui/assets/page-0.css", 404),
    ]) {
        let response = server.get(path).await;
        assert_eq!(response.status, status, "{path}: {response}");
        let html = Some("text/html; charset=utf-8");
        assert_eq!(response.header("content-type"), html, "{path}");
        assert!(response.body.starts_with("<!DOCTYPE html>"), "{path}: {response}");
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{path}: {policy}");
        assert!(policy.ends_with("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(response.header("cross-origin-opener-policy"), Some("same-origin"), "{path}");
        for inline in ["style=", " onclick=", "javascript:", "http://", "https://"] {
            assert!(!response.body.contains(inline), "{path}: {inline}");
        }
    }
}

#[tokio::test]
async fn texts_of_the_cluster_are_escaped() {
    let (server, _presences) = cluster().await;
    let unit = format!("[Service]\\nExecStart=/bin/echo {HOSTILE}\\n");
    let body = format!(r#"{{"desiredState":"inactive","source":"{unit}"}}"#);
    assert_eq!(server.put("/fleet/v1/units/b.service", &body).await.status, 201);
    for path in PAGES.into_iter().chain(["/ui/units/b.service", "/?q=%3Cscript%3E"]) {
        let response = server.get(path).await;
        assert!(!response.body.contains("<script>"), "{path}");
        assert!(!response.body.contains("<img"), "{path}");
    }
    for (path, text) in [("/", "a.service"), ("/ui/machines", "m1"), ("/ui/units/b.service", "b")] {
        let page = server.get(path).await.body;
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{path}");
        assert!(page.contains(text), "{path}");
    }
}

/// Returns the cells of each row of the first table of a page, without markup.
fn rows(page: &str) -> Vec<String> {
    let body = page.split_once("<tbody").map_or("", |(_, rest)| rest);
    let body = body.split_once("</tbody>").map_or("", |(rows, _)| rows);
    let row = |row: &str| {
        let cells = row.replace("</td>", "|").replace("</th>", "|");
        let mut text = String::new();
        let mut is_tag = true;
        for c in cells.chars() {
            match c {
                '<' => is_tag = true,
                '>' => is_tag = false,
                c if !is_tag => text.push(c),
                _ => {}
            }
        }
        text
    };
    body.split("</tr>").map(row).filter(|text| !text.is_empty()).collect()
}

#[tokio::test]
async fn lists_show_units_and_machines() {
    let (server, presences) = cluster().await;
    server.sleepers(&["off.service"], "inactive").await;
    server.publish(&presences[0], running("gone.service", "m1")).await;
    server.damage("off.service").await;
    let hostile = HOSTILE.replace('<', "&lt;").replace('>', "&gt;");
    let list = async |path: &str| {
        let rows = rows(&server.get(path).await.body).join("\n");
        rows.replace(&hostile, "X").replace(DAMAGE, "damaged")
    };
    insta::assert_snapshot!(list("/").await, @r"
    a.service|active running||launched|launched|m1|X|
    gone.service|active running||destroyed||m1||
    lost.service|unplaced||launched|inactive||no machine is present|
    off.service|broken|||||damaged|
    ");
    insta::assert_snapshot!(list("/ui/machines").await, @r"
    m1|ready|1||10.0.0.7|rack=X|1.2.3|
    m2|ready|0||10.0.0.7||1.2.3|
    ");
    assert_eq!(rows(&server.get("/?q=UNPLACED").await.body).len(), 1);
    assert_eq!(rows(&server.get("/?q=no-such").await.body).len(), 0);
    assert_eq!(rows(&server.get("/?from=gone.service").await.body).len(), 3);
    let on_it = rows(&server.get("/ui/machines/m1").await.body);
    let names: Vec<&str> = on_it.iter().filter_map(|row| row.split('|').next()).collect();
    assert_eq!(names, ["a.service", "gone.service"]);
}

#[tokio::test]
async fn forms_write_and_redirect_with_a_notice() {
    let (server, _presences) = cluster().await;
    let desired = async || {
        let unit = server.get("/fleet/v1/units/a.service").await.json();
        unit["desiredState"].as_str().unwrap_or("none").to_owned()
    };
    for (action, expected) in [
        ("stop", "loaded"),
        ("stop", "loaded"),
        ("start", "launched"),
        ("restart", "launched"),
        ("unload", "inactive"),
    ] {
        let response = submit(&server, "/ui/units/a.service", &format!("action={action}")).await;
        let location = format!("/ui/units/a.service?done={action}");
        assert_eq!((response.status, response.header("location")), (303, Some(&*location)));
        assert_eq!(desired().await, expected, "{action}");
        assert!(server.get(&location).await.body.contains("class=\"notice\""), "{action}");
    }
    for (action, status) in [("stop", 409), ("restart", 409), ("", 400), ("explode", 400)] {
        let response = submit(&server, "/ui/units/a.service", &format!("action={action}")).await;
        assert_eq!(response.status, status, "{action}: {response}");
        assert!(response.body.contains("role=\"alert\""), "{action}");
    }
    let response = submit(&server, "/ui/units/a.service", "action=destroy").await;
    assert_eq!((response.status, response.header("location")), (303, Some("/?done=destroy")));
    assert_eq!(server.get("/fleet/v1/units/a.service").await.status, 404);
    assert_eq!(submit(&server, "/ui/units/a.service", "action=start").await.status, 404);
    let forged = server.get("/?done=%3Cb%3Eforged").await.body;
    assert!(!forged.contains("forged") && !forged.contains("class=\"notice\""));
}

#[tokio::test]
async fn drain_is_previewed_before_it_starts() {
    let (server, _presences) = cluster().await;
    let intent = async || {
        let machine = server.get("/fleet/v1/machines/m1").await.json();
        machine["intent"].as_str().unwrap_or_default().to_owned()
    };
    let page = server.get("/ui/machines/m1/drain").await.body;
    assert_eq!(rows(&page), ["a.service|m2|"]);
    assert_eq!(intent().await, "", "a preview changes nothing");
    let response = submit(&server, "/ui/machines/m1/drain", "keepUp=0").await;
    let location = Some("/ui/machines/m1/drain?done=drain");
    assert_eq!((response.status, response.header("location")), (303, location));
    assert_eq!(intent().await, "drained");
    assert!(server.get("/ui/machines/m1/drain").await.body.contains("Drain in progress"));
    for (action, expected) in [("uncordon", ""), ("cordon", "cordoned"), ("uncordon", "")] {
        let response = submit(&server, "/ui/machines/m1", &format!("action={action}")).await;
        assert_eq!((response.status, intent().await.as_str()), (303, expected), "{response}");
    }
}

#[tokio::test]
async fn files_are_previewed_before_they_are_applied() {
    let (server, _presences) = cluster().await;
    let file = "%5BService%5D%0D%0AExecStart%3D%2Fbin%2Fsleep+2d%0D%0A";
    let fields =
        format!("name=a.service&file={file}&name=new.service&file={file}&desired=launched");
    let page = submit(&server, "/ui/apply", &format!("{fields}&action=preview")).await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("<del>- ExecStart=/bin/sleep 1d</del>"), "{page}");
    assert!(page.body.contains("<ins>+ ExecStart=/bin/sleep 2d</ins>"), "{page}");
    assert!(page.body.contains("new.service <span class=\"sub\">new</span>"), "{page}");
    assert_eq!(server.get("/fleet/v1/units/new.service").await.status, 404, "only previewed");
    let revision = page.body.split_once("name=\"revision\" value=\"").unwrap().1;
    let revision = revision.split_once('"').unwrap().0;
    let apply = format!("{fields}&action=apply&revision={revision}");
    let response = submit(&server, "/ui/apply", &apply).await;
    assert_eq!((response.status, response.header("location")), (303, Some("/?done=apply")));
    let unit = server.get("/fleet/v1/units/new.service").await.json();
    assert_eq!(unit["source"], "[Service]\nExecStart=/bin/sleep 2d\n");
    let again = submit(&server, "/ui/apply", &apply).await;
    assert_eq!(again.status, 412, "the cluster has changed since the preview");
    let broken =
        submit(&server, "/ui/apply", "name=a.service&file=%5BService&action=preview").await;
    assert!(broken.body.contains("role=\"alert\"") && broken.body.contains("[Service</textarea>"));
    assert_eq!(submit(&server, "/ui/apply", "action=preview").await.status, 400);
}

// Holds: I-20
#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let server = Server::start_on_tcp().await;
    server.sleepers(&["a.service"], "launched").await;
    let port = match &server.at {
        ListenAddress::Tcp(address) => address.port(),
        other => panic!("{other}"),
    };
    // The host of the requests is "localhost", without the port.
    let other_port = format!("http://localhost:{port}");
    for (origin, site, status) in [
        ("http://example.com", "cross-site", 403),
        ("http://example.com", "same-origin", 403),
        ("null", "cross-site", 403),
        ("null", "same-origin", 403),
        (&*other_port, "same-site", 403),
        (SITE, "cross-site", 403),
        (SITE, "none", 403),
        (SITE, "same-origin", 303),
    ] {
        let headers = [("Origin", origin), ("Sec-Fetch-Site", site)];
        let path = "/ui/units/a.service";
        let response = request(&server.at, "POST", path, &headers, "action=stop").await;
        assert_eq!(response.status, status, "{origin} {site}");
    }
    // The API itself accepts no write of any page.
    let headers = [("Origin", SITE), ("Sec-Fetch-Site", "same-origin")];
    let path = "/fleet/v1/units/a.service/restart";
    assert_eq!(request(&server.at, "POST", path, &headers, "").await.status, 403);
    let rebound = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n";
    let response = crate::http::exchange(&server.at, rebound.as_bytes()).await;
    let response = String::from_utf8(response).unwrap();
    assert!(response.starts_with("HTTP/1.1 421 ") && response.contains("<!DOCTYPE"), "{response}");
}

// Holds: I-20
#[tokio::test]
async fn read_only_token_sees_no_buttons_and_cannot_write() {
    const WRITER: &str = "the-token-of-the-tests";
    const READER: &str = "the-token-of-the-display";
    let tokens = Tokens::parse(&format!("{WRITER}\nread:{READER}\n")).unwrap();
    let auth = AuthPolicy::new(None, Some(tokens));
    let server = Server::start_with_auth("tcp://127.0.0.1:0", &auth, ServerLimits::default()).await;
    let as_token = async |token: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
        request(&server.at, method, path, &headers, body).await
    };
    let unit = r#"{"source":"[Service]\nExecStart=/bin/a\n","desiredState":"launched"}"#;
    assert_eq!(as_token(WRITER, "PUT", "/fleet/v1/units/a.service", unit).await.status, 201);
    let _presence = server.machine("m1", &[]).await;
    for path in PAGES.into_iter().filter(|path| !path.contains("lost")) {
        let page = as_token(READER, "GET", path, "").await;
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.body.contains("method=\"post\""), "{path}");
        assert!(page.body.contains("Read-only access"), "{path}");
    }
    let page = as_token(WRITER, "GET", "/ui/units/a.service", "").await.body;
    assert!(page.contains("method=\"post\""), "{page}");
    for (path, body) in [
        ("/ui/units/a.service", "action=destroy"),
        ("/ui/machines/m1", "action=cordon"),
        ("/ui/machines/m1/drain", ""),
        ("/ui/apply", "action=preview"),
    ] {
        let response = as_token(READER, "POST", path, body).await;
        assert_eq!(response.status, 403, "{path}");
        assert!(response.body.contains("the token is read-only"), "{path}: {response}");
    }
    for path in ["/", "/ui/units/a.service", "/ui/live?view=units"] {
        let response = server.get(path).await;
        assert_eq!(response.status, 401, "{path}");
        assert!(response.body.contains("fleetctl ui"), "{path}: {response}");
    }
}

#[tokio::test]
async fn assets_are_kept_forever() {
    let server = Server::start().await;
    let page = server.get("/").await.body;
    let urls: Vec<&str> = page.split('"').filter(|text| text.starts_with("/ui/assets/")).collect();
    assert_eq!(urls.len(), 3, "{urls:?}");
    for url in urls {
        let response = server.get(url).await;
        assert_eq!(response.status, 200, "{url}");
        let cached = Some("public, max-age=31536000, immutable");
        assert_eq!(response.header("cache-control"), cached, "{url}");
    }
}

/// An open stream of changes.
struct Live(UnixStream, String);

impl Live {
    async fn open(server: &Server, query: &str) -> Self {
        let ListenAddress::Unix(path) = &server.at else { panic!("not a unix socket") };
        let mut stream = UnixStream::connect(path).await.unwrap();
        let head = format!("GET /ui/live?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        Self(stream, String::new())
    }

    /// Reads until the stream contains `text`. Returns all that was read since the last call.
    async fn until(&mut self, text: &str) -> String {
        let read = async {
            while !self.1.contains(text) {
                let mut buffer = [0; 4096];
                let count = self.0.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the stream ended: {}", self.1);
                self.1.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        };
        timeout(DEADLINE, read).await.unwrap_or_else(|_| panic!("no {text:?} in {}", self.1));
        std::mem::take(&mut self.1)
    }
}

/// Returns the revision that the list of units shows.
async fn shown_revision(server: &Server) -> String {
    let page = server.get("/").await.body;
    let since = page.split_once("data-since=\"").unwrap().1;
    since.split_once('"').unwrap().0.to_owned()
}

#[tokio::test]
async fn changes_arrive_as_rendered_rows() {
    let (server, presences) = cluster().await;
    let since = shown_revision(&server).await;
    let mut units = Live::open(&server, &format!("view=units&since={since}")).await;
    let mut machines = Live::open(&server, &format!("view=machines&since={since}")).await;
    let mut unit = Live::open(&server, &format!("view=unit&name=a.service&since={since}")).await;
    let mut machine = Live::open(&server, &format!("view=machine&id=m1&since={since}")).await;
    for stream in [&mut units, &mut machines, &mut unit, &mut machine] {
        stream.until("200 OK").await;
    }
    let mut state = running("a.service", "m1");
    state.systemd.active = fleet_core::ActiveState::Failed;
    server.publish(&presences[0], state).await;
    let row = units.until(r#"data-state=\"failed\""#).await;
    assert!(row.contains("event: patch\ndata: {\"units\":[[\"a.service\",[[\"m1\","), "{row}");
    unit.until(r#"[["status","<section"#).await;
    machine.until(r#""rows":[["a.service","m1","<tr"#).await;
    machines.until(r#"data-tone=\"bad\">1<"#).await;
    server.call("DELETE", "/fleet/v1/units/lost.service", "").await;
    units.until(r#"["lost.service",[]]"#).await;
    let removed = presences[0].publish_states(&[], &[name("a.service")]).await.unwrap();
    server.settle(removed).await;
    units.until(r#"data-state=\"pending\""#).await;
    let mut late = Live::open(&server, "view=units&since=1-other").await;
    late.until("event: reload\ndata: {}\nid: ").await;
}

/// A change of one state of a global unit renders one row, not one for each machine.
#[tokio::test]
async fn state_of_global_unit_changes_one_row() {
    let server = Server::start().await;
    let presences = [server.machine("m1", &[]).await, server.machine("m2", &[]).await];
    let options = r#"[{"section":"X-Fleet","name":"Global","value":"true"}]"#;
    let global = format!(r#"{{"desiredState":"launched","options":{options}}}"#);
    assert_eq!(server.put("/fleet/v1/units/all.service", &global).await.status, 201);
    server.publish(&presences[0], running("all.service", "m1")).await;
    let since = shown_revision(&server).await;
    let mut units = Live::open(&server, &format!("view=units&since={since}")).await;
    units.until("200 OK").await;
    server.publish(&presences[1], running("all.service", "m2")).await;
    let patch = units.until(r#""rows":[["all.service","m2","<tr"#).await;
    assert!(!patch.contains(r#"data-machine=\"m1\""#), "{patch}");
}
