//! Pure: the state of a unit, built from systemd's properties.

use std::collections::BTreeMap;

use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{ActiveState, SystemdState, Timestamp};
use fleet_unitfile::UnitType;
use zbus::wire::{OwnedVariant, Variant};

use super::bus::{States, UNIT};

/// Properties by name.
pub(crate) type Properties = BTreeMap<String, OwnedVariant>;

/// The state of a unit as reported by systemd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObservedState {
    load: String,
    active: String,
    sub: String,
    /// Whether its state has changed since systemd loaded it.
    ran: bool,
    /// Times of its last changes of the active state.
    changes: ActiveChanges,
    result: Option<String>,
    main_pid: u32,
    exit: Option<ExitStatus>,
    exit_code: i32,
    restarts: u32,
    /// Invocation ID of the unit's current or last run. Empty if systemd remembers no run.
    invocation: Vec<u8>,
    /// Invocation ID before the last requested start, until that start has succeeded.
    before: Option<Vec<u8>>,
    /// Whether a start was waiting in systemd's queue when the unit became known, and the unit has
    /// not begun to run since.
    is_queued: bool,
}

/// Times at which a unit entered and left the active and the inactive state, as systemd's
/// properties give them: in microseconds since 1970, and zero if it never did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ActiveChanges {
    active_enter: u64,
    active_exit: u64,
    inactive_enter: u64,
    inactive_exit: u64,
}

impl ActiveChanges {
    /// Stores a property with a timestamp. Ignores other properties.
    fn set(&mut self, property: &str, at: u64) {
        match property {
            "ActiveEnterTimestamp" => self.active_enter = at,
            "ActiveExitTimestamp" => self.active_exit = at,
            "InactiveEnterTimestamp" => self.inactive_enter = at,
            "InactiveExitTimestamp" => self.inactive_exit = at,
            _ => {}
        }
    }

    /// Returns the time since which a unit has been in this state. `systemctl` chooses the same
    /// property.
    fn since(&self, state: ActiveState) -> Option<Timestamp> {
        let at = match state {
            ActiveState::Active | ActiveState::Reloading | ActiveState::Refreshing => {
                self.active_enter
            }
            ActiveState::Inactive | ActiveState::Failed => self.inactive_enter,
            ActiveState::Activating => self.inactive_exit,
            ActiveState::Deactivating | ActiveState::Maintenance => self.active_exit,
        };
        (at > 0).then(|| Timestamp::from_millis(at / 1000))
    }
}

impl ObservedState {
    /// A start is requested: the result of an earlier run no longer counts.
    pub(crate) fn on_start_requested(&mut self) {
        self.before = Some(self.invocation.clone());
    }

    /// The last requested start has succeeded, with or without a new run.
    pub(crate) fn on_started(&mut self) {
        self.before = None;
    }

    /// Applies the load, active and sub state from a response. Returns whether the details have to
    /// be queried too.
    ///
    /// The load state is always applied, because signals do not contain it. If a signal came after
    /// the query (`is_latest` is false), the active and sub state are applied only if none are
    /// known yet.
    pub(crate) fn on_states(&mut self, states: &States, is_latest: bool) -> bool {
        self.load.clone_from(&states.load);
        let is_first = self.active.is_empty();
        let differs = (&self.active, &self.sub) != (&states.active, &states.sub);
        if is_first || is_latest {
            self.active.clone_from(&states.active);
            self.sub.clone_from(&states.sub);
            self.is_queued |= is_first && matches!(states.job.as_str(), "start" | "restart");
            self.on_active();
        }
        if is_first { !self.is_inactive() } else { differs }
    }

    /// Applies properties of one of the unit's interfaces.
    pub(crate) fn on_properties(&mut self, interface: &str, properties: &Properties) {
        for (name, value) in properties {
            self.on_property(interface == UNIT, name, value);
        }
        self.on_active();
    }

