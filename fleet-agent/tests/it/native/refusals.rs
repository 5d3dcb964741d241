//! A refused unit never runs anything.

use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::Generation;

use crate::support::{Bench, name};

/// Returns a unit with an unsupported option. Each of its commands would leave a trace.
fn unit(trace: &str, option: &str) -> String {
    let touch = format!("/usr/bin/touch {trace}");
    let (section, option) = option.split_once('.').expect("each names its section");
    format!(
        "[Service]\nExecStartPre={touch}\nExecStart={touch}\nExecStartPost={touch}\n\
         ExecReload={touch}\nExecStop={touch}\nExecStopPost={touch}\n[{section}]\n{option}\n"
    )
}

const REFUSED: [&str; 10] = [
    "Service.PrivatePIDs=yes",
    "Service.KillMode=none",
    "Service.RootDirectory=/srv",
    "Service.OpenFile=/a",
    "Service.ExecStart=/bin/true",
    "Service.ExecStopPost='open",
    "Service.PrivatTmp=1",
    "Unit.RebootArgument=now",
    "Socket.ListenStream=/run/a",
    "Service.Environment=A=%z",
];

// Holds: G-31
#[tokio::test]
async fn refused_unit_runs_nothing() {
    let bench = Bench::new().await;
    let (trace, unit_name) = (bench.path("trace"), name("a.service"));
    for option in REFUSED {
        let text = unit(&trace.display().to_string(), option);
        let refused = bench.try_load("a.service", &text).await;
        assert!(matches!(refused, Err(ServiceError::BadSetting { .. })), "{option}: {refused:?}");
        let started = bench.manager.start(&unit_name, Generation(1)).await;
        assert!(matches!(started, Err(ServiceError::NotLoaded { .. })), "{option}: {started:?}");
        let restarted = bench.manager.restart(&unit_name, Generation(2)).await;
        assert!(matches!(restarted, Err(ServiceError::NotLoaded { .. })), "{restarted:?}");
        assert_eq!(
            bench.manager.get(&unit_name).await.expect("the call succeeds"),
            None,
            "{option}"
        );
    }
    // Without the refused option the same unit leaves its trace.
    let good = unit(&trace.display().to_string(), "Service.Type=oneshot");
    assert!(!trace.exists(), "a refused unit has run a command");
    bench.try_load("a.service", &good).await.expect("it loads");
    bench.start("a.service").await.expect("it starts");
    assert!(trace.exists());
    bench.clean_up().await;
}

#[tokio::test]
async fn refused_file_leaves_the_running_unit_unchanged() {
    let bench = Bench::new().await;
    bench.run("a.service", "ExecStart=/bin/sleep 1000\n").await;
    let pid = bench.pid("a.service").await;
    let trace = bench.path("trace");
    let refused =
        bench.try_load("a.service", &unit(&trace.display().to_string(), REFUSED[0])).await;
    assert!(matches!(refused, Err(ServiceError::BadSetting { line: 9, .. })), "{refused:?}");
    assert_eq!(bench.pid("a.service").await, pid);
    bench.stop("a.service").await;
    assert!(!trace.exists(), "it was stopped by the file that was refused");
    bench.clean_up().await;
}
