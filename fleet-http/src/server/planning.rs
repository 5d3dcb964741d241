//! Plans of a whole cluster take their time: they are made where they hold no other request up.

use axum::http::StatusCode;
use tokio::sync::Semaphore;

use super::failure::Failure;

/// How many plans are made at once, in all of this process; more wait for their turn.
static DESKS: Semaphore = Semaphore::const_new(2);

/// What that comes to which takes its time.
pub(super) async fn planned<T: Send + 'static>(
    plan: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let desk = DESKS.acquire().await;
    // A plan that nobody waits for any more is still made, and takes its desk until then.
    let at_desk = move || {
        let _desk = desk;
        plan()
    };
    tokio::task::spawn_blocking(at_desk).await.map_err(|error| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the planning broke off: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_plan_that_nobody_waits_for_any_more_takes_its_desk_to_the_end() {
        let (begin, begun) = oneshot::channel();
        let (end, ended) = mpsc::channel::<()>();
        let given_up = tokio::spawn(planned(move || {
            begin.send(()).unwrap();
            // It fails when the other end is dropped, be it by a panic of this test.
            let _end = ended.recv();
        }));
        begun.await.unwrap();
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        assert_eq!(DESKS.available_permits(), 1);
        drop(end);
        drop(DESKS.acquire_many(2).await.unwrap());
    }
}
