//! Values of options, and refused values.

use std::time::Duration;

use fleet_core::graph::{
    Amount, Command, ConditionKind, ConditionTest, DelayGrowth, DirectoryPath, EnvironmentFile,
    ExecOutput, InitUnit, KillMode, NotifyAccess, OnCleanExit, Readiness, RestartLimit,
    RestartWhen, ServiceType, Signal, WorkingDirectory,
};

use super::{compiled, refused, service, wrapped};

const START: &str = "ExecStart=/bin/true\n";

/// Compiles a service with one more option.
fn with(option: &str) -> InitUnit {
    service(&format!("{START}{option}"))
}

fn seconds(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(count))
}

// Holds: G-30
#[test]
fn service_defaults_match_systemd() {
    let unit = service(START);
    assert_eq!(unit.kind, ServiceType::ForegroundSupervised(Readiness::Executed));
    assert_eq!(unit.provides.len(), 1);
    assert_eq!(unit.provides[0].as_str(), "web@1.service");
    let restart = &unit.restart;
    assert_eq!((restart.when, restart.delay.as_millis()), (RestartWhen::Never, 100));
    assert_eq!((restart.max_delay, restart.growth), (restart.delay, DelayGrowth::Factor(1)));
    assert_eq!(restart.limit, RestartLimit::Starts { burst: 5, interval: Duration::from_secs(10) });
    let timeouts = unit.timeouts;
    assert_eq!(
        (timeouts.start, timeouts.stop, timeouts.reload),
        (seconds(90), seconds(90), seconds(90))
    );
    let run = &unit.run;
    assert_eq!((run.kill.mode, run.kill.send_sigkill), (KillMode::ControlGroup, true));
    assert_eq!((run.on_clean_exit, run.notify_access), (OnCleanExit::Complete, NotifyAccess::None));
    assert_eq!(
        (&run.exec_environment.output, &run.exec_environment.error),
        (&ExecOutput::Log, &None)
    );
    let oneshot = service("Type=oneshot\nExecStart=/bin/true").timeouts;
    assert_eq!((oneshot.start, oneshot.reload), (None, None), "a reload takes as long as a start");
    let limited = service("Type=oneshot\nTimeoutStartSec=7\nExecStart=/bin/true").timeouts;
    assert_eq!((limited.start, limited.reload), (seconds(7), seconds(7)));
    let only_stop = service("RemainAfterExit=yes\nExecStop=/bin/true");
    assert_eq!(only_stop.kind, ServiceType::Oneshot { remain: true });
}

#[test]
fn types() {
    for (text, kind) in [
        ("Type=exec", ServiceType::ForegroundSupervised(Readiness::Executed)),
        ("Type=idle", ServiceType::ForegroundSupervised(Readiness::Executed)),
        ("Type=oneshot", ServiceType::Oneshot { remain: false }),
        ("Type=oneshot\nRemainAfterExit=yes", ServiceType::Oneshot { remain: true }),
        ("Type=notify", ServiceType::ForegroundNotified),
        ("Type=notify-reload", ServiceType::ForegroundNotified),
        (
            "Type=forking\nPIDFile=web.pid",
            ServiceType::BackgroundPidfile { path: "/run/web.pid".into() },
        ),
    ] {
        assert_eq!(with(text).kind, kind, "{text}");
    }
    assert_eq!(with("Type=notify").run.notify_access, NotifyAccess::Main);
    assert_eq!(with("Type=notify\nNotifyAccess=all").run.notify_access, NotifyAccess::All);
    assert_eq!(with("WatchdogSec=3").run.notify_access, NotifyAccess::Main);
    assert_eq!(with("RemainAfterExit=1").run.on_clean_exit, OnCleanExit::Remain);
    assert_eq!(with("Type=notify-reload").run.reload_signal, Some(Signal::HUP));
    let signal = with("Type=notify-reload\nReloadSignal=USR1").run.reload_signal;
    assert_eq!(signal, Signal::parse("USR1"));
}

