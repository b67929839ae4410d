//! Convex clustering with uniform weights: every pair of points attracts each other.
//!
//! Two facts make it fast. A set S of points that would be one cluster on its own is within one cluster of the whole,
//! because all others attract its members equally; the proof are forces z_ij with ‖z_ij‖ ≤ λ and Σ_j z_ij = a_i − mean of
//! S, and it holds for every larger λ. So fused points are one heavier point from then on. And between distinct points
//! the objective is smooth, so that Newton's method solves the rest.
//!
//! To find the points that fuse, ‖x‖ is softened to s = √(‖x‖² + ε²). A softened solution has forces λ(u_i − u_j)/s, all
//! shorter than λ: they prove a set that fuses with a margin long before ε is small, and they bound the objective from
//! below, so that the gap is known at any time. A set that does not fuse is refuted by any solution that is better than
//! its mean.
//!
//! A Newton step costs one factorisation of a G × G matrix for G groups and a few products G × G × d: the part of the
//! Hessian that couples coordinates is left to conjugate gradients, which need a handful of steps.

use super::squares::{squared_distances, transpose};
use super::tree::{Candidate, Tree};
use super::*;
use crate::num::{Cholesky, multiply_add, sum};

const BLOCK: usize = 128;
/// Newton steps allowed after a prediction along the path.
const FEW_STEPS: usize = 4;

/// The problem with every fused set as one heavier point, and its current solution. The data's radius should be about 1.
#[derive(Default)]
pub(super) struct Uniform {
    dimension: usize,
    labels: Vec<usize>,
    solution: Vec<f64>,
    /// Number of points of every group.
    mass: Vec<f64>,
    /// Means of the groups' points.
    centre: Vec<f64>,
    /// One point of every group, which identifies it when groups are renumbered.
    name: Vec<usize>,
    /// ½ Σ‖a_i − mean of its group‖².
    scatter: f64,
    tree: Option<Tree>,
    last: Option<Last>,
    space: Space,
}

struct Last {
    lambda: f64,
    nearest: f64,
    solution: Vec<f64>,
    /// The derivative of the solution in λ, where no groups have fused since.
    speed: Option<Vec<f64>>,
}

#[derive(Default)]
struct Space {
    /// λ n_g n_h / s_gh.
    weight: Vec<f64>,
    /// The same over s².
    bend: Vec<f64>,
    degree: Vec<f64>,
    gradient: Vec<f64>,
    transposed: Vec<f64>,
    square: Vec<f64>,
}

impl Uniform {
    /// All points apart.
    pub(super) fn new(values: &[f64], dimension: usize) -> Self {
        let count = values.len() / dimension;
        Self {
            dimension,
            labels: (0..count).collect(),
            solution: values.to_vec(),
            mass: vec![1.0; count],
            centre: values.to_vec(),
            name: (0..count).collect(),
            ..Self::default()
        }
    }

    /// Extrapolates the last two solutions. Returns the initial softness: none when no two groups come close to each other.
    fn predict(&mut self, lambda: f64) -> f64 {
        let Some(last) = &self.last else { return SOFT };
        let soft = (0.3 * last.nearest).clamp(SOFT_AGAIN, SOFT);
        let Some(speed) = last.speed.as_ref().filter(|speed| speed.len() == self.solution.len()) else { return soft };
        add_scaled(&mut self.solution, lambda - last.lambda, speed);
        transpose(&mut self.space.transposed, &self.solution, self.dimension);
        let nearest = self.bound(lambda, SHARP).1;
        if nearest > 0.5 * last.nearest && nearest > 1e-4 { SHARP } else { soft }
    }

    fn remember(&mut self, lambda: f64, nearest: f64) {
        let speed = self.last.take().filter(|last| last.solution.len() == self.solution.len() && last.lambda < lambda);
        let speed = speed.map(|last| {
            let pairs = self.solution.iter().zip(&last.solution);
            pairs.map(|(now, before)| (now - before) / (lambda - last.lambda)).collect()
        });
        self.last = Some(Last { lambda, nearest, solution: self.solution.clone(), speed });
    }

