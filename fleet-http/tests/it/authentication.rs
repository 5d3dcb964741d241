//! Who is let in at a port: by certificates and tokens, and with an answer to those who are not.

use std::time::Duration;

use fleet_http::{
    AuthPolicy, Client, ClientError, ClientTls, Credentials, ListenError, Listener, ServerLimits,
    ServerTls, TlsError, Tokens,
};

use crate::certificates::Authority;
use crate::harness::Server;
use crate::http;

const TLS: &str = "https://127.0.0.1:0";
const TOKEN: &str = "the-token-of-the-tests";

fn tokens(text: &str) -> Option<Tokens> {
    Some(Tokens::parse(text).unwrap())
}

async fn start(guard: &AuthPolicy) -> Server {
    Server::start_kept(TLS, guard, ServerLimits::default()).await
}

/// What becomes of a client that shows this.
async fn outcome(server: &Server, credentials: Credentials) -> String {
    let client = Client::with_credentials(&server.at.to_string().parse().unwrap(), credentials);
    match client.version().await {
        Ok(version) => version,
        Err(ClientError::Api { status, message, .. }) => format!("{status} {message}"),
        Err(ClientError::Untrusted { cause, .. }) => format!("untrusted: {cause}"),
        // What the server has against a certificate, the client hears after the handshake.
        Err(ClientError::Broken { cause, .. }) => {
            let causes = std::iter::successors(cause.source(), |cause| (*cause).source());
            format!("broken: {}", causes.last().map_or(cause.to_string(), ToString::to_string))
        }
        Err(error) => format!("{error:?}"),
    }
}

// Holds: I-20, D-26
#[tokio::test]
async fn who_shows_a_certificate_or_a_token_is_let_in_and_nobody_else() {
    let (ours, theirs) = (Authority::new(), Authority::named("theirs"));
    let server = start(&AuthPolicy::new(Some(ours.server(true)), tokens(TOKEN))).await;
    let own = ours.sign();
    assert_eq!(outcome(&server, ours.client(Some(&own), None)).await, "1.2.3");
    assert_eq!(outcome(&server, ours.client(None, Some(TOKEN))).await, "1.2.3");
    let both = "show a client certificate, or a token as Authorization: Bearer TOKEN";
    let nothing = outcome(&server, ours.client(None, None)).await;
    assert_eq!(nothing, format!("401 who are you: {both}"));
    let wrong = outcome(&server, ours.client(None, Some("the-token-of-somebody"))).await;
    assert_eq!(wrong, format!("401 the token is none that is known: {both}"));
    let strange = outcome(&server, ours.client(Some(&theirs.sign()), Some(TOKEN))).await;
    assert!(strange.contains("UnknownCA"), "{strange}");
    let expired = ours.sign_until(2020, "127.0.0.1");
    let late = outcome(&server, ours.client(Some(&expired), Some(TOKEN))).await;
    assert!(late.contains("CertificateExpired"), "{late}");
    server.stop().await;
}

#[tokio::test]
async fn a_token_that_may_read_changes_nothing() {
    let ours = Authority::new();
    let text = format!("{TOKEN}\nread:the-token-of-the-display\n");
    let server = start(&AuthPolicy::new(Some(ours.server(true)), tokens(&text))).await;
    let own = ours.sign();
    let at = server.at.to_string().parse().unwrap();
    let writer = Client::with_credentials(&at, ours.client(None, Some(TOKEN)));
    let unit = crate::harness::name("a.service");
    let file = fleet_unitfile::UnitFile::parse("[Service]\nExecStart=/bin/true\n").unwrap();
    let upload = fleet_http::UnitUpload { file, desired: None, create_only: true };
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
            panic!("it was let in: {refused:?}")
        };
        assert_eq!(status, 403);
        assert_eq!(message, "the token may only read: show one that stands without read:");
    }
    // Who shows a certificate as well, or another token, may write.
    let certified = ours.client(Some(&own), Some("the-token-of-the-display"));
    Client::with_credentials(&at, certified)
        .set_desired(&unit, fleet_core::TargetState::Loaded)
        .await
        .unwrap();
    writer.destroy(&unit).await.unwrap();
}

