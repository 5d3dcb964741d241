//! The live view, drawn to a buffer, and the effects of keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use fleet_core::Timestamp;
use fleet_http::wire;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::input::{Request, press};
use super::state::{Cluster, Pane, Top};
use super::view;
use crate::ui::table::Colour;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn machine(id: &str, name: &str, intent: &str) -> wire::MachineEntity {
    wire::MachineEntity {
        id: id.into(),
        hostname: name.into(),
        intent: intent.into(),
        cordoned: !intent.is_empty(),
        ..wire::MachineEntity::default()
    }
}

fn unit(name: &str, machine: &str, active: &str, sub: &str, reason: &str) -> wire::UnitRow {
    let mut row = wire::UnitRow::default();
    (row.unit, row.machine) = (name.into(), machine.into());
    (row.active, row.sub, row.reason) = (active.into(), sub.into(), reason.into());
    row
}

fn usage(cpu: u64, units: &[(&str, u64, u64)]) -> wire::MachineUsage {
    let mut usage = wire::MachineUsage::default();
    usage.cpu_nanoseconds = Some(cpu * 1_000_000);
    usage.load_average = Some([0.42, 0.3, 0.2]);
    (usage.memory_total, usage.memory_available) = (Some(8 << 30), Some(5 << 30));
    let unit = |&(name, cpu, memory): &(&str, u64, u64)| wire::UnitUsage {
        name: name.to_owned(),
        cpu_nanoseconds: Some(cpu * 1_000_000),
        memory: Some(memory << 20),
        tasks: Some(3),
    };
    usage.units = units.iter().map(unit).collect();
    usage
}

/// Returns a view of three machines and a few units, two seconds after the first reports.
fn top() -> Top {
    let mut web = unit("web@1.service", "m1", "active", "running", "");
    web.since = Some(Timestamp::from_millis(NOW.as_millis() - 3_700_000).into());
    web.restarts = 2;
    let mut lost = unit("lost.service", "gone", "unknown", "", "its machine is not present");
    lost.unknown_for = Some(75);
    let mut gpu = unit("gpu.service", "", "", "", "none of 2 machines fits: ...");
    gpu.reason_summary = "no machine has gpu=yes".into();
    let mut sick = unit("sick.service", "m2", "active", "running", "GET /: 503");
    sick.health = "unhealthy".into();
    let failed = "exited with status 3, result exit-code";
    let mut absent = machine("gone", "", "");
    absent.absent_for = Some(75);
    let mut top = Top::default();
    top.set_cluster(Cluster {
        rows: vec![
            unit("db.service", "m2", "active", "running", ""),
            unit("failing.service", "m1", "failed", "failed", failed),
            gpu,
            lost,
            sick,
            web,
        ],
        machines: vec![machine("m1", "dev-1", ""), machine("m2", "dev-2", "drained")],
        absent: vec![absent],
    });
    let first = Timestamp::from_millis(NOW.as_millis() - 2000);
    top.add_sample("m1", (first, usage(1000, &[("web@1.service", 100, 64)])));
    top.add_sample("m1", (NOW, usage(2500, &[("web@1.service", 350, 96)])));
    top.add_sample("m2", (NOW, usage(100, &[("db.service", 100, 1800)])));
    top
}

