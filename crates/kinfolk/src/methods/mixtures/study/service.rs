//! What serves each client, by the likelihood of its held-out rows.

use super::*;
use crate::federation::work::{Bins, FitMixture, Leaning, MixtureScores, Parts, ScoreMixtures};
use crate::mixture::clients::refit_families;
use crate::mixture::most_components;

/// Rows below which a client is served like everybody.
const LEAST_ROWS: usize = 30;
/// Probability of a gain above which a mixture of its own serves a client.
const SURE: f64 = 0.95;
/// The share of held-out rows that are said to be outliers.
const RARE: f64 = 0.01;
/// Steps of the shares of the three weights.
const PARTS: usize = 4;
/// Numbers that are sent at once.
const MOST_NUMBERS: usize = 1 << 23;

/// What is known of all clients.
pub(super) struct Case<'a> {
    /// The mixture of all rows, and those without each fold.
    pub(super) mixtures: Vec<FoldMixture>,
    /// Of every client, its weights in each of these.
    pub(super) weighed: Vec<&'a Vec<Weighed>>,
    pub(super) clients: Vec<u32>,
    pub(super) is_outlier: Vec<bool>,
    pub(super) outlier_p: Vec<f64>,
    pub(super) shares_place: Vec<bool>,
    /// Counts of components in each mixture.
    pub(super) counts: Vec<Counts>,
    pub(super) families: &'a Families,
    pub(super) known: Option<Vec<usize>>,
}

/// What serves the clients.
pub(super) struct Served {
    pub(super) clients: Vec<ComponentClient>,
    pub(super) stack: [f64; 3],
    pub(super) held_out: HeldOut,
    pub(super) rare: f64,
}

impl Case<'_> {
    /// The families' probabilities for every client, and what its weights lean on, in one of the mixtures.
    fn leanings(&self, mixture: usize) -> Vec<(Vec<f64>, Leaning)> {
        let counts = &self.counts[mixture];
        let families = match mixture {
            0 => self.families.clone(),
            _ => {
                let typical = (0..self.clients.len()).filter(|&place| !self.is_outlier[place]);
                refit_families(self.families, &counts.of(typical))
            }
        };
        let client = |(place, own): (usize, &[f64])| {
            let responsibilities = match &self.known {
                Some(known) => (0..families.len()).map(|family| f64::from(u8::from(family == known[place]))).collect(),
                None => families.responsibilities(own),
            };
            let family = families.leaning(&responsibilities).iter().map(|weight| weight.clamp(0.0, 1.0)).collect();
            (responsibilities, Leaning { family, strength: families.strength })
        };
        counts.each().enumerate().map(client).collect()
    }
}

/// All shares in steps of a quarter, from what is most common to what is most own.
fn all_stacks() -> Vec<[f64; 3]> {
    let mut stacks = Vec::new();
    for personal in 0..=PARTS {
        for family in 0..=PARTS - personal {
            let everybody = PARTS - personal - family;
            stacks.push([everybody, family, personal].map(|part| part as f64 / PARTS as f64));
        }
    }
    stacks
}

