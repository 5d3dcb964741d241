//! Support for every systemd option.

use std::collections::BTreeMap;

use fleet_core::graph::systemd::{CompiledUnit, Support, Unsupported, compile, support};
use fleet_unitfile::UnitFile;
use fleet_unitfile::check::directives;

use super::{compiled, site, wrapped};

const SECTIONS: [&str; 6] = ["Unit", "Service", "Install", "Timer", "Socket", "Path"];

/// Returns the name of a unit whose type has this section, and a minimal file of the type.
fn unit_with(section: &str) -> (&'static str, &'static str) {
    match section {
        "Timer" => ("a.timer", "[Timer]\nOnActiveSec=1\n"),
        "Socket" => ("a.socket", "[Socket]\nListenStream=@a\n"),
        "Path" => ("a.path", "[Path]\nPathExists=/a\n"),
        _ => ("a.service", "[Service]\nExecStart=/bin/true\n"),
    }
}

/// Returns a unit name whose type has this section.
fn of_section(section: &str) -> &'static str {
    unit_with(section).0
}

/// Compiles a minimal unit.
fn plain(section: &str) -> CompiledUnit {
    let (unit, file) = unit_with(section);
    compiled(unit, file).unwrap_or_else(|refusals| panic!("{refusals}"))
}

/// Returns all options of the supported sections with their support.
fn all() -> Vec<(&'static str, &'static str, Support)> {
    let ours = directives().filter(|directive| SECTIONS.contains(&directive.section));
    let support = |section, name| {
        support(section, name).unwrap_or_else(|| panic!("{section}.{name} is not accounted for"))
    };
    ours.map(|it| (it.section, it.name, support(it.section, it.name))).collect()
}

/// Returns a file with one option and the required others.
fn file(section: &str, name: &str, value: &str) -> String {
    if of_section(section) != "a.service" {
        return format!("[{section}]\n{name}={value}\n{}", unit_with(section).1);
    }
    let start = if name == "ExecStart" { "" } else { "ExecStart=/bin/true\n" };
    format!("[{section}]\n{name}={value}\n[Service]\n{start}")
}

#[test]
fn every_option_has_one_support_entry() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, _, support) in all() {
        let kind = match support {
            Support::Honoured => "honoured",
            Support::Informational => "aside",
            Support::Ignored(_) => "inert",
            Support::RefusedUnless(..) => "refused unless it asks for nothing",
            Support::Refused(_) => "refused",
        };
        *counts.entry(kind).or_default() += 1;
    }
    let total: usize = counts.values().sum();
    let output: Vec<String> =
        counts.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
    insta::assert_snapshot!(wrapped(&format!("{}\nall: {total}", output.join("\n"))), @r"
    aside: 1
    honoured: 309
    inert: 356
    refused: 40
    refused unless it asks for nothing: 69
    all: 775
    ");
}

/// Returns the reason without the common prefix.
fn reason(why: Unsupported) -> &'static str {
    why.reason.strip_prefix("is not supported: ").unwrap_or(why.reason)
}

/// Formats the table of all options as in the init page.
fn table() -> String {
    let mut rows: BTreeMap<(usize, usize, String), Vec<&str>> = BTreeMap::new();
    for (section, name, support) in all() {
        let (order, words) = match support {
            Support::Honoured => (0, "honoured".to_owned()),
            Support::Informational => (1, "for people alone".to_owned()),
            Support::Ignored(why) => (2, format!("inert: {why}")),
            Support::RefusedUnless(neutral, why) => {
                let neutral = {
                    let words: Vec<String> = neutral.iter().map(|it| format!("`{it}`")).collect();
                    words.join(" or ").replace("``", "empty")
                };
                (3, format!("refused (`{}`), unless {neutral}: {}", why.group, reason(why)))
            }
            Support::Refused(why) => (4, format!("refused (`{}`): {}", why.group, reason(why))),
        };
        let section = SECTIONS.iter().position(|known| *known == section);
        let key = (section.expect("it is one of them"), order, words);
        rows.entry(key).or_default().push(name);
    }
    let row = |((section, _, words), names): (&(usize, usize, String), &Vec<&str>)| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        format!("| `[{}]` | {} | {words} |\n", SECTIONS[*section], names.join(", "))
    };
    let rows: String = rows.iter().map(row).collect();
    format!("| section | options | support |\n|---|---|---|\n{rows}")
}

