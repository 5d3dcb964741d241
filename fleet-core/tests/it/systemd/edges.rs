//! Edges from relations between units.

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet_core::graph::systemd::{CompiledUnit, ExternalUnits, LinkedUnits, link};
use fleet_core::graph::{Name, Target};

use super::{compiled, wrapped};

/// Compiles units from names and `[Unit]` sections; a section may end in an `[Install]` section.
fn system(units: &[(&str, &str)]) -> Vec<CompiledUnit> {
    let unit = |(name, text): &(&str, &str)| {
        let service =
            if name.ends_with(".service") { "[Service]\nExecStart=/bin/true\n" } else { "" };
        let text = format!("{service}[Unit]\n{text}");
        compiled(name, &text).unwrap_or_else(|refusals| panic!("{refusals}"))
    };
    units.iter().map(unit).collect()
}

fn outside() -> ExternalUnits {
    let names = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
    ExternalUnits {
        assumed_active: names(&["basic.target", "docker.service"]),
        starters: names(&["job.timer"]),
        refused: names(&["bad.service"]),
    }
}

fn output(linked: &LinkedUnits) -> String {
    let mut lines = Vec::new();
    for unit in &linked.units {
        let provides: Vec<&str> = unit.provides.iter().map(Target::as_str).collect();
        lines.push(provides.join(" = "));
        lines.extend(unit.edges.iter().map(|(kind, target)| format!("  {kind} {target}")));
    }
    let refused = linked.refused.iter();
    lines.extend(
        refused.flat_map(|(name, all)| all.iter().map(move |it| format!("no {name}: {it}"))),
    );
    let remarks = linked.remarks.iter();
    lines.extend(remarks.flat_map(|(name, all)| all.iter().map(move |it| format!("{name}: {it}"))));
    let stops = linked.stops.iter();
    lines.extend(stops.map(|(name, with)| {
        let with: Vec<&str> = with.iter().map(Name::as_str).collect();
        format!("with {name} stops {}", with.join(", "))
    }));
    let effects = &linked.effects;
    let indexes = [
        ("on failure", &effects.on_failure),
        ("on success", &effects.on_success),
        ("is started by", &effects.triggered_by),
        ("passes its reload to", &effects.reloads),
        ("passes its stop to", &effects.stops),
        ("upholds", &effects.upholds),
        ("is upheld by", &effects.upheld_by),
        ("is needed by", &effects.needed_by),
        ("may no longer need", &effects.may_unneed),
    ];
    for (what, index) in indexes {
        lines.extend(index.iter().map(|(name, others)| {
            let others: Vec<&str> = others.iter().map(Name::as_str).collect();
            format!("{name} {what}: {}", others.join(", "))
        }));
    }
    lines.join("\n")
}

fn linked(units: &[(&str, &str)]) -> String {
    output(&link(&system(units), &outside()))
}

