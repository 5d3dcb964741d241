//! JSON types of version 1 of the API.
//!
//! These types are independent of the domain types, and this module converts between the two. The
//! fields of an object are written in the order of their declaration. Most empty fields are
//! omitted. Unknown fields are ignored, so that clients work with newer and older servers. The
//! bodies of imports and plans are an exception: they must not contain unknown fields.

mod convert;
mod entity;
mod error;
mod event;
mod json;
mod plan;
mod rebalance;
mod request;

pub use self::entity::{MachineStatus, StatusDetails, UnitStatusReport};
pub use self::plan::{NearestRefusal, ReasonDetail, ReasonPeer, RefusalCount};
pub use self::rebalance::{DrainReport, HeldUnit, UnitMove};
pub use entity::{
    MachineEntity, MachinePage, ResourceAmounts, RestartResponse, UnitEntity, UnitOptionEntity,
    UnitPage, UnitStateEntity, UnitStatePage, VersionResponse,
};
pub use error::{ErrorBody, ErrorDetail, ErrorEntity, OTHER_STORE};
pub use event::ClusterEvent;
pub use plan::{MachineVerdict, PlacementExplanation, PlanReport, PlanStep, UnplacedUnit};
pub use rebalance::{MachineLoad, PendingMove, RebalanceMove, RebalanceOrder, RebalanceReport};
pub use request::{ImportRequest, MachineIntent, MetadataOp, PlanRequest, PutUnit};

pub(crate) use convert::{
    faulty_unit, machine, reason_detail, reason_text, state, unit, unit_summary, unit_with_source,
};
pub(crate) use plan::{explanation, plan};
pub(crate) use rebalance::rebalance_order;
pub(crate) use request::{decode_import, decode_patch, decode_plan, decode_put};
