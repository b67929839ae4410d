//! Every point's nearest neighbours.

use super::Edge;
use super::*;
use crate::num::median;

/// Points whose neighbours are searched together, and points compared with them together.
const ROWS: usize = 128;
const COLUMNS: usize = 1024;

struct Nearest {
    wanted: usize,
    found: Vec<(f64, usize)>,
}

impl Nearest {
    /// The distance below which a candidate is kept.
    fn worst(&self) -> f64 {
        if self.found.len() < self.wanted { f64::INFINITY } else { self.found[self.wanted - 1].0 }
    }

    fn offer(&mut self, distance: f64, point: usize) {
        let at = self.found.partition_point(|other| *other <= (distance, point));
        self.found.insert(at, (distance, point));
        self.found.truncate(self.wanted);
    }
}

/// Lower bound on a weight, relative to the largest; smaller ones would need a λ that leaves no digit of the rest.
const LEAST_SHARE: f64 = 1e-8;

/// Pairs of points one of which is among the `neighbours` nearest of the other, with weight exp(−decay · distance²), without
/// those whose weight is less than [`LEAST_SHARE`] of the largest. Without `decay` it is half of one over the median squared
/// distance. Equally near points are taken in order.
pub(super) fn connect(points: Points, neighbours: usize, decay: Option<f64>) -> Vec<Edge> {
    let mut pairs: Vec<(usize, usize, f64)> = nearest(points, neighbours)
        .into_iter()
        .enumerate()
        .flat_map(|(point, nearest)| nearest.into_iter().map(move |(d, other)| (point.min(other), point.max(other), d)))
        .collect();
    pairs.sort_unstable_by_key(|&(from, to, _)| (from, to));
    pairs.dedup_by_key(|&mut (from, to, _)| (from, to));
    let decay = decay.unwrap_or_else(|| {
        let usual = median(pairs.iter().map(|pair| pair.2)).filter(|square| *square > 0.0);
        usual.map_or(0.0, |square| 0.5 / square)
    });
    let nearest = pairs.iter().map(|pair| pair.2).fold(f64::INFINITY, f64::min);
    let least = LEAST_SHARE * (-decay * nearest).exp();
    let weigh = |(from, to, square): (usize, usize, f64)| Edge { from, to, weight: (-decay * square).exp() };
    pairs.into_iter().map(weigh).filter(|edge| edge.weight > least).collect()
}

/// The squared distances and indices of every point's nearest neighbours.
fn nearest(points: Points, neighbours: usize) -> Vec<Vec<(f64, usize)>> {
    let (count, dimension) = (points.count(), points.dimension());
    let neighbours = neighbours.min(count - 1);
    if neighbours == 0 {
        return vec![Vec::new(); count];
    }
    // Centred, products lose the fewest digits; that is compensated by spare candidates, whose distances are computed
    // exactly, and where these are too few by computing all distances of the point exactly.
    let centred = points.centred();
    let norms: Vec<f64> = centred.chunks_exact(dimension).map(|row| row.iter().map(|x| x * x).sum()).collect();
    let largest = norms.iter().copied().fold(0.0, f64::max);
    let wanted = (neighbours + neighbours.max(4)).min(count - 1);
    let blocks: Vec<Vec<Vec<(f64, usize)>>> = centred
        .par_chunks(ROWS * dimension)
        .enumerate()
        .map(|(block, rows)| {
            let first = block * ROWS;
            let own = rows.len() / dimension;
            let mut kept: Vec<Nearest> =
                (0..own).map(|_| Nearest { wanted, found: Vec::with_capacity(wanted + 1) }).collect();
            let mut products = vec![0.0; own * COLUMNS];
            for (tile, columns) in centred.chunks(COLUMNS * dimension).enumerate() {
                let width = columns.len() / dimension;
                let products = &mut products[..own * width];
                multiply(
                    products,
                    -2.0,
                    Matrix::new(rows, own, dimension),
                    Matrix::new(columns, width, dimension).transpose(),
                );
                for (row, (line, kept)) in products.chunks_exact(width).zip(&mut kept).enumerate() {
                    let mut worst = kept.worst();
                    for (column, product) in line.iter().enumerate() {
                        let other = tile * COLUMNS + column;
                        let distance = product + norms[other];
                        if distance < worst && other != first + row {
                            kept.offer(distance, other);
                            worst = kept.worst();
                        }
                    }
                }
            }
            let exactly = |(row, kept): (usize, Nearest)| {
                let exact =
                    |&(_, other): &(f64, usize)| (squared_distance(points.row(first + row), points.row(other)), other);
                let lost = 4.0 * f64::EPSILON * dimension as f64 * (norms[first + row] + largest);
                let spare = kept.found[wanted - 1].0 - kept.found[neighbours - 1].0;
                let mut found: Vec<(f64, usize)> = if spare > 2.0 * lost || wanted == count - 1 {
                    kept.found.iter().map(exact).collect()
                } else {
                    (0..count).filter(|&other| other != first + row).map(|other| exact(&(0.0, other))).collect()
                };
                found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                found.truncate(neighbours);
                found
            };
            kept.into_iter().enumerate().map(exactly).collect()
        })
        .collect();
    blocks.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;

    #[test]
    fn neighbours_agree_with_sorting_all_distances() {
        let mut random = Key::new(3).word("neighbours").rng();
        let values: Vec<f64> = (0..1500 * 3).map(|_| 1e6 + random.random::<f64>()).collect();
        let points = Points::new(&values, 3).unwrap();
        for (point, found) in nearest(points, 7).iter().enumerate().step_by(97) {
            let mut all: Vec<(f64, usize)> = (0..1500)
                .filter(|&other| other != point)
                .map(|other| (squared_distance(points.row(point), points.row(other)), other))
                .collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert_eq!(*found, all[..7]);
        }
    }

    #[test]
    fn neighbours_are_right_where_products_lose_all_digits() {
        let mut random = Key::new(4).word("far").rng();
        let place = |point: usize| if point.is_multiple_of(2) { 1e6 } else { -1e6 };
        let values: Vec<f64> = (0..300 * 2).map(|at| place(at / 2) + 1e-3 * random.random::<f64>()).collect();
        let points = Points::new(&values, 2).unwrap();
        let found = &nearest(points, 3)[7];
        let mut all: Vec<(f64, usize)> = (0..300)
            .filter(|&other| other != 7)
            .map(|other| (squared_distance(points.row(7), points.row(other)), other))
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert_eq!(*found, all[..3]);
    }

    #[test]
    fn weights_by_hand() {
        let edges = connect(Points::new(&[0.0, 1.0, 3.0, 3.5], 1).unwrap(), 1, Some(1.0));
        let expected = [(0, 1, (-1.0f64).exp()), (2, 3, (-0.25f64).exp())];
        assert_eq!(edges, expected.map(|(from, to, weight)| Edge { from, to, weight }));
        // e^(−16) beside e^(−1) pulls, e^(−25) does not.
        let far = |place| connect(Points::new(&[0.0, 1.0, place], 1).unwrap(), 1, Some(1.0)).len();
        assert_eq!([5.0, 6.0, 1e9].map(far), [2, 1, 1]);
        let alike = connect(Points::new(&[2.0, 2.0, 2.0], 1).unwrap(), 2, None);
        assert!(alike.len() == 3 && alike.iter().all(|edge| edge.weight == 1.0));
    }
}
