//! Properties of all `[X-Fleet]` sections.

use fleet_core::job::{JobDefinition, JobSettings};
use fleet_core::requirements::{FleetOption, ParsedRequirements, RequirementErrors, Reschedule};
use fleet_core::{Requirements, Resource, Strictness};
use fleet_unitfile::values::Timespan;
use fleet_unitfile::{UnitFile, UnitName};
use proptest::prelude::*;

fn parse(text: &str, strictness: Strictness) -> Result<ParsedRequirements, RequirementErrors> {
    let file = UnitFile::parse(text).unwrap();
    let name: UnitName = "foo@1.service".parse().unwrap();
    Requirements::parse(&name, &file, strictness)
}

/// Generates valid, suspicious and invalid lines in any mixture.
fn section() -> impl Strategy<Value = String> {
    let names = prop_oneof![
        prop::sample::select(FleetOption::ALL.map(FleetOption::as_str).to_vec()),
        prop::sample::select(vec!["X-Conflicts", "X-ConditionMachineID", "machineof", "Foo"]),
    ];
    let pieces = prop::sample::select(vec![
        "",
        " ",
        "\"",
        "=",
        "%",
        "%i",
        "%%",
        "\\",
        "[",
        "]",
        "*",
        "?",
        "a",
        "a=b",
        "a.service",
        "b@1.service",
        "true",
        "é",
        "\t",
        "148a18ff",
        "7",
        "5: a",
        "a < 1.5",
        " and ",
        "not ",
        "(",
        ")",
        "512M",
        "never",
        "stop",
        "tcp://a:1",
        "http://a/",
        "exec:",
        "3s",
        "daily",
        "allow",
        "once",
    ]);
    let value = prop::collection::vec(pieces, 0..5).prop_map(|pieces| pieces.concat());
    let line = (names, value).prop_map(|(name, value)| format!("{name}={value}\n"));
    let lines = prop::collection::vec(line, 0..6).prop_map(|lines| lines.concat());
    // Most options of jobs are errors without a job.
    let job = prop_oneof![3 => Just(""), 1 => Just("RunOnce=true\n")];
    let lines = (job, lines).prop_map(|(job, lines)| format!("{job}{lines}"));
    // An empty line ends the continuation of a last backslash.
    lines.prop_map(|lines| format!("[X-Fleet]\n{}\n", lines.replace("\\\n", "\\\n\n")))
}

/// Writes requirements as a section.
fn write(requirements: &Requirements) -> String {
    let mut text = "[X-Fleet]\n".to_owned();
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("{name}=\"{}\"\n", value.replace('%', "%%")));
    };
    if requirements.global {
        line("Global", "true");
    }
    requirements.machine_id.iter().for_each(|id| line("MachineID", id.as_str()));
    requirements.machine_of.iter().for_each(|unit| line("MachineOf", unit.as_str()));
    for (key, values) in &requirements.metadata {
        values.iter().for_each(|value| line("MachineMetadata", &format!("{key}={value}")));
    }
    requirements.conflicts.iter().for_each(|pattern| line("Conflicts", pattern.as_str()));
    requirements.replaces.iter().for_each(|pattern| line("Replaces", pattern.as_str()));
    requirements.start_after.iter().for_each(|unit| line("StartAfter", unit.as_str()));
    write_plain(requirements, &mut text);
    text
}

