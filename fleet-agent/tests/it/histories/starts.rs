//! Successful and failed starts.

use super::{Case, case};

const NOTIFY: &str = "Type=notify\nNotifyAccess=all\nExecStart=<hold a|say READY=1|hold main>";

pub(super) const CASES: &[Case] = &[
    case("simple, ends well", "ExecStart=<hold main>", "+ running main=0 dead"),
    case("simple, ends badly", "ExecStart=<hold main>", "+ running main=1 failed"),
    case("simple, killed", "ExecStart=<hold main>", "+ running main!KILL failed"),
    case("simple, ended by TERM", "ExecStart=<hold main>", "+ running main!TERM dead"),
    case("simple, ended by USR1", "ExecStart=<hold main>", "+ running main!USR1 failed"),
    case("exec, ends well", "Type=exec\nExecStart=<hold main>", "+ (start) running main=0 dead"),
    case("exec, ends badly", "Type=exec\nExecStart=<hold main>", "+ (start) running main=9 failed"),
    case("exec, no program", "Type=exec\nExecStart=/no/such", "+ (start) failed"),
    case("simple, no program", "ExecStart=/no/such", "+ (running) failed"),
    case("simple, no program but may fail", "ExecStart=-/no/such", "+ (running) (dead) ."),
    case("oneshot, no program", "Type=oneshot\nExecStart=/no/such", "+ (start) failed"),
    case("may fail", "ExecStart=-<hold main>", "+ running main=5 dead"),
    case("its own name", "ExecStart=@/bin/sleep it 1000", "+ running - dead"),
    case("with all rights", "ExecStart=+<hold main>", "+ running main=0 dead").root_only(),
    case("no such user", "User=no-such\nExecStart=<hold main>", "+ (running) failed").root_only(),
    case("no such group", "Group=no-such\nExecStart=<hold main>", "+ (running) failed").root_only(),
    case(
        "no such directory",
        "WorkingDirectory=/no/such\nExecStart=<hold main>",
        "+ (running) failed",
    ),
    case(
        "a directory that may be missing",
        "WorkingDirectory=-/no/such\nExecStart=<hold main>",
        "+ running main=0 dead",
    ),
    case(
        "no such file of variables",
        "EnvironmentFile=/no/such\nExecStart=<hold main>",
        "+ (running) failed",
    ),
    case(
        "no such file of variables, and it may fail",
        "EnvironmentFile=/no/such\nExecStart=-<hold main>",
        "+ (running) failed:resources",
    ),
    case(
        "oneshot, no such file of variables, and it may fail",
        "Type=oneshot\nEnvironmentFile=/no/such\nExecStartPre=-<hold p>\nExecStart=<hold main>",
        "+ (start-pre) failed:resources",
    ),
    case(
        "success of its own",
        "SuccessExitStatus=7\nExecStart=<hold main>",
        "+ running main=7 dead",
    ),
    case(
        "a signal as success",
        "SuccessExitStatus=SIGKILL\nExecStart=<hold main>",
        "+ running main!KILL dead",
    ),
    case(
        "simple, remains",
        "RemainAfterExit=yes\nExecStart=<hold main>",
        "+ running main=0 exited - dead",
    ),
    case(
        "simple, would remain",
        "RemainAfterExit=yes\nExecStart=<hold main>",
        "+ running main=1 failed",
    ),
    case(
        "two commands before",
        "ExecStartPre=<hold p>\nExecStartPre=<hold q>\nExecStart=<hold main>",
        "+ start-pre p=0 q=0 running main=0 dead",
    ),
    case(
        "a command before fails",
        "ExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p=1 failed",
    ),
    case(
        "a command before may fail",
        "ExecStartPre=-<hold p>\nExecStart=<hold main>",
        "+ start-pre p=1 running main=0 dead",
    ),
    case(
        "a command before ends as the service may",
        "SuccessExitStatus=7\nExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p=7 running main=0 dead",
    ),
    case(
        "a command before ended by TERM",
        "ExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p!TERM failed",
    ),
    case(
        "oneshot, a command before ended by TERM",
        "Type=oneshot\nExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ start-pre p!TERM failed",
    ),
    case(
        "no such command before",
        "ExecStartPre=/no/such\nExecStart=<hold main>",
        "+ (start-pre) failed",
    ),
    case(
        "a command before takes too long",
        "TimeoutStartSec=100ms\nExecStartPre=<hold p>\nExecStart=<hold main>",
        "+ (start-pre) failed",
    ),
    case(
        "a condition holds",
        "ExecCondition=<hold c>\nExecStart=<hold main>",
        "+ condition c=0 running main=0 dead",
    ),
    case(
        "a condition does not hold",
        "ExecCondition=<hold c>\nExecStart=<hold main>",
        "+ condition c=1 dead",
    ),
    case(
        "a condition cannot be checked",
        "ExecCondition=<hold c>\nExecStart=<hold main>",
        "+ condition c=255 failed",
    ),
    case(
        "a condition is killed",
        "ExecCondition=<hold c>\nExecStart=<hold main>",
        "+ condition c!KILL failed",
    ),
    case(
        "a failed condition, and commands run all the same",
        "ExecCondition=<hold c>\nExecStart=<hold main>\nExecStopPost=<hold s>",
        "+ condition c=1 stop-post s=0 dead",
    ),
    case(
        "a path that is not there",
        "[Unit]\nConditionPathExists=/no/such\n[Service]\nExecStart=<hold main>\n",
        "+ .",
    ),
    case(
        "an assertion that does not hold",
        "[Unit]\nAssertPathExists=/no/such\n[Service]\nExecStart=<hold main>\n",
        "+ .",
    )
    .with_native("+ failed ."),
    case(
        "conditions that hold",
        "[Unit]\nConditionPathExists=!/no/such\nConditionPathIsDirectory=/proc\n\
         ConditionFileIsExecutable=/bin/sh\nConditionFileNotEmpty=/bin/sh\n\
         AssertPathExists=/proc\nAssertFileIsExecutable=!/proc\n[Service]\nExecStart=<hold main>\n",
        "+ running main=0 dead",
    ),
    case(
        "one of two conditions that does not hold",
        "[Unit]\nConditionPathIsDirectory=/proc\nConditionPathIsDirectory=/bin/sh\n[Service]\n\
         ExecStart=<hold main>\n",
        "+ .",
    ),
    case(
        "one of two that suffices",
        "[Unit]\nConditionPathIsDirectory=|/proc\nConditionPathIsDirectory=|/bin/sh\n[Service]\n\
         ExecStart=<hold main>\n",
        "+ running main=0 dead",
    ),
    case(
        "conditions on the machine that hold",
        "[Unit]\nConditionHost=*\nConditionHost=!no-such-host\nConditionUser=!daemon\n\
         ConditionKernelCommandLine=!no-such-word\nAssertHost=*\nAssertUser=!daemon\n\
         AssertKernelCommandLine=!no-such-word\nAssertPathIsDirectory=/proc\n\
         AssertFileNotEmpty=/bin/sh\n[Service]\nExecStart=<hold main>\n",
        "+ running main=0 dead",
    ),
    case(
        "a host that is another",
        "[Unit]\nConditionHost=no-such-host\n[Service]\nExecStart=<hold main>\n",
        "+ .",
    ),
    case(
        "a user that is another",
        "[Unit]\nConditionUser=daemon\n[Service]\nExecStart=<hold main>\n",
        "+ .",
    ),
    case(
        "a kernel with other parameters",
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
        "a command after",
        "ExecStart=<hold main>\nExecStartPost=<hold p>",
        "+ start-post p=0 running main=0 dead",
    ),
    case(
        "a command after fails",
        "ExecStart=<hold main>\nExecStartPost=<hold p>",
        "+ start-post main? p=1 failed",
    ),
    case(
        "main ends well before the command after",
        "ExecStart=<hold main>\nExecStartPost=<hold p>",
        "+ start-post p? main=0 p=0 dead",
    ),
    case(
        "main ends badly before the command after",
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
        "oneshot, the first may fail",
        "Type=oneshot\nExecStart=-<hold c>\nExecStart=<hold d>",
        "+ start c=1 d=0 dead",
    ),
    case("oneshot, ended by TERM", "Type=oneshot\nExecStart=<hold c>", "+ start c!TERM failed"),
    case(
        "oneshot, remains",
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=<hold c>",
        "+ start c=0 exited - dead",
    ),
    case(
        "oneshot, a command after",
        "Type=oneshot\nExecStart=<hold c>\nExecStartPost=<hold p>",
        "+ start c=0 start-post p=0 dead",
    ),
    case(
        "oneshot, takes too long",
        "Type=oneshot\nTimeoutStartSec=100ms\nExecStart=<hold c>",
        "+ (start) failed",
    ),
    case(
        "oneshot, takes longer than all may",
        "Type=oneshot\nTimeoutSec=100ms\nExecStart=<hold c>",
        "+ (start) failed",
    ),
    case("idle", "Type=idle\nExecStart=<hold main>", "+ (start) running main=0 dead"),
    case(
        "notify, by its main process",
        "Type=notify\nExecStart=<hold a|say READY=1|hold main>",
        "+ start a=go running main=0 dead",
    ),
    case(
        "notify, though no process may send it",
        "Type=notify\nNotifyAccess=none\nExecStart=<hold a|say READY=1|hold main>",
        "+ start a=go running main=0 dead",
    ),
    case(
        "notify, by a child that may not say it",
        "Type=notify\nTimeoutStartSec=4s\nExecStart=<child|hold a|say READY=1|hold main>",
        "+ start a=go main? failed",
    ),
    case(
        "notify, by a child that is no command",
        "Type=notify\nNotifyAccess=exec\nTimeoutStartSec=4s\n\
         ExecStart=<child|hold a|say READY=1|hold main>",
        "+ start a=go main? failed",
    ),
    case("notify", NOTIFY, "+ start a=go running main=0 dead"),
    case("notify, ends before it is ready", NOTIFY, "+ start a=0 failed"),
    case("notify, fails before it is ready", NOTIFY, "+ start a=3 failed"),
    case("notify, killed before it is ready", NOTIFY, "+ start a!KILL failed"),
    case(
        "notify, never ready",
        "Type=notify\nTimeoutStartSec=100ms\nExecStart=<hold main>",
        "+ (start) failed",
    ),
    case(
        "notify, remains, and another process sends ready",
        "Type=notify\nNotifyAccess=all\nRemainAfterExit=yes\n\
         ExecStart=<hold main|child|hold b|say READY=1|hold kid>",
        "+ start main=go b? main!TERM b=go (running) exited kid? - dead",
    ),
    case(
        "notify, remains, and no process is left to send ready",
        "Type=notify\nNotifyAccess=exec\nRemainAfterExit=yes\nExecStart=<hold main|child|hold b>",
        "+ start main=go b? main!TERM b=0 failed:protocol",
    ),
    case(
        "notify, remains, and only main may say that it is ready",
        "Type=notify\nRemainAfterExit=yes\nExecStart=<hold main|child|hold b>",
        "+ start main=go b? main!TERM failed:protocol",
    ),
    case(
        "notify, a command after",
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
        "forking, no process is left for its file",
        "Type=forking\nPIDFile={at}/pid\nExecStart=<hold c>",
        "+ start c=0 failed",
    ),
    case(
        "forking, stopped",
        "Type=forking\nPIDFile={at}/pid\nExecStart=<leave 0|pidfile {at}/pid|hold main>",
        "+ (start) running main? - dead",
    ),
    case(
        "forking, another that the file names takes its place",
        // The reload shows that the end of the previous one was handled.
        "Type=forking\nPIDFile={at}/pid\nExecReload=<hold r>\n\
         ExecStart=<leave 0|pidfile {at}/pid|hold main|child|pidfile {at}/pid|hold next>",
        "+ (start) running main=go next? main!TERM . ^ reload r=0 running - dead",
    ),
    case(
        "forking, another child that the file does not name",
        "Type=forking\nPIDFile={at}/pid\n\
         ExecStart=<leave 0|pidfile {at}/pid|hold main|child|hold next>",
        "+ (start) running main=go next? main!KILL failed",
    ),
    case(
        "forking, the file is never written",
        "Type=forking\nPIDFile={at}/pid\nTimeoutStartSec=300ms\nExecStart=<leave 0|hold main>",
        "+ (start) failed",
    ),
];
