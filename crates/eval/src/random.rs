//! Seeded choices: the same seed gives the same sample, split and resampling on every machine and
//! in every version.

/// A SplitMix64 generator (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// 2014).
///
/// Not from a crate: some have generators with fixed streams, but how they turn a stream into a
/// range, a shuffle or a sample may change with a release. Samples, splits and intervals would then
/// differ from those of the published figures.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of this seed for a purpose. Streams of different purposes are independent.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a of the purpose.
        let mut mixed = 0xcbf2_9ce4_8422_2325_u64;
        for byte in purpose.bytes() {
            mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut random = Random {
            state: seed ^ mixed,
        };
        random.next();
        random
    }

    /// The next 64 bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "an endless stream has no use for Option"
    )]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0. The bias of the multiplication is below 2^-40
    /// for every bound that fits a catalog.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Shuffles a slice.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            // Fisher and Yates: an item may also stay where it is.
            items.swap(last, self.below(last + 1));
        }
    }

    /// A sample of `count` of the positions `0..len`, ascending; all of them for a larger `count`.
    pub fn sample(&mut self, len: usize, count: usize) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..len).collect();
        if count < len {
            self.shuffle(&mut positions);
            positions.truncate(count);
            positions.sort_unstable();
        }
        positions
    }

    /// The items at such a sample of positions, in their order.
    pub(crate) fn sample_of<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let positions = self.sample(items.len(), count).into_iter();
        positions.map(|position| items[position].clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        // Reference values of SplitMix64 from state 1234567.
        let mut random = Random { state: 1_234_567 };
        assert_eq!(
            [random.next(), random.next(), random.next()],
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn samples_are_sorted_and_distinct() {
        for seed in 0..20 {
            let sample = Random::new(seed, "test").sample(50, 13);
            assert_eq!(sample.len(), 13);
            assert!(
                sample.windows(2).all(|pair| pair[0] < pair[1]),
                "seed {seed}: {sample:?}"
            );
            assert!(sample.iter().all(|&position| position < 50));
        }
        assert_eq!(Random::new(1, "test").sample(3, 9), [0, 1, 2]);
    }

    #[test]
    fn purposes_and_seeds_give_different_streams() {
        let first = |seed, purpose| Random::new(seed, purpose).next();
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
    }

    #[test]
    fn every_position_is_equally_likely() {
        let mut counts = [0_usize; 7];
        let mut random = Random::new(3, "uniform");
        for _ in 0..70_000 {
            counts[random.below(7)] += 1;
        }
        assert!(
            counts.iter().all(|count| (9_600..10_400).contains(count)),
            "{counts:?}"
        );
    }
}
