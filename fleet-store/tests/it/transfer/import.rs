//! Importing: refusals, existing objects, placements, and interruptions.

use std::time::Duration;

use fleet_core::{Epoch, Generation, Intent, Snapshot};
use fleet_store::registry::{AdoptedUnit, ExpectUnit, Key};
use fleet_store::transfer::{ImportOptions, ImportReport, RescheduleReason, import};
use fleet_store::{Registry, RegistryError, StoreError, Transaction};

use super::{
    add_lineage, cluster, faulty, file, import_file, options, over, place, read, snapshot, wrapped,
};
use crate::support::{TTL, destroy, id, name, registry, submit, unit};

fn placements(snapshot: &Snapshot) -> Vec<String> {
    snapshot.placements().map(|(unit, it)| format!("{unit} on {}", it.machine)).collect()
}

async fn try_to(registry: &Registry, file: &[u8], options: ImportOptions) -> ImportReport {
    add_lineage(registry).await;
    import(registry, read(file).unwrap(), &options).await.unwrap()
}

/// An agent that remembers a unit's earlier placement must accept the new one, and all later ones.
// Holds: I-2
#[tokio::test]
async fn imported_epochs_exceed_those_that_machines_remember() {
    let source = cluster().await;
    let before = snapshot(&source).await.placement("web.service").unwrap().epoch;
    let target = registry();
    let report = import_file(&target, &file(&source).await).await;
    assert_eq!((report.created, report.placements_kept, report.reschedule_reason), (3, 1, None));
    let after = snapshot(&target).await;
    let kept = after.placement("web.service").unwrap();
    assert_eq!(kept.machine, id("m-1"));
    assert!(kept.epoch > Epoch(before.0 + 1_000_000));
    assert_eq!(
        after.unit("web.service").unwrap().generation,
        snapshot(&source).await.unit("web.service").unwrap().generation
    );
    place(&target, "db.service", "m-2").await;
    let after = snapshot(&target).await;
    assert!(after.placement("db.service").unwrap().epoch > kept.epoch);

    // The same holds for a restart of a recreated unit: a machine may remember the earlier one.
    let known = after.unit("web.service").unwrap().generation;
    destroy(&target, "web.service").await.unwrap();
    submit(&target, "web.service").await;
    let (_, generation) = target.request_restart(&name("web.service")).await.unwrap();
    assert!(generation.0 > known.0 + 1_000_000);

    // The cluster can be moved again, and gets even later epochs.
    let third = registry();
    import_file(&third, &file(&target).await).await;
    let third = snapshot(&third).await;
    let last = after.placement("db.service").unwrap().epoch;
    assert!(third.placement("db.service").unwrap().epoch > Epoch(last.0 + 1_000_000));
}

// Holds: I-2
#[tokio::test]
async fn import_reschedules_if_the_engine_may_decide_differently() {
    let file = file(&cluster().await).await;
    let full = registry();
    submit(&full, "own.service").await;
    let report = import_file(&full, &file).await;
    assert_eq!((report.placements_kept, report.rescheduled), (0, 1));
    assert_eq!(report.reschedule_reason, Some(RescheduleReason::OwnUnits(1)));

    let led = registry();
    let leader = led.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let report = import_file(&led, &file).await;
    assert_eq!((report.created, report.placements_kept, report.rescheduled), (3, 0, 1));
    assert_eq!(report.reschedule_reason, Some(RescheduleReason::EngineLeads));
    // New placements have epochs later than those that machines remember.
    let remembered = read(&file).unwrap().max_epoch();
    drop(leader.resign().await);
    place(&led, "web.service", "m-1").await;
    let epoch = snapshot(&led).await.placement("web.service").unwrap().epoch;
    assert!(epoch > Epoch(remembered.0 + 1_000_000), "{epoch:?} {remembered:?}");
    destroy(&led, "web.service").await.unwrap();
    for target in [full, led] {
        assert!(placements(&*snapshot(&target).await).is_empty());
    }
}

