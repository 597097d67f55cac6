//! Keeps the tables of a catalog in step with its tools, within the transaction that changes them.
//! Whoever writes holds the lock of the catalog's row.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sqlx::{AssertSqlSafe, PgConnection, Row};
use toolscout_index::pushdown::{Footprint, embed_enrichments, embed_views, footprints};
use toolscout_index::{Embedder, Enrichment, Settings, Tool, Weights};

use super::lists::{LEVEL_COUNT, level, list_key};
use super::tables::{KeptEmbedder, Tables, use_extensions};
use crate::error::StoreError;
use crate::row;

/// Most rows of vectors in one statement: a few megabytes of text.
const VECTORS_AT_ONCE: usize = 1000;
/// The vectors of what was written about a tool have this number and the next ones; those of its views
/// begin with 0.
pub const FIRST_TEXT: i16 = 100;

/// The tables of a catalog, in a transaction that writes to them.
pub struct PushedWriter<'a> {
    tables: Tables,
    weights: Weights,
    /// The tables have the tools up to this id; `None` once they have all.
    filled_to: Option<String>,
    /// Those of this node. Instant ones embed what is written; the others embed later.
    embedders: &'a [Arc<dyn Embedder>],
}

/// What a change does to the counts of a catalog.
#[derive(Default)]
struct Difference {
    tools: i64,
    length: i64,
    languages: BTreeMap<&'static str, i64>,
    /// Items that are no tools.
    others: i64,
    terms: BTreeMap<(String, i16), i64>,
    /// Tools with a word in their name, and in other fields.
    words: BTreeMap<String, (i64, i64)>,
}

impl Difference {
    fn add(&mut self, footprint: &Footprint, times: i64) {
        let analysis = &footprint.analysis;
        self.tools += times;
        self.length += times * analysis.length as i64;
        self.others += times * i64::from(!footprint.kind.is_tool());
        *self.languages.entry(footprint.language.name()).or_default() += times;
        for (term, steps) in &analysis.terms {
            for level in 0..=level(*steps, analysis.length) {
                *self.terms.entry((term.clone(), level as i16)).or_default() += times;
            }
        }
        for word in &analysis.name_words {
            self.words.entry(word.clone()).or_default().0 += times;
        }
        for word in &analysis.words {
            self.words.entry(word.clone()).or_default().1 += times;
        }
    }
}

impl<'a> PushedWriter<'a> {
    /// The writer of a catalog that is pushed down, or is about to be; `None` for another one.
    pub async fn begin(
        connection: &mut PgConnection,
        catalog: i64,
        settings: &Settings,
        embedders: &'a [Arc<dyn Embedder>],
    ) -> Result<Option<Self>, StoreError> {
        let row = sqlx::query("SELECT filled_to FROM pushed_catalogs WHERE catalog = $1")
            .bind(catalog)
            .fetch_optional(&mut *connection)
            .await?;
        let Some(row) = row else { return Ok(None) };
        use_extensions(connection).await?;
        Ok(Some(PushedWriter {
            tables: Tables { catalog },
            weights: settings.lexical.weights,
            filled_to: row.try_get("filled_to")?,
            embedders,
        }))
    }

    /// True for a tool that the tables have, or would have if it were there.
    pub fn covers(&self, id: &str) -> bool {
        self.filled_to.as_deref().is_none_or(|filled| id <= filled)
    }

    /// From now on the tables have the tools up to this id.
    pub fn set_filled_to(&mut self, id: Option<String>) {
        self.filled_to = id;
    }

    /// Replaces tools: `old` as they were, `new` as they are. One that is in both was changed.
    pub async fn replace(
        &self,
        connection: &mut PgConnection,
        old: &[Tool],
        new: &[&Tool],
    ) -> Result<(), StoreError> {
        // Other tools are added when the page that has them is filled.
        let old = self.only_covered(old);
        let new = self.only_covered(new.iter().copied());
        if old.is_empty() && new.is_empty() {
            return Ok(());
        }
        let mut difference = Difference::default();
        for footprint in footprints(&old, &self.weights) {
            difference.add(&footprint, -1);
        }
        let come = footprints(&new, &self.weights);
        for footprint in &come {
            difference.add(footprint, 1);
        }
        let embedders = self.tables.embedders(connection).await?;
        self.forget(connection, &old, &new, &embedders).await?;
        let keys = self.put(connection, &new, &come).await?;
        self.count(connection, difference).await?;
        for embedder in &embedders {
            self.embed(connection, embedder, &new, &keys).await?;
        }
        Ok(())
    }

