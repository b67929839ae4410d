//! How likely a client's held-out rows are under what may serve it.

use super::sum_mixtures::{FoldMixture, folded, malformed};
use super::*;
use crate::mixture::{Densities, own_mixture};

/// Log densities of the folds that mixtures do not see; of all rows where a mixture sees them all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreMixtures {
    pub(crate) folds: Folds,
    pub(crate) mixtures: Vec<FoldMixture>,
    /// Of every mixture, what the client's weights lean on.
    pub(crate) leanings: Vec<Leaning>,
    /// Shares of everybody's, the family's and personal weights in what serves the client; one way after the other.
    pub(crate) stacks: Vec<[f64; 3]>,
    /// The most components of a mixture of the client's own; 0 for none.
    pub(crate) alone: usize,
    /// Where the log densities under the first stack are counted.
    pub(crate) bins: Option<Bins>,
    pub(crate) seed: u64,
}

/// What a client's weights lean on: the weights of its family, like so many rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leaning {
    pub(crate) family: Vec<f64>,
    pub(crate) strength: f64,
}

/// Bins of equal width for log densities.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bins {
    pub(crate) low: f64,
    pub(crate) width: f64,
}

impl Bins {
    pub(crate) const COUNT: usize = 800;

    fn place(self, value: f64) -> usize {
        (((value - self.low) / self.width).max(0.0) as usize).min(Self::COUNT - 1)
    }
}

/// Sums over held-out rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MixtureScores {
    pub(crate) rows: u32,
    /// Held-out rows that a mixture of the client's own was fitted for.
    pub(crate) alone_rows: u32,
    /// Log densities under every stack, and the squares of those under the first.
    pub(crate) stacks: Vec<f64>,
    pub(crate) squares: f64,
    /// Log densities under the client's own mixture, and there the differences of the first stack from them and their squares.
    pub(crate) alone: f64,
    pub(crate) gain: f64,
    pub(crate) gain_squares: f64,
    /// The client's weights that lean on its family, from the last mixture.
    pub(crate) personal: Vec<f64>,
    pub(crate) bins: Vec<u32>,
}

impl MixtureScores {
    /// Counts rows in a later bin until none has fewer than these.
    fn coarsen(&mut self, least: u32) {
        let (mut waiting, mut last) = (0, None);
        for place in 0..self.bins.len() {
            waiting += std::mem::take(&mut self.bins[place]);
            if waiting >= least && waiting > 0 {
                self.bins[place] = std::mem::take(&mut waiting);
                last = Some(place);
            }
        }
        if let Some(last) = last {
            self.bins[last] += waiting;
        }
    }
}

impl Answer for MixtureScores {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        let stacks = counts.get(2).copied().unwrap_or(0) as usize;
        let [squares, alone, gain, gain_squares] =
            [0, 1, 2, 3].map(|place| numbers.get(place).copied().unwrap_or(f64::NAN));
        let rest = numbers.get(4..).unwrap_or_default();
        let (stacks, personal) = rest.split_at(stacks.min(rest.len()));
        Self {
            rows: counts.first().copied().unwrap_or(0),
            alone_rows: counts.get(1).copied().unwrap_or(0),
            stacks: stacks.to_vec(),
            squares,
            alone,
            gain,
            gain_squares,
            personal: personal.to_vec(),
            bins: counts.get(3..).unwrap_or_default().to_vec(),
        }
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        counts.extend([self.rows, self.alone_rows, self.stacks.len() as u32]);
        counts.extend(self.bins);
        numbers.extend([self.squares, self.alone, self.gain, self.gain_squares]);
        numbers.extend(self.stacks);
        numbers.extend(self.personal);
    }
}

impl Telling for ScoreMixtures {
    const TELLS: Tells = Tells::numbers(
        "how likely its held-out rows are under the mixtures that may serve it, and its weights of their components",
    )
    .with_counts("its held-out rows, counted by how likely they are");
}

