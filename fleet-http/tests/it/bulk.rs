//! Writes of several units in one request.

use std::collections::BTreeMap;

use fleet_core::{Revision, TargetState};
use fleet_http::ClientError;
use fleet_http::client::{UnitUpload, UnitWrites};
use fleet_unitfile::UnitFile;

use crate::harness::{Server, name};

fn upload(seconds: u32) -> UnitUpload {
    let file = UnitFile::parse(format!("[Service]\nExecStart=/bin/sleep {seconds}\n")).unwrap();
    UnitUpload::new(file).with_desired(TargetState::Launched)
}

/// Returns the desired states, and the revision.
async fn units(server: &Server) -> (BTreeMap<String, String>, Revision) {
    let all = server.client().units().await.unwrap();
    let states = all.into_iter().map(|unit| (unit.name, unit.desired_state));
    (states.collect(), server.mirror.snapshot().revision)
}

async fn refusal(server: &Server, writes: UnitWrites) -> String {
    let before = units(server).await;
    let error = server.client().write_units(&writes).await.expect_err("it is refused");
    assert_eq!(units(server).await, before, "{error}");
    match error {
        ClientError::Api { status, message, .. } => format!("{status} {message}\n"),
        other => other.to_string(),
    }
}

#[tokio::test]
async fn all_kinds_of_writes_share_one_revision() {
    let server = Server::start().await;
    server.sleepers(&["a.service", "b.service", "c.service", "d.service"], "launched").await;
    let (_, before) = units(&server).await;
    let writes = UnitWrites::default()
        .put(&name("new.service"), &upload(1))
        .put(&name("a.service"), &upload(2))
        .set_desired(&name("b.service"), TargetState::Loaded)
        .restart(&name("c.service"))
        .destroy(&name("d.service"));
    let written = server.client().write_units(&writes).await.unwrap();
    let generations = written.generations;
    let (now, after) = units(&server).await;
    assert_eq!(after, before.next());
    let lines: String = now.iter().map(|(unit, state)| format!("{unit} {state}\n")).collect();
    insta::assert_snapshot!(lines, @r"
    a.service launched
    b.service loaded
    c.service launched
    new.service launched
    ");
    let generation = |unit: &str| generations[&name(unit)].0;
    assert_eq!((generation("a.service"), generation("new.service")), (0, 0));
    assert!(generation("b.service") > 0 && generation("c.service") > 0, "{generations:?}");
}

#[tokio::test]
async fn nothing_is_written_unless_all_can_be() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "inactive").await;
    server.sleepers(&["b.service"], "launched").await;
    let hash = |seconds| Some(upload(seconds).file.hash());
    let new = || UnitWrites::default().put(&name("new.service"), &upload(1));
    let after = |other: &str| {
        UnitUpload::new(UnitFile::parse(format!("[X-Fleet]\nStartAfter={other}\n")).unwrap())
    };
    let bad = UnitFile::parse("[X-Fleet]\nGlobbal=true\n").unwrap();
    let mut all = String::new();
    for writes in [
        new().put(&name("bad.service"), &UnitUpload::new(bad)),
        new()
            .put(&name("a.service"), &after("x.service"))
            .put(&name("x.service"), &after("a.service")),
        new().set_desired(&name("none.service"), TargetState::Loaded),
        new().destroy(&name("none.service")),
        new().restart(&name("a.service")),
        new().destroy(&name("new.service")),
        new().put(&name("a.service"), &upload(1).with_create_only(true)),
        new().expect(&name("b.service"), hash(7)),
        new().expect(&name("none.service"), hash(7)),
        new().expect(&name("a.service"), None),
        new().if_unchanged_since("1-another"),
    ] {
        all += &refusal(&server, writes).await;
    }
    insta::assert_snapshot!(all.replace(": ", ":\n  ").replace("made, ", "made,\n  "), @r#"
    400 bad.service:
      line 2, column 1:
      [X-Fleet] has no option "Globbal":
      write Global, spelled exactly so
    400 StartAfter forms a dependency cycle:
      a.service -> x.service -> a.service
    404 none.service:
      unit does not exist
    404 none.service:
      unit does not exist
    409 cannot restart a.service:
      its desired state is inactive; start it instead
    400 new.service is in the request twice:
      name each unit once
    412 nothing was written:
      a.service was created by another client:
      read it again and retry
    412 nothing was written:
      b.service was changed by another client:
      read it again and retry
    412 nothing was written:
      none.service was destroyed by another client:
      read it again and retry
    412 nothing was written:
      a.service was created by another client:
      read it again and retry
    412 the plan is too old to carry out:
      plan again
    "#);
}

