//! Pure: no I/O, no clock. Turns a unit file into a [`ServiceSpec`], or says which line cannot be
//! obeyed and what to write instead.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use fleet_core::graph::NotifyAccess;
use fleet_unitfile::{
    OptionView, UnitFile, UnitName, UnitType, expand_specifiers, parse_bool, parse_timespan,
};

use super::command::parse_commands;
use super::context::apply_context;
use super::options::{Standing, confines, standing};
use super::signals::Sig;
use super::spec::{
    AbortSpec, Commands, Context, DEFAULT_TIMEOUT, KillMode, KillSpec, Kind, RestartPolicy,
    RestartSpec, ServiceSpec, StartLimitSpec, StatusSet,
};

/// Who the supervisor is, which decides what it can do for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// Whether it may become another user.
    pub(crate) root: bool,
    /// Its own user, by name and by number.
    pub(crate) users: Vec<String>,
    /// Its own group, by name and by number.
    pub(crate) groups: Vec<String>,
}

/// A line that cannot be obeyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadSetting {
    /// The line, from one; zero when it is about the whole file.
    pub(crate) line: usize,
    /// What is wrong, and what would do instead.
    pub(crate) problem: String,
}

/// A unit that can be run, and the options in it that mean nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compiled {
    pub(crate) spec: ServiceSpec,
    /// Each as `Section.Name`, once.
    pub(crate) inert: Vec<String>,
}

/// Turns a unit file into what the supervisor runs.
pub(crate) fn compile(
    unit: &UnitName,
    file: &UnitFile,
    host: &Host,
) -> Result<Compiled, BadSetting> {
    let whole = |problem: String| BadSetting { line: 0, problem };
    if unit.unit_type() != UnitType::Service {
        return Err(whole(format!(
            "the native service manager runs .service units only, not .{} ones: \
             run it under systemd",
            unit.unit_type()
        )));
    }
    if unit.is_template() {
        return Err(whole("a template is not run itself: name an instance of it".to_owned()));
    }
    let mut draft = Draft::default();
    for option in file.options() {
        let located = |problem: String| BadSetting {
            line: file.location(option.span().start).line,
            problem: format!("{}= {problem}", option.name()),
        };
        draft.take(unit, option, host).map_err(located)?;
    }
    draft.finish().map_err(whole)
}

/// The settings as they are collected, option by option.
#[derive(Debug, Default)]
struct Draft {
    kind: Option<Kind>,
    remain_after_exit: bool,
    commands: Commands,
    restart: Option<RestartPolicy>,
    restart_delay: Option<Duration>,
    prevent: StatusSet,
    force: StatusSet,
    success: StatusSet,
    limit_interval: Option<Option<Duration>>,
    limit_burst: Option<u32>,
    timeout_start: Option<Option<Duration>>,
    timeout_stop: Option<Option<Duration>>,
    kill: KillSpec,
    context: Context,
    pid_file: Option<PathBuf>,
    notify_access: Option<NotifyAccess>,
    reloads_by_signal: bool,
    reload_signal: Option<Sig>,
    watchdog: Option<Option<Duration>>,
    abort: AbortSpec,
    abort_time_out: Option<Option<Duration>>,
    runtime_max: Option<Option<Duration>>,
    inert: Vec<String>,
}

impl Draft {
    fn take(&mut self, unit: &UnitName, option: OptionView<'_>, host: &Host) -> Result<(), String> {
        match standing(option.section(), option.name()) {
            Standing::Honoured => {
                let value = expand_specifiers(option.value(), unit).map_err(shown)?;
                self.honour(option.name(), &value, host)
            }
            Standing::InertIfOff if parse_bool(option.value()) != Some(false) => {
                Err(format!("is not possible: {}", confines()))
            }
            Standing::Aside => Ok(()),
            Standing::Inert | Standing::InertIfOff => {
                let full = format!("{}.{}", option.section(), option.name());
                if !self.inert.contains(&full) {
                    self.inert.push(full);
                }
                Ok(())
            }
            Standing::Refused(why) => Err(format!("is not possible: {why}")),
        }
    }

