//! Randomly generated units: a unit file with drop-ins, in many layouts.

use fleet_unitfile::escape::unescape;
use fleet_unitfile::tree::drop_in_directories;
use fleet_unitfile::{UnitName, UnitType, strategies};

use crate::options::{ComparedOption, known, needed, section};
use crate::random::Random;

/// A file, with its absolute path in the machine.
pub(crate) type File = (String, Vec<u8>);

/// A unit and its files.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: UnitName,
    pub(crate) files: Vec<File>,
}

const DIRECTORIES: [&str; 3] =
    ["/run/systemd/system", "/etc/systemd/system", "/usr/local/lib/systemd/system"];
const STEMS: [&str; 8] = ["", "-a", "-a-b", r"-a\x2db", ".x", ":1", "_y", "-a--b"];
const INSTANCES: [&str; 8] = ["1", "a-b", r"a\x20b", "x@y", ".z", r"-dev-s\x2da", "ä", "0:1"];
const TYPES: [UnitType; 7] = [
    UnitType::Service,
    UnitType::Socket,
    UnitType::Timer,
    UnitType::Path,
    UnitType::Mount,
    UnitType::Slice,
    UnitType::Target,
];

/// Generates drop-ins for all units of a type, harmless to systemd's own units.
pub(crate) fn shared(random: &mut Random) -> Vec<File> {
    let mut files = Vec::new();
    for (at, directory) in DIRECTORIES.iter().take(2).enumerate() {
        for unit_type in ["service", "timer", "target"] {
            if random.once_in(2) {
                continue;
            }
            let text = format!("[Unit]\nDocumentation=man:all-{unit_type}({at})\nRefuse=1\n");
            let name = random.pick(&["10-all.conf", "50-x.conf", "all.conf"]);
            files.push((format!("{directory}/{unit_type}.d/{name}"), text.into_bytes()));
        }
    }
    files
}

/// Generates a unit. Its name contains the number, so that the name is unique.
pub(crate) fn case(random: &mut Random, number: usize) -> Case {
    let name = name(random, number);
    let known = known(name.unit_type());
    let main = main_file(random, &name, &known);
    let directory = random.pick(&DIRECTORIES);
    let own = match name.template() {
        Some(template) if !random.once_in(4) => template,
        _ => name.clone(),
    };
    let mut files = vec![(format!("{directory}/{own}"), main)];
    if random.once_in(12) {
        // The first directory hides the others.
        files.push((
            format!("{}/{own}", random.pick(&DIRECTORIES)),
            main_file(random, &name, &known),
        ));
    }
    if random.once_in(3) {
        for _ in 0..=random.below(3) {
            files.push(drop_in(random, &name, &known));
        }
    }
    // Of two files with one path, the machine only has the last.
    let mut paths: std::collections::BTreeMap<String, Vec<u8>> = files.into_iter().collect();
    let files = std::mem::take(&mut paths).into_iter().collect();
    Case { name, files }
}

fn name(random: &mut Random, number: usize) -> UnitName {
    let unit_type =
        if random.once_in(3) { TYPES[random.below(TYPES.len())] } else { UnitType::Service };
    let stem = format!("q{number}{}", random.pick(&STEMS));
    let stem = match (unit_type, random.below(3)) {
        (UnitType::Mount, _) => format!("q{number}-srv"),
        (UnitType::Slice, _) => format!("q{number}"),
        (_, 0) => format!("{stem}@{}", random.pick(&INSTANCES)),
        (UnitType::Service, 1) => {
            let other = random.draw(&strategies::unit_name());
            let other = other.stem().trim_end_matches('@').to_owned();
            format!("q{number}-{other}")
        }
        _ => stem,
    };
    // Not every generated text is a valid name.
    let parsed = UnitName::parse(&format!("{stem}.{unit_type}"));
    // D-Bus cannot transport invalid UTF-8, which a name may unescape to. systemd 252 cannot expand
    // `%J` for a prefix that ends in a dash.
    let can_be_told = |it: &UnitName| {
        let stands_for = unescape(it.stem());
        !it.prefix().ends_with('-') && stands_for.is_ok_and(|it| !it.contains('\0'))
    };
    parsed
        .ok()
        .filter(can_be_told)
        .unwrap_or_else(|| UnitName::parse(&format!("q{number}.service")).expect("a name"))
}

