//! Networks of images as layers one after the other, and what all layers share.

mod convolution;
mod dense;
mod dropout;
mod lanes;
mod normalisation;
mod pooling;
mod response;
#[cfg(test)]
mod testing;
mod winograd;

use super::architecture::{Part, PoolKind, Windows};
use super::trainer::{Network, Pass};
use super::{Layout, TensorPlace};
use crate::error::{Error, Result};
use crate::num::{Cpu, Matrix, Real, add_scaled, dispatch, multiply, multiply_add};
use crate::rng::Rng;
use convolution::Convolution;
pub use convolution::Padding;
use dense::Dense;
use dropout::Dropout;
use normalisation::Normalisation;
pub(super) use pooling::Kind as Pooled;
use pooling::{Kind, Pool};
use rand::RngExt;
use response::Response;
use winograd::Buffers;

/// Where a tensor lies among the parameters.
type Place = std::ops::Range<usize>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

impl Size {
    fn len(self) -> usize {
        self.height * self.width * self.channels
    }
}

/// One step of a network.
#[derive(Debug, Clone)]
enum Layer {
    Convolution(Convolution),
    Normalisation(Normalisation),
    Response(Response),
    Pool(Pool),
    Dense(Dense),
    Dropout(Dropout),
    Rectifier,
    Scale(f64),
    /// The input plus the output of these.
    Residual(Vec<Layer>),
}

/// What a layer keeps between forward and backward.
#[derive(Default)]
struct Memory<T> {
    out: Vec<T>,
    kept: Vec<T>,
    sums: Vec<T>,
    slopes: Vec<T>,
    places: Vec<u32>,
    inner: Option<Box<Chain<T>>>,
}

/// The memory of consecutive layers.
#[derive(Default)]
struct Chain<T> {
    layers: Vec<Memory<T>>,
    /// Gradients with respect to a layer's outputs and inputs, swapped from layer to layer.
    above: Vec<T>,
    below: Vec<T>,
}

/// Buffers shared by all layers, valid within one call.
#[derive(Default)]
struct Work<T> {
    winograd: Buffers<T>,
    patches: Vec<T>,
    sums: Vec<T>,
}

/// What a layer goes backward with: what it went forward with, and the slopes of its outputs.
struct Backward<'a, T> {
    params: &'a [T],
    x: &'a [T],
    slopes: &'a [T],
    work: &'a mut Work<T>,
    gradient: &'a mut [T],
}

impl Layer {
    fn forward<T: Real>(&self, params: &[T], x: &[T], pass: &mut Pass, memory: &mut Memory<T>, work: &mut Work<T>) {
        match self {
            Layer::Convolution(layer) => layer.forward(params, x, memory, work),
            Layer::Normalisation(layer) => {
                let trains = matches!(pass, Pass::Train(_));
                dispatch!(|_| layer.forward(params, x, trains, memory));
            }
            Layer::Response(layer) => dispatch!(|cpu| layer.forward(cpu, x, memory)),
            Layer::Pool(layer) => dispatch!(|_| layer.forward(x, memory)),
            Layer::Dense(layer) => layer.forward(params, x, memory),
            Layer::Dropout(layer) => match pass {
                Pass::Train(Some(rng)) => layer.forward(x, Some(rng), memory),
                _ => layer.forward(x, None, memory),
            },
            Layer::Rectifier => {
                memory.out.clear();
                memory.out.extend(x.iter().map(|&x| if x > T::ZERO { x } else { T::ZERO }));
            }
            Layer::Scale(factor) => {
                memory.out.clear();
                memory.out.extend(x.iter().map(|&x| x * T::of(*factor)));
            }
            Layer::Residual(layers) => {
                let chain = memory.inner.get_or_insert_default();
                let out = chain.forward(layers, params, x, pass, work);
                memory.out.clear();
                memory.out.extend(x.iter().zip(out).map(|(&x, &out)| x + out));
            }
        }
    }

