//! EM on all rows of all clients as if they lay in one place, from sums of the clients' E-steps: rows stay where they are.
//!
//! ```text
//! 1  for t = 1..T:
//! 2      each client: Σγ, Σγx (and Σγxxᵀ) at the common parameters
//! 3      server: the M-step from their sums
//! ```
//!
//! It begins at the mean of the clients' fits, or at the fit of one of five of them, whichever makes all rows likeliest.

use super::mixtures::*;
use super::*;

pub(super) static KIND: MethodKind = MethodKind {
    name: "pooled-em",
    summary: "EM for one mixture on everybody's rows together",
    paper: "baseline",
    settings: mixture_settings!(ROUNDS_AT_MOST, TOLERANCE, ORDERS),
    needs_truth: |_| false,
    has_clusters: false,
    wants: Ability::Mixture,
    check: |_, _, _| {},
    build: |setup| Pooled::ready(&setup, None),
};
