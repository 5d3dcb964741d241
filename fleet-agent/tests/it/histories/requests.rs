//! Requests to a unit in various states.

use super::{Case, case};

const MAIN: &str = "ExecStart=<hold main>";
const WITH_RELOAD: &str = "ExecStart=<hold main>\nExecReload=<hold r>";

pub(super) const CASES: &[Case] = &[
    case("started twice", MAIN, "+ running main? . + . main=0 dead"),
    case("stopped twice", MAIN, "+ running main? - dead . - ."),
    case("stopped after a failure", MAIN, "+ running main=1 failed . - ."),
    case("started after a failure", MAIN, "+ running main=1 failed . + (dead) running main=0 dead"),
    case(
        "restarted after a failure",
        MAIN,
        "+ running main=1 failed . ~ (dead) running main=0 dead",
    ),
    case(
        "restarted",
        "ExecStart=<trap TERM|hold main>",
        "+ running main? . ~ stop-sigterm main=0 (dead) running main=0 dead",
    ),
    case("restarted before the first start", MAIN, "~ running main=0 dead"),
    case(
        "restarted, with commands",
        "ExecStartPre=<hold p>\nExecStart=<hold main>\nExecStop=<hold s>\nExecStopPost=<hold t>",
        "+ start-pre p=0 running main? . ~ stop s=0 stop-post t=0 (dead) start-pre p=0 running \
         main? . - stop s=0 stop-post t=0 dead",
    ),
    case(
        "oneshot, restarted",
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=<hold c>\nExecStop=<hold s>",
        "+ start c=0 exited . ~ stop s=0 (dead) start c=0 exited . - stop s=0 dead",
    ),
    case(
        "started during auto-restart",
        "Restart=on-failure\nRestartSec=2s\nExecStart=<hold main>",
        "+ running main=1 auto-restart . + running main=0 dead",
    ),
    case(
        "restarted during auto-restart",
        "Restart=on-failure\nRestartSec=1h\nExecStart=<hold main>",
        "+ running main=1 auto-restart . ~ (dead) running main=0 dead",
    ),
    case(
        "started while stopping",
        "ExecStart=<hold main>\nExecStop=<hold s>",
        "+ running main? . - stop s? + s=0 (dead) running main? . - stop s=0 dead",
    ),
    case("reloaded", WITH_RELOAD, "+ running main? . ^ reload r=0 running main=0 dead"),
    case(
        "reloaded, the command fails",
        WITH_RELOAD,
        "+ running main? . ^ reload r=1 running main=0 dead",
    ),
    case(
        "reloaded, by two commands",
        "ExecStart=<hold main>\nExecReload=<hold r>\nExecReload=<hold q>",
        "+ running main? . ^ reload r=0 q=0 running main=0 dead",
    ),
    case(
        "reloaded, the first command fails",
        "ExecStart=<hold main>\nExecReload=<hold r>\nExecReload=<hold q>",
        "+ running main? . ^ reload r=1 running main=0 dead",
    ),
    case("reloaded, main ends", WITH_RELOAD, "+ running main? . ^ reload r? main=0 r=0 dead"),
    case("reloaded, main fails", WITH_RELOAD, "+ running main? . ^ reload r? main=1 r=0 failed"),
    case("reloaded, stopped meanwhile", WITH_RELOAD, "+ running main? . ^ reload r? - failed"),
    case("reloaded, without ExecReload=", MAIN, "+ running main? . ^ . main=0 dead"),
    case(
        "oneshot, reloaded",
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=<hold c>\nExecReload=<hold r>",
        "+ start c=0 exited . ^ reload r=0 exited - dead",
    ),
    case(
        "forking, main process changes during a reload",
        "Type=forking\nPIDFile={at}/pid\nExecReload=<hold r>\n\
         ExecStart=<leave 0|pidfile {at}/pid|hold main|child|hold b|pidfile {at}/pid|hold c|\
         pidfile {at}/pid 1|hold next>",
        // The second reload shows that the unit still runs. Systems differ in reporting the end of
        // a reload that the unit began itself.
        "+ (start) running main=go b? . ^ reload r? b=go c? r=0 running c=go next? main!TERM . ^ \
         reload r=0 running - dead",
    ),
    case(
        "sends RELOADING=1",
        "Type=notify\nNotifyAccess=all\nExecStart=<say READY=1|hold a|say RELOADING=1|hold b|say \
         READY=1|hold main>",
        "+ (start) running a=go reload b=go running main=0 dead",
    )
    .with_native("+ (start) running a=go reload-notify b=go running main=0 dead"),
    case(
        "sends STOPPING=1",
        "Type=notify\nNotifyAccess=all\nExecStart=<say READY=1|hold a|say STOPPING=1|hold main>",
        "+ (start) running a=go stop-sigterm main=0 dead",
    ),
    case(
        "sends STOPPING=1, then fails",
        "Type=notify\nNotifyAccess=all\nExecStart=<say READY=1|hold a|say STOPPING=1|hold main>",
        "+ (start) running a=go stop-sigterm main=1 failed",
    ),
];
