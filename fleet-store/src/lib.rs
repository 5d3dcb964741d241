#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clock;
mod codec;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
mod keyspace;
mod layout;
mod memory;
mod mirror;
mod registry;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod transfer;
mod watch;

pub use codec::CodecError;
#[cfg(feature = "embedded")]
pub use embedded::EmbeddedStore;
#[cfg(feature = "etcd")]
pub use etcd::{EtcdConfig, EtcdConfigError, EtcdIdentity, EtcdStore, EtcdTls, EtcdUser};
pub use keyspace::{EndedLease, Keyspace, Outcome};
pub use layout::{ContentId, ContentIdError, Key, Layout};
pub use memory::MemoryStore;
pub use mirror::{
    Concern, Difference, Mirror, MirrorClosed, MirrorStatus, News, Progress, Report, Tidings,
};
pub use registry::{
    Adopted, BalanceNote, ExpectUnit, Leadership, Lineage, LineageError, MachineRecord,
    MetadataChange, NewUnit, Place, PlacementWrites, Presence, Registry, RegistryError, Unplace,
    UnusedContent,
};
pub use store::{
    Commit, Condition, Entry, Expect, LeaseId, Listing, Store, StoreError, Transaction, Write,
};
pub use transfer::{
    Export, ExportEnd, ExportError, ExportHeader, ExportItem, ExportLines, ExportReader,
    ExportedIntent, ExportedMetadata, ExportedUnit, Import, ImportAction, ImportError,
    ImportIntent, ImportMetadata, ImportOptions, ImportOrigin, ImportPlan, ImportReport,
    ImportUnit, PlacementsLeft, PlannedUnit, RefusedImport, V1DumpError, import,
};
pub use watch::{Change, Changes, Watch, WatchSender};
