//! Converts systemd unit files with the compiler; refusals become losses.

use std::sync::Arc;

use fleet_unitfile::values::split_words;
use fleet_unitfile::{SpecifierContext, UnitFile, UnitName};

use super::ConvertOptions;
use super::draft::{Draft, Report, as_stanza};
use super::systemd_relations::{drop_relations, report_lost_upkeep};
use crate::graph::format::OmittedKey;
use crate::graph::model::{Command, ExitType, InitUnit};
use crate::graph::systemd::{
    AcceptedOptions, CompileOptions, CompiledUnit, Confinement, ExternalUnits, LinkedUnits,
    OptionPosition, Relation, RelationKind, Support, UnitRefusal, compile, link, support,
};

/// Remedy for settings without an equivalent of their own.
pub(super) const MANUAL_REMEDY: &str = "if the unit needs it, add an equivalent to the stanza";

/// Specifiers with values that differ between machines.
const MACHINE_SPECIFIERS: [char; 4] = ['H', 'l', 'm', 'v'];

/// Options that define a unit's commands, and their user and directory. If such an option cannot be
/// honoured, the unit is left out, because without the option it would be a different unit. Other
/// options can be dropped, because systemd itself ignores most of their invalid values.
const ESSENTIAL: [&str; 12] = [
    "ExecCondition",
    "ExecStart",
    "ExecStartPost",
    "ExecStartPre",
    "ExecStop",
    "ExecStopPost",
    "Group",
    "PIDFile",
    "SupplementaryGroups",
    "Type",
    "User",
    "WorkingDirectory",
];

/// A unit with the index of its file.
pub(super) type FileUnit = (usize, CompiledUnit);

/// Returns the units with their edges.
pub(super) fn drafts(
    files: &[(usize, &str)],
    options: &ConvertOptions,
    report: &mut Report<'_>,
) -> Vec<Draft> {
    let mut units: Vec<FileUnit> = Vec::new();
    for (file, text) in files {
        units.extend(
            compile_file(*file, text, &options.specifiers, &units, report)
                .map(|unit| (*file, unit)),
        );
    }
    drop_relations(&mut units, options.enabled, report);
    loop {
        let compiled: Vec<CompiledUnit> = units.iter().map(|(_, unit)| unit.clone()).collect();
        let linked = link(&compiled, &ExternalUnits::default());
        if linked.refused.is_empty() {
            return finish(&units, linked, report);
        }
        for (file, unit) in &units {
            for refusal in linked.refused.get(&unit.unit.name).into_iter().flatten() {
                report_refusal(*file, refusal, report);
            }
        }
        units.retain(|(_, unit)| !linked.refused.contains_key(&unit.unit.name));
        drop_relations(&mut units, options.enabled, report);
    }
}

fn finish(units: &[FileUnit], linked: LinkedUnits, report: &mut Report<'_>) -> Vec<Draft> {
    for (file, unit) in units {
        let remarks = linked.remarks.get(&unit.unit.name).into_iter().flatten();
        for remark in unit.remarks.iter().chain(remarks) {
            let message = format!("{} {}", remark.position.option, remark.text);
            report.remark(at(*file, &remark.position), message, MANUAL_REMEDY);
        }
        report_lost_links(*file, unit, &linked.units, report);
        report_lost_upkeep(*file, unit, report);
    }
    let mut drafts = Vec::new();
    for unit in linked.units {
        let found = units.iter().find(|(_, it)| it.unit.name == unit.name);
        drafts.extend(found.map(|(file, _)| Draft::new(*file, report, Arc::unwrap_or_clone(unit))));
    }
    drafts
}

/// Reports each link of a file that cannot become an alias, because another unit already has that
/// name.
fn report_lost_links(
    file: usize,
    unit: &CompiledUnit,
    linked: &[Arc<InitUnit>],
    report: &mut Report<'_>,
) {
    for link in report.aliases(file) {
        let has_it = |it: &&Arc<InitUnit>| it.provides.iter().any(|own| own.as_str() == link);
        let Some(owner) = linked.iter().find(has_it) else { continue };
        if owner.name != unit.unit.name {
            let message =
                format!("the link {link} is dropped: the unit {} has that name", owner.name);
            let help = "submit either the link or the unit";
            report.loss((file, 1), message, help);
        }
    }
}

