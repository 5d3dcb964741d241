//! Waits for processes to exit.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};

use super::RunDriver;
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::proc::ProcessHandle;
use crate::native::linux::process_info::ProcessId;
use crate::native::linux::spawn::Child;

/// Exit of a process that has not happened yet.
pub(crate) struct PendingExit {
    process: ProcessId,
    is_child: bool,
    end: BoxFuture<'static, ProcessExit>,
}

impl Future for PendingExit {
    type Output = (ProcessId, ProcessExit);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let process = self.process;
        self.end.poll_unpin(cx).map(|end| (process, end))
    }
}

impl RunDriver {
    /// Waits for a child to exit.
    pub(crate) fn await_child(&mut self, process: ProcessId, mut child: Child) {
        let end = Box::pin(async move { child.wait().await.unwrap_or(ProcessExit::Unobserved) });
        self.processes.push(PendingExit { process, is_child: true, end });
    }

    /// Waits for a process to exit that is not our child.
    pub(crate) fn watch(&mut self, process: ProcessId, watched: ProcessHandle) {
        let clock = Arc::clone(&self.context.clock);
        let end = Box::pin(async move {
            watched.end(&*clock).await.unwrap_or_else(|error| {
                let pid = process.pid;
                tracing::warn!(%error, pid, "cannot watch a unit's process: treating it as exited");
                ProcessExit::Unobserved
            })
        });
        self.processes.push(PendingExit { process, is_child: false, end });
    }

    /// Reports an exit again after a pause.
    pub(crate) fn report_exit_later(
        &mut self,
        process: ProcessId,
        end: ProcessExit,
        pause: Duration,
    ) {
        let clock = Arc::clone(&self.context.clock);
        let end = Box::pin(async move {
            clock.sleep(pause).await;
            end
        });
        // Reported even if the unit has another main process by then.
        self.processes.push(PendingExit { process, is_child: true, end });
    }

    /// Makes a process that is not our child the main process, if the state machine accepts it.
    /// Otherwise the main process stays the same. Returns an error with the reason if the process
    /// cannot be watched.
    pub(crate) fn take_as_main(
        &mut self,
        process: ProcessId,
        open: impl FnOnce(ProcessId) -> io::Result<Option<ProcessHandle>>,
    ) -> Result<(), String> {
        let mut opened = None;
        if !self.processes.iter().any(|it| it.process == process) {
            let held = open(process).map_err(|error| format!("cannot be watched: {error}"))?;
            opened = Some(held.ok_or("does not run")?);
        }
        self.service.on_main(process, self.context.now());
        if self.service.run_state().main == Some(process) {
            if let Some(watched) = opened {
                self.watch(process, watched);
            }
            self.stop_watching_others();
        }
        Ok(())
    }

    /// Stops watching processes whose exit no longer matters. A unit may name one main process
    /// after another, and each watched process takes a file descriptor.
    fn stop_watching_others(&mut self) {
        let run_state = self.service.run_state();
        let own = [run_state.main, run_state.control];
        let counts = |it: &PendingExit| {
            it.is_child || own.contains(&Some(it.process)) || self.leaders.contains(&it.process)
        };
        self.processes = std::mem::take(&mut self.processes).into_iter().filter(counts).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::run::machine::state::ServicePhase;
    use crate::native::run::readiness_tests::{DriverHarness, line, unit};

    /// Starts a unit with a main process and one child of it.
    async fn two() -> (DriverHarness, ProcessId, u32) {
        let script = "sleep 1000 & echo $$!; wait";
        let service = format!("ExecStart=/bin/sh -c '{script}'\nNotifyAccess=all\n");
        let mut stage = DriverHarness::with(unit(&service, line("^[0-9]+$"))).await;
        stage.start();
        stage.wait_for(ServicePhase::Running).await;
        let (text, _) = stage.driver.log().tail(Some(1), None).expect("it can be read");
        let text = String::from_utf8(text).expect("it is a number");
        let main = stage.driver.service.run_state().main.expect("it runs");
        (stage, main, text.trim().parse().expect("it is a number"))
    }

    #[tokio::test]
    async fn alternating_main_processes_are_watched_once() {
        let (mut stage, main, other) = two().await;
        let mut watched = Vec::new();
        for _ in 0..10 {
            for pid in [other, main.pid] {
                stage.driver.on_main_named(pid);
                let now = stage.driver.service.run_state().main.map(|main| main.pid);
                watched.push((now == Some(pid), stage.driver.processes.len()));
            }
        }
        stage.stop();
        stage.wait_for(ServicePhase::Dead).await;
        assert_eq!(watched, [(true, 2), (true, 1)].repeat(10));
    }

    #[tokio::test]
    async fn unwatchable_process_is_not_adopted_as_main() {
        let (mut stage, main, other) = two().await;
        let process = ProcessId { pid: other, start: 0 };
        let full = stage.driver.take_as_main(process, |_| Err(io::Error::other("all are open")));
        let gone = stage.driver.take_as_main(process, |_| Ok(None));
        let run_state = stage.driver.service.run_state().clone();
        stage.stop();
        stage.wait_for(ServicePhase::Dead).await;
        assert_eq!(full, Err("cannot be watched: all are open".to_owned()));
        assert_eq!(gone, Err("does not run".to_owned()));
        assert_eq!((run_state.main, run_state.phase), (Some(main), ServicePhase::Running));
    }

    #[tokio::test]
    async fn main_process_named_while_stopping_is_not_watched() {
        let (mut stage, _, other) = two().await;
        stage.stop();
        stage.driver.act();
        for _ in 0..10 {
            stage.driver.on_main_named(other);
        }
        let watched = stage.driver.processes.len();
        stage.wait_for(ServicePhase::Dead).await;
        assert_eq!(watched, 1);
    }
}
