//! Runs every scenario and compares its output with the file.
//!
//! With `FLEET_UPDATE_SCENARIOS=1` in the environment, the tests rewrite the files instead. Review
//! the difference, as with any snapshot.

use std::path::Path;

use crate::language::run;

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                assert_scenario(
                    concat!(stringify!($name), ".txt"),
                    include_str!(concat!("../scenarios/", stringify!($name), ".txt")),
                );
            }
        )*

        #[test]
        fn every_file_is_run() {
            let run = [$(concat!(stringify!($name), ".txt")),*];
            assert_eq!(files(), run);
        }
    };
}

scenarios! {
    conflicts
    cordons
    cycles
    drain_plans
    drains
    exact_clauses
    exact_moves
    expressions
    failures
    global_units
    groups
    groups_atomic
    lifecycle
    limits
    machine_gone
    machine_id
    metadata
    never_rescheduled
    order
    peer_patterns
    peers
    preferences
    reasons
    rebalancing
    replaces
    replaces_and_globals
    replaces_in_groups
    reservations
    unit_file_examples
    unreadable
}

fn assert_scenario(file: &str, expected: &str) {
    let found = run(expected);
    if found != expected && is_to_be_updated() {
        write(file, &found);
        return;
    }
    assert!(found == expected, "tests/scenarios/{file} should be:\n----\n{found}----");
}

#[expect(clippy::disallowed_methods, reason = "the environment requests an update")]
fn is_to_be_updated() -> bool {
    std::env::var_os("FLEET_UPDATE_SCENARIOS").is_some()
}

#[expect(clippy::disallowed_methods, reason = "expectations are written on request")]
fn write(file: &str, text: &str) {
    std::fs::write(folder().join(file), text).expect("the scenarios can be written");
}

#[expect(clippy::disallowed_methods, reason = "every scenario file must be run")]
fn files() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("there are scenarios");
    let names = entries.map(|entry| entry.expect("the folder can be read").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios"))
}
