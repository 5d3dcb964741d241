//! Evaluates a `.service` file as a whole: type, defaults and conflicting options.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet_unitfile::{UnitName, UnitType};

use super::draft::{Draft, OptionName, Type, UnitProblems};
use super::privileges;
use super::value::Span;
use crate::graph::model::{
    DelayGrowth, ExitType, InitUnit, Name, NotifyAccess, OnCleanExit, Readiness, Restart,
    RestartLimit, RestartWhen, Run, ServiceType, Signal, StatusSet, Target, Timeouts,
    WatchdogAction,
};

/// Settings of a service for the file descriptors that it gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceDescriptors {
    /// Sockets that the service gets besides those that start it (`Sockets=`).
    pub sockets: BTreeSet<UnitName>,
    /// Maximum number of descriptors that the service may store (`FileDescriptorStoreMax=`).
    pub store_max: u32,
    /// Whether sockets are passed in non-blocking mode (`NonBlocking=`).
    pub non_blocking: bool,
}

/// Variables that the supervisor uses to find the processes of a unit.
const TRACKING_VARIABLES: [&str; 2] = ["INVOCATION_ID", "SYSTEMD_EXEC_PID"];

/// systemd's default timeout of a start or stop.
const DEFAULT_TIMEOUT: Option<Duration> = Some(Duration::from_secs(90));

impl Draft {
    /// Returns the service type, with systemd's default.
    fn kind(&self) -> Type {
        let usual = if self.run.start.is_empty() { Type::Oneshot } else { Type::Simple };
        self.service_type.unwrap_or(usual)
    }

    pub(super) fn service_problems(&self) -> UnitProblems {
        let refused = [self.commands(), self.oneshot(), self.exit_type()];
        let remarked = [
            self.approximate_type(),
            self.pid_file(),
            self.runtime(),
            self.growth(),
            self.signal(),
        ];
        UnitProblems {
            refused: refused.into_iter().flatten().collect(),
            remarked: remarked
                .into_iter()
                .flatten()
                .chain(self.tracking_variable_remarks())
                .collect(),
        }
    }

    fn commands(&self) -> Option<(Option<OptionName>, String)> {
        let starts = self.run.start.len();
        if starts == 0 && (self.run.stop.is_empty() || !self.remain) {
            let problem = "there is nothing to run: add an ExecStart= to its [Service] section";
            return Some((None, problem.to_owned()));
        }
        let one = self.kind() != Type::Oneshot && starts != 1;
        let problem = "must be given exactly once: set Type=oneshot for several";
        one.then(|| match starts {
            0 => (Some(("Service", "Type")), "needs an ExecStart=: add one".to_owned()),
            _ => (Some(("Service", "ExecStart")), problem.to_owned()),
        })
    }

    fn exit_type(&self) -> Option<(Option<OptionName>, String)> {
        let lost = self.run.exit_type == ExitType::Cgroup && self.kind() == Type::Oneshot;
        lost.then(|| {
            let problem = "cannot be cgroup with Type=oneshot: write main, or another Type=";
            (Some(("Service", "ExitType")), problem.to_owned())
        })
    }

    fn oneshot(&self) -> Option<(Option<OptionName>, String)> {
        let again = [Some(RestartWhen::Always), Some(RestartWhen::OnSuccess)];
        let endless = self.kind() == Type::Oneshot && again.contains(&self.restarts.when);
        endless.then(|| {
            let problem = "cannot be used with Type=oneshot, which would restart after a success: \
                           write on-failure, or another Type=";
            (Some(("Service", "Restart")), problem.to_owned())
        })
    }

    fn approximate_type(&self) -> Option<(OptionName, &'static str)> {
        let text = match self.service_type? {
            Type::Idle => "is treated as simple: the start is not delayed",
            Type::Dbus => "is treated as exec: names on the message bus are not observed",
            _ => return None,
        };
        Some((("Service", "Type"), text))
    }

    fn pid_file(&self) -> Option<(OptionName, &'static str)> {
        let lost = self.pid_file.is_some() && self.kind() != Type::Forking;
        lost.then_some((("Service", "PIDFile"), "has no effect without Type=forking"))
    }