fn drawn(top: &Top, columns: u16, rows: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    view::draw(top, Colour::On, NOW, &mut buffer);
    let lines = buffer.content.chunks(columns.into()).map(|line| {
        let line: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Presses keys, each a character or the name of a key. Returns the last request.
fn type_keys(top: &mut Top, keys: &[&str]) -> Option<Request> {
    let mut last = None;
    for key in keys {
        let (code, modifiers) = match *key {
            "Tab" => (KeyCode::Tab, KeyModifiers::NONE),
            "Enter" => (KeyCode::Enter, KeyModifiers::NONE),
            "Esc" => (KeyCode::Esc, KeyModifiers::NONE),
            "Home" => (KeyCode::Home, KeyModifiers::NONE),
            "End" => (KeyCode::End, KeyModifiers::NONE),
            "Backspace" => (KeyCode::Backspace, KeyModifiers::NONE),
            "Ctrl-C" => (KeyCode::Char('c'), KeyModifiers::CONTROL),
            key => (KeyCode::Char(key.chars().next().unwrap()), KeyModifiers::NONE),
        };
        last = press(top, KeyEvent::new(code, modifiers), NOW);
    }
    last
}

fn shown_units(top: &Top) -> String {
    let rows = top.rows(Pane::Units, NOW);
    rows.iter().map(|row| row.unit.split('.').next().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn view_fits_80_by_24() {
    insta::assert_snapshot!(drawn(&top(), 80, 24), @r"
    fleetctl top: 2 machines, 6 units, 4 failed
    MACHINE▼  UNITS  CPU%     MEMORY  LOAD  STATE
    dev-1         2  75.0  3.0G/8.0G  0.42  present
    dev-2         2     -  3.0G/8.0G  0.42  drained
    gone          1     -          -     -  absent for 1min

    UNIT▼            MACHINE  ACTIVE   CPU%  MEMORY  RESTARTS  REASON
    db.service       dev-2    active      -    1.8G         0  -
    failing.service  dev-1    failed      -       -         0  exited with status 3…
    gpu.service      -        -           -       -         0  no machine has gpu=y…
    lost.service     gone     unknown     -       -         0  its machine is not p…
    sick.service     dev-2    active      -       -         0  GET /: 503
    web@1.service    dev-1    active   12.5     96M         2  -










    / filter  s sort  r reverse  f failed  l logs  i status  Tab  ? help  q quit
    ");
}

#[test]
fn view_fits_120_by_40() {
    let text = drawn(&top(), 120, 40);
    assert_eq!(text.lines().count(), 40);
    insta::assert_snapshot!("view_120x40", text);
}

#[test]
fn narrow_view_shows_cpu_memory_and_restarts() {
    let mut top = top();
    let mut rows = vec![unit("a-unit-with-a-long-name@1.service", "m1", "active", "running", "")];
    rows[0].reason = "a reason that does not fit".to_owned();
    let machines = vec![machine("m1", "a-machine", "")];
    top.set_cluster(Cluster { rows, machines, absent: Vec::new() });
    let view = drawn(&top, 80, 24);
    let header = view.lines().find(|line| line.starts_with("UNIT")).unwrap();
    assert!(["CPU%", "MEMORY", "RESTARTS"].iter().all(|name| header.contains(name)), "{view}");
}

#[test]
fn view_fits_every_size() {
    let mut top = top();
    for keys in [&[] as &[&str], &["?"], &["Esc", "Tab", "/", "x"]] {
        type_keys(&mut top, keys);
        for columns in 1..130 {
            for rows in [1, 2, 9, 10, 11, 24, 50] {
                drawn(&top, columns, rows);
            }
        }
    }
    assert_eq!(drawn(&top, 39, 24).trim_end(), "2 machines, 6 units, 4 failed; enlarge…");
}

#[test]
fn keys_sort_and_filter_units() {
    for (keys, expected) in [
        (&[] as &[&str], "db failing gpu lost sick web@1"),
        (&["r"], "web@1 sick lost gpu failing db"),
        (&["f"], "failing gpu lost sick"),
        (&["f", "f"], "db failing gpu lost sick web@1"),
        // By machine, then by state.
        (&["s"], "gpu failing web@1 db sick lost"),
        // By CPU, memory and restarts: the largest amount comes first.
        (&["s", "s", "s", "s", "s"], "web@1 db failing gpu lost sick"),
        (&["s", "s", "s", "s", "s", "s"], "db web@1 failing gpu lost sick"),
        (&["/", "e", "x", "i", "t"], "failing"),
        (&["/", "D", "E", "V", "-", "2", "Enter"], "db sick"),
        (&["/", "x", "Backspace", "g", "p", "u"], "gpu"),
        (&["/", "g", "p", "u", "Esc"], "db failing gpu lost sick web@1"),
        (&["/", "g", "p", "u", "Enter", "Esc"], "db failing gpu lost sick web@1"),
        // The units of a machine.
        (&["Tab", "Enter"], "failing web@1"),
    ] {
        let mut top = top();
        type_keys(&mut top, keys);
        assert_eq!(shown_units(&top), expected, "{keys:?}");
    }
}

#[test]
fn keys_make_requests() {
    let unit = |unit: &str| unit.to_owned();
    for (keys, expected) in [
        (&["q"] as &[&str], Some(Request::Quit)),
        (&["Esc"], Some(Request::Quit)),
        (&["Ctrl-C"], Some(Request::Quit)),
        (&["/", "Ctrl-C"], Some(Request::Quit)),
        (&["?", "Ctrl-C"], Some(Request::Quit)),
        (&["?", "q"], Some(Request::Close)),
        (&["/", "q"], None),
        (&["l"], Some(Request::Logs { unit: unit("db.service"), machine: unit("m2") })),
        (
            &["j", "Enter"],
            Some(Request::Logs { unit: unit("failing.service"), machine: unit("m1") }),
        ),
        (&["End", "i"], Some(Request::UnitStatus { unit: unit("web@1.service") })),
        (&["End", "k", "j", "j", "i"], Some(Request::UnitStatus { unit: unit("web@1.service") })),
        (&["Tab", "j", "i"], Some(Request::MachineStatus { machine: unit("m2") })),
        (&["/", "n", "i", "x", "Enter", "l"], None),
    ] {
        assert_eq!(type_keys(&mut top(), keys), expected, "{keys:?}");
    }
}

#[test]
fn selection_stays_on_its_unit() {
    let mut top = top();
    type_keys(&mut top, &["j", "j", "r"]);
    assert_eq!(
        type_keys(&mut top, &["i"]),
        Some(Request::UnitStatus { unit: "gpu.service".to_owned() })
    );
}
