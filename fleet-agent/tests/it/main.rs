//! The service managers, as whoever uses the crate sees them.

mod fake;
mod histories;
mod native;
mod remote;
mod support;
mod wait;
mod watchdog;

use self::native::helper;
