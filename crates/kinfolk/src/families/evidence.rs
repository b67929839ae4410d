//! What clients send, fold by fold, and the coordinates in which it is computed with.
//!
//! A fold of a client's rows enters through the cross-products of its columns and its target, `[X y]ᵀ[X y]`. They add up over folds and
//! clients, so that every training set of a cross-validation is a sum of them, and so are the errors of a model on a fold.
//!
//! Classes enter through the second-order expansion of their log-likelihood: the products are those of weighted rows and of the working
//! response, whose noise has variance 1 (`classes.rs`).

use crate::error::{Error, Result};
use crate::num::{add_scaled, dot};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Of a column's sum of squares, what may be left of it by rounding after what other columns explain is taken out.
const ROUNDING: f64 = 1e-9;

/// What a column of the model is to the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The column of ones.
    Intercept,
    /// A column whose coefficient may differ between clients.
    Linear,
    /// A column with one coefficient for everybody, such as the marker of a missing value.
    Common,
    /// A column of this group of bends: common to everybody, and penalised with a strength of the group's own.
    Curve(usize),
    /// The same of products of two columns.
    Interaction(usize),
    /// A column that takes no part.
    Unused,
}

impl Role {
    /// The group of columns that are penalised with one strength.
    fn penalised(self) -> Option<usize> {
        match self {
            Self::Curve(group) => Some(2 * group),
            Self::Interaction(group) => Some(2 * group + 1),
            Self::Intercept | Self::Linear | Self::Common | Self::Unused => None,
        }
    }
}

/// What is predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// Numbers, with noise of a variance that is not known.
    #[default]
    Numbers,
    /// Classes, by the log-odds of each against the first.
    Classes {
        /// One less than there are classes; columns are those of all equations, one after the other.
        equations: usize,
    },
}

impl Response {
    pub(crate) fn equations(self) -> usize {
        match self {
            Self::Numbers => 1,
            Self::Classes { equations } => equations,
        }
    }

    /// The variance of the noise, where it is known.
    pub(crate) fn noise(self) -> Option<f64> {
        match self {
            Self::Numbers => None,
            Self::Classes { .. } => Some(1.0),
        }
    }

    /// What a sum of squares is multiplied by to be a loss: squared errors, or minus the log-likelihood.
    pub(crate) fn loss_unit(self) -> f64 {
        match self {
            Self::Numbers => 1.0,
            Self::Classes { .. } => 0.5,
        }
    }
}

/// The cross-products of some rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Products {
    /// How many rows they are of.
    pub rows: usize,
    /// The upper triangle of `[X y]ᵀ[X y]`, row by row; with weights, of `[X y]ᵀW[X y]`.
    pub values: Vec<f64>,
}

/// What all clients sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What is predicted.
    pub response: Response,
    /// What each column is.
    pub columns: Vec<Role>,
    /// Each client's folds, as many for everybody; some may be without rows.
    pub clients: Vec<Vec<Products>>,
    /// Whether folds are in the order of time: then a fold is predicted from those before it only.
    pub rolling: bool,
}

impl Products {
    /// Of no rows yet.
    pub fn none(columns: usize) -> Self {
        Self { rows: 0, values: vec![0.0; (columns + 1) * (columns + 2) / 2] }
    }

    /// Adds a row of this weight.
    pub fn add_row(&mut self, row: &[f64], target: f64, weight: f64) {
        self.rows += 1;
        let size = row.len() + 1;
        let mut at = 0;
        for (j, &value) in row.iter().enumerate() {
            add_scaled(&mut self.values[at..at + size - 1 - j], weight * value, &row[j..]);
            at += size - j;
            self.values[at - 1] += weight * value * target;
        }
        self.values[at] += weight * target * target;
    }

    /// Adds those of other rows.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        add_scaled(&mut self.values, 1.0, &other.values);
    }

    /// The sums of squares of the columns, and of the target.
    pub fn squares(&self) -> impl Iterator<Item = f64> {
        let size = (2 * self.values.len()).isqrt();
        (0..size).map(move |i| self.at(size, i, i))
    }

    pub(super) fn at(&self, size: usize, i: usize, j: usize) -> f64 {
        let (i, j) = (i.min(j), i.max(j));
        self.values[i * size - i * (i + 1) / 2 + j]
    }
}

