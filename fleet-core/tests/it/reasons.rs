//! The words of reasons and refusals, which people read when a unit does not run.

use fleet_core::{MachineId, Pattern, Reason, Refusal, Rule, tally};
use fleet_unitfile::UnitName;

use crate::wrap::wrap;

fn machine(id: &str) -> MachineId {
    id.parse().unwrap()
}

fn unit(name: &str) -> UnitName {
    name.parse().unwrap()
}

fn pattern(text: &str) -> Pattern {
    text.parse().unwrap()
}

fn refusals() -> Vec<(MachineId, Refusal)> {
    let metadata = |found: Option<&str>| Refusal::MachineMetadata {
        key: "region".into(),
        wanted: vec!["us-east-1".into(), "us-west-1".into()],
        found: found.map(str::to_owned),
    };
    let conflict = |theirs| Refusal::Conflicts {
        with: unit("web@1.service"),
        pattern: pattern("web@*"),
        theirs,
    };
    let replaces = |theirs| Refusal::Replaces { with: unit("old.service"), theirs };
    vec![
        (machine("c3f0aa1122334455"), conflict(false)),
        (machine("148a18ff6e95460fb2dc5b1a4b6b4d21"), metadata(None)),
        (machine("b5"), metadata(Some("eu-1"))),
        (machine("c4"), conflict(true)),
        (machine("d6"), Refusal::MachineOf { peer: unit("db.service").into() }),
        (machine("e7"), replaces(false)),
        (machine("e8"), replaces(true)),
        (machine("f9"), Refusal::MachineId { wanted: machine("148a18ff6e95460fb2dc5b1a4b6b4d21") }),
    ]
}

#[test]
fn every_refusal_in_words() {
    let texts: Vec<String> =
        refusals().iter().map(|(id, refusal)| format!("{}: {refusal}", id.short())).collect();
    insta::assert_snapshot!(wrap(&texts.join("\n")), @"
c3f0aa11: web@1.service is on it, and matches Conflicts=web@*
148a18ff: the unit wants region=us-east-1 or us-west-1, the machine has no region
b5: the unit wants region=us-east-1 or us-west-1, the machine has region=eu-1
c4: web@1.service is on it, and has Conflicts=web@*
d6: db.service is not on it
e7: old.service is on it, and no other machine takes that unit
e8: old.service is on it, and replaces the unit
f9: the unit wants machine 148a18ff6e95460fb2dc5b1a4b6b4d21
");
}

#[test]
fn every_reason_in_words() {
    let tallies = tally(refusals());
    let alone = tally(refusals().into_iter().take(1));
    let reasons = [
        Reason::NoMachines,
        Reason::NoMachineFits { machines: 8, tallies, nearest: None },
        Reason::NoMachineFits { machines: 1, tallies: alone.clone(), nearest: None },
        Reason::NoMachineFitsGroup {
            group: vec![unit("a.service"), unit("b.service")],
            machines: 1,
            tallies: alone,
            nearest: None,
        },
        Reason::PeerUnknown { peer: unit("db.service").into() },
        Reason::PeerInactive { peer: unit("db.service").into() },
        Reason::PeersApart {
            one: (unit("a.service"), machine("148a18ff6e95460fb2dc5b1a4b6b4d21")),
            other: (unit("b.service"), machine("c3f0aa1122334455")),
        },
        Reason::Cycle { units: vec![unit("a.service"), unit("b.service")] },
    ];
    let texts = reasons.map(|reason| reason.to_string());
    insta::assert_snapshot!(wrap(&texts.join("\n")), @"
no machine is present
none of 8 machines fits: MachineID refuses 1 (f9: the unit wants machine
    148a18ff6e95460fb2dc5b1a4b6b4d21); MachineMetadata refuses 2 (such as 148a18ff: the
    unit wants region=us-east-1 or us-west-1, the machine has no region); MachineOf
    refuses 1 (d6: db.service is not on it); Conflicts refuses 2 (such as c3f0aa11:
    web@1.service is on it, and matches Conflicts=web@*); Replaces refuses 2 (such as e7:
    old.service is on it, and no other machine takes that unit)
the only machine does not fit: Conflicts refuses 1 (c3f0aa11: web@1.service is on it, and
    matches Conflicts=web@*)
the only machine does not fit a.service, b.service together: Conflicts refuses 1
    (c3f0aa11: web@1.service is on it, and matches Conflicts=web@*)
MachineOf=db.service names an unknown unit: submit it, or correct the name
MachineOf=db.service names a unit that is inactive: load or start it
MachineOf names units that are on different machines: a.service is on 148a18ff, b.service
    on c3f0aa11
MachineOf leads in a circle: a.service -> b.service -> a.service
");
}

#[test]
fn a_tally_counts_every_refusal_once_in_the_order_of_the_rules() {
    let tallies = tally(refusals());
    let rules: Vec<(Rule, u32)> = tallies.iter().map(|t| (t.refusal.rule(), t.machines)).collect();
    let expected = [
        (Rule::MachineId, 1),
        (Rule::MachineMetadata, 2),
        (Rule::MachineOf, 1),
        (Rule::Conflicts, 2),
        (Rule::Replaces, 2),
    ];
    assert_eq!(rules, expected);
    assert_eq!(tallies[1].example.as_str(), "148a18ff6e95460fb2dc5b1a4b6b4d21");
    assert!(tally([]).is_empty());
}

#[test]
fn rules_are_named_by_their_options() {
    for (_, refusal) in refusals() {
        let rule = refusal.rule();
        assert_eq!(Rule::from_name(rule.as_str()), Some(rule));
    }
    assert_eq!(Rule::from_name("machineid"), None);
}
