//! Properties of all conversions: the printed stanzas form a graph with the edges of the scripts.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::graph::EdgeKind;
use fleet_core::graph::convert::{InitSystem, SourceFile, convert};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::converted;
use crate::init::config::cases;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A service by its index, with its dependency words and their targets.
type DeclaredService = Vec<(usize, usize)>;

/// Words of `depend` with their edge kinds.
const OPENRC: [(&str, EdgeKind); 4] = [
    ("need", EdgeKind::DependsMs),
    ("want", EdgeKind::WaitsFor),
    ("use", EdgeKind::After),
    ("before", EdgeKind::After),
];

/// Fields of an LSB header with their edge kinds.
const SYSV: [(&str, EdgeKind); 3] = [
    ("Required-Start", EdgeKind::DependsMs),
    ("Should-Start", EdgeKind::WaitsFor),
    ("X-Start-Before", EdgeKind::After),
];

/// Settings of dinit with their edge kinds.
const DINIT: [(&str, EdgeKind); 5] = [
    ("depends-on", EdgeKind::DependsOn),
    ("depends-ms", EdgeKind::DependsMs),
    ("waits-for", EdgeKind::WaitsFor),
    ("after", EdgeKind::After),
    ("before", EdgeKind::After),
];

fn script(words: &[(&str, EdgeKind)], said: &DeclaredService, origin: InitSystem) -> String {
    let line = |(word, on): &(usize, usize)| match origin {
        InitSystem::Sysv => format!("# {}: {}\n", words[*word].0, NAMES[*on]),
        InitSystem::Dinit => format!("{} = {}\n", words[*word].0, NAMES[*on]),
        _ => format!("\t{} {}\n", words[*word].0, NAMES[*on]),
    };
    let lines: String = said.iter().map(line).collect();
    match origin {
        InitSystem::Sysv => format!("#!/bin/sh\n### BEGIN INIT INFO\n{lines}### END INIT INFO\n"),
        InitSystem::Dinit => format!("type = internal\n{lines}"),
        _ => format!("#!/sbin/openrc-run\ndepend() {{\n{lines}}}\n"),
    }
}

/// Returns the strongest kind between each two services, computed edge by edge.
fn expected(
    words: &[(&str, EdgeKind)],
    all: &[DeclaredService],
) -> BTreeMap<(usize, usize), EdgeKind> {
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

/// Returns whether ordering edges form a cycle, by computing their transitive closure.
fn has_cycle(edges: &BTreeMap<(usize, usize), EdgeKind>) -> bool {
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

/// Generates an init system with its words, and services that use some of them.
fn services() -> impl Strategy<Value = (InitSystem, Words, Vec<DeclaredService>)> {
    let inits: Vec<(InitSystem, Words)> =
        vec![(InitSystem::Sysv, &SYSV), (InitSystem::Openrc, &OPENRC), (InitSystem::Dinit, &DINIT)];
    select(inits).prop_flat_map(|(origin, words)| {
        let said = vec((0..words.len(), 0..NAMES.len()), 0..4);
        (Just(origin), Just(words), vec(said, 1..NAMES.len()))
    })
}

/// Returns the first line that the files of an init system need.
fn beginning(origin: InitSystem) -> &'static str {
    match origin {
        InitSystem::Systemd => "",
        InitSystem::Openrc => "#!/sbin/openrc-run\n",
        InitSystem::Sysv => "#!/bin/sh\n### BEGIN INIT INFO\n",
        InitSystem::Dinit => "type = process\n",
    }
}

/// Generates arbitrary scripts from meaningful pieces.
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
        "command = /bin/a",
        "restart = yes\n",
        "waits-for:",
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
    fn converted_edges_match_the_scripts((origin, words, all) in services()) {
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
        prop_assert_eq!(opened > 0, has_cycle(&expected), "{:?}", converted);
        // Each cycle loses one edge, and no edge is invented.
        let same = edges.iter().filter(|(pair, kind)| expected.get(pair) == Some(kind)).count();
        prop_assert_eq!(same + opened, expected.len(), "{:?}\n{:?}", edges, expected);
        let pulled = edges.iter().filter(|(_, kind)| **kind == EdgeKind::Pulls);
        prop_assert_eq!(pulled.count() + same, edges.len());
    }

    #[test]
    fn converted_units_always_form_a_graph(
        texts in vec(anything(), 1..4),
        origin in select(vec![
            InitSystem::Systemd,
            InitSystem::Openrc,
            InitSystem::Sysv,
            InitSystem::Dinit,
        ]),
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
