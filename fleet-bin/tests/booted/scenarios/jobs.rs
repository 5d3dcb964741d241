//! Jobs and schedules while machines crash and leaders are killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, MACHINES, STORE, print_line};
use crate::observe::{DEADLINE, wait_for, wait_out};

const JOBS: usize = 100;

/// Instances whose number is a multiple of this exit with [`CODE`].
const FAILING: usize = 10;

const CODE: usize = 7;

/// Time for which the schedule is watched.
const PERIOD: Duration = Duration::from_secs(300);

/// Time between two kills of the leader.
const KILL_INTERVAL: Duration = Duration::from_secs(20);

const GET: &str = "ETCDCTL_API=3 etcdctl --endpoints=http://10.77.0.10:2379 get";

/// Writes a line with the number of the job when it begins.
const SCRIPT: &str = "echo \"$1\" >> /srv/share/results/starts\n\
                      sleep 2\n\
                      echo \"output of job $1\"\n\
                      test $(($1 % 10)) != 0 || exit 7\n";

/// Returns the stored values below a prefix, by the names of the units.
fn records(cluster: &Cluster, prefix: &str) -> BTreeMap<String, Value> {
    let text = cluster.kit.exec(STORE, &format!("{GET} --prefix /fleet/{prefix}/"));
    let lines: Vec<&str> = text.lines().collect();
    let pair = |pair: &[&str]| {
        let (_, unit) = pair[0].rsplit_once('/')?;
        Some((unit.to_owned(), serde_json::from_str(pair[1]).ok()?))
    };
    lines.chunks_exact(2).filter_map(pair).collect()
}

/// Kills the daemon that leads the cluster. Its systemd starts it again.
fn kill_leader(cluster: &Cluster) {
    let claim = cluster.kit.exec(STORE, &format!("{GET} --print-value-only /fleet/engine/leader"));
    // Between two terms there is no leader.
    if let Some(leader) = MACHINES.into_iter().find(|machine| claim.contains(cluster.id(machine))) {
        cluster.kit.try_exec(leader, "systemctl kill --signal=KILL fleet.service");
    }
}

fn ended(job: &Value) -> bool {
    job["phase"].get("ended").is_some()
}

fn attempts(job: &Value) -> &[Value] {
    job["attempts"].as_array().map_or(&[], Vec::as_slice)
}

fn is_interruption(attempt: &Value) -> bool {
    matches!(attempt["how"].as_str(), Some("machine_lost" | "interrupted" | "moved"))
}

// Holds: I-28
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn each_of_a_hundred_jobs_runs_once() {
    let cluster = Cluster::boot("5s");
    fs::write(cluster.kit.share("job.sh"), SCRIPT).unwrap();
    let file = "[Service]\nExecStart=/bin/sh /srv/share/job.sh %i\n\
                [X-Fleet]\nRunOnce=true\nMaxPerMachine=10\n";
    cluster.write("job@.service", file);
    cluster.succeed(&["submit", "job@.service"]);
    cluster.succeed(&["start", "--no-block", &format!("job@{{1..{JOBS}}}")]);
    let has_ended = |count: usize| {
        let jobs = records(&cluster, "jobs");
        (jobs.values().filter(|job| ended(job)).count() >= count).then_some(jobs)
    };
    wait_for("the first jobs have ended", || has_ended(10));
    cluster.kit.run(&["crash", "m2"]);
    kill_leader(&cluster);
    wait_for("more jobs have ended", || has_ended(40));
    cluster.kit.run(&["boot", "m2"]);
    kill_leader(&cluster);
    wait_for("most jobs have ended", || has_ended(80));
    kill_leader(&cluster);
    let begin = Instant::now();
    while begin.elapsed() < DEADLINE && has_ended(JOBS).is_none() {
        wait_out(Duration::from_secs(1));
    }
    let jobs = records(&cluster, "jobs");
    let unfinished: Vec<_> = jobs.iter().filter(|(_, job)| !ended(job)).collect();
    assert!(unfinished.is_empty(), "{unfinished:?} of {} jobs", jobs.len());
    let starts = cluster.result_file("starts");
    let (mut again, mut unseen, mut silent) = (0, 0, 0);
    for number in 1..=JOBS {
        let job = &jobs[&format!("job@{number}.service")];
        let (last, earlier) = attempts(job).split_last().expect("it has run");
        let code = if number % FAILING == 0 { CODE } else { 0 };
        let status = &last["how"]["exited"]["status"];
        // systemd forgets the status of a job that succeeds while the daemon is down.
        let is_unseen = code == 0 && status == "unknown";
        assert!(status["code"] == code || is_unseen, "job {number}: {job}");
        unseen += usize::from(is_unseen);
        let outcome = if code == 0 { "succeeded" } else { "failed" };
        assert_eq!(job["phase"]["ended"]["outcome"], outcome, "job {number}: {job}");
        // On a busy machine the journal may not be read in time.
        let output = last["output"].as_array().map_or(&[][..], Vec::as_slice);
        silent += usize::from(!output.contains(&format!("output of job {number}").into()));
        // An attempt may have been lost before its process began.
        let started = starts.lines().filter(|line| *line == number.to_string()).count();
        assert!((1..=earlier.len() + 1).contains(&started), "{started} starts of {job}");
        assert!(earlier.iter().all(is_interruption), "job {number}: {job}");
        again += usize::from(!earlier.is_empty());
    }
    print_line(&format!("{JOBS} jobs: {again} interrupted, {unseen} with an unknown success"));
    print_line(&format!("{silent} jobs without output"));
    assert!(again <= 20, "only jobs of the crashed machine run again");
    assert!(silent <= JOBS / 10, "{silent} jobs have no output");
}

