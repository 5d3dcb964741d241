//! `fleet-init plan` compared with a running fleet-init, and the actions that follow.

use std::fs::File;
use std::process::Command;

use serde_json::Value;

use super::Init;
use super::files::{start, start_wrapped, succeed, wait_state};
use crate::daemon::{is_alive, wait_for};

/// Script that runs a program with an empty standard input that never ends.
const ENDLESS_STDIN: &str = "it=$(mktemp -u) && mkfifo $it && exec <>$it && rm $it && exec \"$@\"";

/// Returns the planned actions with waves and reasons, one line per unit.
fn planned(init: &Init, args: &[&str]) -> String {
    let output = init.output(&[args, &["-o", "json"]].concat());
    assert!(output.status.success(), "{}", crate::daemon::output_text(&output));
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
fn plan_without_arguments_predicts_reload() {
    let init = start();
    let db = wait_state(&init, "db", "running").unwrap();
    let web = wait_state(&init, "web", "running").unwrap();
    wait_state(&init, "bad", "failed");
    let printed = succeed(&init, &["plan"]);
    assert!(
        printed.contains("compared with the running units\nfor all: nothing would change"),
        "{printed}"
    );
    assert!(
        printed.contains("failed: its main process ended with status 1; retry in"),
        "{printed}"
    );

    edit(&init, |text| {
        let text = text.replace("waits-for: web, bad", "waits-for: web, extra");
        let text = text.replace("echo db is up; exec", "echo db is new; exec");
        text.replace("provides: web", "provides: web\nrestart: always\ndescription: Pages")
    });
    insta::assert_snapshot!(planned(&init, &["plan"]), @"
    start extra null 1: needed by all (waits-for)
    restart web 1 4: its dependency db is no longer active
    restart db 2 3: its definition has changed (exec-start)
    stay all null null: it is the goal; applies without a restart: waits-for
    ");
    assert!(is_alive(db) && is_alive(web), "plan disturbed a unit");
    wait_state(&init, "extra", "disabled");

    succeed(&init, &["reload"]);
    wait_for("both units restart", || (!is_alive(db) && !is_alive(web)).then_some(()));
    wait_state(&init, "extra", "running");
    wait_state(&init, "web", "running");
    wait_state(&init, "bad", "disabled");
    let printed = succeed(&init, &["plan"]);
    assert!(printed.contains("nothing would change"), "{printed}");
}

#[test]
fn plan_for_a_goal_predicts_set_target() {
    let init = start();
    let db = wait_state(&init, "db", "running").unwrap();
    wait_state(&init, "web", "running").unwrap();
    wait_state(&init, "all", "running");
    // `set-target` does not read the files again, so this edit has no effect.
    edit(&init, |text| text.replace("sleep", "no-such-program"));
    let printed = planned(&init, &["plan", "--goal", "extra", "--with", "sql"]);
    insta::assert_snapshot!(printed, @"
    stop all 1 null: nothing needs it
    start extra null 1: it is the goal
    stop web 2 null: nothing needs it
    stay db null null: it is an extra target
    ");
    succeed(&init, &["set-target", "extra", "--with", "sql"]);
    wait_state(&init, "extra", "running");
    wait_state(&init, "web", "disabled");
    assert!(is_alive(db));
    let (status, printed) = init.client(&["plan", "--goal", "unknown"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("no unit provides the goal unknown"), "{printed}");
}

#[test]
fn plan_of_other_files_compares_with_running_units() {
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
    let printed = planned(&init, &["plan", &other, "--goal", "old", "--from-nothing"]);
    insta::assert_snapshot!(printed, @"start old null 1: it is the goal");
    let (status, printed) = init.client(&["plan", &other]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("no goal is set, so there is nothing to run"), "{printed}");
    std::fs::write(init.home.path().join("units/more.unit"), "unit: x\ntype: y\n").unwrap();
    let (status, printed) = init.client(&["plan"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("more.unit:2:7"), "{printed}");
}

// Holds: X-1
#[test]
fn plan_of_other_files_uses_the_goal_of_the_start() {
    let home = tempfile::tempdir().unwrap();
    let files = ["now", "then"].map(|name| home.path().join(format!("{name}.unit")));
    let text = "unit: a\ntype: virtual\nprovides: a\n";
    std::fs::write(&files[0], text).unwrap();
    std::fs::write(&files[1], format!("{text}unit: b\ntype: virtual\nprovides: b\n")).unwrap();
    let [now, then] = files.map(|file| file.display().to_string());
    let init = Init::start_in(home, &[], &[&now, "--goal", "a"]);
    wait_state(&init, "a", "running");
    let printed = planned(&init, &["plan", &then]);
    insta::assert_snapshot!(printed, @"stay a null null: it is the goal");
    let printed = planned(&init, &["plan", &then, "--goal", "b"]);
    insta::assert_snapshot!(printed, @"
    stop a 1 null: nothing needs it
    start b null 1: it is the goal
    ");
}

#[test]
fn plan_without_files_is_refused_for_fleetd_units() {
    let init = Init::start();
    let file = init.home.path().join("a.unit");
    std::fs::write(&file, "unit: a\ntype: virtual\nprovides: a\n").unwrap();
    let printed = succeed(&init, &["plan", &file.display().to_string(), "--goal", "a"]);
    assert!(printed.contains("planned as if no unit were running: the fleet-init at"), "{printed}");
    let (status, printed) = init.client(&["plan"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("runs the units of fleetd"), "{printed}");
}

#[test]
fn plan_reads_stdin_in_the_client() {
    let init = start_wrapped(&["sh", "-c", ENDLESS_STDIN, "sh"]);
    wait_state(&init, "web", "running").unwrap();
    let path = init.home.path().join("given");
    std::fs::write(&path, "unit: given\ntype: virtual\nprovides: given\n").unwrap();
    for _ in 0..3 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        command.args(["plan", "/dev/stdin", "--goal", "given"]);
        command.env("FLEET_INIT_SOCKET", init.socket()).stdin(File::open(&path).unwrap());
        let output = command.output().unwrap();
        let printed = crate::daemon::output_text(&output);
        assert!(
            output.status.success() && printed.contains("compared with the running units"),
            "{printed}"
        );
        assert!(String::from_utf8(output.stdout).unwrap().contains("given"), "{printed}");
    }
    wait_state(&init, "web", "running").unwrap();
}
