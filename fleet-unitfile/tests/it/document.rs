//! Edits of many options, edits of sections, and the normal form.

use fleet_unitfile::syntax::Event;
use fleet_unitfile::{
    Editor, MergedUnit, OptionError, OptionErrorKind, OptionView, Reader, UnitFile, UnitName,
    UnitOption,
};
use proptest::prelude::*;

use crate::edit::edited;
use crate::properties::{config, source, triples};

fn unit(source: &str) -> UnitFile {
    UnitFile::parse(source).unwrap()
}

type Edit = for<'a, 'b> fn(&'a mut Editor<'b>) -> Result<&'a mut Editor<'b>, OptionError>;

/// Returns the text of a unit file after one edit.
fn text_after(unit: &UnitFile, edit: Edit) -> String {
    edited(unit, edit).unwrap().to_string()
}

/// Returns a new value for the option at one index only.
fn at_index(index: usize, value: &str) -> impl FnMut(OptionView<'_>) -> Option<String> {
    let mut indexes = 0..;
    move |_| (indexes.next() == Some(index)).then(|| value.to_owned())
}

/// Returns `false` for the option at one index only.
fn all_but(index: usize) -> impl FnMut(OptionView<'_>) -> bool {
    let mut indexes = 0..;
    move |_| indexes.next() != Some(index)
}

#[test]
fn option_is_changed_in_place() {
    let source = "[A]\n# one\nK = 1 \nK=2\n\n[B]\nK=3";
    let unit = unit(source);
    let after = |edit: Edit| text_after(&unit, edit);
    let text = after(|it| it.set_values(at_index(0, "9")));
    assert_eq!(text, "[A]\n# one\nK = 9\nK=2\n\n[B]\nK=3");
    let text = after(|it| it.set_values(at_index(2, "9")));
    assert_eq!(text, "[A]\n# one\nK = 1 \nK=2\n\n[B]\nK=9");
    let text = after(|it| it.rename("A", "K", "Long"));
    assert_eq!(text, "[A]\n# one\nLong = 1 \nLong=2\n\n[B]\nK=3");
    let text = after(|it| it.add("B", "L", "v"));
    assert_eq!(text, "[A]\n# one\nK = 1 \nK=2\n\n[B]\nK=3\nL=v");
    let text = after(|it| Ok(it.retain(all_but(1))));
    assert_eq!(text, "[A]\n# one\nK = 1 \n\n[B]\nK=3");
    let text = after(|it| it.add("A", "K", "4"));
    assert_eq!(text, "[A]\n# one\nK = 1 \nK=2\nK=4\n\n[B]\nK=3");
    let error = edited(&unit, |it| it.rename("A", "K", "#K")).unwrap_err();
    assert_eq!(error.kind(), OptionErrorKind::Name);
}

#[test]
fn refused_or_dropped_edits_leave_the_file_unchanged() {
    let mut unit = unit("[A]\nK=1\n");
    let mut editor = unit.edit();
    editor.remove("A", "K");
    assert!(editor.set("A", "L", "1\n2").is_err());
    assert_eq!(unit.to_string(), "[A]\nK=1\n");
    let mut editor = unit.edit();
    for value in ["2", "3"] {
        editor.add("A", "K", value).unwrap();
    }
    editor.remove_section("B").apply();
    assert_eq!(unit.to_string(), "[A]\nK=1\nK=2\nK=3\n");
}

#[test]
fn edits_use_the_line_ends_of_the_file() {
    let unit = unit("[A]\r\nK=1\r\n[B]\r\n");
    let text = text_after(&unit, |it| it.add("A", "L", "2"));
    assert_eq!(text, "[A]\r\nK=1\r\nL=2\r\n[B]\r\n");
    let text = text_after(&unit, |it| it.set("B", "L", "2"));
    assert_eq!(text, "[A]\r\nK=1\r\n[B]\r\nL=2\r\n");
}

#[test]
fn sections_are_added_renamed_and_removed() {
    let source = "# top\n[A]\nK=1\n# in A\nL=2\n# about B\n\n[B]\nK=3\n\n[A]\n\n# end\n";
    let unit = unit(source);
    let after = |edit: Edit| text_after(&unit, edit);
    assert_eq!(after(|it| it.add_section("B")), source);
    assert_eq!(after(|it| it.add_section("C")), format!("{source}\n[C]\n"));
    let renamed = after(|it| it.rename_section("A", "Z"));
    assert_eq!(renamed, source.replace("[A]", "[Z]"));
    let without = after(|it| Ok(it.remove_section("A")));
    assert_eq!(without, "# top\n# about B\n\n[B]\nK=3\n\n# end\n");
    let without = after(|it| Ok(it.remove_section("B")));
    assert_eq!(without, "# top\n[A]\nK=1\n# in A\nL=2\n# about B\n\n[A]\n\n# end\n");
    assert_eq!(after(|it| Ok(it.remove_section("C"))), source);
    let error = edited(&unit, |it| it.add_section("a]b")).unwrap_err();
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

type Triple = (String, String, String);

type Triples = Vec<Triple>;

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
        if let Ok(edited) = edited(&unit, |it| it.set_values(at_index(at, &value))) {
            let expected = changed(&unit, |it| it[at].2.clone_from(&new));
            prop_assert_eq!(triples(&edited), expected);
        }
        let (section, old_name) = (old.section(), old.name());
        if let Ok(edited) = edited(&unit, |it| it.rename(section, old_name, &name)) {
            let is_old = |it: &&mut Triple| it.0 == section && it.1 == old_name;
            let expected = changed(&unit, |it| {
                it.iter_mut().filter(is_old).for_each(|it| it.1.clone_from(&name));
            });
            prop_assert_eq!(triples(&edited), expected);
        }
        let expected = changed(&unit, |it| drop(it.remove(at)));
        let edited = edited(&unit, |it| Ok(it.retain(all_but(at)))).unwrap();
        prop_assert_eq!(triples(&edited), expected);
    }

    #[test]
    fn section_edits_leave_other_sections_unchanged(source in source()) {
        let (unit, _) = UnitFile::parse_collecting(&source);
        let without = edited(&unit, |it| Ok(it.remove_section("A"))).unwrap();
        prop_assert!(!without.has_section("A"));
        prop_assert_eq!(triples(&without), changed(&unit, |it| it.retain(|it| it.0 != "A")));
        let renamed = edited(&unit, |it| it.rename_section("A", "Z y")).unwrap();
        let expected = changed(&unit, |it| {
            it.iter_mut().filter(|it| it.0 == "A").for_each(|it| it.0 = "Z y".to_owned());
        });
        prop_assert_eq!(triples(&renamed), expected);
        let added = edited(&unit, |it| it.add_section("C")).unwrap();
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
