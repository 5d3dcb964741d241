//! What of a unit file is honoured, what is ignored, and what is refused in which words.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_unitfile::{UnitFile, UnitName};

use super::command::expand_arguments;
use super::compile::{BadSetting, Compiled, Host, compile};
use super::options::{Standing, every_honoured, standing};
use super::spec::{Command, KillMode, Kind, Output, Place, RestartPolicy};

fn root() -> Host {
    Host { root: true, users: vec!["root".into()], groups: vec!["root".into()] }
}

fn worker() -> Host {
    let own = |name: &str| vec![name.to_owned(), "1000".to_owned()];
    Host { root: false, users: own("me"), groups: own("us") }
}

fn compile_as(host: &Host, unit: &str, text: &str) -> Result<Compiled, BadSetting> {
    let unit: UnitName = unit.parse().expect("the name is well formed");
    compile(&unit, &UnitFile::parse(text).expect("the file is well formed"), host)
}

fn good(service: &str) -> Compiled {
    let text = format!("[Service]\n{service}");
    compile_as(&root(), "web@1.service", &text).expect("it can be obeyed")
}

fn refusal(host: &Host, service: &str) -> String {
    let text = format!("[Service]\n{service}");
    let bad = compile_as(host, "a.service", &text).expect_err("it is refused");
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

#[test]
fn defaults_are_systemds() {
    let spec = good("ExecStart=/bin/true").spec;
    assert_eq!((spec.kind, spec.remain_after_exit), (Kind::Simple, false));
    assert_eq!((spec.restart.policy, spec.restart.delay.as_millis()), (RestartPolicy::No, 100));
    let ninety = Some(Duration::from_secs(90));
    assert_eq!((spec.timeout_start, spec.timeout_stop), (ninety, ninety));
    let limit = spec.start_limit;
    assert_eq!((limit.interval, limit.burst), (Some(Duration::from_secs(10)), 5));
    assert_eq!((spec.kill.mode, spec.kill.send_sigkill), (KillMode::ControlGroup, true));
    assert_eq!((spec.context.output, spec.context.error), (Output::Log, None));
    assert_eq!(good("Type=oneshot\nExecStart=/bin/true").spec.timeout_start, None);
    let only_stop = good("RemainAfterExit=yes\nExecStop=/bin/true").spec;
    assert_eq!(only_stop.kind, Kind::Oneshot);
}

#[test]
fn the_last_assignment_counts_and_an_empty_one_resets() {
    let spec = good(
        "ExecStart=/1\nExecStart=\nExecStart=/2\nRestart=always\nRestart=\nTimeoutSec=1\n\
         TimeoutStopSec=0\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2 'C=3 4'\n\
         SuccessExitStatus=1\nSuccessExitStatus=\nSuccessExitStatus=2 SIGKILL\n\
         WorkingDirectory=-~\nUMask=0027",
    )
    .spec;
    assert_eq!(spec.commands.start.len(), 1);
    assert_eq!(spec.commands.start[0].program, "/2");
    assert_eq!(spec.restart.policy, RestartPolicy::No);
    assert_eq!((spec.timeout_start, spec.timeout_stop), (Some(Duration::from_secs(1)), None));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(spec.context.environment, [pair("B", "2"), pair("C", "3 4")]);
    assert_eq!(Vec::from_iter(spec.success.codes), [2]);
    assert_eq!(Vec::from_iter(spec.success.signals), [9]);
    let directory = spec.context.directory;
    assert_eq!((directory.place, directory.optional), (Place::Home, true));
    assert_eq!(spec.context.umask, Some(0o027));
}

#[test]
fn command_lines() {
    let command = |program: &str, arguments: &[&str]| Command {
        program: program.to_owned(),
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        ..Command::default()
    };
    for (line, expected) in [
        ("/bin/echo 'a  b' \"c\" d\\x20e", vec![command("/bin/echo", &["a  b", "c", "d e"])]),
        (
            "-/1 %i %p ; /2 \\; ';' x;",
            vec![
                Command { ignore_failure: true, ..command("/1", &["1", "web"]) },
                command("/2", &[";", ";", "x;"]),
            ],
        ),
        (
            "@:/bin/sh mine -c $x",
            vec![Command {
                name: Some("mine".to_owned()),
                verbatim: true,
                ..command("/bin/sh", &["-c", "$x"])
            }],
        ),
        ("+!!sleep 1", vec![Command { privileged: true, ..command("sleep", &["1"]) }]),
    ] {
        let spec = good(&format!("Type=oneshot\nExecStart={line}")).spec;
        assert_eq!(spec.commands.start, expected, "{line}");
    }
}

#[test]
fn variables_in_arguments() {
    let environment: BTreeMap<_, _> = [("ONE", "1"), ("TWO", "a 'b c'"), ("EMPTY", "")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    for (word, expected) in [
        ("$ONE", &["1"][..]),
        ("$TWO", &["a", "b c"]),
        ("${TWO}", &["a 'b c'"]),
        ("$EMPTY", &[]),
        ("${EMPTY}", &[""]),
        ("$NONE", &[]),
        ("x${NONE}y${ONE}", &["xy1"]),
        ("x$ONE", &["x$ONE"]),
        ("$$ONE", &["$ONE"]),
        ("$", &["$"]),
        ("${ONE", &["${ONE"]),
    ] {
        let mut command = Command { arguments: vec![word.to_owned()], ..Command::default() };
        assert_eq!(expand_arguments(&command, &environment), expected, "{word}");
        command.verbatim = true;
        assert_eq!(expand_arguments(&command, &environment), [word]);
    }
}

/// Settings that are refused beside an `ExecStart=`.
const REFUSED: [&str; 23] = [
    "Restart=sometimes",
    "RestartSec=soon",
    "KillMode=kind",
    "KillSignal=SIGRTMIN+3",
    "SuccessExitStatus=256",
    "RemainAfterExit=maybe",
    "Environment=A",
    "EnvironmentFile=relative",
    "WorkingDirectory=here",
    "UMask=9",
    "StandardOutput=tty",
    "StandardInput=socket",
    "PrivateTmp=yes",
    "LimitNOFILE=1024",
    "MemoryMax=1G",
    "ExecStartPre=bin/relative",
    "ExecStartPre=$PROGRAM",
    "ExecStartPre='open",
    "ExecStartPre=/bin/true %z",
    "ExecStart=/bin/false",
    "Type=oneshot\nRestart=always",
    "Type=forking",
    "User=nobody\nExecStop=+/bin/true",
];

#[test]
fn refusals_name_the_line_and_say_what_to_do() {
    let start = "ExecStart=/bin/true\n";
    let told = REFUSED.map(|setting| refusal(&root(), &format!("{start}{setting}\n")));
    insta::assert_snapshot!(wrapped(&told), @r#"
    3: Restart= is "sometimes": write no, on-success, on-failure, on-abnormal, on-abort,
       on-watchdog or always
    3: RestartSec= cannot be read: no time span from byte 0 on: write numbers with units,
       such as "1min 30s"
    3: KillMode= is "kind": write control-group, mixed, process or none
    3: KillSignal= names no signal: "SIGRTMIN+3"; write a name such as SIGTERM, no
       real-time signal
    3: SuccessExitStatus= has "256": write exit codes from 0 to 255 and names of signals
       such as SIGKILL
    3: RemainAfterExit= is "maybe": write yes or no
    3: Environment= has "A": write NAME=value, in quotes where the value has blanks
    3: EnvironmentFile= has the relative path "relative": write it from the root on
    3: WorkingDirectory= has the relative path "here": write it from the root on
    3: UMask= is "9": write an octal number from 0 to 0777
    3: StandardOutput= is "tty": write journal, null or inherit
    3: StandardInput= is "socket": only null is possible here
    3: PrivateTmp= is not possible: the native service manager cannot confine processes
       in this way: take the option out or set it to no, or run the unit under systemd
    3: LimitNOFILE= is not possible: the native service manager does not know this
       option: take it out, or run the unit under systemd
    3: MemoryMax= is not possible: the native service manager does not know this option:
       take it out, or run the unit under systemd
    3: ExecStartPre= has the relative path "bin/relative": write it from the root on
    3: ExecStartPre= has a variable for its program: write the path itself, or "/bin/sh
       -c 'exec $PROGRAM'"
    3: ExecStartPre= cannot be read: quote at byte 0 is not closed: add the same quote
       where the word ends
    3: ExecStartPre= cannot be read: unknown specifier "%z" at byte 10: use %n, %N, %p or
       %i, and %% for a percent sign
    0: it must have exactly one ExecStart=: set Type=oneshot for another number
    0: Type=oneshot cannot be started again after a success: set Restart=on-failure, or
       another Type=
    0: Type=forking needs a PIDFile=, for no main process is guessed: add one, or let the
       program stay in the foreground
    0: User= and Group= cannot be combined with the prefixes "+" and "!" here: take one
       of them out
    "#);
}

#[test]
fn whole_files_that_cannot_run() {
    let run = "[Service]\nExecStart=/bin/true\n";
    for (unit, text, problem) in [
        ("a.timer", "[Timer]\n", "runs .service units only, not .timer ones"),
        ("a@.service", run, "a template is not run itself"),
        ("a.service", "[Unit]\nDescription=x\n", "there is nothing to run"),
    ] {
        let bad = compile_as(&root(), unit, text).expect_err("it is refused");
        assert!(bad.line == 0 && bad.problem.contains(problem), "{bad:?}");
    }
}

#[test]
fn another_user_needs_root() {
    let start = "ExecStart=/bin/true\n";
    for setting in ["User=me", "User=1000", "Group=us", "User=", "UMask=022"] {
        let text = format!("[Service]\n{start}{setting}\n");
        assert!(compile_as(&worker(), "a.service", &text).is_ok(), "{setting}");
        assert!(compile_as(&root(), "a.service", &text).is_ok(), "{setting}");
    }
    let told: Vec<String> = ["User=root", "Group=0", "ExecStartPre=+/bin/true"]
        .map(|setting| refusal(&worker(), &format!("{start}{setting}\n")))
        .into();
    insta::assert_snapshot!(wrapped(&told), @r#"
    3: User= is "root", but fleet runs as the user "me" and may not become another: take
       the option out, or run fleet as root
    3: Group= is "0", but fleet runs as the group "us" and may not become another: take
       the option out, or run fleet as root
    3: ExecStartPre= cannot be obeyed: the prefix '+' asks for the rights of root, which
       fleet does not have here; take it out
    "#);
}

#[test]
fn what_means_nothing_is_listed_once() {
    let text = "[Unit]\nDescription=x\nAfter=b.service\nAfter=c.service\n[Service]\nPrivateTmp=no\n\
                ExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n\
                [X-Fleet]\nGlobal=true\n";
    let compiled = compile_as(&root(), "a.service", text).expect("it can be obeyed");
    assert_eq!(compiled.inert, ["Unit.After", "Service.PrivateTmp", "Install.WantedBy"]);
}

#[test]
fn sections_that_are_not_known_are_refused() {
    for (section, name) in [("Socket", "ListenStream"), ("Unit", "ConditionPathExists")] {
        assert!(matches!(standing(section, name), Standing::Refused(_)), "{section}.{name}");
    }
    assert_eq!(standing("Unit", "X-Mine"), Standing::Aside);
}

#[test]
fn every_option_that_is_honoured_is_read() {
    for (section, name) in every_honoured() {
        let text = format!("[{section}]\n{name}=\n[Service]\nExecStart=/bin/true\n");
        let compiled = compile_as(&root(), "a.service", &text);
        assert!(compiled.is_ok(), "{section}.{name}: {compiled:?}");
    }
}
