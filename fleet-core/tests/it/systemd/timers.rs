//! Timers: settings, elapse times and state machine.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::systemd::{
    DualTimestamp, NextElapse, RandomizedDelay, TimeZones, Timer, TimerContext, TimerMachine,
    TimerPhase, TriggeredUnitState,
};
use fleet_unitfile::calendar::{Utc, Zone};
use proptest::prelude::*;

use super::{compiled, wrapped};

struct OnlyUtc;

impl TimeZones for OnlyUtc {
    fn zone(&self, _name: Option<&str>) -> &dyn Zone {
        &Utc
    }
}

/// The machine booted a thousand days after the epoch.
const BOOT: u64 = 1000 * DAY;
const DAY: u64 = 86_400_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Returns the context at this many milliseconds after boot.
fn look(millis: u64) -> TimerContext<'static> {
    let now = DualTimestamp { clock: at(millis), wall: at(BOOT + millis) };
    TimerContext { now, random: 0, zones: &OnlyUtc }
}

fn timer(settings: &str) -> Timer {
    let read = compiled("job.timer", &format!("[Timer]\n{settings}\n"));
    let compiled = read.unwrap_or_else(|refusals| panic!("{refusals}"));
    compiled.timer.expect("it is a timer")
}

fn refused(text: &str) -> String {
    compiled("job.timer", text).expect_err("it is refused").to_string()
}

/// Returns a timer started at this time, whose unit has never run.
fn started(settings: &str, millis: u64) -> TimerMachine {
    let mut life = TimerMachine::new(Arc::new(timer(settings)), at(500));
    life.on_start(None, TriggeredUnitState::default(), look(millis));
    life
}

fn ran(from: u64, until: u64) -> TriggeredUnitState {
    TriggeredUnitState { active: false, started: Some(at(from)), stopped: Some(at(until)) }
}

fn runs(from: u64) -> TriggeredUnitState {
    TriggeredUnitState { active: true, started: Some(at(from)), stopped: None }
}

fn clock(millis: u64) -> NextElapse {
    NextElapse { clock: Some(at(millis)), wall: None }
}

#[test]
fn double_timer_suffix_starts_its_own_service() {
    let read = compiled("a.timer.timer", "[Timer]\nOnBootSec=1\n");
    let timer = read.unwrap_or_else(|refusals| panic!("{refusals}")).timer;
    assert_eq!(timer.expect("it is a timer").unit.as_str(), "a.timer.service");
}

#[test]
fn timer_defaults_match_systemd() {
    let timer = timer("OnBootSec=1min");
    assert_eq!(timer.unit.as_str(), "job.service");
    assert!(timer.remain_after_elapse && !timer.persistent);
    assert_eq!(timer.delay, RandomizedDelay::Random(Duration::ZERO));
    let said = self::timer("Unit=a.service\nOnBootSec=5\nOnActiveSec=\nOnActiveSec=7");
    assert_eq!((said.unit.as_str(), said.triggers.len()), ("a.service", 1), "it took both back");
}

