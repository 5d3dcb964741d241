//! Instances of units, as seen in this machine's process table. All booted machines share it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Environment variable of each process of the campaign: its tag, unit and machine.
pub(super) const VARIABLE: &str = "FLEET_CAMPAIGN";

/// Interval between two looks at the process table.
const INTERVAL: Duration = Duration::from_millis(50);

/// The running processes of each unit.
pub(super) type Instances = BTreeMap<String, BTreeSet<Instance>>;

/// A running process of a unit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Instance {
    pub(super) machine: String,
    pub(super) pid: u32,
}

/// A thread that records all changes of the instances.
pub(super) struct Observer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    tag: String,
    ends: AtomicBool,
    /// The instances after each change.
    history: Mutex<Vec<Instances>>,
}

impl Observer {
    pub(super) fn start(tag: &str) -> Self {
        let history = Mutex::new(vec![find(tag)]);
        let shared =
            Arc::new(Shared { tag: tag.to_owned(), ends: AtomicBool::new(false), history });
        let observed = shared.clone();
        let thread = std::thread::spawn(move || observed.wait_for_end());
        Self { shared, thread: Some(thread) }
    }

    /// Returns the current instances.
    pub(super) fn now(&self) -> Instances {
        self.shared.look()
    }

    /// Forgets the history until now. Returns the current instances.
    pub(super) fn restart(&self) -> Instances {
        let now = self.now();
        *self.shared.history.lock().unwrap() = vec![now.clone()];
        now
    }

    /// Returns the instances after each change since the last [`restart`](Self::restart).
    pub(super) fn history(&self) -> Vec<Instances> {
        self.shared.history.lock().unwrap().clone()
    }
}

impl Shared {
    /// Looks regularly until the observer is dropped.
    fn wait_for_end(&self) {
        while !self.ends.load(Ordering::Relaxed) {
            self.look();
            std::thread::sleep(INTERVAL);
        }
    }

    fn look(&self) -> Instances {
        let mut history = self.history.lock().unwrap();
        let now = find(&self.tag);
        if history.last() != Some(&now) {
            history.push(now.clone());
        }
        now
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn find(tag: &str) -> Instances {
    let mut instances = Instances::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Some((unit, machine)) = labels(&entry.path(), tag) else { continue };
        instances.entry(unit).or_default().insert(Instance { machine, pid });
    }
    instances
}

/// Reads the unit and the machine of a process; `None` if it is not one of the campaign's.
fn labels(process: &std::path::Path, tag: &str) -> Option<(String, String)> {
    // Not yet a forked child that is about to execute the program.
    if fs::read_to_string(process.join("comm")).ok()?.trim_end() != "sleep" {
        return None;
    }
    let environment = fs::read(process.join("environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment);
    let prefix = format!("{VARIABLE}={tag} ");
    let value = environment.split('\0').find_map(|variable| variable.strip_prefix(&prefix))?;
    let (unit, machine) = value.split_once(' ')?;
    Some((unit.to_owned(), machine.to_owned()))
}
