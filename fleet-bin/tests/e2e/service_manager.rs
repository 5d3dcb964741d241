//! Changes of the service manager in the configuration.

use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};

use crate::daemon::{is_alive, main_pid, output_text, wait_for};
use crate::run::{Machine, UNIT};

/// Runs a daemon of the machine that must refuse to start. Returns its errors.
fn refusal(machine: &Machine) -> String {
    let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
    fleetd.arg("--config").arg(machine.path("fleet.conf")).stdin(Stdio::null());
    // There is no systemd.
    let output = fleetd.env("XDG_RUNTIME_DIR", machine.path("user")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    String::from_utf8(output.stderr).unwrap()
}

/// Regression: another service manager started every running unit a second time.
#[test]
fn running_native_units_refuse_systemd() {
    let mut machine = Machine::new();
    let pid = main_pid(&machine.start_with_unit());
    machine.end();
    let config = std::fs::read_to_string(machine.path("fleet.conf")).unwrap();
    let other = format!("service_manager = \"systemd\"\nsystemd_user = true\n{config}");
    std::fs::write(machine.path("fleet.conf"), other).unwrap();

    let error = refusal(&machine);
    for part in [UNIT, "set service_manager = \"native\" again", "machine drain"] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
    assert!(is_alive(pid), "the unit was ended");
    kill_process(pid, Signal::KILL).unwrap();
    wait_for("the process has ended", || (!is_alive(pid)).then_some(()));
    let error = refusal(&machine);
    assert!(error.contains("cannot use systemd"), "no unit runs: {error}");

    std::fs::write(machine.path("fleet.conf"), config).unwrap();
    machine.start();
    machine.end();
}
