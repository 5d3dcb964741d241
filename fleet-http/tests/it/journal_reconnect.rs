//! Followed journals reconnect and resume without gaps or repeated lines.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::journal::{JournalLine, JournalQuery};
use fleet_core::{MachineId, TargetState};
use fleet_http::client::{JournalLines, JournalOptions};
use fleet_http::server::{JournalError, JournalStream};
use fleet_http::{Api, Client, Journals, ListenAddress, ServerLimits};
use fleet_store::registry::{MachineRecord, Presence};
use fleet_store::testing::FaultyStore;
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::{Server, name, running, working_store};
use crate::http::DEADLINE;
use crate::relay::relay;

/// A journal of one machine that the test writes.
#[derive(Clone)]
struct TestJournal {
    machine: &'static str,
    lines: watch::Sender<Vec<String>>,
    /// Requests received.
    read: watch::Sender<Vec<JournalQuery>>,
    is_loaded: watch::Sender<bool>,
}

impl TestJournal {
    fn of(machine: &'static str) -> Self {
        let is_loaded = watch::Sender::new(true);
        Self { machine, lines: watch::Sender::default(), read: watch::Sender::default(), is_loaded }
    }

    fn write(&self, text: &str) {
        self.lines.send_modify(|lines| lines.push(text.to_owned()));
    }

    fn read(&self) -> Vec<JournalQuery> {
        self.read.borrow().clone()
    }

    /// Waits for this number of requests.
    async fn wait_for_requests(&self, times: usize) {
        let mut read = self.read.subscribe();
        let enough = read.wait_for(|read| read.len() >= times);
        drop(timeout(DEADLINE, enough).await.expect("a request for the journal arrives").unwrap());
    }
}

#[async_trait]
impl Journals for TestJournal {
    /// Opens the journal. Ignores `since`, and so returns too many lines, as if the machine's clock
    /// were wrong.
    async fn open(
        &self,
        machine: &MachineId,
        unit: &UnitName,
        query: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        if machine.as_str() != self.machine {
            return Err(JournalError::NotLocal { machine: machine.clone() });
        }
        self.read.send_modify(|read| read.push(query.clone()));
        if !*self.is_loaded.borrow() {
            let (unit, machine) = (unit.clone(), machine.clone());
            return Err(JournalError::NotLoaded { unit, machine });
        }
        let there = self.lines.borrow().len();
        let last = there - query.lines.map_or(there, |lines| there.min(lines));
        let first = query.after.as_ref().map_or(last, |cursor| cursor.parse().unwrap());
        let is_end = |at: usize| self.lines.borrow().get(at).is_some_and(|line| line == "the end");
        let first = first + usize::from(query.after.is_some() && is_end(first));
        let next = async |(at, mut written): (usize, watch::Receiver<Vec<String>>)| {
            let lines = written.wait_for(|lines| lines.len() > at).await.ok()?;
            let text = lines[at].clone();
            drop(lines);
            let cursor = Some((at + 1).to_string());
            // This line ends the stream; a resumed stream does not read it again.
            (text != "the end")
                .then_some((Ok(JournalLine::new(text).with_cursor(cursor)), (at + 1, written)))
        };
        Ok(stream::unfold((first, self.lines.subscribe()), next).boxed())
    }
}

/// Starts a server with the journal of `a.service`.
async fn start(journal_source: &TestJournal) -> Server {
    let server = start_in(journal_source, working_store(), tempfile::tempdir().unwrap()).await;
    server.sleepers(&["a.service"], "launched").await;
    server.decide(&[("a.service", "m1")], &[]).await;
    server
}

async fn start_in(journal_source: &TestJournal, store: FaultyStore, folder: TempDir) -> Server {
    let listen = ListenAddress::Unix(folder.path().join("fleet.sock"));
    start_on(journal_source, store, folder, &listen).await
}

async fn start_on(
    journal_source: &TestJournal,
    store: FaultyStore,
    folder: TempDir,
    listen: &ListenAddress,
) -> Server {
    let set = |api: Api| api.with_journals(Arc::new(journal_source.clone()));
    let server = Server::start_on(store, folder, listen, ServerLimits::default(), set).await;
    server.mirror.wait_current().await.unwrap();
    server
}

