//! Numerics: loops over vectors, products of matrices, and what is solved with them.
//!
//! Matrices are row-major slices. All of it runs on the calling thread: parallelism is over clients.

pub(crate) mod lanes;
pub(crate) mod matrix;
pub(crate) mod moments;
pub(crate) mod solve;
pub(crate) mod triangular;

pub use lanes::distance;
pub(crate) use lanes::{add_scaled, dot, norm, squared_distance};
pub use matrix::Precision;
pub(crate) use matrix::{Matrix, Real, multiply, multiply_add};
pub use moments::Moments;
pub(crate) use solve::{
    Cholesky, Spectrum, extreme_eigenvalues, least_squares, row_space, solve_factored, solve_positive,
};
