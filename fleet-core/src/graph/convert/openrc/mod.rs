//! Service scripts of OpenRC.
//!
//! A script that only sets variables is what these say. One whose functions start or stop it can
//! only be run by OpenRC, so its unit calls it. In both cases, what `depend` says becomes edges.

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

/// What the first line of such a script names.
const INTERPRETERS: [&str; 2] = ["openrc-run", "runscript"];

/// The units, with what they say of others.
pub(super) fn drafts(files: &[(usize, &str)], report: &mut Report<'_>) -> Vec<Draft> {
    files.iter().filter_map(|(file, text)| draft(*file, text, report)).collect()
}

fn draft(file: usize, text: &str, report: &mut Report<'_>) -> Option<Draft> {
    let first = text.lines().next().unwrap_or_default();
    if !first.starts_with("#!") || !INTERPRETERS.iter().any(|it| first.contains(it)) {
        let why = "the first line names no openrc-run, so it is no service script of OpenRC";
        report.left_out(file, 1, why, "convert it with the --from that it is for");
        return None;
    }
    let name = name_of(file, report)?;
    let mut script = Script::read(text, name.as_str());
    let mut unit = service::unit(name, &mut script, file, report);
    let (provides, wishes) = depend::read(&mut script, file, report);
    for target in provides {
        if !unit.provides.contains(&target) {
            unit.provides.push(target);
        }
    }
    let place = |lost: &OmittedKey| line_of(lost, &script).map(|line| (line, 1));
    let unit = as_stanza(&unit, file, report, place)?;
    Some(Draft { wishes, ..Draft::new(file, report, unit) })
}

/// The line of the variable that something of a stanza comes from.
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
