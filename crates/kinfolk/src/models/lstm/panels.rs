//! A matrix laid out for products with a few rows at a time.
//!
//! A recurrent product takes a handful of rows through the same weights again and again. Its matrix is cut into pieces of
//! [`DEPTH`] rows and those into panels of [`WIDTH`] columns, each in one run of memory that fits the first cache; a tile
//! of a few rows by one panel is summed up in registers. That is as fast as the processor multiplies, from five rows on.

use crate::num::{Cpu, Real, dispatch};

const WIDTH: usize = 16;
const DEPTH: usize = 256;

/// The right factor of a product.
#[derive(Default)]
pub(super) struct Panels<T> {
    /// Piece after piece, in them panel after panel, in them row after row; what a panel lacks in columns is 0.
    values: Vec<T>,
    depth: usize,
    columns: usize,
}

impl<T: Real> Panels<T> {
    /// Lays out a matrix of `depth` × `columns`, row after row.
    pub(super) fn pack(&mut self, matrix: &[T], depth: usize, columns: usize) {
        self.fit(depth, columns);
        for (piece, rows) in
            self.values.chunks_mut(DEPTH * columns.next_multiple_of(WIDTH)).zip(matrix.chunks(DEPTH * columns))
        {
            let panels = piece.chunks_exact_mut(rows.len() / columns * WIDTH);
            for (begin, panel) in (0..columns).step_by(WIDTH).zip(panels) {
                let width = WIDTH.min(columns - begin);
                for (row, out) in rows.chunks_exact(columns).zip(panel.as_chunks_mut::<WIDTH>().0) {
                    copy(&row[begin..begin + width], out);
                }
            }
        }
    }

    /// Lays out the transpose of a matrix of `columns` × `depth`, row after row.
    pub(super) fn pack_transposed(&mut self, matrix: &[T], depth: usize, columns: usize) {
        self.fit(depth, columns);
        let pieces = self.values.chunks_mut(DEPTH * columns.next_multiple_of(WIDTH));
        for (above, piece) in (0..depth).step_by(DEPTH).zip(pieces) {
            let deep = DEPTH.min(depth - above);
            for (panel, rows) in piece.chunks_exact_mut(deep * WIDTH).zip(matrix.chunks(WIDTH * depth)) {
                for (c, row) in rows.chunks_exact(depth).enumerate() {
                    let column = panel.as_chunks_mut::<WIDTH>().0.iter_mut().map(|out| &mut out[c]);
                    column.zip(&row[above..]).for_each(|(out, &value)| *out = value);
                }
            }
        }
    }

    fn fit(&mut self, depth: usize, columns: usize) {
        if (depth, columns) != (self.depth, self.columns) {
            (self.depth, self.columns) = (depth, columns);
            self.values.clear();
            self.values.resize(depth * columns.next_multiple_of(WIDTH), T::ZERO);
        }
    }

    /// `out` = x · this, plus `bias` in every row. How rows are cut into tiles does not change a row's result.
    pub(super) fn multiply(&self, x: &[T], bias: Option<&[T]>, out: &mut [T]) {
        dispatch!(|cpu| self.multiply_tiles(cpu, x, bias, out));
    }

    #[inline(always)]
    fn multiply_tiles(&self, cpu: Cpu, x: &[T], bias: Option<&[T]>, out: &mut [T]) {
        // As many sums as fit into 16 registers of 32 bytes, beside what is multiplied.
        let tallest = if size_of::<T>() == 8 { 3 } else { 6 };
        let (rows, columns) = (x.len() / self.depth, self.columns);
        let tiles = rows.div_ceil(tallest);
        let pieces = self.values.chunks(DEPTH * columns.next_multiple_of(WIDTH));
        for (above, piece) in (0..self.depth).step_by(DEPTH).zip(pieces) {
            let deep = DEPTH.min(self.depth - above);
            for (left, panel) in (0..columns).step_by(WIDTH).zip(piece.chunks_exact(deep * WIDTH)) {
                let width = WIDTH.min(columns - left);
                let begin =
                    if above > 0 { Begin::Out } else { bias.map_or(Begin::Zero, |bias| Begin::Row(&bias[left..])) };
                let mut row = 0;
                for tile in 0..tiles {
                    let end = (tile + 1) * rows / tiles;
                    let x = &x[row * self.depth + above..];
                    let place = Place { depth: self.depth, columns, width, begin };
                    let out = &mut out[row * columns + left..];
                    match end - row {
                        6 => multiply_tile::<T, 6>(cpu, panel, x, place, out),
                        5 => multiply_tile::<T, 5>(cpu, panel, x, place, out),
                        4 => multiply_tile::<T, 4>(cpu, panel, x, place, out),
                        3 => multiply_tile::<T, 3>(cpu, panel, x, place, out),
                        2 => multiply_tile::<T, 2>(cpu, panel, x, place, out),
                        _ => multiply_tile::<T, 1>(cpu, panel, x, place, out),
                    }
                    row = end;
                }
            }
        }
    }
}

