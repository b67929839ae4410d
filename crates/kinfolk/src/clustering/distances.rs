//! Distances of many points to many centres, by differences: nothing cancels, however far the data is from 0.
//!
//! Centres are packed in panels, so that one pass over a point's coordinates gives its distances to a whole panel in
//! registers. A distance has the same bits in whatever tile it is computed.

use crate::num::Cpu;

/// Points processed together.
pub(super) const TILE: usize = 3;
/// Centres of a panel: with `TILE`, as many sums as fit into the registers of AVX2.
pub(super) const LANES: usize = 12;
/// Numbers in one register of AVX2.
const REGISTER: usize = 4;

/// Packed centres: all first coordinates of a panel's centres, then all second ones, …
pub(super) struct Panels {
    values: Vec<f64>,
    dimension: usize,
    centres: usize,
}

impl Panels {
    pub fn pack(centres: &[f64], dimension: usize) -> Self {
        let count = centres.len() / dimension;
        let mut panels = Self {
            values: vec![f64::INFINITY; count.next_multiple_of(REGISTER) * dimension],
            dimension,
            centres: count,
        };
        for (panel, members) in centres.chunks(LANES * dimension).enumerate() {
            let width = panels.width(panel);
            let packed = &mut panels.values[panel * LANES * dimension..];
            for (lane, centre) in members.chunks_exact(dimension).enumerate() {
                for (position, &value) in centre.iter().enumerate() {
                    packed[position * width + lane] = value;
                }
            }
        }
        panels
    }

    pub fn count(&self) -> usize {
        self.centres.div_ceil(LANES)
    }

    pub fn members(&self, panel: usize) -> std::ops::Range<usize> {
        panel * LANES..self.centres.min((panel + 1) * LANES)
    }

    /// Squared distances of a tile of points to the centres of a panel; infinite in lanes without a centre.
    #[inline(always)]
    pub fn squares(&self, cpu: Cpu, panel: usize, tile: [&[f64]; TILE]) -> [[f64; LANES]; TILE] {
        let width = self.width(panel);
        let packed = &self.values[panel * LANES * self.dimension..][..width * self.dimension];
        match width / REGISTER {
            1 => squares::<1>(cpu, packed, tile),
            2 => squares::<2>(cpu, packed, tile),
            _ => squares::<3>(cpu, packed, tile),
        }
    }

    fn width(&self, panel: usize) -> usize {
        self.members(panel).len().next_multiple_of(REGISTER)
    }
}

/// With so many registers of centres.
#[inline(always)]
fn squares<const REGISTERS: usize>(cpu: Cpu, packed: &[f64], tile: [&[f64]; TILE]) -> [[f64; LANES]; TILE] {
    let columns = packed.as_chunks::<REGISTER>().0.as_chunks::<REGISTERS>().0;
    let rows = tile.map(|row| &row[..columns.len()]);
    let mut sums = [[[0.0; REGISTER]; REGISTERS]; TILE];
    for (at, column) in columns.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            for (sums, centres) in sums.iter_mut().zip(column) {
                let gaps: [f64; REGISTER] = std::array::from_fn(|lane| row[at] - centres[lane]);
                *sums = std::array::from_fn(|lane| cpu.mul_add(gaps[lane], gaps[lane], sums[lane]));
            }
        }
    }
    let mut out = [[f64::INFINITY; LANES]; TILE];
    for (out, sums) in out.iter_mut().zip(&sums) {
        out[..REGISTERS * REGISTER].copy_from_slice(sums.as_flattened());
    }
    out
}

/// The members of the tiles that cover `0..count`, repeating the last one where a tile would not be full. A tile takes
/// its points from equal stretches, so that memory is read in a few long streams, which the processor prefetches.
pub(super) fn tiles(count: usize) -> impl Iterator<Item = ([usize; TILE], usize)> {
    let stretch = count.div_ceil(TILE);
    (0..stretch).map(move |first| {
        let tile = std::array::from_fn(|slot| (first + slot * stretch).min(count - 1));
        (tile, (count - first).div_ceil(stretch))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::num::{dispatch, squared_distance};
    use crate::rng::Key;
    use rand::RngExt;

    /// The bits of a panel's lane.
    pub fn square_in_order(cpu: Cpu, a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).fold(0.0, |sum, (a, b)| cpu.mul_add(a - b, a - b, sum))
    }

    #[test]
    fn tiles_cover_everything_once() {
        for count in 1..40 {
            let mut seen: Vec<usize> = tiles(count).flat_map(|(tile, filled)| tile.into_iter().take(filled)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
            assert!(tiles(count).all(|(tile, filled)| filled > 0 && tile.iter().all(|&point| point < count)));
        }
        assert_eq!(tiles(0).count(), 0);
    }

    #[test]
    fn panels_agree_with_single_distances() {
        let cpu = dispatch!(|cpu| cpu);
        let mut random = Key::new(0).word("panels").rng();
        for centres in [1, 4, 5, 8, 11, 12, 13, 24, 30] {
            for dimension in [1, 2, 7, 33] {
                let mut draw = |count| -> Vec<f64> { (0..count * dimension).map(|_| random.random()).collect() };
                let (vectors, points) = (draw(centres), draw(TILE));
                let panels = Panels::pack(&vectors, dimension);
                let tile = std::array::from_fn(|row| &points[row * dimension..(row + 1) * dimension]);
                let mut seen = 0;
                for panel in 0..panels.count() {
                    let squares = panels.squares(cpu, panel, tile);
                    for (lane, centre) in panels.members(panel).enumerate() {
                        let vector = &vectors[centre * dimension..(centre + 1) * dimension];
                        for (row, squares) in squares.iter().enumerate() {
                            assert!((squares[lane] - squared_distance(tile[row], vector)).abs() < 1e-13);
                            assert_eq!(
                                squares[lane],
                                square_in_order(cpu, tile[row], vector),
                                "{centres} {dimension} {panel} {lane}"
                            );
                        }
                        seen += 1;
                    }
                }
                assert_eq!(seen, centres);
            }
        }
    }
}
