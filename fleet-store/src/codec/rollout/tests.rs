//! Encodings of rollouts and their files read back.

use super::*;
use fleet_core::TargetState;
use fleet_core::rollout::MemberState;

fn file(number: u8) -> UnitFile {
    let text = format!("[Service]\nExecStart=/bin/{number}\n");
    UnitFile::parse(text).expect("the text is a unit file")
}

fn target(number: u8) -> UnitTarget {
    let generation = Generation(u64::from(number));
    UnitTarget { hash: file(number).hash(), desired: TargetState::Launched, generation }
}

fn member(name: &str, machine: Option<&str>, state: MemberState) -> Member {
    let id = member_id(name, machine).expect("the names are valid");
    Member { id, from: Some(target(1)), to: target(2), state }
}

fn phases() -> Vec<RolloutPhase> {
    let id = || member_id("web@1.service", Some("m1")).expect("the names are valid");
    let deadline = Duration::from_millis(1500);
    let failures = [
        MemberFailure::Failed { member: id(), reason: "it exited".to_owned() },
        MemberFailure::NotReady { member: id(), deadline },
        MemberFailure::Unhealthy { member: id(), deadline },
    ];
    let shortage = Shortage { healthy: 2, min_available: 3 };
    let [failed, not_ready, unhealthy] = failures.map(RollbackCause::Failure);
    let RollbackCause::Failure(failure) = failed.clone() else { unreachable!() };
    vec![
        RolloutPhase::Running,
        RolloutPhase::Paused,
        RolloutPhase::RollingBack { cause: failed },
        RolloutPhase::Completed,
        RolloutPhase::RolledBack { cause: not_ready },
        RolloutPhase::RolledBack { cause: RollbackCause::AbortRequested },
        RolloutPhase::Stopped { cause: StopCause::Failure(failure) },
        RolloutPhase::Stopped { cause: StopCause::Shortage(shortage) },
        RolloutPhase::Stopped {
            cause: StopCause::UnfinishedRollback { cause: unhealthy, shortage },
        },
        RolloutPhase::Aborted,
    ]
}

#[test]
fn rollouts_read_back() {
    use MemberState::{Pending, Restored, Restoring, Superseded, Updated, Updating};
    let states = [Pending, Updating, Updated, Restoring, Restored, Superseded];
    let mut members = vec![member("web@1.service", None, Pending)];
    members[0].from = None;
    let on_machine =
        |(at, state): (usize, MemberState)| member("log.service", Some(&format!("m{at}")), state);
    members.extend(states.into_iter().enumerate().map(on_machine));
    let strategy = RolloutStrategy {
        at_once: CountOrPercent::Percent(30),
        min_available: CountOrPercent::Count(2),
        settle: Duration::from_millis(250),
        on_failure: OnFailure::Stop,
        ..RolloutStrategy::default()
    };
    let id = RolloutId(7);
    for (phase, strategy) in phases().into_iter().zip([strategy, Default::default()].iter().cycle())
    {
        let rollout = Rollout { members: members.clone(), strategy: *strategy, phase };
        let record = RolloutRecord { id, requested_at: Some(1_700_000_000_000), rollout };
        assert_eq!(decode_rollout(id, &encode_rollout(&record)).unwrap(), record);
    }
}

#[test]
fn files_of_members_read_back() {
    let not_utf8 = UnitFile::parse(b"[Unit]\n# \xff\n").unwrap();
    let members = vec![
        MemberFiles { from: None, to: file(1) },
        MemberFiles { from: Some(file(1)), to: not_utf8 },
    ];
    let name = "web@.service".parse().unwrap();
    let deferred = vec![DeferredFile { name, from: file(1), to: file(2) }];
    let files = RolloutFiles { members, deferred };
    let encoded = encode_rollout_files(&files);
    let decoded = decode_rollout_files(&encoded).unwrap();
    assert_eq!(decoded, files);
    let text = String::from_utf8(encoded).unwrap();
    assert_eq!(text.matches("ExecStart").count(), 2, "{text}");
    let damaged = text.replace("[0,1]", "[0,3]");
    assert!(decode_rollout_files(damaged.as_bytes()).is_err(), "{damaged}");
}
