//! Differential privacy of whole clients: what a client adds to sums, and how large the noise on them is.
//!
//! A client's part in a sum over the clients of a slot is one vector: a number for being there, its loss, and its update, the difference
//! to the model it began from. Each of the three is cut to a length of its own, so that the whole is no longer than
//! [`ClientPrivacy::sensitivity`], whichever slot it is in and however many there are. Gaussian noise of so many times that
//! on every number of every slot hides any one client. The mean of a slot is its noised update over its noised count; a slot
//! whose count does not stand out of the noise counts as empty.

use super::accountant::{Budget, Mechanism};
use super::noise::Source;
use super::protection::Neighbours;
use serde::{Deserialize, Serialize};

/// What being there adds to a sum, over the length to which updates are cut.
const COUNT: f64 = 0.3;
/// What the largest loss adds.
const LOSS: f64 = 0.1;
/// A slot whose count is below so many standard deviations of its noise counts as empty.
const STANDS_OUT: f64 = 2.0;

/// How clients are protected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClientPrivacy {
    /// The length to which a client's update is cut.
    pub clip: f64,
    /// The loss at which a client's is cut off.
    pub loss_cap: f64,
    /// The noise of a sum over its sensitivity.
    pub noise: f64,
    /// How data differ that are not told apart.
    pub neighbours: Neighbours,
    /// How many sums a client may be in.
    pub releases: u64,
    /// Where noise comes from.
    pub source: Source,
}

impl ClientPrivacy {
    /// The protection of clients that are in so many sums and that keeps a budget; `None` where no noise is enough.
    pub fn within(
        budget: Budget,
        (clip, loss_cap): (f64, f64),
        neighbours: Neighbours,
        releases: u64,
        source: Source,
    ) -> Option<Self> {
        let bare = Self { clip, loss_cap, noise: f64::INFINITY, neighbours, releases, source };
        let noise = budget.noise(|noise| Self { noise, ..bare }.mechanisms())?;
        Some(Self { noise, ..bare })
    }

    /// What is released about a client in all, for the accountant.
    pub fn mechanisms(&self) -> Vec<(Mechanism, u64)> {
        vec![(self.release(self.neighbours == Neighbours::Replace), self.releases)]
    }

    /// A sum with one client more or less, or with another one in its place: that may be in the same slot, with the opposite update. So may
    /// be a client with one other row.
    pub(crate) fn release(&self, is_replaced: bool) -> Mechanism {
        Mechanism::Gaussian { rate: 1.0, noise: if is_replaced { self.noise / 2.0 } else { self.noise } }
    }

    /// Where the noise of an ask with this stamp comes from.
    pub(crate) fn source_of(&self, stamp: u64) -> Source {
        self.source.extended(|key| key.word("clients").number(stamp))
    }

    /// The longest that a client's part in a sum can be.
    pub fn sensitivity(&self) -> f64 {
        self.clip * (1.0 + COUNT * COUNT + LOSS * LOSS).sqrt()
    }

    /// What being there adds to a sum.
    pub(crate) fn presence(&self) -> f64 {
        COUNT * self.clip
    }

    /// What this loss adds.
    pub(crate) fn of_loss(&self, loss: f64) -> f64 {
        // A loss that is no number says that training has diverged.
        let share = if loss.is_nan() { 1.0 } else { (loss / self.loss_cap).clamp(0.0, 1.0) };
        LOSS * self.clip * share
    }

    /// The sum of losses that this sum stands for.
    pub(crate) fn to_losses(self, sum: f64) -> f64 {
        sum / (LOSS * self.clip) * self.loss_cap
    }

    /// The share of an update of this length that is kept.
    pub(crate) fn share(&self, length: f64) -> f64 {
        if length.is_finite() { (self.clip / length).min(1.0) } else { 0.0 }
    }

    /// The standard deviation of a noised count.
    pub fn count_deviation(&self) -> f64 {
        self.noise * self.sensitivity() / self.presence()
    }

    /// The number of clients that this sum stands for, where it stands out of the noise.
    pub(crate) fn to_count(self, sum: f64) -> Option<f64> {
        let count = sum / self.presence();
        // One client is a little less than one, as parts are cut off.
        (count >= (STANDS_OUT * self.count_deviation()).max(0.5)).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn privacy(noise: f64) -> ClientPrivacy {
        ClientPrivacy {
            clip: 2.0,
            loss_cap: 4.0,
            noise,
            neighbours: Neighbours::AddOrRemove,
            releases: 10,
            source: Source::Seed(0),
        }
    }

    #[test]
    fn parts_by_hand() {
        let privacy = privacy(3.0);
        assert!((privacy.sensitivity() - 2.0 * 1.1f64.sqrt()).abs() < 1e-15);
        assert_eq!((privacy.share(1.0), privacy.share(8.0), privacy.share(f64::NAN)), (1.0, 0.25, 0.0));
        assert_eq!(
            [privacy.of_loss(1.0), privacy.of_loss(9.0), privacy.of_loss(-1.0), privacy.of_loss(f64::NAN)],
            [0.05, 0.2, 0.0, 0.2]
        );
        assert!((privacy.to_losses(privacy.of_loss(3.0) + privacy.of_loss(1.0)) - 4.0).abs() < 1e-12);
        // The noise of a count: 3·2·√1.1/0.6, about 10.5.
        assert!((privacy.count_deviation() - 10.0 * 1.1f64.sqrt()).abs() < 1e-12);
        assert_eq!((privacy.to_count(0.6 * 20.0), privacy.to_count(0.6 * 22.0).map(f64::round)), (None, Some(22.0)));
    }

    #[test]
    fn noise_keeps_the_budget() {
        let budget = Budget { epsilon: 8.0, delta: 1e-5 };
        let noise =
            |neighbours| ClientPrivacy::within(budget, (1.0, 1.0), neighbours, 300, Source::Seed(0)).unwrap().noise;
        let one = budget.noise(|noise| vec![(Mechanism::Gaussian { rate: 1.0, noise }, 300)]).unwrap();
        assert_eq!(noise(Neighbours::AddOrRemove), one);
        assert!((noise(Neighbours::Replace) / one - 2.0).abs() < 1e-5);
    }
}
