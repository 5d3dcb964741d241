//! Edits by index, edits of sections, and the normal form.

use fleet_unitfile::{
    Event, MergedUnit, OptionError, OptionErrorKind, OptionView, Reader, UnitFile, UnitName,
    UnitOption,
};
use proptest::prelude::*;

use crate::properties::{config, source, triples};

fn unit(source: &str) -> UnitFile {
    UnitFile::parse(source).unwrap()
}

#[test]
fn option_is_changed_in_place() {
    let source = "[A]\n# one\nK = 1 \nK=2\n\n[B]\nK=3";
    let edited = |unit: UnitFile| unit.source_str().unwrap().to_owned();
    let unit = unit(source);
    let check = |result: Result<UnitFile, OptionError>, expected: &str| {
        assert_eq!(edited(result.unwrap()), expected);
    };
    check(unit.with_value_at(0, "9"), "[A]\n# one\nK = 9\nK=2\n\n[B]\nK=3");
    check(unit.with_value_at(2, "9"), "[A]\n# one\nK = 1 \nK=2\n\n[B]\nK=9");
    check(unit.with_name_at(0, "Long"), "[A]\n# one\nLong = 1 \nK=2\n\n[B]\nK=3");
    check(unit.with_after(0, "L", "v"), "[A]\n# one\nK = 1 \nL=v\nK=2\n\n[B]\nK=3");
    check(unit.with_after(2, "L", "v"), "[A]\n# one\nK = 1 \nK=2\n\n[B]\nK=3\nL=v");
    check(Ok(unit.without_at(1)), "[A]\n# one\nK = 1 \n\n[B]\nK=3");
    let added = unit.with_added(UnitOption::new("A", "K", "4"));
    check(added, "[A]\n# one\nK = 1 \nK=2\nK=4\n\n[B]\nK=3");
    let error = unit.with_name_at(0, "#K").unwrap_err();
    assert_eq!(error.kind(), OptionErrorKind::Name);
}

#[test]
fn edits_use_the_line_ends_of_the_file() {
    let unit = unit("[A]\r\nK=1\r\n[B]\r\n");
    let edited = unit.with_after(0, "L", "2").unwrap();
    assert_eq!(edited.source_str(), Some("[A]\r\nK=1\r\nL=2\r\n[B]\r\n"));
    let edited = unit.with(UnitOption::new("B", "L", "2")).unwrap();
    assert_eq!(edited.source_str(), Some("[A]\r\nK=1\r\n[B]\r\nL=2\r\n"));
}

#[test]
fn sections_are_added_renamed_and_removed() {
    let source = "# top\n[A]\nK=1\n# in A\nL=2\n# about B\n\n[B]\nK=3\n\n[A]\n\n# end\n";
    let unit = unit(source);
    let text = |unit: UnitFile| unit.source_str().unwrap().to_owned();
    assert_eq!(text(unit.with_section("B").unwrap()), source);
    assert_eq!(text(unit.with_section("C").unwrap()), format!("{source}\n[C]\n"));
    assert_eq!(text(unit.with_section_renamed("A", "Z").unwrap()), source.replace("[A]", "[Z]"));
    assert_eq!(text(unit.without_section("A")), "# top\n# about B\n\n[B]\nK=3\n\n# end\n");
    assert_eq!(
        text(unit.without_section("B")),
        "# top\n[A]\nK=1\n# in A\nL=2\n# about B\n\n[A]\n\n# end\n"
    );
    assert_eq!(text(unit.without_section("C")), source);
    let error = unit.with_section("a]b").unwrap_err();
    assert_eq!(error.kind(), OptionErrorKind::Section);
    let message = error.to_string();
    assert!(message.starts_with("section \"a]b\" cannot be written: use a name "), "{message}");
}

