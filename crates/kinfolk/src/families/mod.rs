//! What `auto` decides for models that are linear but for a link: a pure function of the products that clients send, fold by fold.
//!
//! | file | what it is |
//! |---|---|
//! | `evidence.rs` | clients' products by fold, and the coordinates in which they are computed with |
//! | `classes.rs` | classes: probabilities, and rows as their expanded likelihood has them |
//! | `difference.rs` | do clients differ at all? |
//! | `mixed.rs` | one family: the mixed model, by restricted maximum likelihood |
//! | `mixture.rs` | several families with a common spread, by EM |
//! | `search.rs` | families or a continuum, and how many |
//! | `population.rs` | the fitted model of all clients, and what a client's rows say in it |
//! | `ladder.rs` | global, family, personal, alone: cross-validation, stack, who deviates |
//! | `newcomer.rs` | a client that was not there |
//! | `intervals.rs` | predictions with their variances, and how large residuals are beside those |
//! | `learned.rs` | all of it in order, and what comes out |
//! | `sentences.rs` | each decision in a sentence |
//!
//! Classes enter by the second-order expansion of their log-likelihood at given models: who iterates does so outside
//! (`methods/auto/study.rs`).

mod classes;
mod difference;
mod evidence;
mod intervals;
mod ladder;
mod learned;
mod mixed;
mod mixture;
mod newcomer;
mod population;
mod search;
mod sentences;
#[cfg(test)]
mod tests;

pub(crate) use classes::{ClassMix, ClassOdds};
pub use classes::{Reliability, StackLosses};
pub use difference::Difference;
pub use evidence::{Basis, Evidence, Products, Response, Role};
pub use intervals::{Histogram, Predictor};
pub use ladder::{AloneModels, Gain, Joining, Rung, Service};
pub(crate) use ladder::{FoldLosses, Gains, best_stack};
pub(crate) use learned::{
    Beforehand, Draft, Shape, choose, choose_interactions, constant_model, differ, learn_with, most_probable,
    newton_step, personal,
};
pub use learned::{Family, HeldOut, Learned, LearnedClient, LeftOut, Options, Wanted, learn};
pub use mixed::Covariance;
pub use newcomer::Newcomer;
pub(crate) use search::{LEAST_CLIENTS, VALLEY, valley_between};
pub use search::{Search, Stability, Step};
