//! The connections that are open, and which of them makes room for a new one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::http::Limits;
use crate::telemetry::Metrics;

/// Connections that were told to end and have not: they are beyond the bound, and so have one of
/// their own.
const MAX_ENDING: usize = 32;

/// The open connections, within their bounds.
///
/// One without a request in progress makes room for a new one, the one that has waited longest
/// first: so many that send nothing, or a request without end, keep nobody out.
pub struct Connections {
    state: Mutex<State>,
    /// A connection ended, or has no request any more.
    changed: Notify,
    max: usize,
    per_address: usize,
    per_loopback_address: usize,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    /// Counts what happens, so that numbers order connections and their idle times.
    clock: u64,
    open: HashMap<u64, Entry>,
    /// By when they became idle, the number of each connection without a request in progress.
    idle: BTreeMap<u64, u64>,
    /// Connections of each address, those that are ending left out.
    by_address: HashMap<IpAddr, usize>,
    ending: usize,
}

struct Entry {
    address: IpAddr,
    phase: Phase,
    has_asked: bool,
    end: CancellationToken,
}

enum Phase {
    /// Since this time there is no request in progress.
    Idle(u64),
    Busy,
    /// Another one has its place.
    Ending,
}

/// What becomes of a new connection.
pub enum Admission {
    /// It has a place.
    Admitted(Place),
    /// Every place has a request in progress; worth asking again after [`Connections::changed`].
    Full,
    /// Its address has as many connections with requests in progress as one may have.
    Refused,
}

impl Connections {
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

    /// A place for a connection from this address.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Admission {
        let address = network(address);
        let bound = if address.is_loopback() {
            self.per_loopback_address
        } else {
            self.per_address
        };
        let mut state = self.lock();
        let own = state.by_address.get(&address).copied().unwrap_or_default();
        if own >= bound && !self.end_idlest(&mut state, Some(address)) {
            return Admission::Refused;
        }
        let is_full = state.open.len() - state.ending >= self.max;
        if state.ending >= MAX_ENDING || (is_full && !self.end_idlest(&mut state, None)) {
            return Admission::Full;
        }
        self.metrics.connections.inc();
        Admission::Admitted(state.add(self, address))
    }

    /// Waits until a connection ended, or its request did.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Ends the connection that is idle for longest, of this address where one is given; false
    /// where none is idle.
    fn end_idlest(&self, state: &mut State, address: Option<IpAddr>) -> bool {
        let is_meant =
            |number: &u64| address.is_none_or(|address| state.open[number].address == address);
        let Some((&since, &number)) = state.idle.iter().find(|(_, number)| is_meant(number)) else {
            return false;
        };
        state.idle.remove(&since);
        state.ending += 1;
        if let Some(entry) = state.open.get_mut(&number) {
            entry.phase = Phase::Ending;
            entry.end.cancel();
            let address = entry.address;
            state.leave(address);
        }
        self.metrics.rejected("idle_connection");
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn add(&mut self, connections: &Arc<Connections>, address: IpAddr) -> Place {
        let number = self.tick();
        let end = CancellationToken::new();
        *self.by_address.entry(address).or_default() += 1;
        self.idle.insert(number, number);
        let entry = Entry {
            address,
            phase: Phase::Idle(number),
            has_asked: false,
            end: end.clone(),
        };
        self.open.insert(number, entry);
        Place {
            connections: Arc::clone(connections),
            number,
            end,
        }
    }

    /// One connection less of this address.
    fn leave(&mut self, address: IpAddr) {
        let left = self
            .by_address
            .get(&address)
            .copied()
            .unwrap_or_default()
            .saturating_sub(1);
        if left == 0 {
            self.by_address.remove(&address);
        } else {
            self.by_address.insert(address, left);
        }
    }
}

/// A connection's place among those that are open; given back on drop.
pub struct Place {
    connections: Arc<Connections>,
    number: u64,
    end: CancellationToken,
}

