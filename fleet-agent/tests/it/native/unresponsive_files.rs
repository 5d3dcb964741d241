//! Files that do not respond, as on a mount whose server is gone.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use nix::libc;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::graph::{SLEEP, Stand, supervised, target};
use crate::support::{Home, wait_until};

/// Set for the process of the test only.
const ALONE: &str = "FLEET_TEST_ALONE";

/// A program that cannot be executed while this exists: opening it blocks.
struct BlockedFile {
    file: File,
    _blocked: Signal,
}

impl BlockedFile {
    fn new(path: &Path, script: &str) -> Self {
        std::fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("the directory belongs to this user");
        // The kernel reports a blocked opener by a signal that would end this process.
        let blocked = signal(SignalKind::io()).expect("the signal can be handled");
        let held = Self { file: File::open(path).expect("it is there"), _blocked: blocked };
        assert_eq!(held.control(libc::F_SETLEASE, libc::F_WRLCK), 0, "it can be held");
        held
    }

    /// Returns whether a process is blocked on the file.
    fn has_blocked_opener(&self) -> bool {
        self.control(libc::F_GETLEASE, 0) != libc::F_WRLCK
    }

    fn control(&self, what: libc::c_int, how: libc::c_int) -> libc::c_int {
        // SAFETY: it only gets integers, and the descriptor of an open file.
        #[expect(unsafe_code, reason = "no library that we use holds a file so")]
        unsafe {
            libc::fcntl(self.file.as_raw_fd(), what, how)
        }
    }
}

impl Drop for BlockedFile {
    fn drop(&mut self) {
        self.control(libc::F_SETLEASE, libc::F_UNLCK);
    }
}

/// A blocked process inherits the descriptors of its parent, including the locks of other tests.
/// Therefore it gets its own parent.
#[test]
fn unresponsive_program_delays_no_other_unit() {
    let program = std::env::current_exe().expect("it has a path");
    let test = "native::unresponsive_files::unresponsive_program_process";
    let ran = Command::new(program).args(["--exact", test]).env(ALONE, "yes").output();
    let ran = ran.expect("it can be run");
    let output = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && output.contains("1 passed"), "{output}");
}

/// The test in that process. Does nothing as a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unresponsive_program_process() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let home = Home::new();
    let (program, mark) = (home.path("program"), home.path("mark"));
    let held = BlockedFile::new(&program, &format!("touch {}; exec sleep 1000", mark.display()));
    let far = format!("exec-start: {}", program.display());
    let stanzas = supervised("far", &far) + &supervised("near", SLEEP);
    let stand = Stand::new(&stanzas, "far").await;
    wait_until("its program is about to run", async || held.has_blocked_opener()).await;
    let extra = BTreeSet::from([target("near")]);
    stand.supervisor.set_goal(Some(target("far")), extra).await.expect("it is provided");
    stand.running("near").await;
    assert!(!mark.exists(), "it was not delayed");
    drop(held);
    stand.running("far").await;
    wait_until("it runs", async || mark.exists()).await;
    stand.clean_up().await;
}
