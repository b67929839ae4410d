//! Symmetric matrices, stored as lower triangles, row by row.

use super::kernels::{filled, scale};
use crate::num::{Matrix, add_scaled, multiply};

/// Number of distinct values in a symmetric matrix.
pub(super) fn triangle(size: usize) -> usize {
    size * (size + 1) / 2
}

pub(super) fn triangle_rows(triangle: &mut [f64]) -> impl Iterator<Item = &mut [f64]> {
    let mut rest = triangle;
    (1..).map_while(move |length| rest.split_off_mut(..length))
}

pub(super) fn add_triangle(triangle: &mut [f64], square: &[f64], size: usize) {
    triangle_rows(triangle).zip(square.chunks_exact(size)).for_each(|(row, square)| add_scaled(row, 1.0, square));
}

/// Adds to a lower triangle the sum over rows of weight times the row's outer product with itself. Rows are transposed.
pub(super) fn add_outer_products(
    triangle: &mut [f64],
    columns: &[f64],
    weights: &[f64],
    width: usize,
    scaled: &mut Vec<f64>,
    square: &mut Vec<f64>,
) {
    scale(columns, weights, scaled);
    let (left, right) = (Matrix::new(scaled, width, weights.len()), Matrix::new(columns, width, weights.len()));
    multiply(filled(square, width * width, 0.0), 1.0, left, right.transpose());
    add_triangle(triangle, square, width);
}

/// Writes a symmetric matrix from its lower triangle.
pub(super) fn write_square(square: &mut [f64], triangle: &[f64], scale: f64, size: usize) {
    let mut values = triangle.iter().map(|value| value * scale);
    for row in 0..size {
        for (column, value) in (0..=row).zip(&mut values) {
            square[row * size + column] = value;
            square[column * size + row] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triangles_and_squares() {
        let square = [1.0, 2.0, 4.0, 2.0, 3.0, 5.0, 4.0, 5.0, 6.0];
        let mut triangle = [10.0; 6];
        add_triangle(&mut triangle, &square, 3);
        assert_eq!(triangle, [11.0, 12.0, 13.0, 14.0, 15.0, 16.0]);
        let mut back = [0.0; 9];
        write_square(&mut back, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2.0, 3);
        assert_eq!(back.to_vec(), square.iter().map(|value| 2.0 * value).collect::<Vec<_>>());
    }
}
