//! Moving a cluster between stores by a portable file.
//!
//! | step | module |
//! |---|---|
//! | the lines of the file, and their checksums | `line` |
//! | exporting a cluster | `export` |
//! | reading and verifying an export incrementally | `reader` |
//! | reading a key dump of fleet v1 | `v1` |
//! | the content of a file to import: an export or a key dump | `import` |
//! | checking the content and deciding on the changes (pure) | `plan` |
//! | applying the changes to a store, and the report | `apply` |

mod apply;
mod export;
mod import;
mod line;
mod plan;
mod reader;
mod v1;

pub use self::apply::{ImportReport, ImportWarning, RefusedImport, RescheduleReason};
pub use apply::import;
pub use export::{Export, ExportLines};
pub use import::{Import, ImportError, ImportIntent, ImportMetadata, ImportOrigin, ImportUnit};
pub use line::{
    ExportEnd, ExportHeader, ExportItem, ExportedIntent, ExportedMetadata, ExportedUnit,
};
pub use plan::{ImportAction, ImportOptions, ImportPlan, PlannedUnit};
pub use reader::{ExportError, ExportReader};
pub use v1::V1DumpError;
