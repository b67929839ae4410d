//! Lloyd's iteration with pruning: every point keeps an upper bound on the distance to its centre and lower bounds on those
//! to all others, one per panel of centres (Hamerly's bound for one panel, Yinyang's for more). A centre that moves by δ
//! loosens a bound by at most δ; a point whose bounds still do not overlap is not touched. Bounds are rounded outwards, so
//! every assignment is that of a plain loop from the same centres, including ties.

use super::*;

/// The state in which an iteration ends.
pub(super) struct Rest {
    pub labels: Vec<usize>,
    pub iterations: usize,
    pub converged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// To the mean: Lloyd.
    Jump,
    /// By a step of 1 / the largest cluster's size against the gradient Σ (centre − point) of the cluster's cost.
    Descend,
}

/// How far from its mean a descending centre may rest, as a share of the distance to the nearest other centre.
const TOLERANCE: f64 = 1e-8;

/// Assigns points to the nearest centres and moves centres towards the means, until both converge or the iterations are
/// used up. Ties go to the lowest centre. A centre without points takes the point farthest from the new mean of its
/// cluster. Needs as many distinct points as centres.
pub(super) fn run(points: Points, start: &[f64], pace: Pace, iterations: usize) -> Result<Rest> {
    let mut lloyd = Lloyd::new(points, start, pace);
    for iteration in 1..=iterations {
        if !lloyd.assign() && lloyd.is_close() {
            return Ok(lloyd.rest(iteration, true));
        }
        lloyd.move_centres()?;
    }
    Ok(lloyd.rest(iterations, false))
}

/// Lower bound on the points of a part.
const SMALLEST_PART: usize = 2048;
/// Upper bound on the parts: enough for many cores.
const MOST_PARTS: usize = 256;

/// Points whose bounds are tested before distances are computed: few enough to stay in the cache.
const STRETCH: usize = 512;

/// A stretch is processed as a whole where more than one in this many of its points is needed.
const SCATTERED: usize = 8;

/// The distance to the own centre is computed before all others where that settles one in this many of the points asked.
const WORTH: usize = 8;

/// Number of parts of the work, a function of the data alone. Every part keeps sums for all clusters, so parts are not
/// small relative to the number of clusters.
pub(super) fn parts(points: usize, clusters: usize) -> usize {
    (points / SMALLEST_PART.max(16 * clusters)).clamp(1, MOST_PARTS)
}

struct Lloyd<'a> {
    points: Points<'a>,
    pace: Pace,
    parts: Vec<Part<'a>>,
    centres: Centres,
    /// For every cluster, the sum of its points minus the origin.
    sums: Vec<f64>,
    counts: Vec<i64>,
}

struct Centres {
    values: Vec<f64>,
    /// Origin of the sums, within the data, so that they do not cancel where it is far from 0.
    origin: Vec<f64>,
    panels: Panels,
    /// Half the distance to the nearest other centre: a point closer than that belongs here.
    clearance: Vec<f64>,
    /// Upper bound on the move of every centre.
    moves: Vec<f64>,
    /// The largest moves within every panel.
    largest: Vec<Largest>,
    accuracy: f64,
}

#[derive(Clone, Copy, Default)]
struct Largest {
    centre: usize,
    first: f64,
    second: f64,
}

/// Bounds the rounding of one update of a bound.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

impl<'a> Lloyd<'a> {
    fn new(points: Points<'a>, start: &[f64], pace: Pace) -> Self {
        let dimension = points.dimension();
        let clusters = start.len() / dimension;
        let mut origin = vec![0.0; dimension];
        start.chunks_exact(dimension).for_each(|centre| add_scaled(&mut origin, 1.0, centre));
        origin.iter_mut().for_each(|value| *value /= clusters as f64);
        let length = points.count().div_ceil(parts(points.count(), clusters));
        Self {
            points,
            pace,
            parts: points
                .values()
                .chunks(length * dimension)
                .map(|rows| Part::new(rows, dimension, clusters))
                .collect(),
            centres: Centres::new(start.to_vec(), origin),
            sums: vec![0.0; start.len()],
            counts: vec![0; clusters],
        }
    }

