//! Settings of one unit, collected option by option.

use fleet_unitfile::UnitType;

use super::activator::{PathDraft, SocketDraft};
use super::service::{Restarts, ServiceDescriptors, WHEN};
use super::service_options::CGROUP_FILTERS;
use super::timer::TimerDraft;
use super::value::{
    Span, ValueContext, absolute, choice, delay, flag, longest, number, read_resettable, signal,
    span, timeout,
};
use super::{cgroup_filters, condition, exec_environment, value};
use crate::graph::model::{ExitType, KillMode, NotifyAccess, Run, Signal};

/// Supported values of `Type=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Simple,
    Dbus,
    Exec,
    Idle,
    Forking,
    Oneshot,
    Notify,
    NotifyReload,
}

/// Settings collected so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) description: String,
    pub(super) default_dependencies: Option<bool>,
    pub(super) stop_when_unneeded: bool,
    pub(super) service_type: Option<Type>,
    pub(super) remain: bool,
    pub(super) permissions_start_only: bool,
    pub(super) pid_file: Option<String>,
    pub(super) notify_access: Option<NotifyAccess>,
    pub(super) reload_signal: Option<Signal>,
    pub(super) restarts: Restarts,
    pub(super) timeout_start: Option<Span>,
    pub(super) timeout_stop: Option<Span>,
    pub(super) timeout_abort: Option<Span>,
    pub(super) timer: TimerDraft,
    pub(super) socket: SocketDraft,
    pub(super) path: PathDraft,
    pub(super) descriptors: ServiceDescriptors,
    /// Settings that need no further processing.
    pub(super) run: Run,
}

/// Problems of the unit as a whole. Each problem has the option that causes it, if there is one.
#[derive(Debug, Default)]
pub(super) struct UnitProblems {
    pub(super) refused: Vec<(Option<OptionName>, String)>,
    pub(super) remarked: Vec<(OptionName, &'static str)>,
}

/// An option by section and name.
pub(super) type OptionName = (&'static str, &'static str);

const EXIT_TYPES: [(&str, ExitType); 2] = [("main", ExitType::Main), ("cgroup", ExitType::Cgroup)];

const TYPES: [(&str, Type); 8] = [
    ("simple", Type::Simple),
    ("exec", Type::Exec),
    ("dbus", Type::Dbus),
    ("idle", Type::Idle),
    ("oneshot", Type::Oneshot),
    ("notify", Type::Notify),
    ("notify-reload", Type::NotifyReload),
    ("forking", Type::Forking),
];

const ACCESS: [(&str, NotifyAccess); 4] = [
    ("none", NotifyAccess::None),
    ("main", NotifyAccess::Main),
    ("exec", NotifyAccess::Exec),
    ("all", NotifyAccess::All),
];

const KILL_MODES: [(&str, KillMode); 3] = [
    ("control-group", KillMode::ControlGroup),
    ("mixed", KillMode::Mixed),
    ("process", KillMode::Process),
];

impl Draft {
    /// Creates a draft with systemd's defaults.
    pub(super) fn new() -> Self {
        let mut draft = Self::default();
        draft.run.exec_environment.ignore_sigpipe = true;
        draft
    }

    /// Applies an honoured option that declares no relation.
    pub(super) fn take(
        &mut self,
        section: &str,
        name: &str,
        value: &str,
        unit: &ValueContext<'_>,
    ) -> Result<(), String> {
        let limits = match section {
            "Unit" => &mut self.restarts.in_unit,
            _ => &mut self.restarts.in_service,
        };
        match name {
            "StartLimitBurst" => limits.burst = Some(number(value, 0, u32::MAX)?),
            "StartLimitInterval" | "StartLimitIntervalSec" => limits.interval = Some(span(value)?),
            _ if section == "Unit" => self.take_of_unit(name, value, unit)?,
            _ if section == "Socket" => self.socket.take(name, value, unit)?,
            _ if section == "Path" => self.path.take(name, value, unit)?,
            _ if section == "Timer" => self.timer.take(name, value, unit)?,
            "ExecPaths" | "ExecSearchPath" => self.take_of_service(name, value, unit)?,
            _ if name.starts_with("Exec") => self.take_command(name, value, unit)?,
            _ if name.starts_with("Restart") => self.take_restart(name, value)?,
            _ if name.starts_with("Timeout") => self.take_timeout(name, value)?,
            _ => self.take_of_service(name, value, unit)?,
        }
        Ok(())
    }

    fn take_of_unit(
        &mut self,
        name: &str,
        value: &str,
        unit: &ValueContext<'_>,
    ) -> Result<(), String> {
        match name {
            // The description is for people; an invalid specifier stays as it is.
            "Description" => {
                self.description = unit.expand(value).unwrap_or_else(|_| value.to_owned());
                Ok(())
            }
            "StopWhenUnneeded" => flag(value).map(|flag| self.stop_when_unneeded = flag),
            "DefaultDependencies" => flag(value).map(|flag| self.default_dependencies = Some(flag)),
            _ => condition::add_condition(&mut self.run.conditions, name, value, unit),
        }
    }