    fn only_covered<'t>(&self, tools: impl IntoIterator<Item = &'t Tool>) -> Vec<&'t Tool> {
        let mut covered = Vec::new();
        for tool in tools {
            if self.covers(tool.id.as_str()) {
                covered.push(tool);
            }
        }
        covered
    }

    /// Removes the vectors of old tools, and the rows of those that are not replaced.
    async fn forget(
        &self,
        connection: &mut PgConnection,
        old: &[&Tool],
        new: &[&Tool],
        embedders: &[KeptEmbedder],
    ) -> Result<(), StoreError> {
        if old.is_empty() {
            return Ok(());
        }
        let tools = self.tables.tools();
        let old = ids(old);
        // Vectors are deleted first: if the tool's row took them along, they could not be counted.
        for embedder in embedders {
            let vectors = self.tables.vectors(embedder);
            // Every tool has exactly one vector of view 0, so counting those counts tools.
            let sql = format!(
                "WITH gone AS (
                     DELETE FROM {vectors} WHERE key IN (SELECT key FROM {tools} WHERE id = ANY($3)) RETURNING view
                 )
                 UPDATE pushed_embedders SET tools = tools - (SELECT count(*) FROM gone WHERE view = 0)
                 WHERE catalog = $1 AND number = $2"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(self.tables.catalog)
                .bind(embedder.number)
                .bind(&old)
                .execute(&mut *connection)
                .await?;
        }
        let sql = format!("DELETE FROM {tools} WHERE id = ANY($1) AND id <> ALL($2)");
        sqlx::query(AssertSqlSafe(sql))
            .bind(old)
            .bind(ids(new))
            .execute(connection)
            .await?;
        Ok(())
    }

    /// Stores tools. Returns their keys, by id.
    async fn put(
        &self,
        connection: &mut PgConnection,
        new: &[&Tool],
        footprints: &[Footprint],
    ) -> Result<HashMap<String, i64>, StoreError> {
        if new.is_empty() {
            return Ok(HashMap::new());
        }
        let tools = self.tables.tools();
        let mut columns = Columns::default();
        for (tool, footprint) in new.iter().zip(footprints) {
            columns.push(tool, footprint);
        }
        // A changed tool keeps its row, and with it its key.
        let sql = format!(
            "INSERT INTO {tools}
                 (id, server, tags, kind, read_only, destructive, name_key, full_key, length, terms, counts)
             SELECT id, server, tags::text[], kind, read_only, destructive, name_key, full_key, length,
                    terms::bigint[], counts::bigint[]
             FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::boolean[], $6::text[], $7::text[],
                         $8::bigint[], $9::text[], $10::text[], $11::text[])
                  AS new (id, server, tags, read_only, destructive, name_key, full_key, length, terms, counts,
                          kind)
             ON CONFLICT (id) DO UPDATE
             SET server = excluded.server, tags = excluded.tags, kind = excluded.kind, read_only = excluded.read_only,
                 destructive = excluded.destructive, name_key = excluded.name_key, full_key = excluded.full_key,
                 length = excluded.length, terms = excluded.terms, counts = excluded.counts
             RETURNING id, key"
        );
        let stored: Vec<(String, i64)> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(columns.ids)
            .bind(columns.servers)
            .bind(columns.tags)
            .bind(columns.read_only)
            .bind(columns.destructive)
            .bind(columns.name_keys)
            .bind(columns.full_keys)
            .bind(columns.lengths)
            .bind(columns.terms)
            .bind(columns.counts)
            .bind(columns.kinds)
            .fetch_all(connection)
            .await?;
        Ok(stored.into_iter().collect())
    }

    /// Brings the counts of the whole catalog up to date.
    async fn count(
        &self,
        connection: &mut PgConnection,
        difference: Difference,
    ) -> Result<(), StoreError> {
        self.count_terms(connection, difference.terms).await?;
        self.count_words(connection, difference.words).await?;
        let languages: Option<String> =
            sqlx::query_scalar("SELECT languages FROM pushed_catalogs WHERE catalog = $1")
                .bind(self.tables.catalog)
                .fetch_optional(&mut *connection)
                .await?;
        let mut counted: BTreeMap<String, i64> =
            serde_json::from_str(&languages.unwrap_or_default()).unwrap_or_default();
        for (language, change) in difference.languages {
            *counted.entry(language.to_owned()).or_default() += change;
        }
        counted.retain(|_, tools| *tools > 0);
        sqlx::query(
            "UPDATE pushed_catalogs
             SET tools = tools + $2, length = length + $3, languages = $4, others = others + $5
             WHERE catalog = $1",
        )
        .bind(self.tables.catalog)
        .bind(difference.tools)
        .bind(difference.length)
        .bind(serde_json::to_string(&counted).unwrap_or_default())
        .bind(difference.others)
        .execute(connection)
        .await?;
        Ok(())
    }

    async fn count_terms(
        &self,
        connection: &mut PgConnection,
        changes: BTreeMap<(String, i16), i64>,
    ) -> Result<(), StoreError> {
        let table = self.tables.terms();
        let (mut terms, mut levels, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let mut fewer: Vec<&str> = Vec::new();
        for ((term, level), change) in &changes {
            // A changed tool keeps most of its terms, whose changes add up to 0.
            if *change == 0 {
                continue;
            }
            terms.push(term.as_str());
            levels.push(*level);
            numbers.push(*change);
            if *change < 0 {
                fewer.push(term);
            }
        }
        let sql = format!(
            "INSERT INTO {table} (term, level, tools)
             SELECT * FROM unnest($1::text[], $2::smallint[], $3::bigint[])
             ON CONFLICT (term, level) DO UPDATE SET tools = {table}.tools + excluded.tools"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(terms)
            .bind(levels)
            .bind(numbers)
            .execute(&mut *connection)
            .await?;
        // Without this, terms that no tool has any more would pile up.
        if !fewer.is_empty() {
            let sql = format!("DELETE FROM {table} WHERE term = ANY($1) AND tools <= 0");
            sqlx::query(AssertSqlSafe(sql))
                .bind(fewer)
                .execute(connection)
                .await?;
        }
        Ok(())
    }

    async fn count_words(
        &self,
        connection: &mut PgConnection,
        changes: BTreeMap<String, (i64, i64)>,
    ) -> Result<(), StoreError> {
        let table = self.tables.words();
        let (mut words, mut names, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut fewer: Vec<&str> = Vec::new();
        for (word, (in_names, elsewhere)) in &changes {
            if (*in_names, *elsewhere) == (0, 0) {
                continue;
            }
            words.push(word.as_str());
            names.push(*in_names);
            others.push(*elsewhere);
            if *in_names < 0 || *elsewhere < 0 {
                fewer.push(word);
            }
        }
        let sql = format!(
            "INSERT INTO {table} (word, names, others)
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
             ON CONFLICT (word) DO UPDATE
             SET names = {table}.names + excluded.names, others = {table}.others + excluded.others"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(words)
            .bind(names)
            .bind(others)
            .execute(&mut *connection)
            .await?;
        // A word that no tool has must not be suggested for a misspelt one.
        if !fewer.is_empty() {
            let sql =
                format!("DELETE FROM {table} WHERE word = ANY($1) AND names <= 0 AND others <= 0");
            sqlx::query(AssertSqlSafe(sql))
                .bind(fewer)
                .execute(connection)
                .await?;
        }
        Ok(())
    }

    /// Stores the vectors of new tools, if the embedder is an instant one of this node.
    async fn embed(
        &self,
        connection: &mut PgConnection,
        kept: &KeptEmbedder,
        new: &[&Tool],
        keys: &HashMap<String, i64>,
    ) -> Result<(), StoreError> {
        let Some(embedder) = self.instant_embedder(kept) else {
            return Ok(());
        };
        let vectors = embed_views(embedder.as_ref(), new)?;
        let mut by_key = Vec::with_capacity(new.len());
        for (tool, vectors) in new.iter().zip(vectors) {
            if let Some(key) = keys.get(tool.id.as_str()) {
                by_key.push((*key, vectors));
            }
        }
        put_vectors(connection, self.tables, kept, &by_key).await
    }
}

impl PushedWriter<'_> {
    /// Replaces the vectors of what was written about tools. An instant embedder of this node embeds it
    /// now, and the others later.
    pub async fn put_texts(
        &self,
        connection: &mut PgConnection,
        written: &HashMap<&str, &Enrichment>,
    ) -> Result<(), StoreError> {
        let ids: Vec<String> = written.keys().map(|&id| id.to_owned()).collect();
        self.forget_texts(connection, &ids).await?;
        // Only tools that are in the tables. The keeper embeds the texts of the others later.
        let sql = format!(
            "SELECT id, key FROM {} WHERE id = ANY($1)",
            self.tables.tools()
        );
        let keys: Vec<(String, i64)> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(ids)
            .fetch_all(&mut *connection)
            .await?;
        let enrichments: Vec<&Enrichment> =
            keys.iter().map(|(id, _)| written[id.as_str()]).collect();
        for kept in self.tables.embedders(connection).await? {
            let Some(embedder) = self.instant_embedder(&kept) else {
                continue;
            };
            let vectors = embed_enrichments(embedder.as_ref(), &enrichments)?;
            let mut by_key = Vec::with_capacity(keys.len());
            for ((_, key), vectors) in keys.iter().zip(vectors) {
                by_key.push((*key, vectors));
            }
            put_text_vectors(connection, self.tables, &kept, &by_key).await?;
        }
        Ok(())
    }

    /// Removes the vectors of what was written about tools.
    pub async fn forget_texts(
        &self,
        connection: &mut PgConnection,
        ids: &[String],
    ) -> Result<(), StoreError> {
        let tools = self.tables.tools();
        for embedder in self.tables.embedders(connection).await? {
            let vectors = self.tables.vectors(&embedder);
            let sql = format!(
                "DELETE FROM {vectors}
                 WHERE key IN (SELECT key FROM {tools} WHERE id = ANY($1)) AND view >= {FIRST_TEXT}"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(ids)
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    }

    /// The instant embedder of this node that these vectors are of.
    fn instant_embedder(&self, kept: &KeptEmbedder) -> Option<&Arc<dyn Embedder>> {
        self.embedders
            .iter()
            .find(|embedder| embedder.is_instant() && is_same(embedder.as_ref(), kept))
    }
}

/// Rows of tools, by column, as `unnest` takes them.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<&'a str>,
    servers: Vec<&'a str>,
    // PostgreSQL has no array of arrays of several lengths, so `tags`, `terms` and `counts` are texts
    // of arrays.
    tags: Vec<String>,
    kinds: Vec<&'static str>,
    read_only: Vec<bool>,
    destructive: Vec<bool>,
    name_keys: Vec<&'a str>,
    full_keys: Vec<&'a str>,
    lengths: Vec<i64>,
    terms: Vec<String>,
    counts: Vec<String>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, tool: &'a Tool, footprint: &'a Footprint) {
        let analysis = &footprint.analysis;
        self.ids.push(tool.id.as_str());
        self.servers.push(tool.id.server());
        self.tags.push(text_array(&tool.tags));
        self.kinds.push(footprint.kind.as_str());
        self.read_only.push(footprint.read_only);
        self.destructive.push(footprint.destructive);
        self.name_keys.push(&footprint.name_keys[0]);
        self.full_keys.push(&footprint.name_keys[1]);
        self.lengths.push(analysis.length as i64);
        self.terms.push(number_array(list_keys(footprint)));
        let counts = analysis.terms.values().copied();
        self.counts.push(number_array(counts.map(i64::from)));
    }
}

fn ids<'a>(tools: &[&'a Tool]) -> Vec<&'a str> {
    tools.iter().map(|tool| tool.id.as_str()).collect()
}

