//! How gradients become steps.

use serde::{Deserialize, Serialize};

/// How gradients become steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Optimiser {
    /// Gradient descent: v ← momentum·v + g + weight_decay·θ, θ ← θ − step·v.
    Descent {
        /// 0 is plain descent.
        momentum: f64,
        /// Pull towards 0.
        weight_decay: f64,
    },
    /// Adam with bias correction; weight decay is added to the gradient.
    Adam {
        /// Pull towards 0.
        weight_decay: f64,
    },
}