    /// The objective without softness, the gap, and the smallest distance of two groups.
    ///
    /// With the softened forces as the dual point, the gap is ½ Σ‖gradient_g‖²/n_g + λ Σ n_g n_h (r − r²/s).
    fn bound(&self, lambda: f64, softness: f64) -> (Bound, f64) {
        let groups = self.groups();
        let parts: Vec<(f64, f64, f64)> = (0..groups.div_ceil(BLOCK))
            .into_par_iter()
            .map(|block| {
                let mut squares = vec![0.0; groups];
                let (mut length, mut lost, mut nearest) = (0.0, 0.0, f64::INFINITY);
                for g in block * BLOCK..groups.min((block + 1) * BLOCK) {
                    squared_distances(&mut squares, &self.space.transposed, g);
                    for (square, n) in squares.iter().zip(&self.mass).take(g) {
                        let (distance, smoothed) = (square.sqrt(), (square + softness * softness).sqrt());
                        let pull = self.mass[g] * n * distance;
                        length += pull;
                        lost += pull / (smoothed * (smoothed + distance));
                        nearest = distance.min(nearest);
                    }
                }
                (length, lost, nearest)
            })
            .collect();
        let length: f64 = parts.iter().map(|part| part.0).sum();
        let lost: f64 = parts.iter().map(|part| part.1).sum();
        let nearest = parts.iter().map(|part| part.2).fold(f64::INFINITY, f64::min);
        let rows = self.solution.chunks_exact(self.dimension).zip(self.centre.chunks_exact(self.dimension));
        let off: f64 = rows.zip(&self.mass).map(|((u, a), n)| 0.5 * n * distance(u, a).powi(2)).sum();
        let gap = self.slope() + lambda * lost * softness * softness;
        (Bound { primal: self.scatter + off + lambda * length, gap, undecided: 0 }, nearest)
    }

    fn pairs_nearer(&self, than: f64) -> usize {
        let rows: Vec<&[f64]> = self.solution.chunks_exact(self.dimension).collect();
        let pairs = (0..rows.len()).flat_map(|g| (0..g).map(move |h| (g, h)));
        let near = pairs.filter(|&(g, h)| distance(rows[g], rows[h]) <= than);
        near.map(|(g, h)| (self.mass[g] * self.mass[h]) as usize).sum()
    }

    /// Fuses the sets that z_ij = (a_i − a_j) / |S| proves: those not wider than λ |S|.
    fn fuse_narrow(&mut self, lambda: f64) {
        while self.groups() > 1 {
            let tree = self.tree.take().unwrap_or_else(|| Tree::over(&self.centre, self.dimension));
            let narrow = tree.select(|candidate| self.is_narrow(candidate, lambda));
            if narrow.is_empty() {
                self.tree = Some(tree);
                return;
            }
            self.fuse(&narrow);
        }
    }

    fn is_narrow(&self, candidate: Candidate, lambda: f64) -> bool {
        let (mean, mass) = self.mean(candidate.members);
        let reach = lambda * mass;
        let radius = candidate.members.iter().map(|&g| distance(self.centre(g), &mean)).fold(0.0, f64::max);
        let narrow = |(at, &g): (usize, &usize)| {
            candidate.members[..at].iter().all(|&h| distance(self.centre(g), self.centre(h)) <= reach)
        };
        candidate.inside <= reach
            && radius <= reach
            && (2.0 * radius <= reach || candidate.members.iter().enumerate().all(narrow))
    }

