//! Generators with known parameters, for the papers' synthetic experiments.
//!
//! The clients of a cluster are consecutive. Every client draws from a stream of its own, keyed by its id, so its rows
//! depend neither on the number of threads nor on the number of other clients.

use super::*;
use crate::memory::check_room;
use crate::num::logistic::Odds;
use rand_distr::{Distribution, StandardNormal};

choices! {
    /// Whether drawn zeros and ones are multiplied by the scale or rescaled to it as their norm.
    pub enum ParameterScaling { Multiply = "multiply", Norm = "norm" }
    /// Intervals of the clusters' parameters.
    pub enum Intervals { E1 = "e1", E5 = "e5" }
    /// Type in which features are stored.
    pub enum Stored { F32 = "f32", F64 = "f64" }
}

settings! {
    /// Numbers of clients and of their rows.
    pub struct Sizes {
        /// how many clients
        clients: usize [1..=10_000_000] = 100,
        /// training rows per client
        samples: usize [1..=100_000_000] = 100,
        /// test rows per client
        test_samples: usize [0..=100_000_000] = 20,
        /// further clients that are met only after training
        unseen_clients: usize [0..=10_000_000] = 0,
    }
}

settings! {
    /// IFCA's linear regression.
    pub struct LinearSettings {
        /// numbers of clients and of their rows
        sizes: Sizes,
        /// how many true clusters
        true_clusters: usize [1..=1_000_000] = 2,
        /// features in a row
        dimension: usize [1..=1_000_000] = 100,
        /// standard deviation of the noise
        noise: f64 [0.0..=1e12] = 0.1,
        /// how large the true parameters are
        scale: f64 [above 0.0] = 1.0,
        /// whether the drawn zeros and ones are multiplied by the scale or rescaled to it as their norm
        scaling: ParameterScaling = "multiply",
        /// how features are stored
        precision: Stored = "f64",
    }
}

settings! {
    /// ODCL's linear regression.
    pub struct OdclLinearSettings {
        /// numbers of clients and of their rows
        sizes: Sizes,
        /// where a cluster's parameters lie: [1,2], [4,5] to [13,14] and their negatives, or [0,1], [1,2], [-1,0], [-2,-1]
        intervals: Intervals = "e1",
        /// use only the first so many intervals; left out: all of them, 10 or 4
        true_clusters: Option<usize> [1..=10],
        /// features in a row
        dimension: usize [1..=1_000_000] = 20,
        /// features of a row that are not 0
        active: usize [1..=1_000_000] = 5,
        /// standard deviation of the noise
        noise: f64 [0.0..=1e12] = 1.0,
    }
}

settings! {
    /// ODCL's logistic regression.
    pub struct OdclLogisticSettings {
        /// numbers of clients and of their rows
        sizes: Sizes,
        /// use only the first so many clusters
        true_clusters: usize [1..=4] = 4,
    }
}

settings! {
    /// Clients around their clusters.
    pub struct Hierarchy {
        /// how many clients
        clients: usize [1..=10_000_000] = 400,
        /// training rows per client
        samples: usize [1..=100_000_000] = 100,
        /// training rows vary from so many to `samples`, drawn for every client; left out: all have `samples`
        fewest_samples: Option<usize> [1..=100_000_000],
        /// test rows per client
        test_samples: usize [0..=100_000_000] = 20,
        /// further clients that are met only after training
        unseen_clients: usize [0..=10_000_000] = 0,
        /// standard deviation of clusters around 0
        between: f64 [0.0..=1e12] = 1.0,
        /// standard deviation of clients around their cluster
        within: f64 [0.0..=1e12] = 1.0,
    }
}

settings! {
    /// The known-clusters paper's linear regression.
    pub struct HierarchicalLinearSettings {
        /// clients around their clusters
        hierarchy: Hierarchy,
        /// how many true clusters
        true_clusters: usize [1..=1_000_000] = 20,
        /// features in a row
        dimension: usize [1..=1_000_000] = 20,
        /// standard deviation of the noise
        noise: f64 [0.0..=1e12] = 1.0,
    }
}