    fn honour(&mut self, name: &str, value: &str, host: &Host) -> Result<(), String> {
        match name {
            "ExecStart" => parse_commands(&mut self.commands.start, value, host)?,
            "ExecStartPre" => parse_commands(&mut self.commands.start_pre, value, host)?,
            "ExecStartPost" => parse_commands(&mut self.commands.start_post, value, host)?,
            "ExecReload" => parse_commands(&mut self.commands.reload, value, host)?,
            "ExecStop" => parse_commands(&mut self.commands.stop, value, host)?,
            "ExecStopPost" => parse_commands(&mut self.commands.stop_post, value, host)?,
            "Type" => {
                self.kind = parse_type(value)?;
                self.reloads_by_signal = value == "notify-reload";
            }
            "RemainAfterExit" => self.remain_after_exit = flag(value, false)?,
            "Restart" => self.restart = parse_restart(value)?,
            "RestartSec" => self.restart_delay = parse_delay(value)?,
            "RestartPreventExitStatus" => add_statuses(&mut self.prevent, value)?,
            "RestartForceExitStatus" => add_statuses(&mut self.force, value)?,
            "SuccessExitStatus" => add_statuses(&mut self.success, value)?,
            "StartLimitInterval" | "StartLimitIntervalSec" => {
                self.limit_interval = parse_limit(value, |span| span)?;
            }
            "StartLimitBurst" => self.limit_burst = parse_number(value)?,
            "TimeoutStartSec" => self.timeout_start = parse_limit(value, no_zero)?,
            "TimeoutStopSec" => self.timeout_stop = parse_limit(value, no_zero)?,
            "TimeoutSec" => {
                self.timeout_start = parse_limit(value, no_zero)?;
                self.timeout_stop = self.timeout_start;
            }
            "KillMode" => self.kill.mode = parse_kill_mode(value)?,
            "KillSignal" => self.kill.signal = parse_signal(value)?,
            "SendSIGKILL" => self.kill.send_sigkill = flag(value, true)?,
            "FinalKillSignal" => self.kill.final_signal = parse_final_signal(value)?,
            "SendSIGHUP" => self.kill.send_sighup = flag(value, false)?,
            "StartLimitAction" => must_be(value, "none")?,
            "NotifyAccess" => self.notify_access = parse_access(value)?,
            "ReloadSignal" => self.reload_signal = Some(parse_signal(value)?),
            "WatchdogSec" => self.watchdog = parse_limit(value, no_zero)?,
            "WatchdogSignal" => self.abort.signal = parse_signal(value)?,
            "TimeoutAbortSec" => self.abort_time_out = parse_limit(value, no_zero)?,
            "RuntimeMaxSec" => self.runtime_max = parse_limit(value, no_zero)?,
            "PIDFile" => self.pid_file = parse_pid_file(value),
            "BusName" => must_be(value, "")?,
            _ => apply_context(&mut self.context, name, value, host)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<Compiled, String> {
        let no_start = self.commands.start.is_empty();
        let kind = self.kind.unwrap_or(if no_start { Kind::Oneshot } else { Kind::Simple });
        let policy = self.restart.unwrap_or(RestartPolicy::No);
        self.check(kind, policy)?;
        let default_start = (kind != Kind::Oneshot).then_some(DEFAULT_TIMEOUT);
        let timeout_stop = self.timeout_stop.unwrap_or(Some(DEFAULT_TIMEOUT));
        let watchdog = self.watchdog.flatten();
        let listens = kind == Kind::Notify || watchdog.is_some();
        let access = self.notify_access.filter(|access| !listens || *access != NotifyAccess::None);
        let access =
            access.unwrap_or(if listens { NotifyAccess::Main } else { NotifyAccess::None });
        let reload_signal = self.reloads_by_signal.then(|| self.reload_signal.unwrap_or(Sig::HUP));
        let spec = ServiceSpec {
            kind,
            remain_after_exit: self.remain_after_exit,
            commands: self.commands,
            restart: RestartSpec {
                policy,
                delay: self.restart_delay.unwrap_or(Duration::from_millis(100)),
                prevent: self.prevent,
                force: self.force,
            },
            success: self.success,
            start_limit: StartLimitSpec {
                interval: self.limit_interval.unwrap_or(Some(Duration::from_secs(10))),
                burst: self.limit_burst.unwrap_or(5),
            },
            timeout_start: self.timeout_start.unwrap_or(default_start),
            timeout_stop,
            kill: self.kill,
            context: self.context,
            pid_file: self.pid_file,
            notify_access: access,
            reload_signal,
            timeout_reload: self.timeout_start.unwrap_or(Some(DEFAULT_TIMEOUT)),
            watchdog,
            abort: AbortSpec {
                time_out: self.abort_time_out.unwrap_or(timeout_stop),
                ..self.abort
            },
            runtime_max: self.runtime_max.flatten(),
        };
        Ok(Compiled { spec, inert: self.inert })
    }

    /// What only the whole file can get wrong.
    fn check(&self, kind: Kind, policy: RestartPolicy) -> Result<(), String> {
        let starts = self.commands.start.len();
        if starts == 0 && (self.commands.stop.is_empty() || !self.remain_after_exit) {
            return Err(
                "there is nothing to run: add an ExecStart= to its [Service] section".into()
            );
        }
        if kind == Kind::Forking && self.pid_file.is_none() {
            return Err("Type=forking needs a PIDFile=, for no main process is guessed: \
                        add one, or let the program stay in the foreground"
                .into());
        }
        if kind != Kind::Oneshot && starts != 1 {
            return Err(
                "it must have exactly one ExecStart=: set Type=oneshot for another number".into()
            );
        }
        if kind == Kind::Oneshot
            && matches!(policy, RestartPolicy::Always | RestartPolicy::OnSuccess)
        {
            return Err("Type=oneshot cannot be started again after a success: \
                        set Restart=on-failure, or another Type="
                .into());
        }
        let (context, commands) = (&self.context, &self.commands);
        let other_user = context.user.is_some() || context.group.is_some();
        if other_user && commands.all().any(|command| command.privileged) {
            return Err("User= and Group= cannot be combined with the prefixes \"+\" and \"!\" \
                        here: take one of them out"
                .into());
        }
        Ok(())
    }
}

/// The words of an error of another crate.
pub(super) fn shown(error: impl Display) -> String {
    format!("cannot be read: {error}")
}

fn parse_type(value: &str) -> Result<Option<Kind>, String> {
    match value {
        "" => Ok(None),
        "simple" | "exec" => Ok(Some(Kind::Simple)),
        "oneshot" => Ok(Some(Kind::Oneshot)),
        "notify" | "notify-reload" => Ok(Some(Kind::Notify)),
        "forking" => Ok(Some(Kind::Forking)),
        other => Err(format!(
            "cannot be {other:?} with the native service manager: \
             write simple, exec, notify, notify-reload, forking or oneshot, \
             or run the unit under systemd"
        )),
    }
}

fn parse_restart(value: &str) -> Result<Option<RestartPolicy>, String> {
    Ok(Some(match value {
        "" => return Ok(None),
        "no" => RestartPolicy::No,
        "on-success" => RestartPolicy::OnSuccess,
        "on-failure" => RestartPolicy::OnFailure,
        "on-abnormal" => RestartPolicy::OnAbnormal,
        "on-abort" => RestartPolicy::OnAbort,
        "on-watchdog" => RestartPolicy::OnWatchdog,
        "always" => RestartPolicy::Always,
        other => {
            return Err(format!(
                "is {other:?}: write no, on-success, on-failure, on-abnormal, on-abort, \
                 on-watchdog or always"
            ));
        }
    }))
}

fn parse_kill_mode(value: &str) -> Result<KillMode, String> {
    match value {
        "" | "control-group" => Ok(KillMode::ControlGroup),
        "mixed" => Ok(KillMode::Mixed),
        "process" => Ok(KillMode::Process),
        "none" => Ok(KillMode::None),
        other => Err(format!("is {other:?}: write control-group, mixed, process or none")),
    }
}

fn parse_signal(value: &str) -> Result<Sig, String> {
    if value.is_empty() {
        return Ok(Sig::TERM);
    }
    Sig::parse(value).ok_or_else(|| {
        format!("names no signal: {value:?}; write a name such as SIGTERM, no real-time signal")
    })
}

fn parse_final_signal(value: &str) -> Result<Sig, String> {
    if value.is_empty() { Ok(Sig::KILL) } else { parse_signal(value) }
}

fn parse_access(value: &str) -> Result<Option<NotifyAccess>, String> {
    Ok(Some(match value {
        "" => return Ok(None),
        "none" => NotifyAccess::None,
        "main" => NotifyAccess::Main,
        "exec" => NotifyAccess::Exec,
        "all" => NotifyAccess::All,
        other => return Err(format!("is {other:?}: write none, main, exec or all")),
    }))
}

fn parse_pid_file(value: &str) -> Option<PathBuf> {
    (!value.is_empty()).then(|| PathBuf::from("/run").join(value))
}

/// A yes or no; empty is the default.
pub(super) fn flag(value: &str, default: bool) -> Result<bool, String> {
    if value.is_empty() {
        return Ok(default);
    }
    parse_bool(value).ok_or_else(|| format!("is {value:?}: write yes or no"))
}

fn parse_number(value: &str) -> Result<Option<u32>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|_| format!("is {value:?}: write a whole number"))
}