    /// Fuses the sets of close solutions, well separated from all others, that are proved to be one.
    fn fuse_proved(&mut self, lambda: f64, softness: f64, refuted: &mut HashSet<Vec<usize>>) -> bool {
        let tree = Tree::over(&self.solution, self.dimension);
        let names = |members: &[usize]| {
            let mut names: Vec<usize> = members.iter().map(|&g| self.name[g]).collect();
            names.sort_unstable();
            names
        };
        let mut judged: HashMap<Vec<usize>, bool> = HashMap::new();
        let mut one = Vec::new();
        loop {
            // From the largest sets down: those not proved give way to their parts.
            let sets = tree.select(|candidate| {
                let clear = candidate.outside >= 3.0 * candidate.inside && candidate.inside <= 1000.0 * softness;
                clear && {
                    let names = names(candidate.members);
                    !refuted.contains(&names) && judged.get(&names) != Some(&false)
                }
            });
            let open: Vec<Vec<usize>> = sets.into_iter().filter(|set| !judged.contains_key(&names(set))).collect();
            if open.is_empty() {
                break;
            }
            let verdicts: Vec<Option<bool>> =
                open.par_iter().map(|members| self.judge(members, lambda, softness)).collect();
            for (members, verdict) in open.into_iter().zip(verdicts) {
                let names = names(&members);
                if verdict == Some(false) {
                    refuted.insert(names.clone());
                }
                if judged.entry(names).or_insert(verdict == Some(true)) == &true {
                    one.push(members);
                }
            }
        }
        self.fuse(&one);
        !one.is_empty()
    }

    /// Whether these groups are one at this λ; `None` if undecided.
    fn judge(&self, members: &[usize], lambda: f64, softness: f64) -> Option<bool> {
        let (mean, mass) = self.mean(members);
        // Every other member attracts a member with at most λ.
        if members.iter().any(|&g| distance(self.centre(g), &mean) > lambda * (mass - self.mass[g])) {
            return Some(false);
        }
        let pick = |values: &[f64]| -> Vec<f64> {
            let row = |&g: &usize| values[g * self.dimension..(g + 1) * self.dimension].iter().copied();
            members.iter().flat_map(row).collect()
        };
        let mut alone = Uniform::new(&pick(&self.centre), self.dimension);
        alone.solution = pick(&self.solution);
        alone.mass = members.iter().map(|&g| self.mass[g]).collect();
        if alone.is_one(lambda, softness) {
            return Some(true);
        }
        // On its own it is a smaller problem, unless it is nearly everything.
        if 2 * members.len() > self.groups() {
            return None;
        }
        let scatter: f64 = members.iter().map(|&g| 0.5 * self.mass[g] * distance(self.centre(g), &mean).powi(2)).sum();
        let mut softness = softness;
        for _ in 0..10 {
            descend(&mut alone, lambda, softness, (ROUGHLY, 1e-12), MOST_STEPS);
            if alone.is_one(lambda, softness) {
                return Some(true);
            }
            if alone.bound(lambda, softness).0.primal < scatter * (1.0 - 1e-12) {
                return Some(false);
            }
            softness = (softness / 8.0).max(SHARP);
        }
        None
    }

    /// Whether the softened forces, corrected so that they balance, prove that all groups are one.
    fn is_one(&self, lambda: f64, softness: f64) -> bool {
        let (groups, dimension) = (self.groups(), self.dimension);
        let all: Vec<usize> = (0..groups).collect();
        let (mean, mass) = self.mean(&all);
        let pull = |g: usize, h: usize, out: &mut [f64]| {
            let mut square = softness * softness;
            for ((o, u), v) in out.iter_mut().zip(self.place(g)).zip(self.place(h)) {
                *o = u - v;
                square += *o * *o;
            }
            let scale = lambda / square.sqrt();
            out.iter_mut().for_each(|o| *o *= scale);
        };
        // The imbalance of a group's forces over |S|: added to one end and subtracted from the other it balances every sum.
        let mut lacking = vec![0.0; groups * dimension];
        lacking.par_chunks_mut(BLOCK * dimension).enumerate().for_each(|(block, rows)| {
            let mut z = vec![0.0; dimension];
            for (row, lacks) in rows.chunks_exact_mut(dimension).enumerate() {
                let g = block * BLOCK + row;
                for ((lacks, a), m) in lacks.iter_mut().zip(self.centre(g)).zip(&mean) {
                    *lacks = a - m;
                }
                for h in 0..groups {
                    pull(g, h, &mut z);
                    lacks.iter_mut().zip(&z).for_each(|(lacks, z)| *lacks -= self.mass[h] * z);
                }
                lacks.iter_mut().for_each(|lacks| *lacks /= mass);
            }
        });
        let lacks = |g: usize| &lacking[g * dimension..(g + 1) * dimension];
        (0..groups.div_ceil(BLOCK)).into_par_iter().all(|block| {
            let mut z = vec![0.0; dimension];
            (block * BLOCK..groups.min((block + 1) * BLOCK)).all(|g| {
                (0..g).all(|h| {
                    pull(g, h, &mut z);
                    for ((z, p), q) in z.iter_mut().zip(lacks(g)).zip(lacks(h)) {
                        *z += p - q;
                    }
                    dot(&z, &z) <= lambda * lambda
                })
            })
        })
    }

