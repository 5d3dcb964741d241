//! Edits of one option, which leave the rest of the source unchanged.

use fleet_unitfile::{Editor, OptionError, OptionErrorKind, UnitFile};

/// Returns a unit file after one edit.
pub(crate) fn edited(
    unit: &UnitFile,
    edit: impl for<'a, 'b> FnOnce(&'a mut Editor<'b>) -> Result<&'a mut Editor<'b>, OptionError>,
) -> Result<UnitFile, OptionError> {
    let mut unit = unit.clone();
    let mut editor = unit.edit();
    edit(&mut editor)?;
    editor.apply();
    Ok(unit)
}

fn set(unit: &UnitFile, name: &str, value: &str) -> Result<UnitFile, OptionError> {
    edited(unit, |it| it.set("A", name, value))
}

#[test]
fn option_is_set_in_its_section() {
    for (source, name, value, expected) in [
        ("", "K", "v", "[A]\nK=v\n"),
        ("# c", "K", "v", "# c\n\n[A]\nK=v\n"),
        ("\u{feff}", "K", "v", "\u{feff}[A]\nK=v\n"),
        ("[B]\r\nL=w\r\n", "K", "v", "[B]\r\nL=w\r\n\r\n[A]\r\nK=v\r\n"),
        ("[B]\r\nL=w", "K", "v", "[B]\r\nL=w\r\n\r\n[A]\r\nK=v\r\n"),
        ("[B]\nL=w\n", "K", "v", "[B]\nL=w\n\n[A]\nK=v\n"),
        ("[B]\nL=w \\\n# c\n", "K", "v", "[B]\nL=w \\\n# c\n\n[A]\nK=v\n"),
        ("[A]\n K = old  \n# c\n", "K", "v", "[A]\n K = v\n# c\n"),
        ("[A]\r\nK=1\r\nK=2\r\n;c\r\n", "K", "v", "[A]\r\nK=1\r\nK=v\r\n;c\r\n"),
        ("[A]\nK=\nL=w\n", "K", "v", "[A]\nK=v\nL=w\n"),
        ("[A]\nK=a \\\n#c\n b\nL=w\n", "K", "v", "[A]\nK=v\nL=w\n"),
        ("[A]\nK=a\nL=w\n", "K", "v \\\n  w", "[A]\nK=v \\\n  w\nL=w\n"),
        ("[A]\nK=\\\n a\n", "K", "#v", "[A]\nK=#v\n"),
        ("[A]\nL=w\n\n# c\n[B]\n", "K", "v", "[A]\nL=w\nK=v\n\n# c\n[B]\n"),
        ("[A]\nL=w \\", "K", "v", "[A]\nL=w \\\n\nK=v"),
        ("[A]\rK=a\r[B]\r", "K", "v \\\n", "[A]\rK=v \\\n\n\r[B]\r"),
        ("[A]\nL=w", "K", "v \\\n", "[A]\nL=w\nK=v \\\n"),
    ] {
        let unit = UnitFile::parse(source).unwrap();
        let edited = set(&unit, name, value).unwrap();
        assert_eq!(edited.source_str(), Some(expected), "{source:?}");
    }
}

#[test]
fn option_after_a_value_ended_by_an_empty_line_stays_apart() {
    for (source, expected) in [
        ("[A]\nL=w\\\r\r", "[A]\nL=w\\\r\rK=v\r"),
        ("[A]\nL=w\\\r\r\n", "[A]\nL=w\\\r\r\nK=v\r\n"),
        ("[A]\nL=w\\\n\n", "[A]\nL=w\\\n\nK=v\n"),
        ("[A]\\\r\r", "[A]\\\r\rK=v\r"),
    ] {
        let unit = UnitFile::parse_collecting(source).0;
        let edited = set(&unit, "K", "v").unwrap();
        assert_eq!(edited.source_str(), Some(expected), "{source:?}");
        assert_eq!(edited.get("A", "K"), Some("v"), "{source:?}");
    }
}

