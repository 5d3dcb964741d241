//! Snapshots share unchanged data. The tests count entries by their addresses.

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet_core::Snapshot;

use crate::support::{join, mirror, name, registry, soon, state, submit};

const UNITS: usize = 1000;

/// Number of adjacent entries that are copied together on a change.
const CHUNK: usize = 64;

/// Counts the entries in `after` that are copies, which means that no entry in `before` has the
/// same address.
fn copied<'a, T: 'a>(
    before: impl Iterator<Item = &'a T>,
    after: impl Iterator<Item = &'a T>,
) -> usize {
    let before: BTreeSet<*const T> = before.map(std::ptr::from_ref).collect();
    after.filter(|entry| !before.contains(&std::ptr::from_ref(*entry))).count()
}

fn copied_units(before: &Snapshot, after: &Snapshot) -> usize {
    copied(before.units(), after.units())
}

fn copied_states(before: &Snapshot, after: &Snapshot) -> usize {
    copied(before.states(), after.states())
}

#[tokio::test(start_paused = true)]
async fn change_copies_only_neighbouring_entries() {
    let registry = registry();
    let presence = join(&registry, "m-1").await;
    let unit = |number: usize| format!("u{number}.service");
    for number in 0..UNITS {
        submit(&registry, &unit(number)).await;
    }
    let states: Vec<_> = (0..UNITS).map(|number| state(&unit(number), "failed")).collect();
    presence.publish_states(&states, &[]).await.unwrap();
    let mirror = mirror(&registry).await;
    let held = mirror.snapshot();
    assert!(Arc::ptr_eq(&held, &mirror.snapshot()));
    let copy = Snapshot::clone(&held);
    assert_eq!((copied_units(&held, &copy), copied_states(&held, &copy)), (0, 0));

    let (revision, _) = registry.request_restart(&name(&unit(500))).await.unwrap();
    let after = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!((after.units().len(), after.states().count()), (UNITS, UNITS));
    let changed = copied_units(&held, &after);
    assert!((1..=CHUNK).contains(&changed), "{changed} of {UNITS} units were copied");
    assert_eq!(copied_states(&held, &after), 0);

    presence.publish_states(&[state(&unit(7), "running")], &[]).await.unwrap();
    let revision = registry.store().read("").await.unwrap().revision;
    let last = soon(mirror.wait_for(revision)).await.unwrap();
    let changed = copied_states(&after, &last);
    assert!((1..=CHUNK).contains(&changed), "{changed} of {UNITS} states were copied");
    assert_eq!(copied_units(&after, &last), 0);
    // Readers that hold the earlier snapshot still see its state.
    let generation = |snapshot: &Snapshot| snapshot.unit("u500.service").unwrap().generation;
    assert!(generation(&held) < generation(&last));
}
