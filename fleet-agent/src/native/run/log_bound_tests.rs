//! Logs of units with a file size limit. A unit must not be killed because its log is too long.

use std::io::Write as _;

use super::machine::ServiceRun;
use super::machine::outcome::RunOutcome;
use super::machine::state::{RunState, ServicePhase};
use super::machine::tests::spec;
use super::process::append;
use super::readiness_tests::DriverHarness;
use crate::native::state::unit_directory::RunRecord;

const LIMITED: &str = "ExecStart=/bin/echo up\nLimitFSIZE=64K\n";

impl DriverHarness {
    /// Makes the log longer than the unit's file size limit.
    fn fill(&self) {
        let text = b"sixteen letters\n".repeat(1 << 13);
        let filled = append(self.log()).and_then(|mut file| file.write_all(&text));
        filled.expect("it can be written");
        assert_eq!(self.length(), 128 << 10);
    }

    fn log(&self) -> &std::path::Path {
        self.driver.log().path()
    }

    fn length(&self) -> u64 {
        std::fs::metadata(self.log()).expect("it is there").len()
    }
}

#[tokio::test]
async fn unit_survives_write_after_long_log() {
    let mut stage = DriverHarness::with(spec(LIMITED)).await;
    stage.start();
    stage.fill();
    stage.wait_for(ServicePhase::Dead).await;
    let run_state = stage.driver.service.run_state();
    assert_eq!(run_state.outcome, Some(RunOutcome::Success), "{run_state:?}");
    assert!(stage.length() < 64 << 10);
    let (text, _) = stage.driver.log().tail(Some(1), None).expect("it can be read");
    assert_eq!(text, b"up\n");
}

#[tokio::test]
async fn next_daemon_limits_log_of_running_unit() {
    let mut stage = DriverHarness::with(spec(LIMITED)).await;
    stage.fill();
    let service = ServiceRun::restore(spec(LIMITED), RunState::default(), stage.context.now());
    stage.driver.adopt(service, RunRecord::default(), Vec::new());
    assert!(stage.length() <= 32 << 10, "{}", stage.length());
}

#[tokio::test]
async fn new_file_size_limit_applies_to_next_process() {
    let mut stage = DriverHarness::with(spec("ExecStart=/bin/echo up\n")).await;
    stage.fill();
    stage.driver.set_definition(spec(LIMITED));
    assert!(stage.length() <= 32 << 10, "{}", stage.length());
}