#[test]
fn last_assignment_counts_and_empty_resets() {
    let unit = service(
        "ExecStart=/1\nExecStart=\nExecStart=/2\nKillMode=mixed\nKillMode=\nTimeoutSec=1\n\
         TimeoutStopSec=0\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2 'C=3 4' D=%i\n\
         SuccessExitStatus=1\nSuccessExitStatus=\nSuccessExitStatus=2 SIGKILL TEMPFAIL BPF\n\
         WorkingDirectory=-~\nUMask=0027",
    );
    assert_eq!(unit.run.start.len(), 1);
    assert_eq!(unit.run.start[0].program, "/2");
    assert_eq!(unit.run.kill.mode, KillMode::ControlGroup);
    assert_eq!((unit.timeouts.start, unit.timeouts.stop), (seconds(1), None));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let environment = &unit.run.exec_environment.environment;
    assert_eq!(*environment, [pair("B", "2"), pair("C", "3 4"), pair("D", "1")]);
    assert_eq!(Vec::from_iter(&unit.run.success.codes), [&2, &75, &244]);
    assert_eq!(Vec::from_iter(&unit.run.success.signals), [&Signal::KILL]);
    let directory = WorkingDirectory { path: DirectoryPath::Home, optional: true };
    assert_eq!(unit.run.exec_environment.directory, directory);
    assert_eq!(unit.run.exec_environment.umask, Some(0o027));
}

#[test]
fn command_lines() {
    let command = |program: &str, arguments: &[&str]| {
        Command::new(program, arguments.iter().map(|&argument| argument.to_owned()))
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
        ("!!sleep 1", vec![command("sleep", &["1"])]),
        (
            "/bin//true",
            vec![Command { name: Some("/bin//true".into()), ..command("/bin/true", &[]) }],
        ),
    ] {
        let unit = service(&format!("Type=oneshot\nExecStart={line}"));
        assert_eq!(unit.run.start, expected, "{line}");
    }
}

#[test]
fn exec_environment_options() {
    let it = with(
        "StandardOutput=append:/var/log/%p\nStandardError=truncate:/e\nUser=u%i\n\
                   SupplementaryGroups=a b\nEnvironmentFile=-/etc/%p\n\
                   PassEnvironment=A B\nNice=-5\nOOMScoreAdjust=10\nLimitNOFILE=1024:infinity\n\
                   LimitCPU=1min\nLimitNICE=+5\nLimitMEMLOCK=64K\nLimitRTTIME=2s",
    )
    .run
    .exec_environment;
    assert_eq!(it.output, ExecOutput::Append("/var/log/web".to_owned()));
    assert_eq!(it.error, Some(ExecOutput::Truncate("/e".to_owned())));
    assert_eq!(it.user.as_deref(), Some("u1"));
    assert_eq!(it.supplementary_groups, ["a", "b"]);
    assert_eq!(it.environment_files, [EnvironmentFile { path: "/etc/web".into(), optional: true }]);
    assert_eq!((it.nice, it.oom_score_adjust), (Some(-5), Some(10)));
    let limit = |name| it.limits.get(name).copied();
    assert_eq!(limit("nofile"), Some((Some(1024), None)));
    assert_eq!(limit("cpu"), Some((Some(60), Some(60))));
    assert_eq!(limit("nice"), Some((Some(15), Some(15))));
    assert_eq!(limit("memlock"), Some((Some(65536), Some(65536))));
    assert_eq!(limit("rttime"), Some((Some(2_000_000), Some(2_000_000))));
    assert!(it.ignore_sigpipe && with("IgnoreSIGPIPE=yes").run.exec_environment.ignore_sigpipe);
    assert!(!with("IgnoreSIGPIPE=no").run.exec_environment.ignore_sigpipe);
    // It inherits the standard input, which is empty.
    assert_eq!(with("StandardOutput=inherit").run.exec_environment.output, ExecOutput::Null);
    assert_eq!(with("StandardError=inherit").run.exec_environment.error, None);
}

#[test]
fn changing_tracking_variables_is_remarked() {
    let text = format!(
        "[Service]\n{START}Environment=A=1 INVOCATION_ID=2\nPassEnvironment=B MAINPID\n\
         UnsetEnvironment=SYSTEMD_EXEC_PID=3 NOTIFY_SOCKET\n"
    );
    let compiled = compiled("a.service", &text).unwrap();
    let output: Vec<String> = compiled.remarks.iter().map(ToString::to_string).collect();
    let text = "has no effect on INVOCATION_ID and SYSTEMD_EXEC_PID, which identify the processes \
                of the unit";
    let of = |place: &str| format!("{place} {text}");
    let expected = ["3:1: Service.Environment", "5:1: Service.UnsetEnvironment"].map(of);
    assert_eq!(output, expected);
}

