//! What a service manager is tested with.
