//! How what clients send becomes one model: its mean, or by a rule that a minority of hostile clients cannot move far.

use super::super::*;
use crate::aggregate::robust::{self, Weiszfeld};
use crate::num::distance;
use rand::seq::SliceRandom;
use std::borrow::Cow;

choices! {
    /// How what clients send becomes one model.
    pub enum Rule {
        Mean = "mean",
        Median = "median",
        TrimmedMean = "trimmed-mean",
        Krum = "krum",
        MultiKrum = "multi-krum",
        GeometricMedian = "geometric-median",
        CentredClipping = "centred-clipping",
        NormClipping = "norm-clipping",
    }
    /// What comes before the rule.
    pub enum MixFirst { Nothing = "nothing", Nearest = "nearest", Groups = "groups" }
}

settings! {
    /// How what clients send becomes one model.
    pub struct Aggregating {
        /// how what clients send becomes one model: its mean, or by a rule that hostile clients cannot move far
        aggregate: Rule = "mean",
        /// what comes before that: every answer becomes the mean of those nearest to it, or random groups theirs
        #[only_with(aggregate = "median" | "trimmed-mean" | "krum" | "multi-krum" | "geometric-median" | "centred-clipping"
            | "norm-clipping")]
        mix_first: MixFirst = "nothing",
        /// clients in a random group
        #[only_with(mix_first = "groups")]
        group_size: usize [2..=1 << 20] = 2,
        /// share of the clients, in each cluster, that may be hostile
        #[only_with(aggregate = "median" | "trimmed-mean" | "krum" | "multi-krum" | "geometric-median" | "centred-clipping"
            | "norm-clipping")]
        hostile: f64 [0.0..0.5] = 0.3,
        /// how far an answer may be from the model before, or beyond it is cut off (default: the median distance)
        #[only_with(aggregate = "centred-clipping" | "norm-clipping")]
        clip: Option<f64> [above 0.0],
        /// largest share that one client may weigh in a mean, however many rows it says it has
        most_weight: f64 [above 0.0..=1.0] = 1.0,
    }
}

/// What clients sent to every slot, one vector each with its client's rows.
pub type Sent<'a> = Vec<Vec<(&'a [f64], u32)>>;

impl Aggregating {
    /// How answers come back.
    pub fn gather(&self, by: By, weight: Weight) -> Gather {
        if self.is_plain() { Gather::Sum { by, weight } } else { Gather::Each }
    }

    /// Whether sums suffice.
    pub fn is_plain(&self) -> bool {
        self.aggregate == Rule::Mean && self.most_weight >= 1.0
    }

    /// The sums of the answers to some orders, each for all clients of a slot. The model that a slot had before is one of `before`.
    pub fn by_order<'a>(
        &self,
        (weight, key): (Weight, &Key),
        before: &[Params],
        orders: impl Iterator<Item = (usize, &'a OrderAnswers)>,
    ) -> Vec<Sum> {
        let mut sums = vec![Sum::default(); before.len()];
        let mut sent: Sent = vec![Vec::new(); before.len()];
        for (slot, order) in orders {
            order.sums.iter().for_each(|sum| sums[slot].merge(sum));
            sent[slot].extend(finite_vectors(order).map(|(place, vector)| (vector, order.rows[place])));
        }
        if self.is_plain() { sums } else { self.combine((weight, key), before, &sent) }
    }

    /// The sums of the answers to an order, for every candidate of its choice.
    pub fn by_choice<'a>(
        &self,
        (weight, key): (Weight, &Key),
        before: &[Params],
        order: &'a OrderAnswers,
    ) -> Cow<'a, [Sum]> {
        if self.is_plain() {
            return Cow::Borrowed(&order.sums);
        }
        let mut sent: Sent = vec![Vec::new(); before.len()];
        for (place, vector) in finite_vectors(order) {
            sent[order.counts[place] as usize].push((vector, order.rows[place]));
        }
        Cow::Owned(self.combine((weight, key), before, &sent))
    }

    /// One sum for every slot, whose mean is what the rule says.
    pub fn combine(&self, (weight, key): (Weight, &Key), before: &[Params], sent: &Sent) -> Vec<Sum> {
        let of_slot = |slot: usize| {
            let (before, sent) = (&before[slot], &sent[slot]);
            let members: Vec<&[f64]> = sent.iter().map(|(vector, _)| *vector).collect();
            if members.is_empty() {
                return Sum::default();
            }
            let mut weights: Vec<f64> = sent.iter().map(|(_, rows)| weight.of(*rows as usize)).collect();
            if self.most_weight < 1.0 {
                robust::cap_weights(&mut weights, self.most_weight);
            }
            let (count, whole) = (members.len(), weights.iter().sum::<f64>());
            let mut total = self.mixed(&members, &weights, before, &key.clone().number(slot as u64));
            total.iter_mut().for_each(|value| *value *= whole);
            Sum { total, weight: whole, count }
        };
        (0..sent.len()).map(of_slot).collect()
    }

    fn mixed(&self, members: &[&[f64]], weights: &[f64], before: &[f64], key: &Key) -> Vec<f64> {
        let hostile = robust::hostile(self.hostile, members.len());
        let mixed = match self.mix_first {
            MixFirst::Nothing => return self.aggregated(members, weights, before, hostile),
            MixFirst::Nearest => robust::mix_nearest(members, before, hostile),
            MixFirst::Groups => {
                let mut order: Vec<usize> = (0..members.len()).collect();
                order.shuffle(&mut key.clone().word("groups").rng());
                robust::bucket(members, &order, self.group_size)
            }
        };
        let members: Vec<&[f64]> = mixed.chunks_exact(before.len()).collect();
        let hostile = hostile.min(members.len().saturating_sub(1) / 2);
        self.aggregated(&members, &vec![1.0; members.len()], before, hostile)
    }

    fn aggregated(&self, members: &[&[f64]], weights: &[f64], before: &[f64], hostile: usize) -> Vec<f64> {
        /// Passes of centred clipping.
        const PASSES: usize = 5;
        match self.aggregate {
            Rule::Mean => robust::clipped_mean(members, weights, before, Some(f64::INFINITY)),
            Rule::Median => robust::median(members),
            Rule::TrimmedMean => robust::trimmed_mean(members, hostile),
            Rule::Krum => members[robust::krum(members, before, hostile)].to_vec(),
            Rule::MultiKrum => robust::multi_krum(members, before, hostile),
            Rule::GeometricMedian => {
                let usual = median(members.iter().map(|member| distance(member, before))).unwrap_or(0.0);
                let smoothing = (1e-6 * usual).max(f64::MIN_POSITIVE);
                robust::geometric_median(members, weights, before, Weiszfeld { smoothing, steps: 50, tolerance: 1e-4 })
            }
            Rule::CentredClipping => robust::centred_clipping(members, weights, before, self.clip, PASSES),
            Rule::NormClipping => robust::clipped_mean(members, weights, before, self.clip),
        }
    }
}
