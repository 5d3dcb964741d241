//! Restart policies.

use std::time::Duration;

use fleet_core::graph::{
    Command, DelayGrowth, Exit, FailureCause, InitUnit, Restart, RestartWhen, Run, ServiceType,
    StatusSet,
};
use proptest::prelude::*;

use super::config::cases;

fn restart() -> impl Strategy<Value = Restart> {
    let growth = prop_oneof![
        (0..5u32).prop_map(DelayGrowth::Factor),
        any::<u32>().prop_map(DelayGrowth::Factor),
        (0..20u32).prop_map(DelayGrowth::Steps),
        any::<u32>().prop_map(DelayGrowth::Steps),
    ];
    let time = || prop_oneof![0..100_000u64, any::<u64>()].prop_map(Duration::from_millis);
    (growth, time(), time()).prop_map(|(growth, delay, max_delay)| Restart {
        growth,
        delay,
        max_delay: max_delay.max(delay),
        ..Restart::default()
    })
}

proptest! {
    #![proptest_config(cases(10))]

    // Holds: G-24
    #[test]
    fn restart_delays_grow_up_to_the_maximum(
        restart in restart(),
        // Powers of the factor that overflow every integer are among the first.
        attempts in prop_oneof![0..200u32, any::<u32>()],
    ) {
        let delay = restart.delay_of(attempts);
        prop_assert!(delay <= restart.delay_of(attempts.saturating_add(1)));
        prop_assert!(restart.delay_of(0) <= delay);
        prop_assert!(delay <= restart.max_delay && delay >= restart.delay);
        prop_assert_eq!(restart.delay_of(1), restart.delay);
    }
}

#[test]
fn restart_delays_match_the_table() {
    let seconds = |growth, attempts: &[u32]| -> Vec<u64> {
        let delay = Duration::from_secs(1);
        let restart =
            Restart { growth, delay, max_delay: Duration::from_secs(81), ..Restart::default() };
        attempts.iter().map(|it| restart.delay_of(*it).as_secs()).collect()
    };
    let all = [1, 2, 3, 4, 5, 6, 7, 8, u32::MAX];
    assert_eq!(seconds(DelayGrowth::Factor(2), &all), [1, 2, 4, 8, 16, 32, 64, 81, 81]);
    assert_eq!(seconds(DelayGrowth::Factor(1), &all), [1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(seconds(DelayGrowth::Steps(4), &all), [1, 3, 9, 27, 81, 81, 81, 81, 81]);
    assert_eq!(seconds(DelayGrowth::Steps(0), &all), [1, 1, 1, 1, 1, 1, 1, 1, 1]);
}

/// The power of the factor overflows every integer; multiplied by zero it must still give zero.
#[test]
fn zero_delay_stays_zero_after_many_failures() {
    let max_delay = Duration::from_secs(60);
    let none = Restart { delay: Duration::ZERO, max_delay, ..Restart::default() };
    let little = Restart { delay: Duration::from_micros(1), ..none.clone() };
    for attempts in [1, 2, 128, 129, 130, u32::MAX] {
        assert_eq!(none.delay_of(attempts), Duration::ZERO, "{attempts}");
    }
    assert_eq!([1, 2, 11].map(|it| little.delay_of(it).as_micros()), [1, 2, 1024]);
    assert_eq!(little.delay_of(129), max_delay);
}

#[test]
fn restart_policies_match_their_exits() {
    let ends = [
        ("well", None, Some(Exit::Status(0))),
        ("status", Some(FailureCause::Exit(Exit::Status(1))), Some(Exit::Status(1))),
        ("signal", Some(FailureCause::Exit(Exit::Signal(11))), Some(Exit::Signal(11))),
        ("late", Some(FailureCause::StartTimeout), None),
        ("watchdog", Some(FailureCause::Watchdog), None),
        ("pidfile", Some(FailureCause::Pidfile), None),
        ("spawn", Some(FailureCause::Spawn), Some(Exit::Status(203))),
        ("resources", Some(FailureCause::Resources), None),
        ("protocol", Some(FailureCause::Protocol), Some(Exit::Status(0))),
        ("script", Some(FailureCause::Script(Exit::Status(1))), None),
        // As in systemd, the lists apply to the exit of the main process alone.
        ("stop", Some(FailureCause::StopCommand(Exit::Status(1))), Some(Exit::Status(0))),
        ("stop-signal", Some(FailureCause::StopCommand(Exit::Signal(9))), Some(Exit::Status(0))),
        ("stop-unrun", Some(FailureCause::StopCommand(Exit::Unknown)), Some(Exit::Status(0))),
        ("stop-late", Some(FailureCause::StopCommandTimeout), Some(Exit::Status(0))),
    ];
    let followed = |restart: &Restart| -> String {
        let ends = ends.iter().filter(|(_, cause, exit)| restart.applies(*cause, *exit));
        ends.map(|(name, ..)| *name).collect::<Vec<_>>().join(" ")
    };
    for (when, expected) in [
        (RestartWhen::Never, ""),
        (RestartWhen::OnSuccess, "well"),
        (
            RestartWhen::OnFailure,
            "status signal late watchdog pidfile spawn resources protocol script stop stop-signal \
             stop-unrun stop-late",
        ),
        (
            RestartWhen::OnAbnormal,
            "signal late watchdog pidfile resources protocol stop-signal stop-unrun stop-late",
        ),
        (RestartWhen::OnAbort, "signal stop-signal"),
        (RestartWhen::OnWatchdog, "watchdog"),
        (
            RestartWhen::Always,
            "well status signal late watchdog pidfile spawn resources protocol script stop \
             stop-signal stop-unrun stop-late",
        ),
    ] {
        assert_eq!(followed(&Restart { when, ..Restart::default() }), expected, "{when:?}");
    }
    let one = || StatusSet { codes: [1].into(), ..StatusSet::default() };
    let never = Restart { when: RestartWhen::Never, force: one(), ..Restart::default() };
    assert_eq!(followed(&never), "status");
    let always = Restart { when: RestartWhen::Always, prevent: one(), ..Restart::default() };
    let all_but_status = "well signal late watchdog pidfile spawn resources protocol script stop \
                          stop-signal stop-unrun stop-late";
    assert_eq!(followed(&always), all_but_status);
    // A status in both lists is prevented.
    let both = Restart { prevent: one(), force: one(), ..Restart::default() };
    assert_eq!(followed(&both), all_but_status.trim_start_matches("well "));
}

#[test]
fn ignored_failure_is_a_success_unless_exit_is_unknown() {
    let matters = Command::new("/bin/a", []);
    let may_fail = || Command { ignore_failure: true, ..Command::new("/bin/b", []) };
    let ends = [Exit::Status(0), Exit::Status(3), Exit::Signal(9), Exit::Unknown];
    for (start, expected) in [
        (vec![may_fail(), may_fail()], [true, true, true, false]),
        (vec![matters, may_fail()], [true, false, false, false]),
    ] {
        let unit = InitUnit {
            kind: ServiceType::Oneshot { remain: true },
            run: Run { start, ..Run::default() },
            ..InitUnit::new_virtual("a".parse().unwrap(), ["a".parse().unwrap()])
        };
        assert_eq!(ends.map(|exit| unit.is_success(exit)), expected);
    }
}
