//! What a whole `.service` file makes: its kind, its defaults, and what does not go together.

use std::time::Duration;

use fleet_unitfile::UnitType;

use super::draft::{Blamed, Draft, Flaws, Type};
use super::value::Span;
use crate::graph::{
    InitUnit, Name, NotifyAccess, OnCleanExit, Readiness, Restart, RestartWhen, Run, ServiceType,
    Signal, Target, Timeouts, WatchdogAction,
};

/// The variables by which processes are found.
const FOUND_BY: [&str; 2] = ["INVOCATION_ID", "SYSTEMD_EXEC_PID"];

/// systemd's limit for a start or a stop.
const USUAL: Option<Duration> = Some(Duration::from_secs(90));

impl Draft {
    /// The type that systemd gives to the service.
    fn kind(&self) -> Type {
        let usual = if self.run.start.is_empty() { Type::Oneshot } else { Type::Simple };
        self.service_type.unwrap_or(usual)
    }

    pub(super) fn flaws_of_service(&self) -> Flaws {
        let refused = [self.commands(), self.forking(), self.oneshot()];
        let remarked = [self.idle(), self.pid_file(), self.runtime(), self.growth(), self.signal()];
        Flaws {
            refused: refused.into_iter().flatten().collect(),
            remarked: remarked.into_iter().flatten().chain(self.identity()).collect(),
        }
    }

    fn commands(&self) -> Option<(Option<Blamed>, String)> {
        let starts = self.run.start.len();
        if starts == 0 && (self.run.stop.is_empty() || !self.remain) {
            let problem = "there is nothing to run: add an ExecStart= to its [Service] section";
            return Some((None, problem.to_owned()));
        }
        let one = self.kind() != Type::Oneshot && starts != 1;
        let problem = "must stand there exactly once: set Type=oneshot for another number";
        one.then(|| match starts {
            0 => (Some(("Service", "Type")), "needs an ExecStart=: add one".to_owned()),
            _ => (Some(("Service", "ExecStart")), problem.to_owned()),
        })
    }

    fn forking(&self) -> Option<(Option<Blamed>, String)> {
        let lost = self.kind() == Type::Forking && self.pid_file.is_none();
        lost.then(|| {
            let problem = "cannot be forking without a PIDFile=, as the main process is never \
                           guessed: add one, or let the program stay in the foreground and write \
                           exec";
            (Some(("Service", "Type")), problem.to_owned())
        })
    }

    fn oneshot(&self) -> Option<(Option<Blamed>, String)> {
        let again = [Some(RestartWhen::Always), Some(RestartWhen::OnSuccess)];
        let endless = self.kind() == Type::Oneshot && again.contains(&self.restarts.when);
        endless.then(|| {
            let problem = "cannot be used with Type=oneshot, which would be started again after a \
                           success: write on-failure, or another Type=";
            (Some(("Service", "Restart")), problem.to_owned())
        })
    }

    fn idle(&self) -> Option<(Blamed, &'static str)> {
        let idle = self.service_type == Some(Type::Idle);
        idle.then_some((("Service", "Type"), "is taken for simple: nothing is waited for"))
    }

    fn pid_file(&self) -> Option<(Blamed, &'static str)> {
        let lost = self.pid_file.is_some() && self.kind() != Type::Forking;
        lost.then_some((("Service", "PIDFile"), "means nothing without Type=forking"))
    }

    fn runtime(&self) -> Option<(Blamed, &'static str)> {
        let lost = self.run.runtime_max.is_some() && self.kind() == Type::Oneshot;
        lost.then_some((("Service", "RuntimeMaxSec"), "means nothing with Type=oneshot"))
    }

    fn growth(&self) -> Option<(Blamed, &'static str)> {
        let blamed =
            if self.restarts.steps.is_some() { "RestartSteps" } else { "RestartMaxDelaySec" };
        let text =
            "means nothing without RestartSteps= and a RestartMaxDelaySec= beyond RestartSec=";
        self.restarts.is_growth_lost().then_some((("Service", blamed), text))
    }

    fn signal(&self) -> Option<(Blamed, &'static str)> {
        let lost = self.reload_signal.is_some() && self.kind() != Type::NotifyReload;
        lost.then_some((("Service", "ReloadSignal"), "means nothing without Type=notify-reload"))
    }

    /// Variables by which processes are found are told to each, whatever else is said of them.
    fn identity(&self) -> impl Iterator<Item = (Blamed, &'static str)> {
        let it = &self.run.exec_environment;
        let finds = |name: &str| FOUND_BY.contains(&name.split('=').next().unwrap_or_default());
        let lost = [
            ("Environment", it.environment.iter().any(|(name, _)| finds(name))),
            ("PassEnvironment", it.pass_environment.iter().any(|name| finds(name))),
            ("UnsetEnvironment", it.unset_environment.iter().any(|name| finds(name))),
        ];
        let text = "means nothing for INVOCATION_ID and SYSTEMD_EXEC_PID, by which processes are \
                    found";
        let lost = lost.into_iter().filter(|(_, is_lost)| *is_lost);
        lost.map(move |(name, _)| (("Service", name), text))
    }

    /// The unit, once nothing is wrong with it.
    pub(super) fn unit(self, name: Name, unit_type: UnitType) -> InitUnit {
        let own = Target::from(&name);
        let (kind, timeouts, restart, run) = match unit_type {
            UnitType::Service => {
                (self.graph_kind(), self.timeouts(), self.restarts.policy(), self.finished_run())
            }
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
            (Type::Notify | Type::NotifyReload, _) => ServiceType::ForegroundNotified,
            (Type::Oneshot, _) => ServiceType::Oneshot { remain: self.remain },
            _ => ServiceType::ForegroundSupervised(Readiness::Executed),
        }
    }

    fn timeouts(&self) -> Timeouts {
        let usual_start = if self.kind() == Type::Oneshot { None } else { USUAL };
        let start = self.time_out_start.map_or(usual_start, |span| span.0);
        // systemd has one time-out for both.
        let reload = start;
        Timeouts { start, stop: self.time_out_stop.map_or(USUAL, |span| span.0), reload }
    }

    fn finished_run(&self) -> Run {
        let stop = self.timeouts().stop;
        let kind = self.kind();
        let reloads = kind == Type::NotifyReload;
        let oneshot = kind == Type::Oneshot;
        Run {
            reload_signal: reloads.then(|| self.reload_signal.unwrap_or(Signal::HUP)),
            on_clean_exit: if self.remain { OnCleanExit::Remain } else { OnCleanExit::Complete },
            watchdog_action: WatchdogAction {
                timeout: self.time_out_abort.map_or(stop, |Span(span)| span),
                ..self.run.watchdog_action
            },
            notify_access: self.access(kind),
            runtime_max: self.run.runtime_max.filter(|_| !oneshot),
            ..self.run.clone()
        }
    }

    /// Who may say that it is ready: somebody has to where that, or its watchdog, is waited for.
    fn access(&self, kind: Type) -> NotifyAccess {
        let notified = matches!(kind, Type::Notify | Type::NotifyReload);
        let heard = notified || self.run.watchdog.is_some();
        match self.notify_access {
            Some(NotifyAccess::None) | None if heard => NotifyAccess::Main,
            Some(access) => access,
            None => NotifyAccess::None,
        }
    }
}
