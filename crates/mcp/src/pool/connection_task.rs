//! The task that maintains the connection to one server, and syncs its tools to the catalog.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{ConnectionState, Server, ServerState};
use crate::changes::{ApprovedBefore, ComparedTools, Flag};
use crate::config::Transport;
use crate::connection::{Connection, Connector, ListError, ListedTools, Offers};
use crate::inspect::inspect_text;
use crate::login::has_authorization;
use crate::sink::CatalogSink;
use crate::sync::{self, Synced};
use toolscout_state::approved::Approved;

/// Shortest time between two lists of a server's tools, whatever asks for the second.
const MIN_REFRESH: Duration = Duration::from_millis(200);
/// Longest pause after which a change that a server reports is looked at.
const MAX_CHANGE_PAUSE: Duration = Duration::from_secs(20);
/// Pause before a list that could not be written to the catalog is tried again.
const SYNC_RETRY: Duration = Duration::from_secs(5);
/// How often a connected server looks for decisions about its tools that another process has
/// written.
const LOOK_FOR_DECISIONS: Duration = Duration::from_secs(5);
/// After a connection that lasted this long, the pause before a reconnect starts at the shortest.
const STABLE: Duration = Duration::from_secs(30);
/// Most skipped tools of one list that are logged one by one.
const MAX_LOGGED_SKIPS: usize = 5;

/// Maintains the connection to one server, and syncs its tools to the catalog.
pub(super) struct ConnectionTask {
    pub(super) server: Arc<Server>,
    pub(super) sink: Arc<dyn CatalogSink>,
    pub(super) connector: Connector,
    pub(super) stop: CancellationToken,
}

/// The list that was synced last.
#[derive(Clone, Copy)]
struct SyncedList {
    hash: u64,
    /// The last decision of a person that it was compared with.
    decision: i64,
}

/// Why a connection has ended, or was not made.
struct End {
    reason: String,
    needs_login: bool,
    /// It was stopped since nobody called it.
    is_idle: bool,
}

impl End {
    fn of(reason: String) -> Self {
        End {
            reason,
            needs_login: false,
            is_idle: false,
        }
    }
}

/// The changes that a server reports. One that reports them all the time, or at every list, is listed
/// less and less often.
#[derive(Default)]
struct ReportedChanges {
    /// How long after a list the next report is looked at.
    pause: Duration,
}

impl ReportedChanges {
    /// Waits for a report, and for its turn. Cancelled by dropping it, it loses none.
    async fn next(&mut self, connection: &Connection) {
        sleep(self.pause).await;
        let quiet_since = Instant::now();
        connection.list_changed().await;
        self.pause = match quiet_since.elapsed() {
            quiet if quiet > self.pause.max(MIN_REFRESH) => Duration::ZERO,
            _ => (self.pause * 2).clamp(2 * MIN_REFRESH, MAX_CHANGE_PAUSE),
        };
    }
}

impl ConnectionTask {
    pub(super) async fn run(self) {
        let stop = self.stop.clone();
        let limits = self.server.limits;
        let mut pause = limits.first_pause;
        let mut logged = String::new();
        loop {
            let started = Instant::now();
            let opening = Connection::open(&self.server.config, &self.connector);
            let End {
                reason,
                needs_login,
                is_idle,
            } = match stop.run_until_cancelled(opening).await {
                None => return,
                Some(Err(error)) => End {
                    reason: error.to_string(),
                    needs_login: error.needs_login(),
                    is_idle: false,
                },
                Some(Ok(connection)) => self.serve(Arc::new(connection)).await,
            };
            if stop.is_cancelled() {
                return;
            }
            if is_idle {
                if stop
                    .run_until_cancelled(self.wanted_again())
                    .await
                    .is_none()
                {
                    return;
                }
                (pause, logged) = (limits.first_pause, String::new());
                continue;
            }
            // A server that stays down for the same reason is logged once.
            if reason != logged {
                tracing::warn!(
                    server = self.name(),
                    reason,
                    "MCP server is down; reconnecting"
                );
                logged.clone_from(&reason);
            }
            self.down_since_now();
            // Tools stay in the catalog: they can be found, and a call says why it is not made.
            self.server.state.send_replace(ServerState::Down {
                reason,
                since: Instant::now(),
                needs_login,
            });
            // Only a connection that lasted resets the pause, or a server that crashes right after
            // its handshake would be restarted at the shortest pause for ever.
            if started.elapsed() >= STABLE {
                (pause, logged) = (limits.first_pause, String::new());
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.login_changed(needs_login) => {}
                () = sleep(jittered(pause)) => {}
            }
            pause = (pause * 2).min(limits.longest_pause);
        }
    }

