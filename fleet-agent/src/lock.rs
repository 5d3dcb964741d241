//! Locks: of a directory for one service manager at a time, and of data between threads.

use std::fs::{File, TryLockError};
use std::path::Path;
#[cfg(feature = "native")]
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::files::{create_private_dir, private_file};
use crate::{Clock, ServiceError};

/// Maximum wait for an earlier manager of the directory to exit.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval between attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Creates the directory and locks it for this manager for as long as the returned file is open.
/// Only its owner can access a new directory, because unit files and logs may contain secrets.
///
/// Waits up to [`PATIENCE`] for the lock, because a daemon that has just been stopped may not have
/// released it yet.
pub(crate) async fn acquire(directory: &Path, clock: &dyn Clock) -> Result<File, ServiceError> {
    let failed = |source| ServiceError::Io {
        action: format!("use the directory {}", directory.display()),
        source,
    };
    create_private_dir(directory).map_err(failed)?;
    let file = private_file().create(true).append(true).open(directory.join("lock"));
    let file = file.map_err(failed)?;
    let deadline = clock.now().after(PATIENCE);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
            Err(TryLockError::WouldBlock) if clock.now() < deadline => clock.sleep(PAUSE).await,
            Err(TryLockError::WouldBlock) => {
                let place = directory.display();
                return Err(ServiceError::Unavailable(format!(
                    "{place} is in use by another service manager: stop that one, or use another \
                     directory"
                )));
            }
        }
    }
}

/// Locks a mutex, even if a thread has panicked while it held the lock. The data is still valid in
/// that case, because no holder leaves it half changed.
#[cfg(feature = "native")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
