//! Step 2: families of clients, by EM on what is left of clients once their own coefficients are integrated out.
//!
//! Maximises `Σ_i log Σ_k π_k N(y_i; Z_iμ_k, σ²(I + Z_iΛΛᵀZ_iᵀ))`. Centres, shares and noise take EM's steps, `Λ` one of Fisher scoring,
//! which is taken back where the likelihood would fall.

use super::evidence::{Panel, Working};
use super::ladder::Recipe;
use super::mixed::{Information, Integrated, damped_step, over_blocks, root};
use super::population::Population;
use crate::error::Result;
use crate::num::triangular::{factorise, log_determinant, solve};
use crate::num::{add_scaled, dot};

/// Of all clients' information, how much holds a centre where it is: families whose members do not determine it keep it.
const HOLD: f64 = 1e-8;
/// Of a sum, what rounding may leave of it.
const ROUNDING: f64 = 1e-9;
/// Of the target's mean square, the least variance of noise that is told from none.
const LEAST_NOISE: f64 = 1e-14;

/// Families of clients whose target has nothing of common columns in it any more.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mixture {
    pub shares: Vec<f64>,
    /// One centre per row.
    pub centres: Vec<f64>,
    /// The parameters that `Λ` is made of.
    pub parameters: Vec<f64>,
    pub noise: f64,
    pub log_likelihood: f64,
    /// One row per client.
    pub responsibilities: Vec<f64>,
}

impl Mixture {
    pub(crate) fn families(&self) -> usize {
        self.shares.len()
    }

    /// The most probable family of every client.
    pub(crate) fn labels(&self) -> Vec<usize> {
        let best = |row: &[f64]| (0..row.len()).fold(0, |best, k| if row[k] > row[best] { k } else { best });
        self.responsibilities.chunks_exact(self.families()).map(best).collect()
    }
}

/// How EM is run.
pub(crate) struct Em<'a> {
    pub panel: &'a Panel,
    pub entries: Vec<Vec<(usize, usize)>>,
    /// Families that are known, by client.
    pub known: Option<&'a [usize]>,
    /// Number of coefficients that the noise's variance is corrected for, or none: maximum likelihood. With it, the variances of clients
    /// are corrected for the centres as well.
    pub restricted: Option<f64>,
    pub iterations: usize,
    /// Gain of log-likelihood below which it ends.
    pub tolerance: f64,
}

/// Sums of one pass over the clients.
struct Pass {
    /// By client.
    log_likelihoods: Vec<f64>,
    /// `Σ yᵀH⁻¹y`.
    energy: f64,
    /// By family: number of clients, `Σ ZᵀH⁻¹Z`, `Σ ZᵀH⁻¹y`.
    counts: Vec<f64>,
    curvatures: Vec<f64>,
    moments: Vec<f64>,
    information: Information,
    responsibilities: Vec<f64>,
}