settings! {
    /// The known-clusters paper's logistic regression.
    pub struct HierarchicalLogisticSettings {
        /// clients around their clusters
        hierarchy: Hierarchy,
        /// how many true clusters
        true_clusters: usize [1..=1_000_000] = 5,
        /// features in a row
        dimension: usize [1..=1_000_000] = 3,
    }
}

const E1: &[(f64, f64)] = &[
    (1.0, 2.0),
    (4.0, 5.0),
    (7.0, 8.0),
    (10.0, 11.0),
    (13.0, 14.0),
    (-2.0, -1.0),
    (-5.0, -4.0),
    (-8.0, -7.0),
    (-11.0, -10.0),
    (-14.0, -13.0),
];
const E5: &[(f64, f64)] = &[(0.0, 1.0), (1.0, 2.0), (-1.0, 0.0), (-2.0, -1.0)];

const LOGISTIC_PARAMETERS: [[f64; 2]; 4] = [[1.0, -1.0], [1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]];
/// Covariances as (variance of each coordinate, their covariance). The third is printed in the paper as
/// `[[1, 2], [2, 1]]`, which no distribution has; the second's stands in for it, as in the reference runs.
const LOGISTIC_COVARIANCES: [(f64, f64); 4] = [(1.0, 0.0), (2.0, 1.0), (2.0, 1.0), (2.0, 0.0)];

/// IFCA's linear regression: `y = <x, θ> + noise` with standard normal x and no intercept. The coordinates of a cluster's
/// θ are 0 or 1 with equal chance, multiplied by the scale as in the authors' code, or rescaled to it as their norm, as
/// the paper says.
impl SourceSettings for LinearSettings {
    const NAME: &str = "linear";
    const SUMMARY: &str = "linear regression with a parameter vector per cluster, as in the IFCA paper";

    const PART: Option<BuildPart> = Some(|settings, seed, part| Self::of(settings).make(seed, part));

    fn build(self, seed: u64) -> Result<Population> {
        self.make(seed, Part::ALL)
    }
}

impl LinearSettings {
    fn make(self, seed: u64, part: Part) -> Result<Population> {
        let generator =
            Generator::new(&self.sizes, None, self.true_clusters, self.dimension, Self::NAME, (seed, part))?;
        let (scale, to_norm) = (self.scale, self.scaling == ParameterScaling::Norm);
        let parameters = generator.parameters(|_, rng| {
            loop {
                let mut drawn: Vec<f64> =
                    (0..generator.dimension).map(|_| f64::from(u8::from(rng.random::<bool>()))).collect();
                let norm = drawn.iter().sum::<f64>().sqrt();
                if to_norm && norm == 0.0 {
                    continue;
                }
                let factor = if to_norm { scale / norm } else { scale };
                drawn.iter_mut().for_each(|value| *value *= factor);
                return drawn;
            }
        });
        let noise = self.noise;
        let single = self.precision == Stored::F32;
        generator.population(parameters.clone(), DataShape::numbers(generator.dimension, 0), |cluster, rows, rng| {
            let columns = generator.dimension;
            let mut values = vec![0.0; rows * columns];
            let targets = values.chunks_exact_mut(columns).map(|row| {
                row.iter_mut().for_each(|value| *value = normal(rng));
                if single {
                    row.iter_mut().for_each(|value| *value = f64::from(*value as f32));
                }
                dot_in_order(row, &parameters[cluster]) + noise * normal(rng)
            });
            let targets = targets.collect();
            let features = match single {
                true => Features::F32 { columns, values: values.into_iter().map(|value| value as f32).collect() },
                false => Features::F64 { columns, values },
            };
            Drawn::of(features, Targets::Values(targets))
        })
    }
}

