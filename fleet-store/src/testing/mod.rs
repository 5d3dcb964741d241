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
//! What may befall a store, and how it must behave then, is a second suite,
//! [`conformance_in_trouble`], with a way to cut the store off, slow it down and compact it:
//!
//! ```
//! use std::sync::Arc;
//!
//! use fleet_store::testing::{FaultyStore, Trouble, conformance_in_trouble};
//! use fleet_store::{MemoryStore, Store};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance_in_trouble(|| async {
//!     let store = FaultyStore::new(Arc::new(MemoryStore::new()));
//!     (Arc::new(store.clone()) as Arc<dyn Store>, Arc::new(store) as Arc<dyn Trouble>)
//! })
//! .await;
//! # }
//! ```
//!
//! Each promise of the contract is a public function of its own, so that one that fails can be run
//! alone. They assume that nobody else writes to the store, not that it is at its first revision.

mod commits;
mod faulty;
mod leases;
mod support;
mod troubles;
mod watches;

use std::sync::Arc;

use crate::Store;

pub use commits::*;
pub use faulty::FaultyStore;
pub use leases::*;
pub use troubles::*;
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

macro_rules! suite_in_trouble {
    ($($name:ident),+ $(,)?) => {
        /// The names of the promises that [`conformance_in_trouble`] checks, in its order.
        pub const PROMISES_IN_TROUBLE: &[&str] = &[$(stringify!($name)),+];

        /// Checks what a [`Store`] promises for when something befalls it, each on a store of its
        /// own that comes with a way to bring that about.
        ///
        /// # Panics
        ///
        /// When a promise is broken: the name of its function is in the message.
        pub async fn conformance_in_trouble<F>(make: impl Fn() -> F)
        where
            F: Future<Output = (Arc<dyn Store>, Arc<dyn Trouble>)>,
        {
            $(
                let (store, trouble) = make().await;
                let checked = tokio::spawn($name(store, trouble)).await;
                if let Err(error) = checked {
                    panic!("the store breaks the promise `{}`: {error}", stringify!($name));
                }
            )+
        }
    };
}

suite_in_trouble! {
    a_store_that_is_cut_off_says_so,
    a_slow_store_keeps_its_promises,
    a_lease_that_nobody_could_renew_is_lost,
    a_watch_of_what_was_compacted_is_refused,
}

suite! {
    a_read_sees_what_was_committed,
    a_read_sees_its_prefix_in_order,
    a_read_is_one_state,
    keys_and_values_are_kept_as_they_are,
    every_write_makes_one_revision,
    a_transaction_that_writes_nothing_makes_no_revision,
    conditions_hold_or_nothing_happens,
    a_refusal_tells_what_was_found,
    a_transaction_is_whole,
    invalid_transactions_are_refused,
    a_transaction_within_the_bounds_is_taken,
    one_of_many_writers_wins,
    no_update_of_writers_that_conflict_is_lost,
    a_watch_delivers_each_revision_once_and_whole,
    a_watch_sees_its_prefix_alone,
    a_watch_starts_in_the_past,
    a_watch_from_a_listing_misses_nothing,
    a_watch_of_the_future_is_refused,
    many_watches_see_the_same,
    a_slow_reader_holds_nobody_up_and_has_no_gap,
    a_lease_that_ends_takes_its_keys_in_one_revision,
    a_renewed_lease_lasts,
    a_revoked_lease_ends_at_once,
    an_ended_lease_cannot_be_used,
    a_key_follows_its_last_lease,
    leases_have_names_of_their_own,
}
