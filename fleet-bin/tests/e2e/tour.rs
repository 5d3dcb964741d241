//! The tour through the examples: it succeeds, and detects deviations.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::daemon::output_text;

const TOUR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tour.sh");

fn tour(home: &Path) -> Command {
    let mut command = Command::new(TOUR);
    command.env_remove("FLEETD").env_remove("FLEETCTL").env("TMPDIR", home);
    // Stops a shell function that calls itself.
    command.env("FUNCNEST", "100").stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// Runs the tour as `examples/README.md` does: with the programs in `PATH`.
#[test]
fn tour_with_programs_in_path_matches_the_documentation() {
    let home = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_fleetctl")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let output = run(tour(home.path()).env("PATH", path));
    assert!(output.status.success(), "{}", output_text(&output));
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.ends_with("all results are as documented\n"), "{shown}");
    assert!(shown.contains("ok: the socket listens\n"), "no socket listens: {shown}");
    assert!(shown.contains("ok: the timer has started its service\n"), "no timer ran: {shown}");
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
    let fleetd = env!("CARGO_BIN_EXE_fleetd");
    let output = run(tour(home.path()).env("FLEETD", fleetd).env("FLEETCTL", &broken));
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("tour: app.service is on the first and the third"), "{said}");
}
