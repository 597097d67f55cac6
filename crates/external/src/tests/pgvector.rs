//! A table of PostgreSQL that somebody else fills. `TOOLSCOUT_TEST_PGVECTOR` has the address of a database with the
//! extension `vector`, such as `pgvector+plain://127.0.0.1:5432/tools`; without it there is no such test, since there is no
//! double of PostgreSQL. `scripts/pgvector.sh` starts one. The user is `tools`, with the password `tools`.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use toolscout_index::Embedder;
use toolscout_index::pushdown::{SwitchedOff, Term, TextTerms};

use super::*;
use crate::engine::{Ask, Engine, Hits, Passing, What};
use crate::{Cause, Failure};

/// The address of a database, and a connection to it.
async fn database() -> Option<(String, PgConnection)> {
    let address = std::env::var("TOOLSCOUT_TEST_PGVECTOR").ok()?;
    let url = address.replacen("pgvector+plain://", "postgres://tools:tools@", 1);
    let options: PgConnectOptions = url.parse().unwrap();
    Some((address, options.connect().await.unwrap()))
}

async fn run(connection: &mut PgConnection, sql: &str) {
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}

fn of_table(address: &str, table: &str, fields: FieldMapping) -> ExternalSettings {
    ExternalSettings {
        user: Some("tools".to_owned()),
        password_env: Some("PG_PASSWORD".to_owned()),
        secret: Some("tools".into()),
        fields: Some(fields),
        timeout_ms: 20_000,
        ..ExternalSettings::new(&format!("{address}/{table}"))
    }
}

fn fields() -> FieldMapping {
    FieldMapping {
        name: "tool name".to_owned(),
        server: Some("server".to_owned()),
        description: Some("about".to_owned()),
        schema: Some("arguments".to_owned()),
        tags: Some("tags".to_owned()),
        search: vec!["words".to_owned()],
        vector: Some("embedding".to_owned()),
        vector_embedder: Some(StaticTable::bundled().unwrap().id().to_owned()),
        ..FieldMapping::default()
    }
}

