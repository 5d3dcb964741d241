//! Requests for other machines are forwarded to their daemons, exactly once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::journal::{JournalLine, JournalQuery};
use fleet_core::{MachineId, Timestamp};
use fleet_http::client::JournalOptions;
use fleet_http::server::{JournalError, JournalStream};
use fleet_http::wire::StatusDetails;
use fleet_http::{AuthPolicy, Client, ClientError, Credentials, Journals, Peers, Tokens};
use fleet_store::registry::{MachineRecord, Presence};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::broadcast;

use crate::certificates::Authority;
use crate::harness::{Server, name, running, working_store};
use crate::http;

const TTL: Duration = Duration::from_secs(3600);
const PATH: &str = "/fleet/v1/units/a.service/journal";

/// Journal of one machine. Tests send it new lines.
struct PeerJournals {
    machine: &'static str,
    new_lines: broadcast::Sender<String>,
}

impl PeerJournals {
    fn of(machine: &'static str) -> Arc<Self> {
        Arc::new(Self { machine, new_lines: broadcast::channel(1000).0 })
    }
}

#[async_trait]
impl Journals for PeerJournals {
    async fn open(
        &self,
        machine: &MachineId,
        _: &UnitName,
        query: &JournalQuery,
    ) -> Result<JournalStream, JournalError> {
        if machine.as_str() != self.machine {
            return Err(JournalError::NotLocal { machine: machine.clone() });
        }
        let at = self.machine;
        let there = stream::iter(1..=query.lines.unwrap_or(3));
        let there = there.map(move |number| {
            let own = u64::from(at.as_bytes()[1] - b'0');
            let written = Timestamp::from_millis(number as u64 * 10 + own);
            Ok(JournalLine::new(format!("{number} of {at}")).with_time(written))
        });
        if !query.follow {
            return Ok(there.boxed());
        }
        let to_come = stream::unfold(self.new_lines.subscribe(), async |mut receiver| {
            receiver.recv().await.ok().map(|line| (Ok(line.into()), receiver))
        });
        Ok(there.chain(to_come).boxed())
    }

    async fn details(
        &self,
        machine: &MachineId,
        _: &UnitName,
    ) -> Result<Option<StatusDetails>, JournalError> {
        if machine.as_str() != self.machine {
            return Err(JournalError::NotLocal { machine: machine.clone() });
        }
        let tracking = format!("by {machine}");
        let details = StatusDetails::default().with_tracking(tracking);
        Ok(Some(details.with_retry_in_milliseconds(7)))
    }
}

/// Joins a machine with the URL of its API.
async fn join(server: &Server, id: &str, api: &str) -> Presence {
    let record = MachineRecord { api: api.to_owned(), ..MachineRecord::new(id.parse().unwrap()) };
    server.registry.join(record, "token", TTL).await.unwrap()
}

/// Creates a global unit with a state on each of these machines.
async fn global(server: &Server, machines: &[(&str, &str)]) {
    let global = r#"{"desiredState":"launched","source":"[X-Fleet]\nGlobal=true\n"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", global).await.status, 201);
    for (id, api) in machines {
        let presence = join(server, id, api).await;
        server.publish(&presence, running("a.service", id)).await;
    }
}

/// Starts two daemons of one cluster, with machines `m1` and `m2`.
async fn two() -> (Server, Server, Arc<PeerJournals>) {
    let (store, journals_of_m2) = (working_store(), PeerJournals::of("m2"));
    let first =
        Server::start_unread(store.clone(), |api| api.with_journals(PeerJournals::of("m1"))).await;
    let second = Server::start_unread(store, |api| api.with_journals(journals_of_m2.clone())).await;
    first.mirror.wait_current().await.unwrap();
    second.mirror.wait_current().await.unwrap();
    (first, second, journals_of_m2)
}

/// Places a unit on `m2`, visible to both daemons.
async fn place_on_second(first: &Server, second: &Server, api: &str) {
    first.sleepers(&["a.service"], "launched").await;
    join(first, "m2", api).await;
    first.decide(&[("a.service", "m2")], &[]).await;
    second.settle(first.mirror.snapshot().revision).await;
}

#[tokio::test]
async fn remote_journal_is_read_from_its_daemon() {
    let (first, second, _) = two().await;
    place_on_second(&first, &second, &second.at.to_string()).await;
    let response = first.get(&format!("{PATH}?lines=2")).await;
    assert_eq!(response.to_string(), "200 1 of m2\n2 of m2\n");
    let status = first.client().status(&name("a.service"), Some(1)).await.unwrap().unwrap();
    assert_eq!(status.unit.name, "a.service");
    let [on] = &status.machines[..] else { panic!("not on exactly one machine: {status:?}") };
    let lines: Vec<&str> = on.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!((on.machine_id.as_str(), &lines[..]), ("m2", &["1 of m2"][..]));
    assert_eq!(on.journal_error, "");
    let details = on.details.clone().expect("no details");
    assert_eq!((details.tracking.as_str(), details.retry_in_milliseconds), ("by m2", Some(7)));
    assert_eq!(first.get("/fleet/v1/units/x.service/status").await.status, 404);
    assert_eq!(first.get("/fleet/v1/units/a.service/status?lines=1001").await.status, 400);
    assert_eq!(first.get("/fleet/v1/units/a.service/status?follow=1").await.status, 400);
}

