//! Sums over clients in which noise hides any one of them.
//!
//! Each client's part is cut as `privacy/clients.rs` has it, to whole multiples of a unit, and added up in integers; then noise of whole
//! numbers is added to every number of every slot. What the method gets is computed from that alone: how many clients are
//! in a slot, the sum of their losses, and the weighted sum of their vectors.
//!
//! In one process noise is added once. On other machines each adds noise to the sums over its clients before these leave it: all of
//! it where the server sees them ([`AddedBy::Each`]), a share where they are masked and the server sees the sum over several machines
//! ([`AddedBy::Together`]). Shares are discrete Gaussians. A sum of these is as private as one discrete Gaussian of the same variance, up to
//! 10·Σₖ e^(−2π²σ²k/(k+1)) (Kairouz, Liu, Steinke 2021, theorem 1), with σ in units: with σ above 2¹⁸, 0 in double precision.

use super::secure::threshold;
use crate::aggregate::{By, Sum};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::server::gather::slots;
use crate::federation::work::Reply;
use crate::federation::{Ask, Gather, Slot};
use crate::models::Precision;
use crate::num::norm;
use crate::privacy::clients::ClientPrivacy;
use crate::privacy::noise::{CUT_OFF, Noise, Source, unit};

/// In front of a slot's vector: the clients, and their losses.
const HEAD: usize = 2;

/// The sums of one order.
struct HiddenSum {
    by: By,
    length: usize,
    unit: f64,
    cells: Vec<i128>,
}

/// Who adds the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddedBy {
    /// Each of so many machines, to sums of its own.
    Each(usize),
    /// So many machines, to a sum over all of them: enough by those of them that open a sum, if the others take theirs off again.
    Together(usize),
}

impl AddedBy {
    /// What a machine adds, over the noise of one sum.
    fn share(self) -> f64 {
        match self {
            AddedBy::Each(_) => 1.0,
            AddedBy::Together(machines) => (threshold(machines) as f64).sqrt().recip(),
        }
    }

    /// The noise of the sum over all machines, over that of one sum.
    fn in_all(self) -> f64 {
        let (AddedBy::Each(machines) | AddedBy::Together(machines)) = self;
        self.share() * (machines as f64).sqrt()
    }
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
    /// An error where answers come one by one, or do not all count alike. `gather` says of each order how its answers come.
    pub(crate) fn new(
        ask: &'a Ask,
        models: &'a [Vec<f64>],
        (width, precision): (usize, Precision),
        privacy: ClientPrivacy,
        gather: impl Fn(usize) -> Gather,
    ) -> Result<Self> {
        let mut orders = Vec::new();
        for (place, order) in ask.orders.iter().enumerate() {
            let gather = gather(place);
            let sends = order.work.sends(width);
            if sends.length + sends.numbers + sends.counts == 0 {
                orders.push(None);
                continue;
            }
            let (Gather::Sum { by, .. }, 1) = (gather, sends.numbers) else {
                let message =
                    format!("answers to {} are no sums in which single clients could be hidden", order.work.name());
                return Err(Error::new(ErrorKind::Unsupported, message).hint("leave privacy.level out"));
            };
            let cells = slots(gather, &order.work).max(1) * (HEAD + sends.length);
            let unit = unit(privacy.sensitivity(), cells);
            orders.push(Some(HiddenSum { by, length: sends.length, unit, cells: vec![0; cells] }));
        }
        Ok(Self { ask, privacy, precision, models, orders })
    }

    /// How many sums have been released after this one, of so many before; an error where these are more than are planned.
    pub(crate) fn spend(&self, spent: u64) -> Result<u64> {
        let spent = spent + u64::from(self.orders.iter().any(Option::is_some));
        if spent > self.privacy.releases {
            let planned = self.privacy.releases;
            let message = format!("this would be more than the budget pays for: {spent} sums, {planned} are planned");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(spent)
    }

    /// How many numbers the sums of each order have: none where nothing is answered.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.orders.iter().map(|order| order.as_ref().map_or(0, |hidden| hidden.cells.len()))
    }

