//! How the steps of one training shrink, where they end, and what becomes of them.

use serde::{Deserialize, Serialize};

/// How the steps of one training shrink, where they end, and what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// Step t, from 1, is the step size divided by t.
    pub fading: bool,
    /// The mean of the models after each step, weighted by t, instead of the last model.
    pub averaged: bool,
    /// No further step once the gradient, with weight decay, is no longer than this; 0 for all steps.
    pub tolerance: f64,
}

impl Course {
    /// Equal steps, all of them, and the last model.
    pub const PLAIN: Course = Course { fading: false, averaged: false, tolerance: 0.0 };
}