    fn on_property(&mut self, of_unit: bool, name: &str, value: &Variant<'_>) {
        match (of_unit, name, value) {
            (true, "ActiveState", Variant::Str(word)) => self.active = word.to_string(),
            (true, "SubState", Variant::Str(word)) => self.sub = word.to_string(),
            (true, "StateChangeTimestamp", Variant::U64(at)) => self.ran |= *at > 0,
            (true, name, Variant::U64(at)) => self.changes.set(name, *at),
            (true, "InvocationID", Variant::Array(id)) => {
                let byte = |value: &Variant<'_>| match value {
                    Variant::U8(byte) => Some(*byte),
                    _ => None,
                };
                self.invocation = id.iter().filter_map(byte).collect();
            }
            (false, "Result", Variant::Str(word)) => self.result = Some(word.to_string()),
            (false, "MainPID", Variant::U32(pid)) => self.main_pid = *pid,
            (false, "NRestarts", Variant::U32(count)) => self.restarts = *count,
            (false, "ExecMainCode", Variant::I32(code)) => self.exit_code = *code,
            (false, "ExecMainStatus", Variant::I32(status)) => {
                // The names are in order, so the code belongs to this status.
                self.exit = match self.exit_code {
                    CLD_EXITED => Some(ExitStatus::Code(*status)),
                    CLD_KILLED | CLD_DUMPED => Some(ExitStatus::Signal(*status)),
                    _ => None,
                };
            }
            _ => {}
        }
    }

    fn on_active(&mut self) {
        self.ran |= !self.is_inactive();
        self.is_queued &= self.is_inactive();
    }

    /// Records that systemd has unloaded the unit. This happens only to idle units, so the unit is
    /// now inactive. The result of its last run is kept.
    pub(crate) fn on_unloaded(&mut self) {
        if !self.active.is_empty() {
            (self.active, self.sub) = ("inactive".to_owned(), "dead".to_owned());
            self.main_pid = 0;
        }
    }

    /// Whether it is idle and has not failed.
    pub(crate) fn is_inactive(&self) -> bool {
        self.active == "inactive" || self.active.is_empty()
    }

    /// Whether it is up.
    pub(crate) fn is_active(&self) -> bool {
        self.active == "active" || self.active == "reloading" || self.active == "refreshing"
    }

    /// Whether it has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.active == "failed"
    }

    /// Returns whether the last requested start has not led to a run. Either the run has not begun
    /// yet, or systemd has refused or skipped the start.
    pub(crate) fn has_no_run(&self) -> bool {
        // A unit that was unloaded and loaded again meanwhile has no invocation ID.
        let is_same = |before: &Vec<u8>| self.invocation.is_empty() || *before == self.invocation;
        self.is_inactive() && self.before.as_ref().is_some_and(is_same)
    }

    /// Records the end of the queued start, if there was one: the unit did not run if it is still
    /// inactive and systemd gives another result than `done`.
    pub(crate) fn on_queued_end(&mut self, result: &str) {
        if self.is_queued() && result != "done" {
            (self.ran, self.result) = (true, Some(result.to_owned()));
        }
        self.is_queued = false;
    }

    /// Whether it waits in systemd for a start that an earlier daemon has requested.
    pub(crate) fn is_queued(&self) -> bool {
        self.is_queued && self.state().result.is_none()
    }

    /// Returns the invocation ID of its last run.
    pub(crate) fn invocation(&self) -> &[u8] {
        &self.invocation
    }

    /// Describes how its last run ended, for people.
    pub(crate) fn failure(&self) -> String {
        match (self.result.as_deref(), self.exit) {
            (Some("exit-code" | "signal" | "core-dump"), Some(exit)) => {
                format!("its main process {exit}")
            }
            (Some("timeout"), _) => "it exceeded a timeout".to_owned(),
            (Some("start-limit-hit"), _) => "it was started too often in too short a time".into(),
            (Some("resources"), _) => "the machine lacks the resources to start it".to_owned(),
            (Some("success") | None, _) => "systemd gives no reason".to_owned(),
            (Some(result), _) => format!("its result is {result:?}"),
        }
    }

    /// Converts to fleet's state.
    pub(crate) fn state(&self) -> SystemdState {
        let load = self.load.parse().unwrap_or(LoadState::Stub);
        let active = self.active.parse().unwrap_or(ActiveState::Inactive);
        let sub = if self.sub.is_empty() { "dead" } else { &self.sub };
        let is_of_before = self.has_no_run();
        SystemdState {
            result: self.result.clone().filter(|_| self.ran && !is_of_before),
            main_pid: Some(self.main_pid).filter(|pid| *pid > 0),
            exit: self.exit.filter(|_| !is_of_before),
            since: self.changes.since(active).filter(|_| !is_of_before),
            restarts: self.restarts,
            ..SystemdState::new(load, active, sub)
        }
    }
}

// `si_code` values of the kernel's `waitid`.
const CLD_EXITED: i32 = 1;
const CLD_KILLED: i32 = 2;
const CLD_DUMPED: i32 = 3;

