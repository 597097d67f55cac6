//! How the positions of a snapshot's tools follow from those of the snapshot before: which are kept,
//! and where new ones are.
//!
//! A commit changes a few tools of many. What is kept for every tool lies in blocks that snapshots
//! share; a commit makes anew the blocks that it changes ([`Moves::blocks`]: rows and vectors). Short
//! lists of numbers are copied whole ([`Moves::applied`]). What knows tools by their positions and is
//! in another order gets a table of them ([`Moves::new_positions`]: names, and the documents of the
//! lexical index, whose order is tantivy's).

use std::ops::Range;
use std::sync::Arc;

/// The position of a tool that is gone.
pub const GONE: u32 = u32::MAX;

/// A change at a place of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The position in the former list.
    pub at: usize,
    /// True if the item there is gone.
    pub removes: bool,
    /// True if a new item is there, before any former item that stays.
    pub adds: bool,
}

/// What a list is made of: items of the former one, and new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// These former items.
    Kept(Range<usize>),
    /// The new item of this number.
    Added(usize),
}

/// What a list in blocks is made of.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// The former block of this number.
    Shared(usize),
    /// A new block of these items.
    Made(Vec<Step>),
}

/// How a list follows from a former one.
#[derive(Debug)]
pub struct Moves {
    steps: Vec<Step>,
    before: usize,
    after: usize,
    /// True if every new item has the position of one that is gone.
    keeps_positions: bool,
}

impl Moves {
    /// The edits must be in the order of the new list.
    pub fn new(before: usize, edits: &[Edit]) -> Self {
        let mut steps = Vec::with_capacity(2 * edits.len() + 1);
        let (mut next, mut added, mut after) = (0, 0, 0);
        let keep = |steps: &mut Vec<Step>, range: Range<usize>| {
            if !range.is_empty() {
                steps.push(Step::Kept(range));
            }
        };
        for edit in edits {
            keep(&mut steps, next..edit.at);
            after += edit.at - next;
            next = edit.at + usize::from(edit.removes);
            if edit.adds {
                steps.push(Step::Added(added));
                added += 1;
                after += 1;
            }
        }
        keep(&mut steps, next..before);
        Moves {
            steps,
            before,
            after: after + before - next,
            keeps_positions: edits.iter().all(|edit| edit.removes == edit.adds),
        }
    }

    /// True if every new item has the position of one that is gone.
    pub fn keeps_positions(&self) -> bool {
        self.keeps_positions
    }

    /// Number of items of the former list.
    pub fn before(&self) -> usize {
        self.before
    }

    /// Number of items of the new list.
    pub fn len(&self) -> usize {
        self.after
    }

    /// The new list, from the former one and the new items.
    pub fn applied<T: Clone>(&self, former: &[T], added: impl Fn(usize) -> T) -> Vec<T> {
        let mut items = Vec::with_capacity(self.after);
        for step in &self.steps {
            match step {
                Step::Kept(range) => items.extend_from_slice(&former[range.clone()]),
                Step::Added(number) => items.push(added(*number)),
            }
        }
        items
    }

    /// The new position of each former item, or [`GONE`].
    pub fn new_positions(&self) -> Vec<u32> {
        let mut positions = vec![GONE; self.before];
        let mut next = 0;
        for step in &self.steps {
            match step {
                Step::Kept(range) => {
                    for position in &mut positions[range.clone()] {
                        *position = next;
                        next += 1;
                    }
                }
                Step::Added(_) => next += 1,
            }
        }
        positions
    }

    /// The positions of the new items.
    pub fn added_positions(&self) -> Vec<usize> {
        let mut positions = Vec::new();
        let mut next = 0;
        for step in &self.steps {
            match step {
                Step::Kept(range) => next += range.len(),
                Step::Added(_) => {
                    positions.push(next);
                    next += 1;
                }
            }
        }
        positions
    }

    /// The former position of each item of the new list; `None` for a new item.
    pub fn former_positions(&self) -> Vec<Option<usize>> {
        let mut positions = Vec::with_capacity(self.after);
        for step in &self.steps {
            match step {
                Step::Kept(range) => positions.extend(range.clone().map(Some)),
                Step::Added(_) => positions.push(None),
            }
        }
        positions
    }

