//! Normalisation: channels with mean 0 and variance 1, then a learned scale and shift, then a rectifier.
//!
//! - **Group**: over the pixels of one image and a group of channels. No state.
//! - **Batch**: over the pixels of all images of a batch, channel by channel. Scoring uses
//!   running statistics, which each training step moves a tenth of the way towards those of its batch. They travel and
//!   are averaged with the parameters, though averaged statistics of clients that differ fit none of them, which is why
//!   groups are the default.

use super::*;

/// Added to every variance.
const FLOOR: f64 = 1e-5;

/// How far a step moves the running statistics.
const MOMENTUM: f64 = 0.1;

#[derive(Debug, Clone)]
pub(super) struct Normalisation {
    pub(super) size: Size,
    /// Channels of a group; `None` for batch normalisation.
    pub(super) group: Option<usize>,
    pub(super) scale: Place,
    pub(super) shift: Place,
    /// The running mean and, behind it, the running variance, of batch normalisation.
    pub(super) running: Place,
}

impl Normalisation {
    /// Replaces the sums of each image and channel by the mean over their set, weighted by `scale`.
    #[inline(always)]
    fn pool<T: Real>(&self, sums: &mut [T], scale: Option<&[T]>) {
        let channels = self.size.channels;
        let pixels = self.size.height * self.size.width;
        if let Some(scale) = scale {
            for sums in sums.chunks_exact_mut(channels) {
                sums.iter_mut().zip(scale).for_each(|(sum, &scale)| *sum *= scale);
            }
        }
        match self.group {
            Some(group) => {
                let share = T::ONE / T::of((pixels * group) as f64);
                for sums in sums.chunks_exact_mut(group) {
                    let total = sums.iter().fold(T::ZERO, |total, &sum| total + sum);
                    sums.fill(total * share);
                }
            }
            None => {
                let share = T::ONE / T::of((pixels * sums.len() / channels) as f64);
                let (first, rest) = sums.split_at_mut(channels);
                for other in rest.chunks_exact(channels) {
                    first.iter_mut().zip(other).for_each(|(sum, &other)| *sum += other);
                }
                first.iter_mut().for_each(|sum| *sum *= share);
                rest.chunks_exact_mut(channels).for_each(|other| other.copy_from_slice(first));
            }
        }
    }

    /// Sums over the pixels of each image.
    #[inline(always)]
    fn sums<T: Real>(&self, values: &[T], out: &mut Vec<T>, each: impl Fn(usize, usize, T) -> T) {
        let (size, channels) = (self.size.len(), self.size.channels);
        out.clear();
        out.resize(values.len() / size * channels, T::ZERO);
        for (n, (image, out)) in values.chunks_exact(size).zip(out.chunks_exact_mut(channels)).enumerate() {
            for (p, pixel) in image.chunks_exact(channels).enumerate() {
                for (c, (out, &value)) in out.iter_mut().zip(pixel).enumerate() {
                    *out += each(n * size + p * channels + c, n * channels + c, value);
                }
            }
        }
    }

