//! How long calls may take.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use toolscout_base::config::{Limits, SECONDS};

/// The time limits of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// Without progress: from one report to the next. Of a tool that cannot report any, the whole call.
    pub idle: Duration,
    /// A call of an MCP tool until its first report. Most servers report nothing, and MCP has no
    /// way to say so beforehand.
    pub unreported: Duration,
    /// A call as a whole.
    pub total: Duration,
}

impl CallTimes {
    /// The limits that an agent's settings have, or the default ones.
    pub fn of(limits: &Limits) -> Self {
        CallTimeSettings::from(limits).applied_to(CallTimes::default())
    }
}

impl Default for CallTimes {
    fn default() -> Self {
        CallTimes {
            idle: Duration::from_secs(60),
            unreported: Duration::from_secs(300),
            total: Duration::from_secs(600),
        }
    }
}

/// The settings `call_timeout_s` and `call_timeout_total_s` of an agent, a gateway or a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTimeSettings {
    /// Most seconds without progress.
    pub timeout: Option<Seconds>,
    /// Most seconds in all.
    pub total: Option<Seconds>,
}

impl CallTimeSettings {
    /// These settings, and those of `others` where these are not set.
    pub fn or(self, others: CallTimeSettings) -> Self {
        CallTimeSettings {
            timeout: self.timeout.or(others.timeout),
            total: self.total.or(others.total),
        }
    }

    /// Replaces what is set. A timeout that is longer than the whole call lengthens that, unless the
    /// whole is set too.
    pub fn applied_to(self, times: CallTimes) -> CallTimes {
        let (mut idle, mut unreported) = (times.idle, times.unreported);
        if let Some(timeout) = self.timeout {
            (idle, unreported) = (timeout.duration(), timeout.duration());
        }
        let total = match self.total {
            Some(total) => total.duration(),
            None => times.total.max(idle),
        };
        // No wait for progress is longer than the whole call.
        CallTimes {
            idle: idle.min(total),
            unreported: unreported.min(total),
            total,
        }
    }
}

impl From<&Limits> for CallTimeSettings {
    /// The limits of calls in an agent's settings, whose range is checked where they are read.
    fn from(limits: &Limits) -> Self {
        let (timeout, total) = (limits.call_timeout_s, limits.call_timeout_total_s);
        CallTimeSettings {
            timeout: timeout.map(Seconds::try_from).and_then(Result::ok),
            total: total.map(Seconds::try_from).and_then(Result::ok),
        }
    }
}

/// A time limit in seconds: at least one, at most a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "u64")]
pub struct Seconds(u64);

impl Seconds {
    /// The limit as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl TryFrom<u64> for Seconds {
    type Error = String;

    fn try_from(seconds: u64) -> Result<Self, String> {
        if SECONDS.contains(&seconds) {
            return Ok(Seconds(seconds));
        }
        let (least, most) = (SECONDS.start(), SECONDS.end());
        Err(format!(
            "{seconds} is no time limit; give from {least} to {most} seconds"
        ))
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<u64>() {
            Ok(seconds) => Seconds::try_from(seconds),
            Err(_) => Err(format!("{text:?} is no number of seconds")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(timeout: Option<u64>, total: Option<u64>) -> (u64, u64, u64) {
        let seconds = |seconds: Option<u64>| seconds.map(|s| Seconds::try_from(s).unwrap());
        let settings = CallTimeSettings {
            timeout: seconds(timeout),
            total: seconds(total),
        };
        let CallTimes {
            idle,
            unreported,
            total,
        } = settings.applied_to(CallTimes::default());
        (idle.as_secs(), unreported.as_secs(), total.as_secs())
    }

    #[test]
    fn one_setting_is_enough_to_change_a_limit() {
        assert_eq!(times(None, None), (60, 300, 600));
        assert_eq!(times(Some(20), None), (20, 20, 600));
        assert_eq!(times(Some(900), None), (900, 900, 900));
        assert_eq!(times(None, Some(100)), (60, 100, 100));
        assert_eq!(times(Some(900), Some(30)), (30, 30, 30));
        assert_eq!(times(None, Some(3_600)), (60, 300, 3_600));
    }

    #[test]
    fn a_limit_is_from_a_second_to_a_day() {
        for (text, expected) in [
            ("0", "0 is no time limit; give from 1 to 86400 seconds"),
            ("86401", "86401 is no time limit"),
            ("1m", "\"1m\" is no number of seconds"),
        ] {
            let message = text.parse::<Seconds>().unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        assert_eq!("86400".parse(), Ok(Seconds(86_400)));
    }
}
