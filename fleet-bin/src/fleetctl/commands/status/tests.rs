//! Status as text and as JSON, for units in various states.

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_764_210_600_000);

fn time(millis: u64) -> wire::Time {
    Timestamp::from_millis(millis).into()
}

fn unit(desired: &str, machine: &str, reason: &str) -> wire::UnitEntity {
    let option = wire::UnitOptionEntity {
        section: "Unit".into(),
        name: "Description".into(),
        value: "The web".into(),
    };
    wire::UnitEntity {
        name: "web.service".into(),
        hash: "0123456789abcdef".into(),
        desired_state: desired.into(),
        current_state: desired.into(),
        machine_id: machine.into(),
        reason: reason.into(),
        options: vec![option],
        ..wire::UnitEntity::default()
    }
}

fn state(machine: &str, active: &str, sub: &str) -> wire::UnitStateEntity {
    wire::UnitStateEntity {
        machine_id: machine.into(),
        systemd_load_state: "loaded".into(),
        systemd_active_state: active.into(),
        systemd_sub_state: sub.into(),
        ..wire::UnitStateEntity::default()
    }
}

fn status(unit: &wire::UnitEntity, states: Vec<wire::UnitStateEntity>) -> Status {
    let machine = wire::MachineEntity {
        id: "282f949fc0de".into(),
        primary_ip: "10.10.20.1".into(),
        ..wire::MachineEntity::default()
    };
    let observation = Observation { states, ..Observation::default() };
    Status::new(unit, &observation, &MachineLabels::new(&[machine]))
}