impl Products {
    /// Those of some of the columns, in their order, and of the target.
    fn of_columns(&self, columns: &[usize]) -> Self {
        let size = (2 * self.values.len()).isqrt();
        let kept: Vec<usize> = columns.iter().copied().chain([size - 1]).collect();
        let line =
            |(place, &i): (usize, &usize)| kept[place..].iter().map(|&j| self.at(size, i, j)).collect::<Vec<f64>>();
        Self { rows: self.rows, values: kept.iter().enumerate().flat_map(line).collect() }
    }
}

impl Evidence {
    /// Of some of the columns.
    pub(crate) fn of_columns(&self, columns: &[usize]) -> Self {
        let folds = |client: &Vec<Products>| client.iter().map(|fold| fold.of_columns(columns)).collect();
        Self {
            columns: columns.iter().map(|&column| self.columns[column]).collect(),
            clients: self.clients.iter().map(folds).collect(),
            ..*self
        }
    }

    /// How strongly columns act in the model for everybody: of each of these sets, the variance over all rows of what it contributes to
    /// the predictions.
    pub(crate) fn strengths(&self, sets: &[std::ops::Range<usize>], model: &[f64]) -> Vec<f64> {
        let (given, size) = (self.columns.len(), self.columns.len() + 1);
        let mut total = Products::none(given);
        self.clients.iter().flatten().for_each(|fold| total.add(fold));
        let intercept = self.columns.iter().position(|role| *role == Role::Intercept);
        let ones = intercept.map_or(0.0, |at| total.at(size, at, at));
        let centred = |i: usize, j: usize| match intercept {
            Some(at) if ones > 0.0 => total.at(size, i, j) - total.at(size, at, i) * total.at(size, at, j) / ones,
            _ => total.at(size, i, j),
        };
        let strength = |set: &std::ops::Range<usize>| {
            let pairs = set.clone().flat_map(|i| set.clone().map(move |j| (i, j)));
            pairs.map(|(i, j)| model[i] * model[j] * centred(i, j)).sum::<f64>()
        };
        sets.iter().map(strength).collect()
    }

    fn check(&self) -> Result<usize> {
        let size = self.columns.len() + 1;
        let want = size * (size + 1) / 2;
        let folds = self.clients.first().map_or(0, Vec::len);
        if folds < 2 {
            return Err(Error::data(format!("evidence: got {folds} folds, want at least one client and two folds")));
        }
        let equations = self.response.equations();
        if equations == 0 || !self.columns.len().is_multiple_of(equations) {
            return Err(Error::data(format!("evidence: got {} columns of {equations} equations", self.columns.len())));
        }
        let block = self.columns.len() / equations;
        if self.columns.chunks(block.max(1)).any(|columns| columns != &self.columns[..block]) {
            return Err(Error::data("evidence: got equations of different columns, want the same in all"));
        }
        if self.columns[..block].iter().filter(|role| **role == Role::Intercept).count() > 1 {
            return Err(Error::data("evidence: got two intercepts, want at most one in an equation"));
        }
        for (number, client) in self.clients.iter().enumerate() {
            if client.len() != folds || client.iter().any(|fold| fold.values.len() != want) {
                return Err(Error::data(format!(
                    "evidence: client {number}: want {folds} folds of {want} products each, as {} columns have",
                    self.columns.len()
                )));
            }
            if client.iter().any(|fold| fold.values.iter().any(|value| !value.is_finite())) {
                return Err(Error::data(format!("evidence: client {number}: got products that are not finite"))
                    .hint("a column or the target has values too large to be squared"));
            }
            if client.iter().all(|fold| fold.rows == 0) {
                return Err(Error::data(format!("evidence: client {number}: got no rows, want at least one")));
            }
        }
        Ok(folds)
    }
}

/// A linear change of coordinates: the columns that are kept, the random ones first, each scaled within clients, so that one variance can
/// serve several columns, and the random ones centred at their grand means. Common columns are not: there it changes nothing, and columns
/// that are 0 in most clients stay so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Basis {
    /// How many columns were given.
    pub(crate) given: usize,
    /// How many equations they are of,
    pub(crate) equations: usize,
    /// and which of the first one's is the intercept.
    pub(crate) intercept: Option<usize>,
    /// Those that are kept, in their new order; the others are combinations of these.
    pub(crate) kept: Vec<usize>,
    /// What is subtracted from each kept column,
    pub(crate) means: Vec<f64>,
    /// and what it is divided by then.
    pub(crate) scales: Vec<f64>,
    /// Number of columns at the beginning whose coefficients differ between clients.
    pub(crate) random: usize,
    /// The penalised group of each kept column.
    pub(crate) curves: Vec<Option<usize>>,
}

