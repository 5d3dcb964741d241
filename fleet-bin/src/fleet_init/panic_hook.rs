//! Aborts a fleet-init that panics.

/// Makes a panic of any thread abort the process.
///
/// Otherwise the process would look alive without the panicked thread, but supervise nothing. After
/// the abort, the units keep running, and the next start of fleet-init adopts them.
pub(super) fn abort_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, Signal, setrlimit};

    const CHILD_MARKER: &str = "FLEET_TEST_PANIC";

    #[test]
    fn a_panic_of_any_thread_ends_the_program() {
        if std::env::var_os(CHILD_MARKER).is_some() {
            // Avoids a core dump.
            let none = Rlimit { current: Some(0), maximum: Some(0) };
            setrlimit(Resource::Core, none).expect("limits can be lowered");
            super::abort_on_panic();
            let thread = std::thread::spawn(|| panic!("a panic of the test"));
            drop(thread.join());
            return;
        }
        let program = std::env::current_exe().expect("path of the test program");
        let name = "a_panic_of_any_thread_ends_the_program";
        let output = Command::new(program).arg(name).env(CHILD_MARKER, "1").output();
        let status = output.expect("the test program can be run").status;
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
    }
}
