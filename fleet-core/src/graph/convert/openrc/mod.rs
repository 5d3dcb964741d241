//! Converts service scripts of OpenRC.
//!
//! A script that only sets variables is converted to an equivalent unit. A script with functions
//! that start or stop the service needs OpenRC, so the converted unit calls the script. In both
//! cases the dependencies that the function `depend` declares become edges.

mod depend;
mod exit;
mod function;
mod lexer;
mod required;
mod script;
mod service;
mod tokens;
mod values;

use super::draft::{Draft, as_stanza, name_of};
use super::note::Report;
use crate::graph::text::OmittedKey;
use script::Script;
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
    let (provides, dependencies) = depend::read(&mut script, file, report);
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
