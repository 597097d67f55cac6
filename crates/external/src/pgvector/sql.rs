//! What a table is asked, as SQL: pure functions of a query and the columns.
//!
//! A row is named by its name and its server, as a JSON array of both. All values are bound, and names of columns are
//! quoted.

use serde_json::Value;
use sqlx::{Postgres, QueryBuilder};
use toolscout_base::config::FieldMapping;
use toolscout_index::pushdown::TextTerms;
use toolscout_index::{Kind, ToolId};

use crate::engine::{After, Ask, Listed, MAX_TERMS, Passing, What};
use crate::failure::{Cause, Failure};
use crate::layout::{Label, servers_of};

/// Ids that a filter may name.
const MAX_IDS: usize = 60_000;

/// A column of the table.
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as PostgreSQL writes it.
    pub kind: String,
    /// The operators that its indexes are made for.
    pub operators: String,
}

/// The columns that the owner has named, and what they are.
pub struct Columns {
    /// The table, quoted.
    table: String,
    fields: FieldMapping,
    all: Vec<Column>,
}

/// Whether a column is compared as a whole.
fn is_text(kind: &str) -> bool {
    kind == "text" || kind.starts_with("character") || matches!(kind, "uuid" | "citext" | "name")
}

fn is_number(kind: &str) -> bool {
    matches!(kind, "integer" | "bigint" | "smallint")
}

fn is_vector(kind: &str) -> bool {
    kind.starts_with("vector") || kind.starts_with("halfvec")
}

impl Columns {
    /// Checks that the table has them.
    pub fn of(table: &str, fields: &FieldMapping, all: Vec<Column>) -> Result<Self, Failure> {
        let columns = Columns {
            table: quoted_table(table),
            fields: fields.clone(),
            all,
        };
        let wrong = |column: &str, kind: &str, needed: &str| {
            let reason = format!(
                "its column {column:?} has the type {kind}, and has to be {needed}; name another in the table fields"
            );
            Err(Failure::new(Cause::Request, reason))
        };
        let optional = [&fields.description, &fields.title, &fields.schema];
        for column in optional.into_iter().flatten() {
            columns.kind(column)?;
        }
        let exact = [Some(&fields.name), fields.server.as_ref()];
        for column in exact.into_iter().flatten() {
            let kind = columns.kind(column)?;
            if !is_text(kind) && !is_number(kind) {
                return wrong(column, kind, "a text or a number");
            }
        }
        if let Some(column) = &fields.tags {
            let kind = columns.kind(column)?;
            if !is_text(kind) && kind != "text[]" && !kind.starts_with("character varying") {
                return wrong(column, kind, "a text or text[]");
            }
        }
        for column in &fields.search {
            let kind = columns.kind(unweighted(column))?;
            if !is_text(kind) && kind != "tsvector" {
                return wrong(unweighted(column), kind, "a text or a tsvector");
            }
        }
        if let Some(column) = &fields.vector {
            let kind = columns.kind(column)?;
            if !is_vector(kind) {
                return wrong(column, kind, "a vector or a halfvec");
            }
        }
        Ok(columns)
    }

    /// What the owner has named.
    pub fn fields(&self) -> &FieldMapping {
        &self.fields
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.all.iter().find(|column| column.name == name)
    }

    fn kind(&self, name: &str) -> Result<&str, Failure> {
        match self.column(name) {
            Some(column) => Ok(&column.kind),
            None => {
                let reason = format!(
                    "it has no column {name:?}, which the table fields names; name one that it has"
                );
                Err(Failure::new(Cause::Request, reason))
            }
        }
    }

    /// The name of a tool, in SQL.
    fn name(&self) -> String {
        format!("t.{}::text", quoted(&self.fields.name))
    }

    /// The server of a tool, in SQL that has one value to bind.
    fn push_server(&self, sql: &mut QueryBuilder<Postgres>) {
        match &self.fields.server {
            Some(column) => {
                sql.push(format!("coalesce(t.{}::text, ", quoted(column)));
                sql.push_bind(self.fields.default_server.clone());
                sql.push(")");
            }
            None => {
                sql.push_bind(self.fields.default_server.clone());
                sql.push("::text");
            }
        }
    }

