//! A copy of a catalog in which changes are tried.

use std::ops::ControlFlow;

use super::entry::Content;
use crate::arms::Arm;
use crate::dataset::{EvalSet, ToolIndex};
use crate::error::Result;
use crate::prepare::TemporaryCatalog;
use crate::run::{THREADS, each_text};

/// Hits of a query.
pub const DEPTH: usize = 10;

/// A copy of a catalog with the queries that are asked of it.
pub struct Trial<'a> {
    copy: &'a TemporaryCatalog,
    set: &'a EvalSet,
    arm: Arm,
    /// What the copy has now.
    content: Content,
}

impl<'a> Trial<'a> {
    /// Tries changes of this copy.
    pub fn new(copy: &'a TemporaryCatalog, set: &'a EvalSet, arm: &Arm) -> Self {
        Trial {
            copy,
            set,
            arm: arm.clone(),
            content: Content::of(&copy.catalog.searcher()),
        }
    }

    /// What the copy has now.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The hits of these queries, by their positions in the set, in a catalog with this content.
    pub fn rankings(
        &mut self,
        content: &Content,
        queries: &[usize],
    ) -> Result<Vec<Vec<ToolIndex>>> {
        // Writing is slow, so what the copy has already is not written again.
        if *content != self.content {
            self.write(content)?;
        }
        let searcher = self.copy.catalog.searcher();
        let texts: Vec<&str> = queries
            .iter()
            .map(|&query| self.set.queries[query].text.as_str())
            .collect();
        let depth = DEPTH.min(self.set.tools.len());
        each_text(&texts, THREADS, |text| {
            let results = searcher.search(&self.arm.query(text).k(depth))?;
            let hits = results.hits.iter();
            Ok(hits
                .filter_map(|hit| self.set.position(hit.id.as_str()))
                .collect())
        })
    }

    fn write(&mut self, content: &Content) -> Result<()> {
        let catalog = &self.copy.catalog;
        let mut writer = catalog.writer()?;
        content.write(&self.content, &mut writer, &catalog.searcher())?;
        writer.commit()?;
        // New texts have no vectors yet.
        writer.embed_pending(&mut |_| ControlFlow::Continue(()))?;
        self.content = content.clone();
        Ok(())
    }
}
