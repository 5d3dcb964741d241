//! Rollouts: requested with a bulk write, listed and controlled.

use fleet_core::TargetState;
use fleet_core::rollout::{RolloutId, RolloutRequest};
use fleet_http::ClientError;
use fleet_http::client::{UnitUpload, UnitWrites};
use fleet_http::wire::{RolloutEntity, RolloutOptions};
use fleet_unitfile::UnitFile;

use crate::harness::{Server, name, running};

fn upload(text: &str, desired: TargetState) -> UnitUpload {
    let file = UnitFile::parse(format!("[Service]\nExecStart=/bin/sleep 9\n{text}")).unwrap();
    UnitUpload::new(file).with_desired(desired)
}

fn launched(text: &str) -> UnitUpload {
    upload(text, TargetState::Launched)
}

fn rolling() -> UnitWrites {
    UnitWrites::default().rollout(RolloutOptions::default())
}

/// Returns a line per member.
fn members(rollout: &RolloutEntity) -> String {
    let line = |it: &fleet_http::wire::RolloutMember| {
        let change = match &it.from_hash {
            None => "created",
            Some(from) if *from == it.to_hash => "restarted",
            Some(_) => "changed",
        };
        let on =
            if it.machine_id.is_empty() { String::new() } else { format!(" on {}", it.machine_id) };
        format!("{}{on}: {change}, {}, {}\n", it.unit, it.state, it.health)
    };
    rollout.members.iter().map(line).collect()
}

async fn refusal(server: &Server, writes: UnitWrites) -> String {
    match server.client().write_units(&writes).await.expect_err("it is refused") {
        ClientError::Api { status, message, .. } => format!("{status} {message}\n"),
        other => other.to_string(),
    }
}

