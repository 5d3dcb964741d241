//! What holds for all files: what is printed makes a graph, with the edges that the files ask for.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::graph::EdgeKind;
use fleet_core::graph::convert::{InitSystem, SourceFile, convert};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::converted;
use crate::init::config::cases;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A service, by its place among the names: what it says, and of whom.
type Said = Vec<(usize, usize)>;

/// Words of `depend` with the kinds that they make.
const OPENRC: [(&str, EdgeKind); 4] = [
    ("need", EdgeKind::DependsMs),
    ("want", EdgeKind::WaitsFor),
    ("use", EdgeKind::After),
    ("before", EdgeKind::After),
];

/// The same of a header.
const SYSV: [(&str, EdgeKind); 3] = [
    ("Required-Start", EdgeKind::DependsMs),
    ("Should-Start", EdgeKind::WaitsFor),
    ("X-Start-Before", EdgeKind::After),
];

fn script(words: &[(&str, EdgeKind)], said: &Said, origin: InitSystem) -> String {
    let line = |(word, on): &(usize, usize)| match origin {
        InitSystem::Sysv => format!("# {}: {}\n", words[*word].0, NAMES[*on]),
        _ => format!("\t{} {}\n", words[*word].0, NAMES[*on]),
    };
    let lines: String = said.iter().map(line).collect();
    match origin {
        InitSystem::Sysv => format!("#!/bin/sh\n### BEGIN INIT INFO\n{lines}### END INIT INFO\n"),
        _ => format!("#!/sbin/openrc-run\ndepend() {{\n{lines}}}\n"),
    }
}

/// For each two services the strongest that is said, one edge at a time.
fn expected(words: &[(&str, EdgeKind)], all: &[Said]) -> BTreeMap<(usize, usize), EdgeKind> {
    let mut edges = BTreeMap::new();
    for (own, said) in all.iter().enumerate() {
        for (word, other) in said {
            let (name, kind) = words[*word];
            let turned = name.to_lowercase().contains("before");
            let pair = if turned { (*other, own) } else { (own, *other) };
            if pair.0 != pair.1 && *other < all.len() {
                let known = edges.entry(pair).or_insert(kind);
                *known = kind.min(*known);
            }
        }
    }
    edges
}

/// Whether edges, all of which order, are in a circle, by following them for ever.
fn has_circle(edges: &BTreeMap<(usize, usize), EdgeKind>) -> bool {
    let mut reached: BTreeSet<(usize, usize)> = edges.keys().copied().collect();
    loop {
        let more = reached.iter().flat_map(|(from, over)| {
            let next = edges.keys().filter(move |(it, _)| it == over);
            next.map(move |(_, to)| (*from, *to))
        });
        let more: Vec<_> = more.filter(|pair| !reached.contains(pair)).collect();
        if more.is_empty() {
            return reached.iter().any(|(from, to)| from == to);
        }
        reached.extend(more);
    }
}

type Words = &'static [(&'static str, EdgeKind)];

/// An init with its words, and services that say some of them.
fn services() -> impl Strategy<Value = (InitSystem, Words, Vec<Said>)> {
    let inits: Vec<(InitSystem, Words)> =
        vec![(InitSystem::Sysv, &SYSV), (InitSystem::Openrc, &OPENRC)];
    select(inits).prop_flat_map(|(origin, words)| {
        let said = vec((0..words.len(), 0..NAMES.len()), 0..4);
        (Just(origin), Just(words), vec(said, 1..NAMES.len()))
    })
}

/// What the files of an init begin with, without which they are none of its.
fn beginning(origin: InitSystem) -> &'static str {
    match origin {
        InitSystem::Systemd => "",
        InitSystem::Openrc => "#!/sbin/openrc-run\n",
        InitSystem::Sysv => "#!/bin/sh\n### BEGIN INIT INFO\n",
    }
}

/// A script that may be anything, of pieces that mean something.
fn anything() -> impl Strategy<Value = String> {
    let pieces = [
        "#!/sbin/openrc-run\n",
        "#!/bin/sh\n",
        "command=",
        "command_args=",
        "pidfile=",
        "/run/x",
        "\"",
        "'",
        "$",
        "${",
        "}",
        "$(",
        ")",
        "`",
        "\\",
        "\n",
        ";",
        " ",
        "depend() {",
        "need",
        "before",
        "{",
        "start()",
        "\nreload()\n",
        "\n}\n",
        "\n)\n",
        "export ",
        "A=",
        ":=",
        ":-",
        "#",
        "&&",
        "<",
        "*",
        "yes",
        "command_background=",
        "### BEGIN INIT INFO\n",
        "### END INIT INFO\n",
        "# Provides: ",
        "# Required-Start:",
        "$all",
        "a",
        "b",
        "[Service]\n",
        "[Unit]\n",
        "ExecStart=/bin/a",
        "Requires=b.service",
        "After=",
        "=",
        "ä",
        "\t",
        "restart=",
        "retry=TERM/1",
        "umask=",
    ];
    vec(select(pieces.to_vec()), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn edges_are_those_that_scripts_ask_for((origin, words, all) in services()) {
        let files = all.iter().enumerate().map(|(at, said)| {
            let source = script(words, said, origin).into_bytes();
            SourceFile { path: NAMES[at].to_owned(), source, ..SourceFile::default() }
        });
        let converted = converted(origin, files.collect());
        let place = |name: &str| NAMES.iter().position(|it| *it == name).unwrap();
        let mut edges = BTreeMap::new();
        for unit in converted.units.iter().map(|stanza| &stanza.unit) {
            for (kind, target) in &unit.edges {
                edges.insert((place(unit.name.as_str()), place(target.as_str())), *kind);
            }
        }
        let expected = expected(words, &all);
        let opened = converted.notes.iter().filter(|it| it.message.contains("wait for one"));
        let opened = opened.count();
        prop_assert_eq!(opened > 0, has_circle(&expected), "{:?}", converted);
        // One edge less for each circle, and none that nobody asked for.
        let same = edges.iter().filter(|(pair, kind)| expected.get(pair) == Some(kind)).count();
        prop_assert_eq!(same + opened, expected.len(), "{:?}\n{:?}", edges, expected);
        let pulled = edges.iter().filter(|(_, kind)| **kind == EdgeKind::Pulls);
        prop_assert_eq!(pulled.count() + same, edges.len());
    }

    #[test]
    fn whatever_the_files_what_is_printed_makes_a_graph(
        texts in vec(anything(), 1..4),
        origin in select(vec![InitSystem::Systemd, InitSystem::Openrc, InitSystem::Sysv]),
    ) {
        let files = texts.iter().enumerate().map(|(at, text)| {
            let end = if origin == InitSystem::Systemd { ".service" } else { "" };
            let source = format!("{}{text}", beginning(origin)).into_bytes();
            SourceFile { path: format!("{}{end}", NAMES[at]), source, ..SourceFile::default() }
        });
        let files: Vec<SourceFile> = files.collect();
        let all = converted(origin, files.clone());
        for loss in &all.notes {
            let file = files.iter().find(|file| file.path == loss.file).unwrap();
            let lines = file.source.split(|byte| *byte == b'\n').count();
            prop_assert!((1..=lines).contains(&loss.line), "{}", loss);
            prop_assert!(!loss.help.is_empty());
        }
        let mut turned = files;
        turned.reverse();
        prop_assert_eq!(all, convert(origin, turned));
    }
}
