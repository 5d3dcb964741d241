//! Authentication at ports, by certificates and tokens.

use std::time::Duration;

use fleet_http::client::EventOptions;
use fleet_http::tls::TlsError;
use fleet_http::{
    AuthPolicy, Client, ClientError, ClientTls, Credentials, ListenError, Listener, ServerLimits,
    ServerTls, Token, Tokens,
};

use crate::certificates::Authority;
use crate::harness::Server;
use crate::http;

const TLS: &str = "https://127.0.0.1:0";
const TOKEN: &str = "the-token-of-the-tests";

fn tokens(text: &str) -> Option<Tokens> {
    Some(Tokens::parse(text).unwrap())
}

async fn start(auth: &AuthPolicy) -> Server {
    Server::start_with_auth(TLS, auth, ServerLimits::default()).await
}

/// Returns the version or the error that a client with these credentials gets.
async fn connect_as(server: &Server, credentials: Credentials) -> String {
    let client = Client::with_credentials(&server.at.to_string().parse().unwrap(), credentials);
    match client.version().await {
        Ok(version) => version,
        Err(ClientError::Api { status, message, .. }) => format!("{status} {message}"),
        Err(ClientError::Untrusted { cause, .. }) => format!("untrusted: {cause}"),
        // The server verifies the client certificate after the client's side of the handshake is
        // complete.
        Err(ClientError::Broken { cause, .. }) => {
            let causes = std::iter::successors(cause.source(), |cause| (*cause).source());
            format!("broken: {}", causes.last().map_or(cause.to_string(), ToString::to_string))
        }
        Err(error) => format!("{error:?}"),
    }
}

// Holds: I-20, D-26
#[tokio::test]
async fn port_accepts_only_certificates_and_tokens() {
    let (ours, theirs) = (Authority::new(), Authority::named("theirs"));
    let server = start(&AuthPolicy::new(Some(ours.server(true)), tokens(TOKEN))).await;
    let own = ours.sign();
    assert_eq!(connect_as(&server, ours.client(Some(&own), None)).await, "1.2.3");
    assert_eq!(connect_as(&server, ours.client(None, Some(TOKEN))).await, "1.2.3");
    let both = "present a client certificate, or a token as Authorization: Bearer TOKEN";
    let nothing = connect_as(&server, ours.client(None, None)).await;
    assert_eq!(nothing, format!("401 authentication required: {both}"));
    let wrong = connect_as(&server, ours.client(None, Some("some-other-token-here"))).await;
    assert_eq!(wrong, format!("401 unknown token: {both}"));
    let unknown = connect_as(&server, ours.client(Some(&theirs.sign()), Some(TOKEN))).await;
    assert!(unknown.contains("UnknownCA"), "{unknown}");
    let expired = ours.sign_until(2020, "127.0.0.1");
    let late = connect_as(&server, ours.client(Some(&expired), Some(TOKEN))).await;
    assert!(late.contains("CertificateExpired"), "{late}");
    server.stop().await;
}

#[tokio::test]
async fn read_only_token_cannot_write() {
    let ours = Authority::new();
    let text = format!("{TOKEN}\nread:the-token-of-the-display\n");
    let server = start(&AuthPolicy::new(Some(ours.server(true)), tokens(&text))).await;
    let own = ours.sign();
    let at = server.at.to_string().parse().unwrap();
    let writer = Client::with_credentials(&at, ours.client(None, Some(TOKEN)));
    let unit = crate::harness::name("a.service");
    let file = fleet_unitfile::UnitFile::parse("[Service]\nExecStart=/bin/true\n").unwrap();
    let upload = fleet_http::client::UnitUpload::new(file).with_create_only(true);
    writer.put_unit(&unit, &upload).await.unwrap();
    let reader = ours.client(None, Some("the-token-of-the-display"));
    let reader = Client::with_credentials(&at, reader);
    assert_eq!(reader.units().await.unwrap().len(), 1);
    for refused in [
        reader.destroy(&unit).await.map(drop),
        reader.set_desired(&unit, fleet_core::TargetState::Loaded).await.map(drop),
        reader.cordon(&"m1".parse().unwrap()).await.map(drop),
    ] {
        let Err(ClientError::Api { status, message, .. }) = refused else {
            panic!("not refused: {refused:?}")
        };
        assert_eq!(status, 403);
        assert_eq!(message, "the token is read-only: use one without the prefix read:");
    }
    // A client that also presents a certificate, or another token, may write.
    let certified = ours.client(Some(&own), Some("the-token-of-the-display"));
    Client::with_credentials(&at, certified)
        .set_desired(&unit, fleet_core::TargetState::Loaded)
        .await
        .unwrap();
    writer.destroy(&unit).await.unwrap();
}

