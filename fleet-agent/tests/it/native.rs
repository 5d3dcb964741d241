//! The native service manager with real processes.

mod adoption;
mod conforms;
mod lifecycle;
mod output;
mod settings;
mod tracking;