/// Converts one file.
fn compile_file(
    file: usize,
    text: &str,
    specifiers: &SpecifierContext,
    others: &[FileUnit],
    report: &mut Report<'_>,
) -> Option<CompiledUnit> {
    let path = report.path(file);
    let base = path.rsplit('/').next().unwrap_or_default();
    let name = match base.parse::<UnitName>() {
        Ok(name) => name,
        Err(error) => {
            report.left_out(file, 1, error, "give the file a valid systemd unit name");
            return None;
        }
    };
    let (parsed, diagnostics) = UnitFile::parse_collecting(text.as_bytes());
    if let Some(it) = diagnostics.iter().map(fleet_unitfile::Finding::from).next() {
        report.left_out(file, it.location().line, it.message(), it.help());
        return None;
    }
    if let Some((other, _)) = others.iter().find(|(_, it)| it.unit.name.as_str() == base) {
        let why = format!("{} is the same unit", report.path(*other));
        report.left_out(file, 1, why, "submit only the file that counts");
        return None;
    }
    let mut compiled = accepted(file, &name, &parsed, specifiers, report)?;
    if let Some((why, help)) = inexpressible(&compiled) {
        report.left_out(file, 1, why, help);
        return None;
    }
    report_lost_options(file, &compiled, report);
    for alias in report.aliases(file) {
        match alias.parse() {
            Ok(alias) => drop(compiled.aliases.insert(alias)),
            Err(error) => {
                report.loss((file, 1), format!("a link is dropped: {error}"), MANUAL_REMEDY);
            }
        }
    }
    for (starter, kind) in report.starters(file).collect::<Vec<_>>() {
        let directory = if kind == RelationKind::WantedBy { "wants" } else { "requires" };
        match starter.parse() {
            Ok(unit) => {
                let option = format!("{starter}.{directory}");
                let position = OptionPosition { line: 1, column: 1, option };
                // Usually the [Install] section has created the link.
                let is_known = |it: &Relation| (it.kind, &it.unit) == (kind, &unit);
                if !compiled.relations.iter().any(is_known) {
                    compiled.relations.push(Relation { kind, unit, position });
                }
            }
            Err(error) => {
                let message = format!("a link in {starter}.{directory} is dropped: {error}");
                report.loss((file, 1), message, MANUAL_REMEDY);
            }
        }
    }
    let positions = |lost: &OmittedKey| {
        let option: String = lost.key.split('-').map(capital).collect();
        let position = compiled.position_of("Service", &option);
        position.or_else(|| compiled.position_of("Unit", &option)).map(|it| (it.line, it.column))
    };
    let unit = as_stanza(&compiled.unit, file, report, positions)?;
    compiled.unit = Arc::new(unit);
    let known = |letter: char| specifiers.expand(&format!("%{letter}"), &name).is_ok();
    let of_machine: Vec<char> = MACHINE_SPECIFIERS.into_iter().filter(|it| known(*it)).collect();
    remark_specifiers(file, &parsed, &compiled, &of_machine, report);
    Some(compiled)
}

/// Returns why units of this format cannot express a unit, and a remedy.
fn inexpressible(compiled: &CompiledUnit) -> Option<(&'static str, &'static str)> {
    if compiled.timer.is_some() {
        let help = "let another program start the timer's unit";
        return Some(("units of this format have no timers", help));
    }
    compiled.activator.as_ref()?;
    let help = "let the service open its sockets itself, or watch the path itself";
    Some(("units of this format have no sockets and paths", help))
}

/// Reports the options that have no counterpart in this format.
fn report_lost_options(file: usize, compiled: &CompiledUnit, report: &mut Report<'_>) {
    const NO_DESCRIPTORS: [&str; 2] = [
        "units of this format get no file descriptors",
        "let the service open its files and sockets itself",
    ];
    const MAIN_EXIT: [&str; 2] = [
        "units of this format end with their main process",
        "keep the main process running until the others have exited",
    ];
    for (option, [why, help]) in [
        ("FileDescriptorStoreMax", NO_DESCRIPTORS),
        ("NonBlocking", NO_DESCRIPTORS),
        ("Sockets", NO_DESCRIPTORS),
        ("ExitType", MAIN_EXIT),
    ] {
        let is_default = option == "ExitType" && compiled.unit.run.exit_type == ExitType::Main;
        if let Some(position) = compiled.position_of("Service", option).filter(|_| !is_default) {
            let message = format!("Service.{option} is dropped: {why}");
            report.loss((file, position.line), message, help);
        }
    }
}

