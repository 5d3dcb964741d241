//! Files that do not answer, as those of a mount whose server is gone.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use nix::libc;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::graph::{SLEEP, Stand, supervised, target};
use crate::support::{Home, wait_until};

/// Set for the process of the test alone.
const ALONE: &str = "FLEET_TEST_ALONE";

/// A program that nobody can execute as long as this is there: whoever opens it waits for it.
struct Held {
    file: File,
    _told: Signal,
}

impl Held {
    fn new(path: &Path, script: &str) -> Self {
        std::fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("it is ours");
        // The kernel tells of who waits, by a signal that would end this process.
        let told = signal(SignalKind::io()).expect("it can be heard");
        let held = Self { file: File::open(path).expect("it is there"), _told: told };
        assert_eq!(held.control(libc::F_SETLEASE, libc::F_WRLCK), 0, "it can be held");
        held
    }

    /// Whether somebody waits for it.
    fn is_awaited(&self) -> bool {
        self.control(libc::F_GETLEASE, 0) != libc::F_WRLCK
    }

    fn control(&self, what: libc::c_int, how: libc::c_int) -> libc::c_int {
        // SAFETY: it is told numbers alone, of a file that is open.
        #[expect(unsafe_code, reason = "no library that we use holds a file so")]
        unsafe {
            libc::fcntl(self.file.as_raw_fd(), what, how)
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.control(libc::F_SETLEASE, libc::F_UNLCK);
    }
}

/// A process that waits so has all open that its parent has, as the locks of other tests: it is to
/// have a parent of its own.
#[test]
fn a_program_that_does_not_answer_keeps_no_other_unit_waiting() {
    let program = std::env::current_exe().expect("it has a path");
    let test = "native::far::one_that_does_not_answer";
    let ran = Command::new(program).args(["--exact", test]).env(ALONE, "yes").output();
    let ran = ran.expect("it can be run");
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && told.contains("1 passed"), "{told}");
}

/// The same in that process. By itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_that_does_not_answer() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let home = Home::new();
    let (program, mark) = (home.path("program"), home.path("mark"));
    let held = Held::new(&program, &format!("touch {}; exec sleep 1000", mark.display()));
    let far = format!("exec-start: {}", program.display());
    let stanzas = supervised("far", &far) + &supervised("near", SLEEP);
    let stand = Stand::new(&stanzas, "far").await;
    wait_until("it is to be executed", async || held.is_awaited()).await;
    let beside = BTreeSet::from([target("near")]);
    stand.supervisor.set_goal(Some(target("far")), beside).await.expect("it is provided");
    stand.running("near").await;
    assert!(!mark.exists(), "it was not held");
    drop(held);
    stand.running("far").await;
    wait_until("it runs", async || mark.exists()).await;
    stand.clean_up().await;
}
