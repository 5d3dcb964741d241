//! Seeded random generator for test files.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// A random generator with reproducible results for a seed.
pub(crate) struct Random(TestRunner);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let bytes: Vec<u8> = seed.to_le_bytes().into_iter().cycle().take(32).collect();
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Self(TestRunner::new_with_rng(Config::default(), rng))
    }

    /// Returns a random number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.rng().next_u32() as usize % end
    }

    /// Returns true once in `times` calls on average.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    pub(crate) fn draw<T>(&mut self, strategy: &impl Strategy<Value = T>) -> T
    where
        T: std::fmt::Debug,
    {
        strategy.new_tree(&mut self.0).expect("values can be made").current()
    }
}
