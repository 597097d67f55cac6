//! Ends a measurement whose embedder went away.

use std::sync::atomic::{AtomicUsize, Ordering};

use toolscout_index::hit::DegradedCause;
use toolscout_index::{Error, Results};

use super::arms::Arm;
use super::run::{Detail, Engine};

/// Answers in a row without their embedder after which no more are asked for. Each may have taken as
/// long as the settings let a request wait.
const MOST_FAILURES: usize = 3;

/// An engine that fails once its embedder did not answer several times in a row. A search goes on
/// without a leg that failed; figures of such searches would be those of another arm.
pub struct Watched<'a> {
    engine: &'a dyn Engine,
    failures: AtomicUsize,
}

impl<'a> Watched<'a> {
    /// Watches this engine.
    pub fn new(engine: &'a dyn Engine) -> Self {
        Watched {
            engine,
            failures: AtomicUsize::new(0),
        }
    }
}

impl Engine for Watched<'_> {
    fn answer(
        &self,
        text: &str,
        arm: &Arm,
        depth: usize,
        detail: Detail,
    ) -> toolscout_index::Result<Results> {
        let results = self.engine.answer(text, arm, depth, detail)?;
        let cause = results.degraded.as_ref().map(|degraded| &degraded.cause);
        let Some(DegradedCause::EmbedderFailed(reason)) = cause else {
            // One answer shows that the embedder is there.
            self.failures.store(0, Ordering::Relaxed);
            return Ok(results);
        };
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        // An endpoint may miss a request now and then; the report counts such answers.
        if failures < MOST_FAILURES {
            return Ok(results);
        }
        Err(Error::Embedder {
            model: format!("of the arm {}", arm.name),
            reason: format!(
                "{failures} requests in a row failed, so the measurement ends: {reason}"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use toolscout_index::hit::Degraded;

    use super::*;
    use crate::dataset::testing::set;
    use crate::run::testing::{WordOverlap, arm};

    /// Fails for the texts `away`.
    struct Failing(WordOverlap);

    impl Engine for Failing {
        fn answer(
            &self,
            text: &str,
            arm: &Arm,
            depth: usize,
            detail: Detail,
        ) -> toolscout_index::Result<Results> {
            let mut results = self.0.answer(text, arm, depth, detail)?;
            if text == "away" {
                results.degraded = Some(Degraded {
                    cause: DegradedCause::EmbedderFailed("connection refused".into()),
                    pending_embeddings: 0,
                });
            }
            Ok(results)
        }
    }

    #[test]
    fn only_failures_in_a_row_end_a_measurement() {
        let set = set(&[("a", "x")], &[("q", "x", &["a"])]);
        for (texts, fails) in [
            (&["away", "away", "x", "away", "away"][..], false),
            (&["x", "away", "away", "away"], true),
            (&["x", "x"], false),
            (&["away", "x", "away", "away", "away"], true),
        ] {
            let failing = Failing(WordOverlap::over(&set));
            let watched = Watched::new(&failing);
            let ask = |text: &&str| watched.answer(text, &arm("dense"), 1, Detail::Plain);
            let answers: Result<Vec<Results>, Error> = texts.iter().map(ask).collect();
            assert_eq!(answers.is_err(), fails, "{texts:?}");
            if let Err(error) = answers {
                let message = error.to_string();
                assert!(message.contains("connection refused"), "{message}");
            }
        }
    }
}
