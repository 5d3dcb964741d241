//! Tests of logs: stored lines, rotation and offsets.

use std::os::fd::AsRawFd as _;

use fleet_core::journal::JournalQuery;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::journal::LogCursor;
use super::*;

fn log(limit: u64, text: &[u8]) -> (tempfile::TempDir, Log) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let log = Log::open(directory.path().join("log"), limit).expect("a file can be made");
    append(log.path()).and_then(|mut file| file.write_all(text)).expect("it can be written");
    (directory, log)
}

#[test]
fn tail_returns_last_lines() {
    let (_directory, log) = log(1 << 20, b"one\ntwo\nthree");
    for (lines, expected) in [
        (None, "one\ntwo\nthree"),
        (Some(0), ""),
        (Some(1), "three"),
        (Some(2), "two\nthree"),
        (Some(9), "one\ntwo\nthree"),
    ] {
        let (text, end) = log.tail(lines, None).expect("it can be read");
        assert_eq!((String::from_utf8_lossy(&text).as_ref(), end), (expected, 13), "{lines:?}");
    }
}

/// Makes the current content of the log appear as written at that time.
fn date(log: &Log, millis: u64) {
    let file = append(log.path()).expect("it can be opened");
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
    file.set_modified(at).and_then(|()| log.check()).expect("it can be dated");
}

#[test]
fn tail_since_leaves_out_earlier_lines() {
    let (_directory, log) = log(1 << 20, b"one\ntwo\nthr");
    date(&log, 1000);
    append(log.path()).and_then(|mut file| file.write_all(b"ee\nfour\n")).expect("written");
    date(&log, 2000);
    for (lines, since, expected) in [
        (None, 1000, "one\ntwo\nthree\nfour\n"),
        (None, 1500, "three\nfour\n"),
        (None, 2000, "three\nfour\n"),
        (Some(1), 1500, "four\n"),
        (Some(9), 1500, "three\nfour\n"),
        (None, 2500, ""),
        (Some(9), 2500, ""),
        (None, u64::MAX, ""),
    ] {
        let since = Timestamp::from_millis(since);
        let (text, end) = log.tail(lines, Some(since)).expect("it can be read");
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!((text.as_str(), end), (expected, 19), "{lines:?} since {since:?}");
    }
}

#[test]
fn rotation_keeps_line_times() {
    let early: String = (0..90).map(|number| format!("line {number:02}\n")).collect();
    let (_directory, log) = log(400, early.as_bytes());
    date(&log, 1000);
    log.note("late").expect("it can be written");
    date(&log, 2000);
    log.trim().expect("it can be done");
    let tail = |since| log.tail(None, Some(Timestamp::from_millis(since))).expect("it is read").0;
    assert_eq!(tail(1500), b"fleet: late\n");
    assert_eq!(tail(2500), b"");
    assert!(tail(1000).len() > 100);
}

#[test]
fn long_lines_are_returned_completely() {
    let long = "x".repeat(3 * usize::try_from(BLOCK).expect("it is small"));
    let (_directory, log) = log(1 << 20, format!("first\n{long}\nlast\n").as_bytes());
    let (text, _) = log.tail(Some(2), None).expect("it can be read");
    assert_eq!(text, format!("{long}\nlast\n").as_bytes());
}

/// Creates a log of a hundred lines (800 bytes) with a limit of 400 bytes. Then cuts the log if
/// `is_cut`, and rotates it otherwise.
fn rotated(is_cut: bool) -> (tempfile::TempDir, Log, String) {
    let lines: String = (0..100).map(|number| format!("line {number:02}\n")).collect();
    let (directory, log) = log(400, lines.as_bytes());
    if is_cut {
        log.limit_length(Some(800)).expect("it can be done");
    }
    log.trim().expect("it can be done");
    (directory, log, lines)
}

fn all(log: &Log) -> String {
    String::from_utf8(log.tail(None, None).expect("it can be read").0).expect("it is text")
}

