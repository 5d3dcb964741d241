//! What is tested in a booted machine.

pub(crate) mod conforms;
