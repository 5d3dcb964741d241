//! The systemd service manager with a real systemd, in machines that the tests boot.
//!
//! It is a separate test binary because it boots machines. Each test boots one and runs this same
//! binary in it, with the test [`inside`] and the name of a *case*. `scripts/test --full` runs it
//! if the environment supports that.

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

/// Time limit of a case.
const LONGEST_CASE: Duration = Duration::from_secs(300);

macro_rules! cases {
    ($($module:ident: $($case:ident),+;)+) => {
        $($(
            #[test]
            #[ignore = "boots a machine: run by scripts/test --full"]
            fn $case() {
                Machine::boot(stringify!($case)).run_case(stringify!($case));
            }
        )+)+

        async fn run(case: &str) {
            match case {
                $($(stringify!($case) => cases::$module::$case().await,)+)+
                "podman_runs_a_container" => cases::quadlets::podman_runs_a_container().await,
                "helper_daemon_to_kill" => cases::interruptions::helper_daemon_to_kill().await,
                other => panic!("there is no case {other}"),
            }
        }
    };
}

cases! {
    comparison: native_and_systemd_units_behave_alike;
    conditions: conditions_hold_as_under_systemd;
    conformance: system_bus_conforms, user_instance_conforms;
    content: new_content_is_used_every_time, bad_file_affects_only_its_unit,
        units_of_the_machine_are_left_alone, unload_leaves_nothing_behind,
        unit_with_failed_condition_reports_it;
    many_units: slow_stop_delays_no_other_unit, dependent_unit_starts_with_main_unit,
        reloads_happen_only_if_needed;
    unit_types: units_of_all_types_run, unsupported_unit_is_reported,
        automount_mounts_on_access,
        timer_without_service_is_not_started, timer_elapses_are_read,
        stop_timeout_includes_machine_settings;
    interruptions: killed_daemon_leaves_units_running, systemd_may_reexecute, bus_may_restart,
        request_without_response_is_not_forgotten, start_after_stop_on_full_disk_runs_the_unit,
        exit_during_bus_outage_is_noticed,
        exit_during_reload_is_noticed, half_written_units_are_recovered,
        units_of_a_removed_directory_are_recovered;
    journals: journal_can_be_followed;
    external_changes: external_stop_is_reported;
    quadlets: containers_run_as_their_services, new_content_of_a_container_is_used,
        container_that_cannot_run_is_refused, containers_outlive_the_daemon;
    cost: cost_compared_with_systemctl;
}

/// Runs a container with a real podman. `FLEET_PODMAN_ROOT` names the root tree of a system that
/// has one; `scripts/podman-root` makes it.
#[test]
#[ignore = "boots a machine with podman: run by scripts/test --full"]
fn podman_runs_a_container() {
    match std::env::var_os("FLEET_PODMAN_ROOT") {
        Some(root) => Machine::boot_root("podman", Some(root)).run_case("podman_runs_a_container"),
        None => bench::print_line("left out: FLEET_PODMAN_ROOT names no system with podman"),
    }
}

/// Runs one case inside a booted machine; does nothing elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine that another test boots: run by scripts/test --full"]
async fn inside() {
    if let Some(case) = machine::case_to_run() {
        let ended = tokio::time::timeout(LONGEST_CASE, run(&case)).await;
        assert!(ended.is_ok(), "{case} does not end");
    }
}
