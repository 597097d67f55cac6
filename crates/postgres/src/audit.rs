//! The audit logs of all nodes. A call is written to the log of its node before it is made, as ever;
//! what a log has is copied here within a second, as a chain of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use sqlx::Row;

use super::error::StoreError;
use super::row::text;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_gate::gate::audit::page::{Filter, StoredEntry, fields_of};
use toolscout_gate::gate::audit::{AuditError, AuditLog, ChainCheck, ChainedEntry};
use toolscout_state::shared::{AuditCursor, AuditPage, ChainError, VerifiedChain};

/// Entries that are copied, or verified, at a time.
const PAGE: usize = 500;
/// Most pages that are copied at once: the rest of a long log follows with the next look.
const MAX_PAGES: usize = 20;

/// The log of this node, and how far it is copied.
#[derive(Clone)]
pub(super) struct LocalChain(Arc<Mutex<Progress>>);

struct Progress {
    path: PathBuf,
    log: Option<AuditLog>,
    /// Known once the log has an entry and the store was asked.
    copied: Option<Copied>,
}

#[derive(Clone)]
struct Copied {
    chain: String,
    seq: i64,
}

impl LocalChain {
    pub(super) fn new(path: &Path) -> Self {
        LocalChain(Arc::new(Mutex::new(Progress {
            path: path.to_owned(),
            log: None,
            copied: None,
        })))
    }

    /// Reads the log on a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Progress, &AuditLog) -> Result<T, AuditError> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let chain = Arc::clone(&self.0);
        let reading = tokio::task::spawn_blocking(move || {
            let mut progress = chain.lock();
            let log = match progress.log.take() {
                Some(log) => log,
                None => match AuditLog::open_existing(&progress.path) {
                    // No tool was called yet.
                    Err(AuditError::Missing { .. }) => return Ok(None),
                    log => log?,
                },
            };
            let outcome = read(&mut progress, &log);
            progress.log = Some(log);
            outcome.map(Some)
        });
        let read = reading.await.unwrap_or(Ok(None));
        read.map_err(|error: AuditError| StoreError::Refused(error.to_string()))
    }

    fn set_copied(&self, copied: Copied) {
        let mut progress = self.0.lock();
        progress.copied = Some(copied);
    }
}

impl PostgresStore {
    /// Copies the audit log at this path to the store once [`PostgresStore::follow`] was called.
    pub fn copy_audit(&self, path: &Path) {
        // A server has one log.
        let _ = self.watch.audit.set(LocalChain::new(path));
    }

    /// Copies what the log of this node has and the store has not; of a long log a part.
    ///
    /// # Errors
    /// [`StoreError`]; what was copied before stays.
    pub async fn copy_audit_now(&self) -> Result<(), StoreError> {
        let Some(local) = self.watch.audit.get() else {
            return Ok(());
        };
        let Some(mut copied) = self.copied(local).await? else {
            return Ok(());
        };
        for _ in 0..MAX_PAGES {
            let after = copied.seq;
            let entries = local.read(move |_, log| log.entries_after(after, PAGE));
            let entries = entries.await?.unwrap_or_default();
            let Some(last) = entries.last() else {
                break;
            };
            copied.seq = last.seq;
            let put = self.put_entries(&copied.chain, &entries);
            self.ask(WRITE_LIMIT, put).await?;
            local.set_copied(copied.clone());
        }
        Ok(())
    }

