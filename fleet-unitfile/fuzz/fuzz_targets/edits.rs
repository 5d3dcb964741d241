//! Any edit of any source has exactly its intended effect.
#![no_main]

use fleet_unitfile::{Editor, OptionError, OptionView, UnitFile, UnitOption};
use libfuzzer_sys::fuzz_target;

type Triple = (String, String, String);

fn triples(unit: &UnitFile) -> Vec<Triple> {
    let own = |it: OptionView<'_>| (it.section().into(), it.name().into(), it.value().into());
    unit.options().map(own).collect()
}

/// Returns the options after one edit; `None` if the edit is refused.
fn after(
    unit: &UnitFile,
    edit: impl for<'a, 'b> FnOnce(&'a mut Editor<'b>) -> Result<&'a mut Editor<'b>, OptionError>,
) -> Option<Vec<Triple>> {
    let mut unit = unit.clone();
    let mut editor = unit.edit();
    edit(&mut editor).ok()?;
    editor.apply();
    Some(triples(&unit))
}

fuzz_target!(|input: (u8, &str, &str, &[u8])| {
    let (at, name, value, source) = input;
    let unit = UnitFile::parse_collecting(source).0;
    let before = triples(&unit);
    let mut expected = before.clone();
    expected.retain(|it| it.0 != "A");
    assert_eq!(after(&unit, |it| Ok(it.remove_section("A"))), Some(expected));
    if let Some(edited) = after(&unit, |it| it.add("A", name, value)) {
        assert_eq!(edited.len(), before.len() + 1);
    }
    if before.is_empty() {
        return;
    }
    let at = usize::from(at) % before.len();
    let (section, old) = (before[at].0.clone(), before[at].1.clone());
    let mut indexes = 0..;
    let values = |_: OptionView<'_>| (indexes.next() == Some(at)).then(|| value.to_owned());
    if let Some(edited) = after(&unit, |it| it.set_values(values)) {
        let mut expected = before.clone();
        expected[at].2 = UnitOption::new(&section, name, value).value().to_owned();
        assert_eq!(edited, expected);
    }
    if let Some(edited) = after(&unit, |it| it.rename(&section, &old, name)) {
        let mut expected = before.clone();
        for it in expected.iter_mut().filter(|it| it.0 == section && it.1 == old) {
            it.1 = name.to_owned();
        }
        assert_eq!(edited, expected);
    }
    let mut expected = before;
    expected.remove(at);
    let mut indexes = 0..;
    let edited = after(&unit, |it| Ok(it.retain(|_| indexes.next() != Some(at))));
    assert_eq!(edited, Some(expected));
});