#[test]
fn name_ending_in_a_backslash_joins_no_old_line() {
    for (name, source, expected) in [
        ("K", "[A]\nK\\\n;c\n=v\nL=w\n", "[A]\nM\\=v\nL=w\n"),
        ("K", "[A]\nK \t= v\nL=w\n", "[A]\nM\\ \t= v\nL=w\n"),
    ] {
        let unit = UnitFile::parse(source).unwrap();
        let edited = edited(&unit, |it| it.rename("A", name, "M\\")).unwrap();
        assert_eq!(edited.source_str(), Some(expected), "{source:?}");
        assert_eq!(edited.get("A", "M\\"), Some("v"), "{source:?}");
    }
}

#[test]
fn option_is_removed_with_all_its_lines() {
    for (source, expected) in [
        ("[A]\n# c\n  K=v\nL=w\n", "[A]\n# c\nL=w\n"),
        ("[A]\r\nK=v\r\nL=w\r\nK=x\r\n", "[A]\r\nL=w\r\n"),
        ("[A]\nK=a \\\n#c\n b\n;d\n", "[A]\n;d\n"),
        ("[A]\nL=a \\\n\nK=v\nM=w\n", "[A]\nL=a \\\n\nM=w\n"),
        ("[A]\n \\\nK=v\n[B]\n", "[A]\n \\\n\n[B]\n"),
        ("[A]\nK=v", "[A]\n"),
        ("[B]\nK=v\n", "[B]\nK=v\n"),
    ] {
        let unit = UnitFile::parse(source).unwrap();
        let edited = edited(&unit, |it| Ok(it.remove("A", "K"))).unwrap();
        assert_eq!(edited.source_str(), Some(expected), "{source:?}");
    }
}

#[test]
fn edits_keep_the_byte_order_mark() {
    type Edit = fn(&UnitFile) -> UnitFile;
    let set = |unit: &UnitFile| set(unit, "K", "v").unwrap();
    let without = |unit: &UnitFile| edited(unit, |it| Ok(it.remove("A", "K"))).unwrap();
    let without_section = |unit: &UnitFile| edited(unit, |it| Ok(it.remove_section("A"))).unwrap();
    let rows: [(&str, Edit, &str); 8] = [
        ("[A]\n\u{feff}K=a\n", set, "[A]\n\u{feff}K=v\n"),
        ("[A]\nK=a \\\n\u{feff}b\n", set, "[A]\nK=v\n"),
        // The mark is gone, and the next one must stay text.
        ("[A]\nK=a \\\n\u{feff}b\n\u{feff}L=w\n", set, "\u{feff}\n[A]\nK=v\n\u{feff}L=w\n"),
        ("[A]\n\u{feff}K=a\nL=w\n", without, "[A]\n\u{feff}\nL=w\n"),
        ("\u{feff}[A]\nK=a\n\n[B]\n", without_section, "\u{feff}[B]\n"),
        ("\u{feff}[A]\nK=a\n# c\n[B]\n", without_section, "\u{feff}\n# c\n[B]\n"),
        ("\u{feff}[A]\nK=a\n\n;c\\\n[B]\n", without_section, "\u{feff}\n\n;c\\\n[B]\n"),
        (
            "[A]\nK=\\\n\u{feff}\n[B]\n\u{feff}L=w\n",
            without_section,
            "\u{feff}\n[B]\n\u{feff}L=w\n",
        ),
    ];
    for (source, edit, expected) in rows {
        let edited = edit(&UnitFile::parse_collecting(source).0);
        assert_eq!(edited.source_str(), Some(expected), "{source:?}");
    }
}

#[test]
fn edit_that_would_inject_lines_is_refused() {
    let unit = UnitFile::parse("[A]\nK=v\n").unwrap();
    let error = set(&unit, "K", "v\nL=w").unwrap_err();
    assert_eq!(error.kind(), OptionErrorKind::LineEnd);
}