    /// Assigns every point; returns whether any changed.
    fn assign(&mut self) -> bool {
        let Self { parts, centres, sums, counts, .. } = self;
        parts.par_iter_mut().for_each(|part| dispatch!(|cpu| part.assign(cpu, centres)));
        for part in parts.iter().filter(|part| part.changed) {
            add_scaled(sums, 1.0, &part.sums);
            counts.iter_mut().zip(&part.counts).for_each(|(count, change)| *count += change);
        }
        parts.iter().any(|part| part.changed)
    }

    /// Whether the centres are at their means, once no point changes.
    fn is_close(&self) -> bool {
        if self.pace == Pace::Jump {
            return true;
        }
        let mut mean = vec![0.0; self.points.dimension()];
        (0..self.counts.len()).all(|cluster| {
            self.take_mean(&mut mean, cluster);
            distance(&mean, self.centres.row(cluster)) <= TOLERANCE * 2.0 * self.centres.clearance[cluster]
        })
    }

    fn move_centres(&mut self) -> Result<()> {
        let mut goals = self.centres.values.clone();
        for (cluster, goal) in goals.chunks_exact_mut(self.points.dimension()).enumerate() {
            if self.counts[cluster] > 0 {
                self.take_mean(goal, cluster);
            }
        }
        let mut filled = Vec::new();
        while let Some(empty) = self.counts.iter().position(|&count| count == 0) {
            self.fill(&mut goals, empty)?;
            filled.push(empty);
        }
        if self.pace == Pace::Descend {
            self.shorten(&mut goals, &filled);
        }
        self.centres.set(goals);
        Ok(())
    }

    /// Shortens the moves to one gradient step; clusters just filled move all the way.
    fn shorten(&self, goals: &mut [f64], filled: &[usize]) {
        let dimension = self.points.dimension();
        let step = 1.0 / self.counts.iter().copied().max().unwrap_or(1) as f64;
        let rows = goals.chunks_exact_mut(dimension).zip(self.centres.values.chunks_exact(dimension));
        for (cluster, (goal, centre)) in rows.enumerate().filter(|(cluster, _)| !filled.contains(cluster)) {
            let share = step * self.counts[cluster] as f64;
            goal.iter_mut().zip(centre).for_each(|(goal, centre)| *goal = centre + share * (*goal - centre));
        }
    }

    fn take_mean(&self, mean: &mut [f64], cluster: usize) {
        let dimension = self.points.dimension();
        let sums = self.sums[cluster * dimension..].iter().zip(&self.centres.origin);
        for (mean, (sum, origin)) in mean.iter_mut().zip(sums) {
            *mean = origin + sum / self.counts[cluster] as f64;
        }
    }

    /// Gives an empty cluster the point farthest from its mean, the first among equals; it is never alone.
    fn fill(&mut self, means: &mut [f64], empty: usize) -> Result<()> {
        let dimension = self.points.dimension();
        let farthest: Vec<(f64, usize)> = self.parts.par_iter().map(|part| part.farthest(means)).collect();
        let (mut square, mut at) = (0.0, (0, 0));
        for (part, (candidate, point)) in farthest.into_iter().enumerate() {
            if candidate > square {
                (square, at) = (candidate, (part, point));
            }
        }
        if square == 0.0 {
            return Err(Error::data("points: some differ by so little that their distances are 0")
                .hint("multiply all numbers by a large factor, or ask for fewer clusters"));
        }
        let (row, from) = self.parts[at.0].hand_over(at.1, empty);
        move_point(&mut self.sums, row, &self.centres.origin, Some(from), empty);
        self.counts[from] -= 1;
        self.counts[empty] += 1;
        self.take_mean(&mut means[from * dimension..(from + 1) * dimension], from);
        means[empty * dimension..(empty + 1) * dimension].copy_from_slice(row);
        Ok(())
    }

    fn rest(self, iterations: usize, converged: bool) -> Rest {
        let labels = self.parts.iter().flat_map(|part| part.labels.iter().map(|&label| label as usize)).collect();
        Rest { labels, iterations, converged }
    }
}

impl Centres {
    fn new(values: Vec<f64>, origin: Vec<f64>) -> Self {
        let dimension = origin.len();
        let clusters = values.len() / dimension;
        let panels = Panels::pack(&values, dimension);
        let mut centres = Self {
            origin,
            clearance: vec![0.0; clusters],
            moves: vec![0.0; clusters],
            largest: vec![Largest::default(); panels.count()],
            accuracy: (dimension + 8) as f64 * f64::EPSILON,
            panels,
            values,
        };
        centres.measure_clearance();
        centres
    }

