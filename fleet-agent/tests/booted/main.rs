//! The systemd service manager over a real systemd, in machines that the tests boot.
//!
//! A test binary by itself, because it boots machines. Each test boots one, and lets this same
//! binary run a *case* in it, with the test [`inside`]. `scripts/test` runs it where that can be
//! done.

mod cases;
mod machine;

use self::machine::Machine;

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
                other => panic!("there is no case {other}"),
            }
        }
    };
}

cases! {
    conforms: the_system_bus_conforms;
}

/// Runs one case in the machine that a test has booted for it; does nothing anywhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "has something to do only in a machine that the other tests boot"]
async fn inside() {
    if let Some(case) = machine::case_to_run() {
        run(&case).await;
    }
}
