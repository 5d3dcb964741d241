//! The native service manager with real processes.

mod lifecycle;
