//! Instances of sections, and edits of many options at once.

use fleet_unitfile::{OptionErrorKind, OptionView, UnitFile, UnitOption};

use crate::edit::edited;

const ROUTES: &str = "[Route]\nGateway=a\nMetric=1\n\n[Route]\nGateway=b\n";

#[test]
fn repeated_sections_of_networkd_stay_apart() {
    let unit = UnitFile::parse(ROUTES).unwrap();
    let merged = UnitFile::parse("[Route]\nGateway=a\nMetric=1\nGateway=b\n").unwrap();
    assert_eq!(unit.canonical(), ROUTES);
    assert_ne!(unit.hash(), merged.hash());
    let rebuilt = UnitFile::from_options(unit.options().map(UnitOption::from)).unwrap();
    assert_eq!(rebuilt.source_str(), Some(ROUTES));
    let option =
        |name, value, instance| UnitOption::new("Route", name, value).in_instance(instance);
    let options = [option("Gateway", "a", 7), option("Metric", "1", 7), option("Gateway", "b", 8)];
    assert_eq!(UnitFile::from_options(options).unwrap().source_str(), Some(ROUTES));
    // Between them may stand another section.
    let source = "[Route]\nGateway=a\n[Network]\nDHCP=yes\n[Route]\nGateway=b\n";
    let canonical = "[Route]\nGateway=a\n\n[Network]\nDHCP=yes\n\n[Route]\nGateway=b\n";
    assert_eq!(UnitFile::parse(source).unwrap().canonical(), canonical);
}

#[test]
fn sections_of_units_are_still_merged() {
    let apart = UnitFile::parse("[Service]\nUser=a\n[Unit]\nA=1\n[Service]\nNice=5\n").unwrap();
    let merged = UnitFile::parse("[Service]\nUser=a\nNice=5\n[Unit]\nA=1\n").unwrap();
    assert_eq!(apart.hash(), merged.hash());
    assert_eq!(apart.canonical(), merged.canonical());
}

#[test]
fn section_instances_have_their_own_options() {
    let unit =
        UnitFile::parse("[A]\n[Route]\nK=1\nK=2\n[B]\nK=3\n[Route]\n[Route]\nL=4\n").unwrap();
    let values: Vec<Vec<&str>> = unit
        .section_instances("Route")
        .map(|instance| instance.options().map(OptionView::value).collect())
        .collect();
    assert_eq!(values, [vec!["1", "2"], vec![], vec!["4"]]);
    let last: Vec<_> = unit.section_instances("Route").map(|it| it.get("K")).collect();
    assert_eq!(last, [Some("2"), None, None]);
    let starts = unit.section_instances("Route").map(|it| it.header_span().start);
    assert_eq!(starts.collect::<Vec<_>>(), [4, 28, 36]);
    assert_eq!(unit.section_instances("C").count(), 0);
}

#[test]
fn many_values_are_edited_at_once() {
    let source = "# c\n[A]\nK = %i \\\n  b\n;d\n[B]\r\nL=%i\r\nM=5";
    let unit = UnitFile::parse(source).unwrap();
    let joined = |value: &str| value.contains("%i").then(|| "x \\\n y".to_owned());
    let changed = edited(&unit, |it| it.set_values(|it| joined(it.value())));
    let expected = "# c\n[A]\nK=x \\\n y\n;d\n[B]\r\nL=x \\\n y\r\nM=5";
    assert_eq!(changed.unwrap().to_string(), expected);
    let error = edited(&unit, |it| it.set_values(|_| Some("a\nb".to_owned())));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), OptionErrorKind::LineEnd);
    let kept = edited(&unit, |it| Ok(it.retain(|it| it.name() == "K")));
    assert_eq!(kept.unwrap().to_string(), "# c\n[A]\nK = %i \\\n  b\n;d\n[B]\r\n");
    let mut large = UnitFile::parse("[A]\nK=1\n".repeat(20_000)).unwrap();
    large.edit().set_values(|_| Some("2".to_owned())).unwrap().apply();
    assert!(large.options().all(|it| it.value() == "2"));
}
