//! What the three programs share at the terminal: errors, output formats, tables and colours.

pub(crate) mod drop_ins;
pub(crate) mod error;
pub(crate) mod findings;
pub(crate) mod global_args;
pub(crate) mod logging;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod sanitize;
pub(crate) mod secret;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod unit_text;
