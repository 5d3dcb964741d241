//! Converts init scripts with an LSB header.
//!
//! The header declares the targets and dependencies of the unit, and the unit calls the script.

use std::collections::BTreeMap;

use super::draft::{Dependency, Draft, Report, as_stanza, call_script, name_of};
use super::openrc::script_path;
use crate::graph::model::{Command, EdgeKind, InitUnit, Name, Restart, Target};

/// First and last line of a header.
const BEGIN: &str = "### BEGIN INIT INFO";
const END: &str = "### END INIT INFO";

/// Fields of a header: name, line and value.
type Header = Vec<(String, (usize, String))>;

/// Returns the units of the scripts with their dependencies. A virtual unit is added for each
/// system facility (such as `$network`) that a script uses but no script provides.
pub(super) fn drafts(files: &[(usize, &str)], report: &mut Report<'_>) -> Vec<Draft> {
    let mut drafts: Vec<Draft> =
        files.iter().filter_map(|(file, text)| draft(*file, text, report)).collect();
    let facilities = facilities(&drafts, report);
    drafts.extend(facilities);
    drafts
}

fn draft(file: usize, text: &str, report: &mut Report<'_>) -> Option<Draft> {
    if !text.starts_with("#!") {
        let why = "the first line names no shell, so it is not an init script";
        report.left_out(file, 1, why, "convert it with the matching --from");
        return None;
    }
    let name = name_of(file, report)?;
    let header = header(text);
    if header.is_empty() {
        let message = "there is no LSB header, so the dependencies of the script are unknown";
        report.loss((file, 1), message, "write depends-ms and waits-for into the stanza");
    }
    if !header.is_empty() && !has_end(text) {
        let message = "the LSB header has no end mark: it is read up to a line without `#`";
        report.loss((file, 1), message, format!("write `{END}` into the line below it"));
    }
    let mut unit = script_call(name, file, report);
    let mut reader = Reader { file, report, provides: Vec::new(), dependencies: Vec::new() };
    for (key, (line, value)) in &header {
        reader.field(key, *line, value, &mut unit);
    }
    reader.stops(&header);
    let (provides, dependencies) = (reader.provides, reader.dependencies);
    if !provides.is_empty() {
        unit.provides = provides;
    }
    let message = "it is unknown whether the script can reload or report its state";
    report.remark(
        (file, 1),
        message,
        "if the script can reload, write an exec-reload into the stanza",
    );
    let unit = as_stanza(&unit, file, report, |_| None)?;
    Some(Draft { dependencies, ..Draft::new(file, report, unit) })
}

/// Returns a unit that calls the script.
fn script_call(name: Name, file: usize, report: &mut Report<'_>) -> InitUnit {
    let provides = [Target::from(&name)];
    let script = script_path(report.path(file));
    let mut unit = InitUnit::new_virtual(name, provides);
    unit.restart = Restart::never();
    let call = |what: &str| vec![Command::new(script.clone(), [what.to_owned()])];
    call_script(&mut unit, file, report, call);
    unit
}

/// Known fields of a header.
const KNOWN: [&str; 12] = [
    "default-start",
    "default-stop",
    "description",
    "provides",
    "required-start",
    "required-stop",
    "short-description",
    "should-start",
    "should-stop",
    "x-interactive",
    "x-start-before",
    "x-stop-after",
];

/// Returns the fields between the begin mark and the end mark of the header.
///
/// Only a description may continue on further lines. Such a line begins with a tab or two blanks
/// and is not a known field. Any other line that is not a field is returned as a field without a
/// name, so that it can be reported.
fn header(text: &str) -> Header {
    let inside = text.lines().enumerate().skip_while(|(_, line)| line.trim_end() != BEGIN).skip(1);
    // Without an end mark, commands of the script are not taken for fields.
    let ends = has_end(text);
    let inside = inside
        .take_while(|(_, line)| if ends { line.trim_end() != END } else { line.starts_with('#') });
    let mut fields: Header = Vec::new();
    for (at, line) in inside {
        let Some(line) = line.strip_prefix('#') else {
            if !line.trim().is_empty() {
                fields.push((String::new(), (at + 1, line.trim().to_owned())));
            }
            continue;
        };
        let indented = line.starts_with('\t') || line.starts_with("  ");
        let field = line.split_once(':').map(|(key, value)| (key.trim().to_lowercase(), value));
        let is_known = field.as_ref().is_some_and(|(key, _)| KNOWN.contains(&key.as_str()));
        match (field, fields.last_mut()) {
            (_, Some((key, (_, value)))) if indented && !is_known && key == "description" => {
                value.push(' ');
                value.push_str(line.trim());
            }
            (Some((key, value)), _) => fields.push((key, (at + 1, value.trim().to_owned()))),
            (None, _) if line.trim().is_empty() => {}
            (None, _) => fields.push((String::new(), (at + 1, line.trim().to_owned()))),
        }
    }
    fields
}

/// Returns whether the header has its end mark.
fn has_end(text: &str) -> bool {
    text.lines().skip_while(|line| line.trim_end() != BEGIN).any(|line| line.trim_end() == END)
}

struct Reader<'r, 'a> {
    file: usize,
    report: &'r mut Report<'a>,
    provides: Vec<Target>,
    dependencies: Vec<Dependency>,
}

