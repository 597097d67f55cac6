//! Writes rows of a record. What the store has of them is replaced, so a row that is sent twice counts once.

use sqlx::PgConnection;
use toolscout_gate::usage::missed::MissedRequest;
use toolscout_gate::usage::shadow::ShadowFigures;
use toolscout_gate::usage::sharing::Unsent;
use toolscout_gate::usage::{CallerFigures, ToolFigures};

use crate::error::StoreError;
use crate::row::text;

/// Most texts of missed requests of a catalog, of all nodes.
const MAX_MISSED: i64 = 10_000;

/// The node and the catalog of rows.
type Place = (i32, i64);

/// The same figure of each row.
fn column<K, F>(rows: &[Unsent<K, F>], figure: impl Fn(&F) -> u64) -> Vec<i64> {
    let mut column = Vec::with_capacity(rows.len());
    for row in rows {
        column.push(figure(&row.figures) as i64);
    }
    column
}

fn days<K, F>(rows: &[Unsent<K, F>]) -> Vec<i32> {
    rows.iter().map(|row| row.day as i32).collect()
}

pub(super) async fn tools(
    connection: &mut PgConnection,
    (node, catalog): Place,
    rows: &[Unsent<String, ToolFigures>],
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let (mut names, mut errors, mut latencies, mut sums) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for row in rows {
        let figures = &row.figures;
        names.push(text(&row.key));
        errors.push(match figures.errors.is_empty() {
            true => None,
            // A map of numbers always serialises.
            false => Some(serde_json::to_string(&figures.errors).unwrap_or_default()),
        });
        // As text, since an array of arrays cannot be taken apart by rows.
        let counts = figures.latency.counts.map(|count| count.to_string());
        latencies.push(format!("{{{}}}", counts.join(",")));
        sums.push(figures.latency.sum_s);
        first.push(figures.first_ms);
        last.push(figures.last_ms);
    }
    sqlx::query(
        "INSERT INTO usage_tools (catalog, node, day, tool, searches, first, places, more, injections, calls,
             successes, errors, latencies, latency_sum_s, definition_tokens, result_tokens, first_ms, last_ms)
         SELECT $1, $2, day, tool, searches, first, places, more, injections, calls, successes, errors::jsonb,
             latencies::bigint[], latency_sum_s, definition_tokens, result_tokens, first_ms, last_ms
         FROM unnest($3::int[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
             $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::float8[], $15::bigint[], $16::bigint[],
             $17::bigint[], $18::bigint[])
             AS sent (day, tool, searches, first, places, more, injections, calls, successes, errors, latencies,
                 latency_sum_s, definition_tokens, result_tokens, first_ms, last_ms)
         ON CONFLICT (catalog, day, tool, node) DO UPDATE SET searches = excluded.searches, first = excluded.first,
             places = excluded.places, more = excluded.more, injections = excluded.injections,
             calls = excluded.calls, successes = excluded.successes, errors = excluded.errors,
             latencies = excluded.latencies, latency_sum_s = excluded.latency_sum_s,
             definition_tokens = excluded.definition_tokens, result_tokens = excluded.result_tokens,
             first_ms = excluded.first_ms, last_ms = excluded.last_ms",
    )
    .bind(catalog)
    .bind(node)
    .bind(days(rows))
    .bind(names)
    .bind(column(rows, |tool| tool.searches))
    .bind(column(rows, |tool| tool.first))
    .bind(column(rows, |tool| tool.places))
    .bind(column(rows, |tool| tool.more))
    .bind(column(rows, |tool| tool.injections))
    .bind(column(rows, |tool| tool.calls))
    .bind(column(rows, |tool| tool.successes))
    .bind(errors)
    .bind(latencies)
    .bind(sums)
    .bind(column(rows, |tool| tool.definition_tokens))
    .bind(column(rows, |tool| tool.result_tokens))
    .bind(first)
    .bind(last)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn callers(
    connection: &mut PgConnection,
    (node, catalog): Place,
    rows: &[Unsent<(String, String), CallerFigures>],
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let (mut profiles, mut who) = (Vec::new(), Vec::new());
    for row in rows {
        profiles.push(text(&row.key.0));
        who.push(text(&row.key.1));
    }
    sqlx::query(
        "INSERT INTO usage_callers (catalog, node, day, profile, who, searches, good, possible, none, calls, errors)
         SELECT $1, $2, * FROM unnest($3::int[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
             $9::bigint[], $10::bigint[], $11::bigint[])
         ON CONFLICT (catalog, day, profile, who, node) DO UPDATE SET searches = excluded.searches,
             good = excluded.good, possible = excluded.possible, none = excluded.none, calls = excluded.calls,
             errors = excluded.errors",
    )
    .bind(catalog)
    .bind(node)
    .bind(days(rows))
    .bind(profiles)
    .bind(who)
    .bind(column(rows, |caller| caller.searches))
    .bind(column(rows, |caller| caller.good))
    .bind(column(rows, |caller| caller.possible))
    .bind(column(rows, |caller| caller.none))
    .bind(column(rows, |caller| caller.calls))
    .bind(column(rows, |caller| caller.errors))
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn shadows(
    connection: &mut PgConnection,
    (node, catalog): Place,
    rows: &[Unsent<String, ShadowFigures>],
) -> Result<(), StoreError> {
    // A day has one row of a shadow, so there are only a few.
    for row in rows {
        let figures = &row.figures;
        sqlx::query(
            "INSERT INTO usage_shadows (catalog, node, shadow, day, searches, overlap, overlap_squares, same_first,
                 calls, absent, live_first, second_first, first_moved, live_reciprocal, second_reciprocal,
                 reciprocal_squares)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
             ON CONFLICT (catalog, shadow, day, node) DO UPDATE SET searches = excluded.searches,
                 overlap = excluded.overlap, overlap_squares = excluded.overlap_squares,
                 same_first = excluded.same_first, calls = excluded.calls, absent = excluded.absent,
                 live_first = excluded.live_first, second_first = excluded.second_first,
                 first_moved = excluded.first_moved, live_reciprocal = excluded.live_reciprocal,
                 second_reciprocal = excluded.second_reciprocal,
                 reciprocal_squares = excluded.reciprocal_squares",
        )
        .bind(catalog)
        .bind(node)
        .bind(text(&row.key))
        .bind(row.day as i32)
        .bind(figures.searches as i64)
        .bind(figures.overlap)
        .bind(figures.overlap_squares)
        .bind(figures.same_first as i64)
        .bind(figures.calls as i64)
        .bind(figures.absent as i64)
        .bind(figures.live_first as i64)
        .bind(figures.second_first as i64)
        .bind(figures.first_moved as i64)
        .bind(figures.live_reciprocal)
        .bind(figures.second_reciprocal)
        .bind(figures.reciprocal_squares)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

pub(super) async fn missed(
    connection: &mut PgConnection,
    (node, catalog): Place,
    rows: &[(i64, MissedRequest)],
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let (mut times, mut requests, mut why, mut nearest) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (_, request) in rows {
        times.push(request.at_ms);
        requests.push(text(&request.text));
        why.push(request.why.as_str());
        nearest.push(request.nearest.as_deref().map(text));
    }
    sqlx::query(
        "INSERT INTO usage_missed (catalog, node, at_ms, request, why, nearest)
         SELECT $1, $2, * FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[]) ON CONFLICT DO NOTHING",
    )
    .bind(catalog)
    .bind(node)
    .bind(times)
    .bind(requests)
    .bind(why)
    .bind(nearest)
    .execute(&mut *connection)
    .await?;
    // The newest ones stay.
    sqlx::query(
        "DELETE FROM usage_missed WHERE catalog = $1 AND at_ms < (
             SELECT at_ms FROM usage_missed WHERE catalog = $1 ORDER BY at_ms DESC OFFSET $2 LIMIT 1)",
    )
    .bind(catalog)
    .bind(MAX_MISSED - 1)
    .execute(connection)
    .await?;
    Ok(())
}