// Holds: D-27
#[tokio::test]
async fn certificates_alone_and_tokens_alone_are_asked_for() {
    let ours = Authority::new();
    let own = ours.sign();
    let server = start(&AuthPolicy::new(Some(ours.server(true)), None)).await;
    assert_eq!(outcome(&server, ours.client(Some(&own), None)).await, "1.2.3");
    let refused = outcome(&server, ours.client(None, Some(TOKEN))).await;
    assert!(refused.ends_with("known: show a client certificate"), "{refused}");
    let server = start(&AuthPolicy::new(Some(ours.server(false)), tokens(TOKEN))).await;
    assert_eq!(outcome(&server, ours.client(None, Some(TOKEN))).await, "1.2.3");
    let refused = outcome(&server, ours.client(Some(&own), None)).await;
    assert!(refused.ends_with("show a token as Authorization: Bearer TOKEN"), "{refused}");
}

#[tokio::test]
async fn a_server_that_is_not_the_one_that_is_meant_hears_no_token() {
    let (ours, theirs) = (Authority::new(), Authority::named("theirs"));
    let cases = [
        (theirs.sign(), "UnknownIssuer"),
        (ours.sign_until(2020, "127.0.0.1"), "certificate expired"),
        (ours.sign_until(4096, "elsewhere.example"), "certificate not valid for name"),
    ];
    for (identity, reason) in cases {
        let tls = ServerTls::new(identity.identity(), None).unwrap();
        let server = start(&AuthPolicy::new(Some(tls), tokens(TOKEN))).await;
        let refused = outcome(&server, ours.client(None, Some(TOKEN))).await;
        assert!(refused.starts_with("untrusted") && refused.contains(reason), "{refused}");
        // Only who says so by name takes it for the right one all the same.
        let tls = Some(ClientTls::without_server_verification(None).unwrap());
        let careless = Credentials { tls, token: Some(TOKEN.parse().unwrap()) };
        assert_eq!(outcome(&server, careless).await, "1.2.3");
    }
}

// Holds: I-20
#[tokio::test]
async fn a_token_is_not_sent_where_others_can_read_it() {
    let credentials = Credentials { tls: None, token: Some(TOKEN.parse().unwrap()) };
    let client = Client::with_credentials(&"http://192.0.2.1:1".parse().unwrap(), credentials);
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, ClientError::TokenUnprotected { .. }), "{error}");
}

#[tokio::test]
async fn tokens_are_asked_for_on_every_port_and_on_no_socket_file() {
    let guard = AuthPolicy::new(None, tokens(TOKEN));
    let server = Server::start_kept("tcp://127.0.0.1:0", &guard, ServerLimits::default()).await;
    let answer = server.get("/fleet/v1/version").await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"fleet\""));
    assert!(answer.message().starts_with("who are you: show a token"), "{answer}");
    let shown = [("Authorization", "bearer the-token-of-the-tests")];
    let answer = http::request(&server.at, "GET", "/fleet/v1/version", &shown, "").await;
    assert_eq!(answer.status, 200);
    for (name, value) in [("Authorization", "Basic abc"), ("Authorization", "Bearer ")] {
        let answer = http::request(&server.at, "GET", "/metrics", &[(name, value)], "").await;
        assert_eq!(answer.status, 401, "{value}");
    }
    let folder = tempfile::tempdir().unwrap();
    let at = format!("unix://{}", folder.path().join("s").display());
    let server = Server::start_kept(&at, &guard, ServerLimits::default()).await;
    assert_eq!(server.get("/fleet/v1/version").await.status, 200);
}

#[tokio::test]
async fn what_a_guard_is_told_later_counts_at_once() {
    let ours = Authority::new();
    let guard = AuthPolicy::new(Some(ours.server(false)), tokens(TOKEN));
    let server = start(&guard).await;
    let at = server.at.to_string().parse().unwrap();
    let client = Client::with_credentials(&at, ours.client(None, Some(TOKEN)));
    assert_eq!(client.version().await.unwrap(), "1.2.3");
    guard.replace(Some(ours.server(false)), tokens("another-token-of-the-tests"));
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, ClientError::Api { status: 401, .. }), "{error}");
    let other = ours.client(None, Some("another-token-of-the-tests"));
    assert_eq!(outcome(&server, other).await, "1.2.3");
}

