//! The numbers under which the index stores weighted frequencies.
//!
//! tantivy counts a term in a tool by being given the term that often, with a lookup each time. As a
//! word of a description counts ten steps, the steps themselves are not stored but their place among
//! the sums of field weights, those of few weights first: most words occur once or twice.

use crate::document::{Field, Weights};

use super::{STEPS_PER_WEIGHT, steps};

/// Larger frequencies are stored as they are.
const LIMIT: u32 = 250;

/// Stored numbers and frequencies, for a catalog's field weights.
pub struct Frequencies {
    /// Stored numbers by steps, up to [`LIMIT`].
    stored: Vec<u32>,
    /// Frequencies by stored number, up to [`LIMIT`].
    read: Vec<f32>,
}

impl Frequencies {
    /// Those of these weights.
    pub fn new(weights: &Weights) -> Self {
        let sums = sums_of(&Field::ALL.map(|field| steps(weights.of(field))));
        let mut stored = vec![0; sums.len()];
        for (number, &sum) in sums.iter().enumerate() {
            stored[sum as usize] = number as u32;
        }
        Frequencies {
            stored,
            read: sums.into_iter().map(in_weights).collect(),
        }
    }

    /// The number under which so many steps are stored.
    pub fn stored(&self, steps: u32) -> u32 {
        self.stored.get(steps as usize).copied().unwrap_or(steps)
    }

    /// The frequency that is stored as this number.
    pub fn read(&self, stored: u32) -> f32 {
        match self.read.get(stored as usize) {
            Some(&frequency) => frequency,
            None => in_weights(stored),
        }
    }
}

fn in_weights(steps: u32) -> f32 {
    steps as f32 / STEPS_PER_WEIGHT
}

/// The numbers from 0 to [`LIMIT`], each once: first the sums of one of these weights, then those of two,
/// and so on, and at last those that are no sum. Indexes hold these places: another order is another
/// layout.
fn sums_of(weights: &[u32]) -> Vec<u32> {
    let mut sums = vec![0u32];
    let mut is_known = vec![false; LIMIT as usize + 1];
    is_known[0] = true;
    let mut begin = 0;
    while begin < sums.len() {
        let mut next = Vec::new();
        for sum in &sums[begin..] {
            for weight in weights {
                let larger = sum.saturating_add(*weight);
                if larger <= LIMIT {
                    next.push(larger);
                }
            }
        }
        next.sort_unstable();
        begin = sums.len();
        for sum in next {
            if !std::mem::replace(&mut is_known[sum as usize], true) {
                sums.push(sum);
            }
        }
    }
    for number in 1..=LIMIT {
        if !is_known[number as usize] {
            sums.push(number);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frequency_is_read_as_it_was_stored() {
        let odd = Weights {
            name: 0.0,
            description: 1e6,
            ..Weights::default()
        };
        for weights in [Weights::default(), odd] {
            let frequencies = Frequencies::new(&weights);
            for steps in (0..2 * LIMIT).chain([u32::MAX]) {
                let read = frequencies.read(frequencies.stored(steps));
                assert_eq!(read, steps as f32 / STEPS_PER_WEIGHT, "{steps} steps");
            }
        }
    }

    #[test]
    fn what_occurs_most_is_stored_as_a_small_number() {
        let frequencies = Frequencies::new(&Weights::default());
        let stored = [4, 5, 10, 25, 8, 20].map(|steps| frequencies.stored(steps));
        assert_eq!(stored, [1, 2, 3, 4, 5, 9]);
    }
}
