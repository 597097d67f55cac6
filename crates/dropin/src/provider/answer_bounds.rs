//! How much of a provider's answer is held: of one, and of all at a time.

use std::sync::Arc;

use memchr::memchr3_iter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::dialect::MAX_PARTS;
use crate::wire::failure::Failure;

/// Bytes that one permit of the memory stands for.
const UNIT: usize = 1024;
/// What a value of an answer takes in memory besides its bytes.
const VALUE_BYTES: usize = 100;
/// Bytes of an event around its text.
const EVENT_BYTES: usize = 256;
/// How many answers of the most bytes fit into memory at a time.
const LONGEST_AT_A_TIME: usize = 4;

/// The bounds of an answer whose tools are deferred, over all its rounds.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLimits {
    /// Most bytes that the provider sends.
    pub bytes: usize,
    /// Most calls, hidden ones included.
    pub calls: usize,
}

impl Default for AnswerLimits {
    fn default() -> Self {
        AnswerLimits {
            bytes: 16 << 20,
            calls: 512,
        }
    }
}

/// The memory for the answers that are being read.
#[derive(Clone, Debug)]
pub(crate) struct AnswerMemory {
    limits: AnswerLimits,
    free: Arc<Semaphore>,
}

/// One answer, as far as it was read.
#[derive(Debug)]
pub(crate) struct HeldAnswer {
    memory: AnswerMemory,
    /// Bytes that are held, or whose text is.
    bytes: usize,
    /// What they take in memory.
    size: usize,
    calls: usize,
    /// Given back with the answer.
    permit: Option<OwnedSemaphorePermit>,
}

impl AnswerMemory {
    /// Memory for some of the longest answers.
    pub fn new(limits: AnswerLimits) -> Self {
        let units = limits.bytes.saturating_mul(LONGEST_AT_A_TIME) / UNIT;
        AnswerMemory {
            limits,
            free: Arc::new(Semaphore::new(units.clamp(1, Semaphore::MAX_PERMITS))),
        }
    }

    /// Room for an answer of which nothing has come.
    pub fn begin(&self) -> HeldAnswer {
        HeldAnswer {
            memory: self.clone(),
            bytes: 0,
            size: 0,
            calls: 0,
            permit: None,
        }
    }
}

impl HeldAnswer {
    /// Counts what has come.
    ///
    /// # Errors
    /// When the answer is too long, or the answers that are being read take all memory for them.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.bytes += bytes.len();
        if self.bytes > self.memory.limits.bytes {
            return Err(Failure::too_long(&format!(
                "it has more than {} bytes; --max-answer sets the bound",
                self.memory.limits.bytes
            )));
        }
        self.size += size_of(bytes);
        self.reserve()
    }

    /// Notes that an event that has come was passed on to the client. Of it, no more than the text is
    /// still held.
    pub fn pass_on(&mut self, event: &[u8]) {
        // An event has some hundred bytes around its text.
        let text = (event.len() / 4).max(event.len().saturating_sub(EVENT_BYTES));
        self.bytes = self.bytes.saturating_sub(event.len() - text);
        self.size = self.size.saturating_sub(size_of(event) - text);
        // Taking less memory never fails.
        let _ = self.reserve();
    }

    /// Takes as much of the memory as the answer needs now, or gives back what it no longer needs.
    fn reserve(&mut self) -> Result<(), Failure> {
        let units = self.size / UNIT;
        let held = self
            .permit
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        if units <= held {
            let permit = self.permit.as_mut();
            drop(permit.and_then(|permit| permit.split(held - units)));
            return Ok(());
        }
        let more = u32::try_from(units - held).unwrap_or(u32::MAX);
        let free = Arc::clone(&self.memory.free);
        // Without waiting: answers that wait for each other's memory might wait for ever.
        let permit = free.try_acquire_many_owned(more).map_err(|_| {
            let message = "the answers that are being read take all memory for them; ask again later, or for less";
            Failure::new(503, "overloaded", message)
        })?;
        match &mut self.permit {
            Some(held) => held.merge(permit),
            None => self.permit = Some(permit),
        }
        Ok(())
    }

    /// Bytes that are held, or whose text is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks the parts of a round that is being read, and its calls.
    ///
    /// # Errors
    /// When there are too many.
    pub fn allow(&self, parts: usize, calls: usize) -> Result<(), Failure> {
        let most = self.memory.limits.calls;
        if self.calls + calls > most {
            return Err(Failure::too_many_calls(most));
        }
        if parts > MAX_PARTS {
            return Err(Failure::too_long(&format!(
                "it has more than {MAX_PARTS} parts"
            )));
        }
        Ok(())
    }

    /// Counts the calls of a round.
    ///
    /// # Errors
    /// When the answer has too many.
    pub fn add_calls(&mut self, calls: usize) -> Result<(), Failure> {
        self.allow(0, calls)?;
        self.calls += calls;
        Ok(())
    }
}

/// What these bytes of JSON take in memory, about.
fn size_of(bytes: &[u8]) -> usize {
    let values = memchr3_iter(b'{', b'[', b',', bytes);
    bytes.len() + VALUE_BYTES * values.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: usize) -> AnswerMemory {
        AnswerMemory::new(AnswerLimits { bytes, calls: 3 })
    }

    #[test]
    fn one_answer_and_all_together_are_bounded_and_give_their_memory_back() {
        let memory = memory(64 << 10);
        let mut answer = memory.begin();
        answer.add(&[b'x'; 64 << 10]).unwrap();
        assert_eq!(answer.add(b"x").unwrap_err().code, "answer_too_long");
        drop(answer);
        // Small values take more than their bytes.
        for values in ["[],", "{\"a\":[", "1,2,"] {
            let text = values.repeat(2_000);
            let mut all: Vec<HeldAnswer> = (0..20).map(|_| memory.begin()).collect();
            let refused = all
                .iter_mut()
                .find_map(|answer| answer.add(text.as_bytes()).err());
            assert_eq!(refused.map(|failure| failure.status), Some(503), "{values}");
        }
        memory.begin().add(&[b'x'; 64 << 10]).unwrap();
    }

    #[test]
    fn long_answers_in_small_events_fit() {
        let memory = memory(64 << 10);
        let event = br#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"word "}}]}"#;
        let mut answer = memory.begin();
        for _ in 0..3_000 {
            answer.add(event).unwrap();
            answer.pass_on(event);
        }
        let held = memory.free.available_permits();
        drop(answer);
        assert!(held < memory.free.available_permits());
    }

    #[test]
    fn calls_of_all_rounds_count() {
        let mut answer = memory(1).begin();
        answer.add_calls(2).unwrap();
        answer.add_calls(1).unwrap();
        assert_eq!(answer.add_calls(1).unwrap_err().code, "answer_too_long");
    }
}
