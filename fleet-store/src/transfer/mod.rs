//! How a cluster moves from one store to another: written to one portable file, and read from it.
//!
//! | step | module |
//! |---|---|
//! | the lines of the file, and their checksums | `line`, `digest` |
//! | write a cluster | `export` |
//! | read and verify a file as it comes | `reader` |
//! | read what the keyspace of fleet v1 held | `v1` |
//! | say what either wants | `import` |
//! | check all of it, and decide what to do (pure) | `check`, `plan` |
//! | do it in a store, and tell of it | `apply`, `report` |

mod apply;
mod check;
mod digest;
mod export;
mod import;
mod line;
mod plan;
mod reader;
mod report;
mod v1;

pub use apply::import;
pub use export::{Export, ExportLines};
pub use import::{Import, ImportError, ImportIntent, ImportMetadata, ImportOrigin, ImportUnit};
pub use line::{
    ExportEnd, ExportHeader, ExportItem, ExportedIntent, ExportedMetadata, ExportedUnit,
};
pub use plan::{ImportAction, ImportOptions, ImportPlan, PlannedUnit};
pub use reader::{ExportError, ExportReader};
pub use report::{ImportReport, RefusedImport, RescheduleReason};
pub use v1::V1DumpError;
