//! Runs every scenario: what it prints is what stands in its file.

use crate::language::run;

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let file = concat!("../scenarios/", stringify!($name), ".txt");
                let expected = include_str!(concat!("../scenarios/", stringify!($name), ".txt"));
                let found = run(expected);
                assert!(found == expected, "{file} should be:\n----\n{found}----");
            }
        )*
    };
}

scenarios! {
    conflicts
    global_units
    groups
    lifecycle
    machine_gone
    machine_id
    metadata
    order
    peers
    reasons
    replaces
    replaces_and_globals
    unreadable
}
