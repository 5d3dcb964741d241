//! The output of a unit, read by `journalctl` as a child process.

use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_unitfile::UnitName;
use serde::Deserialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::config::SystemdScope;
use super::context::io_error;
use super::nudge::JournalFollower;
use crate::{Clock, Journal, JournalLine, JournalQuery, ServiceError, wall_time};

/// The longest entry that is read. What a message has of bytes may take four times as many.
const MAX_ENTRY: u64 = 1024 * 1024;

/// How much is kept of the end of one that is longer: what is not its message stands before or
/// after that.
const TAIL: usize = 4096;

/// How long the last lines of a unit may take until they are in the journal.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Stands in a journal for an entry that is longer.
const TOO_LONG: &str = "[a message too long to be shown]";

/// Which lines are wanted.
#[derive(Debug, Clone)]
pub(crate) struct LineSelection {
    pub(crate) from: StartAt,
    pub(crate) follow: bool,
}

/// From where on they are wanted.
#[derive(Debug, Clone)]
pub(crate) enum StartAt {
    /// The last ones, none of them from before that moment.
    Last { lines: Option<usize>, since: Option<Timestamp> },
    /// Those after a line; all, where nothing is known of it.
    After(Option<LineCursor>),
}

impl LineSelection {
    pub(crate) fn new(query: JournalQuery) -> Self {
        let JournalQuery { lines, since, follow } = query;
        // Of what is to come everything is wanted, and it may come before journalctl has begun.
        let since = since.map(|since| since.min(wall_time()));
        Self { from: StartAt::Last { lines, since }, follow }
    }

    pub(crate) fn after(cursor: &str, follow: bool) -> Self {
        Self { from: StartAt::After(LineCursor::read(cursor)), follow }
    }
}

/// Starts to read the output of a unit. It ends with the reader, or with the last line from before
/// `over` was ready, and so does what is held for it.
pub(crate) fn read(
    scope: SystemdScope,
    unit: &UnitName,
    wanted: LineSelection,
    following: Option<Arc<JournalFollower>>,
    clock: Arc<dyn Clock>,
    over: impl Future<Output = ()> + Send + 'static,
) -> Result<Journal, ServiceError> {
    let mut command = Command::new("journalctl");
    command.args(arguments(scope, unit, &wanted));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let child = command.spawn().map_err(io_error("run journalctl"))?;
    let (sender, broken, journal) = Journal::fallible();
    let unit = unit.clone();
    tokio::spawn(async move {
        if let Err(error) = feed(child, wanted, &sender, &*clock, over).await {
            tracing::warn!(%unit, %error, "a journal ends early");
            // Where the reader has gone, nobody asks why.
            drop(broken.send(io_error("read the journal")(error)));
        }
        drop(following);
    });
    Ok(journal)
}

/// What the unit's own processes wrote. What systemd itself says of the unit is told by its state.
fn arguments(scope: SystemdScope, unit: &UnitName, wanted: &LineSelection) -> Vec<String> {
    let mut arguments =
        ["--no-pager", "--quiet", "--all", "--output=json", "--output-fields=MESSAGE"]
            .map(str::to_owned)
            .to_vec();
    let all = "--lines=all".to_owned();
    match &wanted.from {
        // Of the two options the one or the other wins, by the version; so it gets but one.
        StartAt::Last { lines: Some(lines), .. } => arguments.push(format!("--lines={lines}")),
        StartAt::Last { lines: None, since: Some(since) } => {
            let millis = since.as_millis();
            arguments.extend([all, format!("--since=@{}.{:03}", millis / 1000, millis % 1000)]);
        }
        StartAt::Last { lines: None, since: None } | StartAt::After(None) => arguments.push(all),
        // With the entry itself: where it is the first that comes, nothing is missing.
        StartAt::After(Some(place)) => {
            arguments.extend([all, format!("--cursor={}", place.cursor)])
        }
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
    wanted: LineSelection,
    sender: &mpsc::Sender<JournalLine>,
    clock: &dyn Clock,
    over: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let Some(output) = child.stdout.take() else { return Ok(()) };
    let (mut filter, mut output) = (LineFilter(wanted.from), BufReader::new(output));
    let (mut over, mut until) = (pin!(over), None);
    'entries: loop {
        let mut next = pin!(next_entry(&mut output));
        // What is there is told first: a slow reader may be far behind when the unit has gone.
        let entry = loop {
            tokio::select! {
                biased;
                () = sender.closed() => break 'entries,
                entry = &mut next => break entry?,
                () = &mut over, if until.is_none() => until = Some(wall_time().after(LAST_LINES)),
                () = clock.sleep(LAST_LINES), if until.is_some() => break 'entries,
            }
        };
        let Some(entry) = entry else { return ended(child, wanted.follow).await };
        let entry = read_entry(&entry);
        // It is of another unit of that name.
        if until.is_some_and(|until| entry.at.is_some_and(|at| at > until)) {
            break;
        }
        for line in filter.lines(entry) {
            if sender.send(line).await.is_err() {
                break 'entries;
            }
        }
    }
    // It may have ended already, which is as good.
    drop(child.start_kill());
    child.wait().await.map(drop)
}