/// The leader stays, and epochs are not raised.
#[tokio::test]
async fn reimporting_an_own_export_deposes_no_leader() {
    let cluster = cluster().await;
    let leader = cluster.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let (own, mut lines) = (file(&cluster).await, Vec::new());
    destroy(&cluster, "db.service").await.unwrap();
    let report = import_file(&cluster, &own).await;
    assert_eq!((report.created, report.unchanged), (1, 2));
    leader.renew().await.unwrap();
    let after = cluster.export().await.unwrap();
    assert_eq!(after.lineage.as_ref().unwrap().epoch_base(), 0);
    // An older copy of the store has lower epochs than machines may remember.
    lines.extend(after.lines().flatten());
    let earlier = super::cluster().await;
    assert_eq!(import_file(&earlier, &lines).await.unchanged, 3);
    assert!(earlier.export().await.unwrap().max_epoch > read(&lines).unwrap().max_epoch());
}

/// The import leads, so an earlier leader cannot write any more, and the next one sees everything.
// Holds: I-3
#[tokio::test]
async fn import_has_its_own_term() {
    let target = registry();
    let before = target.campaign(&id("fleetctl-import"), TTL).await.unwrap().unwrap();
    import_file(&target, &file(&cluster().await).await).await;
    let late = before.commit(&fleet_store::registry::PlacementWrites::default()).await;
    assert!(late.is_ok(), "nothing was to be written");
    let mut before = before;
    let late = before.raise_epochs(Epoch(1)).await;
    assert!(matches!(late, Err(RegistryError::Deposed { .. })), "{late:?}");
    let next = target.campaign(&id("m-1"), TTL).await.unwrap().expect("the import has resigned");
    assert_eq!(next.term().0, before.term().0 + 2);
}

/// Adopted units use the same encoding as created ones.
#[tokio::test]
async fn adopted_contents_have_the_format_line() {
    let target = registry();
    assert_eq!(import_file(&target, &file(&cluster().await).await).await.placements_kept, 1);
    let contents = target.store().read("/fleet/contents/").await.unwrap().entries;
    assert_eq!(contents.len(), 3);
    for content in contents {
        assert!(content.value.starts_with(b"{\"v\":1}\n"), "{}", content.key);
    }
}

/// Not even a leader overwrites a unit or placement that was created concurrently.
#[tokio::test]
async fn existing_unit_is_not_adopted() {
    let target = registry();
    submit(&target, "a.service").await;
    let leader = target.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let adopted = |unit_name: &str| AdoptedUnit {
        unit: unit(unit_name, "[Service]\nExecStart=/bin/x\n", "launched".parse().unwrap()),
        generation: Generation::ZERO,
        machine: Some(id("m-1")),
    };
    let both = [adopted("b.service"), adopted("a.service")];
    let conflict = leader.adopt(&both).await;
    assert!(matches!(conflict, Err(RegistryError::Conflict)), "{conflict:?}");
    assert!(placements(&*snapshot(&target).await).is_empty());
    leader.adopt(&both[..1]).await.unwrap();
    assert_eq!(placements(&*snapshot(&target).await), ["b.service on m-1"]);
}

