//! The JSON of the API, version 1, as plain data.
//!
//! These types are mirrors: the domain's values are converted into them and read out of them, and
//! do not know them. Fields are declared in the order of their names on the wire, which is the
//! order in which they are written; empty fields are left out. Fields that are not known are
//! ignored, so that a client can talk to a server that is newer or older than itself.

mod convert;
mod drain;
mod entity;
mod error;
mod event;
mod json;
mod plan;
mod reason;
mod rebalance;
mod request;
mod status;

pub use drain::{DrainReport, HeldUnit, UnitMove};
pub use entity::{
    Machine, MachinePage, Resources, Restarted, Unit, UnitOption, UnitPage, UnitState,
    UnitStatePage, Version,
};
pub use error::{ErrorBody, ErrorDetail, ErrorEntity};
pub use event::Event;
pub use plan::{Explanation, Plan, PlanStep, Unplaced, Verdict};
pub use reason::{Nearest, Peer, ReasonDetail, RefusalCount};
pub use rebalance::{BalanceMove, MachineLoad, RebalanceOrder, RebalanceReport, UnderWay};
pub use request::{HandOver, MachineIntent, MetadataOp, PlanRequest, PutUnit};
pub use status::{MachineStatus, Particulars, UnitStatus};

pub(crate) use convert::{
    broken_unit, machine, reason_detail, reason_text, state, unit, unit_summary, unit_with_source,
};
pub(crate) use plan::{explanation, plan};
pub(crate) use rebalance::rebalance_order;
pub(crate) use request::{decode_hand_over, decode_patch, decode_plan, decode_put};