/// Adds the elapses of a schedule that its history shows, by their times.
fn note_history(schedule: &Value, missed: &mut BTreeSet<u64>) {
    for entry in schedule["history"].as_array().into_iter().flatten() {
        let omitted = &entry["omitted"];
        let time = |which: &str| omitted[which]["elapse"].as_u64();
        if let Some((first, last)) = time("first").zip(time("last")) {
            missed.extend((first..=last).step_by(2000));
        }
    }
}

/// Returns the time of the run with this name, as in `tick-20261128T020000Z`, since the start of
/// its day.
fn time_of_day(run: &str) -> Option<u64> {
    let time = run.strip_prefix("tick-")?.split_once('T')?.1.strip_suffix('Z')?;
    let part = |from: usize| time.get(from..from + 2)?.parse::<u64>().ok();
    Some((part(0)? * 3600 + part(2)? * 60 + part(4)?) * 1000)
}

// Holds: I-28
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn elapses_run_once_while_leaders_are_killed() {
    const DAY: u64 = 86_400_000;

    let cluster = Cluster::boot("5s");
    let file = "[Service]\nExecStart=/bin/sh -c 'echo %N >> /srv/share/results/ticks'\n\
                [X-Fleet]\nRunOnce=true\nSchedule=*:*:0/2\nConcurrencyPolicy=allow\n";
    cluster.write("tick.service", file);
    cluster.succeed(&["start", "--no-block", "tick.service"]);
    let schedule = || records(&cluster, "schedules").remove("tick.service");
    let first = wait_for("the schedule is on", schedule)["decided_until"].as_u64().unwrap();
    let (begin, mut killed, mut kills) = (Instant::now(), Instant::now(), 0);
    let (mut missed, mut last) = (BTreeSet::new(), first);
    while begin.elapsed() < PERIOD {
        if let Some(schedule) = schedule() {
            note_history(&schedule, &mut missed);
            last = schedule["decided_until"].as_u64().unwrap_or(last);
        }
        if killed.elapsed() >= KILL_INTERVAL {
            kill_leader(&cluster);
            (killed, kills) = (Instant::now(), kills + 1);
        }
        wait_out(Duration::from_secs(1));
    }
    let ran = wait_for("all recorded runs have run", || {
        let schedule = schedule()?;
        note_history(&schedule, &mut BTreeSet::new());
        let is_over = schedule["runs"].as_array()?.len() <= 1;
        let ticks = cluster.result_file("ticks");
        is_over.then(|| ticks.lines().map(str::to_owned).collect::<Vec<_>>())
    });
    let times: Vec<u64> = ran.iter().filter_map(|run| time_of_day(run)).collect();
    let distinct: BTreeSet<u64> = times.iter().copied().collect();
    assert_eq!(times.len(), ran.len(), "{ran:?}");
    assert_eq!(distinct.len(), times.len(), "an elapse has run twice: {ran:?}");
    let elapses = (first / 2000 + 1..=last / 2000).map(|number| number * 2000);
    let (mut seen, mut lost) = (0, Vec::new());
    for elapse in elapses {
        seen += 1;
        if !distinct.contains(&(elapse % DAY)) && !missed.contains(&elapse) {
            lost.push(elapse);
        }
    }
    let text = format!(
        "{seen} elapses, {} runs, {} missed, {kills} kills of leaders",
        distinct.len(),
        missed.len()
    );
    print_line(&text);
    assert!(lost.is_empty(), "neither run nor recorded as missed: {lost:?}");
    // A new leader is elected within the lease and an attempt of a campaign.
    assert!(missed.len() <= kills * 6, "{text}");
}