/// A limit in time: nothing written, no limit, or so long.
fn parse_limit(
    value: &str,
    meaning: fn(Option<Duration>) -> Option<Duration>,
) -> Result<Option<Option<Duration>>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    let span = parse_timespan(value).map_err(shown)?;
    Ok(Some(meaning(span.as_duration())))
}

/// Of the time limits of commands, zero means that there is none.
fn no_zero(span: Option<Duration>) -> Option<Duration> {
    span.filter(|span| !span.is_zero())
}

fn parse_delay(value: &str) -> Result<Option<Duration>, String> {
    match parse_limit(value, |span| span)? {
        Some(None) => Err("cannot be infinity: write Restart=no instead".to_owned()),
        other => Ok(other.flatten()),
    }
}

/// Adds exit codes and names of signals; an empty value takes all away.
fn add_statuses(set: &mut StatusSet, value: &str) -> Result<(), String> {
    if value.is_empty() {
        *set = StatusSet::default();
    }
    for word in value.split_whitespace() {
        // A bare number is an exit code here, so signals are known by their names alone.
        if let Ok(code) = word.parse::<u8>() {
            set.codes.insert(code.into());
        } else if let Some(signal) = Sig::parse(word).filter(|_| word.starts_with("SIG")) {
            set.signals.insert(signal.number());
        } else {
            return Err(format!(
                "has {word:?}: write exit codes from 0 to 255 and names of signals such as SIGKILL"
            ));
        }
    }
    Ok(())
}

fn must_be(value: &str, only: &str) -> Result<(), String> {
    if value.is_empty() || value == only {
        return Ok(());
    }
    Err("is not possible with the native service manager: take the option out".to_owned())
}