#[test]
fn invalid_timers_are_refused() {
    let files = [
        "[Timer]\nPersistent=yes\n",
        "[Timer]\nOnBootSec=1\nOnBootSec=\n",
        "[Timer]\nOnCalendar=dayly\n",
        "[Timer]\nOnActiveSec=infinity\n",
        "[Timer]\nOnActiveSec=soon\n",
        "[Timer]\nOnActiveSec=1\nUnit=job.timer\n",
        "[Timer]\nOnActiveSec=1\nUnit=a@.service\n",
        "[Timer]\nOnActiveSec=1\nUnit=a.service\nUnit=b.service\n",
        "[Timer]\nOnActiveSec=1\nWakeSystem=yes\n",
        "[Timer]\nOnActiveSec=1\n[Service]\nExecStart=/bin/true\n",
        "[Timer]\nOnActiveSec=1\nPersistent=perhaps\nRandomizedDelaySec=infinity\n",
    ];
    let output: Vec<String> = files.into_iter().map(refused).collect();
    insta::assert_snapshot!(wrapped(&output.join("\n")), @r#"
    job.timer: it never elapses: write OnCalendar=, OnBootSec= or the like
    job.timer: it never elapses: write OnCalendar=, OnBootSec= or the like
    job.timer:2:1: Timer.OnCalendar cannot be read: "dayly" is not a calendar event:
          write an event such as daily, or "Mon..Fri *-*-* 06:30:00"
    job.timer:2:1: Timer.OnActiveSec cannot be infinity: it would never elapse: remove it
    job.timer:2:1: Timer.OnActiveSec cannot be read: invalid time span at byte 0: write
          numbers with units, such as "1min 30s"
    job.timer:3:1: Timer.Unit names job.timer: write the name of a .service unit
    job.timer:3:1: Timer.Unit names the template a@.service: name an instance of it
    job.timer:4:1: Timer.Unit names b.service, but a.service is already named: keep one
          of them
    job.timer:3:1: Timer.WakeSystem is not supported: machines are not woken: remove it;
          an elapse missed during sleep happens on wake-up
    job.timer:4:1: Service.ExecStart is in [Service], which has no meaning in a .timer
          unit: remove it
    job.timer:3:1: Timer.Persistent is "perhaps": write yes or no
    job.timer:4:1: Timer.RandomizedDelaySec cannot be infinity: write the maximum delay
          of an elapse
    "#);
}

/// Regression: timers with conditions were refused.
#[test]
fn timer_keeps_its_conditions() {
    let text = "[Unit]\nConditionVirtualization=!container\nAssertACPower=yes\n\
                [Timer]\nOnActiveSec=1\n";
    let compiled = compiled("job.timer", text).unwrap_or_else(|refusals| panic!("{refusals}"));
    let conditions = compiled.timer.expect("it is a timer").conditions;
    let output: Vec<String> = conditions.iter().map(ToString::to_string).collect();
    assert_eq!(output, ["!virtualization container", "ac-power yes"]);
}

#[test]
fn each_trigger_counts_from_its_base() {
    let past = |settings: &str| {
        let mut life = started(settings, 10_000);
        life.on_unit(ran(7000, 8000), look(10_000));
        life.next_elapse()
    };
    assert_eq!(past("OnActiveSec=3"), clock(13_000));
    assert_eq!(past("OnBootSec=3"), clock(3000));
    assert_eq!(past("OnStartupSec=3"), clock(3500));
    assert_eq!(past("OnUnitActiveSec=3"), clock(10_000));
    assert_eq!(past("OnUnitInactiveSec=3"), clock(11_000));
    let midnight = NextElapse { clock: None, wall: Some(at(BOOT + DAY)) };
    assert_eq!(past("OnCalendar=daily UTC"), midnight);
    let both = past("OnCalendar=daily UTC\nOnActiveSec=1min\nOnUnitInactiveSec=1h");
    assert_eq!(both, NextElapse { clock: Some(at(70_000)), ..midnight }, "the first of each clock");
}

#[test]
fn unit_trigger_needs_a_previous_run() {
    let life = started("OnUnitActiveSec=1\nOnUnitInactiveSec=1\nRemainAfterElapse=no", 1000);
    assert_eq!(
        (life.state().phase, life.next_elapse()),
        (TimerPhase::Elapsed, NextElapse::default())
    );
}

#[test]
fn timer_waits_runs_and_waits_again() {
    let mut life = started("OnActiveSec=1\nOnUnitActiveSec=5", 1000);
    assert_eq!((life.state().phase, life.next_elapse()), (TimerPhase::Waiting, clock(2000)));
    assert!(!life.on_elapse(look(1999)));
    assert!(life.on_elapse(look(2000)));
    assert!(!life.on_elapse(look(2000)), "once only");
    assert_eq!(
        (life.state().phase, life.next_elapse()),
        (TimerPhase::Running, NextElapse::default())
    );
    life.on_unit(runs(2001), look(2001));
    assert_eq!(life.state().phase, TimerPhase::Running);
    life.on_unit(ran(2001, 3000), look(3000));
    assert_eq!((life.state().phase, life.next_elapse()), (TimerPhase::Waiting, clock(7001)));
    life.on_stop();
    assert_eq!((life.state().phase, life.next_elapse()), (TimerPhase::Dead, NextElapse::default()));
    life.on_unit(runs(3500), look(3500));
    assert_eq!(life.state().phase, TimerPhase::Dead);
}

#[test]
fn one_time_trigger_elapses_once() {
    for (settings, after) in [
        ("OnActiveSec=1", TimerPhase::Elapsed),
        ("OnActiveSec=1\nRemainAfterElapse=no", TimerPhase::Dead),
        // The second trigger fell into the run of the unit.
        ("OnActiveSec=1\nOnActiveSec=2\nRemainAfterElapse=no", TimerPhase::Dead),
        ("OnActiveSec=1\nOnActiveSec=4", TimerPhase::Waiting),
    ] {
        let mut life = started(settings, 1000);
        assert!(life.on_elapse(look(2000)));
        life.on_unit(ran(2000, 4000), look(4000));
        assert_eq!(life.state().phase, after, "{settings}");
        let restored = TimerMachine::restore(Arc::new(timer(settings)), *life.state(), look(4500));
        assert_eq!(restored.next_elapse(), life.next_elapse(), "{settings}");
    }
    let mut life = started("OnActiveSec=1", 1000);
    assert!(life.on_elapse(look(2000)));
    life.on_unit(ran(2000, 2000), look(2000));
    life.on_start(None, TriggeredUnitState::default(), look(3000));
    assert_eq!(life.state().phase, TimerPhase::Elapsed, "it is active");
    life.on_stop();
    life.on_start(None, TriggeredUnitState::default(), look(4000));
    assert_eq!(life.next_elapse(), clock(5000), "a new start resets the count");
}

#[test]
fn elapse_during_daemon_downtime_is_caught_up() {
    let mut life = started("OnActiveSec=1\nOnActiveSec=9", 1000);
    assert!(life.on_elapse(look(2000)));
    life.on_unit(ran(2000, 3000), look(3000));
    let settings = "OnActiveSec=1\nOnActiveSec=9";
    let mut life = TimerMachine::restore(Arc::new(timer(settings)), *life.state(), look(60_000));
    assert!(life.on_elapse(look(60_000)));
}

#[test]
fn unit_change_does_not_postpone_a_due_elapse() {
    let mut life = started("OnActiveSec=1\nOnActiveSec=2", 1000);
    assert!(life.on_elapse(look(2000)));
    life.on_unit(ran(2000, 2500), look(2500));
    life.on_unit(runs(3001), look(3001));
    assert!(life.on_elapse(look(3001)));
}

#[test]
fn persistent_timer_catches_up() {
    let settings = "OnCalendar=daily UTC\nPersistent=yes";
    let start = |last: Option<u64>| {
        let mut life = TimerMachine::new(Arc::new(timer(settings)), at(500));
        life.on_start(last.map(at), TriggeredUnitState::default(), look(3_600_000));
        life
    };
    let midnight = |day: u64| NextElapse { clock: None, wall: Some(at(BOOT + day * DAY)) };
    assert_eq!(start(None).next_elapse(), midnight(1));
    assert_eq!(start(Some(BOOT + 60_000)).next_elapse(), midnight(1));
    assert_eq!(start(Some(BOOT + 2 * DAY)).next_elapse(), midnight(1), "the clock was wrong then");
    let mut late = start(Some(BOOT - 3 * DAY));
    assert_eq!(late.next_elapse().wall, Some(at(BOOT + 500)), "as if it were of the first start");
    assert!(late.on_elapse(look(3_600_000)));
    late.on_unit(ran(3_600_000, 3_700_000), look(3_700_000));
    assert_eq!(late.next_elapse(), midnight(1), "once for all that passed");
}

#[test]
fn clock_change_moves_calendar_events() {
    let mut life = started("OnCalendar=*:0 UTC\nOnActiveSec=100", 60_000);
    let hour = 3_600_000;
    assert_eq!(
        life.next_elapse(),
        NextElapse { clock: Some(at(160_000)), wall: Some(at(BOOT + hour)) }
    );
    let set = |millis: u64, wall: u64| {
        let now = DualTimestamp { clock: at(millis), wall: at(wall) };
        TimerContext { now, ..look(0) }
    };
    life.on_time_set(set(70_000, BOOT - 10 * hour));
    let due = NextElapse { clock: Some(at(160_000)), wall: Some(at(BOOT - 9 * hour)) };
    assert_eq!(life.next_elapse(), due, "back");
    life.on_time_set(set(80_000, BOOT + 10 * hour));
    assert!(life.on_elapse(set(80_000, BOOT + 10 * hour)), "beyond the moment");
    life.on_time_set(set(90_000, BOOT - 5 * hour));
    life.on_unit(ran(80_000, 90_000), set(90_000, BOOT - 5 * hour));
    assert_eq!(
        life.next_elapse().wall,
        Some(at(BOOT - 4 * hour)),
        "the last elapse is not in the future"
    );
}

#[test]
fn randomized_delays_spread_timers() {
    let random = timer("OnBootSec=1\nRandomizedDelaySec=10");
    let mut life = TimerMachine::new(Arc::new(random), at(0));
    life.on_start(
        None,
        TriggeredUnitState::default(),
        TimerContext { random: 12_345_678, ..look(0) },
    );
    assert_eq!(life.next_elapse(), clock(1000 + 2345));
    let fixed = |name: &str| {
        let text = "[Timer]\nOnBootSec=1\nRandomizedDelaySec=1h\nFixedRandomDelay=yes\n";
        let RandomizedDelay::Fixed(span) = compiled(name, text).unwrap().timer.unwrap().delay
        else {
            panic!("it is fixed");
        };
        span
    };
    assert_eq!(fixed("a.timer"), fixed("a.timer"));
    assert_ne!(fixed("a.timer"), fixed("b.timer"));
    assert!(fixed("a.timer") < Duration::from_secs(3600));
}

#[test]
fn missing_unit_fails_the_timer() {
    let mut life = started("OnActiveSec=1", 0);
    assert!(life.on_elapse(look(1000)));
    life.on_unit_missing();
    assert_eq!(life.state().phase, TimerPhase::Failed);
    life.on_start(None, TriggeredUnitState::default(), look(5000));
    assert_eq!((life.state().phase, life.next_elapse()), (TimerPhase::Waiting, clock(6000)));
}

#[test]
fn new_settings_apply_to_a_waiting_timer() {
    let mut life = started("OnActiveSec=1\nRemainAfterElapse=no", 1000);
    life.replace(Arc::new(timer("OnActiveSec=5")), look(1500));
    assert_eq!(life.next_elapse(), clock(6000));
}

/// A step in the history of a timer.
#[derive(Debug, Clone)]
enum Step {
    Pause(u64),
    Starts,
    Rests,
    Stop,
    Start,
    Daemon,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3000_u64).prop_map(Step::Pause),
        2 => Just(Step::Starts),
        3 => Just(Step::Rests),
        1 => Just(Step::Stop),
        1 => Just(Step::Start),
        1 => Just(Step::Daemon),
    ];
    prop::collection::vec(step, 1..80)
}

