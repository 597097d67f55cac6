//! The limits of open connections, and which one is closed to make room for a new one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::process::limits::Limits;
use toolscout_base::telemetry::Metrics;

/// Most connections that are being closed. They do not count as open, so they have a limit of their
/// own.
const MAX_ENDING: usize = 32;

/// The open connections, within their limits.
///
/// A new connection closes the one that has been without a request for longest. So connections that
/// send nothing, or a request without end, cannot keep others out.
pub struct Connections {
    state: Mutex<ConnectionTable>,
    /// A connection ended, or became idle.
    changed: Notify,
    max: usize,
    per_address: usize,
    per_loopback_address: usize,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct ConnectionTable {
    /// A logical clock: its ticks number connections and order the times they became idle.
    clock: u64,
    open: HashMap<u64, Entry>,
    /// The number of each connection without a request, by the tick at which it became idle.
    idle: BTreeMap<u64, u64>,
    /// Number of connections of each address, without those that are being closed.
    by_address: HashMap<IpAddr, usize>,
    ending: usize,
}

struct Entry {
    address: IpAddr,
    phase: Phase,
    has_had_request: bool,
    revoke: CancellationToken,
}

enum Phase {
    /// Without a request since this tick.
    Idle(u64),
    /// A request is in progress.
    Busy,
    /// Being closed to make room for another connection.
    Ending,
}

/// The decision about a new connection.
pub enum Admission {
    /// It is served.
    Admitted(ConnectionPermit),
    /// Every open connection has a request in progress; try again after [`Connections::changed`].
    Full,
    /// Its address has as many connections with requests in progress as it may have.
    Refused,
}

impl Connections {
    /// No connections yet, within these limits.
    pub fn new(limits: &Limits, metrics: Arc<Metrics>) -> Self {
        Connections {
            state: Mutex::default(),
            changed: Notify::new(),
            max: limits.max_connections,
            per_address: limits.connections_per_address,
            per_loopback_address: limits.connections_per_loopback_address,
            metrics,
        }
    }

    /// Decides about a new connection from this address.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Admission {
        let address = network(address);
        let bound = if address.is_loopback() {
            self.per_loopback_address
        } else {
            self.per_address
        };
        let mut state = self.state.lock();
        let own = state.by_address.get(&address).copied().unwrap_or_default();
        // An address at its limit only closes connections of its own.
        if own >= bound && !self.end_idlest(&mut state, Some(address)) {
            return Admission::Refused;
        }
        // Connections that are being closed make room before they are gone, up to a limit.
        let is_full = state.open.len() - state.ending >= self.max;
        if state.ending >= MAX_ENDING || (is_full && !self.end_idlest(&mut state, None)) {
            return Admission::Full;
        }
        self.metrics.connections.inc();
        Admission::Admitted(state.add(self, address))
    }

    /// Waits until a connection or a request has ended.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Closes the connection that has been idle for longest, of this address if one is given. False
    /// when none is idle.
    fn end_idlest(&self, state: &mut ConnectionTable, address: Option<IpAddr>) -> bool {
        // The map is sorted by the time the connections became idle.
        let mut oldest_first = state.idle.iter();
        let idlest = oldest_first.find(|(_, number)| match address {
            Some(address) => state.open[*number].address == address,
            None => true,
        });
        let Some((&since, &number)) = idlest else {
            return false;
        };
        state.idle.remove(&since);
        state.ending += 1;
        // Its task sees the token, closes the connection and removes the entry.
        if let Some(entry) = state.open.get_mut(&number) {
            entry.phase = Phase::Ending;
            entry.revoke.cancel();
            let address = entry.address;
            state.release(address);
        }
        self.metrics.rejected("idle_connection");
        true
    }
}

impl ConnectionTable {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn add(&mut self, connections: &Arc<Connections>, address: IpAddr) -> ConnectionPermit {
        let number = self.tick();
        let revoke = CancellationToken::new();
        *self.by_address.entry(address).or_default() += 1;
        self.idle.insert(number, number);
        let entry = Entry {
            address,
            phase: Phase::Idle(number),
            has_had_request: false,
            revoke: revoke.clone(),
        };
        self.open.insert(number, entry);
        ConnectionPermit {
            connections: Arc::clone(connections),
            number,
            revoke,
        }
    }