/// Calls every described write with a read-only token, with and without `dryRun=1`.
// Holds: I-20
#[tokio::test]
async fn read_only_token_can_preview_every_described_write() {
    const READER: &str = "the-token-of-the-display";
    let auth = AuthPolicy::new(None, tokens(&format!("{TOKEN}\nread:{READER}\n")));
    let server = Server::start_with_auth("tcp://127.0.0.1:0", &auth, ServerLimits::default()).await;
    let as_token = async |token: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
        http::request(&server.at, method, path, &headers, body).await
    };
    let unit = r#"{"source":"[Service]\nExecStart=/bin/a\n","desiredState":"launched"}"#;
    assert_eq!(as_token(TOKEN, "PUT", "/fleet/v1/units/a.service", unit).await.status, 201);
    let described = as_token(READER, "GET", "/fleet/v1/openapi.json", "").await.json();
    let export = async || as_token(READER, "GET", "/fleet/v1/export", "").await.body;
    let before = export().await;
    let mut previews = 0;
    for (path, item) in described["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if method == "get" {
                continue;
            }
            let method = method.to_uppercase();
            let has_dry_run = operation["parameters"].as_array().into_iter().flatten();
            let has_dry_run = has_dry_run.into_iter().any(|it| it["name"] == "dryRun");
            let at = path.replace("{name}", "a.service").replace("{id}", "m1");
            let body = match (&*method, path.rsplit('/').next()) {
                ("PUT", _) => unit,
                ("PATCH", _) => "[]",
                (_, Some("plan" | "check" | "import")) => "{}",
                _ => "",
            };
            let is_plan = path.ends_with("/plan") || path.ends_with("/check");
            for (query, is_admitted) in [
                ("", is_plan),
                ("?dryRun=0", is_plan),
                ("?dry_run=1", is_plan),
                ("?x=dryRun=1", is_plan),
                ("?dryRun=1", is_plan || has_dry_run),
                ("?dryRun=0&dryRun=1", is_plan),
            ] {
                let response = as_token(READER, &method, &format!("{at}{query}"), body).await;
                let what = format!("{method} {at}{query}: {response}");
                assert_eq!(response.status != 403, is_admitted, "{what}");
                previews += usize::from(response.status == 200);
            }
        }
    }
    assert!(previews > 8, "only {previews} previews succeeded");
    assert_eq!(export().await, before, "a preview has changed the cluster");
}

/// The owner of a read-only token must not keep all other clients away from a port.
#[tokio::test]
async fn read_only_token_gets_a_share_of_the_connections() {
    let ours = Authority::new();
    let text = format!("{TOKEN}\nread:the-token-of-the-display\n");
    let limits = ServerLimits::default().with_connections(8);
    let auth = AuthPolicy::new(Some(ours.server(true)), tokens(&text));
    let server = Server::start_with_auth(TLS, &auth, limits).await;
    let at = server.at.to_string().parse().unwrap();
    let as_client = |token| Client::with_credentials(&at, ours.client(None, Some(token)));
    let reader = as_client("the-token-of-the-display");
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(reader.events(&EventOptions::default()).await.unwrap());
    }
    let Err(ClientError::Api { status, message, .. }) = reader.version().await else {
        panic!("a third request of the token is admitted")
    };
    assert_eq!(status, 429);
    assert!(message.starts_with("too many requests with read-only tokens"), "{message}");
    assert_eq!(as_client(TOKEN).version().await.unwrap(), "1.2.3");
    drop(streams);
    // The server notices the closed connections when it next writes to them, or reads from them.
    let admitted = async {
        while reader.version().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), admitted).await.expect("the share is free");
}