#[test]
fn resource_limits_and_exit_statuses() {
    let unit = with(
        "MemoryMax=512M\nMemoryHigh=infinity\nTasksMax=20%\nCPUWeight=50\nCPUQuota=150%\n\
                     IOWeight=10\nKillMode=mixed\nKillSignal=2\nFinalKillSignal=SIGABRT\n\
                     SendSIGHUP=yes\nSendSIGKILL=no\nRuntimeMaxSec=5\nTimeoutStopSec=7\n\
                     WatchdogSignal=TERM",
    );
    let resources = &unit.run.resources;
    assert_eq!(
        (resources.memory_max, resources.memory_high),
        (Some(Amount::Absolute(512 << 20)), None)
    );
    assert_eq!((resources.tasks_max, resources.cpu_weight), (Some(Amount::Share(2000)), Some(50)));
    assert_eq!((resources.cpu_quota, resources.io_weight), (Some(15_000), Some(10)));
    let kill = unit.run.kill;
    assert_eq!((kill.mode, kill.signal), (KillMode::Mixed, Signal::parse("INT").unwrap()));
    assert_eq!(
        (kill.final_signal, kill.send_sighup, kill.send_sigkill),
        (Signal::ABRT, true, false)
    );
    assert_eq!(unit.run.runtime_max, seconds(5));
    assert_eq!(
        (unit.run.watchdog_action.signal, unit.run.watchdog_action.timeout),
        (Signal::TERM, seconds(7))
    );
    assert_eq!(with("TimeoutAbortSec=0").run.watchdog_action.timeout, None);
}

#[test]
fn restarts() {
    let text = "Restart=on-failure\nRestartSec=1\nRestartSteps=5\nRestartMaxDelaySec=1min\n\
                StartLimitBurst=3\nRestartPreventExitStatus=255 SIGHUP\nRestartForceExitStatus=1";
    let restart = with(text).restart;
    assert_eq!(
        (restart.delay, restart.max_delay),
        (Duration::from_secs(1), Duration::from_secs(60))
    );
    assert_eq!((restart.when, restart.growth), (RestartWhen::OnFailure, DelayGrowth::Steps(5)));
    assert_eq!(restart.limit, RestartLimit::Starts { burst: 3, interval: Duration::from_secs(10) });
    assert!(restart.prevent.codes.contains(&255) && restart.prevent.signals.contains(&Signal::HUP));
    assert!(restart.force.codes.contains(&1));
    assert_eq!(with("StartLimitInterval=0").restart.limit, RestartLimit::None);
    let text = format!("[Service]\n{START}StartLimitBurst=9\n[Unit]\nStartLimitBurst=2\n");
    let both = compiled("a.service", &text).unwrap().unit.restart.limit;
    assert_eq!(both, RestartLimit::Starts { burst: 2, interval: Duration::from_secs(10) });
}

#[test]
fn conditions() {
    let text = "[Unit]\nConditionHost=a\nConditionPathExists=\nConditionPathExists=|!/a/%i\n\
                AssertUser=root\nConditionKernelCommandLine=! quiet\n\
                [Service]\nExecStart=/bin/true\n";
    let conditions = compiled("web@1.service", text).unwrap().unit.run.conditions.clone();
    let output: Vec<_> =
        conditions.iter().map(|it| (&it.test, it.negated, it.any, it.assert)).collect();
    let test = |kind, argument| ConditionTest::new(kind, argument).unwrap();
    let path = test(ConditionKind::PathExists, "/a/1");
    let user = test(ConditionKind::User, "root");
    let word = test(ConditionKind::KernelCommandLine, "quiet");
    assert_eq!(
        output,
        [(&path, true, true, false), (&user, false, false, true), (&word, true, false, false),]
    );
}

#[test]
fn condition_with_a_wrong_value_has_a_remedy() {
    let paths = "has the relative path \"a\": write an absolute path";
    for (setting, problem) in [
        ("ConditionPathIsSymbolicLink=a", paths),
        ("AssertDirectoryNotEmpty=|!a", paths),
        ("ConditionNeedsUpdate=/../etc", "has a part \"..\" in the path \"/../etc\": write"),
        ("ConditionACPower=!sometimes", "is \"sometimes\": write yes or no"),
        ("AssertMemory=much", "is \"much\": write a number of bytes such as >=2G"),
        ("ConditionKernelVersion=>=", "is \">=\": write a comparison such as >=6.1"),
        ("ConditionVersion=glibc>=2.36", "is \"glibc>=2.36\": write a comparison such as kernel"),
        ("ConditionFirmware=smbios-field(a)", "is \"smbios-field(a)\": write a comparison such"),
        ("ConditionIOPressure=10", "is \"10\": write a limit such as 10% or"),
        ("ConditionVirtualization=!", "is empty: write what to check"),
    ] {
        let text = format!("[Unit]\n{setting}\n[Service]\nExecStart=/bin/true\n");
        let refusals = compiled("a.service", &text).expect_err("it is refused").to_string();
        let option = setting.split_once('=').unwrap().0;
        let expected = format!("a.service:2:1: Unit.{option} {problem}");
        assert!(refusals.starts_with(&expected), "{setting}: {refusals}");
    }
}