    fn centre(&self, g: usize) -> &[f64] {
        &self.centre[g * self.dimension..(g + 1) * self.dimension]
    }

    fn place(&self, g: usize) -> &[f64] {
        &self.solution[g * self.dimension..(g + 1) * self.dimension]
    }

    fn mean(&self, members: &[usize]) -> (Vec<f64>, f64) {
        let mass: f64 = members.iter().map(|&g| self.mass[g]).sum();
        let mut mean = vec![0.0; self.dimension];
        for &g in members {
            mean.iter_mut().zip(self.centre(g)).for_each(|(m, a)| *m += self.mass[g] / mass * a);
        }
        (mean, mass)
    }

    fn fuse(&mut self, sets: &[Vec<usize>]) {
        if sets.is_empty() {
            return;
        }
        let dimension = self.dimension;
        let mut target: Vec<usize> = (0..self.groups()).collect();
        for set in sets {
            set.iter().for_each(|&g| target[g] = set[0]);
        }
        let target = renumber(&target);
        let left = target.iter().max().map_or(0, |last| last + 1);
        let mut members = vec![Vec::new(); left];
        target.iter().enumerate().for_each(|(g, &to)| members[to].push(g));
        let (mut mass, mut centre, mut solution) = (Vec::new(), Vec::new(), Vec::new());
        for set in &members {
            let (mean, total) = self.mean(set);
            self.scatter +=
                set.iter().map(|&g| 0.5 * self.mass[g] * distance(self.centre(g), &mean).powi(2)).sum::<f64>();
            let at = |c: usize| set.iter().map(|&g| self.mass[g] / total * self.place(g)[c]).sum::<f64>();
            solution.extend((0..dimension).map(at));
            centre.extend(mean);
            mass.push(total);
        }
        self.name = members.iter().map(|set| self.name[set[0]]).collect();
        self.labels.iter_mut().for_each(|label| *label = target[*label]);
        (self.mass, self.centre, self.solution, self.tree) = (mass, centre, solution, None);
    }
}

impl Solve for Uniform {
    fn labels(&self) -> &[usize] {
        &self.labels
    }

    fn places(&self) -> &[f64] {
        &self.solution
    }

    fn groups(&self) -> usize {
        self.mass.len()
    }

    fn fewest_groups(&self) -> usize {
        1
    }

    /// Together, ‖a_i − a_j‖ is at most the total force of all others on i and j, and a set not wider than λ |S| is one.
    fn ends(&self) -> [f64; 2] {
        let groups = self.groups();
        let mut transposed = Vec::new();
        transpose(&mut transposed, &self.centre, self.dimension);
        let extremes: Vec<[f64; 2]> = (0..groups)
            .into_par_iter()
            .map_init(
                || vec![0.0; groups],
                |squares, g| {
                    squared_distances(squares, &transposed, g);
                    let apart = squares.iter().copied().filter(|&square| square > 0.0);
                    apart.fold([f64::INFINITY, 0.0], |[low, high], square| [square.min(low), square.max(high)])
                },
            )
            .collect();
        let nearest = extremes.iter().map(|pair| pair[0]).fold(f64::INFINITY, f64::min).sqrt();
        let farthest = extremes.iter().map(|pair| pair[1]).fold(0.0, f64::max).sqrt();
        let count = self.labels.len() as f64;
        [0.999 * nearest / (2.0 * (count - 1.0)), 1.001 * farthest / count]
    }