async fn follow(client: &Client, lines: u32) -> JournalLines {
    let options = JournalOptions::default().with_lines(lines).with_follow(true);
    client.journal(&name("a.service"), &options).await.unwrap().reconnecting()
}

async fn next(journal: &mut JournalLines) -> Option<String> {
    timeout(DEADLINE, journal.next_line()).await.expect("no line within the deadline").unwrap()
}

/// Waits long enough for several attempts.
async fn expect_no_line(journal: &mut JournalLines) {
    let lines = timeout(Duration::from_millis(500), journal.next_line()).await;
    assert!(lines.is_err(), "{lines:?}");
}

/// Returns a client with a connection that a test can interrupt.
fn client_at(path: &Path) -> Client {
    Client::new(&format!("unix://{}", path.display()).parse().unwrap())
}

async fn cut(passing: JoinHandle<()>, path: &Path) {
    passing.abort();
    assert!(passing.await.unwrap_err().is_cancelled());
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn reconnect_neither_skips_nor_repeats_lines() {
    let journal_source = TestJournal::of("m1");
    let server = start(&journal_source).await;
    ["older", "old", "tick", "tick"].into_iter().for_each(|line| journal_source.write(line));
    let path = server.folder().join("relay.sock");
    let mut passing = relay(&path, &server.at);
    let mut journal = follow(&client_at(&path), 2).await;
    assert_eq!(next(&mut journal).await.unwrap(), "tick");
    assert_eq!(next(&mut journal).await.unwrap(), "tick");
    for turn in 0..3 {
        cut(passing, &path).await;
        let missed = ["tick".to_owned(), "tick".to_owned(), format!("{turn}")];
        missed.iter().for_each(|line| journal_source.write(line));
        passing = relay(&path, &server.at);
        for line in missed {
            assert_eq!(next(&mut journal).await.unwrap(), line, "after break {turn}");
        }
        journal_source.write("live");
        assert_eq!(next(&mut journal).await.unwrap(), "live");
    }
    let read: Vec<_> = journal_source.read().into_iter().map(|query| query.after).collect();
    assert_eq!(read, [None, Some("4".into()), Some("8".into()), Some("12".into())]);
}

#[tokio::test]
async fn reconnect_without_lines_resumes_at_opening() {
    let journal_source = TestJournal::of("m1");
    let server = start(&journal_source).await;
    journal_source.write("old");
    let path = server.folder().join("relay.sock");
    let passing = relay(&path, &server.at);
    let mut journal = follow(&client_at(&path), 0).await;
    cut(passing, &path).await;
    let _passing = relay(&path, &server.at);
    // This journal ignores `since`.
    assert_eq!(next(&mut journal).await.unwrap(), "old");
    let again = journal_source.read()[1].clone();
    assert_eq!((again.after, again.lines, again.follow), (None, None, true));
    assert!(again.since.is_some());
}

#[tokio::test]
async fn journal_resumes_after_daemon_restart() {
    let journal_source = TestJournal::of("m1");
    let first = start(&journal_source).await;
    journal_source.write("one");
    let (store, folder) = (first.store.clone(), tempfile::tempdir().unwrap());
    let path = folder.path().join("fleet.sock");
    let passing = relay(&path, &first.at);
    let mut journal = follow(&client_at(&path), 10).await;
    assert_eq!(next(&mut journal).await.unwrap(), "one");
    first.stop().await;
    journal_source.write("two");
    cut(passing, &path).await;
    let _second = start_in(&journal_source, store, folder).await;
    assert_eq!(next(&mut journal).await.unwrap(), "two");
}

#[tokio::test]
async fn journal_ends_with_its_unit() {
    let journal_source = TestJournal::of("m1");
    let server = start(&journal_source).await;
    let mut journal = follow(&server.client(), 10).await;
    journal_source.write("one");
    assert_eq!(next(&mut journal).await.unwrap(), "one");
    server.client().set_desired(&name("a.service"), TargetState::Inactive).await.unwrap();
    journal_source.write("the end");
    assert_eq!(next(&mut journal).await, None, "the unit is inactive");

    let path = server.folder().join("relay.sock");
    let passing = relay(&path, &server.at);
    let mut journal = follow(&client_at(&path), 0).await;
    cut(passing, &path).await;
    assert!(server.client().destroy(&name("a.service")).await.unwrap());
    let _passing = relay(&path, &server.at);
    assert_eq!(next(&mut journal).await, None, "the unit is destroyed");
}

#[tokio::test]
async fn journal_follows_replaced_and_moved_unit() {
    let journal_source = TestJournal::of("m1");
    let server = start(&journal_source).await;
    let mut journal = follow(&server.client(), 10).await;
    journal_source.write("one");
    assert_eq!(next(&mut journal).await.unwrap(), "one");
    ["the end", "two"].into_iter().for_each(|line| journal_source.write(line));
    assert_eq!(next(&mut journal).await.unwrap(), "two", "it was replaced");
    assert_eq!(journal_source.read()[1].after.as_deref(), Some("1"));

    journal_source.is_loaded.send_replace(false);
    journal_source.write("the end");
    let back = async {
        // An attempt to open it has failed.
        journal_source.wait_for_requests(4).await;
        journal_source.is_loaded.send_replace(true);
        journal_source.write("three");
    };
    let (line, ()) = tokio::join!(next(&mut journal), back);
    assert_eq!(line.unwrap(), "three", "it was unloaded, and loaded again");

    server.unplace("a.service", "m1").await;
    journal_source.write("the end");
    expect_no_line(&mut journal).await;
    let m1 = server.machine("m1", &[]).await;
    server.publish(&m1, running("a.service", "m1")).await;
    journal_source.write("four");
    assert_eq!(next(&mut journal).await.unwrap(), "four", "it was on no machine");
}

#[tokio::test]
async fn lines_have_cursors() {
    let journal_source = TestJournal::of("m1");
    let server = start(&journal_source).await;
    ["one", "two", "the end"].into_iter().for_each(|line| journal_source.write(line));
    let path = "/fleet/v1/units/a.service/journal?cursors=1";
    let response = server.get(path).await;
    assert_eq!(response.to_string(), "200 m1/1 one\nm1/2 two\n");
    assert_eq!(response.header("x-fleet-cursors"), Some("1"));
    let response = server.get(&format!("{path}&timestamps=1&after=m1/1&after=m2/7")).await;
    assert_eq!(response.to_string(), "200 m1/2 - two\n");
}

/// Three daemons of one cluster. A global unit runs on the machines of the `others`; the daemon
/// `proxy` has no machine and reads their journals.
struct Three {
    proxy: Server,
    others: [Option<Server>; 2],
    journals: [TestJournal; 2],
    sockets: [PathBuf; 2],
    _folder: TempDir,
    _present: Vec<Presence>,
}

impl Three {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let proxy =
            start_in(&TestJournal::of("none"), working_store(), tempfile::tempdir().unwrap()).await;
        let global = r#"{"desiredState":"launched","source":"[X-Fleet]\nGlobal=true\n"}"#;
        assert_eq!(proxy.put("/fleet/v1/units/a.service", global).await.status, 201);
        let mut present = Vec::new();
        for id in ["m1", "m2"] {
            let api = format!("unix://{}", folder.path().join(id).display());
            let record = MachineRecord { api, ..MachineRecord::new(id.parse().unwrap()) };
            let ttl = Duration::from_secs(3600);
            let presence = proxy.registry.join(record, "token", ttl).await.unwrap();
            proxy.publish(&presence, running("a.service", id)).await;
            present.push(presence);
        }
        let sockets = ["m1", "m2"].map(|id| folder.path().join(id));
        let journals = ["m1", "m2"].map(TestJournal::of);
        let mut three = Self {
            proxy,
            others: [None, None],
            journals,
            sockets,
            _folder: folder,
            _present: present,
        };
        three.begin(0).await;
        three.begin(1).await;
        three
    }

    /// Starts the daemon of a machine.
    async fn begin(&mut self, at: usize) {
        let listen = ListenAddress::Unix(self.sockets[at].clone());
        let (store, folder) = (self.proxy.store.clone(), tempfile::tempdir().unwrap());
        let server = start_on(&self.journals[at], store, folder, &listen).await;
        self.others[at] = Some(server);
    }
}

