//! A journal that is followed for long: where it breaks off it goes on, without a gap and without
//! telling a line twice.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{MachineId, TargetState};
use fleet_http::{
    Api, Client, JournalEntry, JournalError, JournalLines, JournalOptions, JournalRequest,
    JournalStream, Journals, ListenAddress, ServerLimits,
};
use fleet_store::testing::FaultyStore;
use fleet_store::{MachineRecord, Presence};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::{Server, name, running, whole_store};
use crate::http::DEADLINE;
use crate::relay::relay;

/// A journal of one machine, that a test writes.
#[derive(Clone)]
struct Diary {
    machine: &'static str,
    lines: watch::Sender<Vec<String>>,
    /// How it was read.
    read: watch::Sender<Vec<JournalRequest>>,
    is_loaded: watch::Sender<bool>,
}

impl Diary {
    fn of(machine: &'static str) -> Self {
        let is_loaded = watch::Sender::new(true);
        Self { machine, lines: watch::Sender::default(), read: watch::Sender::default(), is_loaded }
    }

    fn write(&self, text: &str) {
        self.lines.send_modify(|lines| lines.push(text.to_owned()));
    }

    fn read(&self) -> Vec<JournalRequest> {
        self.read.borrow().clone()
    }

    /// Waits until it was asked for so many times.
    async fn wait_read(&self, times: usize) {
        let mut read = self.read.subscribe();
        let enough = read.wait_for(|read| read.len() >= times);
        drop(timeout(DEADLINE, enough).await.expect("it is asked for").unwrap());
    }
}

#[async_trait]
impl Journals for Diary {
    /// Of lines since a while ago it has too many, as a clock that goes wrong would have it.
    async fn open(
        &self,
        machine: &MachineId,
        unit: &UnitName,
        query: &JournalRequest,
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
        let last = there - query.lines.map_or(there, |lines| there.min(lines as usize));
        let first = query.after.as_ref().map_or(last, |cursor| cursor.parse().unwrap());
        let is_end = |at: usize| self.lines.borrow().get(at).is_some_and(|line| line == "the end");
        let first = first + usize::from(query.after.is_some() && is_end(first));
        let next = async |(at, mut written): (usize, watch::Receiver<Vec<String>>)| {
            let lines = written.wait_for(|lines| lines.len() > at).await.ok()?;
            let text = lines[at].clone();
            drop(lines);
            let cursor = Some((at + 1).to_string());
            // What ends it; nobody who goes on reads that again.
            (text != "the end")
                .then_some((Ok(JournalEntry { timestamp: None, text, cursor }), (at + 1, written)))
        };
        Ok(stream::unfold((first, self.lines.subscribe()), next).boxed())
    }
}

/// A server with the journal of `a.service`.
async fn start(diary: &Diary) -> Server {
    let server = start_in(diary, whole_store(), tempfile::tempdir().unwrap()).await;
    server.sleepers(&["a.service"], "launched").await;
    server.decide(&[("a.service", "m1")], &[]).await;
    server
}

async fn start_in(diary: &Diary, store: FaultyStore, folder: TempDir) -> Server {
    let listen = ListenAddress::Unix(folder.path().join("fleet.sock"));
    start_on(diary, store, folder, &listen).await
}

async fn start_on(
    diary: &Diary,
    store: FaultyStore,
    folder: TempDir,
    listen: &ListenAddress,
) -> Server {
    let set = |api: &mut Api| api.journals = Arc::new(diary.clone());
    let server = Server::start_on(store, folder, listen, ServerLimits::default(), set).await;
    server.mirror.wait_current().await.unwrap();
    server
}

async fn follow(client: &Client, lines: u32) -> JournalLines {
    let options = JournalOptions { lines: Some(lines), follow: true, ..JournalOptions::default() };
    client.journal(&name("a.service"), &options).await.unwrap().reconnecting()
}

