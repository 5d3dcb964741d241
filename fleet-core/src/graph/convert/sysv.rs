//! Init scripts with the header that the Linux Standard Base gave them.
//!
//! The header says what a script provides and comes after; the script itself is called.

use std::collections::BTreeMap;

use super::draft::{Draft, Wish, as_stanza, call_script, name_of};
use super::note::Report;
use super::openrc::script_path;
use crate::graph::{Command, EdgeKind, InitUnit, Name, Restart, Target};

/// What a header begins and ends with.
const BEGIN: &str = "### BEGIN INIT INFO";
const END: &str = "### END INIT INFO";

/// Fields of a header, each with its line and value.
type Header = Vec<(String, (usize, String))>;

/// The units, with what they say of others; and a virtual one for each facility that they name and
/// none of them provides.
pub(super) fn drafts(files: &[(usize, &str)], report: &mut Report<'_>) -> Vec<Draft> {
    let mut drafts: Vec<Draft> =
        files.iter().filter_map(|(file, text)| draft(*file, text, report)).collect();
    let facilities = facilities(&drafts, report);
    drafts.extend(facilities);
    drafts
}

fn draft(file: usize, text: &str, report: &mut Report<'_>) -> Option<Draft> {
    if !text.starts_with("#!") {
        let why = "the first line names no shell, so it is no init script";
        report.left_out(file, 1, why, "convert it with the --from that it is for");
        return None;
    }
    let name = name_of(file, report)?;
    let header = header(text);
    if header.is_empty() {
        let message = "there is no LSB header, so what it comes after is not known";
        report.loss((file, 1), message, "write depends-ms and waits-for into the stanza");
    }
    if !header.is_empty() && !has_end(text) {
        let message = "the LSB header has no end: it is read up to a line without `#`";
        report.loss((file, 1), message, format!("write `{END}` into the line below it"));
    }
    let mut unit = called(name, file, report);
    let mut reader = Reader { file, report, provides: Vec::new(), wishes: Vec::new() };
    for (key, (line, value)) in &header {
        reader.field(key, *line, value, &mut unit);
    }
    reader.stops(&header);
    let (provides, wishes) = (reader.provides, reader.wishes);
    if !provides.is_empty() {
        unit.provides = provides;
    }
    let message = "whether the script can be reloaded, or asked for its state, is not known";
    report.remark((file, 1), message, "write an exec-reload, if it can be reloaded");
    let unit = as_stanza(&unit, file, report, |_| None)?;
    Some(Draft { wishes, ..Draft::new(file, report, unit) })
}

/// The unit that calls a script.
fn called(name: Name, file: usize, report: &mut Report<'_>) -> InitUnit {
    let provides = [Target::from(&name)];
    let script = script_path(report.path(file));
    let mut unit = InitUnit::new_virtual(name, provides);
    unit.restart = Restart::never();
    let call = |what: &str| vec![Command::new(script.clone(), [what.to_owned()])];
    call_script(&mut unit, file, report, call);
    unit
}

/// Fields of a header that are known.
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

