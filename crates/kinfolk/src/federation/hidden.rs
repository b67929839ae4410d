//! Sums over clients in which noise hides any one of them.
//!
//! Each client's part is cut as `privacy/clients.rs` has it, to whole multiples of a unit, and added up in integers; then noise of whole
//! numbers is added, once, to every number of every slot. What the method gets is computed from that alone: how many clients are
//! in a slot, the sum of their losses, and the weighted sum of their vectors.

use crate::aggregate::{By, Sum};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::server::gather::slots;
use crate::federation::work::Reply;
use crate::federation::{Ask, Gather, Slot};
use crate::models::Precision;
use crate::num::norm;
use crate::privacy::clients::ClientPrivacy;
use crate::privacy::noise::{CUT_OFF, Noise, unit};

/// In front of a slot's vector: the clients, and their losses.
const HEAD: usize = 2;

/// The sums of one order.
struct HiddenSum {
    by: By,
    length: usize,
    unit: f64,
    cells: Vec<i64>,
}

/// Adds up the answers of all clients to the orders of an ask.
pub(crate) struct Hiding<'a> {
    ask: &'a Ask,
    privacy: ClientPrivacy,
    precision: Precision,
    /// Models of the ask, of which clients' vectors are updates.
    models: &'a [Vec<f64>],
    /// `None` for orders to which nothing is answered.
    orders: Vec<Option<HiddenSum>>,
}

impl<'a> Hiding<'a> {
    /// An error where answers come one by one, or do not all count alike.
    pub(crate) fn new(
        ask: &'a Ask,
        models: &'a [Vec<f64>],
        (width, precision): (usize, Precision),
        privacy: ClientPrivacy,
    ) -> Result<Self> {
        let mut orders = Vec::new();
        for order in &ask.orders {
            let sends = order.work.sends(width);
            if sends.length + sends.numbers + sends.counts == 0 {
                orders.push(None);
                continue;
            }
            let (Gather::Sum { by, .. }, 1) = (ask.gather, sends.numbers) else {
                let message =
                    format!("answers to {} are no sums in which single clients could be hidden", order.work.name());
                return Err(Error::new(ErrorKind::Unsupported, message).hint("leave privacy.level out"));
            };
            let cells = slots(ask.gather, &order.work).max(1) * (HEAD + sends.length);
            let unit = unit(privacy.sensitivity(), cells);
            orders.push(Some(HiddenSum { by, length: sends.length, unit, cells: vec![0; cells] }));
        }
        Ok(Self { ask, privacy, precision, models, orders })
    }

    /// Whether anything is released.
    pub(crate) fn releases(&self) -> bool {
        self.orders.iter().any(Option::is_some)
    }

    /// Adds a client's reply. One of another shape is in no sum.
    pub(crate) fn take(&mut self, order: usize, mut reply: Reply) {
        let work = &self.ask.orders[order].work;
        let base = work.base(&reply).and_then(|model| self.models.get(model));
        let Some(HiddenSum { by, length, unit, cells }) = &mut self.orders[order] else { return };
        let mut vector = reply.vector.take().unwrap_or_default();
        let slot = if *by == By::Choice { reply.counts.first().copied().unwrap_or(0) as usize } else { 0 };
        let Some(block) = cells.chunks_exact_mut(HEAD + *length).nth(slot).filter(|_| vector.len() == *length) else {
            return;
        };
        self.precision.round(&mut vector);
        if let Some(base) = base {
            vector.iter_mut().zip(base).for_each(|(value, base)| *value -= base);
        }
        let share = self.privacy.share(norm(&vector));
        if share == 0.0 {
            vector.fill(0.0);
        }
        let loss = reply.numbers.first().copied().unwrap_or(f64::NAN);
        let head = [self.privacy.presence(), self.privacy.of_loss(loss)];
        let parts = head.into_iter().chain(vector.iter().map(|value| share * value));
        // Cut off towards zero: no part becomes longer.
        block.iter_mut().zip(parts).for_each(|(cell, part)| *cell += (part / *unit) as i64);
    }