/// Settings that are refused in addition to an `ExecStart=`.
const REFUSED: &[&str] = &[
    "Type=oneshot\nExitType=cgroup",
    "Type=sometimes",
    "Restart=sometimes",
    "RestartSec=soon",
    "RestartSec=infinity",
    "KillMode=none",
    "KillSignal=SIGRTMIN+31",
    "SuccessExitStatus=256",
    "RestartPreventExitStatus=NOSUCH",
    "RemainAfterExit=maybe",
    "RemainAfterExit=yes\nRemainAfterExit=",
    "Restart=",
    "KillSignal=",
    "TimeoutStopSec=",
    "RuntimeMaxSec=0",
];

/// Refused settings of the execution environment and of commands.
const REFUSED_AROUND: &[&str] = &[
    "Environment=A",
    "Environment=A=%Z",
    "EnvironmentFile=relative",
    "EnvironmentFile=/etc/*.conf",
    "PassEnvironment=a-b",
    "WorkingDirectory=here",
    "WorkingDirectory=/usr/../etc",
    "User=a b",
    "UMask=9",
    "IgnoreSIGPIPE=perhaps",
    "Nice=20",
    "StandardOutput=socket",
    "StandardOutput=file:here",
    "StandardInput=socket",
    "LimitNOFILE=9:8",
    "LimitNOFILE=many",
    "LimitNICE=50",
    "MemoryMax=150%",
    "TasksMax=0",
    "CPUWeight=idle",
    "CPUQuota=2",
    "NotifyAccess=everybody",
    "PIDFile=%b%z",
    "PIDFile=../a.pid",
    "ExecStartPre=bin/relative",
    "ExecStartPre=$PROGRAM",
    "ExecStartPre='open",
    "ExecStartPre=/bin/true %z",
    "ExecStart=/bin/false",
    "Type=oneshot\nRestart=always",
];

