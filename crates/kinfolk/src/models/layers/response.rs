//! Local response normalisation: each channel over a power of the squares around it.
//!
//! y = x·s^(−¾) with s = 1 + α·Σ x² over the channel and up to four neighbours on either side, α = 0.001/9.

use super::*;

const REACH: usize = 4;
const STRENGTH: f64 = 0.001 / 9.0;
const POWER: f64 = 0.75;

#[derive(Debug, Clone)]
pub(super) struct Response {
    pub(super) size: Size,
}

impl Response {
    /// For every channel of a pixel the sum of what `each` says of it and its neighbours.
    #[inline(always)]
    fn around<T: Real>(channels: usize, framed: &mut Vec<T>, out: &mut [T], each: impl Fn(usize) -> T) {
        framed.clear();
        framed.resize(channels + 2 * REACH, T::ZERO);
        for (c, value) in framed[REACH..REACH + channels].iter_mut().enumerate() {
            *value = each(c);
        }
        out.copy_from_slice(&framed[..channels]);
        for offset in 1..=2 * REACH {
            out.iter_mut().zip(&framed[offset..]).for_each(|(out, &value)| *out += value);
        }
    }

    #[inline(always)]
    pub(super) fn forward<T: Real>(&self, cpu: Cpu, x: &[T], memory: &mut Memory<T>) {
        let channels = self.size.channels;
        let Memory { out, kept, sums, .. } = memory;
        out.resize(x.len(), T::ZERO);
        kept.resize(x.len(), T::ZERO);
        let pixels = x.chunks_exact(channels).zip(out.chunks_exact_mut(channels));
        for ((x, out), kept) in pixels.zip(kept.chunks_exact_mut(channels)) {
            Self::around(channels, sums, kept, |c| x[c] * x[c]);
            for ((out, &x), kept) in out.iter_mut().zip(x).zip(kept) {
                *kept = cpu.mul_add(*kept, T::of(STRENGTH), T::ONE);
                // s^(−¾)
                *out = x / (*kept * kept.sqrt()).sqrt();
            }
        }
    }

    #[inline(always)]
    pub(super) fn backward<T: Real>(&self, cpu: Cpu, x: &[T], slopes: &[T], memory: &mut Memory<T>, down: &mut [T]) {
        let channels = self.size.channels;
        let Memory { out, kept, sums, .. } = memory;
        let twice = T::of(-2.0 * STRENGTH * POWER);
        for (p, down) in down.chunks_exact_mut(channels).enumerate() {
            let range = p * channels..(p + 1) * channels;
            let (x, slopes, out, kept) = (&x[range.clone()], &slopes[range.clone()], &out[range.clone()], &kept[range]);
            Self::around(channels, sums, down, |c| slopes[c] * out[c] / kept[c]);
            for c in 0..channels {
                let power = (kept[c] * kept[c].sqrt()).sqrt();
                down[c] = cpu.mul_add(twice * x[c], down[c], slopes[c] / power);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layer, testing};
    use super::*;
    use crate::num::dispatch;

    #[test]
    fn six_channels_by_hand() {
        let size = Size { height: 1, width: 1, channels: 6 };
        let x = [3.0, 0.0, 0.0, 0.0, 0.0, 30.0];
        let mut memory = Memory::default();
        dispatch!(|cpu| Response { size }.forward(cpu, &x, &mut memory));
        // The first and the last channel are five apart and do not see each other.
        let wanted = [3.0 * (1.001f64).powf(-0.75), 0.0, 0.0, 0.0, 0.0, 30.0 * (1.1f64).powf(-0.75)];
        assert!(crate::num::distance(&memory.out, &wanted) < 1e-12, "{:?}", memory.out);
    }

    #[test]
    fn slopes_are_those_of_differences() {
        let size = Size { height: 2, width: 2, channels: 7 };
        testing::assert_slopes(&Layer::Response(Response { size }), size.len(), 2);
    }
}
