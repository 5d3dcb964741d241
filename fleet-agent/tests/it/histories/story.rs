//! Runs a story step by step, and reports differences.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fleet_agent::{ChangeReceiver, ServiceManager};
use fleet_core::unit::LoadState;
use fleet_core::{ActiveState, Epoch, Generation, SystemdState};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::task::{AbortHandle, JoinHandle};

use crate::wait::{DEADLINE, wait_until};

/// States that last no longer than a signal takes, so they may be missed. A story only waits for
/// one while a process keeps the unit in it.
const FLEETING: [&str; 5] =
    ["stop-sigterm", "stop-sigkill", "stop-watchdog", "final-sigterm", "final-sigkill"];

/// Runs stories of one unit on a service manager.
pub(super) struct StoryRunner {
    manager: Arc<dyn ServiceManager>,
    unit: UnitName,
    place: PathBuf,
    history: Arc<Mutex<Vec<SystemdState>>>,
    follower: AbortHandle,
    /// Number of states that the story has consumed.
    consumed: usize,
    /// States that may occur before the next expected one.
    passing: Vec<String>,
    /// The state that was expected last.
    last: String,
    pids: BTreeMap<String, String>,
    orders: Vec<JoinHandle<()>>,
}

impl Drop for StoryRunner {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl StoryRunner {
    /// Takes over the unit. Its commands use the directory `place`.
    pub(super) async fn new(
        manager: Arc<dyn ServiceManager>,
        unit: &str,
        text: &str,
        place: &Path,
    ) -> Result<Self, String> {
        let unit: UnitName = unit.parse().expect("the name is well formed");
        let file = UnitFile::parse(text).expect("the unit file is well formed");
        let changes = manager.changes();
        manager.load(&unit, &file, Epoch(1)).await.map_err(|error| error.to_string())?;
        manager.reload().await.map_err(|error| error.to_string())?;
        let history = Arc::new(Mutex::new(vec![SystemdState::loaded()]));
        let (of, to) = ((Arc::clone(&manager), unit.clone()), Arc::clone(&history));
        let follower = tokio::spawn(follow(of.0, of.1, changes, to)).abort_handle();
        Ok(Self {
            manager,
            unit,
            place: place.to_owned(),
            history,
            follower,
            consumed: 1,
            passing: Vec::new(),
            last: String::new(),
            pids: BTreeMap::new(),
            orders: Vec::new(),
        })
    }

    /// Runs one step, and returns a difference, if any.
    pub(super) async fn run_step(&mut self, step: &str) -> Result<(), String> {
        self.step(step).await.map_err(|problem| self.at(step, &problem))
    }

    /// Ends the story: no further state may occur.
    pub(super) async fn end(&mut self) -> Result<(), String> {
        self.wait_for_orders().await.map_err(|problem| self.at("the end", &problem))?;
        let left = self.states().split_off(self.consumed);
        match left.iter().find(|state| !self.is_fleeting(state)) {
            Some(state) => Err(self.at("the end", &format!("it shows {}", state.sub))),
            None => Ok(()),
        }
    }

    /// Unloads the unit.
    pub(super) async fn unload(&self) -> Result<(), String> {
        self.manager.unload(&self.unit).await.map_err(|error| error.to_string())
    }

    fn at(&self, step: &str, problem: &str) -> String {
        let all: Vec<String> = self.states().iter().map(|state| state.sub.clone()).collect();
        format!("{}: at {step}: {problem}: {}", self.unit, all.join(" "))
    }

    async fn step(&mut self, step: &str) -> Result<(), String> {
        if let Some((name, word)) = step.split_once('=') {
            self.meet(name).await?;
            self.leave_word(name, word).await
        } else if let Some((name, signal)) = step.split_once('!') {
            if !self.pids.contains_key(name) {
                self.meet(name).await?;
            }
            self.kill(name, signal).await
        } else if let Some(name) = step.strip_suffix('?') {
            self.meet(name).await
        } else if let Some(sub) = step.strip_prefix('(') {
            self.passing.push(sub.trim_end_matches(')').to_owned());
            Ok(())
        } else if step == "." {
            self.wait_for_orders().await
        } else if let "+" | "-" | "~" | "^" = step {
            self.order(step);
            Ok(())
        } else {
            self.see(step).await
        }
    }

    fn order(&mut self, order: &str) {
        let (manager, unit) = (Arc::clone(&self.manager), self.unit.clone());
        let (order, next) = (order.to_owned(), Generation(self.orders.len() as u64 + 1));
        self.orders.push(tokio::spawn(async move {
            match order.as_str() {
                "+" => drop(manager.start(&unit, next).await),
                "-" => drop(manager.stop(&unit).await),
                "~" => drop(manager.restart(&unit, next).await),
                _ => drop(manager.reload_unit(&unit).await),
            }
        }));
    }

    /// The result of a request is not part of the history.
    async fn wait_for_orders(&mut self) -> Result<(), String> {
        let all = || self.orders.iter().all(JoinHandle::is_finished);
        match is_so_in_time(async || all()).await {
            true => Ok(()),
            false => Err("a request does not complete".to_owned()),
        }
    }

