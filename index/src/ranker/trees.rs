//! Boosted regression trees, as LightGBM trains them: reading, predicting, and explaining a
//! prediction by its features.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most trees of a forest and most splits of a tree, which bounds the time of a prediction for any
/// file.
const MAX_TREES: usize = 1000;
const MAX_SPLITS: usize = 255;
/// Rows that are evaluated together.
const ABREAST: usize = 32;
/// Fewer rows are evaluated one by one.
const MIN_ABREAST: usize = 4;
/// Most leaves of a tree that is evaluated for several rows together.
const MAX_LEAVES: usize = 16;

/// The decision at a node: left when its value of `feature` is at most `threshold`. A child
/// that is not negative is a split, `-1` is the first leaf, `-2` the second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Split {
    feature: u16,
    threshold: f64,
    left: i16,
    right: i16,
    /// The prediction if the tree ended here, to compute the part of each split.
    value: f64,
}

impl Split {
    /// The next node of a row.
    fn child(&self, row: &[f32]) -> i16 {
        // As doubles, as in training: a rounded threshold could send a value to the other side.
        if f64::from(row[self.feature as usize]) <= self.threshold {
            self.left
        } else {
            self.right
        }
    }
}

/// One tree. A split comes before its children.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    #[serde(with = "rows")]
    splits: Vec<Split>,
    leaves: Vec<f64>,
}

/// The sum of trees over rows of features.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Forest {
    trees: Vec<Tree>,
    /// The trees as [`Forest::predict`] reads them, made on first use; `None` where one has too many
    /// leaves.
    #[serde(skip)]
    flat: OnceLock<Option<Flat>>,
}

impl PartialEq for Forest {
    fn eq(&self, other: &Self) -> bool {
        self.trees == other.trees
    }
}

/// Trees without paths. Every split takes part for every row: where a row goes right, it cannot end
/// in the leaves on the left. The first leaf that is left is where it ends (QuickScorer, Lucchese and
/// others 2015). No branch depends on a row.
#[derive(Clone, Debug)]
struct Flat {
    /// The number of splits and the leaves from left to right, by tree.
    trees: Vec<(usize, [f64; MAX_LEAVES])>,
    /// The splits of all trees.
    splits: Vec<FlatSplit>,
}

#[derive(Clone, Copy, Debug)]
struct FlatSplit {
    feature: u16,
    /// A bit for each leaf that is not on the left.
    others: u16,
    threshold: f32,
}

/// What is wrong with a forest, so that a prediction might not end.
#[derive(Debug, PartialEq, Error)]
pub enum ForestProblem {
    /// It has more trees than are allowed.
    #[error("{0} trees, {MAX_TREES} are allowed")]
    Trees(usize),
    /// One of its trees is none.
    #[error("tree {number}: {problem}")]
    Tree {
        /// The tree, from 0.
        number: usize,
        /// What is wrong with it.
        problem: TreeProblem,
    },
}

/// What is wrong with a tree.
#[derive(Debug, PartialEq, Error)]
pub enum TreeProblem {
    /// Splits and leaves do not fit together, or are too many.
    #[error("{splits} splits and {leaves} leaves do not make a tree")]
    Size {
        /// Number of splits.
        splits: usize,
        /// Number of leaves.
        leaves: usize,
    },
    /// A split asks for a feature that there is not.
    #[error("split {split} asks for feature {feature}, there are {features}")]
    Feature {
        /// The split, from 0.
        split: usize,
        /// The feature.
        feature: u16,
        /// How many there are.
        features: usize,
    },
    /// A split leads back, or nowhere.
    #[error("split {split} leads to {left} and {right}")]
    Children {
        /// The split, from 0.
        split: usize,
        /// Where it leads for small values.
        left: i16,
        /// Where it leads for large ones.
        right: i16,
    },
    /// A leaf or a threshold is no number.
    #[error("a number is not finite")]
    NotFinite,
}

