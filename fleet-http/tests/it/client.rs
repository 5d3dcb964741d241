//! The client against the server, over unix and TCP sockets.

use fleet_core::TargetState;
use fleet_http::client::{PutOutcome, StateFilter, UnitUpload};
use fleet_http::{Client, ClientError};
use fleet_store::registry::MetadataChange;
use fleet_unitfile::UnitFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Server, name, running};

fn upload(source: &str, desired: Option<TargetState>, create_only: bool) -> UnitUpload {
    UnitUpload::new(UnitFile::parse(source).unwrap())
        .with_desired(desired)
        .with_create_only(create_only)
}

#[tokio::test]
async fn unit_lifecycle() {
    for server in [Server::start().await, Server::start_on_tcp().await] {
        let (client, unit) = (server.client(), name("a.service"));
        let one = upload("[Service]\nType=exec\n", None, true);
        let other = upload("[Service]\nType=simple\n", Some(TargetState::Loaded), false);
        assert_eq!(client.unit(&unit).await.unwrap(), None);
        assert_eq!(client.put_unit(&unit, &one).await.unwrap(), PutOutcome::Created);
        assert_eq!(client.put_unit(&unit, &one).await.unwrap(), PutOutcome::Exists);
        assert_eq!(client.put_unit(&unit, &other).await.unwrap(), PutOutcome::Created);
        assert_eq!(client.put_unit(&unit, &other).await.unwrap(), PutOutcome::Changed);
        client.set_desired(&unit, TargetState::Launched).await.unwrap();
        let generation = client.restart(&unit).await.unwrap();
        let fetched = client.unit(&unit).await.unwrap().unwrap();
        assert_eq!(fetched.desired(), Some(TargetState::Launched));
        assert_eq!(fetched.current(), Some(TargetState::Inactive));
        assert_eq!(fetched.generation, generation.0);
        assert_eq!(fetched.source.as_deref(), Some("[Service]\nType=simple\n"));
        assert!(client.destroy(&unit).await.unwrap());
        assert!(!client.destroy(&unit).await.unwrap());
    }
}

#[tokio::test]
async fn unit_names_round_trip() {
    let server = Server::start().await;
    let client = server.client();
    let file = upload("[Service]\nType=exec\n", None, true);
    for text in [r"a\x2db.service", "a:b@c.d@e.service", "a@b@c.path", "_-.service"] {
        assert_eq!(client.put_unit(&name(text), &file).await.unwrap(), PutOutcome::Created);
        let fetched = client.unit(&name(text)).await.unwrap().unwrap();
        assert_eq!(fetched.name, text);
    }
}

#[tokio::test]
async fn lists_read_all_pages() {
    let server = Server::start_with(|api| api.with_page_size(2)).await;
    let client = server.client();
    assert!(client.machines().await.unwrap().is_empty());
    for id in ["m1", "m2", "m3"] {
        let presence = server.machine(id, &[]).await;
        for unit in ["a.service", "b.service"] {
            server.publish(&presence, running(unit, id)).await;
        }
    }
    let machines = client.machines().await.unwrap();
    let ids: Vec<&str> = machines.iter().map(|machine| machine.id.as_str()).collect();
    assert_eq!(ids, ["m1", "m2", "m3"]);
    let count = async |machine: Option<&str>, unit: Option<&str>| {
        let mut filter = StateFilter::default();
        (filter.machine, filter.unit) = (machine.map(str::to_owned), unit.map(str::to_owned));
        client.states(&filter).await.unwrap().len()
    };
    assert_eq!(count(None, None).await, 6);
    assert_eq!(count(Some("m2"), None).await, 2);
    assert_eq!(count(None, Some("a.service")).await, 3);
    assert_eq!(count(Some("m2"), Some("b.service")).await, 1);
    assert_eq!(count(Some("m4"), None).await, 0);
}

#[tokio::test]
async fn patches_metadata() {
    let server = Server::start().await;
    let _presence = server.machine("m1", &[("a", "1")]).await;
    let machine = || "m1".parse().unwrap();
    let changes = [
        MetadataChange::Set { machine: machine(), key: "b.c-d_e".into(), value: "x = y".into() },
        MetadataChange::Remove { machine: machine(), key: "a".into() },
    ];
    server.client().patch_machines(&changes).await.unwrap();
    let machines = server.client().machines().await.unwrap();
    assert_eq!(
        machines[0].metadata.iter().collect::<Vec<_>>(),
        [(&"b.c-d_e".into(), &"x = y".into())]
    );
}