/// Adds a remark for each value that was expanded with a specifier of this machine.
fn remark_specifiers(
    file: usize,
    parsed: &UnitFile,
    compiled: &CompiledUnit,
    letters: &[char],
    report: &mut Report<'_>,
) {
    for option in parsed.options() {
        let (section, name) = (option.section(), option.name());
        let is_read = compiled.position_of(section, name).is_some();
        for letter in letters.iter().filter(|_| is_read) {
            if has_specifier(option.value(), *letter) {
                let position = parsed.location(option.span().start);
                let message =
                    format!("{section}.{name} has the value of %{letter} on this machine");
                let help = "convert the file on the machine that will run the unit";
                report.remark((file, position.line, position.column), message, help);
            }
        }
    }
}

/// Returns whether the value contains the specifier; `%%` is a percent sign.
fn has_specifier(value: &str, letter: char) -> bool {
    let mut chars = value.chars();
    while let Some(char) = chars.next() {
        if char == '%' && chars.next() == Some(letter) {
            return true;
        }
    }
    false
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// Compiles a unit without its unsupported options and invalid values, and reports them as losses.
/// If one of them is [essential](ESSENTIAL), or if the unit as a whole is refused, reports the unit
/// and returns `None`. Any result would then be a guess.
fn accepted(
    file: usize,
    name: &UnitName,
    parsed: &UnitFile,
    specifiers: &SpecifierContext,
    report: &mut Report<'_>,
) -> Option<CompiledUnit> {
    let mut options = CompileOptions {
        specifiers: specifiers.clone(),
        accept: AcceptedOptions::default(),
        confinement: Confinement::Stanza,
    };
    let mut dropped: Vec<UnitRefusal> = Vec::new();
    loop {
        let refusals = match compile(name, parsed, &options) {
            Ok(mut compiled) => {
                // Accepted options are reported as losses already.
                compiled.remarks.retain(|it| !options.accept.contains(it.position.name(), None));
                convert_runtime_directory(file, &mut compiled, parsed, &mut dropped, report);
                dropped.iter().for_each(|refusal| report_loss(file, refusal, report));
                return Some(compiled);
            }
            Err(refusals) => refusals.all,
        };
        // A refusal of an accepted option comes from the combination of several options.
        let stays = |it: &UnitRefusal| {
            let is_accepted =
                |position: &OptionPosition| options.accept.contains(position.name(), None);
            !is_droppable(it) || it.position.as_ref().is_none_or(is_accepted)
        };
        if refusals.is_empty() || refusals.iter().any(stays) {
            dropped.retain(|refusal| !refusals.contains(refusal));
            dropped.iter().for_each(|refusal| report_loss(file, refusal, report));
            for refusal in &refusals {
                let report_it = if stays(refusal) { report_refusal } else { report_loss };
                report_it(file, refusal, report);
            }
            return None;
        }
        let positions = refusals.iter().filter_map(|refusal| refusal.position.as_ref());
        positions.for_each(|position| options.accept.insert(position.name()));
        dropped.extend(refusals);
    }
}

/// Replaces `RuntimeDirectory=` by commands, if they have the same effect. The option is then a
/// remark instead of a loss.
fn convert_runtime_directory(
    file: usize,
    compiled: &mut CompiledUnit,
    parsed: &UnitFile,
    dropped: &mut Vec<UnitRefusal>,
    report: &mut Report<'_>,
) {
    let is_directory = |refusal: &UnitRefusal| {
        let position = refusal.position.as_ref();
        position.is_some_and(|it| OPTIONS.contains(&it.name()))
    };
    let first = dropped.iter().find(|it| is_directory(it)).and_then(|it| it.position.clone());
    let Some(position) = first else { return };
    if convert(compiled, parsed) {
        let message = format!("{} becomes commands of the stanza", position.option);
        let help = "check its exec-start-pre and exec-stop-post";
        report.remark(at(file, &position), message, help);
        dropped.retain(|it| !is_directory(it));
    }
}

/// Returns whether the unit keeps its meaning without the option.
fn is_droppable(refusal: &UnitRefusal) -> bool {
    let Some(position) = &refusal.position else { return false };
    let (section, name) = position.option.split_once('.').unwrap_or_default();
    match support(section, name) {
        Some(Support::Honoured | Support::Informational) => !ESSENTIAL.contains(&name),
        _ => true,
    }
}

/// Reports that the unit is printed without an option.
fn report_loss(file: usize, refusal: &UnitRefusal, report: &mut Report<'_>) {
    let Some(position) = &refusal.position else { return };
    let (what, help) = split_problem(&refusal.problem);
    report.loss(at(file, position), format!("{} {what}", position.option), help);
}

fn report_refusal(file: usize, refusal: &UnitRefusal, report: &mut Report<'_>) {
    let (what, help) = split_problem(&refusal.problem);
    match &refusal.position {
        Some(position) => {
            let message = format!("the unit is left out: {} {what}", position.option);
            report.loss(at(file, position), message, help);
        }
        None => report.left_out(file, 1, what, help),
    }
}

pub(super) fn at(file: usize, position: &OptionPosition) -> (usize, usize, usize) {
    (file, position.line, position.column)
}

/// Splits a problem at its last colon into description and remedy.
fn split_problem(problem: &str) -> (&str, &str) {
    problem.rsplit_once(": ").unwrap_or((problem, MANUAL_REMEDY))
}

/// Options that these commands replace.
pub(super) const OPTIONS: [&str; 2] = ["RuntimeDirectory", "RuntimeDirectoryMode"];

/// Adds the commands to a unit. Returns `false` if commands cannot replace the option.
///
/// The commands run as the user of the unit, so they can only replace the option for a unit without
/// another user. Values with specifiers or links, and directories that outlive the unit, are not
/// converted either.
pub(super) fn convert(compiled: &mut CompiledUnit, parsed: &UnitFile) -> bool {
    let values = |name: &str| {
        let of_service = parsed.options().filter(|it| it.section() == "Service");
        of_service
            .filter(|it| it.name() == name)
            .map(|it| it.value().to_owned())
            .collect::<Vec<_>>()
    };
    let environment = &compiled.unit.run.exec_environment;
    if environment.user.is_some()
        || environment.group.is_some()
        || !values("RuntimeDirectoryPreserve").is_empty()
    {
        return false;
    }
    let mode = values("RuntimeDirectoryMode").pop().unwrap_or_else(|| "0755".to_owned());
    let is_octal = mode.len() <= 4 && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let Some(paths) = paths(&values("RuntimeDirectory")).filter(|_| is_octal) else { return false };
    add(Arc::make_mut(&mut compiled.unit), &mode, &paths);
    true
}

/// Returns the directories of these values. Returns `None` if there are none, or some cannot be
/// converted.
fn paths(values: &[String]) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    for value in values {
        if value.is_empty() {
            paths.clear();
        }
        for word in split_words(value).ok()? {
            let is_plain = !word.starts_with('/') && !word.contains(['%', ':', '$']);
            let is_inside = word.split('/').all(|part| !["", ".", ".."].contains(&part));
            paths.push((is_plain && is_inside).then(|| format!("/run/{word}"))?);
        }
    }
    Some(paths).filter(|paths| !paths.is_empty())
}

fn add(unit: &mut InitUnit, mode: &str, paths: &[String]) {
    let command = |program: &str, options: &[&str], ignore_failure| Command {
        program: program.to_owned(),
        arguments: options.iter().map(|it| (*it).to_owned()).chain(paths.iter().cloned()).collect(),
        ignore_failure,
        ..Command::default()
    };
    let run = &mut unit.run;
    run.start_pre.insert(0, command("/usr/bin/install", &["-d", "-m", mode], false));
    run.stop_post.push(command("/bin/rm", &["-rf"], true));
    run.exec_environment.environment.insert(0, ("RUNTIME_DIRECTORY".to_owned(), paths.join(":")));
}
