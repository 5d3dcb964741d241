//! Moving a cluster between stores by a portable file.
//!
//! | step | module |
//! |---|---|
//! | the lines of the file, and their checksums | `line` |
//! | exporting a cluster | `export` |
//! | reading and verifying an export incrementally | `reader` |
//! | reading a key dump of fleet v1 | `v1` |
//! | checking the content and deciding on the changes (pure) | `plan` |
//! | the content to import; applying the changes to a store, and the report | `import` |

mod export;
mod import;
mod line;
mod plan;
mod reader;
mod v1;

pub use export::{Export, ExportLines};
pub use import::{
    Import, ImportError, ImportIntent, ImportMetadata, ImportOrigin, ImportReport, ImportUnit,
    ImportWarning, RefusedImport, RescheduleReason, import,
};
pub use line::{
    ExportEnd, ExportHeader, ExportItem, ExportedIntent, ExportedMetadata, ExportedUnit,
};
pub use plan::{ImportAction, ImportOptions, ImportPlan, PlannedUnit};
pub use reader::{ExportError, ExportReader};
pub use v1::V1DumpError;
