//! Clients that mix the same few components in different proportions, with outliers among them, as in the simulations of
//! the FedGrEM paper.
//!
//! Every client draws from streams of its own, keyed by its id. The heterogeneity shifts centres and changes no draw, so
//! one seed gives comparable data for all its values.

use super::synthetic::{check_size, normal};
use super::*;
use crate::num::norm;

choices! {
    /// Outliers as in the paper, or as in the authors' code.
    pub enum Outlier { Paper = "paper", Code = "code" }
}

settings! {
    /// Settings of both kinds of mixtures.
    pub struct Mixing {
        /// how many clients
        clients: usize [1..=10_000_000] = 10,
        /// test rows per client
        test_samples: usize [0..=100_000_000] = 20,
        /// how far a client's centres lie from the common ones, each in a random direction
        heterogeneity: f64 [0.0..=1e12] = 0.0,
        /// use only the first so many centres
        components: usize [1..=5] = 5,
        /// how many clients are outliers; the last ones are
        outliers: usize [0..=10_000_000] = 1,
    }
}

settings! {
    /// Points around centres.
    pub struct GaussianSettings {
        /// what both kinds of mixtures have
        mixing: Mixing,
        /// training rows per client
        samples: usize [1..=100_000_000] = 150,
        /// an outlier's rows: variance 3 around 2 in every column, or 4 around 2.5 as in the authors' code
        outlier: Outlier = "paper",
    }
}

settings! {
    /// Several regressions.
    pub struct RegressionSettings {
        /// what both kinds of mixtures have
        mixing: Mixing,
        /// training rows per client
        samples: usize [1..=100_000_000] = 200,
        /// an outlier's parameters: all 3, or all -3 as in the authors' code
        outlier: Outlier = "paper",
    }
}

const DIMENSION: usize = 10;
/// The common centres θ_1 to θ_5. The last entries of the first two are illegible in print; these are the authors'.
const CENTRES: [[f64; DIMENSION]; 5] = [
    [1.0, 0.0, 3.0, -1.0, 1.0, -1.0, 0.0, 1.0, 1.0, -1.0],
    [0.0, 1.0, -1.0, -3.0, 2.0, -1.0, 2.0, -1.0, 1.0, -1.0],
    [-3.0, -1.0, 2.0, -1.0, 2.0, -1.0, 1.0, -3.0, -1.0, -2.0],
    [1.0, -2.0, 0.0, -1.0, -2.0, 2.0, 1.0, 3.0, 1.0, -1.0],
    [3.0, 1.0, 2.0, -1.0, -2.0, 1.0, 2.0, -1.0, -1.0, 2.0],
];
/// Concentration of the Dirichlet distribution of weights.
const EVENNESS: f64 = 5.0;

/// Normal rows of unit variance around a component's centre. The component is the row's class, for scoring only.
impl SourceSettings for GaussianSettings {
    const NAME: &str = "fedgrem-gaussian";
    const SUMMARY: &str = "points around five centres, mixed by every client in its own way, as in the FedGrEM paper";

    fn build(self, seed: u64) -> Result<Population> {
        let (centre, variance): (f64, f64) = if self.outlier == Outlier::Code { (2.5, 4.0) } else { (2.0, 3.0) };
        let classes = self.mixing.components;
        population(&self.mixing, self.samples, (Self::NAME, classes, seed), |mixture, rows, rng| {
            let mut values = Vec::with_capacity(rows * DIMENSION);
            let classes = (0..rows).map(|_| match mixture {
                Some(mixture) => {
                    let component = draw(&mixture.weights, rng);
                    values.extend(mixture.centre(component).iter().map(|centre| centre + normal(rng)));
                    component as u32
                }
                None => {
                    values.extend((0..DIMENSION).map(|_| centre + variance.sqrt() * normal(rng)));
                    0
                }
            });
            let classes = classes.collect();
            (Features::F64 { columns: DIMENSION, values }, Targets::Classes(classes))
        })
    }
}

/// `y = <x, θ> + noise`, θ a component's, with standard normal x and noise and no intercept.
impl SourceSettings for RegressionSettings {
    const NAME: &str = "fedgrem-regression";
    const SUMMARY: &str = "five linear regressions, mixed by every client in its own way, as in the FedGrEM paper";

    fn build(self, seed: u64) -> Result<Population> {
        let far = [if self.outlier == Outlier::Code { -3.0 } else { 3.0 }; DIMENSION];
        population(&self.mixing, self.samples, (Self::NAME, 0, seed), |mixture, rows, rng| {
            let mut values = Vec::with_capacity(rows * DIMENSION);
            let targets = (0..rows).map(|row| {
                let parameters = mixture.map_or(&far[..], |mixture| mixture.centre(draw(&mixture.weights, rng)));
                values.extend((0..DIMENSION).map(|_| normal(rng)));
                let product = values[row * DIMENSION..].iter().zip(parameters).map(|(x, parameter)| x * parameter);
                product.sum::<f64>() + normal(rng)
            });
            let targets = targets.collect();
            (Features::F64 { columns: DIMENSION, values }, Targets::Values(targets))
        })
    }
}

