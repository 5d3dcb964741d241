//! `fleetd` as a service: what systemd is told of it, and what a reload does.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;

use crate::run::Machine;

/// Longer than a daemon ever takes to say something.
const DEADLINE: Duration = Duration::from_secs(30);

/// Where the daemon thinks that systemd listens.
struct Systemd(UnixDatagram);

impl Systemd {
    fn of(machine: &mut Machine) -> Self {
        let path = machine.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        machine.notify = Some(path);
        Self(socket)
    }

    /// The next words of which this is the beginning.
    fn wait_word(&self, beginning: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = self.0.recv(&mut buffer).expect("the daemon says something");
            let word = String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned();
            if word.starts_with(beginning) {
                return word;
            }
        }
    }
}

/// Has the daemon read other text as its configuration, and returns what it then says.
fn reload(machine: &Machine, systemd: &Systemd, edit: impl Fn(&str) -> String) -> String {
    let path = machine.path("fleet.conf");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, edit(&text)).unwrap();
    machine.signal(Signal::HUP);
    let begins = systemd.wait_word("RELOADING=1");
    assert!(begins.contains("MONOTONIC_USEC="), "{begins}");
    let ends = systemd.wait_word("READY=1");
    std::fs::write(&path, text).unwrap();
    ends
}

fn listed(machine: &Machine) -> String {
    let fields = "--fields=ip,metadata,offers";
    let output = machine.fleetctl(&["list-machines", "--no-legend", fields]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn systemd_hears_when_the_daemon_is_ready_alive_and_about_to_end() {
    let mut machine = Machine::new();
    let systemd = Systemd::of(&mut machine);
    machine.start();
    let ready = systemd.wait_word("READY=1");
    assert_eq!(ready, "READY=1\nSTATUS=in the cluster: 1 machines, 0 units");
    systemd.wait_word("WATCHDOG=1");
    systemd.wait_word("WATCHDOG=1");
    machine.end();
    systemd.wait_word("STOPPING=1");
    machine.notify = None;
}

#[test]
fn a_daemon_whose_machine_counts_as_gone_before_systemd_misses_it_says_so() {
    let mut machine = Machine::new();
    let systemd = Systemd::of(&mut machine);
    machine.watchdog = 15_000_000;
    machine.start();
    let half_of_its_ttl = systemd.wait_word("WATCHDOG_USEC=");
    assert_eq!(half_of_its_ttl, "WATCHDOG_USEC=1500000");
    systemd.wait_word("READY=1");
    systemd.wait_word("WATCHDOG=1");
    machine.notify = None;
}

// Holds: D-39
#[test]
fn a_reload_changes_what_can_be_changed_and_names_the_rest() {
    let mut machine = Machine::new();
    let systemd = Systemd::of(&mut machine);
    machine.start();
    systemd.wait_word("READY=1");
    let told = reload(&machine, &systemd, |text| {
        let live = "offer_cpu = 7\noffer_memory = 0\noffer_disk = 0\n";
        let text = text.replace("192.0.2.7", "10.9.9.9").replace("\"7\"", "\"8\"");
        format!("{live}{}", text.replace("\"3s\"", "\"20s\""))
    });
    assert!(told.ends_with("; reloaded; restart required: agent_ttl"), "{told}");
    crate::daemon::wait_for("the machine says so", || {
        let now = listed(&machine);
        (now.contains("10.9.9.9") && now.contains("rack=8") && now.contains("cpu 7\n"))
            .then_some(())
    });
    let told = reload(&machine, &systemd, |text| format!("agent_tll = 3\n{text}"));
    assert!(told.contains("not reloaded") && told.contains("fleet.conf:1:1"), "{told}");
    assert!(listed(&machine).contains("10.9.9.9"), "a bad file changes nothing");
    machine.notify = None;
}