impl Em<'_> {
    fn pass(&self, state: &Mixture, inverses: Option<&[f64]>) -> Pass {
        let (q, k) = (self.panel.random, state.families());
        let root = root(&state.parameters, q, &self.entries);
        let block = |clients: std::ops::Range<usize>| {
            let mut sums = Pass::none(q, k);
            let mut integrated = Integrated::new(q);
            let (mut curvature, mut moment, mut residual) = (Vec::new(), vec![0.0; q], vec![0.0; q * k]);
            let (mut logs, mut solved) = (vec![0.0; k], vec![0.0; q]);
            for client in clients {
                let (slab, given) = (self.panel.slab(client), self.panel.moment(client));
                integrated.set(&root, slab, given);
                integrated.curvature(slab, &mut curvature);
                integrated.random_moment(given, &mut moment);
                let energy = self.panel.energies[client] - dot(&integrated.moment, &integrated.moment);
                sums.energy += energy;
                let constant = self.panel.rows[client] * (2.0 * std::f64::consts::PI * state.noise).ln()
                    + integrated.log_determinant;
                for (family, residual) in residual.chunks_exact_mut(q).enumerate() {
                    let centre = &state.centres[family * q..(family + 1) * q];
                    for ((left, row), value) in residual.iter_mut().zip(curvature.chunks_exact(q)).zip(&moment) {
                        *left = value - dot(row, centre);
                    }
                    // (y − Zμ)ᵀH⁻¹(y − Zμ) = yᵀH⁻¹y − μᵀ(ZᵀH⁻¹y + ZᵀH⁻¹(y − Zμ)).
                    let square = (energy - dot(centre, &moment) - dot(centre, residual)).max(0.0);
                    logs[family] = state.shares[family].ln() - 0.5 * (constant + square / state.noise);
                }
                if let Some(known) = self.known {
                    let own = logs[known[client]];
                    logs.fill(f64::NEG_INFINITY);
                    logs[known[client]] = own;
                }
                let largest = logs.iter().fold(f64::NEG_INFINITY, |largest, &value| value.max(largest));
                let total: f64 = logs.iter().map(|value| (value - largest).exp()).sum();
                sums.log_likelihoods.push(largest + total.ln());
                for (at, &value) in curvature.iter().enumerate() {
                    sums.information.gradient[at] += value;
                    sums.information.sums[at] += value;
                    sums.information.squares[at] += value * value;
                }
                for family in 0..k {
                    let share = (logs[family] - largest).exp() / total;
                    sums.responsibilities.push(share);
                    if share < 1e-12 {
                        continue;
                    }
                    sums.counts[family] += share;
                    add_scaled(&mut sums.curvatures[family * q * q..(family + 1) * q * q], share, &curvature);
                    add_scaled(&mut sums.moments[family * q..(family + 1) * q], share, &moment);
                    let residual = &residual[family * q..(family + 1) * q];
                    for (i, value) in residual.iter().enumerate() {
                        let row = &mut sums.information.gradient[i * q..(i + 1) * q];
                        add_scaled(row, -share * value / state.noise, residual);
                    }
                    if let Some(inverses) = inverses {
                        let inverse = &inverses[family * q * q..(family + 1) * q * q];
                        for (i, row) in curvature.chunks_exact(q).enumerate() {
                            for (value, line) in solved.iter_mut().zip(inverse.chunks_exact(q)) {
                                *value = dot(line, row);
                            }
                            for (j, other) in curvature.chunks_exact(q).enumerate() {
                                sums.information.gradient[i * q + j] -= share * dot(&solved, other);
                            }
                        }
                    }
                }
            }
            sums
        };
        let mut total = Pass::none(q, k);
        over_blocks(self.panel.clients(), block, |part| total.add(part));
        total
    }

    /// The log-likelihood of every client in a fit to others.
    pub(crate) fn log_likelihoods(&self, fit: &Mixture) -> Vec<f64> {
        self.pass(fit, None).log_likelihoods
    }

    /// The most probable family of every client in a fit to others.
    pub(crate) fn labels(&self, fit: &Mixture) -> Vec<usize> {
        Mixture { responsibilities: self.pass(fit, None).responsibilities, ..fit.clone() }.labels()
    }

    /// The factors of the families' curvatures.
    fn factors(&self, pass: &Pass, families: usize) -> Vec<Vec<f64>> {
        let q = self.panel.random;
        let factor = |family: usize| {
            let mut curvature = pass.curvatures[family * q * q..(family + 1) * q * q].to_vec();
            (0..q).for_each(|j| curvature[j * (q + 1)] += pass.hold(j, q));
            let mut factor = Vec::new();
            factorise(&curvature, q, &mut factor);
            factor
        };
        (0..families).map(factor).collect()
    }

    /// Runs from a start to where the likelihood, restricted if that is wanted, hardly grows.
    pub(crate) fn run(&self, start: Mixture) -> Mixture {
        let (q, k, clients) = (self.panel.random, start.families(), self.panel.clients() as f64);
        let rows = self.panel.total_rows();
        let freedom = (rows - self.restricted.unwrap_or(0.0)).max(1.0);
        let least = LEAST_NOISE * self.panel.energies.iter().sum::<f64>() / rows.max(1.0) + f64::MIN_POSITIVE;
        let (mut state, mut damping) = (start, 0.1);
        let restricts = self.restricted.is_some();
        let mut inverses = restricts.then(|| inverses(&self.factors(&self.pass(&state, None), k), q));
        let mut before = f64::NEG_INFINITY;
        let mut last_parameters = state.parameters.clone();
        let mut calm = 0;
        for _ in 0..self.iterations {
            let pass = self.pass(&state, inverses.as_deref());
            let factors = self.factors(&pass, k);
            let mut likelihood: f64 = pass.log_likelihoods.iter().sum();
            if restricts {
                let centres: f64 = factors.iter().map(|factor| log_determinant(factor, q)).sum();
                likelihood += 0.5 * ((k * q) as f64 * state.noise.ln() - centres);
            }
            let is_lower = likelihood.is_nan() || likelihood < before - self.tolerance.max(1e-9 * before.abs());
            let fell = is_lower && state.parameters != last_parameters;
            if fell && damping < 1e6 {
                state.parameters.clone_from(&last_parameters);
                damping *= 10.0;
                before = f64::NEG_INFINITY;
                continue;
            }
            calm = if (likelihood - before).abs() < self.tolerance { calm + 1 } else { 0 };
            before = likelihood;
            state.log_likelihood = likelihood;
            state.responsibilities.clone_from(&pass.responsibilities);
            if calm == 2 {
                break;
            }

            let mut left = pass.energy;
            for (family, factor) in factors.iter().enumerate() {
                let centre = &mut state.centres[family * q..(family + 1) * q];
                let given = &pass.moments[family * q..(family + 1) * q];
                let mut moment = given.to_vec();
                for j in 0..q {
                    moment[j] += pass.hold(j, q) * centre[j];
                }
                solve(factor, q, &mut moment);
                centre.copy_from_slice(&moment);
                let rows = pass.curvatures[family * q * q..(family + 1) * q * q].chunks_exact(q);
                left += rows.zip(&moment).map(|(row, value)| value * dot(row, &moment)).sum::<f64>()
                    - 2.0 * dot(given, &moment);
                if self.known.is_none() {
                    state.shares[family] = (pass.counts[family] / clients).max(1e-12);
                }
            }
            state.noise = self.panel.noise.unwrap_or((left / freedom).max(least));
            inverses = restricts.then(|| self::inverses(&factors, q));
            let values = root(&state.parameters, q, &self.entries);
            let count = self.entries.len();
            let (slope, mut metric, traces) = pass.information.slopes(&values, q, &self.entries, count);
            if self.panel.noise.is_none() {
                for (t, row) in metric.chunks_exact_mut(count.max(1)).enumerate() {
                    add_scaled(row, -traces[t] / freedom, &traces);
                }
            }
            let step = damped_step(&slope, &metric, damping);
            // Where variances are beyond what numbers can tell, they stay as they are.
            if step.iter().any(|step| !step.is_finite()) {
                break;
            }
            last_parameters.clone_from(&state.parameters);
            // Diagonals no further than to a tenth or the threefold at once: centres have yet to follow.
            let largest = last_parameters.iter().fold(0.0, |largest: f64, value| value.abs().max(largest));
            for ((value, step), entries) in state.parameters.iter_mut().zip(&step).zip(&self.entries) {
                let bounds =
                    if entries[0].0 == entries[0].1 { [2.0 * value.abs(), 0.9 * value.abs()] } else { [largest; 2] };
                *value -= step.clamp(-bounds[0], bounds[1]);
            }
            damping = (damping * 0.3).max(1e-6);
        }
        state
    }
}