    /// How far the log of this node is copied; `None` while it has no entry.
    async fn copied(&self, local: &LocalChain) -> Result<Option<Copied>, StoreError> {
        let read = local.read(|progress, log| {
            let first = log.entries_after(0, 1)?;
            Ok((progress.copied.clone(), first.into_iter().next()))
        });
        let Some((copied, Some(first))) = read.await? else {
            return Ok(None);
        };
        // A log that was started over has another first entry, so it counts as another chain.
        let chain = hex::encode(&first.hash);
        if let Some(copied) = copied
            && copied.chain == chain
        {
            return Ok(Some(copied));
        }
        let last = async {
            let last: Option<(i64, Vec<u8>)> = sqlx::query_as(
                "SELECT seq, hash FROM audit WHERE chain = $1 ORDER BY seq DESC LIMIT 1",
            )
            .bind(&chain)
            .fetch_optional(&self.pool)
            .await?;
            Ok(last)
        };
        let Some((seq, hash)) = self.ask(READ_LIMIT, last).await? else {
            return Ok(Some(Copied { chain, seq: 0 }));
        };
        // Each hash covers the entry before it, so comparing the last one compares the whole chain.
        let own = local.read(move |_, log| log.entries_after(seq - 1, 1));
        let is_same = match own.await?.as_deref() {
            Some([own, ..]) => own.hash == hash,
            _ => false,
        };
        if !is_same {
            return Err(StoreError::Refused(format!(
                "entry {seq} of this node's audit log is not the one that was copied to the store; the log was cut off or \
                 rewritten, `toolscout audit verify` says more"
            )));
        }
        Ok(Some(Copied { chain, seq }))
    }