impl Basis {
    /// Chooses it for all rows of all clients. `takes` says which columns take part, `varies` which of them may differ between clients,
    /// as far as they vary in at least half of the clients.
    pub(crate) fn of(evidence: &Evidence, takes: impl Fn(Role) -> bool, varies: impl Fn(Role) -> bool) -> Self {
        let given = evidence.columns.len();
        let size = given + 1;
        let equations = evidence.response.equations();
        let intercept = evidence.columns.iter().position(|role| *role == Role::Intercept);
        let intercept_of = |j: usize| intercept_of(intercept, given / equations, j);
        let (mut total, mut within, mut varying, mut several) =
            (Products::none(given), vec![0.0; given], vec![0; given], 0);
        let (mut sum, mut rows) = (Products::none(given), 0.0);
        for client in &evidence.clients {
            sum.rows = 0;
            sum.values.fill(0.0);
            client.iter().for_each(|fold| sum.add(fold));
            total.add(&sum);
            several += usize::from(sum.rows > 1);
            rows += sum.rows as f64 - 1.0;
            for (j, role) in evidence.columns.iter().enumerate() {
                let square = sum.at(size, j, j);
                let explained = |at: usize| {
                    (sum.at(size, at, at) > 0.0).then(|| sum.at(size, at, j).powi(2) / sum.at(size, at, at))
                };
                let left = square - intercept_of(j).and_then(explained).unwrap_or(0.0);
                if left > ROUNDING * square || *role == Role::Intercept {
                    varying[j] += usize::from(sum.rows > 1);
                    within[j] += left.max(0.0);
                }
            }
        }
        let weight = |j: usize| intercept_of(j).map_or(0.0, |at| total.at(size, at, at));
        let mean = |j: usize| match intercept_of(j) {
            Some(at) if at != j && weight(j) > 0.0 => total.at(size, at, j) / weight(j),
            _ => 0.0,
        };
        let scale = |j: usize| {
            if intercept_of(j) == Some(j) {
                return 1.0;
            }
            let all = (total.at(size, j, j) - weight(j) * mean(j) * mean(j)) / (total.rows as f64).max(1.0);
            let inside = within[j] / rows.max(1.0);
            let square = if inside > ROUNDING * all { inside } else { all };
            if square > 0.0 { square.sqrt() } else { 1.0 }
        };
        let (random, common): (Vec<usize>, Vec<usize>) =
            (0..given).filter(|&j| takes(evidence.columns[j])).partition(|&j| {
                let role = evidence.columns[j];
                role == Role::Intercept || varies(role) && 2 * varying[j] >= several && several > 0
            });
        // Intercept, linear, common, curves: where columns depend on each other, the later ones go.
        let rank = |j: &usize| match evidence.columns[*j] {
            Role::Intercept => 0,
            Role::Linear => 1,
            Role::Common => 2,
            Role::Curve(_) => 3,
            Role::Interaction(_) | Role::Unused => 4,
        };
        let (mut random, mut common) = (random, common);
        random.sort_by_key(rank);
        common.sort_by_key(rank);
        let candidates: Vec<usize> = random.iter().chain(&common).copied().collect();
        let mut basis = Self {
            given,
            equations,
            intercept,
            means: candidates
                .iter()
                .enumerate()
                .map(|(at, &j)| if at < random.len() { mean(j) } else { 0.0 })
                .collect(),
            scales: candidates.iter().map(|&j| scale(j)).collect(),
            curves: candidates
                .iter()
                .map(|&j| evidence.columns[j].penalised().filter(|_| !random.contains(&j)))
                .collect(),
            kept: candidates,
            random: random.len(),
        };
        let independent = basis.independent(&total);
        basis.random = independent.iter().filter(|&&at| at < basis.random).count();
        basis.means = independent.iter().map(|&at| basis.means[at]).collect();
        basis.scales = independent.iter().map(|&at| basis.scales[at]).collect();
        basis.curves = independent.iter().map(|&at| basis.curves[at]).collect();
        basis.kept = independent.iter().map(|&at| basis.kept[at]).collect();
        // Groups that are left are numbered from 0.
        let mut groups: Vec<usize> = basis.curves.iter().flatten().copied().collect();
        groups.sort_unstable();
        groups.dedup();
        for group in basis.curves.iter_mut().flatten() {
            *group = groups.binary_search(group).unwrap_or(0);
        }
        basis
    }