/// The inverses of factored matrices, one after the other.
fn inverses(factors: &[Vec<f64>], size: usize) -> Vec<f64> {
    let mut inverses = vec![0.0; factors.len() * size * size];
    for (place, column) in inverses.chunks_exact_mut(size.max(1)).enumerate() {
        column[place % size] = 1.0;
        solve(&factors[place / size], size, column);
    }
    inverses
}

impl Pass {
    /// What holds a family to its last centre along a column, for families of hardly any clients.
    fn hold(&self, column: usize, columns: usize) -> f64 {
        HOLD * self.information.sums[column * (columns + 1)] + f64::MIN_POSITIVE
    }

    fn none(q: usize, k: usize) -> Self {
        Self {
            log_likelihoods: Vec::new(),
            energy: 0.0,
            counts: vec![0.0; k],
            curvatures: vec![0.0; k * q * q],
            moments: vec![0.0; k * q],
            information: Information { gradient: vec![0.0; q * q], sums: vec![0.0; q * q], squares: vec![0.0; q * q] },
            responsibilities: Vec::new(),
        }
    }

    fn add(&mut self, other: Self) {
        self.log_likelihoods.extend(other.log_likelihoods);
        self.energy += other.energy;
        let sums = [
            (&mut self.counts, &other.counts),
            (&mut self.curvatures, &other.curvatures),
            (&mut self.moments, &other.moments),
            (&mut self.information.gradient, &other.information.gradient),
            (&mut self.information.sums, &other.information.sums),
            (&mut self.information.squares, &other.information.squares),
        ];
        sums.into_iter().for_each(|(sum, part)| add_scaled(sum, 1.0, part));
        self.responsibilities.extend(other.responsibilities);
    }
}

