//! A `fleetd dev` with a loopback port, in its own directory.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A cluster of three machines. Dropping it stops the daemon and all units.
pub(crate) struct Daemon {
    home: TempDir,
    child: Child,
    /// Address of the page.
    pub(crate) url: String,
}

impl Daemon {
    /// Starts a daemon that launches units with these names and files.
    pub(crate) fn start(units: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        for (name, file) in units {
            std::fs::write(home.path().join(name), file).unwrap();
        }
        let files: Vec<PathBuf> = units.iter().map(|(name, _)| home.path().join(name)).collect();
        let (child, url) = launch(home.path(), "127.0.0.1:0", &files);
        Self { home, child, url }
    }

    /// Stops the daemon and starts it again at the same port.
    pub(crate) fn restart(&mut self, meanwhile: impl FnOnce()) {
        stop(&mut self.child);
        meanwhile();
        let address = self.url.trim_start_matches("http://").to_owned();
        (self.child, self.url) = launch(self.home.path(), &address, &[]);
    }

    /// Returns a path in the directory of the daemon.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Returns a `fleetctl` for the daemon's socket.
    pub(crate) fn fleetctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
        command.env("FLEETCTL_ENDPOINT", self.url.replace("http://", "tcp://")).args(args);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

fn launch(home: &Path, address: &str, units: &[PathBuf]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fleetd"))
        .args(["dev", "--listen", &format!("tcp://{address}"), "--data-dir"])
        .arg(home.join("data"))
        .args(units)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let url = lines.find_map(|line| Some(line.split_once(" listens on tcp://")?.1.to_owned()));
    let url = url.expect("fleetd prints its address");
    // Its later output must not block it.
    thread::spawn(move || lines.for_each(drop));
    (child, format!("http://{url}"))
}

fn stop(child: &mut Child) {
    let pid = Pid::from_child(child);
    let _may_have_ended = kill_process(pid, Signal::INT);
    drop(child.wait());
}
