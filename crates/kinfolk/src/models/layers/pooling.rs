//! Pooling: the largest or the mean of the pixels in a window, channel by channel.

use super::*;

/// What becomes of the pixels of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::models) enum Kind {
    Largest,
    /// The largest, and at least 0: a rectifier and a pool in one.
    Rectified,
    Mean,
}

/// Windows at every so many pixels, cut off where the image ends.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    pub(super) input: Size,
    pub(super) output: Size,
    pub(super) window: [usize; 2],
    pub(super) stride: [usize; 2],
    padding: [usize; 2],
    pub(super) kind: Kind,
}

/// Where the largest was when none was above 0.
const NOWHERE: u32 = u32::MAX;

impl Pool {
    /// Windows of this size at every `stride` pixels; `None` where one that stays inside does not fit, or is too large.
    pub(super) fn new(input: Size, window: usize, stride: usize, padding: Padding, kind: Kind) -> Option<Self> {
        let (height, above) = padding.fit(input.height, window, stride)?;
        let (width, left) = padding.fit(input.width, window, stride)?;
        let output = Size { height, width, ..input };
        Some(Self { input, output, window: [window; 2], stride: [stride; 2], padding: [above, left], kind })
    }

    /// One window over the whole image.
    pub(super) fn global(input: Size, kind: Kind) -> Self {
        let window = [input.height, input.width];
        Self { input, output: Size { height: 1, width: 1, ..input }, window, stride: window, padding: [0; 2], kind }
    }

    /// Where its windows are.
    pub(super) fn described(&self) -> Windows {
        let sizes = |size: Size| [size.height, size.width, size.channels];
        let (input, output) = (sizes(self.input), sizes(self.output));
        Windows { input, output, size: self.window, stride: self.stride, padding: self.padding }
    }

    /// Lines or columns of a window inside the image, and how many of the window are before the first.
    #[inline(always)]
    fn range(&self, axis: usize, index: usize) -> std::ops::Range<usize> {
        let size = [self.input.height, self.input.width][axis];
        let begin = (index * self.stride[axis]).saturating_sub(self.padding[axis]);
        begin..(index * self.stride[axis] + self.window[axis] - self.padding[axis]).min(size)
    }

    /// Goes through the windows of an image: the pixel of the output, and the pixels under it.
    #[inline(always)]
    fn windows(&self) -> impl Iterator<Item = (usize, impl Iterator<Item = usize> + use<'_>, usize)> {
        let (height, width) = (self.output.height, self.output.width);
        (0..height).flat_map(move |i| (0..width).map(move |j| (i, j))).map(move |(i, j)| {
            let (lines, columns) = (self.range(0, i), self.range(1, j));
            let count = lines.len() * columns.len();
            let pixels = lines.flat_map(move |line| columns.clone().map(move |c| line * self.input.width + c));
            (i * width + j, pixels, count)
        })
    }

    #[inline(always)]
    pub(super) fn forward<T: Real>(&self, x: &[T], memory: &mut Memory<T>) {
        let channels = self.input.channels;
        let Memory { out, places, .. } = memory;
        out.resize(x.len() / self.input.len() * self.output.len(), T::ZERO);
        places.resize(if self.kind == Kind::Mean { 0 } else { out.len() }, 0);
        for (n, image) in x.chunks_exact(self.input.len()).enumerate() {
            for (to, pixels, count) in self.windows() {
                let to = n * self.output.len() + to * channels;
                let out = &mut out[to..to + channels];
                let pixels = pixels.map(|pixel| &image[pixel * channels..(pixel + 1) * channels]);
                if self.kind == Kind::Mean {
                    out.fill(T::ZERO);
                    let share = T::ONE / T::of(count as f64);
                    for pixel in pixels {
                        out.iter_mut().zip(pixel).for_each(|(out, &pixel)| *out += share * pixel);
                    }
                    continue;
                }
                let places = &mut places[to..to + channels];
                let (least, nowhere) =
                    if self.kind == Kind::Rectified { (T::ZERO, NOWHERE) } else { (T::of(f64::NEG_INFINITY), 0) };
                out.fill(least);
                places.fill(nowhere);
                for (at, pixel) in pixels.enumerate() {
                    for ((out, place), &pixel) in out.iter_mut().zip(&mut *places).zip(pixel) {
                        let larger = pixel > *out;
                        *out = if larger { pixel } else { *out };
                        *place = if larger { at as u32 } else { *place };
                    }
                }
            }
        }
    }

