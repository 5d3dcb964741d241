//! Tests of options that are refused on this host, with the messages for them, and of options that
//! are accepted but ignored.

use fleet_core::graph::Timeouts;
use fleet_core::graph::format::read_stanzas;
use fleet_core::graph::systemd::{AcceptedOptions, CompileOptions, CompiledUnit, Confinement};
use fleet_unitfile::{SpecifierContext, UnitFile};

use super::compile::{
    BadSetting, HostCapabilities, check_supported, compile, ignored_options, ignored_sandboxing,
};

impl HostCapabilities {
    /// Returns the capabilities of root, or of an unprivileged user.
    pub(crate) fn for_test(root: bool) -> Self {
        let (user, group, id) = if root { ("root", "root", "0") } else { ("me", "us", "1000") };
        let own = |name: &str| vec![name.to_owned(), id.to_owned()];
        let site = CompileOptions {
            specifiers: SpecifierContext::system_manager(),
            accept: AcceptedOptions::default(),
            confinement: if root { Confinement::All } else { Confinement::Unprivileged },
        };
        let controllers = Ok(["memory".to_owned()].into());
        Self { root, users: own(user), groups: own(group), controllers, cgroup_filters: root, site }
    }
}

fn compile_as(root: bool, unit: &str, text: &str) -> Result<CompiledUnit, BadSetting> {
    let file = UnitFile::parse(text).expect("the file is well formed");
    compile(&unit.parse().expect("it is a name"), &file, &HostCapabilities::for_test(root))
}

fn refusal(root: bool, setting: &str) -> String {
    let text = format!("[Service]\nExecStart=/bin/true\n{setting}\n");
    let bad = compile_as(root, "a.service", &text).expect_err("it is refused");
    format!("{}: {}", bad.line, bad.problem)
}

fn texts(compiled: &CompiledUnit) -> Vec<String> {
    compiled.remarks.iter().map(ToString::to_string).collect()
}