#[tokio::test]
async fn changed_units_become_members_of_a_rollout() {
    let server = Server::start().await;
    let m1 = server.machine("m1", &[]).await;
    let _m2 = server.machine("m2", &[("disk", "ssd")]).await;
    server.sleepers(&["a.service", "c.service", "idle.service"], "launched").await;
    server.decide(&[("a.service", "m1")], &[]).await;
    server.publish(&m1, running("a.service", "m1")).await;
    let global = launched("[X-Fleet]\nGlobal=true\n");
    let before = UnitWrites::default()
        .put(&name("log.service"), &global)
        .put(&name("b.service"), &launched(""))
        .put(&name("web@.service"), &upload("", TargetState::Inactive));
    server.client().write_units(&before).await.unwrap();
    let global = launched("Restart=always\n[X-Fleet]\nGlobal=true\n");
    let writes = rolling()
        .put(&name("a.service"), &launched("Restart=always\n"))
        .put(&name("b.service"), &launched("# the same options\n"))
        .put(&name("idle.service"), &upload("", TargetState::Inactive))
        .put(&name("log.service"), &global)
        .put(&name("new.service"), &launched(""))
        .put(&name("web@.service"), &upload("Restart=always\n", TargetState::Inactive))
        .put(&name("job@.service"), &upload("", TargetState::Inactive))
        .restart(&name("c.service"));
    let written = server.client().write_units(&writes).await.unwrap();
    assert_eq!(written.rollout, Some(RolloutId(1)));
    let rollout = server.client().rollout(RolloutId(1)).await.unwrap().unwrap();
    insta::assert_snapshot!(members(&rollout), @r"
    a.service: changed, pending, not ready
    log.service on m1: changed, pending, not ready
    log.service on m2: changed, pending, not ready
    new.service: created, pending, not ready
    c.service: restarted, pending, not ready
    ");
    let hash =
        async |unit: &str| server.client().unit(&name(unit)).await.unwrap().map(|unit| unit.hash);
    assert_eq!(hash("a.service").await, rollout.members[0].from_hash, "the leader writes it");
    assert_eq!(hash("new.service").await, None);
    assert_eq!(hash("web@.service").await, hash("b.service").await, "it comes last");
    assert!(hash("job@.service").await.is_some(), "a new template is written at once");
    let idle = server.client().unit(&name("idle.service")).await.unwrap().unwrap();
    assert_eq!(idle.desired_state, "inactive");
}

#[tokio::test]
async fn unchanged_units_need_no_rollout() {
    let server = Server::start().await;
    let before = UnitWrites::default().put(&name("a.service"), &launched(""));
    server.client().write_units(&before).await.unwrap();
    let writes = rolling().put(&name("a.service"), &launched("# a comment\n"));
    let written = server.client().write_units(&writes).await.unwrap();
    assert_eq!(written.rollout, None);
    assert_eq!(server.client().rollouts().await.unwrap(), []);
}

#[tokio::test]
async fn impossible_rollouts_are_refused() {
    let server = Server::start().await;
    server.sleepers(&["a.service", "b.service"], "launched").await;
    let writes = |options| {
        let writes = UnitWrites::default().rollout(options);
        writes.put(&name("a.service"), &launched("Restart=always\n"))
    };
    let text = |text: &str| Some(text.to_owned());
    let usual = RolloutOptions::default;
    let mut all = String::new();
    for options in [
        RolloutOptions { at_once: text("0"), ..usual() },
        RolloutOptions { at_once: text("some"), ..usual() },
        RolloutOptions { min_available: text("100%"), ..usual() },
        RolloutOptions { on_failure: text("ignore"), ..usual() },
        RolloutOptions { deadline_ms: Some(0), ..usual() },
    ] {
        all += &refusal(&server, writes(options)).await;
    }
    server.client().write_units(&writes(usual())).await.unwrap();
    let both = writes(usual()).put(&name("b.service"), &launched("Restart=always\n"));
    all += &refusal(&server, both).await;
    insta::assert_snapshot!(all.replace(": ", ":\n  "), @r#"
    400 at-once is 0, so no member would be updated:
      write a count of at least 1, or a percentage such as 25%
    400 atOnce:
      "some" is not a number of members:
      write a count such as 2, or a percentage such as 25%
    400 min-available is 100% of 1 members, which leaves none to update:
      write at most 0%
    400 onFailure:
      "ignore" is unknown:
      write "rollback" or "stop"
    400 deadline is 0, so every member would fail:
      write a longer time, such as 5min
    409 a.service is a member of rollout 1, which is running:
      wait for its end, or abort it
    "#);
}

#[tokio::test]
async fn rollouts_are_paused_resumed_and_aborted() {
    let server = Server::start().await;
    server.sleepers(&["a.service"], "launched").await;
    let writes = rolling().put(&name("a.service"), &launched("Restart=always\n"));
    let id = server.client().write_units(&writes).await.unwrap().rollout.unwrap();
    let mut all = String::new();
    for request in [
        RolloutRequest::Pause,
        RolloutRequest::Resume,
        RolloutRequest::RollBack,
        RolloutRequest::Pause,
        RolloutRequest::Abort,
    ] {
        all += &match server.client().request_rollout(id, request).await {
            Ok(rollout) => format!("{request:?}: {}\n", rollout.text),
            Err(ClientError::Api { status, message, .. }) => {
                format!("{request:?}: {status} {message}\n")
            }
            Err(other) => other.to_string(),
        };
    }
    insta::assert_snapshot!(all.replace(": ", ":\n  "), @r"
    Pause:
      paused:
      resume or abort it
    Resume:
      running
    RollBack:
      rolling back:
      the rollout was aborted on request
    Pause:
      409 cannot pause a rollout that is rolling back:
      wait for its end, or abort it to keep each member as it is
    Abort:
      aborted on request:
      each member keeps the version that it has
    ");
    let unknown = server.call("POST", "/fleet/v1/rollouts/1", r#"{"request":"stop"}"#).await;
    assert_eq!(unknown.status, 400, "{unknown:?}");
    for path in ["/fleet/v1/rollouts/2", "/fleet/v1/rollouts/x"] {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
}