    fn runtime(&self) -> Option<(OptionName, &'static str)> {
        let lost = self.run.runtime_max.is_some() && self.kind() == Type::Oneshot;
        lost.then_some((("Service", "RuntimeMaxSec"), "has no effect with Type=oneshot"))
    }

    fn growth(&self) -> Option<(OptionName, &'static str)> {
        let option =
            if self.restarts.steps.is_some() { "RestartSteps" } else { "RestartMaxDelaySec" };
        let text =
            "has no effect without RestartSteps= and a RestartMaxDelaySec= beyond RestartSec=";
        self.restarts.has_unused_growth().then_some((("Service", option), text))
    }

    fn signal(&self) -> Option<(OptionName, &'static str)> {
        let lost = self.reload_signal.is_some() && self.kind() != Type::NotifyReload;
        lost.then_some((("Service", "ReloadSignal"), "has no effect without Type=notify-reload"))
    }

    /// Returns a warning for each option that tries to change `INVOCATION_ID` or
    /// `SYSTEMD_EXEC_PID`. These variables always keep the supervisor's values.
    fn tracking_variable_remarks(&self) -> impl Iterator<Item = (OptionName, &'static str)> {
        let it = &self.run.exec_environment;
        let finds =
            |name: &str| TRACKING_VARIABLES.contains(&name.split('=').next().unwrap_or_default());
        let lost = [
            ("Environment", it.environment.iter().any(|(name, _)| finds(name))),
            ("PassEnvironment", it.pass_environment.iter().any(|name| finds(name))),
            ("UnsetEnvironment", it.unset_environment.iter().any(|name| finds(name))),
        ];
        let text = "has no effect on INVOCATION_ID and SYSTEMD_EXEC_PID, which identify the \
                    processes of the unit";
        let lost = lost.into_iter().filter(|(_, is_lost)| *is_lost);
        lost.map(move |(name, _)| (("Service", name), text))
    }

    /// Builds the unit of a file without problems.
    pub(super) fn unit(self, name: Name, unit_type: UnitType) -> InitUnit {
        let own = Target::from(&name);
        let (kind, timeouts, restart, run) = match unit_type {
            UnitType::Service => (
                self.graph_kind(),
                self.timeouts(),
                self.restarts.policy(),
                self.finished_run(&name),
            ),
            _ => (ServiceType::Virtual, Timeouts::default(), Restart::never(), Run::default()),
        };
        InitUnit {
            name,
            kind,
            provides: vec![own],
            edges: Vec::new(),
            description: self.description,
            timeouts,
            restart,
            run,
        }
    }

    fn graph_kind(&self) -> ServiceType {
        match (self.kind(), &self.pid_file) {
            (Type::Forking, Some(path)) => ServiceType::BackgroundPidfile { path: path.clone() },
            (Type::Forking, None) => ServiceType::BackgroundForking,
            (Type::Notify | Type::NotifyReload, _) => ServiceType::ForegroundNotified,
            (Type::Oneshot, _) => ServiceType::Oneshot { remain: self.remain },
            _ => ServiceType::ForegroundSupervised(Readiness::Executed),
        }
    }

    fn timeouts(&self) -> Timeouts {
        let usual_start = if self.kind() == Type::Oneshot { None } else { DEFAULT_TIMEOUT };
        let start = self.timeout_start.map_or(usual_start, |span| span.0);
        // systemd uses the start timeout for reloads too.
        let reload = start;
        Timeouts { start, stop: self.timeout_stop.map_or(DEFAULT_TIMEOUT, |span| span.0), reload }
    }

