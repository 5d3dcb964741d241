//! Messages sent right before the last process of a run exits.

use std::future::ready;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use crate::clock::pause;
use crate::native::run::machine::state::ServicePhase;
use crate::native::run::machine::tests::spec;
use crate::native::run::readiness_tests::DriverHarness;

const STEP: Duration = Duration::from_millis(2);

/// Helper process for the test below. It sends `READY=1`, creates the file that the variable
/// `READY_FILE` names, and exits once this file is removed. As a normal test, without the variable,
/// it does nothing.
#[test]
fn helper_process() {
    let Ok(ready_file) = std::env::var("READY_FILE") else { return };
    let name = std::env::var("NOTIFY_SOCKET").expect("the socket is bound");
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().expect("a socket can be made");
    socket.send_to_addr(b"READY=1", &address.expect("it is short")).expect("the socket is bound");
    std::fs::write(&ready_file, "").expect("it can be created");
    while Path::new(&ready_file).exists() {
        pause(STEP);
    }
}

/// Blocks this thread until a file exists. The driver runs on the same thread, so it receives no
/// messages meanwhile.
fn wait_blocking(file: &Path) {
    for _ in 0..15_000 {
        if file.exists() {
            return;
        }
        pause(STEP);
    }
    panic!("the file is not created in time");
}

#[tokio::test]
async fn messages_count_before_the_last_exit() {
    let home = tempfile::tempdir().expect("a directory can be made");
    let [gate, ready_file] = ["gate", "ready"].map(|name| home.path().join(name));
    let program = std::env::current_exe().expect("it has a path");
    let script = format!(
        "(until [ -e {} ]; do sleep 0.01; done; exec {} --exact {}::helper_process) & exit 0",
        gate.display(),
        program.display(),
        module_path!().split_once("::").expect("it is in a crate").1,
    );
    let service = format!(
        "Type=notify\nNotifyAccess=all\nRemainAfterExit=yes\nEnvironment=READY_FILE={}\n\
         ExecStart=/bin/sh -c '{script}'\n",
        ready_file.display()
    );
    let mut stage = DriverHarness::with(spec(&service)).await;
    stage.start();
    stage.driver.act();
    while !stage.driver.service.awaits_readiness_without_main() {
        stage.driver.wait().await;
        stage.driver.act();
    }
    std::fs::write(&gate, "").expect("it can be created");
    wait_blocking(&ready_file);
    // As if the last process had exited since.
    stage.driver.sweep = Some(Box::pin(ready(())));
    stage.driver.wait().await;
    stage.driver.act();
    let phase = stage.driver.service.run_state().phase;
    assert_eq!(phase, ServicePhase::Exited);
    stage.stop();
    stage.wait_for(ServicePhase::Dead).await;
}
