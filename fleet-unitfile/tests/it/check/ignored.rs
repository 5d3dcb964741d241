//! Values that a booted systemd was seen to ignore, refuse or take, one line each.

use fleet_unitfile::FindingCode;

use super::findings;

/// What is found in a unit of a type that has one more line.
fn found(unit_type: &str, line: &str) -> Vec<FindingCode> {
    let needed = match unit_type {
        "socket" => "[Socket]\nListenStream=/run/x\n",
        "timer" => "[Timer]\nOnBootSec=1h\n",
        "path" => "[Path]\nPathExists=/run/x\n",
        _ => "[Service]\nExecStart=/bin/true\n",
    };
    let source = format!("{needed}{line}\n");
    let (_, findings) = findings(&format!("a.{unit_type}"), source.as_bytes());
    findings.iter().map(fleet_unitfile::Finding::code).collect()
}

#[test]
fn what_systemd_ignores_is_told() {
    use FindingCode::{
        Boolean, Choice, Environment, IgnoredCommand, Number, Path, Size, Specifier,
    };
    for (line, code) in [
        // An empty value is a default for some options, and no value for most.
        ("RuntimeMaxSec=", FindingCode::Timespan),
        ("Restart=", Choice),
        ("StandardOutput=", Choice),
        ("RemainAfterExit=", Boolean),
        ("CPUSchedulingPriority=", Number),
        // Paths lead downwards, and the marks of a condition have their order.
        ("EnvironmentFile=-/etc/../x", Path),
        ("[Unit]\nConditionPathExists=! /run/x", Path),
        ("[Unit]\nConditionPathExists=!!/run/x", Path),
        ("[Unit]\nConditionPathExists=!|/run/x", Path),
        // No memory, no processor, more than all of it.
        ("MemoryMax=0", Size),
        ("MemoryHigh=0%", Size),
        ("CPUQuota=0%", Number),
        ("ManagedOOMMemoryPressureLimit=101%", Number),
        ("PassEnvironment=A=b", Environment),
        // Not every specifier may be part of a name.
        ("[Unit]\nAfter=a@%I.service", Specifier),
        ("WorkingDirectory=-/x/%z", Specifier),
        ("ExecStop=-/bin/%z", IgnoredCommand),
        // Quotes and escapes are read before specifiers are.
        (r"Environment=A=\x25z", Specifier),
        ("Environment=A=%\"z\"", Specifier),
        ("ExecStop=/bin/true ; -/bin/true %z", IgnoredCommand),
    ] {
        assert_eq!(found("service", line), [code], "{line}");
    }
}

#[test]
fn what_systemd_refuses_is_an_error() {
    use FindingCode::{Accept, FatalPath, FatalSpecifier, NoTrigger};
    for (unit_type, line, code) in [
        ("service", "WorkingDirectory=/etc/../x", FatalPath),
        ("service", "ExecStop=/bin/true -%z", FatalSpecifier),
        ("service", r"ExecStop=/bin/true \x25z", FatalSpecifier),
        ("service", "ExecStop=/bin/true %\"z\"", FatalSpecifier),
        // An empty value of one trigger takes back those of the others.
        ("timer", "OnCalendar=", NoTrigger),
        ("path", "DirectoryNotEmpty=", NoTrigger),
        ("socket", "ListenFIFO=", NoTrigger),
        ("socket", "ListenFIFO=/run/y\nAccept=yes", Accept),
        ("socket", "Accept=yes\nMaxConnections=0", Accept),
        ("socket", "Accept=yes\nService=b.service", Accept),
    ] {
        assert_eq!(found(unit_type, line), [code], "{line}");
    }
}

#[test]
fn what_systemd_takes_is_not_told() {
    for (unit_type, line) in [
        ("service", "Nice="),
        ("service", "KillMode="),
        ("service", "Environment="),
        ("service", "ExecStop=/bin/true %\"%z\""),
        ("service", "Environment=A=%\"%z\""),
        ("service", "MemoryLow=0"),
        ("service", "MemoryMax=+1%"),
        ("service", "CPUQuota=250%"),
        ("service", "UnsetEnvironment=A=b"),
        ("service", "[Unit]\nConditionPathExists=|!/run/x"),
        ("service", "[Unit]\nAfter=a@%i.service"),
        ("timer", "OnClockChange=no"),
        ("timer", "OnCalendar=\nOnActiveSec=1"),
        ("socket", "Accept=yes\nMaxConnections=8"),
        ("socket", "ListenFIFO=/run/y\nListenFIFO=\nListenStream=80\nAccept=yes"),
    ] {
        assert_eq!(found(unit_type, line), [], "{line}");
    }
}

#[test]
fn a_name_that_goes_on_in_the_next_line_is_told_as_a_whole() {
    let source = "[Unit]\na\\\nä=b\n";
    let (file, findings) = findings("a.automount", source.as_bytes());
    let span = findings[0].span();
    assert_eq!(&source[span.start..span.end], "a\\\nä=b");
    assert_eq!(file.options().next().unwrap().name(), "a ä");
}

#[test]
fn what_is_no_character_makes_a_word_that_is_not_utf8() {
    for word in [r"\ud800", r"\U00110000"] {
        let error = fleet_unitfile::split_words_relaxed(word).unwrap_err();
        assert_eq!(error, fleet_unitfile::WordError::NotUtf8 { at: 0 }, "{word}");
    }
}

#[test]
fn a_section_is_told_at_its_header_and_not_in_the_value_above() {
    let source = "[Unit]\nDescription=a \\\n[Foo]\n[Foo]\nA=b\n[Service]\nExecStart=/bin/true\n";
    let (_, findings) = findings("a.service", source.as_bytes());
    let of_section = findings.iter().find(|it| it.code() == FindingCode::UnknownSection).unwrap();
    assert_eq!(of_section.location().line, 4);
    assert_eq!(&source[of_section.span().start..of_section.span().end], "[Foo]");
}

#[test]
fn every_finding_knows_its_line_however_many_there_are() {
    let text = "# ä\r\n[Service]\n\rUser=web\0Nice=x\n\nKey=1\n".repeat(40);
    let (file, findings) = findings("a.service", text.as_bytes());
    assert!(findings.len() > 100);
    for finding in &findings {
        let alone = file.location(finding.span().start);
        assert_eq!(finding.location(), alone, "{finding}");
        if finding.code() == FindingCode::Repeated {
            let before = format!(" is set in line {}, too", alone.line - 6);
            assert!(finding.message().ends_with(&before), "{finding}");
        }
    }
}
