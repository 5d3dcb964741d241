//! The output of a unit, read by `journalctl` as a child process.

use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_unitfile::UnitName;
use serde::Deserialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::config::SystemdScope;
use super::machine::io_error;
use super::nudge::Following;
use crate::{Journal, JournalLine, JournalQuery, ServiceError, wall_time};

/// The longest entry that is read. What a message has of bytes may take four times as many.
const LONGEST_ENTRY: u64 = 1024 * 1024;

/// Stands in a journal for an entry that is longer.
const TOO_LONG: &str = "[a message too long to be shown]";

/// Which lines are wanted.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) from: From,
    pub(crate) follow: bool,
}

/// From where on they are wanted.
#[derive(Debug, Clone)]
pub(crate) enum From {
    /// The last ones, none of them from before that moment.
    Last { lines: Option<usize>, since: Option<Timestamp> },
    /// Those after a line; all, where nothing is known of it.
    After(Option<Place>),
}

impl Wanted {
    pub(crate) fn new(query: JournalQuery) -> Self {
        let JournalQuery { lines, since, follow } = query;
        // Of what is to come everything is wanted, and it may come before journalctl has begun.
        let since = since.map(|since| since.min(wall_time()));
        Self { from: From::Last { lines, since }, follow }
    }

    pub(crate) fn after(position: &str, follow: bool) -> Self {
        Self { from: From::After(Place::read(position)), follow }
    }
}

/// Starts to read the output of a unit. It ends with the reader or when `over` is ready, and so
/// does what is held for it.
pub(crate) fn read(
    scope: SystemdScope,
    unit: &UnitName,
    wanted: Wanted,
    following: Option<Arc<Following>>,
    over: impl Future<Output = ()> + Send + 'static,
) -> Result<Journal, ServiceError> {
    let mut command = Command::new("journalctl");
    command.args(arguments(scope, unit, &wanted));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let child = command.spawn().map_err(io_error("run journalctl"))?;
    let (sender, journal) = Journal::channel();
    let unit = unit.clone();
    tokio::spawn(async move {
        if let Err(error) = feed(child, Sieve(wanted.from), sender, over).await {
            tracing::warn!(%unit, %error, "a journal ends early");
        }
        drop(following);
    });
    Ok(journal)
}

/// What the unit's own processes wrote. What systemd itself says of the unit is told by its state.
fn arguments(scope: SystemdScope, unit: &UnitName, wanted: &Wanted) -> Vec<String> {
    let mut arguments =
        ["--no-pager", "--quiet", "--all", "--output=json", "--output-fields=MESSAGE"]
            .map(str::to_owned)
            .to_vec();
    let all = "--lines=all".to_owned();
    match &wanted.from {
        // Of the two options the one or the other wins, by the version; so it gets but one.
        From::Last { lines: Some(lines), .. } => arguments.push(format!("--lines={lines}")),
        From::Last { lines: None, since: Some(since) } => {
            let millis = since.as_millis();
            arguments.extend([all, format!("--since=@{}.{:03}", millis / 1000, millis % 1000)]);
        }
        From::Last { lines: None, since: None } | From::After(None) => arguments.push(all),
        // With the entry itself: where it is the first that comes, nothing is missing.
        From::After(Some(place)) => arguments.extend([all, format!("--cursor={}", place.cursor)]),
    }
    if wanted.follow {
        arguments.push("--follow".to_owned());
    }
    match scope {
        SystemdScope::System => arguments.push(format!("_SYSTEMD_UNIT={unit}")),
        SystemdScope::User => {
            arguments.push(format!("_SYSTEMD_USER_UNIT={unit}"));
            arguments.push(format!("_UID={}", rustix::process::getuid().as_raw()));
        }
    }
    arguments
}

async fn feed(
    mut child: Child,
    mut sieve: Sieve,
    sender: mpsc::Sender<JournalLine>,
    over: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let Some(output) = child.stdout.take() else { return Ok(()) };
    let mut over = pin!(over);
    let mut output = BufReader::new(output);
    'entries: loop {
        let entry = tokio::select! {
            () = sender.closed() => break,
            () = &mut over => break,
            entry = next_entry(&mut output) => entry?,
        };
        let Some(entry) = entry else { break };
        for line in sieve.lines(read_entry(&entry)) {
            if sender.send(line).await.is_err() {
                break 'entries;
            }
        }
    }
    // It may have ended already, which is as good.
    drop(child.start_kill());
    child.wait().await.map(drop)
}