#[test]
fn each_relation_has_its_edge() {
    let text = linked(&[
        ("a.service", "BindsTo=b.service\nAfter=b.service"),
        ("b.service", "Requires=c.service\nAfter=c.service"),
        ("c.service", "Wants=d.service\nAfter=d.service"),
        ("d.service", "Requires=e.service"),
        ("e.service", "Wants=f.service"),
        ("f.service", "After=g.service"),
        ("g.service", "Before=h.service"),
        ("h.service", "BindsTo=i.service"),
        ("i.service", "PartOf=j.service"),
        ("j.service", "[Install]\nWantedBy=a.service\nRequiredBy=b.service\nUpheldBy=c.service"),
    ]);
    insta::assert_snapshot!(wrapped(&text), @"
    a.service
      depends-on b.service
      pulls j.service
    b.service
      depends-ms c.service
      pulls j.service
    c.service
      waits-for d.service
      pulls j.service
    d.service
      pulls e.service
    e.service
      pulls f.service
    f.service
      after g.service
    g.service
    h.service
      depends-on i.service
      after g.service
    i.service
    j.service
    h.service: 4:1: Unit.BindsTo also orders the unit after i.service
    with b.service stops a.service
    with c.service stops b.service
    with e.service stops d.service
    with i.service stops h.service
    with j.service stops b.service, i.service
    c.service upholds: j.service
    j.service is upheld by: c.service
    ");
}

#[test]
fn relations_to_external_units() {
    let text = linked(&[
        ("a.service", "After=none.service basic.target a.service\nWants=none.service bad.service"),
        ("b.service", "Requires=none.service\nBindsTo=gone.socket"),
        ("c.service", "Requires=docker.service\nPartOf=none.service\nAfter=docker.service"),
        ("d.service", "Requires=bad.service"),
        ("e.service", "PartOf=docker.service"),
        ("f.service", "Requires=b.service\nWants=e.service\nAfter=e.service"),
    ]);
    insta::assert_snapshot!(wrapped(&text), @r#"
    a.service
    c.service
    d.service
      depends-ms bad.service
    e.service
    f.service
      depends-ms b.service
      waits-for e.service
    no b.service: 4:1: Unit.Requires names none.service, which is not run on this
          machine: submit it as well (MachineOf= in [X-Fleet] keeps both on one machine),
          write Wants=, or declare it active: native_external = ["none.service=up"], or
          "fleetd dev --native-external none.service=up"
    no b.service: 5:1: Unit.BindsTo names gone.socket, which is not run on this machine:
          submit it as well (MachineOf= in [X-Fleet] keeps both on one machine), write
          Wants=, or declare it active: native_external = ["gone.socket=up"], or "fleetd
          dev --native-external gone.socket=up"
    a.service: 4:1: Unit.After ignores none.service, which is not run here
    a.service: 4:1: Unit.After ignores a.service, which is the unit itself
    a.service: 5:1: Unit.Wants ignores none.service, which is not run here
    a.service: 5:1: Unit.Wants ignores bad.service, which was refused
    c.service: 5:1: Unit.PartOf ignores none.service, which is not run here
    d.service: 4:1: Unit.Requires blocks the unit, because bad.service was refused
    e.service: 4:1: Unit.PartOf does not observe stops of docker.service, which is not
          run here
    with b.service stops f.service
    "#);
}

#[test]
fn targets_wait_for_wanted_units() {
    let text = linked(&[
        ("all.target", "Wants=a.service b.service c.service\nRequires=d.service\nBefore=c.service"),
        ("a.service", ""),
        ("b.service", "DefaultDependencies=no"),
        ("c.service", ""),
        ("d.service", ""),
        ("early.target", "DefaultDependencies=no\nWants=a.service"),
    ]);
    insta::assert_snapshot!(wrapped(&text), @r"
    a.service
    all.target
      depends-ms d.service
      waits-for a.service
      pulls b.service
      pulls c.service
    b.service
    c.service
      after all.target
    d.service
    early.target
      pulls a.service
    with d.service stops all.target
    ");
}

#[test]
fn aliases_become_targets_of_the_unit() {
    let text = linked(&[
        ("a.service", "[Install]\nAlias=web.service www.service"),
        ("b.service", "Requires=web.service\nAfter=a.service"),
        ("c.service", "[Install]\nAlias=b.service www.service"),
    ]);
    insta::assert_snapshot!(wrapped(&text), @"
    a.service = web.service = www.service
    b.service
      depends-ms a.service
    c.service
    c.service: 5:1: Install.Alias yields b.service to b.service
    c.service: 5:1: Install.Alias yields www.service to a.service
    with a.service stops b.service
    ");
}

#[test]
fn binds_to_a_later_unit_is_refused() {
    let text = linked(&[("a.service", "BindsTo=b.service\nBefore=b.service"), ("b.service", "")]);
    insta::assert_snapshot!(wrapped(&text), @"
    b.service
    no a.service: 4:1: Unit.BindsTo names b.service, which is ordered after this unit,
          but BindsTo= needs the opposite order: write Requires=
    with b.service stops a.service
    ");
}

#[test]
fn stop_includes_requiring_units() {
    let units = system(&[
        ("a.service", "Requires=b.service"),
        ("b.service", "PartOf=c.service\nRequires=a.service"),
        ("c.service", ""),
        ("d.service", "Wants=c.service"),
    ]);
    let linked = link(&units, &ExternalUnits::default());
    let stopped = |name: &str| {
        let with = linked.stopped_with(&name.parse().unwrap());
        with.iter().map(|name| name.as_str().to_owned()).collect::<BTreeSet<_>>()
    };
    assert_eq!(stopped("c.service"), ["a.service", "b.service"].map(str::to_owned).into());
    assert_eq!(stopped("a.service"), ["b.service".to_owned()].into());
    assert!(stopped("d.service").is_empty());
}

#[test]
fn unchanged_unit_is_not_copied() {
    let units = system(&[
        ("a.service", "After=none.service"),
        ("b.service", "After=a.service"),
        ("c.service", "[Install]\nAlias=x.service"),
    ]);
    let linked = link(&units, &ExternalUnits::default());
    let mut same = units.iter().zip(&linked.units).map(|(it, unit)| Arc::ptr_eq(&it.unit, unit));
    assert_eq!(std::array::from_fn(|_| same.next()), [Some(true), Some(false), Some(false)]);
}

#[test]
fn the_order_of_units_does_not_matter() {
    let mut units = system(&[
        ("a.service", "BindsTo=b.service\n[Install]\nAlias=x.service"),
        ("b.service", "Requires=none.service"),
        ("c.service", "Wants=a.service\nAfter=a.service\n[Install]\nAlias=x.service"),
    ]);
    let there = output(&link(&units, &outside()));
    units.reverse();
    assert_eq!(output(&link(&units, &outside())), there);
}

#[test]
fn conflicting_units_are_refused_only_together() {
    let file = |conflict: &str| {
        format!("[Unit]\nConflicts=shutdown.target {conflict}\n[Service]\nExecStart=/bin/true\n")
    };
    let (a, b) = (file("b.service absent.service"), file("none.service"));
    let alone = compiled("a.service", &a).unwrap();
    let both = [alone.clone(), compiled("b.service", &b).unwrap()];
    let external = ExternalUnits::default();
    assert_eq!(link(&[alone], &external).refused.len(), 0);
    let linked = link(&both, &external);
    let refused: Vec<String> = linked.refused.values().flatten().map(ToString::to_string).collect();
    assert_eq!(linked.units.len(), 1);
    insta::assert_snapshot!(wrapped(&refused.join("\n")), @r"
    2:1: Unit.Conflicts names b.service, which is run here too: starting a unit never
          stops another: unload one of them
    ");
}

/// A unit that is only ordered after a socket, or wants it, is not stopped with it.
#[test]
fn stopping_a_socket_stops_the_units_that_require_it() {
    let units = system(&[
        ("bound.service", "BindsTo=a.socket"),
        ("other.service", "Wants=a.socket\nAfter=a.socket"),
        ("part.service", "PartOf=a.socket"),
        ("required.service", "Requires=a.socket\nAfter=a.socket"),
        ("timed.service", "Requires=job.timer"),
    ]);
    let mut external = outside();
    external.starters.insert("a.socket".parse().unwrap());
    insta::assert_snapshot!(wrapped(&output(&link(&units, &external))), @"
    bound.service
    other.service
    part.service
    required.service
    timed.service
    with a.socket stops bound.service, part.service, required.service
    ");
}
#[test]
fn results_start_units_that_may_be_missing() {
    let text = linked(&[
        ("a.service", "OnFailure=b.service mail@%n.service\nOnSuccess=alias.service a.service"),
        ("b.service", "OnFailure=job.timer\n[Install]\nAlias=alias.service"),
    ]);
    insta::assert_snapshot!(wrapped(&text), @r"
    a.service
    b.service = alias.service
    a.service: 5:1: Unit.OnSuccess ignores a.service, which is the unit itself
    a.service on failure: b.service, mail@a.service.service
    b.service on failure: job.timer
    a.service on success: b.service
    b.service is started by: a.service
    job.timer is started by: b.service
    mail@a.service.service is started by: a.service
    ");
}

#[test]
fn reloads_and_stops_are_propagated_to_present_units() {
    let text = linked(&[
        ("a.service", "PropagatesReloadTo=b.service none.service\nPropagatesStopTo=b.service"),
        ("b.service", "ReloadPropagatedFrom=c.service\nStopPropagatedFrom=c.service bad.service"),
        ("c.service", "PropagateReloadTo=a.service\nPropagatesStopTo=job.timer docker.service"),
        ("d.service", "PropagateReloadFrom=d.service a.service"),
    ]);
    insta::assert_snapshot!(wrapped(&text), @r"
    a.service
    b.service
    c.service
    d.service
    a.service: 4:1: Unit.PropagatesReloadTo ignores none.service, which is not run here
    b.service: 5:1: Unit.StopPropagatedFrom ignores bad.service, which was refused
    c.service: 5:1: Unit.PropagatesStopTo ignores job.timer, which only starts its unit
    c.service: 5:1: Unit.PropagatesStopTo ignores docker.service, which is not run here
    d.service: 4:1: Unit.PropagateReloadFrom ignores d.service, which is the unit itself
    a.service passes its reload to: b.service, d.service
    c.service passes its reload to: a.service, b.service
    a.service passes its stop to: b.service
    c.service passes its stop to: b.service
    ");
}

#[test]
fn propagated_stops_include_those_of_requirements() {
    let units = system(&[
        ("a.service", "PropagatesStopTo=b.service"),
        ("b.service", ""),
        ("c.service", "Requires=b.service\nPropagatesStopTo=a.service d.service"),
        ("d.service", "PartOf=a.service"),
    ]);
    let linked = link(&units, &outside());
    let names =
        |units: BTreeSet<Name>| units.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let name = |text: &str| Name::new(text).expect("it is a name");
    let after = |unit: &str| names(linked.stopped_after(&name(unit)));
    assert_eq!(after("a.service"), "b.service c.service d.service");
    assert_eq!(after("b.service"), "a.service c.service d.service");
    assert_eq!(after("d.service"), "");
    assert_eq!(names(linked.stopped_with(&name("a.service"))), "d.service", "at a restart");
}

#[test]
fn requisites_and_upheld_units_have_edges() {
    let text = linked(&[
        ("a.service", "Requisite=b.service c.service d.service bad.service docker.service"),
        ("b.service", ""),
        ("c.service", "StopWhenUnneeded=yes\nUpholds=f.service none.service"),
        ("d.service", "Upholds=c.service\nAfter=c.service\n[Install]\nUpheldBy=a.service"),
        ("e.service", "Requisite=none.service"),
        ("f.service", "Requisite=g.service"),
        ("g.service", "After=f.service"),
    ]);
    insta::assert_snapshot!(wrapped(&text), @r#"
    a.service
      depends-ms bad.service
      depends-ms d.service
      requisite b.service
      requisite c.service
    b.service
    c.service
    d.service
      waits-for c.service
    g.service
    no e.service: 4:1: Unit.Requisite names none.service, which is not run on this
          machine: submit it as well (MachineOf= in [X-Fleet] keeps both on one machine),
          write Wants=, or declare it active: native_external = ["none.service=up"], or
          "fleetd dev --native-external none.service=up"
    no f.service: 4:1: Unit.Requisite names g.service, which is ordered after this unit,
          but Requisite= needs the opposite order: write Requires=
    a.service: 4:1: Unit.Requisite blocks the unit, because bad.service was refused
    a.service: 4:1: Unit.Requisite also orders the unit after b.service
    a.service: 4:1: Unit.Requisite also orders the unit after c.service
    a.service: 4:1: Unit.Requisite also orders the unit after d.service
    c.service: 5:1: Unit.Upholds ignores none.service, which is not run here
    with b.service stops a.service
    with c.service stops a.service
    with d.service stops a.service
    with g.service stops f.service
    a.service upholds: d.service
    c.service upholds: f.service
    d.service upholds: c.service
    c.service is upheld by: d.service
    d.service is upheld by: a.service
    f.service is upheld by: c.service
    c.service is needed by: a.service, d.service
    a.service may no longer need: c.service
    d.service may no longer need: c.service
    "#);
}
