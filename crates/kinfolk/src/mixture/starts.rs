//! Where EM begins.

use super::fit::{Begin, Fitting};
use super::views::{SCALINGS, Scaling, View};
use super::{Covariance, Detail, Family, Noise, Rows, Scratch, Shape, Statistics, assigned, expect, maximise};
use crate::clustering::{Points, kmeans, ward};
use crate::rng::Key;
use rand::RngExt;
use rand::seq::index;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// From Ward's clusters.
    Ward(Scaling),
    /// From clusters by k-means, drawn by a number.
    KMeans(Scaling, usize),
    Random(usize),
    /// Regressions at random, with annealed noise.
    Annealed(usize),
}

impl Start {
    pub fn all(shape: &Shape, fitting: &Fitting) -> Vec<Self> {
        let starts = 0..fitting.starts.max(1);
        let wards = SCALINGS.into_iter().map(Self::Ward);
        let by_kmeans = |start: usize| Self::KMeans(SCALINGS[start % SCALINGS.len()], start);
        match (fitting.begin, shape.family) {
            // One component has no choice.
            _ if shape.components == 1 => vec![Self::Random(0)],
            (Begin::Auto, Family::Gaussian(_)) => wards.chain(starts.map(by_kmeans)).collect(),
            (Begin::Auto, Family::Regression { .. }) => starts.map(Self::Annealed).collect(),
            (Begin::Hierarchical, _) => wards.take(starts.len()).collect(),
            (Begin::KMeans, _) => starts.map(by_kmeans).collect(),
            (Begin::Random, _) => starts.map(Self::Random).collect(),
        }
    }
}

pub(super) struct Starts<'a> {
    shape: &'a Shape,
    rows: &'a Rows,
    key: &'a Key,
    /// The rows under every scaling, once it is needed.
    views: [Option<View>; SCALINGS.len()],
}

/// Rows beyond which Ward's clusters are those of some drawn ones: it takes the time and memory of all pairs.
const MOST_FOR_WARD: usize = 1000;

/// Iterations of k-means: EM goes on from wherever it is.
const KMEANS: kmeans::Options = kmeans::Options { starts: 1, iterations: 30 };

impl<'a> Starts<'a> {
    pub fn new(shape: &'a Shape, rows: &'a Rows, key: &'a Key) -> Self {
        Self { shape, rows, key, views: Default::default() }
    }

    /// The parameters of a start; `None` where rows that coincide leave too few to cluster.
    pub fn begin(&mut self, start: Start, scratch: &mut Scratch) -> Option<Vec<f64>> {
        let labels = match start {
            Start::Random(number) => return Some(self.random(number, scratch)),
            Start::Annealed(number) => return Some(annealed(self.shape, self.rows, &self.draw(number), scratch)),
            Start::Ward(scaling) => self.ward(scaling),
            Start::KMeans(scaling, number) => {
                let key = self.key.clone().number(number as u64);
                let components = self.shape.components;
                let view = self.view(scaling);
                let found = kmeans::cluster(Points::new(&view.values, view.columns).ok()?, components, &KMEANS, &key);
                found.ok()?.clustering.labels.iter().map(|&label| label as u32).collect()
            }
        };
        Some(of_labels(self.shape, self.rows, &labels, scratch))
    }

    /// For Gaussians rows as centres, all with the scatter of all rows; for regressions components at random.
    pub fn random(&self, number: usize, scratch: &mut Scratch) -> Vec<f64> {
        let Self { shape, rows, .. } = self;
        let Family::Gaussian(covariance) = shape.family else {
            return of_labels(shape, rows, &self.draw(number), scratch);
        };
        let whole = Shape { components: 1, ..**shape };
        let one = of_labels(&whole, rows, &vec![0; rows.len()], scratch);
        let mut random = self.key.clone().word("centres").number(number as u64).rng();
        let mut params = Vec::with_capacity(shape.len());
        for row in index::sample(&mut random, rows.len(), shape.components) {
            params.extend((0..shape.columns).map(|column| rows.value(row, column) + rows.origin()[column]));
        }
        let copies = if covariance == Covariance::Tied { 1 } else { shape.components };
        (0..copies).for_each(|_| params.extend_from_slice(&one[whole.scatter()]));
        params.resize(shape.len(), 1.0 / shape.components as f64);
        params
    }

