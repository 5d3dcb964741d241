//! Converts service scripts of OpenRC.
//!
//! A script that only sets variables is converted to an equivalent unit. A script with functions
//! that start or stop the service needs OpenRC, so the converted unit calls the script. In both
//! cases the dependencies that the function `depend` declares become edges. Stop settings and
//! restart settings of a daemon are converted too.

mod lexer;
mod script;
mod service;

use std::time::Duration;

use super::draft::{Dependency, Draft, Report, as_stanza, name_of};
use super::openrc::service::{ServiceConverter, UnknownReason, unknown_value};
use crate::graph::format::OmittedKey;
use crate::graph::model::{
    DelayGrowth, EdgeKind, Restart, RestartLimit, RestartWhen, Signal, Target,
};
use lexer::plain;
use script::{Command, Script, Value};

pub(super) use service::script_path;

/// Interpreters in the first line of a service script.
const INTERPRETERS: [&str; 2] = ["openrc-run", "runscript"];

/// Returns the units with their dependencies.
pub(super) fn drafts(files: &[(usize, &str)], report: &mut Report<'_>) -> Vec<Draft> {
    files.iter().filter_map(|(file, text)| draft(*file, text, report)).collect()
}

fn draft(file: usize, text: &str, report: &mut Report<'_>) -> Option<Draft> {
    let first = text.lines().next().unwrap_or_default();
    if !first.starts_with("#!") || !INTERPRETERS.iter().any(|it| first.contains(it)) {
        let why = "the first line does not name openrc-run, so it is not a service script of \
                   OpenRC";
        report.left_out(file, 1, why, "convert it with the matching --from");
        return None;
    }
    let name = name_of(file, report)?;
    let mut script = Script::read(text, name.as_str());
    let mut unit = service::unit(name, &mut script, file, report);
    let (provides, dependencies) = read_depend(&mut script, file, report);
    for target in provides {
        if !unit.provides.contains(&target) {
            unit.provides.push(target);
        }
    }
    let position = |lost: &OmittedKey| line_of(lost, &script).map(|line| (line, 1));
    let unit = as_stanza(&unit, file, report, position)?;
    Some(Draft { dependencies, ..Draft::new(file, report, unit) })
}

/// Returns the line of the variable that an omitted setting comes from.
fn line_of(lost: &OmittedKey, script: &Script) -> Option<usize> {
    let name = match lost.key {
        "assert" if lost.value.starts_with("path-is-directory") => "required_dirs",
        "assert" => "required_files",
        "description" | "directory" | "pidfile" | "umask" => lost.key,
        "env" => lost.value.trim_start_matches('"').split('=').next().unwrap_or_default(),
        "error-output" => "error_log",
        "group" | "user" => "command_user",
        "nice" => "SSD_NICELEVEL",
        "oom-score-adjust" => "SSD_OOM_SCORE_ADJ",
        "output" => "output_log",
        "restart-delay" | "restart-max-delay" => "respawn_delay",
        "restart-limit" if script.value("respawn_max").is_some() => "respawn_max",
        "restart-limit" => "respawn_period",
        "stop-timeout" => "retry",
        _ => "command",
    };
    script.value(name).or_else(|| script.value("command")).map(|(line, _)| line)
}

/// Remedy for parts that only a shell can evaluate.
const MANUAL_REMEDY: &str = "write the result on this machine into the stanza, as depends-ms, \
                             waits-for, after or provides";

/// Returns the additional targets and the dependencies of the service.
fn read_depend(
    script: &mut Script,
    file: usize,
    report: &mut Report<'_>,
) -> (Vec<Target>, Vec<Dependency>) {
    let mut reader =
        Reader { file, report, provides: Vec::new(), dependencies: Vec::new(), depth: 0 };
    let lost = script.unknown_from;
    if let Some(line) = lost {
        let message = "only a shell can evaluate the rest of `depend`: it is not converted";
        let help = "write the other dependencies of the service into the stanza, as depends-ms, \
                    waits-for, after and provides";
        reader.report.loss((file, line), message, help);
    }
    for command in std::mem::take(&mut script.depend) {
        if lost.is_none_or(|line| command.line < line) {
            reader.command(script, &command);
        }
    }
    (reader.provides, reader.dependencies)
}

struct Reader<'r, 'a> {
    file: usize,
    report: &'r mut Report<'a>,
    provides: Vec<Target>,
    dependencies: Vec<Dependency>,
    /// Number of open conditions and loops.
    depth: usize,
}

