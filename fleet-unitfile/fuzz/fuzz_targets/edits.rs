//! Any edit of any source has exactly its intended effect.
#![no_main]

use fleet_unitfile::{OptionView, UnitFile, UnitOption};
use libfuzzer_sys::fuzz_target;

type Triple = (String, String, String);

fn triples(unit: &UnitFile) -> Vec<Triple> {
    let own = |it: OptionView<'_>| (it.section().into(), it.name().into(), it.value().into());
    unit.options().map(own).collect()
}

fuzz_target!(|input: (u8, &str, &str, &[u8])| {
    let (at, name, value, source) = input;
    let unit = UnitFile::parse_collecting(source).0;
    let before = triples(&unit);
    let without = unit.without_section("A");
    let mut expected = before.clone();
    expected.retain(|it| it.0 != "A");
    assert_eq!(triples(&without), expected);
    if let Ok(edited) = unit.with_added(UnitOption::new("A", name, value)) {
        assert_eq!(edited.options().len(), before.len() + 1);
    }
    if before.is_empty() {
        return;
    }
    let at = usize::from(at) % before.len();
    let new = UnitOption::new(&before[at].0, name, value);
    let new = (before[at].0.clone(), name.to_owned(), new.value().to_owned());
    if let Ok(edited) = unit.with_value_at(at, value) {
        let mut expected = before.clone();
        expected[at].2.clone_from(&new.2);
        assert_eq!(triples(&edited), expected);
    }
    if let Ok(edited) = unit.with_name_at(at, name) {
        let mut expected = before.clone();
        expected[at].1.clone_from(&new.1);
        assert_eq!(triples(&edited), expected);
    }
    if let Ok(edited) = unit.with_after(at, name, value) {
        let mut expected = before.clone();
        expected.insert(at + 1, new);
        assert_eq!(triples(&edited), expected);
    }
    let mut expected = before;
    expected.remove(at);
    assert_eq!(triples(&unit.without_at(at)), expected);
});
