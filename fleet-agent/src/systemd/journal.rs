//! The output of a unit, read by `journalctl` as a child process.

use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::journal::{JournalLine, JournalQuery};
use fleet_unitfile::UnitName;
use serde::Deserialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::SystemdScope;
use super::context::io_error;
use crate::journal::Journal;
use crate::{Clock, ServiceError, wall_time};

/// Maximum size in bytes of an entry that is read. An entry may be four times as long as its
/// message, because in JSON a message may be an array of bytes.
const MAX_ENTRY: u64 = 1024 * 1024;

/// Number of bytes kept from the end of an entry that is too long. They may contain the cursor and
/// the time, which come before or after the message.
const TAIL: usize = 4096;

/// Maximum time that the last lines of a unit take to reach the journal.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Replaces a longer entry in a journal.
const TOO_LONG: &str = "[a message too long to be shown]";

/// Selection of lines.
#[derive(Debug, Clone)]
pub(crate) struct LineSelection {
    pub(crate) from: StartAt,
    pub(crate) follow: bool,
}

/// First line of a selection.
#[derive(Debug, Clone)]
pub(crate) enum StartAt {
    /// The last lines, without those before `since`.
    Last { lines: Option<usize>, since: Option<Timestamp> },
    /// The lines after this one; all lines if the cursor is invalid.
    After(Option<LineCursor>),
}

impl LineSelection {
    pub(crate) fn new(query: JournalQuery) -> Self {
        let JournalQuery { after, lines, since, follow, .. } = query;
        if let Some(cursor) = after {
            return Self { from: StartAt::After(LineCursor::read(&cursor)), follow };
        }
        let now = wall_time();
        // Limited to the present: future lines are all wanted, and may be written before journalctl
        // has started.
        let since = since.map(|since| since.at(now).min(now));
        Self { from: StartAt::Last { lines, since }, follow }
    }
}

/// Starts journalctl to read the output of a unit. Reading ends when the reader is dropped, or once
/// `over` has completed and all lines written before that have been read.
pub(crate) fn read(
    scope: SystemdScope,
    unit: &UnitName,
    wanted: LineSelection,
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
            tracing::warn!(
                %unit,
                %error,
                "cannot read all of a unit's journal: a client receives only a part"
            );
            // If the reader is gone, the reason is dropped.
            drop(broken.send(io_error(format!("read the journal of {unit}"))(error)));
        }
    });
    Ok(journal)
}

/// Returns the arguments that select the output of the unit's own processes. Messages of systemd
/// about the unit are left out, because the unit's state contains the same information.
fn arguments(scope: SystemdScope, unit: &UnitName, wanted: &LineSelection) -> Vec<String> {
    let mut arguments =
        ["--no-pager", "--quiet", "--all", "--output=json", "--output-fields=MESSAGE"]
            .map(str::to_owned)
            .to_vec();
    let all = "--lines=all".to_owned();
    match &wanted.from {
        // With both options, the winner depends on the version of journalctl, so only one is
        // passed.
        StartAt::Last { lines: Some(lines), .. } => arguments.push(format!("--lines={lines}")),
        StartAt::Last { lines: None, since: Some(since) } => {
            let millis = since.as_millis();
            arguments.extend([all, format!("--since=@{}.{:03}", millis / 1000, millis % 1000)]);
        }
        StartAt::Last { lines: None, since: None } | StartAt::After(None) => arguments.push(all),
        // From the entry itself: if it is the first one returned, nothing is missing.
        StartAt::After(Some(position)) => {
            arguments.extend([all, format!("--cursor={}", position.cursor)]);
        }
    }
    if wanted.follow {
        arguments.push("--follow".to_owned());
    }
    let unit = unit.systemd_name();
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
        // Pending entries are read first: a slow reader may be far behind when the unit is gone.
        let entry = loop {
            tokio::select! {
                biased;
                () = sender.closed() => break 'entries,
                entry = &mut next => break entry?,
                () = &mut over, if until.is_none() => until = Some(wall_time().after(LAST_LINES)),
                () = clock.sleep(LAST_LINES), if until.is_some() => break 'entries,
            }
        };
        let Some(entry) = entry else { return check_exit(child, wanted.follow).await };
        let entry = read_entry(&entry);
        // The entry belongs to a later unit of the same name.
        if until.is_some_and(|until| entry.at.is_some_and(|at| at > until)) {
            break;
        }
        for line in filter.lines(entry) {
            if sender.send(line).await.is_err() {
                break 'entries;
            }
        }
    }
    // It may have exited already, which is fine.
    drop(child.start_kill());
    child.wait().await.map(drop)
}

