//! Clients that send too much, send it too slowly, or are too many: others are served all the same.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::daemon::Cluster;

/// How many connections there are at a time, far more than the daemon has room for.
const CONNECTIONS: usize = 1000;

/// How many files the daemon may open.
const FILES: u32 = 512;

const PUT: &str = "PUT /fleet/v1/units/a.service HTTP/1.1\r\nHost: localhost\r\n\
                   Content-Type: application/json\r\n";

fn connect(cluster: &Cluster) -> UnixStream {
    let stream = UnixStream::connect(cluster.path("data/fleet.sock")).unwrap();
    // Longer than any answer takes, so that a test fails instead of waiting for ever.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn assert_served(cluster: &Cluster, beside: &str) {
    let machines = cluster.succeed(&["list-machines", "-o", "name"]);
    assert_eq!(machines.lines().count(), 3, "beside {beside}");
}

/// The most memory that the daemon has ever had, in KiB.
fn most_memory(cluster: &Cluster) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", cluster.daemon_id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends a gigabyte, or as much as is taken of it, and returns what is answered.
fn send_a_gigabyte(cluster: &Cluster, head: &str, piece: &[u8]) -> String {
    let mut stream = connect(cluster);
    stream.write_all(head.as_bytes()).unwrap();
    let mut left = 1_usize << 30;
    while left > 0 {
        match stream.write(piece) {
            Ok(sent) => left = left.saturating_sub(sent),
            Err(error) if is_refusal(&error) => break,
            Err(error) => panic!("the daemon does nothing: {error}"),
        }
    }
    assert!(left > 0, "all of it was taken");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether the daemon takes no more.
fn is_refusal(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

#[test]
fn a_gigabyte_is_neither_taken_nor_kept() {
    let cluster = Cluster::start(&[]);
    let before = most_memory(&cluster);
    let spaces = vec![b' '; 1 << 16];
    let announced = format!("{PUT}Content-Length: {}\r\n\r\n", 1 << 30);
    assert_eq!(send_a_gigabyte(&cluster, &announced, &spaces), "HTTP/1.1 413");
    let chunk = [b"10000\r\n", &*spaces, b"\r\n"].concat();
    let chunked = format!("{PUT}Transfer-Encoding: chunked\r\n\r\n");
    assert_eq!(send_a_gigabyte(&cluster, &chunked, &chunk), "HTTP/1.1 413");
    assert_served(&cluster, "a gigabyte");
    let more = most_memory(&cluster) - before;
    assert!(more < 100 << 10, "it took {more} KiB");
}

#[test]
fn a_thousand_who_send_byte_by_byte_keep_nobody_out() {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: files.maximum, ..files })
        .unwrap();
    let cluster = Cluster::start_with_files(FILES);
    let mut slow = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = connect(&cluster);
        // Half of them are slow in the middle of their bodies.
        let body = "Content-Length: 1000\r\n\r\n";
        let begun = if number % 2 == 0 { PUT.to_owned() } else { format!("{PUT}{body}") };
        stream.write_all(begun.as_bytes()).unwrap();
        slow.push(stream);
        if slow.len() % 100 == 0 {
            drip(&mut slow);
            assert_served(&cluster, &format!("{} connections", slow.len()));
        }
    }
}

/// Each of them sends one byte more, if the daemon has not given it up.
fn drip(slow: &mut [UnixStream]) {
    for stream in slow {
        let _given_up = stream.write(b" ");
    }
}