    /// A component at random for every row.
    fn draw(&self, number: usize) -> Vec<u32> {
        let mut random = self.key.clone().word("components").number(number as u64).rng();
        (0..self.rows.len()).map(|_| random.random_range(0..self.shape.components as u32)).collect()
    }

    fn ward(&mut self, scaling: Scaling) -> Vec<u32> {
        let components = self.shape.components;
        let count = self.rows.len();
        if count <= MOST_FOR_WARD {
            let view = self.view(scaling);
            return ward::cluster(&view.values, view.columns, components);
        }
        let mut random = self.key.clone().word("hierarchy").rng();
        let drawn = index::sample(&mut random, count, MOST_FOR_WARD.max(components));
        let view = self.view(scaling);
        let some: Vec<f64> = drawn.iter().flat_map(|row| view.row(row)).copied().collect();
        view.nearest(&some, &ward::cluster(&some, view.columns, components), components)
    }

    fn view(&mut self, scaling: Scaling) -> &View {
        let rows = self.rows;
        self.views[scaling as usize].get_or_insert_with(|| View::of(rows, scaling))
    }
}

/// The parameters that fit best where every row's component is known. A component without rows stays amid the data.
pub(super) fn of_labels(shape: &Shape, rows: &Rows, labels: &[u32], scratch: &mut Scratch) -> Vec<f64> {
    let mut statistics = Statistics::default();
    assigned(shape, rows, labels, scratch, &mut statistics);
    let mut params = vec![0.0; shape.len()];
    params[shape.centres()].chunks_exact_mut(shape.width()).for_each(|centre| centre.copy_from_slice(rows.origin()));
    match shape.family {
        Family::Gaussian(Covariance::Tied | Covariance::Full) => {
            let matrices = params[shape.scatter()].chunks_exact_mut(shape.columns * shape.columns);
            matrices.for_each(|matrix| matrix.iter_mut().step_by(shape.columns + 1).for_each(|value| *value = 1.0));
        }
        _ => params[shape.scatter()].fill(1.0),
    }
    maximise(shape, &statistics, &mut params);
    params
}

/// Steps of annealing; and where noise is estimated, the share of it that is left at least in the end.
const ANNEALING_STEPS: usize = 60;
const FINAL_SHARE: f64 = 0.01;

/// EM for regressions with deterministic annealing of the noise. While it is large every row belongs a little to every
/// component, so that they part only where the data makes them, one after the other.
fn annealed(shape: &Shape, rows: &Rows, labels: &[u32], scratch: &mut Scratch) -> Vec<f64> {
    let Family::Regression { intercept, noise } = shape.family else {
        return of_labels(shape, rows, labels, scratch);
    };
    let free = Shape { family: Family::Regression { intercept, noise: Noise::Common }, ..*shape };
    let place = free.scatter().start;
    let mut params = of_labels(&free, rows, labels, scratch);
    let mut statistics = Statistics::default();
    let first = params[place];
    for step in 1..=ANNEALING_STEPS {
        let passed = step as f64 / ANNEALING_STEPS as f64;
        params[place] = match noise {
            Noise::Unit => first.max(1.0).powf(1.0 - passed),
            Noise::Common => params[place].max(first * FINAL_SHARE.powf(passed)),
        };
        expect(&free, &params, rows, Detail::Full, None, scratch, &mut statistics);
        maximise(&free, &statistics, &mut params);
    }
    if noise == Noise::Unit {
        params.remove(place);
    }
    params
}