    /// The blocks of the new list: former ones, shared, and those that `make` makes of their steps.
    /// `starts` are the first positions of the former blocks, and the end. New blocks have about
    /// `size` items, and at most twice as many.
    pub fn blocks<B: ?Sized>(
        &self,
        former: &[Arc<B>],
        starts: &[usize],
        size: usize,
        make: impl Fn(&[Step]) -> Arc<B>,
    ) -> Vec<Arc<B>> {
        let mut blocks = Vec::with_capacity(former.len() + 1);
        for piece in self.pieces(starts, size) {
            blocks.push(match piece {
                Piece::Shared(block) => Arc::clone(&former[block]),
                Piece::Made(steps) => make(&steps),
            });
        }
        blocks
    }

    fn pieces(&self, starts: &[usize], size: usize) -> Vec<Piece> {
        let mut pieces = Pieces {
            starts,
            done: Vec::with_capacity(starts.len()),
            open: Vec::new(),
            count: 0,
            size,
        };
        for step in &self.steps {
            let range = match step {
                Step::Kept(range) => range.clone(),
                Step::Added(number) => {
                    pieces.add(Step::Added(*number), 1);
                    continue;
                }
            };
            let mut from = range.start;
            let mut block = starts.partition_point(|start| *start <= from) - 1;
            while from < range.end {
                let end = range.end.min(starts[block + 1]);
                let is_whole = from == starts[block] && end == starts[block + 1];
                if is_whole && !pieces.is_short() {
                    pieces.close();
                    pieces.done.push(Piece::Shared(block));
                } else {
                    pieces.keep(from..end);
                }
                from = end;
                block += 1;
            }
        }
        if pieces.is_short() {
            pieces.reopen_last();
        }
        pieces.close();
        pieces.done
    }
}

/// Blocks under construction.
struct Pieces<'a> {
    /// The first positions of the former blocks, and the end.
    starts: &'a [usize],
    done: Vec<Piece>,
    open: Vec<Step>,
    /// Items of the open block.
    count: usize,
    size: usize,
}

impl Pieces<'_> {
    /// True if the open block is so short that it takes in the next one: otherwise blocks would
    /// become shorter with every removal.
    fn is_short(&self) -> bool {
        self.count > 0 && self.count < self.size / 2
    }

    /// Puts what is open at the end of the block before it: otherwise a list that grows at its end would
    /// get a block for each new item.
    fn reopen_last(&mut self) {
        let mut steps = match self.done.pop() {
            None => return,
            Some(Piece::Shared(block)) => {
                vec![Step::Kept(self.starts[block]..self.starts[block + 1])]
            }
            Some(Piece::Made(steps)) => steps,
        };
        for step in &steps {
            self.count += match step {
                Step::Kept(range) => range.len(),
                Step::Added(_) => 1,
            };
        }
        steps.append(&mut self.open);
        self.open = steps;
    }

    fn keep(&mut self, mut range: Range<usize>) {
        while !range.is_empty() {
            let room = 2 * self.size - self.count;
            let part = range.start..range.end.min(range.start + room);
            range.start = part.end;
            let count = part.len();
            self.add(Step::Kept(part), count);
        }
    }

    fn add(&mut self, step: Step, count: usize) {
        self.open.push(step);
        self.count += count;
        if self.count >= 2 * self.size {
            self.close();
        }
    }

    /// Ends the open block; a large one becomes two.
    fn close(&mut self) {
        let steps = std::mem::take(&mut self.open);
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        if count <= self.size + self.size / 2 {
            self.done.push(Piece::Made(steps));
            return;
        }
        let (first, second) = split(steps, count / 2);
        self.done.push(Piece::Made(first));
        self.done.push(Piece::Made(second));
    }
}