/// Wraps each text for this file.
fn wrapped(texts: &[String]) -> String {
    let mut out = String::new();
    for text in texts {
        let mut column = 0;
        for word in text.split(' ') {
            if column + word.len() > 85 {
                out.truncate(out.trim_end().len());
                out.push_str("\n   ");
                column = 3;
            }
            out.push_str(word);
            out.push(' ');
            column += word.len() + 1;
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// Settings that this supervisor refuses.
const REFUSED: &[&str] = &[
    "PrivatePIDs=yes",
    "PrivatePIDs=yes\nUMask=9\nRootEphemeral=yes\n[Unit]\nOnFailure=a.service",
    "PrivatTmp=yes",
];

#[test]
fn unsupported_option_is_refused_with_its_line() {
    let messages: Vec<String> = REFUSED.iter().map(|setting| refusal(true, setting)).collect();
    insta::assert_snapshot!(wrapped(&messages), @r#"
    3: PrivatePIDs= is not supported: the native supervisor cannot confine processes in
       this way: remove the option, set it to a neutral value, or run the unit under
       systemd, or set native_accept = ["sandboxing"] to run without it
    3: PrivatePIDs= and RootEphemeral= (line 5) are not supported by the native service
       manager: set native_accept = ["sandboxing"] to run without them; UMask= (line 4)
       is "9": write an octal number from 0 to 0777
    3: PrivatTmp= is not a systemd option in [Service]: write PrivateTmp=
    "#);
}

#[test]
fn unsupported_units_are_refused() {
    let run = "[Service]\nExecStart=/bin/true\n";
    for (unit, text, problem) in [
        ("a.mount", "[Mount]\n", "not .mount ones"),
        ("a.path", "[Path]\n", "it watches no path"),
        ("a.timer", "[Timer]\n", "it never elapses"),
        ("a@.service", run, "a template cannot run"),
        ("a.service", "[Unit]\nDescription=x\n", "there is nothing to run"),
    ] {
        let bad = compile_as(true, unit, text).expect_err("it is refused");
        assert!(bad.line == 0 && bad.problem.contains(problem), "{bad:?}");
    }
}

#[test]
fn unknown_time_zone_is_refused_with_its_line() {
    let text = "[Timer]\nOnBootSec=1\nOnCalendar=daily Mars/Base\n";
    let bad = compile_as(true, "a.timer", text).expect_err("it is refused");
    assert!(bad.line == 3 && bad.problem.contains("the zone \"Mars/Base\""), "{bad:?}");
    let known = text.replace("Mars/Base", "Europe/Berlin");
    assert!(compile_as(true, "a.timer", &known).is_ok());
}

#[test]
fn another_user_needs_root() {
    for setting in [
        "User=me",
        "User=1000",
        "Group=us",
        "User=",
        "UMask=022",
        "Nice=5",
        "LimitNOFILE=64",
        "MemoryMax=1G",
    ] {
        let text = format!("[Service]\nExecStart=/bin/true\n{setting}\n");
        assert!(compile_as(false, "a.service", &text).is_ok(), "{setting}");
        assert!(compile_as(true, "a.service", &text).is_ok(), "{setting}");
    }
    let messages: Vec<String> =
        ["User=root", "Group=0", "ExecStartPre=+/bin/true", "SupplementaryGroups=wheel"]
            .map(|setting| refusal(false, setting))
            .into();
    insta::assert_snapshot!(wrapped(&messages), @r#"
    3: User= is "root", but fleet runs as the user "me" and may not change it: remove the
       option, or run fleet as root, or set native_accept = ["sandboxing"] to run without
       it
    3: Group= is "0", but fleet runs as the group "us" and may not change it: remove the
       option, or run fleet as root, or set native_accept = ["sandboxing"] to run without
       it
    3: ExecStartPre= is not allowed: the prefixes "+" and "!" need root, but fleet does
       not run as root: remove them, or set native_accept = ["sandboxing"] to run without
       it
    3: SupplementaryGroups= needs root: remove it, or run fleet as root, or set
       native_accept = ["sandboxing"] to run without it
    "#);
}

#[test]
fn lost_limits_count_as_lost_sandboxing() {
    let text = "[Service]\nExecStart=/bin/true\nTasksMax=5\nIOWeight=5\nMemoryMax=1G\n";
    let compiled = compile_as(true, "a.service", text).expect("it is accepted");
    assert_eq!(ignored_options(&compiled), ["TasksMax= (line 3)", "IOWeight= (line 4)"]);
    assert_eq!(ignored_sandboxing(&compiled), ["TasksMax= (line 3)"]);
}

#[test]
fn settings_beyond_the_host_are_ignored_with_a_remark() {
    let remarks = |root: bool, setting: &str, accept: AcceptedOptions| {
        let text = format!("[Service]\nExecStart=/bin/true\n{setting}\n");
        let file = UnitFile::parse(&text).expect("the file is well formed");
        let mut host = HostCapabilities::for_test(root);
        host.site.accept = accept;
        let unit = "a.service".parse().expect("it is a name");
        let compiled = compile(&unit, &file, &host).expect("it is accepted");
        let plain = UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed");
        let plain = compile(&unit, &plain, &host).expect("it is accepted");
        assert_eq!(compiled.unit, plain.unit, "{setting}");
        texts(&compiled)
    };
    let none = AcceptedOptions::default;
    let mut messages = remarks(true, "TasksMax=5\nIOWeight=5", none());
    messages.extend(remarks(false, "Nice=-5\nOOMScoreAdjust=-5", none()));
    messages.extend(remarks(false, "User=nobody\nGroup=0", AcceptedOptions::all()));
    insta::assert_snapshot!(wrapped(&messages), @r#"
    3:1: Service.TasksMax is ignored: it needs the cgroup controller pids, which is not
       delegated here: delegate it to fleet alone, or remove the option
    4:1: Service.IOWeight is ignored: it needs the cgroup controller io, which is not
       delegated here: delegate it to fleet alone, or remove the option
    3:1: Service.Nice is ignored: it needs root: remove it, or run fleet as root
    4:1: Service.OOMScoreAdjust is ignored: it needs root: remove it, or run fleet as
       root
    3:1: Service.User is ignored: it is "nobody", but fleet runs as the user "me" and may
       not change it: remove the option, or run fleet as root
    4:1: Service.Group is ignored: it is "0", but fleet runs as the group "us" and may
       not change it: remove the option, or run fleet as root
    "#);
}

#[test]
fn unsupported_stanza_keys_are_named() {
    let messages = |root: bool, lines: &str| {
        let text = format!("unit: a\ntype: oneshot\nprovides: a\nexec-start: /bin/true\n{lines}\n");
        let read = read_stanzas(text.as_bytes(), &Timeouts::default());
        assert_eq!(read.diagnostics, [], "{text}");
        let unit = read.stanzas.into_iter().find_map(|stanza| stanza.unit).expect("it is one");
        check_supported(&unit.run, &HostCapabilities::for_test(root)).err()
    };
    let asks = "tasks-max: 5\nnice: -5\nuser: nobody\nexec-stop: +/bin/true";
    let all: Vec<String> = [true, false].map(|root| messages(root, asks).expect("it asks")).into();
    insta::assert_snapshot!(wrapped(&all), @r#"
    tasks-max needs the cgroup controller pids, which is not delegated here: delegate it
       to fleet alone, or remove the option
    nice needs root: remove it, or run fleet as root; tasks-max needs the cgroup
       controller pids, which is not delegated here: delegate it to fleet alone, or
       remove the option; user is "nobody", but fleet runs as the user "me" and may not
       change it: remove the option, or run fleet as root; exec-stop is not allowed: the
       prefixes "+" and "!" need root, but fleet does not run as root: remove them
    "#);
    assert_eq!(messages(true, "memory-max: 50M\nnice: -5\nuser: nobody"), None);
    assert_eq!(messages(false, "memory-max: 50M\nnice: 5\nuser: me"), None);
}

#[test]
fn ignored_option_is_noted() {
    let text = "[Unit]\nDescription=x\nAfter=b.service\nRequires=c.service\n[Service]\n\
                PrivateTmp=no\nExecStart=/bin/true\nExecReload=/bin/kill -HUP $MAINPID\n\
                SyslogIdentifier=x\n\
                TTYReset=no\n[Install]\nWantedBy=multi-user.target\nAlias=d.service\n\
                [X-Fleet]\nGlobal=true\n";
    let compiled = compile_as(true, "a.service", text).expect("it is supported");
    insta::assert_snapshot!(wrapped(&texts(&compiled)), @r"
    9:1: Service.SyslogIdentifier has no effect, because there is no journal
    10:1: Service.TTYReset has no effect, because units have no terminal
    ");
}
