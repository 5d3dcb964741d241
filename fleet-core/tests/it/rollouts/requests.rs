//! Requests to rollouts, and the errors of invalid ones.

use std::time::Duration;

use fleet_core::rollout::{
    CountOrPercent, Member, RollbackCause, Rollout, RolloutPhase, RolloutRequestError,
    RolloutStrategy,
};

use crate::wrap::wrap;

use super::world::{World, member, new, old, strategy};

fn members(count: usize) -> Vec<Member> {
    (1..=count).map(|number| member(number, Some(old()), new())).collect()
}

#[test]
fn shares_are_rounded_up() {
    let table = [
        ("0", 10, 0),
        ("3", 10, 3),
        ("3", 2, 3),
        ("0%", 10, 0),
        ("1%", 10, 1),
        ("25%", 6, 2),
        ("33%", 3, 1),
        ("34%", 3, 2),
        ("100%", 7, 7),
    ];
    for (text, members, expected) in table {
        let share: CountOrPercent = text.parse().unwrap();
        assert_eq!((share.of(members), share.to_string().as_str()), (expected, text), "{members}");
    }
    for text in ["", "%", "-1", "+1", "1.5", "2 %", "99999999999", "half"] {
        assert!(text.parse::<CountOrPercent>().is_err(), "{text}");
    }
    let error = "half".parse::<CountOrPercent>().unwrap_err();
    insta::assert_snapshot!(wrap(&error.to_string()), @r#"
"half" is not a number of members: write a count such as 2, or a percentage such as 25%
"#);
}

#[test]
fn invalid_rollouts_state_a_remedy() {
    let with = |at_once, min_available| strategy(at_once, min_available);
    let no_deadline = RolloutStrategy { deadline: Duration::ZERO, ..with("1", "0") };
    let repeated = [members(2), members(1)].concat();
    let unchanged = vec![member(1, Some(new()), new())];
    let cases = [
        (Vec::new(), with("1", "0")),
        (repeated, with("1", "0")),
        (unchanged, with("1", "0")),
        (members(6), with("0", "0")),
        (members(6), with("0%", "0")),
        (members(6), with("1", "6")),
        (members(6), with("1", "90%")),
        (members(1), with("1", "1")),
        (members(6), with("101%", "0")),
        (members(6), with("1", "200%")),
        (members(6), no_deadline),
    ];
    let errors =
        cases.map(|(members, strategy)| Rollout::new(members, strategy).unwrap_err().to_string());
    insta::assert_snapshot!(wrap(&errors.join("\n")), @r"
    the rollout has no members: name at least one unit
    web@1.service is listed twice: list each member once
    web@1.service already has the target of the rollout: leave it out
    at-once is 0, so no member would be updated: write a count of at least 1, or a percentage
        such as 25%
    at-once is 0%, so no member would be updated: write a count of at least 1, or a percentage
        such as 25%
    min-available is 6 of 6 members, which leaves none to update: write at most 5
    min-available is 90% of 6 members, which leaves none to update: write at most 83%
    min-available is 1 of 1 members, which leaves none to update: write at most 0
    at-once is 101%: write at most 100%
    min-available is 200%: write at most 100%
    deadline is 0, so every member would fail: write a longer time, such as 5min
    ");
}

#[test]
fn suggested_minimum_is_the_highest_valid_one() {
    for count in 1..=120 {
        for (valid, invalid) in [
            (CountOrPercent::Count(count - 1), CountOrPercent::Count(count)),
            (CountOrPercent::Percent((count - 1) * 100 / count), CountOrPercent::Percent(100)),
        ] {
            let with = |min_available| {
                let strategy = RolloutStrategy { min_available, ..RolloutStrategy::default() };
                Rollout::new(members(count as usize), strategy)
            };
            let error = with(invalid).unwrap_err().to_string();
            assert!(error.ends_with(&format!("write at most {valid}")), "{count}: {error}");
            assert!(with(valid).is_ok(), "{count}: {valid}");
        }
    }
}

#[test]
fn created_members_need_no_spare_member() {
    let created = (1..=3).map(|number| member(number, None, new())).collect();
    let mut world = World::new(created, strategy("1", "3"));
    assert_eq!(world.run().phase(), &RolloutPhase::Completed);
}

#[test]
fn requests_apply_to_documented_phases_only() {
    type Request = fn(&mut Rollout) -> Result<bool, RolloutRequestError>;
    let requests: [Request; 4] =
        [Rollout::pause, Rollout::resume, Rollout::abort, Rollout::abort_and_roll_back];
    let cause = RollbackCause::AbortRequested;
    let rolling_back = RolloutPhase::RollingBack { cause: cause.clone() };
    let table = [
        // from                     pause         resume        abort         roll back
        (RolloutPhase::Running, ["paused", "same", "aborted", "rolling back"]),
        (RolloutPhase::Paused, ["same", "running", "aborted", "rolling back"]),
        (rolling_back, ["refused", "refused", "aborted", "same"]),
        (RolloutPhase::Completed, ["refused"; 4]),
        (RolloutPhase::RolledBack { cause }, ["refused", "refused", "refused", "same"]),
        (RolloutPhase::Aborted, ["refused", "refused", "same", "refused"]),
    ];
    let mut refusals = Vec::new();
    for (from, expected) in table {
        let found = requests.map(|request| {
            let mut rollout = Rollout::new(members(2), strategy("1", "0")).unwrap();
            rollout.phase = from.clone();
            match request(&mut rollout) {
                Ok(true) => rollout.phase.as_str(),
                Ok(false) => "same",
                Err(error) => {
                    assert_eq!(rollout.phase, from, "a refused request changes nothing");
                    refusals.push(error.to_string());
                    "refused"
                }
            }
        });
        assert_eq!(found, expected, "{from}");
    }
    insta::assert_snapshot!(wrap(&refusals.join("\n")), @"
cannot pause a rollout that is rolling back: wait for its end, or abort it to keep each
    member as it is
cannot resume a rollout that is rolling back: wait for its end, or abort it to keep each
    member as it is
cannot pause a rollout that is completed: start another one
cannot resume a rollout that is completed: start another one
cannot abort a rollout that is completed: start another one
cannot roll back a rollout that is completed: start another one
cannot pause a rollout that is rolled back: start another one
cannot resume a rollout that is rolled back: start another one
cannot abort a rollout that is rolled back: start another one
cannot pause a rollout that is aborted: start another one
cannot resume a rollout that is aborted: start another one
cannot roll back a rollout that is aborted: start another one
");
}