/// A table of these tools, as somebody else might have made it.
async fn fill(connection: &mut PgConnection, table: &str, tools: &[Tool], kind: &str) {
    let embedder = StaticTable::bundled().unwrap();
    let dimensions = embedder.dimensions();
    let (operators, method) = match kind {
        "halfvec" => ("halfvec_ip_ops", "hnsw"),
        _ => ("vector_cosine_ops", "hnsw"),
    };
    run(
        connection,
        &format!(
            "DROP TABLE IF EXISTS {table};
             CREATE TABLE {table} (
                 id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                 \"tool name\" text NOT NULL, server varchar(200), about text, tags text[], arguments jsonb,
                 words tsvector GENERATED ALWAYS AS (
                     to_tsvector('english', replace(\"tool name\", '_', ' ') || ' ' || coalesce(about, ''))
                 ) STORED,
                 embedding {kind}({dimensions})
             );
             CREATE INDEX ON {table} USING gin (words);
             CREATE INDEX ON {table} USING {method} (embedding {operators})"
        ),
    )
    .await;
    for tool in tools {
        let text = format!("{} {}", tool.id.name(), tool.description);
        let vector = embedder.embed_tools(&[text.as_str()]).unwrap();
        let insert = format!(
            "INSERT INTO {table} (\"tool name\", server, about, tags, arguments, embedding)
             VALUES ($1, $2, $3, $4, $5::jsonb, $6::{kind})"
        );
        sqlx::query(AssertSqlSafe(insert))
            .bind(tool.id.name())
            .bind(tool.id.server())
            .bind(&tool.description)
            .bind(&tool.tags)
            .bind(serde_json::to_string(&tool.input_schema).unwrap())
            .bind(json!(vector[0]).to_string())
            .execute(&mut *connection)
            .await
            .unwrap();
    }
}

/// A table of these tools, if there is a database.
pub async fn filled(table: &str, tools: &[Tool]) -> Option<ExternalSettings> {
    let (address, mut connection) = database().await?;
    fill(&mut connection, table, tools, "vector").await;
    connection.close().await.unwrap();
    Some(of_table(&address, table, fields()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_somebody_else_fills_answers_as_the_own_index() {
    let Some((address, mut connection)) = database().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let whole = catalog(&folder, "whole", &tools(12));
    let base = catalog(&folder, "base", &[]).searcher();
    for kind in ["vector", "halfvec"] {
        fill(&mut connection, "pages", &tools(12), kind).await;
        let external = opened(of_table(&address, "pages", fields()));
        external.health().await.unwrap();
        for request in REQUESTS {
            for filter in [
                Filter::default(),
                Filter::from_iter([ToolId::parse("mail/send_message").unwrap()]),
                Filter {
                    servers: BTreeSet::from(["mail".to_owned()]),
                    tags: BTreeSet::from(["report".to_owned()]),
                    ..Filter::default()
                },
            ] {
                let query = Query::new(request).k(10).filter(filter);
                let found = external.searcher_for(&base, &query).await.unwrap();
                assert_eq!(
                    hits(&found, &query),
                    hits(&whole.searcher(), &query),
                    "{kind}: {request}"
                );
                assert!(found.search(&query).unwrap().degraded.is_none());
            }
        }
        table_lists(&external).await;
    }
    fill(&mut connection, "many", &tools(40), "vector").await;
    let whole = catalog(&folder, "many", &tools(40));
    let settings = ExternalSettings {
        candidates: 200,
        ..of_table(&address, "many", fields())
    };
    let external = opened(settings);
    let (mut common, mut all) = (0, 0);
    for request in REQUESTS {
        let query = Query::new(request).k(10);
        let here = hits(&external.searcher_for(&base, &query).await.unwrap(), &query);
        let there = hits(&whole.searcher(), &query);
        all += there.len();
        let is_here = |id: &String| here.iter().any(|(other, _)| other == id);
        common += there.iter().filter(|(id, _)| is_here(id)).count();
    }
    eprintln!("{common} of {all} with 200 candidates");
    assert!(common * 100 >= all * 90, "{common} of {all}");
    connection.close().await.unwrap();
}

async fn table_lists(external: &ExternalCatalog) {
    assert_eq!(external.total(), 288);
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = PageOf {
            limit: 100,
            after: after.clone(),
            ..PageOf::default()
        };
        let page = external.page(&page).await.unwrap();
        listed.extend(page.tools.iter().map(|tool| tool.id.to_string()));
        after = listed.last().cloned();
        if !page.has_more {
            break;
        }
    }
    listed.sort_unstable();
    listed.dedup();
    assert_eq!(listed.len(), 288);
    let part = PageOf {
        limit: 100,
        part: "Message_1".to_owned(),
        server: Some("mail".to_owned()),
        ..PageOf::default()
    };
    assert_eq!(external.page(&part).await.unwrap().tools.len(), 6);
    let (tags, _) = external.tags(3).await.unwrap();
    assert_eq!((tags[0].1, tags.len()), (72, 3));
    let stats = external.stats().await.unwrap();
    assert_eq!(stats.servers[0], ("calendar".to_owned(), 72));
    assert!(stats.bytes > 0);
    let of_server = Filter {
        servers: BTreeSet::from(["mail".to_owned()]),
        ..Filter::default()
    };
    assert_eq!(external.ids_passing(&of_server).await.unwrap().len(), 72);
    let id = ToolId::parse("mail/send_message").unwrap();
    let tool = PushedTools::tool(external, &id).await.unwrap().unwrap();
    assert_eq!(tool.tags, ["message", "mail"]);
}

/// A table of rows with `name`, `about` and `note`, of which both texts are searched. `make` fills it.
async fn plain(table: &str, make: &str, timeout_ms: u64) -> Option<ExternalSettings> {
    let (address, mut connection) = database().await?;
    let create = format!(
        "DROP TABLE IF EXISTS {table} CASCADE; CREATE TABLE {table} (name text, about text, note text); {make}"
    );
    run(&mut connection, &create).await;
    connection.close().await.unwrap();
    let fields = FieldMapping {
        name: "name".to_owned(),
        default_server: "tools".to_owned(),
        description: Some("about".to_owned()),
        search: vec!["about".to_owned(), "note".to_owned()],
        ..FieldMapping::default()
    };
    Some(ExternalSettings {
        timeout_ms,
        ..of_table(&address, table, fields)
    })
}

/// What a search of an engine finds, without a filter.
async fn found(engine: &dyn Engine, what: What<'_>, size: usize) -> Result<Hits, Failure> {
    let limit = Duration::from_secs(20);
    let (layout, _) = engine.layout(limit).await.unwrap();
    let (filter, off) = (Filter::default(), SwitchedOff::default());
    let ask = Ask {
        what,
        passing: Passing {
            filter: &filter,
            off: &off,
        },
        size,
    };
    let mut found = engine.find(&layout, &[ask], limit).await.unwrap();
    found.pop().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_text_are_not_the_best() {
    let make = "INSERT INTO ranked VALUES
        ('none', 'mail', NULL), ('b', 'mail', ''), ('a', 'mail', ''), ('both', 'mail', 'mail'), ('other', NULL, NULL)";
    let Some(settings) = plain("ranked", make, 20_000).await else {
        return;
    };
    let text = TextTerms {
        own: vec![Term {
            word: "mail".to_owned(),
            term: "mail".to_owned(),
        }],
        ..TextTerms::default()
    };
    let what = What::Words {
        text: &text,
        further: &[],
    };
    let engine = open(&settings).unwrap();
    let best = found(engine.as_ref(), what, 3).await.unwrap();
    let key = |name: &str| json!([name, "tools"]).to_string().replace(',', ", ");
    assert_eq!(best.ids, [key("both"), key("a"), key("b")]);
    // More than are wanted are not counted.
    for (size, total) in [(2, 3), (5, 5), (9, 5)] {
        let all = found(engine.as_ref(), What::All, size).await.unwrap();
        assert_eq!((all.ids.len(), all.total), (size.min(5), Some(total)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_long_is_no_outage() {
    let make = "INSERT INTO slow VALUES ('a', '', '');
        CREATE VIEW slower AS SELECT name || (SELECT '' FROM pg_sleep(30)) AS name, about, note FROM slow";
    let Some(mut settings) = plain("slow", make, 1500).await else {
        return;
    };
    let (address, _) = database().await.unwrap();
    settings.store = ExternalSettings::new(&format!("{address}/slower")).store;
    let engine = open(&settings).unwrap();
    let failure = found(engine.as_ref(), What::All, 5).await.unwrap_err();
    assert!(failure.reason.contains("57014"), "{failure}");
    assert_eq!(failure.cause, Cause::Busy, "{failure}");
    // The next one is asked at once.
    engine.version(Duration::from_secs(20)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_table_is_said() {
    let Some((address, mut connection)) = database().await else {
        return;
    };
    fill(&mut connection, "wrong", &tools(1), "vector").await;
    let failure_of = |table: &str, fields: FieldMapping| {
        let engine = open(&of_table(&address, table, fields)).unwrap();
        async move { engine.layout(Duration::from_secs(20)).await.unwrap_err() }
    };
    let missing = failure_of("nothing", fields()).await;
    assert_eq!(missing.cause, Cause::Missing, "{missing}");
    let named = |name: &str| FieldMapping {
        name: name.to_owned(),
        ..fields()
    };
    let failure = failure_of("wrong", named("title")).await;
    assert!(failure.reason.contains("no column \"title\""), "{failure}");
    let failure = failure_of("wrong", named("arguments")).await;
    assert!(failure.reason.contains("type jsonb"), "{failure}");
    let vector = FieldMapping {
        vector: Some("about".to_owned()),
        ..fields()
    };
    let failure = failure_of("wrong", vector).await;
    assert!(
        failure.reason.contains("a vector or a halfvec"),
        "{failure}"
    );
    let mut settings = of_table(&address, "wrong", fields());
    settings.secret = Some("another".into());
    let engine = open(&settings).unwrap();
    let failure = engine.version(Duration::from_secs(20)).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Key, "{failure}");
    assert!(failure.reason.contains("PG_PASSWORD"), "{failure}");
    let base = tempfile::tempdir().unwrap();
    let searcher = catalog(&base, "own", &tools(1)).searcher();
    let failure = write(engine.as_ref(), &searcher, |_, _| ())
        .await
        .unwrap_err();
    assert!(failure.reason.contains("only reads"), "{failure}");
    // A name of a table or a column is never a part of a statement.
    let quoted = failure_of("pages; DROP TABLE wrong", fields()).await;
    assert_eq!(quoted.cause, Cause::Missing, "{quoted}");
    connection.close().await.unwrap();
}