    fn solve(&mut self, lambda: f64, tolerance: f64) -> Bound {
        let mut softness = self.predict(lambda);
        let mut begun_sharp = softness <= SHARP;
        let mut refuted = HashSet::new();
        let mut accuracy = tolerance;
        self.fuse_narrow(lambda);
        loop {
            if self.groups() == 1 || lambda == 0.0 {
                self.solution.copy_from_slice(&self.centre);
                return Bound { primal: self.scatter, gap: 0.0, undecided: 0 };
            }
            if begun_sharp {
                begun_sharp = false;
                if !descend(self, lambda, softness, (ROUGHLY, accuracy), FEW_STEPS) {
                    // The prediction passed a fusion.
                    softness = SOFT_AGAIN;
                    continue;
                }
            } else {
                descend(self, lambda, softness, (ROUGHLY, accuracy), MOST_STEPS);
            }
            let (mut bound, nearest) = self.bound(lambda, softness);
            // Solutions are within √(2 gap) of the optimum, so differences of two are within 2 √gap.
            let decided = nearest > 2.0 * bound.gap.sqrt();
            let clear = decided && nearest > 100.0 * softness;
            if !clear && self.fuse_proved(lambda, softness, &mut refuted) {
                self.fuse_narrow(lambda);
                continue;
            }
            if softness <= SHARP && !decided && accuracy > FINEST {
                accuracy *= 1e-4;
                continue;
            }
            if softness <= SHARP || decided && bound.gap <= tolerance * bound.primal {
                bound.undecided = if decided { 0 } else { self.pairs_nearer(2.0 * bound.gap.sqrt()) };
                self.remember(lambda, nearest);
                return bound;
            }
            softness = if nearest > 30.0 * softness { SHARP } else { (softness / 8.0).max(SHARP) };
        }
    }
}

impl Softened for Uniform {
    type Preconditioner = Cholesky;

    fn solution(&mut self) -> &mut Vec<f64> {
        &mut self.solution
    }

    fn evaluate(&mut self, lambda: f64, softness: f64) -> f64 {
        let (groups, dimension) = (self.groups(), self.dimension);
        let Space { weight, bend, degree, gradient, transposed, .. } = &mut self.space;
        weight.resize(groups * groups, 0.0);
        bend.resize(groups * groups, 0.0);
        degree.resize(groups, 0.0);
        gradient.resize(groups * dimension, 0.0);
        transpose(transposed, &self.solution, dimension);
        let (transposed, solution, centre, mass) =
            (&transposed[..], &self.solution[..], &self.centre[..], &self.mass[..]);
        let blocks = weight.par_chunks_mut(BLOCK * groups).zip(bend.par_chunks_mut(BLOCK * groups));
        let blocks = blocks.zip(degree.par_chunks_mut(BLOCK)).zip(gradient.par_chunks_mut(BLOCK * dimension));
        let objectives: Vec<f64> = blocks
            .enumerate()
            .map(|(block, (((weight, bend), degree), gradient))| {
                let mut objective = 0.0;
                let rows = weight.chunks_exact_mut(groups).zip(bend.chunks_exact_mut(groups));
                let rows = rows.zip(degree.iter_mut()).zip(gradient.chunks_exact_mut(dimension));
                for (row, (((weight, bend), degree), gradient)) in rows.enumerate() {
                    let g = block * BLOCK + row;
                    squared_distances(bend, transposed, g);
                    let (pull, extra) = (lambda * mass[g], softness * softness);
                    let mut smoothed = 0.0;
                    for ((w, b), n) in weight.iter_mut().zip(bend.iter_mut()).zip(mass) {
                        let square = *b + extra;
                        let inverse = 1.0 / square.sqrt();
                        *w = pull * n * inverse;
                        *b = *w * (inverse * inverse);
                    }
                    (weight[g], bend[g]) = (0.0, 0.0);
                    *degree = sum(weight);
                    for ((w, n), h) in weight.iter().zip(mass).zip(0..groups) {
                        if h != g {
                            smoothed += (pull * n) * (pull * n) / w;
                        }
                    }
                    objective += 0.5 * smoothed;
                    let at = g * dimension..(g + 1) * dimension;
                    for ((out, u), a) in gradient.iter_mut().zip(&solution[at.clone()]).zip(&centre[at]) {
                        objective += 0.5 * mass[g] * (u - a) * (u - a);
                        *out = mass[g] * (u - a) + *degree * u;
                    }
                }
                let rows = degree.len();
                let weight = Matrix::new(weight, rows, groups);
                multiply_add(gradient, -1.0, weight, Matrix::new(solution, groups, dimension));
                objective
            })
            .collect();
        objectives.iter().sum()
    }

