//! How long embedders may take, which depends on who waits for them.

use std::time::Duration;

use toolscout_base::config::EndpointSettings;

/// Longest wait of a search for what the settings of an endpoint leave open.
const SEARCH: Duration = Duration::from_secs(1);
/// The same for whoever can wait.
const DISCOVERY: Duration = Duration::from_secs(10);
/// Seconds that `add` waits for a batch of tools.
const ADD_BATCH_S: u64 = 8;

/// How long embedders may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Longest wait for what the settings of an endpoint leave open: the model's name, the length of
    /// its vectors.
    discovery: Duration,
    /// Longest wait for a batch of tools in seconds; as the settings say where not set.
    batch_s: Option<u64>,
    /// Whether a batch of tools is tried again, for as long as the settings say.
    retries: bool,
    /// Whether requests are embedded like tools, without the time limit of a search.
    is_measuring: bool,
}

impl Patience {
    /// Of a search with this budget.
    pub fn of_search(budget: Option<Duration>) -> Self {
        Patience {
            discovery: budget.unwrap_or(SEARCH).min(SEARCH),
            batch_s: None,
            retries: false,
            is_measuring: false,
        }
    }

    /// Of a server. A batch of tools is tried once, since nothing else can be written meanwhile; the
    /// server tries again later.
    pub fn of_server() -> Self {
        Patience {
            discovery: DISCOVERY,
            ..Patience::of_search(None)
        }
    }

    /// Of adding tools: a batch of them is tried once and briefly.
    pub fn of_adding() -> Self {
        Patience {
            batch_s: Some(ADD_BATCH_S),
            ..Patience::of_server()
        }
    }

    /// Of embedding tools, as the settings say.
    pub fn of_embedding() -> Self {
        Patience {
            retries: true,
            ..Patience::of_server()
        }
    }

    /// Of measuring, where every request has to be answered.
    pub fn of_measuring() -> Self {
        Patience {
            is_measuring: true,
            ..Patience::of_embedding()
        }
    }

    /// Longest wait for what the settings of an endpoint leave open.
    pub fn discovery(&self) -> Duration {
        self.discovery
    }

    /// Whether requests are embedded like tools.
    pub fn is_measuring(&self) -> bool {
        self.is_measuring
    }

    /// The settings of an endpoint with no more patience than this.
    pub fn bound(&self, settings: EndpointSettings) -> EndpointSettings {
        // Never longer than the settings say, whoever waits.
        let timeout_s = settings.timeout_s.min(self.batch_s.unwrap_or(u64::MAX));
        let patience_s = if self.retries { settings.patience_s } else { 0 };
        EndpointSettings {
            timeout_s,
            patience_s,
            ..settings
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_embedding_waits_as_long_as_the_settings_say() {
        let settings = EndpointSettings::default();
        let bound = |patience: Patience| {
            let bound = patience.bound(settings.clone());
            (bound.timeout_s, bound.patience_s)
        };
        assert_eq!(bound(Patience::of_embedding()), (60, 120));
        assert_eq!(bound(Patience::of_measuring()), (60, 120));
        assert_eq!(bound(Patience::of_server()), (60, 0));
        assert_eq!(bound(Patience::of_adding()), (8, 0));
    }

    #[test]
    fn a_search_waits_no_longer_than_its_budget() {
        for (budget_ms, expected_ms) in [(None, 1000), (Some(150), 150), (Some(5000), 1000)] {
            let budget = budget_ms.map(Duration::from_millis);
            let patience = Patience::of_search(budget);
            assert_eq!(patience.discovery(), Duration::from_millis(expected_ms));
        }
    }
}