impl Forest {
    /// Checks that every prediction over rows of `features` values ends at a leaf.
    ///
    /// # Errors
    /// [`ForestProblem`], with the tree's number.
    pub fn check(&self, features: usize) -> Result<(), ForestProblem> {
        if self.trees.len() > MAX_TREES {
            return Err(ForestProblem::Trees(self.trees.len()));
        }
        for (number, tree) in self.trees.iter().enumerate() {
            tree.check(features)
                .map_err(|problem| ForestProblem::Tree { number, problem })?;
        }
        Ok(())
    }

    /// The predictions of rows of `width` values each, stored end to end.
    pub fn predict(&self, rows: &[f32], width: usize) -> Vec<f64> {
        let mut sums = vec![0.0; rows.len() / width.max(1)];
        let flat = self.flat.get_or_init(|| Flat::of(&self.trees));
        if let Some(flat) = flat
            && sums.len() >= MIN_ABREAST
        {
            let rows = rows.chunks(ABREAST * width);
            for (rows, sums) in rows.zip(sums.chunks_mut(ABREAST)) {
                flat.add_predictions(rows, width, sums);
            }
            return sums;
        }
        for (sum, row) in sums.iter_mut().zip(rows.chunks_exact(width)) {
            // Tree by tree, as above, so that a row has the same sum whichever way it is evaluated.
            for tree in &self.trees {
                *sum += tree.leaves[tree.leaf(row)];
            }
        }
        sums
    }

    /// The part of each feature in a row's prediction: the sum of the changes along its path
    /// through every tree.
    pub fn moved(&self, row: &[f32]) -> Vec<f64> {
        let mut moved = vec![0.0; row.len()];
        for tree in &self.trees {
            tree.add_moved(row, &mut moved);
        }
        moved
    }

    /// The trees, in the order in which they were trained.
    pub fn trees(&self) -> &[Tree] {
        &self.trees
    }

    /// The same splits with other leaf values, by tree.
    pub(super) fn trees_mut(&mut self) -> &mut [Tree] {
        // Made again from the new values on the next prediction.
        self.flat.take();
        &mut self.trees
    }
}

impl Flat {
    /// `None` where a tree has too many leaves.
    fn of(trees: &[Tree]) -> Option<Self> {
        let mut flat = Flat {
            trees: Vec::with_capacity(trees.len()),
            splits: Vec::new(),
        };
        for tree in trees.iter() {
            if tree.leaves.len() > MAX_LEAVES {
                return None;
            }
            let (mut leaves, mut count) = ([0.0; MAX_LEAVES], 0);
            let root = if tree.splits.is_empty() { -1 } else { 0 };
            flat.add(tree, root, &mut leaves, &mut count);
            flat.trees.push((tree.splits.len(), leaves));
        }
        Some(flat)
    }

    /// Adds the splits and leaves from a node on; `count` leaves are to the left of it.
    fn add(&mut self, tree: &Tree, node: i16, leaves: &mut [f64; MAX_LEAVES], count: &mut usize) {
        let Ok(node) = usize::try_from(node) else {
            leaves[*count] = tree.leaves[!node as usize];
            *count += 1;
            return;
        };
        let split = &tree.splits[node];
        let first = *count;
        self.add(tree, split.left, leaves, count);
        let on_left = ((1u32 << *count) - (1 << first)) as u16;
        self.splits.push(FlatSplit {
            feature: split.feature,
            others: !on_left,
            threshold: largest_up_to(split.threshold),
        });
        self.add(tree, split.right, leaves, count);
    }

    /// Adds the predictions of up to [`ABREAST`] rows of `width` values each.
    fn add_predictions(&self, rows: &[f32], width: usize, sums: &mut [f64]) {
        // By feature, so that one split reads consecutive values.
        let mut columns = vec![[0.0f32; ABREAST]; width];
        for (number, row) in rows.chunks_exact(width).enumerate() {
            for (column, &value) in columns.iter_mut().zip(row) {
                column[number] = value;
            }
        }
        let mut splits = self.splits.as_slice();
        for (count, leaves) in &self.trees {
            let (of_tree, rest) = splits.split_at(*count);
            splits = rest;
            let mut possible = [u16::MAX; ABREAST];
            for split in of_tree {
                let column = &columns[split.feature as usize];
                for (possible, value) in possible.iter_mut().zip(column) {
                    let is_left = *value <= split.threshold;
                    *possible &= split.others | if is_left { u16::MAX } else { 0 };
                }
            }
            for (sum, possible) in sums.iter_mut().zip(possible) {
                // One leaf always stays possible. The remainder tells the compiler of the range.
                *sum += leaves[possible.trailing_zeros() as usize % MAX_LEAVES];
            }
        }
    }
}

