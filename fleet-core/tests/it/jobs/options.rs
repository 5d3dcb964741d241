//! Options of jobs and schedules in unit files: values, errors with their positions, templates.

use fleet_core::job::{JobDefinition, JobSettings};
use fleet_core::schedule::ScheduleSettings;
use fleet_core::{Requirements, Strictness, TargetState, Timestamp, Unit};
use fleet_unitfile::calendar::{Utc, Zone};
use fleet_unitfile::{UnitFile, UnitName};

use crate::refusals::errors;
use crate::requirements::{parse, read};
use crate::wrap::wrap;

/// Summarizes the job or schedule of the unit on one line.
fn brief(name: &str, lines: &str) -> String {
    let Some(JobDefinition { settings, schedule }) = read(name, lines).job else {
        return "no job".to_owned();
    };
    let JobSettings { retries, deadline, keep_for, count_lost } = settings;
    let mut parts = vec![format!("{retries} retries")];
    parts.extend(deadline.map(|deadline| format!("deadline {deadline:?}")));
    parts.extend(keep_for.map(|keep_for| format!("kept {keep_for:?}")));
    parts.extend(count_lost.then(|| "counts lost".to_owned()));
    parts.extend(schedule.map(|schedule| {
        let ScheduleSettings { calendar, concurrency, catch_up } = schedule;
        format!("{calendar} {concurrency:?} {catch_up:?}")
    }));
    parts.join(", ")
}

fn check(name: &str, table: &[(&str, &str)]) {
    for (lines, expected) in table {
        assert_eq!(brief(name, lines), *expected, "{lines}");
    }
}

#[test]
fn job_options_are_read_in_any_order() {
    let daily = "0 retries, *-*-* 00:00:00 Forbid None";
    check(
        "a@1.service",
        &[
            ("", "no job"),
            ("RunOnce=no", "no job"),
            ("RunOnce=yes", "0 retries"),
            ("RunOnce=\"true\"", "0 retries"),
            ("Retries=2\nRunOnce=true", "2 retries"),
            (
                "RunOnce=true\nDeadline=1h 30min\nKeepFor=1 d\nCountLost=true",
                "0 retries, deadline 5400s, kept 86400s, counts lost",
            ),
            ("Deadline=infinity\nRunOnce=true\nKeepFor=0", "0 retries, kept 0ns"),
            ("Schedule=daily\nRunOnce=true", daily),
            (
                "RunOnce=true\nSchedule=Mon..Fri 02:00 Europe/Berlin\nCatchUp=once\n\
                 ConcurrencyPolicy=replace",
                "0 retries, Mon..Fri *-*-* 02:00:00 Europe/Berlin Replace Once",
            ),
            // Of a single value, the last one counts, and an empty one resets the option.
            ("RunOnce=true\nRunOnce=false", "no job"),
            ("RunOnce=true\nRunOnce=", "no job"),
            ("RunOnce=no\nRunOnce=true\nRetries=3\nRetries=1", "1 retries"),
            ("Retries=3\nRetries=", "no job"),
            (
                "RunOnce=true\nRetries=3\nDeadline=1h\nKeepFor=1h\nCountLost=true\nRetries=\n\
                 Deadline=\nKeepFor=\nCountLost=",
                "0 retries",
            ),
            ("RunOnce=true\nSchedule=weekly\nSchedule=\nSchedule=daily", daily),
            (
                "RunOnce=true\nSchedule=daily\nCatchUp=once\nConcurrencyPolicy=allow\nCatchUp=\n\
                 ConcurrencyPolicy=",
                daily,
            ),
            ("RunOnce=true\nSchedule=daily\nCatchUp=once\nCatchUp=\nSchedule=", "0 retries"),
        ],
    );
}