    /// Counts one connection less of this address.
    fn release(&mut self, address: IpAddr) {
        // Addresses without connections are removed, so that the map does not grow forever.
        if let Some(own) = self.by_address.get_mut(&address) {
            *own -= 1;
            if *own == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

/// The permit of an open connection, returned on drop.
pub struct ConnectionPermit {
    connections: Arc<Connections>,
    number: u64,
    revoke: CancellationToken,
}

impl ConnectionPermit {
    /// Waits until the connection has to close to make room for another one.
    pub async fn revoked(&self) {
        self.revoke.cancelled().await;
    }

    /// Whether a request has arrived on the connection.
    pub fn has_had_request(&self) -> bool {
        let state = self.connections.state.lock();
        match state.open.get(&self.number) {
            Some(entry) => entry.has_had_request,
            None => false,
        }
    }

    /// Marks the connection as busy; `None` when the permit is revoked already.
    pub fn begin_request(&self) -> Option<InProgress> {
        let mut state = self.connections.state.lock();
        let entry = state.open.get_mut(&self.number)?;
        let Phase::Idle(since) = entry.phase else {
            return None;
        };
        entry.phase = Phase::Busy;
        entry.has_had_request = true;
        state.idle.remove(&since);
        Some(InProgress {
            connections: Arc::clone(&self.connections),
            number: self.number,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        if let Some(entry) = state.open.remove(&self.number) {
            match entry.phase {
                // Its address was released when the closing started.
                Phase::Ending => state.ending -= 1,
                Phase::Busy => state.release(entry.address),
                Phase::Idle(since) => {
                    state.idle.remove(&since);
                    state.release(entry.address);
                }
            }
        }
        self.connections.metrics.connections.dec();
        self.connections.changed.notify_one();
    }
}

/// A request in progress. When it is dropped, its connection is idle again.
pub struct InProgress {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        let since = state.tick();
        // The connection may have ended before its answer.
        let Some(entry) = state.open.get_mut(&self.number) else {
            return;
        };
        entry.phase = Phase::Idle(since);
        state.idle.insert(since, self.number);
        self.connections.changed.notify_one();
    }
}

/// The body of an answer. Its request is in progress until the body has been sent.
pub struct BusyBody {
    body: Body,
    _in_progress: InProgress,
}

impl BusyBody {
    /// The body of the answer to this request.
    pub fn new(body: Body, in_progress: InProgress) -> Self {
        BusyBody {
            body,
            _in_progress: in_progress,
        }
    }
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The address, or for IPv6 its /64 network, which is what one subscriber has.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(max: usize, per_address: usize) -> Arc<Connections> {
        let limits = Limits {
            max_connections: max,
            connections_per_address: per_address,
            ..Limits::default()
        };
        Arc::new(Connections::new(&limits, Arc::new(Metrics::new())))
    }

    fn admitted(connections: &Arc<Connections>, address: &str) -> ConnectionPermit {
        match connections.admit(address.parse().unwrap()) {
            Admission::Admitted(permit) => permit,
            Admission::Full => panic!("full"),
            Admission::Refused => panic!("refused"),
        }
    }

    #[test]
    fn the_idlest_connection_is_closed_and_a_busy_one_is_not() {
        let open = connections(2, 2);
        let [busy, idle] = ["198.51.100.1", "198.51.100.2"].map(|address| admitted(&open, address));
        let request = busy.begin_request().unwrap();
        let third = admitted(&open, "198.51.100.3");
        assert!(idle.revoke.is_cancelled() && !busy.revoke.is_cancelled());
        assert!(idle.begin_request().is_none());
        let another = third.begin_request().unwrap();
        assert!(matches!(
            open.admit("198.51.100.4".parse().unwrap()),
            Admission::Full
        ));
        drop((request, another));
        // Of the two the first has been idle for longer.
        admitted(&open, "198.51.100.4");
        assert!(busy.revoke.is_cancelled() && !third.revoke.is_cancelled());
    }

    #[test]
    fn an_address_has_a_limit_of_its_own_and_ipv6_counts_by_network() {
        let open = connections(16, 2);
        let other = admitted(&open, "2001:db8:0:2::1");
        let first = admitted(&open, "2001:db8:0:1::1");
        let second = admitted(&open, "2001:db8:0:1:ffff::2");
        let third = admitted(&open, "2001:db8:0:1::3");
        assert!(first.revoke.is_cancelled() && !other.revoke.is_cancelled());
        let requests = [
            second.begin_request().unwrap(),
            third.begin_request().unwrap(),
        ];
        assert!(matches!(
            open.admit("2001:db8:0:1::4".parse().unwrap()),
            Admission::Refused
        ));
        drop((requests, first, second, third));
        assert_eq!(open.state.lock().by_address.len(), 1);
        drop(other);
        let state = open.state.lock();
        assert!(
            state.open.is_empty()
                && state.idle.is_empty()
                && state.by_address.is_empty()
                && state.ending == 0
        );
    }

    #[test]
    fn addresses_are_compared_in_canonical_form() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("::ffff:127.0.0.1"), "127.0.0.1");
        assert_eq!(of("::1"), "::1");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