    fn row(&self, centre: usize) -> &[f64] {
        let dimension = self.origin.len();
        &self.values[centre * dimension..(centre + 1) * dimension]
    }

    fn set(&mut self, values: Vec<f64>) {
        let dimension = self.origin.len();
        let rows = self.values.chunks_exact(dimension).zip(values.chunks_exact(dimension));
        for (moved, (old, new)) in self.moves.iter_mut().zip(rows) {
            *moved = distance(old, new) * (1.0 + self.accuracy);
        }
        for (panel, largest) in self.largest.iter_mut().enumerate() {
            *largest = Largest::default();
            for centre in self.panels.members(panel) {
                let moved = self.moves[centre];
                if moved > largest.first {
                    *largest = Largest { centre, first: moved, second: largest.first };
                } else {
                    largest.second = largest.second.max(moved);
                }
            }
        }
        self.panels = Panels::pack(&values, dimension);
        self.values = values;
        self.measure_clearance();
    }

    fn measure_clearance(&mut self) {
        let clusters = self.clearance.len();
        self.clearance.fill(f64::INFINITY);
        for (tile, _) in tiles(clusters) {
            for panel in 0..self.panels.count() {
                let rows = tile.map(|centre| self.row(centre));
                let squares = dispatch!(|cpu| self.panels.squares(cpu, panel, rows));
                for (&centre, squares) in tile.iter().zip(&squares) {
                    for (other, &square) in self.panels.members(panel).zip(squares) {
                        if other != centre {
                            let half = 0.5 * square.sqrt() * (1.0 - self.accuracy);
                            self.clearance[centre] = self.clearance[centre].min(half);
                        }
                    }
                }
            }
        }
    }
}

/// A range of points with their labels and bounds, and the changes of the sums.
struct Part<'a> {
    rows: &'a [f64],
    dimension: usize,
    labels: Vec<u32>,
    /// Upper bound on the distance to the own centre.
    upper: Vec<f64>,
    /// For every point and panel, a lower bound on the distance to any other centre of the panel.
    lower: Vec<f64>,
    sums: Vec<f64>,
    counts: Vec<i64>,
    /// Points whose distances must be computed anew.
    waiting: Vec<usize>,
    /// Number of points in this assignment that the distance to their own centre settles, and whether there were enough of
    /// them in the last one to compute it first.
    settled: usize,
    tightens: bool,
    placed: bool,
    changed: bool,
}

impl<'a> Part<'a> {
    fn new(rows: &'a [f64], dimension: usize, clusters: usize) -> Self {
        let points = rows.len() / dimension;
        Self {
            rows,
            dimension,
            labels: vec![0; points],
            upper: vec![f64::INFINITY; points],
            lower: vec![0.0; points * clusters.div_ceil(LANES)],
            sums: vec![0.0; clusters * dimension],
            counts: vec![0; clusters],
            waiting: Vec::with_capacity(STRETCH),
            settled: 0,
            tightens: true,
            placed: false,
            changed: false,
        }
    }