    /// Gradients of all parameters but the weights of dense layers, and the slopes of the inputs where they are wanted.
    fn backward<T: Real>(&self, at: Backward<T>, memory: &mut Memory<T>, down: Option<&mut [T]>) {
        let (x, slopes) = (at.x, at.slopes);
        match (self, down) {
            (Layer::Convolution(layer), down) => layer.backward(at, memory, down),
            (Layer::Dense(layer), down) => layer.backward(at, memory, down),
            (Layer::Normalisation(layer), Some(down)) => {
                let Backward { params, work, gradient, .. } = at;
                dispatch!(|_| layer.backward(params, x, slopes, memory, work, gradient, down));
            }
            (Layer::Response(layer), Some(down)) => dispatch!(|cpu| layer.backward(cpu, x, slopes, memory, down)),
            (Layer::Pool(layer), Some(down)) => dispatch!(|_| layer.backward(slopes, memory, down)),
            (Layer::Dropout(layer), Some(down)) => layer.backward(slopes, memory, down),
            (Layer::Rectifier, Some(down)) => {
                for ((down, &slope), &x) in down.iter_mut().zip(slopes).zip(x) {
                    *down = if x > T::ZERO { slope } else { T::ZERO };
                }
            }
            (Layer::Scale(factor), Some(down)) => {
                down.iter_mut().zip(slopes).for_each(|(down, &slope)| *down = slope * T::of(*factor));
            }
            (Layer::Residual(layers), Some(down)) => {
                let chain = memory.inner.get_or_insert_default();
                chain.backward(layers, at, true);
                down.iter_mut().zip(slopes.iter().zip(&chain.above)).for_each(|(down, (&a, &b))| *down = a + b);
            }
            (_, None) => unreachable!("networks begin with a layer that has weights"),
        }
    }
}

impl<T: Real> Chain<T> {
    fn forward(&mut self, layers: &[Layer], params: &[T], x: &[T], pass: &mut Pass, work: &mut Work<T>) -> &[T] {
        self.layers.resize_with(layers.len(), Memory::default);
        for (l, layer) in layers.iter().enumerate() {
            let (before, own) = self.layers.split_at_mut(l);
            let x = before.last().map_or(x, |memory| &memory.out);
            layer.forward(params, x, pass, &mut own[0], work);
        }
        self.layers.last().map_or(&[], |memory| &memory.out)
    }

    /// Slopes of the inputs, where they are wanted, end in `above`.
    fn backward(&mut self, layers: &[Layer], at: Backward<T>, wanted: bool) {
        self.above.clear();
        self.above.extend_from_slice(at.slopes);
        for (l, layer) in layers.iter().enumerate().rev() {
            let (before, own) = self.layers.split_at_mut(l);
            let x = before.last().map_or(at.x, |memory| &memory.out);
            let down = (l > 0 || wanted).then(|| {
                self.below.resize(x.len(), T::ZERO);
                &mut self.below[..]
            });
            let slopes = &self.above[..];
            let at = Backward { x, slopes, params: at.params, work: &mut *at.work, gradient: &mut *at.gradient };
            layer.backward(at, &mut own[0], down);
            std::mem::swap(&mut self.above, &mut self.below);
        }
    }

    fn update_statistics(&self, layers: &[Layer], learned: usize, statistics: &mut [T]) {
        for (layer, memory) in layers.iter().zip(&self.layers) {
            match (layer, &memory.inner) {
                (Layer::Normalisation(layer), _) => layer.update_statistics(memory, learned, statistics),
                (Layer::Residual(layers), Some(inner)) => inner.update_statistics(layers, learned, statistics),
                _ => {}
            }
        }
    }
}

/// Layers one after the other, from an image to a score for every class.
#[derive(Debug)]
pub(super) struct Sequence {
    layout: Layout,
    learned: usize,
    starts: Vec<Start>,
    layers: Vec<Layer>,
    input: Size,
    outputs: usize,
}

/// Initial values of a tensor.
#[derive(Debug, Clone, Copy)]
enum Start {
    /// Uniform on ± this bound.
    Uniform(f64),
    Value(f64),
}

