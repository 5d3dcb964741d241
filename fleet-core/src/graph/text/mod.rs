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

mod candidates;
mod central;
mod code;
mod command;
mod diagnostic;
mod draft;
mod fields;
mod file_set;
mod finish;
mod host_resource;
mod keys;
mod lines;
mod print;
mod stanza;
mod system_check;
mod systemd_keys;
mod types;
mod value;

pub use central::{CentralConfig, read_central};
pub use code::Code;
pub use diagnostic::InitDiagnostic;
pub use fields::MAX_FILE_SIZE;
pub use file_set::{FileRole, FileSet, InitFile, MAX_UNITS};
pub use host_resource::HostResource;
pub use print::{OmittedKey, PrintedStanza, differing_keys, print};
pub use stanza::{Stanza, Stanzas, read_stanzas};
