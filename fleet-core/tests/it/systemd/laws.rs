//! What holds for every unit file: nothing panics, and the order of sections does not matter.

use std::collections::BTreeSet;

use fleet_core::graph::systemd::{Outside, compile, link};
use fleet_unitfile::{UnitFile, UnitName, directives, strategies};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::site;
use crate::init::config::cases;

/// Options that systemd has, with values that some of them take.
fn option() -> impl Strategy<Value = (usize, String)> {
    let sections = ["Unit", "Service", "Install"];
    let all: Vec<_> = directives()
        .filter_map(|it| Some((sections.iter().position(|name| *name == it.section)?, it.name)))
        .collect();
    let value = prop_oneof![
        select(vec![
            "",
            "no",
            "yes",
            "5",
            "0",
            "infinity",
            "10min 3s",
            "/bin/true %i",
            "-/bin/a $B ; /c",
            "notify",
            "oneshot",
            "on-failure",
            "always",
            "process",
            "SIGINT",
            "A=b 'C=d e'",
            "b.service %p@2.service",
            "|!/there",
            "%h/x",
            "1:2",
            "50%",
            "journal",
            "append:/x",
            "forking",
            "none",
            "@",
            "!!",
            "\"",
        ])
        .prop_map(str::to_owned),
        "[ a-zA-Z0-9=/%$'#;,.ä\\\\-]{0,16}",
    ];
    (any::<Index>(), value).prop_map(move |(at, value)| {
        let (section, name) = at.get(&all);
        // Otherwise the value would go on with the next line.
        (*section, format!("{name}={}\n", value.trim_end_matches('\\')))
    })
}

/// The text of one section for each.
fn sections() -> impl Strategy<Value = [String; 3]> {
    vec(option(), 0..12).prop_map(|options| {
        let mut texts =
            ["[Unit]\n", "[Service]\nExecStart=/bin/true\n", "[Install]\n"].map(str::to_owned);
        for (section, option) in options {
            texts[section].push_str(&option);
        }
        texts
    })
}

/// What is read, without places: the unit, what it says of others, and what is told.
fn read(name: &UnitName, texts: &[&String]) -> String {
    let text: String = texts.iter().map(|text| text.as_str()).collect();
    let (file, _) = UnitFile::parse_collecting(&text);
    match compile(name, &file, &site()) {
        Ok(it) => {
            let relations: BTreeSet<_> =
                it.relations.iter().map(|it| (it.kind, it.unit.as_str())).collect();
            let remarks: BTreeSet<_> =
                it.remarks.iter().map(|it| (&it.place.option, &it.text)).collect();
            format!("{:?}\n{relations:?}\n{:?}\n{remarks:?}", it.unit, it.aliases)
        }
        Err(refusals) => {
            let all: BTreeSet<_> = refusals
                .all
                .iter()
                .map(|it| (it.place.as_ref().map(|place| &place.option), &it.problem))
                .collect();
            format!("{all:?}")
        }
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn the_order_of_sections_does_not_matter([a, b, c] in sections()) {
        let name: UnitName = "web@1.service".parse().unwrap();
        let there = read(&name, &[&a, &b, &c]);
        for other in [[&b, &a, &c], [&c, &b, &a], [&a, &c, &b], [&b, &c, &a]] {
            prop_assert_eq!(read(&name, &other), there.clone());
        }
    }

    #[test]
    fn whatever_the_file_it_is_read_or_refused_with_reasons(
        name in strategies::unit_name(),
        file in strategies::unit_file(),
        parts in sections(),
    ) {
        let (mixed, _) = UnitFile::parse_collecting(parts.concat());
        for file in [file, mixed] {
            match compile(&name, &file, &site()) {
                Ok(it) => {
                    let linked = link(&[it], &Outside::default());
                    prop_assert_eq!(linked.units.len() + linked.refused.len(), 1);
                }
                Err(refusals) => {
                    prop_assert!(!refusals.all.is_empty());
                    let lines = file.source().split(|byte| *byte == b'\n').count();
                    for place in refusals.all.iter().filter_map(|it| it.place.as_ref()) {
                        prop_assert!((1..=lines).contains(&place.line), "{place}");
                    }
                }
            }
        }
    }
}
