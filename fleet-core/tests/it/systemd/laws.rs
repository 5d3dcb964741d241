//! Properties of all unit files: nothing panics, section order does not matter, and unsupported
//! options are refused at every position.

use std::collections::BTreeSet;

use fleet_core::graph::systemd::{
    ExternalUnits, OptionPosition, RefusalCause, Support, UnitRefusal, Unsupported, compile, link,
    support,
};
use fleet_unitfile::check::directives;
use fleet_unitfile::{UnitFile, UnitName, strategies};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::site;
use crate::init::config::cases;

/// Generates systemd options with values that some of them accept.
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
        // Otherwise the next line would continue the value.
        (*section, format!("{name}={}\n", value.trim_end_matches('\\')))
    })
}

/// Generates the text of each section.
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

/// Compiles and formats without positions: unit, relations, refusals and remarks.
fn read(name: &UnitName, texts: &[&String]) -> String {
    let text: String = texts.iter().map(|text| text.as_str()).collect();
    let (file, _) = UnitFile::parse_collecting(&text);
    match compile(name, &file, &site()) {
        Ok(it) => {
            let relations: BTreeSet<_> =
                it.relations.iter().map(|it| (it.kind, it.unit.as_str())).collect();
            let remarks: BTreeSet<_> =
                it.remarks.iter().map(|it| (&it.position.option, &it.text)).collect();
            format!("{:?}\n{relations:?}\n{:?}\n{remarks:?}", it.unit, it.aliases)
        }
        Err(refusals) => {
            let all: BTreeSet<_> = refusals
                .all
                .iter()
                .map(|it| (it.position.as_ref().map(|place| &place.option), &it.problem))
                .collect();
            format!("{all:?}")
        }
    }
}

/// A refused option with a value that is not neutral.
#[derive(Debug, Clone)]
struct Impossible {
    section: &'static str,
    name: &'static str,
    value: String,
    why: Unsupported,
}

fn impossible() -> impl Strategy<Value = Impossible> {
    let refused = |section, name| match support(section, name) {
        Some(Support::Refused(why)) => Some((section, name, &[][..], why)),
        Some(Support::RefusedUnless(neutral, why)) => Some((section, name, neutral, why)),
        _ => None,
    };
    let all: Vec<_> = directives().filter_map(|it| refused(it.section, it.name)).collect();
    let value = prop_oneof![
        select(vec!["yes", "/x", "a b", "7", "%p %%", "~deny", "x=\\\n y", "\"", "\u{e4}"])
            .prop_map(str::to_owned),
        "[A-Z/:~%$ -]{0,8}[JZ]",
    ];
    let chosen = (select(all), value);
    chosen.prop_filter_map("it asks for nothing", |((section, name, neutral, why), value)| {
        let asks = !neutral.contains(&value.as_str());
        asks.then_some(Impossible { section, name, value, why })
    })
}

/// Generates text before an option, and whether it is valid.
fn text_before() -> impl Strategy<Value = (String, bool)> {
    let line = select(vec![
        "Description=a\n",
        "# note\n",
        "\n",
        "X-Mine=\\\n two\n",
        "Documentation=man:a(1) \\\n# within\n  man:b(1)\n",
        "After=b.service\n",
    ]);
    let good = vec(line, 0..5).prop_map(|lines| format!("[Unit]\n{}", lines.concat()));
    prop_oneof![
        good.prop_map(|text| (text, true)),
        sections().prop_map(|texts| (texts.concat(), false)),
    ]
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn section_order_does_not_matter([a, b, c] in sections()) {
        let name: UnitName = "web@1.service".parse().unwrap();
        let there = read(&name, &[&a, &b, &c]);
        for other in [[&b, &a, &c], [&c, &b, &a], [&a, &c, &b], [&b, &c, &a]] {
            prop_assert_eq!(read(&name, &other), there.clone());
        }
    }

    // Holds: G-31
    #[test]
    fn any_file_compiles_or_is_refused_with_reasons(
        name in strategies::unit_name(),
        file in strategies::unit_file(),
        parts in sections(),
    ) {
        let (mixed, _) = UnitFile::parse_collecting(parts.concat());
        for file in [file, mixed] {
            match compile(&name, &file, &site()) {
                Ok(it) => {
                    let linked = link(&[it], &ExternalUnits::default());
                    prop_assert_eq!(linked.units.len() + linked.refused.len(), 1);
                }
                Err(refusals) => {
                    prop_assert!(!refusals.all.is_empty());
                    let lines = file.source().split(|byte| *byte == b'\n').count();
                    for place in refusals.all.iter().filter_map(|it| it.position.as_ref()) {
                        prop_assert!((1..=lines).contains(&place.line), "{place}");
                    }
                }
            }
        }
    }

    // Holds: G-31
    #[test]
    fn refusal_names_the_line_of_the_option(
        Impossible { section, name, value, why } in impossible(),
        (before, sound) in text_before(),
    ) {
        let (unit, rest) = match section {
            "Path" => ("web.path", "PathExists=/a\n"),
            "Socket" => ("web.socket", "ListenStream=@a\n"),
            "Timer" => ("web.timer", "OnBootSec=1\n"),
            "Service" => ("web.service", "ExecStart=/bin/true\n"),
            _ => ("web.service", "[Service]\nExecStart=/bin/true\n"),
        };
        let text = format!("{before}[{section}]\n{name}={value}\n{rest}");
        let (file, _) = UnitFile::parse_collecting(&text);
        let Err(refusals) = compile(&unit.parse().unwrap(), &file, &site()) else {
            return Err(TestCaseError::fail(text));
        };
        let option = format!("{section}.{name}");
        let line = before.matches('\n').count() + 2;
        let place = OptionPosition { line, column: 1, option };
        let expected = UnitRefusal {
            position: Some(place),
            cause: RefusalCause::Setting,
            group: Some(why.group),
            problem: why.reason.to_owned(),
        };
        prop_assert!(refusals.all.contains(&expected), "{text}{refusals}");
        prop_assert!(!sound || refusals.all.len() == 1, "{text}{refusals}");
    }
}