#[test]
fn formatting_keeps_options_and_comments() {
    for (source, expected) in [
        ("", ""),
        ("\u{feff}\n\n[A]\n\n\nK = v \n", "[A]\nK=v\n"),
        ("[A]\nK=v\n[B]\n[C]\n# c\nK=v", "[A]\nK=v\n\n[B]\n\n[C]\n# c\nK=v\n"),
        ("[A]\n#c\n\n\n;d\n  # e\n[B]", "[A]\n#c\n\n;d\n# e\n[B]\n"),
        (" K  = a \\ \n[A]\nL = b \\\n   # c\n   d  \n", "K=a \\ \n\n[A]\nL=b \\\n   # c\n   d\n"),
        ("[A]\nK=a \\\n\n\n\nL=b", "[A]\nK=a \\\n\n\nL=b\n"),
        ("[A]\nK=a \\\n# end\n", "[A]\nK=a \\\n# end\n"),
        ("[A\n no\n = v", "[A\nno\n=v\n"),
        ("[A]\n \u{feff}K = v\n", "[A]\n \u{feff}K=v\n"),
        ("\u{feff}# c\n[A]\n", "\u{feff}# c\n\n[A]\n"),
        ("\u{feff}\n[A]\n\u{feff}K = v\n", "\u{feff}\n\n[A]\n\u{feff}K=v\n"),
        ("[A]\nK=a \\\n\u{feff}#b\n", "[A]\nK=a \\\n\u{feff}#b\n"),
    ] {
        let (unit, _) = UnitFile::parse_collecting(source);
        assert_eq!(unit.formatted().source_str(), Some(expected), "{source:?}");
    }
}

#[test]
fn empty_value_resets_a_list() {
    let unit = unit("[A]\nK=1\nL=\nK=2\nK=\nK=3\n[B]\nK=\n[A]\nK=4\n");
    let effective = |section, name| {
        let values = unit.effective(section, name).map(OptionView::value);
        values.collect::<Vec<_>>()
    };
    assert_eq!(effective("A", "K"), ["3", "4"]);
    assert!(effective("A", "L").is_empty() && effective("B", "K").is_empty());
    assert!(effective("A", "M").is_empty());
}

#[test]
fn empty_value_resets_the_same_lists_as_in_systemd() {
    let effective = |section: &str, lines: &str, name: &str| {
        let source = format!("[{section}]\n{}\n", lines.replace(' ', "\n"));
        let alone = unit(&source);
        let found: Vec<_> = alone.effective(section, name).map(OptionView::value).collect();
        let merged = MergedUnit::select(
            UnitName::parse("a.service").unwrap(),
            &["/u"],
            [("/u/a.service".to_owned(), alone.clone())],
        );
        let merged = merged.effective(section, name);
        assert!(merged.map(|it| it.option.value()).eq(found.iter().copied()), "{source}");
        found.join(" ")
    };
    for (section, lines, name, expected) in [
        // Dependencies are never reset.
        ("Unit", "After=a After= After=b", "After", "a b"),
        ("Unit", "RequiresMountsFor=/a RequiresMountsFor=", "RequiresMountsFor", "/a"),
        ("Service", "Sockets=a.socket Sockets=", "Sockets", "a.socket"),
        ("Install", "Also=a Also=", "Also", "a"),
        ("Install", "WantedBy=a WantedBy= WantedBy=b", "WantedBy", "b"),
        // Lists of several options are reset together.
        ("Unit", "ConditionHost=a ConditionUser=", "ConditionHost", ""),
        ("Unit", "AssertHost=a ConditionUser=", "AssertHost", "a"),
        ("Timer", "OnCalendar=daily OnBootSec= OnBootSec=1", "OnCalendar", ""),
        ("Timer", "OnCalendar=daily OnClockChange=", "OnCalendar", "daily"),
        ("Path", "PathExists=/a PathChanged=", "PathExists", ""),
        ("Socket", "ListenFIFO=/a ListenStream= ListenFIFO=/b", "ListenFIFO", "/b"),
        ("Service", "BindPaths=/a BindReadOnlyPaths=", "BindPaths", ""),
        ("Service", "Environment=A=1 PassEnvironment=", "Environment", "A=1"),
        // Older names refer to the same list.
        (
            "Service",
            "ReadWritePaths=/a ReadWriteDirectories=/b ReadWritePaths=/c",
            "ReadWritePaths",
            "/a /b /c",
        ),
        ("Socket", "ReadOnlyDirectories=/a ReadOnlyPaths=/b", "ReadOnlyDirectories", "/a /b"),
        ("Swap", "InaccessiblePaths=/a InaccessibleDirectories=", "InaccessiblePaths", ""),
        ("Mount", "InaccessiblePaths= InaccessibleDirectories=/a", "InaccessiblePaths", "/a"),
        ("Unit", "BindTo=a BindsTo= BindsTo=b", "BindsTo", "a b"),
        ("Unit", "PropagateReloadTo=a PropagatesReloadTo=b", "PropagatesReloadTo", "a b"),
        ("Unit", "PropagateReloadFrom=a ReloadPropagatedFrom=b", "ReloadPropagatedFrom", "a b"),
        ("X-Any", "BindTo=a BindsTo=b", "BindsTo", "b"),
        // Other sections have lists of their own.
        ("X-Any", "OnCalendar=daily OnBootSec=", "OnCalendar", "daily"),
    ] {
        assert_eq!(effective(section, lines, name), expected, "{lines}");
    }
}