#[test]
fn refusals_have_a_position_and_a_remedy() {
    let output: Vec<String> =
        REFUSED.iter().map(|setting| refused(&format!("{START}{setting}"))).collect();
    insta::assert_snapshot!(wrapped(&output.join("\n")), @r#"
    4:1: Service.ExitType cannot be cgroup with Type=oneshot: write main, or another
          Type=
    3:1: Service.Type is "sometimes": write simple, exec, dbus, idle, oneshot, notify,
          notify-reload or forking
    3:1: Service.Restart is "sometimes": write no, on-success, on-failure, on-abnormal,
          on-abort, on-watchdog or always
    3:1: Service.RestartSec cannot be read: invalid time span at byte 0: write numbers
          with units, such as "1min 30s"
    3:1: Service.RestartSec cannot be infinity: write Restart=no instead
    3:1: Service.KillMode cannot be none, which leaves unsupervised processes behind:
          write process
    3:1: Service.KillSignal is no signal: "SIGRTMIN+31"; write a name such as SIGTERM or
          SIGRTMIN+3
    3:1: Service.SuccessExitStatus has "256": write exit statuses from 0 to 255, or names
          such as TEMPFAIL or SIGKILL
    3:1: Service.RestartPreventExitStatus has "NOSUCH": write exit statuses from 0 to
          255, or names such as TEMPFAIL or SIGKILL
    3:1: Service.RemainAfterExit is "maybe": write yes or no
    4:1: Service.RemainAfterExit is "": write yes or no
    3:1: Service.Restart is "": write no, on-success, on-failure, on-abnormal, on-abort,
          on-watchdog or always
    3:1: Service.KillSignal is no signal: ""; write a name such as SIGTERM or SIGRTMIN+3
    3:1: Service.TimeoutStopSec cannot be read: empty time span: write a number with a
          unit such as "5s", or "infinity"
    3:1: Service.RuntimeMaxSec is "0", which stops the unit as soon as it is active:
          write the maximum runtime, or infinity
    "#);
}

#[test]
fn exec_environment_refusals_have_a_remedy() {
    let output: Vec<String> =
        REFUSED_AROUND.iter().map(|setting| refused(&format!("{START}{setting}"))).collect();
    insta::assert_snapshot!(wrapped(&output.join("\n")), @r#"
    3:1: Service.Environment has "A": write NAME=value, in quotes where the value has
          blanks
    3:1: Service.Environment cannot be read: unknown specifier "%Z": write %% for a
          percent sign
    3:1: Service.EnvironmentFile has the relative path "relative": write an absolute path
    3:1: Service.EnvironmentFile is the pattern "/etc/*.conf": name each file by itself
    3:1: Service.PassEnvironment has "a-b": write names of variables, with blanks between
    3:1: Service.WorkingDirectory has the relative path "here": write an absolute path
    3:1: Service.WorkingDirectory has a part ".." in the path "/usr/../etc": write the
          path without it
    3:1: Service.User is "a b": write the name or the number of one
    3:1: Service.UMask is "9": write an octal number from 0 to 0777
    3:1: Service.IgnoreSIGPIPE is "perhaps": write yes or no
    3:1: Service.Nice is "20": write a whole number from -20 to 19
    3:1: Service.StandardOutput is "socket": write journal, null, inherit, or file:,
          append: or truncate: and a path
    3:1: Service.StandardOutput has the relative path "here": write an absolute path
    3:1: Service.StandardInput is "socket": write null, tty, tty-fail or tty-force
    3:1: Service.LimitNOFILE is "9:8": write the soft limit first; it must not exceed the
          hard limit
    3:1: Service.LimitNOFILE is "many": write a number or infinity, or two with a colon
    3:1: Service.LimitNICE is "50": write +5, -5 or a number from 1 to 40
    3:1: Service.MemoryMax cannot be read: size is too large: write "infinity" for no
          limit
    3:1: Service.TasksMax is "0": write a whole number from 1 to 18446744073709551615
    3:1: Service.CPUWeight is "idle": write a whole number from 1 to 10000
    3:1: Service.CPUQuota cannot be read: invalid size at byte 0: write bytes as in
          "512M", or a percentage as in "10%"
    3:1: Service.NotifyAccess is "everybody": write none, main, exec or all
    3:1: Service.PIDFile cannot be read: unknown specifier "%z": write %% for a percent
          sign
    3:1: Service.PIDFile has a part ".." in the path "/run/../a.pid": write the path
          without it
    3:1: Service.ExecStartPre cannot be read: program at byte 0 is neither an absolute
          path nor a name: write an absolute path
    3:1: Service.ExecStartPre has a variable as its program: write the path itself, or
          "/bin/sh -c 'exec $PROGRAM'"
    3:1: Service.ExecStartPre cannot be read: quote at byte 0 is not closed: add the same
          quote where the word ends
    3:1: Service.ExecStartPre cannot be read: unknown specifier "%z": write %% for a
          percent sign
    3:1: Service.ExecStart must be given exactly once: set Type=oneshot for several
    4:1: Service.Restart cannot be used with Type=oneshot, which would restart after a
          success: write on-failure, or another Type=
    "#);
}

#[test]
fn files_that_cannot_run_are_refused() {
    let run = "[Service]\nExecStart=/bin/true\n";
    for (unit, text, problem) in [
        ("a.mount", "[Mount]\n", ".path, .timer and .target units only, not .mount"),
        ("a.path", "[Path]\n", "it watches no path"),
        ("a.socket", "[Socket]\n", "it listens nowhere"),
        ("a.timer", "[Timer]\n", "it never elapses"),
        ("a@.service", run, "a template cannot run"),
        ("a.service", "[Unit]\nDescription=x\n", "there is nothing to run"),
        ("a.target", "", "an empty file masks the unit"),
        (
            "a.target",
            "[Unit]\nConditionHost=a\n",
            "2:1: Unit.ConditionHost is not supported in a target",
        ),
        ("a.target", run, "is in [Service], which has no meaning in a .target unit"),
    ] {
        let refusals = compiled(unit, text).expect_err("it is refused");
        assert!(refusals.to_string().contains(problem), "{refusals}");
    }
}

/// Regression: they were read as commands that run after the stop.
#[test]
fn options_that_begin_with_exec_are_no_commands() {
    let text = "[Service]\nExecStart=/bin/true\nExecPaths=/opt\nExecSearchPath=/opt/bin\n";
    let run = compiled("a.service", text).unwrap().unit.run.clone();
    assert!(run.stop_post.is_empty());
    assert_eq!(run.exec_environment.sandbox.paths.len(), 1);
    assert_eq!(run.exec_environment.search_path, ["/opt/bin"]);
}