    fn take_command(
        &mut self,
        name: &str,
        value: &str,
        unit: &ValueContext<'_>,
    ) -> Result<(), String> {
        let run = &mut self.run;
        let list = match name {
            "ExecCondition" => &mut run.exec_condition,
            "ExecStartPre" => &mut run.start_pre,
            "ExecStart" => &mut run.start,
            "ExecStartPost" => &mut run.start_post,
            "ExecReload" => &mut run.reload,
            "ExecStop" => &mut run.stop,
            _ => &mut run.stop_post,
        };
        value::add_command(list, value, unit)
    }

    fn take_restart(&mut self, name: &str, value: &str) -> Result<(), String> {
        let restarts = &mut self.restarts;
        match name {
            "Restart" => restarts.when = Some(choice(value, &WHEN)?),
            "RestartSec" => restarts.delay = Some(delay(value, "write Restart=no instead")?),
            "RestartSteps" => restarts.steps = Some(number(value, 0, u32::MAX)?),
            "RestartMaxDelaySec" => {
                let longest = delay(value, "write the maximum delay between two starts")?;
                restarts.max_delay = Some(longest);
            }
            "RestartPreventExitStatus" => value::add_statuses(&mut restarts.prevent, value)?,
            _ => value::add_statuses(&mut restarts.force, value)?,
        }
        Ok(())
    }

    fn take_timeout(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "TimeoutAbortSec" {
            self.timeout_abort = read_resettable(value, timeout)?;
            return Ok(());
        }
        let timeout = Some(timeout(value)?);
        match name {
            "TimeoutStartSec" => self.timeout_start = timeout,
            "TimeoutStopSec" => self.timeout_stop = timeout,
            _ => (self.timeout_start, self.timeout_stop) = (timeout, timeout),
        }
        Ok(())
    }

    fn take_of_service(
        &mut self,
        name: &str,
        value: &str,
        unit: &ValueContext<'_>,
    ) -> Result<(), String> {
        let run = &mut self.run;
        match name {
            "FileDescriptorStoreMax" => self.descriptors.store_max = number(value, 0, u32::MAX)?,
            "NonBlocking" => self.descriptors.non_blocking = flag(value)?,
            "Type" => self.service_type = Some(choice(value, &TYPES)?),
            "RemainAfterExit" => self.remain = flag(value)?,
            "PermissionsStartOnly" => self.permissions_start_only = flag(value)?,
            "PIDFile" => self.pid_file = pid_file(value, unit)?,
            "NotifyAccess" => self.notify_access = Some(choice(value, &ACCESS)?),
            "ReloadSignal" => self.reload_signal = Some(signal(value)?),
            "SuccessExitStatus" => value::add_statuses(&mut run.success, value)?,
            "ExitType" => run.exit_type = choice(value, &EXIT_TYPES)?,
            "KillMode" => run.kill.mode = kill_mode(value)?,
            "KillSignal" => run.kill.signal = signal(value)?,
            "FinalKillSignal" => run.kill.final_signal = signal(value)?,
            "SendSIGKILL" => run.kill.send_sigkill = flag(value)?,
            "SendSIGHUP" => run.kill.send_sighup = flag(value)?,
            "WatchdogSec" => run.watchdog = timeout(value)?.0,
            "WatchdogSignal" => run.watchdog_action.signal = signal(value)?,
            "RuntimeMaxSec" => run.runtime_max = longest(value)?,
            "CPUQuota" | "CPUWeight" | "IOWeight" | "MemoryHigh" | "MemoryMax" | "TasksMax" => {
                exec_environment::apply_resource(&mut run.resources, name, value)?;
            }
            _ if CGROUP_FILTERS.contains(&name) => {
                cgroup_filters::apply(&mut run.cgroup_filters, name, value, unit)?;
            }
            _ => exec_environment::apply(&mut run.exec_environment, name, value, unit)?,
        }
        Ok(())
    }

    /// Returns the problems of the unit as a whole.
    pub(super) fn problems(&self, unit_type: UnitType) -> UnitProblems {
        match unit_type {
            UnitType::Service => self.service_problems(),
            UnitType::Socket => self.socket.problems(),
            UnitType::Path => self.path.problems(),
            UnitType::Timer => self.timer.problems(),
            _ => UnitProblems::default(),
        }
    }
}

fn kill_mode(value: &str) -> Result<KillMode, String> {
    read_resettable(value, |value| choice(value, &KILL_MODES)).map(Option::unwrap_or_default)
}

/// Reads the path of a PID file. A relative path is relative to the runtime directory (`%t`).
fn pid_file(value: &str, unit: &ValueContext<'_>) -> Result<Option<String>, String> {
    let path = unit.expand(value)?;
    if path.is_empty() {
        return Ok(None);
    }
    if path.starts_with('/') {
        return absolute(&path).map(Some);
    }
    let directory = unit.expand("%t")?;
    absolute(&format!("{directory}/{path}")).map(Some)
}
