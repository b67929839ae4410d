//! The sums of the E-step of several mixtures at once, each on all training rows but a fold, and how likely that fold is.
//!
//! Mixtures are in the order, not among the models of the ask: they may have other numbers of components than the clients' model, and
//! other scatter.

use super::*;
use crate::mixture::{Covariance, Densities, Family, expect};

/// The sums of E-steps, each on all training rows but a fold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SumMixtures {
    pub(crate) folds: Folds,
    pub(crate) mixtures: Vec<FoldMixture>,
    /// Whether the likelihood of the folds that are left out is wanted.
    pub(crate) score: bool,
}

/// A mixture, and the fold that it does not see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoldMixture {
    pub(crate) shape: Shape,
    pub(crate) params: Vec<f64>,
    pub(crate) without: Option<u32>,
}

impl FoldMixture {
    /// Whether it is a mixture with a scatter for every component, in so many columns.
    fn fits(&self, columns: usize, folds: Folds) -> bool {
        let is_gaussian = matches!(self.shape.family, Family::Gaussian(Covariance::Full | Covariance::Diagonal));
        let has_weights = || self.params[self.shape.weights()].iter().all(|weight| *weight > 0.0);
        is_gaussian
            && self.shape.columns == columns
            && (1..=MOST_COMPONENTS).contains(&self.shape.components)
            && self.params.len() == self.shape.len()
            && self.params.iter().all(|value| value.is_finite())
            && has_weights()
            && self.without.is_none_or(|fold| fold < folds.count)
    }

    /// The rows it sees.
    pub(super) fn sees(&self, fold: usize) -> bool {
        self.without != Some(fold as u32)
    }
}

const MOST_COMPONENTS: usize = 1 << 16;

/// A client's training rows with their folds.
pub(super) struct FoldedMixtureRows<'a> {
    pub(super) all: Cow<'a, Rows>,
    pub(super) fold: Vec<usize>,
}

impl FoldedMixtureRows<'_> {
    /// The rows of these folds; all of them as they are.
    pub(super) fn some(&self, is_wanted: impl Fn(usize) -> bool) -> Cow<'_, Rows> {
        let picked: Vec<u32> =
            (0u32..).zip(&self.fold).filter(|(_, fold)| is_wanted(**fold)).map(|(row, _)| row).collect();
        match picked.len() == self.all.len() {
            true => Cow::Borrowed(&*self.all),
            false => Cow::Owned(self.all.pick(&picked)),
        }
    }

    pub(super) fn densities(&self, mixture: &FoldMixture, context: &mut ClientContext) -> Result<Densities> {
        let scratch = context.worker.scratch().ok_or_else(no_mixture)?;
        Ok(Densities::of(&mixture.shape, &mixture.params, &self.all, scratch))
    }
}

pub(super) fn no_mixture() -> Error {
    Error::federation("the clients' model is not a mixture")
}

/// Checks the mixtures of an order, and cuts the rows into folds.
pub(super) fn folded<'s>(
    context: &ClientContext,
    seat: &'s crate::models::Seat,
    folds: Folds,
    mixtures: &[FoldMixture],
) -> Result<FoldedMixtureRows<'s>> {
    let own = context.shape()?;
    if mixtures.iter().any(|mixture| !mixture.fits(own.columns, folds)) {
        return Err(context.unsound("a mixture"));
    }
    mixtures.iter().try_for_each(|mixture| context.guard.components(&mixture.shape))?;
    let rows = seat.client.train.len();
    let fold = folds.of_rows(rows, context.guard.minimum().unwrap_or(1), &seat.client.id, context.guard.secret());
    let mut sizes = vec![0usize; folds.count as usize];
    fold.iter().for_each(|&fold| sizes[fold] += 1);
    sizes.iter().filter(|size| **size > 0).try_for_each(|&size| context.guard.enough("a fold", size as f64))?;
    Ok(FoldedMixtureRows { all: context.mixture_rows(seat, &own), fold })
}

/// Of every mixture, the rows of the fold that it does not see, and their log-likelihood.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeldOutSums {
    pub(crate) rows: Vec<u32>,
    pub(crate) likelihoods: Vec<f64>,
}

impl Answer for HeldOutSums {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        Self { rows: counts.to_vec(), likelihoods: numbers.to_vec() }
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        counts.extend(self.rows);
        numbers.extend(self.likelihoods);
    }
}

pub(super) fn malformed(folds: Folds, mixtures: usize) -> Option<&'static str> {
    if folds.count < 2 {
        return Some("has fewer than two folds");
    }
    (mixtures == 0).then_some("has no mixture")
}

impl Telling for SumMixtures {
    const TELLS: Tells = Tells::numbers("how likely its held-out rows are under each mixture")
        .with_vector("sums of its rows by component of each mixture")
        .with_counts("its held-out rows for each mixture");
}

impl Kind for SumMixtures {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Mixture)
    }

    fn sends(&self, _: usize) -> Sends {
        let length = self.mixtures.iter().map(|mixture| Statistics::packed_len(&mixture.shape, Detail::Full)).sum();
        let scores = if self.score { self.mixtures.len() } else { 0 };
        Sends { content: Content::Statistics, length, models: 1, ..Sends::numbers(scores) }.with_counts(scores)
    }

    fn cost(&self, load: &Load) -> Cost {
        let costs = self.mixtures.iter().map(|mixture| load.mixes(&mixture.shape, 1.0));
        costs.fold(Cost::default(), |all, one| Cost {
            steps: all.steps + one.steps,
            work: all.work + one.work,
            numbers: all.numbers + one.numbers,
        })
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let seat = context.seat();
        let rows = folded(context, &seat, self.folds, &self.mixtures)?;
        let least = context.guard.minimum();
        let scratch = context.worker.scratch().ok_or_else(no_mixture)?;
        let (mut statistics, mut vector, mut held_out) = (Statistics::default(), Vec::new(), HeldOutSums::default());
        // Mixtures without the same fold most often come together.
        let mut seen: Option<(Option<u32>, Cow<Rows>)> = None;
        for mixture in &self.mixtures {
            let FoldMixture { shape, params, without } = mixture;
            if seen.as_ref().is_none_or(|(of, _)| of != without) {
                seen = Some((*without, rows.some(|fold| mixture.sees(fold))));
            }
            if let Some((_, seen)) = &seen {
                expect(shape, params, seen, Detail::Full, None, scratch, &mut statistics);
            }
            if let Some(least) = least {
                statistics.withhold(shape, least as f64);
            }
            statistics.pack(&mut vector);
            if self.score {
                let unseen = rows.some(|fold| !mixture.sees(fold));
                let is_any = mixture.without.is_some() && unseen.len() > 0;
                if is_any {
                    expect(shape, params, &unseen, Detail::Gradient, None, scratch, &mut statistics);
                }
                held_out.rows.push(if is_any { unseen.len() as u32 } else { 0 });
                held_out.likelihoods.push(if is_any { statistics.log_likelihood } else { 0.0 });
            }
        }
        Ok(context.reply(held_out, Some(vector)))
    }

    fn fault(&self) -> Option<&'static str> {
        malformed(self.folds, self.mixtures.len())
    }

    fn loss(&self, _: &Reply) -> Option<f64> {
        None
    }
}
