//! What clients say about their columns, and what is made of them: one schema for everybody.

mod agree;
mod bends;
pub(crate) mod calendar;
mod description;
mod interactions;
mod pool;
#[doc(hidden)]
pub mod scaling;
#[doc(hidden)]
pub mod schema;
#[doc(hidden)]
pub mod understood;
pub(crate) mod yes_no;