#[test]
fn specifiers_expand_in_job_options() {
    check(
        "a@1.service",
        &[
            ("RunOnce=%i", "0 retries"),
            ("RunOnce=true\nRetries=%i%i", "11 retries"),
            (
                "RunOnce=1\nDeadline=%ih %imin\nKeepFor=%is\nCountLost=%i",
                "0 retries, deadline 3660s, kept 1s, counts lost",
            ),
            ("RunOnce=1\nSchedule=*-*-%i 0%i:00", "0 retries, *-*-01 01:00:00 Forbid None"),
        ],
    );
    check(
        "a@once.service",
        &[("RunOnce=1\nSchedule=daily\nCatchUp=%i", "0 retries, *-*-* 00:00:00 Forbid Once")],
    );
    check(
        "allow.service",
        &[(
            "RunOnce=1\nSchedule=daily\nConcurrencyPolicy=%p",
            "0 retries, *-*-* 00:00:00 Allow None",
        )],
    );
}

/// A schedule with an empty event would otherwise become a job that runs at once.
#[test]
fn value_that_expands_to_nothing_is_refused() {
    let lines = "RunOnce=true\nRetries=%i\nDeadline=%i\nSchedule=%i\nCatchUp=%i\nCountLost=%i";
    let found = parse("a.service", lines, Strictness::Refuse).unwrap_err();
    insta::assert_snapshot!(wrap(&found.to_string()), @"
    line 3, column 9: Retries= is not a number of retries: write a number from 0 to 1000
    line 4, column 10: Deadline= is not a time span: write numbers with units, as in
        Deadline=1h 30min, or infinity
    line 5, column 10: Schedule= is not a calendar event: write an event as for OnCalendar, as
        in Schedule=Mon..Fri 02:00 Europe/Berlin
    line 6, column 9: CatchUp= is not a valid value: write once or none
    line 7, column 11: CountLost= is neither yes nor no: write true or false
    ");
}

#[test]
fn template_with_instance_dependent_job_is_accepted() {
    check(
        "a@.service",
        &[
            ("RunOnce=true\nRetries=2", "2 retries"),
            ("RunOnce=true\nRetries=%i\nDeadline=%i\nKeepFor=%n", "0 retries"),
            ("RunOnce=%i\nRetries=2\nSchedule=daily", "no job"),
            ("RunOnce=true\nSchedule=%i\nCatchUp=once", "no job"),
            ("RunOnce=true\nSchedule=%i\nSchedule=daily", "0 retries, *-*-* 00:00:00 Forbid None"),
            ("RunOnce=%i\nHealthCheck=tcp://a:1\n[Service]\nRestart=always", "no job"),
        ],
    );
    for lines in [
        "RunOnce=%i\nRetries=many",
        "RunOnce=%i\nRunOnce=false\nRetries=2",
        "RunOnce=%i\nRunOnce=\nRetries=2",
        "RunOnce=%i\nCatchUp=once",
        "RunOnce=true\nSchedule=%i\nSchedule=\nCatchUp=once",
    ] {
        assert!(parse("a@.service", lines, Strictness::Refuse).is_err(), "{lines}");
    }
}

#[test]
fn bad_job_options() {
    let lines = "RunOnce=maybe\nRetries=-1\nDeadline=500ms\nKeepFor=1 fortnight\nCountLost=2\n\
                 Schedule=at night\nConcurrencyPolicy=Forbid\nCatchUp=  all\nRetries=%j";
    insta::assert_snapshot!(errors(lines), @r#"
    line 2, column 9: RunOnce=maybe is neither yes nor no: write true or false
    line 3, column 9: Retries=-1 is not a number of retries: write a number from 0 to 1000
    line 4, column 10: Deadline=500ms is too short for any attempt: write at least 1s, or
        remove the option for no deadline
    line 5, column 9: KeepFor=1 fortnight is not a time span: write numbers with units, as in
        KeepFor=1h 30min, or infinity
    line 6, column 11: CountLost=2 is neither yes nor no: write true or false
    line 7, column 10: Schedule=at night is not a calendar event: write an event as for
        OnCalendar, as in Schedule=Mon..Fri 02:00 Europe/Berlin
    line 8, column 19: ConcurrencyPolicy=Forbid is not a valid value: write allow, forbid or
        replace
    line 9, column 11: CatchUp=all is not a valid value: write once or none
    line 10, column 9: Retries=%j cannot be expanded: unknown specifier "%j": use %n, %N, %p
        or %i, and %% for a percent sign
    "#);
    let twice = "RunOnce=true\nSchedule=02:00\nSchedule=14:00";
    insta::assert_snapshot!(errors(twice), @"
    line 4, column 10: Schedule=14:00 comes in addition to Schedule=02:00: keep one of them,
        write one event for both as in Mon,Thu 02:00, or make two units
    ");
    // The specifier is reported alone, not the job that is missing because of it.
    insta::assert_snapshot!(errors("RunOnce=%j\nRetries=2"), @r#"
    line 2, column 9: RunOnce=%j cannot be expanded: unknown specifier "%j": use %n, %N, %p or
        %i, and %% for a percent sign
    "#);
}

#[test]
fn job_options_without_a_job_are_refused() {
    insta::assert_snapshot!(errors("Retries=1\nRunOnce=false\nDeadline=1h\nSchedule=daily"), @"
    line 2, column 1: Retries, Deadline and Schedule have no effect without RunOnce=true: add
        RunOnce=true, or remove them
    ");
    insta::assert_snapshot!(errors("Retries=1\nCatchUp=once"), @"
    line 2, column 1: Retries has no effect without RunOnce=true: add RunOnce=true, or remove
        Retries
    line 3, column 1: CatchUp has no effect without Schedule: add Schedule, or remove CatchUp
    ");
    let timer = parse("a.timer", "Retries=1\nRunOnce=true", Strictness::Refuse).unwrap_err();
    insta::assert_snapshot!(wrap(&timer.to_string()), @"
    line 3, column 9: RunOnce: a.timer is a timer, which never completes: move the option to
        the .service or .container that does the work
    ");
    let name = format!("{}.service", "a".repeat(230));
    let long = parse(&name, "RunOnce=true\nSchedule=daily", Strictness::Refuse).unwrap_err();
    insta::assert_snapshot!(wrap(&long.to_string().replace(&name, "NAME")), @"
    line 3, column 1: Schedule: the name NAME is too long for the names of its runs: shorten
        the name of the unit
    ");
}

#[test]
fn missing_schedule_is_one_error() {
    insta::assert_snapshot!(errors("RunOnce=true\nCatchUp=once\nConcurrencyPolicy=allow"), @"
    line 3, column 1: CatchUp and ConcurrencyPolicy have no effect without Schedule: add
        Schedule, or remove them
    ");
}

#[test]
fn schedule_that_never_elapses_is_refused() {
    insta::assert_snapshot!(errors("RunOnce=true\nSchedule=*-02-30 02:00"), @"
    line 3, column 10: Schedule=*-02-30 02:00 never elapses: write a day that exists in a year
        up to 2199, as in *-02-28, or *-02~01 for the last day of February
    ");
    let file = |event: &str| {
        let text = format!("[X-Fleet]\nRunOnce=true\nSchedule={event}\n");
        let name: UnitName = "a.service".parse().unwrap();
        let file = UnitFile::parse(text).unwrap();
        let parsed = Requirements::parse(&name, &file, Strictness::Refuse);
        (file, parsed.map(|parsed| parsed.requirements))
    };
    // In 2020 the first of January was a Wednesday.
    for event in ["*-02-30", "*-04,06-31", "Mon 2020-01-01", "1969-12-31", "2100-02-29"] {
        assert!(file(event).1.is_err(), "{event}");
    }
    let now = Timestamp::from_millis(1_795_831_200_000);
    for (event, elapses) in [
        ("2020-01-01", false),
        ("2026-11-28 02:00:00", false),
        ("2026-11-28 02:00:01", true),
        ("2024..2025-*-*", false),
        ("*-02-29", true),
        ("2096-02-29", true),
    ] {
        let (file, requirements) = file(event);
        let checked = requirements.unwrap().check_schedule(&file, Some(&Utc), now);
        assert_eq!(checked.is_ok(), elapses, "{event}: {checked:?}");
    }
    let (file, requirements) = file("2020-01-01 Europe/Nowhere");
    let requirements = requirements.unwrap();
    let errors = [Some(&Utc as &dyn Zone), None]
        .map(|zone| requirements.check_schedule(&file, zone, now).unwrap_err().to_string());
    insta::assert_snapshot!(wrap(&errors.join("\n")), @r#"
    line 3, column 10: Schedule=2020-01-01 00:00:00 Europe/Nowhere has elapsed, and never
        elapses again: write a time in the future, or * in place of the year to repeat the
        event
    line 3, column 10: Schedule: the time zone "Europe/Nowhere" is not known on this machine:
        write a name such as Europe/Berlin or UTC, or install the package tzdata
    "#);
}

#[test]
fn job_excludes_global_health_check_and_restart() {
    insta::assert_snapshot!(errors("RunOnce=true\nGlobal=true\nHealthCheck=tcp://a:1"), @"
    line 2, column 9: RunOnce cannot be used together with Global (line 3): remove one of
        them: a job runs on one machine
    line 2, column 9: RunOnce cannot be used together with HealthCheck (line 4): remove
        HealthCheck: the exit status of a job decides about its success
    ");
    let service = "HealthInterval=1s\nRunOnce=true\n[Service]\nRestart=on-failure\n\
                   RemainAfterExit=yes\nType=oneshot\n[Unit]\nCollectMode=inactive-or-failed";
    insta::assert_snapshot!(errors(service), @"
    line 5, column 9: Restart=on-failure cannot be used together with RunOnce (line 3): remove
        Restart: with RunOnce, Retries of [X-Fleet] sets the number of further attempts
    line 6, column 17: RemainAfterExit=yes cannot be used together with RunOnce (line 3):
        remove RemainAfterExit: a job ends when its processes have ended
    line 9, column 13: CollectMode=inactive-or-failed cannot be used together with RunOnce
        (line 3): remove CollectMode: systemd would forget that the job has failed
    ");
    for lines in [
        "RunOnce=false\nGlobal=true",
        "RunOnce=false\nHealthCheck=tcp://a:1",
        "RunOnce=true\nRunOnce=\nHealthCheck=tcp://a:1\n[Service]\nRestart=always",
        "RunOnce=true\nGlobal=false\nHealthCheck=tcp://a:1\nHealthCheck=",
        "RunOnce=true\n[Service]\nRestart=no\nRemainAfterExit=no\nType=oneshot",
        "RunOnce=true\n[Service]\nRestart=always\nRemainAfterExit=1\nRestart=\nRemainAfterExit=",
        "RunOnce=true\n[Service]\nRestart=always\n[Unit]\n[Service]\nRestart=no",
        "RunOnce=true\n[Container]\nRestart=always",
        "RunOnce=true\n[Unit]\nCollectMode=inactive",
    ] {
        assert!(parse("a.container", lines, Strictness::Refuse).is_ok(), "{lines}");
    }
    for lines in [
        "Schedule=daily\nRunOnce=true\nGlobal=true",
        "RunOnce=true\n[Service]\nRestart=no\nRestart=always",
        "RunOnce=true\n[Service]\nRemainAfterExit=on",
    ] {
        assert!(parse("a.container", lines, Strictness::Warn).is_err(), "{lines}");
    }
}

#[test]
fn unit_of_a_schedule_is_never_wanted() {
    let unit = |name: &str, lines: &str, desired| {
        let text = format!("[X-Fleet]\n{lines}");
        let file = UnitFile::parse(&text).unwrap();
        Unit::new(name.parse().unwrap(), file, read(name, lines), desired)
    };
    let cases = [
        ("a.service", "", (false, false), true),
        ("a.service", "RunOnce=true", (true, false), true),
        ("a@.service", "RunOnce=true", (true, false), false),
        ("a.service", "RunOnce=true\nSchedule=daily", (false, true), false),
        ("a@.service", "RunOnce=true\nSchedule=daily", (false, true), false),
    ];
    for (name, lines, kind, is_wanted) in cases {
        for desired in TargetState::ALL {
            let unit = unit(name, lines, desired);
            assert_eq!((unit.is_job(), unit.is_schedule()), kind, "{name} {lines}");
            let expected = is_wanted && desired != TargetState::Inactive;
            assert_eq!(unit.is_wanted(), expected, "{name} {lines} {desired}");
        }
    }
    assert!(!Requirements::default().is_job() && !Requirements::default().is_schedule());
}
