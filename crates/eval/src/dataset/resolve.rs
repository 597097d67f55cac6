//! Finds the tools that judgements name.

use std::collections::HashMap;
use std::path::Path;

use toolscout_index::{Tool, ToolId};

use super::columns::unescape;
use super::left_out::LeftOut;
use super::{EvalQuery, Load, RawQuery, RelevantIds, ToolIndex, Unanswerable};
use crate::error::{EvalError, Result};
use crate::judgements::Judgements;

/// The tools of a set by their ids.
#[derive(Clone, Debug)]
pub(super) struct ToolIds {
    by_name: HashMap<String, ToolIndex>,
    /// By the `id` fields of the files; `None` for a field that several tools have. Empty where the
    /// judgements do not use these fields.
    by_field: HashMap<String, Option<ToolIndex>>,
    /// Ids with a `%` by what decoding makes of them, for files that did not mean an escape.
    by_decoded: HashMap<String, ToolIndex>,
}

impl ToolIds {
    pub(super) fn new(path: &Path, tools: &[Tool], id_fields: Vec<Option<String>>) -> Result<Self> {
        let mut by_name = HashMap::with_capacity(tools.len());
        let mut by_decoded = HashMap::new();
        for (position, tool) in tools.iter().enumerate() {
            let id = tool.id.to_string();
            if id.contains('%') {
                by_decoded.insert(unescape(&id), position as ToolIndex);
            }
            if by_name.insert(id, position as ToolIndex).is_some() {
                return Err(EvalError::DuplicateTool {
                    path: path.to_owned(),
                    id: tool.id.to_string(),
                });
            }
        }
        // Fields that repeat `SERVER/NAME` add nothing.
        let mut fields = tools.iter().zip(&id_fields);
        let differ = fields.any(|(tool, id)| matches!(id, Some(id) if id != tool.id.as_str()));
        let id_fields = if differ { id_fields } else { Vec::new() };
        let mut by_field = HashMap::new();
        for (position, id) in id_fields.into_iter().enumerate() {
            let Some(id) = id else { continue };
            by_field
                .entry(id)
                // Several tools have this field, so it names none of them.
                .and_modify(|position| *position = None)
                .or_insert(Some(position as ToolIndex));
        }
        Ok(ToolIds {
            by_name,
            by_field,
            by_decoded,
        })
    }

    /// Decides which ids the judgements use. `SERVER/NAME` and `id` fields may contradict each
    /// other (the id of one tool is the name of another), so the decision is made for the whole
    /// set: the fields where they explain every judgement, else the names where those do.
    pub(super) fn choose(&mut self, queries: &[RawQuery]) -> Option<RelevantIds> {
        if self.by_field.is_empty() {
            return None;
        }
        let judged = || queries.iter().flat_map(RawQuery::named);
        if judged().all(|id| self.by_field.contains_key(id)) {
            return Some(RelevantIds::Field);
        }
        if judged().all(|id| self.find_by_name(id).is_some()) {
            self.by_field.clear();
            return Some(RelevantIds::ServerName);
        }
        Some(RelevantIds::Mixed)
    }

    pub(super) fn by_name(&self, id: &str) -> Option<ToolIndex> {
        self.by_name.get(id).copied()
    }

    pub(super) fn find(&self, id: &str) -> Option<ToolIndex> {
        match self.by_field.get(id) {
            Some(position) => *position,
            None => self.find_by_name(id),
        }
    }

    fn find_by_name(&self, id: &str) -> Option<ToolIndex> {
        // The id as it is written comes first: a file may use `%` without meaning an escape.
        let written = self.by_name.get(id).or(self.by_decoded.get(id));
        match written {
            Some(tool) => Some(*tool),
            None => self.by_name(&unescape(id)),
        }
    }
}

impl RawQuery {
    /// Every id of a tool that it names.
    fn named(&self) -> impl Iterator<Item = &String> {
        let judged = self.judged.iter().map(|(id, _)| id);
        judged
            .chain(self.groups.iter().flatten())
            .chain(&self.order)
    }
}

/// A query after its tools were looked up.
pub(super) enum Resolved {
    Judged(EvalQuery),
    /// All judged tools have a grade of 0.
    Unanswerable(Unanswerable),
    /// The set has none of its relevant tools.
    LeftOut,
}