/// Waits for the exit of journalctl. Returns an error if a signal killed journalctl. Any exit is an
/// error if the journal is followed, because journalctl then should run until it is killed.
async fn check_exit(mut child: Child, follows: bool) -> std::io::Result<()> {
    let status = child.wait().await?;
    match follows || status.signal().is_some() {
        true => Err(std::io::Error::other(format!("journalctl ended: {status}"))),
        false => Ok(()),
    }
}

/// Passes the selected lines on, and reports gaps.
struct LineFilter(StartAt);

impl LineFilter {
    fn lines(&mut self, entry: JournalEntry) -> Vec<JournalLine> {
        let at = entry.at;
        // Later entries are all selected, even if the clock is set back.
        let all = StartAt::Last { lines: None, since: None };
        match &self.0 {
            StartAt::Last { since: Some(since), .. } if at.is_some_and(|at| at < *since) => {
                Vec::new()
            }
            StartAt::Last { .. } => {
                self.0 = if at.is_some() { all } else { self.0.clone() };
                entry.lines()
            }
            StartAt::After(position) => {
                let returned = position.as_ref().filter(|position| entry.cursor == position.cursor);
                let mut lines = entry.lines();
                match returned
                    .map(|position| position.lines.unwrap_or(lines.len()).min(lines.len()))
                {
                    Some(returned) => drop(lines.drain(..returned)),
                    None => lines.insert(0, JournalLine::gap()),
                }
                self.0 = all;
                lines
            }
        }
    }
}

/// Position of a line: the cursor of its entry, and the number of the line within the entry (as
/// text: `CURSOR/2`). The last line of an entry has no number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineCursor {
    cursor: String,
    lines: Option<usize>,
}

impl LineCursor {
    /// Parses a cursor, which contains no slash.
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
        // journalctl refuses other text and returns nothing.
        let is_cursor = cursor.split(';').all(is_known) && cursor.split(';').count() <= 6;
        is_cursor.then(|| Self { cursor: cursor.to_owned(), lines })
    }
}

/// Reads the next entry, including its newline; `None` at the end. An entry that is too long is
/// returned without its middle.
async fn next_entry(output: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let mut entry = Vec::new();
    let mut limited = (&mut *output).take(MAX_ENTRY);
    limited.read_until(b'\n', &mut entry).await?;
    if entry.last() == Some(&b'\n') || (entry.len() as u64) < MAX_ENTRY {
        return Ok(Some(entry).filter(|entry| !entry.is_empty()));
    }
    // Invalid in JSON, so the incomplete entry fails to parse.
    entry.push(b'\0');
    skip_line(output, &mut entry).await?;
    Ok(Some(entry))
}

/// Skips to the end of the line, and keeps only its tail.
async fn skip_line(
    output: &mut (impl AsyncBufRead + Unpin),
    entry: &mut Vec<u8>,
) -> std::io::Result<()> {
    let prefix = entry.len();
    loop {
        let buffer = output.fill_buf().await?;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        let is_over = end.is_some() || buffer.is_empty();
        entry.extend_from_slice(&buffer[..used]);
        entry.drain(prefix..entry.len().saturating_sub(TAIL).max(prefix));
        output.consume(used);
        if is_over {
            return Ok(());
        }
    }
}

#[derive(Deserialize)]
struct RawEntry {
    /// Cursor of the entry. Every entry has one, and a timestamp.
    #[serde(rename = "__CURSOR", default)]
    cursor: String,
    /// In microseconds.
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    at: Option<String>,
    #[serde(rename = "MESSAGE")]
    message: Option<Message>,
}

/// Content of an entry: its cursor, its lines, and its time if the time is valid.
struct JournalEntry {
    cursor: String,
    at: Option<Timestamp>,
    texts: Vec<String>,
}

impl JournalEntry {
    fn lines(self) -> Vec<JournalLine> {
        let Self { cursor, at, texts } = self;
        let (last, cursor) = (texts.len(), Some(cursor).filter(|cursor| !cursor.is_empty()));
        let position = |number: usize| {
            let cursor = cursor.as_ref()?;
            Some(if number == last { cursor.clone() } else { format!("{cursor}/{number}") })
        };
        let numbered = (1..).zip(texts);
        numbered
            .map(|(number, text)| {
                JournalLine::new(text).with_time(at).with_cursor(position(number))
            })
            .collect()
    }
}

/// Message of an entry. A message that is not UTF-8 is printed by journalctl as an array of bytes.
/// A field that occurs several times is printed as a list.
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

/// Extracts a field of an incomplete entry. The text of a message cannot be mistaken for a field,
/// because quotes in a message are escaped.
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