/// The largest single float that is not above a threshold, to which all single floats compare as to
/// the threshold itself.
fn largest_up_to(threshold: f64) -> f32 {
    let nearest = threshold as f32;
    if f64::from(nearest) > threshold {
        nearest.next_down()
    } else {
        nearest
    }
}

impl Tree {
    /// The number of the leaf a row ends in.
    pub fn leaf(&self, row: &[f32]) -> usize {
        let mut node = if self.splits.is_empty() { -1 } else { 0 };
        while node >= 0 {
            node = self.splits[node as usize].child(row);
        }
        !node as usize
    }

    /// The values of the leaves.
    pub fn leaves(&self) -> &[f64] {
        &self.leaves
    }

    pub(super) fn leaves_mut(&mut self) -> &mut [f64] {
        &mut self.leaves
    }

    fn add_moved(&self, row: &[f32], moved: &mut [f64]) {
        let mut node = if self.splits.is_empty() { -1 } else { 0 };
        while node >= 0 {
            let split = &self.splits[node as usize];
            node = split.child(row);
            moved[split.feature as usize] += self.value(node) - split.value;
        }
    }

    fn value(&self, node: i16) -> f64 {
        if node >= 0 {
            self.splits[node as usize].value
        } else {
            self.leaves[!node as usize]
        }
    }

    fn check(&self, features: usize) -> Result<(), TreeProblem> {
        if self.splits.len() > MAX_SPLITS || self.leaves.len() != self.splits.len() + 1 {
            return Err(TreeProblem::Size {
                splits: self.splits.len(),
                leaves: self.leaves.len(),
            });
        }
        for (node, split) in self.splits.iter().enumerate() {
            if split.feature as usize >= features {
                return Err(TreeProblem::Feature {
                    split: node,
                    feature: split.feature,
                    features,
                });
            }
            if !self.is_below(node, split.left) || !self.is_below(node, split.right) {
                return Err(TreeProblem::Children {
                    split: node,
                    left: split.left,
                    right: split.right,
                });
            }
        }
        let thresholds = self.splits.iter().map(|split| &split.threshold);
        let mut numbers = self.leaves.iter().chain(thresholds).copied();
        match numbers.all(f64::is_finite) {
            true => Ok(()),
            false => Err(TreeProblem::NotFinite),
        }
    }

    /// True for a child that comes after its parent, so that every path ends: no file can make a
    /// prediction run in circles.
    fn is_below(&self, node: usize, child: i16) -> bool {
        match usize::try_from(child) {
            Ok(split) => split > node && split < self.splits.len(),
            Err(_) => (!child as usize) < self.leaves.len(),
        }
    }
}

/// Splits as rows of five numbers, a third of the bytes of named fields.
mod rows {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Split;

    type Row = (u16, f64, i16, i16, f64);