impl Study<'_, '_> {
    pub(super) fn serve(&mut self, case: Case) -> Result<Served> {
        let leanings: Vec<Vec<(Vec<f64>, Leaning)>> =
            (0..case.mixtures.len()).map(|mixture| case.leanings(mixture)).collect();
        let stacks = all_stacks();
        let most = case.mixtures[0].shape.components.max(2);
        let folds: Vec<usize> = (1..case.mixtures.len()).collect();
        let scores = self.score(&case, &leanings, &folds, &stacks, 0, None)?;
        // Outliers have no say in what serves everybody.
        let typical = |place: &usize| !case.is_outlier[*place];
        let total = |scores: &[Option<MixtureScores>], stack: usize| {
            let some = (0..scores.len()).filter(typical).filter_map(|place| scores[place].as_ref());
            let (sum, rows) =
                some.fold((0.0, 0.0), |(sum, rows), own| (sum + own.stacks[stack], rows + f64::from(own.rows)));
            sum / f64::max(rows, 1.0)
        };
        let totals: Vec<f64> = (0..stacks.len()).map(|stack| total(&scores, stack)).collect();
        let best = (0..stacks.len()).fold(0, |best, at| if totals[at] > totals[best] + 1e-9 { at } else { best });
        let place_of = |wanted: [f64; 3]| stacks.iter().position(|stack| *stack == wanted).unwrap_or(0);
        let rungs = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]].map(|rung| totals[place_of(rung)]);
        let stack = stacks[best];
        // Once more with what was chosen, and beside it mixtures of the clients' own.
        let (mut rows, mut squares) = (0.0, 0.0);
        let once = self.score(&case, &leanings, &folds, &[stack], most, None)?;
        for own in (0..once.len()).filter(typical).filter_map(|place| once[place].as_ref()) {
            rows += f64::from(own.rows);
            squares += own.squares;
        }
        let deviation = (squares / f64::max(rows, 1.0) - totals[best].powi(2)).max(1e-6).sqrt();
        let bins = Bins { low: totals[best] - 30.0 * deviation, width: deviation / 20.0 };
        let binned = self.score(&case, &leanings, &folds, &[stack], 0, Some(bins))?;
        let mut counted = vec![0u64; Bins::COUNT];
        for own in (0..binned.len()).filter(typical).filter_map(|place| binned[place].as_ref()) {
            counted.iter_mut().zip(&own.bins).for_each(|(all, own)| *all += u64::from(*own));
        }
        let last = self.score(&case, &leanings, &[0], &[stack], 0, None)?;
        let joining = joining(&once);
        let wants_own: Vec<usize> = (0..case.clients.len())
            .filter(|&place| {
                let sure = joining[place].is_some_and(|gain| 1.0 - gain.probability() >= SURE);
                let better = joining[place].is_some_and(|gain| gain.mean < 0.0);
                case.weighed[place][0].rows as usize >= LEAST_ROWS && (sure || case.is_outlier[place] && better)
            })
            .collect();
        let mut alone = self.own_mixtures(&case, &wants_own, most)?;
        let clients = (0..case.clients.len()).map(|place| {
            let (responsibilities, leaning) = &leanings[0][place];
            let family = (0..responsibilities.len())
                .fold(0, |best, at| if responsibilities[at] > responsibilities[best] { at } else { best });
            let own = &case.weighed[place][0];
            let personal =
                last[place].as_ref().map_or_else(|| leaning.family.clone(), |scores| scores.personal.clone());
            let everybody = &case.mixtures[0].params[case.mixtures[0].shape.weights()];
            let blend = |r: usize| stack[0] * everybody[r] + stack[1] * leaning.family[r] + stack[2] * personal[r];
            // What serves everybody is no claim about an outlier: its weights are its own.
            let served =
                if case.is_outlier[place] { personal.clone() } else { (0..personal.len()).map(blend).collect() };
            ComponentClient {
                client: case.clients[place],
                rows: own.rows as usize,
                family,
                responsibilities: responsibilities.clone(),
                own: own.weights.clone(),
                personal,
                served,
                alone: alone[place].take(),
                outlier_p: case.outlier_p[place],
                is_outlier: case.is_outlier[place],
                shares_place: case.is_outlier[place] && case.shares_place[place],
                held_out: once[place]
                    .as_ref()
                    .filter(|own| own.rows > 0)
                    .map(|own| own.stacks[0] / f64::from(own.rows)),
                joining: joining[place],
            }
        });
        let clients: Vec<ComponentClient> = clients.collect();
        let (mut own_sum, mut own_rows, mut served_sum) = (0.0, 0.0, 0.0);
        for (place, client) in clients.iter().enumerate().filter(|(_, client)| !client.is_outlier) {
            let Some(own) = &once[place] else { continue };
            own_sum += own.alone;
            own_rows += f64::from(own.alone_rows);
            served_sum += if client.alone.is_some() { own.alone } else { own.stacks[0] };
        }
        let alone = (own_rows > 0.0).then(|| own_sum / own_rows);
        let [everybody, family, personal] = rungs;
        let held_out = HeldOut { everybody, family, personal, alone, served: served_sum / f64::max(rows, 1.0) };
        Ok(Served { clients, stack, held_out, rare: quantile(&counted, bins, RARE) })
    }

    /// Sums over the held-out rows of every client; of all rows for the mixture that has no fold.
    fn score(
        &mut self,
        case: &Case,
        leanings: &[Vec<(Vec<f64>, Leaning)>],
        mixtures: &[usize],
        stacks: &[[f64; 3]],
        alone: usize,
        bins: Option<Bins>,
    ) -> Result<Vec<Option<MixtureScores>>> {
        // Every client has its own leanings, and with them the mixtures: so many are asked at once as fit.
        let each: usize = mixtures.iter().map(|&mixture| case.mixtures[mixture].params.len()).sum();
        let at_once = (MOST_NUMBERS / each.max(1)).max(1);
        let mut found: Vec<Option<MixtureScores>> = vec![None; case.clients.len()];
        let places: Vec<usize> = (0..case.clients.len()).collect();
        for places in places.chunks(at_once) {
            let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
            let mut orders = Vec::new();
            for &place in places {
                let work = ScoreMixtures {
                    folds: self.folds,
                    mixtures: mixtures.iter().map(|&mixture| case.mixtures[mixture].clone()).collect(),
                    leanings: mixtures.iter().map(|&mixture| leanings[mixture][place].1.clone()).collect(),
                    stacks: stacks.to_vec(),
                    alone,
                    bins,
                    seed: self.wishes.seed,
                };
                orders.push((place, ask.order(Recipients::list(vec![case.clients[place]]), work)));
            }
            let answers = self.ask(&ask)?;
            for (place, order) in orders {
                found[place] = answers.of(order).each().next().map(|(_, scores)| scores);
            }
        }
        Ok(found)
    }

    /// Mixtures of these clients' own rows, each with the number of components that has the best BIC.
    fn own_mixtures(&mut self, case: &Case, wanted: &[usize], most: usize) -> Result<Vec<Option<OwnMixture>>> {
        let mut best: Vec<Option<(f64, OwnMixture)>> = vec![None; case.clients.len()];
        if wanted.is_empty() {
            return Ok(vec![None; case.clients.len()]);
        }
        let fitting = Fitting { begin: Begin::KMeans, starts: 3, iterations: 100, tolerance: FIT_TOLERANCE };
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let mut orders = Vec::new();
        for &place in wanted {
            let (rows, common) = (case.weighed[place][0].rows as usize, case.mixtures[0].shape);
            for components in 1..=most.min(most_components(&common, rows)) {
                let shape = Shape { components, ..common };
                let work = FitMixture { shape, fitting, seed: self.wishes.seed, keep: false, send: Parts::Whole };
                orders.push((place, shape, ask.order(Recipients::list(vec![case.clients[place]]), work)));
            }
        }
        let answers = self.ask(&ask)?;
        for (place, shape, order) in orders {
            let answered = answers.of(order);
            let Some((_, fitted)) = answered.each().next() else { continue };
            let rows = f64::from(case.weighed[place][0].rows);
            let criterion = shape.free_parameters() as f64 * rows.ln() + 2.0 * rows * fitted.loss;
            if answered.vectors.len() == shape.len() && best[place].as_ref().is_none_or(|(least, _)| criterion < *least)
            {
                best[place] = Some((criterion, OwnMixture { shape, params: answered.vectors.clone() }));
            }
        }
        Ok(best.into_iter().map(|best| best.map(|(_, own)| own)).collect())
    }
}

