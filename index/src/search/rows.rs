//! The rows of a snapshot, in blocks that snapshots share.

use std::ops::Index;
use std::sync::Arc;

use super::Row;
use crate::moves::{Moves, Step};
use crate::tool::ToolId;

/// Rows of a block. A commit of one tool copies as many references, and looks at one number a block.
const BLOCK: usize = 256;

/// Every row of a snapshot, in the order of ids. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Rows {
    blocks: Arc<[Block]>,
    /// The first position of each block, and the number of rows.
    starts: Arc<[usize]>,
}

type Block = Arc<[Arc<Row>]>;

impl Rows {
    fn of_blocks(blocks: Vec<Block>) -> Self {
        let mut starts = Vec::with_capacity(blocks.len() + 1);
        let mut len = 0;
        starts.push(len);
        for block in &blocks {
            len += block.len();
            starts.push(len);
        }
        Rows {
            blocks: blocks.into(),
            starts: starts.into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Row>> + Clone {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    /// The rows in parts, each consecutive.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[Arc<Row>]> {
        self.blocks.iter().map(|block| &**block)
    }

    /// The rows from this position on.
    pub(crate) fn iter_from(&self, first: usize) -> impl Iterator<Item = &Arc<Row>> {
        let block = self.block_of(first);
        let skipped = first - self.starts.get(block).copied().unwrap_or_default();
        let blocks = self.blocks.get(block..).unwrap_or_default();
        blocks.iter().flat_map(|block| block.iter()).skip(skipped)
    }

    /// The position of the row of an id.
    pub(crate) fn position(&self, id: &ToolId) -> Option<usize> {
        let position = self.first_not(|other| other < id);
        let found = (position < self.len()).then(|| &self[position])?;
        (found.stored.id == *id).then_some(position)
    }

    /// The first position whose id is not as asked, where all before it are.
    pub(crate) fn first_not(&self, is: impl Fn(&ToolId) -> bool) -> usize {
        let is = |row: &Arc<Row>| is(&row.stored.id);
        // No block is empty.
        let after = self.blocks.partition_point(|block| is(&block[0]));
        let Some(block) = after.checked_sub(1) else {
            return 0;
        };
        self.starts[block] + self.blocks[block].partition_point(is)
    }

    /// The rows after these moves.
    pub(crate) fn moved(&self, moves: &Moves, added: &[Arc<Row>]) -> Self {
        let blocks = moves.blocks(&self.blocks, &self.starts, BLOCK, |steps| {
            let mut rows = Vec::with_capacity(BLOCK);
            for step in steps {
                match step {
                    Step::Kept(range) => {
                        rows.extend(range.clone().map(|row| Arc::clone(&self[row])))
                    }
                    Step::Added(number) => rows.push(Arc::clone(&added[*number])),
                }
            }
            rows.into()
        });
        Rows::of_blocks(blocks)
    }

    /// The block of a position.
    fn block_of(&self, position: usize) -> usize {
        // Until something is added or removed, all blocks but the last have the same size.
        let likely = position / BLOCK;
        if let Some(&[start, end]) = self.starts.get(likely..likely + 2)
            && (start..end).contains(&position)
        {
            return likely;
        }
        // `starts` begins with 0.
        self.starts.partition_point(|start| *start <= position) - 1
    }
}

impl Index<usize> for Rows {
    type Output = Arc<Row>;

    fn index(&self, position: usize) -> &Arc<Row> {
        let block = self.block_of(position);
        &self.blocks[block][position - self.starts[block]]
    }
}

impl From<Vec<Arc<Row>>> for Rows {
    fn from(rows: Vec<Arc<Row>>) -> Self {
        Rows::of_blocks(rows.chunks(BLOCK).map(Block::from).collect())
    }
}
