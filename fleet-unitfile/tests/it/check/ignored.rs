//! Values that a booted systemd was observed to ignore, refuse or accept, one line each.

use fleet_unitfile::check::{FindingCode, SystemdVersion};
use fleet_unitfile::{UnitFile, UnitName};

use super::findings;

/// Returns the findings in a unit of a type with one more line.
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
fn ignored_text_is_a_warning() {
    use FindingCode::{
        Boolean, Choice, Environment, IgnoredCommand, Number, Path, Size, Specifier,
    };
    for (line, code) in [
        // An empty value is the default of some options, and invalid for most.
        ("RuntimeMaxSec=", FindingCode::Timespan),
        ("Restart=", Choice),
        ("StandardOutput=", Choice),
        ("RemainAfterExit=", Boolean),
        ("CPUSchedulingPriority=", Number),
        // Paths must not lead upwards, and condition marks have an order.
        ("EnvironmentFile=-/etc/../x", Path),
        ("[Unit]\nConditionPathExists=! /run/x", Path),
        ("[Unit]\nConditionPathExists=!!/run/x", Path),
        ("[Unit]\nConditionPathExists=!|/run/x", Path),
        // No memory, no processor, or more than all of it.
        ("MemoryMax=0", Size),
        ("MemoryHigh=0%", Size),
        ("CPUQuota=0%", Number),
        ("ManagedOOMMemoryPressureLimit=101%", Number),
        ("PassEnvironment=A=b", Environment),
        // Not every specifier may be part of a name.
        ("[Unit]\nAfter=a@%I.service", Specifier),
        ("WorkingDirectory=-/x/%z", Specifier),
        ("ExecStop=-/bin/%z", IgnoredCommand),
        // Quotes and escapes are processed before specifiers.
        (r"Environment=A=\x25z", Specifier),
        ("Environment=A=%\"z\"", Specifier),
        ("ExecStop=/bin/true ; -/bin/true %z", IgnoredCommand),
    ] {
        assert_eq!(found("service", line), [code], "{line}");
    }
}

#[test]
fn values_that_only_look_right_are_warnings() {
    use FindingCode::{BadEscape, Choice, ExitStatus, Number, Size, Timespan, UnitName};
    for (unit_type, line, code) in [
        // systemd ignores the whole line because of the escape.
        ("service", r"Environment=A=1 RE=\d+", BadEscape),
        ("service", r"RuntimeDirectory=a\qb", BadEscape),
        // No quotes in dependencies, and no instances of types without templates.
        ("service", "[Unit]\nWants=\"a.service\"", UnitName),
        ("service", "[Unit]\nAfter='x.service'", UnitName),
        ("service", "[Unit]\nAfter=foo@bar.mount", UnitName),
        ("service", "[Unit]\nAfter=foo@bar.swap", UnitName),
        ("service", "Slice=foo@bar.slice", UnitName),
        // Case and quotes count.
        ("service", "RestrictNamespaces=USER", Choice),
        ("service", "RestrictNamespaces=\"user\"", Choice),
        ("service", "RestrictAddressFamilies=NONE", Choice),
        ("service", "Delegate=CPU", Choice),
        ("service", "DisableControllers=CPU", Choice),
        ("service", "DisableControllers=\"cpu\"", Choice),
        ("service", "SystemCallArchitectures=X86", Choice),
        ("service", "SuccessExitStatus=\"77\"", ExitStatus),
        ("service", "SuccessExitStatus=EFOO", ExitStatus),
        // Numbers out of range.
        ("service", "SyslogLevel=80", Choice),
        ("service", "IOSchedulingClass=99", Choice),
        ("socket", "IPTOS=256", Choice),
        ("service", "MemoryMax=18446744073709551615", Size),
        ("service", "LimitAS=18446744073709551615", FindingCode::Limit),
        ("service", "CPUAffinity=3-1", Number),
        ("service", "AllowedCPUs=8-5", Number),
        ("service", "CPUAffinity=65535", Number),
        ("service", "TimeoutSec=+.5s", Timespan),
    ] {
        assert_eq!(found(unit_type, line), [code], "{line}");
    }
}

