//! Mixtures fitted by EM: normal or Student's t clouds of a common form, and a uniform component for the rest.

use super::scatter::scatters;
use super::*;
use std::f64::consts::PI;

/// Upper bound on the share of noise. More would describe the clouds themselves.
const MOST_NOISE: f64 = 0.1;
/// Upper bound on the share of the points that posteriors assign to noise.
const MOST_UNEXPLAINED: f64 = 0.2;
/// The initial share of noise: from 0 it could not grow.
const FIRST_NOISE: f64 = 1e-3;
/// Shares below this count as no noise.
const NO_NOISE: f64 = 1e-4;
/// The posterior of noise above which a point is set aside.
const SURELY_NOISE: f64 = 0.9;
/// Members below which a cloud has vanished.
const VANISHED: f64 = 0.5;
/// Posteriors below this are negligible in a sum.
const NOTHING: f64 = 1e-12;

#[derive(Debug, Clone)]
pub(super) struct Cloud {
    /// Number of its points: the sum of posteriors.
    pub members: f64,
    pub share: f64,
    pub centre: Vec<f64>,
    pub scatter: Scatter,
}

#[derive(Debug, Clone)]
pub(super) struct Mixture {
    pub form: Form,
    /// Degrees of freedom of the t distribution; none for the normal one.
    pub degrees: Option<u32>,
    pub clouds: Vec<Cloud>,
    /// The weight of the uniform component.
    pub noise: f64,
    pub log_likelihood: f64,
}

/// Posteriors of the components, and every point's weight in the moments: t distributions discount distant ones.
#[derive(Debug, Default, Clone)]
pub(super) struct Posteriors {
    /// For every point one number per cloud, and the last for noise.
    pub shares: Vec<f64>,
    /// For every point one number per cloud.
    pub pulls: Vec<f64>,
    pub clouds: usize,
}

impl Posteriors {
    pub fn of_labels(labels: &[u32]) -> Self {
        let clouds = labels.iter().max().map_or(1, |last| *last as usize + 1);
        let mut shares = vec![0.0; labels.len() * (clouds + 1)];
        labels.iter().zip(shares.chunks_exact_mut(clouds + 1)).for_each(|(&label, row)| row[label as usize] = 1.0);
        Self { shares, pulls: vec![1.0; labels.len() * clouds], clouds }
    }

    fn of(&self, point: usize, cloud: usize) -> f64 {
        self.shares[point * (self.clouds + 1) + cloud]
    }

    /// The posteriors after a cloud was merged into another, or, where `into` is the cloud itself, into noise.
    pub fn without(&self, gone: usize, into: usize) -> Self {
        let kept: Vec<usize> = (0..self.clouds).filter(|cloud| *cloud != gone).collect();
        let mut left = Self { shares: Vec::new(), pulls: Vec::new(), clouds: kept.len() };
        for (shares, pulls) in self.shares.chunks_exact(self.clouds + 1).zip(self.pulls.chunks_exact(self.clouds)) {
            let gains = |cloud: usize| if cloud == into && into != gone { shares[gone] } else { 0.0 };
            left.shares.extend(kept.iter().map(|&cloud| shares[cloud] + gains(cloud)));
            left.shares.push(shares[self.clouds] + if into == gone { shares[gone] } else { 0.0 });
            // A point has the weight in the merged cloud that it has in the nearer part.
            let pull = |cloud: usize| if cloud == into { pulls[cloud].max(pulls[gone]).min(1.0) } else { pulls[cloud] };
            left.pulls.extend(kept.iter().map(|&cloud| pull(cloud)));
        }
        left
    }

    pub fn moments(&self, sample: &Sample, form: Form) -> Vec<Moments> {
        (0..self.clouds).map(|cloud| self.moments_of(sample, form, cloud)).collect()
    }

    fn moments_of(&self, sample: &Sample, form: Form, cloud: usize) -> Moments {
        let dimension = sample.dimension;
        let belonging = (0..sample.count()).filter(|&point| self.of(point, cloud) > NOTHING);
        let belonging: Vec<(usize, f64)> =
            belonging.map(|point| (point, self.of(point, cloud) * self.pulls[point * self.clouds + cloud])).collect();
        let members: f64 = belonging.iter().map(|&(point, _)| self.of(point, cloud)).sum();
        let pull: f64 = belonging.iter().map(|(_, pull)| pull).sum();
        let mut centre = vec![0.0; dimension];
        belonging.iter().for_each(|&(point, pull)| add_scaled(&mut centre, pull, sample.row(point)));
        centre.iter_mut().for_each(|value| *value /= pull.max(NOTHING));
        let mut moments = Moments::around(centre, members, form);
        let mut difference = vec![0.0; dimension];
        for &(point, pull) in &belonging {
            subtract(&mut difference, sample.row(point), &moments.centre);
            moments.add(&difference, pull / members);
        }
        moments.finish();
        moments
    }
}

fn subtract(out: &mut [f64], left: &[f64], right: &[f64]) {
    out.iter_mut().zip(left.iter().zip(right)).for_each(|(out, (left, right))| *out = left - right);
}