/// Looks up the tools of queries, and counts what it leaves out.
pub(super) struct Resolver<'a> {
    ids: &'a ToolIds,
    tools: &'a [Tool],
    load: &'a Load<'a>,
    pub(super) left_out: LeftOut,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(ids: &'a ToolIds, tools: &'a [Tool], load: &'a Load<'a>) -> Self {
        Resolver {
            ids,
            tools,
            load,
            left_out: LeftOut::default(),
        }
    }

    pub(super) fn resolve(&mut self, query: RawQuery) -> Result<Resolved> {
        if query.judged.is_empty() && query.groups.is_empty() {
            return Err(EvalError::EmptyRelevance {
                path: query.judged_in,
                id: query.id,
            });
        }
        let mut grades: HashMap<ToolIndex, f64> = HashMap::new();
        for (id, grade) in &query.judged {
            if let Some(tool) = self.find(&query, id, *grade)? {
                // Two ids can name one tool; the higher grade counts.
                let known = grades.entry(tool).or_insert(*grade);
                *known = known.max(*grade);
            }
        }
        let mut groups = Vec::new();
        for group in &query.groups {
            let group = self.all_of(&query, group)?;
            // All its tools may be unknown, and left out.
            if !group.is_empty() {
                groups.push(group);
            }
        }
        let mut order = Vec::new();
        for tool in self.all_of(&query, &query.order)? {
            if !order.contains(&tool) {
                order.push(tool);
            }
        }
        // A tool that meets a need, or is to be called, is relevant, whether listed twice or not.
        for tool in groups.iter().flatten().chain(&order) {
            grades.entry(*tool).or_insert(1.0);
        }
        if grades.values().any(|grade| *grade > 0.0) {
            let judged = self.judged(query, &grades, &groups, &order);
            return Ok(Resolved::Judged(judged));
        }
        // The query has relevant tools, but the set has none of them.
        if query.judged.iter().any(|(_, grade)| *grade > 0.0) {
            self.left_out.queries_without_known_tool += 1;
            return Ok(Resolved::LeftOut);
        }
        self.left_out.judged_irrelevant += 1;
        Ok(Resolved::Unanswerable(Unanswerable {
            id: query.id,
            text: query.text,
        }))
    }

    fn judged(
        &self,
        query: RawQuery,
        grades: &HashMap<ToolIndex, f64>,
        groups: &[Vec<ToolIndex>],
        order: &[ToolIndex],
    ) -> EvalQuery {
        let mut judged: Vec<ToolIndex> = grades.keys().copied().collect();
        // Ascending, as positions are looked up by binary search.
        judged.sort_unstable();
        let judgements = Judgements {
            grades: judged.iter().map(|tool| grades[tool]).collect(),
            relevant_from: self.load.relevant_from,
            groups: groups
                .iter()
                .map(|group| positions(group, &judged))
                .collect(),
            order: positions(order, &judged),
        };
        let mut relevant = Vec::new();
        for (tool, grade) in judged.iter().zip(&judgements.grades) {
            if judgements.is_relevant(*grade, None) {
                relevant.push(*tool);
            }
        }
        let mut needs = Vec::new();
        for need in judgements.needs(None) {
            needs.push(need.into_iter().map(|position| judged[position]).collect());
        }
        EvalQuery {
            id: query.id,
            text: query.text,
            times: query.times,
            source: query.source,
            relevant,
            groups: needs,
            judged,
            judgements,
        }
    }

    fn all_of(&mut self, query: &RawQuery, ids: &[String]) -> Result<Vec<ToolIndex>> {
        let mut tools = Vec::new();
        for id in ids {
            tools.extend(self.find(query, id, 1.0)?);
        }
        Ok(tools)
    }

    /// The tool of an id; `None` for an unknown one that may be left out.
    fn find(&mut self, query: &RawQuery, id: &str, grade: f64) -> Result<Option<ToolIndex>> {
        match self.ids.find(id) {
            Some(tool) => Ok(Some(tool)),
            // An unknown tool that is not relevant changes no figure.
            None if self.load.skip_unknown || grade <= 0.0 => {
                self.left_out.unknown_tools += 1;
                Ok(None)
            }
            None => Err(self.unknown(query, id)),
        }
    }

    fn unknown(&self, query: &RawQuery, id: &str) -> EvalError {
        if self.ids.by_field.get(id) == Some(&None) {
            return EvalError::DuplicateTool {
                path: query.judged_in.clone(),
                id: id.to_owned(),
            };
        }
        EvalError::UnknownRelevant {
            path: query.judged_in.clone(),
            query: query.id.clone(),
            tool: id.to_owned(),
            tools: self.tools.len(),
            nearest: of_same_name(id, self.tools.iter().map(|tool| &tool.id)),
        }
    }
}

/// The places of tools in an ascending list that has them all.
fn positions(tools: &[ToolIndex], judged: &[ToolIndex]) -> Vec<usize> {
    let mut positions = Vec::with_capacity(tools.len());
    for tool in tools {
        positions.push(judged.partition_point(|other| other < tool));
    }
    positions
}

/// The tool of another server with the name that an unknown id has.
pub(super) fn of_same_name<'a>(
    id: &str,
    mut ids: impl Iterator<Item = &'a ToolId>,
) -> Option<String> {
    let name = id.rsplit('/').next().unwrap_or(id);
    ids.find(|other| other.name().eq_ignore_ascii_case(name))
        .map(ToString::to_string)
}