    /// Positions of columns that are no combination of earlier ones.
    fn independent(&self, total: &Products) -> Vec<usize> {
        let size = self.kept.len();
        let mut full = vec![0.0; (size + 1) * (size + 1)];
        self.change(total, &mut full);
        let mut rows: Vec<Vec<f64>> = Vec::new();
        let mut kept: Vec<usize> = Vec::new();
        for j in 0..size {
            let square = full[j * (size + 1) + j];
            let mut row: Vec<f64> = full[j * (size + 1)..j * (size + 1) + size].to_vec();
            for (other, &at) in rows.iter().zip(&kept) {
                let share = other[j];
                debug_assert!(at < j);
                add_scaled(&mut row, -share, other);
            }
            if row[j] > ROUNDING * square && square > 0.0 {
                let root = row[j].sqrt().recip();
                row.iter_mut().for_each(|value| *value *= root);
                rows.push(row);
                kept.push(j);
            }
        }
        kept
    }

    /// The intercept of the equation that a given column is of.
    fn intercept_of(&self, column: usize) -> Option<usize> {
        intercept_of(self.intercept, self.given / self.equations, column)
    }

    /// How many of the random columns are intercepts: the first ones.
    pub(crate) fn intercepts(&self) -> usize {
        self.kept[..self.random].iter().filter(|&&column| self.intercept_of(column) == Some(column)).count()
    }

    /// Number of columns in the new coordinates.
    pub(crate) fn columns(&self) -> usize {
        self.kept.len()
    }

    /// Writes the products in the new coordinates, all of the symmetric matrix, the target last.
    pub(crate) fn change(&self, products: &Products, full: &mut [f64]) {
        let (size, new) = (self.given + 1, self.kept.len() + 1);
        let along = |i: usize, j: usize| self.intercept_of(i).map_or(0.0, |at| products.at(size, at, j));
        for (a, (&i, (&mean, &scale))) in self.kept.iter().zip(self.means.iter().zip(&self.scales)).enumerate() {
            for (b, (&j, (&other_mean, &other_scale))) in
                self.kept.iter().zip(self.means.iter().zip(&self.scales)).enumerate().skip(a)
            {
                let weight = self.intercept_of(i).map_or(0.0, |at| along(j, at));
                let centred = products.at(size, i, j) - mean * along(i, j) - other_mean * along(j, i)
                    + mean * other_mean * weight;
                let value = centred / (scale * other_scale);
                full[a * new + b] = value;
                full[b * new + a] = value;
            }
            let value = (products.at(size, i, size - 1) - mean * along(i, size - 1)) / scale;
            full[a * new + new - 1] = value;
            full[(new - 1) * new + a] = value;
        }
        full[new * new - 1] = products.at(size, size - 1, size - 1);
    }

    /// Parameters of the new coordinates in the given columns.
    pub(crate) fn back(&self, parameters: &[f64]) -> Vec<f64> {
        let mut given = vec![0.0; self.given];
        let scaled = parameters.iter().zip(&self.scales).map(|(value, scale)| value / scale);
        for ((&at, value), mean) in self.kept.iter().zip(scaled).zip(&self.means) {
            given[at] += value;
            if let Some(intercept) = self.intercept_of(at) {
                given[intercept] -= mean * value;
            }
        }
        given
    }

    /// A covariance of the first parameters of the new coordinates, as one of all given columns, row-major.
    pub(crate) fn back_covariance(&self, covariance: &[f64], size: usize) -> Vec<f64> {
        let mut unit = vec![0.0; self.kept.len()];
        let images: Vec<Vec<f64>> = (0..size)
            .map(|at| {
                unit.fill(0.0);
                unit[at] = 1.0;
                self.back(&unit)
            })
            .collect();
        let mut given = vec![0.0; self.given * self.given];
        for (row, left) in covariance.chunks_exact(size).zip(&images) {
            let mut combined = vec![0.0; self.given];
            row.iter().zip(&images).for_each(|(value, right)| add_scaled(&mut combined, *value, right));
            for (out, factor) in given.chunks_exact_mut(self.given).zip(left) {
                add_scaled(out, *factor, &combined);
            }
        }
        given
    }
}

