//! Runs the planner on blocking threads, so that a long planner run does not delay other requests.

use axum::http::StatusCode;
use tokio::sync::Semaphore;

use crate::server::failure::Failure;

/// Limits the number of concurrent planner runs in this process to two; further runs wait.
static PLANNER_SLOTS: Semaphore = Semaphore::const_new(2);

/// Runs a planner function in a free slot.
pub(crate) async fn run_planner<T: Send + 'static>(
    plan: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let slot = PLANNER_SLOTS.acquire().await;
    // An abandoned run still completes and keeps its slot until then.
    let in_slot = move || {
        let _slot = slot;
        plan()
    };
    tokio::task::spawn_blocking(in_slot).await.map_err(|error| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the planner failed: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn abandoned_plan_keeps_its_slot_until_done() {
        let (start, started) = oneshot::channel();
        let (end, ended) = mpsc::channel::<()>();
        let given_up = tokio::spawn(run_planner(move || {
            start.send(()).unwrap();
            // Returns an error when the other end is dropped, even by a panic of this test.
            let _end = ended.recv();
        }));
        started.await.unwrap();
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        assert_eq!(PLANNER_SLOTS.available_permits(), 1);
        drop(end);
        drop(PLANNER_SLOTS.acquire_many(2).await.unwrap());
    }
}
