//! A journal that is followed for long: where it breaks off it goes on, without a gap and without
//! telling a line twice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{MachineId, Timestamp};
use fleet_http::{
    Api, Client, JournalError, JournalLine, JournalLines, JournalOptions, JournalQuery,
    JournalStream, Journals, Limits, Listen,
};
use fleet_store::testing::FaultyStore;
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::harness::{Server, name, whole_store};
use crate::http::DEADLINE;
use crate::relay::relay;

/// A journal that a test writes.
#[derive(Clone)]
struct Diary {
    lines: watch::Sender<Vec<JournalLine>>,
    /// How it was read.
    read: Arc<Mutex<Vec<JournalQuery>>>,
}

impl Diary {
    fn new() -> Self {
        Self { lines: watch::Sender::default(), read: Arc::default() }
    }

    fn write(&self, text: &str) {
        self.lines.send_modify(|lines| {
            let at = Some(Timestamp::from_millis(1000 + lines.len() as u64 / 2));
            lines.push(JournalLine { at, text: text.to_owned() });
        });
    }
}

#[async_trait]
impl Journals for Diary {
    /// Of lines since a while ago it has too many, as a clock that goes wrong would have it.
    async fn open(
        &self,
        _: &MachineId,
        _: &UnitName,
        query: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        self.read.lock().unwrap().push(*query);
        let there = self.lines.borrow().len();
        let first = there - query.lines.map_or(there, |lines| there.min(lines as usize));
        let next = async |(at, mut written): (usize, watch::Receiver<Vec<JournalLine>>)| {
            let lines = written.wait_for(|lines| lines.len() > at).await.ok()?;
            let line = lines[at].clone();
            drop(lines);
            // What ends it.
            (line.text != "the end").then_some((Ok(line), (at + 1, written)))
        };
        Ok(stream::unfold((first, self.lines.subscribe()), next).boxed())
    }
}

/// A server with the journal of `a.service`.
async fn start(diary: &Diary) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let listen = Listen::Unix(folder.path().join("fleet.sock"));
    let server = start_on(diary, whole_store(), folder, &listen).await;
    server.sleepers(&["a.service"], "launched").await;
    server.decide(&[("a.service", "m1")], &[]).await;
    server
}

async fn start_on(diary: &Diary, store: FaultyStore, folder: TempDir, listen: &Listen) -> Server {
    let set = |api: &mut Api| api.journals = Arc::new(diary.clone());
    let server = Server::start_on(store, folder, listen, Limits::default(), set).await;
    server.mirror.wait_current().await.unwrap();
    server
}

async fn follow(client: &Client, lines: u32) -> JournalLines {
    let options = JournalOptions { lines: Some(lines), follow: true, ..JournalOptions::default() };
    client.journal(&name("a.service"), &options).await.unwrap().lasting()
}

async fn next(journal: &mut JournalLines) -> Option<String> {
    timeout(DEADLINE, journal.next_line()).await.expect("a line comes").unwrap()
}

#[tokio::test]
async fn nothing_is_missed_or_told_twice_where_the_connection_breaks() {
    let diary = Diary::new();
    let server = start(&diary).await;
    ["older", "old", "tick", "tick"].into_iter().for_each(|line| diary.write(line));
    let path = server.folder().join("relay.sock");
    let mut passing = relay(&path, &server.at);
    let client = Client::new(&format!("unix://{}", path.display()).parse().unwrap());
    let mut journal = follow(&client, 2).await;
    assert_eq!(next(&mut journal).await.unwrap(), "tick");
    assert_eq!(next(&mut journal).await.unwrap(), "tick");
    for turn in 0..3 {
        passing.abort();
        assert!(passing.await.unwrap_err().is_cancelled());
        std::fs::remove_file(&path).unwrap();
        let missed = ["tick".to_owned(), "tick".to_owned(), format!("{turn}")];
        missed.iter().for_each(|line| diary.write(line));
        passing = relay(&path, &server.at);
        for line in missed {
            assert_eq!(next(&mut journal).await.unwrap(), line, "after break {turn}");
        }
        diary.write("live");
        assert_eq!(next(&mut journal).await.unwrap(), "live");
    }
    let read = diary.read.lock().unwrap().clone();
    assert_eq!(read.len(), 4);
    let (first, again) = read.split_first().unwrap();
    assert_eq!((first.lines, first.since), (Some(2), None));
    for query in again {
        let since = query.since.expect("from the last line on");
        assert!(query.lines.is_none() && query.follow, "{query:?}");
        assert!((10..100).contains(&since.as_secs()), "{since:?}");
    }
}

#[tokio::test]
async fn who_wanted_no_old_lines_hears_none_after_a_break() {
    let diary = Diary::new();
    let server = start(&diary).await;
    diary.write("old");
    let path = server.folder().join("relay.sock");
    let passing = relay(&path, &server.at);
    let client = Client::new(&format!("unix://{}", path.display()).parse().unwrap());
    let mut journal = follow(&client, 0).await;
    passing.abort();
    assert!(passing.await.unwrap_err().is_cancelled());
    std::fs::remove_file(&path).unwrap();
    let _passing = relay(&path, &server.at);
    // This diary does not go by it.
    assert_eq!(next(&mut journal).await.unwrap(), "old");
    let again = diary.read.lock().unwrap()[1];
    assert!(again.since.expect("from its opening on") < Duration::from_secs(10), "{again:?}");
}

#[tokio::test]
async fn it_goes_on_with_a_daemon_that_comes_back() {
    let diary = Diary::new();
    let first = start(&diary).await;
    diary.write("one");
    let (store, folder) = (first.store.clone(), tempfile::tempdir().unwrap());
    let path = folder.path().join("fleet.sock");
    let passing = relay(&path, &first.at);
    let client = Client::new(&format!("unix://{}", path.display()).parse().unwrap());
    let mut journal = follow(&client, 10).await;
    assert_eq!(next(&mut journal).await.unwrap(), "one");
    first.stop().await;
    diary.write("two");
    passing.abort();
    assert!(passing.await.unwrap_err().is_cancelled());
    std::fs::remove_file(&path).unwrap();
    let _second = start_on(&diary, store, folder, &Listen::Unix(path)).await;
    assert_eq!(next(&mut journal).await.unwrap(), "two");
}

#[tokio::test]
async fn it_ends_with_its_unit() {
    let diary = Diary::new();
    let server = start(&diary).await;
    let mut journal = follow(&server.client(), 10).await;
    diary.write("one");
    assert_eq!(next(&mut journal).await.unwrap(), "one");
    assert!(server.client().destroy(&name("a.service")).await.unwrap());
    diary.write("the end");
    assert_eq!(next(&mut journal).await, None);
}
