//! For those who test a store, or test over one: the conformance suite, and a store that fails.
//!
//! A backend passes the suite when one test calls [`conformance`] with a way to make empty stores:
//!
//! ```
//! use std::sync::Arc;
//!
//! use fleet_store::testing::conformance;
//! use fleet_store::{MemoryStore, Store};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance(|| async { Arc::new(MemoryStore::new()) as Arc<dyn Store> }).await;
//! # }
//! ```
//!
//! Each promise of the contract is a public function of its own, so that one that fails can be run
//! alone. They assume that nobody else writes to the store, not that it is at its first revision.

mod commits;
mod faulty;
mod leases;
mod support;
mod watches;

use std::sync::Arc;

use crate::Store;

pub use commits::*;
pub use faulty::FaultyStore;
pub use leases::*;
pub use watches::*;

macro_rules! suite {
    ($($name:ident),+ $(,)?) => {
        /// The names of the promises that [`conformance`] checks, in its order.
        pub const PROMISES: &[&str] = &[$(stringify!($name)),+];

        /// Checks every promise of the [`Store`] contract, each on a store of its own.
        ///
        /// Takes a few seconds where leases are measured in real time.
        ///
        /// # Panics
        ///
        /// When a promise is broken: the name of its function is in the message.
        pub async fn conformance<F>(make: impl Fn() -> F)
        where
            F: Future<Output = Arc<dyn Store>>,
        {
            $(
                let checked = tokio::spawn($name(make().await)).await;
                if let Err(error) = checked {
                    panic!("the store breaks the promise `{}`: {error}", stringify!($name));
                }
            )+
        }
    };
}

suite! {
    a_read_sees_what_was_committed,
    a_read_sees_its_prefix_in_order,
    keys_and_values_are_kept_as_they_are,
    every_write_makes_one_revision,
    a_transaction_that_writes_nothing_makes_no_revision,
    conditions_hold_or_nothing_happens,
    a_refusal_tells_what_was_found,
    a_transaction_is_whole,
    invalid_transactions_are_refused,
    a_transaction_within_the_bounds_is_taken,
    one_of_many_writers_wins,
    a_watch_delivers_each_revision_once_and_whole,
    a_watch_sees_its_prefix_alone,
    a_watch_starts_in_the_past,
    a_watch_from_a_listing_misses_nothing,
    a_watch_of_the_future_is_refused,
    many_watches_see_the_same,
    a_lease_that_ends_takes_its_keys_in_one_revision,
    a_renewed_lease_lasts,
    a_revoked_lease_ends_at_once,
    an_ended_lease_cannot_be_used,
    a_key_follows_its_last_lease,
    leases_have_names_of_their_own,
}
