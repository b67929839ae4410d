//! Numerics: loops over vectors, products of matrices, and what is solved with them.
//!
//! Matrices are row-major slices. All of it runs on the calling thread: parallelism is over clients.

pub(crate) mod cpu;
pub(crate) mod gamma;
pub(crate) mod lanes;
pub(crate) mod logistic;
pub(crate) mod matrix;
pub(crate) mod moments;
pub(crate) mod newton;
pub(crate) mod solve;
pub(crate) mod tails;
pub(crate) mod triangular;

pub use cpu::instructions;
pub(crate) use cpu::{Cpu, dispatch};
pub(crate) use lanes::{add_scaled, dot, squared_distance, sum, sum_of_squares};
pub use lanes::{distance, norm};
pub use matrix::Precision;
pub(crate) use matrix::{Matrix, Real, multiply, multiply_add};
pub use moments::Moments;
pub(crate) use moments::median;
pub(crate) use solve::{
    Cholesky, Spectrum, extreme_eigenvalues, leading_directions, least_squares, row_space, solve_factored,
    solve_positive,
};