/// Families fitted to a panel, from given ones on, with the common columns' coefficients along with them; and the panel without these.
pub(crate) fn refine(
    working: &Working,
    test: Option<usize>,
    panel: &Panel,
    one: &Population,
    families: &Population,
    recipe: Recipe,
) -> Result<(Population, Panel)> {
    let (p, q) = (panel.columns, panel.random);
    let entries = recipe.covariance.entries(q, working.basis.intercepts());
    let mut common = one.centres[0].clone();
    common[..q].fill(0.0);
    let mut left = working.without_common(test, panel, &common);
    let mut state = Mixture {
        shares: families.shares.clone(),
        centres: families.centres.iter().flat_map(|centre| centre[..q].to_vec()).collect(),
        parameters: entries.iter().map(|entries| families.root[entries[0].0 * q + entries[0].1]).collect(),
        noise: families.noise,
        log_likelihood: 0.0,
        responsibilities: Vec::new(),
    };
    let unpenalised = panel.curves.iter().filter(|group| group.is_none()).count() + (families.shares.len() - 1) * q;
    let mut centres = (Vec::new(), Vec::new());
    for _ in 0..if p > q { 3 } else { 1 } {
        let em = Em {
            panel: &left,
            entries: entries.clone(),
            known: recipe.known,
            restricted: Some(unpenalised as f64),
            iterations: 300,
            tolerance: 1e-6,
        };
        state = em.run(state);
        centres = joint_centres(panel, &state, &root(&state.parameters, q, &entries), &one.bends);
        common[q..].copy_from_slice(&centres.0[0][q..]);
        if p > q {
            left = working.without_common(test, panel, &common);
        }
        state.centres = centres.0.iter().flat_map(|centre| centre[..q].to_vec()).collect();
    }
    let population = Population {
        shares: state.shares.clone(),
        centres: centres.0,
        covariances: centres
            .1
            .into_iter()
            .map(|values| values.into_iter().map(|value| value * state.noise).collect())
            .collect(),
        root: root(&state.parameters, q, &entries),
        bends: one.bends.clone(),
        noise: state.noise,
    };
    Ok((population, left))
}

/// The normal equations of all centres and the common coefficients together: families first, common columns last. Of the curvature, only
/// entries on and above the diagonal are kept.
#[derive(Clone)]
pub(crate) struct Joint {
    families: usize,
    random: usize,
    size: usize,
    curvature: Vec<f64>,
    moment: Vec<f64>,
}

impl Joint {
    /// Of all clients, with each one's shares in the families, one row per client.
    pub(crate) fn of(panel: &Panel, responsibilities: &[f64], root: &[f64], bends: &[f64], families: usize) -> Self {
        let (p, q, k) = (panel.columns, panel.random, families);
        let size = p - q + k * q;
        let mut joint = Self { families, random: q, size, curvature: vec![0.0; size * size], moment: vec![0.0; size] };
        for (i, row) in panel.curvature.chunks_exact(p).enumerate().skip(q) {
            let at = k * q + i - q;
            joint.curvature[at * size + k * q..(at + 1) * size].copy_from_slice(&row[q..]);
            if let Some(group) = panel.curves[i] {
                joint.curvature[at * (size + 1)] += bends[group].powi(2).max(1e-12).recip();
            }
        }
        joint.moment[k * q..].copy_from_slice(&panel.total_moment()[q..]);
        for client in 0..panel.clients() {
            joint.add(panel, client, root, &responsibilities[client * k..(client + 1) * k], 1.0);
        }
        joint
    }