/// Lets through what is wanted, and says where something may be missing.
struct Sieve(From);

impl Sieve {
    fn lines(&mut self, entry: Told) -> Vec<JournalLine> {
        let at = entry.at;
        // All that follow the first one that is wanted are later, whatever becomes of the clock.
        let all = From::Last { lines: None, since: None };
        match &self.0 {
            From::Last { since: Some(since), .. } if at.is_some_and(|at| at < *since) => Vec::new(),
            From::Last { .. } => {
                self.0 = if at.is_some() { all } else { self.0.clone() };
                entry.lines()
            }
            From::After(place) => {
                let told = place.as_ref().filter(|place| entry.cursor == place.cursor);
                let mut lines = entry.lines();
                match told.map(|place| place.lines.unwrap_or(lines.len()).min(lines.len())) {
                    Some(told) => drop(lines.drain(..told)),
                    None => lines.insert(0, JournalLine::gap()),
                }
                self.0 = all;
                lines
            }
        }
    }
}

/// Where a line is: the cursor of its entry, and where the entry has more lines after it, how many
/// of them there are up to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    cursor: String,
    lines: Option<usize>,
}

impl Place {
    /// A cursor has no slash.
    fn read(text: &str) -> Option<Self> {
        let (cursor, lines) = match text.split_once('/') {
            Some((cursor, lines)) => (cursor, Some(lines.parse().ok()?)),
            None => (text, None),
        };
        let is_known = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or_default();
            let is_hex = |byte: u8| byte.is_ascii_hexdigit();
            matches!(name, "s" | "i" | "b" | "m" | "t" | "x")
                && (1..=32).contains(&value.len())
                && value.bytes().all(is_hex)
        };
        // journalctl takes nothing else, and shows nothing then.
        let is_cursor = cursor.split(';').all(is_known) && cursor.split(';').count() <= 6;
        is_cursor.then(|| Self { cursor: cursor.to_owned(), lines })
    }
}

/// The next entry, with the end of its line if it is whole; `None` when there is no more.
async fn next_entry(output: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let mut entry = Vec::new();
    let mut limited = (&mut *output).take(LONGEST_ENTRY);
    limited.read_until(b'\n', &mut entry).await?;
    if entry.last() == Some(&b'\n') || (entry.len() as u64) < LONGEST_ENTRY {
        return Ok(Some(entry).filter(|entry| !entry.is_empty()));
    }
    skip_line(output).await?;
    Ok(Some(entry))
}

async fn skip_line(output: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<()> {
    loop {
        let buffer = output.fill_buf().await?;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        let is_over = end.is_some() || buffer.is_empty();
        output.consume(used);
        if is_over {
            return Ok(());
        }
    }
}

#[derive(Deserialize)]
struct Entry {
    /// Where it is. It comes with every entry, as does the moment.
    #[serde(rename = "__CURSOR", default)]
    cursor: String,
    /// In microseconds.
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    at: Option<String>,
    #[serde(rename = "MESSAGE")]
    message: Option<Message>,
}

/// What an entry tells: when it was written, if that can be read, and its lines.
struct Told {
    cursor: String,
    at: Option<Timestamp>,
    texts: Vec<String>,
}

impl Told {
    fn lines(self) -> Vec<JournalLine> {
        let Self { cursor, at, texts } = self;
        let (last, cursor) = (texts.len(), Some(cursor).filter(|cursor| !cursor.is_empty()));
        let place = |number: usize| {
            let cursor = cursor.as_ref()?;
            Some(if number == last { cursor.clone() } else { format!("{cursor}/{number}") })
        };
        let numbered = (1..).zip(texts);
        numbered.map(|(number, text)| JournalLine { at, text, position: place(number) }).collect()
    }
}

/// A message that is no text comes as bytes, and one that was given twice as a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Text(String),
    Bytes(Vec<u8>),
    Several(Vec<Self>),
}

impl Message {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Self::Several(all) => all.into_iter().map(Self::text).collect::<Vec<_>>().join("\n"),
        }
    }
}

fn read_entry(entry: &[u8]) -> Told {
    let Ok(Entry { cursor, at, message }) = serde_json::from_slice(entry) else {
        return Told { cursor: String::new(), at: None, texts: vec![TOO_LONG.to_owned()] };
    };
    let micros = at.and_then(|at| at.parse::<u64>().ok());
    let at = micros.map(|micros| Timestamp::from_millis(micros / 1000));
    Told { cursor, at, texts: message.map(lines).unwrap_or_default() }
}

