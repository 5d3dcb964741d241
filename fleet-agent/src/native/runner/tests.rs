//! The runner against pure time.