    pub fn serialize<S: Serializer>(splits: &[Split], serializer: S) -> Result<S::Ok, S::Error> {
        let rows = splits.iter();
        serializer.collect_seq(rows.map(|s| (s.feature, s.threshold, s.left, s.right, s.value)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Split>, D::Error> {
        let rows = Vec::<Row>::deserialize(deserializer)?;
        let mut splits = Vec::with_capacity(rows.len());
        for (feature, threshold, left, right, value) in rows {
            splits.push(Split {
                feature,
                threshold,
                left,
                right,
                value,
            });
        }
        Ok(splits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forest(json: &str) -> Forest {
        serde_json::from_str(json).unwrap()
    }

    /// Two levels: feature 0 at .5, then feature 1 at .25.
    const TWO: &str =
        r#"[{"splits":[[0,0.5,-1,1,0.1],[1,0.25,-2,-3,0.5]],"leaves":[-1.0,0.25,2.0]}]"#;

    #[test]
    fn a_value_at_the_threshold_goes_left() {
        let rows = [0.5, 9.0, 0.51, 0.25, 0.51, 0.26];
        assert_eq!(forest(TWO).predict(&rows, 2), [-1.0, 0.25, 2.0]);
    }

    #[test]
    fn rows_predicted_together_are_predicted_as_alone() {
        let forest = forest(TWO);
        let rows: Vec<f32> = (0..2 * 21).map(|i| (i * 29 % 100) as f32 / 100.0).collect();
        let alone: Vec<f64> = rows
            .chunks(2)
            .map(|row| forest.trees[0].leaves[forest.trees[0].leaf(row)])
            .collect();
        assert_eq!(forest.predict(&rows, 2), alone);
    }

    #[test]
    fn every_row_ends_in_its_leaf_in_trees_of_any_shape() {
        // Thresholds that lie between single floats, and values next to them.
        let threshold = |split: usize| split as f64 / 10.0 + 1e-10;
        let width = 3;
        for leaves in 1..=2 * MAX_LEAVES {
            let splits = (0..leaves - 1).map(|number| Split {
                feature: (number % width) as u16,
                threshold: threshold(number * 7 % 10),
                // A list that leans to either side in turn.
                left: if number + 2 == leaves {
                    -(leaves as i16)
                } else if number % 2 == 0 {
                    number as i16 + 1
                } else {
                    -(number as i16) - 1
                },
                right: if number + 2 == leaves || number % 2 == 0 {
                    -(number as i16) - 1
                } else {
                    number as i16 + 1
                },
                value: 0.0,
            });
            let tree = Tree {
                splits: splits.collect(),
                leaves: (0..leaves).map(|leaf| leaf as f64 + 0.1).collect(),
            };
            assert_eq!(tree.check(width), Ok(()));
            let forest = Forest {
                trees: vec![tree],
                ..Forest::default()
            };
            let values = (0..70 * width).map(|i| {
                let value = threshold(i * 13 % 11) as f32;
                [value, value.next_up(), value.next_down(), f32::NAN][i * 5 % 19 % 4]
            });
            let rows: Vec<f32> = values.collect();
            let alone: Vec<f64> = rows
                .chunks(width)
                .map(|row| forest.trees[0].leaves[forest.trees[0].leaf(row)])
                .collect();
            assert_eq!(forest.predict(&rows, width), alone, "{leaves}");
        }
    }

    #[test]
    fn parts_of_a_prediction_add_up_to_it() {
        let moved = forest(TWO).moved(&[0.9, 0.9]);
        assert!(
            (moved[0] - 0.4).abs() < 1e-12 && (moved[1] - 1.5).abs() < 1e-12,
            "{moved:?}"
        );
    }

    #[test]
    fn a_tree_without_splits_is_a_constant() {
        let constant = forest(r#"[{"splits":[],"leaves":[0.75]}]"#);
        assert_eq!(constant.predict(&[1.0, 2.0], 1), [0.75, 0.75]);
        assert!(constant.check(1).is_ok());
    }

    #[test]
    fn invalid_trees_are_errors_that_name_the_tree() {
        assert!(forest(TWO).check(2).is_ok());
        for (json, expected) in [
            (
                r#"[{"splits":[[7,0,-1,-2,0]],"leaves":[0,1]}]"#,
                "tree 0: split 0 asks for feature 7",
            ),
            (
                r#"[{"splits":[[0,0,0,-2,0]],"leaves":[0,1]}]"#,
                "split 0 leads to 0",
            ),
            (r#"[{"splits":[[0,0,-1,-9,0]],"leaves":[0,1]}]"#, "-9"),
            (
                r#"[{"splits":[[0,0,-1,-2,0]],"leaves":[0]}]"#,
                "do not make a tree",
            ),
        ] {
            let error = forest(json).check(2).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