/// ODCL's linear regression (experiments 1 and 5): a few random coordinates of each row are standard normal, the others
/// 0; a cluster's parameters are uniform on its interval; no intercept.
impl SourceSettings for OdclLinearSettings {
    const NAME: &str = "odcl-linear";
    const SUMMARY: &str = "linear regression on sparse rows, as in the ODCL paper";

    const PART: Option<BuildPart> = Some(|settings, seed, part| Self::of(settings).make(seed, part));

    fn build(self, seed: u64) -> Result<Population> {
        self.make(seed, Part::ALL)
    }
}

impl OdclLinearSettings {
    fn make(self, seed: u64, part: Part) -> Result<Population> {
        let (name, intervals) = match self.intervals {
            Intervals::E1 => ("e1", E1),
            Intervals::E5 => ("e5", E5),
        };
        let clusters = self.true_clusters.unwrap_or(intervals.len());
        let (dimension, active) = (self.dimension, self.active);
        let mut faults = Vec::new();
        if clusters > intervals.len() {
            let most = intervals.len();
            let message =
                format!("data.true_clusters: got {clusters}, want at most {most} with intervals = \"{name}\"");
            faults.push(Error::settings(message));
        }
        if active > dimension {
            faults.push(Error::settings(format!("data.active: got {active}, want at most the dimension, {dimension}")));
        }
        finish(faults)?;
        let generator = Generator::new(&self.sizes, None, clusters, dimension, Self::NAME, (seed, part))?;
        let parameters = generator.parameters(|cluster, rng| {
            let (low, high) = intervals[cluster];
            (0..dimension).map(|_| low + (high - low) * rng.random::<f64>()).collect()
        });
        let noise = self.noise;
        generator.population(parameters.clone(), DataShape::numbers(dimension, 0), |cluster, rows, rng| {
            let mut values = vec![0f64; rows * dimension];
            let mut order: Vec<usize> = (0..dimension).collect();
            let targets = values.chunks_exact_mut(dimension).map(|row| {
                let mut clean = 0.0;
                for place in 0..active {
                    order.swap(place, rng.random_range(place..dimension));
                    let (coordinate, value) = (order[place], normal(rng));
                    row[coordinate] = value;
                    clean += value * parameters[cluster][coordinate];
                }
                clean + noise * normal(rng)
            });
            let targets = targets.collect();
            Drawn::of(Features::F64 { columns: dimension, values }, Targets::Values(targets))
        })
    }
}

/// ODCL's logistic regression (experiment 4): normal points in the plane with a covariance per cluster, class 1 with
/// chance `1 / (1 + exp(-<x, θ>))`. The true parameters end with the intercept, 0.
impl SourceSettings for OdclLogisticSettings {
    const NAME: &str = "odcl-logistic";
    const SUMMARY: &str = "two classes in the plane, as in the ODCL paper";

    const PART: Option<BuildPart> = Some(|settings, seed, part| Self::of(settings).make(seed, part));

    fn build(self, seed: u64) -> Result<Population> {
        self.make(seed, Part::ALL)
    }
}

impl OdclLogisticSettings {
    fn make(self, seed: u64, part: Part) -> Result<Population> {
        let generator = Generator::new(&self.sizes, None, self.true_clusters, 2, Self::NAME, (seed, part))?;
        let parameters: Vec<Vec<f64>> =
            LOGISTIC_PARAMETERS[..generator.clusters].iter().map(|two| two.to_vec()).collect();
        let with_intercept = parameters.iter().map(|two| [two.as_slice(), &[0.0]].concat()).collect();
        generator.population(with_intercept, DataShape::numbers(2, 2), |cluster, rows, rng| {
            let (variance, covariance) = LOGISTIC_COVARIANCES[cluster];
            let below = covariance / variance.sqrt();
            let rest = (variance - below * below).sqrt();
            let (mut values, mut classes) = (Vec::with_capacity(2 * rows), Vec::with_capacity(rows));
            for _ in 0..rows {
                let (first, second) = (normal(rng), normal(rng));
                let point = [variance.sqrt() * first, below * first + rest * second];
                classes.push(class(point[0] * parameters[cluster][0] + point[1] * parameters[cluster][1], rng));
                values.extend(point);
            }
            Drawn::of(Features::F64 { columns: 2, values }, Targets::Classes(classes))
        })
    }
}

