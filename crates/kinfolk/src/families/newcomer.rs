//! A client that was not there when families were learned: its family, a personal model by the same shrinkage, and whether it fits any.

use super::evidence::{Panel, Products, Supports};
use super::ladder::{Alone, AloneModels, Rung};
use super::learned::{Learned, LearnedClient, most_probable, upper_triangle};
use super::mixed::Integrated;
use super::population::Posterior;
use crate::error::{Error, Result};
use crate::num::tails::chi_square_tail;
use crate::num::{Spectrum, add_scaled, dot};

/// What is said of a client that was not there.
#[derive(Debug, Clone, PartialEq)]
pub struct Newcomer {
    /// What is learned of it, and what serves it: the stack that serves everybody.
    pub client: LearnedClient,
    /// Its distance to each family's centre in standard errors: the root of the squared distance over its degrees of freedom.
    pub distances: Vec<f64>,
    /// The probability, in each family, that a member is as far from the centre as this client is.
    pub p_values: Vec<f64>,
}

impl Learned {
    /// A client by its rows. Without rows, it is in every family by its share.
    pub fn newcomer(&self, products: &Products) -> Result<Newcomer> {
        self.by_rows(products, None)
    }

    /// A client that took part and whose models are not here, by its rows: what was decided of it holds.
    pub(crate) fn at_home(&self, products: &Products, known: &LearnedClient) -> Result<Newcomer> {
        self.by_rows(products, Some(known))
    }

    fn by_rows(&self, products: &Products, known: Option<&LearnedClient>) -> Result<Newcomer> {
        let given = self.basis.given;
        let want = (given + 1) * (given + 2) / 2;
        if products.values.len() != want {
            return Err(Error::data(format!(
                "newcomer: got {} products, want {want} for {given} columns",
                products.values.len()
            )));
        }
        if products.values.iter().any(|value| !value.is_finite()) {
            return Err(
                Error::data("newcomer: got products that are not finite").hint("a value is too large to be squared")
            );
        }
        let (p, q) = (self.basis.columns(), self.basis.random);
        let mut full = vec![0.0; (p + 1) * (p + 1)];
        self.basis.change(products, &mut full);
        // What common columns explain is taken out.
        let mut common = self.population.centres[0].clone();
        common[..q].fill(0.0);
        let line = |i: usize| &full[i * (p + 1)..i * (p + 1) + p];
        let target = &full[p * (p + 1)..];
        let bent: f64 = (q..p).map(|i| common[i] * dot(line(i), &common)).sum();
        let panel = Panel {
            noise: self.response.noise(),
            columns: q,
            random: q,
            curves: vec![None; q],
            rows: vec![products.rows as f64],
            supports: Supports::first(q, 1),
            slabs: (0..q).flat_map(|i| line(i)[..q].to_vec()).collect(),
            moments: (0..q).map(|i| target[i] - dot(line(i), &common)).collect(),
            energies: vec![(target[p] - 2.0 * dot(&target[..p], &common) + bent).max(0.0)],
            curvature: Vec::new(),
        };
        let mut integrated = Integrated::new(q);
        // A family that is sure was perhaps given, whatever the rows say.
        let given = known.filter(|known| known.responsibilities[known.family] == 1.0).map(|known| known.family);
        let posterior = self.population.posterior(&panel, 0, given, &mut integrated);
        let (distances, p_values): (Vec<f64>, Vec<f64>) =
            (0..self.families.len()).map(|family| self.distance(&panel, &integrated, family)).unzip();
        let models = if known.is_some() { self.alone } else { self.alone_with(products.rows) };
        let own = models.and_then(|models| {
            let whole = Panel { moments: target[..q].to_vec(), ..panel.clone() };
            let mut own = Alone::default().model(&whole, 0, self.basis.intercepts(), models.strength)?.to_vec();
            own.resize(p, 0.0);
            Some(own)
        });
        let used = dot(&integrated.covariance(&self.population.root), panel.slab(0));
        let error = panel_error(&panel, &posterior.mean[..q]);
        let freedom = (panel.rows[0] - used).max(0.0);
        let client = LearnedClient {
            rows: products.rows,
            family: most_probable(&posterior.responsibilities),
            stability: known.and_then(|known| known.stability),
            personal: self.basis.back(&posterior.mean),
            served: self.served(&posterior, own.as_deref(), known.and_then(LearnedClient::own_choice)),
            alone: own.map_or_else(|| self.global.clone(), |own| self.basis.back(&own)),
            service: known.and_then(|known| known.service.clone()),
            noise: panel.noise.unwrap_or((error + self.noise_freedom * self.noise) / (freedom + self.noise_freedom)),
            covariance: upper_triangle(&posterior.covariance, q),
            responsibilities: posterior.responsibilities,
        };
        Ok(Newcomer { client, distances, p_values })
    }