#[test]
fn trim_keeps_newer_half_and_offsets() {
    for is_cut in [false, true] {
        let (_directory, log, lines) = rotated(is_cut);
        let kept = all(&log);
        assert!(kept.len() <= 200 && lines.ends_with(&kept) && kept.starts_with("line "));
        let floor = (lines.len() - kept.len()) as u64;
        assert_eq!(log.floor(), floor, "cut: {is_cut}");
        assert_eq!(log.end().expect("it is there"), lines.len() as u64);
        log.note("more").expect("it can be written");
        let read = |offset| log.read_from(offset).expect("it can be read").0;
        assert_eq!(read(lines.len() as u64), b"fleet: more\n");
        assert_eq!(read(0).len(), kept.len() + 12);
        log.trim().expect("it can be done");
        assert_eq!(log.floor(), floor, "it is short enough");
    }
}

#[test]
fn offsets_survive_a_daemon_restart() {
    for is_cut in [false, true] {
        let (_directory, log, _) = rotated(is_cut);
        let next = Log::open(log.path().clone(), 400).expect("it is there");
        assert_eq!((all(&next), next.floor()), (all(&log), log.floor()), "cut: {is_cut}");
        assert_eq!(next.end().expect("it is there"), 800);
    }
}

#[test]
fn removed_log_leaves_no_offset() {
    let (directory, log, _) = rotated(true);
    Log::remove(log.path()).and_then(|()| Log::remove(log.path())).expect("it can be removed");
    assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0);
    let next = Log::open(log.path().clone(), 400).expect("it can be created");
    assert_eq!((next.floor(), next.end().expect("it is there")), (0, 0));
}

/// The unit was unloaded while a client still reads its journal.
#[tokio::test]
async fn removal_of_the_log_ends_its_journal() {
    for follow in [false, true] {
        let (directory, log) = log(1 << 20, b"one\ntwo\n");
        let log = Arc::new(log);
        let query = JournalQuery::default().with_lines(1).with_follow(follow);
        let mut journal = journal::read(&log, &query).expect("it can be read");
        if follow {
            assert!(journal.next_line().await.is_some(), "it has a line");
        }
        directory.close().expect("it can be removed");
        while journal.next_line().await.is_some() {}
        assert!(journal.failure().is_none(), "follow: {follow}");
    }
}

#[test]
fn log_with_longest_file_name_works() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("x".repeat(255));
    let log = Log::open(path.clone(), 400).expect("a file can be made");
    let text = b"line 00\n".repeat(100);
    append(&path).and_then(|mut file| file.write_all(&text)).expect("it can be written");
    log.limit_length(Some(800)).expect("it is cut");
    assert_eq!((all(&log).len(), log.end().expect("it is there")), (192, 800));
    let next = Log::open(path.clone(), 400).expect("it is there");
    assert_eq!(all(&next).len(), 192);
    Log::remove(&path).expect("it can be removed");
    assert!(!path.exists());
}

/// The log is far below its own limit, but it must not reach the file size limit of the unit.
/// Otherwise the kernel would kill the unit.
#[test]
fn file_size_limit_cuts_log_at_once_and_later() {
    let (_directory, log) = log(1 << 20, &b"sixteen letters\n".repeat(100));
    let length = || std::fs::metadata(log.path()).expect("it is there").len();
    log.limit_length(Some(800)).expect("it can be done");
    assert_eq!((length(), log.floor()), (192, 1408));
    for _ in 0..100 {
        log.note("more").and_then(|()| log.check()).expect("it can be written");
        if log.exceeds_limit() {
            log.trim().expect("it can be done");
        }
        assert!(length() <= 400, "{}", length());
    }
    log.limit_length(None).and_then(|()| log.note(&"x".repeat(800))).expect("it is written");
    assert!(log.check().is_ok() && !log.exceeds_limit(), "nothing bounds it any more");
}

/// Whether the log's file system supports holes. Without them logs are cut.
fn knows_holes(log: &Log) -> bool {
    append(log.path()).and_then(|file| punch_hole(&file, 1)).expect("it can be tried")
}

/// A rotation keeps the same file, which then takes no more disk space than its stored part.
#[test]
fn rotation_frees_disk_space() {
    use std::os::unix::fs::MetadataExt as _;
    let (_directory, log) = log(1 << 20, &b"sixteen letters\n".repeat(1 << 18));
    if !knows_holes(&log) {
        return;
    }
    let before = std::fs::metadata(log.path()).expect("it is there");
    log.trim().expect("it can be done");
    let after = std::fs::metadata(log.path()).expect("it is there");
    assert_eq!(after.ino(), before.ino());
    assert!(after.blocks() * 512 <= 1 << 20, "{} bytes", after.blocks() * 512);
    assert_eq!(all(&log).len(), (1 << 19) - 16);
}