impl Place {
    /// Waits until another connection takes the place.
    pub async fn taken(&self) {
        self.end.cancelled().await;
    }

    /// True once a request has come.
    pub fn has_asked(&self) -> bool {
        self.connections
            .lock()
            .open
            .get(&self.number)
            .is_some_and(|entry| entry.has_asked)
    }

    /// A request has come; `None` when the place is another's already.
    pub fn begin_request(&self) -> Option<InProgress> {
        let mut state = self.connections.lock();
        let entry = state.open.get_mut(&self.number)?;
        let Phase::Idle(since) = entry.phase else {
            return None;
        };
        entry.phase = Phase::Busy;
        entry.has_asked = true;
        state.idle.remove(&since);
        Some(InProgress {
            connections: Arc::clone(&self.connections),
            number: self.number,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        if let Some(entry) = state.open.remove(&self.number) {
            match entry.phase {
                Phase::Ending => state.ending -= 1,
                Phase::Busy => state.leave(entry.address),
                Phase::Idle(since) => {
                    state.idle.remove(&since);
                    state.leave(entry.address);
                }
            }
        }
        self.connections.metrics.connections.dec();
        self.connections.changed.notify_one();
    }
}

/// A request in progress; on drop its connection is idle again.
pub struct InProgress {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
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

/// The body of an answer, in progress until its end.
pub struct Held {
    body: Body,
    _in_progress: InProgress,
}

impl Held {
    pub fn new(body: Body, in_progress: InProgress) -> Self {
        Held {
            body,
            _in_progress: in_progress,
        }
    }
}

impl HttpBody for Held {
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

/// The address, or for IPv6 its network of 64 bits, which is what one subscriber has.
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

    fn admitted(connections: &Arc<Connections>, address: &str) -> Place {
        match connections.admit(address.parse().unwrap()) {
            Admission::Admitted(place) => place,
            Admission::Full => panic!("full"),
            Admission::Refused => panic!("refused"),
        }
    }

    #[test]
    fn the_idlest_makes_room_and_one_with_a_request_does_not() {
        let open = connections(2, 2);
        let [busy, idle] = ["198.51.100.1", "198.51.100.2"].map(|address| admitted(&open, address));
        let request = busy.begin_request().unwrap();
        let third = admitted(&open, "198.51.100.3");
        assert!(idle.end.is_cancelled() && !busy.end.is_cancelled());
        assert!(idle.begin_request().is_none());
        let another = third.begin_request().unwrap();
        assert!(matches!(
            open.admit("198.51.100.4".parse().unwrap()),
            Admission::Full
        ));
        drop((request, another));
        // Of the two the first has been idle for longer.
        admitted(&open, "198.51.100.4");
        assert!(busy.end.is_cancelled() && !third.end.is_cancelled());
    }

    #[test]
    fn an_address_has_a_bound_of_its_own_and_ipv6_counts_by_network() {
        let open = connections(16, 2);
        let other = admitted(&open, "2001:db8:0:2::1");
        let first = admitted(&open, "2001:db8:0:1::1");
        let second = admitted(&open, "2001:db8:0:1:ffff::2");
        let third = admitted(&open, "2001:db8:0:1::3");
        assert!(first.end.is_cancelled() && !other.end.is_cancelled());
        let requests = [
            second.begin_request().unwrap(),
            third.begin_request().unwrap(),
        ];
        assert!(matches!(
            open.admit("2001:db8:0:1::4".parse().unwrap()),
            Admission::Refused
        ));
        drop((requests, first, second, third));
        assert_eq!(open.lock().by_address.len(), 1);
        drop(other);
        let state = open.lock();
        assert!(
            state.open.is_empty()
                && state.idle.is_empty()
                && state.by_address.is_empty()
                && state.ending == 0
        );
    }

    #[test]
    fn an_address_is_one_however_it_is_written() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("::ffff:127.0.0.1"), "127.0.0.1");
        assert_eq!(of("::1"), "::1");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
