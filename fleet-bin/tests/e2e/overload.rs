//! Clients that send too much, send it too slowly, or are too many: others must still be served.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::daemon::Cluster;

/// The number of concurrent connections, far more than the daemon accepts.
const CONNECTIONS: usize = 1000;

/// The limit of open files of the daemon.
const FILES: u32 = 512;

const PUT: &str = "PUT /fleet/v1/units/a.service HTTP/1.1\r\nHost: localhost\r\n\
                   Content-Type: application/json\r\n";

fn connect(cluster: &Cluster) -> UnixStream {
    let stream = UnixStream::connect(cluster.path("data/fleet.sock")).unwrap();
    // Longer than any response takes, so that a test fails instead of waiting forever.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn assert_served(cluster: &Cluster, during: &str) {
    let machines = cluster.succeed(&["list-machines", "-o", "name"]);
    assert_eq!(machines.lines().count(), 3, "during {during}");
}

/// Returns the peak memory of the daemon, in KiB.
fn peak_memory(cluster: &Cluster) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", cluster.daemon_id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends up to a gigabyte, until the daemon stops reading, and returns the start of its response.
fn send_a_gigabyte(cluster: &Cluster, head: &str, piece: &[u8]) -> String {
    let mut stream = connect(cluster);
    stream.write_all(head.as_bytes()).unwrap();
    let mut remaining = 1_usize << 30;
    while remaining > 0 {
        match stream.write(piece) {
            Ok(sent) => remaining = remaining.saturating_sub(sent),
            Err(error) if is_disconnect(&error) => break,
            Err(error) => panic!("the daemon does not respond: {error}"),
        }
    }
    assert!(remaining > 0, "the whole body was read");
    let mut response = [0; 12];
    stream.read_exact(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

/// Returns `true` if the daemon has closed the connection.
fn is_disconnect(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

#[test]
fn gigabyte_body_is_refused_and_not_buffered() {
    let cluster = Cluster::start(&[]);
    let before = peak_memory(&cluster);
    let spaces = vec![b' '; 1 << 16];
    let announced = format!("{PUT}Content-Length: {}\r\n\r\n", 1 << 30);
    assert_eq!(send_a_gigabyte(&cluster, &announced, &spaces), "HTTP/1.1 413");
    let chunk = [b"10000\r\n", &*spaces, b"\r\n"].concat();
    let chunked = format!("{PUT}Transfer-Encoding: chunked\r\n\r\n");
    assert_eq!(send_a_gigabyte(&cluster, &chunked, &chunk), "HTTP/1.1 413");
    assert_served(&cluster, "a large request");
    let growth = peak_memory(&cluster) - before;
    assert!(growth < 100 << 10, "the daemon grew by {growth} KiB");
}

#[test]
fn slow_clients_do_not_exclude_others() {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: files.maximum, ..files })
        .unwrap();
    let cluster = Cluster::start_with_files(FILES);
    let mut slow = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = connect(&cluster);
        // Half of them are slow while sending their headers, the others while sending their bodies.
        let body = "Content-Length: 1000\r\n\r\n";
        let start = if number % 2 == 0 { PUT.to_owned() } else { format!("{PUT}{body}") };
        stream.write_all(start.as_bytes()).unwrap();
        slow.push(stream);
        if slow.len() % 100 == 0 {
            drip(&mut slow);
            assert_served(&cluster, &format!("{} connections", slow.len()));
        }
    }
}

/// Sends one more byte on each connection that the daemon has not closed.
fn drip(slow: &mut [UnixStream]) {
    for stream in slow {
        let _closed = stream.write(b" ");
    }
}