impl Mixture {
    pub fn of(sample: &Sample, posteriors: &Posteriors, form: Form, degrees: Option<u32>) -> Self {
        let mut mixture = Self { form, degrees, clouds: Vec::new(), noise: 0.0, log_likelihood: f64::NEG_INFINITY };
        mixture.maximise(sample, posteriors);
        mixture.noise = mixture.noise.max(FIRST_NOISE);
        mixture
    }

    pub fn cost(&self, sample: &Sample) -> f64 {
        let common = self.form.parameters(sample.dimension).1;
        let tails = usize::from(self.degrees.is_some()) + usize::from(self.noise > NO_NOISE);
        // Weights sum to 1, so that one of them is not free.
        let others = common as f64 + tails as f64 - 1.0;
        self.clouds.len() as f64 * self.cost_of_a_cloud(sample) + others * (sample.count() as f64).ln()
    }

    /// The part of it for one cloud: a centre, a weight and its own scatter.
    pub fn cost_of_a_cloud(&self, sample: &Sample) -> f64 {
        let own = self.form.parameters(sample.dimension).0;
        (sample.dimension + 1 + own) as f64 * (sample.count() as f64).ln()
    }

    /// The log density of a cloud at a difference from its centre, and the squared Mahalanobis distance.
    fn log_density(&self, cloud: &Cloud, constant: f64, difference: &[f64]) -> (f64, f64) {
        let square = cloud.scatter.square(difference);
        let log = match self.degrees {
            None => -0.5 * square,
            Some(degrees) => {
                -0.5 * f64::from(degrees + difference.len() as u32) * (square / f64::from(degrees)).ln_1p()
            }
        };
        (log + constant - 0.5 * cloud.scatter.log_determinant(difference.len()), square)
    }

    /// The normalisation of the log density, which depends on degrees and dimension alone.
    fn constant(&self, dimension: usize) -> f64 {
        let half = dimension as f64 / 2.0;
        match self.degrees {
            None => -half * (2.0 * PI).ln(),
            Some(degrees) => {
                let whole = log_gamma_of_half(degrees + dimension as u32) - log_gamma_of_half(degrees);
                whole - half * (f64::from(degrees) * PI).ln()
            }
        }
    }

    /// The log of weight times density of every cloud at a place.
    pub fn log_densities(&self, place: &[f64]) -> Vec<f64> {
        let constant = self.constant(place.len());
        let mut difference = vec![0.0; place.len()];
        let log = |cloud: &Cloud| {
            subtract(&mut difference, place, &cloud.centre);
            cloud.share.max(f64::MIN_POSITIVE).ln() + self.log_density(cloud, constant, &difference).0
        };
        self.clouds.iter().map(log).collect()
    }

    /// The E-step; returns the log likelihood.
    fn expect(&self, sample: &Sample, out: &mut Posteriors) -> f64 {
        let clouds = self.clouds.len();
        let dimension = sample.dimension;
        out.clouds = clouds;
        out.shares.resize(sample.count() * (clouds + 1), 0.0);
        out.pulls.resize(sample.count() * clouds, 1.0);
        let constant = self.constant(dimension);
        let shares: Vec<f64> = self.clouds.iter().map(|cloud| cloud.share.max(f64::MIN_POSITIVE).ln()).collect();
        let noise = self.noise.max(f64::MIN_POSITIVE).ln() - sample.log_volume;
        let mut difference = vec![0.0; dimension];
        let mut total = 0.0;
        for point in 0..sample.count() {
            let row = &mut out.shares[point * (clouds + 1)..][..clouds + 1];
            let pulls = &mut out.pulls[point * clouds..][..clouds];
            let mut largest = noise;
            for (at, cloud) in self.clouds.iter().enumerate() {
                subtract(&mut difference, sample.row(point), &cloud.centre);
                let (log, square) = self.log_density(cloud, constant, &difference);
                row[at] = shares[at] + log;
                largest = largest.max(row[at]);
                pulls[at] = self
                    .degrees
                    .map_or(1.0, |degrees| f64::from(degrees + dimension as u32) / (f64::from(degrees) + square));
            }
            row[clouds] = noise;
            let mut sum = 0.0;
            for value in row.iter_mut() {
                *value = (*value - largest).exp();
                sum += *value;
            }
            row.iter_mut().for_each(|value| *value /= sum);
            total += largest + sum.ln();
        }
        total
    }

    /// The M-step.
    fn maximise(&mut self, sample: &Sample, posteriors: &Posteriors) {
        let moments = posteriors.moments(sample, self.form);
        let axes: Vec<Option<&[f64]>> = self.clouds.iter().map(|cloud| cloud.scatter.axis()).collect();
        let found = scatters(self.form, &moments, &axes, sample.floor);
        let belonging: f64 = moments.iter().map(|moments| moments.members).sum();
        self.noise = (1.0 - belonging / sample.count() as f64).clamp(0.0, MOST_NOISE);
        let unit = (1.0 - self.noise) / belonging.max(NOTHING);
        let clouds = moments.into_iter().zip(found);
        self.clouds = clouds
            .map(|(Moments { members, centre, .. }, scatter)| Cloud { members, share: members * unit, centre, scatter })
            .collect();
    }

