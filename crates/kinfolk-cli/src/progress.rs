//! Progress on stderr: a bar in a terminal, nothing in a pipe.

use crate::commands::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kinfolk::clustering::Stage;
use kinfolk::record::{RepeatSummary, RoundRecord};
use kinfolk::run::Watch;
use std::time::Duration;

pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Shows a run as it goes.
pub struct Bars {
    bar: ProgressBar,
    prefix: String,
    metric: String,
}

impl Bars {
    /// Bars with this text in front of every label.
    pub fn new(prefix: String) -> Self {
        Self { bar: ProgressBar::hidden(), prefix, metric: String::new() }
    }

    /// How far a method is.
    pub fn reach(&mut self, round: usize, loss: Option<f64>, metric: Option<f64>) {
        if let Some(metric) = metric {
            self.metric = format!(", metric {metric:.4}");
        }
        if let Some(loss) = loss {
            self.bar.set_position(round as u64);
            self.bar.set_message(format!("loss {loss:.4}{}", self.metric));
        }
    }

    /// How a method has ended, where that needs a word.
    pub fn end(&mut self, label: &str, seed: u64, status: &str, reason: Option<&str>) {
        self.bar.finish_and_clear();
        if let Some(reason) = reason {
            say(&format!("{}{label} (seed {seed}): {status}: {reason}", self.prefix));
        }
    }

    /// Says something beside the bar.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| say(text));
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
        self.bar.set_style(style("{prefix} {bar:30} {pos}/{len} rounds, {eta} left  {msg}"));
        self.bar.set_prefix(format!("{}{label} (seed {seed})", self.prefix));
        self.bar.set_position(from as u64);
        self.bar.reset_eta();
        self.bar.enable_steady_tick(Duration::from_millis(500));
        self.metric.clear();
    }

    fn round(&mut self, record: &RoundRecord) {
        self.reach(record.round, record.loss, record.metric);
    }

    fn finished(&mut self, summary: &RepeatSummary, label: &str) {
        self.end(label, summary.seed, &summary.status, summary.reason.as_deref());
    }
}

/// Short work needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shows how far a piece of work is, once it takes long.
pub struct Wait {
    bar: ProgressBar,
}

impl Wait {
    pub fn new(what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what);
        let late = bar.clone();
        std::thread::spawn(move || {
            std::thread::sleep(PATIENCE);
            if !late.is_finished() {
                late.set_draw_target(ProgressDrawTarget::stderr());
                late.enable_steady_tick(Duration::from_millis(120));
            }
        });
        Self { bar }
    }

    pub fn stage(&self, stage: Stage) {
        if self.bar.message() != stage.what || self.bar.length() != Some(stage.total as u64) {
            // One step has no middle to show.
            self.bar.set_style(style(if stage.total > 1 { "{msg} {bar:30} {pos}/{len}" } else { "{spinner} {msg}" }));
            self.bar.set_message(stage.what);
            self.bar.set_length(stage.total as u64);
        }
        self.bar.set_position(stage.done as u64);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
