//! What a start reports: the run that it began, however earlier runs ended.

use std::path::Path;

use crate::daemon::{Cluster, main_pid, output_text};

/// Repetitions of each case, because an earlier run shows only for a short time.
const ROUNDS: usize = 4;

/// Runs `fleetctl` with these arguments. Returns its exit code and its output.
fn run(cluster: &Cluster, args: &[&str]) -> (Option<i32>, String) {
    let output = cluster.fleetctl(args);
    (output.status.code(), output_text(&output))
}

fn assert_exit(cluster: &Cluster, args: &[&str], expected: i32) {
    let (code, text) = run(cluster, args);
    assert_eq!(code, Some(expected), "fleetctl {args:?}: {text}");
}

#[test]
fn start_after_a_failed_stop_reports_the_new_run() {
    let cluster = Cluster::start(&[]);
    let unit =
        "[Service]\nExecStart=/bin/sh -c 'trap \"exit 143\" TERM; while :; do sleep .05; done'\n";
    let path = cluster.write("server.service", unit);
    let path = path.to_str().unwrap();
    assert_exit(&cluster, &["start", path], 0);
    for _ in 0..ROUNDS {
        for again in [&["start", "server"][..], &["apply", path]] {
            assert_exit(&cluster, &["stop", "server"], 0);
            assert_exit(&cluster, again, 0);
            let rows = cluster.rows("server.service");
            assert_eq!(rows[0]["active"], "active", "{rows:?}");
        }
    }
    // The machine may miss the stop.
    for _ in 0..ROUNDS {
        let before = main_pid(&cluster.rows("server.service")[0]);
        assert_exit(&cluster, &["stop", "--no-block", "server"], 0);
        assert_exit(&cluster, &["start", "server"], 0);
        let rows = cluster.rows("server.service");
        assert_eq!(rows[0]["active"], "active", "{rows:?}");
        assert_ne!(main_pid(&rows[0]), before, "it was not stopped");
    }
}