    fn finished_run(&self, name: &Name) -> Run {
        let stop = self.timeouts().stop;
        let kind = self.kind();
        let reloads = kind == Type::NotifyReload;
        let oneshot = kind == Type::Oneshot;
        let mut run = Run {
            reload_signal: reloads.then(|| self.reload_signal.unwrap_or(Signal::HUP)),
            on_clean_exit: match self.remain {
                _ if oneshot => OnCleanExit::default(),
                true => OnCleanExit::Remain,
                false => OnCleanExit::Complete,
            },
            watchdog_action: WatchdogAction {
                timeout: self.timeout_abort.map_or(stop, |Span(span)| span),
                ..self.run.watchdog_action
            },
            notify_access: self.access(kind),
            runtime_max: self.run.runtime_max.filter(|_| !oneshot),
            ..self.run.clone()
        };
        privileges::imply_dynamic_user(&mut run.exec_environment, name.as_str());
        if self.permissions_start_only {
            let lists = [&mut run.start_pre, &mut run.start_post, &mut run.reload, &mut run.stop];
            let others = lists.into_iter().chain([&mut run.stop_post]).flatten();
            others.for_each(|command| (command.privileged, command.unconfined) = (true, true));
        }
        run
    }

    /// Returns the processes from which notifications are accepted. For a unit with readiness or
    /// watchdog notifications, or stored descriptors, this includes at least the main process.
    fn access(&self, kind: Type) -> NotifyAccess {
        let notified = matches!(kind, Type::Notify | Type::NotifyReload);
        let heard = notified || self.run.watchdog.is_some() || self.descriptors.store_max > 0;
        match self.notify_access {
            Some(NotifyAccess::None) | None if heard => NotifyAccess::Main,
            Some(access) => access,
            None => NotifyAccess::None,
        }
    }
}

/// Values of `Restart=`.
pub(super) const WHEN: [(&str, RestartWhen); 7] = [
    ("no", RestartWhen::Never),
    ("on-success", RestartWhen::OnSuccess),
    ("on-failure", RestartWhen::OnFailure),
    ("on-abnormal", RestartWhen::OnAbnormal),
    ("on-abort", RestartWhen::OnAbort),
    ("on-watchdog", RestartWhen::OnWatchdog),
    ("always", RestartWhen::Always),
];

/// Restart settings collected so far.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    pub(super) when: Option<RestartWhen>,
    pub(super) delay: Option<Duration>,
    pub(super) steps: Option<u32>,
    pub(super) max_delay: Option<Duration>,
    pub(super) prevent: StatusSet,
    pub(super) force: StatusSet,
    pub(super) in_unit: Limits,
    pub(super) in_service: Limits,
}

/// Start rate limit. The options are valid in two sections.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Limits {
    pub(super) interval: Option<Span>,
    pub(super) burst: Option<u32>,
}

impl Restarts {
    /// Returns the policy, with systemd's defaults for missing settings.
    pub(super) fn policy(&self) -> Restart {
        let delay = self.delay.unwrap_or(Duration::from_millis(100));
        let (growth, max_delay) = match (self.steps, self.max_delay) {
            (Some(steps), Some(longest)) if steps > 0 && longest > delay => {
                (DelayGrowth::Steps(steps), longest)
            }
            _ => (DelayGrowth::Factor(1), delay),
        };
        Restart {
            when: self.when.unwrap_or(RestartWhen::Never),
            prevent: self.prevent.clone(),
            force: self.force.clone(),
            delay,
            max_delay,
            growth,
            limit: self.limit(),
            reset: None,
        }
    }

    /// Returns the start rate limit. Options in `[Unit]` override those in `[Service]`, where old
    /// versions of systemd expected them.
    fn limit(&self) -> RestartLimit {
        let interval = self.in_unit.interval.or(self.in_service.interval);
        let burst = self.in_unit.burst.or(self.in_service.burst).unwrap_or(5);
        let interval = interval.unwrap_or(Span(Some(Duration::from_secs(10))));
        match interval.0.unwrap_or(Duration::MAX) {
            interval if burst == 0 || interval.is_zero() => RestartLimit::None,
            interval => RestartLimit::Starts { burst, interval },
        }
    }

    /// Returns whether an option for growing delays has no effect.
    pub(super) fn has_unused_growth(&self) -> bool {
        let grows = matches!(self.policy().growth, DelayGrowth::Steps(_));
        !grows && (self.steps.is_some_and(|steps| steps > 0) || self.max_delay.is_some())
    }
}