    /// With `trains` batches use their own statistics, else the running ones.
    #[inline(always)]
    pub(super) fn forward<T: Real>(&self, params: &[T], x: &[T], trains: bool, memory: &mut Memory<T>) {
        let (size, channels) = (self.size.len(), self.size.channels);
        let cells = x.len() / size * channels;
        let Memory { out, kept, sums, .. } = memory;
        // Means, then one over the deviations, of every image and channel.
        kept.resize(2 * cells, T::ZERO);
        let (means, inverses) = kept.split_at_mut(cells);
        if self.group.is_none() && !trains {
            let (mean, variance) = params[self.running.clone()].split_at(channels);
            means.chunks_exact_mut(channels).for_each(|means| means.copy_from_slice(mean));
            inverses.chunks_exact_mut(channels).for_each(|inverses| inverses.copy_from_slice(variance));
        } else {
            self.sums(x, sums, |_, _, value| value);
            self.pool(sums, None);
            means.copy_from_slice(sums);
            self.sums(x, sums, |_, cell, value| (value - means[cell]) * (value - means[cell]));
            self.pool(sums, None);
            inverses.copy_from_slice(sums);
        }
        inverses.iter_mut().for_each(|value| *value = T::ONE / (*value + T::of(FLOOR)).sqrt());
        out.resize(x.len(), T::ZERO);
        let (scale, shift) = (&params[self.scale.clone()], &params[self.shift.clone()]);
        let images = x.chunks_exact(size).zip(out.chunks_exact_mut(size));
        let cells = means.chunks_exact(channels).zip(inverses.chunks_exact(channels));
        for ((x, out), (mean, inverse)) in images.zip(cells) {
            for (x, out) in x.chunks_exact(channels).zip(out.chunks_exact_mut(channels)) {
                for c in 0..channels {
                    let value = (x[c] - mean[c]) * inverse[c] * scale[c] + shift[c];
                    out[c] = if value > T::ZERO { value } else { T::ZERO };
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "slices that are arguments are known not to overlap")]
    #[inline(always)]
    pub(super) fn backward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        slopes: &[T],
        memory: &mut Memory<T>,
        work: &mut Work<T>,
        gradient: &mut [T],
        down: &mut [T],
    ) {
        let (size, channels) = (self.size.len(), self.size.channels);
        let Memory { out, kept, sums, .. } = memory;
        let (means, inverses) = kept.split_at(kept.len() / 2);
        let along = &mut work.sums;
        // `down` first holds the gradient before the rectifier.
        for ((down, &slope), &out) in down.iter_mut().zip(slopes).zip(&*out) {
            *down = if out > T::ZERO { slope } else { T::ZERO };
        }
        self.sums(down, sums, |_, _, slope| slope);
        self.sums(down, along, |at, cell, slope| slope * (x[at] - means[cell]) * inverses[cell]);
        for (place, sums) in [(&self.shift, &*sums), (&self.scale, &*along)] {
            let gradient = &mut gradient[place.clone()];
            gradient.fill(T::ZERO);
            for sums in sums.chunks_exact(channels) {
                gradient.iter_mut().zip(sums).for_each(|(gradient, &sum)| *gradient += sum);
            }
        }
        let scale = &params[self.scale.clone()];
        self.pool(sums, Some(scale));
        self.pool(along, Some(scale));
        for (n, (x, down)) in x.chunks_exact(size).zip(down.chunks_exact_mut(size)).enumerate() {
            let cells = n * channels..(n + 1) * channels;
            let (means, inverses) = (&means[cells.clone()], &inverses[cells.clone()]);
            let (sums, along) = (&sums[cells.clone()], &along[cells]);
            for (x, down) in x.chunks_exact(channels).zip(down.chunks_exact_mut(channels)) {
                for c in 0..channels {
                    let normal = (x[c] - means[c]) * inverses[c];
                    down[c] = inverses[c] * (scale[c] * down[c] - sums[c] - normal * along[c]);
                }
            }
        }
    }

    /// Moves the running statistics towards the last batch; the variance is that of a sample.
    pub(super) fn update_statistics<T: Real>(&self, memory: &Memory<T>, learned: usize, statistics: &mut [T]) {
        if self.group.is_some() {
            return;
        }
        let channels = self.size.channels;
        let count = (memory.out.len() / channels) as f64;
        let (means, inverses) = memory.kept.split_at(memory.kept.len() / 2);
        let running = &mut statistics[self.running.start - learned..self.running.end - learned];
        let (mean, variance) = running.split_at_mut(channels);
        let momentum = T::of(MOMENTUM);
        let sample = T::of(count / (count - 1.0).max(1.0));
        for c in 0..channels {
            mean[c] += momentum * (means[c] - mean[c]);
            let own = T::ONE / (inverses[c] * inverses[c]) - T::of(FLOOR);
            variance[c] += momentum * (own * sample - variance[c]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layer, testing};
    use super::*;

    const SIZE: Size = Size { height: 1, width: 2, channels: 2 };
    /// Two images of two pixels of two channels.
    const X: [f64; 8] = [1.0, 2.0, 3.0, 6.0, 5.0, 10.0, 7.0, 14.0];
    /// Scales, shifts, running means, running variances.
    const PARAMS: [f64; 8] = [1.0, 2.0, 10.0, 20.0, 4.0, 8.0, 4.0, 16.0];

    fn normalisation(group: Option<usize>) -> Normalisation {
        Normalisation { size: SIZE, group, scale: 0..2, shift: 2..4, running: 4..8 }
    }

    fn outputs(layer: &Normalisation, trains: bool) -> Memory<f64> {
        let mut memory = Memory::default();
        layer.forward(&PARAMS, &X, trains, &mut memory);
        memory
    }

    fn assert_close(found: &[f64], wanted: &[f64]) {
        assert!(crate::num::distance(found, wanted) < 1e-12, "{found:?} and {wanted:?}");
    }

    #[test]
    fn groups_by_hand() {
        // The first image: mean 3, variance (4 + 1 + 0 + 9)/4 = 3.5; the second: mean 9, variance (16 + 1 + 4 + 25)/4.
        let (a, b) = (1.0 / (3.5f64 + 1e-5).sqrt(), 1.0 / (11.5f64 + 1e-5).sqrt());
        let wanted = [
            10.0 - 2.0 * a,
            20.0 - 2.0 * a,
            10.0,
            20.0 + 6.0 * a,
            10.0 - 4.0 * b,
            20.0 + 2.0 * b,
            10.0 - 2.0 * b,
            20.0 + 10.0 * b,
        ];
        assert_close(&outputs(&normalisation(Some(2)), true).out, &wanted);
        assert_close(&outputs(&normalisation(Some(2)), false).out, &wanted);
    }

    #[test]
    fn batches_by_hand() {
        // Channels: 1 3 5 7 with mean 4 and variance 5, and twice that.
        let (a, b) = (1.0 / (5.0f64 + 1e-5).sqrt(), 2.0 / (20.0f64 + 1e-5).sqrt());
        let steps = [-3.0, -1.0, 1.0, 3.0];
        let wanted = steps.map(|step| [10.0 + step * a, 20.0 + 2.0 * step * b]).concat();
        let layer = normalisation(None);
        assert_close(&outputs(&layer, true).out, &wanted);
        // Running: mean 4 and 8, deviation 2 and 4.
        let (a, b) = (1.0 / (4.0f64 + 1e-5).sqrt(), 2.0 / (16.0f64 + 1e-5).sqrt());
        let wanted = steps.map(|step| [10.0 + step * a, 20.0 + 2.0 * step * b]).concat();
        assert_close(&outputs(&layer, false).out, &wanted);
    }

    #[test]
    fn running_statistics_move_a_tenth_of_the_way() {
        let layer = Normalisation { running: 0..4, ..normalisation(None) };
        let mut running = [0.0, 0.0, 1.0, 1.0];
        layer.update_statistics(&outputs(&normalisation(None), true), 0, &mut running);
        // Variances of the sample: 20/3 and 80/3.
        assert_close(&running, &[0.4, 0.8, 0.9 + 2.0 / 3.0, 0.9 + 8.0 / 3.0]);
    }

    #[test]
    fn slopes_are_those_of_differences() {
        let size = Size { height: 2, width: 3, channels: 4 };
        for group in [Some(1), Some(2), Some(4), None] {
            let layer = Normalisation { size, group, scale: 0..4, shift: 4..8, running: 0..0 };
            testing::assert_slopes(&Layer::Normalisation(layer), size.len(), 3);
        }
    }
}
