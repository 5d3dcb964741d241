//! Requirements that were built as values: what the parser refuses, validation refuses as well.

use std::time::Duration;

use fleet_core::health::{HealthCheck, HealthTarget};
use fleet_core::job::{JobDefinition, JobSettings};
use fleet_core::requirements::{Preference, Spread};
use fleet_core::schedule::ScheduleSettings;
use fleet_core::{Requirements, Resources, Strictness};

use crate::requirements::parse;

/// Requirements, their section, and the error of the validation.
type Case = (Requirements, &'static str, &'static str);

fn with(change: impl FnOnce(&mut Requirements)) -> Requirements {
    let mut requirements = Requirements::default();
    change(&mut requirements);
    requirements
}

fn spread(weight: i32, key: &str) -> Spread {
    Spread { weight, key: key.to_owned() }
}

fn cases() -> Vec<Case> {
    vec![
        (
            with(|it| {
                it.global = true;
                it.reserve = Resources { cpu: 1000, ..Resources::default() };
            }),
            "Global=true\nReserveCPU=1",
            "Global cannot be used together with ReserveCPU: remove one of them",
        ),
        (
            with(|it| it.machine_of = vec!["web@1.service".parse().unwrap()]),
            "MachineOf=web@1.service",
            "MachineOf=web@1.service names the unit itself: remove it",
        ),
        (
            with(|it| it.machine_of = vec!["db@.service".parse().unwrap()]),
            "MachineOf=db@.service",
            "MachineOf=db@.service names a template, which never runs itself: name one of its \
             instances",
        ),
        (
            with(|it| {
                it.machine_of = vec!["db.service".parse().unwrap()];
                it.conflicts = vec!["d*".parse().unwrap()];
            }),
            "MachineOf=db.service\nConflicts=d*",
            "MachineOf=db.service cannot be satisfied, because Conflicts=d* excludes that unit: \
             remove one of them",
        ),
        (
            with(|it| it.start_after = vec!["web@1.service".parse().unwrap()]),
            "StartAfter=web@1.service",
            "StartAfter=web@1.service names the unit itself: remove it",
        ),
        (
            with(|it| it.start_after = vec!["db@.service".parse().unwrap()]),
            "StartAfter=db@.service",
            "StartAfter=db@.service names a template, which never runs itself: name one of its \
             instances",
        ),
        (
            with(|it| it.max_per_machine = Some(0)),
            "MaxPerMachine=0",
            "MaxPerMachine=0 allows no machine: use at least 1, or None",
        ),
        (
            with(|it| {
                let expression = "disk = ssd".parse().unwrap();
                it.prefer = vec![Preference { weight: 0, expression }];
            }),
            "Prefer=0: disk = ssd",
            "Prefer has the weight 0: use one from -1000 to 1000 but 0",
        ),
        (
            with(|it| it.spread = vec![spread(1001, "zone")]),
            "Spread=1001: zone",
            "Spread has the weight 1001: use one from 1 to 1000",
        ),
        (
            with(|it| it.spread = vec![spread(1, "a=b")]),
            "Spread=a=b",
            "Spread has the key \"a=b\", which is not a metadata key: use one without blanks, \
             control characters and \"=\"",
        ),
    ]
}

fn failure_cases() -> Vec<Case> {
    vec![
        (
            with(|it| it.move_after_failures = Some(101)),
            "MoveAfterFailures=101",
            "MoveAfterFailures is out of range: use 1 to 100, or None",
        ),
        (
            with(|it| {
                it.move_after_failures = Some(3);
                it.machine_id = Some("m1".parse().unwrap());
            }),
            "MoveAfterFailures=3\nMachineID=m1",
            "MoveAfterFailures cannot be used together with MachineID: remove one of them",
        ),
    ]
}

