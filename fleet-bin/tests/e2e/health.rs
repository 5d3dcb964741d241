//! Health checks of a real daemon.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::daemon::{Cluster, output_text};

/// Responds to each request with a status of 200 or 503 until the listener has accepted `STOP`.
fn serve(listener: &TcpListener, is_up: &AtomicBool) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let first = lines.next();
        if first.as_deref() == Some(STOP) {
            return;
        }
        let _headers = lines.take_while(|line| !line.is_empty()).count();
        let status = if is_up.load(Ordering::SeqCst) { "200 OK" } else { "503 Not Ready" };
        let _closed = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    }
}

const STOP: &str = "stop";

#[test]
fn health_of_units_is_checked_and_shown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, is_up) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let flag = is_up.clone();
    let server = std::thread::spawn(move || serve(&listener, &flag));
    let cluster = Cluster::start(&[]);
    let unit = |name: &str, check: &str| {
        let text = format!(
            "[Service]\nExecStart=/bin/sleep infinity\n[X-Fleet]\nHealthCheck={check}\n\
             HealthInterval=1s\nHealthThreshold=2\n"
        );
        cluster.write(name, &text).into_os_string()
    };
    let web = unit("web.service", &format!("http://{address}/up"));
    let job = unit("job.service", "exec:/bin/sh -c 'test %p = job'");
    cluster.succeed(&["start".into(), web, job]);
    let wait = |unit: &str, health: &str| {
        cluster.wait_for(&format!("{unit} is {health}"), |cluster| {
            cluster.rows(unit).into_iter().find(|row| row["health"] == health)
        })
    };
    wait("job.service", "healthy");
    let row = wait("web.service", "unhealthy");
    assert_eq!((&row["active"], &row["sub"]), (&"active".into(), &"running".into()));
    let failure = format!("GET http://{address}/up: 503 Not Ready");
    assert_eq!(row["reason"], failure.as_str());
    let status = cluster.succeed(&["status", "--lines=0", "web.service"]);
    assert!(status.contains(&format!("Health: unhealthy: {failure}\n")), "{status}");
    let doctor = cluster.fleetctl(&["doctor"]);
    let text = output_text(&doctor);
    assert!(text.contains("web.service is unhealthy on") && text.contains(&failure), "{text}");
    assert!(!text.contains("job.service"), "{text}");
    is_up.store(true, Ordering::SeqCst);
    wait("web.service", "healthy");
    let listed = cluster.succeed(&["list-units"]);
    assert!(listed.contains("running (healthy)"), "{listed}");
    drop(cluster);
    TcpStream::connect(address).unwrap().write_all(STOP.as_bytes()).unwrap();
    server.join().unwrap();
}
