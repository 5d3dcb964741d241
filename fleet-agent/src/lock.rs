//! Locks a directory for one service manager at a time.

use std::fs::{DirBuilder, File, TryLockError, create_dir_all};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use crate::{Clock, ServiceError};

/// Maximum wait for an earlier manager of the directory to exit.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval between attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Creates the directory and locks it for this manager for as long as the returned file is open.
/// Waits up to [`PATIENCE`] for the lock, because a daemon that has just been stopped may not have
/// released it yet.
pub(crate) async fn acquire(directory: &Path, clock: &dyn Clock) -> Result<File, ServiceError> {
    let failed = |source| ServiceError::Io {
        action: format!("use the directory {}", directory.display()),
        source,
    };
    create_dir_all(directory).map_err(failed)?;
    let file = File::options().create(true).append(true).open(directory.join("lock"));
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

/// Like [`acquire`], but creates the directory with access for its owner only, because unit files
/// and logs may contain secrets.
pub(crate) async fn acquire_private(
    directory: &Path,
    clock: &dyn Clock,
) -> Result<File, ServiceError> {
    let made = directory.parent().map_or(Ok(()), create_dir_all);
    match made.and_then(|()| DirBuilder::new().mode(0o700).create(directory)) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            let action = format!("create the directory {}", directory.display());
            Err(ServiceError::Io { action, source })
        }
        _ => acquire(directory, clock).await,
    }
}