fn main_file(random: &mut Random, name: &UnitName, known: &[&ComparedOption]) -> Vec<u8> {
    if random.once_in(80) {
        return Vec::new();
    }
    let needed = needed(name.unit_type(), name.as_str());
    if random.once_in(10) {
        let strange = random.draw(&strategies::damaged_unit_file());
        return [needed.into_bytes(), strange].concat();
    }
    let mut text = String::new();
    if random.once_in(30) {
        text.push('\u{feff}');
    }
    let is_needed = name.unit_type() == UnitType::Target;
    if is_needed || !random.once_in(40) {
        text.push_str(&needed);
    }
    options(random, &mut text, known);
    finish(random, text)
}

fn drop_in(random: &mut Random, name: &UnitName, known: &[&ComparedOption]) -> File {
    let named = drop_in_directories(name);
    let folder = &named[random.below(named.len())];
    let directory = random.pick(&DIRECTORIES);
    let file =
        random.pick(&["10-a.conf", "50-x.conf", "a.conf", "b.conf", "z", ".h.conf", "Z.conf"]);
    let mut text = String::new();
    if !random.once_in(15) {
        options(random, &mut text, known);
    }
    (format!("{directory}/{folder}/{file}"), finish(random, text))
}

fn options(random: &mut Random, text: &mut String, known: &[&ComparedOption]) {
    let mut section = "";
    for _ in 0..=random.below(9) {
        text.push_str(random.pick(&[
            "",
            "",
            "",
            "",
            "\n",
            "# note\n",
            "; note\n",
            "  # [No]\n",
            "\t\n",
        ]));
        let it = known[random.below(known.len())];
        if it.section != section || random.once_in(5) {
            section = it.section;
            text.push_str(random.pick(&["", "", "", " "]));
            text.push_str(&format!("[{section}]{}\n", random.pick(&["", "", "", " ", "\t"])));
        }
        option(random, text, it);
    }
    if random.once_in(25) {
        text.push_str(random.pick(STRANGE));
    }
}

/// Lines that systemd ignores, and some at which it stops.
const STRANGE: &[&str] = &[
    "[Foreign]\nA=b\n",
    "[X-Fleet]\nMachineOf=x\n",
    "[Install]\nWantedBy=multi-user.target\n",
    "noequals\n",
    "=novalue\n",
    "[Unit\nDescription=cut\n",
    "[]\nDescription=none\n",
    "[Unit]x\nDescription=more\n",
    "[Un\"it]\nDescription=quote\n",
    "Unknown=1\n",
    "[unit]\nDescription=case\n",
    "[Service]\ndescription=case\n",
    "[Unit] # note\nDescription=note\n",
    "[Unit]\nDescription=\u{fffe}\n",
    "\\\n[Unit]\nDescription=swallowed\n",
    "[ Unit ]\nDescription=blanks\n",
    "[[Unit]]\nDescription=twice\n",
];

fn option(random: &mut Random, text: &mut String, known: &ComparedOption) {
    let value = match random.below(14) {
        0 => String::new(),
        _ => known.kind.value(random),
    };
    let value = if random.once_in(5) { folded(random, &value) } else { value };
    let equals = random.pick(&["=", "=", "=", " = ", "= ", "\t=", "=\t"]);
    let end = random.pick(&["\n", "\n", "\n", "\n", " \n", "\t \n"]);
    text.push_str(&format!("{}{equals}{value}{end}", known.option));
}

/// Spreads a value over several lines.
fn folded(random: &mut Random, value: &str) -> String {
    let mut folded = String::new();
    for (at, word) in value.split(' ').enumerate() {
        if at > 0 {
            folded.push_str(random.pick(&[
                " ",
                " ",
                "\\\n",
                " \\\n  ",
                "\\\n# note\n",
                " \\\n  ; note = \\\n\\\n ",
                "\\\n\t",
            ]));
        }
        folded.push_str(word);
    }
    folded
}

fn finish(random: &mut Random, mut text: String) -> Vec<u8> {
    match random.below(20) {
        0 => text = text.replace('\n', "\r\n"),
        1 => text = text.trim_end_matches('\n').to_owned(),
        2 => text.push_str("[Unit]\nDescription=open \\"),
        3 => text = text.replace('\n', "\r"),
        4 => text.push_str("# end \\\n\\\n"),
        _ => {}
    }
    text.into_bytes()
}

/// A unit of a type with its required options only.
pub(crate) fn plain(unit_type: UnitType, options: &str) -> Case {
    let name = format!("plain-{}{unit_type}.{unit_type}", options.len());
    let text = format!("{}{options}", needed(unit_type, &name));
    let name = UnitName::parse(&name).expect("a name");
    let path = format!("{}/{name}", DIRECTORIES[0]);
    debug_assert!(TYPES.contains(&unit_type) && !section(unit_type).is_empty());
    Case { name, files: vec![(path, text.into_bytes())] }
}