/// The intercept of a column's equation, where each has this many columns.
fn intercept_of(first: Option<usize>, block: usize, column: usize) -> Option<usize> {
    first.map(|first| column / block * block + first)
}

/// All evidence in the coordinates of a basis.
pub(crate) struct Working {
    pub response: Response,
    pub basis: Basis,
    pub clients: usize,
    pub folds: usize,
    pub rolling: bool,
    rows: Vec<f64>,
    supports: Supports,
    /// Symmetric matrices of products of a client's columns and the target, by client and fold, and where each client's begin.
    products: Vec<f64>,
    starts: Vec<usize>,
}

/// Of each client, the columns that are not 0 in all its rows, ascending; random ones always. Only with these is computed: words that are a
/// client's own, such as a place, are many columns with hardly any entries.
#[derive(Clone)]
pub(crate) struct Supports {
    columns: Vec<u32>,
    starts: Vec<usize>,
}

impl Supports {
    /// The same first columns for everybody.
    pub(crate) fn first(columns: usize, clients: usize) -> Self {
        let mut supports = Self { columns: Vec::with_capacity(columns * clients), starts: vec![0] };
        (0..clients).for_each(|_| supports.push(0..columns));
        supports
    }

    fn push(&mut self, columns: impl Iterator<Item = usize>) {
        self.columns.extend(columns.map(|column| column as u32));
        self.starts.push(self.columns.len());
    }

    fn of(&self, client: usize) -> Support<'_> {
        Support(&self.columns[self.starts[client]..self.starts[client + 1]])
    }
}

/// The columns of one client.
#[derive(Clone, Copy)]
pub(crate) struct Support<'a>(&'a [u32]);

impl<'a> Support<'a> {
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn columns(self) -> impl Iterator<Item = usize> + Clone + 'a {
        self.0.iter().map(|&column| column as usize)
    }

    /// The entries of a vector of all columns.
    pub(crate) fn gather(self, vector: &[f64]) -> Cow<'_, [f64]> {
        if self.len() == vector.len() {
            return vector.into();
        }
        self.columns().map(|column| vector[column]).collect()
    }

    /// Adds to a vector of all columns.
    pub(crate) fn scatter(self, vector: &mut [f64], scale: f64, values: &[f64]) {
        self.columns().zip(values).for_each(|(column, value)| vector[column] += scale * value);
    }
}

impl Working {
    pub(crate) fn new(
        evidence: &Evidence,
        takes: impl Fn(Role) -> bool,
        varies: impl Fn(Role) -> bool,
    ) -> Result<Self> {
        evidence.check()?;
        Self::in_basis(evidence, Basis::of(evidence, takes, varies))
    }

    /// In the coordinates of other evidence of the same columns.
    pub(crate) fn in_basis(evidence: &Evidence, basis: Basis) -> Result<Self> {
        let folds = evidence.check()?;
        let p = basis.columns();
        if p == 0 {
            return Err(Error::data("evidence: got no column that varies, want at least an intercept"));
        }
        let (mut supports, mut products, mut starts) =
            (Supports { columns: Vec::new(), starts: vec![0] }, Vec::new(), vec![0]);
        let mut full = vec![0.0; folds * (p + 1) * (p + 1)];
        for (number, client) in evidence.clients.iter().enumerate() {
            for (fold, full) in client.iter().zip(full.chunks_exact_mut((p + 1) * (p + 1))) {
                basis.change(fold, full);
            }
            let occurs = |j: usize| full.chunks_exact((p + 1) * (p + 1)).any(|full| full[j * (p + 2)] != 0.0);
            supports.push((0..p).filter(|&j| j < basis.random || occurs(j)));
            let columns: Vec<usize> = supports.of(number).columns().chain([p]).collect();
            for full in full.chunks_exact((p + 1) * (p + 1)) {
                columns.iter().for_each(|&i| products.extend(columns.iter().map(|&j| full[i * (p + 1) + j])));
            }
            starts.push(products.len());
        }
        Ok(Self {
            response: evidence.response,
            clients: evidence.clients.len(),
            folds,
            rolling: evidence.rolling,
            rows: evidence.clients.iter().flatten().map(|fold| fold.rows as f64).collect(),
            supports,
            products,
            starts,
            basis,
        })
    }