    /// Returns once nobody has called the server for so long that its process is stopped.
    async fn idle(&self) {
        if !self.server.may_be_idle() {
            return std::future::pending().await;
        }
        let limit = self.server.limits.idle_stop;
        loop {
            let unused = self.server.unused_for();
            if unused >= limit {
                return;
            }
            sleep(limit - unused).await;
        }
    }

    /// Keeps what the server offers, before it is stopped. `None` if it was called meanwhile.
    async fn stop_idle(&self, connection: &Arc<Connection>) -> Option<End> {
        let server = &self.server;
        let offers = connection.offers().await;
        *server.kept_offers.lock() = offers;
        server.state.send_replace(ServerState::Idle);
        // A call notes that it uses the server before it looks at the state. So it is seen here, or it
        // sees that the server is stopped.
        if server.unused_for() < server.limits.idle_stop {
            server
                .state
                .send_replace(ServerState::Ready(Arc::clone(connection)));
            return None;
        }
        tracing::info!(
            server = self.name(),
            idle_s = server.limits.idle_stop.as_secs(),
            "MCP server is stopped, since nobody calls it; the next call starts it"
        );
        server.progress.lock().since = SystemTime::now();
        Some(End {
            is_idle: true,
            ..End::of("nobody calls it".into())
        })
    }

    /// Returns once a call needs the server, or somebody has decided about its tools.
    async fn wanted_again(&self) {
        let server = &self.server;
        tokio::select! {
            () = server.recheck.notified() => {}
            () = async {
                // A notification may be left from a call that did not need it.
                loop {
                    server.wanted.notified().await;
                    if server.unused_for() < server.limits.idle_stop {
                        return;
                    }
                }
            } => {}
        }
        server.state.send_replace(ServerState::Waking);
    }

    /// Returns once somebody has logged in or out, if that is waited for.
    async fn login_changed(&self, is_waited_for: bool) {
        let logins = &self.connector.logins;
        match &self.server.config.transport {
            Transport::Http { url, .. } if is_waited_for => logins.changed(url).await,
            _ => std::future::pending().await,
        }
    }

    /// Returns once somebody has logged out.
    async fn logged_out(&self) {
        match &self.server.config.transport {
            Transport::Http { url, headers, .. } if !has_authorization(headers) => {
                self.connector.logins.ended(url).await;
            }
            _ => std::future::pending().await,
        }
    }

    /// Notes that the server went down now, unless it is down already.
    fn down_since_now(&self) {
        let state = self.server.connection_state();
        if !matches!(
            state,
            ConnectionState::Reconnecting | ConnectionState::NeedsLogin
        ) {
            self.server.progress.lock().since = SystemTime::now();
        }
    }

    /// Syncs tools until the connection ends.
    async fn serve(&self, connection: Arc<Connection>) -> End {
        let end = self
            .stop
            .run_until_cancelled(self.refresh_until_end(&connection))
            .await;
        connection.close().await;
        match end {
            Some(end) => end,
            None => End::of("the program ends".into()),
        }
    }

