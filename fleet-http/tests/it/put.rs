//! `PUT /units/<name>`: order of checks, and errors.

use fleet_core::Strictness;
use fleet_http::wire::ErrorDetail;

use crate::harness::Server;
use crate::http::{HttpResponse, request};

const SOURCE: &str = "# comment\r\n[Service]\r\nExecStart=/bin/sleep \\\r\n  1d\r\n";

fn body(source: &str) -> String {
    serde_json::json!({ "source": source }).to_string()
}

#[tokio::test]
async fn content_type_is_checked_first() {
    let server = Server::start().await;
    let wrong = "only acceptable Content-Type is application/json";
    let cases: [(&[&str], &str); 5] = [
        (&[], "expected 1 Content-Type, got 0"),
        (&["application/json", "application/json"], "expected 1 Content-Type, got 2"),
        (&["text/plain"], wrong),
        (&["Application/JSON"], wrong),
        (&[""], wrong),
    ];
    for (types, message) in cases {
        let headers: Vec<_> = types.iter().map(|value| ("Content-Type", *value)).collect();
        let response = request(&server.at, "PUT", "/fleet/v1/units/a", &headers, "no JSON").await;
        assert_eq!((response.status, response.message().as_str()), (415, message), "{types:?}");
    }
    let headers = [("Content-Type", " application/json ; charset=utf-8")];
    let response = request(&server.at, "PUT", "/fleet/v1/units/a", &headers, "no JSON").await;
    assert_eq!(response.status, 400);
}

