//! What commits changed of the rows of a snapshot, and what of the former one stays because of that.

use std::cmp;
use std::sync::{Arc, OnceLock};

use crate::companions::Companions;
use crate::duplicates::Duplicates;
use crate::exact_names::Names;
use crate::moves::{Edit, Moves};
use crate::search::{Row, Rows, Searcher};
use crate::tool::ToolId;

/// The rows that differ from those of the former snapshot.
pub(crate) struct Change {
    /// How the positions have changed.
    pub(crate) moves: Moves,
    /// The new rows, by position.
    pub(crate) added: Vec<Arc<Row>>,
    /// The rows that are gone, with their former positions.
    pub(crate) removed: Vec<(usize, Arc<Row>)>,
}

impl Change {
    /// What differs between the rows of two snapshots. Both are in the order of ids; a row that is the
    /// same is shared.
    pub(super) fn between(former: &Rows, rows: &Rows) -> Self {
        let (mut edits, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        let mut left = former.iter().enumerate().peekable();
        let mut rows = rows.iter().peekable();
        loop {
            let order = match (left.peek(), rows.peek()) {
                (Some((_, gone)), Some(new)) => gone.stored.id.cmp(&new.stored.id),
                (Some(_), None) => cmp::Ordering::Less,
                (None, Some(_)) => cmp::Ordering::Greater,
                (None, None) => break,
            };
            let at = left.peek().map_or(former.len(), |(at, _)| *at);
            let gone = left.next_if(|_| order.is_le());
            let new = rows.next_if(|_| order.is_ge());
            if let (Some((_, gone)), Some(new)) = (gone, new)
                && Arc::ptr_eq(gone, new)
            {
                continue;
            }
            edits.push(Edit {
                at,
                removes: gone.is_some(),
                adds: new.is_some(),
            });
            removed.extend(gone.map(|(at, row)| (at, Arc::clone(row))));
            added.extend(new.map(Arc::clone));
        }
        Change {
            moves: Moves::new(former.len(), &edits),
            added,
            removed,
        }
    }

    /// The names of the former snapshot, if the ids are the same; else those after the change.
    pub(super) fn names(&self, previous: &Searcher) -> Arc<Names> {
        if self.moves.keeps_positions() {
            return Arc::clone(&previous.names);
        }
        let added: Vec<&ToolId> = self.added.iter().map(|row| &row.stored.id).collect();
        Arc::new(previous.names.moved(&self.moves, &added))
    }

    /// The near-duplicates of the former snapshot, if it has looked for them and the changed tools have the
    /// same ids and fingerprints as before; else to be looked for on first use.
    pub(super) fn duplicates(&self, previous: &Searcher) -> Arc<OnceLock<Duplicates>> {
        let removed = self.removed.iter().map(|(_, row)| row);
        let fingerprint = |row: &Arc<Row>| row.stored.fingerprint;
        let is_same = self.moves.keeps_positions()
            && removed
                .map(fingerprint)
                .eq(self.added.iter().map(fingerprint));
        match is_same && previous.duplicates.get().is_some() {
            true => Arc::clone(&previous.duplicates),
            false => Arc::default(),
        }
    }

    /// The companions of the former snapshot, if the changed tools have the same ids and kinds as before.
    pub(super) fn companions(&self, previous: &Searcher) -> Arc<Companions> {
        let removed = self.removed.iter().map(|(_, row)| row.kind);
        let is_same =
            self.moves.keeps_positions() && removed.eq(self.added.iter().map(|row| row.kind));
        let changed = self.added.iter().map(|row| row.stored.id.server());
        match is_same {
            true if self.added.is_empty() => Arc::clone(&previous.companions),
            true => Arc::new(previous.companions.replaced(changed)),
            false => Arc::default(),
        }
    }
}
