//! Winograd convolution (minimal filtering): fewer products, the same sums.
//!
//! Outputs come in tiles of 4 × 4. With g the kernel and d the inputs under a tile, the tile is
//! Aᵀ·[(G·g·Gᵀ) ⊙ (Bᵀ·d·B)]·A: polynomials are multiplied by their values at 0, ±1, ±2, (±½,) ∞. A 5 × 5 kernel takes
//! 64 products for the 400 of the plain sum, a 3 × 3 kernel 36 for 144. Summed over input channels, the products at each
//! place of the tile are one product of matrices: tiles × inputs with inputs × outputs.
//! The gradients are the adjoints of the same steps, each as cheap as the step.

use super::lanes::{LANES, Lanes, lanes, lanes_mut};
use crate::num::{Cpu, Matrix, Real, dispatch, multiply, multiply_add};

/// Outputs of a tile in each direction.
pub(super) const TILE: usize = 4;

/// Tiles processed together: enough for efficient matrix products, few enough for the cache.
const TILES_AT_ONCE: usize = 128;

/// Distance from one place of the tiles to the next. Powers of two would map them to the same cache lines.
fn stride(tiles: usize, channels: usize) -> usize {
    tiles * channels + 2 * LANES
}

/// The transforms of one kernel size along one axis.
pub(super) trait Winograd {
    const KERNEL: usize;
    /// Inputs under a tile: `KERNEL` + 3.
    const SPAN: usize;
    /// Bᵀ.
    fn input<T: Real>(cpu: Cpu, inputs: &mut [Lanes<T>; 8]);
    /// B.
    fn input_adjoint<T: Real>(cpu: Cpu, values: &mut [Lanes<T>; 8]);
    /// Aᵀ: the first four are the outputs.
    fn output<T: Real>(cpu: Cpu, values: &mut [Lanes<T>; 8]);
    /// A.
    fn output_adjoint<T: Real>(cpu: Cpu, outputs: &mut [Lanes<T>; 8]);
    /// G: a row for every value, a column for every weight of the kernel.
    const KERNELS: [[f64; 5]; 8];
}

/// 3 × 3: values at 0, 1, −1, 2, −2, ∞.
pub(super) struct Kernel3;

/// 5 × 5: values at 0, 1, −1, 2, −2, ½, −½, ∞.
pub(super) struct Kernel5;

impl Winograd for Kernel3 {
    const KERNEL: usize = 3;
    const SPAN: usize = 6;
    const KERNELS: [[f64; 5]; 8] = [
        [1.0 / 4.0, 0.0, 0.0, 0.0, 0.0],
        [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0, 0.0, 0.0],
        [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0, 0.0, 0.0],
        [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0, 0.0, 0.0],
        [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0],
        [0.0; 5],
        [0.0; 5],
    ];

    #[inline(always)]
    fn input<T: Real>(cpu: Cpu, d: &mut [Lanes<T>; 8]) {
        let (even, odd) = (d[2].mul_add(cpu, -4.0, d[4]), d[1].mul_add(cpu, -4.0, d[3]));
        let (far_even, far_odd) = (d[4] - d[2], (d[3] - d[1]) * 2.0);
        d[0] = d[0].mul_add(cpu, 4.0, d[2].mul_add(cpu, -5.0, d[4]));
        d[5] = d[1].mul_add(cpu, 4.0, d[3].mul_add(cpu, -5.0, d[5]));
        (d[1], d[2]) = (even + odd, even - odd);
        (d[3], d[4]) = (far_even + far_odd, far_even - far_odd);
    }

    #[inline(always)]
    fn input_adjoint<T: Real>(cpu: Cpu, v: &mut [Lanes<T>; 8]) {
        let (sum, gap) = (v[1] + v[2], v[1] - v[2]);
        let (far_sum, far_gap) = (v[3] + v[4], (v[3] - v[4]) * 2.0);
        (v[1], v[3]) = (
            gap.mul_add(cpu, -4.0, v[5].mul_add(cpu, 4.0, Lanes::ZERO - far_gap)),
            v[5].mul_add(cpu, -5.0, gap + far_gap),
        );
        (v[2], v[4]) = (v[0].mul_add(cpu, -5.0, sum.mul_add(cpu, -4.0, Lanes::ZERO - far_sum)), v[0] + sum + far_sum);
        v[0] = v[0] * 4.0;
    }