    /// The key of a row, in SQL.
    fn push_key(&self, sql: &mut QueryBuilder<Postgres>) {
        sql.push(format!("json_build_array({}, ", self.name()));
        self.push_server(sql);
        sql.push(")::text");
    }

    /// What makes a tool of a row, in SQL.
    fn document(&self) -> String {
        let fields = &self.fields;
        let columns = [
            Some(&fields.name),
            fields.server.as_ref(),
            fields.description.as_ref(),
            fields.title.as_ref(),
            fields.schema.as_ref(),
            fields.tags.as_ref(),
        ];
        let mut pairs = Vec::new();
        for column in columns.into_iter().flatten() {
            pairs.push(format!("{}, t.{}", literal(column), quoted(column)));
        }
        if let Some(column) = &fields.vector {
            // pgvector writes a vector as JSON does an array.
            pairs.push(format!(
                "{}, t.{}::text::json",
                literal(column),
                quoted(column)
            ));
        }
        format!("json_build_object({})::text", pairs.join(", "))
    }

    fn from(&self) -> String {
        format!(
            " FROM {} t WHERE t.{} IS NOT NULL",
            self.table,
            quoted(&self.fields.name)
        )
    }

    /// The keys of the rows of a search, for [`What::All`] one more than is wanted. `None` if the table cannot be searched so.
    pub fn search(&self, ask: &Ask<'_>) -> Option<QueryBuilder<Postgres>> {
        let mut sql = QueryBuilder::new("SELECT ");
        self.push_key(&mut sql);
        sql.push(self.from());
        self.push_passing(&mut sql, &ask.passing);
        match &ask.what {
            What::All => {}
            What::Terms { .. } | What::Named(_) => return None,
            What::Ids(ids) => self.push_ids(&mut sql, ids.iter().map(ToolId::as_str)),
            What::Words { text, further } => self.push_words(&mut sql, text, further)?,
            What::Near { embedder, vector } => {
                let is_it = self.fields.vector_embedder.as_deref() == Some(*embedder);
                let column = self.fields.vector.as_ref().filter(|_| is_it)?;
                let column = self.column(column)?;
                // A column without a length has no index, and takes vectors of any length.
                let length = format!("({})", vector.len());
                if column.kind.contains('(') && !column.kind.ends_with(&length) {
                    return None;
                }
                // The operator that the index is made for: all of them order vectors of length 1 alike.
                let operator = match column.operators.as_str() {
                    operators if operators.contains("_cosine_ops") => "<=>",
                    operators if operators.contains("_ip_ops") => "<#>",
                    operators if operators.contains("_l2_ops") => "<->",
                    _ => "<=>",
                };
                let kind = match column.kind.starts_with("halfvec") {
                    true => "halfvec",
                    false => "vector",
                };
                let name = quoted(&column.name);
                sql.push(format!(
                    " AND t.{name} IS NOT NULL ORDER BY t.{name} {operator} "
                ));
                sql.push_bind(vector_text(vector));
                sql.push(format!("::{kind}"));
            }
            What::Sample => {
                sql.push(format!(" ORDER BY md5({})", self.name()));
            }
        }
        let size = match ask.what {
            // One more tells whether there are more, and counting them would read the whole table.
            What::All => ask.size + 1,
            _ => ask.size.max(1),
        };
        sql.push(format!(" LIMIT {size}"));
        Some(sql)
    }

    /// The rows with words of a text, the best first.
    fn push_words(
        &self,
        sql: &mut QueryBuilder<Postgres>,
        text: &TextTerms,
        further: &[String],
    ) -> Option<()> {
        let mut words: Vec<&str> = Vec::new();
        let all = text.own.iter().chain(&text.added);
        let all = all.map(|term| term.word.as_str());
        for word in all.chain(further.iter().map(String::as_str)) {
            if words.len() < MAX_TERMS && !words.contains(&word) {
                words.push(word);
            }
        }
        let searched = self.searched()?;
        if words.is_empty() {
            return None;
        }
        sql.push(" AND (");
        for (place, (document, _)) in searched.iter().enumerate() {
            sql.push(if place > 0 { " OR " } else { "" });
            sql.push(format!("{document} @@ ("));
            push_any(sql, &words);
            sql.push(")");
        }
        sql.push(") ORDER BY ");
        for (place, (document, weight)) in searched.iter().enumerate() {
            sql.push(if place > 0 { " + " } else { "" });
            // A column that is NULL has no rank, and a sum with NULL would come before all others.
            sql.push(format!("{weight} * coalesce(ts_rank({document}, ("));
            push_any(sql, &words);
            sql.push(")), 0)");
        }
        // The key is the first column of the result.
        sql.push(" DESC, 1");
        Some(())
    }