/// The known-clusters paper's linear regression: cluster centres are normal around 0, a client's own θ is normal around
/// its cluster's centre, and `y = <x, θ> + noise` with standard normal x and no intercept. Clusters are known groups
/// here, and every client knows its own.
impl SourceSettings for HierarchicalLinearSettings {
    const NAME: &str = "hierarchical-linear";
    const SUMMARY: &str = "linear regression with parameters of every client around its known cluster's";

    const PART: Option<BuildPart> = Some(|settings, seed, part| Self::of(settings).make(seed, part));

    fn build(self, seed: u64) -> Result<Population> {
        self.make(seed, Part::ALL)
    }
}

impl HierarchicalLinearSettings {
    fn make(self, seed: u64, part: Part) -> Result<Population> {
        let noise = self.noise;
        hierarchical(
            &self.hierarchy,
            (self.true_clusters, self.dimension),
            (Self::NAME, 0, (seed, part)),
            |scores, rng| Targets::Values(scores.iter().map(|score| score + noise * normal(rng)).collect()),
        )
    }
}

/// The same with two classes, class 1 with chance `1 / (1 + exp(-<x, θ>))`.
impl SourceSettings for HierarchicalLogisticSettings {
    const NAME: &str = "hierarchical-logistic";
    const SUMMARY: &str = "two classes, with parameters of every client around its known cluster's";

    const PART: Option<BuildPart> = Some(|settings, seed, part| Self::of(settings).make(seed, part));

    fn build(self, seed: u64) -> Result<Population> {
        self.make(seed, Part::ALL)
    }
}

impl HierarchicalLogisticSettings {
    fn make(self, seed: u64, part: Part) -> Result<Population> {
        hierarchical(
            &self.hierarchy,
            (self.true_clusters, self.dimension),
            (Self::NAME, 2, (seed, part)),
            |scores, rng| Targets::Classes(scores.iter().map(|&score| class(score, rng)).collect()),
        )
    }
}

/// Clients around centres around 0; `answer` draws the targets for the products `<x, θ>`.
fn hierarchical(
    hierarchy: &Hierarchy,
    (clusters, dimension): (usize, usize),
    (name, classes, which): (&str, usize, (u64, Part)),
    answer: impl Fn(&[f64], &mut Rng) -> Targets + Sync,
) -> Result<Population> {
    let Hierarchy { clients, samples, test_samples, unseen_clients, between, within, .. } = *hierarchy;
    let sizes = Sizes { clients, samples, test_samples, unseen_clients };
    let mut generator = Generator::new(&sizes, hierarchy.fewest_samples, clusters, dimension, name, which)?;
    generator.grouped = true;
    let columns = generator.dimension;
    let centres = generator.parameters(|_, rng| (0..columns).map(|_| between * normal(rng)).collect());
    generator.population(centres.clone(), DataShape::numbers(columns, classes), |cluster, rows, rng| {
        let parameters: Vec<f64> = centres[cluster].iter().map(|centre| centre + within * normal(rng)).collect();
        let values: Vec<f64> = (0..rows * columns).map(|_| normal(rng)).collect();
        let scores: Vec<f64> = values.chunks_exact(columns).map(|row| dot_in_order(row, &parameters)).collect();
        Drawn { features: Features::F64 { columns, values }, targets: answer(&scores, rng), parameters }
    })
}

/// Class 1 with chance `1 / (1 + exp(-score))`.
fn class(score: f64, rng: &mut Rng) -> u32 {
    u32::from(rng.random::<f64>() < Odds::of(score).chance())
}

struct Drawn {
    features: Features,
    targets: Targets,
    /// Its parameters; empty where they are its cluster's.
    parameters: Vec<f64>,
}