/// Writes scalar options; in expressions quotation marks have their own meaning.
fn write_plain(requirements: &Requirements, text: &mut String) {
    let mut line = |name: FleetOption, value: &dyn std::fmt::Display| {
        // The blank keeps a last backslash from continuing the line.
        text.push_str(&format!("{name}={} \n", value.to_string().replace('%', "%%")));
    };
    let reserved = [
        (FleetOption::ReserveCpu, Resource::Cpu),
        (FleetOption::ReserveMemory, Resource::Memory),
        (FleetOption::ReserveDisk, Resource::Disk),
    ];
    // Most of them are not allowed together with Global=.
    for (option, resource) in reserved.into_iter().filter(|it| requirements.reserve[it.1] > 0) {
        line(option, &resource.format(requirements.reserve[resource]));
    }
    requirements.max_per_machine.iter().for_each(|max| line(FleetOption::MaxPerMachine, max));
    requirements.metadata_expr.iter().for_each(|it| line(FleetOption::MachineMetadataExpr, it));
    requirements.prefer.iter().for_each(|it| line(FleetOption::Prefer, it));
    requirements.spread.iter().for_each(|it| line(FleetOption::Spread, it));
    if requirements.reschedule != Reschedule::default() {
        line(FleetOption::Reschedule, &requirements.reschedule);
    }
    line(FleetOption::OnPartition, &requirements.on_partition);
    requirements.move_after_failures.iter().for_each(|it| line(FleetOption::MoveAfterFailures, it));
    if let Some(check) = &requirements.health_check {
        line(FleetOption::HealthCheck, &check.target);
        line(FleetOption::HealthInterval, &Timespan::Finite(check.interval));
        line(FleetOption::HealthTimeout, &Timespan::Finite(check.timeout));
        line(FleetOption::HealthThreshold, &check.threshold);
    }
    requirements.job.iter().for_each(|job| write_job(job, &mut line));
}

fn write_job(job: &JobDefinition, mut line: impl FnMut(FleetOption, &dyn std::fmt::Display)) {
    let JobSettings { retries, deadline, keep_for, count_lost } = &job.settings;
    line(FleetOption::RunOnce, &true);
    line(FleetOption::Retries, retries);
    line(FleetOption::CountLost, count_lost);
    deadline.iter().for_each(|it| line(FleetOption::Deadline, &Timespan::Finite(*it)));
    keep_for.iter().for_each(|it| line(FleetOption::KeepFor, &Timespan::Finite(*it)));
    if let Some(schedule) = &job.schedule {
        line(FleetOption::Schedule, &schedule.calendar);
        line(FleetOption::ConcurrencyPolicy, &schedule.concurrency);
        line(FleetOption::CatchUp, &schedule.catch_up);
    }
}

/// Checks that the requirements of a text read back after writing.
fn reads_back(text: &str) -> Result<(), TestCaseError> {
    let Ok(parsed) = parse(text, Strictness::Warn) else { return Ok(()) };
    let written = write(&parsed.requirements);
    // A quotation mark cannot be written inside quotes.
    let patterns = parsed.requirements.conflicts.iter().chain(&parsed.requirements.replaces);
    prop_assume!(patterns.into_iter().all(|pattern| !pattern.as_str().contains('"')));
    prop_assume!(!parsed.requirements.metadata.iter().any(|(key, values)| {
        key.contains('"') || values.iter().any(|value| value.contains('"'))
    }));
    let again = parse(&written, Strictness::Refuse).map(|again| again.requirements);
    prop_assert_eq!(again, Ok(parsed.requirements), "{}", written);
    Ok(())
}

#[test]
fn trailing_backslash_reads_back() {
    reads_back("[X-Fleet]\nSpread=\\\t\n\n").unwrap();
}

proptest! {
    #[test]
    fn strict_and_lenient_parsing_agree_on_valid_sections(text in section()) {
        match (parse(&text, Strictness::Refuse), parse(&text, Strictness::Warn)) {
            (Ok(strict), lenient) => prop_assert_eq!(Ok(strict), lenient),
            (Err(strict), Ok(lenient)) => {
                // Each error became a warning at the same position.
                let places: Vec<_> = strict.iter().map(|error| error.span).collect();
                let warned: Vec<_> = lenient.warnings.iter().map(|warning| warning.span).collect();
                prop_assert!(places.iter().all(|place| warned.contains(place)));
            }
            (Err(strict), Err(lenient)) => {
                prop_assert!(lenient.iter().len() <= strict.iter().len());
            }
        }
    }

    #[test]
    fn errors_are_within_the_file_and_ordered(text in section()) {
        let Err(errors) = parse(&text, Strictness::Refuse) else { return Ok(()) };
        let places: Vec<_> = errors.iter().map(|error| error.span).collect();
        prop_assert!(places.is_sorted_by_key(|span| span.start));
        for error in &errors {
            prop_assert!(text.get(error.span.start..error.span.end).is_some_and(|t| !t.is_empty()));
            let line = text[..error.span.start].matches('\n').count() + 1;
            prop_assert_eq!(error.location.line, line);
        }
    }

    #[test]
    fn written_requirements_read_back(text in section()) {
        reads_back(&text)?;
    }
}