    /// Adds sums of other clients. They must be of the right lengths.
    pub(crate) fn merge<'s>(&mut self, sums: impl Iterator<Item = &'s [i128]>) {
        for (hidden, sums) in self.orders.iter_mut().zip(sums) {
            let cells = hidden.iter_mut().flat_map(|hidden| &mut hidden.cells);
            cells.zip(sums).for_each(|(cell, more)| *cell = cell.wrapping_add(*more));
        }
    }

    /// The sums of each order.
    pub(crate) fn into_sums(self) -> Vec<Vec<i128>> {
        self.orders.into_iter().map(|order| order.map_or_else(Vec::new, |hidden| hidden.cells)).collect()
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
        block.iter_mut().zip(parts).for_each(|(cell, part)| *cell += (part / *unit) as i128);
    }

    /// Adds noise from this source to all sums.
    pub(crate) fn add_noise(&mut self, source: Source, by: AddedBy) {
        for (place, hidden) in self.orders.iter_mut().enumerate() {
            let Some(HiddenSum { unit, cells, .. }) = hidden else { continue };
            let deviation = by.share() * self.privacy.noise * self.privacy.sensitivity() * (1.0 + CUT_OFF) / *unit;
            let mut noise = Noise::new(source.extended(|key| key.number(place as u64)));
            for cell in cells {
                *cell += match by {
                    AddedBy::Each(_) => noise.whole(deviation) as i128,
                    AddedBy::Together(_) => i128::from(noise.discrete(deviation)),
                };
            }
        }
    }

    /// The sums, which have noise in them, and what is known of each slot, in the order of the orders.
    pub(crate) fn open(self, by: AddedBy) -> Vec<(Vec<Sum>, Vec<Slot>)> {
        let Self { ask, privacy, models, orders, .. } = self;
        let in_all = ClientPrivacy { noise: privacy.noise * by.in_all(), ..privacy };
        let open = |(place, hidden): (usize, Option<HiddenSum>)| {
            let Some(HiddenSum { length, unit, cells, .. }) = hidden else { return (Vec::new(), Vec::new()) };
            let noised: Vec<f64> = cells.iter().map(|&cell| cell as f64 * unit).collect();
            let slot = |(slot, block): (usize, &[f64])| {
                let (head, update) = block.split_at(HEAD);
                let Some(count) = in_all.to_count(head[0]) else {
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
        let mut hiding = Hiding::new(&ask, &models, (2, Precision::F64), privacy, |_| ask.gather).unwrap();
        for &(choice, loss, vector) in replies {
            hiding.take(0, Reply { rows: 5, counts: vec![choice], numbers: vec![loss], vector: Some(vector.to_vec()) });
        }
        hiding.add_noise(privacy.source_of(3), AddedBy::Each(1));
        hiding.open(AddedBy::Each(1)).remove(0)
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
                let mut hiding = Hiding::new(&ask, &models, (2, Precision::F64), privacy, |_| ask.gather).unwrap();
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

    #[test]
    fn shares_of_noise_are_enough_without_those_of_machines_that_take_theirs_off() {
        // Two thirds of the machines, and one more, add the noise of one sum.
        let of = |machines: usize| threshold(machines) as f64 * AddedBy::Together(machines).share().powi(2);
        assert!([3, 4, 10, 64].into_iter().all(|machines| (of(machines) - 1.0).abs() < 1e-12));
        assert!((AddedBy::Together(10).in_all().powi(2) - 10.0 / 7.0).abs() < 1e-12);
        assert_eq!((AddedBy::Each(9).share(), AddedBy::Each(9).in_all()), (1.0, 3.0));
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Sum { by: By::All, weight: Weight::Uniform });
        let then = Then::Train(Plan::steps(1, 0.1));
        ask.order(Recipients::All, Choose { among: vec![0], on: Portion::All, then });
        let models = [vec![0.0; 2000]];
        let of_machine = |seed: u64, by: AddedBy| {
            let privacy = privacy(3.0, 1.0);
            let mut hiding = Hiding::new(&ask, &models, (2000, Precision::F64), privacy, |_| ask.gather).unwrap();
            let reply = Reply { rows: 5, counts: vec![0], numbers: vec![1.0], vector: Some(vec![0.02; 2000]) };
            hiding.take(0, reply);
            hiding.add_noise(Source::Seed(seed), by);
            hiding
        };
        for by in [AddedBy::Together(4), AddedBy::Each(4)] {
            let mut all = of_machine(0, by);
            for seed in 1..4 {
                let more = of_machine(seed, by).into_sums();
                all.merge(more.iter().map(Vec::as_slice));
            }
            let wanted = 3.0 * all.privacy.sensitivity() * by.in_all();
            let HiddenSum { unit, cells, .. } = all.orders[0].as_ref().unwrap();
            let of = cells[HEAD..].iter().map(|&cell| (cell as f64 * unit - 4.0 * 0.02).powi(2)).sum::<f64>() / 2000.0;
            // A standard error is √(2/2000) of a variance.
            assert!((of / wanted.powi(2) - 1.0).abs() < 0.13, "{by:?}: {of} {wanted}");
        }
    }
}