#[tokio::test]
async fn errors_include_details() {
    let server = Server::start().await;
    let unit = upload("[X-Fleet]\nConflict=b\n", None, true);
    let error = server.client().put_unit(&name("a.service"), &unit).await.unwrap_err();
    let ClientError::Api { status, message, details } = &error else { panic!("{error}") };
    assert_eq!((*status, details.len()), (400, 1));
    assert_eq!((details[0].line, details[0].column), (2, 1));
    assert_eq!(&error.to_string(), message);
    let error = server.client().set_desired(&name("b.service"), TargetState::Loaded).await;
    assert!(matches!(error, Err(ClientError::Api { status: 409, .. })), "{error:?}");
}

#[tokio::test]
async fn health_and_readiness_are_reported() {
    let server = Server::start().await;
    server.client().health().await.unwrap();
    server.client().ready().await.unwrap();
    assert_eq!(server.client().version().await.unwrap(), "1.2.3");
    server.mirror.shutdown();
    let error = server.client().ready().await.unwrap_err();
    assert!(matches!(error, ClientError::Api { status: 503, .. }), "{error}");
}

#[tokio::test]
async fn unreachable_endpoint_error_includes_advice() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("unix://{}", folder.path().join("s").display());
    let error = Client::new(&endpoint.parse().unwrap()).units().await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains(&endpoint) && message.contains("FLEETCTL_ENDPOINT"), "{message}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("No such file or directory"), "{cause}");
}

/// Answers each connection with the next of `responses` and closes it.
async fn scripted(responses: Vec<&'static str>) -> (Client, tokio::task::JoinHandle<Vec<String>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/behind", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut requests = Vec::new();
        for response in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 4096];
            let read = stream.read(&mut buffer).await.unwrap();
            let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
            requests.push(text.lines().next().unwrap_or_default().to_owned());
            stream.write_all(response.as_bytes()).await.unwrap();
        }
        requests
    });
    (Client::new(&endpoint.parse().unwrap()), server)
}

const CLOSED: &str = "";

#[tokio::test]
async fn get_is_repeated_once_after_connection_loss() {
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{\"version\":\"1.2.3\"}";
    let (client, server) = scripted(vec![CLOSED, good]).await;
    assert_eq!(client.version().await.unwrap(), "1.2.3");
    let request = "GET /behind/fleet/v1/version HTTP/1.1";
    assert_eq!(server.await.unwrap(), [request, request]);
    let (client, server) = scripted(vec![CLOSED, CLOSED]).await;
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    assert_eq!(server.await.unwrap().len(), 2);
}

#[tokio::test]
async fn write_is_never_repeated() {
    let (client, server) = scripted(vec![CLOSED]).await;
    let error = client.set_desired(&name("a.service"), TargetState::Loaded).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    assert_eq!(server.await.unwrap(), ["PUT /behind/fleet/v1/units/a.service HTTP/1.1"]);
}

#[tokio::test]
async fn invalid_response_is_reported() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let (client, server) = scripted(vec![response]).await;
        let error = client.version().await.unwrap_err();
        assert!(matches!(error, ClientError::BadResponse { .. }), "{error}");
        assert_eq!(server.await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn repeated_page_token_is_an_error() {
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 21\r\nConnection: close\r\n\r\n\
                {\"nextPageToken\":\"x\"}";
    let (client, server) = scripted(vec![page, page]).await;
    let error = client.units().await.unwrap_err();
    assert!(matches!(error, ClientError::BadResponse { .. }), "{error}");
    assert_eq!(server.await.unwrap().len(), 2);
}

#[tokio::test]
async fn response_of_older_server_is_accepted() {
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 54\r\n\r\n\
                {\"units\":[{\"name\":\"a.service\",\"desiredState\":\"loaded\"}]}";
    let page = page.replace("54", &(page.len() - page.find('{').unwrap()).to_string());
    let (client, _server) = scripted(vec![Box::leak(page.into_boxed_str())]).await;
    let units = client.units().await.unwrap();
    assert_eq!(
        (units[0].name.as_str(), units[0].desired()),
        ("a.service", Some(TargetState::Loaded))
    );
}
