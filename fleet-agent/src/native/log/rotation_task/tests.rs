//! Tests of the task that keeps logs within their limits.

use std::io::Write as _;

use async_trait::async_trait;
use tokio::time::Instant;

use super::*;
use crate::SystemClock;
use crate::native::run::process::append;

/// Waits until the log is no longer polled.
async fn wait_for_rest(task: &RotationTask, log: &Log) {
    let clock = SystemClock::start();
    let deadline = clock.now().after(Duration::from_secs(60));
    while log.exceeds_limit() || task.lock().quiet.is_empty() || !task.lock().busy.is_empty() {
        assert!(clock.now() < deadline, "it does not come to rest");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until nothing before this offset is stored.
async fn wait_for_floor(log: &Log, place: u64) {
    let clock = SystemClock::start();
    let deadline = clock.now().after(Duration::from_secs(60));
    while log.floor() < place {
        assert!(clock.now() < deadline, "the old part is still stored");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn written_logs_are_polled_and_idle_ones_are_not() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let open = || Log::open(directory.path().join("log"), 1000).map(Arc::new);
    let log = open().expect("a file can be made");
    let write = |bytes: usize| {
        let text = b"sixteen letters\n".repeat(bytes / 16);
        append(log.path()).and_then(|mut file| file.write_all(&text)).expect("it is written");
    };
    // It has grown without a running task.
    write(4000);
    let (task, clock) = (Arc::new(RotationTask::new()), SystemClock::start());
    let log = open().expect("it is there");
    task.keep(&log, clock.now());
    let running = Arc::clone(&task);
    let running = tokio::spawn(async move { running.run(&SystemClock::start()).await });
    wait_for_rest(&task, &log).await;
    let floor = log.floor();
    assert!((3500..4000).contains(&floor), "{floor}");
    for round in 1..4 {
        write(4000);
        wait_for_floor(&log, 3400 + round * 4000).await;
        wait_for_rest(&task, &log).await;
    }
    running.abort();
}

/// Moves the log away, like `logrotate` and cleanup scripts do.
#[tokio::test]
async fn moved_log_is_limited_again_once_back() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let log = Log::open(directory.path().join("log"), 1000).map(Arc::new);
    let log = log.expect("a file can be made");
    let write = || {
        let text = b"sixteen letters\n".repeat(250);
        append(log.path()).and_then(|mut file| file.write_all(&text)).expect("it is written");
    };
    let task = RotationTask { fallback_interval: Duration::from_millis(5), ..RotationTask::new() };
    let (task, clock) = (Arc::new(task), SystemClock::start());
    task.keep(&log, clock.now());
    let running = Arc::clone(&task);
    let running = tokio::spawn(async move { running.run(&SystemClock::start()).await });
    write();
    wait_for_floor(&log, 3400).await;
    wait_for_rest(&task, &log).await;
    for round in 1..3 {
        std::fs::rename(log.path(), directory.path().join("old")).expect("it is moved");
        // Number of checks so far.
        let checks = || task.lock().count;
        let before = checks();
        wait_for_checks(&checks, before + 3).await;
        write();
        wait_for_floor(&log, 3400 + round * 4000).await;
        wait_for_rest(&task, &log).await;
    }
    running.abort();
}

async fn wait_for_checks(checks: &impl Fn() -> u64, enough: u64) {
    let clock = SystemClock::start();
    let deadline = clock.now().after(Duration::from_secs(60));
    while checks() < enough {
        assert!(clock.now() < deadline, "it is not polled");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Once the reader is gone, the log is limited even if nothing more is written.
#[tokio::test]
async fn slowly_read_log_is_limited_once_read() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let log = Log::open(directory.path().join("log"), 1000).map(Arc::new);
    let log = log.expect("a file can be made");
    let (task, clock) = (Arc::new(RotationTask::new()), SystemClock::start());
    task.keep(&log, clock.now());
    let running = Arc::clone(&task);
    let running = tokio::spawn(async move { running.run(&SystemClock::start()).await });
    let (reading, text) = (log.read_lock(0), b"sixteen letters\n".repeat(250));
    append(log.path()).and_then(|mut file| file.write_all(&text)).expect("it is written");
    wait_for_checks(&|| task.lock().count, 4).await;
    assert_eq!(log.floor(), 0, "it has not been read");
    drop(reading);
    wait_for_floor(&log, 3400).await;
    wait_for_rest(&task, &log).await;
    running.abort();
}

/// A clock that advances only while all tasks wait.
#[derive(Clone, Copy)]
struct Steps(Instant);

async fn wait(until: Instant) {
    tokio::time::sleep_until(until).await;
}

#[async_trait]
impl Clock for Steps {
    fn now(&self) -> Timestamp {
        let millis = self.0.elapsed().as_millis();
        Timestamp::from_millis(u64::try_from(millis).expect("it is short"))
    }

    async fn sleep_until(&self, at: Timestamp) {
        wait(self.0 + Duration::from_millis(at.as_millis())).await;
    }
}

/// Returns the largest stored size, for a constant rate of `bytes` per millisecond.
async fn most(log: &Log, clock: Steps, bytes: usize, millis: u32) -> u64 {
    let (mut file, text) = (append(log.path()).expect("it is there"), vec![b'\n'; bytes]);
    let mut most = 0;
    for _ in 0..millis {
        file.write_all(&text).expect("it is written");
        clock.sleep(Duration::from_millis(1)).await;
        most = most.max(log.end().expect("it is there") - log.floor());
    }
    most
}

/// The unit has written nothing or little, and then writes as fast as possible. Its log exceeds the
/// limit at most by the output of one poll interval.
#[tokio::test(start_paused = true)]
async fn sudden_burst_exceeds_limit_by_one_interval() {
    let (limit, fast, directory) = (1 << 20, 64 << 10, tempfile::tempdir().expect("it is created"));
    let log = Log::open(directory.path().join("log"), limit).map(Arc::new).expect("it is created");
    let (task, clock) = (Arc::new(RotationTask::new()), Steps(Instant::now()));
    task.keep(&log, clock.now());
    let running = tokio::spawn(async move { task.run(&clock).await });
    clock.sleep(Duration::from_secs(30)).await;
    let after_silence = most(&log, clock, fast, 1000).await;
    most(&log, clock, 16, 1000).await;
    let after_lines = most(&log, clock, fast, 1000).await;
    let bound = limit + 51 * fast as u64;
    assert!(after_silence.max(after_lines) <= bound, "{after_silence}, {after_lines}");
    running.abort();
}
