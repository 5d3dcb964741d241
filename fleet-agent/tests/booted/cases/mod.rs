//! What is tested in a booted machine.

pub(crate) mod beside;
pub(crate) mod conforms;
pub(crate) mod content;
pub(crate) mod figures;
pub(crate) mod journals;
pub(crate) mod lost;
pub(crate) mod many;
pub(crate) mod others;
pub(crate) mod types;
