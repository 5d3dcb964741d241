//! Successful and failed starts.

use super::{Case, case};

const NOTIFY: &str = "Type=notify\nNotifyAccess=all\nExecStart=<hold a|say READY=1|hold main>";

pub(super) const CASES: &[Case] = &[
    case("simple, succeeds", "ExecStart=<hold main>", "+ running main=0 dead"),
    case("simple, fails", "ExecStart=<hold main>", "+ running main=1 failed"),
    case("simple, killed", "ExecStart=<hold main>", "+ running main!KILL failed"),
    case("simple, ended by TERM", "ExecStart=<hold main>", "+ running main!TERM dead"),
    case("simple, ended by USR1", "ExecStart=<hold main>", "+ running main!USR1 failed"),
    case("exec, succeeds", "Type=exec\nExecStart=<hold main>", "+ (start) running main=0 dead"),
    case("exec, fails", "Type=exec\nExecStart=<hold main>", "+ (start) running main=9 failed"),
    case("exec, no program", "Type=exec\nExecStart=/no/such", "+ (start) failed"),
    case("simple, no program", "ExecStart=/no/such", "+ (running) failed"),
    case("simple, no program, failure ignored", "ExecStart=-/no/such", "+ (running) (dead) ."),
    case("oneshot, no program", "Type=oneshot\nExecStart=/no/such", "+ (start) failed"),
    case("failure ignored", "ExecStart=-<hold main>", "+ running main=5 dead"),
    case("program with another argv[0]", "ExecStart=@/bin/sleep it 1000", "+ running - dead"),
    case("program with full privileges", "ExecStart=+<hold main>", "+ running main=0 dead")
        .root_only(),
    case("no such user", "User=no-such\nExecStart=<hold main>", "+ (running) failed").root_only(),
    case("no such group", "Group=no-such\nExecStart=<hold main>", "+ (running) failed").root_only(),
    case(
        "no such working directory",
        "WorkingDirectory=/no/such\nExecStart=<hold main>",
        "+ (running) failed",
    ),
    case(
        "optional working directory is missing",
        "WorkingDirectory=-/no/such\nExecStart=<hold main>",
        "+ running main=0 dead",
    ),
    case(
        "no such environment file",
        "EnvironmentFile=/no/such\nExecStart=<hold main>",
        "+ (running) failed",
    ),
    case(
        "no such environment file, failure ignored",
        "EnvironmentFile=/no/such\nExecStart=-<hold main>",
        "+ (running) failed:resources",
    ),
    case(
        "oneshot, no such environment file, failure of ExecStartPre= ignored",
        "Type=oneshot\nEnvironmentFile=/no/such\nExecStartPre=-<hold p>\nExecStart=<hold main>",
        "+ (start-pre) failed:resources",
    ),
    case(
        "SuccessExitStatus= matches the status",
        "SuccessExitStatus=7\nExecStart=<hold main>",
        "+ running main=7 dead",
    ),
    case(
        "SuccessExitStatus= matches the signal",
        "SuccessExitStatus=SIGKILL\nExecStart=<hold main>",
        "+ running main!KILL dead",
    ),
    case(
        "simple, RemainAfterExit=",
        "RemainAfterExit=yes\nExecStart=<hold main>",
        "+ running main=0 exited - dead",
    ),
    case(
        "simple, RemainAfterExit=, fails",
        "RemainAfterExit=yes\nExecStart=<hold main>",
        "+ running main=1 failed",
    ),
    case(
        "two ExecStartPre=",
        "ExecStartPre=<hold p>\nExecStartPre=<hold q>\nExecStart=<hold main>",
        "+ start-pre p=0 q=0 running main=0 dead",
    ),
    case(
        "ExecStartPre= fails",
        "ExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p=1 failed",
    ),
    case(
        "ExecStartPre= fails, failure ignored",
        "ExecStartPre=-<hold p>\nExecStart=<hold main>",
        "+ start-pre p=1 running main=0 dead",
    ),
    case(
        "ExecStartPre= exits with a SuccessExitStatus=",
        "SuccessExitStatus=7\nExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p=7 running main=0 dead",
    ),
    case(
        "ExecStartPre= ended by TERM",
        "ExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p!TERM failed",
    ),
    case(
        "oneshot, ExecStartPre= ended by TERM",
        "Type=oneshot\nExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p!TERM failed",
    ),
    case(
        "ExecStartPre= without a program",
        "ExecStartPre=/no/such\nExecStart=<hold main>",
        "+ (start-pre) failed",
    ),
    case(
        "ExecStartPre= times out",
        "TimeoutStartSec=100ms\nExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ (start-pre) failed",
    ),
    case(
        "two ExecStartPre=, together slower than TimeoutStartSec=",
        "TimeoutStartSec=3s\nExecStartPre=/bin/sleep 2\nExecStartPre=/bin/sleep 2\n\
         ExecStart=<hold main>",
        "+ start-pre running main? - dead",
    ),
    case(
        "ExecCondition= holds",
        "ExecCondition=<hold c>\nExecStart=<hold main>",
        "+ condition c=0 running main=0 dead",
    ),
    case(
        "ExecCondition= does not hold",
        "ExecCondition=<hold c>\nExecStart=<hold main>",
        "+ condition c=1 dead",
    ),
    case(
        "ExecCondition= cannot be checked",
        "ExecCondition=<hold c>\nExecStart=<hold main>",
        "+ condition c=255 failed",
    ),
    case(
        "ExecCondition= is killed",
        "ExecCondition=<hold c>\nExecStart=<hold main>",
        "+ condition c!KILL failed",
    ),
    case(
        "ExecCondition= does not hold, ExecStopPost= runs",
        "ExecCondition=<hold c>\nExecStart=<hold main>\nExecStopPost=<hold s>",
        "+ condition c=1 stop-post s=0 dead",
    ),
    case(
        "ConditionPathExists= does not hold",
        "[Unit]\nConditionPathExists=/no/such\n[Service]\nExecStart=<hold main>\n",
        "+ .",
    ),
    case(
        "AssertPathExists= does not hold",
        "[Unit]\nAssertPathExists=/no/such\n[Service]\nExecStart=<hold main>\n",
        "+ .",
    )
    .with_native("+ failed ."),
    case(
        "conditions on files hold",
        "[Unit]\nConditionPathExists=!/no/such\nConditionPathIsDirectory=/proc\n\
         ConditionFileIsExecutable=/bin/sh\nConditionFileNotEmpty=/bin/sh\n\
         AssertPathExists=/proc\nAssertFileIsExecutable=!/proc\n[Service]\nExecStart=<hold main>\n",
        "+ running main=0 dead",
    ),
    case(
        "one of two conditions does not hold",
        "[Unit]\nConditionPathIsDirectory=/proc\nConditionPathIsDirectory=/bin/sh\n[Service]\n\
         ExecStart=<hold main>\n",
        "+ .",
    ),
    case(
        "one of two triggering conditions holds",
        "[Unit]\nConditionPathIsDirectory=|/proc\nConditionPathIsDirectory=|/bin/sh\n[Service]\n\
         ExecStart=<hold main>\n",
        "+ running main=0 dead",
    ),
    case(
        "conditions on the machine hold",
        "[Unit]\nConditionHost=*\nConditionHost=!no-such-host\nConditionUser=!daemon\n\
         ConditionKernelCommandLine=!no-such-word\nAssertHost=*\nAssertUser=!daemon\n\
         AssertKernelCommandLine=!no-such-word\nAssertPathIsDirectory=/proc\n\
         AssertFileNotEmpty=/bin/sh\n[Service]\nExecStart=<hold main>\n",
        "+ running main=0 dead",
    ),
    case(
        "ConditionHost= does not hold",
        "[Unit]\nConditionHost=no-such-host\n[Service]\nExecStart=<hold main>\n",
        "+ .",
    ),
    case(
        "ConditionUser= does not hold",
        "[Unit]\nConditionUser=daemon\n[Service]\nExecStart=<hold main>\n",
        "+ .",
    ),
    case(
        "ConditionKernelCommandLine= does not hold",
        "[Unit]\nConditionKernelCommandLine=no-such-word\n[Service]\nExecStart=<hold main>\n",
        "+ .",
    ),
    case(
        "without default dependencies",
        "[Unit]\nDefaultDependencies=no\nConflicts=shutdown.target\n[Service]\n\
         ExecStart=<hold main>\n",
        "+ running main? - dead",
    ),
    case(
        "ExecStartPost=",
        "ExecStart=<hold main>\nExecStartPost=<hold p>",
        "+ start-post p=0 running main=0 dead",
    ),
    case(
        "ExecStartPost= fails",
        "ExecStart=<hold main>\nExecStartPost=<hold p>",
        "+ start-post main? p=1 failed",
    ),
    case(
        "main succeeds during ExecStartPost=",
        "ExecStart=<hold main>\nExecStartPost=<hold p>",
        "+ start-post p? main=0 p=0 dead",
    ),
    case(
        "main fails during ExecStartPost=",
        "ExecStart=<hold main>\nExecStartPost=<hold p>",
        "+ start-post p? main=1 p=0 failed",
    ),
    case("oneshot", "Type=oneshot\nExecStart=<hold c>", "+ start c=0 dead"),
    case(
        "oneshot, two commands",
        "Type=oneshot\nExecStart=<hold c>\nExecStart=<hold d>",
        "+ start c=0 d=0 dead",
    ),
    case(
        "oneshot, the first fails",
        "Type=oneshot\nExecStart=<hold c>\nExecStart=<hold d>",
        "+ start c=1 failed",
    ),
    case(
        "oneshot, the first fails, failure ignored",
        "Type=oneshot\nExecStart=-<hold c>\nExecStart=<hold d>",
        "+ start c=1 d=0 dead",
    ),
    case("oneshot, ended by TERM", "Type=oneshot\nExecStart=<hold c>", "+ start c!TERM failed"),
    case(
        "oneshot, RemainAfterExit=",
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=<hold c>",
        "+ start c=0 exited - dead",
    ),
    case(
        "oneshot, ExecStartPost=",
        "Type=oneshot\nExecStart=<hold c>\nExecStartPost=<hold p>",
        "+ start c=0 start-post p=0 dead",
    ),
    case(
        "oneshot, TimeoutStartSec= elapses",
        "Type=oneshot\nTimeoutStartSec=100ms\nExecStart=<hold c>",
        "+ (start) failed",
    ),
    case(
        "oneshot, TimeoutSec= elapses",
        "Type=oneshot\nTimeoutSec=100ms\nExecStart=<hold c>",
        "+ (start) failed",
    ),
    case("idle", "Type=idle\nExecStart=<hold main>", "+ (start) running main=0 dead"),
    case(
        "notify, READY=1 from the main process",
        "Type=notify\nExecStart=<hold a|say READY=1|hold main>",
        "+ start a=go running main=0 dead",
    ),
    case(
        "notify, NotifyAccess=none counts as main",
        "Type=notify\nNotifyAccess=none\nExecStart=<hold a|say READY=1|hold main>",
        "+ start a=go running main=0 dead",
    ),
    case(
        "notify, READY=1 from a child without access",
        "Type=notify\nTimeoutStartSec=4s\nExecStart=<child|hold a|say READY=1|hold main>",
        "+ start a=go main? failed",
    ),
    case(
        "notify, NotifyAccess=exec, READY=1 from a child",
        "Type=notify\nNotifyAccess=exec\nTimeoutStartSec=4s\n\
         ExecStart=<child|hold a|say READY=1|hold main>",
        "+ start a=go main? failed",
    ),
    case("notify", NOTIFY, "+ start a=go running main=0 dead"),
    case("notify, ends before it is ready", NOTIFY, "+ start a=0 failed"),
    case("notify, fails before it is ready", NOTIFY, "+ start a=3 failed"),
    case("notify, killed before it is ready", NOTIFY, "+ start a!KILL failed"),
    case(
        "notify, start times out",
        "Type=notify\nTimeoutStartSec=100ms\nExecStart=<hold main>",
        "+ (start) failed",
    ),
    case(
        "notify, RemainAfterExit=, a child sends READY=1 after main",
        "Type=notify\nNotifyAccess=all\nRemainAfterExit=yes\n\
         ExecStart=<hold main|child|hold b|say READY=1|hold kid>",
        "+ start main=go b? main!TERM b=go (running) exited kid? - dead",
    ),
    case(
        "notify, RemainAfterExit=, no process left to send READY=1",
        "Type=notify\nNotifyAccess=exec\nRemainAfterExit=yes\nExecStart=<hold main|child|hold b>",
        "+ start main=go b? main!TERM b=0 failed:protocol",
    ),
    case(
        "notify, RemainAfterExit=, only main may send READY=1",
        "Type=notify\nRemainAfterExit=yes\nExecStart=<hold main|child|hold b>",
        "+ start main=go b? main!TERM failed:protocol",
    ),
    case(
        "notify, ExecStartPost=",
        "Type=notify\nNotifyAccess=all\nExecStart=<hold a|say READY=1|hold main>\n\
         ExecStartPost=<hold p>",
        "+ start a=go start-post p=0 running main=0 dead",
    ),
    case(
        "forking",
        "Type=forking\nPIDFile={at}/pid\nExecStart=<hold c|leave 0|pidfile {at}/pid|hold main>",
        "+ start c=go running main!KILL failed",
    ),
    case(
        "forking, its command fails",
        "Type=forking\nPIDFile={at}/pid\nExecStart=<hold c>",
        "+ start c=1 failed",
    ),
    case(
        "forking, no process left to write the PID file",
        "Type=forking\nPIDFile={at}/pid\nExecStart=<hold c>",
        "+ start c=0 failed",
    ),
    case(
        "forking, stopped",
        "Type=forking\nPIDFile={at}/pid\nExecStart=<leave 0|pidfile {at}/pid|hold main>",
        "+ (start) running main? - dead",
    ),
    case(
        "forking, PID file names a successor",
        // The reload shows that the end of the previous one was handled.
        "Type=forking\nPIDFile={at}/pid\nExecReload=<hold r>\n\
         ExecStart=<leave 0|pidfile {at}/pid|hold main|child|pidfile {at}/pid|hold next>",
        "+ (start) running main=go next? main!TERM . ^ reload r=0 running - dead",
    ),
    case(
        "forking, PID file names no successor",
        "Type=forking\nPIDFile={at}/pid\n\
         ExecStart=<leave 0|pidfile {at}/pid|hold main|child|hold next>",
        "+ (start) running main=go next? main!KILL failed",
    ),
    case(
        "forking, PID file is never written",
        "Type=forking\nPIDFile={at}/pid\nTimeoutStartSec=300ms\nExecStart=<leave 0|hold main>",
        "+ (start) failed",
    ),
    case(
        "forking without PIDFile=",
        "Type=forking\nExecStart=<hold c|leave 0|hold main>",
        "+ start c=go running main!KILL failed",
    ),
    case(
        "forking without PIDFile=, main process leaves others",
        "Type=forking\nExecStart=<leave 0|fork b|hold main>",
        "+ (start) running b? main!KILL failed",
    ),
    case(
        "forking without PIDFile=, several processes",
        "Type=forking\nExecStart=<fork a|fork b|hold c>\nExecReload=<hold r>",
        "+ start a? b? c=0 running a!KILL . ^ reload r=0 running b=0 dead",
    ),
    case(
        "forking without PIDFile=, several processes, stopped",
        "Type=forking\nExecStart=<fork a|fork b|hold c>",
        "+ start a? b? c=0 running - dead",
    ),
    case(
        "forking without PIDFile=, no process is left",
        "Type=forking\nExecStart=<hold c>",
        "+ start c=0 (running) dead",
    ),
    case(
        "ExitType=cgroup",
        "ExitType=cgroup\nExecStart=<fork b|hold main>\nExecReload=<hold r>",
        "+ running b? main=0 . ^ reload r=0 running b=0 dead",
    ),
    case(
        "ExitType=cgroup, main process fails",
        "ExitType=cgroup\nExecStart=<fork b|hold main>",
        "+ running b? main=3 b=0 failed:exit-code",
    ),
    case(
        "ExitType=cgroup, stopped",
        "ExitType=cgroup\nExecStart=<fork b|hold main>",
        "+ running b? main=0 - dead",
    ),
];
