//! The servers of the store's address: one of them takes writes, and the others are standbys, of which one
//! takes over when somebody promotes it. With one server there is nothing to choose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Connection, PgConnection, Row};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::error::StoreError;
use super::{CONNECT_LIMIT, MAX_CONNECTIONS};
use toolscout_base::config::StoreReads;

/// How long a server may take to say what it is.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// All servers are not asked again before this time, however many requests wait for one.
const PAUSE: Duration = Duration::from_millis(300);
/// How long an idle connection may take to prove that it is alive.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// One server.
pub(super) struct Server {
    /// As it may be shown.
    pub name: String,
    pub options: PgConnectOptions,
}

/// The servers, and which of them is used for what.
pub(super) struct Servers {
    all: Vec<Server>,
    reads: StoreReads,
    chosen: Mutex<Chosen>,
    /// Held while the servers are asked, so that one asks for all.
    choosing: tokio::sync::Mutex<()>,
    /// True after something failed that another server may do.
    is_suspect: AtomicBool,
    /// How often another server became the one for writes.
    failovers: Counter<u64, AtomicU64>,
    /// Told when that happens.
    switched: Notify,
    writing: Door,
    reading: Door,
}

/// Connections to one server, which may become another one.
struct Door {
    pool: PgPool,
    /// Which server it leads to, and since when: older connections go to another one.
    leads: Arc<Mutex<Leads>>,
}

#[derive(Clone, Copy)]
struct Leads {
    to: usize,
    since: Instant,
}

#[derive(Default)]
struct Chosen {
    primary: Option<usize>,
    /// The primary before it was lost.
    last: Option<usize>,
    standby: Option<usize>,
    /// The newest line of history that was seen.
    newest: Option<Line>,
    asked: Option<Instant>,
    /// Why there is no primary.
    problem: String,
}

/// A line of history of one database: each promotion begins the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    system: i64,
    number: i64,
}

/// What a server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Primary(Line),
    Standby,
}

/// A server as `toolscout store status` shows it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ServerStatus {
    /// Host and port.
    pub server: String,
    /// `primary`, `standby`, or why it cannot be used.
    pub state: String,
}

impl Servers {
    pub(super) fn new(
        all: Vec<Server>,
        reads: StoreReads,
        failovers: Counter<u64, AtomicU64>,
    ) -> Self {
        // A single server is the primary without asking.
        let only = (all.len() == 1).then_some(0);
        let chosen = Chosen {
            primary: only,
            last: only,
            ..Chosen::default()
        };
        Servers {
            writing: Door::to_first(&all),
            reading: Door::to_first(&all),
            all,
            reads,
            chosen: Mutex::new(chosen),
            choosing: tokio::sync::Mutex::default(),
            is_suspect: AtomicBool::new(false),
            failovers,
            switched: Notify::new(),
        }
    }

    /// Connections for writes.
    pub(super) fn pool(&self) -> &PgPool {
        &self.writing.pool
    }

    /// Connections for reading what changed, if that is to be done from a standby and one is known.
    pub(super) fn standby(&self) -> Option<&PgPool> {
        let is_known = self.chosen.lock().standby.is_some();
        (self.reads == StoreReads::Standby && is_known).then_some(&self.reading.pool)
    }

    /// How to connect to the server that takes writes.
    pub(super) fn options(&self) -> &PgConnectOptions {
        let last = self.chosen.lock().last;
        &self.all[last.unwrap_or(0)].options
    }

    /// Returns when another server takes writes.
    pub(super) async fn switched(&self) {
        self.switched.notified().await;
    }

    /// Makes sure that a server for writes is known.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], with what each server says.
    pub(super) async fn ensure(&self) -> Result<(), StoreError> {
        if self.all.len() == 1 {
            return Ok(());
        }
        let is_known = self.chosen.lock().primary.is_some();
        if is_known && !self.is_suspect.load(Ordering::Acquire) {
            return Ok(());
        }
        self.choose().await
    }

    /// Notes a failure that another server may not have, or another session with the same one.
    pub(super) fn suspect(&self, error: &StoreError) {
        if matches!(error, StoreError::ReadOnly(_)) {
            self.writing.renew();
        }
        if matches!(error, StoreError::Unreachable(_) | StoreError::ReadOnly(_)) {
            self.is_suspect.store(true, Ordering::Release);
        }
    }