fn health_cases() -> Vec<Case> {
    vec![
        (
            with(|it| {
                let target = HealthTarget::Tcp { host: "a".to_owned(), port: 0 };
                it.health_check = Some(HealthCheck::new(target));
            }),
            "HealthCheck=tcp://a:0",
            "the health check is invalid: it has no valid port: write a number from 1 to 65535, \
             as in tcp://127.0.0.1:5432",
        ),
        (
            with(|it| {
                let target = HealthTarget::Tcp { host: "a".to_owned(), port: 1 };
                it.health_check = Some(HealthCheck { threshold: 0, ..HealthCheck::new(target) });
            }),
            "HealthCheck=tcp://a:1\nHealthThreshold=0",
            "the health check is invalid: it is not a whole number of at least 1: write a number \
             such as 3",
        ),
    ]
}

fn job() -> JobDefinition {
    JobDefinition { settings: JobSettings::default(), schedule: None }
}

fn job_cases() -> Vec<Case> {
    vec![
        (
            with(|it| (it.job, it.global) = (Some(job()), true)),
            "RunOnce=true\nGlobal=true",
            "Global cannot be used together with RunOnce: remove one of them",
        ),
        (
            with(|it| {
                let target = HealthTarget::Tcp { host: "a".to_owned(), port: 1 };
                it.health_check = Some(HealthCheck::new(target));
                it.job = Some(job());
            }),
            "RunOnce=true\nHealthCheck=tcp://a:1",
            "HealthCheck cannot be used together with RunOnce: remove one of them",
        ),
        (
            with(|it| {
                let settings = JobSettings { retries: 1001, ..JobSettings::default() };
                it.job = Some(JobDefinition { settings, ..job() });
            }),
            "RunOnce=true\nRetries=1001",
            "Retries=1001 is not a number of retries: write a number from 0 to 1000",
        ),
        (
            with(|it| {
                let deadline = Some(Duration::from_millis(500));
                let settings = JobSettings { deadline, ..JobSettings::default() };
                it.job = Some(JobDefinition { settings, ..job() });
            }),
            "RunOnce=true\nDeadline=500ms",
            "Deadline=500ms is too short for any attempt: write at least 1s, or remove the option \
             for no deadline",
        ),
    ]
}

/// The name decides about these.
#[test]
fn validation_refuses_jobs_by_their_names() {
    let mut wants = with(|it| it.job = Some(job()));
    let error = wants.validate(&"a.timer".parse().unwrap()).unwrap_err().to_string();
    assert_eq!(
        error,
        "RunOnce: a.timer is a timer, which never completes: move the option to the .service or \
         .container that does the work"
    );
    let long = format!("{}.service", "a".repeat(230)).parse().unwrap();
    assert_eq!(wants.validate(&long), Ok(()));
    let schedule = Some(ScheduleSettings::new("daily".parse().unwrap()));
    wants.job = Some(JobDefinition { schedule, ..job() });
    assert_eq!(wants.validate(&"a.container".parse().unwrap()), Ok(()));
    let error = wants.validate(&long).unwrap_err().to_string();
    assert!(error.ends_with("names of its runs: shorten the name of the unit"), "{error}");
}

#[test]
fn validation_refuses_what_the_parser_refuses() {
    let cases = cases().into_iter().chain(failure_cases()).chain(health_cases()).chain(job_cases());
    for (requirements, section, expected) in cases {
        let error = requirements.validate(&"web@1.service".parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(parse("web@1.service", section, Strictness::Refuse).is_err(), "{section}");
    }
}

/// The parser cannot return these: a later weight of a key replaces the earlier one, and it stops
/// reading values at the limit.
#[test]
fn validation_refuses_repeated_keys_and_too_many_values() {
    let name = "web@1.service".parse().unwrap();
    let twice = with(|it| it.spread = vec![spread(1, "zone"), spread(2, "zone")]);
    let error = twice.validate(&name).unwrap_err().to_string();
    assert_eq!(error, "Spread has the key zone twice: keep one of them");
    let many = with(|it| it.conflicts = vec!["a*".parse().unwrap(); 257]);
    let error = many.validate(&name).unwrap_err().to_string();
    assert_eq!(error, "Conflicts has more than 256 values: use patterns, or remove some");
}