#[derive(Default)]
pub(super) struct SequenceMemory<T> {
    /// The images, channels last.
    input: Vec<T>,
    chain: Chain<T>,
    work: Work<T>,
}

impl Sequence {
    /// Dense layers, with the inputs of each.
    fn dense<'a, T: Real>(
        &'a self,
        x: &'a [T],
        chain: &'a Chain<T>,
    ) -> impl Iterator<Item = (&'a Dense, &'a [T], &'a Memory<T>)> {
        self.layers.iter().enumerate().filter_map(move |(l, layer)| match layer {
            Layer::Dense(dense) => {
                let x = if l == 0 { x } else { &chain.layers[l - 1].out };
                Some((dense, x, &chain.layers[l]))
            }
            _ => None,
        })
    }
}

/// Channels-first images to channels-last.
fn channels_last<T: Real>(x: &[T], size: Size, out: &mut Vec<T>) {
    let pixels = size.height * size.width;
    out.resize(x.len(), T::ZERO);
    for (image, out) in x.chunks_exact(size.len()).zip(out.chunks_exact_mut(size.len())) {
        for (c, plane) in image.chunks_exact(pixels).enumerate() {
            out[c..].iter_mut().step_by(size.channels).zip(plane).for_each(|(out, &value)| *out = value);
        }
    }
}

impl Network for Sequence {
    type Memory<T: Real> = SequenceMemory<T>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn learned(&self) -> usize {
        self.learned
    }

    fn initialise(&self, rng: &mut Rng) -> Vec<f64> {
        let mut params = vec![0.0; self.layout.len()];
        for (tensor, start) in self.layout.tensors.iter().zip(&self.starts) {
            let values = params[tensor.range()].iter_mut();
            match *start {
                Start::Uniform(bound) => values.for_each(|value| *value = rng.random_range(-bound..bound)),
                Start::Value(given) => values.for_each(|value| *value = given),
            }
        }
        params
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn parts(&self) -> Option<([usize; 3], Vec<Part>)> {
        let sizes = |size: Size| [size.height, size.width, size.channels];
        let part = |layer: &Layer| match layer {
            Layer::Convolution(layer) => {
                let (size, stride) = ([layer.kernel; 2], [layer.stride; 2]);
                let (input, output) = (sizes(layer.input), sizes(layer.output));
                let windows = Windows { input, output, size, stride, padding: layer.padding };
                Some(Part::Convolution { windows, weight: layer.weight.clone(), bias: layer.bias.clone() })
            }
            Layer::Pool(layer) => {
                let kind = match layer.kind {
                    Kind::Largest => PoolKind::Largest,
                    Kind::Rectified => PoolKind::Rectified,
                    Kind::Mean => PoolKind::Mean,
                };
                Some(Part::Pool { windows: layer.described(), kind })
            }
            Layer::Dense(Dense { inputs, outputs, weight, bias, rectify }) => {
                let (inputs, outputs, rectify) = (*inputs, *outputs, *rectify);
                Some(Part::Dense { inputs, outputs, weight: weight.clone(), bias: bias.clone(), rectify })
            }
            Layer::Rectifier => Some(Part::Rectifier),
            _ => None,
        };
        Some((sizes(self.input), self.layers.iter().map(part).collect::<Option<_>>()?))
    }

    fn forward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        _rows: usize,
        mut pass: Pass,
        memory: &mut SequenceMemory<T>,
        out: &mut [T],
    ) {
        let SequenceMemory { input, chain, work } = memory;
        channels_last(x, self.input, input);
        out.copy_from_slice(chain.forward(&self.layers, params, input, &mut pass, work));
    }

    fn backward<T: Real>(
        &self,
        params: &[T],
        _x: &[T],
        _rows: usize,
        slopes: &[T],
        memory: &mut SequenceMemory<T>,
        gradient: &mut [T],
    ) {
        let SequenceMemory { input, chain, work } = memory;
        chain.backward(&self.layers, Backward { params, x: input, slopes, work, gradient }, false);
        self.dense(input, chain).for_each(|(layer, x, memory)| layer.gradient(x, memory, gradient));
    }