#[test]
fn every_option_is_documented() {
    let page = include_str!("../../../../docs/reference/systemd-options.md");
    let (_, rest) = page.split_once("<!-- options: begin -->\n").expect("the table begins");
    let (output, _) = rest.split_once("<!-- options: end -->").expect("the table ends");
    let table = table();
    assert!(output == table, "write this into docs/reference/systemd-options.md:\n{table}");
}

#[test]
fn ignored_options_are_remarked_and_have_no_effect() {
    for (section, name, support) in all() {
        let Support::Ignored(why) = support else { continue };
        let text = file(section, name, "7");
        let with = compiled(of_section(section), &text);
        let with = with.unwrap_or_else(|refusals| panic!("{refusals}"));
        let plain = plain(section);
        assert_eq!((with.unit, with.timer), (plain.unit, plain.timer), "{section}.{name}");
        assert_eq!(with.activator, plain.activator, "{section}.{name}");
        let output: Vec<String> = with.remarks.iter().map(ToString::to_string).collect();
        assert_eq!(output, [format!("2:1: {section}.{name} {why}")]);
    }
}

// Holds: G-31
#[test]
fn refused_options_name_line_reason_and_remedy() {
    for (section, name, support) in all() {
        let (Support::Refused(why) | Support::RefusedUnless(_, why)) = support else { continue };
        let (unit, why) = (of_section(section), why.reason);
        let refusals =
            compiled(unit, &file(section, name, "something")).expect_err("it is refused");
        let expected = format!("{unit}:2:1: {section}.{name} {why}");
        assert_eq!(refusals.to_string(), expected);
        assert!(why.starts_with("is not supported: ") && why.matches(": ").count() >= 2, "{why}");
    }
}

#[test]
fn neutral_values_are_ignored() {
    for (section, name, support) in all() {
        let Support::RefusedUnless(neutral, _) = support else { continue };
        for value in neutral {
            let again = format!("[{section}]\n{name}=something\n");
            for text in [file(section, name, value), again + &file(section, name, value)] {
                let read = compiled(of_section(section), &text);
                assert!(read.is_ok_and(|it| it.remarks.is_empty()), "{text}");
            }
        }
        if neutral.contains(&"no") {
            let unit = of_section(section);
            assert!(compiled(unit, &file(section, name, "false")).is_ok(), "{name}");
            assert!(compiled(unit, &file(section, name, "")).is_err(), "{name}");
        }
    }
}

/// Options for which systemd 252 ignores an empty value with a warning, in addition to kernel
/// limits.
const NEVER_EMPTY: &[&str] = &[
    "CPUSchedulingResetOnFork",
    "CacheDirectoryMode",
    "ConfigurationDirectoryMode",
    "Accept",
    "Backlog",
    "BindIPv6Only",
    "Broadcast",
    "DefaultDependencies",
    "DeferAcceptSec",
    "DirectoryMode",
    "DynamicUser",
    "ExitType",
    "FileDescriptorStoreMax",
    "FinalKillSignal",
    "FixedRandomDelay",
    "FlushPending",
    "FreeBind",
    "IPTOS",
    "IPTTL",
    "IgnoreSIGPIPE",
    "KeepAlive",
    "KeepAliveIntervalSec",
    "KeepAliveProbes",
    "KeepAliveTimeSec",
    "KeyringMode",
    "KillSignal",
    "LockPersonality",
    "LogsDirectoryMode",
    "MemoryDenyWriteExecute",
    "NoNewPrivileges",
    "PermissionsStartOnly",
    "MakeDirectory",
    "Mark",
    "NoDelay",
    "NonBlocking",
    "NotifyAccess",
    "PassCredentials",
    "PassPacketInfo",
    "PassSecurity",
    "Persistent",
    "PrivateDevices",
    "PrivateIPC",
    "PrivateMounts",
    "PrivateNetwork",
    "PrivateTmp",
    "PrivateUsers",
    "ProcSubset",
    "ProtectClock",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProtectSystem",
    "PipeSize",
    "Priority",
    "RandomizedDelaySec",
    "ReceiveBuffer",
    "ReloadSignal",
    "RemainAfterElapse",
    "RemainAfterExit",
    "RemoveOnStop",
    "Restart",
    "RestartMaxDelaySec",
    "RestartSec",
    "RestartSteps",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "RuntimeDirectoryMode",
    "RuntimeDirectoryPreserve",
    "ReusePort",
    "RuntimeMaxSec",
    "SendBuffer",
    "SendSIGHUP",
    "SendSIGKILL",
    "SocketMode",
    "StandardError",
    "StandardInput",
    "StandardOutput",
    "StartLimitBurst",
    "StartLimitInterval",
    "StartLimitIntervalSec",
    "StateDirectoryMode",
    "StopWhenUnneeded",
    "TimeoutSec",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "Transparent",
    "TriggerLimitBurst",
    "TriggerLimitIntervalSec",
    "Type",
    "UMask",
    "WatchdogSec",
    "WatchdogSignal",
];

