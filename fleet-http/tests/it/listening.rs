//! Sockets: whose they are, who may use them, and what is left of them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fleet_http::{AuthPolicy, ListenAddress, ListenError, Listener};

use crate::harness::Server;
use crate::http::request;

fn unix(path: &Path) -> ListenAddress {
    ListenAddress::Unix(path.to_owned())
}

#[tokio::test]
async fn a_unix_socket_is_for_owner_and_group_and_goes_with_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::bind(&unix(&path)).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert_eq!(listener.local_address(), &unix(&path));
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_that_is_in_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _listener = Listener::bind(&unix(&path)).await.unwrap();
    let error = Listener::bind(&unix(&path)).await.unwrap_err();
    assert!(matches!(error, ListenError::InUse(_)), "{error}");
    assert!(path.exists());
}

#[tokio::test]
async fn a_socket_that_was_left_behind_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    // The standard library leaves the file when the socket is closed, as a killed process does.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _listener = Listener::bind(&unix(&path)).await.unwrap();
}

#[tokio::test]
async fn a_path_that_no_socket_can_have_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let room = 107 - folder.path().as_os_str().len() - 1;
    let path = |length: usize| folder.path().join("s".repeat(length));
    let _listener = Listener::bind(&unix(&path(room))).await.unwrap();
    let error = Listener::bind(&unix(&path(room + 1))).await.unwrap_err();
    assert!(matches!(error, ListenError::PathTooLong(_)), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    std::fs::write(&path, "precious").unwrap();
    let error = Listener::bind(&unix(&path)).await.unwrap_err();
    assert!(matches!(error, ListenError::NotASocket(_)), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_socket_of_another_server_is_not_removed_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let first = Listener::bind(&unix(&path)).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let _second = Listener::bind(&unix(&path)).await.unwrap();
    drop(first);
    assert!(path.exists());
}

#[tokio::test]
async fn only_loopback_addresses_are_listened_on() {
    for address in ["tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://192.0.2.1:80"] {
        let error = Listener::bind(&address.parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, ListenError::NotLoopback(_)), "{address}: {error}");
        assert!(error.to_string().contains("write https://"), "{error}");
    }
    let everywhere = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let error = Listener::from_std_tcp(everywhere, &AuthPolicy::default()).unwrap_err();
    assert!(matches!(error, ListenError::NotLoopback(_)), "{error}");
}

#[tokio::test]
async fn a_port_that_is_in_use_is_told() {
    let taken = Listener::bind(&"tcp://127.0.0.1:0".parse().unwrap()).await.unwrap();
    assert_ne!(taken.local_address().to_string(), "tcp://127.0.0.1:0");
    let error = Listener::bind(taken.local_address()).await.unwrap_err();
    assert!(matches!(error, ListenError::InUse(_)), "{error}");
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_told() {
    let error = Listener::bind(&unix(Path::new("/nowhere/s"))).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot listen on unix:///nowhere/s");
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn sockets_can_be_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let opened = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let adopted = Listener::from_std_unix(opened).unwrap();
    assert_eq!(adopted.local_address(), &unix(&path));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let router = axum::Router::new().route("/", axum::routing::get(async || "adopted"));
    let serving = tokio::spawn(fleet_http::serve(adopted, router, async {
        let _dropped = stopped.await;
    }));
    assert_eq!(request(&unix(&path), "GET", "/", &[], "").await.to_string(), "200 adopted");
    drop(stop);
    serving.await.unwrap();
    assert!(path.exists(), "whoever opened it closes it");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    let adopted = Listener::from_std_tcp(port, &AuthPolicy::default()).unwrap();
    assert_eq!(adopted.local_address(), &ListenAddress::Tcp(address));
}

#[tokio::test]
async fn a_server_ends_when_asked_even_with_idle_connections() {
    let server = Server::start().await;
    let ListenAddress::Unix(path) = server.at.clone() else { panic!("a unix socket") };
    let _idle = tokio::net::UnixStream::connect(&path).await.unwrap();
    server.client().health().await.unwrap();
    server.stop().await;
    assert!(!path.exists());
}