/// Returns the D-Bus interface of a unit type, and the properties to read from it. Returns `None`
/// if the type has no such properties.
pub(crate) fn details(unit_type: UnitType) -> Option<(&'static str, &'static [&'static str])> {
    const RESULT: &[&str] = &["Result"];
    const SERVICE: &[&str] = &["Result", "MainPID", "NRestarts", "ExecMainCode", "ExecMainStatus"];
    Some(match unit_type {
        UnitType::Container | UnitType::Service => ("org.freedesktop.systemd1.Service", SERVICE),
        UnitType::Automount => ("org.freedesktop.systemd1.Automount", RESULT),
        UnitType::Mount => ("org.freedesktop.systemd1.Mount", RESULT),
        UnitType::Path => ("org.freedesktop.systemd1.Path", RESULT),
        UnitType::Scope => ("org.freedesktop.systemd1.Scope", RESULT),
        UnitType::Socket => ("org.freedesktop.systemd1.Socket", RESULT),
        UnitType::Swap => ("org.freedesktop.systemd1.Swap", RESULT),
        UnitType::Timer => ("org.freedesktop.systemd1.Timer", RESULT),
        UnitType::Busname
        | UnitType::Device
        | UnitType::Slice
        | UnitType::Snapshot
        | UnitType::Target => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str = "org.freedesktop.systemd1.Service";

    fn states(active: &str, sub: &str) -> States {
        let [load, active, sub] = ["loaded", active, sub].map(str::to_owned);
        States { name: "a.service".to_owned(), load, active, sub, job: String::new() }
    }

    fn properties<'a>(all: &[(&str, Variant<'a>)]) -> Properties {
        let owned = |value: &Variant<'a>| value.try_to_owned().expect("it holds no descriptor");
        all.iter().map(|(name, value)| ((*name).to_owned(), owned(value))).collect()
    }

    #[test]
    fn unit_that_never_ran_has_no_result() {
        let mut observed = ObservedState::default();
        assert!(!observed.on_states(&states("inactive", "dead"), true), "there is no more to ask");
        observed.on_properties(SERVICE, &properties(&[("Result", "success".into())]));
        assert_eq!(observed.state(), SystemdState::loaded());
        observed.on_properties(UNIT, &properties(&[("StateChangeTimestamp", 5_u64.into())]));
        assert_eq!(observed.state().result.as_deref(), Some("success"));
    }

    /// Regression: a job was reported as successful before its start.
    #[test]
    fn queued_start_lasts_until_the_unit_runs() {
        let mut observed = ObservedState::default();
        let queued = States { job: "start".to_owned(), ..states("inactive", "dead") };
        observed.on_states(&queued, true);
        assert!(observed.is_queued());
        observed.on_states(&states("inactive", "dead"), true);
        assert!(observed.is_queued(), "it has not run yet");
        let mut refused = observed.clone();
        refused.on_queued_end("dependency");
        assert_eq!(refused.state().result.as_deref(), Some("dependency"));
        assert!(!refused.is_queued());
        observed.on_properties(UNIT, &properties(&[("ActiveState", "activating".into())]));
        assert!(!observed.is_queued());
        observed.on_properties(UNIT, &properties(&[("ActiveState", "inactive".into())]));
        assert!(!observed.is_queued());
    }

    #[test]
    fn signals_report_run_and_exit() {
        let mut observed = ObservedState::default();
        observed.on_states(&states("inactive", "dead"), true);
        let running = [("ActiveState", "active".into()), ("SubState", "running".into())];
        observed.on_properties(UNIT, &properties(&running));
        observed.on_properties(SERVICE, &properties(&[("MainPID", 7_u32.into())]));
        let state = observed.state();
        assert_eq!((state.active, state.main_pid), (ActiveState::Active, Some(7)));
        let ended = [
            ("Result", "exit-code".into()),
            ("MainPID", 0_u32.into()),
            ("ExecMainCode", CLD_EXITED.into()),
            ("ExecMainStatus", 3_i32.into()),
        ];
        observed.on_properties(SERVICE, &properties(&ended));
        observed.on_properties(UNIT, &properties(&[("ActiveState", "failed".into())]));
        assert_eq!(observed.failure(), "its main process exited with status 3");
        let killed = [("ExecMainCode", CLD_KILLED.into()), ("ExecMainStatus", 9_i32.into())];
        observed.on_properties(SERVICE, &properties(&killed));
        assert_eq!(observed.state().exit, Some(ExitStatus::Signal(9)));
        observed.on_unloaded();
        assert_eq!(
            (observed.state().active, &*observed.state().sub),
            (ActiveState::Inactive, "dead")
        );
        assert_eq!(observed.state().exit, Some(ExitStatus::Signal(9)), "its last run stays known");
    }

    #[test]
    fn earlier_result_is_not_used_for_new_start() {
        let mut observed = ObservedState::default();
        let run = |id: u8| properties(&[("InvocationID", vec![id].into())]);
        observed.on_properties(UNIT, &run(1));
        observed.on_properties(UNIT, &properties(&[("ActiveState", "active".into())]));
        observed.on_properties(SERVICE, &properties(&[("Result", "success".into())]));
        observed.on_start_requested();
        assert_eq!(observed.state().result.as_deref(), Some("success"), "it is restarted");
        observed.on_properties(UNIT, &properties(&[("ActiveState", "inactive".into())]));
        assert_eq!(observed.state().result, None, "the start is under way, or was refused");
        observed.on_properties(UNIT, &run(2));
        assert_eq!(observed.state().result.as_deref(), Some("success"), "it has run and ended");
        observed.on_start_requested();
        assert_eq!(observed.state().result, None);
        observed.on_started();
        assert_eq!(observed.state().result.as_deref(), Some("success"), "no run was needed");
        observed.on_start_requested();
        observed.on_properties(UNIT, &properties(&[("InvocationID", Vec::<u8>::new().into())]));
        assert!(observed.has_no_run(), "systemd has loaded it again, and skipped it");
    }

    #[test]
    fn signal_overrides_older_response() {
        let mut observed = ObservedState::default();
        observed.on_states(&states("inactive", "dead"), true);
        observed.on_properties(UNIT, &properties(&[("ActiveState", "active".into())]));
        assert!(observed.on_states(&states("inactive", "dead"), false));
        assert_eq!(observed.state().active, ActiveState::Active);
    }
}