#[tokio::test]
async fn absent_machine_is_reported_and_resumed() {
    let mut three = Three::start().await;
    three.journals.iter().for_each(|journal_source| journal_source.write("old"));
    let mut journal = follow(&three.proxy.client(), 10).await;
    let mut lines = [next(&mut journal).await.unwrap(), next(&mut journal).await.unwrap()];
    lines.sort();
    assert_eq!(lines, ["m1: old", "m2: old"]);
    for turn in 0..3 {
        three.others[1].take().unwrap().stop().await;
        let named = next(&mut journal).await.unwrap();
        assert!(named.starts_with("m2: [cannot read from machine m2"), "{named}");
        three.journals[0].write("goes on");
        assert_eq!(next(&mut journal).await.unwrap(), "m1: goes on");
        three.journals[1].write("missed");
        three.journals[1].write("missed");
        three.begin(1).await;
        for line in ["m2: missed", "m2: missed"] {
            assert_eq!(next(&mut journal).await.unwrap(), line, "after end {turn}");
        }
        three.journals[1].write("live");
        assert_eq!(next(&mut journal).await.unwrap(), "m2: live");
    }
}

#[tokio::test]
async fn machines_are_followed_while_unit_is_wanted() {
    let three = Three::start().await;
    let mut journal = follow(&three.proxy.client(), 10).await;
    three.journals[1].write("one");
    assert_eq!(next(&mut journal).await.unwrap(), "m2: one");
    three.journals[1].is_loaded.send_replace(false);
    three.journals[1].write("the end");
    let named = next(&mut journal).await.unwrap();
    assert!(named.ends_with("not loaded there]"), "{named}");
    three.journals[0].write("goes on");
    assert_eq!(next(&mut journal).await.unwrap(), "m1: goes on");
    three.journals[1].is_loaded.send_replace(true);
    three.journals[1].write("two");
    assert_eq!(next(&mut journal).await.unwrap(), "m2: two", "it was replaced");
    let proxy = three.proxy.client();
    proxy.set_desired(&name("a.service"), TargetState::Inactive).await.unwrap();
    three.journals.iter().for_each(|journal_source| journal_source.write("the end"));
    assert_eq!(next(&mut journal).await, None);
}

