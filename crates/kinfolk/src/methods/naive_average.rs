//! Naive averaging: every client's own minimiser, averaged over everybody, in one round. What one round can do for
//! clients that are all alike, and what it does to those that are not.
//!
//! ```text
//! each client i: θ̂_i ← argmin F_i, sent
//! θ ← plain mean of the θ̂_i, sent to everybody
//! ```

use super::odcl::{check_one_shot, one_shot_settings};
use super::oracle_average::GroupMeans;
use super::*;

pub(super) static KIND: MethodKind = MethodKind {
    name: "naive-average",
    summary: "the clients' minimisers, averaged over everybody",
    paper: "baseline",
    settings: one_shot_settings!(),
    needs_truth: |_| false,
    has_clusters: false,
    wants: Ability::Descent,
    check: check_one_shot,
    build: |setup| Ok(Box::new(GroupMeans::new(&setup, None)?)),
};
