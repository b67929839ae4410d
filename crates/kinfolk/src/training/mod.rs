//! How a client trains: on which of its rows, for how long, by which steps.

mod course;
mod optimiser;
mod plan;
mod portion;
mod sample;
mod scale;

pub use course::Course;
pub use optimiser::Optimiser;
pub use plan::{Amount, Plan, Pull, Then};
pub use portion::{Portion, Split};
pub use sample::Sample;
pub use scale::Scale;