#[test]
fn paths_and_forms_that_only_look_right_are_warnings() {
    use FindingCode::{Address, Choice, Form, Install, Path};
    for (unit_type, line, code) in [
        // Paths.
        ("service", "StateDirectory=.", Path),
        ("service", "StateDirectory=private", Path),
        ("service", "ConfigurationDirectory=a:b", Path),
        ("service", "BindPaths=/a:/b:foo", Choice),
        ("service", "BindPaths=:", Path),
        ("service", "MountImages=/a", Form),
        ("service", "ExtensionImages=/a:foo:ro", Choice),
        ("service", "TemporaryFileSystem=-/a", Path),
        ("service", "ReadWritePaths=+-/a", Path),
        ("service", "ReadWritePaths=--/a", Path),
        ("service", "StandardInput=fd:a:b", Form),
        ("service", "EnvironmentFile=%n", Path),
        ("socket", "ListenStream=/", Address),
        ("socket", "ListenStream=@", Address),
        ("socket", "ListenStream=%%", Address),
        // What systemctl enable refuses or ignores.
        ("service", "[Install]\nAlias=x.timer", Install),
        ("service", "[Install]\nDefaultInstance=x", Install),
        // Values of several parts.
        ("service", "LoadCredential=rel/path", Form),
        ("service", "SetCredential=a", Form),
        ("service", "IOReadBandwidthMax=/dev/sda", Form),
        ("service", "IODeviceLatencyTargetSec=/dev/sda x", Form),
        ("service", "SystemCallFilter=@foo", Choice),
        ("service", "SystemCallFilter=~read:EFOO", Form),
        ("service", "SystemCallErrorNumber=0", Choice),
        ("service", "SocketBindAllow=90-80", Form),
        ("service", "RestrictNetworkInterfaces=5", Form),
        ("socket", "BindToDevice=averyveryverylongname", Form),
        ("service", "LogExtraFields=_FIELD=v", Form),
        ("service", "LogNamespace=a/b", Form),
        ("service", "TimerSlackNSec=5 parsec", Form),
        ("service", "CoredumpFilter=everything", Choice),
        ("service", "StandardInputData=abc", Form),
        ("socket", "FileDescriptorName=a:b", Form),
        ("service", "RootHash=abcd", Form),
        ("service", "RootHashSignature=base64:@", Form),
        ("service", "RootImageOptions=foo:ro", Choice),
        ("service", "BPFProgram=foo:/x", Choice),
        ("socket", "ListenNetlink=route x", Form),
    ] {
        assert_eq!(found(unit_type, line), [code], "{line}");
    }
}

#[test]
fn values_of_several_parts_have_no_finding() {
    for (unit_type, line) in [
        ("service", "LoadCredential=a:/etc/a"),
        ("service", "SetCredential=a:b\\n"),
        ("service", "IOReadBandwidthMax=\"/dev/a b\" 5M"),
        ("service", "IODeviceWeight=/dev/%i 100"),
        ("service", "SystemCallFilter=~@clock:EPERM read:kill"),
        ("service", "SocketBindDeny=ipv4:tcp:80-90"),
        ("service", "RestrictNetworkInterfaces=~ eth0 lo"),
        ("service", "LogExtraFields=\"FIELD=a b\""),
        ("service", "TimerSlackNSec=50ns"),
        ("service", "CoredumpFilter=elf-headers 0x33"),
        ("service", "StandardInputData=SGVs bG8="),
        ("service", "RootImageOptions=root:ro usr:noatime"),
        ("service", "ExtensionImages=/a:root:ro"),
        ("service", "MountImages=-/a:/b:ro"),
        ("service", "BPFProgram=egress:/sys/fs/bpf/x"),
        ("socket", "ListenNetlink=kobject-uevent 1"),
    ] {
        assert_eq!(found(unit_type, line), [], "{line}");
    }
}