    /// Asks all servers what they are, and uses the primary from then on.
    ///
    /// # Errors
    /// As [`Servers::ensure`].
    pub(super) async fn choose(&self) -> Result<(), StoreError> {
        if self.all.len() == 1 {
            return Ok(());
        }
        let _choosing = self.choosing.lock().await;
        if !self.is_asked_lately() {
            self.is_suspect.store(false, Ordering::Release);
            let roles = join_all(self.all.iter().map(Server::role)).await;
            self.take(&roles);
        }
        let chosen = self.chosen.lock();
        match chosen.primary {
            Some(_) => Ok(()),
            None => Err(StoreError::Unreachable(chosen.problem.clone())),
        }
    }

    fn is_asked_lately(&self) -> bool {
        match self.chosen.lock().asked {
            Some(asked) => asked.elapsed() < PAUSE,
            None => false,
        }
    }

    fn take(&self, roles: &[Result<Role, StoreError>]) {
        let mut chosen = self.chosen.lock();
        chosen.asked = Some(Instant::now());
        match newest_primary(roles, chosen.newest) {
            Some((place, line)) => {
                chosen.newest = Some(line);
                chosen.primary = Some(place);
                if let Some(last) = chosen.last.replace(place)
                    && last != place
                {
                    self.note_failover(last, place);
                }
                self.writing.lead_to(place, &self.all);
            }
            None => {
                chosen.primary = None;
                chosen.problem = self.problem(roles, chosen.newest);
                // So that the next request asks the servers again.
                self.is_suspect.store(true, Ordering::Release);
            }
        }
        chosen.standby = roles
            .iter()
            .position(|role| matches!(role, Ok(Role::Standby)));
        if let Some(place) = chosen.standby {
            self.reading.lead_to(place, &self.all);
        }
    }

    fn note_failover(&self, last: usize, place: usize) {
        self.failovers.inc();
        let (from, to) = (&self.all[last].name, &self.all[place].name);
        tracing::warn!(from, to, "another server of the store takes writes now");
        self.switched.notify_one();
    }

    /// Why none of them takes writes.
    fn problem(&self, roles: &[Result<Role, StoreError>], newest: Option<Line>) -> String {
        let mut states = Vec::with_capacity(self.all.len());
        for (server, role) in self.all.iter().zip(roles) {
            states.push(format!("{}: {}", server.name, state(role, newest)));
        }
        format!("no server takes writes ({})", states.join("; "))
    }

    /// What each server is now.
    pub(super) async fn status(&self) -> Vec<ServerStatus> {
        let roles = join_all(self.all.iter().map(Server::role)).await;
        let newest = newest_primary(&roles, None).map(|(_, line)| line);
        let mut statuses = Vec::with_capacity(roles.len());
        for (server, role) in self.all.iter().zip(&roles) {
            statuses.push(ServerStatus {
                server: server.name.clone(),
                state: state(role, newest),
            });
        }
        statuses
    }

    /// Of the connections for writes: how many there are, and how many of them are idle.
    pub(super) fn connections(&self) -> (u32, usize) {
        (self.writing.pool.size(), self.writing.pool.num_idle())
    }

    pub(super) async fn close(&self) {
        let closing = async {
            self.writing.pool.close().await;
            self.reading.pool.close().await;
        };
        let _ = timeout(CONNECT_LIMIT, closing).await;
    }
}

impl Door {
    /// To the first of these. Must be called within a runtime: the pool starts a task of its own.
    fn to_first(all: &[Server]) -> Self {
        let leads = Arc::new(Mutex::new(Leads {
            to: 0,
            since: Instant::now(),
        }));
        let meant = Arc::clone(&leads);
        let pool = PgPoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            .acquire_timeout(CONNECT_LIMIT)
            .idle_timeout(Duration::from_secs(60))
            // Tested below with a time limit: a connection that was cut never answers.
            .test_before_acquire(false)
            .before_acquire(move |connection, about| {
                let since = meant.lock().since;
                // An older connection leads to the former server, or belongs to a session that should
                // end.
                let is_meant = about.age < since.elapsed();
                async move {
                    let ping = timeout(PING_LIMIT, connection.ping());
                    Ok(is_meant && matches!(ping.await, Ok(Ok(()))))
                }
                .boxed()
            })
            .connect_lazy_with(all[0].options.clone());
        Door { pool, leads }
    }