/// An adopted unit gets exactly one placement, despite leftovers of a destroyed unit.
#[tokio::test]
async fn adopting_a_unit_deletes_orphaned_placements() {
    let target = registry();
    let leader = target.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    for machine in ["m-1", "m-2"] {
        let key = target.layout().key(&Key::Placement(id(machine), name("a.service")));
        target.store().commit(Transaction::new().put(key, "{}")).await.unwrap();
    }
    let adopted = AdoptedUnit {
        unit: unit("a.service", "[Service]\nExecStart=/bin/x\n", "launched".parse().unwrap()),
        generation: Generation::ZERO,
        machine: Some(id("m-1")),
    };
    leader.adopt(&[adopted]).await.unwrap();
    assert_eq!(placements(&*snapshot(&target).await), ["a.service on m-1"]);
    assert_eq!(target.store().read("/fleet/placements/").await.unwrap().entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn interrupted_import_is_completed_by_a_repeat() {
    let source = cluster().await;
    for number in 0..150 {
        submit(&source, &format!("n{number}.service")).await;
        if number % 3 == 0 {
            place(&source, &format!("n{number}.service"), "m-2").await;
        }
    }
    let written = file(&source).await;
    let expected = placements(&*snapshot(&source).await);
    let mut broken = 0;
    for calls in 1..100 {
        let store = faulty();
        let target = over(store.clone());
        add_lineage(&target).await;
        store.set_delay(Duration::from_millis(1));
        let (file, options) = (read(&written).unwrap(), options());
        // Each call takes a millisecond, so the timeout interrupts a different call each time.
        let cut =
            tokio::time::timeout(Duration::from_millis(calls), import(&target, file, &options));
        let ended = cut.await.is_ok();
        let report = import_file(&target, &written).await;
        assert_eq!(report.mismatches, Some(Vec::new()));
        assert_eq!(report.created + report.unchanged, 153);
        assert_eq!(placements(&*snapshot(&target).await), expected, "after {calls} calls");
        if ended {
            break;
        }
        broken += 1;
    }
    assert!(broken > 8, "only {broken} interruptions");
}

#[tokio::test]
async fn lost_response_is_reported_and_a_repeat_is_safe() {
    let store = faulty();
    let target = over(store.clone());
    let written = file(&cluster().await).await;
    add_lineage(&target).await;
    store.lose_responses(1);
    let lost = import(&target, read(&written).unwrap(), &options()).await;
    assert!(matches!(lost, Err(RegistryError::Store(StoreError::Unknown(_)))), "{lost:?}");
    assert_eq!(import_file(&target, &written).await.mismatches, Some(Vec::new()));
}

#[tokio::test]
async fn import_reports_all_problems_and_writes_nothing() {
    let source = registry();
    for (unit_name, text) in [
        ("a.service", "[X-Fleet]\nMachineOf=b.service\n"),
        ("b.service", "[X-Fleet]\nMachineOf=a.service\n"),
        ("c.service", "[X-Fleet]\nMachineMetaData=a=b\nX-Conflict=c\n"),
        ("d.service", "[Service]\nExecStart=/bin/d\n"),
        ("e@.service", "[Service]\nExecStart=/bin/e\n"),
        ("f.service", "[X-Fleet]\nStartAfter=g.service\n"),
        ("g.service", "[X-Fleet]\nStartAfter=f.service\n"),
        ("h.service", "[X-Fleet]\nStartAfter=g.service\n"),
    ] {
        let new = unit(unit_name, text, "launched".parse().unwrap());
        source.put_unit(new, ExpectUnit::Absent).await.unwrap();
    }
    let written = file(&source).await;
    let target = registry();
    let other = unit("d.service", "[Service]\nExecStart=/bin/x\n", "launched".parse().unwrap());
    target.put_unit(other, ExpectUnit::Absent).await.unwrap();
    add_lineage(&target).await;
    let before = target.store().read("").await.unwrap();
    let report = import_file(&target, &written).await;
    assert_eq!(target.store().read("").await.unwrap(), before);
    let messages = report.refused.iter().flat_map(|it| {
        it.reasons.iter().map(|reason| format!("{}: {}: {reason}\n", it.location, it.name))
    });
    insta::assert_snapshot!(wrapped(&messages.collect::<String>()), @r#"
    line 2: a.service: MachineOf forms a dependency cycle: a.service -> b.service ->
      a.service
    line 3: b.service: MachineOf forms a dependency cycle: b.service -> a.service ->
      b.service
    line 4: c.service: 2:1: [X-Fleet] has no option "MachineMetaData"; write
      MachineMetadata, spelled exactly so
    line 4: c.service: 3:1: [X-Fleet] has no option "X-Conflict"; write Conflicts,
      spelled exactly so
    line 5: d.service: its unit file in the cluster is different: the hash is
      77743f616f04ae251970e39c0656153229b74dba, in the file
      4fdd028892555d42daccf803d33ee0b7c5e97b70
    line 6: e@.service: a template cannot be activated: its desired state is launched
    line 7: f.service: StartAfter forms a dependency cycle: f.service -> g.service ->
      f.service
    line 8: g.service: StartAfter forms a dependency cycle: f.service -> g.service ->
      f.service
    "#);
    assert_eq!(report.mismatches, None);

    let lenient = ImportOptions { keep_going: true, replace: true, ..options() };
    let report = try_to(&target, &written, lenient).await;
    assert_eq!((report.created, report.replaced, report.refused.len()), (1, 1, 6));
    let d = snapshot(&target).await.unit("d.service").unwrap().file.source().to_vec();
    assert!(d.ends_with(b"/bin/d\n"));
}

#[tokio::test]
async fn dry_run_writes_nothing_and_reports_the_plan() {
    let target = registry();
    let written = file(&cluster().await).await;
    let dry = ImportOptions { dry_run: true, ..options() };
    add_lineage(&target).await;
    let before = target.store().read("").await.unwrap().entries;
    let mut would = try_to(&target, &written, dry).await;
    assert_eq!(target.store().read("").await.unwrap().entries, before);
    let done = import_file(&target, &written).await;
    would.mismatches = Some(Vec::new());
    assert_eq!(done, would);
}

#[tokio::test]
async fn different_metadata_is_refused_without_replace() {
    let target = registry();
    let (machine, key, value) = (id("m-2"), "rack".to_owned(), "8".to_owned());
    let change = fleet_store::registry::MetadataChange::Set { machine, key, value };
    target.patch_metadata(&[change]).await.unwrap();
    let written = file(&cluster().await).await;
    let report = import_file(&target, &written).await;
    assert_eq!(report.refused[0].name, "metadata rack of machine m-2");
    assert!(snapshot(&target).await.unit("web.service").is_none());
    let report = try_to(&target, &written, ImportOptions { replace: true, ..options() }).await;
    assert_eq!((report.metadata, report.mismatches), (1, Some(Vec::new())));
}

#[tokio::test]
async fn different_intent_is_refused_without_replace() {
    let target = registry();
    target.set_intent(&id("m-2"), Some(Intent::Cordoned)).await.unwrap();
    let written = file(&cluster().await).await;
    let report = import_file(&target, &written).await;
    assert_eq!((report.refused[0].name.as_str(), report.intents), ("machine m-2", 1));
    let reason = "it is cordoned in the cluster, but drained with 2 up in the file";
    assert_eq!(report.refused[0].reasons, [reason]);
    assert_eq!(target.export().await.unwrap().intents.len(), 1);
    let report = try_to(&target, &written, ImportOptions { replace: true, ..options() }).await;
    assert_eq!((report.intents, report.mismatches), (2, Some(Vec::new())));
    let intents = target.export().await.unwrap().intents;
    assert_eq!(intents[&id("m-2")], Intent::Drained { min_available: 2 });
}

/// A concurrent change between writing and reading back is reported.
#[tokio::test]
async fn import_compares_the_state_read_back() {
    let target = registry();
    let written = file(&cluster().await).await;
    import_file(&target, &written).await;
    let import = read(&written).unwrap();
    let before = target.export().await.unwrap();
    let plan = fleet_store::transfer::ImportPlan::new(import, &before, &options());
    destroy(&target, "web.service").await.unwrap();
    target.set_desired(&name("db.service"), "launched".parse().unwrap()).await.unwrap();
    target.set_intent(&id("m-3"), None).await.unwrap();
    let differing = plan.mismatches(&target.export().await.unwrap());
    assert_eq!(differing, ["db.service", "web.service", "machine m-3"]);
}

/// Epochs count from the lineage's base, so without a lineage they cannot be raised.
#[tokio::test]
async fn import_without_a_lineage_is_refused() {
    let (target, file) = (registry(), file(&cluster().await).await);
    let refused = import(&target, read(&file).unwrap(), &options()).await;
    assert!(matches!(refused, Err(RegistryError::NoLineage)), "{refused:?}");
    assert_eq!(target.store().read("").await.unwrap().entries, []);
}