    pub(crate) fn fold(&self, client: usize, fold: usize) -> Fold<'_> {
        let support = self.supports.of(client);
        let size = support.len() + 1;
        let start = self.starts[client] + fold * size * size;
        Fold {
            rows: self.rows[client * self.folds + fold],
            products: &self.products[start..start + size * size],
            support,
            size,
        }
    }

    /// The folds that are predicted in a cross-validation.
    pub(crate) fn tests(&self) -> std::ops::Range<usize> {
        usize::from(self.rolling)..self.folds
    }

    /// Whether a fold may be learned from when another is predicted.
    fn trains(&self, fold: usize, test: Option<usize>) -> bool {
        test.is_none_or(|test| if self.rolling { fold < test } else { fold != test })
    }

    /// The weight of a fold in a cross-validation: in the order of time, later ones are predicted more as the future will be.
    pub(crate) fn weight(&self, test: usize) -> f64 {
        if self.rolling { test as f64 } else { 1.0 }
    }

    /// What is learned from when a fold is predicted; with none, everything.
    pub(crate) fn panel(&self, test: Option<usize>) -> Panel {
        let (p, q) = (self.basis.columns(), self.basis.random);
        let entries = self.supports.columns.len();
        let mut panel = Panel {
            noise: self.response.noise(),
            columns: p,
            random: q,
            curves: self.basis.curves.clone(),
            rows: vec![0.0; self.clients],
            supports: self.supports.clone(),
            slabs: vec![0.0; entries * q],
            moments: vec![0.0; entries],
            energies: vec![0.0; self.clients],
            curvature: vec![0.0; p * p],
        };
        for client in 0..self.clients {
            let start = self.supports.starts[client];
            for fold in (0..self.folds).filter(|&fold| self.trains(fold, test)) {
                let fold = self.fold(client, fold);
                if fold.rows == 0.0 {
                    continue;
                }
                let width = fold.support.len();
                panel.rows[client] += fold.rows;
                panel.energies[client] += fold.energy();
                for ((j, column), row) in fold.support.columns().enumerate().zip(fold.products.chunks_exact(fold.size))
                {
                    fold.support.scatter(&mut panel.curvature[column * p..(column + 1) * p], 1.0, &row[..width]);
                    panel.moments[start + j] += row[width];
                    if j < q {
                        add_scaled(
                            &mut panel.slabs[start * q + j * width..start * q + (j + 1) * width],
                            1.0,
                            &row[..width],
                        );
                    }
                }
            }
        }
        panel
    }

    /// The same with what common columns explain taken out of the target; only random columns are left.
    pub(crate) fn without_common(&self, test: Option<usize>, panel: &Panel, parameters: &[f64]) -> Panel {
        let (p, q) = (panel.columns, panel.random);
        let mut common = parameters.to_vec();
        common[..q].fill(0.0);
        let mut left = Panel {
            noise: panel.noise,
            columns: q,
            random: q,
            curves: vec![None; q],
            rows: panel.rows.clone(),
            supports: Supports::first(q, self.clients),
            slabs: vec![0.0; self.clients * q * q],
            moments: vec![0.0; self.clients * q],
            energies: panel.energies.clone(),
            curvature: vec![0.0; q * q],
        };
        for client in 0..self.clients {
            let support = panel.support(client);
            let common_here = support.gather(&common);
            for (j, row) in panel.slab(client).chunks_exact(support.len().max(1)).enumerate() {
                left.slabs[(client * q + j) * q..(client * q + j + 1) * q].copy_from_slice(&row[..q]);
                left.moments[client * q + j] = panel.moment(client)[j] - dot(row, &common_here);
                add_scaled(&mut left.curvature[j * q..(j + 1) * q], 1.0, &row[..q]);
            }
            if p > q {
                let folds = (0..self.folds).filter(|&fold| self.trains(fold, test)).map(|fold| self.fold(client, fold));
                left.energies[client] = folds.map(|fold| fold.error(&common)).sum();
            }
        }
        left
    }
}

/// The products of one fold of one client.
#[derive(Clone, Copy)]
pub(crate) struct Fold<'a> {
    pub rows: f64,
    products: &'a [f64],
    support: Support<'a>,
    /// Number of the client's columns, and the target.
    size: usize,
}

