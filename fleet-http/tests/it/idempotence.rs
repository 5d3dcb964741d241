//! Whoever lost the answer may ask again: a request that is sent twice does no more than once.

use crate::harness::Server;

/// Requests in the order in which they are sent, each twice: method, path, body.
///
/// The one that is not among them is the restart: each asks for another one, and no client repeats
/// it by itself.
const REQUESTS: &[(&str, &str, &str)] = &[
    (
        "PUT",
        "units/a.service",
        r#"{"options":[{"section":"Service","name":"ExecStart","value":"/a"}]}"#,
    ),
    (
        "PUT",
        "units/a.service",
        r#"{"desiredState":"launched","source":"[Service]\nExecStart=/b\n"}"#,
    ),
    ("PUT", "units/a.service", r#"{"desiredState":"loaded"}"#),
    (
        "PUT",
        "units/b.service",
        r#"{"desiredState":"launched","source":"[Service]\nExecStart=/c\n"}"#,
    ),
    ("PATCH", "machines", r#"[{"op":"add","path":"/m1/metadata/rack","value":"7"}]"#),
    ("PATCH", "machines", r#"[{"op":"remove","path":"/m1/metadata/zone"}]"#),
    ("DELETE", "units/b.service", ""),
];

// Holds: I-19
#[tokio::test]
async fn asking_twice_does_no_more_than_asking_once() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[("zone", "a")]).await;
    for (method, path, body) in REQUESTS {
        let send = async || match *method {
            "PUT" => server.put(&format!("/fleet/v1/{path}"), body).await,
            method => server.call(method, &format!("/fleet/v1/{path}"), body).await,
        };
        let before = everything(&server).await;
        let first = send().await;
        assert!((200..300).contains(&first.status), "{method} {path}: {first}");
        let once = everything(&server).await;
        assert_ne!(before, once, "{method} {path} {body} does nothing, so it shows nothing");
        let second = send().await;
        assert!(second.status < 500, "{method} {path}: {second}");
        assert_eq!(everything(&server).await, once, "{method} {path} {body}, sent twice");
    }
}

/// All that the API shows of the cluster.
async fn everything(server: &Server) -> Vec<String> {
    let mut shown = Vec::new();
    for path in ["units", "units/a.service", "units/b.service", "machines", "state"] {
        shown.push(server.get(&format!("/fleet/v1/{path}")).await.to_string());
    }
    shown
}