// Holds: D-27
#[tokio::test]
async fn error_names_only_accepted_credentials() {
    let ours = Authority::new();
    let own = ours.sign();
    let server = start(&AuthPolicy::new(Some(ours.server(true)), None)).await;
    assert_eq!(connect_as(&server, ours.client(Some(&own), None)).await, "1.2.3");
    let refused = connect_as(&server, ours.client(None, Some(TOKEN))).await;
    assert!(refused.ends_with("token: present a client certificate"), "{refused}");
    let server = start(&AuthPolicy::new(Some(ours.server(false)), tokens(TOKEN))).await;
    assert_eq!(connect_as(&server, ours.client(None, Some(TOKEN))).await, "1.2.3");
    let refused = connect_as(&server, ours.client(Some(&own), None)).await;
    assert!(refused.ends_with("present a token as Authorization: Bearer TOKEN"), "{refused}");
}

#[tokio::test]
async fn token_is_not_sent_to_unverified_server() {
    let (ours, theirs) = (Authority::new(), Authority::named("theirs"));
    let cases = [
        (theirs.sign(), "UnknownIssuer"),
        (ours.sign_until(2020, "127.0.0.1"), "certificate expired"),
        (ours.sign_until(4096, "elsewhere.example"), "certificate not valid for name"),
    ];
    for (identity, reason) in cases {
        let tls = ServerTls::new(identity.identity(), None).unwrap();
        let server = start(&AuthPolicy::new(Some(tls), tokens(TOKEN))).await;
        let refused = connect_as(&server, ours.client(None, Some(TOKEN))).await;
        assert!(refused.starts_with("untrusted") && refused.contains(reason), "{refused}");
        // Only a client that explicitly disables verification accepts the server.
        let tls = Some(ClientTls::without_server_verification(None).unwrap());
        let unverified =
            Credentials::default().with_tls(tls).with_token(TOKEN.parse::<Token>().unwrap());
        assert_eq!(connect_as(&server, unverified).await, "1.2.3");
    }
}

// Holds: I-20
#[tokio::test]
async fn client_refuses_to_send_token_in_plain_text() {
    let credentials = Credentials::default().with_token(TOKEN.parse::<Token>().unwrap());
    let client = Client::with_credentials(&"http://192.0.2.1:1".parse().unwrap(), credentials);
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, ClientError::TokenUnprotected { .. }), "{error}");
}

#[tokio::test]
async fn ports_require_tokens_and_unix_sockets_do_not() {
    let auth = AuthPolicy::new(None, tokens(TOKEN));
    let server = Server::start_with_auth("tcp://127.0.0.1:0", &auth, ServerLimits::default()).await;
    let response = server.get("/fleet/v1/version").await;
    assert_eq!(response.status, 401);
    assert_eq!(response.header("www-authenticate"), Some("Bearer realm=\"fleet\""));
    assert!(
        response.message().starts_with("authentication required: present a token"),
        "{response}"
    );
    let headers = [("Authorization", "bearer the-token-of-the-tests")];
    let response = http::request(&server.at, "GET", "/fleet/v1/version", &headers, "").await;
    assert_eq!(response.status, 200);
    for (name, value) in [("Authorization", "Basic abc"), ("Authorization", "Bearer ")] {
        let response = http::request(&server.at, "GET", "/metrics", &[(name, value)], "").await;
        assert_eq!(response.status, 401, "{value}");
    }
    let folder = tempfile::tempdir().unwrap();
    let at = format!("unix://{}", folder.path().join("s").display());
    let server = Server::start_with_auth(&at, &auth, ServerLimits::default()).await;
    assert_eq!(server.get("/fleet/v1/version").await.status, 200);
}

#[tokio::test]
async fn replaced_tokens_apply_to_open_connections() {
    let ours = Authority::new();
    let auth = AuthPolicy::new(Some(ours.server(false)), tokens(TOKEN));
    let server = start(&auth).await;
    let at = server.at.to_string().parse().unwrap();
    let client = Client::with_credentials(&at, ours.client(None, Some(TOKEN)));
    assert_eq!(client.version().await.unwrap(), "1.2.3");
    auth.replace(Some(ours.server(false)), tokens("another-token-of-the-tests"));
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, ClientError::Api { status: 401, .. }), "{error}");
    let other = ours.client(None, Some("another-token-of-the-tests"));
    assert_eq!(connect_as(&server, other).await, "1.2.3");
}