    #[inline(always)]
    fn output<T: Real>(cpu: Cpu, v: &mut [Lanes<T>; 8]) {
        let (sum, gap) = (v[1] + v[2], v[1] - v[2]);
        let (far_sum, far_gap) = (v[3] + v[4], v[3] - v[4]);
        v[0] = v[0] + sum + far_sum;
        v[1] = far_gap.mul_add(cpu, 2.0, gap);
        v[2] = far_sum.mul_add(cpu, 4.0, sum);
        v[3] = far_gap.mul_add(cpu, 8.0, gap) + v[5];
    }

    #[inline(always)]
    fn output_adjoint<T: Real>(cpu: Cpu, y: &mut [Lanes<T>; 8]) {
        let (even, odd) = (y[0] + y[2], y[1] + y[3]);
        let (far_even, far_odd) = (y[2].mul_add(cpu, 4.0, y[0]), y[3].mul_add(cpu, 4.0, y[1]) * 2.0);
        y[5] = y[3];
        (y[1], y[2]) = (even + odd, even - odd);
        (y[3], y[4]) = (far_even + far_odd, far_even - far_odd);
    }
}

impl Winograd for Kernel5 {
    const KERNEL: usize = 5;
    const SPAN: usize = 8;
    const KERNELS: [[f64; 5]; 8] = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [-2.0 / 9.0, -2.0 / 9.0, -2.0 / 9.0, -2.0 / 9.0, -2.0 / 9.0],
        [-2.0 / 9.0, 2.0 / 9.0, -2.0 / 9.0, 2.0 / 9.0, -2.0 / 9.0],
        [1.0 / 90.0, 2.0 / 90.0, 4.0 / 90.0, 8.0 / 90.0, 16.0 / 90.0],
        [1.0 / 90.0, -2.0 / 90.0, 4.0 / 90.0, -8.0 / 90.0, 16.0 / 90.0],
        [32.0 / 45.0, 16.0 / 45.0, 8.0 / 45.0, 4.0 / 45.0, 2.0 / 45.0],
        [32.0 / 45.0, -16.0 / 45.0, 8.0 / 45.0, -4.0 / 45.0, 2.0 / 45.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ];

    #[inline(always)]
    fn input<T: Real>(cpu: Cpu, d: &mut [Lanes<T>; 8]) {
        let near = (d[4].mul_add(cpu, -4.25, d[2] + d[6]), d[3].mul_add(cpu, -4.25, d[1] + d[5]));
        let far = (
            d[4].mul_add(cpu, -1.25, d[2].mul_add(cpu, 0.25, d[6])),
            d[5].mul_add(cpu, 2.0, d[3].mul_add(cpu, -2.5, d[1] * 0.5)),
        );
        let half = (
            d[4].mul_add(cpu, -5.0, d[2].mul_add(cpu, 4.0, d[6])),
            d[5].mul_add(cpu, 0.5, d[3].mul_add(cpu, -2.5, d[1] * 2.0)),
        );
        d[0] = (d[4] - d[2]).mul_add(cpu, 5.25, d[0] - d[6]);
        d[7] = (d[3] - d[5]).mul_add(cpu, 5.25, d[7] - d[1]);
        (d[1], d[2]) = (near.0 + near.1, near.0 - near.1);
        (d[3], d[4]) = (far.0 + far.1, far.0 - far.1);
        (d[5], d[6]) = (half.0 + half.1, half.0 - half.1);
    }

    #[inline(always)]
    fn input_adjoint<T: Real>(cpu: Cpu, v: &mut [Lanes<T>; 8]) {
        let near = (v[1] + v[2], v[1] - v[2]);
        let far = (v[3] + v[4], v[3] - v[4]);
        let half = (v[5] + v[6], v[5] - v[6]);
        v[1] = far.1.mul_add(cpu, 0.5, half.1.mul_add(cpu, 2.0, near.1 - v[7]));
        v[2] = far.0.mul_add(cpu, 0.25, half.0.mul_add(cpu, 4.0, v[0].mul_add(cpu, -5.25, near.0)));
        v[3] = near.1.mul_add(cpu, -4.25, (far.1 + half.1).mul_add(cpu, -2.5, v[7] * 5.25));
        v[4] = near.0.mul_add(cpu, -4.25, far.0.mul_add(cpu, -1.25, half.0.mul_add(cpu, -5.0, v[0] * 5.25)));
        v[5] = far.1.mul_add(cpu, 2.0, half.1.mul_add(cpu, 0.5, v[7].mul_add(cpu, -5.25, near.1)));
        v[6] = near.0 + far.0 + half.0 - v[0];
    }