/// The lists that a tool is in: those of level 0 first, in the order of its terms.
fn list_keys(footprint: &Footprint) -> Vec<i64> {
    let analysis = &footprint.analysis;
    let mut keys = Vec::with_capacity(analysis.terms.len());
    // Level 0 comes first, so that its keys stand at the same places as their counts, as scoring
    // expects.
    for wanted in 0..LEVEL_COUNT {
        for (term, steps) in &analysis.terms {
            if level(*steps, analysis.length) >= wanted {
                keys.push(list_key(term, wanted));
            }
        }
    }
    keys
}

/// True if these are vectors of this embedder.
pub fn is_same(embedder: &dyn Embedder, kept: &KeptEmbedder) -> bool {
    embedder.id() == kept.id && embedder.dimensions() == kept.dimensions
}

/// Vectors of tools, by their keys.
pub type ByKey = [(i64, Vec<Vec<f32>>)];

/// Stores the vectors of the views of tools that have none of this embedder.
pub async fn put_vectors(
    connection: &mut PgConnection,
    tables: Tables,
    kept: &KeptEmbedder,
    vectors: &ByKey,
) -> Result<(), StoreError> {
    insert_vectors(connection, tables, kept, vectors, 0).await?;
    sqlx::query(
        "UPDATE pushed_embedders SET tools = tools + $3 WHERE catalog = $1 AND number = $2",
    )
    .bind(tables.catalog)
    .bind(kept.number)
    .bind(vectors.len() as i64)
    .execute(connection)
    .await?;
    Ok(())
}