/// The first so many items, and the others.
fn split(steps: Vec<Step>, mut count: usize) -> (Vec<Step>, Vec<Step>) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            step if count == 0 => second.push(step),
            Step::Kept(range) if range.len() > count => {
                first.push(Step::Kept(range.start..range.start + count));
                second.push(Step::Kept(range.start + count..range.end));
                count = 0;
            }
            Step::Kept(range) => {
                count -= range.len();
                first.push(Step::Kept(range));
            }
            Step::Added(number) => {
                count -= 1;
                first.push(Step::Added(number));
            }
        }
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A list in blocks, changed as a snapshot's are.
    fn changed(blocks: &[Block], moves: &Moves, added: &[u32], size: usize) -> Vec<Block> {
        let former = concat(blocks);
        let mut starts = vec![0];
        for block in blocks {
            starts.push(starts[starts.len() - 1] + block.len());
        }
        moves.blocks(blocks, &starts, size, |steps| {
            let mut items = Vec::new();
            for step in steps {
                match step {
                    Step::Kept(range) => items.extend_from_slice(&former[range.clone()]),
                    Step::Added(number) => items.push(added[*number]),
                }
            }
            items.into()
        })
    }

    type Block = Arc<[u32]>;

    fn concat(blocks: &[Block]) -> Vec<u32> {
        blocks.iter().flat_map(|block| block.to_vec()).collect()
    }

    #[test]
    fn a_list_that_grows_at_its_end_has_few_blocks() {
        let (size, count) = (4, 1000);
        let mut blocks = Vec::new();
        for item in 0..count {
            let at = item as usize;
            let edit = Edit {
                at,
                removes: false,
                adds: true,
            };
            blocks = changed(&blocks, &Moves::new(at, &[edit]), &[item], size);
        }
        assert!(concat(&blocks).into_iter().eq(0..count));
        assert!(blocks.len() <= count as usize / 2, "{}", blocks.len());
    }

    proptest! {
        #[test]
        fn any_edits_give_the_list_that_they_say(
            rounds in vec(vec((0usize..40, 0u8..3), 0..30), 1..12),
        ) {
            let size = 4;
            let (mut list, mut blocks): (Vec<u32>, Vec<Block>) = (Vec::new(), Vec::new());
            let mut next = 0;
            for mut round in rounds {
                round.sort_unstable();
                // One edit at most removes what is at a place, after all that only add there.
                let (mut edits, mut expected, mut taken) = (Vec::new(), Vec::new(), 0);
                let mut added = Vec::new();
                let mut removed_at = None;
                for (at, kind) in round {
                    let at = at.min(list.len());
                    let (removes, adds) = (kind > 0 && at < list.len(), kind < 2);
                    if removed_at == Some(at) || at < taken || (!removes && !adds) {
                        continue;
                    }
                    expected.extend_from_slice(&list[taken..at]);
                    taken = at + usize::from(removes);
                    removed_at = removes.then_some(at);
                    if adds {
                        expected.push(next);
                        added.push(next);
                        next += 1;
                    }
                    edits.push(Edit { at, removes, adds });
                }
                expected.extend_from_slice(&list[taken..]);
                let moves = Moves::new(list.len(), &edits);
                prop_assert_eq!(moves.len(), expected.len());
                prop_assert_eq!(&moves.applied(&list, |number| added[number]), &expected);
                let positions = moves.new_positions();
                for (item, position) in list.iter().zip(positions) {
                    match expected.iter().position(|other| other == item) {
                        Some(place) => prop_assert_eq!(position as usize, place),
                        None => prop_assert_eq!(position, GONE),
                    }
                }
                for (number, position) in moves.added_positions().into_iter().enumerate() {
                    prop_assert_eq!(expected[position], added[number]);
                }
                for (position, former) in moves.former_positions().into_iter().enumerate() {
                    match former {
                        Some(former) => prop_assert_eq!(expected[position], list[former]),
                        None => prop_assert!(added.contains(&expected[position])),
                    }
                }
                if moves.keeps_positions() {
                    prop_assert_eq!(list.len(), expected.len());
                }
                blocks = changed(&blocks, &moves, &added, size);
                prop_assert_eq!(&concat(&blocks), &expected);
                prop_assert!(blocks.iter().all(|block| (1..=2 * size).contains(&block.len())));
                let is_short = |block: &Block| block.len() < size / 2;
                let has_crumbs = blocks.windows(2).any(|two| two.iter().all(is_short));
                prop_assert!(!has_crumbs, "{:?}", blocks);
                list = expected;
            }
        }
    }
}
