//! Typical runs of rollouts, as logs: seconds, state of each member, phase, actions.

use fleet_core::TargetState;
use fleet_core::rollout::{MemberId, OnFailure, RolloutStrategy};

use crate::wrap::wrap;

use super::world::{
    End, FAILS, Fate, HEALTHY, SILENT, World, foreign, member, new, old, strategy, target,
};

#[test]
fn members_are_updated_in_batches() {
    let mut world = World::of(6, strategy("2", "0"));
    insta::assert_snapshot!(world.run().report(), @"
   0  ......  running  update 1 2
   0  uu....  running
   6  UU....  running  update 3 4
   6  UUuu..  running
  12  UUUU..  running  update 5 6
  12  UUUUuu  running
  18  UUUUUU  completed
completed
");
}

#[test]
fn bad_first_batch_is_rolled_back() {
    let mut world = World::of(6, strategy("2", "0")).with_fate(2, FAILS);
    insta::assert_snapshot!(world.run().report(), @"
   0  ......  running  update 1 2
   0  uu....  running
   1  uu....  rolling back  restore 2 1
   1  rr....  rolling back
   7  RR....  rolled back
rolled back: web@2.service failed: exit-code: correct the unit, and start another rollout
");
}

#[test]
fn rollback_returns_the_failed_batch_first() {
    let mut world = World::of(6, strategy("2", "0")).with_fate(5, SILENT);
    insta::assert_snapshot!(world.run().report(), @"
   0  ......  running  update 1 2
   0  uu....  running
   6  UU....  running  update 3 4
   6  UUuu..  running
  12  UUUU..  running  update 5 6
  12  UUUUuu  running
  72  UUUUuu  rolling back  restore 6 5
  72  UUUUrr  rolling back
  78  UUUURR  rolling back  restore 4 3
  78  UUrrRR  rolling back
  84  UURRRR  rolling back  restore 2 1
  84  rrRRRR  rolling back
  90  RRRRRR  rolled back
rolled back: web@5.service was not ready with its new version within 60s: correct the
    unit, and start another rollout
");
}

#[test]
fn failing_health_check_stops_without_rollback() {
    let strategy = RolloutStrategy { on_failure: OnFailure::Stop, ..strategy("50%", "0") };
    let fate = Fate { after: 1, end: End::Unhealthy };
    let mut world = World::of(3, strategy).with_fate(1, fate);
    insta::assert_snapshot!(world.run().report(), @"
   0  ...  running  update 1 2
   0  uu.  running
  60  uu.  stopped
stopped: web@1.service is active, but its health check did not pass within 60s; each
    member keeps the version that it has: correct the unit, and start another rollout
");
}

#[test]
fn min_available_limits_the_batch() {
    let mut world = World::of(4, strategy("3", "75%"));
    insta::assert_snapshot!(world.run().report(), @"
   0  ....  running  update 1
   0  u...  running
   6  U...  running  update 2
   6  Uu..  running
  12  UU..  running  update 3
  12  UUu.  running
  18  UUU.  running  update 4
  18  UUUu  running
  24  UUUU  completed
completed
");
}

#[test]
fn unhealthy_members_are_updated_first_if_none_is_spare() {
    let mut world = World::of(3, strategy("3", "2"));
    world.fates[2][0].end = End::Fails;
    insta::assert_snapshot!(world.run().report(), @"
   0  ...  running  update 3
   0  ..u  running
   6  ..U  running  update 1
   6  u.U  running
  12  U.U  running  update 2
  12  UuU  running
  18  UUU  completed
completed
");
}

#[test]
fn shortage_stops_after_the_deadline() {
    let mut world = World::of(3, strategy("1", "2"));
    world.run_until(8).write(1, None).run();
    insta::assert_snapshot!(world.report(), @r"
       0  ...  running  update 1
       0  u..  running
       6  U..  running  update 2
       6  Uu.  running
       8  another writer changes 1
       8  xu.  running
      12  xU.  running
      72  xU.  stopped
    stopped: no further member may change, because 2 are healthy and min-available requires 2:
        repair the others, or start another rollout with a lower min-available
    ");
}

#[test]
fn created_members_are_removed_last() {
    let members =
        vec![member(1, Some(old()), new()), member(2, None, new()), member(3, Some(old()), new())];
    let mut world = World::new(members, strategy("1", "2")).with_fate(3, FAILS);
    insta::assert_snapshot!(world.run().report(), @"
   0  ...  running  update 2
   0  .u.  running
   6  .U.  running  update 1
   6  uU.  running
  12  UU.  running  update 3
  12  UUu  running
  13  UUu  rolling back  restore 3
  13  UUr  rolling back
  19  UUR  rolling back  restore 1
  19  rUR  rolling back
  25  RUR  rolling back  remove 2
  25  RRR  rolled back
rolled back: web@3.service failed: exit-code: correct the unit, and start another rollout
");
}

#[test]
fn units_that_are_not_launched_need_no_activity() {
    let loaded = target("new", TargetState::Loaded);
    let members = (1..=2).map(|number| member(number, Some(old()), loaded)).collect();
    let mut world = World::new(members, strategy("1", "1"));
    insta::assert_snapshot!(world.run().report(), @"
   0  ..  running  update 1
   0  u.  running
   1  U.  running  update 2
   1  Uu  running
   2  UU  completed
completed
");
}

#[test]
fn paused_rollout_neither_writes_nor_judges() {
    let mut world = World::of(3, strategy("1", "0")).with_fate(2, FAILS);
    world.run_until(6);
    world.rollout.pause().unwrap();
    world.note("pause").run_until(500);
    world.rollout.resume().unwrap();
    world.note("resume").run();
    insta::assert_snapshot!(world.report(), @"
   0  ...  running  update 1
   0  u..  running
   6  U..  running  update 2
   6  Uu.  running
   6  pause
 500  resume
 500  Uu.  rolling back  restore 2
 500  Ur.  rolling back
 506  UR.  rolling back  restore 1
 506  rR.  rolling back
 512  RR.  rolled back
rolled back: web@2.service failed: exit-code: correct the unit, and start another rollout
");
}

#[test]
fn aborted_rollout_keeps_versions_or_rolls_back() {
    let mut world = World::of(4, strategy("1", "0"));
    world.run_until(8);
    let mut kept = world.clone();
    kept.rollout.abort().unwrap();
    insta::assert_snapshot!(kept.run().report(), @"
   0  ....  running  update 1
   0  u...  running
   6  U...  running  update 2
   6  Uu..  running
aborted on request: each member keeps the version that it has
");
    world.rollout.abort_and_roll_back().unwrap();
    insta::assert_snapshot!(world.run().report(), @"
   0  ....  running  update 1
   0  u...  running
   6  U...  running  update 2
   6  Uu..  running
   8  Uu..  rolling back  restore 2
   8  Ur..  rolling back
  14  UR..  rolling back  restore 1
  14  rR..  rolling back
  20  RR..  rolled back
rolled back: the rollout was aborted on request
");
}

#[test]
fn changed_or_destroyed_members_are_superseded() {
    let mut world = World::of(5, strategy("1", "0"));
    world.run_until(7).write(1, Some(old())).write(2, Some(foreign())).write(4, None);
    insta::assert_snapshot!(world.run().report(), @"
   0  .....  running  update 1
   0  u....  running
   6  U....  running  update 2
   6  Uu...  running
   7  another writer changes 1
   7  another writer changes 2
   7  another writer changes 4
   7  xx.x.  running  update 3
   7  xxux.  running
  13  xxUx.  running  update 5
  13  xxUxu  running
  19  xxUxU  completed
completed
");
}

#[test]
fn rollback_skips_superseded_members() {
    let mut world = World::of(4, strategy("2", "0")).with_fate(3, FAILS);
    world.run_until(6).write(2, Some(foreign()));
    insta::assert_snapshot!(world.run().report(), @"
   0  ....  running  update 1 2
   0  uu..  running
   6  UU..  running  update 3 4
   6  UUuu  running
   6  another writer changes 2
   6  Uxuu  running
   7  Uxuu  rolling back  restore 4 3
   7  Uxrr  rolling back
  13  UxRR  rolling back  restore 1
  13  rxRR  rolling back
  19  RxRR  rolled back
rolled back: web@3.service failed: exit-code: correct the unit, and start another rollout
");
}

#[test]
fn next_leader_continues_with_new_timers() {
    let mut world = World::of(4, strategy("2", "0")).with_fate(4, SILENT);
    world.run_until(4).change_leader();
    world.run_until(30).change_leader().run();
    insta::assert_snapshot!(world.report(), @"
   0  ....  running  update 1 2
   0  uu..  running
   4  another leader
   9  UU..  running  update 3 4
   9  UUuu  running
  30  another leader
  90  UUuu  rolling back  restore 4 3
  90  UUrr  rolling back
  96  UURR  rolling back  restore 2 1
  96  rrRR  rolling back
 102  RRRR  rolled back
rolled back: web@4.service was not ready with its new version within 60s: correct the
    unit, and start another rollout
");
}

#[test]
fn lost_actions_are_returned_again() {
    let mut world = World::of(2, strategy("2", "0"));
    let first = world.decide();
    assert!(!first.changed && first.actions.len() == 2);
    assert_eq!(world.decide(), first, "both writes were lost");
    world.perform(first.actions[1]);
    let second = world.decide();
    assert!(second.changed && second.actions.is_empty(), "the batch is the second member alone");
    insta::assert_snapshot!(world.run().report(), @"
   6  .U  running  update 1
   6  uU  running
  12  UU  completed
completed
");
}

#[test]
fn updated_member_that_fails_later_stops_the_next_batch() {
    let mut world = World::of(3, strategy("1", "0"));
    world.run_until(8);
    world.fates[0][1] = SILENT;
    world.note("1 is silent").run_until(30);
    world.fates[0][1] = HEALTHY;
    world.note("1 is healthy").run_until(40);
    world.fates[0][1] = FAILS;
    insta::assert_snapshot!(world.note("1 fails").run().report(), @"
   0  ...  running  update 1
   0  u..  running
   6  U..  running  update 2
   6  Uu.  running
   8  1 is silent
  30  1 is healthy
  35  UU.  running  update 3
  35  UUu  running
  40  1 fails
  40  UUu  rolling back  restore 3 1
  40  rUr  rolling back
  46  RUR  rolling back  restore 2
  46  RrR  rolling back
  52  RRR  rolled back
rolled back: web@1.service failed: exit-code: correct the unit, and start another rollout
");
}

#[test]
fn rollback_goes_on_after_the_deadline() {
    let mut world = World::of(3, strategy("1", "0")).with_fate(3, FAILS);
    world.fates.iter_mut().for_each(|fates| fates[0] = SILENT);
    insta::assert_snapshot!(world.run().report(), @"
   0  ...  running  update 1
   0  u..  running
   6  U..  running  update 2
   6  Uu.  running
  12  UU.  running  update 3
  12  UUu  running
  13  UUu  rolling back  restore 3
  13  UUr  rolling back
  73  UUR  rolling back  restore 2
  73  UrR  rolling back
 133  URR  rolling back  restore 1
 133  rRR  rolling back
 193  RRR  rolled back
rolled back: web@3.service failed: exit-code: correct the unit, and start another rollout
");
}

#[test]
fn rollback_keeps_min_available() {
    let mut world = World::of(3, strategy("1", "2")).with_fate(3, FAILS);
    world.run_until(10);
    world.fates.iter_mut().for_each(|fates| fates[0] = SILENT);
    insta::assert_snapshot!(world.run().report(), @r"
       0  ...  running  update 1
       0  u..  running
       6  U..  running  update 2
       6  Uu.  running
      12  UU.  running  update 3
      12  UUu  running
      13  UUu  rolling back  restore 3
      13  UUr  rolling back
      73  UUR  rolling back
     133  UUR  stopped
    stopped: web@3.service failed: exit-code; the rollback is incomplete: no further member
        may change, because 2 are healthy and min-available requires 2: repair the others, and
        start a rollout of the former version
    ");
}

#[test]
fn interrupted_health_begins_the_settle_time_again() {
    let mut world = World::of(1, strategy("1", "0"));
    world.run_until(4);
    world.fates[0][1] = SILENT;
    world.note("silent").run_until(5);
    world.fates[0][1] = HEALTHY;
    insta::assert_snapshot!(world.note("healthy").run().report(), @"
   0  .  running  update 1
   0  u  running
   4  silent
   5  healthy
  10  U  completed
completed
");
}

#[test]
fn global_unit_is_named_with_its_machine() {
    let machine = |machine: &str| MemberId {
        unit: "web.service".parse().unwrap(),
        machine: Some(machine.parse().unwrap()),
    };
    let mut members = vec![member(1, Some(old()), new()), member(2, Some(old()), new())];
    members[0].id = machine("148a18ff-6e95");
    members[1].id = machine("a1b2");
    let mut world = World::new(members, strategy("2", "0")).with_fate(1, FAILS);
    insta::assert_snapshot!(wrap(&world.run().phase().to_string()), @"
rolled back: web.service on 148a18ff failed: exit-code: correct the unit, and start
    another rollout
");
}
