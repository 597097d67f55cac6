//! The texts of a catalog that the model wrote and nobody has read: they speak of other servers' tools.

use parking_lot::Mutex;
use serde::Serialize;
use toolscout_finder::enrich::held::Held;
use utoipa::ToSchema;

/// Texts that are kept to be shown.
const MAX_EXAMPLES: usize = 20;

/// A text that is not stored before a person has read it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HeldText {
    /// The id of the tool that it was written for.
    id: String,
    /// The text.
    text: String,
    /// The id of the other server's tool, which it is nearer to.
    #[schema(example = "bank/pay")]
    speaks_of: String,
}

impl From<Held> for HeldText {
    fn from(held: Held) -> Self {
        HeldText {
            id: held.id.to_string(),
            text: held.text,
            speaks_of: held.speaks_of.to_string(),
        }
    }
}

/// What was held since the catalog was opened.
#[derive(Debug, Default)]
pub struct HeldTexts(Mutex<(usize, Vec<HeldText>)>);

impl HeldTexts {
    /// Counts texts, and says each in the log.
    pub fn add(&self, held: Vec<Held>) {
        let mut texts = self.0.lock();
        for one in held {
            tracing::warn!(tool = one.id.as_str(), "{}", one.reason());
            texts.0 += 1;
            // All are counted, but only the first ones are kept to be shown.
            if texts.1.len() < MAX_EXAMPLES {
                texts.1.push(one.into());
            }
        }
    }

    /// Their number, and the first of them.
    pub fn all(&self) -> (usize, Vec<HeldText>) {
        self.0.lock().clone()
    }
}