    /// Adds what a client's coefficients being its own changes, or takes it away.
    fn add(&mut self, panel: &Panel, client: usize, root: &[f64], shares: &[f64], sign: f64) {
        let (q, size) = (self.random, self.size);
        let (slab, given, support) = (panel.slab(client), panel.moment(client), panel.support(client));
        let mut integrated = Integrated::new(q);
        let (mut own, mut target) = (Vec::new(), vec![0.0; q]);
        integrated.set(root, slab, given);
        integrated.curvature(slab, &mut own);
        integrated.random_moment(given, &mut target);
        let width = support.len();
        let places = self.places(panel, client);
        for (row, value) in integrated.pulled.chunks_exact(width).zip(&integrated.moment) {
            for (&at, one) in places.iter().zip(&row[q..]) {
                let line = &mut self.curvature[at * size..(at + 1) * size];
                places.iter().zip(&row[q..]).for_each(|(&other, two)| line[other] -= sign * one * two);
                self.moment[at] -= sign * one * value;
            }
        }
        for (family, &share) in shares.iter().enumerate() {
            for (i, row) in own.chunks_exact(width).enumerate() {
                let at = family * q + i;
                let line = &mut self.curvature[at * size..(at + 1) * size];
                add_scaled(&mut line[family * q..(family + 1) * q], sign * share, &row[..q]);
                places.iter().zip(&row[q..]).for_each(|(&other, value)| line[other] += sign * share * value);
                self.moment[at] += sign * share * target[i];
            }
        }
    }

    /// Places of a client's common columns.
    fn places(&self, panel: &Panel, client: usize) -> Vec<usize> {
        let first = self.families * self.random;
        panel.support(client).columns().skip(self.random).map(|column| column + first - self.random).collect()
    }

    /// The same without a client.
    pub(crate) fn without(
        &self,
        working: &Working,
        panel: &Panel,
        client: usize,
        root: &[f64],
        shares: &[f64],
    ) -> Self {
        let (mut joint, size) = (self.clone(), self.size);
        joint.add(panel, client, root, shares, -1.0);
        let places = self.places(panel, client);
        for fold in 0..working.folds {
            let fold = working.fold(client, fold);
            for ((&at, row), value) in
                places.iter().zip(fold.common_rows(self.random)).zip(fold.common_moment(self.random))
            {
                let line = &mut joint.curvature[at * size..(at + 1) * size];
                places.iter().zip(row).for_each(|(&other, value)| line[other] -= value);
                joint.moment[at] -= value;
            }
        }
        // Columns that no other client has: nothing is known of their coefficients, and they are 0.
        for &at in &places {
            if joint.curvature[at * (size + 1)] <= ROUNDING * self.curvature[at * (size + 1)] {
                joint.curvature[at * size..(at + 1) * size].fill(0.0);
                joint.curvature.iter_mut().skip(at).step_by(size).for_each(|value| *value = 0.0);
                joint.curvature[at * (size + 1)] = 1.0;
                joint.moment[at] = 0.0;
            }
        }
        joint
    }

    /// Centres and common coefficients, and their covariance over `σ²` if it is wanted; centres that hardly any client determines stay where
    /// they were.
    pub(crate) fn solve(mut self, held: &[f64], with_covariance: bool) -> (Vec<f64>, Vec<f64>) {
        let size = self.size;
        for i in 0..size {
            for j in 0..i {
                self.curvature[i * size + j] = self.curvature[j * size + i];
            }
        }
        let largest = self.curvature.iter().step_by(size + 1).fold(0.0, |largest: f64, &value| value.max(largest));
        let hold = HOLD * largest;
        for (at, held) in held.iter().enumerate() {
            self.moment[at] += hold * held;
            self.curvature[at * (size + 1)] += hold;
        }
        let mut factor = Vec::new();
        factorise(&self.curvature, size, &mut factor);
        solve(&factor, size, &mut self.moment);
        let mut inverse = vec![0.0; if with_covariance { size * size } else { 0 }];
        for (at, row) in inverse.chunks_exact_mut(size).enumerate() {
            row[at] = 1.0;
            solve(&factor, size, row);
        }
        (self.moment, inverse)
    }
}

/// All centres and the common coefficients together, by generalised least squares, and their covariances over `σ²`.
fn joint_centres(panel: &Panel, state: &Mixture, root: &[f64], bends: &[f64]) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let (q, k) = (panel.random, state.families());
    let joint = Joint::of(panel, &state.responsibilities, root, bends, k);
    let size = joint.size;
    let (solution, inverse) = joint.solve(&state.centres, true);
    let places = |family: usize| (family * q..(family + 1) * q).chain(k * q..size);
    let centres = (0..k).map(|family| places(family).map(|at| solution[at]).collect()).collect();
    let covariance = |family: usize| {
        places(family).flat_map(|i| places(family).map(move |j| (i, j))).map(|(i, j)| inverse[i * size + j]).collect()
    };
    (centres, (0..k).map(covariance).collect())
}