#[tokio::test]
async fn remote_timestamps_are_passed_on() {
    let (first, second, _) = two().await;
    place_on_second(&first, &second, &second.at.to_string()).await;
    let response = first.get(&format!("{PATH}?lines=2&timestamps=1")).await;
    assert_eq!(response.to_string(), "200 12 1 of m2\n22 2 of m2\n");
    assert_eq!(response.header("x-fleet-timestamps"), Some("1"));
    let response = first.get(&format!("{PATH}?lines=1&timestamps=0")).await;
    assert_eq!(
        (response.to_string().as_str(), response.header("x-fleet-timestamps")),
        ("200 1 of m2\n", None)
    );
    assert_eq!(first.get(&format!("{PATH}?timestamps=maybe")).await.status, 400);
}

// Holds: D-27
#[tokio::test]
async fn daemons_authenticate_to_each_other() {
    let ours = Authority::new();
    let token = "the-token-of-the-tests";
    let auth = AuthPolicy::new(Some(ours.server(false)), Some(Tokens::parse(token).unwrap()));
    let (first, second, _) = two().await;
    let protected =
        Server::beside_with_auth(&second, &auth, |api| api.with_journals(PeerJournals::of("m2")))
            .await;
    place_on_second(&first, &protected, &protected.at.to_string()).await;
    let refused = first.get(PATH).await;
    assert_eq!(refused.status, 502, "it does not trust the CA: {refused}");
    let credentials = ours.client(None, Some(token));
    let peers = Peers::new(credentials);
    let asking = Server::beside(&first, |api| {
        api.with_journals(PeerJournals::of("m1")).with_peers(peers.clone())
    })
    .await;
    assert_eq!(asking.get(&format!("{PATH}?lines=1")).await.to_string(), "200 1 of m2\n");
    peers.set_credentials(ours.client(None, Some("some-other-token-here")));
    let refused = asking.get(PATH).await;
    assert_eq!(refused.status, 502, "{refused}");
    let expected = "cannot read from machine m2: its daemon refused authentication: unknown token";
    assert!(refused.message().starts_with(expected), "{refused}");
}

/// A daemon does not send its token without encryption. Otherwise, an attacker with write access to
/// the store could direct the token to any address.
#[tokio::test]
async fn peer_token_is_not_sent_in_plain_text() {
    let (first, second, _) = two().await;
    place_on_second(&first, &second, "http://192.0.2.1:4285").await;
    let token = Some("the-token-of-the-tests".parse().unwrap());
    let peers = Peers::new(Credentials::default().with_token(token));
    let asking =
        Server::beside(&first, |api| api.with_journals(PeerJournals::of("m1")).with_peers(peers))
            .await;
    let refused = asking.get(PATH).await;
    assert_eq!(refused.status, 502, "{refused}");
    assert!(
        refused.message().contains("refusing to send a token to http://192.0.2.1:4285"),
        "{refused}"
    );
}

#[tokio::test]
async fn proxied_request_is_not_forwarded_again() {
    let (first, second, _) = two().await;
    // The machine's API URL belongs to another daemon.
    place_on_second(&second, &first, &first.at.to_string()).await;
    let other = Server::beside(&first, |api| api.with_journals(PeerJournals::of("m3"))).await;
    let response = other.get(PATH).await;
    assert_eq!(response.status, 502, "{response}");
    let expected = format!("the daemon at {} is that of another machine", first.at);
    assert!(response.message().contains(&expected), "{response}");
    let headers = [("X-Fleet-Proxied", "1")];
    let response = http::request(&first.at, "GET", PATH, &headers, "").await;
    assert_eq!(response.status, 501, "{response}");
}

