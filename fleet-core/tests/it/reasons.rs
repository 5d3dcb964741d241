//! The text forms of reasons and refusals.

use fleet_core::reason::{NearestMachine, Tally, tally};
use fleet_core::refusal::Rule;
use fleet_core::{MachineId, Pattern, Reason, Refusal, Resource};
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

fn short_of(resource: Resource, wanted: u64, free: u64, offered: u64) -> Refusal {
    Refusal::Reserve { resource, wanted, free, offered }
}

fn custom(rule: &str, detail: &str) -> Refusal {
    Refusal::Custom { rule: rule.into(), detail: detail.into() }
}

fn refusals() -> Vec<(MachineId, Refusal)> {
    let metadata = |found: Option<&str>| Refusal::MachineMetadata {
        key: "region".into(),
        wanted: vec!["us-east-1".into(), "us-west-1".into()],
        found: found.map(str::to_owned),
    };
    let conflict = |by_other| Refusal::Conflicts {
        with: unit("web@1.service"),
        pattern: pattern("web@*"),
        by_other,
    };
    let replaces = |by_other| Refusal::Replaces { with: unit("old.service"), by_other };
    vec![
        (machine("c3f0aa1122334455"), conflict(false)),
        (machine("148a18ff6e95460fb2dc5b1a4b6b4d21"), metadata(None)),
        (machine("b5"), metadata(Some("eu-1"))),
        (machine("c4"), conflict(true)),
        (machine("d6"), Refusal::MachineOf { peer: unit("db.service").into() }),
        (machine("e7"), replaces(false)),
        (machine("e8"), replaces(true)),
        (machine("a0"), Refusal::Cordon {}),
        (
            machine("a1"),
            Refusal::MachineMetadataExpr {
                failed: "cores > 8 or exists gpu".into(),
                found: "cores=4, no gpu".into(),
            },
        ),
        (machine("a2"), Refusal::MachineOf { peer: "db@*.service".parse().unwrap() }),
        (
            machine("a3"),
            Refusal::MaxPerMachine { template: unit("web@.service"), limit: 2, count: 2 },
        ),
        (machine("a4"), short_of(Resource::Memory, 2 << 30, 1 << 30, 4 << 30)),
        (machine("a5"), short_of(Resource::Cpu, 1500, 0, 0)),
        (machine("a6"), custom("licence", "no licence for it")),
        (machine("a7"), custom("licence", "the licence has ended")),
        (machine("a8"), custom("quota", "the customer has no more")),
        (machine("f9"), Refusal::MachineId { wanted: machine("148a18ff6e95460fb2dc5b1a4b6b4d21") }),
    ]
}

