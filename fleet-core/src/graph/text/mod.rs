//! Units and central settings as text: read with all that is wrong in them, and printed back.
//!
//! A file of *stanzas* describes units. A stanza begins with `unit: NAME`, and each line below it
//! is a key, a colon and a value; a value that is a list or a command may go on in indented lines.
//! Lines that begin with `#` are comments. All keys are listed in `docs/init.md`.
//!
//! ```text
//! unit: web
//! type: foreground-notified
//! provides: http
//! waits-for: network, database
//! exec-start: /usr/bin/web --listen 80
//! ```

mod candidates;
mod central;
mod code;
mod command;
mod diagnostic;
mod draft;
mod fields;
mod file_set;
mod finish;
mod keys;
mod lines;
mod print;
mod stanza;
mod system_check;
mod types;
mod value;

pub use central::{CentralConfig, read_central};
pub use code::Code;
pub use diagnostic::InitDiagnostic;
pub use fields::MAX_FILE_SIZE;
pub use file_set::{FileRole, FileSet, InitFile, MAX_UNITS};
pub use print::{OmittedKey, PrintedStanza, differing_keys, print};
pub use stanza::{Stanza, Stanzas, read_stanzas};