impl PlantedMixture {
    fn centre(&self, component: usize) -> &[f64] {
        let width = self.centres.len() / self.weights.len();
        &self.centres[component * width..][..width]
    }

    /// One client's mixture: weights of its own, and centres at this distance from the common ones.
    fn draw(components: usize, heterogeneity: f64, rng: &mut Rng) -> Result<Self> {
        let weights = dirichlet(EVENNESS, components, rng)?;
        let mut centres = Vec::with_capacity(components * DIMENSION);
        for common in &CENTRES[..components] {
            let direction: Vec<f64> = (0..DIMENSION).map(|_| normal(rng)).collect();
            let length = norm(&direction);
            centres
                .extend(common.iter().zip(&direction).map(|(centre, along)| centre + heterogeneity * along / length));
        }
        Ok(Self { weights, centres })
    }
}

fn draw(weights: &[f64], rng: &mut Rng) -> usize {
    let mut left: f64 = rng.random();
    let found = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    // Rounding may leave a sum just below one.
    found.unwrap_or(weights.len() - 1)
}

/// Clients of one kind; `rows` draws rows from a client's mixture, or an outlier's where there is none.
fn population(
    mixing: &Mixing,
    samples: usize,
    (name, classes, seed): (&str, usize, u64),
    rows: impl Fn(Option<&PlantedMixture>, usize, &mut Rng) -> (Features, Targets) + Sync,
) -> Result<Population> {
    let Mixing { clients, test_samples: tests, heterogeneity, components, outliers } = *mixing;
    if outliers >= clients {
        let message = format!("data.outliers: got {outliers}, want fewer than data.clients, {clients}");
        return Err(Error::settings(message));
    }
    check_size(clients, samples + tests, DIMENSION)?;
    let key = Key::new(seed).word(name);
    let good = clients - outliers;
    let client = |number: usize| {
        let id = number.to_string();
        let mut rng = key.clone().word("mixture").word(&id).rng();
        let mixture = PlantedMixture::draw(components, heterogeneity, &mut rng)?;
        let mixture = (number < good).then_some(mixture);
        let (features, targets) =
            rows(mixture.as_ref(), samples + tests, &mut key.clone().word("rows").word(&id).rng());
        Ok((Client::divided(id, features, targets, samples)?, mixture))
    };
    let drawn = (0..clients).into_par_iter().map(client).collect::<Result<Vec<_>>>()?;
    let (clients, mixtures): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
    let outliers = if outliers == 0 { Vec::new() } else { mixtures.iter().map(Option::is_none).collect() };
    let shape = DataShape::numbers(DIMENSION, classes);
    Ok(Population { clients, outliers, mixtures, shape, ..Population::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::make;
    use crate::num::distance;

    fn rows(client: &Client) -> Vec<&[f64]> {
        let Features::F64 { columns, values } = &**client.train.features() else { panic!() };
        values.chunks(*columns).take(client.train.len()).collect()
    }

    /// Mean and variance.
    fn moments(values: impl Iterator<Item = f64>) -> (f64, f64) {
        let values: Vec<f64> = values.collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64)
    }

    #[test]
    fn what_is_planted_is_what_the_paper_says() {
        for (name, samples, classes) in [("fedgrem-gaussian", 150, 5), ("fedgrem-regression", 200, 0)] {
            let population = make(name, "heterogeneity = 0.75").unwrap();
            assert_eq!((population.clients.len(), population.clients[0].train.len()), (10, samples));
            assert_eq!(population.shape, DataShape::numbers(10, classes));
            assert_eq!(population.outliers, [[false; 9].as_slice(), &[true]].concat());
            assert_eq!((population.mixtures.len(), &population.mixtures[9]), (10, &None));
            for mixture in population.mixtures.iter().flatten() {
                assert!((mixture.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                for (component, common) in CENTRES.iter().enumerate() {
                    assert!((distance(mixture.centre(component), common) - 0.75).abs() < 1e-12);
                }
            }
            let [first, second] = [0, 1].map(|client| population.mixtures[client].as_ref().unwrap());
            assert_ne!(first.weights, second.weights);
            let shift =
                |mixture: &PlantedMixture, component: usize| mixture.centre(component)[0] - CENTRES[component][0];
            assert!(shift(first, 0) != shift(second, 0) && shift(first, 0) != shift(first, 1), "directions differ");
        }
        // Dirichlet(5, ..., 5): mean 1/5, variance 0.2·0.8/26.
        let many = make("fedgrem-gaussian", "clients = 2000\nsamples = 1\noutliers = 0").unwrap();
        assert!(many.outliers.is_empty() && many.mixtures.iter().all(Option::is_some));
        let (mean, variance) = moments(many.mixtures.iter().flatten().map(|mixture| mixture.weights[3]));
        assert!((mean - 0.2).abs() < 0.01 && (variance - 0.16 / 26.0).abs() < 0.001, "{mean} {variance}");
    }

    #[test]
    fn gaussian_rows_lie_around_their_components() {
        let population =
            make("fedgrem-gaussian", "samples = 20000\nclients = 2\ncomponents = 3\nheterogeneity = 1").unwrap();
        let (client, mixture) = (&population.clients[0], population.mixtures[0].as_ref().unwrap());
        let classes = client.train.classes().unwrap();
        for component in 0..3 {
            let own: Vec<&[f64]> = (rows(client).into_iter().zip(classes))
                .filter(|(_, class)| **class as usize == component)
                .map(|(row, _)| row)
                .collect();
            let share = own.len() as f64 / 20000.0;
            assert!((share - mixture.weights[component]).abs() < 0.02, "{share}");
            for column in 0..DIMENSION {
                let (mean, variance) = moments(own.iter().map(|row| row[column]));
                assert!((mean - mixture.centre(component)[column]).abs() < 0.06 && (variance - 1.0).abs() < 0.08);
            }
        }
        for (outlier, wanted) in [("paper", (2.0, 3.0)), ("code", (2.5, 4.0))] {
            let text = format!("samples = 5000\nclients = 2\noutlier = \"{outlier}\"");
            let population = make("fedgrem-gaussian", &text).unwrap();
            let (mean, variance) = moments(rows(&population.clients[1]).concat().into_iter());
            assert!((mean - wanted.0).abs() < 0.05 && (variance - wanted.1).abs() < 0.1, "{mean} {variance}");
        }
    }

    #[test]
    fn regression_targets_follow_one_of_the_components() {
        let noise = |row: &[f64], value: f64, parameters: &[f64]| {
            value - row.iter().zip(parameters).map(|(x, parameter)| x * parameter).sum::<f64>()
        };
        for (outlier, far) in [("paper", 3.0), ("code", -3.0)] {
            let text = format!("samples = 4000\nclients = 2\ncomponents = 1\noutlier = \"{outlier}\"");
            let population = make("fedgrem-regression", &text).unwrap();
            for (client, parameters) in population.clients.iter().zip([CENTRES[0], [far; DIMENSION]]) {
                let values = client.train.values().unwrap();
                let errors = rows(client).into_iter().zip(values).map(|(row, value)| noise(row, *value, &parameters));
                let (mean, variance) = moments(errors);
                assert!(mean.abs() < 0.06 && (variance - 1.0).abs() < 0.1, "{mean} {variance}");
                let (mean, variance) = moments(rows(client).concat().into_iter());
                assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03);
            }
        }
        let population = make("fedgrem-regression", "samples = 300\nclients = 2").unwrap();
        let mixture = population.mixtures[0].as_ref().unwrap();
        let values = population.clients[0].train.values().unwrap();
        for (row, value) in rows(&population.clients[0]).into_iter().zip(values) {
            let nearest =
                (0..5).map(|component| noise(row, *value, mixture.centre(component)).abs()).fold(9.0, f64::min);
            assert!(nearest < 4.5, "{nearest}");
        }
    }

    #[test]
    fn heterogeneity_moves_centres_and_changes_no_draw() {
        let [near, far] = ["0", "2"].map(|h| make("fedgrem-gaussian", &format!("heterogeneity = {h}")).unwrap());
        let [first, second] = [&near, &far].map(|population| population.mixtures[3].as_ref().unwrap());
        assert_eq!(first.weights, second.weights);
        let classes = near.clients[3].train.classes().unwrap();
        assert_eq!(classes, far.clients[3].train.classes().unwrap());
        for ((a, b), class) in rows(&near.clients[3]).into_iter().zip(rows(&far.clients[3])).zip(classes) {
            let moved = distance(first.centre(*class as usize), second.centre(*class as usize));
            assert!((moved - 2.0).abs() < 1e-12 && (distance(a, b) - 2.0).abs() < 1e-12);
        }
    }

    #[test]
    fn not_everybody_can_be_an_outlier() {
        assert_eq!(
            make("fedgrem-regression", "clients = 4\noutliers = 4").unwrap_err().to_string(),
            "data.outliers: got 4, want fewer than data.clients, 4"
        );
    }
}