fn settings() -> impl Strategy<Value = String> {
    let lines =
        ["OnActiveSec", "OnBootSec", "OnStartupSec", "OnUnitActiveSec", "OnUnitInactiveSec"];
    let line = (prop::sample::select(lines.to_vec()), 1..9_u64);
    let line = line.prop_map(|(name, seconds)| format!("{name}={seconds}\n"));
    (prop::collection::vec(line, 1..4), any::<bool>(), any::<bool>()).prop_map(
        |(lines, remains, calendar)| {
            let calendar = if calendar { "OnCalendar=*:*:0/7 UTC\n" } else { "" };
            format!("{}{calendar}RemainAfterElapse={remains}\n", lines.concat())
        },
    )
}

proptest! {
    /// In one start a one-time trigger elapses at most once. Unit and calendar triggers elapse at
    /// most once per interval, and nothing elapses early.
    #[test]
    fn timer_never_elapses_too_often(settings in settings(), steps in steps()) {
        let timer = Arc::new(timer(&settings));
        let (mut now, mut unit) = (600, TriggeredUnitState::default());
        let mut life = TimerMachine::new(Arc::clone(&timer), at(500));
        life.on_start(None, unit, look(now));
        let once = settings.lines().filter(|line| !line.starts_with("OnUnit"));
        let once = once.filter(|line| line.contains("Sec=")).count();
        let follows = settings.contains("OnUnit");
        let (mut elapsed, mut last) = (0, None);
        for step in steps {
            match step {
                Step::Pause(pause) => now += pause,
                Step::Starts => (unit.active, unit.started) = (true, Some(at(now))),
                Step::Rests => (unit.active, unit.stopped) = (false, Some(at(now))),
                Step::Stop => life.on_stop(),
                Step::Start if !life.state().phase.is_active() => {
                    (elapsed, last) = (0, None);
                    life.on_start(None, unit, look(now));
                }
                Step::Start => {}
                Step::Daemon => {
                    life = TimerMachine::restore(Arc::clone(&timer), *life.state(), look(now));
                }
            }
            life.on_unit(unit, look(now));
            let due = life.next_elapse();
            if life.on_elapse(look(now)) {
                prop_assert!(due.has_elapsed(look(now).now));
                elapsed += 1;
                prop_assert!(last.is_none_or(|last| last < now) || once > 1, "twice at {now}");
                last = Some(now);
                unit = TriggeredUnitState { active: true, started: Some(at(now)), ..unit };
            }
            let phase = life.state().phase;
            prop_assert_eq!(phase == TimerPhase::Waiting, !life.next_elapse().is_never());
            let clocked = settings.contains("OnCalendar") || follows;
            prop_assert!(clocked || elapsed <= once, "{elapsed} times");
        }
    }

    /// The reference model checks every millisecond whether an interval is over.
    #[test]
    fn unit_trigger_matches_a_step_by_step_model(
        active in prop::option::of(1..5_u64),
        inactive in prop::option::of(1..5_u64),
        takes in 0..4000_u64,
    ) {
        let line = |name: &str, span: Option<u64>| {
            span.map(|span| format!("{name}={span}\n")).unwrap_or_default()
        };
        let settings = format!(
            "OnActiveSec=1\n{}{}",
            line("OnUnitActiveSec", active),
            line("OnUnitInactiveSec", inactive),
        );
        let mut life = started(&settings, 0);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let (mut start, mut end) = (None::<u64>, None::<u64>);
        for now in 0..20_000 {
            if end == Some(now) {
                life.on_unit(ran(start.unwrap(), now), look(now));
            }
            if life.on_elapse(look(now)) {
                ours.push(now);
                // A unit that runs for no time has stopped when it is observed.
                if takes == 0 {
                    life.on_unit(ran(now, now), look(now));
                } else {
                    life.on_unit(runs(now), look(now));
                }
            }
            let rests = end.is_none_or(|end| end <= now);
            let over = |from: Option<u64>, span: Option<u64>| {
                from.zip(span).is_some_and(|(from, span)| now >= from + span * 1000)
            };
            if now == 1000 || rests && (over(start, active) || over(end, inactive)) {
                theirs.push(now);
                (start, end) = (Some(now), Some(now + takes));
            }
        }
        prop_assert_eq!(ours, theirs);
    }
}