/// What a tile's sums begin with.
#[derive(Clone, Copy)]
enum Begin<'a, T> {
    Zero,
    Row(&'a [T]),
    Out,
}

/// How a tile lies in its product.
#[derive(Clone, Copy)]
struct Place<'a, T> {
    /// From row to row of the left factor.
    depth: usize,
    /// From row to row of the product.
    columns: usize,
    /// How many of the panel's columns there are.
    width: usize,
    begin: Begin<'a, T>,
}

#[inline(always)]
fn multiply_tile<T: Real, const ROWS: usize>(cpu: Cpu, panel: &[T], x: &[T], place: Place<T>, out: &mut [T]) {
    let Place { depth, columns, width, begin } = place;
    let panel = panel.as_chunks::<WIDTH>().0;
    let rows = std::array::from_fn(|r| &x[r * depth..]);
    let mut sums = [[T::ZERO; WIDTH]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        match begin {
            Begin::Zero => {}
            Begin::Row(row) => copy(&row[..width], sums),
            Begin::Out => copy(&out[r * columns..r * columns + width], sums),
        }
    }
    add_products(cpu, panel, rows, &mut sums);
    for (r, sums) in sums.iter().enumerate() {
        copy(&sums[..width], &mut out[r * columns..]);
    }
}

/// Copies to the beginning of `to`; a whole row of a panel without a call, which would take longer.
#[inline(always)]
fn copy<T: Real>(from: &[T], to: &mut [T]) {
    match (from.first_chunk::<WIDTH>(), to.first_chunk_mut::<WIDTH>()) {
        (Some(from), Some(to)) => *to = *from,
        _ => to[..from.len()].copy_from_slice(from),
    }
}

/// Set apart, and by index, so that the compiler keeps all sums in registers and checks nothing in the loop.
#[inline(always)]
fn add_products<T: Real, const ROWS: usize>(
    cpu: Cpu,
    panel: &[[T; WIDTH]],
    rows: [&[T]; ROWS],
    sums: &mut [[T; WIDTH]; ROWS],
) {
    let rows: [&[T]; ROWS] = std::array::from_fn(|r| &rows[r][..panel.len()]);
    let mut local = *sums;
    for k in 0..panel.len() {
        for r in 0..ROWS {
            for c in 0..WIDTH {
                local[r][c] = cpu.mul_add(rows[r][k], panel[k][c], local[r][c]);
            }
        }
    }
    *sums = local;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::{Matrix, multiply};
    use crate::rng::Key;
    use rand::RngExt;

    fn numbers(count: usize, what: &str) -> Vec<f64> {
        let mut rng = Key::new(1).word(what).rng();
        (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
    }

    #[test]
    fn by_hand() {
        let mut panels = Panels::default();
        panels.pack(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3);
        let mut out = [0.0; 6];
        panels.multiply(&[1.0, 0.0, 1.0, -1.0], Some(&[10.0, 20.0, 30.0]), &mut out);
        assert_eq!(out, [11.0, 22.0, 33.0, 7.0, 17.0, 27.0]);
        panels.pack_transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3);
        panels.multiply(&[1.0, 0.0, 1.0, -1.0], None, &mut out);
        assert_eq!(out, [1.0, 3.0, 5.0, -1.0, -1.0, -1.0]);
    }

    #[test]
    fn products_of_all_sizes_are_those_of_the_library() {
        for (rows, depth, columns) in [(1, 1, 1), (2, 7, 15), (7, 255, 16), (10, 256, 33), (13, 300, 48), (20, 700, 5)]
        {
            let (x, matrix) = (numbers(rows * depth, "x"), numbers(depth * columns, "matrix"));
            let turned: Vec<f64> = (0..columns * depth).map(|i| matrix[i % depth * columns + i / depth]).collect();
            let mut wanted = vec![0.0; rows * columns];
            multiply(&mut wanted, 1.0, Matrix::new(&x, rows, depth), Matrix::new(&matrix, depth, columns));
            let mut panels = Panels::default();
            let mut out = vec![f64::NAN; rows * columns];
            for way in [0, 1] {
                match way {
                    0 => panels.pack(&matrix, depth, columns),
                    _ => panels.pack_transposed(&turned, depth, columns),
                }
                panels.multiply(&x, None, &mut out);
                let worst = out.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst < 1e-12, "{rows} × {depth} × {columns}: {worst}");
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_the_rows_beside_it() {
        let x: Vec<f32> = numbers(11 * 300, "x").iter().map(|&value| value as f32).collect();
        let matrix: Vec<f32> = numbers(300 * 20, "matrix").iter().map(|&value| value as f32).collect();
        let mut panels = Panels::default();
        panels.pack(&matrix, 300, 20);
        let (mut all, mut one) = ([0.0; 220], [0.0; 20]);
        panels.multiply(&x, None, &mut all);
        for (x, wanted) in x.chunks_exact(300).zip(all.chunks_exact(20)) {
            panels.multiply(x, None, &mut one);
            assert_eq!(one, wanted);
        }
    }
}