#[test]
fn start_after_a_success_reports_the_failed_run() {
    let cluster = Cluster::start(&[]);
    let home = tempfile::tempdir().unwrap();
    let good = home.path().join("good");
    let unit = format!(
        "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'sleep .2; test -e {}'\n",
        good.display()
    );
    let path = cluster.write("job.service", &unit);
    let path = path.to_str().unwrap();
    std::fs::write(&good, "").unwrap();
    assert_exit(&cluster, &["start", path], 0);
    for _ in 0..ROUNDS {
        for wait in ["active", "finished"] {
            assert_exit(&cluster, &["stop", "job"], 0);
            std::fs::remove_file(&good).unwrap();
            assert_exit(&cluster, &["start", "--wait", wait, "job"], 1);
            std::fs::write(&good, "").unwrap();
            assert_exit(&cluster, &["start", "--wait", wait, "job"], 0);
        }
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn wait_for_the_end_of_a_job_lasts_until_its_new_run_ends() {
    let cluster = Cluster::start(&[]);
    let home = tempfile::tempdir().unwrap();
    let done = home.path().join("done");
    let unit = format!(
        "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'sleep .3; echo done >> {}'\n",
        done.display()
    );
    let path = cluster.write("job.service", &unit);
    let path = path.to_str().unwrap();
    for round in 1..=ROUNDS {
        assert_exit(&cluster, &["start", "--wait", "finished", path], 0);
        assert_eq!(lines(&done), round, "the wait was over before the job");
        assert_exit(&cluster, &["stop", "job"], 0);
    }
}

#[test]
fn crash_loop_is_reported_as_a_failed_start() {
    let cluster = Cluster::start(&[]);
    for (name, options) in [
        ("fast.service", "RestartSec=20ms\n[Unit]\nStartLimitIntervalSec=0\n"),
        ("limited.service", "RestartSec=100ms\n"),
    ] {
        let unit = format!("[Service]\nExecStart=/bin/sh -c 'exit 3'\nRestart=always\n{options}");
        let path = cluster.write(name, &unit);
        let (code, text) = run(&cluster, &["start", path.to_str().unwrap()]);
        assert_eq!(code, Some(1), "{text}");
        // While the next run is up, its state has no exit status of the last one.
        let causes = ["exited with status 3", "it exits and restarts repeatedly"];
        assert!(causes.iter().any(|cause| text.contains(cause)), "{text}");
    }
}

fn active(cluster: &Cluster, unit: &str) -> String {
    let rows = cluster.rows(unit);
    rows[0]["active"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn run_that_another_unit_started_is_stopped() {
    let cluster = Cluster::start(&[]);
    let sleeper = "[Service]\nExecStart=/bin/sleep infinity\n";
    let write = |name: &str, text: &str| cluster.write(name, text).to_str().unwrap().to_owned();
    let needed = write("needed.service", sleeper);
    let needs = "[Unit]\nRequires=needed.service\nAfter=needed.service\n";
    let with = "[X-Fleet]\nMachineOf=needed.service\n";
    let needs = write("needs.service", &format!("{needs}{sleeper}{with}"));
    let job = write("job.service", sleeper);
    let timer = "[Timer]\nOnActiveSec=1ms\n[X-Fleet]\nMachineOf=job.service\n";
    let timer = write("job.timer", timer);
    assert_exit(&cluster, &["load", &needed, &job], 0);
    assert_exit(&cluster, &["start", &needs, &timer], 0);
    for (unit, stopped) in
        [("job.service", &["job.service"][..]), ("needed.service", &["needs.service"])]
    {
        cluster.wait_active(unit);
        assert_exit(&cluster, &["stop", unit], 0);
        for unit in stopped.iter().chain([&unit]) {
            assert_eq!(active(&cluster, unit), "inactive", "{unit}");
        }
        // There is nothing to stop, and nothing changes.
        assert_exit(&cluster, &["stop", unit], 0);
    }
    // A restart of the unit that needs it starts it again.
    assert_exit(&cluster, &["restart", "needs"], 0);
    cluster.wait_active("needed.service");
}

#[test]
fn start_waits_for_a_unit_of_another_machine() {
    let cluster = Cluster::start(&[]);
    let home = tempfile::tempdir().unwrap();
    let ready = home.path().join("ready");
    let gate = format!(
        "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'until test -e {}; do sleep .05; done'\n",
        ready.display()
    );
    let web = "[Service]\nExecStart=/bin/sleep infinity\n\
               [X-Fleet]\nConflicts=gate.service\nStartAfter=gate.service\n";
    let (gate, web) = (cluster.write("gate.service", &gate), cluster.write("web.service", web));
    let args = ["start".as_ref(), "--no-block".as_ref(), web.as_os_str(), gate.as_os_str()];
    cluster.succeed(&args);
    let waits = "waits for gate.service (StartAfter=), which is activating on ";
    for command in [&["status", "web"][..], &["doctor"]] {
        cluster.wait_for("it waits", |cluster| {
            let (_, text) = run(cluster, command);
            text.contains(waits).then_some(())
        });
    }
    let (code, text) = run(&cluster, &["start", "--wait-timeout", "1", "web"]);
    assert!(code != Some(0) && text.contains(waits), "{text}");
    std::fs::write(&ready, "").unwrap();
    cluster.wait_active("web.service");
    let machine = |unit| cluster.rows(unit)[0]["machine"].clone();
    assert_ne!(machine("web.service"), machine("gate.service"));
}

#[test]
fn start_order_cycle_is_refused_by_every_command() {
    let cluster = Cluster::start(&[]);
    let after =
        |other: &str| format!("[Service]\nExecStart=/bin/true\n[X-Fleet]\nStartAfter={other}\n");
    let one = cluster.write("one.service", &after("two.service"));
    let two = cluster.write("two.service", &after("one.service"));
    for command in ["verify", "plan", "apply", "start", "submit"] {
        let output = cluster.fleetctl(&[command.as_ref(), one.as_os_str(), two.as_os_str()]);
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
        assert!(text.contains("StartAfter forms a dependency cycle: "), "{command}: {text}");
        assert!(text.contains("one.service -> two.service"), "{command}: {text}");
        assert!(cluster.units().is_empty(), "{command}");
    }
}
