//! `fleetd` as a service: its notifications to systemd, and its reloads.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;

use crate::run::Machine;

/// Longer than the daemon ever takes until its next notification.
const DEADLINE: Duration = Duration::from_secs(30);

/// The socket to which the daemon sends its notifications.
struct Systemd(UnixDatagram);

impl Systemd {
    fn listen(machine: &mut Machine) -> Self {
        let path = machine.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        machine.notify = Some(path);
        Self(socket)
    }

    /// Waits for the next notification that begins with `prefix`, and returns it.
    fn wait_message(&self, prefix: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = self.0.recv(&mut buffer).expect("the daemon sends a notification");
            let message = String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned();
            if message.starts_with(prefix) {
                return message;
            }
        }
    }
}

/// Makes the daemon reload an edited configuration, and returns its notification after that.
fn reload(machine: &Machine, systemd: &Systemd, edit: impl Fn(&str) -> String) -> String {
    let path = machine.path("fleet.conf");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, edit(&text)).unwrap();
    machine.signal(Signal::HUP);
    let reloading = systemd.wait_message("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    let ready = systemd.wait_message("READY=1");
    std::fs::write(&path, text).unwrap();
    ready
}

fn machine_row(machine: &Machine) -> String {
    let fields = "--fields=ip,metadata,offers";
    let output = machine.fleetctl(&["list-machines", "--no-legend", fields]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn systemd_is_notified_of_ready_watchdog_and_stop() {
    let mut machine = Machine::new();
    let systemd = Systemd::listen(&mut machine);
    machine.start();
    let ready = systemd.wait_message("READY=1");
    assert_eq!(ready, "READY=1\nSTATUS=in the cluster (machines: 1, units: 0)");
    systemd.wait_message("WATCHDOG=1");
    systemd.wait_message("WATCHDOG=1");
    machine.end();
    systemd.wait_message("STOPPING=1");
    machine.notify = None;
}

#[test]
fn watchdog_timeout_is_lowered_to_half_the_ttl() {
    let mut machine = Machine::new();
    let systemd = Systemd::listen(&mut machine);
    machine.watchdog = 15_000_000;
    machine.start();
    // Together, because systemd watches from then on, and nothing pings before the daemon is ready.
    let first = systemd.wait_message("");
    assert!(first.starts_with("READY=1\n") && first.ends_with("WATCHDOG_USEC=1500000"), "{first}");
    systemd.wait_message("WATCHDOG=1");
    machine.notify = None;
}

// Holds: D-39
#[test]
fn reload_applies_live_keys_and_names_others() {
    let mut machine = Machine::new();
    let systemd = Systemd::listen(&mut machine);
    machine.start();
    systemd.wait_message("READY=1");
    let status = reload(&machine, &systemd, |text| {
        let live = "offer_cpu = 7\noffer_memory = 0\noffer_disk = 0\n";
        let text = text.replace("192.0.2.7", "10.9.9.9").replace("\"7\"", "\"8\"");
        format!("{live}{}", text.replace("\"3s\"", "\"20s\""))
    });
    assert!(status.ends_with("; reloaded; restart required: agent_ttl"), "{status}");
    crate::daemon::wait_for("the machine publishes the changes", || {
        let row = machine_row(&machine);
        (row.contains("10.9.9.9") && row.contains("rack=8") && row.contains("cpu 7\n"))
            .then_some(())
    });
    let status = reload(&machine, &systemd, |text| format!("agent_tll = 3\n{text}"));
    assert!(status.contains("not reloaded") && status.contains("fleet.conf:1:1"), "{status}");
    assert!(machine_row(&machine).contains("10.9.9.9"), "an invalid file must not change anything");
    machine.notify = None;
}
