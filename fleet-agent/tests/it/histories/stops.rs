//! Stops, and the leftovers of exits.

use super::{Case, case};

const DEAF: &str = "ExecStart=<trap TERM|hold main>";
const WITH_STOP: &str = "ExecStart=<hold main>\nExecStop=<hold s>";
const WITH_STOP_POST: &str = "ExecStart=<hold main>\nExecStopPost=<hold s>";
const WITH_CHILD: &str = "ExecStart=<hold main|child|trap TERM|hold kid>";

pub(super) const CASES: &[Case] = &[
    case("stopped", "ExecStart=<hold main>", "+ running main? - dead"),
    case("stopped, signal trapped", DEAF, "+ running main? - stop-sigterm main=0 dead"),
    case(
        "stopped, signal trapped, main fails",
        DEAF,
        "+ running main? - stop-sigterm main=1 failed",
    ),
    case(
        "stopped, stop times out",
        "TimeoutStopSec=100ms\nExecStart=<trap TERM|hold main>",
        "+ running main? - failed",
    ),
    case(
        "stopped, stop times out, ExecStopPost=",
        "TimeoutStopSec=3s\nExecStart=<trap TERM|hold main>\nExecStopPost=<hold s>",
        "+ running main? - stop-post s=0 failed:timeout",
    ),
    case(
        "two ExecStop=, together slower than TimeoutStopSec=",
        "TimeoutStopSec=3s\nExecStart=<hold main>\nExecStop=/bin/sleep 2\nExecStop=/bin/sleep 2",
        "+ running main? - stop dead",
    ),
    case(
        "stopped, stop times out, SendSIGKILL=no",
        "TimeoutStopSec=100ms\nSendSIGKILL=no\nExecStart=<trap TERM|hold main>",
        "+ running main? - failed main=0",
    ),
    case(
        "stopped, stop times out, FinalKillSignal=",
        "TimeoutStopSec=100ms\nFinalKillSignal=SIGUSR1\nExecStart=<trap TERM|hold main>",
        "+ running main? - failed:timeout",
    ),
    case(
        "stopped, SendSIGHUP=",
        "KillSignal=SIGCONT\nSendSIGHUP=yes\nTimeoutStopSec=1h\nExecStart=<hold main>",
        "+ running main? - dead",
    ),
    case(
        "watchdog times out, WatchdogSignal=",
        "Type=notify\nNotifyAccess=all\nWatchdogSec=100ms\nWatchdogSignal=SIGUSR1\n\
         ExecStart=<say READY=1|hold main>",
        "+ (start) running (stop-watchdog) failed:watchdog",
    ),
    case(
        "watchdog times out, signal trapped",
        "Type=notify\nNotifyAccess=all\nWatchdogSec=100ms\nTimeoutAbortSec=100ms\n\
         ExecStart=<trap ABRT|say READY=1|hold main>",
        "+ (start) running (stop-watchdog) (stop-sigkill) failed:watchdog",
    ),
    case(
        "stopped, KillSignal=",
        "KillSignal=SIGINT\nExecStart=<trap TERM|hold main>",
        "+ running main? - dead",
    ),
    case(
        "stopped, KillSignal= that is no success",
        "KillSignal=SIGUSR1\nExecStart=<hold main>",
        "+ running main? - failed",
    ),
    case("ExecStop=", WITH_STOP, "+ running main? - stop s=0 dead"),
    case("ExecStop= fails", WITH_STOP, "+ running main? - stop s=1 failed"),
    case("ExecStop= ended by TERM", WITH_STOP, "+ running main? - stop s!TERM failed"),
    case("ExecStop=, main ends", WITH_STOP, "+ running main? - stop s? main=0 s=0 dead"),
    case("ExecStop=, main fails", WITH_STOP, "+ running main? - stop s? main=1 s=0 failed"),
    case(
        "ExecStop= fails, failure ignored",
        "ExecStart=<hold main>\nExecStop=-<hold s>",
        "+ running main? - stop s=1 dead",
    ),
    case(
        "the first ExecStop= fails",
        "ExecStart=<hold main>\nExecStop=<hold s>\nExecStop=<hold t>",
        "+ running main? - stop s=1 failed",
    ),
    case(
        "ExecStop= times out",
        "TimeoutStopSec=100ms\nExecStart=<hold main>\nExecStop=<hold s>",
        "+ running main? - (stop) failed",
    ),
    case("ExecStop= after main has succeeded", WITH_STOP, "+ running main=0 stop s=0 dead"),
    case("no ExecStop= after main has failed", WITH_STOP, "+ running main=1 failed"),
    case("ExecStopPost= after a stop", WITH_STOP_POST, "+ running main? - stop-post s=0 dead"),
    case("ExecStopPost= after a success", WITH_STOP_POST, "+ running main=0 stop-post s=0 dead"),
    case("ExecStopPost= after a failure", WITH_STOP_POST, "+ running main=1 stop-post s=0 failed"),
    case("ExecStopPost= fails", WITH_STOP_POST, "+ running main=0 stop-post s=1 failed"),
    case(
        "the first ExecStopPost= fails",
        "ExecStart=<hold main>\nExecStopPost=<hold s>\nExecStopPost=<hold t>",
        "+ running main=0 stop-post s=1 failed",
    ),
    case(
        "ExecStopPost= fails, failure ignored",
        "ExecStart=<hold main>\nExecStopPost=-<hold s>",
        "+ running main=0 stop-post s=1 dead",
    ),
    case(
        "ExecStopPost= without a program",
        "ExecStart=<hold main>\nExecStopPost=/no/such",
        "+ running main=0 (stop-post) failed",
    ),
    case(
        "ExecStopPost= times out",
        "TimeoutStopSec=100ms\nExecStart=<hold main>\nExecStopPost=<hold s>",
        "+ running main=0 (stop-post) failed",
    ),
    case(
        "ExecStopPost= after a failed start",
        "ExecStartPre=<hold p>\nExecStart=<hold main>\nExecStop=<hold s>\nExecStopPost=<hold t>",
        "+ start-pre p=1 stop-post t=0 failed",
    ),
    case(
        "oneshot, RemainAfterExit=, stopped",
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=<hold c>\nExecStop=<hold s>",
        "+ start c=0 exited - stop s=0 dead",
    ),
    case(
        "oneshot, ExecStop= fails",
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=<hold c>\nExecStop=<hold s>",
        "+ start c=0 exited - stop s=1 failed",
    ),
    case(
        "oneshot, ExecStop= after a success",
        "Type=oneshot\nExecStart=<hold c>\nExecStop=<hold s>",
        "+ start c=0 stop s=0 dead",
    ),
    case(
        "oneshot, only ExecStop=",
        "Type=oneshot\nRemainAfterExit=yes\nExecStop=<hold s>",
        "+ (start) exited - stop s=0 dead",
    ),
    case(
        "stopped during ExecStartPre=",
        "ExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p? - failed",
    ),
    case(
        "stopped during ExecStartPre=, signal trapped",
        "ExecStartPre=<trap TERM|hold p>\nExecStart=<hold main>",
        "+ start-pre p? - stop-sigterm p=0 dead",
    ),
    case(
        "stopped during ExecStartPre=, which fails",
        "ExecStartPre=<trap TERM|hold p>\nExecStart=<hold main>",
        "+ start-pre p? - stop-sigterm p=1 failed",
    ),
    case(
        "stopped during ExecCondition=",
        "ExecCondition=<trap TERM|hold c>\nExecStart=<hold main>",
        "+ condition c? - stop-sigterm c=0 dead",
    ),
    case(
        "notify, stopped before READY=1",
        "Type=notify\nExecStart=<trap TERM|hold a>",
        "+ start a? - stop-sigterm a=0 dead",
    ),
    case("oneshot, stopped", "Type=oneshot\nExecStart=<hold c>", "+ start c? - failed"),
    case(
        "oneshot, stopped, signal trapped",
        "Type=oneshot\nExecStart=<trap TERM|hold c>",
        "+ start c? - stop-sigterm c=0 dead",
    ),
    case(
        "stopped during ExecStartPost=",
        "ExecStart=<hold main>\nExecStartPost=<trap TERM|hold p>",
        "+ start-post main? p? - stop-sigterm p=0 dead",
    ),
    case("KillMode=control-group", WITH_CHILD, "+ running main=go kid? - final-sigterm kid=0 dead")
        .with_native("+ running main=go kid? - stop-sigterm kid=0 dead"),
    case(
        "KillMode=control-group, ExecStopPost=",
        "ExecStart=<hold main|child|trap TERM|hold kid>\nExecStopPost=<hold s>",
        "+ running main=go kid? - stop-post s=0 final-sigterm kid=0 dead",
    )
    .with_native("+ running main=go kid? - stop-sigterm kid=0 stop-post s=0 dead"),
    case(
        "KillMode=control-group, stop times out",
        "TimeoutStopSec=100ms\nExecStart=<hold main|child|trap TERM|hold kid>",
        "+ running main=go kid? - failed",
    ),
    case(
        "KillMode=mixed",
        "KillMode=mixed\nExecStart=<hold main|child|trap TERM|hold kid>",
        "+ running main=go kid? - dead",
    ),
    case(
        "KillMode=process",
        "KillMode=process\nExecStart=<hold main|child|trap TERM|hold kid>",
        "+ running main=go kid? - dead kid=0",
    ),
    case(
        "child outlives main",
        WITH_CHILD,
        "+ running main=go kid? main!TERM stop-sigterm kid=0 dead",
    ),
    case(
        "child outlives a failed main",
        WITH_CHILD,
        "+ running main=go kid? main!KILL stop-sigterm kid=0 failed",
    ),
    case(
        "RuntimeMaxSec= elapses",
        "RuntimeMaxSec=100ms\nExecStart=<hold main>",
        "+ (running) failed",
    ),
];