impl Reader<'_, '_> {
    fn field(&mut self, key: &str, line: usize, value: &str, unit: &mut InitUnit) {
        match key {
            "provides" => {
                let targets = self.targets(line, value);
                for target in targets {
                    if !self.provides.contains(&target) {
                        self.provides.push(target);
                    }
                }
            }
            "required-start" => self.add_dependencies(line, value, EdgeKind::DependsMs, false),
            "should-start" => self.add_dependencies(line, value, EdgeKind::WaitsFor, false),
            "x-start-before" => self.add_dependencies(line, value, EdgeKind::After, true),
            "short-description" => value.clone_into(&mut unit.description),
            "description" if unit.description.is_empty() => {
                value.clone_into(&mut unit.description);
            }
            "default-start" if !value.is_empty() => {
                let message = format!("the runlevels {value} of Default-Start are not converted");
                let help = format!(
                    "to start `{0}` with the goal, write `{0}` into waits-for of the goal's unit",
                    unit.name
                );
                self.report.loss((self.file, line), message, help);
            }
            "x-interactive" if value == "true" => {
                let message = "the script asks for input, which is not supported";
                self.report.loss((self.file, line), message, "make the script non-interactive");
            }
            "default-start" | "default-stop" | "description" | "required-stop" | "should-stop"
            | "x-interactive" | "x-stop-after" => {}
            "" => {
                let message = format!(
                    "`{value}` belongs to no field: only Description may have several lines"
                );
                let help = "begin the line with `#` and the name of a field";
                self.report.loss((self.file, line), message, help);
            }
            _ => {
                let message = format!("unknown header field `{key}`: it is not converted");
                let help = "if the field matters, write its meaning into the stanza";
                self.report.loss((self.file, line), message, help);
            }
        }
    }

    fn add_dependencies(&mut self, line: usize, value: &str, kind: EdgeKind, before: bool) {
        for target in self.targets(line, value) {
            self.dependencies.push(Dependency { kind, target, before, line });
        }
    }

    fn targets(&mut self, line: usize, value: &str) -> Vec<Target> {
        let mut targets = Vec::new();
        for word in value.split_whitespace() {
            let written = word.strip_prefix('$').map(|it| format!("{FACILITY}{it}"));
            if word == "$all" {
                let message = "$all is not converted: the names of all other units are unknown";
                let help = "name the units in `after:` of the stanza";
                self.report.loss((self.file, line), message, help);
                continue;
            }
            match Target::new(written.as_deref().unwrap_or(word)) {
                Ok(target) => targets.push(target),
                Err(problem) => {
                    let message = format!("`{word}` is not a valid target name: {problem}");
                    let help = "give the target a name of letters, digits and `_-.@:`";
                    self.report.loss((self.file, line), message, help);
                }
            }
        }
        targets
    }

    /// Reports dependencies that order the stops of two units but not their starts. Units always
    /// stop in the reverse order of their starts, so such an order is lost.
    fn stops(&mut self, header: &Header) {
        let stops = header.iter().filter(|(key, _)| {
            ["required-stop", "should-stop", "x-stop-after"].contains(&key.as_str())
        });
        for (key, (line, value)) in stops {
            let after = key == "x-stop-after";
            let mut targets = self.targets(*line, value);
            let known = |it: &Target| {
                self.dependencies
                    .iter()
                    .any(|dependency| dependency.target == *it && dependency.before == after)
            };
            targets.retain(|it| !known(it));
            for target in targets {
                let message = format!("the stop order relative to `{target}` is not converted");
                let help =
                    "if the order matters, write `after:` into the stanza of one of the two units";
                self.report.loss((self.file, *line), message, help);
            }
        }
    }
}

/// Prefix of the targets of system facilities.
const FACILITY: &str = "facility-";

/// Returns a virtual unit for each facility that a unit depends on but no script provides.
fn facilities(drafts: &[Draft], report: &mut Report<'_>) -> Vec<Draft> {
    let mut named: BTreeMap<&Target, (usize, usize)> = BTreeMap::new();
    for draft in drafts {
        let dependencies =
            draft.dependencies.iter().filter(|it| it.target.as_str().starts_with(FACILITY));
        for dependency in dependencies {
            named.entry(&dependency.target).or_insert((draft.file, dependency.line));
        }
    }
    let provided = |it: &Target| drafts.iter().any(|draft| draft.unit.provides.contains(it));
    named.retain(|target, _| !provided(target));
    let unit = |(target, position): (&Target, (usize, usize))| {
        let facility = target.as_str().strip_prefix(FACILITY).unwrap_or_default();
        let message =
            format!("no file provides ${facility}: the new unit `{target}` is always active");
        let help = format!("make `{target}` wait for the units that provide ${facility}");
        report.loss(position, message, help);
        let name = Name::new(target.as_str()).ok()?;
        let mut unit = InitUnit::new_virtual(name, [target.clone()]);
        unit.description = format!("Facility ${facility} of this machine");
        let from = format!("for ${facility}");
        Some(Draft { file: position.0, from, unit, dependencies: Vec::new() })
    };
    named.into_iter().filter_map(unit).collect()
}
