//! Who gets what, from losses on held-out rows.
//!
//! The default is the simplest choice that is within one standard error of the best on the mean over clients. A client deviates from
//! it only if it gains by that with a probability of at least 95 %, once the gains of all clients are shrunk towards each other, and
//! never with few rows.

use super::FOLDS;
use crate::families::{Gain, Gains};
use crate::models::first_smallest;
use crate::training::Amount;
use serde::{Deserialize, Serialize};

/// Rows below which a client has the default.
pub(super) const LEAST_ROWS: usize = 30;
/// Probability of a gain above which a client deviates.
const SURE: f64 = 0.95;
/// Parts of the held-out rows that are judged apart.
pub(super) const PARTS: u32 = 4;

/// What may serve a client, the simplest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rung {
    Global,
    Family,
    /// The family's model, trained on with the client's rows.
    Personal(Amount),
    /// The common start, trained with the client's rows.
    Alone(Amount),
}

/// The losses of one client.
pub(super) struct Tried {
    pub(super) client: u32,
    pub(super) rows: usize,
    /// For every rung, one loss a part of its held-out rows.
    pub(super) losses: Vec<Vec<f64>>,
}

/// Who is served by what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Service {
    pub(super) default: Rung,
    /// The mean loss with the default.
    pub(super) loss: f64,
    /// The best of the others, and what clients gain by the default in place of it, on the mean.
    pub(super) next: Option<(Rung, Gain)>,
    deviating: Vec<(u32, Rung)>,
    /// Number of clients that gain by joining with that probability, and of those that lose by it.
    pub(super) helped: usize,
    pub(super) hurt: usize,
    pub(super) tried: usize,
}

impl Service {
    /// The default for everybody.
    pub(super) fn plain(default: Rung) -> Self {
        Self { default, loss: f64::NAN, next: None, deviating: Vec::new(), helped: 0, hurt: 0, tried: 0 }
    }

    pub(super) fn of(&self, client: u32) -> Rung {
        self.deviating.iter().find(|(other, _)| *other == client).map_or(self.default, |(_, rung)| *rung)
    }

