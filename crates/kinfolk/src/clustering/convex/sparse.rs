//! Convex clustering with any sparse weights.
//!
//! As with uniform weights, points that are together are one heavier point and Newton's method solves between the
//! groups. But here others attract a group's members unequally, so a group is proved at one λ only, by forces z along its
//! inner edges, ‖z_e‖ ≤ λ w_e, that balance the forces from outside at every member. They are kept, corrected for every
//! new λ by solving with the group's Laplacian, and searched for anew where the correction makes one too long. A group
//! for which that search finds a better solution than being together is split.

use super::graph::{Graph, merge_sorted};
use super::newton::{CLOSELY, conjugate_gradients};
use super::tree::Tree;
use super::*;
use std::sync::OnceLock;

/// Upper bound on the splits at one λ, before the rest is undecided.
const REPAIRS: usize = 30;
/// Upper bounds on the softnesses, each an eighth of the one before, at which a set's own problem is solved in the search for
/// a proof, from the beginning and from a solution at hand, and on the Newton steps at each. Beyond, a set is too close
/// to its fusion to decide.
const SEARCHES: usize = 12;
const SEARCHES_ON: usize = 4;
const SEARCH_STEPS: usize = 20;
/// Upper bound on the strain of forces for which a search is worth its time, and what share of the excess must be left before a
/// search of the same set is repeated.
const NEARLY: f64 = 1.005;
const CLOSER: f64 = 0.25;
/// How much longer than its own edges those are that leave a set which may fuse.
const SEPARATE: f64 = 3.0;

/// The problem, its groups and their proofs. The data's radius should be about 1.
pub(super) struct Sparse {
    dimension: usize,
    points: Vec<f64>,
    edges: Vec<Edge>,
    /// The edges at a point, with +1 where it is `from`, and −1 where it is `to`.
    incident: Vec<Vec<(usize, f64)>>,
    /// z of the edges inside groups, from `from` to `to`.
    pulls: Vec<f64>,
    labels: Vec<usize>,
    members: Vec<Vec<usize>>,
    graph: Graph,
    /// ½ Σ‖a_i − mean of its group‖².
    scatter: f64,
    softness: f64,
    all_together: OnceLock<f64>,
}

enum Verdict {
    /// Forces along the inner edges that prove it.
    One(Vec<f64>),
    /// A better partition, and its squared distance from being together.
    Apart(Vec<usize>, f64),
    /// Neither was found; the squared imbalance of the forces.
    Unclear(f64),
}

/// Where a search begins.
struct Start {
    places: Vec<f64>,
    softness: f64,
    searches: usize,
}

struct Inside<'a> {
    members: &'a [usize],
    edges: Vec<usize>,
    /// The same edges between positions in `members`.
    local: Vec<Edge>,
}

impl Sparse {
    /// All points apart.
    pub(super) fn new(values: &[f64], dimension: usize, edges: Vec<Edge>) -> Self {
        let count = values.len() / dimension;
        let mut incident = vec![Vec::new(); count];
        for (at, edge) in edges.iter().enumerate() {
            incident[edge.from].push((at, 1.0));
            incident[edge.to].push((at, -1.0));
        }
        Self {
            dimension,
            points: values.to_vec(),
            incident,
            pulls: vec![0.0; edges.len() * dimension],
            labels: (0..count).collect(),
            members: (0..count).map(|point| vec![point]).collect(),
            graph: Graph::new(dimension, vec![1.0; count], values.to_vec(), &edges),
            edges,
            scatter: 0.0,
            softness: SOFT,
            all_together: OnceLock::new(),
        }
    }

    /// A λ at which all connected points are together.
    fn all_together(&self) -> f64 {
        *self.all_together.get_or_init(|| self.find_all_together())
    }

    fn find_all_together(&self) -> f64 {
        let mut high = 0.0f64;
        for members in components(self.labels.len(), self.edges.iter().map(|edge| (edge.from, edge.to))) {
            let inside = self.inside(&members);
            let row = |&point: &usize| self.points[point * self.dimension..(point + 1) * self.dimension].iter();
            let values: Vec<f64> = members.iter().flat_map(row).copied().collect();
            let mut pulls = vec![0.0; inside.edges.len() * self.dimension];
            if self.correct(&inside, &without_mean(&values, self.dimension), &mut pulls, f64::INFINITY).is_finite() {
                let pulls = inside.local.iter().zip(pulls.chunks_exact(self.dimension));
                high = pulls.map(|(edge, pull)| dot(pull, pull).sqrt() / edge.weight).fold(high, f64::max);
            } else {
                // A tree of edges can carry everything: no more than 1 from every point.
                let weakest = inside.local.iter().map(|edge| edge.weight).fold(f64::INFINITY, f64::min);
                high = high.max(members.len() as f64 / weakest);
            }
        }
        1.001 * high
    }

