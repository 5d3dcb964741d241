//! The output of a unit, read by `journalctl` as a child process.

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

/// Starts to read the output of a unit. It ends with the reader, and so does what is held for it.
pub(crate) fn read(
    scope: SystemdScope,
    unit: &UnitName,
    mut query: JournalQuery,
    following: Option<Arc<Following>>,
) -> Result<Journal, ServiceError> {
    // Of what is to come everything is wanted, and it may come before journalctl has begun.
    query.since = query.since.map(|since| since.min(wall_time()));
    let mut command = Command::new("journalctl");
    command.args(arguments(scope, unit, query));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let child = command.spawn().map_err(io_error("run journalctl"))?;
    let (sender, journal) = Journal::channel();
    let unit = unit.clone();
    tokio::spawn(async move {
        if let Err(error) = feed(child, query.since, sender).await {
            tracing::warn!(%unit, %error, "a journal ends early");
        }
        drop(following);
    });
    Ok(journal)
}

/// What the unit's own processes wrote. What systemd itself says of the unit is told by its state.
fn arguments(scope: SystemdScope, unit: &UnitName, query: JournalQuery) -> Vec<String> {
    let lines = query.lines.map_or("all".to_owned(), |lines| lines.to_string());
    let mut arguments =
        ["--no-pager", "--quiet", "--all", "--output=json", "--output-fields=MESSAGE"]
            .map(str::to_owned)
            .to_vec();
    arguments.push(format!("--lines={lines}"));
    // Of the two options the one or the other wins, by the version; so it gets but one.
    if let (Some(since), None) = (query.since, query.lines) {
        let millis = since.as_millis();
        arguments.push(format!("--since=@{}.{:03}", millis / 1000, millis % 1000));
    }
    if query.follow {
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
    mut since: Option<Timestamp>,
    sender: mpsc::Sender<JournalLine>,
) -> std::io::Result<()> {
    let Some(output) = child.stdout.take() else { return Ok(()) };
    let mut output = BufReader::new(output);
    loop {
        let entry = tokio::select! {
            () = sender.closed() => break,
            entry = next_entry(&mut output) => entry?,
        };
        let Some(entry) = entry else { break };
        let (at, lines) = read_entry(&entry);
        if since.zip(at).is_some_and(|(since, at)| at < since) {
            continue;
        }
        // All that follow are later, whatever becomes of the clock.
        since = since.filter(|_| at.is_none());
        for text in lines {
            if sender.send(JournalLine { at, text }).await.is_err() {
                break;
            }
        }
    }
    // It may have ended already, which is as good.
    drop(child.start_kill());
    child.wait().await.map(drop)
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
    /// In microseconds. It comes with every entry.
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    at: Option<String>,
    #[serde(rename = "MESSAGE")]
    message: Option<Message>,
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

/// When an entry of the journal was written, if that can be read, and its lines.
fn read_entry(entry: &[u8]) -> (Option<Timestamp>, Vec<String>) {
    let Ok(Entry { at, message }) = serde_json::from_slice(entry) else {
        return (None, vec![TOO_LONG.to_owned()]);
    };
    let micros = at.and_then(|at| at.parse::<u64>().ok());
    let at = micros.map(|micros| Timestamp::from_millis(micros / 1000));
    (at, message.map(lines).unwrap_or_default())
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
            assert_eq!(read_entry(entry.as_bytes()).1, expected, "{entry}");
        }
    }

    #[test]
    fn an_entry_has_its_moment() {
        let entry = br#"{"__REALTIME_TIMESTAMP":"1395716396250999","MESSAGE":"one"}"#;
        assert_eq!(read_entry(entry).0, Some(Timestamp::from_millis(1_395_716_396_250)));
        let entry = br#"{"__REALTIME_TIMESTAMP":"soon","MESSAGE":"one"}"#;
        assert_eq!(read_entry(entry).0, None);
    }

    #[tokio::test]
    async fn an_entry_that_is_too_long_is_passed_over() {
        let long = vec![b'x'; usize::try_from(LONGEST_ENTRY).expect("it is small") + 7];
        let text = [b"{\"MESSAGE\":\"a\"}\n", &*long, b"\n{\"MESSAGE\":\"b\"}"].concat();
        let mut output = BufReader::new(&*text);
        let mut found = Vec::new();
        while let Some(entry) = next_entry(&mut output).await.expect("memory can be read") {
            found.extend(read_entry(&entry).1);
        }
        assert_eq!(found, ["a", TOO_LONG, "b"]);
    }

    #[test]
    fn the_arguments_say_what_is_asked() {
        let unit: UnitName = "a.service".parse().expect("it is a name");
        let all = "--no-pager --quiet --all --output=json --output-fields=MESSAGE";
        let since = Some(Timestamp::from_millis(1_395_716_396_007));
        let query = JournalQuery { lines: Some(2), since, follow: true };
        assert_eq!(
            arguments(SystemdScope::System, &unit, query).join(" "),
            format!("{all} --lines=2 --follow _SYSTEMD_UNIT=a.service")
        );
        let query = JournalQuery { since, ..JournalQuery::default() };
        let user = rustix::process::getuid().as_raw();
        assert_eq!(
            arguments(SystemdScope::User, &unit, query).join(" "),
            format!(
                "{all} --lines=all --since=@1395716396.007 _SYSTEMD_USER_UNIT=a.service _UID={user}"
            )
        );
    }
}
