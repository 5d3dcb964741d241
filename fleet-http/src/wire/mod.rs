//! JSON types and headers of version 1 of the API.
//!
//! These types are independent of the domain types, and this module converts between the two. The
//! fields of an object are written in the order of their declaration. Most empty fields are
//! omitted. Unknown fields are ignored, so that clients work with newer and older servers. The
//! bodies of imports, plans, checks and bulk writes are an exception: they must not contain unknown
//! fields.

mod check;
mod convert;
mod entity;
mod history;
mod job;
mod plan;
mod request;
mod revision;
mod rollout;
mod row;
mod schedule;
mod status;
mod time;

use hyper::header::HeaderName;

pub use check::{CheckReport, CheckRequest, ServiceManagerEntity, UnitCheck, UnitFinding};
pub use entity::{
    ClusterEvent, ErrorBody, ErrorDetail, ErrorEntity, MachineEntity, MachinePage, OTHER_STORE,
    ResourceAmounts, RestartResponse, UnitEntity, UnitOptionEntity, UnitPage, UnitStateEntity,
    UnitStatePage, VersionResponse,
};
pub use history::{UnitEventEntity, UnitHistoryEntity};
pub use job::{JobAttempt, JobEntity, JobPage, JobSummary};
pub use plan::{
    BulkReport, DrainReport, HeldUnit, MachineLoad, MachineVerdict, NearestRefusal, PendingMove,
    PlacementExplanation, PlanReport, PlanStep, ReasonDetail, ReasonPeer, RebalanceMove,
    RebalanceOrder, RebalanceReport, RefusalCount, UnitMove, UnplacedUnit, WrittenUnit,
};
pub use request::{BulkRequest, ImportRequest, MachineIntent, MetadataOp, PlanRequest, PutUnit};
pub use revision::{UnitRevisionEntity, UnitRevisions};
pub use rollout::{RolloutCommand, RolloutEntity, RolloutList, RolloutMember, RolloutOptions};
pub use row::{UnitRow, unit_rows};
pub use schedule::{
    ScheduleCommand, ScheduleEntity, ScheduleHistoryEntry, SchedulePage, ScheduleRun,
    ScheduleSummary,
};
pub use status::{
    LogLine, MachineStatus, MachineUsage, StatusDetails, UnitStatusReport, UnitUsage,
};
pub use time::{Time, TimeError};

pub(crate) use convert::{
    faulty_unit, machine, reason_detail, reason_text, state, unit, unit_summary, unit_with_source,
};
pub(crate) use job::JobView;
pub(crate) use plan::{explanation, plan, rebalance_order};
pub(crate) use request::{
    decode_bulk, decode_check, decode_import, decode_patch, decode_plan, decode_put,
};
pub(crate) use schedule::ScheduleView;

use entity::is_zero;

/// Response header: number of seconds since the server lost contact with its store. Responses
/// during a store outage have this header, because they may be outdated.
pub(crate) const BEHIND: HeaderName = HeaderName::from_static("x-fleet-behind");

/// Request header: another daemon forwards the request on behalf of a client. The server responds
/// from its own machine, and does not forward the request again.
pub(crate) const PROXIED: HeaderName = HeaderName::from_static("x-fleet-proxied");

/// Response header of a journal: each line begins with its timestamp.
pub(crate) const TIMESTAMPS: HeaderName = HeaderName::from_static("x-fleet-timestamps");

/// Response header of a journal: each line begins with its cursor.
pub(crate) const CURSORS: HeaderName = HeaderName::from_static("x-fleet-cursors");

/// Response header of an export: `refuse` or `warn`. It shows how the server handles mistakes in
/// unit files that fleet v1 silently accepted.
pub(crate) const STRICTNESS: HeaderName = HeaderName::from_static("x-fleet-unknown-options");