    pub(super) fn deviating(&self, is: impl Fn(Rung) -> bool) -> usize {
        self.deviating.iter().filter(|(_, rung)| is(*rung)).count()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The mean of gains over clients, with its standard error.
pub(super) fn mean_gain(gains: &[f64]) -> Gain {
    let (count, mean) = (gains.len() as f64, mean(gains));
    let squares: f64 = gains.iter().map(|gain| (gain - mean).powi(2)).sum();
    Gain { mean, error: if count < 2.0 { f64::INFINITY } else { (squares / (count - 1.0) / count).sqrt() } }
}

/// What every client gains by the second rung in place of the first.
pub(super) fn gains(tried: &[Tried], instead_of: usize, rung: usize) -> Vec<Gain> {
    let by_part = |tried: &Tried| -> Vec<(f64, f64)> {
        let rows = tried.rows as f64 / f64::from(FOLDS * PARTS);
        tried.losses[instead_of].iter().zip(&tried.losses[rung]).map(|(old, new)| (rows * (old - new), rows)).collect()
    };
    // The rows of a part beside those that were trained on.
    let share = 1.0 / f64::from(PARTS * (FOLDS - 1));
    let Gains { mean, error } = Gains::new(&tried.iter().map(by_part).collect::<Vec<_>>(), share, None);
    mean.into_iter().zip(error).map(|(mean, error)| Gain { mean, error }).collect()
}

/// Decides, from the losses of at least one client.
pub(super) fn decide(rungs: &[Rung], tried: &[Tried]) -> Service {
    let losses = |rung: usize| -> Vec<f64> { tried.iter().map(|tried| mean(&tried.losses[rung])).collect() };
    let losses: Vec<Vec<f64>> = (0..rungs.len()).map(losses).collect();
    let means: Vec<f64> = losses.iter().map(|losses| mean(losses)).collect();
    let between = |better: usize, worse: usize| {
        mean_gain(&losses[worse].iter().zip(&losses[better]).map(|(worse, better)| worse - better).collect::<Vec<_>>())
    };
    let best = first_smallest(means.iter().copied()).position;
    let is_as_good = |rung: &usize| {
        let Gain { mean, error } = between(best, *rung);
        mean <= error
    };
    let default = (0..rungs.len()).find(is_as_good).unwrap_or(best);
    let others: Vec<usize> = (0..rungs.len()).filter(|rung| *rung != default).collect();
    let next = others.iter().copied().min_by(|a, b| means[*a].total_cmp(&means[*b]));

    let mut deviating: Vec<Option<(usize, f64)>> = vec![None; tried.len()];
    for &rung in &others {
        for (client, gain) in gains(tried, default, rung).iter().enumerate() {
            let largest = deviating[client].is_none_or(|(_, mean)| gain.mean > mean);
            if tried[client].rows >= LEAST_ROWS && gain.probability() >= SURE && largest {
                deviating[client] = Some((rung, gain.mean));
            }
        }
    }
    let alone = rungs.iter().position(|rung| matches!(rung, Rung::Alone(_)));
    let joining = |wanted: &dyn Fn(f64) -> bool| match alone {
        Some(alone) => gains(tried, alone, default).iter().filter(|gain| wanted(gain.probability())).count(),
        None => 0,
    };
    Service {
        default: rungs[default],
        loss: means[default],
        next: next.map(|next| (rungs[next], between(default, next))),
        deviating: (tried.iter().zip(&deviating))
            .filter_map(|(tried, choice)| choice.map(|(rung, _)| (tried.client, rungs[rung])))
            .collect(),
        helped: joining(&|probability| probability >= SURE),
        hurt: joining(&|probability| probability <= 1.0 - SURE),
        tried: tried.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;
    use rand::RngExt;

    const RUNGS: [Rung; 3] = [Rung::Family, Rung::Personal(Amount::Steps(10)), Rung::Alone(Amount::Steps(300))];

    /// Losses around those given for each client and rung.
    fn tried(clients: usize, rows: usize, seed: u64, loss: impl Fn(usize, usize) -> f64) -> Vec<Tried> {
        let mut rng = Key::new(seed).rng();
        let mut of = |client: usize| {
            let part = |rng: &mut crate::rng::Rng, rung| loss(client, rung) + 0.1 * (rng.random::<f64>() - 0.5);
            let losses = (0..RUNGS.len()).map(|rung| (0..PARTS).map(|_| part(&mut rng, rung)).collect()).collect();
            Tried { client: client as u32, rows, losses }
        };
        (0..clients).map(&mut of).collect()
    }

    #[test]
    fn a_client_with_rows_enough_deviates_where_it_clearly_gains() {
        let loss = |client: usize, rung: usize| match (client, rung) {
            (3, 2) => 0.1,
            (_, 2) => 0.9,
            _ => 0.5,
        };
        let service = decide(&RUNGS, &tried(20, 40, 0, loss));
        assert_eq!((service.default, service.of(3), service.of(4)), (Rung::Family, RUNGS[2], Rung::Family));
        assert_eq!((service.helped, service.hurt, service.deviating(|rung| rung == RUNGS[2])), (19, 1, 1));
        assert_eq!(decide(&RUNGS, &tried(20, 29, 0, loss)).of(3), Rung::Family);
    }

    #[test]
    fn nobody_deviates_by_chance_and_the_simplest_is_taken() {
        let service: Vec<Service> = (0..20).map(|seed| decide(&RUNGS, &tried(50, 40, seed, |_, _| 0.5))).collect();
        let moved: usize = service.iter().map(|service| service.deviating(|_| true)).sum();
        assert!(moved <= 20, "{moved} of 1000 clients");
        assert!(service.iter().filter(|service| service.default == Rung::Family).count() >= 12);
        let personal = decide(&RUNGS, &tried(50, 40, 0, |_, rung| [0.5, 0.4, 0.8][rung]));
        assert_eq!(personal.default, RUNGS[1]);
    }
}