    /// Lets go of the connections there are. A session that began while the server only read goes on
    /// that way when the server writes again.
    fn renew(&self) {
        let mut leads = self.leads.lock();
        // Several requests may report the same failure, and new connections should not be dropped
        // again.
        if leads.since.elapsed() >= PAUSE {
            leads.since = Instant::now();
        }
    }

    fn lead_to(&self, place: usize, all: &[Server]) {
        let mut leads = self.leads.lock();
        if leads.to != place {
            self.pool.set_connect_options(all[place].options.clone());
            *leads = Leads {
                to: place,
                since: Instant::now(),
            };
        }
    }
}

impl Server {
    async fn role(&self) -> Result<Role, StoreError> {
        let ask = async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            let row = sqlx::query(ROLE).fetch_one(&mut connection).await?;
            let role = match row.try_get::<Option<String>, _>("wal")? {
                None => Role::Standby,
                Some(wal) => Role::Primary(Line {
                    system: row.try_get("system")?,
                    number: line_number(&wal),
                }),
            };
            let _ = connection.close().await;
            Ok(role)
        };
        match timeout(PROBE_LIMIT, ask).await {
            Ok(role) => role,
            Err(_) => Err(StoreError::no_answer(PROBE_LIMIT)),
        }
    }
}

/// The name of the file that a primary writes its log to begins with the number of its line.
const ROLE: &str = "SELECT (SELECT system_identifier FROM pg_control_system()) AS system,
        CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_walfile_name(pg_current_wal_lsn()) END AS wal";

fn line_number(wal: &str) -> i64 {
    wal.get(..8)
        .and_then(|number| i64::from_str_radix(number, 16).ok())
        .unwrap_or_default()
}

/// The primary of the newest line. One of an older line than was seen is a primary that came back after a
/// standby had taken over: what is written there is lost.
fn newest_primary(
    roles: &[Result<Role, StoreError>],
    newest: Option<Line>,
) -> Option<(usize, Line)> {
    let mut best: Option<(usize, Line)> = None;
    for (place, role) in roles.iter().enumerate() {
        let Ok(Role::Primary(line)) = role else {
            continue;
        };
        if is_left_behind(*line, newest) {
            continue;
        }
        // Of equals the first in the address wins.
        if best.is_none_or(|(_, best)| line.number > best.number) {
            best = Some((place, *line));
        }
    }
    best
}

fn is_left_behind(line: Line, newest: Option<Line>) -> bool {
    match newest {
        // Numbers of different databases cannot be compared.
        Some(newest) => newest.system == line.system && newest.number > line.number,
        None => false,
    }
}

fn state(role: &Result<Role, StoreError>, newest: Option<Line>) -> String {
    match role {
        Ok(Role::Standby) => "standby".to_owned(),
        Ok(Role::Primary(line)) if is_left_behind(*line, newest) => {
            "a primary that another one has replaced; make it a standby of that one, or restart the nodes if it is \
             meant"
                .to_owned()
        }
        Ok(Role::Primary(_)) => "primary".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(system: i64, number: i64) -> Result<Role, StoreError> {
        Ok(Role::Primary(Line { system, number }))
    }

    fn away() -> Result<Role, StoreError> {
        Err(StoreError::Unreachable("refused".to_owned()))
    }

    #[test]
    fn the_primary_of_the_newest_line_is_chosen() {
        let place = |roles: &[_], newest| newest_primary(roles, newest).map(|(place, _)| place);
        let seen = |number| Some(Line { system: 7, number });
        assert_eq!(place(&[Ok(Role::Standby), primary(7, 1)], None), Some(1));
        assert_eq!(place(&[away(), Ok(Role::Standby)], seen(1)), None);
        // Two that both take writes: the one that was promoted later.
        assert_eq!(place(&[primary(7, 1), primary(7, 2)], None), Some(1));
        // The old one came back alone.
        assert_eq!(place(&[primary(7, 1), away()], seen(2)), None);
        // Another database, as of a backup that was read into a new server.
        assert_eq!(place(&[primary(8, 1), away()], seen(2)), Some(0));
    }

    #[test]
    fn a_line_is_read_of_the_name_of_its_files() {
        assert_eq!(line_number("0000001A00000003000000F2"), 26);
        assert_eq!(line_number("?"), 0);
    }
}