    /// How its own model is made of a client that comes with this many rows; `None` where they are too few.
    fn alone_with(&self, rows: usize) -> Option<AloneModels> {
        self.alone.filter(|models| rows as f64 >= models.least_rows)
    }

    /// The weights of the four models in what serves a client unless it has a choice of its own: everybody's, but with too few rows for a
    /// model of its own, the personal one takes its part.
    pub(crate) fn stack_of(&self, client: &LearnedClient) -> [f64; 4] {
        match client.service.is_none() && self.alone_with(client.rows).is_none() {
            false => self.stack,
            true => {
                let [global, family, personal, alone] = self.stack;
                [global, family, personal + alone, 0.0]
            }
        }
    }

    /// The one model that is chosen for a client, or the stack that serves everybody. Its own model may be missing.
    fn served(&self, posterior: &Posterior, own: Option<&[f64]>, choice: Option<Rung>) -> Vec<f64> {
        let weight = |rung: Rung| choice.map_or(self.stack[rung as usize], |one| f64::from(u8::from(one == rung)));
        let mut rest = vec![0.0; self.basis.columns()];
        add_scaled(&mut rest, weight(Rung::Family), &posterior.centre);
        add_scaled(&mut rest, weight(Rung::Personal), &posterior.mean);
        add_scaled(&mut rest, weight(Rung::Alone), own.unwrap_or(&posterior.mean));
        let mut served = self.basis.back(&rest);
        add_scaled(&mut served, weight(Rung::Global), &self.global);
        served
    }

    /// Distance to a centre, and the probability of one as large: `rᵀ(S + SVS)⁺r/σ²` with `S = ZᵀH⁻¹Z`, `r = ZᵀH⁻¹(y − Zμ)` and `V` the
    /// centre's covariance over `σ²`. Where a client's rows determine all coefficients, this is `(b − μ)ᵀ(Σ + T + V)⁻¹(b − μ)`.
    fn distance(&self, panel: &Panel, integrated: &Integrated, family: usize) -> (f64, f64) {
        let (q, p) = (panel.random, self.basis.columns());
        let (mut curvature, mut residual) = (Vec::new(), vec![0.0; q]);
        integrated.curvature(panel.slab(0), &mut curvature);
        integrated.random_moment(panel.moment(0), &mut residual);
        for (value, row) in residual.iter_mut().zip(curvature.chunks_exact(q.max(1))) {
            *value -= dot(row, &self.population.centres[family][..q]);
        }
        let uncertain = &self.population.covariances[family];
        let mut variance = curvature.clone();
        for i in 0..q {
            let mut half = vec![0.0; q];
            for l in 0..q {
                add_scaled(&mut half, curvature[i * q + l] / self.population.noise, &uncertain[l * p..l * p + q]);
            }
            for j in 0..q {
                variance[i * q + j] += dot(&half, &curvature[j * q..(j + 1) * q]);
            }
        }
        let Some(spectrum) = Spectrum::above(&variance, q, 1e-9).filter(|spectrum| spectrum.rank() > 0) else {
            return (0.0, 1.0);
        };
        let square = dot(&residual, &spectrum.solve(&residual)) / self.population.noise;
        let freedom = spectrum.rank() as f64;
        ((square / freedom).sqrt(), chi_square_tail(freedom, square))
    }

    /// What a client of which nothing is known is predicted with: the families by their shares.
    pub fn unknown(&self) -> Vec<f64> {
        self.member(&self.shares())
    }

    /// The families' centres by these probabilities.
    pub(super) fn member(&self, shares: &[f64]) -> Vec<f64> {
        let mut mean = vec![0.0; self.basis.given];
        self.families.iter().zip(shares).for_each(|(family, share)| add_scaled(&mut mean, *share, &family.centre));
        mean
    }

    /// The families' shares of the clients.
    pub(crate) fn shares(&self) -> Vec<f64> {
        self.families.iter().map(|family| family.share).collect()
    }
}

/// The sum of squared errors of a model of random columns.
fn panel_error(panel: &Panel, model: &[f64]) -> f64 {
    let bent: f64 =
        panel.slab(0).chunks_exact(model.len().max(1)).zip(model).map(|(row, value)| value * dot(row, model)).sum();
    (panel.energies[0] - 2.0 * dot(panel.moment(0), model) + bent).max(0.0)
}