    /// The columns that are searched, as documents of words with their weights.
    fn searched(&self) -> Option<Vec<(String, f32)>> {
        let mut searched = Vec::new();
        for column in &self.fields.search {
            let (name, weight) = match column.split_once('^') {
                Some((name, weight)) => (name, weight.parse().unwrap_or(1.0)),
                None => (column.as_str(), 1.0),
            };
            let name = quoted(name);
            let document = match self.kind(unweighted(column)) {
                Ok("tsvector") => format!("t.{name}"),
                // As an index of an expression has it.
                _ => format!("to_tsvector('simple', t.{name})"),
            };
            searched.push((document, weight));
        }
        (!searched.is_empty()).then_some(searched)
    }

    fn push_passing(&self, sql: &mut QueryBuilder<Postgres>, passing: &Passing<'_>) {
        let (filter, off) = (passing.filter, passing.off);
        if !filter.accepts_kind(Kind::Tool) {
            sql.push(" AND false");
        }
        let servers = |servers: Vec<String>, sql: &mut QueryBuilder<Postgres>| {
            self.push_server(sql);
            sql.push(" = ANY(");
            sql.push_bind(servers);
            sql.push(")");
        };
        if !filter.servers.is_empty() {
            sql.push(" AND ");
            servers(filter.servers.iter().cloned().collect(), sql);
        }
        if !off.servers.is_empty() {
            sql.push(" AND NOT ");
            servers(off.servers.clone(), sql);
        }
        if !filter.ids.is_empty() && filter.ids.len() <= MAX_IDS {
            self.push_ids(sql, filter.ids.iter().map(String::as_str));
        }
        if !filter.tags.is_empty() {
            sql.push(" AND ");
            self.push_tags(sql, filter.tags.iter().cloned().collect());
        }
        if !off.tags.is_empty() && self.fields.tags.is_some() {
            sql.push(" AND NOT coalesce(");
            self.push_tags(sql, off.tags.clone());
            sql.push(", false)");
        }
    }

    fn push_tags(&self, sql: &mut QueryBuilder<Postgres>, tags: Vec<String>) {
        let Some(column) = &self.fields.tags else {
            // Without a column no row has a tag.
            sql.push("false");
            return;
        };
        let is_array = self.kind(column).is_ok_and(|kind| kind.ends_with("[]"));
        let name = quoted(column);
        match is_array {
            true => sql.push(format!("t.{name}::text[] && ")),
            false => sql.push(format!("t.{name}::text = ANY(")),
        };
        sql.push_bind(tags);
        sql.push(if is_array { "" } else { ")" });
    }