#[test]
fn rotation_loses_no_concurrent_write() {
    let (_directory, log) = log(1000, b"");
    if !knows_holes(&log) {
        return;
    }
    let path = log.path().clone();
    let writer = std::thread::spawn(move || {
        let mut file = append(&path).expect("it is there");
        for number in 0..20_000 {
            file.write_all(format!("line {number:06}\n").as_bytes()).expect("it is written");
        }
    });
    while !writer.is_finished() {
        log.trim().expect("it can be done");
    }
    writer.join().expect("it has written all");
    let (kept, end) = (all(&log), log.end().expect("it is there"));
    let lines: Vec<&str> = kept.lines().collect();
    let first = 20_000 - lines.len();
    let expected: Vec<String> = (first..20_000).map(|it| format!("line {it:06}")).collect();
    assert_eq!((lines, end), (expected.iter().map(String::as_str).collect(), 240_000));
}

/// A line that is appended during a cut may be lost, but must never come before older text. That
/// would shift the offsets. So the kept part is written before the file is truncated. The test
/// observes this order with a file that cannot be truncated.
#[test]
fn cut_writes_kept_part_before_truncating() {
    let file = memfd_create("log", MemfdFlags::ALLOW_SEALING).expect("there is memory");
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("it is our own");
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("log");
    let memory = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::os::unix::fs::symlink(memory, &path).expect("it can be created");
    let log = Log::open(path, 1 << 20).expect("it is there");
    let lines: String = (0..100).map(|number| format!("line {number:02}\n")).collect();
    append(log.path()).and_then(|mut file| file.write_all(lines.as_bytes())).expect("written");
    log.limit_length(Some(800)).expect_err("it cannot be shortened");
    let text = std::fs::read_to_string(log.path()).expect("it can be read");
    let (half, rest) = (&lines[608..], &lines[192..]);
    assert_eq!(text, format!("{half}{rest}"));
}

/// A log rotated with a small limit is opened with a larger one, and then cut. The cut must keep
/// the stored lines, and not the hole before them.
#[test]
fn raised_length_limit_leaves_no_hole() {
    let (_directory, log) = log(1000, &b"sixteen letters\n".repeat(1 << 14));
    if !knows_holes(&log) {
        return;
    }
    log.trim().expect("it can be done");
    let (kept, next) = (all(&log), Log::open(log.path().clone(), 1 << 20).expect("it is there"));
    next.limit_length(Some(400_000)).expect("it is cut");
    assert_eq!(all(&next), kept);
}

/// The new file may have the inode number of the old one, since the kernel reuses numbers.
#[test]
fn recreated_log_is_a_new_file() {
    let (directory, log) = log(1 << 20, b"one\n");
    assert_eq!(log.check().expect("it is there"), 4);
    let aside = directory.path().join("aside");
    std::fs::rename(log.path(), &aside).expect("it can be moved");
    log.check().expect_err("it is not there");
    std::fs::rename(&aside, log.path()).expect("it can be moved");
    assert_eq!((log.check().expect("it is there"), log.floor()), (8, 4));
}

/// Later lines with the same text have other offsets.
#[test]
fn truncated_or_replaced_log_continues_offsets() {
    let text = b"tick tick tick!\n".repeat(20);
    let (directory, log) = log(1 << 20, &text);
    let position = LogCursor::new(160, &text[..160]);
    let find = |log: &Log| {
        let (kept, end) = log.tail(None, None).expect("it can be read");
        position.find(&kept, end - kept.len() as u64)
    };
    assert_eq!(find(&log), Some(160));
    let write = || append(log.path()).and_then(|mut file| file.write_all(&text)).expect("written");
    append(log.path()).and_then(|file| file.set_len(0)).expect("it can be emptied");
    let read = log.read_from(320).expect("it can be read");
    assert_eq!(read, (Vec::new(), 320), "nothing is there yet");
    write();
    assert_eq!(log.read_from(320).expect("it can be read"), (text.clone(), 640));
    assert_eq!(find(&log), None, "that line is gone");

    std::fs::rename(log.path(), directory.path().join("old")).expect("it can be moved");
    log.check().expect_err("it is not there");
    write();
    assert_eq!(log.read_from(640).expect("it can be read"), (text.clone(), 960));
    assert_eq!((find(&log), log.floor()), (None, 640));
    let next = Log::open(log.path().clone(), 1 << 20).expect("it is there");
    assert_eq!((find(&next), next.floor()), (None, 640), "the next daemon knows it, too");
}

