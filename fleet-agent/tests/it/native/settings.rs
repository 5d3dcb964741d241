//! Supported options, by their effect on a process.

use std::os::unix::fs::PermissionsExt;

use fleet_agent::ServiceError;
use fleet_core::unit::ExitStatus;

use crate::support::{Bench, runs, signal, wait_until};

/// Returns the output of a script in a oneshot with these settings.
async fn printed(bench: &Bench, unit: &str, script: &str, settings: &str) -> Vec<String> {
    let service = format!("Type=oneshot\nExecStart=/bin/sh -c '{script}'\n{settings}");
    bench.run(unit, &service).await;
    bench.log(unit).await
}

#[tokio::test]
async fn environment_has_nothing_but_the_units_variables() {
    let bench = Bench::with(|config| config.environment.push(("B".into(), "machine".into()))).await;
    let file = bench.path("variables");
    std::fs::write(&file, "C='from a file'\nB=file\n").expect("it can be written");
    let settings = format!(
        "Environment=A=1 B=2 GONE=x\nEnvironmentFile={}\nEnvironmentFile=-/no/such/file\n\
         UnsetEnvironment=GONE\n",
        file.display()
    );
    let lines = printed(&bench, "a.service", "/usr/bin/env", &settings).await;
    let mut names: Vec<&str> = lines.iter().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    // The shell adds these itself.
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    assert_eq!(names, ["A", "B", "BENCH", "C", "INVOCATION_ID", "PATH", "SYSTEMD_EXEC_PID"]);
    for expected in ["A=1", "B=file", "C=from a file"] {
        assert!(lines.iter().any(|line| line == expected), "{expected} in {lines:?}");
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn variables_are_passed_and_expanded() {
    let bench = Bench::new().await;
    let path = std::env::var("PATH").expect("a test has a path");
    let settings = "PassEnvironment=PATH NO_SUCH_VARIABLE\nEnvironment=\"W=a b\"\n";
    let service =
        format!("Type=oneshot\nExecStart=/usr/bin/printf %%s\\\\n $W ${{W}} $$W\n{settings}");
    bench.run("a.service", &service).await;
    assert_eq!(bench.log("a.service").await, ["a", "b", "a b", "$W"]);
    assert_eq!(printed(&bench, "b.service", "echo $$PATH", settings).await, [path]);
    bench.clean_up().await;
}

#[tokio::test]
async fn missing_environment_file_is_reported() {
    let bench = Bench::new().await;
    bench.load("a.service", "ExecStart=/bin/true\nEnvironmentFile=/no/such\n").await;
    let error = bench.start("a.service").await.expect_err("it cannot start");
    assert!(error.to_string().contains("its environment file /no/such"), "{error}");
    let state = bench.state("a.service").await;
    assert_eq!((state.result.as_deref(), state.exit), (Some("resources"), None));
    bench.clean_up().await;
}

#[tokio::test]
async fn directories_are_created() {
    let bench = Bench::new().await;
    let place = bench.path("place");
    std::fs::create_dir(&place).expect("it can be created");
    let shown = place.display().to_string();
    for (unit, setting, expected) in [
        ("none.service", String::new(), "/"),
        ("place.service", format!("WorkingDirectory={shown}\n"), shown.as_str()),
        ("missing.service", "WorkingDirectory=-/no/such\n".to_owned(), "/"),
    ] {
        assert_eq!(printed(&bench, unit, "pwd -P", &setting).await, [expected], "{unit}");
    }
    bench.load("bad.service", "ExecStart=/bin/true\nWorkingDirectory=/no/such\n").await;
    let error = bench.start("bad.service").await.expect_err("it cannot start");
    assert!(error.to_string().contains("working directory /no/such"), "{error}");
    assert_eq!(bench.state("bad.service").await.exit, Some(ExitStatus::Code(200)));
    bench.clean_up().await;
}

#[tokio::test]
async fn umask_and_program_name() {
    let bench = Bench::new().await;
    let file = bench.path("file");
    let script = format!("umask; : >{}", file.display());
    assert_eq!(printed(&bench, "a.service", &script, "UMask=0027\n").await, ["0027"]);
    let mode = std::fs::metadata(&file).expect("it was created").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    bench.run("b.service", "Type=oneshot\nExecStart=@/bin/sh mine -c 'echo $$0'\n").await;
    assert_eq!(bench.log("b.service").await, ["mine"]);
    bench.run("c.service", "Type=oneshot\nExecStart=echo found\n").await;
    assert_eq!(bench.log("c.service").await, ["found"]);
    bench.run("d@x.service", "Type=oneshot\nExecStart=:/bin/echo %i $HOME\n").await;
    assert_eq!(bench.log("d@x.service").await, ["x $HOME"]);
    bench.clean_up().await;
}

#[tokio::test]
async fn other_user_if_permitted() {
    let bench = Bench::new().await;
    let service = "Type=oneshot\nExecStart=/bin/sh -c 'id -un; id -gn; echo $$USER'\nUser=nobody\n";
    let own = std::process::Command::new("/usr/bin/id").arg("-u").output().expect("id runs");
    if own.stdout == b"0\n" {
        bench.run("a.service", service).await;
        let lines = bench.log("a.service").await;
        assert_eq!((lines[0].as_str(), lines[2].as_str()), ("nobody", "nobody"));
        let id = "/bin/sh -c 'id -un; id -gn'";
        let prefixed =
            format!("{service}ExecStartPre=+{id}\nExecStartPre=!{id}\nExecStartPre=!!{id}\n");
        bench.run("p.service", &prefixed).await;
        let lines = bench.log("p.service").await;
        let group = lines[1].as_str();
        assert_eq!(lines[..5], ["root", group, "root", group, "nobody"]);
        bench.load("b.service", "ExecStart=/bin/true\nUser=no-such-user\n").await;
        let error = bench.start("b.service").await.expect_err("there is no such user");
        assert!(error.to_string().contains("no-such-user"), "{error}");
        assert_eq!(bench.state("b.service").await.exit, Some(ExitStatus::Code(217)));
        for option in ["Group", "SupplementaryGroups"] {
            bench
                .load("c.service", &format!("ExecStart=/bin/true\n{option}=no-such-group\n"))
                .await;
            let error = bench.start("c.service").await.expect_err("there is no such group");
            assert!(error.to_string().contains("no-such-group"), "{error}");
            assert_eq!(bench.state("c.service").await.exit, Some(ExitStatus::Code(216)));
        }
    } else {
        let refused = bench.try_load("a.service", &format!("[Service]\n{service}")).await;
        assert!(matches!(refused, Err(ServiceError::BadSetting { line: 4, .. })), "{refused:?}");
    }
    bench.clean_up().await;
}

#[tokio::test]
async fn commands_run_in_order() {
    let bench = Bench::new().await;
    let out = bench.path("out").display().to_string();
    let note = |word: &str| format!("/bin/sh -c 'echo {word} >>{out}'");
    let service = format!(
        "ExecStartPre={}\nExecStartPre=-/bin/false\nExecStart=/bin/sleep 1000\n\
         ExecStartPost={}\nExecStop={}\nExecStopPost={}\n",
        note("pre"),
        note("post $$MAINPID"),
        note("stop $$MAINPID"),
        note("after $$SERVICE_RESULT $$EXIT_CODE $$EXIT_STATUS"),
    );
    bench.run("a.service", &service).await;
    let pid = bench.pid("a.service").await;
    bench.stop("a.service").await;
    let lines = bench.wait_for_lines("out", 4).await;
    let expected = [
        "pre".to_owned(),
        format!("post {pid}"),
        format!("stop {pid}"),
        "after success killed TERM".to_owned(),
    ];
    assert_eq!(lines, expected);
    bench.clean_up().await;
}

#[tokio::test]
async fn failing_start_pre_fails_the_start() {
    let bench = Bench::new().await;
    bench.load("a.service", "ExecStartPre=/bin/false\nExecStart=/bin/sleep 1000\n").await;
    let error = bench.start("a.service").await.expect_err("it cannot start");
    assert!(error.to_string().contains("one of its start commands failed"), "{error}");
    bench.clean_up().await;
}

#[tokio::test]
async fn start_timeout_fails_the_unit() {
    let bench = Bench::new().await;
    bench
        .load("a.service", "Type=oneshot\nExecStart=/bin/sleep 1000\nTimeoutStartSec=30ms\n")
        .await;
    let error = bench.start("a.service").await.expect_err("it takes too long");
    assert!(error.to_string().contains("TimeoutStartSec="), "{error}");
    assert_eq!(bench.state("a.service").await.result.as_deref(), Some("timeout"));
    bench.clean_up().await;
}

#[tokio::test]
async fn oneshot_may_remain_after_exit() {
    let bench = Bench::new().await;
    let out = bench.path("out").display().to_string();
    let service = format!(
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n\
         ExecStop=/bin/sh -c 'echo >>{out}'\n"
    );
    bench.run("a.service", &service).await;
    assert_eq!(bench.state("a.service").await.sub, "exited");
    bench.stop("a.service").await;
    bench.wait_for_lines("out", 1).await;
    bench.clean_up().await;
}

#[tokio::test]
async fn kill_signal_and_kill_mode() {
    let bench = Bench::new().await;
    let pids = bench.path("pids").display().to_string();
    let script = format!("sleep 1001 & echo $$! >{pids}; trap \"echo got; exit\" USR1; wait");
    let settings = "KillSignal=SIGUSR1\nKillMode=process\n";
    bench.run("a.service", &format!("ExecStart=/bin/sh -c '{script}'\n{settings}")).await;
    let child: u32 = bench.wait_for_lines("pids", 1).await[0].parse().expect("a pid");
    // The trap is set shortly after the line is written.
    wait_until("the shell waits", async || sleeps(child)).await;
    let parent = bench.pid("a.service").await;
    wait_until("the trap is set", async || catches_usr1(parent)).await;
    bench.stop("a.service").await;
    assert_eq!(bench.log("a.service").await, ["got"]);
    assert!(runs(child), "only the main process is signalled");
    signal(child, "KILL");
    wait_until("the child has ended", async || !runs(child)).await;

    let settings = "KillMode=mixed\n";
    std::fs::remove_file(&pids).expect("it was created");
    let script = format!("trap \"\" TERM; sleep 1001 & echo $$! >{pids}; trap - TERM; wait");
    bench.run("b.service", &format!("ExecStart=/bin/sh -c '{script}'\n{settings}")).await;
    let child: u32 = bench.wait_for_lines("pids", 1).await[0].parse().expect("a pid");
    bench.stop("b.service").await;
    assert!(!runs(child), "the rest is killed once the main process has ended");
    bench.clean_up().await;
}

#[tokio::test]
async fn exit_status_decides_about_success() {
    let bench = Bench::new().await;
    let exit = "ExecStart=/bin/sh -c 'exit 7'\n";
    bench.run("good.service", &format!("{exit}SuccessExitStatus=7\n")).await;
    bench.wait_for_sub("good.service", "dead").await;
    let settings = "Restart=always\nRestartPreventExitStatus=7\n";
    bench.run("never.service", &format!("{exit}{settings}")).await;
    bench.wait_for_sub("never.service", "failed").await;
    let settings = "RestartForceExitStatus=7\nRestartSec=1h\n";
    bench.run("forced.service", &format!("{exit}{settings}")).await;
    bench.wait_for_sub("forced.service", "auto-restart").await;
    bench.clean_up().await;
}

#[tokio::test]
async fn real_time_signal_stops_a_unit() {
    let bench = Bench::new().await;
    let settings = "KillSignal=SIGRTMIN+3\nSuccessExitStatus=SIGRTMIN+3\nTimeoutStopSec=1h\n";
    bench.run("a.service", &format!("ExecStart=/bin/sleep 1001\n{settings}")).await;
    bench.wait_for_sub("a.service", "running").await;
    bench.stop("a.service").await;
    bench.wait_for_sub("a.service", "dead").await;
    bench.clean_up().await;
}

/// Returns whether a process sleeps, as one that waits does.
fn sleeps(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S"))
}

/// Returns whether a process has a handler for SIGUSR1, signal number ten.
fn catches_usr1(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << 9) != 0)
}
