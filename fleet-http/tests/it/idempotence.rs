//! A request that is sent twice, because the response was lost, has the effect of a single request.

use crate::harness::Server;

/// Requests in the order in which they are sent, each twice: method, path, body.
///
/// Restarts are not included, because each request causes another restart. Therefore, no client
/// repeats a restart request automatically.
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
async fn repeated_requests_have_no_further_effect() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[("zone", "a")]).await;
    for (method, path, body) in REQUESTS {
        let send = async || match *method {
            "PUT" => server.put(&format!("/fleet/v1/{path}"), body).await,
            method => server.call(method, &format!("/fleet/v1/{path}"), body).await,
        };
        let before = cluster_state(&server).await;
        let first = send().await;
        assert!((200..300).contains(&first.status), "{method} {path}: {first}");
        let once = cluster_state(&server).await;
        assert_ne!(
            before, once,
            "{method} {path} {body} has no effect, so repeating it proves nothing"
        );
        let second = send().await;
        assert!(second.status < 500, "{method} {path}: {second}");
        assert_eq!(cluster_state(&server).await, once, "{method} {path} {body}, sent twice");
    }
}

/// Returns the responses that show the state of the cluster.
async fn cluster_state(server: &Server) -> Vec<String> {
    let mut responses = Vec::new();
    for path in ["units", "units/a.service", "units/b.service", "machines", "state"] {
        responses.push(server.get(&format!("/fleet/v1/{path}")).await.to_string());
    }
    responses
}
