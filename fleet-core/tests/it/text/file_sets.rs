//! Diagnostics of several files: each has a position in one of them.

use std::cell::RefCell;
use std::collections::BTreeSet;

use fleet_core::graph::format::{FileRole, FileSet, InitFile, print};
use fleet_core::graph::strategies::{Units, cyclic_units, units};
use fleet_core::graph::{ExecOutput, InitUnit, Timeouts};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use proptest::test_runner::TestRunner;

use super::broken::{BROKEN, ODD, whole};
use super::laws::check_places;
use crate::init::config::cases;

/// Codes that occur only for a file set or its machine.
const TOGETHER: [&str; 11] =
    ["E12", "E13", "E15", "E16", "E17", "E28", "W03", "W04", "W05", "W08", "W09"];

/// Generates units that may conflict, some of them twice.
fn any_units() -> impl Strategy<Value = Vec<InitUnit>> {
    let twice = (units(3), units(3)).prop_map(|(one, other)| Units([one.0, other.0].concat()));
    prop_oneof![4 => units(5), 3 => cyclic_units(5), 1 => twice].prop_map(|units| units.0)
}

/// Generates lines of central settings: goals, alternatives and masks of existing and missing
/// targets, and invalid lines.
fn central(units: &[InitUnit]) -> impl Strategy<Value = String> + use<> {
    let names = units.iter().map(|unit| unit.name.to_string());
    let targets = units.iter().flat_map(|unit| &unit.provides).map(ToString::to_string);
    let names: Vec<String> = names.chain(["nobody".to_owned()]).collect();
    let targets: Vec<String> = targets.chain(["nothing", "common"].map(str::to_owned)).collect();
    let (goal, mask) = (select(targets.clone()), subsequence(targets.clone(), 0..3));
    let choice = (select(targets), select(names)).prop_map(|(one, other)| format!("{one}={other}"));
    let odd = select(vec!["goal:", "alternatives: a", "mask: a,,b", "m\u{fc}de", "unit: a", " b"]);
    (
        prop::option::weighted(0.9, goal.prop_map(|goal| format!("goal: {goal}"))),
        prop::option::weighted(0.3, mask.prop_map(|mask| format!("mask: {}", mask.join(",\n  ")))),
        prop::option::weighted(0.3, choice.prop_map(|one| format!("alternatives: {one}"))),
        prop::option::weighted(0.1, odd.prop_map(str::to_owned)),
    )
        .prop_map(|(goal, mask, choice, odd)| {
            let lines = [Some("# \u{e4}".to_owned()), odd, mask, goal, choice];
            lines.into_iter().flatten().map(|line| line + "\n").collect()
        })
}

#[test]
fn central_output_applies_to_stanzas_without_one() {
    let stanza = |name: &str, more: &str| {
        format!(
            "unit: {name}\ntype: foreground-supervised\nprovides: {name}\nexec-start: /a\n{more}\n"
        )
    };
    let units = [
        stanza("a", ""),
        stanza("b", "output: log\n"),
        stanza("c", "ready-grep: up\n"),
        "unit: d\ntype: virtual\nprovides: d\n".to_owned(),
    ];
    let outputs = |central: &str| {
        let file = |name: &str, role, source: &str| InitFile {
            name: name.to_owned(),
            role,
            source: source.into(),
        };
        let files = vec![
            file("init.conf", FileRole::Central, central),
            file("a.unit", FileRole::Units, &units.concat()),
        ];
        let mut read = FileSet::read(files);
        let graph = read.graph().unwrap_or_else(|| panic!("{:?}", read.diagnostics));
        let outputs = graph.units().map(|unit| unit.run.exec_environment.output.clone());
        outputs.collect::<Vec<_>>()
    };
    use ExecOutput::{Inherit, Log};
    assert_eq!(outputs("goal: a\noutput: inherit\n"), [Inherit, Log, Log, Log]);
    assert_eq!(outputs("goal: a\n"), [Log, Log, Log, Log]);
}

/// Encoding of a text: line endings, byte order mark, missing final newline, and one replaced byte.
type Form = (bool, bool, bool, Option<(Index, u8)>);

fn form() -> impl Strategy<Value = Form> {
    let byte = (any::<Index>(), select(&b":#,\n\r \xff\xc3a"[..]));
    let flag = || prop::bool::weighted(0.2);
    (flag(), flag(), flag(), prop::option::weighted(0.05, byte))
}