    #[inline(always)]
    pub(super) fn backward<T: Real>(&self, slopes: &[T], memory: &Memory<T>, down: &mut [T]) {
        let channels = self.input.channels;
        down.fill(T::ZERO);
        for (n, image) in down.chunks_exact_mut(self.input.len()).enumerate() {
            for (from, pixels, count) in self.windows() {
                let from = n * self.output.len() + from * channels;
                let slopes = &slopes[from..from + channels];
                let share = T::ONE / T::of(count as f64);
                for (at, pixel) in pixels.enumerate() {
                    let down = &mut image[pixel * channels..(pixel + 1) * channels];
                    if self.kind == Kind::Mean {
                        down.iter_mut().zip(slopes).for_each(|(down, &slope)| *down += share * slope);
                        continue;
                    }
                    let places = &memory.places[from..from + channels];
                    for ((down, &slope), &place) in down.iter_mut().zip(slopes).zip(places) {
                        *down += if place == at as u32 { slope } else { T::ZERO };
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layer, testing};
    use super::*;

    const SIZE: Size = Size { height: 3, width: 3, channels: 1 };
    const X: [f64; 9] = [1.0, -2.0, 3.0, -4.0, 5.0, -6.0, -7.0, -8.0, -9.0];

    fn outputs(pool: &Pool) -> Vec<f64> {
        let mut memory = Memory::default();
        pool.forward(&X, &mut memory);
        memory.out
    }

    fn pool(window: usize, padding: Padding, kind: Kind) -> Pool {
        Pool::new(SIZE, window, 2, padding, kind).unwrap()
    }

    #[test]
    fn windows_by_hand() {
        assert_eq!(outputs(&pool(2, Padding::Valid, Kind::Largest)), [5.0]);
        assert_eq!(outputs(&pool(2, Padding::Same, Kind::Largest)), [5.0, 3.0, -7.0, -9.0]);
        assert_eq!(outputs(&pool(2, Padding::Same, Kind::Rectified)), [5.0, 3.0, 0.0, 0.0]);
        assert_eq!(outputs(&pool(2, Padding::Same, Kind::Mean)), [0.0, -1.5, -7.5, -9.0]);
        assert_eq!(outputs(&pool(3, Padding::Valid, Kind::Largest)), [5.0]);
        // Of three pixels, three at every second: one is outside on either side.
        assert_eq!(outputs(&pool(3, Padding::Same, Kind::Largest)), [5.0, 5.0, 5.0, 5.0]);
        assert_eq!(outputs(&Pool::global(SIZE, Kind::Mean)), [-3.0]);
        assert!(Pool::new(SIZE, 4, 2, Padding::Valid, Kind::Mean).is_none());
    }

    #[test]
    fn slopes_are_those_of_differences() {
        let input = Size { height: 5, width: 4, channels: 3 };
        for kind in [Kind::Largest, Kind::Rectified, Kind::Mean] {
            for padding in [Padding::Same, Padding::Valid] {
                for window in [2, 3] {
                    let pool = Pool::new(input, window, 2, padding, kind).unwrap();
                    testing::assert_slopes(&Layer::Pool(pool), input.len(), 2);
                }
            }
            testing::assert_slopes(&Layer::Pool(Pool::global(input, kind)), input.len(), 2);
        }
    }
}