    /// Lists the tools at every change, until the connection ends.
    async fn refresh_until_end(&self, connection: &Arc<Connection>) -> End {
        // `None` until a list was written to the catalog.
        let mut synced = None;
        let mut changes = ReportedChanges::default();
        // What is still to be renewed at the end of the connection ends with it.
        let mut renewing = JoinSet::new();
        connection.remember(self.server.kept_offers());
        loop {
            // Together, so that a server is ready as soon as it was with its tools alone.
            let (listed, offers) = tokio::join!(connection.list_tools(), connection.offers());
            *self.server.kept_offers.lock() = Arc::clone(&offers);
            match listed {
                Ok(listed) => {
                    self.sync_if_changed(listed, &offers, &mut synced).await;
                }
                Err(error) => {
                    return End {
                        needs_login: matches!(error, ListError::NeedsLogin(_)),
                        ..End::of(error.to_string())
                    };
                }
            }
            // Also when the list could not be written: the tools in the catalog are those of the
            // last list, and can be called.
            self.ready(connection, &mut renewing).await;
            let refresh = if synced.is_some() {
                self.server.limits.refresh
            } else {
                SYNC_RETRY
            };
            tokio::select! {
                () = connection.ended() => return End::of(connection.end_reason()),
                // The next attempt finds no token.
                () = self.logged_out() => return End::of("somebody has logged out".into()),
                () = changes.next(connection) => {}
                () = self.server.recheck.notified() => {}
                () = self.decided_elsewhere(&synced) => {}
                () = self.idle() => {
                    if let Some(end) = self.stop_idle(connection).await {
                        return end;
                    }
                }
                () = sleep(refresh) => {}
            }
            sleep(MIN_REFRESH).await;
        }
    }

    async fn ready(&self, connection: &Arc<Connection>, renewing: &mut JoinSet<()>) {
        let is_new = self.server.ready_connection().is_none();
        if is_new {
            // Before clients can see it.
            *self.server.capabilities.lock() = Some(connection.capabilities());
            if let Some(level) = self.connector.log_levels.lowest() {
                connection.set_log_level(level).await;
            }
            // Apart, since a server may take its time for each.
            let (server, connection) = (Arc::clone(&self.server), Arc::clone(connection));
            renewing.spawn(async move { server.subscriptions.renew(&connection).await });
        }
        self.server.state.send_if_modified(|state| {
            if matches!(state, ServerState::Ready(_)) {
                return false;
            }
            tracing::info!(server = self.name(), "MCP server is connected");
            // Starting it took time in which nobody could call it.
            self.server.used();
            self.server.progress.lock().since = SystemTime::now();
            *self.server.instructions.lock() = self.instructions_of(connection);
            *state = ServerState::Ready(Arc::clone(connection));
            true
        });
    }

    /// What the server says about the use of its tools, unless it tries to instruct the model otherwise.
    fn instructions_of(&self, connection: &Connection) -> Option<Arc<str>> {
        let text = connection.about().instructions?;
        let findings = inspect_text(&text);
        if findings.is_empty() {
            return Some(text.into());
        }
        let kinds: Vec<&str> = findings.iter().map(|kind| kind.described()).collect();
        let what = kinds.join(", ");
        tracing::warn!(
            server = self.name(),
            what,
            "the instructions of an MCP server are not shown"
        );
        None
    }

    /// Returns once a person has decided on the server's tools after the list that was synced last:
    /// another process may have written the decision.
    async fn decided_elsewhere(&self, synced: &Option<SyncedList>) {
        let Some(SyncedList { decision, .. }) = *synced else {
            return std::future::pending().await;
        };
        loop {
            sleep(LOOK_FOR_DECISIONS).await;
            // What cannot be read is reported by the next list.
            if self.last_decision().await.unwrap_or(decision) != decision {
                return;
            }
        }
    }

    async fn last_decision(&self) -> Option<i64> {
        let (sink, server) = (Arc::clone(&self.sink), Arc::clone(&self.server));
        let reading = spawn_blocking(move || {
            let approved = Approved::open_existing(sink.approved()).ok()??;
            approved.last_decision(&server.config.name).ok()
        });
        reading.await.ok()?
    }

    /// Syncs a list to the sink, unless it is the one that was synced last.
    async fn sync_if_changed(
        &self,
        listed: ListedTools,
        offers: &Offers,
        last: &mut Option<SyncedList>,
    ) {
        let limits = &self.server.limits;
        let (mut hash, offered) = (
            hash_of(&listed.entries),
            sync::read_tools(self.name(), listed, limits),
        );
        let offered = offered.with_offers(self.name(), offers, limits);
        for item in &offered.others {
            hash = hash.rotate_left(1) ^ hash_of(&[json!(item)]);
        }
        if let Some(synced) = last
            && synced.hash == hash
            // Blocked tools may have been accepted meanwhile, also by another process.
            && self.server.blocked.lock().is_empty()
            && self.last_decision().await.unwrap_or_default() == synced.decision
        {
            return;
        }
        match self.write(offered).await {
            Ok((synced, decision)) => {
                *last = Some(SyncedList { hash, decision });
                log_sync(&synced);
            }
            Err(error) => {
                *last = None;
                tracing::warn!(
                    server = self.name(),
                    error,
                    "the tools of an MCP server were not synced; trying again"
                );
            }
        }
    }

