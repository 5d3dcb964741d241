//! Listening sockets: permissions, conflicts and cleanup.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fleet_http::{AuthPolicy, ListenAddress, ListenError, Listener};

use crate::harness::Server;
use crate::http::request;

fn unix(path: &Path) -> ListenAddress {
    ListenAddress::Unix(path.to_owned())
}

#[tokio::test]
async fn unix_socket_has_mode_0660_and_is_removed() {
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
async fn used_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _listener = Listener::bind(&unix(&path)).await.unwrap();
    let error = Listener::bind(&unix(&path)).await.unwrap_err();
    assert!(matches!(error, ListenError::InUse(_)), "{error}");
    assert!(path.exists());
}

#[tokio::test]
async fn stale_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    // The standard library leaves the file behind, like a killed process.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _listener = Listener::bind(&unix(&path)).await.unwrap();
}

#[tokio::test]
async fn too_long_socket_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let room = 107 - folder.path().as_os_str().len() - 1;
    let path = |length: usize| folder.path().join("s".repeat(length));
    let _listener = Listener::bind(&unix(&path(room))).await.unwrap();
    let error = Listener::bind(&unix(&path(room + 1))).await.unwrap_err();
    assert!(matches!(error, ListenError::PathTooLong(_)), "{error}");
}

#[tokio::test]
async fn regular_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    std::fs::write(&path, "precious").unwrap();
    let error = Listener::bind(&unix(&path)).await.unwrap_err();
    assert!(matches!(error, ListenError::NotASocket(_)), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn socket_of_another_server_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let first = Listener::bind(&unix(&path)).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let _second = Listener::bind(&unix(&path)).await.unwrap();
    drop(first);
    assert!(path.exists());
}

#[tokio::test]
async fn non_loopback_address_without_tls_is_refused() {
    for address in ["tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://192.0.2.1:80"] {
        let error = Listener::bind(&address.parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, ListenError::NotLoopback(_)), "{address}: {error}");
        assert!(error.to_string().contains("use https://"), "{error}");
    }
    let all_addresses = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let error = Listener::from_std_tcp(all_addresses, &AuthPolicy::default()).unwrap_err();
    assert!(matches!(error, ListenError::NotLoopback(_)), "{error}");
}

#[tokio::test]
async fn used_port_is_reported() {
    let taken = Listener::bind(&"tcp://127.0.0.1:0".parse().unwrap()).await.unwrap();
    assert_ne!(taken.local_address().to_string(), "tcp://127.0.0.1:0");
    let error = Listener::bind(taken.local_address()).await.unwrap_err();
    assert!(matches!(error, ListenError::InUse(_)), "{error}");
}

#[tokio::test]
async fn missing_directory_is_reported() {
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
    assert!(path.exists(), "an adopted socket keeps its file");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    let adopted = Listener::from_std_tcp(port, &AuthPolicy::default()).unwrap();
    assert_eq!(adopted.local_address(), &ListenAddress::Tcp(address));
}

#[tokio::test]
async fn shutdown_closes_idle_connections() {
    let server = Server::start().await;
    let ListenAddress::Unix(path) = server.at.clone() else { panic!("not a unix socket") };
    let _idle = tokio::net::UnixStream::connect(&path).await.unwrap();
    server.client().health().await.unwrap();
    server.stop().await;
    assert!(!path.exists());
}
