//! Stops, and the leftovers of exits.

use super::{Case, case};

const DEAF: &str = "ExecStart=<trap TERM|hold main>";
const WITH_STOP: &str = "ExecStart=<hold main>\nExecStop=<hold s>";
const WITH_STOP_POST: &str = "ExecStart=<hold main>\nExecStopPost=<hold s>";
const WITH_CHILD: &str = "ExecStart=<hold main|child|trap TERM|hold kid>";

pub(super) const CASES: &[Case] = &[
    case("stopped", "ExecStart=<hold main>", "+ running main? - dead"),
    case("stopped, takes its time", DEAF, "+ running main? - stop-sigterm main=0 dead"),
    case("stopped, ends badly", DEAF, "+ running main? - stop-sigterm main=1 failed"),
    case(
        "stopped, takes too long",
        "TimeoutStopSec=100ms\nExecStart=<trap TERM|hold main>",
        "+ running main? - failed",
    ),
    case(
        "stopped, takes too long and is not killed",
        "TimeoutStopSec=100ms\nSendSIGKILL=no\nExecStart=<trap TERM|hold main>",
        "+ running main? - failed main=0",
    ),
    case(
        "stopped, takes too long and is killed by another signal",
        "TimeoutStopSec=100ms\nFinalKillSignal=SIGUSR1\nExecStart=<trap TERM|hold main>",
        "+ running main? - failed:timeout",
    ),
    case(
        "stopped, with a hangup",
        "KillSignal=SIGCONT\nSendSIGHUP=yes\nTimeoutStopSec=1h\nExecStart=<hold main>",
        "+ running main? - dead",
    ),
    case(
        "silent for too long, by another signal",
        "Type=notify\nNotifyAccess=all\nWatchdogSec=100ms\nWatchdogSignal=SIGUSR1\n\
         ExecStart=<say READY=1|hold main>",
        "+ (start) running (stop-watchdog) failed:watchdog",
    ),
    case(
        "silent for too long, and deaf",
        "Type=notify\nNotifyAccess=all\nWatchdogSec=100ms\nTimeoutAbortSec=100ms\n\
         ExecStart=<trap ABRT|say READY=1|hold main>",
        "+ (start) running (stop-watchdog) (stop-sigkill) failed:watchdog",
    ),
    case(
        "another signal",
        "KillSignal=SIGINT\nExecStart=<trap TERM|hold main>",
        "+ running main? - dead",
    ),
    case(
        "a signal that is no success",
        "KillSignal=SIGUSR1\nExecStart=<hold main>",
        "+ running main? - failed",
    ),
    case("a command of the stop", WITH_STOP, "+ running main? - stop s=0 dead"),
    case("a command of the stop fails", WITH_STOP, "+ running main? - stop s=1 failed"),
    case("a command of the stop ended by TERM", WITH_STOP, "+ running main? - stop s!TERM failed"),
    case(
        "a command of the stop, main ends",
        WITH_STOP,
        "+ running main? - stop s? main=0 s=0 dead",
    ),
    case(
        "a command of the stop, main ends badly",
        WITH_STOP,
        "+ running main? - stop s? main=1 s=0 failed",
    ),
    case(
        "a command of the stop may fail",
        "ExecStart=<hold main>\nExecStop=-<hold s>",
        "+ running main? - stop s=1 dead",
    ),
    case(
        "the first command of the stop fails",
        "ExecStart=<hold main>\nExecStop=<hold s>\nExecStop=<hold t>",
        "+ running main? - stop s=1 failed",
    ),
    case(
        "a command of the stop takes too long",
        "TimeoutStopSec=100ms\nExecStart=<hold main>\nExecStop=<hold s>",
        "+ running main? - (stop) failed",
    ),
    case("a command of the stop, ended by itself", WITH_STOP, "+ running main=0 stop s=0 dead"),
    case("a command of the stop, failed by itself", WITH_STOP, "+ running main=1 failed"),
    case("after the stop", WITH_STOP_POST, "+ running main? - stop-post s=0 dead"),
    case("after the end", WITH_STOP_POST, "+ running main=0 stop-post s=0 dead"),
    case("after a failure", WITH_STOP_POST, "+ running main=1 stop-post s=0 failed"),
    case("after the end, fails", WITH_STOP_POST, "+ running main=0 stop-post s=1 failed"),
    case(
        "after the end, the first fails",
        "ExecStart=<hold main>\nExecStopPost=<hold s>\nExecStopPost=<hold t>",
        "+ running main=0 stop-post s=1 failed",
    ),
    case(
        "after the end, may fail",
        "ExecStart=<hold main>\nExecStopPost=-<hold s>",
        "+ running main=0 stop-post s=1 dead",
    ),
    case(
        "after the end, no such command",
        "ExecStart=<hold main>\nExecStopPost=/no/such",
        "+ running main=0 (stop-post) failed",
    ),
    case(
        "after the end, takes too long",
        "TimeoutStopSec=100ms\nExecStart=<hold main>\nExecStopPost=<hold s>",
        "+ running main=0 (stop-post) failed",
    ),
    case(
        "after a start that failed",
        "ExecStartPre=<hold p>\nExecStart=<hold main>\nExecStop=<hold s>\nExecStopPost=<hold t>",
        "+ start-pre p=1 stop-post t=0 failed",
    ),
    case(
        "oneshot, remained and stopped",
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=<hold c>\nExecStop=<hold s>",
        "+ start c=0 exited - stop s=0 dead",
    ),
    case(
        "oneshot, the command of the stop fails",
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=<hold c>\nExecStop=<hold s>",
        "+ start c=0 exited - stop s=1 failed",
    ),
    case(
        "oneshot, stopped by itself",
        "Type=oneshot\nExecStart=<hold c>\nExecStop=<hold s>",
        "+ start c=0 stop s=0 dead",
    ),
    case(
        "oneshot, only a command of the stop",
        "Type=oneshot\nRemainAfterExit=yes\nExecStop=<hold s>",
        "+ (start) exited - stop s=0 dead",
    ),
    case(
        "stopped before it began",
        "ExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p? - failed",
    ),
    case(
        "stopped before it began, takes its time",
        "ExecStartPre=<trap TERM|hold p>\nExecStart=<hold main>",
        "+ start-pre p? - stop-sigterm p=0 dead",
    ),
    case(
        "stopped before it began, ends badly",
        "ExecStartPre=<trap TERM|hold p>\nExecStart=<hold main>",
        "+ start-pre p? - stop-sigterm p=1 failed",
    ),
    case(
        "stopped while its condition is asked",
        "ExecCondition=<trap TERM|hold c>\nExecStart=<hold main>",
        "+ condition c? - stop-sigterm c=0 dead",
    ),
    case(
        "stopped before it was ready",
        "Type=notify\nExecStart=<trap TERM|hold a>",
        "+ start a? - stop-sigterm a=0 dead",
    ),
    case("oneshot, stopped", "Type=oneshot\nExecStart=<hold c>", "+ start c? - failed"),
    case(
        "oneshot, stopped and takes its time",
        "Type=oneshot\nExecStart=<trap TERM|hold c>",
        "+ start c? - stop-sigterm c=0 dead",
    ),
    case(
        "stopped while a command after runs",
        "ExecStart=<hold main>\nExecStartPost=<trap TERM|hold p>",
        "+ start-post main? p? - stop-sigterm p=0 dead",
    ),
    case("all are signalled", WITH_CHILD, "+ running main=go kid? - final-sigterm kid=0 dead")
        .with_native("+ running main=go kid? - stop-sigterm kid=0 dead"),
    case(
        "all are signalled, and after the stop",
        "ExecStart=<hold main|child|trap TERM|hold kid>\nExecStopPost=<hold s>",
        "+ running main=go kid? - stop-post s=0 final-sigterm kid=0 dead",
    )
    .with_native("+ running main=go kid? - stop-sigterm kid=0 stop-post s=0 dead"),
    case(
        "all are signalled, and killed",
        "TimeoutStopSec=100ms\nExecStart=<hold main|child|trap TERM|hold kid>",
        "+ running main=go kid? - failed",
    ),
    case(
        "mixed",
        "KillMode=mixed\nExecStart=<hold main|child|trap TERM|hold kid>",
        "+ running main=go kid? - dead",
    ),
    case(
        "only main is signalled",
        "KillMode=process\nExecStart=<hold main|child|trap TERM|hold kid>",
        "+ running main=go kid? - dead kid=0",
    ),
    case(
        "a child outlives main",
        WITH_CHILD,
        "+ running main=go kid? main!TERM stop-sigterm kid=0 dead",
    ),
    case(
        "a child outlives main, which failed",
        WITH_CHILD,
        "+ running main=go kid? main!KILL stop-sigterm kid=0 failed",
    ),
    case("ran too long", "RuntimeMaxSec=100ms\nExecStart=<hold main>", "+ (running) failed"),
];