/// Every client's gain by row over a mixture of its own, leaning on everybody's gains by how far these differ.
fn joining(scores: &[Option<MixtureScores>]) -> Vec<Option<Gain>> {
    let raw = |scores: &Option<MixtureScores>| {
        let own = scores.as_ref().filter(|own| own.alone_rows > 1)?;
        let rows = f64::from(own.alone_rows);
        let mean = own.gain / rows;
        let variance = ((own.gain_squares / rows - mean * mean) / (rows - 1.0)).max(1e-12);
        Some((mean, variance))
    };
    let raw: Vec<Option<(f64, f64)>> = scores.iter().map(raw).collect();
    let known: Vec<(f64, f64)> = raw.iter().flatten().copied().collect();
    let count = known.len() as f64;
    let middle = median(known.iter().map(|(mean, _)| *mean)).unwrap_or(0.0);
    let spread = known.iter().map(|(mean, variance)| (mean - middle).powi(2) - variance).sum::<f64>() / count.max(1.0);
    let spread = spread.max(1e-12);
    let shrunken = |(mean, variance): (f64, f64)| {
        let share = spread / (spread + variance);
        Gain { mean: middle + share * (mean - middle), error: (share * variance).sqrt() }
    };
    raw.into_iter().map(|raw| raw.map(shrunken)).collect()
}

/// The value below which this share of what was counted is.
fn quantile(counted: &[u64], bins: Bins, share: f64) -> f64 {
    let wanted = share * counted.iter().sum::<u64>() as f64;
    let mut below = 0.0;
    for (place, &count) in counted.iter().enumerate() {
        let count = count as f64;
        if below + count >= wanted && count > 0.0 {
            return bins.low + bins.width * (place as f64 + (wanted - below) / count);
        }
        below += count;
    }
    bins.low
}