fn lines(message: Message) -> Vec<String> {
    let text = message.text();
    let text = text.strip_suffix('\n').unwrap_or(&text);
    text.split('\n').map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_lines() {
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
    fn an_entry_has_its_moment() {
        let entry = br#"{"__REALTIME_TIMESTAMP":"1395716396250999","MESSAGE":"one"}"#;
        assert_eq!(read_entry(entry).at, Some(Timestamp::from_millis(1_395_716_396_250)));
        let entry = br#"{"__REALTIME_TIMESTAMP":"soon","MESSAGE":"one"}"#;
        assert_eq!(read_entry(entry).at, None);
    }

    #[tokio::test]
    async fn an_entry_that_is_too_long_is_passed_over() {
        let long = vec![b'x'; usize::try_from(LONGEST_ENTRY).expect("it is small") + 7];
        let text = [b"{\"MESSAGE\":\"a\"}\n", &*long, b"\n{\"MESSAGE\":\"b\"}"].concat();
        let mut output = BufReader::new(&*text);
        let mut found = Vec::new();
        while let Some(entry) = next_entry(&mut output).await.expect("memory can be read") {
            found.extend(read_entry(&entry).texts);
        }
        assert_eq!(found, ["a", TOO_LONG, "b"]);
    }

    #[test]
    fn the_arguments_say_what_is_asked() {
        let unit: UnitName = "a.service".parse().expect("it is a name");
        let all = "--no-pager --quiet --all --output=json --output-fields=MESSAGE";
        let since = Some(Timestamp::from_millis(1_395_716_396_007));
        let last = |lines| Wanted { from: From::Last { lines, since }, follow: true };
        assert_eq!(
            arguments(SystemdScope::System, &unit, &last(Some(2))).join(" "),
            format!("{all} --lines=2 --follow _SYSTEMD_UNIT=a.service")
        );
        let user = rustix::process::getuid().as_raw();
        let wanted = Wanted { follow: false, ..last(None) };
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
        for (position, expected) in rows {
            let wanted = Wanted::after(position, true);
            let found = arguments(SystemdScope::System, &unit, &wanted).join(" ");
            assert_eq!(found, format!("{all} {expected}"));
        }
    }

    #[test]
    fn what_is_no_cursor_is_not_asked_for() {
        let cursor = "s=0a;i=1f;b=0;m=7;t=5;x=9";
        let place = |lines| Some(Place { cursor: cursor.to_owned(), lines });
        assert_eq!(Place::read(cursor), place(None));
        assert_eq!(Place::read(&format!("{cursor}/2")), place(Some(2)));
        for text in ["", "s", "s=", "s=g", "y=1", "s=1;", "s=1/", "s=1/x", "s=1/1/1", "7.4.aa"] {
            assert_eq!(Place::read(text), None, "{text}");
        }
    }

    /// What comes of entries `a` and `b`, of two lines each, after that place.
    fn after(position: &str) -> Vec<String> {
        let mut sieve = Sieve(Wanted::after(position, true).from);
        let entry = |cursor: &str, text: &str| {
            let texts = vec![format!("{text}1"), format!("{text}2")];
            Told { cursor: cursor.to_owned(), at: None, texts }
        };
        let mut lines = sieve.lines(entry("i=1", "a"));
        lines.extend(sieve.lines(entry("i=2", "b")));
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn it_goes_on_after_the_line_that_was_told_last() {
        let gap = JournalLine::gap().text;
        assert_eq!(after("i=1"), ["b1", "b2"]);
        assert_eq!(after("i=1/1"), ["a2", "b1", "b2"]);
        assert_eq!(after("i=1/9"), ["b1", "b2"]);
        assert_eq!(after("i=0"), [&*gap, "a1", "a2", "b1", "b2"], "it is not there any more");
        assert_eq!(after("?"), [&*gap, "a1", "a2", "b1", "b2"]);
    }

    #[test]
    fn lines_have_the_place_of_their_entry() {
        let entry = br#"{"__CURSOR":"i=7","MESSAGE":"one\ntwo"}"#;
        let places: Vec<_> = read_entry(entry).lines().into_iter().map(|l| l.position).collect();
        assert_eq!(places, [Some("i=7/1".to_owned()), Some("i=7".to_owned())]);
    }
}