    /// EM, until a step gains less than [`TOLERANCE`] in log likelihood per point. Clouds without members are removed.
    pub fn climb(&mut self, sample: &Sample, steps: usize, posteriors: &mut Posteriors) {
        let mut last = f64::NEG_INFINITY;
        for step in 0..=steps {
            self.log_likelihood = self.expect(sample, posteriors);
            if step == steps || (self.log_likelihood - last).abs() < TOLERANCE * sample.count() as f64 {
                break;
            }
            last = self.log_likelihood;
            self.maximise(sample, posteriors);
            // One at a time: of coinciding clouds one may stay.
            let members = |at: &usize| self.clouds[*at].members;
            let smallest = (0..self.clouds.len()).min_by(|one, other| members(one).total_cmp(&members(other)));
            if let Some(smallest) = smallest.filter(|at| self.clouds.len() > 1 && members(at) < VANISHED) {
                self.clouds.remove(smallest);
                last = f64::NEG_INFINITY;
            }
        }
    }

    /// The cloud every point most probably belongs to, and whether it is noise instead.
    pub fn assign(&self, sample: &Sample) -> Vec<(usize, bool)> {
        let mut posteriors = Posteriors::default();
        self.expect(sample, &mut posteriors);
        let clouds = self.clouds.len();
        let rows = posteriors.shares.chunks_exact(clouds + 1);
        rows.map(|row| {
            let best = (1..clouds).fold(0, |best, cloud| if row[cloud] > row[best] { cloud } else { best });
            (best, row[clouds] > SURELY_NOISE)
        })
        .collect()
    }

    /// Whether there are enough points for the form: with too few, clouds degenerate and the likelihood is unbounded.
    pub fn is_sound(&self, sample: &Sample) -> bool {
        let members = || self.clouds.iter().map(|cloud| cloud.members);
        let belonging: f64 = members().sum();
        // One cloud is always possible, whatever remains.
        let is_rest_noise = belonging >= (1.0 - MOST_UNEXPLAINED) * sample.count() as f64 || self.clouds.len() == 1;
        members().fold(f64::INFINITY, f64::min) >= self.form.least_members(sample.count())
            && belonging >= self.form.least_points(self.clouds.len(), sample.dimension)
            && is_rest_noise
    }
}

/// Gain in log likelihood per point below which EM has converged.
const TOLERANCE: f64 = 1e-4;

fn log_gamma_of_half(twice: u32) -> f64 {
    let (first, begin) = if twice.is_multiple_of(2) { (2, 0.0) } else { (1, 0.5 * PI.ln()) };
    (first..twice).step_by(2).fold(begin, |sum, at| sum + (f64::from(at) / 2.0).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_of_halves_by_hand() {
        // Γ(½) = √π, Γ(1) = 1, Γ(5/2) = ¾ √π, Γ(4) = 6.
        for (twice, value) in [(1, PI.sqrt()), (2, 1.0), (5, 0.75 * PI.sqrt()), (8, 6.0)] {
            assert!((log_gamma_of_half(twice) - value.ln()).abs() < 1e-14, "Γ({twice}/2)");
        }
    }

    #[test]
    fn densities_by_hand() {
        let cloud = Cloud { members: 1.0, share: 1.0, centre: vec![0.0], scatter: Scatter::Sphere(4.0) };
        let mixture = |degrees| Mixture {
            form: Form::Round,
            degrees,
            clouds: vec![cloud.clone()],
            noise: 0.0,
            log_likelihood: 0.0,
        };
        // The normal density at one deviation; Cauchy's at one: 1 / (π · 2 · 2).
        assert!((mixture(None).log_densities(&[2.0])[0] - (-0.5 - 0.5 * (8.0 * PI).ln())).abs() < 1e-14);
        assert!((mixture(Some(1)).log_densities(&[2.0])[0] + (4.0 * PI).ln()).abs() < 1e-14);
    }

    #[test]
    fn steps_of_expectation_maximisation_never_lose_likelihood() {
        let values: Vec<f64> = (0..60).map(|at| f64::from(at % 3) * 4.0 + (f64::from(at) * 1.7).sin()).collect();
        let sample = Sample::new(values, 2);
        let labels: Vec<u32> = (0..30).map(|point| point % 2).collect();
        for form in Form::ALL.iter().filter(|form| **form != Form::Rounds && **form != Form::Full) {
            for degrees in [Some(3), None] {
                let mut posteriors = Posteriors::of_labels(&labels);
                let mut mixture = Mixture::of(&sample, &posteriors, *form, degrees);
                let mut last = f64::NEG_INFINITY;
                for _ in 0..20 {
                    mixture.climb(&sample, 1, &mut posteriors);
                    assert!(mixture.log_likelihood >= last - 1e-9, "{form:?}, {degrees:?}");
                    last = mixture.log_likelihood;
                }
            }
        }
    }
}
