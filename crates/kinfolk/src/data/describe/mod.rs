//! What clients say about their columns, and what is made of them: one schema for everybody.

pub(crate) mod calendar;
#[doc(hidden)]
pub mod scaling;
#[doc(hidden)]
pub mod schema;
#[doc(hidden)]
pub mod understood;
