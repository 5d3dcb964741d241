//! Systemd units as stanzas, and inexpressible settings. A dollar sign that begins no variable is
//! printed as `$$`, which has the same meaning.

use fleet_core::graph::Timeouts;
use fleet_core::graph::format::{PrintedStanza, print, read_stanzas};

use super::service;

/// Prints a service. Without omissions the stanza must read back as the same unit.
fn printed(settings: &str) -> PrintedStanza {
    let unit = service(settings);
    let printed = print(&unit, &Timeouts::default());
    let read = read_stanzas(printed.text.as_bytes(), &Timeouts::default());
    assert!(read.diagnostics.iter().all(|it| it.code.as_str() == "W06"), "{read:#?}");
    if printed.omitted.is_empty() {
        assert_eq!(read.stanzas[0].unit.as_ref(), Some(&unit), "{}", printed.text);
    }
    printed
}

#[test]
fn common_services_print_without_omissions() {
    for settings in [
        "ExecStart=/bin/web",
        "Type=exec\nExecStart=/bin/web\nRemainAfterExit=yes",
        "Type=notify\nExecStart=/bin/web\nNotifyAccess=all\nWatchdogSec=5",
        "Type=notify-reload\nExecStart=/bin/web",
        "Type=forking\nPIDFile=/run/web.pid\nExecStart=/bin/web -d\nGuessMainPID=no",
        "Type=oneshot\nExecStart=/bin/a\nExecStart=-/bin/b 'c d'\nExecStop=/bin/e",
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/a %i",
        "ExecStart=@/bin/sh web -c \"echo $$HOME\"\nExecReload=/bin/kill $MAINPID",
        "ExecStart=/bin/web $OPTIONS ${MORE}\nEnvironmentFile=-/etc/default/web",
        "ExecStart=/bin/web a$$b 100%% :$$\nEnvironment=A=b \"C=d e\"\nPassEnvironment=LANG",
        "ExecStart=/bin/web\nRestart=always\nRestartSec=100ms\nTimeoutSec=0",
        "ExecStart=/bin/web\nRestart=on-failure\nRestartSteps=4\nRestartMaxDelaySec=1min",
        "ExecStart=/bin/web\nSuccessExitStatus=3 SIGKILL\nRestartPreventExitStatus=4",
        "ExecStart=/bin/web\nKillMode=mixed\nKillSignal=SIGINT\nSendSIGHUP=yes\nSendSIGKILL=no",
        "ExecStart=/bin/web\nUser=www\nGroup=www\nWorkingDirectory=-/srv\nUMask=0077\nNice=5",
        "ExecStart=/bin/web\nLimitNOFILE=1024:infinity\nOOMScoreAdjust=-100",
        "ExecStart=/bin/web\nStandardOutput=null\nStandardError=append:/var/log/web",
        "ExecStart=/bin/web\nRuntimeMaxSec=1h\nTimeoutAbortSec=5",
    ] {
        let printed = printed(settings);
        assert_eq!(printed.omitted, [], "{settings}\n{}", printed.text);
    }
}

#[test]
fn inexpressible_options_are_listed() {
    for (settings, lost) in [
        ("ExecStart=/bin/web $HOME", "exec-start: no variable `HOME` is given to the command"),
        ("ExecStart=web", "exec-start: `web` cannot be executed: it is not an absolute path"),
    ] {
        let losses = print(&service(settings), &Timeouts::default()).omitted;
        let output: Vec<String> =
            losses.iter().map(|it| format!("{}: {}", it.key, it.why)).collect();
        assert_eq!(output, [lost], "{settings}");
    }
}