    #[inline(always)]
    fn output<T: Real>(cpu: Cpu, v: &mut [Lanes<T>; 8]) {
        let near = (v[1] + v[2], v[1] - v[2]);
        let far = (v[3] + v[4], v[3] - v[4]);
        let half = (v[5] + v[6], v[5] - v[6]);
        v[0] = v[0] + near.0 + far.0 + half.0;
        v[1] = far.1.mul_add(cpu, 2.0, half.1.mul_add(cpu, 0.5, near.1));
        v[2] = far.0.mul_add(cpu, 4.0, half.0.mul_add(cpu, 0.25, near.0));
        v[3] = far.1.mul_add(cpu, 8.0, half.1.mul_add(cpu, 0.125, near.1 + v[7]));
    }

    #[inline(always)]
    fn output_adjoint<T: Real>(cpu: Cpu, y: &mut [Lanes<T>; 8]) {
        let near = (y[0] + y[2], y[1] + y[3]);
        let far = (y[2].mul_add(cpu, 4.0, y[0]), y[3].mul_add(cpu, 4.0, y[1]) * 2.0);
        let half = (y[2].mul_add(cpu, 0.25, y[0]), y[3].mul_add(cpu, 0.25, y[1]) * 0.5);
        y[7] = y[3];
        (y[1], y[2]) = (near.0 + near.1, near.0 - near.1);
        (y[3], y[4]) = (far.0 + far.1, far.0 - far.1);
        (y[5], y[6]) = (half.0 + half.1, half.0 - half.1);
    }
}

/// A square of lanes, transformed along both axes.
type Square<T> = [[Lanes<T>; 8]; 8];

/// The four transforms along an axis.
const INPUT: u8 = 0;
const INPUT_ADJOINT: u8 = 1;
const OUTPUT: u8 = 2;
const OUTPUT_ADJOINT: u8 = 3;

/// One of the transforms along one axis, chosen by a constant, because a function passed as an argument would not be inlined.
#[inline(always)]
fn transform_axis<F: Winograd, const TRANSFORM: u8, T: Real>(cpu: Cpu, values: &mut [Lanes<T>; 8]) {
    match TRANSFORM {
        INPUT => F::input(cpu, values),
        INPUT_ADJOINT => F::input_adjoint(cpu, values),
        OUTPUT => F::output(cpu, values),
        _ => F::output_adjoint(cpu, values),
    }
}

/// One of the transforms along both axes, from a square of one size to one of another. `square` holds the intermediate.
#[inline(always)]
fn both_axes<F: Winograd, const TRANSFORM: u8, T: Real>(
    cpu: Cpu,
    square: &mut Square<T>,
    [from, to]: [usize; 2],
    load: impl Fn(usize, usize) -> Lanes<T>,
    mut store: impl FnMut(usize, usize, Lanes<T>),
) {
    for (i, line) in square[..from].iter_mut().enumerate() {
        let mut values = std::array::from_fn(|j| if j < from { load(i, j) } else { Lanes::ZERO });
        transform_axis::<F, TRANSFORM, T>(cpu, &mut values);
        *line = values;
    }
    #[expect(clippy::needless_range_loop, reason = "the square is read column by column")]
    for column in 0..to {
        let mut values: [Lanes<T>; 8] = std::array::from_fn(|line| square[line][column]);
        transform_axis::<F, TRANSFORM, T>(cpu, &mut values);
        for (line, value) in values[..to].iter().enumerate() {
            store(line, column, *value);
        }
    }
}

/// How tiles cover the images of a convolution with stride 1. Channels are multiples of the lanes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiling {
    /// Height and width of the inputs.
    pub(super) input: [usize; 2],
    /// Height and width of the outputs.
    pub(super) output: [usize; 2],
    /// Channels in and out.
    pub(super) channels: [usize; 2],
    /// Rows of zero padding above the inputs, and columns to their left.
    pub(super) padding: usize,
}

#[derive(Default)]
pub(super) struct Buffers<T> {
    /// One image with its zero padding.
    padded: Vec<T>,
    /// The transformed inputs, place by place: tiles × channels.
    inputs: Vec<T>,
    /// The outputs before their transform.
    outputs: Vec<T>,
    /// Gradients of the transformed kernels.
    kernels: Vec<T>,
}