    fn row(&self, point: usize) -> &'a [f64] {
        &self.rows[point * self.dimension..(point + 1) * self.dimension]
    }

    #[inline(always)]
    fn assign(&mut self, cpu: Cpu, centres: &Centres) {
        if self.changed {
            self.sums.fill(0.0);
            self.counts.fill(0);
            self.changed = false;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut asked = 0;
        self.settled = 0;
        for first in (0..self.labels.len()).step_by(STRETCH) {
            let stretch = first..self.labels.len().min(first + STRETCH);
            waiting.clear();
            waiting.extend(stretch.clone().filter(|&point| self.loosen(point, centres)));
            asked += waiting.len();
            if self.placed && self.tightens {
                // The distance to the own centre alone often separates bounds that overlap. It is computed for all of them
                // before any is tested, and for the others too where they are few: sequential reads are fastest.
                if waiting.len() * SCATTERED > stretch.len() {
                    stretch.for_each(|point| self.tighten(point, centres));
                } else {
                    waiting.iter().for_each(|&point| self.tighten(point, centres));
                }
                self.settled += waiting.len();
                waiting.retain(|&point| self.bounds_overlap(point, centres));
                self.settled -= waiting.len();
            }
            for (tile, filled) in tiles(waiting.len()) {
                self.place(cpu, tile.map(|at| waiting[at]), filled, centres);
            }
        }
        self.waiting = waiting;
        self.tightens = !self.placed || self.settled * WORTH >= asked;
        self.placed = true;
    }

    /// Loosens the bounds of a point by the moves of the centres; returns whether they overlap.
    #[inline(always)]
    fn loosen(&mut self, point: usize, centres: &Centres) -> bool {
        let label = self.labels[point] as usize;
        self.upper[point] = (self.upper[point] + centres.moves[label]) * (1.0 + ROUNDING);
        let panels = centres.largest.len();
        for (lower, largest) in self.lower[point * panels..(point + 1) * panels].iter_mut().zip(&centres.largest) {
            let moved = if largest.centre == label { largest.second } else { largest.first };
            *lower = *lower * (1.0 - ROUNDING) - moved;
        }
        self.bounds_overlap(point, centres)
    }

    /// Tightens the upper bound to the distance itself.
    #[inline(always)]
    fn tighten(&mut self, point: usize, centres: &Centres) {
        let centre = centres.row(self.labels[point] as usize);
        self.upper[point] = squared_distance(self.row(point), centre).sqrt() * (1.0 + centres.accuracy);
    }

    /// Whether another centre may be as near as the own one.
    #[inline(always)]
    fn bounds_overlap(&self, point: usize, centres: &Centres) -> bool {
        self.upper[point] >= self.limit(point, centres)
    }

    /// The distance to its centre up to which a point is certain to belong there.
    #[inline(always)]
    fn limit(&self, point: usize, centres: &Centres) -> f64 {
        let panels = centres.largest.len();
        let lower = &self.lower[point * panels..(point + 1) * panels];
        let nearest = lower.iter().copied().fold(f64::INFINITY, f64::min);
        nearest.max(centres.clearance[self.labels[point] as usize])
    }

    /// Assigns the first `filled` points of a tile to their nearest centres.
    #[inline(always)]
    fn place(&mut self, cpu: Cpu, tile: [usize; TILE], filled: usize, centres: &Centres) {
        let panels = centres.panels.count();
        let rows = tile.map(|point| self.row(point));
        let mut nearest = [Nearest::NONE; TILE];
        let own = tile.map(|point| self.labels[point] as usize / LANES);
        let limits = tile.map(|point| self.limit(point, centres));
        for own_panel in [true, false] {
            for panel in 0..panels {
                let in_reach = |slot: usize| {
                    self.lower[tile[slot] * panels + panel] <= nearest[slot].square.sqrt() * (1.0 + centres.accuracy)
                };
                if own.contains(&panel) != own_panel || !own_panel && !(0..filled).any(in_reach) {
                    continue;
                }
                let squares = centres.panels.squares(cpu, panel, rows);
                for slot in 0..filled {
                    let first = nearest[slot].update(&squares[slot], panel * LANES);
                    if panels > 1 {
                        self.lower[tile[slot] * panels + panel] = first.sqrt() * (1.0 - centres.accuracy);
                    }
                }
            }
        }
        for (slot, nearest) in nearest.into_iter().enumerate().take(filled) {
            let (point, from) = (tile[slot], self.labels[tile[slot]] as usize);
            self.upper[point] = nearest.square.sqrt() * (1.0 + centres.accuracy);
            self.settled += usize::from(from == nearest.centre && self.upper[point] < limits[slot]);
            self.lower[point * panels + nearest.centre / LANES] = nearest.second.sqrt() * (1.0 - centres.accuracy);
            if !self.placed || from != nearest.centre {
                self.labels[point] = nearest.centre as u32;
                self.changed = true;
                self.counts[nearest.centre] += 1;
                if self.placed {
                    self.counts[from] -= 1;
                }
                let from = self.placed.then_some(from);
                move_point(&mut self.sums, rows[slot], &centres.origin, from, nearest.centre);
            }
        }
    }

    /// The point farthest from its cluster's mean, and its squared distance.
    fn farthest(&self, means: &[f64]) -> (f64, usize) {
        let mut farthest = (0.0, 0);
        for (point, &label) in self.labels.iter().enumerate() {
            let mean = &means[label as usize * self.dimension..(label as usize + 1) * self.dimension];
            let square = squared_distance(self.row(point), mean);
            if square > farthest.0 {
                farthest = (square, point);
            }
        }
        farthest
    }

    /// Moves a point to another cluster and resets its bounds; returns its row and its old cluster.
    fn hand_over(&mut self, point: usize, to: usize) -> (&'a [f64], usize) {
        let panels = self.lower.len() / self.labels.len();
        let from = std::mem::replace(&mut self.labels[point], to as u32);
        self.upper[point] = f64::INFINITY;
        self.lower[point * panels..(point + 1) * panels].fill(0.0);
        (self.row(point), from as usize)
    }
}

