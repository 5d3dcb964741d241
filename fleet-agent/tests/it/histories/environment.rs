//! The environment of a unit's processes. Each unit checks it itself, and succeeds if it is as
//! expected.

use super::{Case, case};

/// A unit with a shell command that examines its environment. Each `$` is written twice, to reach
/// the shell.
macro_rules! finds {
    ($name:literal, $options:literal, $check:literal) => {
        case(
            $name,
            concat!(
                "Type=oneshot\nRemainAfterExit=yes\n",
                $options,
                "\nExecStart=/bin/sh -c '",
                $check,
                "'"
            ),
            "+ (start-pre) (start) exited - dead",
        )
    };
}

pub(super) const CASES: &[Case] = &[
    finds!(
        "repeated variable, last assignment counts",
        "Environment=A=1 \"B=x y\"\nEnvironment=A=2",
        r#"test "$$A-$$B" = "2-x y""#
    ),
    finds!(
        "Environment= reset by an empty value",
        "Environment=A=1\nEnvironment=\nEnvironment=B=2",
        r#"test "$${A-none}-$$B" = none-2"#
    ),
    finds!(
        "UnsetEnvironment=",
        "Environment=A=1 B=2 C=3\nUnsetEnvironment=A B=2 C=2",
        r#"test "$${A-none}-$${B-none}-$$C" = none-none-3"#
    ),
    finds!(
        "PassEnvironment= of a variable that is not set",
        "Environment=A=1\nPassEnvironment=A NO_SUCH_VARIABLE",
        r#"test "$$A-$${NO_SUCH_VARIABLE-none}" = 1-none"#
    ),
    finds!(
        "EnvironmentFile= written by an earlier command",
        "Environment=A=1 C=3\nEnvironmentFile=-{at}/vars\n\
         ExecStartPre=/bin/sh -c 'echo A=2 >{at}/vars; echo \\x27B=\"x  y\"\\x27 >>{at}/vars'",
        r#"test "$$A-$$B-$$C" = "2-x  y-3""#
    ),
    case(
        "variable expanded to several words, and to one",
        "Type=oneshot\nRemainAfterExit=yes\nEnvironment=\"TWO=a  b\"\n\
         ExecStart=/bin/sh -c 'test \"$$#-$$1-$$3\" = \"3-a-a  b\"' sh $TWO ${TWO}",
        "+ (start) exited - dead",
    ),
    case(
        "unset variable expanded to no word, and to an empty one",
        "Type=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/sh -c 'test \"$$#-$$1-$$2\" = 2--last' sh $NO_SUCH ${NO_SUCH} last",
        "+ (start) exited - dead",
    ),
    finds!(
        "variables of each process",
        "",
        r#"test "$${#INVOCATION_ID}-$$SYSTEMD_EXEC_PID" = "32-$$$$" && test -n "$$PATH""#
    ),
    finds!("NOTIFY_SOCKET with NotifyAccess=", "NotifyAccess=all", r#"test -n "$$NOTIFY_SOCKET""#),
    finds!("no NOTIFY_SOCKET by default", "", r#"test -z "$$NOTIFY_SOCKET""#),
    finds!("UMask=", "UMask=0027", r#"test "$$(umask)" = 0027"#),
    finds!("default umask", "", r#"test "$$(umask)" = 0022"#),
    finds!("Nice=", "Nice=5", r#"test "$$(nice)" = 5"#),
    finds!(
        "OOMScoreAdjust=",
        "OOMScoreAdjust=700",
        r#"test "$$(cat /proc/self/oom_score_adj)" = 700"#
    ),
    finds!("WorkingDirectory=", "WorkingDirectory=/proc/sys", r#"test "$$(pwd)" = /proc/sys"#),
    finds!("default working directory", "", r#"test "$$(pwd)" = /"#).root_only(),
    finds!("StandardInput=null", "StandardInput=null", r#"test -z "$$(cat)""#),
    finds!(
        "limits",
        "LimitNOFILE=100:200\nLimitCORE=0\nLimitFSIZE=1M\nLimitCPU=1h\nLimitSTACK=4M:8M\n\
         LimitAS=64G\nLimitDATA=32G\nLimitMEMLOCK=64K\nLimitSIGPENDING=99\nLimitLOCKS=12",
        r#"set -e; has() { grep -Eq "^Max $$1  +$$2 " /proc/self/limits; }; \
           has "open files" "100 +200"; has "core file size" "0 +0"; \
           has "file size" "1048576 +1048576"; has "cpu time" "3600 +3600"; \
           has "stack size" "4194304 +8388608"; has "address space" "68719476736 +68719476736"; \
           has "data size" "34359738368 +34359738368"; has "locked memory" "65536 +65536"; \
           has "pending signals" "99 +99"; has "file locks" "12 +12""#
    ),
    finds!(
        "rarely used limits",
        "LimitNICE=0\nLimitRTPRIO=0\nLimitRTTIME=2s\nLimitRSS=1G\nLimitNPROC=4000:5000\n\
         LimitMSGQUEUE=12345",
        r#"set -e; has() { grep -Eq "^Max $$1  +$$2 " /proc/self/limits; }; \
           has "nice priority" "0 +0"; has "realtime priority" "0 +0"; \
           has "realtime timeout" "2000000 +2000000"; has "resident set" "1073741824 +1073741824"; \
           has "processes" "4000 +5000"; has "msgqueue size" "12345 +12345""#
    ),
    finds!(
        "no user variables without User=",
        "",
        r#"test "$${USER-none} $${LOGNAME-none} $${HOME-none} $${SHELL-none}" = \
           "none none none none""#
    )
    .root_only(),
    finds!(
        "User=",
        "User=nobody",
        r#"test "$$(id -un) $$USER $$LOGNAME" = "nobody nobody nobody""#
    )
    .root_only(),
    finds!(
        "User=, Group= and SupplementaryGroups= by number",
        "User=1\nGroup=2\nSupplementaryGroups=tty",
        r#"test "$$(id -u) $$(id -g) $$(id -G)" = "1 2 2 5""#
    )
    .root_only(),
    finds!(
        "WorkingDirectory=~ of another user",
        "User=bin\nWorkingDirectory=~",
        r#"test "$$(pwd)" -ef /bin"#
    )
    .root_only(),
    finds!("specifiers of the unit name", "", r#"test "%n-%p-%j-%i%I-%%" = "%N.service-%N-a--%%""#),
    finds!(
        "specifiers of the machine",
        "",
        r#"test "%H-%v" = "$$(uname -n)-$$(uname -r)" && \
           test "%m" = "$$(cat /etc/machine-id)" && \
           test "%b" = "$$(cat /proc/sys/kernel/random/boot_id | tr -d -)""#
    ),
    finds!(
        "specifiers of the user",
        "",
        r#"test "%u-%U-%g-%G" = "$$(id -un)-$$(id -u)-$$(id -gn)-$$(id -g)""#
    ),
    finds!(
        "specifiers of directories",
        "",
        r#"test "%t %S %C %L %E %h %T %V" = \
           "/run /var/lib /var/cache /var/log /etc /root /tmp /var/tmp""#
    )
    .root_only(),
    finds!(
        "StandardOutput=file: overwrites the file for each command",
        "StandardOutput=file:{at}/out\nExecStart=/bin/echo a long line\nExecStart=/bin/echo two",
        r#"test "$$(head -n 1 {at}/out)-$$(stat -c %%s {at}/out)" = two-12"#
    ),
    finds!(
        "StandardOutput=append:",
        "StandardOutput=append:{at}/out\nExecStart=/bin/echo a long line\nExecStart=/bin/echo two",
        r#"test "$$(tail -n 1 {at}/out)-$$(stat -c %%s {at}/out)" = two-16"#
    ),
    finds!(
        "StandardError=inherit",
        "StandardOutput=append:{at}/out\nStandardError=inherit\n\
         ExecStart=/bin/sh -c 'echo bad >&2'\nExecStart=/bin/echo good",
        r#"test "$$(echo $$(cat {at}/out))" = "bad good""#
    ),
    finds!(
        "StandardError=append:",
        "StandardOutput=null\nStandardError=append:{at}/err\n\
         ExecStart=/bin/sh -c 'echo bad >&2'\nExecStart=/bin/echo good",
        r#"test "$$(cat {at}/err)" = bad"#
    ),
    case(
        "StandardOutput=file: that cannot be created",
        "Type=oneshot\nStandardOutput=file:/no/such/file\nExecStart=<hold main>",
        "+ (start) failed",
    ),
    case(
        "variables of ExecStopPost= after a successful exit",
        "SuccessExitStatus=3\nExecStart=<hold main>\n\
         ExecStopPost=/bin/sh -c 'test $$SERVICE_RESULT-$$EXIT_CODE-$$EXIT_STATUS = \
         success-exited-3'",
        "+ running main=3 (stop-post) dead",
    ),
    case(
        "variables of ExecStopPost= after a successful signal",
        "ExecStart=<hold main>\n\
         ExecStopPost=/bin/sh -c 'test $$SERVICE_RESULT-$$EXIT_CODE-$$EXIT_STATUS = \
         success-killed-TERM'",
        "+ running main? - (stop-post) dead",
    ),
    case(
        "MAINPID",
        "ExecStart=<hold main>\nExecStartPost=/bin/sh -c 'test -d /proc/$MAINPID'\n\
         ExecStop=/bin/sh -c 'test -d /proc/$MAINPID && kill $$MAINPID'",
        "+ (start-post) running main? - (stop) dead",
    ),
];
