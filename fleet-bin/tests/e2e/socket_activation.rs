//! Unsuitable sockets that are passed to the daemon by systemd's socket activation protocol.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Output};

use rustix::net::{AddressFamily, SocketType, bind, socket};

use crate::daemon::output_text;

/// Passes the standard input of the shell as the first activated socket.
const ACTIVATE: &str = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";

fn fleetd_with(socket: OwnedFd) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("fleet.conf");
    let data = folder.path().join("data");
    let text = format!(
        "store = \"memory\"\nservice_manager = \"native\"\ndata_dir = \"{}\"\n\
         native_runtime_dir = \"{}\"\n",
        data.display(),
        folder.path().join("run").display()
    );
    std::fs::write(&config, text).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", ACTIVATE, env!("CARGO_BIN_EXE_fleetd"), "--config"]).arg(&config);
    shell.stdin(socket).output().unwrap()
}

#[test]
fn loopback_socket_without_tokens_is_refused_for_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let output = fleetd_with(TcpListener::bind("127.0.0.1:0").unwrap().into());
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    let errors = output_text(&output);
    assert!(errors.contains("allow_unauthenticated_loopback"), "{errors}");
}

#[test]
fn unsuitable_socket_is_refused() {
    let only_bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&only_bound, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (connected, _other) = UnixStream::pair().unwrap();
    let cases: [(OwnedFd, &str); 5] = [
        (
            UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            "file descriptor 3 is not a stream socket",
        ),
        (UnixDatagram::unbound().unwrap().into(), "file descriptor 3 is not a stream socket"),
        (only_bound, "file descriptor 3 is not listening"),
        (connected.into(), "file descriptor 3 is not listening"),
        (TcpListener::bind("0.0.0.0:0").unwrap().into(), "tls_cert_file"),
    ];
    for (socket, expected) in cases {
        let output = fleetd_with(socket);
        assert_eq!(output.status.code(), Some(2), "{expected}: {}", output_text(&output));
        assert!(output_text(&output).contains(expected), "{expected}: {}", output_text(&output));
    }
}