#[test]
fn helps_name_a_remedy_that_systemd_takes() {
    for (line, expected) in [
        ("Slice=foo", "write foo.slice"),
        ("[Unit]\nWants=a.foo", "end the name in a unit type, as in a.foo.service"),
        ("[Unit]\nWants=a", "write a.service, or another unit type"),
        ("[Unit]\nWants=\"a.service\"", "write the name without quotes"),
        ("[Install]\nWantedBy=\"a b.target\"", "write a name such as web.service"),
        ("IPAddressAllow=\"10.0.0.0/8\"", "write the range without quotes"),
    ] {
        let source = format!("[Service]\nExecStart=/bin/true\n{line}\n");
        let (_, findings) = findings("a.service", source.as_bytes());
        let helps: Vec<_> = findings.iter().map(fleet_unitfile::Finding::help).collect();
        assert_eq!(helps, [expected], "{line}");
    }
}

#[test]
fn specifiers_are_expanded_before_the_value_is_checked() {
    use FindingCode::{FatalPath, FatalSpecifier, Program, SliceName, Symlinks, User};
    for (name, line, expected) in [
        ("a.service", "ExecStop=scripts/%p.sh", &[Program][..]),
        ("a.service", "ExecStop=./%n", &[Program]),
        ("a.service", "ExecStop=/a/%p/", &[Program]),
        ("a.service", "ExecStop=/a/%p", &[]),
        ("a@.service", "ExecStop=./%i", &[Program]),
        ("a@.service", "ExecStop=%i/b", &[]),
        ("a.service", "User=05", &[User]),
        ("a.service", "Group=0755", &[User]),
        ("a.service", "SupplementaryGroups=099", &[User]),
        ("a.service", "User=%i", &[User]),
        ("a@.service", "User=%i", &[]),
        ("a@b.service", "User=%i", &[]),
        ("a.service", "RootDirectory=%n", &[FatalPath]),
        ("a.service", "WorkingDirectory=%n", &[FatalPath]),
        ("a.service", "WorkingDirectory=%h", &[]),
        ("a@.service", "WorkingDirectory=%i", &[]),
        ("a.service", "SmackProcessLabel=%Q", &[FatalSpecifier]),
        ("a.service", "AppArmorProfile=%Q", &[FatalSpecifier]),
        ("a.service", "SELinuxContext=%Q", &[FatalSpecifier]),
        ("a.service", "PIDFile=/a/../b", &[FatalPath]),
        ("a--b.slice", "", &[SliceName]),
        ("a-.slice", "", &[SliceName]),
        ("-a.slice", "", &[SliceName]),
        ("-.slice", "", &[]),
        ("a-b.slice", "", &[]),
        ("a.socket", "ListenStream=80\nSymlinks=/run/a", &[Symlinks]),
        ("a.socket", "ListenStream=/a\nListenFIFO=/b\nSymlinks=/run/a", &[Symlinks]),
        ("a.socket", "ListenStream=/a\nSymlinks=/run/a", &[]),
    ] {
        let section = match name.rsplit('.').next() {
            Some("slice") => "[Slice]",
            Some("socket") => "[Socket]",
            _ => "[Service]\nExecStart=/bin/true",
        };
        let (_, findings) = findings(name, format!("{section}\n{line}\n").as_bytes());
        let codes: Vec<_> = findings.iter().map(fleet_unitfile::Finding::code).collect();
        assert_eq!(codes, expected, "{name} {line}");
    }
}

