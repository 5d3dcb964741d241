//! What of a unit that is understood is refused here, in which words, and what is only noted.

use std::collections::BTreeSet;

use fleet_core::graph::systemd::Site;
use fleet_unitfile::{Facts, UnitFile};

use super::compile::{BadSetting, Compiled, compile};
use super::identity::Host;

impl Host {
    /// Root, or somebody who may not become another.
    pub(crate) fn of_a_test(root: bool) -> Self {
        let (user, group, id) = if root { ("root", "root", "0") } else { ("me", "us", "1000") };
        let own = |name: &str| vec![name.to_owned(), id.to_owned()];
        let site = Site { facts: Facts::system_manager(), accept: BTreeSet::new() };
        Self { root, users: own(user), groups: own(group), site }
    }
}

fn compile_as(root: bool, unit: &str, text: &str) -> Result<Compiled, BadSetting> {
    let file = UnitFile::parse(text).expect("the file is well formed");
    compile(&unit.parse().expect("it is a name"), &file, &Host::of_a_test(root))
}

fn refusal(root: bool, setting: &str) -> String {
    let text = format!("[Service]\nExecStart=/bin/true\n{setting}\n");
    let bad = compile_as(root, "a.service", &text).expect_err("it is refused");
    format!("{}: {}", bad.line, bad.problem)
}

/// Each text on lines that fit into this file.
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

/// Settings that the compiler understands and that are refused here.
const REFUSED: &[&str] = &[
    "ExecCondition=/bin/true",
    "Nice=5",
    "OOMScoreAdjust=5",
    "SupplementaryGroups=wheel",
    "LimitNOFILE=1024",
    "MemoryMax=1G",
    "MemoryHigh=1G",
    "TasksMax=5",
    "CPUWeight=5",
    "CPUQuota=50%",
    "IOWeight=5",
    "RestartSteps=3\nRestartMaxDelaySec=1h",
    "User=nobody\nExecStop=+/bin/true",
    "PrivateTmp=yes\nNoSuch=1",
];

#[test]
fn what_cannot_be_done_yet_is_refused_with_its_line() {
    let told: Vec<String> = REFUSED.iter().map(|setting| refusal(true, setting)).collect();
    insta::assert_snapshot!(wrapped(&told), @r#"
    3: ExecCondition= is not possible: the native supervisor checks no conditions: take
       the option out, or make the check in an ExecStartPre= command
    3: Nice= is not possible: the native supervisor leaves that as it is: take it out, or
       begin the command with nice
    3: OOMScoreAdjust= is not possible: the native supervisor does not do this: take it
       out, or run the unit under systemd
    3: SupplementaryGroups= is not possible: the native supervisor does not do this: take
       it out, or run the unit under systemd
    3: LimitNOFILE= is not possible: the native supervisor sets no limits: take it out,
       or begin the command with prlimit
    3: MemoryMax= is not possible: the native supervisor keeps processes to no limits of
       control groups: take it out, or run the unit under systemd
    3: MemoryHigh= is not possible: the native supervisor keeps processes to no limits of
       control groups: take it out, or run the unit under systemd
    3: TasksMax= is not possible: the native supervisor keeps processes to no limits of
       control groups: take it out, or run the unit under systemd
    3: CPUWeight= is not possible: the native supervisor keeps processes to no limits of
       control groups: take it out, or run the unit under systemd
    3: CPUQuota= is not possible: the native supervisor keeps processes to no limits of
       control groups: take it out, or run the unit under systemd
    3: IOWeight= is not possible: the native supervisor keeps processes to no limits of
       control groups: take it out, or run the unit under systemd
    3: RestartSteps= is not possible: the native supervisor restarts after the same time
       always: take it out
    4: ExecStop= cannot be obeyed: the prefixes "+" and "!" cannot be combined with User=
       and Group= here: take one of them out
    3: PrivateTmp= is not possible: the native supervisor cannot confine processes in
       this way: take the option out or set it to what asks for nothing, or run the unit
       under systemd; line 4: NoSuch= is no option of systemd in [Service]: take it out,
       or begin its name with X-
    "#);
    let text =
        "[Unit]\nDescription=x\nAssertUser=a\nConditionHost=b\n[Service]\nExecStart=/bin/true\n";
    let bad = compile_as(true, "a.service", text).expect_err("it is refused");
    assert_eq!(bad.line, 3, "{bad:?}");
}

#[test]
fn whole_units_that_are_not_run() {
    let run = "[Service]\nExecStart=/bin/true\n";
    for (unit, text, problem) in [
        ("a.timer", "[Timer]\n", "not .timer ones"),
        ("a.target", "[Unit]\nDescription=x\n", "runs .service units alone"),
        ("a@.service", run, "a template is not run itself"),
        ("a.service", "[Unit]\nDescription=x\n", "there is nothing to run"),
    ] {
        let bad = compile_as(true, unit, text).expect_err("it is refused");
        assert!(bad.line == 0 && bad.problem.contains(problem), "{bad:?}");
    }
}

#[test]
fn another_user_needs_root() {
    for setting in ["User=me", "User=1000", "Group=us", "User=", "UMask=022"] {
        let text = format!("[Service]\nExecStart=/bin/true\n{setting}\n");
        assert!(compile_as(false, "a.service", &text).is_ok(), "{setting}");
        assert!(compile_as(true, "a.service", &text).is_ok(), "{setting}");
    }
    let told: Vec<String> = ["User=root", "Group=0", "ExecStartPre=+/bin/true"]
        .map(|setting| refusal(false, setting))
        .into();
    insta::assert_snapshot!(wrapped(&told), @r#"
    3: User= is "root", but fleet runs as the user "me" and may not become another: take
       the option out, or run fleet as root
    3: Group= is "0", but fleet runs as the group "us" and may not become another: take
       the option out, or run fleet as root
    3: ExecStartPre= cannot be obeyed: the prefixes "+" and "!" ask for the rights of
       root, which fleet does not have here: take them out
    "#);
}

#[test]
fn what_is_passed_over_is_noted() {
    let text = "[Unit]\nDescription=x\nAfter=b.service\nRequires=c.service\n[Service]\n\
                PrivateTmp=no\nExecStart=/bin/true\nExecReload=/bin/kill -HUP $MAINPID\n\
                SyslogIdentifier=x\n\
                TTYReset=no\n[Install]\nWantedBy=multi-user.target\nAlias=d.service\n\
                [X-Fleet]\nGlobal=true\n";
    let compiled = compile_as(true, "a.service", text).expect("it can be obeyed");
    insta::assert_snapshot!(wrapped(&compiled.remarks), @r"
    10:1: Service.TTYReset concerns a terminal, and no unit has one here
    3:1: Unit.After says nothing of b.service: units are run one by one
    4:1: Unit.Requires says nothing of c.service: units are run one by one
    12:1: Install.WantedBy says nothing of multi-user.target: units are run one by one
    9:1: Service.SyslogIdentifier marks no lines: each unit has a log of its own
    13:1: Install.Alias gives the unit no other name
    ");
}