#[test]
fn failed_unit_shows_result_and_journal() {
    let failed = wire::UnitStateEntity {
        result: "exit-code".into(),
        exit: "exited with status 3".into(),
        restarts: 5,
        ..state("282f949fc0de", "failed", "failed")
    };
    let mut status = status(&unit("launched", "282f949fc0de", ""), vec![failed]);
    status.machines[0].journal = vec![
        wire::LogLine { at: Some(time(1_764_210_000_000)), text: "web[7]: no port".into() },
        wire::LogLine { at: None, text: "web[7]: bye".into() },
    ];
    assert!(!status.is_active());
    insta::assert_snapshot!(status.text(Colour::Off, NOW), @r"
    web.service - The web
          Hash: 0123456
       Desired: launched
       Current: launched
       Machine: 282f949f.../10.10.20.1
        Loaded: loaded
        Active: failed (failed)
        Result: exit-code
          Exit: exited with status 3
      Restarts: 5

    Nov 27 02:20:00 web[7]: no port
    web[7]: bye
    ");
}

#[test]
fn unhealthy_unit_shows_the_failed_check() {
    let unhealthy = wire::UnitStateEntity {
        health: "unhealthy".into(),
        health_problem: "GET http://127.0.0.1:80/: connection refused".into(),
        ..state("282f949fc0de", "active", "running")
    };
    let status = status(&unit("launched", "282f949fc0de", ""), vec![unhealthy]);
    assert!(status.is_active(), "as for systemctl");
    insta::assert_snapshot!(status.text(Colour::Off, NOW), @"
    web.service - The web
          Hash: 0123456
       Desired: launched
       Current: launched
       Machine: 282f949f.../10.10.20.1
        Loaded: loaded
        Active: active (running)
        Health: unhealthy: GET http://127.0.0.1:80/: connection refused
    ");
}

#[test]
fn unplaced_unit_shows_its_reason() {
    let status = status(&unit("launched", "", "no machine is present"), vec![]);
    assert!(!status.is_active());
    insta::assert_snapshot!(status.text(Colour::Off, NOW), @r"
    web.service - The web
          Hash: 0123456
       Desired: launched
       Current: launched
        Reason: no machine is present
       Machine: none
    ");
}

#[test]
fn unreported_unit_is_marked() {
    insta::assert_snapshot!(status(&unit("loaded", "m1", ""), vec![]).text(Colour::Off, NOW), @r"
    web.service - The web
          Hash: 0123456
       Desired: loaded
       Current: loaded
       Machine: m1
        Active: not reported yet
    ");
}

#[test]
fn global_unit_is_shown_on_every_machine() {
    let mut running = state("282f949fc0de", "active", "running");
    running.main_pid = Some(7);
    let global = wire::UnitEntity { global: true, ..unit("launched", "", "") };
    let status = status(&global, vec![running, state("m2", "active", "running")]);
    assert!(status.is_active());
    insta::assert_snapshot!(status.text(Colour::Off, NOW), @r"
    web.service - The web
          Hash: 0123456
       Desired: launched
       Current: launched
       Machine: 282f949f.../10.10.20.1
        Loaded: loaded
        Active: active (running)
      Main PID: 7
       Machine: m2
        Loaded: loaded
        Active: active (running)
    ");
    insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap(), @r#"
    {
      "unit": "web.service",
      "description": "The web",
      "hash": "0123456789abcdef",
      "desired": "launched",
      "current": "launched",
      "global": true,
      "machines": [
        {
          "machine": "282f949fc0de",
          "ip": "10.10.20.1",
          "load": "loaded",
          "active": "active",
          "sub": "running",
          "mainPID": 7,
          "restarts": 0,
          "journal": []
        },
        {
          "machine": "m2",
          "load": "loaded",
          "active": "active",
          "sub": "running",
          "restarts": 0,
          "journal": []
        }
      ]
    }
    "#);
}

#[test]
fn service_manager_details_are_shown() {
    let waits = state("282f949fc0de", "activating", "auto-restart");
    let mut status = status(&unit("launched", "282f949fc0de", ""), vec![waits]);
    let particulars = wire::StatusDetails::default()
        .with_degraded_by(vec!["db.service".into(), "cache.service".into()])
        .with_tracking("by control groups")
        .with_retry_in_milliseconds(2500);
    let mut machine_status = wire::MachineStatus::default();
    machine_status.machine_id = "282f949fc0de".into();
    machine_status.details = Some(particulars);
    status.add_details(&[machine_status]);
    insta::assert_snapshot!(status.text(Colour::Off, NOW), @r"
    web.service - The web
          Hash: 0123456
       Desired: launched
       Current: launched
       Machine: 282f949f.../10.10.20.1
        Loaded: loaded
        Active: activating (auto-restart)
         Retry: in 2.5s
      Degraded: db.service, cache.service
      Tracking: by control groups
    ");
    let shown = serde_json::to_value(&status.machines[0]).unwrap();
    assert_eq!(shown["retryInMilliseconds"], 2500);
    assert_eq!(shown["degradedBy"][0], "db.service");
    assert_eq!(shown["tracking"], "by control groups");
}

#[test]
fn elapses_of_a_timer_are_shown_as_dates() {
    let waits = state("282f949fc0de", "active", "waiting");
    let mut status = status(&unit("launched", "282f949fc0de", ""), vec![waits]);
    let details = wire::StatusDetails::default()
        .with_next_elapse(time(1_764_212_400_000))
        .with_last_elapse(time(1_764_208_800_000));
    let sent = serde_json::to_string(&details).unwrap();
    assert_eq!(
        sent,
        r#"{"lastElapse":"2025-11-27T02:00:00.000Z","nextElapse":"2025-11-27T03:00:00.000Z"}"#
    );
    assert_eq!(serde_json::from_str::<wire::StatusDetails>(&sent).unwrap(), details);
    let mut machine_status = wire::MachineStatus::default();
    machine_status.machine_id = "282f949fc0de".into();
    machine_status.details = Some(details);
    status.add_details(&[machine_status]);
    let text = status.text(Colour::Off, NOW);
    assert!(text.contains("      Next: Thu 2025-11-27 03:00:00 UTC; in 30min\n"), "{text}");
    assert!(text.contains("      Last: Thu 2025-11-27 02:00:00 UTC; 30min ago\n"), "{text}");
    let shown = serde_json::to_value(&status.machines[0]).unwrap();
    assert_eq!(shown["nextElapse"], "2025-11-27T03:00:00.000Z");
    assert_eq!(shown["lastElapse"], "2025-11-27T02:00:00.000Z");
}

#[test]
fn active_line_shows_since_when() {
    let runs = wire::UnitStateEntity {
        since: Some(time(1_764_210_000_000)),
        ..state("m1", "active", "running")
    };
    let text = status(&unit("launched", "m1", ""), vec![runs]).text(Colour::Off, NOW);
    let expected = "    Active: active (running) since Thu 2025-11-27 02:20:00 UTC; 10min ago\n";
    assert!(text.contains(expected), "{text}");
}