#[test]
fn refusals_display() {
    let texts: Vec<String> =
        refusals().iter().map(|(id, refusal)| format!("{}: {refusal}", id.short())).collect();
    insta::assert_snapshot!(wrap(&texts.join("\n")), @"
c3f0aa11: web@1.service is on it, and matches Conflicts=web@*
148a18ff: the unit requires region=us-east-1 or us-west-1, the machine has no region
b5: the unit requires region=us-east-1 or us-west-1, the machine has region=eu-1
c4: web@1.service is on it, and has Conflicts=web@*
d6: db.service is not on it
e7: old.service is on it, and no other machine accepts that unit
e8: old.service is on it, and replaces the unit
a0: it is cordoned and accepts no new units
a1: the unit requires cores > 8 or exists gpu, the machine has cores=4, no gpu
a2: no other unit that matches db@*.service is on it
a3: it has 2 of web@.service, and MaxPerMachine=2 allows no more
a4: the unit reserves memory 2G, the machine has 1G of 4G free
a5: the unit reserves cpu 1.5, the machine offers no cpu
a6: no licence for it
a7: the licence has ended
a8: the customer has no more
f9: the unit requires machine 148a18ff6e95460fb2dc5b1a4b6b4d21
");
}

const LIMIT: std::time::Duration = std::time::Duration::from_secs(97);

fn reasons() -> Vec<Reason> {
    let tallies = tally(refusals());
    let alone = tally(refusals().into_iter().take(1));
    let nearest = |unit: Option<&str>| {
        let unit = unit.map(|name| name.parse().unwrap());
        let refusal = short_of(Resource::Disk, 10 << 30, 9 << 30, 10 << 30);
        Some(NearestMachine { machine: machine("148a18ff6e95460fb2dc5b1a4b6b4d21"), unit, refusal })
    };
    let of_b = alone.iter().map(|it| Tally { unit: Some(unit("b.service")), ..it.clone() });
    let of_b: Vec<Tally> = of_b.collect();
    vec![
        Reason::NoMachines,
        Reason::NoMachineFits { machines: 17, tallies, nearest: None },
        Reason::NoMachineFits { machines: 1, tallies: alone.clone(), nearest: None },
        Reason::NoMachineFitsGroup {
            group: vec![unit("a.service"), unit("b.service")],
            machines: 1,
            tallies: alone.clone(),
            nearest: None,
        },
        Reason::NoMachineFits { machines: 2, tallies: alone, nearest: nearest(None) },
        Reason::NoMachineFitsGroup {
            group: vec![unit("a.service"), unit("b.service")],
            machines: 2,
            tallies: of_b.clone(),
            nearest: nearest(Some("a.service")),
        },
        // With a single machine there is no nearest one.
        Reason::NoMachineFits { machines: 1, tallies: of_b, nearest: nearest(None) },
        Reason::AttemptLimit,
        Reason::PeerUnknown { peer: unit("db.service").into() },
        Reason::PeerInactive { peer: unit("db.service").into() },
        Reason::PeersApart {
            one: (unit("a.service"), machine("148a18ff6e95460fb2dc5b1a4b6b4d21")),
            other: (unit("b.service"), machine("c3f0aa1122334455")),
        },
        Reason::Cycle { units: vec![unit("a.service"), unit("b.service")] },
        Reason::PeerUnknown { peer: "db@*.service".parse().unwrap() },
        Reason::PeerInactive { peer: "db@*.service".parse().unwrap() },
        Reason::NotRescheduled { machine: machine("148a18ff6e95460fb2dc5b1a4b6b4d21") },
        Reason::MachineAwaited { machine: machine("148a18ff6e95460fb2dc5b1a4b6b4d21") },
        Reason::MayStillRun { machine: machine("c3f0aa1122334455"), limit: Some(LIMIT) },
        Reason::MayStillRun { machine: machine("c3f0aa1122334455"), limit: None },
    ]
}

#[test]
fn reasons_display() {
    let texts: Vec<String> = reasons().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(wrap(&texts.join("\n")), @"
    no machine is present
    none of 17 machines fits: Cordon refuses 1 (a0: it is cordoned and accepts no new units);
        MachineID refuses 1 (f9: the unit requires machine 148a18ff6e95460fb2dc5b1a4b6b4d21);
        MachineMetadata refuses 2 (such as 148a18ff: the unit requires region=us-east-1 or
        us-west-1, the machine has no region); MachineMetadataExpr refuses 1 (a1: the unit
        requires cores > 8 or exists gpu, the machine has cores=4, no gpu); MachineOf refuses
        2 (such as d6: db.service is not on it); Conflicts refuses 2 (such as c3f0aa11:
        web@1.service is on it, and matches Conflicts=web@*); MaxPerMachine refuses 1 (a3: it
        has 2 of web@.service, and MaxPerMachine=2 allows no more); Reserve refuses 2 (such as
        a4: the unit reserves memory 2G, the machine has 1G of 4G free); Replaces refuses 2
        (such as e7: old.service is on it, and no other machine accepts that unit); licence
        refuses 2 (such as a6: no licence for it); quota refuses 1 (a8: the customer has no
        more)
    the only machine does not fit: Conflicts refuses 1 (c3f0aa11: web@1.service is on it, and
        matches Conflicts=web@*)
    the only machine does not fit a.service, b.service together: Conflicts refuses 1
        (c3f0aa11: web@1.service is on it, and matches Conflicts=web@*)
    none of 2 machines fits: Conflicts refuses 1 (c3f0aa11: web@1.service is on it, and
        matches Conflicts=web@*); nearest is 148a18ff: the unit reserves disk 10G, the machine
        has 9G of 10G free
    none of 2 machines fits a.service, b.service together: Conflicts refuses 1 (c3f0aa11:
        b.service: web@1.service is on it, and matches Conflicts=web@*); nearest is 148a18ff:
        a.service: the unit reserves disk 10G, the machine has 9G of 10G free
    the only machine does not fit: Conflicts refuses 1 (c3f0aa11: b.service: web@1.service is
        on it, and matches Conflicts=web@*)
    the planner reached its limit of attempts: it tries again after the next change; report
        this as a defect of fleet
    MachineOf=db.service names an unknown unit: submit it, or correct the name
    MachineOf=db.service names a unit that is inactive: load or start it
    MachineOf names units that are on different machines: a.service is on 148a18ff, b.service
        on c3f0aa11: unload and start one of them again to bring them together
    MachineOf forms a dependency cycle: a.service -> b.service -> a.service: remove one of
        these options
    MachineOf=db@*.service matches no other unit: submit one, or correct it
    MachineOf=db@*.service matches only inactive units: load or start one
    its machine 148a18ff is not present, and Reschedule=never forbids another machine: bring
        this one back, or change the unit
    its machine 148a18ff is not present, and the unit waits for it because the store was
        unreachable until recently
    its machine c3f0aa11 is not present: with OnPartition=stop no other machine runs the unit
        for 97s, until it must have stopped there
    its machine c3f0aa11 is not present: with OnPartition=stop no other machine runs the unit,
        which may still run there, since its stop has no time limit; bring the machine back,
        or, if the unit cannot run there any more, destroy and submit it
    ");
}

#[test]
fn tally_counts_refusals_in_rule_order() {
    let tallies = tally(refusals());
    let rules: Vec<(Rule, u32)> = tallies.iter().map(|t| (t.refusal.rule(), t.machines)).collect();
    let expected = [
        (Rule::Cordon, 1),
        (Rule::MachineId, 1),
        (Rule::MachineMetadata, 2),
        (Rule::MachineMetadataExpr, 1),
        (Rule::MachineOf, 2),
        (Rule::Conflicts, 2),
        (Rule::MaxPerMachine, 1),
        (Rule::Reserve, 2),
        (Rule::Replaces, 2),
        // Custom rules are distinguished by name.
        (Rule::Custom, 2),
        (Rule::Custom, 1),
    ];
    assert_eq!(rules, expected);
    assert_eq!(tallies[2].example.as_str(), "148a18ff6e95460fb2dc5b1a4b6b4d21");
    assert!(tally([]).is_empty());
}

#[test]
fn rules_have_the_names_of_their_options() {
    for (_, refusal) in refusals() {
        let rule = refusal.rule();
        assert_eq!(Rule::from_name(rule.as_str()), Some(rule));
        assert_eq!(refusal.rule_name() == rule.as_str(), rule != Rule::Custom, "{refusal}");
    }
    assert_eq!(custom("quota", "").rule_name(), "quota");
    assert!(Rule::ALL.is_sorted(), "they are tried in the order in which they are compared");
    assert_eq!(Rule::from_name("machineid"), None);
}

/// Returns the summary of a reason in which rules refuse machines, in the order given.
fn summary_of(refusals: &[(u32, &Refusal)], nearest: Option<(&str, &Refusal)>) -> String {
    let tally = |at: usize, machines: u32, refusal: &Refusal| Tally {
        machines,
        example: machine(&format!("m{at}")),
        unit: None,
        refusal: refusal.clone(),
    };
    let tallies =
        refusals.iter().enumerate().map(|(at, (machines, it))| tally(at, *machines, it)).collect();
    let nearest = nearest.map(|(id, refusal)| NearestMachine {
        machine: machine(id),
        unit: None,
        refusal: refusal.clone(),
    });
    let machines = refusals.iter().map(|(machines, _)| machines).sum();
    Reason::NoMachineFits { machines, tallies, nearest }.summary()
}

#[test]
fn summary_of_one_rule_is_one_clause() {
    let summaries = refusals().into_iter().map(|(_, refusal)| {
        let [alone, many] = [1, 3].map(|machines| summary_of(&[(machines, &refusal)], None));
        format!("{}\n  1: {alone}\n  3: {many}", refusal.rule_name())
    });
    insta::assert_snapshot!(summaries.collect::<Vec<_>>().join("\n"), @r"
    Conflicts
      1: conflicts with web@1.service
      3: conflicts with web@* on every machine
    MachineMetadata
      1: no machine has region=us-east-1 or us-west-1
      3: no machine has region=us-east-1 or us-west-1
    MachineMetadata
      1: no machine has region=us-east-1 or us-west-1
      3: no machine has region=us-east-1 or us-west-1
    Conflicts
      1: conflicts with web@1.service
      3: conflicts with a unit on every machine
    MachineOf
      1: db.service is on no machine
      3: db.service is on no machine
    Replaces
      1: old.service cannot leave its machine
      3: old.service cannot leave its machine
    Replaces
      1: old.service replaces it
      3: old.service replaces it on every machine
    Cordon
      1: the only machine is cordoned
      3: all machines are cordoned
    MachineMetadataExpr
      1: no machine matches cores > 8 or exists gpu
      3: no machine matches cores > 8 or exists gpu
    MachineOf
      1: no machine has db@*.service
      3: no machine has db@*.service
    MaxPerMachine
      1: MaxPerMachine=2 is reached
      3: MaxPerMachine=2 is reached on every machine
    Reserve
      1: no machine has 2G of memory free
      3: no machine has 2G of memory free
    Reserve
      1: no machine has 1.5 of cpu free
      3: no machine has 1.5 of cpu free
    licence
      1: licence: no licence for it
      3: the rule licence refuses all machines
    licence
      1: licence: the licence has ended
      3: the rule licence refuses all machines
    quota
      1: quota: the customer has no more
      3: the rule quota refuses all machines
    MachineID
      1: machine 148a18ff is not present
      3: machine 148a18ff is not present
    ");
}

#[test]
fn summary_of_two_rules_counts_machines() {
    let cordon = Refusal::Cordon {};
    let others = refusals().into_iter().filter(|(_, refusal)| *refusal != cordon);
    let summaries = others.map(|(_, refusal)| summary_of(&[(1, &cordon), (3, &refusal)], None));
    let summaries: Vec<String> = summaries.collect();
    assert!(summaries.iter().all(|text| text.chars().count() <= 72));
    insta::assert_snapshot!(summaries.join("\n"), @r"
    no machine fits: 3 have a conflicting unit, 1 is cordoned
    no machine fits: 3 of 4 lack region=us-east-1 or us-west-1
    no machine fits: 3 of 4 lack region=us-east-1 or us-west-1
    no machine fits: 3 have a conflicting unit, 1 is cordoned
    no machine fits: 3 lack db.service, 1 is cordoned
    no machine fits: 3 cannot release old.service, 1 is cordoned
    no machine fits: 3 of 4 have old.service, a replacement
    no machine fits: 3 of 4 do not match cores > 8 or exists gpu
    no machine fits: 3 lack db@*.service, 1 is cordoned
    no machine fits: 3 of 4 have reached MaxPerMachine=2
    no machine fits: 3 lack 2G of free memory, 1 is cordoned
    no machine fits: 3 lack 1.5 of free cpu, 1 is cordoned
    no machine fits: 3 are refused by licence, 1 is cordoned
    no machine fits: 3 are refused by licence, 1 is cordoned
    no machine fits: 3 are refused by quota, 1 is cordoned
    no machine fits: 3 are not 148a18ff, 1 is cordoned
    ");
}

#[test]
fn summary_names_the_rules_that_refuse_most() {
    let metadata = |key: &str, values: &[&str]| Refusal::MachineMetadata {
        key: key.into(),
        wanted: values.iter().map(|&value| value.to_owned()).collect(),
        found: None,
    };
    let (gpu, zone) = (metadata("gpu", &["yes"]), metadata("zone", &["a"]));
    let wide = metadata("region", &["us-east-1", "us-west-1", "eu-central-1", "eu-west-1"]);
    let (cordon, memory) = (Refusal::Cordon {}, short_of(Resource::Memory, 4 << 30, 0, 1 << 30));
    let cpu = short_of(Resource::Cpu, 500, 0, 4000);
    let m7 = Refusal::MachineId { wanted: machine("m7") };
    let on = |id: &'static str, refusal| Some((id, refusal));
    for (refusals, nearest, expected) in [
        (&[] as &[_], None, "no machine fits"),
        (&[(2, &gpu)], on("m9", &gpu), "no machine has gpu=yes"),
        (&[(2, &cordon), (3, &gpu)], None, "no machine fits: 3 lack gpu=yes, 2 are cordoned"),
        (&[(1, &cordon), (1, &gpu)], None, "no machine fits: 1 is cordoned, 1 lacks gpu=yes"),
        (&[(1, &cordon), (9, &gpu), (5, &memory)], None, "no machine fits: 9 of 15 lack gpu=yes"),
        (&[(2, &wide)], None, "no machine has the required metadata"),
        (&[(1, &wide)], None, "no machine has the required region"),
        // The example does not speak for the other machines.
        (&[(2, &gpu)], on("m9", &zone), "no machine has the required metadata"),
        (&[(2, &memory)], on("m9", &cpu), "no machine has enough free resources"),
        (
            &[(1, &cordon), (2, &memory)],
            on("m9", &cpu),
            "no machine fits: 2 lack free resources, 1 is cordoned",
        ),
        // Only the machine that the unit requires is of interest.
        (&[(4, &m7)], None, "machine m7 is not present"),
        (&[(4, &m7), (1, &memory)], on("m7", &memory), "machine m7 lacks 4G of free memory"),
        (&[(1, &cordon), (4, &m7)], on("m7", &cordon), "machine m7 is cordoned"),
        (&[(2, &cordon), (4, &m7)], None, "no machine fits: 4 are not m7, 2 are cordoned"),
    ] {
        assert_eq!(summary_of(refusals, nearest), expected);
    }
}

#[test]
fn summary_of_other_reasons_is_one_clause() {
    let long = |at: u32| unit(&format!("a-unit-with-a-rather-long-name-{at}.service"));
    let cycle = Reason::Cycle { units: vec![long(1), long(2)] };
    let summaries = reasons().into_iter().chain([cycle]).map(|reason| reason.summary());
    insta::assert_snapshot!(summaries.collect::<Vec<_>>().join("\n"), @r"
    no machine is present
    machine 148a18ff lacks region=us-east-1 or us-west-1
    conflicts with web@1.service
    conflicts with web@1.service
    conflicts with web@* on every machine
    b.service: conflicts with web@* on every machine
    b.service: conflicts with web@1.service
    the planner reached its limit of attempts
    MachineOf=db.service is an unknown unit
    MachineOf=db.service is inactive
    a.service and b.service are on different machines
    MachineOf forms a cycle: a.service -> b.service -> a.service
    MachineOf=db@*.service matches no other unit
    MachineOf=db@*.service matches only inactive units
    machine 148a18ff is not present, and Reschedule=never
    machine 148a18ff is not present, and is awaited
    machine c3f0aa11 is not present, but may still run it
    machine c3f0aa11 is not present, but may still run it
    MachineOf forms a cycle
    ");
}
