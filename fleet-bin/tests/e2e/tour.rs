//! The tour through the examples: it succeeds, and detects deviations.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::daemon::output_text;

const TOUR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tour.sh");

fn tour(fleetctl: &Path, home: &Path) -> Output {
    let mut command = Command::new(TOUR);
    command.env("FLEETD", env!("CARGO_BIN_EXE_fleetd")).env("FLEETCTL", fleetctl);
    command.env("TMPDIR", home).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn tour_matches_the_documentation() {
    let home = tempfile::tempdir().unwrap();
    let output = tour(Path::new(env!("CARGO_BIN_EXE_fleetctl")), home.path());
    assert!(output.status.success(), "{}", output_text(&output));
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.ends_with("all results are as documented\n"), "{shown}");
    // Without systemd, the tour omits sockets only.
    assert!(shown.contains("ok: the timer has started its service\n"), "no timer ran: {shown}");
    let unsupported: Vec<_> =
        shown.lines().filter(|line| line.contains("ok: not supported: ")).collect();
    let [socket] = *unsupported else { panic!("{unsupported:?}") };
    assert!(socket.contains("not .socket ones: run it under systemd"), "{socket}");
    assert_eq!(home.path().read_dir().unwrap().count(), 0, "a file is left behind");
}

#[test]
fn tour_detects_deviations() {
    let home = tempfile::tempdir().unwrap();
    let broken = home.path().join("fleetctl");
    let real = env!("CARGO_BIN_EXE_fleetctl");
    let script =
        format!("#!/bin/sh\ncase \"$*\" in *list-units*) ;; *) exec {real} \"$@\" ;; esac\n");
    std::fs::write(&broken, script).unwrap();
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = tour(&broken, home.path());
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("tour: app.service is on the first and the third"), "{said}");
}
