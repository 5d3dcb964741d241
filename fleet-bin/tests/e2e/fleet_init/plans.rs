//! `fleet-init plan` beside one that runs: what it says is what then happens.

use std::fs::File;
use std::process::Command;

use serde_json::Value;

use super::Init;
use super::files::{start, start_through, succeed, wait_state};
use crate::daemon::{is_alive, wait_for};

/// Runs a program whose standard input never ends, and never has anything.
const WITHOUT_END: &str = "it=$(mktemp -u) && mkfifo $it && exec <>$it && rm $it && exec \"$@\"";

/// What would be done, a line for each unit that is named, and why.
fn planned(init: &Init, args: &[&str]) -> String {
    let output = init.output(&[args, &["-o", "json"]].concat());
    assert!(output.status.success(), "{}", crate::daemon::told(&output));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let line = |row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        let waves = [&row["stopWave"], &row["wave"]].map(Value::to_string).join(" ");
        format!("{} {} {}: {}\n", text("action"), text("unit"), waves, text("why"))
    };
    rows.iter().map(line).collect()
}

fn edit(init: &Init, change: impl FnOnce(String) -> String) {
    let path = init.home.path().join("units/all.unit");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, change(text)).unwrap();
}

#[test]
fn a_plan_of_its_own_files_says_what_a_reload_does() {
    let init = start();
    let db = wait_state(&init, "db", "running").unwrap();
    let web = wait_state(&init, "web", "running").unwrap();
    wait_state(&init, "bad", "failed");
    let told = succeed(&init, &["plan"]);
    assert!(
        told.contains("compared with the running units\nfor all: nothing would change"),
        "{told}"
    );
    assert!(told.contains("failed: its main process ended with status 1; retry in"), "{told}");

    edit(&init, |text| {
        let text = text.replace("waits-for: web, bad", "waits-for: web, extra");
        let text = text.replace("echo db is up; exec", "echo db is new; exec");
        text.replace("provides: web", "provides: web\nrestart: always\ndescription: Pages")
    });
    insta::assert_snapshot!(planned(&init, &["plan"]), @"
    start extra null 1: needed by all (waits-for)
    restart web 1 4: its dependency db is no longer active
    restart db 2 3: its definition has changed (exec-start)
    stay all null null: it is the goal; what is new is taken as it runs (waits-for)
    ");
    assert!(is_alive(db) && is_alive(web), "it is no more than said");
    wait_state(&init, "extra", "disabled");

    succeed(&init, &["reload"]);
    wait_for("they are started anew", || (!is_alive(db) && !is_alive(web)).then_some(()));
    wait_state(&init, "extra", "running");
    wait_state(&init, "web", "running");
    wait_state(&init, "bad", "disabled");
    let told = succeed(&init, &["plan"]);
    assert!(told.contains("nothing would change"), "{told}");
}

#[test]
fn a_plan_for_a_goal_says_what_set_target_does() {
    let init = start();
    let db = wait_state(&init, "db", "running").unwrap();
    wait_state(&init, "web", "running").unwrap();
    wait_state(&init, "all", "running");
    // The files are not read again by set-target, so what is in them now is not looked at.
    edit(&init, |text| text.replace("sleep", "no-such-program"));
    let told = planned(&init, &["plan", "--goal", "extra", "--with", "sql"]);
    insta::assert_snapshot!(told, @"
    stop all 1 null: nothing needs it
    start extra null 1: it is the goal
    stop web 2 null: nothing needs it
    stay db null null: it is an extra target
    ");
    succeed(&init, &["set-target", "extra", "--with", "sql"]);
    wait_state(&init, "extra", "running");
    wait_state(&init, "web", "disabled");
    assert!(is_alive(db));
    let (status, told) = init.ask(&["plan", "--goal", "nobody"]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("no unit provides the goal nobody"), "{told}");
}

#[test]
fn a_plan_of_other_files_says_what_they_would_make_of_what_runs() {
    let init = start();
    wait_state(&init, "web", "running").unwrap();
    wait_state(&init, "all", "running");
    let other = init.home.path().join("other.unit");
    let more = "unit: more\ntype: virtual\nprovides: more\nwaits-for: old\n\
                unit: old\ntype: oneshot\nprovides: old\nexec-start: /bin/true\n";
    std::fs::write(&other, more).unwrap();
    let other = other.display().to_string();
    insta::assert_snapshot!(planned(&init, &["plan", &other, "--goal", "more"]), @"
    stop all 1 null: it is no longer in a file
    start old null 1: needed by more (waits-for)
    start more null 2: it is the goal
    stop web 2 null: it is no longer in a file
    stop db 3 null: it is no longer in a file
    ");
    let told = planned(&init, &["plan", &other, "--goal", "old", "--from-nothing"]);
    insta::assert_snapshot!(told, @"start old null 1: it is the goal");
    let (status, told) = init.ask(&["plan", &other]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("there is no goal to run"), "{told}");
    std::fs::write(init.home.path().join("units/more.unit"), "unit: x\ntype: y\n").unwrap();
    let (status, told) = init.ask(&["plan"]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("more.unit:2:7"), "{told}");
}

// Holds: X-1
#[test]
fn a_plan_of_other_files_is_for_the_goal_that_it_was_started_for() {
    let home = tempfile::tempdir().unwrap();
    let files = ["now", "then"].map(|name| home.path().join(format!("{name}.unit")));
    let text = "unit: a\ntype: virtual\nprovides: a\n";
    std::fs::write(&files[0], text).unwrap();
    std::fs::write(&files[1], format!("{text}unit: b\ntype: virtual\nprovides: b\n")).unwrap();
    let [now, then] = files.map(|file| file.display().to_string());
    let init = Init::start_in(home, &[], &[&now, "--goal", "a"]);
    wait_state(&init, "a", "running");
    let told = planned(&init, &["plan", &then]);
    insta::assert_snapshot!(told, @"stay a null null: it is the goal");
    let told = planned(&init, &["plan", &then, "--goal", "b"]);
    insta::assert_snapshot!(told, @"
    stop a 1 null: nothing needs it
    start b null 1: it is the goal
    ");
}

#[test]
fn one_that_runs_for_fleetd_has_no_goal_to_plan_for() {
    let init = Init::start();
    let file = init.home.path().join("a.unit");
    std::fs::write(&file, "unit: a\ntype: virtual\nprovides: a\n").unwrap();
    let told = succeed(&init, &["plan", &file.display().to_string(), "--goal", "a"]);
    assert!(told.contains("planned from nothing: the fleet-init at"), "{told}");
    let (status, told) = init.ask(&["plan"]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("runs the units of fleetd"), "{told}");
}

#[test]
fn what_the_client_alone_can_read_is_planned_and_holds_nobody_up() {
    let init = start_through(&["sh", "-c", WITHOUT_END, "sh"]);
    wait_state(&init, "web", "running").unwrap();
    let path = init.home.path().join("given");
    std::fs::write(&path, "unit: given\ntype: virtual\nprovides: given\n").unwrap();
    for _ in 0..3 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        command.args(["plan", "/dev/stdin", "--goal", "given"]);
        command.env("FLEET_INIT_SOCKET", init.socket()).stdin(File::open(&path).unwrap());
        let output = command.output().unwrap();
        let told = crate::daemon::told(&output);
        assert!(
            output.status.success() && told.contains("compared with the running units"),
            "{told}"
        );
        assert!(String::from_utf8(output.stdout).unwrap().contains("given"), "{told}");
    }
    wait_state(&init, "web", "running").unwrap();
}
