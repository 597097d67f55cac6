//! Inputs made of others by chance, the same for the same seed.

/// Longest input; what needs more is found by tests that build it on purpose.
const MAX_BYTES: usize = 8 << 10;
/// Mutations of one input, at most.
const MAX_STEPS: usize = 8;
/// Inputs that have been made and may be changed further.
const MAX_KEPT: usize = 512;

/// Pieces that formats give a meaning to.
const PIECES: [&str; 52] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\",
    "\n",
    "\r\n",
    "\n\n",
    "\0",
    " ",
    "-",
    "0",
    "1e999",
    "-0.0",
    "18446744073709551616",
    "null",
    "true",
    "\"\\ud800\"",
    "\\u0000",
    "\u{202e}",
    "\u{feff}",
    "\u{3164}",
    "é",
    "天",
    "🙂",
    "&",
    "*",
    "<<:",
    "? ",
    "|\n",
    "#/",
    "~1",
    "%2f",
    "\"$ref\":\"#\"",
    "{}",
    "[]",
    "\"name\":\"a\"",
    "\"type\":\"object\"",
    "\"tools\":[",
    "data:",
    "data: [DONE]\n\n",
    "<",
    "</",
    "<a href=x>",
    "<!--",
    "&amp",
    "${",
    "```json\n",
    "<think>",
];

/// Makes inputs of a corpus.
pub struct Mutator {
    state: u64,
    inputs: Vec<Vec<u8>>,
}

impl Mutator {
    /// Begins with these inputs.
    pub fn new(seed: u64, corpus: &[Vec<u8>]) -> Self {
        Mutator {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            inputs: corpus.to_vec(),
        }
    }

    /// The next input, one of those before with some changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let from = self.below(self.inputs.len());
        let mut input = self.inputs[from].clone();
        for _ in 0..=self.below(MAX_STEPS) {
            self.change(&mut input);
        }
        input.truncate(MAX_BYTES);
        // One in sixteen is changed further later on, so that inputs wander from the corpus.
        if self.below(16) == 0 {
            match self.inputs.len() < MAX_KEPT {
                true => self.inputs.push(input.clone()),
                false => self.inputs[from] = input.clone(),
            }
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = (at + 1 + self.below(32)).min(input.len());
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.next() as u8,
            2 if at < end => drop(input.drain(at..end)),
            3 if at < end => {
                let part = input[at..end].repeat(1 + self.below(8));
                self.insert(input, &part);
            }
            4 => {
                let from = self.below(self.inputs.len());
                let other = self.inputs[from].clone();
                let start = self.below(other.len() + 1);
                let end = (start + self.below(256)).min(other.len());
                self.insert(input, &other[start..end]);
            }
            5 => input.truncate(at),
            _ => {
                let piece = PIECES[self.below(PIECES.len())];
                self.insert(input, piece.as_bytes());
            }
        }
    }

    fn insert(&mut self, input: &mut Vec<u8>, part: &[u8]) {
        let at = self.below(input.len() + 1);
        input.splice(at..at, part.iter().copied());
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// xorshift64*.
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
