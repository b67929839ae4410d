//! Clients that share the components of a mixture: whether they differ, whether they fall into families, who is an outlier. Pure
//! functions of sums that clients send.
//!
//! | file | what it is |
//! |---|---|
//! | `counts.rs` | how often components occur at every client, counted in rows that tell components apart for sure |
//! | `difference.rs` | do clients differ? |
//! | `dirichlet.rs` | families of clients whose weights spread around common ones |
//! | `search.rs` | families or a continuum, and how many |
//! | `outliers.rs` | clients whose rows the others' components do not explain |

mod counts;
mod difference;
mod dirichlet;
mod outliers;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use counts::{Counts, efficiency};
pub(crate) use difference::{Blocks, difference};
pub(crate) use dirichlet::Families;
pub(crate) use outliers::{Typical, outlying, shared_places};
pub(crate) use search::{FamilyStep, distance, fit_families, refit_families, search_families, surprise};