/// The nearest centre so far, and the second nearest of its panel.
#[derive(Clone, Copy)]
struct Nearest {
    square: f64,
    centre: usize,
    second: f64,
}

impl Nearest {
    const NONE: Self = Self { square: f64::INFINITY, centre: usize::MAX, second: f64::INFINITY };

    /// Updates it with the squared distances to a panel of centres from `offset` on; returns the smallest.
    #[inline(always)]
    fn update(&mut self, squares: &[f64; LANES], offset: usize) -> f64 {
        let smaller = |a: f64, b: f64| if a < b { a } else { b };
        let (mut first, mut second) = (f64::INFINITY, f64::INFINITY);
        for &square in squares {
            second = smaller(second, if first > square { first } else { square });
            first = smaller(first, square);
        }
        let centre = offset + squares.iter().position(|&square| square == first).unwrap_or(0);
        if first < self.square || first == self.square && centre < self.centre {
            *self = Self { square: first, centre, second };
        }
        first
    }
}

#[inline(always)]
fn move_point(sums: &mut [f64], row: &[f64], origin: &[f64], from: Option<usize>, to: usize) {
    let dimension = row.len();
    let mut add = |cluster: usize, sign: f64| {
        let sums = &mut sums[cluster * dimension..(cluster + 1) * dimension];
        for (sum, (value, origin)) in sums.iter_mut().zip(row.iter().zip(origin)) {
            *sum += sign * (value - origin);
        }
    };
    add(to, 1.0);
    if let Some(from) = from {
        add(from, -1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::distances::tests::square_in_order;
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;
    use rand_distr::{Distribution, StandardNormal};

    /// Lloyd's iteration as it is written down; also how often an empty cluster was filled.
    fn run_plainly(points: Points, start: &[f64], iterations: usize) -> (Rest, usize) {
        let cpu = dispatch!(|cpu| cpu);
        let dimension = points.dimension();
        let clusters = start.len() / dimension;
        let mut centres = start.to_vec();
        let mut labels = vec![usize::MAX; points.count()];
        let mut filled = 0;
        for iteration in 1..=iterations {
            let before = labels.clone();
            for (point, label) in labels.iter_mut().enumerate() {
                let squares: Vec<f64> = centres
                    .chunks_exact(dimension)
                    .map(|centre| square_in_order(cpu, points.row(point), centre))
                    .collect();
                *label = (0..clusters).fold(0, |best, other| if squares[other] < squares[best] { other } else { best });
            }
            if labels == before {
                return (Rest { labels, iterations: iteration, converged: true }, filled);
            }
            loop {
                let mean = |cluster: usize| -> Option<Vec<f64>> {
                    let members: Vec<usize> = (0..points.count()).filter(|&point| labels[point] == cluster).collect();
                    let sum = |column| members.iter().map(|&point| points.row(point)[column]).sum::<f64>();
                    (!members.is_empty()).then(|| (0..dimension).map(|c| sum(c) / members.len() as f64).collect())
                };
                let means: Vec<Option<Vec<f64>>> = (0..clusters).map(mean).collect();
                let Some(empty) = means.iter().position(Option::is_none) else {
                    centres = means.into_iter().flatten().flatten().collect();
                    break;
                };
                let reach = |point: usize| squared_distance(points.row(point), means[labels[point]].as_ref().unwrap());
                let farthest =
                    (0..points.count()).fold(0, |best, other| if reach(other) > reach(best) { other } else { best });
                labels[farthest] = empty;
                filled += 1;
            }
        }
        (Rest { labels, iterations, converged: false }, filled)
    }

    fn normal(count: usize, key: &Key) -> Vec<f64> {
        let mut random = key.rng();
        (0..count).map(|_| StandardNormal.sample(&mut random)).collect()
    }

    /// Points around as many places as asked for.
    fn blobs(count: usize, dimension: usize, places: usize, spread: f64, key: &Key) -> Vec<f64> {
        let middle = normal(places * dimension, &key.clone().word("places"));
        let noise = normal(count * dimension, &key.clone().word("noise"));
        let at = |index: usize| middle[index / dimension % places * dimension + index % dimension];
        noise.iter().enumerate().map(|(index, noise)| at(index) + spread * noise).collect()
    }

    #[test]
    fn labels_are_those_of_the_plain_loop_at_every_iteration() {
        // Noise and clusters, one panel and several, one part and several.
        let cases = [(600, 3, 5, 5.0), (600, 3, 5, 0.2), (500, 8, 40, 0.5), (300, 2, 13, 5.0), (5000, 4, 7, 0.4)];
        for (case, (count, dimension, clusters, spread)) in cases.into_iter().enumerate() {
            let key = Key::new(case as u64).word("pruning");
            let values = blobs(count, dimension, clusters, spread, &key);
            let points = Points::new(&values, dimension).unwrap();
            let start = &values[..clusters * dimension];
            for iterations in (1..12).chain([20, 1000]) {
                let (plain, _) = run_plainly(points, start, iterations);
                let ours = run(points, start, Pace::Jump, iterations).unwrap();
                assert_eq!(ours.labels, plain.labels, "case {case}, {iterations} iterations");
                assert_eq!((ours.iterations, ours.converged), (plain.iterations, plain.converged));
            }
            assert!(run(points, start, Pace::Jump, 1000).unwrap().converged);
        }
    }

    #[test]
    fn bounds_prune() {
        let values = blobs(3000, 10, 6, 0.3, &Key::new(3));
        let points = Points::new(&values, 10).unwrap();
        let mut lloyd = Lloyd::new(points, &values[..60], Pace::Jump);
        lloyd.assign();
        lloyd.move_centres().unwrap();
        while lloyd.assign() {
            lloyd.move_centres().unwrap();
        }
        // Every point's bounds hold, and most points are not measured again.
        let mut measured = 0;
        for part in &mut lloyd.parts {
            for point in 0..part.labels.len() {
                let own = part.labels[point] as usize;
                for centre in 0..6 {
                    let distance = distance(part.row(point), lloyd.centres.row(centre));
                    if centre == own {
                        assert!(distance <= part.upper[point]);
                    } else {
                        assert!(distance >= part.lower[point]);
                    }
                }
                lloyd.centres.moves.fill(0.0);
                lloyd.centres.largest.fill(Largest::default());
                measured += usize::from(part.loosen(point, &lloyd.centres));
            }
        }
        assert!(measured < 300, "{measured} of 3000");
    }

    #[test]
    fn empty_clusters_take_the_farthest_points() {
        let mut most = 0;
        for seed in 0..30 {
            let key = Key::new(seed).word("empty");
            let values = blobs(60, 2, 4, 0.3, &key);
            let points = Points::new(&values, 2).unwrap();
            // Centres far away, and equal ones: none but the lowest gets points.
            let mut random = key.rng();
            let start: Vec<f64> = (0..14).map(|_| f64::from(random.random_range(0..3)) * 4.0).collect();
            for iterations in [1, 2, 3, 100] {
                let (plain, filled) = run_plainly(points, &start, iterations);
                assert_eq!(
                    run(points, &start, Pace::Jump, iterations).unwrap().labels,
                    plain.labels,
                    "{seed} {iterations}"
                );
                most = most.max(filled);
            }
        }
        assert!(most > 2, "{most}");
    }

    #[test]
    fn a_large_offset_does_not_blur() {
        let values = blobs(400, 3, 4, 1.0, &Key::new(9));
        let far: Vec<f64> = values.iter().map(|value| value + 1048576.0).collect();
        let near: Vec<f64> = far.iter().map(|value| value - 1048576.0).collect();
        let labels =
            |values: &[f64]| run(Points::new(values, 3).unwrap(), &values[..12], Pace::Jump, 300).unwrap().labels;
        assert_eq!(labels(&far), labels(&near));
    }
}
