//! Tests of reading `journalctl` output.

use super::*;
use crate::SystemClock;

#[test]
fn entry_is_split_into_lines() {
    let rows: [(&str, &[&str]); 8] = [
        (r#"{"MESSAGE":"one"}"#, &["one"]),
        (r#"{"MESSAGE":""}"#, &[""]),
        (r#"{"MESSAGE":"one\ntwo\r\n"}"#, &["one", "two"]),
        (r#"{"MESSAGE":[111,110,255]}"#, &["on\u{fffd}"]),
        (r#"{"MESSAGE":["one",[116]]}"#, &["one", "t"]),
        (r#"{"MESSAGE":null}"#, &[]),
        (r#"{"__CURSOR":"x"}"#, &[]),
        (r#"{"MESSAGE":"cut of"#, &[TOO_LONG]),
    ];
    for (entry, expected) in rows {
        assert_eq!(read_entry(entry.as_bytes()).texts, expected, "{entry}");
    }
}

#[test]
fn entry_timestamp_is_parsed() {
    let entry = br#"{"__REALTIME_TIMESTAMP":"1395716396250999","MESSAGE":"one"}"#;
    assert_eq!(read_entry(entry).at, Some(Timestamp::from_millis(1_395_716_396_250)));
    let entry = br#"{"__REALTIME_TIMESTAMP":"soon","MESSAGE":"one"}"#;
    assert_eq!(read_entry(entry).at, None);
}

#[tokio::test]
async fn oversized_entry_is_replaced() {
    let long = "\\\"__CURSOR\\\":".repeat(usize::try_from(MAX_ENTRY).expect("it is small") / 9);
    let rows = [
        format!(r#"{{"__CURSOR":"i=7","MESSAGE":"{long}"}}"#),
        format!(r#"{{"MESSAGE":"{long}","__CURSOR":"i=7"}}"#),
    ];
    for entry in rows {
        let text = format!("{{\"MESSAGE\":\"a\"}}\n{entry}\n{{\"MESSAGE\":\"b\"}}");
        let mut output = BufReader::new(text.as_bytes());
        let mut found = Vec::new();
        while let Some(entry) = next_entry(&mut output).await.expect("memory can be read") {
            found.push(read_entry(&entry));
        }
        let texts: Vec<_> = found.iter().flat_map(|entry| &entry.texts).collect();
        assert!(texts == ["a", TOO_LONG, "b"]);
        assert_eq!(found[1].cursor, "i=7", "it is gone on after");
    }
}

/// Reads from a program that runs in place of journalctl, for a unit that is already gone. Returns
/// the number of lines and the result.
async fn fed(program: &str, follow: bool) -> (usize, std::io::Result<()>) {
    let mut command = Command::new("sh");
    command.args(["-c", program]).stdout(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().expect("there is a shell");
    let (sender, mut lines) = mpsc::channel(1);
    let wanted = LineSelection { from: StartAt::Last { lines: None, since: None }, follow };
    let clock = SystemClock::start();
    let feeding = async move { feed(child, wanted, &sender, &clock, async {}).await };
    let counting = async {
        let mut count = 0;
        while lines.recv().await.is_some() {
            count += 1;
        }
        count
    };
    let (fed, count) = tokio::join!(feeding, counting);
    (count, fed)
}

#[tokio::test]
async fn lines_before_unload_are_returned() {
    let program = r#"yes '{"MESSAGE":"a"}' | head -n 5000; exec sleep 1000"#;
    let (count, fed) = fed(program, true).await;
    fed.expect("it is killed");
    assert_eq!(count, 5000);
    let later = r#"echo '{"__REALTIME_TIMESTAMP":"9999999999000000","MESSAGE":"a"}'; exec sleep 9"#;
    assert_eq!(self::fed(later, true).await.0, 0, "it is of another unit");
}

#[tokio::test]
async fn journalctl_exit_breaks_followed_journal() {
    let program = r#"echo '{"MESSAGE":"a"}'"#;
    let (count, whole) = fed(program, false).await;
    assert!(whole.is_ok() && count == 1, "{whole:?}");
    let (count, broken) = fed(program, true).await;
    assert!(broken.is_err() && count == 1, "{broken:?}");
    let (_, broken) = fed("kill -9 $$", false).await;
    assert!(broken.is_err(), "{broken:?}");
}

#[test]
fn journalctl_arguments_match_selection() {
    let unit: UnitName = "a.service".parse().expect("it is a name");
    let all = "--no-pager --quiet --all --output=json --output-fields=MESSAGE";
    let since = Some(Timestamp::from_millis(1_395_716_396_007));
    let last = |lines| LineSelection { from: StartAt::Last { lines, since }, follow: true };
    assert_eq!(
        arguments(SystemdScope::System, &unit, &last(Some(2))).join(" "),
        format!("{all} --lines=2 --follow _SYSTEMD_UNIT=a.service")
    );
    let user = rustix::process::getuid().as_raw();
    let wanted = LineSelection { follow: false, ..last(None) };
    assert_eq!(
        arguments(SystemdScope::User, &unit, &wanted).join(" "),
        format!(
            "{all} --lines=all --since=@1395716396.007 _SYSTEMD_USER_UNIT=a.service _UID={user}"
        )
    );
    let rows = [
        ("s=a;i=1/3", "--lines=all --cursor=s=a;i=1 --follow _SYSTEMD_UNIT=a.service"),
        ("s=a --until=1", "--lines=all --follow _SYSTEMD_UNIT=a.service"),
    ];
    for (cursor, expected) in rows {
        let wanted = LineSelection::new(
            JournalQuery::default().with_after(cursor.to_owned()).with_follow(true),
        );
        let found = arguments(SystemdScope::System, &unit, &wanted).join(" ");
        assert_eq!(found, format!("{all} {expected}"));
    }
}

#[test]
fn invalid_cursor_is_not_passed_on() {
    let cursor = "s=0a;i=1f;b=0;m=7;t=5;x=9";
    let position = |lines| Some(LineCursor { cursor: cursor.to_owned(), lines });
    assert_eq!(LineCursor::read(cursor), position(None));
    assert_eq!(LineCursor::read(&format!("{cursor}/2")), position(Some(2)));
    for text in ["", "s", "s=", "s=g", "y=1", "s=1;", "s=1/", "s=1/x", "s=1/1/1", "7.4.aa"] {
        assert_eq!(LineCursor::read(text), None, "{text}");
    }
}

/// Returns the lines after this cursor. The journal has two entries of two lines each: `a1` and
/// `a2` at the cursor `i=1`, and `b1` and `b2` at `i=2`.
fn after(cursor: &str) -> Vec<String> {
    let mut filter = LineFilter(
        LineSelection::new(JournalQuery::default().with_after(cursor.to_owned()).with_follow(true))
            .from,
    );
    let entry = |cursor: &str, text: &str| {
        let texts = vec![format!("{text}1"), format!("{text}2")];
        JournalEntry { cursor: cursor.to_owned(), at: None, texts }
    };
    let mut lines = filter.lines(entry("i=1", "a"));
    lines.extend(filter.lines(entry("i=2", "b")));
    lines.into_iter().map(|line| line.text).collect()
}

#[test]
fn reading_resumes_after_cursor() {
    let gap = JournalLine::gap().text;
    assert_eq!(after("i=1"), ["b1", "b2"]);
    assert_eq!(after("i=1/1"), ["a2", "b1", "b2"]);
    assert_eq!(after("i=1/9"), ["b1", "b2"]);
    assert_eq!(after("i=0"), [&*gap, "a1", "a2", "b1", "b2"], "it is not there any more");
    assert_eq!(after("?"), [&*gap, "a1", "a2", "b1", "b2"]);
}

#[test]
fn lines_have_cursors_of_their_entry() {
    let entry = br#"{"__CURSOR":"i=7","MESSAGE":"one\ntwo"}"#;
    let places: Vec<_> = read_entry(entry).lines().into_iter().map(|l| l.cursor).collect();
    assert_eq!(places, [Some("i=7/1".to_owned()), Some("i=7".to_owned())]);
}