    /// The rows of these tools.
    fn push_ids<'a>(&self, sql: &mut QueryBuilder<Postgres>, ids: impl Iterator<Item = &'a str>) {
        sql.push(" AND (false");
        for (server, names) in servers_of(ids) {
            sql.push(format!(" OR ({} = ANY(", self.name()));
            sql.push_bind(names);
            sql.push(") AND ");
            self.push_server(sql);
            sql.push(" = ");
            sql.push_bind(server);
            sql.push(")");
        }
        sql.push(")");
    }

    /// The documents of rows by their keys.
    pub fn documents(&self, keys: &[String]) -> QueryBuilder<Postgres> {
        let (mut names, mut servers) = (Vec::new(), Vec::new());
        for key in keys {
            let key: Vec<Option<String>> = serde_json::from_str(key).unwrap_or_default();
            if let [Some(name), Some(server)] = key.as_slice() {
                names.push(name.clone());
                servers.push(server.clone());
            }
        }
        let mut sql = QueryBuilder::new(format!("SELECT {}", self.document()));
        sql.push(self.from());
        // The first condition alone may have an index.
        sql.push(format!(" AND {} = ANY(", self.name()));
        sql.push_bind(names.clone());
        sql.push(format!(") AND ({}, ", self.name()));
        self.push_server(&mut sql);
        sql.push(") IN (SELECT * FROM unnest(");
        sql.push_bind(names);
        sql.push("::text[], ");
        sql.push_bind(servers);
        sql.push("::text[]))");
        sql
    }

    /// A page in the order of names and servers. Each row has its document, and where the next page begins.
    pub fn page(&self, listed: &Listed<'_>) -> QueryBuilder<Postgres> {
        let mut sql = QueryBuilder::new(format!("SELECT {}, ", self.document()));
        self.push_key(&mut sql);
        sql.push(self.from());
        self.push_passing(&mut sql, &listed.passing);
        if !listed.part.is_empty() {
            sql.push(" AND position(");
            sql.push_bind(listed.part.to_lowercase());
            sql.push(format!(" IN lower({})) > 0", self.name()));
        }
        if let Some(ids) = listed.ids {
            self.push_ids(&mut sql, ids.iter().map(ToolId::as_str));
        }
        let after = match listed.after {
            After::Nothing => None,
            After::Tool(id) => ToolId::parse(id)
                .ok()
                .map(|id| (id.name().to_owned(), id.server().to_owned())),
            After::Page(next) => {
                let key = next.as_str().unwrap_or_default();
                serde_json::from_str(key).ok()
            }
        };
        if let Some((name, server)) = after {
            sql.push(format!(" AND ({} COLLATE \"C\", ", self.name()));
            self.push_server(&mut sql);
            sql.push(" COLLATE \"C\") > (");
            sql.push_bind(name);
            sql.push(", ");
            sql.push_bind(server);
            sql.push(")");
        }
        sql.push(format!(" ORDER BY {} COLLATE \"C\", ", self.name()));
        self.push_server(&mut sql);
        sql.push(format!(" COLLATE \"C\" LIMIT {}", listed.size));
        sql
    }

    /// Some rows in the order of a hash. Each has its document, and where the next page begins.
    pub fn sample(&self, from: Option<&Value>, size: usize) -> QueryBuilder<Postgres> {
        let hash = |sql: &mut QueryBuilder<Postgres>| {
            sql.push("md5(");
            self.push_key(sql);
            sql.push(")");
        };
        let mut sql = QueryBuilder::new(format!("SELECT {}, ", self.document()));
        hash(&mut sql);
        sql.push(self.from());
        if let Some(from) = from.and_then(Value::as_str) {
            sql.push(" AND ");
            hash(&mut sql);
            sql.push(" > ");
            sql.push_bind(from.to_owned());
        }
        sql.push(format!(" ORDER BY 2 LIMIT {size}"));
        sql
    }

    /// How many rows are tools.
    pub fn count_all(&self) -> QueryBuilder<Postgres> {
        QueryBuilder::new(format!("SELECT count(*){}", self.from()))
    }

    /// How many rows have each of these words, in one row.
    pub fn frequencies(&self, terms: &[(String, String)]) -> Option<QueryBuilder<Postgres>> {
        let searched = self.searched()?;
        let mut sql = QueryBuilder::new("SELECT ");
        for (place, (_, word)) in terms.iter().enumerate() {
            sql.push(if place > 0 { ", " } else { "" });
            sql.push(format!("(SELECT count(*){} AND (", self.from()));
            for (place, (document, _)) in searched.iter().enumerate() {
                sql.push(if place > 0 { " OR " } else { "" });
                sql.push(format!("{document} @@ ("));
                push_any(&mut sql, &[word]);
                sql.push(")");
            }
            sql.push("))");
        }
        Some(sql)
    }

    /// The most frequent values of a label.
    pub fn values(&self, label: Label, most: usize) -> Option<QueryBuilder<Postgres>> {
        let column = match label {
            Label::Server => self.fields.server.as_ref(),
            Label::Tag => self.fields.tags.as_ref(),
        }?;
        let is_array = self.kind(column).is_ok_and(|kind| kind.ends_with("[]"));
        let name = quoted(column);
        let value = match is_array {
            true => format!("unnest(t.{name}::text[])"),
            false => format!("t.{name}::text"),
        };
        Some(QueryBuilder::new(format!(
            "SELECT value, count(*) FROM (SELECT {value} AS value{}) v WHERE value IS NOT NULL
             GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {most}",
            self.from()
        )))
    }
}

