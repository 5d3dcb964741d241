//! The pure crates can reach no clock, environment, file, socket, process, thread or chance.

use crate::report::{Finding, settle};
use crate::rust::{Source, is_word, line_of, mentions, positions};
use crate::tree::{PURE, file, rust_files};

/// Modules of `std` that reach outside. Not `net`: an address is a value, a socket is not.
const OUTSIDE: [&str; 5] = ["env", "fs", "os", "process", "thread"];

/// Words of the same kind, and collections whose order differs from run to run.
const WORDS: [&str; 9] = [
    "Instant::now",
    "SystemTime",
    "TcpListener",
    "TcpStream",
    "ToSocketAddrs",
    "UdpSocket",
    "HashMap",
    "HashSet",
    "RandomState",
];

/// What the `clippy.toml` of a pure crate has to ban, tests included.
const BANS: [&str; 6] = [
    "std::env::var",
    "std::process::Command::new",
    "std::thread::spawn",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::collections::HashMap",
];

#[test]
fn pure_crates_forbid_unsafe_code() {
    let findings = PURE.iter().filter_map(|name| {
        let path = format!("{name}/src/lib.rs");
        let root = rust_files().iter().find(|file| file.path == path)?;
        let forbids = root.source.code().contains("#![forbid(unsafe_code)]");
        (!forbids).then(|| Finding::whole(&path, "does not forbid unsafe code"))
    });
    settle(findings.collect(), "add `#![forbid(unsafe_code)]`");
}

#[test]
fn pure_crates_have_their_bans() {
    let findings = PURE.iter().flat_map(|name| {
        let path = format!("{name}/clippy.toml");
        let bans = file(&path).map_or("", |file| file.text.as_str());
        let missing = BANS
            .iter()
            .filter(|ban| !bans.contains(&format!("\"{ban}\"")));
        let found = missing.map(|ban| Finding::whole(&path, format!("does not ban {ban}")));
        found.collect::<Vec<_>>()
    });
    settle(
        findings.collect(),
        "ban it in the crate's clippy.toml, with the reason",
    );
}

#[test]
fn pure_crates_reach_nothing_outside() {
    let pure = |path: &str| {
        PURE.iter()
            .any(|name| path.starts_with(&format!("{name}/src/")))
    };
    let sources = rust_files().iter().filter(|file| pure(&file.path));
    let findings = sources.flat_map(|file| reaches(&file.path, &file.source));
    settle(
        findings.collect(),
        "take it as an argument, or do it in a crate that may; for a map, use `BTreeMap`",
    );
}

fn reaches(path: &str, source: &Source) -> Vec<Finding> {
    let words = source.code_lines().flat_map(|(line, code)| {
        let found = WORDS.iter().filter(move |word| mentions(code, word));
        found.map(move |word| Finding::at(path, line, format!("`{word}`")))
    });
    let modules = std_modules(source.code()).into_iter();
    let modules = modules.filter(|(_, module)| OUTSIDE.contains(&module.as_str()));
    let modules = modules.map(|(line, module)| Finding::at(path, line, format!("`std::{module}`")));
    words.chain(modules).collect()
}

/// Every module of `std` that the code names, `use std::{fs, io}` included.
fn std_modules(code: &str) -> Vec<(usize, String)> {
    let starts = positions(code, "std").filter(|at| code[at + 3..].starts_with("::"));
    let named = starts.flat_map(|at| {
        let line = line_of(code, at);
        first_segments(&code[at + "std::".len()..])
            .into_iter()
            .map(move |name| (line, name))
    });
    named.collect()
}

/// The first name of a path, or of each path of a group in braces.
fn first_segments(path: &str) -> Vec<String> {
    let word = |text: &str| {
        text.trim()
            .chars()
            .take_while(|&c| is_word(c))
            .collect::<String>()
    };
    let Some(group) = path.strip_prefix('{') else {
        return vec![word(path)];
    };
    let outermost = group.chars().scan(1_u32, |depth, c| {
        *depth = match c {
            '{' => *depth + 1,
            '}' => *depth - 1,
            _ => *depth,
        };
        (*depth > 0).then_some((*depth, c))
    });
    let outermost: String = outermost
        .filter(|(depth, _)| *depth == 1)
        .map(|(_, c)| c)
        .collect();
    outermost.split(',').map(word).collect()
}

#[test]
fn what_reaches_outside_is_found() {
    let source = Source::new(
        "use std::{collections::{BTreeMap, HashMap}, fs, io};\n\
         use std::fmt;\n\
         fn f() { std::thread::yield_now(); }\n\
         fn env() -> SystemTime {}\n",
    );
    let found: Vec<_> = reaches("a.rs", &source)
        .into_iter()
        .map(|found| (found.line, found.what))
        .collect();
    let expected = [
        (1, "`HashMap`"),
        (4, "`SystemTime`"),
        (1, "`std::fs`"),
        (3, "`std::thread`"),
    ];
    assert_eq!(found, expected.map(|(line, what)| (line, what.to_owned())));
}