    fn edges_shorter(&self, than: f64) -> usize {
        let row = |point: usize| self.graph.row(&self.graph.solution, self.labels[point]);
        let between = self.edges.iter().filter(|edge| self.labels[edge.from] != self.labels[edge.to]);
        between.filter(|edge| distance(row(edge.from), row(edge.to)) <= than).count()
    }

    /// Fuses connected groups with close solutions, not farther apart than `reach`, for which a proof is found; returns
    /// whether there were any. Sets are searched below a strain of `worth`, and once searched, below the one in `searched`.
    fn fuse(
        &mut self,
        lambda: f64,
        softness: f64,
        [reach, worth]: [f64; 2],
        searched: &mut HashMap<Vec<usize>, f64>,
    ) -> bool {
        let tree = Tree::linking(self.groups(), self.graph.edges().collect());
        let mut labels = self.labels.clone();
        let mut fused: HashMap<Vec<usize>, bool> = HashMap::new();
        loop {
            // The largest sets that the gap does not hold apart and that are well separated from the others, as sets that
            // fuse are; where one is refused, those inside it.
            let mut sets = tree.select(|set| {
                set.inside <= reach
                    && set.outside > SEPARATE * set.inside
                    && fused.get(set.members) != Some(&false)
                    && set.outside > SEPARATE * self.longest(set.members)
            });
            sets.retain(|set| !fused.contains_key(set));
            if sets.is_empty() {
                break;
            }
            let judged: Vec<_> = sets
                .par_iter()
                .map(|set| {
                    let mut members: Vec<usize> = set.iter().flat_map(|&g| self.members[g].iter().copied()).collect();
                    members.sort_unstable();
                    let inside = self.inside(&members);
                    let mut pulls = self.softened_pulls(&inside, lambda, softness);
                    let balance = self.balance(&inside, set, lambda);
                    let strain = self.correct(&inside, &balance, &mut pulls, lambda);
                    let search = strain < searched.get(&members).copied().unwrap_or(worth);
                    let verdict = match (strain <= 1.0, search) {
                        (true, _) => Verdict::One(pulls),
                        (false, true) => {
                            let place = |&point: &usize| self.graph.row(&self.graph.solution, self.labels[point]);
                            let places: Vec<f64> = members.iter().flat_map(place).copied().collect();
                            let places = without_mean(&places, self.dimension);
                            let start = Start { places, softness, searches: SEARCHES_ON };
                            self.search(&inside, &balance, pulls, lambda, start)
                        }
                        (false, false) => Verdict::Unclear(f64::INFINITY),
                    };
                    let again = search.then_some(1.0 + CLOSER * (strain - 1.0));
                    let edges = inside.edges;
                    (members, edges, again, verdict)
                })
                .collect();
            for (set, (members, edges, again, verdict)) in sets.into_iter().zip(judged) {
                let one = if let Verdict::One(pulls) = verdict {
                    self.keep(&edges, &pulls);
                    members.iter().for_each(|&point| labels[point] = set[0]);
                    true
                } else {
                    again.map(|strain| searched.insert(members, strain));
                    false
                };
                fused.insert(set, one);
            }
        }
        let any = fused.values().any(|&one| one);
        if any {
            self.regroup(&labels);
        }
        any
    }

    /// The longest edge between two of these groups.
    fn longest(&self, groups: &[usize]) -> f64 {
        let own: HashSet<usize> = groups.iter().copied().collect();
        let edges = groups.iter().flat_map(|&g| self.graph.edges_of(g)).filter(|(to, _)| own.contains(to));
        edges.map(|(_, length)| length).fold(0.0, f64::max)
    }

