//! What is recorded of the use of tools.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// How long the use of tools is kept where the settings do not say.
const DEFAULT_KEEP_DAYS: u32 = 90;
/// The longest time.
const MAX_KEEP_DAYS: u32 = 3_650;

/// The table `[usage]` of the settings. What is absent keeps its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UsageSettings {
    /// Whether the use of tools is recorded; without it, it is.
    pub enabled: Option<bool>,
    /// For how many days it is kept; without it 90.
    pub keep_days: Option<u32>,
    /// Whether the texts of requests are stored that no tool served; without it they are not.
    pub queries: Option<bool>,
}

impl UsageSettings {
    /// These values; absent ones from the others.
    pub fn or(self, other: UsageSettings) -> Self {
        UsageSettings {
            enabled: self.enabled.or(other.enabled),
            keep_days: self.keep_days.or(other.keep_days),
            queries: self.queries.or(other.queries),
        }
    }

    /// Whether the use of tools is recorded.
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    /// For how many days it is kept.
    pub fn keep_days(&self) -> u32 {
        self.keep_days.unwrap_or(DEFAULT_KEEP_DAYS)
    }

    /// Whether texts of requests are stored.
    pub fn stores_queries(&self) -> bool {
        self.queries.unwrap_or(false)
    }

    /// Fails for values that cannot be.
    ///
    /// # Errors
    /// For a number out of range.
    pub fn check(&self) -> Result<()> {
        let days = self.keep_days();
        if !(1..=MAX_KEEP_DAYS).contains(&days) {
            bail!("usage.keep_days is {days}, it must be from 1 to {MAX_KEEP_DAYS}");
        }
        Ok(())
    }
}
