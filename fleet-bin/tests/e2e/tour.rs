//! The tour of the examples: all that it shows holds, and it notices where something does not.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::daemon::told;

const TOUR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tour.sh");

fn tour(fleetctl: &Path, home: &Path) -> Output {
    let mut command = Command::new(TOUR);
    command.env("FLEETD", env!("CARGO_BIN_EXE_fleetd")).env("FLEETCTL", fleetctl);
    command.env("TMPDIR", home).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_tour_shows_what_is_documented() {
    let home = tempfile::tempdir().unwrap();
    let output = tour(Path::new(env!("CARGO_BIN_EXE_fleetctl")), home.path());
    assert!(output.status.success(), "{}", told(&output));
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.ends_with("all is as documented\n"), "{shown}");
    // What a tour without systemd leaves out is sockets, and no more.
    assert!(shown.contains("ok: it has started its service\n"), "no timer ran: {shown}");
    let left: Vec<_> = shown.lines().filter(|line| line.contains("ok: not here: ")).collect();
    let [socket] = *left else { panic!("{left:?}") };
    assert!(socket.contains("not .socket ones: run it under systemd"), "{socket}");
    assert_eq!(home.path().read_dir().unwrap().count(), 0, "something was left behind");
}

#[test]
fn the_tour_notices_what_is_not_as_documented() {
    let home = tempfile::tempdir().unwrap();
    let liar = home.path().join("fleetctl");
    let real = env!("CARGO_BIN_EXE_fleetctl");
    let script =
        format!("#!/bin/sh\ncase \"$*\" in *list-units*) ;; *) exec {real} \"$@\" ;; esac\n");
    std::fs::write(&liar, script).unwrap();
    std::fs::set_permissions(&liar, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = tour(&liar, home.path());
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("tour: app.service is on the first and the third"), "{said}");
}