    /// The gradients of dense weights, most of a network's parameters, go straight into the weights.
    fn descend<T: Real>(
        &self,
        step: T,
        params: &mut [T],
        _x: &[T],
        _rows: usize,
        slopes: &[T],
        memory: &mut SequenceMemory<T>,
        gradient: &mut [T],
    ) {
        let SequenceMemory { input, chain, work } = memory;
        chain.backward(&self.layers, Backward { params, x: input, slopes, work, gradient }, false);
        let mut done = 0;
        for (layer, x, memory) in self.dense(input, chain) {
            let before = done..layer.weight.start;
            add_scaled(&mut params[before.clone()], -step, &gradient[before]);
            layer.descend(step, x, memory, params);
            done = layer.weight.end;
        }
        add_scaled(&mut params[done..], -step, &gradient[done..]);
    }

    fn update_statistics<T: Real>(&self, memory: &SequenceMemory<T>, statistics: &mut [T]) {
        memory.chain.update_statistics(&self.layers, self.learned, statistics);
    }
}

/// How channels are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Norm {
    /// Over neighbouring channels of an image, at most so many groups of them.
    Group(usize),
    /// Over a batch.
    Batch,
}

/// Puts layers one on the other.
pub(super) struct Builder {
    input: Size,
    size: Size,
    layers: Vec<Layer>,
    learned: Vec<(TensorPlace, Start)>,
    statistics: Vec<(TensorPlace, Start)>,
    /// What helps where images are too small.
    remedy: &'static str,
}

fn place(tensors: &mut Vec<(TensorPlace, Start)>, name: String, shape: Vec<usize>, start: Start) -> Place {
    let offset = tensors.last().map_or(0, |(tensor, _)| tensor.range().end);
    let tensor = TensorPlace { name, shape, offset };
    let range = tensor.range();
    tensors.push((tensor, start));
    range
}

impl Builder {
    /// A network of images of this size; `remedy` is what helps where they are too small.
    pub(super) fn new(input: Size, remedy: &'static str) -> Self {
        Self { input, size: input, layers: Vec::new(), learned: Vec::new(), statistics: Vec::new(), remedy }
    }

    fn too_small(&self, what: &str) -> Error {
        let Size { height, width, .. } = self.input;
        Error::settings(format!(
            "model: images of {height} × {width} are too small: {} × {} are left where {what}",
            self.size.height, self.size.width
        ))
        .hint(self.remedy)
    }

    /// Filters of `kernel` × `kernel` pixels.
    pub(super) fn convolve(
        &mut self,
        name: &str,
        filters: usize,
        [kernel, stride]: [usize; 2],
        padding: Padding,
        bias: bool,
    ) -> Result<()> {
        let Size { height, width, channels } = self.size;
        let fit = |size| padding.fit(size, kernel, stride);
        let (Some((down, above)), Some((right, left))) = (fit(height), fit(width)) else {
            return Err(self.too_small(&format!("a kernel of {kernel} × {kernel} must stay inside")));
        };
        let start = Start::Uniform(1.0 / ((kernel * kernel * channels) as f64).sqrt());
        let shape = vec![kernel, kernel, channels, filters];
        let weight = place(&mut self.learned, format!("{name}.weight"), shape, start);
        let bias = match bias {
            true => place(&mut self.learned, format!("{name}.bias"), vec![filters], start),
            false => weight.end..weight.end,
        };
        let (input, output) = (self.size, Size { height: down, width: right, channels: filters });
        let padding = [above, left];
        let layer = Convolution { input, output, kernel, stride, padding, weight, bias, winograd: true };
        self.layers.push(Layer::Convolution(layer));
        self.size = output;
        Ok(())
    }