/// It has ended by itself. One that follows never should, and none by a signal.
async fn ended(mut child: Child, follows: bool) -> std::io::Result<()> {
    let status = child.wait().await?;
    match follows || status.signal().is_some() {
        true => Err(std::io::Error::other(format!("journalctl ended: {status}"))),
        false => Ok(()),
    }
}

/// Lets through what is wanted, and says where something may be missing.
struct LineFilter(StartAt);

impl LineFilter {
    fn lines(&mut self, entry: JournalEntry) -> Vec<JournalLine> {
        let at = entry.at;
        // All that follow the first one that is wanted are later, whatever becomes of the clock.
        let all = StartAt::Last { lines: None, since: None };
        match &self.0 {
            StartAt::Last { since: Some(since), .. } if at.is_some_and(|at| at < *since) => {
                Vec::new()
            }
            StartAt::Last { .. } => {
                self.0 = if at.is_some() { all } else { self.0.clone() };
                entry.lines()
            }
            StartAt::After(place) => {
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
pub(crate) struct LineCursor {
    cursor: String,
    lines: Option<usize>,
}

impl LineCursor {
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
    let mut limited = (&mut *output).take(MAX_ENTRY);
    limited.read_until(b'\n', &mut entry).await?;
    if entry.last() == Some(&b'\n') || (entry.len() as u64) < MAX_ENTRY {
        return Ok(Some(entry).filter(|entry| !entry.is_empty()));
    }
    // No JSON has that, so what is left of it is not taken for the whole.
    entry.push(b'\0');
    skip_line(output, &mut entry).await?;
    Ok(Some(entry))
}

/// Reads up to the end of the line, and keeps but the last of it.
async fn skip_line(
    output: &mut (impl AsyncBufRead + Unpin),
    entry: &mut Vec<u8>,
) -> std::io::Result<()> {
    let kept = entry.len();
    loop {
        let buffer = output.fill_buf().await?;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        let is_over = end.is_some() || buffer.is_empty();
        entry.extend_from_slice(&buffer[..used]);
        entry.drain(kept..entry.len().saturating_sub(TAIL).max(kept));
        output.consume(used);
        if is_over {
            return Ok(());
        }
    }
}

#[derive(Deserialize)]
struct RawEntry {
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
struct JournalEntry {
    cursor: String,
    at: Option<Timestamp>,
    texts: Vec<String>,
}

impl JournalEntry {
    fn lines(self) -> Vec<JournalLine> {
        let Self { cursor, at, texts } = self;
        let (last, cursor) = (texts.len(), Some(cursor).filter(|cursor| !cursor.is_empty()));
        let place = |number: usize| {
            let cursor = cursor.as_ref()?;
            Some(if number == last { cursor.clone() } else { format!("{cursor}/{number}") })
        };
        let numbered = (1..).zip(texts);
        numbered.map(|(number, text)| JournalLine { at, text, cursor: place(number) }).collect()
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

fn read_entry(entry: &[u8]) -> JournalEntry {
    let read = serde_json::from_slice(entry).map(|entry: RawEntry| {
        let texts = entry.message.map(lines).unwrap_or_default();
        (entry.cursor, entry.at, texts)
    });
    let (cursor, at, texts) = read.unwrap_or_else(|_| {
        let cursor = field(entry, "__CURSOR").unwrap_or_default();
        (cursor, field(entry, "__REALTIME_TIMESTAMP"), vec![TOO_LONG.to_owned()])
    });
    let micros = at.and_then(|at| at.parse::<u64>().ok());
    let at = micros.map(|micros| Timestamp::from_millis(micros / 1000));
    JournalEntry { cursor, at, texts }
}

/// A field of an entry of which a part is missing. No message can have what looks like one: its
/// quotes are escaped.
fn field(entry: &[u8], name: &str) -> Option<String> {
    let begin = format!("\"{name}\":\"");
    let found = entry.windows(begin.len()).position(|part| part == begin.as_bytes())?;
    let rest = &entry[found + begin.len()..];
    let end = rest.iter().position(|&byte| byte == b'"')?;
    String::from_utf8(rest[..end].to_vec()).ok()
}

fn lines(message: Message) -> Vec<String> {
    let text = message.text();
    let text = text.strip_suffix('\n').unwrap_or(&text);
    text.split('\n').map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

#[cfg(test)]
mod tests;
