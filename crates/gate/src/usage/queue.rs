//! A bounded queue whose receiver takes everything at once, and not each message as it comes: waking a
//! thread takes longer than all else that recording costs a search.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// How long messages are collected before they are taken.
const COLLECT: Duration = Duration::from_millis(200);

/// The sending end. Clones send to the same queue, which closes with the last of them.
pub struct Sender<T>(Arc<Closing<T>>);

/// The receiving end.
pub struct Receiver<T>(Arc<Queue<T>>);

struct Closing<T>(Arc<Queue<T>>);

struct Queue<T> {
    most: usize,
    state: Mutex<Buffer<T>>,
    /// Is told of the first message, of a half full queue, and of what is urgent.
    changed: Condvar,
}

struct Buffer<T> {
    waiting: Vec<T>,
    is_urgent: bool,
    is_closed: bool,
}

/// A queue of this many messages.
pub fn bounded<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(Queue {
        most,
        state: Mutex::new(Buffer {
            waiting: Vec::new(),
            is_urgent: false,
            is_closed: false,
        }),
        changed: Condvar::new(),
    });
    let closing = Closing(Arc::clone(&queue));
    (Sender(Arc::new(closing)), Receiver(queue))
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Sender<T> {
    /// Sends a message that may wait; false if the queue is full.
    #[must_use]
    pub fn try_send(&self, message: T) -> bool {
        let queue = &self.0.0;
        let mut state = queue.state.lock();
        let waiting = state.waiting.len();
        if waiting >= queue.most {
            return false;
        }
        state.waiting.push(message);
        // Unlocked first, or the receiver would wake up to wait for the lock.
        drop(state);
        if waiting == 0 || waiting == queue.most / 2 {
            queue.changed.notify_one();
        }
        true
    }

    /// Sends a message that is taken at once, also if the queue is full: whoever sends it waits for what
    /// comes of it, so there are few.
    pub fn send_urgently(&self, message: T) {
        let queue = &self.0.0;
        let mut state = queue.state.lock();
        state.waiting.push(message);
        state.is_urgent = true;
        drop(state);
        queue.changed.notify_one();
    }
}

impl<T> Drop for Closing<T> {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl<T> Receiver<T> {
    /// The messages that wait, in their order; it waits for the first of them as long as this, or for
    /// ever. `None` once the queue is closed and empty.
    pub fn take(&self, patience: Option<Duration>) -> Option<Vec<T>> {
        let queue = &self.0;
        let begun = Instant::now();
        let mut state = queue.state.lock();
        while state.waiting.is_empty() && !state.is_closed {
            let left = patience.map(|patience| patience.saturating_sub(begun.elapsed()));
            if left == Some(Duration::ZERO) {
                return Some(Vec::new());
            }
            queue.wait(&mut state, left);
        }
        // The first one is there. Others are collected, so that waking up once serves many.
        let first = Instant::now();
        while !state.is_urgent && !state.is_closed && state.waiting.len() <= queue.most / 2 {
            let left = COLLECT.saturating_sub(first.elapsed());
            if left.is_zero() {
                break;
            }
            queue.changed.wait_for(&mut state, left);
        }
        state.is_urgent = false;
        let waiting = mem::take(&mut state.waiting);
        (!waiting.is_empty()).then_some(waiting)
    }
}

impl<T> Queue<T> {
    fn wait(&self, state: &mut MutexGuard<'_, Buffer<T>>, patience: Option<Duration>) {
        match patience {
            None => self.changed.wait(state),
            Some(patience) => {
                self.changed.wait_for(state, patience);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn messages_are_taken_together_and_in_order_until_the_queue_is_closed() {
        let (sender, receiver) = bounded(3);
        let other = sender.clone();
        assert!(sender.try_send(1) && other.try_send(2) && sender.try_send(3));
        assert!(!other.try_send(4), "it is full");
        sender.send_urgently(5);
        assert_eq!(receiver.take(None), Some(vec![1, 2, 3, 5]));
        assert_eq!(receiver.take(Some(Duration::ZERO)), Some(Vec::new()));
        assert!(sender.try_send(6));
        drop((sender, other));
        assert_eq!(receiver.take(None), Some(vec![6]));
        assert_eq!(receiver.take(None), None);
    }

    #[test]
    fn nothing_that_several_threads_send_is_lost() {
        let (sender, receiver) = bounded(100_000);
        for part in 0..4 {
            let sender = sender.clone();
            thread::spawn(move || {
                (0..5_000).for_each(|n| assert!(sender.try_send(part * 5_000 + n)))
            });
        }
        drop(sender);
        let mut all = Vec::new();
        while let Some(taken) = receiver.take(None) {
            all.extend(taken);
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..20_000));
    }
}
