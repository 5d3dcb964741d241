//! Accepted values of each key and their printed form.

use fleet_core::graph::format::{print, read_stanzas};
use fleet_core::graph::{Command, ConditionKind, EdgeKind, Target, Timeouts};

use super::units;

const SUPERVISED: &str = "unit: a\ntype: foreground-supervised\nprovides: a\nexec-start: /a\n";

/// A constant delay may exceed the maximum.
const RESTART: &str = "restart-delay: 5s | restart-max-delay: 1s | restart-factor: 1";

/// Returns the printed form of a line of a supervised unit.
fn printed(line: &str) -> String {
    let unit = units(&format!("{SUPERVISED}{line}\n")).remove(0);
    let printed = print(&unit, &Timeouts::default());
    assert_eq!(printed.omitted, []);
    let known: Vec<&str> = SUPERVISED.lines().collect();
    let rest = printed.text.lines().filter(|line| !known.contains(line));
    rest.collect::<Vec<_>>().join(" | ")
}

/// Lines of a supervised unit with their printed form.
const LINES: [(&str, &str); 69] = [
    ("description:  two  words # no comment ", "description: two  words # no comment"),
    ("depends-on: b ,c", "depends-on: b, c"),
    ("depends-on: b,\n\tc,\n# between\n d", "depends-on: b, c, d"),
    ("waits-for: b\nwaits-for: c", "waits-for: b, c"),
    ("waits-for: b\ndepends-ms: b", "depends-ms: b"),
    ("pulls: b\nafter: b, c", "pulls: b | after: b, c"),
    ("condition: ! path-exists  /a b", "condition: !path-exists /a b"),
    ("assert: user 5\ncondition: |host web*", "condition: |host web* | assert: user 5"),
    ("clean-exit: complete", "clean-exit: complete"),
    ("abort-signal: KILL\nabort-timeout: 5", "abort-signal: SIGKILL | abort-timeout: 5s"),
    ("restart-factor: 1\nrestart-delay: 5s\nrestart-max-delay: 1s", RESTART),
    ("ready-wait: 1.5", "ready-wait: 1s 500ms"),
    ("ready-grep: ^a: (b|c) $", "ready-grep: ^a: (b|c) $"),
    ("exec-stop: '/bin/kill'   -TERM  $MAINPID", "exec-stop: /bin/kill -TERM $MAINPID"),
    ("exec-stop: /bin/kill p=$MAINPID.x", "exec-stop: /bin/kill p=${MAINPID}.x"),
    ("exec-stop: /a \"b c\" '$$d' e\\x20f", "exec-stop: /a \"b c\" $$d \"e f\""),
    ("exec-stop: /a '&&' '>b' \"c;\" ';'", "exec-stop: /a \"&&\" \">b\" \"c;\" \";\""),
    ("exec-stop: -@:+/a b $c", "exec-stop: -@:+/a b $c"),
    ("exec-stop: /a\n  b\n  c", "exec-stop: /a b c"),
    ("exec-start-pre: /b\nexec-start-pre: /c", "exec-start-pre: /b | exec-start-pre: /c"),
    ("env: B=1\nexec-stop: /a $B", "exec-stop: /a $B | env: B=1"),
    ("pass-env: B, C\nexec-stop: /a $C", "exec-stop: /a $C | pass-env: B, C"),
    ("env-file: -/e\nexec-stop: /a ${C}", "exec-stop: /a ${C} | env-file: -/e"),
    ("success-exit: SIGTERM, 3,USR1, 0", "success-exit: 0, 3, SIGTERM, SIGUSR1"),
    ("start-timeout: 90", ""),
    ("start-timeout: 2min", "start-timeout: 2min"),
    ("start-timeout: 500 ms", "start-timeout: 500ms"),
    ("stop-timeout: none", "stop-timeout: none"),
    ("runtime-max: 1h", "runtime-max: 1h"),
    ("watchdog: none", ""),
    ("notify-access: all", "notify-access: all"),
    ("stop-mode: mixed", "stop-mode: mixed"),
    ("stop-signal: INT", "stop-signal: SIGINT"),
    ("stop-hangup: yes", "stop-hangup: yes"),
    ("stop-final-signal: none", "stop-final-signal: none"),
    ("restart: on-failure", ""),
    ("restart: always\nrestart-delay: 0", "restart: always | restart-delay: 0"),
    ("restart-delay: 2min", "restart-delay: 2min"),
    ("restart-max-delay: 5s", "restart-max-delay: 5s"),
    ("restart-factor: 1", "restart-factor: 1"),
    ("restart-steps: 4", "restart-steps: 4"),
    ("restart-limit: 0", ""),
    ("restart-limit: 3", "restart-limit: 3"),
    ("restart-limit: 5 in 10s", "restart-limit: 5 in 10s"),
    ("restart-reset: auto", ""),
    ("restart-reset: 1min", "restart-reset: 1min"),
    ("restart-prevent: 2", "restart-prevent: 2"),
    ("restart-force: SIGSEGV", "restart-force: SIGSEGV"),
    ("user: mail\ngroup: 8\ngroups: ssl, tty", "user: mail | group: 8 | groups: ssl, tty"),
    ("directory: -~", "directory: -~"),
    ("directory: /", ""),
    ("env: A= b  c ", "env: A=\" b  c\""),
    ("env: A=\"\\n\\\"\"", "env: A=\"\\n\\\"\""),
    ("env: A=", "env: A="),
    ("unset-env: A\nunset-env: B=c", "unset-env: A | unset-env: B=c"),
    ("umask: 22", "umask: 0022"),
    ("ignore-sigpipe: yes", "ignore-sigpipe: yes"),
    ("ignore-sigpipe: no", ""),
    ("nice: -5", "nice: -5"),
    ("oom-score-adjust: -1000", "oom-score-adjust: -1000"),
    ("limit-nofile: 1K", "limit-nofile: 1024"),
    ("limit-core: 0:none", "limit-core: 0:none"),
    ("output: null", "output: null"),
    ("error-output: append:/var/log/a b", "error-output: append:/var/log/a b"),
    ("memory-max: 1.5G\nmemory-high: 12.5%", "memory-max: 1536M | memory-high: 12.50%"),
    ("tasks-max: 100", "tasks-max: 100"),
    ("cpu-quota: 150%\ncpu-weight: 10", "cpu-weight: 10 | cpu-quota: 150%"),
    ("cpu-quota: 0.5%", "cpu-quota: 0.50%"),
    ("io-weight: 10000", "io-weight: 10000"),
];