impl Fold<'_> {
    /// `xᵀA z`, of which the sums of squares of predictions are made.
    pub(crate) fn bilinear(&self, x: &[f64], z: &[f64]) -> f64 {
        let z = self.support.gather(z);
        let rows = self.products.chunks_exact(self.size).zip(self.support.columns());
        rows.map(|(row, column)| x[column] * dot(&row[..z.len()], &z)).sum()
    }

    /// `bᵀx`.
    pub(crate) fn moment(&self, x: &[f64]) -> f64 {
        let last = &self.products[(self.size - 1) * self.size..];
        self.support.columns().zip(last).map(|(column, value)| x[column] * value).sum()
    }

    /// `Xᵀ(y − Xβ)` in the client's columns.
    pub(crate) fn residual(&self, parameters: &[f64], out: &mut [f64]) {
        let parameters = self.support.gather(parameters);
        for (value, row) in out.iter_mut().zip(self.products.chunks_exact(self.size)) {
            *value = row[self.size - 1] - dot(&row[..self.size - 1], &parameters);
        }
    }

    /// The products of the client's common columns with each other, behind so many random ones,
    pub(crate) fn common_rows(&self, random: usize) -> impl Iterator<Item = &[f64]> {
        let last = self.size - 1;
        self.products.chunks_exact(self.size).take(last).skip(random).map(move |row| &row[random..last])
    }

    /// and with the target.
    pub(crate) fn common_moment(&self, random: usize) -> &[f64] {
        &self.products[(self.size - 1) * self.size + random..self.size * self.size - 1]
    }

    pub(crate) fn energy(&self) -> f64 {
        self.products[self.size * self.size - 1]
    }

    /// The sum of squared errors of a model.
    pub(crate) fn error(&self, parameters: &[f64]) -> f64 {
        (self.energy() - 2.0 * self.moment(parameters) + self.bilinear(parameters, parameters)).max(0.0)
    }
}

/// What is learned from, laid out for one pass over the clients: of each, the rows of `A` that belong to random columns, and `b`, both in the
/// client's own columns.
#[derive(Clone)]
pub(crate) struct Panel {
    /// The variance of the noise, where it is known.
    pub noise: Option<f64>,
    /// Number of columns, and how many of the first are random.
    pub columns: usize,
    pub random: usize,
    /// The penalised group of each column.
    pub curves: Vec<Option<usize>>,
    pub rows: Vec<f64>,
    pub supports: Supports,
    pub slabs: Vec<f64>,
    pub moments: Vec<f64>,
    pub energies: Vec<f64>,
    /// The sum of all `A`.
    pub curvature: Vec<f64>,
}

impl Panel {
    pub(crate) fn clients(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn support(&self, client: usize) -> Support<'_> {
        self.supports.of(client)
    }

    pub(crate) fn slab(&self, client: usize) -> &[f64] {
        &self.slabs[self.supports.starts[client] * self.random..self.supports.starts[client + 1] * self.random]
    }

    pub(crate) fn moment(&self, client: usize) -> &[f64] {
        &self.moments[self.supports.starts[client]..self.supports.starts[client + 1]]
    }

    pub(crate) fn total_rows(&self) -> f64 {
        self.rows.iter().sum()
    }

    /// These clients alone, which may be named several times; for panels of random columns only.
    pub(crate) fn subset(&self, clients: &[usize]) -> Self {
        let size = self.random * self.columns;
        let mut curvature = vec![0.0; size];
        clients.iter().for_each(|&client| add_scaled(&mut curvature, 1.0, self.slab(client)));
        Self {
            noise: self.noise,
            columns: self.columns,
            random: self.random,
            curves: self.curves.clone(),
            rows: clients.iter().map(|&client| self.rows[client]).collect(),
            supports: Supports::first(self.columns, clients.len()),
            slabs: clients.iter().flat_map(|&client| self.slab(client).to_vec()).collect(),
            moments: clients.iter().flat_map(|&client| self.moment(client).to_vec()).collect(),
            energies: clients.iter().map(|&client| self.energies[client]).collect(),
            curvature,
        }
    }

    /// The sum of all `b`.
    pub(crate) fn total_moment(&self) -> Vec<f64> {
        let mut sum = vec![0.0; self.columns];
        (0..self.clients()).for_each(|client| self.support(client).scatter(&mut sum, 1.0, self.moment(client)));
        sum
    }
}