#[tokio::test]
async fn an_authority_that_counts_no_more_lets_nobody_in_on_connections_that_are_there() {
    let (ours, theirs) = (Authority::new(), Authority::named("theirs"));
    let guard = AuthPolicy::new(Some(ours.server(true)), None);
    let server = start(&guard).await;
    let at = server.at.to_string().parse().unwrap();
    let client = Client::with_credentials(&at, ours.client(Some(&ours.sign()), None));
    assert_eq!(client.version().await.unwrap(), "1.2.3");
    guard.replace(Some(ours.server(true)), None);
    assert_eq!(client.version().await.unwrap(), "1.2.3", "its authority is the same");
    guard.replace(Some(theirs.server(true)), None);
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, ClientError::Api { status: 401, .. }), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn who_speaks_without_tls_is_told_to_speak_with_it() {
    let ours = Authority::new();
    let server = start(&AuthPolicy::new(Some(ours.server(true)), None)).await;
    let answer = server.get("/fleet/v1/version").await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.message(), "this port is for TLS: write https:// instead of http://");
}

#[tokio::test]
async fn a_handshake_that_does_not_come_ends_and_holds_nobody_up() {
    let ours = Authority::new();
    let guard = AuthPolicy::new(Some(ours.server(true)), None);
    let soon =
        ServerLimits { handshake_time: Duration::from_millis(50), ..ServerLimits::default() };
    let server = Server::start_kept(TLS, &guard, soon).await;
    for bytes in [&b""[..], b"\x16", b"\x16\x03\x01\x00\x05hello"] {
        // The server closes, or this would not return.
        http::exchange(&server.at, bytes).await;
    }
    // One that waits for its handshake makes room, as one does that waits for a request.
    let patient =
        ServerLimits { handshake_time: http::DEADLINE, connections: 1, ..ServerLimits::default() };
    let server = Server::start_kept(TLS, &guard, patient).await;
    let Some(address) = server.at.to_string().strip_prefix("https://").map(str::to_owned) else {
        panic!("it is a port");
    };
    let _silent = tokio::net::TcpStream::connect(&address).await.unwrap();
    let own = ours.sign();
    assert_eq!(outcome(&server, ours.client(Some(&own), None)).await, "1.2.3");
    let _silent = tokio::net::TcpStream::connect(&address).await.unwrap();
    server.stop().await;
}

// Holds: I-20, D-26
#[tokio::test]
async fn a_port_for_other_hosts_takes_tls_and_something_to_know_them_by() {
    let ours = Authority::new();
    let everywhere = "https://0.0.0.0:0".parse().unwrap();
    let refused = async |guard: AuthPolicy| Listener::bind_with_auth(&everywhere, &guard).await;
    let error = refused(AuthPolicy::new(None, tokens(TOKEN))).await.unwrap_err();
    assert!(matches!(error, ListenError::NoCertificate(_)), "{error}");
    let error = refused(AuthPolicy::new(Some(ours.server(false)), None)).await.unwrap_err();
    assert!(matches!(error, ListenError::OpenToAll(_)), "{error}");
    assert!(refused(AuthPolicy::new(Some(ours.server(true)), None)).await.is_ok());
    assert!(refused(AuthPolicy::new(Some(ours.server(false)), tokens(TOKEN))).await.is_ok());
    let guard = AuthPolicy::new(Some(ours.server(true)), tokens(TOKEN));
    let plain = Listener::bind_with_auth(&"tcp://0.0.0.0:0".parse().unwrap(), &guard).await;
    assert!(matches!(plain.unwrap_err(), ListenError::NotLoopback(_)));
    let handed_over = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let adopted = Listener::from_std_tcp(handed_over, &guard).unwrap();
    assert!(adopted.local_address().to_string().starts_with("https://0.0.0.0:"));
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let ours = Authority::new();
    let (one, other) = (ours.sign(), ours.sign());
    let mixed = crate::certificates::Signed { certificate: one.certificate, key: other.key };
    let error = ServerTls::new(mixed.identity(), None).unwrap_err();
    assert!(matches!(error, TlsError::Key(_)), "{error}");
    let no_certificate =
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    let damaged = crate::certificates::Signed { certificate: no_certificate, key: ours.sign().key };
    let error = ServerTls::new(damaged.identity(), None).unwrap_err();
    assert!(matches!(error, TlsError::Certificate(_)), "the key is not to blame: {error}");
}