#[tokio::test]
async fn changed_cluster_refuses_a_planned_write() {
    let server = Server::start().await;
    let _m1 = server.machine("m1", &[]).await;
    server.sleepers(&["a.service"], "launched").await;
    let writes = || UnitWrites::default().put(&name("b.service"), &upload(1));
    let plan = async || server.client().plan(&[(name("b.service"), upload(1))], &[]).await.unwrap();
    let mut all = String::new();

    let revision = plan().await.revision;
    let m2 = server.machine("m2", &[]).await;
    server.decide(&[("a.service", "m1")], &[]).await;
    all += &refusal(&server, writes().if_unchanged_since(&revision)).await;

    let revision = plan().await.revision;
    for unit in ["u", "v", "w", "x", "y", "z"] {
        server.sleepers(&[&format!("{unit}.service")], "inactive").await;
    }
    all += &refusal(&server, writes().if_unchanged_since(&revision)).await;

    // What units report does not change a plan.
    let revision = plan().await.revision;
    server.publish(&m2, crate::harness::running("a.service", "m2")).await;
    let writes = writes().if_unchanged_since(&revision);
    server.client().write_units(&writes).await.unwrap();
    insta::assert_snapshot!(all.replace(": ", ":\n  ").replace("made, ", "made,\n  "), @r"
    412 since the plan was made,
      machine m2, the placement of a.service changed:
      plan again
    412 since the plan was made,
      u.service, v.service, w.service, x.service, y.service and 1 more changed:
      plan again
    ");
}

#[tokio::test]
async fn many_units_are_written_in_steps() {
    let server = Server::start().await;
    let names: Vec<_> = (0..300).map(|number| name(&format!("a@{number}.service"))).collect();
    let put = |seconds: u32| {
        names.iter().zip(0..).fold(UnitWrites::default(), |writes, (unit, number)| {
            writes.put(unit, &upload(seconds + number))
        })
    };
    let before = units(&server).await.1;
    server.client().write_units(&put(0)).await.unwrap();
    let (all, after) = units(&server).await;
    assert_eq!((all.len(), after.0 - before.0), (300, 8));
    // Instances with the same file share one write of their content.
    let same = names
        .iter()
        .take(120)
        .fold(UnitWrites::default(), |writes, unit| writes.put(unit, &upload(9)));
    server.client().write_units(&same).await.unwrap();
    assert_eq!(units(&server).await.1.0, after.0 + 2);
    let destroy = names.iter().fold(UnitWrites::default(), UnitWrites::destroy);
    server.client().write_units(&destroy).await.unwrap();
    assert_eq!(units(&server).await.0.len(), 0);
}

#[tokio::test]
async fn too_large_unit_leaves_no_other_unit() {
    let server = Server::start().await;
    let text =
        |size: usize| format!("[Service]\nExecStart=/a\n{}#\n", "# aaaaaa\n".repeat(size / 9));
    let file = |size| UnitUpload::new(UnitFile::parse(text(size)).unwrap());
    let writes = (0..40).fold(UnitWrites::default(), |writes, number| {
        writes.put(&name(&format!("{number}.service")), &upload(number))
    });
    let refused = refusal(&server, writes.put(&name("z.service"), &file(1 << 20))).await;
    assert!(refused.starts_with("400 the store"), "{refused}");
    // Earlier files do not make a file too large that fits alone.
    let large = |size: usize| UnitWrites::default().put(&name("z.service"), &file(size));
    for size in [100_000, 1_000_000, 1_000_010] {
        server.client().write_units(&large(size)).await.unwrap();
    }
    assert_eq!(server.client().revisions(&name("z.service")).await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn unchanged_units_are_not_written_again() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "loaded").await;
    let before = units(&server).await;
    let same = UnitWrites::default().set_desired(&name("a.service"), TargetState::Loaded);
    server.client().write_units(&same).await.unwrap();
    assert_eq!(units(&server).await, before);
}

#[tokio::test]
async fn concurrent_writes_of_the_same_units_are_all_made() {
    let server = Server::start().await;
    let names: Vec<_> = (0..8).map(|number| name(&format!("{number}.service"))).collect();
    let write = async |seconds: u32| {
        let writes = names
            .iter()
            .fold(UnitWrites::default(), |writes, unit| writes.put(unit, &upload(seconds)));
        server.client().write_units(&writes).await.map(drop)
    };
    let done = futures_util::future::join_all((0..8).map(write)).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    // All units have the file of the last write.
    let all = server.client().units().await.unwrap();
    assert!(all.iter().all(|unit| unit.hash == all[0].hash), "{all:?}");
}
