//! Automatic restarts, and their absence.

use super::{Case, case};

pub(super) const CASES: &[Case] = &[
    case(
        "always, succeeds",
        "Restart=always\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=0 auto-restart - dead",
    ),
    case(
        "always, fails",
        "Restart=always\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=1 auto-restart - dead",
    ),
    case(
        "always, stopped",
        "Restart=always\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main? - dead",
    ),
    case(
        "on-success, succeeds",
        "Restart=on-success\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=0 auto-restart - dead",
    ),
    case(
        "on-success, fails",
        "Restart=on-success\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=1 failed",
    ),
    case(
        "on-failure, succeeds",
        "Restart=on-failure\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=0 dead",
    ),
    case(
        "on-failure, fails",
        "Restart=on-failure\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=1 auto-restart - dead",
    ),
    case(
        "on-failure, ended by TERM",
        "Restart=on-failure\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main!TERM dead",
    ),
    case(
        "on-failure, killed",
        "Restart=on-failure\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main!KILL auto-restart - dead",
    ),
    case(
        "on-failure, ExecStartPre= fails",
        "Restart=on-failure\nRestartSec=1h\nExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p=1 auto-restart - dead",
    ),
    case(
        "on-failure, stop times out",
        "Restart=on-failure\nRestartSec=1h\nTimeoutStopSec=100ms\nExecStart=<trap TERM|hold main>",
        "+ running main? - failed",
    ),
    case(
        "on-abnormal, fails",
        "Restart=on-abnormal\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=1 failed",
    ),
    case(
        "on-abnormal, killed",
        "Restart=on-abnormal\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main!KILL auto-restart - dead",
    ),
    case(
        "on-abnormal, start times out",
        "Type=notify\nTimeoutStartSec=100ms\nRestart=on-abnormal\nRestartSec=1h\n\
         ExecStart=<hold main>",
        "+ (start) auto-restart - dead",
    ),
    case(
        "on-abnormal, ends before it is ready",
        "Type=notify\nRestart=on-abnormal\nRestartSec=1h\nExecStart=<hold main>",
        "+ start main=0 auto-restart:protocol - dead",
    ),
    case(
        "on-abnormal, no such environment file",
        "Restart=on-abnormal\nRestartSec=1h\nEnvironmentFile=/no/such\nExecStart=<hold main>",
        "+ auto-restart:resources - dead",
    ),
    case(
        "on-abnormal, no such environment file for its first command",
        "Restart=on-abnormal\nRestartSec=1h\nEnvironmentFile=/no/such\nExecStartPre=<hold p>\n\
         ExecStart=<hold main>",
        "+ (start-pre) auto-restart:resources - dead",
    ),
    case(
        "on-abnormal, no program",
        "Type=exec\nRestart=on-abnormal\nRestartSec=1h\nExecStart=/no/such",
        "+ (start) failed",
    ),
    case(
        "on-abort, fails",
        "Restart=on-abort\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=1 failed",
    ),
    case(
        "on-abort, killed",
        "Restart=on-abort\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main!KILL auto-restart - dead",
    ),
    case(
        "on-watchdog, fails",
        "Restart=on-watchdog\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=1 failed",
    ),
    case(
        "on-watchdog, watchdog times out",
        "Type=notify\nNotifyAccess=all\nWatchdogSec=100ms\nRestart=on-watchdog\nRestartSec=1h\n\
         ExecStart=<say READY=1|hold main>",
        "+ (start) (running) auto-restart - dead",
    ),
    case(
        "watchdog times out",
        "Type=notify\nNotifyAccess=all\nWatchdogSec=100ms\nExecStart=<say READY=1|hold main>",
        "+ (start) (running) failed",
    ),
    case(
        "RestartPreventExitStatus= matches the status",
        "Restart=always\nRestartSec=1h\nRestartPreventExitStatus=3\nExecStart=<hold main>",
        "+ running main=3 failed",
    ),
    case(
        "RestartPreventExitStatus= matches the signal",
        "Restart=always\nRestartSec=1h\nRestartPreventExitStatus=SIGKILL\nExecStart=<hold main>",
        "+ running main!KILL failed",
    ),
    case(
        "RestartPreventExitStatus= matches a successful status",
        "Restart=always\nRestartSec=1h\nRestartPreventExitStatus=0\nExecStart=<hold main>",
        "+ running main=0 dead",
    ),
    case(
        "RestartPreventExitStatus= names a signal, but the result is a timeout",
        "RuntimeMaxSec=100ms\nKillSignal=SIGKILL\nRestart=always\nRestartSec=1h\n\
         RestartPreventExitStatus=SIGKILL\nExecStart=<hold main>",
        "+ (running) failed:timeout",
    ),
    case(
        "RestartPreventExitStatus= names the signal that ended a timed-out start",
        "Type=notify\nTimeoutStartSec=100ms\nRestart=always\nRestartSec=1h\n\
         RestartPreventExitStatus=SIGTERM\nExecStart=<hold main>",
        "+ (start) failed:timeout",
    ),
    case(
        "RestartPreventExitStatus= matches main, then ExecStartPost= fails",
        "Restart=always\nRestartSec=1h\nRestartPreventExitStatus=0\nExecStart=<hold main>\n\
         ExecStartPost=<hold p>",
        "+ start-post p? main=0 p=1 failed:exit-code",
    ),
    case(
        "RestartPreventExitStatus= matches an ignored status",
        "Restart=always\nRestartSec=1h\nRestartPreventExitStatus=3\nExecStart=-<hold main>",
        "+ running main=3 dead",
    ),
    case(
        "RestartForceExitStatus= matches an ignored status",
        "Restart=no\nRestartSec=1h\nRestartForceExitStatus=3\nExecStart=-<hold main>",
        "+ running main=3 auto-restart - dead",
    ),
    case(
        "RestartForceExitStatus= names a signal, but the result is a timeout",
        "RuntimeMaxSec=100ms\nRestartSec=1h\nRestartForceExitStatus=SIGTERM\n\
         ExecStart=<hold main>",
        "+ (running) auto-restart:timeout - dead",
    ),
    case(
        "RestartForceExitStatus= matches the status",
        "Restart=no\nRestartSec=1h\nRestartForceExitStatus=3\nExecStart=<hold main>",
        "+ running main=3 auto-restart - dead",
    ),
    case(
        "restarted after a failure of main",
        "Restart=on-failure\nRestartSec=50ms\nExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p=0 running main=1 (auto-restart) start-pre p=0 running main=0 dead",
    ),
    case(
        "oneshot, restarted after a failure of main",
        "Type=oneshot\nRestart=on-failure\nRestartSec=50ms\nExecStartPre=<hold p>\n\
         ExecStart=<hold main>",
        "+ start-pre p=0 start main=1 (auto-restart) start-pre p=0 start main=0 dead",
    ),
    case(
        "start limit hit by failures",
        "[Unit]\nStartLimitBurst=2\nStartLimitIntervalSec=1h\n[Service]\nRestart=always\n\
         RestartSec=2s\nExecStart=<hold main>\n",
        "+ running main=1 auto-restart running main=1 auto-restart failed",
    ),
    case(
        "start limit hit by successful runs",
        "[Unit]\nStartLimitBurst=2\nStartLimitIntervalSec=1h\n[Service]\nRestart=always\n\
         RestartSec=10ms\nExecStartPre=<hold p>\nExecStart=<hold main>\n",
        "+ start-pre p=0 running main=0 (auto-restart) start-pre p=0 running main=0 \
         (auto-restart) failed:start-limit-hit",
    ),
    case(
        "no start limit",
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=10ms\n\
         ExecStartPre=<hold p>\nExecStart=<hold main>\n",
        "+ start-pre p=0 running main=1 (auto-restart) start-pre p=0 running main=1 (auto-restart) \
         start-pre p=0 running main=1 (auto-restart) start-pre p=0 running main=1 (auto-restart) \
         start-pre p=0 running main=1 (auto-restart) start-pre p=0 running main? - dead",
    ),
    case(
        "always, ExecCondition= does not hold",
        "Restart=always\nRestartSec=1h\nExecCondition=<hold c>\nExecStart=<hold main>",
        "+ condition c=1 dead",
    ),
    case(
        "RestartSteps= and RestartMaxDelaySec=",
        "Restart=on-failure\nRestartSec=500ms\nRestartSteps=2\nRestartMaxDelaySec=1h\n\
         ExecStart=<hold main>",
        "+ running main=1 (auto-restart) running main=1 auto-restart . - (failed) dead",
    ),
];
