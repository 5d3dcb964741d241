//! Watches logs for writes, and keeps them within their limits.
//!
//! Each log is either quiet or busy. A quiet log has an inotify watch that reports only the first
//! write. That write makes the log busy, and the log is polled for as long as it grows. Then it
//! becomes quiet again.
//!
//! These states keep the number of wakeups low:
//!
//! - A unit that does not write never wakes the daemon.
//! - A unit that writes constantly wakes the daemon twenty times a second.
//! - Several such units cause no more wakeups than one, because their polls are aligned.
//!
//! So a log can exceed its limit by as much as its unit writes in one [`POLL_INTERVAL`].

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fleet_core::Timestamp;
use rustix::fs::inotify;
use rustix::fs::inotify::{CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::Log;
use crate::Clock;
use crate::async_fd::register_readable;
use crate::clock::wait_until;

/// Poll interval of a log that is being written. Polls fall on multiples of it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Poll interval of logs that inotify does not report.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps all logs of a service manager within their limits.
#[derive(Debug)]
pub(crate) struct RotationTask {
    /// Reports written logs; `None` if the kernel provides no inotify instance.
    inotify_fd: Option<OwnedFd>,
    logs: Mutex<Logs>,
    /// Wakes the task after a change of `logs`.
    woken: Notify,
    /// [`FALLBACK_INTERVAL`], except in tests.
    fallback_interval: Duration,
}

#[derive(Debug, Default)]
struct Logs {
    /// Logs with an inotify watch, by its descriptor.
    quiet: BTreeMap<i32, TrackedLog>,
    /// Polled logs by due time; the number makes the keys unique.
    busy: BTreeMap<(Timestamp, u64), TrackedLog>,
    count: u64,
}

#[derive(Debug)]
struct TrackedLog {
    log: Weak<Log>,
    /// End offset at the last check.
    end: u64,
    /// Number of consecutive checks that did not find the file.
    missed: u32,
}

impl TrackedLog {
    /// Counts a check that did not find the file, because the file was moved or removed. Warns at
    /// the second such check in a row.
    ///
    /// Until the unit's next run creates the file again, the current run still writes to the old
    /// file. That file is not limited, because only a search of all processes could find it.
    fn on_missed(&mut self) {
        self.missed = self.missed.saturating_add(1);
        // At the first check the unit may just be being unloaded.
        if self.missed == 2
            && let Some(log) = self.log.upgrade()
        {
            let text = "a log was moved or removed: the output of its unit is neither stored nor \
                        limited until the unit is restarted; to empty a log, truncate it";
            tracing::warn!(log = %log.path().display(), "{text}");
        }
    }
}

impl RotationTask {
    /// Creates a task without logs.
    pub(crate) fn new() -> Self {
        let inotify_fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let inotify_fd = inotify_fd.inspect_err(|error| {
            tracing::warn!(
                %error,
                "cannot watch logs with inotify: checking their sizes regularly"
            );
        });
        let (logs, woken) = (Mutex::default(), Notify::new());
        Self { inotify_fd: inotify_fd.ok(), logs, woken, fallback_interval: FALLBACK_INTERVAL }
    }

    /// Adds a log.
    pub(crate) fn keep(&self, log: &Arc<Log>, now: Timestamp) {
        let tracked = TrackedLog { log: Arc::downgrade(log), end: 0, missed: 0 };
        if log.exceeds_limit() {
            // It was written while no daemon ran.
            self.schedule_check(tracked, now);
        } else {
            self.rest(tracked, now);
        }
        self.woken.notify_one();
    }

    /// Keeps the logs within their limits until dropped.
    pub(crate) async fn run(&self, clock: &dyn Clock) -> io::Result<()> {
        let inotify_fd = self
            .inotify_fd
            .as_ref()
            .map(|inotify_fd| register_readable(inotify_fd.try_clone()?))
            .transpose()?;
        loop {
            let due = self.lock().busy.first_key_value().map(|(&(due, _), _)| due);
            tokio::select! {
                written = next_written(inotify_fd.as_ref()) => {
                    for number in written? {
                        self.on_written(number, clock.now()).await;
                    }
                }
                () = wait_until(clock, due) => self.on_time(clock.now()).await,
                () = self.woken.notified() => {}
            }
        }
    }

    /// Handles a write reported by inotify; `None` after a queue overflow.
    async fn on_written(&self, number: Option<i32>, now: Timestamp) {
        let Some(number) = number else { return self.check_all(now) };
        let tracked = self.lock().quiet.remove(&number);
        let Some(mut tracked) = tracked else { return };
        if let Ok(end) = check_and_trim(&tracked.log).await {
            tracked.end = end;
        }
        self.schedule_check(tracked, next_poll(now));
    }

    async fn on_time(&self, now: Timestamp) {
        while let Some(mut tracked) = self.take_due(now) {
            let (before, Some(log)) = (tracked.end, tracked.log.upgrade()) else { continue };
            let Ok(end) = check_and_trim(&tracked.log).await else {
                tracked.on_missed();
                self.schedule_check(tracked, now.after(self.fallback_interval));
                continue;
            };
            (tracked.end, tracked.missed) = (end, 0);
            if end == before && !log.is_held() {
                self.rest(tracked, now);
            } else {
                self.schedule_check(tracked, next_poll(now));
            }
        }
    }

    fn take_due(&self, now: Timestamp) -> Option<TrackedLog> {
        let mut logs = self.lock();
        let next = logs.busy.first_entry().filter(|next| next.key().0 <= now)?;
        Some(next.remove())
    }

    /// Sets an inotify watch on a log that is no longer written.
    fn rest(&self, tracked: TrackedLog, now: Timestamp) {
        let Some(log) = tracked.log.upgrade() else { return };
        // A removal is reported as a change of the link count.
        let gone = WatchFlags::MOVE_SELF | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF;
        let flags = WatchFlags::MODIFY | gone | WatchFlags::ONESHOT;
        let mut logs = self.lock();
        let watch = self
            .inotify_fd
            .as_ref()
            .map(|inotify_fd| inotify::add_watch(inotify_fd, log.path(), flags));
        let Some(Ok(number)) = watch else {
            drop(logs);
            return self.schedule_check(tracked, now.after(self.fallback_interval));
        };
        let before = tracked.end;
        logs.quiet.insert(number, tracked);
        // A write before the watch was set is not reported.
        if before != 0 && log.check().is_ok_and(|end| end != before) {
            let tracked = logs.quiet.remove(&number);
            drop(logs);
            if let Some(tracked) = tracked {
                self.schedule_check(tracked, now);
            }
        }
    }

    fn schedule_check(&self, tracked: TrackedLog, due: Timestamp) {
        let mut logs = self.lock();
        logs.count += 1;
        let key = (due, logs.count);
        logs.busy.insert(key, tracked);
    }

    fn check_all(&self, now: Timestamp) {
        let quiet = std::mem::take(&mut self.lock().quiet);
        quiet.into_values().for_each(|tracked| self.schedule_check(tracked, now));
    }

    fn lock(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time of the next poll after `now`.
fn next_poll(now: Timestamp) -> Timestamp {
    let next = now.after(POLL_INTERVAL);
    let interval = u64::try_from(POLL_INTERVAL.as_millis()).unwrap_or(1);
    Timestamp::from_millis(next.as_millis() - next.as_millis() % interval)
}

/// Checks a log, trims it if needed, and returns its end offset.
async fn check_and_trim(log: &Weak<Log>) -> io::Result<u64> {
    let log = log.upgrade().ok_or(io::ErrorKind::NotFound)?;
    let end = log.check()?;
    if !log.exceeds_limit() {
        return Ok(end);
    }
    let path = log.path().clone();
    let tracked = tokio::task::spawn_blocking(move || log.trim()).await;
    if let Err(error) = tracked.map_err(io::Error::other).flatten() {
        tracing::warn!(
            %error,
            log = %path.display(),
            "cannot cut a log to its size limit: trying again"
        );
    }
    Ok(end)
}

/// Waits for writes, and returns the watch descriptors of the written logs. `None` among them means
/// that events were lost, so any log may have been written. Cancel-safe.
async fn next_written(inotify_fd: Option<&AsyncFd<OwnedFd>>) -> io::Result<Vec<Option<i32>>> {
    let Some(inotify_fd) = inotify_fd else { return std::future::pending().await };
    let mut buffer = [const { MaybeUninit::uninit() }; 4096];
    loop {
        let mut ready = inotify_fd.readable().await?;
        let mut events = inotify::Reader::new(inotify_fd.get_ref(), &mut buffer);
        let mut written = Vec::new();
        loop {
            let event = match events.next() {
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    ready.clear_ready();
                    break;
                }
                event => event?,
            };
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                written.push(None);
            } else {
                // The end of a watch is also reported, after a write or a removal.
                written.push(Some(event.wd()));
            }
            if events.is_buffer_empty() {
                break;
            }
        }
        if !written.is_empty() {
            return Ok(written);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use async_trait::async_trait;
    use tokio::time::Instant;

    use super::*;
    use crate::SystemClock;
    use crate::native::log::append;

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
        let task =
            RotationTask { fallback_interval: Duration::from_millis(5), ..RotationTask::new() };
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

    /// The unit has written nothing or little, and then writes as fast as possible. Its log exceeds
    /// the limit at most by the output of one poll interval.
    #[tokio::test(start_paused = true)]
    async fn sudden_burst_exceeds_limit_by_one_interval() {
        let (limit, fast, directory) =
            (1 << 20, 64 << 10, tempfile::tempdir().expect("it is created"));
        let log =
            Log::open(directory.path().join("log"), limit).map(Arc::new).expect("it is created");
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
}