async fn next(journal: &mut JournalLines) -> Option<String> {
    timeout(DEADLINE, journal.next_line()).await.expect("a line comes").unwrap()
}

/// Long enough for some tries.
async fn wait_in_vain(journal: &mut JournalLines) {
    let told = timeout(Duration::from_millis(500), journal.next_line()).await;
    assert!(told.is_err(), "{told:?}");
}

/// A client by way of a connection that can be cut.
fn client_at(path: &Path) -> Client {
    Client::new(&format!("unix://{}", path.display()).parse().unwrap())
}

async fn cut(passing: JoinHandle<()>, path: &Path) {
    passing.abort();
    assert!(passing.await.unwrap_err().is_cancelled());
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn nothing_is_missed_or_told_twice_where_the_connection_breaks() {
    let diary = Diary::of("m1");
    let server = start(&diary).await;
    ["older", "old", "tick", "tick"].into_iter().for_each(|line| diary.write(line));
    let path = server.folder().join("relay.sock");
    let mut passing = relay(&path, &server.at);
    let mut journal = follow(&client_at(&path), 2).await;
    assert_eq!(next(&mut journal).await.unwrap(), "tick");
    assert_eq!(next(&mut journal).await.unwrap(), "tick");
    for turn in 0..3 {
        cut(passing, &path).await;
        let missed = ["tick".to_owned(), "tick".to_owned(), format!("{turn}")];
        missed.iter().for_each(|line| diary.write(line));
        passing = relay(&path, &server.at);
        for line in missed {
            assert_eq!(next(&mut journal).await.unwrap(), line, "after break {turn}");
        }
        diary.write("live");
        assert_eq!(next(&mut journal).await.unwrap(), "live");
    }
    let read: Vec<_> = diary.read().into_iter().map(|query| query.after).collect();
    assert_eq!(read, [None, Some("4".into()), Some("8".into()), Some("12".into())]);
}

#[tokio::test]
async fn where_nothing_was_told_it_goes_on_from_its_opening() {
    let diary = Diary::of("m1");
    let server = start(&diary).await;
    diary.write("old");
    let path = server.folder().join("relay.sock");
    let passing = relay(&path, &server.at);
    let mut journal = follow(&client_at(&path), 0).await;
    cut(passing, &path).await;
    let _passing = relay(&path, &server.at);
    // This diary does not go by it.
    assert_eq!(next(&mut journal).await.unwrap(), "old");
    let again = diary.read()[1].clone();
    assert_eq!((again.after, again.lines, again.follow), (None, None, true));
    assert!(again.since.is_some());
}

#[tokio::test]
async fn it_goes_on_with_a_daemon_that_comes_back() {
    let diary = Diary::of("m1");
    let first = start(&diary).await;
    diary.write("one");
    let (store, folder) = (first.store.clone(), tempfile::tempdir().unwrap());
    let path = folder.path().join("fleet.sock");
    let passing = relay(&path, &first.at);
    let mut journal = follow(&client_at(&path), 10).await;
    assert_eq!(next(&mut journal).await.unwrap(), "one");
    first.stop().await;
    diary.write("two");
    cut(passing, &path).await;
    let _second = start_in(&diary, store, folder).await;
    assert_eq!(next(&mut journal).await.unwrap(), "two");
}

#[tokio::test]
async fn it_ends_with_its_unit() {
    let diary = Diary::of("m1");
    let server = start(&diary).await;
    let mut journal = follow(&server.client(), 10).await;
    diary.write("one");
    assert_eq!(next(&mut journal).await.unwrap(), "one");
    server.client().set_desired(&name("a.service"), TargetState::Inactive).await.unwrap();
    diary.write("the end");
    assert_eq!(next(&mut journal).await, None, "it is not wanted any more");

    let path = server.folder().join("relay.sock");
    let passing = relay(&path, &server.at);
    let mut journal = follow(&client_at(&path), 0).await;
    cut(passing, &path).await;
    assert!(server.client().destroy(&name("a.service")).await.unwrap());
    let _passing = relay(&path, &server.at);
    assert_eq!(next(&mut journal).await, None, "it is there no more");
}

#[tokio::test]
async fn a_unit_that_is_replaced_or_moved_is_followed_on() {
    let diary = Diary::of("m1");
    let server = start(&diary).await;
    let mut journal = follow(&server.client(), 10).await;
    diary.write("one");
    assert_eq!(next(&mut journal).await.unwrap(), "one");
    ["the end", "two"].into_iter().for_each(|line| diary.write(line));
    assert_eq!(next(&mut journal).await.unwrap(), "two", "it was replaced");
    assert_eq!(diary.read()[1].after.as_deref(), Some("1"));

    diary.is_loaded.send_replace(false);
    diary.write("the end");
    let back = async {
        // It was asked for in vain.
        diary.wait_read(4).await;
        diary.is_loaded.send_replace(true);
        diary.write("three");
    };
    let (line, ()) = tokio::join!(next(&mut journal), back);
    assert_eq!(line.unwrap(), "three", "it was unloaded, and loaded again");

    server.unplace("a.service", "m1").await;
    diary.write("the end");
    wait_in_vain(&mut journal).await;
    let m1 = server.machine("m1", &[]).await;
    server.publish(&m1, running("a.service", "m1")).await;
    diary.write("four");
    assert_eq!(next(&mut journal).await.unwrap(), "four", "it was on no machine");
}

#[tokio::test]
async fn a_line_says_where_it_is() {
    let diary = Diary::of("m1");
    let server = start(&diary).await;
    ["one", "two", "the end"].into_iter().for_each(|line| diary.write(line));
    let path = "/fleet/v1/units/a.service/journal?cursors=1";
    let answer = server.get(path).await;
    assert_eq!(answer.to_string(), "200 m1/1 one\nm1/2 two\n");
    assert_eq!(answer.header("x-fleet-cursors"), Some("1"));
    let answer = server.get(&format!("{path}&timestamps=1&after=m1/1&after=m2/7")).await;
    assert_eq!(answer.to_string(), "200 m1/2 - two\n");
}

/// Three daemons of one cluster, whose machines all have a global unit; the first has no machine.
struct Three {
    asked: Server,
    others: [Option<Server>; 2],
    diaries: [Diary; 2],
    sockets: [PathBuf; 2],
    _folder: TempDir,
    _present: Vec<Presence>,
}

impl Three {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let asked = start_in(&Diary::of("none"), whole_store(), tempfile::tempdir().unwrap()).await;
        let global = r#"{"desiredState":"launched","source":"[X-Fleet]\nGlobal=true\n"}"#;
        assert_eq!(asked.put("/fleet/v1/units/a.service", global).await.status, 201);
        let mut present = Vec::new();
        for id in ["m1", "m2"] {
            let api = format!("unix://{}", folder.path().join(id).display());
            let record = MachineRecord { api, ..MachineRecord::new(id.parse().unwrap()) };
            let ttl = Duration::from_secs(3600);
            let presence = asked.registry.join(record, "token", ttl).await.unwrap();
            asked.publish(&presence, running("a.service", id)).await;
            present.push(presence);
        }
        let sockets = ["m1", "m2"].map(|id| folder.path().join(id));
        let diaries = ["m1", "m2"].map(Diary::of);
        let mut three = Self {
            asked,
            others: [None, None],
            diaries,
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
        let (store, folder) = (self.asked.store.clone(), tempfile::tempdir().unwrap());
        let server = start_on(&self.diaries[at], store, folder, &listen).await;
        self.others[at] = Some(server);
    }
}

#[tokio::test]
async fn a_machine_that_drops_out_is_named_and_taken_up_again() {
    let mut three = Three::start().await;
    three.diaries.iter().for_each(|diary| diary.write("old"));
    let mut journal = follow(&three.asked.client(), 10).await;
    let mut told = [next(&mut journal).await.unwrap(), next(&mut journal).await.unwrap()];
    told.sort();
    assert_eq!(told, ["m1: old", "m2: old"]);
    for turn in 0..3 {
        three.others[1].take().unwrap().stop().await;
        let named = next(&mut journal).await.unwrap();
        assert!(named.starts_with("m2: [machine m2 does not answer"), "{named}");
        three.diaries[0].write("goes on");
        assert_eq!(next(&mut journal).await.unwrap(), "m1: goes on");
        three.diaries[1].write("missed");
        three.diaries[1].write("missed");
        three.begin(1).await;
        for line in ["m2: missed", "m2: missed"] {
            assert_eq!(next(&mut journal).await.unwrap(), line, "after end {turn}");
        }
        three.diaries[1].write("live");
        assert_eq!(next(&mut journal).await.unwrap(), "m2: live");
    }
}

#[tokio::test]
async fn each_machine_is_followed_for_as_long_as_the_unit_is_wanted() {
    let three = Three::start().await;
    let mut journal = follow(&three.asked.client(), 10).await;
    three.diaries[1].write("one");
    assert_eq!(next(&mut journal).await.unwrap(), "m2: one");
    three.diaries[1].is_loaded.send_replace(false);
    three.diaries[1].write("the end");
    let named = next(&mut journal).await.unwrap();
    assert!(named.ends_with("not loaded there]"), "{named}");
    three.diaries[0].write("goes on");
    assert_eq!(next(&mut journal).await.unwrap(), "m1: goes on");
    three.diaries[1].is_loaded.send_replace(true);
    three.diaries[1].write("two");
    assert_eq!(next(&mut journal).await.unwrap(), "m2: two", "it was replaced");
    let asked = three.asked.client();
    asked.set_desired(&name("a.service"), TargetState::Inactive).await.unwrap();
    three.diaries.iter().for_each(|diary| diary.write("the end"));
    assert_eq!(next(&mut journal).await, None);
}

#[tokio::test]
async fn of_several_machines_those_with_metadata_are_asked() {
    let three = Three::start().await;
    three.diaries.iter().for_each(|diary| diary.write("one"));
    three.diaries.iter().for_each(|diary| diary.write("the end"));
    let path = "/fleet/v1/units/a.service/journal?metadata=zone";
    let zones = "on no machine that has this metadata";
    let answer = three.asked.get(path).await;
    assert_eq!(answer.status, 409, "{answer}");
    assert!(answer.message().ends_with(zones), "{answer}");
    let ops = r#"[{"op":"add","path":"/m2/metadata/zone","value":"b"}]"#;
    assert_eq!(three.asked.call("PATCH", "/fleet/v1/machines", ops).await.status, 204);
    assert_eq!(three.asked.get(path).await.to_string(), "200 one\n");
}

#[tokio::test]
async fn each_machine_goes_on_where_it_was_when_the_daemon_that_is_asked_comes_back() {
    let three = Three::start().await;
    three.diaries[0].write("one");
    let path = three.asked.folder().join("relay.sock");
    let passing = relay(&path, &three.asked.at);
    let mut journal = follow(&client_at(&path), 10).await;
    assert_eq!(next(&mut journal).await.unwrap(), "m1: one");
    cut(passing, &path).await;
    three.diaries.iter().for_each(|diary| diary.write("missed"));
    let _passing = relay(&path, &three.asked.at);
    let mut told = [next(&mut journal).await.unwrap(), next(&mut journal).await.unwrap()];
    told.sort();
    assert_eq!(told, ["m1: missed", "m2: missed"]);
    let again = three.diaries.each_ref().map(|diary| diary.read()[1].clone());
    assert_eq!(again[0].after.as_deref(), Some("1"));
    assert_eq!((again[1].after.as_deref(), again[1].lines), (None, None));
}