#[test]
fn values_print_in_canonical_form() {
    for (line, expected) in LINES {
        assert_eq!(printed(line), expected, "{line}");
        if !expected.is_empty() {
            assert_eq!(printed(&expected.replace(" | ", "\n")), expected, "again: {line}");
        }
    }
}

#[test]
fn conditions_of_all_kinds_print_as_written() {
    for kind in ConditionKind::ALL {
        let argument = match kind {
            kind if kind.takes_path() => "/a b/{c,d}*",
            ConditionKind::AcPower | ConditionKind::FirstBoot => "no",
            ConditionKind::Firmware => "smbios-field(sys_vendor $= \"A B*\")",
            ConditionKind::Memory => ">=1.5G",
            ConditionKind::Cpus => "!=3",
            ConditionKind::KernelVersion => ">= 5.4  \"<7 \"",
            ConditionKind::Version => "systemd>=252",
            ConditionKind::OsRelease => "ID=debian VERSION_ID>11",
            ConditionKind::MemoryPressure
            | ConditionKind::CpuPressure
            | ConditionKind::IoPressure => "a-b.slice:12.5%/1min",
            _ => "a  b=c",
        };
        let line = format!("condition: |!{} {argument}", kind.word());
        assert_eq!(printed(&line), line);
        assert_eq!(
            printed(&line.replacen(' ', "  ", 1).replacen(argument, &format!(" {argument} "), 1)),
            line
        );
    }
}

#[test]
fn conditions_of_all_kinds_are_documented() {
    let page = include_str!("../../../../docs/reference/init-files.md");
    for kind in ConditionKind::ALL {
        let row = format!("\n| `{}` | ", kind.word());
        assert!(page.contains(&row), "write into docs/reference/init-files.md: {row}");
    }
}

#[test]
fn invalid_values_are_rejected() {
    for line in [
        "condition: path-exist /a",
        "condition: path-exists a",
        "condition: host",
        "condition: ac-power sometimes",
        "condition: memory much",
        "assert: !kernel-version >=",
        "restart: sometimes",
        "restart-factor: 0",
        "restart-limit: -1",
        "restart-limit: 0 in 10s",
        "restart-limit: 5 in 0",
        "restart-limit: 5 in never",
        "restart-delay: 2min\nrestart-max-delay: 1min",
        "restart-factor: 2\nrestart-steps: 2",
        "restart-delay: infinity",
        "user: a b",
        "directory: a",
        "env: A",
        "env: 1A=b",
        "env: A='b' c",
        "env: A=\"\\q\"",
        "env-file: a",
        "umask: 1000",
        "umask: 8",
        "umask: +1",
        "ignore-sigpipe: maybe",
        "limit-nofile: 2:1",
        "limit-nofile: none:1",
        "limit-nofile: 10%",
        "output: file:a",
        "output: log:/a",
        "output: /a",
        "memory-max: 101%",
        "cpu-quota: 1.5",
        "cpu-quota: 0%",
        "cpu-weight: 0",
        "stop-signal: SIGNAL",
        "stop-hangup: maybe",
        "notify-access: everyone",
        "exec-stop: /a \\",
        "exec-stop: /a \\q",
        "exec-stop: @/a",
        "exec-stop: -",
        "exec-stop: /a/",
        "exec-stop: /a ${MAINPID",
        "exec-stop: /a ${}",
        "exec-stop: @/a $MAINPID",
        "env-file: a\nexec-stop: /a $B",
    ] {
        let text = format!("{SUPERVISED}{line}\n");
        let read = read_stanzas(text.as_bytes(), &Timeouts::default());
        assert_eq!(read.diagnostics.len(), 1, "{line}: {:#?}", read.diagnostics);
        assert_eq!(read.stanzas[0].unit, None, "{line}");
    }
}

