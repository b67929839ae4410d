//! Progress on stderr: a bar in a terminal, nothing in a pipe.

use indicatif::{ProgressBar, ProgressStyle};
use kinfolk::report::{RepeatSummary, RoundRecord};
use kinfolk::run::Watch;
use std::time::Duration;

/// Shows a run as it goes.
pub struct Bars {
    bar: ProgressBar,
    /// What is said in front of a method's label.
    prefix: String,
    metric: String,
}

impl Bars {
    /// Bars for a run.
    pub fn new() -> Self {
        Self { bar: ProgressBar::hidden(), prefix: String::new(), metric: String::new() }
    }

    /// Bars that say which of many runs this is.
    pub fn with_prefix(prefix: String) -> Self {
        Self { prefix, ..Self::new() }
    }
}

impl Watch for Bars {
    fn doing(&mut self, what: &str) {
        self.bar.finish_and_clear();
        self.bar = ProgressBar::new_spinner();
        self.bar.set_message(format!("{}{what}", self.prefix));
        self.bar.enable_steady_tick(Duration::from_millis(120));
    }

    fn method(&mut self, label: &str, seed: u64, from: usize, rounds: usize) {
        self.bar.finish_and_clear();
        self.bar = ProgressBar::new(rounds as u64);
        let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} rounds, {eta} left  {msg}");
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.bar.set_prefix(format!("{}{label} (seed {seed})", self.prefix));
        self.bar.set_position(from as u64);
        self.bar.reset_eta();
        self.bar.enable_steady_tick(Duration::from_millis(500));
        self.metric.clear();
    }

    fn round(&mut self, record: &RoundRecord) {
        if let Some(metric) = record.metric {
            self.metric = format!(", metric {metric:.4}");
        }
        if let Some(loss) = record.loss {
            self.bar.set_position(record.round as u64);
            self.bar.set_message(format!("loss {loss:.4}{}", self.metric));
        }
    }

    fn finished(&mut self, summary: &RepeatSummary, label: &str) {
        self.bar.finish_and_clear();
        if let Some(reason) = &summary.reason {
            eprintln!("{}{label} (seed {}): {}: {reason}", self.prefix, summary.seed, summary.status);
        }
    }
}