impl Tiling {
    fn tiles(&self) -> [usize; 2] {
        self.output.map(|size| size.div_ceil(TILE))
    }

    fn tiles_of_image(&self) -> usize {
        self.tiles().iter().product()
    }

    fn images_at_once(&self) -> usize {
        (TILES_AT_ONCE / self.tiles_of_image()).max(1)
    }

    /// Rows and columns of an image with its padding.
    fn padded_size<F: Winograd>(&self) -> [usize; 2] {
        let tiles = self.tiles();
        std::array::from_fn(|axis| (tiles[axis] * TILE + F::KERNEL - 1).max(self.input[axis] + self.padding))
    }

    /// Size of all transformed kernels.
    pub(super) fn kernel_values<F: Winograd>(&self) -> usize {
        F::SPAN * F::SPAN * self.channels[0] * self.channels[1]
    }

    // Plain loops here and below: `fold` would not be inlined, and so not compiled for the CPU.

    /// The transformed kernels, G·g·Gᵀ, for weights ordered row, column, input, output.
    #[inline(always)]
    pub(super) fn transform_kernels<F: Winograd, T: Real>(&self, cpu: Cpu, weight: &[T], out: &mut [T]) {
        let pairs = self.channels[0] * self.channels[1] / LANES;
        let (weight, out) = (lanes(weight), lanes_mut(out));
        for pair in 0..pairs {
            let mut half = [[Lanes::ZERO; 8]; 8];
            for (value, line) in half[..F::SPAN].iter_mut().enumerate() {
                for (column, sum) in line[..F::KERNEL].iter_mut().enumerate() {
                    for (k, &factor) in F::KERNELS[value][..F::KERNEL].iter().enumerate() {
                        *sum = Lanes(weight[(k * F::KERNEL + column) * pairs + pair]).mul_add(cpu, factor, *sum);
                    }
                }
            }
            for (i, line) in half[..F::SPAN].iter().enumerate() {
                for j in 0..F::SPAN {
                    let mut sum = Lanes::ZERO;
                    for (value, &factor) in line[..F::KERNEL].iter().zip(&F::KERNELS[j]) {
                        sum = value.mul_add(cpu, factor, sum);
                    }
                    out[(i * F::SPAN + j) * pairs + pair] = sum.0;
                }
            }
        }
    }

    /// The gradient of the weights from that of the transformed kernels: the adjoint of [`Tiling::transform_kernels`].
    #[inline(always)]
    fn adjoint_of_kernels<F: Winograd, T: Real>(&self, cpu: Cpu, values: &[T], weight: &mut [T]) {
        let pairs = self.channels[0] * self.channels[1] / LANES;
        let (values, weight) = (lanes(values), lanes_mut(weight));
        for pair in 0..pairs {
            let mut half = [[Lanes::ZERO; 8]; 8];
            for i in 0..F::SPAN {
                for j in 0..F::SPAN {
                    let value = Lanes(values[(i * F::SPAN + j) * pairs + pair]);
                    for (sum, &factor) in half[i][..F::KERNEL].iter_mut().zip(&F::KERNELS[j]) {
                        *sum = value.mul_add(cpu, factor, *sum);
                    }
                }
            }
            for line in 0..F::KERNEL {
                for column in 0..F::KERNEL {
                    let mut sum = Lanes::ZERO;
                    for (half, factors) in half[..F::SPAN].iter().zip(&F::KERNELS) {
                        sum = half[column].mul_add(cpu, factors[line], sum);
                    }
                    weight[(line * F::KERNEL + column) * pairs + pair] = sum.0;
                }
            }
        }
    }

    /// Bᵀ·d·B of every tile of some images.
    #[inline(always)]
    fn transform_inputs<F: Winograd, T: Real>(&self, cpu: Cpu, x: &[T], padded: &mut Vec<T>, out: &mut Vec<T>) {
        let mut square = [[Lanes::ZERO; 8]; 8];
        let channels = self.channels[0];
        let [height, width] = self.padded_size::<F>();
        let blocks = channels / LANES;
        let image_size = self.input[0] * self.input[1] * channels;
        let places = F::SPAN * F::SPAN;
        out.resize(places * stride(x.len() / image_size * self.tiles_of_image(), channels), T::ZERO);
        let out = lanes_mut(out);
        let stride = out.len() / places;
        padded.clear();
        padded.resize(height * width * channels, T::ZERO);
        let mut to = 0;
        for image in x.chunks_exact(image_size) {
            for (line, pixels) in image.chunks_exact(self.input[1] * channels).enumerate() {
                let begin = ((line + self.padding) * width + self.padding) * channels;
                padded[begin..begin + pixels.len()].copy_from_slice(pixels);
            }
            let padded = lanes(padded);
            for [down, right] in self.origins() {
                for block in 0..blocks {
                    both_axes::<F, INPUT, T>(
                        cpu,
                        &mut square,
                        [F::SPAN, F::SPAN],
                        |i, j| Lanes(padded[((down + i) * width + right + j) * blocks + block]),
                        |i, j, value| out[(i * F::SPAN + j) * stride + to] = value.0,
                    );
                    to += 1;
                }
            }
        }
    }

