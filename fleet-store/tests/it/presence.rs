//! A machine's claim to its identity, and its published states.

use std::net::IpAddr;
use std::time::Duration;

use fleet_core::{Revision, SystemdState, Timestamp, UnitState};
use fleet_store::RegistryError;
use fleet_store::registry::MachineRecord;

use crate::support::{TTL, id, join, machine, mirror, name, registry, soon, state};

#[tokio::test(start_paused = true)]
async fn machine_is_present_until_it_leaves() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let presence = join(&registry, "m-1").await;
    let revision = registry.store().read("").await.unwrap().revision;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    let found = snapshot.machine("m-1").unwrap();
    assert_eq!(found.address, Some("192.0.2.7".parse::<IpAddr>().unwrap()));
    assert_eq!((found.metadata["region"].as_str(), found.version.as_str()), ("eu", "1.0.0"));
    presence.leave().await.unwrap();
    let snapshot = soon(mirror.wait_for(revision.next())).await.unwrap();
    assert!(snapshot.machine("m-1").is_none());
}

#[tokio::test(start_paused = true)]
async fn silent_machine_expires() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let presence = join(&registry, "m-1").await;
    let revision = presence.publish_states(&[state("a.service", "failed")], &[]).await.unwrap();
    for _ in 0..4 {
        tokio::time::advance(TTL / 2).await;
        presence.renew().await.unwrap();
    }
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert!(snapshot.machine("m-1").is_some());
    let snapshot = soon(mirror.wait_for(revision.next())).await.unwrap();
    assert!(snapshot.machine("m-1").is_none());
    assert!(snapshot.state("a.service", "m-1").is_none());
    let lost = |result: Result<(), RegistryError>| {
        assert!(matches!(result, Err(RegistryError::PresenceLost { id }) if id == self::id("m-1")));
    };
    lost(presence.renew().await);
    lost(presence.publish_states(&[state("a.service", "x")], &[]).await.map(drop));
    lost(presence.publish_states(&[], &[name("a.service")]).await.map(drop));
    lost(presence.update_machine(machine("m-1")).await.map(drop));
}

// Holds: I-11
#[tokio::test(start_paused = true)]
async fn copied_machine_is_refused_with_the_holder() {
    let registry = registry();
    let (host, started) = ("web-1".to_owned(), Some(Timestamp::from_millis(1_795_310_000_000)));
    let record = MachineRecord { host, started, ..machine("m-1") };
    let presence = registry.join(record.clone(), "token", TTL).await.unwrap();
    let refused = registry.join(machine("m-1"), "another token", TTL).await.unwrap_err();
    insta::assert_snapshot!(refused.to_string().replace(", ", ",\n").replace(": ", ":\n"), @r"
    machine ID m-1 is in use by another machine,
    web-1 at 192.0.2.7,
    with fleet 1.0.0,
    since Sun,
    22 Nov 2026 01:13:20 GMT:
    give one of the two machines another ID (machine_id in the configuration,
    or /etc/machine-id),
    or wait until the other machine has left the cluster
    ");
    let RegistryError::MachineTaken { holder, .. } = refused else { panic!("{refused}") };
    assert_eq!(holder.as_deref(), Some(&record));

    // A minimal record gives a short description, and a wrong clock does no harm.
    let started = Some(Timestamp::from_millis(u64::MAX));
    let bare = MachineRecord { started, ..MachineRecord::new(id("m-1")) };
    presence.update_machine(bare).await.unwrap();
    let refused = registry.join(machine("m-1"), "another token", TTL).await.unwrap_err();
    assert!(refused.to_string().contains("by another machine: give one"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn returning_machine_takes_over_its_claim_immediately() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let before = join(&registry, "m-1").await;
    before.publish_states(&[state("a.service", "old")], &[]).await.unwrap();
    let presence = join(&registry, "m-1").await;
    assert_ne!(presence.lease(), before.lease());
    // The earlier presence's states are gone with its lease, and it cannot publish any more.
    let revision = registry.store().read("").await.unwrap().revision;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert!(snapshot.machine("m-1").is_some());
    assert_eq!(snapshot.states().count(), 0);
    let late = before.publish_states(&[state("a.service", "late")], &[]).await;
    assert!(matches!(late, Err(RegistryError::PresenceLost { .. })));
    let late = before.publish_states(&[], &[name("a.service")]).await;
    assert!(matches!(late, Err(RegistryError::PresenceLost { .. })));
    presence.publish_states(&[state("a.service", "new")], &[]).await.unwrap();
    presence.renew().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn machine_record_can_change() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let presence = join(&registry, "m-1").await;
    let mut record = machine("m-2");
    record.version = "2.0.0".to_owned();
    presence.update_machine(record).await.unwrap();
    let revision = presence.publish_states(&[state("a.service", "x")], &[]).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!(snapshot.machine("m-1").unwrap().version, "2.0.0");
    assert!(snapshot.machine("m-2").is_none());
}

#[tokio::test(start_paused = true)]
async fn published_states_round_trip() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let presence = join(&registry, "m-1").await;
    let mut plain = state("plain.service", "dead");
    plain.systemd = SystemdState::loaded();
    plain.problem = None;
    let states = [state("a.service", "failed"), plain];
    let revision = presence.publish_states(&states, &[]).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    let published: Vec<UnitState> = snapshot.states().map(|state| (**state).clone()).collect();
    assert_eq!(published, states);
    let revision = presence.publish_states(&[], &[name("a.service")]).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!(snapshot.states().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_states_take_few_steps() {
    let registry = registry();
    let presence = join(&registry, "m-1").await;
    let states: Vec<_> = (0..250).map(|i| state(&format!("u{i}.service"), "x")).collect();
    let before = registry.store().read("").await.unwrap().revision;
    let revision = presence.publish_states(&states, &[]).await.unwrap();
    assert_eq!(revision, Revision(before.0 + 2));
    let stored = registry.store().read("/fleet/states/m-1/").await.unwrap().entries;
    assert_eq!(stored.len(), 250);
    assert!(stored.iter().all(|entry| entry.lease == Some(presence.lease())));
    assert_eq!(presence.publish_states(&[], &[]).await.unwrap(), Revision::ZERO);
}

#[tokio::test(start_paused = true)]
async fn long_problem_text_is_truncated() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let presence = join(&registry, "m-1").await;
    let mut long = state("a.service", "x");
    long.problem = Some("\u{e9}".repeat(100_000));
    let revision = presence.publish_states(&[long], &[]).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    let problem = snapshot.state("a.service", "m-1").unwrap().problem.clone().unwrap();
    assert_eq!(problem, "\u{e9}".repeat(2048));
}

// Holds: I-11
#[tokio::test(start_paused = true)]
async fn only_one_of_two_concurrent_joins_succeeds() {
    let registry = registry();
    let join = |token: &'static str| {
        let registry = registry.clone();
        tokio::spawn(
            async move { registry.join(machine("m-1"), token, Duration::from_secs(9)).await },
        )
    };
    let results = [join("one"), join("other")];
    let mut joined = 0;
    for result in results {
        joined += usize::from(result.await.unwrap().is_ok());
    }
    assert_eq!(joined, 1);
}