#[test]
fn clock_set_back_while_the_unit_runs_is_followed() {
    let hour = 3_600_000;
    let mut life = started("OnCalendar=hourly", 60_000);
    let set = |millis: u64, wall: u64| {
        let now = DualTimestamp { clock: at(millis), wall: at(wall) };
        TimerContext { now, ..look(0) }
    };
    assert!(life.on_elapse(set(70_000, BOOT + hour)));
    // The clock change is not reported, because the timer waits for no calendar event.
    let early = set(90_000, BOOT - 5 * hour);
    life.on_unit(ran(70_000, 90_000), early);
    assert_eq!(
        life.next_elapse().wall,
        Some(at(BOOT - 4 * hour)),
        "the last elapse is not in the future"
    );
    let memory = *life.state();
    let earlier = set(95_000, BOOT - 8 * hour);
    let life = TimerMachine::restore(Arc::new(timer("OnCalendar=hourly")), memory, earlier);
    assert_eq!(life.next_elapse().wall, Some(at(BOOT - 7 * hour)), "while no daemon ran, too");
}

#[test]
fn effects_in_a_timer_are_remarked() {
    let text = "[Timer]\nOnBootSec=1\n[Unit]\nOnFailure=mail.service\n";
    let timer = compiled("a.timer", text).unwrap_or_else(|refusals| panic!("{refusals}"));
    let remarks: Vec<String> = timer.remarks.iter().map(ToString::to_string).collect();
    let expected = "4:1: Unit.OnFailure has no effect, because a timer does nothing but start its \
                    unit";
    assert_eq!((remarks, timer.relations.len()), (vec![expected.to_owned()], 0));
}