    /// Proves every group at the final solution. Returns `false` where groups are better apart, which are then split.
    fn prove_groups(&mut self, lambda: f64, bound: &mut Bound, repair: bool) -> bool {
        let large: Vec<usize> = (0..self.groups()).filter(|&g| self.members[g].len() > 1).collect();
        let verdicts: Vec<(Vec<usize>, Verdict)> = large
            .par_iter()
            .map(|&g| {
                let inside = self.inside(&self.members[g]);
                let pull = |&edge: &usize| self.pull(edge).iter().copied();
                let mut pulls: Vec<f64> = inside.edges.iter().flat_map(pull).collect();
                let balance = self.balance(&inside, &[g], lambda);
                let verdict = match self.correct(&inside, &balance, &mut pulls, lambda) <= 1.0 {
                    true => Verdict::One(pulls),
                    false => {
                        let largest = balance.chunks_exact(self.dimension).map(|row| dot(row, row)).fold(0.0, f64::max);
                        let places = vec![0.0; balance.len()];
                        let start = Start { places, softness: 0.1 * largest.sqrt(), searches: SEARCHES };
                        self.search(&inside, &balance, pulls, lambda, start)
                    }
                };
                (inside.edges, verdict)
            })
            .collect();
        let mut labels = self.labels.clone();
        let mut next = self.groups();
        let mut whole = true;
        for (&g, (edges, verdict)) in large.iter().zip(&verdicts) {
            match verdict {
                Verdict::One(pulls) => self.keep(edges, pulls),
                Verdict::Apart(parts, _) if repair => {
                    whole = false;
                    for (&point, part) in self.members[g].iter().zip(parts) {
                        labels[point] = next + part;
                    }
                    next += self.members[g].len();
                }
                Verdict::Apart(_, off) | Verdict::Unclear(off) => {
                    bound.gap += 0.5 * off;
                    bound.undecided += edges.len();
                }
            }
        }
        if !whole {
            self.regroup(&labels);
        }
        whole
    }

