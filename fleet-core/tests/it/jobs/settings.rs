//! Settings of jobs and schedules, from the options of `[X-Fleet]`.

use std::time::Duration;

use fleet_core::job::{JobDefinition, JobSettings};
use fleet_core::schedule::{CatchUp, ConcurrencyPolicy};

type Options<'a> = &'a [(&'a str, &'a str)];

const JOB: (&str, &str) = ("RunOnce", "yes");

fn parse(unit: &str, options: Options<'_>) -> Result<Option<JobDefinition>, String> {
    JobDefinition::parse(&unit.parse().unwrap(), options.iter().copied()).map_err(|errors| {
        let lines = errors
            .iter()
            .map(|error| format!("{} {}:\n  {}", error.index, error.message(), error.help()));
        lines.collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn units_without_run_once_are_no_jobs() {
    let cases: [Options<'_>; 5] = [
        &[],
        &[("MachineOf", "a.service"), ("Unknown", "x")],
        &[("RunOnce", "no")],
        &[JOB, ("RunOnce", "")],
        &[JOB, ("Retries", "2"), ("RunOnce", "false"), ("Retries", "")],
    ];
    for options in cases {
        assert_eq!(parse("a.service", options), Ok(None), "{options:?}");
    }
}

#[test]
fn job_settings_are_read() {
    let second = Duration::from_secs(1);
    let default = JobSettings::default();
    let cases: [(Options<'_>, JobSettings); 8] = [
        (&[], default.clone()),
        (&[("Retries", "3")], JobSettings { retries: 3, ..default.clone() }),
        (&[("Retries", "3"), ("Retries", "1")], JobSettings { retries: 1, ..default.clone() }),
        (&[("Retries", "3"), ("Retries", "")], default.clone()),
        (
            &[("Deadline", "1h 30min"), ("KeepFor", "0")],
            JobSettings {
                deadline: Some(5400 * second),
                keep_for: Some(Duration::ZERO),
                ..default.clone()
            },
        ),
        (&[("Deadline", "infinity"), ("KeepFor", "infinity")], default.clone()),
        (&[("CountLost", "true")], JobSettings { count_lost: true, ..default.clone() }),
        (&[("Deadline", " 90 ")], JobSettings { deadline: Some(90 * second), ..default }),
    ];
    for (options, expected) in cases {
        let options = [&[JOB], options].concat();
        for unit in ["a.service", "a@.service", "a@1.service", "a.container"] {
            let job = parse(unit, &options).unwrap().unwrap();
            assert_eq!((job.settings, job.schedule), (expected.clone(), None), "{options:?}");
        }
    }
}

#[test]
fn schedule_settings_are_read() {
    let (forbid, none) = (ConcurrencyPolicy::default(), CatchUp::default());
    assert_eq!((forbid, none), (ConcurrencyPolicy::Forbid, CatchUp::None));
    let cases: [(Options<'_>, ConcurrencyPolicy, CatchUp); 5] = [
        (&[], forbid, none),
        (&[("ConcurrencyPolicy", "allow")], ConcurrencyPolicy::Allow, none),
        (&[("ConcurrencyPolicy", "replace")], ConcurrencyPolicy::Replace, none),
        (&[("CatchUp", "once")], forbid, CatchUp::Once),
        (&[("CatchUp", "once"), ("CatchUp", ""), ("ConcurrencyPolicy", "forbid")], forbid, none),
    ];
    for (options, concurrency, catch_up) in cases {
        let schedule = ("Schedule", "Mon..Fri 02:00 Europe/Berlin");
        let options = [options, &[schedule, JOB]].concat();
        let schedule = parse("a.service", &options).unwrap().unwrap().schedule.unwrap();
        assert_eq!(schedule.calendar.zone(), Some("Europe/Berlin"));
        assert_eq!((schedule.concurrency, schedule.catch_up), (concurrency, catch_up));
    }
    let replaced = [JOB, ("Schedule", "daily"), ("Schedule", ""), ("Schedule", "weekly")];
    let schedule = parse("a.service", &replaced).unwrap().unwrap().schedule.unwrap();
    assert_eq!(schedule.calendar, "weekly".parse().unwrap());
}

#[test]
fn each_wrong_value_has_a_remedy() {
    let options = [
        JOB,
        ("CountLost", "maybe"),
        ("Retries", "-1"),
        ("Retries", "+1"),
        ("Retries", "1001"),
        ("Deadline", "soon"),
        ("Deadline", "500ms"),
        ("KeepFor", "1 fortnight"),
        ("Schedule", "at night"),
        ("ConcurrencyPolicy", "Forbid"),
        ("CatchUp", "all"),
    ];
    insta::assert_snapshot!(parse("a.service", &options).unwrap_err(), @"
    1 CountLost=maybe is neither yes nor no:
      write true or false
    2 Retries=-1 is not a number of retries:
      write a number from 0 to 1000
    3 Retries=+1 is not a number of retries:
      write a number from 0 to 1000
    4 Retries=1001 is not a number of retries:
      write a number from 0 to 1000
    5 Deadline=soon is not a time span:
      write numbers with units, as in Deadline=1h 30min, or infinity
    6 Deadline=500ms is too short for any attempt:
      write at least 1s, or remove the option for no deadline
    7 KeepFor=1 fortnight is not a time span:
      write numbers with units, as in KeepFor=1h 30min, or infinity
    8 Schedule=at night is not a calendar event:
      write an event as for OnCalendar, as in Schedule=Mon..Fri 02:00 Europe/Berlin
    9 ConcurrencyPolicy=Forbid is not a valid value:
      write allow, forbid or replace
    10 CatchUp=all is not a valid value:
      write once or none
    ");
}

#[test]
fn each_wrong_combination_has_a_remedy() {
    let combined = |unit, options| parse(unit, options).unwrap_err();
    let without_job: Options<'_> =
        &[("KeepFor", "1d"), ("RunOnce", "no"), ("Schedule", "daily"), ("Deadline", "1h")];
    insta::assert_snapshot!(combined("a.service", without_job), @"
    0 KeepFor, Schedule and Deadline have no effect without RunOnce=true:
      add RunOnce=true, or remove them
    ");
    let without_schedule: Options<'_> = &[JOB, ("CatchUp", "once"), ("ConcurrencyPolicy", "allow")];
    insta::assert_snapshot!(combined("a.service", without_schedule), @"
    1 CatchUp and ConcurrencyPolicy have no effect without Schedule:
      add Schedule, or remove them
    ");
    let twice: Options<'_> = &[JOB, ("Schedule", "02:00"), ("Schedule", "14:00")];
    insta::assert_snapshot!(combined("a.service", twice), @"
    2 Schedule=14:00 comes in addition to Schedule=02:00:
      keep one of them, write one event for both as in Mon,Thu 02:00, or make two units
    ");
    insta::assert_snapshot!(combined("a.timer", &[JOB]), @"
    0 RunOnce: a.timer is a timer, which never completes:
      move the option to the .service or .container that does the work
    ");
    let name = format!("{}.service", "a".repeat(230));
    let long = combined(&name, &[JOB, ("Schedule", "02:00")]).replace(&name, "NAME");
    insta::assert_snapshot!(long, @"
    1 Schedule: the name NAME is too long for the names of its runs:
      shorten the name of the unit
    ");
    assert!(parse(&name, &[JOB]).is_ok());
    let invalid: Options<'_> = &[("RunOnce", "maybe"), ("Retries", "1")];
    insta::assert_snapshot!(combined("a.service", invalid), @"
    0 RunOnce=maybe is neither yes nor no:
      write true or false
    ");
}