    async fn put_entries(&self, chain: &str, entries: &[ChainedEntry]) -> Result<(), StoreError> {
        let (mut seqs, mut texts, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut times, mut tools) = (Vec::new(), Vec::new());
        let (mut events, mut decisions) = (Vec::new(), Vec::new());
        for entry in entries {
            let fields = fields_of(&entry.text);
            let field = |name: &str| fields.get(name).and_then(Value::as_str).map(text);
            seqs.push(entry.seq);
            texts.push(entry.text.as_str());
            hashes.push(entry.hash.as_slice());
            // A damaged entry has no time, and takes that of the entry before it.
            let time_ms = fields.get("time_ms").and_then(Value::as_i64);
            times.push(time_ms.or(times.last().copied()).unwrap_or(0));
            tools.push(field("tool"));
            events.push(field("event"));
            decisions.push(field("decision"));
        }
        // The number of entries is stored too, so that a later check notices if some were cut off.
        let mut transaction = self.pool.begin().await?;
        sqlx::query(
            "INSERT INTO audit_chains (chain, node, entries) VALUES ($1, $2, $3)
             ON CONFLICT (chain) DO UPDATE SET node = $2, entries = greatest(audit_chains.entries, $3)",
        )
        .bind(chain)
        .bind(&self.node.name)
        .bind(seqs.last())
        .execute(&mut *transaction)
        .await?;
        // An entry may be there already: if the answer to a commit was lost, the entries are copied
        // again.
        sqlx::query(
            "INSERT INTO audit (chain, seq, entry, hash, time_ms, tool, event, decision)
             SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::bytea[], $5::bigint[], $6::text[], $7::text[], $8::text[])
             ON CONFLICT DO NOTHING",
        )
        .bind(chain)
        .bind(&seqs)
        .bind(texts)
        .bind(hashes)
        .bind(times)
        .bind(tools)
        .bind(events)
        .bind(decisions)
        .execute(&mut *transaction)
        .await?;
        Ok(transaction.commit().await?)
    }

    /// The newest entries of all nodes that pass the filter.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn audit_page(
        &self,
        filter: &Filter,
        before: Option<AuditCursor>,
        limit: usize,
    ) -> Result<AuditPage, StoreError> {
        let read = async {
            let (time_ms, chain, seq) = before.unwrap_or((i64::MAX, String::new(), 0));
            let since_ms = filter
                .since_ms
                .map(|since| i64::try_from(since).unwrap_or(i64::MAX));
            // One more than the page has, to know whether there is a next page.
            let rows = sqlx::query(
                "SELECT node, audit.chain, seq, entry, hash, time_ms FROM audit
                 JOIN audit_chains ON audit_chains.chain = audit.chain
                 WHERE (time_ms, audit.chain, seq) < ($1, $2, $3)
                   AND ($4::text IS NULL OR tool = $4) AND ($5::text IS NULL OR event = $5)
                   AND ($6::text IS NULL OR decision = $6) AND ($7::bigint IS NULL OR time_ms >= $7)
                   AND ($9::text IS NULL OR position($9 IN lower(tool)) > 0)
                 ORDER BY time_ms DESC, audit.chain DESC, seq DESC LIMIT $8",
            )
            .bind(time_ms)
            .bind(text(&chain))
            .bind(seq)
            .bind(filter.tool.as_deref().map(text))
            .bind(filter.event.as_deref().map(text))
            .bind(filter.decision_name())
            .bind(since_ms)
            .bind(limit as i64 + 1)
            .bind(filter.lower_tool_part().as_deref().map(text))
            .fetch_all(&self.pool)
            .await?;
            let total: Option<i64> =
                sqlx::query_scalar("SELECT sum(entries)::bigint FROM audit_chains")
                    .fetch_one(&self.pool)
                    .await?;
            let mut page = AuditPage {
                entries: Vec::new(),
                total: total.unwrap_or_default(),
                next: None,
            };
            let mut last = None;
            for row in &rows {
                if page.entries.len() == limit {
                    page.next = last;
                    break;
                }
                let (entry, seq): (String, i64) = (row.try_get("entry")?, row.try_get("seq")?);
                last = Some((row.try_get("time_ms")?, row.try_get("chain")?, seq));
                let stored = StoredEntry {
                    seq,
                    hash: row.try_get("hash")?,
                    fields: fields_of(&entry),
                };
                page.entries.push((row.try_get("node")?, stored));
            }
            Ok(page)
        };
        self.ask(READ_LIMIT, read).await
    }

    /// Verifies the chain of each node; with `head`, also that one of them has an entry with this
    /// hash. `go_on` is asked before each page; false stops there. The chain of this node must have
    /// all that was copied.
    ///
    /// # Errors
    /// [`ChainError`].
    pub async fn verify_audit(
        &self,
        head: Option<&str>,
        go_on: impl Fn() -> bool,
    ) -> Result<Vec<VerifiedChain>, ChainError> {
        let read = async {
            let chains = "SELECT chain, node, entries FROM audit_chains ORDER BY node, chain";
            let chains: Vec<(String, String, i64)> =
                sqlx::query_as(chains).fetch_all(&self.pool).await?;
            Ok(chains)
        };
        let chains = self.ask(READ_LIMIT, read).await?;
        let (mut verified, mut is_head_found) = (Vec::new(), head.is_none());
        for (chain, node, expected) in chains {
            let mut check = ChainCheck::default();
            loop {
                if !go_on() {
                    return Err(ChainError::Stopped);
                }
                let entries = self.entries_of(&chain, check.last().seq).await?;
                for entry in &entries {
                    if let Err(what) = check.push(entry) {
                        let seq = entry.seq;
                        return Err(ChainError::Broken { node, seq, what });
                    }
                    if let Some(head) = head {
                        is_head_found |= head.eq_ignore_ascii_case(&hex::encode(&entry.hash));
                    }
                }
                if entries.len() < PAGE {
                    break;
                }
            }
            let last = check.last();
            if last.seq < expected {
                return Err(ChainError::CutOff {
                    node,
                    found: last.seq,
                    expected,
                });
            }
            verified.push(VerifiedChain {
                node,
                chain,
                entries: last.seq,
                head: hex::encode(last.hash),
            });
        }
        match head {
            Some(head) if !is_head_found => Err(ChainError::HeadMissing {
                head: head.to_owned(),
            }),
            _ => Ok(verified),
        }
    }

    async fn entries_of(&self, chain: &str, after: i64) -> Result<Vec<ChainedEntry>, StoreError> {
        let read = async {
            let rows: Vec<(i64, String, Vec<u8>)> = sqlx::query_as(
                "SELECT seq, entry, hash FROM audit WHERE chain = $1 AND seq > $2 ORDER BY seq LIMIT $3",
            )
            .bind(chain)
            .bind(after)
            .bind(PAGE as i64)
            .fetch_all(&self.pool)
            .await?;
            let mut entries = Vec::with_capacity(rows.len());
            for (seq, text, hash) in rows {
                entries.push(ChainedEntry { seq, text, hash });
            }
            Ok(entries)
        };
        self.ask(READ_LIMIT, read).await
    }
}
