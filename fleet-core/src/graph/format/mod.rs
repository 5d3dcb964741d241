//! Text format of units and central settings. The reader reports all errors of a file, and the
//! printer writes units as stanzas.
//!
//! A unit file consists of *stanzas*, each of which describes one unit. The first line of a stanza
//! is `unit: NAME`. Each line below it holds a key, a colon and a value. The value of a list or a
//! command may continue in indented lines. Lines that begin with `#` are comments.
//! `docs/reference/init-files.md` lists all keys.
//!
//! ```text
//! unit: web
//! type: foreground-notified
//! provides: http
//! waits-for: network, database
//! exec-start: /usr/bin/web --listen 80
//! ```

mod command;
mod diagnostic;
mod file_set;
mod finish;
mod keys;
mod lexer;
mod print;
mod stanza;
mod system_check;

pub use diagnostic::{Code, InitDiagnostic};
pub use file_set::{CentralConfig, FileRole, FileSet, InitFile, MAX_UNITS, read_central};
pub use lexer::MAX_FILE_SIZE;
pub use print::{OmittedKey, PrintedStanza, differing_keys, print};
pub use stanza::{HostResource, Stanza, Stanzas, read_stanzas};
