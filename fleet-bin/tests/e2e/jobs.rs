//! Jobs and schedules by `fleetd dev`.

use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::daemon::{Cluster, output_text};

/// Writes the file of a job that runs a shell script, and returns its path.
fn write(cluster: &Cluster, name: &str, script: &str, options: &str) -> String {
    let text =
        format!("[Service]\nExecStart=/bin/sh -c '{script}'\n[X-Fleet]\nRunOnce=true\n{options}");
    cluster.write(name, &text).display().to_string()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(cluster: &Cluster, args: &[&str]) -> Value {
    let all: Value = serde_json::from_str(&cluster.succeed(args)).unwrap();
    all[0].clone()
}

#[test]
fn job_returns_its_output_and_its_exit_code() {
    let cluster = Cluster::start(&[]);
    let path = write(&cluster, "job.service", "echo one; echo two; exit 3", "");
    let run = cluster.fleetctl(&["run", "--wait", &path]);
    assert_eq!(run.status.code(), Some(3), "{}", output_text(&run));
    assert_eq!(stdout(&run), "one\ntwo\n", "{}", output_text(&run));
    let progress = stderr(&run);
    assert!(progress.contains("job.service: attempt 1 begins on "), "{progress}");
    let end = "job.service: failed: attempt 1 exited with status 3\n";
    assert!(progress.ends_with(end), "{progress}");

    let row = &cluster.rows("job.service")[0];
    assert_eq!((&row["active"], &row["sub"]), (&"failed".into(), &"failed".into()), "{row}");
    let applied = cluster.fleetctl(&["apply", &path]);
    assert!(applied.status.success(), "{}", output_text(&applied));
    assert!(stderr(&applied).contains("nothing to do"), "{}", output_text(&applied));
    let job = json(&cluster, &["job", "status", "job", "-o", "json"]);
    assert_eq!((&job["attempt"], &job["hasEnded"]), (&1.into(), &true.into()), "{job}");

    // A changed file runs, and so does an unchanged one on request.
    write(&cluster, "job.service", "echo three", "");
    cluster.succeed(&["apply", "--wait", "finished", &path]);
    let again = cluster.fleetctl(&["run", "--wait", "job"]);
    assert_eq!((again.status.code(), &*stdout(&again)), (Some(0), "three\n"));
    let list = cluster.succeed(&["job", "list", "--all"]);
    assert!(list.contains("job.service") && list.contains("succeeded"), "{list}");
}

#[test]
fn failed_attempt_is_retried_and_followed() {
    let cluster = Cluster::start(&[]);
    let mark = cluster.path("mark").display().to_string();
    let script =
        format!("echo begin; if test -e {mark}; then echo end; else touch {mark}; false; fi");
    let path = write(&cluster, "job.service", &script, "Retries=1\n");
    let run = cluster.fleetctl(&["run", "--wait", &path]);
    assert_eq!(run.status.code(), Some(0), "{}", output_text(&run));
    assert_eq!(stdout(&run), "begin\nbegin\nend\n", "{}", output_text(&run));
    let progress = stderr(&run);
    let retry = "job.service: attempt 1 ended: exited with status 1; attempt 2 follows in ";
    assert!(progress.contains(retry), "{progress}");
    assert!(progress.ends_with("job.service: succeeded\n"), "{progress}");
}

/// The output of the second attempt is read before the leader reports that it has begun.
#[test]
fn headline_of_an_attempt_precedes_its_output() {
    let cluster = Cluster::start(&[]);
    let mark = cluster.path("mark").display().to_string();
    let script = format!("echo out; if ! test -e {mark}; then touch {mark}; false; fi");
    let path = write(&cluster, "job.service", &script, "Retries=1\n");
    let screen = cluster.path("screen");
    let file = std::fs::File::create(&screen).unwrap();
    let mut command = cluster.fleetctl_command(&["run", "--wait", &path]);
    command.stdout(file.try_clone().unwrap()).stderr(file);
    assert!(command.status().unwrap().success());
    let screen = std::fs::read_to_string(screen).unwrap();
    let attempts = screen.split_once("attempt 1 begins").map_or("", |(_, rest)| rest);
    let attempts = attempts.split_once("attempt 2 begins").unwrap_or_default();
    assert!(attempts.0.contains("\nout\n") && attempts.1.contains("\nout\n"), "{screen}");
    assert_eq!(screen.matches("\nout\n").count(), 2, "{screen}");
}

#[test]
fn interrupted_wait_detaches_from_the_jobs() {
    let cluster = Cluster::start(&[]);
    let paths = ["a@1.service", "a@2.service"];
    let paths = paths.map(|name| write(&cluster, name, "echo up; exec sleep 1000", ""));
    let mut command = cluster.fleetctl_command(&["run", "--wait", &paths[0], &paths[1]]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let waiting = command.spawn().unwrap();
    cluster.wait_for("both jobs run", |cluster| {
        let list = cluster.succeed(&["job", "list"]);
        (list.matches("running").count() == 2).then_some(())
    });
    // The job is left alone, and followed until the time is over.
    let late = cluster.fleetctl(&["run", "--wait", "--timeout", "1s", &paths[0]]);
    assert_eq!((late.status.code(), &*stdout(&late)), (Some(1), "up\n"), "{}", output_text(&late));
    let text = stderr(&late);
    let (_, machine) = text.split_once("the time is over: a@1.service is running on ").unwrap();
    let machine = machine.split(',').next().unwrap();
    assert_eq!(machine.len(), "dev-1".len(), "{text}");
    kill_process(Pid::from_child(&waiting), Signal::INT).unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", output_text(&output));
    let mut lines: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["a@1.service: up", "a@2.service: up"]);
    let help = "the jobs go on: \"fleetctl run --wait a@1.service a@2.service\" follows the rest";
    assert!(stderr(&output).contains(help), "{}", output_text(&output));

    write(&cluster, "a@1.service", "echo other", "");
    let other = cluster.fleetctl(&["run", &paths[0]]);
    assert!(stderr(&other).contains("cannot run a different a@1.service"), "{}", stderr(&other));
    cluster.succeed(&["stop", "a@1", "a@2"]);
    let list = cluster.succeed(&["job", "list", "--all"]);
    assert_eq!(list.matches("stopped").count(), 4, "phase and result of both: {list}");
}

#[test]
fn schedule_makes_runs_until_it_is_paused() {
    let cluster = Cluster::start(&[]);
    let path = write(&cluster, "tick.service", "echo tick", "Schedule=*:*:0/2\n");
    let refused = cluster.fleetctl(&["run", &path]);
    assert!(stderr(&refused).contains("it is a schedule"), "{}", output_text(&refused));
    cluster.succeed(&["start", &path]);
    let runs = |cluster: &Cluster| {
        let schedule = json(cluster, &["schedule", "status", "tick", "-o", "json"]);
        let history = schedule["history"].as_array().cloned().unwrap_or_default();
        history.iter().filter(|entry| entry["result"] == "succeeded").count()
    };
    cluster.wait_for("two runs have succeeded", |cluster| (runs(cluster) >= 2).then_some(()));
    let paused = cluster.succeed(&["schedule", "pause", "tick"]);
    let begin = Instant::now();
    assert_eq!(paused, "Schedule tick.service is paused\n");
    cluster.wait_for("no run is unfinished", |cluster| {
        let schedule = json(cluster, &["schedule", "status", "tick", "-o", "json"]);
        schedule["runs"].is_null().then_some(())
    });
    let run = cluster.fleetctl(&["schedule", "run-now", "--wait", "tick"]);
    assert_eq!((run.status.code(), &*stdout(&run)), (Some(0), "tick\n"), "{}", output_text(&run));
    let name = "tick.service: the run is tick-manual-1.service";
    assert!(stderr(&run).contains(name), "{}", stderr(&run));
    cluster.wait_for("an elapse has passed", |_| {
        (begin.elapsed() > Duration::from_secs(3)).then_some(())
    });
    let status = cluster.fleetctl(&["status", "tick"]);
    assert!(stdout(&status).contains("Schedule: *-*-* *:*:00/2 (paused)"), "{}", stdout(&status));
    let list = cluster.succeed(&["schedule", "list"]);
    assert!(list.contains("tick.service") && list.contains("paused"), "{list}");
    let row = &cluster.rows("tick.service")[0];
    assert_eq!(row["sub"], "schedule paused", "{row}");
    let resumed = cluster.succeed(&["schedule", "resume", "tick"]);
    assert!(resumed.starts_with("Schedule tick.service is on, next "), "{resumed}");
    cluster.wait_for("elapses are recorded as skipped", |cluster| {
        let status = cluster.succeed(&["schedule", "status", "tick"]);
        status.contains("skipped: the schedule was paused or stopped").then_some(())
    });
}