    /// Adds up B·v·Bᵀ of every tile: the adjoint of [`Tiling::transform_inputs`].
    #[inline(always)]
    fn adjoint_of_inputs<F: Winograd, T: Real>(&self, cpu: Cpu, values: &[T], padded: &mut Vec<T>, x: &mut [T]) {
        let mut square = [[Lanes::ZERO; 8]; 8];
        let channels = self.channels[0];
        let [height, width] = self.padded_size::<F>();
        let blocks = channels / LANES;
        let values = lanes(values);
        let stride = values.len() / (F::SPAN * F::SPAN);
        let mut from = 0;
        for image in x.chunks_exact_mut(self.input[0] * self.input[1] * channels) {
            padded.clear();
            padded.resize(height * width * channels, T::ZERO);
            let sums = lanes_mut(padded);
            for [down, right] in self.origins() {
                for block in 0..blocks {
                    both_axes::<F, INPUT_ADJOINT, T>(
                        cpu,
                        &mut square,
                        [F::SPAN, F::SPAN],
                        |i, j| Lanes(values[(i * F::SPAN + j) * stride + from]),
                        |i, j, value| {
                            let sum = &mut sums[((down + i) * width + right + j) * blocks + block];
                            *sum = (Lanes(*sum) + value).0;
                        },
                    );
                    from += 1;
                }
            }
            for (line, pixels) in image.chunks_exact_mut(self.input[1] * channels).enumerate() {
                let begin = ((line + self.padding) * width + self.padding) * channels;
                pixels.copy_from_slice(&padded[begin..begin + pixels.len()]);
            }
        }
    }

    /// Where the tiles of an image begin.
    fn origins(&self) -> impl Iterator<Item = [usize; 2]> {
        let [down, right] = self.tiles();
        (0..down).flat_map(move |i| (0..right).map(move |j| [i * TILE, j * TILE]))
    }

    /// Aᵀ·v·A of every tile, with a bias.
    #[inline(always)]
    fn transform_outputs<F: Winograd, T: Real>(&self, cpu: Cpu, values: &[T], bias: &[T], out: &mut [T]) {
        let mut square = [[Lanes::ZERO; 8]; 8];
        let channels = self.channels[1];
        let [height, width] = self.output;
        let blocks = channels / LANES;
        let (values, bias) = (lanes(values), lanes(bias));
        let stride = values.len() / (F::SPAN * F::SPAN);
        let mut from = 0;
        for image in out.chunks_exact_mut(height * width * channels) {
            let image = lanes_mut(image);
            for [down, right] in self.origins() {
                for block in 0..blocks {
                    let shift = bias.get(block).map_or(Lanes::ZERO, |&bias| Lanes(bias));
                    both_axes::<F, OUTPUT, T>(
                        cpu,
                        &mut square,
                        [F::SPAN, TILE],
                        |i, j| Lanes(values[(i * F::SPAN + j) * stride + from]),
                        |i, j, value| {
                            if down + i < height && right + j < width {
                                image[((down + i) * width + right + j) * blocks + block] = (value + shift).0;
                            }
                        },
                    );
                    from += 1;
                }
            }
        }
    }