impl Drawn {
    /// Rows drawn with the cluster's parameters.
    fn of(features: Features, targets: Targets) -> Self {
        Self { features, targets, parameters: Vec::new() }
    }
}

/// The inner product, summed from left to right, so that a seed keeps giving the same bits.
fn dot_in_order(row: &[f64], parameters: &[f64]) -> f64 {
    row.iter().zip(parameters).map(|(x, parameter)| x * parameter).sum()
}

pub(super) fn normal(rng: &mut Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// Memory of a client besides its rows.
const CLIENT_BYTES: usize = 512;

pub(super) fn check_size(clients: usize, rows: usize, dimension: usize) -> Result<()> {
    let bytes = CLIENT_BYTES.saturating_add(rows.saturating_mul(dimension + 1).saturating_mul(size_of::<f64>()));
    check_room("data", &[clients], bytes).map_err(|error| error.hint("use fewer clients, samples or dimensions"))
}

struct Generator {
    clients: usize,
    /// Those of the clients that are made.
    places: Range<usize>,
    unseen: usize,
    samples: usize,
    /// Lower bound on the training rows of a client; `samples` is the upper one.
    fewest_samples: usize,
    test_samples: usize,
    clusters: usize,
    dimension: usize,
    /// Whether clients know their cluster, as a group.
    grouped: bool,
    key: Key,
}

impl Generator {
    fn new(
        sizes: &Sizes,
        fewest_samples: Option<usize>,
        clusters: usize,
        dimension: usize,
        name: &str,
        (seed, part): (u64, Part),
    ) -> Result<Self> {
        let Sizes { clients, samples, test_samples, unseen_clients: unseen } = *sizes;
        let fewest_samples = fewest_samples.unwrap_or(samples);
        let mut faults = Vec::new();
        if clients < clusters {
            let message = format!("data.clients: got {clients}, want at least {clusters}, one for each true cluster");
            faults.push(Error::settings(message));
        }
        if fewest_samples > samples {
            let message = format!("data.fewest_samples: got {fewest_samples}, want at most data.samples, {samples}");
            faults.push(Error::settings(message));
        }
        finish(faults)?;
        let key = Key::new(seed).word(name);
        let (places, grouped) = (part.places(clients)?, false);
        let unseen = if part == Part::ALL { unseen } else { 0 };
        let generator =
            Self { clients, places, unseen, samples, fewest_samples, test_samples, clusters, dimension, grouped, key };
        check_size(generator.places.len() + generator.unseen, generator.samples + generator.test_samples, dimension)?;
        check_room("data.true_clusters", &[clusters, dimension], size_of::<f64>())?;
        Ok(generator)
    }

    fn parameters(&self, draw: impl Fn(usize, &mut Rng) -> Vec<f64>) -> Vec<Vec<f64>> {
        let key = self.key.clone().word("parameters");
        (0..self.clusters).map(|cluster| draw(cluster, &mut key.clone().number(cluster as u64).rng())).collect()
    }

    fn population(
        &self,
        true_parameters: Vec<Vec<f64>>,
        shape: DataShape,
        rows: impl Fn(usize, usize, &mut Rng) -> Drawn + Sync,
    ) -> Result<Population> {
        let members = |count: usize, places: Range<usize>, prefix: &str| -> Result<Vec<(Client, Vec<f64>)>> {
            let client = |number: usize| {
                let id = format!("{prefix}{number}");
                let cluster = block(number, count, self.clusters);
                let mut rng = self.key.clone().word("rows").word(&id).rng();
                let mut lots = self.key.clone().word("samples").word(&id).rng();
                let samples = lots.random_range(self.fewest_samples..=self.samples);
                let Drawn { features, targets, parameters } = rows(cluster, samples + self.test_samples, &mut rng);
                let client = Client {
                    group: self.grouped.then(|| cluster.to_string()),
                    truth: Some(cluster),
                    ..Client::divided(id, features, targets, samples)?
                };
                Ok((client, parameters))
            };
            places.into_par_iter().map(client).collect()
        };
        let seen = members(self.clients, self.places.clone(), "")?;
        let (clients, mut client_parameters): (_, Vec<_>) = seen.into_iter().unzip();
        client_parameters.retain(|parameters| !parameters.is_empty());
        Ok(Population {
            clients,
            unseen: members(self.unseen, 0..self.unseen, "unseen-")?.into_iter().map(|(client, _)| client).collect(),
            true_clusters: Some(self.clusters),
            true_parameters,
            client_parameters,
            shape,
            ..Population::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Shard;
    use crate::data::tests::make;

    fn rows(shard: &Shard) -> Vec<Vec<f64>> {
        match &**shard.features() {
            Features::F64 { columns, values } => values.chunks(*columns).map(<[f64]>::to_vec).collect(),
            Features::F32 { columns, values } => {
                values.chunks(*columns).map(|row| row.iter().map(|value| f64::from(*value)).collect()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn linear_targets_are_the_products_without_noise() {
        let text =
            "clients = 4\nsamples = 3\ntest_samples = 2\ndimension = 6\nnoise = 0.0\nscale = 0.5\nunseen_clients = 2";
        for text in [text.to_string(), format!("{text}\nprecision = \"f32\"")] {
            let population = make("linear", &text).unwrap();
            assert!(population.true_parameters.iter().flatten().all(|value| [0.0, 0.5].contains(value)));
            let truths: Vec<_> =
                population.clients.iter().chain(&population.unseen).map(|c| c.truth.unwrap()).collect();
            assert_eq!(truths, [0, 0, 1, 1, 0, 1]);
            for client in &population.clients {
                let parameters = &population.true_parameters[client.truth.unwrap()];
                let product = |row: &Vec<f64>| row.iter().zip(parameters).map(|(x, p)| x * p).sum::<f64>();
                let clean: Vec<f64> = rows(&client.train).iter().map(product).collect();
                assert_eq!(client.train.values().unwrap(), &clean[..3]);
                assert_eq!(client.test.values().unwrap(), &clean[3..]);
            }
        }
    }

    #[test]
    fn parameters_can_be_given_a_norm() {
        let text = "dimension = 30\nsamples = 1\nscale = 3.0\nscaling = \"norm\"\ntrue_clusters = 4";
        for parameters in make("linear", text).unwrap().true_parameters {
            let norm = parameters.iter().map(|value| value * value).sum::<f64>().sqrt();
            assert!((norm - 3.0).abs() < 1e-12);
        }
    }

    #[test]
    fn parts_are_the_clients_of_the_whole() {
        let text = "clients = 7\nsamples = 5\ntrue_clusters = 2\ndimension = 2";
        for name in ["linear", "odcl-linear", "hierarchical-linear", "digits"] {
            let source = source(name).unwrap();
            let mut given: toml::Table = toml::from_str(text).unwrap();
            given.retain(|key, _| source.settings.iter().any(|setting| setting.name == key));
            given.extend((name == "odcl-linear").then(|| ("active".to_string(), toml::Value::Integer(1))));
            let mut faults = Vec::new();
            let settings = Settings::check("data", source.settings, given, &mut faults);
            assert!(faults.is_empty(), "{faults:?}");
            let whole = (source.build)(&settings, 3).unwrap();
            let mut met = 0;
            for index in 0..3 {
                let (part, places) = source.build_part(&settings, 3, Part { index, of: 3 }).unwrap();
                assert_eq!(part.clients.len(), places.len());
                met += places.len();
                for (client, place) in part.clients.iter().zip(places) {
                    let wanted = &whole.clients[place];
                    assert_eq!((&client.id, client.truth), (&wanted.id, wanted.truth), "{name}");
                    let content = |shard: &Shard| (format!("{:?}", shard.pick(&[0, 1])), shard.len());
                    assert_eq!(content(&client.train), content(&wanted.train), "{name}");
                    assert_eq!(content(&client.test), content(&wanted.test), "{name}");
                }
            }
            assert_eq!(met, 7);
            assert!(source.build_part(&settings, 3, Part { index: 8, of: 8 }).is_err());
        }
    }

    #[test]
    fn a_client_draws_the_same_rows_whoever_else_is_there() {
        let few = make("linear", "clients = 2\nsamples = 5\ndimension = 3").unwrap();
        let many = make("linear", "clients = 9\nsamples = 5\ndimension = 3").unwrap();
        assert_eq!(few.clients[0].train.features(), many.clients[0].train.features());
        assert_ne!(few.clients[0].train.features(), few.clients[1].train.features());
    }

    #[test]
    fn standard_normal_features() {
        let population = make("linear", "clients = 2\nsamples = 5000\ndimension = 10\ntest_samples = 0").unwrap();
        let values: Vec<f64> = rows(&population.clients[0].train).concat();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| value * value).sum::<f64>() / count;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn odcl_rows_are_sparse_and_parameters_lie_in_their_intervals() {
        let population = make("odcl-linear", "clients = 20\nsamples = 4").unwrap();
        assert_eq!(population.true_clusters, Some(10));
        let within = |cluster: usize, low: f64, high: f64| {
            population.true_parameters[cluster].iter().all(|value| (low..high).contains(value))
        };
        assert!(within(0, 1.0, 2.0) && within(4, 13.0, 14.0) && within(5, -2.0, -1.0) && within(9, -14.0, -13.0));
        for row in rows(&population.clients[7].train) {
            assert_eq!((row.len(), row.iter().filter(|value| **value != 0.0).count()), (20, 5));
        }
        let population = make("odcl-linear", "clients = 4\nsamples = 4\nintervals = \"e5\"").unwrap();
        assert_eq!(population.true_clusters, Some(4));
        assert!(population.true_parameters[3].iter().all(|value| (-2.0..-1.0).contains(value)));
    }

    #[test]
    fn logistic_points_have_the_covariance_and_classes_follow_the_parameters() {
        let population = make("odcl-logistic", "clients = 4\nsamples = 20000\ntest_samples = 0").unwrap();
        assert_eq!(population.true_parameters[2], [-1.0, 1.0, 0.0]);
        let third = &population.clients[2];
        let points = rows(&third.train);
        let moment = |a: usize, b: usize| points.iter().map(|point| point[a] * point[b]).sum::<f64>() / 20000.0;
        assert!(
            (moment(0, 0) - 2.0).abs() < 0.1 && (moment(1, 1) - 2.0).abs() < 0.1 && (moment(0, 1) - 1.0).abs() < 0.1
        );
        let agree = points.iter().zip(third.train.classes().unwrap()).filter(|(p, c)| (p[1] > p[0]) == (**c == 1));
        let share = agree.count() as f64 / 20000.0;
        assert!((0.7..0.85).contains(&share), "{share}");
    }

    /// The mean of the squares and the mean.
    fn moments(values: impl Iterator<Item = f64>) -> (f64, f64) {
        let values: Vec<f64> = values.collect();
        let count = values.len() as f64;
        (values.iter().map(|value| value * value).sum::<f64>() / count, values.iter().sum::<f64>() / count)
    }

    #[test]
    fn clients_scatter_around_centres_that_scatter_around_zero() {
        let text = "clients = 4000\ntrue_clusters = 400\nsamples = 2\nbetween = 3.0\nwithin = 0.5";
        let population = make("hierarchical-linear", text).unwrap();
        assert_eq!(population.client_parameters.len(), 4000);
        let (square, mean) = moments(population.true_parameters.iter().flatten().copied());
        // 8000 draws: the square of a deviation of 3 is 9, give or take 9·√(2/8000).
        assert!((square - 9.0).abs() < 0.5 && mean.abs() < 0.15, "{square} {mean}");
        let around = population.clients.iter().zip(&population.client_parameters).flat_map(|(client, own)| {
            let centre = &population.true_parameters[client.truth.unwrap()];
            own.iter().zip(centre).map(|(own, centre)| own - centre)
        });
        let (square, mean) = moments(around);
        assert!((square - 0.25).abs() < 0.01 && mean.abs() < 0.01, "{square} {mean}");
        assert_eq!(population.clients[25].group.as_deref(), Some("2"));
        assert!(make("linear", "samples = 1").unwrap().client_parameters.is_empty());
    }

    #[test]
    fn hierarchical_targets_follow_the_clients_own_parameters() {
        let text = "clients = 3\ntrue_clusters = 2\nsamples = 50\ndimension = 4";
        let product =
            |row: &Vec<f64>, own: &[f64]| row.iter().zip(own).map(|(x, parameter)| x * parameter).sum::<f64>();
        let exact = make("hierarchical-linear", &format!("{text}\nnoise = 0.0")).unwrap();
        for (client, own) in exact.clients.iter().zip(&exact.client_parameters) {
            let clean: Vec<f64> = rows(&client.train).iter().map(|row| product(row, own)).collect();
            assert_eq!([client.train.values().unwrap(), client.test.values().unwrap()].concat(), clean);
        }
        let noisy = make("hierarchical-linear", &text.replace("50", "5000")).unwrap();
        let errors = (rows(&noisy.clients[1].train).into_iter().zip(noisy.clients[1].train.values().unwrap()))
            .map(|(row, value)| value - product(&row, &noisy.client_parameters[1]));
        assert!((moments(errors).0 - 1.0).abs() < 0.1);
        let classes = make("hierarchical-logistic", &format!("{text}\nbetween = 100.0")).unwrap();
        assert_eq!(classes.shape, DataShape::numbers(4, 2));
        for (client, own) in classes.clients.iter().zip(&classes.client_parameters) {
            let sides = rows(&client.train).into_iter().map(|row| u32::from(product(&row, own) > 0.0));
            let agree = sides.zip(client.train.classes().unwrap()).filter(|(side, class)| side == *class).count();
            assert!(agree >= 45, "{agree}");
        }
    }

    #[test]
    fn rows_vary_from_client_to_client() {
        let text = "clients = 2000\nsamples = 60\nfewest_samples = 5\ntest_samples = 3";
        for name in ["hierarchical-linear", "hierarchical-logistic"] {
            let population = make(name, text).unwrap();
            let mut counts = [0; 61];
            population.clients.iter().for_each(|client| counts[client.train.len()] += 1);
            assert!(counts[..5].iter().all(|&count| count == 0) && counts[5] > 0 && counts[60] > 0);
            let (_, mean) = moments(population.clients.iter().map(|client| client.train.len() as f64));
            assert!((mean - 32.5).abs() < 1.5, "{mean}");
            assert!(population.clients.iter().all(|client| client.test.len() == 3));
        }
        let refused = make("hierarchical-logistic", "clients = 4\nsamples = 5\nfewest_samples = 6").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "2 faults\n- data.clients: got 4, want at least 5, one for each true cluster\n\
             - data.fewest_samples: got 6, want at most data.samples, 5"
        );
    }

    #[test]
    fn impossible_settings_are_refused() {
        let text = |name, text| make(name, text).unwrap_err().to_string();
        assert_eq!(text("linear", "clients = 1"), "data.clients: got 1, want at least 2, one for each true cluster");
        assert_eq!(
            text("odcl-linear", "intervals = \"e5\"\ntrue_clusters = 5\nactive = 21"),
            "2 faults\n- data.true_clusters: got 5, want at most 4 with intervals = \"e5\"\n\
             - data.active: got 21, want at most the dimension, 20"
        );
        let huge = text("linear", "clients = 10000\nsamples = 1000000\ndimension = 1000");
        assert!(huge.starts_with("data: 80082 GB of memory would be needed"), "{huge}");
    }
}
