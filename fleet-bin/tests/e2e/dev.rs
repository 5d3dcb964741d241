//! `fleetd dev` with the example unit files of the project.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::daemon::{Cluster, is_alive, main_pid, output_text};

const SLEEPER: &str = "[Service]\nExecStart=/bin/sleep infinity\n";

/// Copies the example unit files, with a free port for the web server.
fn example_units(into: &Path, port: u16) -> PathBuf {
    let from = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/units"));
    let units = into.join("units");
    std::fs::create_dir(&units).unwrap();
    for entry in from.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap().replace("18080", &port.to_string());
        std::fs::write(units.join(path.file_name().unwrap()), text).unwrap();
    }
    units
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the response of the web server; `None` if it does not respond.
fn get(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The engine does what the printed plan says, however many units are new, changed and tied.
#[test]
fn applied_units_are_placed_as_planned() {
    let cluster = Cluster::start(&[]);
    let mut count = 0;
    for round in 0..10_usize {
        let mut files = Vec::new();
        for number in 0..(round * 7) % 20 + 1 {
            let beside = match number % 4 {
                3 => format!("MachineOf=u{}.service\n", count - 1),
                2 => format!("Conflicts=u{}.service\n", count - 1),
                _ => String::new(),
            };
            let text = format!("{SLEEPER}[X-Fleet]\n{beside}");
            files.push(cluster.write(&format!("u{count}.service"), &text));
            count += 1;
        }
        let mut args = vec!["apply".into()];
        args.extend(files);
        let output = cluster.succeed(&args);
        let planned: Vec<(&str, &str)> = output
            .lines()
            .filter_map(|line| line.split_once(" is placed on "))
            .filter_map(|(unit, rest)| Some((unit, rest.split_once('/')?.0)))
            .collect();
        assert_eq!(planned.len(), args.len() - 1, "{output}");
        for (unit, machine) in planned {
            let rows = cluster.rows(unit);
            let found = rows[0]["machine"].as_str().unwrap_or_default();
            assert!(found.starts_with(machine), "{unit}: {machine} was planned, not {found}");
        }
    }
}

#[test]
fn example_units_run_as_required() {
    let home = tempfile::tempdir().unwrap();
    let port = free_port();
    let cluster = Cluster::start(&[&example_units(home.path(), port)]);
    let machine = |unit: &str| cluster.wait_active(unit)["machine"].clone();

    let workers = ["worker@1.service", "worker@2.service", "worker@3.service"].map(machine);
    let apart: BTreeSet<String> = workers.iter().map(ToString::to_string).collect();
    assert_eq!(apart.len(), 3, "workers conflict, yet share a machine: {workers:?}");

    assert_eq!(machine("web-announce.service"), machine("web.service"));
    let response = cluster.wait_for("the web server responds", |_| get(port));
    assert!(response.starts_with("HTTP/1.0 200"), "{response}");

    cluster.wait_for("the heartbeat is on every machine", |cluster| {
        let rows = cluster.rows("heartbeat.service");
        (rows.iter().filter(|row| row["active"] == "active").count() == 3).then_some(())
    });

    let unplaced = cluster.rows("needs-gpu.service");
    assert_eq!(unplaced.len(), 1);
    let reason = unplaced[0]["reason"].as_str().unwrap();
    assert!(reason.contains("MachineMetadata refuses 3") && reason.contains("gpu=yes"), "{reason}");
}

#[test]
fn unplaceable_unit_fails_start_with_its_reason() {
    let cluster = Cluster::start(&[]);
    let unit = "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetadata=zone=mars\n";
    let path = cluster.write("lost.service", unit);
    let output = cluster.fleetctl(&["start".as_ref(), path.as_os_str()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    assert!(
        errors.contains("zone=mars") && errors.contains("MachineMetadata refuses 3"),
        "{errors}"
    );
    assert_eq!(cluster.rows("lost.service").len(), 1, "the unit stays wanted");
}

#[test]
fn drained_machine_gets_units_again_after_uncordon() {
    let cluster = Cluster::start(&[]);
    let paths = ["one.service", "two.service", "three.service"]
        .map(|name| cluster.write(name, SLEEPER).into_os_string());
    cluster.succeed(&[&["start".into()], &paths[..]].concat());
    let machine = |unit: &str| cluster.wait_active(unit)["machine"].as_str().unwrap().to_owned();
    let (left, stays) = (machine("one.service"), machine("two.service"));
    assert_ne!(left, stays);
    cluster.succeed(&["machine", "drain", "--keep-up", "1", "--wait", &left]);
    assert_ne!(machine("one.service"), left);
    assert_eq!(machine("two.service"), stays);
    let shown = cluster.succeed(&["machine", "show", &left]);
    assert!(shown.contains("Intent: drained") && !shown.contains("active"), "{shown}");
    cluster.succeed(&["machine", "uncordon", &left]);
    let path = cluster.write("four.service", SLEEPER);
    cluster.succeed(&["start".as_ref(), path.as_os_str()]);
    assert_eq!(machine("four.service"), left);
}

// Holds: I-18
#[test]
fn rebalancing_restarts_only_moved_units() {
    let cluster = Cluster::start(&[]);
    let listed = cluster.succeed(&["list-machines", "--full", "--no-legend", "--fields=machine"]);
    let empty = listed.lines().next().expect("a machine is there").trim().to_owned();
    cluster.succeed(&["machine", "cordon", &empty]);
    let units = ["a.service", "b.service", "c.service", "d.service", "e.service", "f.service"];
    let paths = units.map(|name| cluster.write(name, SLEEPER).into_os_string());
    cluster.succeed(&[&["start".into()], &paths[..]].concat());
    let placements = || {
        units.map(|unit| {
            let row = cluster.wait_active(unit);
            (row["machine"].as_str().unwrap().to_owned(), main_pid(&row))
        })
    };
    let before = placements();
    assert!(before.iter().all(|(machine, _)| *machine != empty), "{before:?}");
    cluster.succeed(&["machine", "uncordon", &empty]);
    let moves = |output: &str| output.lines().filter(|line| line.contains(" moves from ")).count();
    let output = cluster.succeed(&["rebalance", "--max=1", "--wait"]);
    assert_eq!(moves(&output), 1, "{output}");
    let output = cluster.succeed(&["rebalance", "--wait"]);
    assert_eq!(moves(&output), 1, "{output}");
    let after = placements();
    let came = |pair: &&(String, _)| pair.0 == empty;
    assert_eq!(after.iter().filter(came).count(), 2, "{after:?}");
    let stayed = before.iter().zip(&after).filter(|(_, (machine, _))| *machine != empty);
    assert!(stayed.clone().all(|(before, after)| before == after), "{before:?} {after:?}");
    let again = cluster.succeed(&["rebalance", "--wait"]);
    assert!(again.starts_with("nothing to do: each machine has 2 units"), "{again}");
}

#[test]
fn commands_take_a_unit_through_all_states() {
    let cluster = Cluster::start(&[]);
    let path = cluster.write("walk.service", SLEEPER);
    let state = || {
        let listed = cluster.succeed(&["list-unit-files", "-o", "json"]);
        let files: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let field = |name: &str| files[0][name].as_str().unwrap_or("-").to_owned();
        (field("desired"), field("current"))
    };
    let states = |desired: &str, current: &str| (desired.to_owned(), current.to_owned());

    cluster.succeed(&["submit".as_ref(), path.as_os_str()]);
    assert_eq!(state(), states("inactive", "inactive"));
    cluster.succeed(&["load", "walk.service"]);
    assert_eq!(state(), states("loaded", "loaded"));
    cluster.succeed(&["start", "walk.service"]);
    assert_eq!(state(), states("launched", "launched"));
    let first = main_pid(&cluster.wait_active("walk.service"));

    cluster.succeed(&["restart", "walk.service"]);
    let second = main_pid(&cluster.wait_active("walk.service"));
    assert_ne!(first, second, "a restart makes a new process");
    assert!(!is_alive(first));

    cluster.succeed(&["stop", "walk.service"]);
    assert_eq!(state(), states("loaded", "loaded"));
    assert!(!is_alive(second));
    cluster.succeed(&["unload", "walk.service"]);
    assert_eq!(state(), states("inactive", "inactive"));
    assert_eq!(cluster.succeed(&["cat", "walk.service"]), SLEEPER);
    cluster.succeed(&["destroy", "walk.service"]);
    assert!(cluster.units().is_empty());
}

#[test]
fn printed_example_commands_work() {
    let home = tempfile::tempdir().unwrap();
    let unit = home.path().join("sleeper.service");
    std::fs::write(&unit, SLEEPER).unwrap();
    let cluster = Cluster::start(&[&unit]);
    let log = cluster.wait_for("the summary is printed", |cluster| {
        Some(cluster.log()).filter(|log| log.contains("Press Ctrl-C"))
    });
    let after = log.split_once("In another terminal:\n").unwrap().1;
    let steps: Vec<&str> = after.lines().take_while(|line| line.starts_with("  ")).collect();
    let script = format!("set -e\n{}", steps.join("\n")).replace("journal -f", "journal");
    let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", output_text(&output));
    assert!(script.contains("status sleeper.service"), "{script}");
}

#[test]
fn ctrl_c_stops_the_units_of_dev() {
    let mut cluster = Cluster::start(&[]);
    let path = cluster.write("sleeper.service", SLEEPER);
    cluster.succeed(&["start".as_ref(), path.as_os_str()]);
    let pid = main_pid(&cluster.wait_active("sleeper.service"));
    assert!(cluster.end_daemon(Signal::INT).success());
    assert!(!is_alive(pid), "the unit must stop with the cluster");

    cluster.start_daemon(&[]);
    cluster.wait_active("sleeper.service");
}

#[test]
fn second_ctrl_c_does_not_wait_for_units() {
    let mut cluster = Cluster::start(&[]);
    let gate = cluster.write("gate", "");
    let script = format!("trap : TERM; while [ -e {} ]; do sleep 0.05; done", gate.display());
    let unit = format!("[Service]\nExecStart=/bin/sh -c '{script}'\nTimeoutStopSec=1h\n");
    let path = cluster.write("stubborn.service", &unit);
    cluster.succeed(&["start".as_ref(), path.as_os_str()]);
    let pid = main_pid(&cluster.wait_active("stubborn.service"));

    cluster.signal_daemon(Signal::INT);
    cluster.wait_for("the daemon waits for the unit", |cluster| {
        cluster.log().contains("Stopping all units").then_some(())
    });
    assert_eq!(cluster.end_daemon(Signal::INT).code(), Some(1));
    assert!(cluster.log().contains("the remaining units keep running"), "{}", cluster.log());
    assert!(is_alive(pid));
    std::fs::remove_file(gate).unwrap();
}

#[test]
fn followed_journal_survives_a_daemon_restart() {
    check_follow_survives_restart("journal");
}

#[test]
fn followed_logs_survive_a_daemon_restart() {
    check_follow_survives_restart("logs");
}

fn check_follow_survives_restart(command: &str) {
    let mut cluster = Cluster::start(&[]);
    let gate = cluster.path("gate");
    let script =
        format!("echo early; until [ -e {} ]; do sleep 0.01; done; echo late $$$$", gate.display());
    let unit = format!("[Service]\nExecStart=/bin/sh -c '{script}; exec sleep infinity'\n");
    let path = cluster.write("talker.service", &unit);
    cluster.succeed(&["start".as_ref(), path.as_os_str()]);

    let mut follow = cluster.fleetctl_command(&[command, "--raw", "--follow", "talker.service"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "early");
    std::fs::write(gate, "").unwrap();
    let late = lines.next().unwrap().unwrap();
    assert!(late.starts_with("late "), "{late}");
    let since = |span: &str| cluster.succeed(&[command, "--raw", "-S", span, "talker.service"]);
    assert_eq!(since("1h"), format!("early\n{late}\n"));
    crate::daemon::wait_for("the lines are old enough", || since("1us").is_empty().then_some(()));

    assert!(cluster.end_daemon(Signal::INT).success());
    cluster.start_daemon(&[]);
    let of_next_run = lines.by_ref().take(2).map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(of_next_run[0], "early", "the journal must continue after the last line");
    assert!(of_next_run[1].starts_with("late ") && of_next_run[1] != late, "{of_next_run:?}");
    follow.kill().unwrap();
    follow.wait().unwrap();
}

/// A unit with options and dependencies of a real service that fleetd cannot honour.
const CONFINED: &str = "[Unit]\nRequires=network-online.target\nAfter=network-online.target\n\
                        Conflicts=ntp.service\nRebootArgument=now\n[Service]\n\
                        ExecStart=/bin/sleep infinity\nPrivatePIDs=yes\nRootEphemeral=yes\n\
                        NUMAPolicy=local\nOpenFile=/etc/hostname\n[Install]\n\
                        WantedBy=multi-user.target\n";

#[test]
fn confined_unit_runs_and_status_lists_the_ignored_options() {
    let cluster = Cluster::start(&[]);
    let path = cluster.write("confined.service", CONFINED);
    let output = cluster.fleetctl(&["start".as_ref(), path.as_os_str()]);
    assert!(output.status.success(), "{}", output_text(&output));
    let warning = "confined.service:5:1: warning: runs without ";
    assert!(output_text(&output).contains(warning), "{}", output_text(&output));
    let status = cluster.succeed(&["status", "confined.service"]);
    let expected = "Ignored: RebootArgument= (line 5), PrivatePIDs= (line 8), RootEphemeral= \
                    (line 9), NUMAPolicy= (line 10), OpenFile= (line 11)\n";
    assert!(status.contains(expected), "{status}");
    let doctor = cluster.succeed(&["doctor"]);
    let expected = "warning: confined.service runs without PrivatePIDs= and RootEphemeral=\n";
    assert!(doctor.contains(expected), "{doctor}");
}

#[test]
fn unit_that_waits_for_an_external_unit_shows_the_reason() {
    let cluster =
        Cluster::start(&["--native-external", "db.service=path:/nonexistent/db"].map(Path::new));
    let unit = "[Unit]\nRequires=db.service\nAfter=db.service\n[Service]\n\
                ExecStart=/bin/sleep infinity\n";
    let path = cluster.write("web.service", unit);
    let output = cluster.fleetctl(&["start".as_ref(), path.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let reason = "waits for db.service: nothing is at /nonexistent/db; start db.service on the \
                  machine, or set when it counts as up: native_external in the configuration, or \
                  --native-external of \"fleetd dev\"";
    assert!(output_text(&output).contains(reason), "{}", output_text(&output));
    assert_eq!(cluster.rows("web.service")[0]["reason"], reason);
    let status = output_text(&cluster.fleetctl(&["status", "web.service"]));
    assert!(status.contains(&format!("Problem: {reason}\n")), "{status}");
    let doctor = output_text(&cluster.fleetctl(&["doctor"]));
    assert!(doctor.contains("waits for db.service: nothing is at /nonexistent/db\n"), "{doctor}");
}

#[test]
fn refusal_of_a_confined_unit_ends_with_the_setting_that_accepts_it() {
    let cluster = Cluster::start(
        &["--native-unsupported", "refuse", "--native-accept", "NUMAPolicy"].map(Path::new),
    );
    let path = cluster.write("confined.service", CONFINED);
    let output = cluster.fleetctl(&["start".as_ref(), path.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = "RebootArgument=, PrivatePIDs= (line 8), RootEphemeral= (line 9) and \
                    OpenFile= (line 11) are not supported by the native service manager: \
                    set native_accept = [\"sandboxing\", \"environment\", \"lifecycle\"] to run \
                    without them";
    assert!(errors.contains(expected), "{errors}");
    assert!(errors.contains("confined.service:5:1: "), "{errors}");
    for command in ["apply", "plan", "load", "submit"] {
        let output = cluster.fleetctl(&[command.as_ref(), path.as_os_str()]);
        assert_eq!(output.status.code(), Some(1), "{command}: {}", output_text(&output));
        assert!(output_text(&output).contains(expected), "{command}: {}", output_text(&output));
    }
    assert_eq!(cluster.rows("confined.service").len(), 0, "nothing was written");
    let args = ["submit", "--no-verify"].map(OsStr::new);
    cluster.succeed(&[args[0], args[1], path.as_os_str()]);
    let output = output_text(&cluster.fleetctl(&["start", "confined.service"]));
    assert!(output.contains("confined.service:5:1: RebootArgument="), "the known file: {output}");
    let output = cluster.fleetctl(&["start", "--no-verify", "confined.service"]);
    assert_eq!(output.status.code(), Some(1), "its machine refuses it");
}

#[test]
fn drop_ins_reset_and_add_options_of_a_running_unit() {
    let home = tempfile::tempdir().unwrap();
    let units = home.path().join("units");
    let write = |path: &str, text: &str| {
        std::fs::create_dir_all(units.join(path).parent().unwrap()).unwrap();
        std::fs::write(units.join(path), text).unwrap();
    };
    let script = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'echo $A-$B; exec sleep infinity'\n";
    let env = "[Service]\nEnvironment=B=2\n[X-Fleet]\nMachineMetadata=zone=mars\n";
    write("web.service", "[Service]\nExecStart=/bin/false\nEnvironment=A=1 \\");
    write("web.service.d/10-script.conf", script);
    write("web.service.d/20-env.conf", env);
    write("web.service.d/30-anywhere.conf", "[X-Fleet]\nMachineMetadata=\n");
    let cluster = Cluster::start(&[&units]);
    let output = || cluster.succeed(&["journal", "web"]);
    let has_run = |output: &String| output.lines().any(|line| line.ends_with("1-2"));
    cluster.wait_active("web.service");
    cluster.wait_for("the script has run", |_| Some(output()).filter(has_run));
    let stored = cluster.succeed(&["cat", "web.service"]);

    write("web.service.d/20-env.conf", "[Service]\nEnvironment=B=3\n");
    cluster.succeed(&["apply".as_ref(), units.as_os_str()]);
    let has_rerun = |output: &String| output.lines().any(|line| line.ends_with("1-3"));
    cluster.wait_for("the changed script has run", |_| Some(output()).filter(has_rerun));
    let expected = stored.replace(env, "[Service]\nEnvironment=B=3\n");
    assert_eq!(cluster.succeed(&["cat", "web.service"]), expected);
}