    /// A·y·Aᵀ of every tile: the adjoint of [`Tiling::transform_outputs`].
    #[inline(always)]
    fn adjoint_of_outputs<F: Winograd, T: Real>(&self, cpu: Cpu, slopes: &[T], out: &mut Vec<T>) {
        let mut square = [[Lanes::ZERO; 8]; 8];
        let channels = self.channels[1];
        let [height, width] = self.output;
        let blocks = channels / LANES;
        let image_size = height * width * channels;
        let places = F::SPAN * F::SPAN;
        out.resize(places * stride(slopes.len() / image_size * self.tiles_of_image(), channels), T::ZERO);
        let out = lanes_mut(out);
        let stride = out.len() / places;
        let mut to = 0;
        for image in slopes.chunks_exact(image_size) {
            let image = lanes(image);
            for [down, right] in self.origins() {
                for block in 0..blocks {
                    both_axes::<F, OUTPUT_ADJOINT, T>(
                        cpu,
                        &mut square,
                        [TILE, F::SPAN],
                        |i, j| {
                            let inside = down + i < height && right + j < width;
                            let at = ((down + i) * width + right + j) * blocks + block;
                            if inside { Lanes(image[at]) } else { Lanes::ZERO }
                        },
                        |i, j, value| out[(i * F::SPAN + j) * stride + to] = value.0,
                    );
                    to += 1;
                }
            }
        }
    }

    /// The outputs of some images, given the transformed kernels.
    pub(super) fn forward<F: Winograd, T: Real>(
        &self,
        kernels: &[T],
        bias: &[T],
        x: &[T],
        buffers: &mut Buffers<T>,
        out: &mut [T],
    ) {
        let [from, to] = self.channels;
        let (in_size, out_size) = (self.input[0] * self.input[1] * from, self.output[0] * self.output[1] * to);
        let group = self.images_at_once();
        for (x, out) in x.chunks(group * in_size).zip(out.chunks_mut(group * out_size)) {
            let tiles = x.len() / in_size * self.tiles_of_image();
            dispatch!(|cpu| self.transform_inputs::<F, T>(cpu, x, &mut buffers.padded, &mut buffers.inputs));
            buffers.outputs.resize(F::SPAN * F::SPAN * stride(tiles, to), T::ZERO);
            let places = buffers.inputs.chunks_exact(stride(tiles, from)).zip(kernels.chunks_exact(from * to));
            for ((x, kernel), out) in places.zip(buffers.outputs.chunks_exact_mut(stride(tiles, to))) {
                let x = Matrix::new(&x[..tiles * from], tiles, from);
                multiply(&mut out[..tiles * to], T::ONE, x, Matrix::new(kernel, from, to));
            }
            dispatch!(|cpu| self.transform_outputs::<F, T>(cpu, &buffers.outputs, bias, out));
        }
    }

    /// The gradient of the weights, and that of the inputs where it is wanted.
    pub(super) fn backward<F: Winograd, T: Real>(
        &self,
        kernels: &[T],
        x: &[T],
        slopes: &[T],
        buffers: &mut Buffers<T>,
        gradient: &mut [T],
        mut down: Option<&mut [T]>,
    ) {
        let [from, to] = self.channels;
        let (in_size, out_size) = (self.input[0] * self.input[1] * from, self.output[0] * self.output[1] * to);
        let group = self.images_at_once();
        let Buffers { padded, inputs, outputs, kernels: sums } = buffers;
        sums.clear();
        sums.resize(kernels.len(), T::ZERO);
        for (g, (x, slopes)) in x.chunks(group * in_size).zip(slopes.chunks(group * out_size)).enumerate() {
            let tiles = x.len() / in_size * self.tiles_of_image();
            dispatch!(|cpu| self.transform_inputs::<F, T>(cpu, x, padded, inputs));
            dispatch!(|cpu| self.adjoint_of_outputs::<F, T>(cpu, slopes, outputs));
            let places = inputs.chunks_exact_mut(stride(tiles, from)).zip(outputs.chunks_exact(stride(tiles, to)));
            for (place, (x, slopes)) in places.enumerate() {
                let range = place * from * to..(place + 1) * from * to;
                let (x, slopes) = (&mut x[..tiles * from], Matrix::new(&slopes[..tiles * to], tiles, to));
                multiply_add(&mut sums[range.clone()], T::ONE, Matrix::new(x, tiles, from).transpose(), slopes);
                if down.is_some() {
                    multiply(x, T::ONE, slopes, Matrix::new(&kernels[range], from, to).transpose());
                }
            }
            if let Some(down) = &mut down {
                let begin = g * group * in_size;
                dispatch!(|cpu| self.adjoint_of_inputs::<F, T>(cpu, inputs, padded, &mut down[begin..begin + x.len()]));
            }
        }
        dispatch!(|cpu| self.adjoint_of_kernels::<F, T>(cpu, sums, gradient));
    }
}
