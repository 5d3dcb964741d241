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
pub use embedded::{EmbeddedStore, Salvage};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdConfig, EtcdConfigError, EtcdIdentity, EtcdStore, EtcdTls, EtcdUser};
pub use keyspace::{ApplyOutcome, EndedLease, Keyspace};
pub use layout::{ContentId, ContentIdError, Key, Layout};
pub use memory::MemoryStore;
pub use mirror::{
    ChangeSet, Delta, FullDelta, MachineProgress, Mirror, MirrorClosed, MirrorStatus, Progress,
    ResultChange, StoreIdentity,
};
pub use registry::{
    AdoptedUnit, ExpectUnit, Leadership, Lineage, LineageError, MachineRecord, MetadataChange,
    NewUnit, PlacementWrites, Presence, RebalanceUpdate, Registry, RegistryError, RemovePlacement,
    SetPlacement, UnusedContent,
};
pub use store::{
    Commit, Condition, Entry, Expect, LeaseId, Listing, Store, StoreError, Transaction, Write,
};
pub use transfer::{
    Export, ExportEnd, ExportError, ExportHeader, ExportItem, ExportLines, ExportReader,
    ExportedIntent, ExportedMetadata, ExportedUnit, Import, ImportAction, ImportError,
    ImportIntent, ImportMetadata, ImportOptions, ImportOrigin, ImportPlan, ImportReport,
    ImportUnit, ImportWarning, PlannedUnit, RefusedImport, RescheduleReason, V1DumpError, import,
};
pub use watch::{Changes, KeyChange, Watch, WatchSender};