    /// Writes a list. Tools are blocked before the new list is visible, and changes are logged
    /// before a changed tool can be called. Also returns the decision that it was compared with.
    async fn write(&self, offered: sync::OfferedTools) -> Result<(Synced, i64), String> {
        let _held = self.server.writing.lock().await;
        let edits = &self.server.config.edits;
        let mut warnings = edits.unknown_tools(&offered.tools);
        let compared = self.compare(offered).await?;
        *self.server.blocked.lock() = compared.0.blocked();
        let (
            ComparedTools {
                tools,
                for_apps,
                flags: flagged,
                decision,
                ..
            },
            skipped,
        ) = compared;
        log_changes(&flagged);
        let for_apps = edits.apply(for_apps).tools;
        *self.server.for_apps.lock() = for_apps.into_iter().map(Arc::new).collect();
        let edited = edits.apply(tools);
        warnings.extend(edited.warnings);
        let changes = self.sink.sync(self.name(), edited.tools).await?;
        *self.server.always_loaded.lock() = edited.always_loaded;
        self.server.progress.lock().synced_at = Some(SystemTime::now());
        let synced = Synced {
            server: self.name().to_owned(),
            changes,
            flagged,
            skipped,
            warnings,
        };
        Ok((synced, decision))
    }

    /// Compares an offer with the approved definitions, and stores the new approved ones.
    async fn compare(
        &self,
        offered: sync::OfferedTools,
    ) -> Result<(ComparedTools, Vec<String>), String> {
        let (sink, server) = (Arc::clone(&self.sink), Arc::clone(&self.server));
        let comparing = spawn_blocking(move || {
            let (name, most_records) = (&server.config.name, server.limits.definitions);
            let mut approved =
                Approved::open(sink.approved()).map_err(|error| error.to_string())?;
            let remembered = approved.of(name).map_err(|error| error.to_string())?;
            let searcher = sink.searcher();
            let before = ApprovedBefore::of(name, Some(&searcher), remembered, most_records);
            let (compared, skipped) = sync::compare(offered, server.on_change, &before)?;
            // Before the list is in the catalog: a process that dies in between compares the next
            // list with these records.
            let stored = approved.remember(name, &compared.update, compared.decision);
            stored.map_err(|error| error.to_string())?;
            Ok((compared, skipped))
        });
        comparing.await.map_err(|error| error.to_string())?
    }

    fn name(&self) -> &str {
        &self.server.config.name
    }
}

fn log_sync(synced: &Synced) {
    let Synced {
        server,
        changes,
        skipped,
        warnings,
        ..
    } = synced;
    for warning in warnings.iter().take(MAX_LOGGED_SKIPS) {
        tracing::warn!(server, "{warning}");
    }
    for reason in skipped.iter().take(MAX_LOGGED_SKIPS) {
        tracing::warn!(server, reason, "a tool was skipped");
    }
    if skipped.len() > MAX_LOGGED_SKIPS {
        tracing::warn!(
            server,
            more = skipped.len() - MAX_LOGGED_SKIPS,
            "more tools were skipped"
        );
    }
    let (added, changed, removed) = (
        changes.added.len(),
        changes.changed.len(),
        changes.removed.len(),
    );
    tracing::info!(server, added, changed, removed, "tools synced");
}

fn log_changes(flags: &[Flag]) {
    for flag in flags {
        let (tool, what, blocked) = (&flag.id, flag.described(), flag.blocked);
        tracing::warn!(%tool, what, blocked, "a person should look at a tool: toolscout review");
    }
}

fn hash_of(entries: &[Value]) -> u64 {
    // Compared only within this process, so the hash need not be stable across versions.
    let mut hasher = DefaultHasher::new();
    for entry in entries {
        entry.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

/// The pause minus a random part of up to a quarter, so that servers that went down together are
/// not reconnected together.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0];
    // Without random bytes the pause is whole, which does no harm.
    let _ = getrandom::fill(&mut random);
    pause.mul_f64(1.0 - f64::from(random[0]) / 255.0 / 4.0)
}