    /// The noised sums and what is known of each slot, in the order of the orders. `stamp` is the ask's.
    pub(crate) fn finish(self, stamp: u64) -> Vec<(Vec<Sum>, Vec<Slot>)> {
        let Self { ask, privacy, models, orders, .. } = self;
        let open = |(place, hidden): (usize, Option<HiddenSum>)| {
            let Some(HiddenSum { length, unit, cells, .. }) = hidden else { return (Vec::new(), Vec::new()) };
            let source = privacy.source.extended(|key| key.word("clients").number(stamp).number(place as u64));
            let (mut noise, deviation) =
                (Noise::new(source), privacy.noise * privacy.sensitivity() * (1.0 + CUT_OFF) / unit);
            let noised: Vec<f64> = cells.iter().map(|&cell| (cell as f64 + noise.whole(deviation)) * unit).collect();
            let slot = |(slot, block): (usize, &[f64])| {
                let (head, update) = block.split_at(HEAD);
                let Some(count) = privacy.to_count(head[0]) else {
                    return (Sum::default(), Slot { count: 0, numbers: vec![0.0] });
                };
                // Which model a slot's clients began from follows from the order.
                let asked = Reply { counts: vec![slot as u32], ..Reply::default() };
                let base = ask.orders[place].work.base(&asked).and_then(|model| models.get(model));
                let total =
                    update.iter().enumerate().map(|(at, part)| part + base.map_or(0.0, |base| count * base[at]));
                let members = count.round().max(1.0) as usize;
                let sum = Sum { total: total.collect(), weight: count, count: members };
                (sum, Slot { count: members, numbers: vec![privacy.to_losses(head[1]).max(0.0)] })
            };
            let (sums, known): (Vec<Sum>, Vec<Slot>) = noised.chunks_exact(HEAD + length).enumerate().map(slot).unzip();
            (if length > 0 { sums } else { Vec::new() }, known)
        };
        orders.into_iter().enumerate().map(open).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::Weight;
    use crate::federation::work::Choose;
    use crate::federation::{Params, Phase, Recipients};
    use crate::privacy::noise::Source;
    use crate::privacy::protection::Neighbours;
    use crate::training::{Plan, Portion, Then};

    fn privacy(noise: f64, clip: f64) -> ClientPrivacy {
        let (neighbours, source) = (Neighbours::AddOrRemove, Source::Seed(1));
        ClientPrivacy { clip, loss_cap: 4.0, noise, neighbours, releases: 9, source }
    }

    /// The sums that a choice between models (0, 0) and (1, 1) gives.
    fn sums(privacy: ClientPrivacy, replies: &[(u32, f64, [f64; 2])]) -> (Vec<Sum>, Vec<Slot>) {
        let models: Vec<Params> = vec![vec![0.0, 0.0].into(), vec![1.0, 1.0].into()];
        let mut ask = Ask::new(Phase::Train, models, Gather::Sum { by: By::Choice, weight: Weight::Uniform });
        let then = Then::Train(Plan::steps(1, 0.1));
        ask.order(Recipients::All, Choose { among: vec![0, 1], on: Portion::All, then });
        let models = [vec![0.0, 0.0], vec![1.0, 1.0]];
        let mut hiding = Hiding::new(&ask, &models, (2, Precision::F64), privacy).unwrap();
        for &(choice, loss, vector) in replies {
            hiding.take(0, Reply { rows: 5, counts: vec![choice], numbers: vec![loss], vector: Some(vector.to_vec()) });
        }
        hiding.finish(3).remove(0)
    }

    #[test]
    fn without_noise_they_are_the_sums_of_cut_updates() {
        let replies = [(1, 2.0, [1.5, 1.0]), (1, 9.0, [1.0, 4.0]), (0, 1.0, [0.25, 0.0]), (1, 0.0, [f64::NAN, 1.0])];
        let (sums, known) = sums(privacy(0.0, 1.0), &replies);
        // Beside (1, 1): (½, 0), (0, 3) cut to (0, 1), and nothing.
        let near = |found: &[f64], wanted: [f64; 2]| {
            found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-5)
        };
        assert!(near(&sums[1].total, [3.5, 4.0]) && near(&sums[0].total, [0.25, 0.0]), "{sums:?}");
        assert_eq!((sums[1].count, sums[0].count, known[1].count), (3, 1, 3));
        assert!((sums[1].weight - 3.0).abs() < 1e-4 && (known[1].numbers[0] - 6.0).abs() < 1e-3, "{sums:?} {known:?}");
    }

    #[test]
    fn a_clients_part_is_no_longer_than_the_sensitivity() {
        for clip in [0.1, 1.0, 7.0] {
            let privacy = privacy(0.0, clip);
            let models = [vec![0.0, 0.0], vec![1.0, 1.0]];
            for (choice, loss, vector) in
                [(0, 1e9, [1e6, -3.0]), (1, f64::NAN, [1.0 + clip, 1.0]), (1, 4.0, [f64::INFINITY, 0.0])]
            {
                let mut ask =
                    Ask::new(Phase::Train, Vec::new(), Gather::Sum { by: By::Choice, weight: Weight::Uniform });
                let then = Then::Train(Plan::steps(1, 0.1));
                ask.order(Recipients::All, Choose { among: vec![0, 1], on: Portion::All, then });
                let mut hiding = Hiding::new(&ask, &models, (2, Precision::F64), privacy).unwrap();
                hiding.take(
                    0,
                    Reply { rows: 5, counts: vec![choice], numbers: vec![loss], vector: Some(vector.to_vec()) },
                );
                let HiddenSum { unit, cells, .. } = hiding.orders[0].as_ref().unwrap();
                let length = unit * cells.iter().map(|&cell| (cell as f64).powi(2)).sum::<f64>().sqrt();
                assert!(length <= privacy.sensitivity() && length > 0.2 * clip, "{length} {clip}");
            }
        }
    }

    #[test]
    fn noise_is_in_every_slot_and_an_empty_one_is_not_taken_for_a_cluster() {
        let replies: Vec<(u32, f64, [f64; 2])> = (0..200).map(|_| (1, 1.0, [1.5, 1.0])).collect();
        let (first, other) = (sums(privacy(2.0, 1.0), &replies), sums(privacy(2.0, 1.0), &replies[1..]));
        assert!(first.0[0].count == 0 && first.1[0].count == 0, "{first:?}");
        // Noise of 2·√1.1 on the sum of 200 updates of ½; of 7 on their number.
        let mean = first.0[1].mean().unwrap();
        assert!((mean[0] - 1.5).abs() < 0.1 && mean[0] != 1.5 && first.0[1].count.abs_diff(200) < 25, "{first:?}");
        // The same noise, and one client less.
        assert!((first.0[1].weight - other.0[1].weight - 1.0).abs() < 1e-4);
    }
}