    /// Waits for this state, and for no unexpected one before it.
    async fn see(&mut self, sub: &str) -> Result<(), String> {
        let (sub, result) = sub.split_once(':').map_or((sub, None), |(sub, it)| (sub, Some(it)));
        self.expect_restart(sub);
        let is_it = |state: &SystemdState| {
            state.sub == sub && result.is_none_or(|it| state.result.as_deref() == Some(it))
        };
        let next = |all: &[SystemdState]| all.iter().position(is_it);
        let from = self.consumed;
        let seen = || next(&self.states()[from..]).is_some();
        if !is_so_in_time(async || seen()).await {
            return Err("it never shows that".to_owned());
        }
        let all = self.states();
        let at = from + next(&all[from..]).ok_or("it is gone")?;
        if let Some(other) = all[from..at].iter().find(|state| !self.is_fleeting(state)) {
            return Err(format!("it shows {} before", other.sub));
        }
        let is = (all[at].load, all[at].active);
        if is != (LoadState::Loaded, active_of(sub)) {
            return Err(format!("it is {is:?}"));
        }
        self.consumed = at + 1;
        self.passing.clear();
        sub.clone_into(&mut self.last);
        Ok(())
    }

    /// Under systemd a unit briefly passes through its end state before it waits for a restart, and
    /// is inactive for a moment before it starts. These states may be observed or not.
    fn expect_restart(&mut self, sub: &str) {
        let ends = if sub == "auto-restart" { &["dead", "failed"][..] } else { &[] };
        self.passing.extend(ends.iter().map(|&end| end.to_owned()));
        if self.last == "auto-restart" || self.passing.iter().any(|it| it == "auto-restart") {
            self.passing.extend(["dead", "failed"].map(str::to_owned));
        }
    }

    fn is_fleeting(&self, state: &SystemdState) -> bool {
        let known = FLEETING.iter().copied().chain(self.passing.iter().map(String::as_str));
        known.into_iter().any(|sub| sub == state.sub) && state.active == active_of(&state.sub)
    }

    fn states(&self) -> Vec<SystemdState> {
        self.history.lock().expect("no panic while locked").clone()
    }

    /// Waits until the command of this name runs.
    async fn meet(&mut self, name: &str) -> Result<(), String> {
        let file = self.place.join(name);
        if self.pids.contains_key(name) && !file.exists() {
            return Ok(());
        }
        if !is_so_in_time(async || file.exists()).await {
            return Err(format!("{name} does not run"));
        }
        let pid = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        std::fs::remove_file(&file).map_err(|error| error.to_string())?;
        self.pids.insert(name.to_owned(), pid);
        Ok(())
    }

    async fn leave_word(&mut self, name: &str, word: &str) -> Result<(), String> {
        let pid = self.pids.get(name).cloned().ok_or("it does not run")?;
        if is_gone(&pid) {
            return Err(format!("{name} is gone"));
        }
        let half = self.place.join(format!("{name}.word"));
        let go = self.place.join(format!("{name}.go"));
        let left = std::fs::write(&half, word).and_then(|()| std::fs::rename(half, go));
        left.map_err(|error| error.to_string())?;
        if word == "go" { Ok(()) } else { self.wait_for_end(name).await }
    }

    /// Waits until the process is gone, so that its parent has observed the exit.
    async fn wait_for_end(&mut self, name: &str) -> Result<(), String> {
        let pid = self.pids.remove(name).ok_or("it does not run")?;
        let ended = is_so_in_time(async || is_gone(&pid)).await;
        if ended { Ok(()) } else { Err(format!("{name} does not end")) }
    }

    async fn kill(&mut self, name: &str, signal: &str) -> Result<(), String> {
        let pid = self.pids.get(name).cloned().ok_or("it does not run")?;
        let status = std::process::Command::new("/bin/kill").args(["-s", signal, &pid]).status();
        match status.map_err(|error| error.to_string())?.success() {
            true => self.wait_for_end(name).await,
            false => Err(format!("{name} cannot be killed")),
        }
    }
}

/// Records each observed state.
async fn follow(
    manager: Arc<dyn ServiceManager>,
    unit: UnitName,
    mut changes: ChangeReceiver,
    history: Arc<Mutex<Vec<SystemdState>>>,
) {
    loop {
        if let Ok(Some(managed)) = manager.get(&unit).await {
            let mut history = history.lock().expect("no panic while locked");
            let shows = |state: &SystemdState| (state.load, state.active, state.sub.clone());
            match history.last_mut() {
                // The result may follow later.
                Some(last) if shows(last) == shows(&managed.state) => *last = managed.state,
                _ => history.push(managed.state),
            }
        }
        changes.next().await;
    }
}

async fn is_so_in_time(mut so: impl AsyncFnMut() -> bool) -> bool {
    let wait = wait_until("a step of a story", async || so().await);
    let ended = tokio::time::timeout(DEADLINE.mul_f32(0.9), wait).await;
    ended.is_ok()
}

/// Returns whether a process is gone, or a zombie that may never be reaped.
fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.is_empty() || rest.starts_with("Z 1 ")
}

/// Returns the active state for a sub-state of a service, target or timer.
fn active_of(sub: &str) -> ActiveState {
    match sub {
        "dead" => ActiveState::Inactive,
        "failed" => ActiveState::Failed,
        "running" | "exited" | "active" | "waiting" | "elapsed" => ActiveState::Active,
        "condition" | "auto-restart" => ActiveState::Activating,
        start if start.starts_with("start") => ActiveState::Activating,
        reload if reload.starts_with("reload") => ActiveState::Reloading,
        _ => ActiveState::Deactivating,
    }
}