    fn gradient(&self) -> &[f64] {
        &self.space.gradient
    }

    fn slope(&self) -> f64 {
        let rows = self.space.gradient.chunks_exact(self.dimension);
        rows.zip(&self.mass).map(|(row, n)| 0.5 * dot(row, row) / n).sum()
    }

    fn stiffness(&self) -> f64 {
        self.space.degree.iter().sum()
    }

    /// The Hessian without the coupling of coordinates: n + Lap(w).
    fn preconditioner(&mut self) -> Option<Cholesky> {
        let groups = self.groups();
        let Space { weight, degree, square, .. } = &mut self.space;
        square.clear();
        square.extend(weight.iter().map(|w| -w));
        for g in 0..groups {
            square[g * groups + g] = self.mass[g] + degree[g];
        }
        Cholesky::new(square, groups)
    }

    fn precondition(&self, with: &Cholesky, vector: &mut [f64]) {
        with.solve(vector, self.dimension);
    }

    /// n v + Lap(w) v − Lap(b ∘ q) u with q_gh = ⟨u_g − u_h, v_g − v_h⟩.
    fn curve(&mut self, along: &[f64], image: &mut [f64]) {
        let (groups, dimension) = (self.groups(), self.dimension);
        let solution = &self.solution[..];
        let side_by_side = |left: &[f64], right: &[f64]| -> Vec<f64> {
            let rows = left.chunks_exact(dimension).zip(right.chunks_exact(dimension));
            rows.flat_map(|(left, right)| left.iter().chain(right).copied()).collect()
        };
        let (both, swapped) = (side_by_side(solution, along), side_by_side(along, solution));
        let own: Vec<f64> =
            both.chunks_exact(2 * dimension).map(|row| dot(&row[..dimension], &row[dimension..])).collect();
        let Space { weight, bend, degree, square, .. } = &mut self.space;
        let blocks = square.par_chunks_mut(BLOCK * groups).zip(image.par_chunks_mut(BLOCK * dimension));
        blocks.enumerate().for_each(|(block, (pairs, image))| {
            let (first, rows) = (block * BLOCK, image.len() / dimension);
            let width = 2 * dimension;
            let own_rows = Matrix::new(&both[first * width..(first + rows) * width], rows, width);
            multiply(pairs, 1.0, own_rows, Matrix::new(&swapped, groups, width).transpose());
            let lines = pairs.chunks_exact_mut(groups).zip(image.chunks_exact_mut(dimension)).enumerate();
            for (row, (line, image)) in lines {
                let g = first + row;
                for ((q, b), other) in line.iter_mut().zip(&bend[g * groups..(g + 1) * groups]).zip(&own) {
                    *q = b * (own[g] + other - *q);
                }
                let total = sum(line);
                let at = g * dimension..(g + 1) * dimension;
                for ((out, v), u) in image.iter_mut().zip(&along[at.clone()]).zip(&solution[at]) {
                    *out = (self.mass[g] + degree[g]) * v - total * u;
                }
            }
            let weight = Matrix::new(&weight[first * groups..(first + rows) * groups], rows, groups);
            multiply_add(image, -1.0, weight, Matrix::new(along, groups, dimension));
            multiply_add(image, 1.0, Matrix::new(pairs, rows, groups), Matrix::new(solution, groups, dimension));
        });
    }
}