/// Stores the vectors of what was written about tools, of which this embedder has none.
pub async fn put_text_vectors(
    connection: &mut PgConnection,
    tables: Tables,
    kept: &KeptEmbedder,
    vectors: &ByKey,
) -> Result<(), StoreError> {
    insert_vectors(connection, tables, kept, vectors, FIRST_TEXT).await
}

/// Stores vectors with this number and the next ones.
async fn insert_vectors(
    connection: &mut PgConnection,
    tables: Tables,
    kept: &KeptEmbedder,
    vectors: &ByKey,
    first: i16,
) -> Result<(), StoreError> {
    let table = tables.vectors(kept);
    let mut rows = Vec::new();
    for (key, vectors) in vectors {
        for (number, vector) in (first..).zip(vectors) {
            rows.push((*key, number, vector_text(vector)));
        }
    }
    // Vectors are sent as text, since sqlx has no type for them.
    let sql = format!(
        "INSERT INTO {table} (key, view, vector)
         SELECT key, view, vector::halfvec FROM unnest($1::bigint[], $2::smallint[], $3::text[]) AS new (key, view, vector)"
    );
    for chunk in rows.chunks(VECTORS_AT_ONCE) {
        let (mut keys, mut views, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for (key, view, text) in chunk {
            keys.push(*key);
            views.push(*view);
            texts.push(text.as_str());
        }
        sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(keys)
            .bind(views)
            .bind(texts)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// A vector as pgvector reads it.
pub fn vector_text(vector: &[f32]) -> String {
    let mut numbers = Vec::with_capacity(vector.len());
    for number in vector {
        // pgvector refuses numbers that are not finite, and the tool should still be stored.
        let number = if number.is_finite() { *number } else { 0.0 };
        numbers.push(number.to_string());
    }
    format!("[{}]", numbers.join(","))
}

fn number_array(numbers: impl IntoIterator<Item = i64>) -> String {
    let mut texts = Vec::new();
    for number in numbers {
        texts.push(number.to_string());
    }
    format!("{{{}}}", texts.join(","))
}

/// The text of an array of these texts, each within quotation marks.
fn text_array(texts: &[String]) -> String {
    let mut quoted = Vec::with_capacity(texts.len());
    for text in texts {
        let escaped = row::text(text).replace('\\', "\\\\").replace('"', "\\\"");
        quoted.push(format!("\"{escaped}\""));
    }
    format!("{{{}}}", quoted.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_as_postgresql_reads_them() {
        assert_eq!(number_array([1, -2].into_iter()), "{1,-2}");
        let tags = ["a\"b", "c\\d", "NULL", "", "e,f}"].map(str::to_owned);
        assert_eq!(text_array(&tags), r#"{"a\"b","c\\d","NULL","","e,f}"}"#);
        assert_eq!(text_array(&[]), "{}");
        assert_eq!(vector_text(&[0.5, -1.0, f32::NAN]), "[0.5,-1,0]");
    }

    #[test]
    fn the_lists_of_a_tool_begin_with_its_terms_in_their_order() {
        let tool = Tool::new("mail", "send_message").unwrap();
        let footprint = Footprint::of(&tool, &Weights::default());
        let terms: Vec<&String> = footprint.analysis.terms.keys().collect();
        let keys = list_keys(&footprint);
        for (place, term) in terms.iter().enumerate() {
            assert_eq!(keys[place], list_key(term, 0));
        }
        assert!(keys.len() > terms.len());
    }

    #[test]
    fn adding_and_taking_away_leaves_no_difference() {
        let tool = Tool::new("mail", "send_message").unwrap();
        let footprint = Footprint::of(&tool, &Weights::default());
        let mut difference = Difference::default();
        difference.add(&footprint, 1);
        assert_eq!((difference.tools, difference.length > 0), (1, true));
        difference.add(&footprint, -1);
        assert_eq!((difference.tools, difference.length), (0, 0));
        assert!(difference.terms.values().all(|tools| *tools == 0));
        assert!(difference.words.values().all(|tools| *tools == (0, 0)));
    }
}
