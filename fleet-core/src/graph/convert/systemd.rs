//! Unit files of systemd: the compiler does the work, and what it refuses becomes a loss.

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet_unitfile::{SpecifierContext, UnitFile, UnitName};

use super::draft::{Draft, as_stanza};
use super::note::Report;
use crate::graph;
use crate::graph::systemd::{
    CompileOptions, CompiledUnit, ExternalUnits, OptionPosition, RelationKind, Support,
    UnitRefusal, compile, link, support,
};
use crate::graph::text::OmittedKey;

/// What to do about what has no words of its own for that.
const BY_HAND: &str = "write what does the same into the stanza, if it is needed";

/// Specifiers that another machine has another answer to.
const OF_MACHINE: [char; 4] = ['H', 'l', 'm', 'v'];

/// Options that say what is run, as whom and where. With a value of theirs that cannot be had a
/// unit would be another one; systemd itself passes over most others that it cannot read.
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

/// A unit of a file.
type Unit = (usize, CompiledUnit);

/// The units with their edges.
pub(super) fn drafts(
    files: &[(usize, &str)],
    facts: &SpecifierContext,
    report: &mut Report<'_>,
) -> Vec<Draft> {
    let mut units: Vec<Unit> = Vec::new();
    for (file, text) in files {
        units.extend(one(*file, text, facts, &units, report).map(|unit| (*file, unit)));
    }
    drop_outside(&mut units, report);
    loop {
        let compiled: Vec<CompiledUnit> = units.iter().map(|(_, unit)| unit.clone()).collect();
        let linked = link(&compiled, &ExternalUnits::default());
        if linked.refused.is_empty() {
            return finish(&units, linked, report);
        }
        for (file, unit) in &units {
            for refusal in linked.refused.get(&unit.unit.name).into_iter().flatten() {
                refuse(*file, refusal, report);
            }
        }
        units.retain(|(_, unit)| !linked.refused.contains_key(&unit.unit.name));
        drop_outside(&mut units, report);
    }
}

fn finish(
    units: &[Unit],
    linked: graph::systemd::LinkedUnits,
    report: &mut Report<'_>,
) -> Vec<Draft> {
    for (file, unit) in units {
        let remarks = linked.remarks.get(&unit.unit.name).into_iter().flatten();
        for remark in unit.remarks.iter().chain(remarks) {
            let message = format!("{} {}", remark.position.option, remark.text);
            report.remark(at(*file, &remark.position), message, BY_HAND);
        }
        lose_links(*file, unit, &linked.units, report);
    }
    let mut drafts = Vec::new();
    for unit in linked.units {
        let found = units.iter().find(|(_, it)| it.unit.name == unit.name);
        drafts.extend(found.map(|(file, _)| Draft::new(*file, report, Arc::unwrap_or_clone(unit))));
    }
    drafts
}

/// Tells of links to a file whose names other units have.
fn lose_links(
    file: usize,
    unit: &CompiledUnit,
    linked: &[Arc<graph::InitUnit>],
    report: &mut Report<'_>,
) {
    for link in report.aliases(file) {
        let has_it =
            |it: &&Arc<graph::InitUnit>| it.provides.iter().any(|own| own.as_str() == link);
        let Some(owner) = linked.iter().find(has_it) else { continue };
        if owner.name != unit.unit.name {
            let message = format!("the link {link} is lost: {} has that name", owner.name);
            let help = "hand in the one of the two alone that counts";
            report.loss((file, 1), message, help);
        }
    }
}

/// One file by itself.
fn one(
    file: usize,
    text: &str,
    facts: &SpecifierContext,
    others: &[Unit],
    report: &mut Report<'_>,
) -> Option<CompiledUnit> {
    let path = report.path(file);
    let base = path.rsplit('/').next().unwrap_or_default();
    let name = match base.parse::<UnitName>() {
        Ok(name) => name,
        Err(error) => {
            report.left_out(file, 1, error, "call the file as systemd calls units");
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
        report.left_out(file, 1, why, "hand in the file alone that counts");
        return None;
    }
    let mut compiled = accepted(file, &name, &parsed, facts, report)?;
    if compiled.timer.is_some() {
        let why = "units of this format are not started by the calendar or the clock";
        report.left_out(file, 1, why, "let another program start what the timer does");
        return None;
    }
    for alias in report.aliases(file) {
        match alias.parse() {
            Ok(alias) => drop(compiled.aliases.insert(alias)),
            Err(error) => report.loss((file, 1), format!("a link is lost: {error}"), BY_HAND),
        }
    }
    let places = |lost: &OmittedKey| {
        let option: String = lost.key.split('-').map(capital).collect();
        let place = compiled.position_of("Service", &option);
        place.or_else(|| compiled.position_of("Unit", &option)).map(|it| (it.line, it.column))
    };
    let unit = as_stanza(&compiled.unit, file, report, places)?;
    compiled.unit = Arc::new(unit);
    let known = |letter: char| facts.expand(&format!("%{letter}"), &name).is_ok();
    let of_machine: Vec<char> = OF_MACHINE.into_iter().filter(|it| known(*it)).collect();
    remark_facts(file, &parsed, &compiled, &of_machine, report);
    Some(compiled)
}

/// Tells where a value has become what it is on this machine.
fn remark_facts(
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
                let place = parsed.location(option.span().start);
                let message = format!("{section}.{name} has %{letter} as it is on this machine");
                let help = "convert it on the machine that is to run it";
                report.remark((file, place.line, place.column), message, help);
            }
        }
    }
}

