//! Seeded random numbers: splitmix64.

/// A source of numbers that is the same for the same seed, on every machine and in every version.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("a usize fits in 64 bits");
        usize::try_from(self.next() % bound).expect("it is below a usize")
    }

    /// Returns one of several values.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[test]
fn seeded_numbers_are_fixed() {
    let mut rng = Rng::new(1_234_567);
    let first = [rng.next(), rng.next()];
    assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
}
