//! The service managers, as whoever uses the crate sees them.

mod fake;
mod histories;
mod native;
mod pulse;
mod remote;
mod support;
mod wait;

use self::native::helper;