/// Whether a value has that specifier; `%%` is a percent sign.
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

/// The unit without the options that cannot be honoured, and the values that cannot be had. One
/// where such a value says what is run, or that lacks something as a whole, is left out: anything
/// else would be a guess.
fn accepted(
    file: usize,
    name: &UnitName,
    parsed: &UnitFile,
    facts: &SpecifierContext,
    report: &mut Report<'_>,
) -> Option<CompiledUnit> {
    let mut site = CompileOptions { facts: facts.clone(), accept: BTreeSet::new() };
    let mut gone: Vec<UnitRefusal> = Vec::new();
    loop {
        let refusals = match compile(name, parsed, &site) {
            Ok(mut compiled) => {
                // What was accepted is told as a loss already.
                compiled.remarks.retain(|it| !site.accept.contains(it.position.name()));
                gone.iter().for_each(|refusal| lose(file, refusal, report));
                return Some(compiled);
            }
            Err(refusals) => refusals.all,
        };
        // One that stays though it was passed over is about what several options say together.
        let stays = |it: &UnitRefusal| {
            let is_accepted = |place: &OptionPosition| site.accept.contains(place.name());
            !can_do_without(it) || it.position.as_ref().is_none_or(is_accepted)
        };
        if refusals.is_empty() || refusals.iter().any(stays) {
            gone.retain(|refusal| !refusals.contains(refusal));
            gone.iter().for_each(|refusal| lose(file, refusal, report));
            for refusal in &refusals {
                let tell = if stays(refusal) { refuse } else { lose };
                tell(file, refusal, report);
            }
            return None;
        }
        let places = refusals.iter().filter_map(|refusal| refusal.position.as_ref());
        site.accept.extend(places.map(|place| place.name().to_owned()));
        gone.extend(refusals);
    }
}

/// Whether what is left of the unit means what it says.
fn can_do_without(refusal: &UnitRefusal) -> bool {
    let Some(place) = &refusal.position else { return false };
    let (section, name) = place.option.split_once('.').unwrap_or_default();
    match support(section, name) {
        Some(Support::Honoured | Support::Informational) => !ESSENTIAL.contains(&name),
        _ => true,
    }
}

/// Tells that the unit is printed without an option.
fn lose(file: usize, refusal: &UnitRefusal, report: &mut Report<'_>) {
    let Some(place) = &refusal.position else { return };
    let (what, help) = in_two(&refusal.problem);
    report.loss(at(file, place), format!("{} {what}", place.option), help);
}

fn refuse(file: usize, refusal: &UnitRefusal, report: &mut Report<'_>) {
    let (what, help) = in_two(&refusal.problem);
    match &refusal.position {
        Some(place) => {
            let message = format!("the unit is left out: {} {what}", place.option);
            report.loss(at(file, place), message, help);
        }
        None => report.left_out(file, 1, what, help),
    }
}

fn at(file: usize, place: &OptionPosition) -> (usize, usize, usize) {
    (file, place.line, place.column)
}

/// What is wrong, and what to do about it, which is what its last colon parts.
fn in_two(problem: &str) -> (&str, &str) {
    problem.rsplit_once(": ").unwrap_or((problem, BY_HAND))
}

/// Takes out, and tells, what units say of others that are not among the files.
fn drop_outside(units: &mut [Unit], report: &mut Report<'_>) {
    let names = units.iter().map(|(_, unit)| unit.unit.name.as_str().to_owned());
    let aliases = units.iter().flat_map(|(_, unit)| unit.aliases.iter().map(ToString::to_string));
    let known: BTreeSet<String> = names.chain(aliases).collect();
    for (file, unit) in units.iter_mut() {
        let name = unit.unit.name.clone();
        let relations = std::mem::take(&mut unit.relations);
        for relation in relations {
            let inside = known.contains(relation.unit.as_str());
            if inside && relation.kind != RelationKind::PartOf {
                unit.relations.push(relation);
                continue;
            }
            let place = at(*file, &relation.position);
            let (other, option) = (&relation.unit, &relation.position.option);
            match relation.kind {
                RelationKind::After | RelationKind::Before => {
                    let message = format!("{option} names {other}, which is not among the files");
                    report.remark(place, message, "hand it in as well, if it is to run");
                }
                RelationKind::BindsTo | RelationKind::Requires | RelationKind::Wants => {
                    let message = format!("{option} names {other}, which is not among the files");
                    let help = format!(
                        "hand it in as well; or write a stanza that provides `{other}`, and \
                         `depends-ms: {other}` or `waits-for: {other}` in this one"
                    );
                    report.loss(place, message, help);
                }
                RelationKind::RequiredBy | RelationKind::WantedBy => {
                    let message = format!(
                        "{option}: {other} would have it started, which is not among the files"
                    );
                    let help = format!("name `{name}` in waits-for of the unit that is the goal");
                    report.loss(place, message, help);
                }
                RelationKind::PartOf => {
                    let message = format!("{option}: its stop would be that of {other}");
                    let help = format!("write `depends-on: {other}`, if it is to end with it");
                    report.loss(place, message, help);
                }
            }
        }
    }
}