#[tokio::test]
async fn errors_describe_the_problem() {
    let server = Server::start().await;
    server.sleepers(&["old.service"], "loaded").await;
    let option = r#"{"section":"Service","name":"ExecStart","value":"/bin/sleep 1d"}"#;
    let same = format!(r#"{{"options":[{option}]}}"#);
    let cases = [
        ("a.service", "", 400, "unable to decode body: EOF while parsing a value"),
        ("a.service", "[]", 400, "unable to decode body: expected an object"),
        ("a.service", "{", 400, "unable to decode body: EOF while parsing an object"),
        ("a", "{}", 400, "unit name \"a\" has no type"),
        ("a.service", "{}", 409, "unit does not exist and options field empty"),
        ("old.service", "{}", 409, "must provide DesiredState to update existing unit"),
        ("old.service", &same, 409, "must provide DesiredState to update existing unit"),
        ("a.service", r##"{"source":"# nothing"}"##, 400, "the unit file has no options"),
        (
            "a.service",
            r#"{"source":"[A]\nb=c","sourceBase64":""}"#,
            400,
            "the fields source and sourceBase64 cannot",
        ),
        ("a.service", r#"{"sourceBase64":"!"}"#, 400, "the field sourceBase64 cannot be decoded: "),
        ("a.service", r#"{"options":[{}]}"#, 400, ""),
    ];
    for (name, body, status, beginning) in cases {
        let response = server.put(&format!("/fleet/v1/units/{name}"), body).await;
        assert_eq!(response.status, status, "{body}: {response}");
        let message = response.message();
        assert!(!message.is_empty() && message.starts_with(beginning), "{body}: {message}");
    }
}

#[tokio::test]
async fn all_unit_file_errors_are_listed() {
    let server = Server::start().await;
    let syntax = server
        .put("/fleet/v1/units/a.service", &body("x=1\n[Service]\nType=exec\nExecStart\n"))
        .await;
    let fleet = "[X-Fleet]\nMachineMetadata=a=b c=d\nConflict=b.service\n";
    let options = server.put("/fleet/v1/units/a.service", &body(fleet)).await;
    let places = |response: &HttpResponse| {
        let error = response.json()["error"].clone();
        let details: Vec<ErrorDetail> = serde_json::from_value(error["details"].clone()).unwrap();
        let line = |d: &ErrorDetail| {
            format!("line {}, column {}: {}: {}", d.line, d.column, d.message, d.help)
        };
        let lines: Vec<String> = details.iter().map(line).collect();
        assert_eq!(response.message(), lines.join("\n"), "the message contains all errors");
        details.iter().map(|d| (d.line, d.column)).collect::<Vec<_>>()
    };
    assert_eq!((syntax.status, places(&syntax)), (400, vec![(1, 1), (4, 1)]));
    assert_eq!((options.status, places(&options)), (400, vec![(2, 17), (3, 1)]));
}

#[tokio::test]
async fn warn_strictness_accepts_unknown_options() {
    let server = Server::start_with(|api| api.with_strictness(Strictness::Warn)).await;
    let odd = body("[X-Fleet]\nConflict=b.service\n");
    assert_eq!(server.put("/fleet/v1/units/a.service", &odd).await.status, 201);
}

#[tokio::test]
async fn cycles_are_refused_with_their_units() {
    let server = Server::start().await;
    let beside = |other: &str| body(&format!("[X-Fleet]\nMachineOf={other}\n"));
    assert_eq!(server.put("/fleet/v1/units/a.service", &beside("b.service")).await.status, 201);
    let response = server.put("/fleet/v1/units/b.service", &beside("a.service")).await;
    assert_eq!(response.status, 400);
    assert!(response.message().starts_with("MachineOf forms a dependency cycle: "), "{response}");
    assert!(response.message().contains("a.service -> b.service"), "{response}");
}

#[tokio::test]
async fn start_order_cycle_is_refused_with_its_units() {
    let server = Server::start().await;
    let after = |other: &str| body(&format!("[X-Fleet]\nStartAfter={other}\n"));
    assert_eq!(server.put("/fleet/v1/units/a.service", &after("b.service")).await.status, 201);
    assert_eq!(server.put("/fleet/v1/units/b.service", &after("c.service")).await.status, 201);
    let response = server.put("/fleet/v1/units/c.service", &after("a.service")).await;
    assert_eq!(response.status, 400);
    insta::assert_snapshot!(response.message(), @"
    StartAfter forms a dependency cycle: c.service -> a.service -> b.service -> c.service
    ");
}

// Holds: I-13
#[tokio::test]
async fn source_round_trips() {
    let server = Server::start().await;
    assert_eq!(server.put("/fleet/v1/units/a.service", &body(SOURCE)).await.status, 201);
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(fetched["source"], SOURCE);
    // Options that an old client reads and writes elsewhere have the same hash.
    let copy = serde_json::json!({ "options": fetched["options"] }).to_string();
    assert_eq!(server.put("/fleet/v1/units/copy.service", &copy).await.status, 201);
    let copied = server.get("/fleet/v1/units/copy.service").await.json();
    assert_eq!(copied["hash"], fetched["hash"]);
}

#[tokio::test]
async fn comment_change_is_a_content_change() {
    let server = Server::start().await;
    let unit =
        |source: &str| serde_json::json!({"desiredState":"loaded","source":source}).to_string();
    let (plain, commented) = ("[Service]\nType=exec\n", "# comment\n[Service]\nType=exec\n");
    let options = r#"{"desiredState":"launched",
        "options":[{"section":"Service","name":"Type","value":"exec"}]}"#;
    let steps = [
        (unit(plain), 201, plain),
        (unit(commented), 201, commented),
        (options.to_owned(), 204, commented),
    ];
    for (body, status, source) in steps {
        assert_eq!(server.put("/fleet/v1/units/a.service", &body).await.status, status, "{body}");
        let fetched = server.get("/fleet/v1/units/a.service").await.json();
        assert_eq!(fetched["source"], source, "after {body}");
    }
}

#[tokio::test]
async fn source_and_options_must_agree() {
    let server = Server::start().await;
    let option = |value: &str| serde_json::json!({"section":"Service","name":"Type","value":value});
    let both = |value| {
        serde_json::json!({"source":"[Service]\nType=exec\n","options":[option(value)]}).to_string()
    };
    let response = server.put("/fleet/v1/units/a.service", &both("simple")).await;
    assert_eq!(response.status, 400);
    assert_eq!(
        response.message(),
        "the fields source and options have different contents: send only one of them"
    );
    assert_eq!(server.put("/fleet/v1/units/a.service", &both("exec")).await.status, 201);
}

#[tokio::test]
async fn replaces_content_and_sets_state() {
    let server = Server::start().await;
    let content = |command: &str, state: &str| {
        let source = format!("[Service]\nExecStart={command}\n");
        serde_json::json!({"desiredState":state,"source":source}).to_string()
    };
    let steps = [
        (content("/bin/true", "loaded"), 201, "loaded"),
        (content("/bin/true", "launched"), 204, "launched"),
        (content("/bin/true", "launched"), 204, "launched"),
        (content("/bin/false", "loaded"), 201, "loaded"),
        (r#"{"desiredState":"launched"}"#.to_owned(), 204, "launched"),
        (body("[Service]\nExecStart=/bin/true\n"), 201, "inactive"),
    ];
    for (body, status, state) in steps {
        assert_eq!(server.put("/fleet/v1/units/a.service", &body).await.status, status, "{body}");
        let fetched = server.get("/fleet/v1/units/a.service").await.json();
        assert_eq!(fetched["desiredState"], state, "after {body}");
    }
}

#[tokio::test]
async fn field_names_ignore_case_and_trailing_bytes() {
    let server = Server::start().await;
    let body = r#"{"DESIREDSTATE":"loaded","Options":[{"SECTION":"Service","Name":"ExecStart",
        "vaLue":"/bin/true"}],"unknown":{"name":7}} and more"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", body).await.to_string(), "201");
    let fetched = server.get("/fleet/v1/units/a.service").await.json();
    assert_eq!(fetched["desiredState"], "loaded");
    assert_eq!(fetched["options"][0]["value"], "/bin/true");
}

#[tokio::test]
async fn create_only_keeps_existing_unit() {
    let server = Server::start().await;
    let put = async |source: &str, tag: &str| {
        let headers = [("Content-Type", "application/json"), ("If-None-Match", tag)];
        request(&server.at, "PUT", "/fleet/v1/units/a.service", &headers, &body(source)).await
    };
    let (one, other) = ("[Service]\nType=exec\n", "[Service]\nType=simple\n");
    assert_eq!(put(one, "\"tag\"").await.status, 400);
    assert_eq!(put(one, "*").await.status, 201);
    for source in [one, other] {
        let response = put(source, "*").await;
        assert_eq!(response.status, 412, "{response}");
    }
    assert_eq!(server.get("/fleet/v1/units/a.service").await.json()["source"], one);
}

#[tokio::test]
async fn concurrent_create_only_succeeds_once() {
    let server = std::sync::Arc::new(Server::start().await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let server = server.clone();
        tasks.spawn(async move {
            let headers = [("Content-Type", "application/json"), ("If-None-Match", "*")];
            let body = body(&format!("[Service]\nExecStart=/bin/echo {number}\n"));
            let path = "/fleet/v1/units/a.service";
            request(&server.at, "PUT", path, &headers, &body).await.status
        });
    }
    let mut statuses = tasks.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 412, 412, 412, 412, 412, 412, 412]);
}
