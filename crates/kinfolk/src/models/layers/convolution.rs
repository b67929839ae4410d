//! Convolution of images in channels-last order (row, column, channel).
//!
//! Weights are ordered row, column, input, output, as in TensorFlow, so that products with patches of the images need no
//! transpose. 3 × 3 and 5 × 5 kernels of stride 1 use Winograd convolution where channels are multiples of the lanes.

use super::lanes::LANES;
use super::winograd::{Kernel3, Kernel5, Tiling, Winograd};
use super::*;

/// What is around an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Zero padding, for ⌈inputs / stride⌉ outputs; an odd row or column goes below or to the right.
    Same,
    /// No padding.
    Valid,
}

impl Padding {
    /// Number of outputs, and padding before the first input, along one axis; `None` where the kernel does not fit.
    pub(super) fn fit(self, size: usize, kernel: usize, stride: usize) -> Option<(usize, usize)> {
        match self {
            Padding::Same => {
                let outputs = size.div_ceil(stride);
                Some((outputs, ((outputs - 1) * stride + kernel).saturating_sub(size) / 2))
            }
            Padding::Valid => Some((size.checked_sub(kernel)? / stride + 1, 0)),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Convolution {
    pub(super) input: Size,
    pub(super) output: Size,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    /// Rows of zero padding above, and columns to the left.
    pub(super) padding: [usize; 2],
    pub(super) weight: Place,
    /// Empty where there is none.
    pub(super) bias: Place,
    /// Whether Winograd convolution is allowed; tests compare with it off.
    pub(super) winograd: bool,
}

/// Size of the patches processed together.
const PATCH_NUMBERS_AT_ONCE: usize = 1 << 16;

impl Convolution {
    fn tiling(&self) -> Tiling {
        Tiling {
            input: [self.input.height, self.input.width],
            output: [self.output.height, self.output.width],
            channels: [self.input.channels, self.output.channels],
            padding: self.padding[0],
        }
    }

    fn uses_winograd(&self) -> bool {
        let blocks = self.input.channels.is_multiple_of(LANES) && self.output.channels.is_multiple_of(LANES);
        self.winograd
            && blocks
            && self.stride == 1
            && matches!(self.kernel, 3 | 5)
            && self.padding[0] == self.padding[1]
    }

    pub(super) fn forward<T: Real>(&self, params: &[T], x: &[T], memory: &mut Memory<T>, work: &mut Work<T>) {
        let Memory { out, kept, .. } = memory;
        out.resize(x.len() / self.input.len() * self.output.len(), T::ZERO);
        let (weight, bias) = (&params[self.weight.clone()], &params[self.bias.clone()]);
        match self.kernel {
            3 if self.uses_winograd() => self.forward_winograd::<Kernel3, T>(weight, bias, x, kept, work, out),
            5 if self.uses_winograd() => self.forward_winograd::<Kernel5, T>(weight, bias, x, kept, work, out),
            _ => self.forward_by_patches(weight, bias, x, work, out),
        }
    }

    pub(super) fn backward<T: Real>(&self, at: Backward<T>, memory: &mut Memory<T>, down: Option<&mut [T]>) {
        let Backward { params, x, slopes, work, gradient } = at;
        if !self.bias.is_empty() {
            let bias = &mut gradient[self.bias.clone()];
            bias.fill(T::ZERO);
            slopes.chunks_exact(bias.len()).for_each(|slope| add_scaled(bias, T::ONE, slope));
        }
        let (tiling, weight) = (self.tiling(), &mut gradient[self.weight.clone()]);
        let Work { winograd: buffers, .. } = work;
        match self.kernel {
            3 if self.uses_winograd() => tiling.backward::<Kernel3, T>(&memory.kept, x, slopes, buffers, weight, down),
            5 if self.uses_winograd() => tiling.backward::<Kernel5, T>(&memory.kept, x, slopes, buffers, weight, down),
            _ => self.backward_by_patches(&params[self.weight.clone()], x, slopes, work, weight, down),
        }
    }

    fn forward_winograd<F: Winograd, T: Real>(
        &self,
        weight: &[T],
        bias: &[T],
        x: &[T],
        kernels: &mut Vec<T>,
        work: &mut Work<T>,
        out: &mut [T],
    ) {
        let tiling = self.tiling();
        kernels.resize(tiling.kernel_values::<F>(), T::ZERO);
        dispatch!(|cpu| tiling.transform_kernels::<F, T>(cpu, weight, kernels));
        tiling.forward::<F, T>(kernels, bias, x, &mut work.winograd, out);
    }

    /// Inputs under a kernel.
    fn patch(&self) -> usize {
        self.kernel * self.kernel * self.input.channels
    }

    /// Output pixels of an image, and images processed together.
    fn group(&self) -> (usize, usize) {
        let pixels = self.output.height * self.output.width;
        (pixels, (PATCH_NUMBERS_AT_ONCE / (pixels * self.patch())).max(1))
    }

    fn forward_by_patches<T: Real>(&self, weight: &[T], bias: &[T], x: &[T], work: &mut Work<T>, out: &mut [T]) {
        let (pixels, group) = self.group();
        let channels = self.output.channels;
        let weight = Matrix::new(weight, self.patch(), channels);
        for (x, out) in x.chunks(group * self.input.len()).zip(out.chunks_mut(group * self.output.len())) {
            let count = x.len() / self.input.len() * pixels;
            self.im2col(x, &mut work.patches);
            let patches = Matrix::new(&work.patches, count, self.patch());
            if bias.is_empty() {
                multiply(out, T::ONE, patches, weight);
            } else {
                out.chunks_exact_mut(channels).for_each(|out| out.copy_from_slice(bias));
                multiply_add(out, T::ONE, patches, weight);
            }
        }
    }

    fn backward_by_patches<T: Real>(
        &self,
        weight: &[T],
        x: &[T],
        slopes: &[T],
        work: &mut Work<T>,
        gradient: &mut [T],
        mut down: Option<&mut [T]>,
    ) {
        let (pixels, group) = self.group();
        let channels = self.output.channels;
        gradient.fill(T::ZERO);
        let groups = x.chunks(group * self.input.len()).zip(slopes.chunks(group * self.output.len()));
        for (g, (x, slopes)) in groups.enumerate() {
            let count = x.len() / self.input.len() * pixels;
            self.im2col(x, &mut work.patches);
            let slopes = Matrix::new(slopes, count, channels);
            multiply_add(gradient, T::ONE, Matrix::new(&work.patches, count, self.patch()).transpose(), slopes);
            if let Some(down) = &mut down {
                multiply(&mut work.patches, T::ONE, slopes, Matrix::new(weight, self.patch(), channels).transpose());
                let begin = g * group * self.input.len();
                dispatch!(|_| self.col2im(&work.patches, &mut down[begin..begin + x.len()]));
            }
        }
    }

    /// The inputs under the kernel of every output (im2col), 0 outside the image.
    fn im2col<T: Real>(&self, x: &[T], patches: &mut Vec<T>) {
        let channels = self.input.channels;
        let line = self.kernel * channels;
        let images = x.len() / self.input.len();
        patches.resize(images * self.output.height * self.output.width * self.patch(), T::ZERO);
        let mut lines = patches.chunks_exact_mut(line);
        for image in x.chunks_exact(self.input.len()) {
            self.lines(|from, kept| {
                let Some(out) = lines.next() else { return };
                if kept.is_empty() {
                    return out.fill(T::ZERO);
                }
                let (begin, end) = (kept.start * channels, kept.end * channels);
                if kept.len() < self.kernel {
                    out[..begin].fill(T::ZERO);
                    out[end..].fill(T::ZERO);
                }
                let from = from * channels;
                out[begin..end].copy_from_slice(&image[from..from + end - begin]);
            });
        }
    }

    /// Adds patches up where they came from: the adjoint of [`Convolution::im2col`].
    #[inline(always)]
    fn col2im<T: Real>(&self, patches: &[T], x: &mut [T]) {
        let channels = self.input.channels;
        let mut lines = patches.chunks_exact(self.kernel * channels);
        x.fill(T::ZERO);
        for image in x.chunks_exact_mut(self.input.len()) {
            self.lines(|from, kept| {
                let Some(line) = lines.next() else { return };
                let (begin, end) = (kept.start * channels, kept.end * channels);
                let from = from * channels;
                add_scaled(&mut image[from..from + end - begin], T::ONE, &line[begin..end]);
            });
        }
    }

    /// Visits the rows of every patch: the first pixel inside the image, and the part of the kernel's row inside.
    #[inline(always)]
    fn lines(&self, mut each: impl FnMut(usize, std::ops::Range<usize>)) {
        let Size { height, width, .. } = self.input;
        for down in 0..self.output.height {
            for right in 0..self.output.width {
                let left = (right * self.stride) as isize - self.padding[1] as isize;
                let begin = (-left).clamp(0, self.kernel as isize) as usize;
                let end = (width as isize - left).clamp(begin as isize, self.kernel as isize) as usize;
                for k in 0..self.kernel {
                    match (down * self.stride + k).checked_sub(self.padding[0]) {
                        Some(line) if line < height => {
                            each((line * width) + (left + begin as isize).max(0) as usize, begin..end);
                        }
                        _ => each(0, 0..0),
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

    fn convolution(size: [usize; 3], kernel: usize, stride: usize, padding: Padding, outputs: usize) -> Convolution {
        let [height, width, channels] = size;
        let (down, above) = padding.fit(height, kernel, stride).unwrap();
        let (right, left) = padding.fit(width, kernel, stride).unwrap();
        let weights = kernel * kernel * channels * outputs;
        Convolution {
            input: Size { height, width, channels },
            output: Size { height: down, width: right, channels: outputs },
            kernel,
            stride,
            padding: [above, left],
            weight: 0..weights,
            bias: weights..weights + outputs,
            winograd: true,
        }
    }

    fn outputs(convolution: &Convolution, params: &[f64], x: &[f64]) -> Vec<f64> {
        let mut memory = Memory::default();
        convolution.forward(params, x, &mut memory, &mut Work::default());
        memory.out
    }

    #[test]
    fn borders_by_hand() {
        // 1 2 3 / 4 5 6 / 7 8 9, and the sum under 2 × 2 or 3 × 3 ones, plus ½.
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        let ones = |kernel: usize| [vec![1.0; kernel * kernel], vec![0.5]].concat();
        let valid = convolution([3, 3, 1], 2, 1, Padding::Valid, 1);
        assert_eq!(outputs(&valid, &ones(2), &x), [12.5, 16.5, 24.5, 28.5]);
        let same = convolution([3, 3, 1], 3, 1, Padding::Same, 1);
        assert_eq!(outputs(&same, &ones(3), &x), [12.5, 21.5, 16.5, 27.5, 45.5, 33.5, 24.5, 39.5, 28.5]);
        let strided = convolution([3, 3, 1], 3, 2, Padding::Same, 1);
        assert_eq!(outputs(&strided, &ones(3), &x), [12.5, 16.5, 24.5, 28.5]);
        // An even kernel begins at the pixel itself: black comes in from the right and from below.
        let even = convolution([3, 3, 1], 2, 1, Padding::Same, 1);
        assert_eq!(outputs(&even, &ones(2), &x), [12.5, 16.5, 9.5, 24.5, 28.5, 15.5, 15.5, 17.5, 9.5]);
        assert_eq!(Padding::Valid.fit(2, 3, 1), None);
    }

    #[test]
    fn channels_by_hand() {
        // One pixel of two channels, 1 × 1 kernels: a product with a 2 × 3 matrix.
        let layer = convolution([1, 1, 2], 1, 1, Padding::Valid, 3);
        let params = [1.0, 2.0, 3.0, 10.0, 20.0, 30.0, 0.0, 0.0, 1.0];
        assert_eq!(outputs(&layer, &params, &[1.0, 2.0]), [21.0, 42.0, 64.0]);
    }

    #[test]
    fn slopes_are_those_of_differences() {
        for (size, kernel, stride, padding, outputs) in [
            ([4, 5, 2], 3, 1, Padding::Same, 3),
            ([5, 4, 1], 2, 1, Padding::Same, 2),
            ([5, 6, 2], 3, 2, Padding::Same, 2),
            ([6, 6, 1], 5, 2, Padding::Valid, 2),
            ([5, 4, 8], 3, 1, Padding::Same, 8),
            ([5, 6, 8], 5, 1, Padding::Valid, 8),
            ([3, 2, 8], 5, 1, Padding::Same, 16),
        ] {
            let layer = convolution(size, kernel, stride, padding, outputs);
            testing::assert_slopes(&Layer::Convolution(layer), size.iter().product(), 2);
        }
    }

    #[test]
    fn winograd_convolution_is_convolution() {
        for (size, kernel, padding) in [
            ([9, 6, 8], 3, Padding::Same),
            ([9, 6, 8], 3, Padding::Valid),
            ([14, 7, 8], 5, Padding::Same),
            ([12, 9, 16], 5, Padding::Valid),
            ([1, 2, 8], 5, Padding::Same),
        ] {
            let fast = convolution(size, kernel, 1, padding, 16);
            assert!(fast.uses_winograd());
            let plain = Convolution { winograd: false, ..fast.clone() };
            let params = testing::numbers("params", fast.bias.end);
            // Three groups of images, the last one smaller.
            let x = testing::numbers("x", size.iter().product::<usize>() * 300);
            let (found, wanted) = (outputs(&fast, &params, &x), outputs(&plain, &params, &x));
            assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-12));
            let rounded = |values: &[f64]| -> Vec<f32> { values.iter().map(|&value| value as f32).collect() };
            let mut memory = Memory::default();
            fast.forward(&rounded(&params), &rounded(&x), &mut memory, &mut Work::default());
            let worst = memory.out.iter().zip(&wanted).map(|(&a, b)| (f64::from(a) - b).abs()).fold(0.0, f64::max);
            let largest = wanted.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
            assert!(worst < 2e-5 * largest, "{worst} of {largest}");
        }
    }
}