#[tokio::test]
async fn global_journal_names_unreachable_machines() {
    let (first, second, _) = two().await;
    let silent = UnixListener::bind(first.folder().join("silent")).unwrap();
    let silent_at = format!("unix://{}", first.folder().join("silent").display());
    let unreachable = format!("unix://{}", first.folder().join("unreachable").display());
    let machines = [
        ("m1", first.at.to_string()),
        ("m2", second.at.to_string()),
        ("m3", unreachable.clone()),
        ("m4", silent_at),
        ("m5", String::new()),
    ];
    global(&first, &machines.each_ref().map(|(id, api)| (*id, api.as_str()))).await;
    let response = first.get(&format!("{PATH}?lines=2")).await;
    assert_eq!(response.status, 200, "{response}");
    let lines: Vec<&str> = response.body.lines().collect();
    let absent = format!("m3: [cannot read from machine m3: cannot connect to {unreachable}: ");
    let beginnings = [
        "m1: 1 of m1",
        "m2: 1 of m2",
        "m1: 2 of m1",
        "m2: 2 of m2",
        &absent,
        "m4: [cannot read from machine m4: no data within 3 seconds]",
        "m5: [the journal is on machine m5, which has not published the URL of its API]",
    ];
    assert_eq!(lines.len(), beginnings.len(), "{response}");
    for (line, beginning) in lines.iter().zip(beginnings) {
        assert!(line.starts_with(beginning), "{line}");
    }
    let status = first.client().status(&name("a.service"), None).await.unwrap().unwrap();
    let missing: Vec<bool> =
        status.machines.iter().map(|on| !on.journal_error.is_empty()).collect();
    assert_eq!(missing, [false, false, true, true, true]);
    assert!(status.machines.iter().all(|on| on.state.is_some()));
    drop(silent);
}

#[tokio::test]
async fn followed_global_journal_is_not_delayed() {
    let (first, second, journals_of_m2) = two().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_at = format!("http://{}", silent.local_addr().unwrap());
    let machines = [("m1", first.at.to_string()), ("m2", second.at.to_string()), ("m3", silent_at)];
    global(&first, &machines.each_ref().map(|(id, api)| (*id, api.as_str()))).await;
    let options = JournalOptions::default().with_lines(1).with_follow(true);
    let mut journal = first.client().journal(&name("a.service"), &options).await.unwrap();
    let mut heard = [next(&mut journal).await, next(&mut journal).await];
    heard.sort_unstable();
    assert_eq!(heard, ["m1: 1 of m1", "m2: 1 of m2"]);
    journals_of_m2.new_lines.send("news".to_owned()).unwrap();
    let mut later = [next(&mut journal).await, next(&mut journal).await];
    later.sort_unstable();
    assert_eq!(later[0], "m2: news");
    assert!(later[1].starts_with("m3: [cannot read from machine m3"), "{}", later[1]);
}

#[tokio::test]
async fn shutdown_ends_forwarded_journals() {
    let (first, second, _) = two().await;
    place_on_second(&first, &second, &second.at.to_string()).await;
    let options = JournalOptions::default().with_lines(1).with_follow(true);
    let mut journal = first.client().journal(&name("a.service"), &options).await.unwrap();
    assert_eq!(next(&mut journal).await, "1 of m2");
    first.stop().await;
    let end = tokio::time::timeout(http::DEADLINE, journal.next_line()).await.unwrap();
    assert!(matches!(end, Err(ClientError::Broken { .. })), "not interrupted: {end:?}");
}

async fn next(journal: &mut fleet_http::client::JournalLines) -> String {
    let line = tokio::time::timeout(http::DEADLINE, journal.next_line()).await;
    line.expect("no line within the deadline").unwrap().expect("the journal ended")
}

#[tokio::test]
async fn tls_forwarding_keeps_line_order() {
    let ours = Authority::new();
    let (first, second, journals_of_m2) = two().await;
    let own = ours.sign();
    let auth = AuthPolicy::new(Some(ours.server(true)), None);
    let journals = journals_of_m2.clone();
    let protected =
        Server::beside_with_auth(&second, &auth, |api| api.with_journals(journals)).await;
    place_on_second(&first, &protected, &protected.at.to_string()).await;
    let credentials: Credentials = ours.client(Some(&own), None);
    let asking = Server::beside(&first, |api| {
        api.with_journals(PeerJournals::of("m1")).with_peers(Peers::new(credentials))
    })
    .await;
    let options = JournalOptions::default().with_lines(1).with_follow(true);
    let client = Client::new(&asking.at.to_string().parse().unwrap());
    let mut journal = client.journal(&name("a.service"), &options).await.unwrap();
    assert_eq!(next(&mut journal).await, "1 of m2");
    for number in 0..500 {
        journals_of_m2.new_lines.send(format!("line {number}")).unwrap();
    }
    for number in 0..500 {
        assert_eq!(next(&mut journal).await, format!("line {number}"));
    }
}

#[tokio::test]
async fn status_of_a_single_machine() {
    let (first, second, _) = two().await;
    let api = second.at.to_string();
    global(&first, &[("m1", ""), ("m2", &api)]).await;
    let status = first.client().status(&name("a.service"), Some(0)).await.unwrap().unwrap();
    let tracking = status.machines.iter().map(|on| on.details.clone().unwrap().tracking);
    assert_eq!(tracking.collect::<Vec<_>>(), ["by m1", "by m2"]);
    let response = first.get("/fleet/v1/units/a.service/status?lines=0&machine=m2").await;
    let status: fleet_http::wire::UnitStatusReport = serde_json::from_str(&response.body).unwrap();
    let on: Vec<_> = status.machines.iter().map(|on| on.machine_id.as_str()).collect();
    assert_eq!(on, ["m2"]);
}
