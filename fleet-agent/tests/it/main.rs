//! The service managers through their public interface.

mod fake;
mod health;
mod histories;
mod native;
mod remote;
mod support;
mod wait;
mod watchdog;

use self::native::helper;
