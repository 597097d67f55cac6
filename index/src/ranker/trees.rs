//! Boosted regression trees, as LightGBM trains them: reading, predicting, and explaining a
//! prediction by its features.

use serde::{Deserialize, Serialize};

/// Most trees of a forest and most splits of a tree, which bounds the time of a prediction for any
/// file.
const MAX_TREES: usize = 1000;
const MAX_SPLITS: usize = 255;
/// Rows that are evaluated together.
const ABREAST: usize = 8;

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Forest {
    trees: Vec<Tree>,
}

impl Forest {
    /// Checks that every prediction over rows of `features` values ends at a leaf.
    ///
    /// # Errors
    /// A description with the tree's number.
    pub fn check(&self, features: usize) -> Result<(), String> {
        if self.trees.len() > MAX_TREES {
            return Err(format!(
                "{} trees, {MAX_TREES} are allowed",
                self.trees.len()
            ));
        }
        let mut numbered = self.trees.iter().enumerate();
        numbered.try_for_each(|(number, tree)| {
            tree.check(features)
                .map_err(|e| format!("tree {number}: {e}"))
        })
    }

    /// The predictions of rows of `width` values each, stored end to end.
    pub fn predict(&self, rows: &[f32], width: usize) -> Vec<f64> {
        let mut sums = vec![0.0; rows.len() / width.max(1)];
        // Tree by tree, so that one tree's splits stay in the first-level cache for all rows.
        for tree in &self.trees {
            let (groups, rest) = sums.as_chunks_mut::<ABREAST>();
            let mut rows = rows.chunks_exact(width);
            for sums in groups {
                let rows: [&[f32]; ABREAST] =
                    std::array::from_fn(|_| rows.next().unwrap_or_default());
                sums.iter_mut()
                    .zip(tree.leaves_of(rows))
                    .for_each(|(sum, leaf)| *sum += tree.leaves[leaf]);
            }
            for (sum, row) in rest.iter_mut().zip(rows) {
                *sum += tree.leaves[tree.leaf(row)];
            }
        }
        sums
    }

    /// The part of each feature in a row's prediction: the sum of the changes along its path
    /// through every tree.
    pub fn moved(&self, row: &[f32]) -> Vec<f64> {
        let mut moved = vec![0.0; row.len()];
        self.trees
            .iter()
            .for_each(|tree| tree.add_moved(row, &mut moved));
        moved
    }

    /// The trees, in the order in which they were trained.
    pub fn trees(&self) -> &[Tree] {
        &self.trees
    }

    /// The same splits with other leaf values, by tree.
    pub(super) fn trees_mut(&mut self) -> &mut [Tree] {
        &mut self.trees
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

    /// As [`Tree::leaf`] for several rows in step. A loop of its own for each row would end in a
    /// mispredicted branch, which costs more than a step.
    fn leaves_of(&self, rows: [&[f32]; ABREAST]) -> [usize; ABREAST] {
        let Some(root) = self.splits.first() else {
            return [0; ABREAST];
        };
        let mut nodes: [i16; ABREAST] = rows.map(|row| root.child(row));
        while nodes.iter().any(|node| *node >= 0) {
            for (node, row) in nodes.iter_mut().zip(rows) {
                // A row that has reached its leaf evaluates split 0 for nothing, which costs less
                // than a branch.
                let child = self.splits[(*node).max(0) as usize].child(row);
                *node = if *node >= 0 { child } else { *node };
            }
        }
        // `!n` is `-n - 1`, which numbers the leaves from 0.
        nodes.map(|node| !node as usize)
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

    fn check(&self, features: usize) -> Result<(), String> {
        if self.splits.len() > MAX_SPLITS || self.leaves.len() != self.splits.len() + 1 {
            return Err(format!(
                "{} splits and {} leaves do not make a tree",
                self.splits.len(),
                self.leaves.len()
            ));
        }
        // Children come after their parent, so every path ends: no file can make a prediction run
        // in circles.
        let is_below = |node: usize, child: i16| match usize::try_from(child) {
            Ok(split) => split > node && split < self.splits.len(),
            Err(_) => (!child as usize) < self.leaves.len(),
        };
        for (node, split) in self.splits.iter().enumerate() {
            if split.feature as usize >= features {
                return Err(format!(
                    "split {node} asks for feature {}, there are {features}",
                    split.feature
                ));
            }
            if !is_below(node, split.left) || !is_below(node, split.right) {
                return Err(format!(
                    "split {node} leads to {} and {}",
                    split.left, split.right
                ));
            }
        }
        let finite = self
            .leaves
            .iter()
            .chain(self.splits.iter().map(|split| &split.threshold))
            .all(|n| n.is_finite());
        if finite {
            Ok(())
        } else {
            Err("a number is not finite".to_owned())
        }
    }
}

/// Splits as rows of five numbers, a third of the bytes of named fields.
mod rows {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Split;

    type Row = (u16, f64, i16, i16, f64);

    pub fn serialize<S: Serializer>(splits: &[Split], serializer: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<Row> = splits
            .iter()
            .map(|s| (s.feature, s.threshold, s.left, s.right, s.value))
            .collect();
        rows.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Split>, D::Error> {
        let rows = Vec::<Row>::deserialize(deserializer)?;
        let split = |(feature, threshold, left, right, value)| Split {
            feature,
            threshold,
            left,
            right,
            value,
        };
        Ok(rows.into_iter().map(split).collect())
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
            let error = forest(json).check(2).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
