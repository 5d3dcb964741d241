//! Sockets and paths in a cluster, and the real servers that they start.

use std::net::TcpListener;
use std::process::Command;

use crate::daemon::{Cluster, output_text};

/// Returns the sub-state of a unit.
fn sub_of(cluster: &Cluster, unit: &str) -> Option<String> {
    let row = cluster.rows(unit).into_iter().next()?;
    row["sub"].as_str().map(str::to_owned)
}

/// The server is a daemon of fleet itself, which takes its socket from its service manager.
#[test]
fn socket_starts_a_server_on_the_first_request() {
    let cluster = Cluster::start(&[]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let directory = cluster.path("server");
    let config = cluster.write(
        "server.conf",
        &format!(
            "store = \"memory\"\nservice_manager = \"native\"\ndata_dir = \"{0}\"\n\
             native_runtime_dir = \"{0}-run\"\nallow_unauthenticated_loopback = true\n",
            directory.display()
        ),
    );
    let fleetd = env!("CARGO_BIN_EXE_fleetd");
    let service = format!("[Service]\nExecStart={fleetd} --config {}\n", config.display());
    let service = cluster.write("web.service", &service);
    let socket = format!("[Socket]\nListenStream={address}\n[X-Fleet]\nMachineOf=web.service\n");
    let socket = cluster.write("web.socket", &socket);
    cluster.succeed(&["submit", service.to_str().unwrap(), socket.to_str().unwrap()]);
    cluster.succeed(&["load", "web.service"]);
    cluster.succeed(&["start", "web.socket"]);
    let state = |unit: &str| sub_of(&cluster, unit);
    assert_eq!(state("web.socket").as_deref(), Some("listening"));
    assert_eq!(state("web.service").as_deref(), Some("dead"), "nothing has arrived");
    let mut request = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
    request.args(["--endpoint", &format!("http://{address}"), "list-machines"]);
    let output = request.output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    let is = |unit: &str, sub: &str| state(unit).filter(|it| it == sub);
    cluster.wait_for("the service runs", |_| is("web.service", "running"));
    cluster.wait_for("the socket follows", |_| is("web.socket", "running"));
    cluster.succeed(&["destroy", "web.socket", "web.service"]);
}

#[test]
fn service_started_after_its_socket_gets_the_descriptor() {
    let cluster = Cluster::start(&[]);
    let text = "[Service]\nExecStart=/bin/sh -c 'echo $LISTEN_FDS; exec sleep 1000'\n";
    let service = cluster.write("web.service", text);
    let at = cluster.path("socket");
    let text =
        format!("[Socket]\nListenStream={}\n[X-Fleet]\nMachineOf=web.service\n", at.display());
    let socket = cluster.write("web.socket", &text);
    cluster.succeed(&["load", service.to_str().unwrap()]);
    cluster.succeed(&["start", socket.to_str().unwrap()]);
    cluster.wait_active("web.socket");
    cluster.succeed(&["start", service.to_str().unwrap()]);
    cluster.wait_active("web.service");
    let log = cluster.succeed(&["journal", "web.service"]);
    assert!(log.lines().any(|line| line.ends_with('1')), "{log}");
}

#[test]
fn path_starts_its_service() {
    let cluster = Cluster::start(&[]);
    let job = cluster.write("job.service", "[Service]\nExecStart=/bin/sleep 1000\n");
    let spool = cluster.path("spool");
    let text = format!(
        "[Path]\nDirectoryNotEmpty={}\nMakeDirectory=yes\n[X-Fleet]\nMachineOf=job.service\n",
        spool.display()
    );
    let path = cluster.write("job.path", &text);
    cluster.succeed(&["load", job.to_str().unwrap()]);
    cluster.succeed(&["start", path.to_str().unwrap()]);
    cluster.wait_active("job.path");
    std::fs::write(spool.join("job"), "").unwrap();
    let running = |cluster: &Cluster| sub_of(cluster, "job.service").filter(|sub| sub == "running");
    cluster.wait_for("the path starts its service", running);
}