/// The fields between the two marks. A description goes on in lines that begin with a tab or two
/// blanks, unless they are known fields; no other field does. What is in none has no key.
fn header(text: &str) -> Header {
    let inside = text.lines().enumerate().skip_while(|(_, line)| line.trim_end() != BEGIN).skip(1);
    // Without an end, what the script runs is not taken for a part of it.
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

/// Whether what a header begins has an end.
fn has_end(text: &str) -> bool {
    text.lines().skip_while(|line| line.trim_end() != BEGIN).any(|line| line.trim_end() == END)
}

struct Reader<'r, 'a> {
    file: usize,
    report: &'r mut Report<'a>,
    provides: Vec<Target>,
    wishes: Vec<Wish>,
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
            "required-start" => self.wish(line, value, EdgeKind::DependsMs, false),
            "should-start" => self.wish(line, value, EdgeKind::WaitsFor, false),
            "x-start-before" => self.wish(line, value, EdgeKind::After, true),
            "short-description" => value.clone_into(&mut unit.description),
            "description" if unit.description.is_empty() => {
                value.clone_into(&mut unit.description);
            }
            "default-start" if !value.is_empty() => {
                let message = format!("it would be started in the runlevels {value}");
                let help =
                    format!("name `{}` in waits-for of the unit that is the goal", unit.name);
                self.report.loss((self.file, line), message, help);
            }
            "x-interactive" if value == "true" => {
                let message = "it asks whoever sits at the machine, and nothing here does";
                self.report.loss((self.file, line), message, "have it ask for nothing");
            }
            "default-start" | "default-stop" | "description" | "required-stop" | "should-stop"
            | "x-interactive" | "x-stop-after" => {}
            "" => {
                let message = format!("`{value}` belongs to no field: only a description goes on");
                let help = "begin the line with `#` and the name of its field";
                self.report.loss((self.file, line), message, help);
            }
            _ => {
                let message = format!("the field `{key}` is none of a header that is known");
                let help = "write what it says into the stanza, if it matters";
                self.report.loss((self.file, line), message, help);
            }
        }
    }

    fn wish(&mut self, line: usize, value: &str, kind: EdgeKind, before: bool) {
        for target in self.targets(line, value) {
            self.wishes.push(Wish { kind, target, before, line });
        }
    }

    fn targets(&mut self, line: usize, value: &str) -> Vec<Target> {
        let mut targets = Vec::new();
        for word in value.split_whitespace() {
            let spelt = word.strip_prefix('$').map(|it| format!("{FACILITY}{it}"));
            if word == "$all" {
                let message = "it comes after all others, which are not known here";
                let help = "name them in `after:` of the stanza";
                self.report.loss((self.file, line), message, help);
                continue;
            }
            match Target::new(spelt.as_deref().unwrap_or(word)) {
                Ok(target) => targets.push(target),
                Err(problem) => {
                    let message = format!("`{word}` is no name for a target: {problem}");
                    let help = "give it a name of letters, digits and `_-.@:`";
                    self.report.loss((self.file, line), message, help);
                }
            }
        }
        targets
    }

    /// Units stop in the order that is the other way round of their starts. What a script says of
    /// its stop beyond that is lost.
    fn stops(&mut self, header: &Header) {
        let stops = header.iter().filter(|(key, _)| {
            ["required-stop", "should-stop", "x-stop-after"].contains(&key.as_str())
        });
        for (key, (line, value)) in stops {
            let after = key == "x-stop-after";
            let mut targets = self.targets(*line, value);
            let known = |it: &Target| {
                self.wishes.iter().any(|wish| wish.target == *it && wish.before == after)
            };
            targets.retain(|it| !known(it));
            for target in targets {
                let message = format!("its stop has an order with `{target}` that its start lacks");
                let help = "write `after:` into one of the two stanzas, if the order matters";
                self.report.loss((self.file, *line), message, help);
            }
        }
    }
}

/// What the target of a facility of the system begins with.
const FACILITY: &str = "facility-";

/// A virtual unit for each facility that is named and that no script provides.
fn facilities(drafts: &[Draft], report: &mut Report<'_>) -> Vec<Draft> {
    let mut named: BTreeMap<&Target, (usize, usize)> = BTreeMap::new();
    for draft in drafts {
        let wishes = draft.wishes.iter().filter(|it| it.target.as_str().starts_with(FACILITY));
        for wish in wishes {
            named.entry(&wish.target).or_insert((draft.file, wish.line));
        }
    }
    let provided = |it: &Target| drafts.iter().any(|draft| draft.unit.provides.contains(it));
    named.retain(|target, _| !provided(target));
    let unit = |(target, place): (&Target, (usize, usize))| {
        let facility = target.as_str().strip_prefix(FACILITY).unwrap_or_default();
        let message = format!("nothing stands for ${facility} yet: `{target}` is always there");
        let help = "have its stanza wait for the units that make it so";
        report.loss(place, message, help);
        let name = Name::new(target.as_str()).ok()?;
        let mut unit = InitUnit::new_virtual(name, [target.clone()]);
        unit.description = format!("What ${facility} stands for on this machine");
        let from = format!("for ${facility}");
        Some(Draft { file: place.0, from, unit, wishes: Vec::new() })
    };
    named.into_iter().filter_map(unit).collect()
}