    fn inside<'a>(&self, members: &'a [usize]) -> Inside<'a> {
        let position: HashMap<usize, usize> = members.iter().enumerate().map(|(at, &point)| (point, at)).collect();
        let (mut edges, mut local) = (Vec::new(), Vec::new());
        for (at, &point) in members.iter().enumerate() {
            for &(edge, sign) in &self.incident[point] {
                if sign > 0.0
                    && let Some(&to) = position.get(&self.edges[edge].to)
                {
                    edges.push(edge);
                    local.push(Edge { from: at, to, weight: self.edges[edge].weight });
                }
            }
        }
        Inside { members, edges, local }
    }

    /// Forces inside a set of several groups: kept ones within a group, softened ones between two.
    fn softened_pulls(&self, inside: &Inside, lambda: f64, softness: f64) -> Vec<f64> {
        let mut pulls = Vec::with_capacity(inside.edges.len() * self.dimension);
        for &at in &inside.edges {
            let edge = self.edges[at];
            let (g, h) = (self.labels[edge.from], self.labels[edge.to]);
            if g == h {
                pulls.extend_from_slice(self.pull(at));
            } else {
                let (u, v) = (self.graph.row(&self.graph.solution, g), self.graph.row(&self.graph.solution, h));
                let scale = lambda * edge.weight / distance(u, v).hypot(softness);
                pulls.extend(u.iter().zip(v).map(|(u, v)| scale * (u - v)));
            }
        }
        pulls
    }

    /// The sum that the forces inside must have at every member: a_i − u − the forces from outside, minus the mean.
    fn balance(&self, inside: &Inside, groups: &[usize], lambda: f64) -> Vec<f64> {
        let dimension = self.dimension;
        let solution = &self.graph.solution;
        let mass: f64 = groups.iter().map(|&g| self.graph.mass[g]).sum();
        let mut place = vec![0.0; dimension];
        groups.iter().for_each(|&g| add_scaled(&mut place, self.graph.mass[g] / mass, self.graph.row(solution, g)));
        let mut balance = Vec::with_capacity(inside.members.len() * dimension);
        let mut own: Vec<usize> = groups.to_vec();
        own.sort_unstable();
        for &point in inside.members {
            let first = balance.len();
            balance
                .extend(self.points[point * dimension..(point + 1) * dimension].iter().zip(&place).map(|(a, u)| a - u));
            for &(edge, sign) in &self.incident[point] {
                let other = if sign > 0.0 { self.edges[edge].to } else { self.edges[edge].from };
                let group = self.labels[other];
                if own.binary_search(&group).is_err() {
                    let v = self.graph.row(solution, group);
                    let scale = lambda * self.edges[edge].weight / distance(&place, v).max(SHARP);
                    for ((out, u), v) in balance[first..].iter_mut().zip(&place).zip(v) {
                        *out -= scale * (u - v);
                    }
                }
            }
        }
        without_mean(&balance, dimension)
    }

    /// Whether balanced forces exist, by solving the set's own problem from this softened solution.
    fn search(&self, inside: &Inside, balance: &[f64], mut pulls: Vec<f64>, lambda: f64, start: Start) -> Verdict {
        let dimension = self.dimension;
        let mut alone = Graph::new(dimension, vec![1.0; inside.members.len()], balance.to_vec(), &inside.local);
        let apart: f64 = 0.5 * dot(balance, balance);
        alone.solution = start.places;
        let mut softness = start.softness;
        for _ in 0..start.searches {
            descend(&mut alone, lambda, softness, (CLOSELY, 1e-12), SEARCH_STEPS);
            for (edge, pull) in inside.local.iter().zip(pulls.chunks_exact_mut(dimension)) {
                let (u, v) = (alone.row(&alone.solution, edge.from), alone.row(&alone.solution, edge.to));
                let scale = lambda * edge.weight / distance(u, v).hypot(softness);
                pull.iter_mut().zip(u.iter().zip(v)).for_each(|(z, (u, v))| *z = scale * (u - v));
            }
            if self.correct(inside, balance, &mut pulls, lambda) <= 1.0 {
                return Verdict::One(pulls);
            }
            if alone.bound(lambda, softness).0 < apart * (1.0 - 1e-10) {
                let off = dot(&alone.solution, &alone.solution);
                return Verdict::Apart(parts(&alone, &inside.local, 10.0 * softness), off);
            }
            softness = (softness / 8.0).max(SHARP);
        }
        Verdict::Unclear(dot(&alone.solution, &alone.solution))
    }

    /// Balances the forces by solving with the set's Laplacian. Returns the strain, the largest squared force relative to
    /// its limit: balanced forces with a strain of at most 1 are a proof.
    fn correct(&self, inside: &Inside, balance: &[f64], pulls: &mut [f64], lambda: f64) -> f64 {
        let dimension = self.dimension;
        let lacking = lacking_of(inside, balance, pulls, dimension);
        let potential = solve_laplacian(&inside.local, &lacking, dimension);
        let row = |node: usize| &potential[node * dimension..(node + 1) * dimension];
        let mut strain = 0.0f64;
        for (edge, pull) in inside.local.iter().zip(pulls.chunks_exact_mut(dimension)) {
            for ((z, p), q) in pull.iter_mut().zip(row(edge.from)).zip(row(edge.to)) {
                *z += edge.weight * (p - q);
            }
            let limit = lambda * edge.weight;
            strain = strain.max(dot(pull, pull) / (limit * limit));
        }
        // The pulls must really add up: the solve may have ended early, or the set may be in pieces.
        let left = lacking_of(inside, balance, pulls, dimension);
        if dot(&left, &left) <= 1e-18 * dot(balance, balance) { strain } else { f64::INFINITY }
    }

    fn regroup_connected(&mut self) {
        let sets = components(self.labels.len(), self.edges.iter().map(|edge| (edge.from, edge.to)));
        self.regroup(&labels_of(&sets, self.labels.len()));
        self.graph.solution.copy_from_slice(&self.graph.centre);
    }

    fn pull(&self, edge: usize) -> &[f64] {
        &self.pulls[edge * self.dimension..(edge + 1) * self.dimension]
    }

    fn keep(&mut self, edges: &[usize], pulls: &[f64]) {
        for (&edge, pull) in edges.iter().zip(pulls.chunks_exact(self.dimension)) {
            self.pulls[edge * self.dimension..(edge + 1) * self.dimension].copy_from_slice(pull);
        }
    }

    /// Sets the current groups; each starts at the mean of its points' solutions.
    fn regroup(&mut self, labels: &[usize]) {
        let dimension = self.dimension;
        let labels = renumber(labels);
        let groups = labels.iter().max().map_or(0, |last| last + 1);
        let mut members = vec![Vec::new(); groups];
        labels.iter().enumerate().for_each(|(point, &label)| members[label].push(point));
        let mut solution = vec![0.0; groups * dimension];
        let mut centre = vec![0.0; groups * dimension];
        for (g, members) in members.iter().enumerate() {
            let share = 1.0 / members.len() as f64;
            for &point in members {
                let at = g * dimension..(g + 1) * dimension;
                add_scaled(&mut centre[at.clone()], share, &self.points[point * dimension..(point + 1) * dimension]);
                add_scaled(&mut solution[at], share, self.graph.row(&self.graph.solution, self.labels[point]));
            }
        }
        self.scatter = 0.0;
        for (point, &label) in labels.iter().enumerate() {
            let mean = &centre[label * dimension..(label + 1) * dimension];
            self.scatter += 0.5 * distance(&self.points[point * dimension..(point + 1) * dimension], mean).powi(2);
        }
        let mut between: Vec<Edge> = self
            .edges
            .iter()
            .map(|edge| (labels[edge.from].min(labels[edge.to]), labels[edge.from].max(labels[edge.to]), edge.weight))
            .filter(|(from, to, _)| from != to)
            .map(|(from, to, weight)| Edge { from, to, weight })
            .collect();
        between.sort_by_key(|edge| (edge.from, edge.to));
        merge_sorted(&mut between);
        self.graph =
            Graph::new(dimension, members.iter().map(|members| members.len() as f64).collect(), centre, &between);
        self.graph.solution = solution;
        (self.labels, self.members) = (labels, members);
    }
}