fn written(text: &str, (returns, mark, open, byte): Form) -> Vec<u8> {
    let text = if returns { text.replace('\n', "\r\n") } else { text.to_owned() };
    let text = if open { text.trim_end().to_owned() } else { text };
    let mut bytes = if mark { format!("\u{feff}{text}") } else { text }.into_bytes();
    if let Some((at, byte)) = byte.filter(|_| !bytes.is_empty()) {
        let at = at.index(bytes.len());
        bytes[at] = byte;
    }
    bytes
}

/// Generates the files of a directory: three stanza files, and central settings up to twice.
fn texts() -> impl Strategy<Value = Vec<(&'static str, FileRole, String)>> {
    let other = prop_oneof![
        select(&BROKEN[..]).prop_map(|(text, _)| whole(text).replace("NAME", "other")),
        select(&ODD[..]).prop_map(|(text, _)| whole(text).replace("NAME", "odd")),
        Just("# \u{fc}ber\n\n".to_owned()),
    ];
    let others = prop_oneof![4 => Just(Vec::new()), 1 => vec(other, 1..3)];
    let all = (any_units(), others).prop_flat_map(|(units, others)| {
        let central = vec(central(&units), 0..3);
        let stanzas = units.iter().map(|unit| print(unit, &Timeouts::default()).text);
        let stanzas: Vec<String> = stanzas.chain(others).collect();
        let places = vec(0..3_usize, stanzas.len());
        (Just(stanzas), places, central)
    });
    all.prop_map(|(stanzas, places, central)| {
        let names = ["a.unit", "b.unit", "c.unit"];
        let mut files = names.map(|name| (name, FileRole::Units, String::new())).to_vec();
        stanzas.iter().zip(places).for_each(|(text, place)| files[place].2 += text);
        let names = ["init.conf", "b.conf"].into_iter();
        files.extend(names.zip(central).map(|(name, text)| (name, FileRole::Central, text)));
        files
    })
}

fn directory() -> impl Strategy<Value = Vec<InitFile>> {
    (texts(), vec(form(), 5)).prop_map(|(texts, forms)| {
        let file = |((name, role, text), form): ((&str, FileRole, String), Form)| InitFile {
            name: name.to_owned(),
            role,
            source: written(&text, form),
        };
        texts.into_iter().zip(forms).map(file).collect()
    })
}

/// Returns whether a position in another file, which a message names as `a.unit:5`, is that of a
/// stanza.
fn check_other_places(files: &[InitFile], message: &str) -> Result<(), TestCaseError> {
    for file in files {
        let Some((_, rest)) = message.split_once(&format!("in {}:", file.name)) else { continue };
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let mut lines = file.source.split(|byte| *byte == b'\n');
        let line = number.parse::<usize>().ok().and_then(|number| lines.nth(number - 1));
        let text = line.map(String::from_utf8_lossy).unwrap_or_default();
        let is_stanza =
            ["unit", "name"].iter().any(|key| text.trim_start_matches('\u{feff}').starts_with(key));
        prop_assert!(is_stanza, "{message}: {text}");
    }
    Ok(())
}

// Holds: G-28
#[test]
fn positions_lie_inside_their_files() {
    let found = RefCell::new(BTreeSet::new());
    let output = TestRunner::new(cases(10)).run(&directory(), |files| {
        let mut sources = FileSet::read(files);
        let graph = sources.graph();
        prop_assert_eq!(graph.is_some(), sources.is_valid());
        sources.check_host(|_| false);
        prop_assert_eq!(sources.diagnostics.len(), sources.files.len());
        for (file, diagnostics) in sources.files.iter().zip(&sources.diagnostics) {
            check_places(&file.source, diagnostics)?;
            for it in diagnostics {
                check_other_places(&sources.files, &it.message)?;
                found.borrow_mut().insert(it.code.as_str());
            }
        }
        Ok(())
    });
    output.unwrap_or_else(|problem| panic!("{problem}"));
    let found = found.into_inner();
    let missing: Vec<_> = TOGETHER.iter().filter(|code| !found.contains(*code)).collect();
    assert!(missing.is_empty(), "these codes never occurred: {missing:?}");
}
