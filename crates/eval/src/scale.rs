//! Catalogs of other sizes than the set: a sample of its tools, or its tools and variations of
//! them.

use toolscout_index::Tool;

use super::dataset::EvalSet;
use super::error::Result;
use super::random::Random;

/// Largest size; a million tools of 2 kB are 2 GB.
pub const MAX_TOOLS: usize = 1_000_000;

/// `size` tools for measuring cost, and how many of them are generated.
///
/// A generated tool has the name of one tool and the description of another, on a separate server,
/// so that terms and texts vary as in a real catalog. Quality on such a catalog would mean nothing
/// and is not measured.
///
/// # Errors
/// An error of the engine for a name that becomes too long.
pub fn resized(set: &EvalSet, size: usize, seed: u64) -> Result<(Vec<Tool>, usize)> {
    let mut random = Random::new(seed, "scale");
    let mut tools = random.sample_of(&set.tools, size);
    let grown = size - tools.len();
    for number in 0..grown {
        // Every tool is used as often as the others before one is used again.
        let (round, position) = (number / set.tools.len(), number % set.tools.len());
        let other = &set.tools[random.below(set.tools.len())];
        tools.push(variation(&set.tools[position], other, round)?);
    }
    Ok((tools, grown))
}

fn variation(tool: &Tool, other: &Tool, round: usize) -> Result<Tool> {
    // The original tool counts as the first of its name.
    let server = format!("{}-{}", tool.id.server(), round + 2);
    let mut made = Tool::new(server.trim_start_matches('-'), tool.id.name())?
        .with_description(other.description.as_str());
    made.input_schema = other.input_schema.clone();
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;
    use std::collections::HashSet;

    #[test]
    fn catalogs_shrink_by_sampling_and_grow_by_variations() {
        let set = set(
            &[("s/a", "x"), ("b", "y"), ("c", "z")],
            &[("q", "x", &["b"])],
        );
        for size in [1, 2, 3, 7, 20] {
            let (tools, grown) = resized(&set, size, 5).unwrap();
            let ids: HashSet<&str> = tools.iter().map(|tool| tool.id.as_str()).collect();
            assert_eq!(
                (tools.len(), ids.len(), grown),
                (size, size, size.saturating_sub(3))
            );
        }
        assert_eq!(resized(&set, 9, 5).unwrap(), resized(&set, 9, 5).unwrap());
    }
}