type Triples = Vec<(String, String, String)>;

/// Returns the comments outside options, without surrounding blanks.
fn comments(unit: &UnitFile) -> Vec<Vec<u8>> {
    let comments = Reader::new(unit.source()).filter_map(|event| match event {
        Event::Comment { text, .. } => Some(text.trim_ascii().to_vec()),
        _ => None,
    });
    comments.collect()
}

fn changed(unit: &UnitFile, change: impl FnOnce(&mut Triples)) -> Triples {
    let mut triples = triples(unit);
    change(&mut triples);
    triples
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn edit_by_index_changes_one_option(
        source in source(),
        place in any::<prop::sample::Index>(),
        name in "[A-C#\\[]{1,2}",
        value in "[#\\\\ \nv]{0,6}",
    ) {
        let (unit, _) = UnitFile::parse_collecting(&source);
        if unit.options().is_empty() {
            return Ok(());
        }
        let at = place.index(unit.options().len());
        let old = unit.options().get(at).unwrap();
        let new = UnitOption::new(old.section(), &name, &value).value().to_owned();
        if let Ok(edited) = unit.with_value_at(at, &value) {
            let expected = changed(&unit, |it| it[at].2.clone_from(&new));
            prop_assert_eq!(triples(&edited), expected);
        }
        if let Ok(edited) = unit.with_name_at(at, &name) {
            let expected = changed(&unit, |it| it[at].1.clone_from(&name));
            prop_assert_eq!(triples(&edited), expected);
        }
        if let Ok(edited) = unit.with_after(at, &name, &value) {
            let added = (old.section().to_owned(), name.clone(), new);
            let expected = changed(&unit, |it| it.insert(at + 1, added));
            prop_assert_eq!(triples(&edited), expected);
        }
        let expected = changed(&unit, |it| drop(it.remove(at)));
        prop_assert_eq!(triples(&unit.without_at(at)), expected);
    }

    #[test]
    fn section_edits_leave_other_sections_unchanged(source in source()) {
        let (unit, _) = UnitFile::parse_collecting(&source);
        let without = unit.without_section("A");
        prop_assert!(!without.has_section("A"));
        prop_assert_eq!(triples(&without), changed(&unit, |it| it.retain(|it| it.0 != "A")));
        let renamed = unit.with_section_renamed("A", "Z y").unwrap();
        let expected = changed(&unit, |it| {
            it.iter_mut().filter(|it| it.0 == "A").for_each(|it| it.0 = "Z y".to_owned());
        });
        prop_assert_eq!(triples(&renamed), expected);
        let added = unit.with_section("C").unwrap();
        prop_assert!(added.has_section("C"));
        prop_assert_eq!(triples(&added), triples(&unit));
    }

    #[test]
    fn formatting_keeps_the_hash_and_is_idempotent(source in source()) {
        let (unit, diagnostics) = UnitFile::parse_collecting(&source);
        let formatted = unit.formatted();
        prop_assert_eq!(formatted.hash(), unit.hash());
        prop_assert!(formatted.sections().eq(unit.sections()));
        prop_assert_eq!(comments(&formatted), comments(&unit));
        prop_assert_eq!(&formatted.formatted(), &formatted);
        let (_, after) = UnitFile::parse_collecting(formatted.source());
        let kinds = |all: &[fleet_unitfile::Diagnostic]| {
            all.iter().map(fleet_unitfile::Diagnostic::kind).collect::<Vec<_>>()
        };
        prop_assert_eq!(kinds(&after), kinds(&diagnostics));
    }
}
