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
    let _desk = DESKS.acquire().await;
    tokio::task::spawn_blocking(plan).await.map_err(|error| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the planning broke off: {error}"))
    })
}
