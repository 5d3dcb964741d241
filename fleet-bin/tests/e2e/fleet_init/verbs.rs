//! What is asked of one that runs units of files, and the words for what it does not do.

use rustix::process::Signal;

use super::Init;
use super::files::{start, start_of, wait_state};
use crate::daemon::wait_for;

/// A unit that reads its configuration again, one that does not, and one that is stubborn.
const UNITS: &str = "\
unit: all
type: virtual
provides: all
waits-for: web, plain, stubborn

unit: web
type: foreground-supervised
provides: web, pages
exec-start: /bin/sh -c 'echo begun; exec sleep 100000'
exec-reload: /bin/sh -c 'echo again >> reloads'
directory: HOME

unit: plain
type: foreground-supervised
provides: plain
exec-start: /bin/sleep 100000

unit: stubborn
type: foreground-supervised
provides: stubborn
exec-start: /bin/sh -c 'trap \"\" TERM; echo begun; while :; do sleep 100; done'
stop-timeout: none
";

fn read(init: &Init, file: &str) -> String {
    std::fs::read_to_string(init.home.path().join(file)).unwrap_or_default()
}

#[test]
fn the_end_says_which_units_it_waits_for_and_kills() {
    let mut init = start_of(UNITS, "all", &[], &[]);
    wait_state(&init, "stubborn", "running");
    // Only then does it not mind the signal.
    wait_for("it has begun", || init.ask(&["logs", "stubborn"]).1.contains("begun").then_some(()));
    init.signal(Signal::TERM);
    let waits = "waits for units to end units=\"stubborn\"";
    wait_for("it says what it waits for", || read(&init, "log").contains(waits).then_some(()));
    init.signal(Signal::TERM);
    assert!(init.wait().success());
    let log = read(&init, "log");
    let kills = log.lines().find(|line| line.contains("kills the units that are left"));
    assert!(kills.is_some_and(|line| line.contains("units=\"stubborn\"")), "{log}");
}

#[test]
fn who_has_the_place_already_is_named() {
    let init = start();
    let path = |name: &str| init.home.path().join(name).display().to_string();
    let (units, state, other) = (path("units"), path("state"), path("other"));
    let ours = format!("process {} ", init.pid().as_raw_nonzero());
    let (_, told) = init.ask(&["run", &units, "--state-dir", &other]);
    assert!(told.contains(&format!("{ours}listens at")), "{told}");
    let (_, told) = init.ask(&["run", &units, "--state-dir", &state, "--socket", &path("s2")]);
    assert!(told.contains(&format!("{ours}runs units from there")), "{told}");
}
