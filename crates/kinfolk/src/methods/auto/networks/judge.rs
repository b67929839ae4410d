//! Which families deserve to be, from losses on held-out rows.
//!
//! A client's family is the one whose model has the smallest loss on the rows that it trains on; rows that were held out say what that
//! is worth. Under a choice by held-out rows the smallest of several losses would always look like a gain.

use super::service::mean_gain;
use crate::families::Gain;
use crate::models::first_smallest;

/// A family with fewer clients ends.
pub(super) const LEAST_MEMBERS: usize = 3;
/// Families are told apart, and better than none, by a gain of more than so many standard errors.
const CLEAR: f64 = 2.5;

/// The losses of clients with the models of some families.
pub(super) struct Judged {
    pub(super) clients: Vec<u32>,
    /// By client and model, on the rows that are trained on.
    pub(super) trained: Vec<Vec<f64>>,
    /// On those held out.
    pub(super) held_out: Vec<Vec<f64>>,
}

/// The families that go on.
#[derive(Debug, PartialEq)]
pub(super) struct Settled {
    /// Their models, by number.
    pub(super) models: Vec<usize>,
    /// The place of each client's family among them.
    pub(super) families: Vec<usize>,
    pub(super) ended: usize,
    pub(super) merged: usize,
}

pub(super) fn is_clear(gain: &Gain) -> bool {
    gain.mean > CLEAR * gain.error
}

impl Judged {
    /// Each client's choice among these models, by its place.
    pub(super) fn choices(&self, models: &[usize]) -> Vec<usize> {
        self.trained.iter().map(|losses| first_smallest(models.iter().map(|&model| losses[model])).position).collect()
    }

    /// Each client's loss with its choice, on held-out rows.
    pub(super) fn losses(&self, models: &[usize], families: &[usize]) -> Vec<f64> {
        self.held_out.iter().zip(families).map(|(losses, &family)| losses[models[family]]).collect()
    }

    /// What the clients of two families gain by their own model in place of the other's.
    fn apart(&self, models: &[usize], families: &[usize], pair: [usize; 2]) -> Gain {
        let gain = |(losses, family): (&Vec<f64>, &usize)| {
            let other = pair[usize::from(*family == pair[0])];
            pair.contains(family).then(|| losses[models[other]] - losses[models[*family]])
        };
        mean_gain(&self.held_out.iter().zip(families).filter_map(gain).collect::<Vec<_>>())
    }

    /// Ends small families and those that serve each other's clients as well; their clients choose among the others.
    pub(super) fn settle(&self, mut models: Vec<usize>) -> Settled {
        let (mut ended, mut merged) = (0, 0);
        loop {
            let families = self.choices(&models);
            let size = |family: usize| families.iter().filter(|other| **other == family).count();
            let count = models.len();
            let smallest = first_smallest((0..count).map(|family| size(family) as f64)).position;
            if count > 1 && size(smallest) < LEAST_MEMBERS {
                models.remove(smallest);
                ended += 1;
                continue;
            }
            let pairs = (0..count).flat_map(|b| (0..b).map(move |a| [a, b]));
            let unclear =
                pairs.map(|pair| (pair, self.apart(&models, &families, pair))).filter(|(_, gain)| !is_clear(gain));
            let nearest = unclear.min_by(|(_, one), (_, other)| one.mean.total_cmp(&other.mean));
            let Some(([a, b], _)) = nearest else { return Settled { models, families, ended, merged } };
            models.remove(if size(a) < size(b) { a } else { b });
            merged += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve clients, four a family; a model that is not theirs costs them more.
    fn judged(cost: impl Fn(usize, usize) -> f64) -> Judged {
        let losses = |shift: f64| {
            let of =
                |client: usize| (0..3).map(|model| 0.5 + shift * client as f64 + cost(client / 4, model)).collect();
            (0..12).map(of).collect()
        };
        Judged { clients: (0..12).collect(), trained: losses(0.0), held_out: losses(0.01) }
    }

    #[test]
    fn families_apart_go_on_and_equal_ones_merge() {
        let apart = judged(|family, model| if family == model { 0.0 } else { 0.3 + 0.01 * model as f64 });
        let wanted: Vec<usize> = (0..12).map(|client| client / 4).collect();
        assert_eq!(
            apart.settle(vec![0, 1, 2]),
            Settled { models: vec![0, 1, 2], families: wanted, ended: 0, merged: 0 }
        );
        let equal = judged(|family, model| match family == model || (family < 2 && model < 2) {
            true => {
                if family == model {
                    -1e-9
                } else {
                    0.0
                }
            }
            false => 0.3,
        });
        let mut noisy = equal;
        // Where two models serve alike, which is better is chance.
        (0..8).for_each(|client| noisy.held_out[client][0] += if client % 2 == 0 { 0.02 } else { -0.02 });
        let Settled { models, families, ended, merged } = noisy.settle(vec![0, 1, 2]);
        assert_eq!((models.len(), ended, merged), (2, 0, 1));
        assert_eq!(families[..8], [families[0]; 8]);
        assert_ne!(families[0], families[8]);
    }

    #[test]
    fn small_families_end() {
        let mut judged = judged(|family, model| if family == model { 0.0 } else { 0.3 });
        // Two clients of the third family go to the first.
        for client in [8, 9] {
            judged.trained[client] = judged.trained[0].clone();
        }
        let settled = judged.settle(vec![0, 1, 2]);
        assert_eq!((settled.models, settled.ended, settled.merged), (vec![0, 1], 1, 0));
        assert_eq!(settled.families[8..], [0, 0, 0, 0]);
    }
}