/// Any of these words, as a query of words. A column of words may have them as they are, or by the rules of a language.
fn push_any(sql: &mut QueryBuilder<Postgres>, words: &[&str]) {
    for (place, word) in words.iter().enumerate() {
        sql.push(if place > 0 { " || " } else { "" });
        sql.push("plainto_tsquery('simple', ");
        sql.push_bind((*word).to_owned());
        sql.push(") || plainto_tsquery(");
        sql.push_bind((*word).to_owned());
        sql.push(")");
    }
}

/// The columns of a table: name, type, and the operators of their indexes.
pub fn columns(table: &str) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new(
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), (
             SELECT string_agg(o.opcname::text, ' ') FROM pg_index i
             JOIN pg_opclass o ON o.oid = ANY(i.indclass)
             WHERE i.indrelid = a.attrelid AND a.attnum = ANY(i.indkey) AND i.indisvalid
         ) FROM pg_attribute a WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid = to_regclass(",
    );
    sql.push_bind(quoted_table(table));
    sql.push(") ORDER BY a.attnum");
    sql
}

/// The versions of PostgreSQL and of pgvector.
pub fn version() -> QueryBuilder<Postgres> {
    QueryBuilder::new(
        "SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1), (
             SELECT extversion FROM pg_extension WHERE extname = 'vector'
         )",
    )
}

/// The bytes of a table with its indexes.
pub fn bytes(table: &str) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new("SELECT pg_total_relation_size(to_regclass(");
    sql.push_bind(quoted_table(table));
    sql.push("))");
    sql
}

fn unweighted(column: &str) -> &str {
    column.split('^').next().unwrap_or_default()
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table, with its schema before a dot if it has one.
fn quoted_table(table: &str) -> String {
    let parts: Vec<String> = table.split('.').map(quoted).collect();
    parts.join(".")
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn vector_text(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
    format!("[{}]", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use toolscout_index::Filter;
    use toolscout_index::pushdown::{SwitchedOff, Term};

    use super::*;

    /// A table with these columns of text, of which `about` and `note` are searched.
    fn columns() -> Columns {
        let fields = FieldMapping {
            name: "name".to_owned(),
            search: vec!["about^2".to_owned(), "note".to_owned()],
            ..FieldMapping::default()
        };
        let mut all = Vec::new();
        for name in ["name", "about", "note"] {
            all.push(Column {
                name: name.to_owned(),
                kind: "text".to_owned(),
                operators: String::new(),
            });
        }
        Columns::of("tools", &fields, all).unwrap()
    }

    fn text_of(what: What<'_>, size: usize) -> String {
        let (filter, off) = (Filter::default(), SwitchedOff::default());
        let ask = Ask {
            what,
            passing: Passing {
                filter: &filter,
                off: &off,
            },
            size,
        };
        let sql = columns().search(&ask).unwrap();
        sql.sql().as_str().to_owned()
    }

    #[test]
    fn those_that_pass_are_not_counted_in_the_whole_table() {
        let sql = text_of(What::All, 10);
        assert!(sql.ends_with(" LIMIT 11"), "{sql}");
        assert!(!sql.contains("count("), "{sql}");
    }

    #[test]
    fn a_column_without_words_adds_nothing_to_the_rank() {
        let text = TextTerms {
            own: vec![Term {
                term: "mail".to_owned(),
                word: "mail".to_owned(),
            }],
            ..TextTerms::default()
        };
        let what = What::Words {
            text: &text,
            further: &[],
        };
        let sql = text_of(what, 10);
        assert_eq!(sql.matches("coalesce(ts_rank(").count(), 2, "{sql}");
        assert!(sql.ends_with(", 0) DESC, 1 LIMIT 10"), "{sql}");
    }
}
