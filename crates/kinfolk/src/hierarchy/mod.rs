//! Hierarchical models of clients in known clusters, as far as the server computes them: pure functions of sums.
//!
//! A client's model lies around its cluster's centre, `θ ~ N(w, σ_w² I)`, the centres around the global one,
//! `w ~ N(w̄, σ_b² I)`, and of `w̄` nothing is known beforehand. A client's data enter through a quadratic loss.
//!
//! | file | what it is |
//! |---|---|
//! | `response.rs` | the quadratic in the centre that is left of a client (or a cluster) once its model is integrated out |
//! | `centres.rs` | the centres that minimise the sum of these quadratics, and their covariances |
//! | `variances.rs` | the variances by restricted maximum likelihood, a federation round at a time |

pub(crate) mod centres;
pub mod response;
pub(crate) mod variances;