#[test]
fn type_specific_keys_print_with_their_type() {
    for text in [
        "unit: a\ntype: background-pidfile\nprovides: a\npidfile: /run/a.pid\nexec-start: /a\n",
        "unit: a\ntype: oneshot\nprovides: a\nremain: no\nexec-start: /a\nexec-start: /b\n",
        "unit: a\ntype: background-scripted\nprovides: a\nexec-start: /a\nexec-stop: /b\n",
        "unit: a\ntype: foreground-notified\ndescription: b\nprovides: c, a\nexec-start: /a\n",
        "unit: a\ntype: foreground-notified\nprovides: a\nexec-start: /a\nreload-signal: SIGHUP\n",
        "unit: a\ntype: oneshot\nprovides: a\nexec-stop: /a\n",
        "unit: a\ntype: virtual\nprovides: a\ndepends-on: b\nafter: c\n",
    ] {
        assert_eq!(print(&units(text)[0], &Timeouts::default()).text, text);
    }
}

#[test]
fn printer_uses_the_defaults_of_the_reader() {
    let slow = Timeouts { start: None, ..Timeouts::default() };
    let read = read_stanzas(SUPERVISED.as_bytes(), &slow);
    let unit = read.stanzas[0].unit.clone().unwrap();
    assert_eq!(unit.timeouts, slow);
    assert_eq!(print(&unit, &slow).text, SUPERVISED);
    let elsewhere = format!("{SUPERVISED}start-timeout: none\n");
    assert_eq!(print(&unit, &Timeouts::default()).text, elsewhere);
}

/// Prints a unit with this stop command, and returns the omitted keys.
fn losses(command: Command) -> (String, Vec<String>) {
    let mut unit = units(SUPERVISED).remove(0);
    unit.run.stop = vec![command];
    let printed = print(&unit, &Timeouts::default());
    let lost =
        printed.omitted.into_iter().map(|it| format!("{}: {} ({})", it.key, it.value, it.why));
    let said = printed.text.lines().find_map(|line| line.strip_prefix("exec-stop: "));
    (said.unwrap_or_default().to_owned(), lost.collect())
}

#[test]
fn systemd_commands_print_as_far_as_possible() {
    let words = ["a$b", "$", "${x:-y}", "$$", "$a-b", "100%"].map(str::to_owned);
    assert_eq!(losses(Command::new("/a", words)).0, "/a a$$b $${x:-y} $$ 100%");
    let (said, lost) = losses(Command::new("/a", ["$HOME".to_owned()]));
    assert_eq!(said, "");
    assert_eq!(lost, ["exec-stop: /a $HOME (no variable `HOME` is given to the command)"]);
    let (_, lost) = losses(Command::new("kill", []));
    assert_eq!(lost, ["exec-stop: kill (`kill` cannot be executed: it is not an absolute path)"]);
}

#[test]
fn inexpressible_settings_are_omitted_and_listed() {
    let mut unit = units("unit: a\ntype: oneshot\nprovides: a\nexec-start: /a\n").remove(0);
    unit.run.reload = vec![Command::new("/r", [])];
    unit.description = "two\nlines".to_owned();
    unit.edges = vec![(EdgeKind::WaitsFor, Target::new("b").unwrap())];
    let printed = print(&unit, &Timeouts::default());
    insta::assert_snapshot!(printed.text, @"
    unit: a
    type: oneshot
    provides: a
    waits-for: b
    exec-start: /a
    ");
    let lost: Vec<String> = printed
        .omitted
        .iter()
        .map(|it| format!("{}: {:?} ({})", it.key, it.value, it.why))
        .collect();
    insta::assert_snapshot!(lost.join("\n"), @r#"
    description: "two\nlines" (it contains a control character)
    exec-reload: "/r" (it is not allowed for units of type oneshot)
    "#);
    for blank in [" one", "one "] {
        unit.description = blank.to_owned();
        let printed = print(&unit, &Timeouts::default());
        let loss = printed.omitted.iter().find(|it| it.key == "description");
        let why = "a value must not be empty, nor begin or end with a blank";
        assert_eq!(loss.map(|it| it.why.as_str()), Some(why), "{blank:?}");
        assert!(!printed.text.contains("description"), "{}", printed.text);
    }
}

// Holds: X-29
#[test]
fn lookalike_names_are_rejected() {
    let latin = SUPERVISED.replace("unit: a", "unit: sshd");
    assert_eq!(units(&latin)[0].name.as_str(), "sshd");
    // A Cyrillic letter and a full-width letter.
    for alike in ["\u{455}shd", "s\u{ff53}hd"] {
        let read = latin.replace("sshd", alike);
        let read = read_stanzas(read.as_bytes(), &Timeouts::default());
        let codes: Vec<String> = read.diagnostics.iter().map(|it| it.code.to_string()).collect();
        assert_eq!(codes, ["E06"], "{alike}");
    }
}