/// A unit opens its log again without `O_APPEND`, as a shell does for `exec >/dev/stderr`.
#[test]
fn truncating_unit_gets_no_extra_lines() {
    let (_directory, log) = log(1 << 20, b"one\ntwo\nthree\n");
    log.check().expect("it is there");
    let mut written = File::create(log.path()).expect("it can be emptied");
    let mut read = String::new();
    let mut offset = 14;
    for line in ["four\n", "five\n"] {
        log.check().expect("it is there");
        written.write_all(line.as_bytes()).expect("it can be written");
        let (more, next) = log.read_from(offset).expect("it can be read");
        (read, offset) = (read + &String::from_utf8_lossy(&more), next);
    }
    assert_eq!((read.as_str(), all(&log).as_str()), ("four\nfive\n", "four\nfive\n"));
}

/// A unit may clear `O_APPEND` and then write into the hole.
#[test]
fn writes_into_the_hole_are_freed_again() {
    let (_directory, log) = log(1 << 20, &b"sixteen letters\n".repeat(2 << 20));
    if !knows_holes(&log) {
        return;
    }
    log.trim().expect("it can be done");
    let (floor, kept) = (log.floor(), all(&log));
    for _ in 0..2 {
        let file = File::options().write(true).open(log.path()).expect("it is there");
        file.write_all_at(&vec![b'x'; 24 << 20], 0).and_then(|()| log.check()).expect("written");
        assert!(log.exceeds_limit() && !log.is_held());
        log.trim().and_then(|()| log.check()).expect("it can be done");
        assert!(!log.exceeds_limit());
        let allocated = std::fs::metadata(log.path()).expect("it is there").blocks() * 512;
        assert!(allocated <= 1 << 20, "{allocated} bytes");
        assert_eq!((log.floor(), all(&log) == kept), (floor, true));
    }
}

/// A reader gets all lines, even if the log exceeds its limit meanwhile. Lines are dropped only
/// once they are read.
#[test]
fn unread_part_is_kept() {
    for is_cut in [false, true] {
        let lines: String = (0..100).map(|number| format!("line {number:02}\n")).collect();
        let (_directory, log) = log(400, b"");
        log.limit_length(is_cut.then_some(800)).expect("it can be done");
        let reading = log.read_lock(0);
        append(log.path()).and_then(|mut it| it.write_all(lines.as_bytes())).expect("written");
        log.trim().expect("it can be done");
        assert_eq!(log.read_from(0).expect("it is read").0, lines.as_bytes(), "cut: {is_cut}");
        // The offset is within a line, which is kept completely.
        reading.advance(500);
        log.trim().expect("it can be done");
        assert_eq!((log.floor(), all(&log)), (496, lines[496..].to_owned()), "cut: {is_cut}");
        reading.advance(800);
        log.trim().expect("it can be done");
        assert_eq!(log.floor(), 496, "it is short enough");
        drop(log.read_lock(0));
        append(log.path()).and_then(|mut it| it.write_all(lines.as_bytes())).expect("written");
        log.trim().expect("it can be done");
        assert_eq!(log.floor(), 1408, "the reader is gone");
    }
}

#[test]
fn open_last_line_is_ended_once() {
    for (before, after) in [(&b""[..], ""), (b"one\n", "one\n"), (b"one", "one\n")] {
        let (_directory, log) = log(1 << 20, before);
        log.end_line().and_then(|()| log.end_line()).expect("it can be written");
        assert_eq!(all(&log), after);
    }
    let (_directory, log) = log(1 << 20, b"one");
    log.note("cannot run it").expect("it can be written");
    assert_eq!(all(&log), "one\nfleet: cannot run it\n");
}