#[test]
fn refused_text_is_an_error() {
    use FindingCode::{Accept, FatalPath, FatalSpecifier, NoTrigger};
    for (unit_type, line, code) in [
        ("service", "WorkingDirectory=/etc/../x", FatalPath),
        ("service", "ExecStop=/bin/true -%z", FatalSpecifier),
        ("service", r"ExecStop=/bin/true \x25z", FatalSpecifier),
        ("service", "ExecStop=/bin/true %\"z\"", FatalSpecifier),
        // An empty value of one trigger resets the others.
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
fn accepted_text_has_no_finding() {
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
fn unusual_spellings_that_systemd_reads_have_no_finding() {
    for (unit_type, line) in [
        ("service", "NUMAMask=all"),
        ("service", "RestrictNamespaces=~ cgroup net"),
        ("service", "RestrictNamespaces=~"),
        ("service", "RestrictAddressFamilies=~ AF_INET"),
        ("service", "CapabilityBoundingSet=~ CAP_CHOWN"),
        ("service", "User=+5"),
        ("service", "User=--x"),
        ("service", "SupplementaryGroups=+x"),
        ("service", "SupplementaryGroups=\"\""),
        ("service", "SupplementaryGroups=a\""),
        ("socket", "ListenStream=0x10"),
        ("socket", "ListenStream=+5"),
        ("service", "KillSignal=0x10"),
        ("service", "SuccessExitStatus=+5 0x1"),
        ("service", "SyslogLevel=0x7"),
        ("service", "SyslogFacility=0x10"),
        ("service", "AllowedCPUs=0x10"),
        ("service", "CPUAffinity=0-1,\"2\""),
        ("service", "CPUAffinity=numa"),
        ("service", "LimitNICE=--0"),
        ("service", "IPIngressFilterPath=/a b"),
        ("service", "BusName=:1.5"),
        ("service", "LogLevelMax=0B11"),
        ("service", "IPAddressAllow=LOCALHOST"),
        ("service", "SocketBindAllow=TCP:80"),
    ] {
        assert_eq!(found(unit_type, line), [], "{line}");
    }
    let (_, findings) = findings("dev-sda.swap", b"[Swap]\nWhat=/dev/sda\nPriority=\n");
    assert_eq!(findings, []);
}

#[test]
fn options_without_effect_are_hints() {
    for line in [
        "[Unit]\nIgnoreOnSnapshot=yes",
        "[Unit]\nOnFailureIsolate=yes",
        "Capabilities=all",
        "NetClass=5",
        "BusPolicy=a",
        "SysVStartPriority=5",
    ] {
        assert_eq!(found("service", line), [FindingCode::OldKey], "{line}");
    }
}

#[test]
fn continued_name_is_marked_as_a_whole() {
    let source = "[Unit]\na\\\nä=b\n";
    let (file, findings) = findings("a.automount", source.as_bytes());
    let span = findings[0].span();
    assert_eq!(&source[span.start..span.end], "a\\\nä=b");
    assert_eq!(file.options().next().unwrap().name(), "a ä");
}

#[test]
fn escape_of_no_character_makes_invalid_utf8() {
    for word in [r"\ud800", r"\U00110000"] {
        let error = fleet_unitfile::values::split_words_relaxed(word).unwrap_err();
        assert_eq!(error, fleet_unitfile::values::WordError::NotUtf8 { at: 0 }, "{word}");
    }
}

#[test]
fn section_finding_is_at_its_header() {
    let source = "[Unit]\nDescription=a \\\n[Foo]\n[Foo]\nA=b\n[Service]\nExecStart=/bin/true\n";
    let (_, findings) = findings("a.service", source.as_bytes());
    let of_section = findings.iter().find(|it| it.code() == FindingCode::UnknownSection).unwrap();
    assert_eq!(of_section.location().line, 4);
    assert_eq!(&source[of_section.span().start..of_section.span().end], "[Foo]");
}

#[test]
fn findings_have_correct_lines_in_large_files() {
    let text = "# ä\r\n[Service]\n\rUser=web\0Nice=x\n\nKey=1\n".repeat(40);
    let (file, findings) = findings("a.service", text.as_bytes());
    assert!(findings.len() > 100);
    for finding in &findings {
        let alone = file.location(finding.span().start);
        assert_eq!(finding.location(), alone, "{finding}");
        if finding.code() == FindingCode::Repeated {
            let before = format!(" is already set in line {}", alone.line - 6);
            assert!(finding.message().ends_with(&before), "{finding}");
        }
    }
}

#[test]
fn text_of_another_version_is_reported_for_that_version_only() {
    use FindingCode::{FatalSpecifier, IgnoredCommand, Removed, Specifier, TooNew};
    for (line, version, code) in [
        ("PrivatePIDs=yes", 257, TooNew),
        ("LogFilterPatterns=a", 253, TooNew),
        ("WatchdogSec=5\n[Unit]\nWantsMountsFor=/a", 256, TooNew),
        ("ExecReloadPost=/bin/true", 259, TooNew),
        ("UserNamespacePath=/a", 259, TooNew),
        ("[Unit]\nConditionPathIsSocket=/a", 260, TooNew),
        ("BindNetworkInterface=eth0", 260, TooNew),
        ("MemoryTHP=madvise", 260, TooNew),
        ("RefreshOnReload=extensions", 260, TooNew),
        ("RootMStack=/a", 260, TooNew),
        ("CPUPressureWatch=auto", 261, TooNew),
        ("CPUPressureThresholdSec=5", 261, TooNew),
        ("IOPressureWatch=skip", 261, TooNew),
        ("IOPressureThresholdSec=5", 261, TooNew),
        ("[Unit]\nOnFailureJobMode=lenient", 258, TooNew),
        ("OOMRules=a", 261, TooNew),
        ("LUOSession=a", 262, TooNew),
        ("RestartRandomizedDelaySec=5", 262, TooNew),
        ("[Unit]\nConditionFraction=a", 261, TooNew),
        ("[Unit]\nAssertMachineTag=a", 261, TooNew),
        ("[Unit]\nFailureAction=soft-reboot", 254, TooNew),
        ("ProtectHostname=private:host", 258, TooNew),
        ("PrivateTmp=disconnected", 257, TooNew),
        ("RestartMode=debug", 257, TooNew),
        ("EnvironmentFile=%D/a", 256, Specifier),
        ("Environment=A=%D", 256, Specifier),
        ("WorkingDirectory=%D/a", 256, FatalSpecifier),
        ("ExecStop=/bin/true %D", 256, FatalSpecifier),
        ("ExecStop=-/bin/true %D", 256, IgnoredCommand),
        ("ExecStop=|echo hi", 258, TooNew),
        ("ExecStop=|-/bin/true", 258, FindingCode::Program),
    ] {
        let source = format!("[Service]\nExecStart=/bin/true\n{line}\n");
        let file = UnitFile::parse(&source).unwrap();
        let name = UnitName::parse("a.service").unwrap();
        let codes = |version| -> Vec<_> {
            file.check_for(&name, SystemdVersion::new(version))
                .iter()
                .map(fleet_unitfile::Finding::code)
                .collect()
        };
        assert_eq!(found("service", line), [], "{line}");
        assert_eq!(codes(version), [], "{line}");
        assert_eq!(codes(version - 1), [code], "{line}");
    }
    let file = UnitFile::parse("[Socket]\nListenStream=/a\nPassPIDFD=yes\n").unwrap();
    let name = UnitName::parse("a.socket").unwrap();
    assert_eq!(file.check_for(&name, SystemdVersion::new(258)), []);
    let findings = file.check_for(&name, SystemdVersion::new(257));
    assert_eq!(findings[0].code(), TooNew);
    let file = UnitFile::parse("[Service]\nExecStart=/bin/true\nCPUAccounting=yes\n").unwrap();
    let name = UnitName::parse("a.service").unwrap();
    assert_eq!(file.check_for(&name, SystemdVersion::new(261)), []);
    let findings = file.check_for(&name, SystemdVersion::new(262));
    assert_eq!(findings[0].code(), Removed);
    for line in ["MessageQueueMessageSize=1G", "XAttrAccept=a", "ListenStream=vsock-stream:2:5"] {
        let file = UnitFile::parse(format!("[Socket]\nListenStream=/a\n{line}\n")).unwrap();
        let name = UnitName::parse("a.socket").unwrap();
        assert_eq!(file.check_for(&name, SystemdVersion::new(262)), [], "{line}");
        let findings = file.check_for(&name, SystemdVersion::new(252));
        assert_eq!(findings[0].code(), TooNew, "{line}");
    }
}

#[test]
fn version_is_read_from_what_systemctl_prints() {
    for (text, expected) in [
        ("252", Some(252)),
        ("v257.13", Some(257)),
        ("systemd 252 (252.38-1~deb12u1)", Some(252)),
        ("262~rc1", Some(262)),
        ("", None),
        ("v", None),
        ("25x", None),
        ("99999999", None),
        ("latest", None),
    ] {
        let version = text.parse::<SystemdVersion>().ok();
        assert_eq!(version.map(SystemdVersion::number), expected, "{text:?}");
    }
}