impl Solve for Sparse {
    fn labels(&self) -> &[usize] {
        &self.labels
    }

    fn places(&self) -> &[f64] {
        &self.graph.solution
    }

    fn groups(&self) -> usize {
        self.members.len()
    }

    fn fewest_groups(&self) -> usize {
        components(self.labels.len(), self.edges.iter().map(|edge| (edge.from, edge.to))).len()
    }

    /// Together, ‖a_i − a_j‖ is at most the total force of all edges at i and at j; and the forces w (φ_i − φ_j) of the
    /// potential that solves L φ = a hold everything together once λ reaches the largest ‖φ_i − φ_j‖.
    fn ends(&self) -> [f64; 2] {
        let row = |point: usize| &self.points[point * self.dimension..(point + 1) * self.dimension];
        let degree: Vec<f64> = (self.incident.iter())
            .map(|incident| incident.iter().map(|&(edge, _)| self.edges[edge].weight).sum())
            .collect();
        let apart = self
            .edges
            .iter()
            .map(|edge| distance(row(edge.from), row(edge.to)) / (degree[edge.from] + degree[edge.to]));
        let low = apart.filter(|&lambda| lambda > 0.0).fold(f64::INFINITY, f64::min);
        [0.999 * low, self.all_together()]
    }

    fn solve(&mut self, lambda: f64, tolerance: f64) -> Bound {
        if lambda == 0.0 {
            // No forces: equal points are together, connected or not.
            self.regroup(&equal_rows(&self.points, self.dimension));
            self.graph.solution.copy_from_slice(&self.graph.centre);
            return Bound { primal: self.scatter, gap: 0.0, undecided: 0 };
        }
        if lambda >= self.all_together() {
            self.regroup_connected();
            return Bound { primal: self.scatter, gap: 0.0, undecided: 0 };
        }
        let mut softness = self.softness;
        let mut accuracy = tolerance;
        let mut repairs = 0;
        let mut searched = HashMap::new();
        loop {
            descend(&mut self.graph, lambda, softness, (ROUGHLY, accuracy), MOST_STEPS);
            let (primal, gap, nearest) = self.graph.bound(lambda, softness);
            let mut bound = Bound { primal: self.scatter + primal, gap, undecided: 0 };
            let decided = nearest > 2.0 * gap.sqrt();
            let clear = decided && nearest > 100.0 * softness;
            // Once the gap is closed only the open decisions are left.
            let closed = bound.gap <= tolerance * bound.primal;
            let worth = if closed { f64::INFINITY } else { NEARLY };
            if !clear && self.fuse(lambda, softness, [2.0 * gap.sqrt(), worth], &mut searched) {
                continue;
            }
            if softness > SHARP {
                // Only without softness is the gap that of the pulls with which groups are proved.
                let done = decided && closed;
                softness = if done || nearest > 30.0 * softness { SHARP } else { (softness / 8.0).max(SHARP) };
                continue;
            }
            if !decided && accuracy > FINEST {
                accuracy *= 1e-4;
                continue;
            }
            if self.prove_groups(lambda, &mut bound, repairs < REPAIRS) {
                self.softness = (0.3 * nearest).clamp(SOFT_AGAIN, SOFT);
                if !decided {
                    bound.undecided += self.edges_shorter(2.0 * bound.gap.sqrt());
                }
                return bound;
            }
            repairs += 1;
            softness = softness.max(SOFT_AGAIN);
        }
    }
}