#[tokio::test]
async fn metadata_filter_selects_machines() {
    let three = Three::start().await;
    three.journals.iter().for_each(|journal_source| journal_source.write("one"));
    three.journals.iter().for_each(|journal_source| journal_source.write("the end"));
    let path = "/fleet/v1/units/a.service/journal?metadata=zone";
    let zones = "on no machine with this metadata";
    let response = three.proxy.get(path).await;
    assert_eq!(response.status, 409, "{response}");
    assert!(response.message().ends_with(zones), "{response}");
    let ops = r#"[{"op":"add","path":"/m2/metadata/zone","value":"b"}]"#;
    assert_eq!(three.proxy.call("PATCH", "/fleet/v1/machines", ops).await.status, 204);
    assert_eq!(three.proxy.get(path).await.to_string(), "200 one\n");
}

#[tokio::test]
async fn machines_resume_after_proxy_restart() {
    let three = Three::start().await;
    three.journals[0].write("one");
    let path = three.proxy.folder().join("relay.sock");
    let passing = relay(&path, &three.proxy.at);
    let mut journal = follow(&client_at(&path), 10).await;
    assert_eq!(next(&mut journal).await.unwrap(), "m1: one");
    cut(passing, &path).await;
    three.journals.iter().for_each(|journal_source| journal_source.write("missed"));
    let _passing = relay(&path, &three.proxy.at);
    let mut lines = [next(&mut journal).await.unwrap(), next(&mut journal).await.unwrap()];
    lines.sort();
    assert_eq!(lines, ["m1: missed", "m2: missed"]);
    let again = three.journals.each_ref().map(|journal_source| journal_source.read()[1].clone());
    assert_eq!(again[0].after.as_deref(), Some("1"));
    assert_eq!((again[1].after.as_deref(), again[1].lines), (None, None));
}
