//! Units made up by chance: a unit file with drop-ins, in many layouts.

use fleet_unitfile::{UnitName, UnitType, drop_in_directories, strategies, unescape};

use crate::dice::Dice;
use crate::known::{Known, known, needed, section};

/// A file, by its whole path in the machine.
pub(crate) type File = (String, Vec<u8>);

/// A unit and the files that it is made of.
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

/// The drop-ins of all units of a type, harmless to those that systemd itself brings.
pub(crate) fn shared(dice: &mut Dice) -> Vec<File> {
    let mut files = Vec::new();
    for (at, directory) in DIRECTORIES.iter().take(2).enumerate() {
        for unit_type in ["service", "timer", "target"] {
            if dice.once_in(2) {
                continue;
            }
            let text = format!("[Unit]\nDocumentation=man:all-{unit_type}({at})\nRefuse=1\n");
            let name = dice.pick(&["10-all.conf", "50-x.conf", "all.conf"]);
            files.push((format!("{directory}/{unit_type}.d/{name}"), text.into_bytes()));
        }
    }
    files
}

/// One unit, whose name no other number has.
pub(crate) fn case(dice: &mut Dice, number: usize) -> Case {
    let name = name(dice, number);
    let known = known(name.unit_type());
    let main = main_file(dice, &name, &known);
    let directory = dice.pick(&DIRECTORIES);
    let own = match name.template() {
        Some(template) if !dice.once_in(4) => template,
        _ => name.clone(),
    };
    let mut files = vec![(format!("{directory}/{own}"), main)];
    if dice.once_in(12) {
        // The first directory hides what the others have.
        files.push((format!("{}/{own}", dice.pick(&DIRECTORIES)), main_file(dice, &name, &known)));
    }
    if dice.once_in(3) {
        for _ in 0..=dice.below(3) {
            files.push(drop_in(dice, &name, &known));
        }
    }
    // Of two files in one place the machine has the last alone.
    let mut paths: std::collections::BTreeMap<String, Vec<u8>> = files.into_iter().collect();
    let files = std::mem::take(&mut paths).into_iter().collect();
    Case { name, files }
}

fn name(dice: &mut Dice, number: usize) -> UnitName {
    let unit_type =
        if dice.once_in(3) { TYPES[dice.below(TYPES.len())] } else { UnitType::Service };
    let stem = format!("q{number}{}", dice.pick(&STEMS));
    let stem = match (unit_type, dice.below(3)) {
        (UnitType::Mount, _) => format!("q{number}-srv"),
        (UnitType::Slice, _) => format!("q{number}"),
        (_, 0) => format!("{stem}@{}", dice.pick(&INSTANCES)),
        (UnitType::Service, 1) => {
            let other = dice.draw(&strategies::unit_name());
            let other = other.stem().trim_end_matches('@').to_owned();
            format!("q{number}-{other}")
        }
        _ => stem,
    };
    // Not all that is made up is a name.
    let parsed = UnitName::parse(&format!("{stem}.{unit_type}"));
    // The bus tells no text that is not UTF-8, as a name may stand for; and of a systemd 252 that
    // looks for what follows a dash at the end, as `%J` stands for, nothing is left.
    let can_be_told = |it: &UnitName| {
        let stands_for = unescape(it.stem());
        !it.prefix().ends_with('-') && stands_for.is_ok_and(|it| !it.contains('\0'))
    };
    parsed
        .ok()
        .filter(can_be_told)
        .unwrap_or_else(|| UnitName::parse(&format!("q{number}.service")).expect("a name"))
}

fn main_file(dice: &mut Dice, name: &UnitName, known: &[&Known]) -> Vec<u8> {
    if dice.once_in(80) {
        return Vec::new();
    }
    let needed = needed(name.unit_type(), name.as_str());
    if dice.once_in(10) {
        let strange = dice.draw(&strategies::damaged_unit_file());
        return [needed.into_bytes(), strange].concat();
    }
    let mut text = String::new();
    if dice.once_in(30) {
        text.push('\u{feff}');
    }
    let is_needed = name.unit_type() == UnitType::Target;
    if is_needed || !dice.once_in(40) {
        text.push_str(&needed);
    }
    options(dice, &mut text, known);
    finish(dice, text)
}

fn drop_in(dice: &mut Dice, name: &UnitName, known: &[&Known]) -> File {
    let named = drop_in_directories(name);
    let folder = &named[dice.below(named.len())];
    let directory = dice.pick(&DIRECTORIES);
    let file = dice.pick(&["10-a.conf", "50-x.conf", "a.conf", "b.conf", "z", ".h.conf", "Z.conf"]);
    let mut text = String::new();
    if !dice.once_in(15) {
        options(dice, &mut text, known);
    }
    (format!("{directory}/{folder}/{file}"), finish(dice, text))
}

fn options(dice: &mut Dice, text: &mut String, known: &[&Known]) {
    let mut section = "";
    for _ in 0..=dice.below(9) {
        text.push_str(dice.pick(&[
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
        let it = known[dice.below(known.len())];
        if it.section != section || dice.once_in(5) {
            section = it.section;
            text.push_str(dice.pick(&["", "", "", " "]));
            text.push_str(&format!("[{section}]{}\n", dice.pick(&["", "", "", " ", "\t"])));
        }
        option(dice, text, it);
    }
    if dice.once_in(25) {
        text.push_str(dice.pick(STRANGE));
    }
}

/// Lines that systemd ignores, and some for which it stops.
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

fn option(dice: &mut Dice, text: &mut String, known: &Known) {
    let value = match dice.below(14) {
        0 => String::new(),
        _ => known.kind.value(dice),
    };
    let value = if dice.once_in(5) { folded(dice, &value) } else { value };
    let equals = dice.pick(&["=", "=", "=", " = ", "= ", "\t=", "=\t"]);
    let end = dice.pick(&["\n", "\n", "\n", "\n", " \n", "\t \n"]);
    text.push_str(&format!("{}{equals}{value}{end}", known.option));
}

/// The same value on several lines.
fn folded(dice: &mut Dice, value: &str) -> String {
    let mut folded = String::new();
    for (at, word) in value.split(' ').enumerate() {
        if at > 0 {
            folded.push_str(dice.pick(&[
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

fn finish(dice: &mut Dice, mut text: String) -> Vec<u8> {
    match dice.below(20) {
        0 => text = text.replace('\n', "\r\n"),
        1 => text = text.trim_end_matches('\n').to_owned(),
        2 => text.push_str("[Unit]\nDescription=open \\"),
        3 => text = text.replace('\n', "\r"),
        4 => text.push_str("# end \\\n\\\n"),
        _ => {}
    }
    text.into_bytes()
}

/// A unit of a type that says nothing but what it has to.
pub(crate) fn plain(unit_type: UnitType, options: &str) -> Case {
    let name = format!("plain-{}{unit_type}.{unit_type}", options.len());
    let text = format!("{}{options}", needed(unit_type, &name));
    let name = UnitName::parse(&name).expect("a name");
    let path = format!("{}/{name}", DIRECTORIES[0]);
    debug_assert!(TYPES.contains(&unit_type) && !section(unit_type).is_empty());
    Case { name, files: vec![(path, text.into_bytes())] }
}
