//! How a client trains: on which of its rows, for how long, by which steps.

mod plan;
mod rows;

pub(crate) use plan::HiddenRows;
pub use plan::{Amount, Course, Optimiser, Plan, Pull, Scale, Terms, Then};
pub use rows::{Portion, Sample, Split};