fn lacking_of(inside: &Inside, balance: &[f64], pulls: &[f64], dimension: usize) -> Vec<f64> {
    let mut lacking = balance.to_vec();
    for (edge, pull) in inside.local.iter().zip(pulls.chunks_exact(dimension)) {
        add_scaled(&mut lacking[edge.from * dimension..(edge.from + 1) * dimension], -1.0, pull);
        add_scaled(&mut lacking[edge.to * dimension..(edge.to + 1) * dimension], 1.0, pull);
    }
    lacking
}

/// The parts of a set connected by edges not longer than `reach`, or shorter if that leaves it whole.
fn parts(alone: &Graph, edges: &[Edge], mut reach: f64) -> Vec<usize> {
    loop {
        let row = |node: usize| alone.row(&alone.solution, node);
        let near = edges.iter().filter(|edge| distance(row(edge.from), row(edge.to)) <= reach);
        let parts = components(alone.nodes(), near.map(|edge| (edge.from, edge.to)));
        if parts.len() > 1 || reach <= 0.0 {
            return labels_of(&parts, alone.nodes());
        }
        reach = if reach > 1e-14 { reach / 4.0 } else { 0.0 };
    }
}

/// Sets of nodes connected by these pairs, including single ones.
fn components(nodes: usize, pairs: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let mut above: Vec<usize> = (0..nodes).collect();
    for (g, h) in pairs {
        let (g, h) = (root(&mut above, g), root(&mut above, h));
        above[g.max(h)] = g.min(h);
    }
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for node in 0..nodes {
        sets[root(&mut above, node)].push(node);
    }
    sets.retain(|set| !set.is_empty());
    sets
}

/// Of every node the number of its set.
fn labels_of(sets: &[Vec<usize>], nodes: usize) -> Vec<usize> {
    let mut labels = vec![0; nodes];
    for (name, set) in sets.iter().enumerate() {
        set.iter().for_each(|&node| labels[node] = name);
    }
    labels
}

fn without_mean(values: &[f64], dimension: usize) -> Vec<f64> {
    let mut mean = vec![0.0; dimension];
    let rows = values.chunks_exact(dimension);
    rows.clone().for_each(|row| add_scaled(&mut mean, dimension as f64 / values.len() as f64, row));
    rows.flat_map(|row| row.iter().zip(&mean).map(|(value, mean)| value - mean)).collect()
}

/// Solves with the weighted Laplacian of a connected graph by conjugate gradients, to machine precision.
fn solve_laplacian(edges: &[Edge], right: &[f64], dimension: usize) -> Vec<f64> {
    let nodes = right.len() / dimension;
    let mut degree = vec![0.0; nodes];
    for edge in edges {
        degree[edge.from] += edge.weight;
        degree[edge.to] += edge.weight;
    }
    let precondition = |_: &(), vector: &mut [f64]| {
        for (row, degree) in vector.chunks_exact_mut(dimension).zip(&degree) {
            row.iter_mut().for_each(|value| *value /= degree);
        }
    };
    let apply = |_: &mut (), along: &[f64], image: &mut [f64]| {
        image.fill(0.0);
        for edge in edges {
            for c in 0..dimension {
                let (from, to) = (edge.from * dimension + c, edge.to * dimension + c);
                let flow = edge.weight * (along[from] - along[to]);
                image[from] += flow;
                image[to] -= flow;
            }
        }
    };
    // No potential gives anything but a sum of 0; rounding leaves a little, which would grow.
    let right = without_mean(right, dimension);
    conjugate_gradients(&mut (), right, precondition, apply, 1e-24, 1000 + 2 * nodes)
}
