//! Converts service scripts of OpenRC.
//!
//! A script that only sets variables is converted to an equivalent unit. A script with functions
//! that start or stop the service needs OpenRC, so the converted unit calls the script. In both
//! cases the dependencies that the function `depend` declares become edges.

mod exit;
mod lexer;
mod script;
mod service;

use super::draft::{Dependency, Draft, as_stanza, name_of};
use super::note::Report;
use crate::graph::format::OmittedKey;
use crate::graph::model::{EdgeKind, Target};
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
