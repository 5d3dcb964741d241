//! The systemd service manager over a real systemd, in machines that the tests boot.
//!
//! A test binary by itself, because it boots machines. Each test boots one, and lets this same
//! binary run a *case* in it, with the test [`inside`]. `scripts/test` runs it where that can be
//! done.

mod bench;
mod cases;
#[allow(dead_code, reason = "the tests of the other binary use more of it")]
#[path = "../it/native/helper.rs"]
mod helper;
#[path = "../it/histories/mod.rs"]
mod histories;
mod machine;
#[path = "../it/wait.rs"]
mod wait;

use std::time::Duration;

use self::machine::Machine;

/// A case that takes longer hangs.
const LONGEST_CASE: Duration = Duration::from_secs(300);

macro_rules! cases {
    ($($module:ident: $($case:ident),+;)+) => {
        $($(
            #[test]
            #[ignore = "boots a machine: run by scripts/test"]
            fn $case() {
                Machine::boot(stringify!($case)).run_case(stringify!($case));
            }
        )+)+

        async fn run(case: &str) {
            match case {
                $($(stringify!($case) => cases::$module::$case().await,)+)+
                "a_daemon_to_be_killed" => cases::lost::a_daemon_to_be_killed().await,
                other => panic!("there is no case {other}"),
            }
        }
    };
}

cases! {
    beside: native_units_live_as_those_of_systemd;
    conforms: the_system_bus_conforms, the_private_socket_conforms, a_users_systemd_conforms;
    content: new_content_is_run_every_time, a_bad_file_harms_itself_alone,
        what_the_machine_has_is_left_alone, nothing_is_left_of_an_unloaded_unit,
        a_unit_whose_condition_does_not_hold_says_so;
    many: a_slow_stop_delays_nobody, a_sidekick_is_started_with_its_main_unit,
        reloads_are_made_only_where_needed;
    types: units_of_all_types_run, what_a_machine_cannot_run_is_told,
        an_automount_mounts_when_it_is_looked_into,
        a_timer_that_comes_before_its_service_is_not_started_yet,
        a_stops_time_out_is_that_of_the_machine;
    lost: a_killed_daemon_leaves_its_units, systemd_may_begin_anew, the_bus_may_begin_anew,
        what_ends_while_the_bus_is_away_is_heard_of,
        an_end_during_a_reload_is_heard_of, half_written_units_are_found;
    journals: a_journal_is_followed;
    others: what_others_stop_is_told;
    figures: the_cost_beside_systemctl;
}

/// Runs one case in the machine that a test has booted for it; does nothing anywhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine that another test boots: run by scripts/test"]
async fn inside() {
    if let Some(case) = machine::case_to_run() {
        let ended = tokio::time::timeout(LONGEST_CASE, run(&case)).await;
        assert!(ended.is_ok(), "{case} does not come to an end");
    }
}