impl Kind for ScoreMixtures {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Mixture)
    }

    fn sends(&self, _: usize) -> Sends {
        let components = self.mixtures.last().map_or(0, |mixture| mixture.shape.components);
        let bins = if self.bins.is_some() { Bins::COUNT } else { 0 };
        Sends::numbers(4 + self.stacks.len() + components).with_counts(3 + bins)
    }

    fn cost(&self, load: &Load) -> Cost {
        // Fits of the client's own, of up to so many components from a few starts.
        const OWN_STEPS: f64 = 200.0;
        let steps = if self.alone > 0 { OWN_STEPS * self.alone as f64 } else { 2.0 };
        let costs = self.mixtures.iter().map(|mixture| load.mixes(&mixture.shape, steps));
        costs.fold(Cost::default(), |all, one| Cost {
            steps: all.steps + one.steps,
            work: all.work + one.work,
            numbers: all.numbers + one.numbers,
        })
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let seat = context.seat();
        let rows = folded(context, &seat, self.folds, &self.mixtures)?;
        let fits = |(leaning, mixture): (&Leaning, &FoldMixture)| leaning.family.len() == mixture.shape.components;
        if self.leanings.len() != self.mixtures.len() || !self.leanings.iter().zip(&self.mixtures).all(fits) {
            return Err(context.unsound("a family's weights"));
        }
        let mut scores = MixtureScores { stacks: vec![0.0; self.stacks.len()], ..MixtureScores::default() };
        scores.bins.resize(if self.bins.is_some() { Bins::COUNT } else { 0 }, 0);
        let key = Key::new(self.seed).word("alone").word(&seat.client.id);
        for (mixture, leaning) in self.mixtures.iter().zip(&self.leanings) {
            let densities = rows.densities(mixture, context)?;
            let seen = || (0..densities.len()).filter(|&row| mixture.sees(rows.fold[row]));
            let prior: Vec<f64> = leaning.family.iter().map(|weight| weight * leaning.strength).collect();
            let personal = densities.weigh(seen(), &prior);
            let everybody = &mixture.params[mixture.shape.weights()];
            let blend = |stack: &[f64; 3]| -> Vec<f64> {
                let parts = everybody.iter().zip(&leaning.family).zip(&personal);
                parts.map(|((one, two), three)| stack[0] * one + stack[1] * two + stack[2] * three).collect()
            };
            let blends: Vec<Vec<f64>> = self.stacks.iter().map(blend).collect();
            let is_scored = |fold: usize| mixture.without.is_none() || !mixture.sees(fold);
            let own = (self.alone > 0)
                .then(|| own_mixture(&mixture.shape, &rows.some(|fold| mixture.sees(fold)), self.alone, &key))
                .flatten();
            let own = match (own, context.worker.scratch()) {
                (Some((shape, params)), Some(scratch)) => {
                    let weights = params[shape.weights()].to_vec();
                    Some((Densities::of(&shape, &params, &rows.all, scratch), weights))
                }
                _ => None,
            };
            for row in (0..densities.len()).filter(|&row| is_scored(rows.fold[row])) {
                scores.rows += 1;
                let mut first = 0.0;
                for (place, weights) in blends.iter().enumerate() {
                    let density = densities.log_density(row, weights);
                    scores.stacks[place] += density;
                    if place == 0 {
                        first = density;
                        scores.squares += density * density;
                        if let Some(bins) = self.bins {
                            scores.bins[bins.place(density)] += 1;
                        }
                    }
                }
                if let Some((own, weights)) = &own {
                    let density = own.log_density(row, weights);
                    scores.alone_rows += 1;
                    scores.alone += density;
                    scores.gain += first - density;
                    scores.gain_squares += (first - density).powi(2);
                }
            }
            scores.personal = personal;
        }
        // Single rows must not show.
        context.guard.minimum().into_iter().for_each(|least| scores.coarsen(least as u32));
        Ok(context.reply(scores, None))
    }

    fn fault(&self) -> Option<&'static str> {
        let odd = |leaning: &Leaning| {
            !leaning.strength.is_finite()
                || leaning.strength < 0.0
                || leaning.family.iter().any(|weight| !(0.0..=1.0).contains(weight))
        };
        if self.leanings.iter().any(odd) || self.stacks.iter().flatten().any(|share| !(0.0..=1.0).contains(share)) {
            return Some("has impossible weights");
        }
        if self.bins.is_some_and(|bins| !bins.low.is_finite() || !bins.width.is_finite() || bins.width <= 0.0) {
            return Some("has impossible bins");
        }
        malformed(self.folds, self.mixtures.len())
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        reply.numbers.iter().any(|number| !number.is_finite()).then(|| "a likelihood that is not a number".to_string())
    }

    fn loss(&self, _: &Reply) -> Option<f64> {
        None
    }

    fn scores(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_travel_as_they_are_and_single_rows_do_not_show() {
        let mut sent = MixtureScores {
            rows: 7,
            alone_rows: 5,
            stacks: vec![-1.0, -2.0],
            squares: 3.0,
            alone: -4.0,
            gain: 0.5,
            gain_squares: 0.7,
            personal: vec![0.25, 0.75],
            bins: vec![1, 0, 3, 1, 2, 0],
        };
        let (mut counts, mut numbers) = (Vec::new(), Vec::new());
        sent.clone().write(&mut counts, &mut numbers);
        assert_eq!(MixtureScores::read(&counts, &numbers), sent);
        sent.coarsen(3);
        assert_eq!(sent.bins, [0, 0, 4, 0, 3, 0]);
    }
}