#[test]
fn empty_values_reset_or_are_refused() {
    for (section, name, support) in all() {
        // An empty set of capabilities is a value of its own.
        if support != Support::Honoured || name == "CapabilityBoundingSet" {
            continue;
        }
        let text = file(section, name, "") + "[Service]\nExecStart=/bin/true\n";
        let text = if name == "ExecStart" { text } else { file(section, name, "") };
        let read = compiled(of_section(section), &text);
        if NEVER_EMPTY.contains(&name) || name.starts_with("Limit") {
            let output = read.expect_err("an empty value is refused").to_string();
            let place = format!("{}:2:1: {section}.{name} ", of_section(section));
            assert!(output.starts_with(&place) && output.contains(" write "), "{output}");
            continue;
        }
        let read = read.unwrap_or_else(|refusals| panic!("{refusals}"));
        let plain = plain(section);
        assert!(read.position_of(section, name).is_some(), "{section}.{name}");
        assert_eq!((read.unit, read.timer), (plain.unit, plain.timer), "{section}.{name}");
    }
}

#[test]
fn accepted_options_are_ignored_with_a_remark() {
    let text = "[Service]\nExecStart=/bin/true\nPrivatePIDs=yes\nKillMode=none\nNice=50\n";
    let unit_file = UnitFile::parse(text).unwrap();
    let name = "a.service".parse().unwrap();
    let mut site = site();
    ["sandboxing", "KillMode"].iter().for_each(|name| site.accept.add(name).unwrap());
    assert_eq!(compile(&name, &unit_file, &site).unwrap_err().all.len(), 1, "Nice is left");
    site.accept.add("Nice").unwrap();
    let accepted = compile(&name, &unit_file, &site).expect("it is accepted");
    let plain = compiled("a.service", "[Service]\nExecStart=/bin/true\n").unwrap();
    assert_eq!(accepted.unit, plain.unit);
    let output: Vec<String> = accepted.remarks.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(wrapped(&output.join("\n")), @r#"
    3:1: Service.PrivatePIDs is ignored, as this machine accepts; it is not supported:
          the native supervisor cannot confine processes in this way: remove the option,
          set it to a neutral value, or run the unit under systemd
    4:1: Service.KillMode is ignored, as this machine accepts; it cannot be none, which
          leaves unsupervised processes behind: write process
    5:1: Service.Nice is ignored, as this machine accepts; it is "50": write a whole
          number from -20 to 19
    "#);
}

#[test]
fn misspelt_options_are_refused_with_a_suggestion() {
    let text = "[Unit]\nX-Mine=1\n[Service]\nExecStrat=/bin/true\nColour=blue\n\
                ExecStart=/bin/true\n[Socket]\nListenStream=1\n[X-Fleet]\nGlobal=true\n[Timer]\n\
                OnBootSec=1\n";
    let refusals = compiled("a.service", text).expect_err("it is refused");
    insta::assert_snapshot!(wrapped(&refusals.to_string()), @r"
    a.service:4:1: Service.ExecStrat is not a systemd option in [Service]: write
          ExecStart=
    a.service:8:1: Socket.ListenStream is in [Socket], which has no meaning in a .service
          unit: remove it
    a.service:12:1: Timer.OnBootSec is in [Timer], which has no meaning in a .service
          unit: remove it
    ");
}

#[test]
fn unknown_options_are_ignored_with_a_remark() {
    let text = "[Service]\nColour=blue\nExecStart=/bin/true\n";
    let compiled = compiled("a.service", text).expect("it is accepted");
    let output: Vec<String> = compiled.remarks.iter().map(ToString::to_string).collect();
    let expected = "2:1: Service.Colour is ignored, because this version of fleet does not know it";
    assert_eq!(output, [expected]);
}