#[tokio::test]
async fn replaced_ca_rejects_open_connections() {
    let (ours, theirs) = (Authority::new(), Authority::named("theirs"));
    let auth = AuthPolicy::new(Some(ours.server(true)), None);
    let server = start(&auth).await;
    let at = server.at.to_string().parse().unwrap();
    let client = Client::with_credentials(&at, ours.client(Some(&ours.sign()), None));
    assert_eq!(client.version().await.unwrap(), "1.2.3");
    auth.replace(Some(ours.server(true)), None);
    assert_eq!(client.version().await.unwrap(), "1.2.3", "the CA is unchanged");
    auth.replace(Some(theirs.server(true)), None);
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, ClientError::Api { status: 401, .. }), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn plaintext_request_to_tls_port_gets_an_error() {
    let ours = Authority::new();
    let server = start(&AuthPolicy::new(Some(ours.server(true)), None)).await;
    let response = server.get("/fleet/v1/version").await;
    assert_eq!(response.status, 400);
    assert_eq!(response.message(), "this port requires TLS: use https:// instead of http://");
}

#[tokio::test]
async fn stalled_handshake_times_out_and_makes_room() {
    let ours = Authority::new();
    let auth = AuthPolicy::new(Some(ours.server(true)), None);
    let short = ServerLimits::default().with_handshake_time(Duration::from_millis(50));
    let server = Server::start_with_auth(TLS, &auth, short).await;
    for bytes in [&b""[..], b"\x16", b"\x16\x03\x01\x00\x05hello"] {
        // The exchange returns only if the server closes the connection.
        http::exchange(&server.at, bytes).await;
    }
    // A connection that waits for its handshake makes room like one that waits for a request.
    let single = ServerLimits::default().with_handshake_time(http::DEADLINE).with_connections(1);
    let server = Server::start_with_auth(TLS, &auth, single).await;
    let Some(address) = server.at.to_string().strip_prefix("https://").map(str::to_owned) else {
        panic!("not a TLS port");
    };
    let _silent = tokio::net::TcpStream::connect(&address).await.unwrap();
    let own = ours.sign();
    assert_eq!(connect_as(&server, ours.client(Some(&own), None)).await, "1.2.3");
    let _silent = tokio::net::TcpStream::connect(&address).await.unwrap();
    server.stop().await;
}

// Holds: I-20, D-26
#[tokio::test]
async fn public_port_requires_tls_and_authentication() {
    let ours = Authority::new();
    let all_addresses = "https://0.0.0.0:0".parse().unwrap();
    let refused = async |auth: AuthPolicy| Listener::bind_with_auth(&all_addresses, &auth).await;
    let error = refused(AuthPolicy::new(None, tokens(TOKEN))).await.unwrap_err();
    assert!(matches!(error, ListenError::NoCertificate(_)), "{error}");
    let error = refused(AuthPolicy::new(Some(ours.server(false)), None)).await.unwrap_err();
    assert!(matches!(error, ListenError::OpenToAll(_)), "{error}");
    assert!(refused(AuthPolicy::new(Some(ours.server(true)), None)).await.is_ok());
    assert!(refused(AuthPolicy::new(Some(ours.server(false)), tokens(TOKEN))).await.is_ok());
    let auth = AuthPolicy::new(Some(ours.server(true)), tokens(TOKEN));
    let plain = Listener::bind_with_auth(&"tcp://0.0.0.0:0".parse().unwrap(), &auth).await;
    assert!(matches!(plain.unwrap_err(), ListenError::NotLoopback(_)));
    let socket = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let adopted = Listener::from_std_tcp(socket, &auth).unwrap();
    assert!(adopted.local_address().to_string().starts_with("https://0.0.0.0:"));
}

#[test]
fn mismatched_key_is_refused() {
    let ours = Authority::new();
    let (one, other) = (ours.sign(), ours.sign());
    let mismatched = crate::certificates::Signed { certificate: one.certificate, key: other.key };
    let error = ServerTls::new(mismatched.identity(), None).unwrap_err();
    assert!(matches!(error, TlsError::Key(_)), "{error}");
    let no_certificate =
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    let damaged = crate::certificates::Signed { certificate: no_certificate, key: ours.sign().key };
    let error = ServerTls::new(damaged.identity(), None).unwrap_err();
    assert!(
        matches!(error, TlsError::Certificate(_)),
        "the certificate is invalid, not the key: {error}"
    );
}