impl Reader<'_, '_> {
    fn command(&mut self, script: &mut Script, command: &Command) {
        let position = (self.file, command.line);
        let first = command.words.first().and_then(|word| plain(word)).unwrap_or_default();
        match first.as_str() {
            "if" | "case" | "for" | "while" | "until" => self.depth += 1,
            "fi" | "esac" | "done" => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let (kind, before) = match first.as_str() {
            "need" => (Some(EdgeKind::DependsMs), false),
            "want" => (Some(EdgeKind::WaitsFor), false),
            "use" | "after" => (Some(EdgeKind::After), false),
            "before" => (Some(EdgeKind::After), true),
            "provide" => (None, false),
            "keyword" => {
                let message =
                    "`keyword` is not converted: it tells OpenRC where and how to run the service";
                let help =
                    "to restrict where the service runs, write a `condition:` into the stanza";
                return self.report.loss(position, message, help);
            }
            "config" | ":" | "done" | "esac" | "fi" | "return" | "true" => return,
            _ => {
                let message = "`depend` has a command that only a shell can run";
                return self.report.loss(position, message, MANUAL_REMEDY);
            }
        };
        if !command.simple || self.depth > 0 {
            let message = format!("only a shell can evaluate whether `{first}` applies");
            return self.report.loss(position, message, MANUAL_REMEDY);
        }
        for word in &command.words[1..] {
            match script.evaluate(word, command.line) {
                Value::Text(text) if !text.contains('$') => {
                    for name in text.split_whitespace() {
                        self.name(&first, kind, before, name, command.line);
                    }
                }
                _ => {
                    let message = format!("only a shell can evaluate the arguments of `{first}`");
                    self.report.loss(position, message, MANUAL_REMEDY);
                }
            }
        }
    }

    fn name(&mut self, word: &str, kind: Option<EdgeKind>, before: bool, name: &str, line: usize) {
        let position = (self.file, line);
        let target = match Target::new(name) {
            Ok(target) if !name.starts_with(['-', '!']) => target,
            _ => {
                let message = format!("`{word} {name}` does not name a single service");
                return self.report.loss(position, message, "name the services in the stanza");
            }
        };
        match kind {
            Some(kind) => self.dependencies.push(Dependency { kind, target, before, line }),
            None => self.provides.push(target),
        }
    }
}

/// Default of `respawn_max`.
const RESPAWN_MAX: u32 = 10;

impl ServiceConverter<'_, '_> {
    /// Sets the stop signal, the stop timeout and the restart policy.
    fn exit_settings(&mut self, supervised: bool) -> Result<(), UnknownReason> {
        if let Some((line, text)) = self.text("stopsig")? {
            let signal = Signal::parse(&text).ok_or_else(|| unknown_value(line, "stopsig"))?;
            self.unit.run.kill.signal = signal;
        }
        if let Some((line, text)) = self.text("retry")? {
            let (signal, seconds) = retry(&text).ok_or_else(|| unknown_value(line, "retry"))?;
            // A plain number applies to `stopsig`, which supervise-daemon then ignores.
            let kill = &mut self.unit.run.kill;
            kill.signal = signal.unwrap_or(if supervised { Signal::TERM } else { kill.signal });
            self.unit.timeouts.stop = Some(Duration::from_secs(seconds));
        }
        if !supervised {
            return Ok(());
        }
        // By default supervise-daemon does not delay restarts, and its limits assume that.
        let delay = self.number("respawn_delay")?.map(Duration::from_secs).unwrap_or_default();
        self.unit.restart = Restart {
            when: RestartWhen::Always,
            delay,
            max_delay: delay,
            growth: DelayGrowth::Factor(1),
            limit: self.limit()?,
            ..Restart::default()
        };
        Ok(())
    }

    /// Returns the unit's restart limit for the settings of supervise-daemon.
    ///
    /// - supervise-daemon limits restarts but a unit limits starts, so the unit is allowed one
    ///   more. A `respawn_max` of 0 means no limit.
    /// - Without `respawn_period`, supervise-daemon never forgets a failure. The unit counts only
    ///   failures in a row instead.
    /// - Without `respawn_max`, the limit is 10, the default of supervise-daemon. Its old versions
    ///   have no default.
    fn limit(&mut self) -> Result<RestartLimit, UnknownReason> {
        let (most, period) = (self.number("respawn_max")?, self.number("respawn_period")?);
        let within = period.filter(|period| *period > 0).map(Duration::from_secs);
        let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        let starts = |most: u32, interval| {
            let burst = most.saturating_add(1);
            RestartLimit::Starts { burst, interval }
        };
        let (name, message, help, limit) = match (most, within) {
            (Some(0), _) => return Ok(RestartLimit::None),
            (Some(most), Some(interval)) => return Ok(starts(most, interval)),
            (Some(most), None) => (
                "respawn_max",
                "without `respawn_period` every failure counts forever; here only failures in a \
                 row count",
                "write a restart-reset into the stanza to forget them after a time",
                RestartLimit::Failures(most),
            ),
            (None, Some(interval)) => (
                "respawn_period",
                "without `respawn_max` OpenRC restarts the service at most 10 times in that time",
                "write another restart-limit into the stanza, if needed",
                starts(RESPAWN_MAX, interval),
            ),
            (None, None) => (
                "",
                "the restart limit of supervise-daemon is unknown: here it is 10 times in a row",
                "write restart-delay and restart-limit into the stanza",
                RestartLimit::Failures(RESPAWN_MAX),
            ),
        };
        let line = self.script.value(name).map_or(1, |(line, _)| line);
        self.report.remark((self.file, line), message, help);
        Ok(limit)
    }
}

/// Parses a stop schedule such as `TERM/30/KILL/5` into its first signal and the seconds to wait
/// after it. The final `KILL` is not returned, because every stop here ends with it. A plain number
/// gives only the seconds. Returns `None` for any other text.
fn retry(text: &str) -> Option<(Option<Signal>, u64)> {
    if let Ok(seconds) = text.parse() {
        return Some((None, seconds));
    }
    let parts: Vec<&str> = text.split('/').collect();
    let (first, seconds) = match parts.as_slice() {
        [first, seconds] => (first, seconds),
        [first, seconds, last] | [first, seconds, last, _] => {
            (Signal::parse(last)? == Signal::KILL).then_some((first, seconds))?
        }
        _ => return None,
    };
    Some((Some(Signal::parse(first)?), seconds.parse().ok()?))
}
