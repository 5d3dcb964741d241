//! Proptest strategies for names, options and files, for property tests of dependent crates.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::file::UnitFile;
use crate::file::option::UnitOption;
use crate::name::{UnitName, UnitType};

/// Generates valid names of every type: plain names, templates and instances.
///
/// ```
/// use fleet_unitfile::strategies;
/// use proptest::prelude::*;
///
/// proptest!(|(name in strategies::unit_name())| {
///     prop_assert!(name.as_str().ends_with(name.unit_type().as_str()));
/// });
/// ```
pub fn unit_name() -> impl Strategy<Value = UnitName> {
    let part = r"([a-zA-Z0-9:_.\-]|\\x[0-9a-f]{2}){1,12}";
    let instance = prop_oneof![
        2 => Just(None),
        1 => Just(Some(String::new())),
        2 => part.prop_map(Some),
    ];
    (part, instance, select(UnitType::ALL.to_vec())).prop_map(|(prefix, instance, unit_type)| {
        let stem = match instance {
            Some(instance) if unit_type.may_be_template() => format!("{prefix}@{instance}"),
            _ => prefix,
        };
        UnitName::parse(&format!("{stem}.{unit_type}")).expect("made by the rules of names")
    })
}

/// Generates options that can be written, with values of one or several lines. The sections have
/// only five different names, so that several options often share a section.
pub fn unit_option() -> impl Strategy<Value = UnitOption> {
    let section = select(vec!["Unit", "Service", "Install", "Socket", "X-Any"]);
    let name = "[A-Z][A-Za-z]{0,11}";
    let line = "[ a-zA-Z0-9=/%$\"'#;,.ä-]{0,24}";
    let value = vec(line, 1..4).prop_map(|lines| lines.join(" \\\n"));
    let written = (section, name, value);
    written
        .prop_map(|(section, name, value)| UnitOption::new(section, name, value))
        .prop_filter("the option has to read back", |option| {
            UnitFile::from_options([option.clone()]).is_ok()
        })
}

/// Generates valid unit files in varied layouts. The files differ in comments, blank lines, blanks
/// around `=`, repeated section headers, and line ends.
pub fn unit_file() -> impl Strategy<Value = UnitFile> {
    let between = select(vec!["", "\n", "# note\n", "; note\n\n", "  # [No]\n"]);
    let spacing = select(vec!["=", " = ", "= ", "\t="]);
    let part = (unit_option(), between, spacing, any::<bool>());
    (vec(part, 0..12), select(vec!["\n", "\r\n"])).prop_map(|(parts, line_end)| {
        let mut text = String::new();
        let mut section = String::new();
        for (option, between, spacing, again) in parts {
            text.push_str(between);
            if again || section != option.section() {
                section = option.section().to_owned();
                text.push_str(&format!("[{section}]\n"));
            }
            text.push_str(&format!("{}{spacing}{}\n", option.name(), option.verbatim()));
        }
        UnitFile::parse(text.replace('\n', line_end)).expect("made by the rules of unit files")
    })
}

/// Generates sources that are valid or nearly valid. They are unit files with a few bytes removed,
/// and with a few significant pieces inserted, such as brackets and backslashes.
pub fn damaged_unit_file() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => select(vec!["[", "]", "=", "\\", "\\\n", "\n", "\r", "\0", "#", ";", " ", "\u{feff}"])
            .prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..4),
    ];
    let change = (any::<prop::sample::Index>(), 0..3_usize, piece);
    (unit_file(), vec(change, 0..4)).prop_map(|(unit, changes)| {
        let mut source = unit.source().to_vec();
        for (at, cut, piece) in changes {
            let at = at.index(source.len() + 1);
            let end = source.len().min(at + cut);
            source.splice(at..end, piece);
        }
        source
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::diagnostic::Severity;
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    fn sample<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, count: usize) -> Vec<T> {
        let mut runner = TestRunner::deterministic();
        let mut one = || strategy.new_tree(&mut runner).expect("values can be made").current();
        std::iter::repeat_with(&mut one).take(count).collect()
    }

    #[test]
    fn generated_names_cover_every_kind() {
        let names = sample(unit_name(), 400);
        assert!(names.iter().any(UnitName::is_template));
        assert!(names.iter().any(UnitName::is_instance));
        let types: std::collections::BTreeSet<_> = names.iter().map(UnitName::unit_type).collect();
        assert_eq!(types.len(), UnitType::ALL.len());
    }

    #[test]
    fn generated_files_are_valid_and_damaged_ones_partly() {
        let units = sample(unit_file(), 100);
        assert!(units.iter().any(|unit| unit.options().len() > 4));
        let sources = sample(damaged_unit_file(), 200);
        let is_error = |source: &Vec<u8>| {
            let (_, diagnostics) = UnitFile::parse_collecting(source);
            diagnostics.iter().any(|it| it.severity() == Severity::Error)
        };
        let broken = sources.iter().filter(|source| is_error(source)).count();
        assert!((20..180).contains(&broken), "{broken} of 200 are broken");
    }
}