    /// Normalises and rectifies.
    pub(super) fn normalise(&mut self, name: &str, norm: Norm) {
        let channels = self.size.channels;
        let mut learn =
            |part, value| place(&mut self.learned, format!("{name}.{part}"), vec![channels], Start::Value(value));
        let (scale, shift) = (learn("scale", 1.0), learn("shift", 0.0));
        let (group, running) = match norm {
            Norm::Group(groups) => (Some(channels / common_divisor(groups, channels)), 0..0),
            Norm::Batch => {
                let mut keep = |part, value| {
                    place(&mut self.statistics, format!("{name}.{part}"), vec![channels], Start::Value(value))
                };
                (None, keep("mean", 0.0).start..keep("variance", 1.0).end)
            }
        };
        self.layers.push(Layer::Normalisation(Normalisation { size: self.size, group, scale, shift, running }));
    }

    pub(super) fn respond(&mut self) {
        self.layers.push(Layer::Response(Response { size: self.size }));
    }

    pub(super) fn rectify(&mut self) {
        self.layers.push(Layer::Rectifier);
    }

    /// Windows at every second pixel.
    pub(super) fn pool(&mut self, window: usize, padding: Padding, kind: Kind) -> Result<()> {
        let small = |this: &Self| this.too_small(&format!("a pool of {window} × {window} follows"));
        if self.size.height < 2 || self.size.width < 2 {
            return Err(small(self));
        }
        let pool = Pool::new(self.size, window, 2, padding, kind).ok_or_else(|| small(self))?;
        self.size = pool.output;
        self.layers.push(Layer::Pool(pool));
        Ok(())
    }

    /// One window over the whole image.
    pub(super) fn pool_all(&mut self, kind: Kind) {
        let pool = Pool::global(self.size, kind);
        self.size = pool.output;
        self.layers.push(Layer::Pool(pool));
    }

    pub(super) fn dense(&mut self, name: &str, outputs: usize, bias: bool, rectify: bool) {
        let inputs = self.size.len();
        let start = Start::Uniform(1.0 / (inputs as f64).sqrt());
        let weight = place(&mut self.learned, format!("{name}.weight"), vec![outputs, inputs], start);
        let bias = match bias {
            true => place(&mut self.learned, format!("{name}.bias"), vec![outputs], start),
            false => weight.end..weight.end,
        };
        self.layers.push(Layer::Dense(Dense { inputs, outputs, weight, bias, rectify }));
        self.size = Size { height: 1, width: 1, channels: outputs };
    }

    pub(super) fn drop_out(&mut self, chance: f64) {
        if chance > 0.0 {
            self.layers.push(Layer::Dropout(Dropout { chance }));
        }
    }

    pub(super) fn scale(&mut self, factor: f64) {
        self.layers.push(Layer::Scale(factor));
    }

    /// Adds the input to what the layers inside make of it.
    pub(super) fn residual(&mut self, inside: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let before = std::mem::take(&mut self.layers);
        inside(self)?;
        let inner = std::mem::replace(&mut self.layers, before);
        self.layers.push(Layer::Residual(inner));
        Ok(())
    }

    /// The network; statistics come to lie behind what is learned.
    pub(super) fn build(mut self) -> Sequence {
        let learned = self.learned.last().map_or(0, |(tensor, _)| tensor.range().end);
        for (tensor, _) in &mut self.statistics {
            tensor.offset = tensor.offset.saturating_add(learned);
        }
        place_statistics(&mut self.layers, learned);
        let (tensors, starts) = self.learned.into_iter().chain(self.statistics).unzip();
        let (layout, outputs) = (Layout { tensors }, self.size.len());
        Sequence { layout, learned, starts, layers: self.layers, input: self.input, outputs }
    }
}

fn place_statistics(layers: &mut [Layer], learned: usize) {
    for layer in layers {
        match layer {
            Layer::Normalisation(layer) => {
                let behind = |place: usize| place.saturating_add(learned);
                layer.running = behind(layer.running.start)..behind(layer.running.end);
            }
            Layer::Residual(layers) => place_statistics(layers, learned),
            _ => {}
        }
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
