//! Stacked LSTM layers over an embedding of symbols, which predict the next one.
//!
//! Tensors are named and shaped as PyTorch's `nn.Embedding`, `nn.LSTM` and `nn.Linear` have them, gates in the order input,
//! forget, candidate, output, with both of its biases. So state dictionaries can be exchanged, and descent takes the same
//! steps (the sum of the two biases moves twice as fast as a single one would).
//!
//! What makes it fast:
//! - A symbol's input to the gates of the first layer is one row of a table, embedding · weightᵀ + biases, computed once a
//!   batch. Gradients are summed per symbol, and turned into those of weights and embedding at the end.
//! - Layers alternate after a block of time steps, so that what passes between them stays in the cache. Products that do
//!   not depend on the previous step (input weights of upper layers, gradients of all weights) are made once a block.
//! - Weights are packed for products with few rows once a batch (`panels.rs`).
//! - The backward pass overwrites gates with their gradients; scoring keeps the last time step only.

mod cell;
mod panels;
#[cfg(test)]
mod tests;

use super::trainer::{Network, Pass};
use super::{Layout, TensorPlace};
use crate::data::{Features, Shard};
use crate::num::{Matrix, Real, add_scaled, multiply, multiply_add};
use crate::rng::Rng;
use panels::Panels;
use rand::RngExt;
use rand_distr::StandardNormal;
use std::ops::Range;

/// Rows times time steps of a block, chosen by measurement.
const ROWS_AT_ONCE: usize = 128;

/// Embedding, stacked LSTM layers, and a dense layer over the last time step.
pub(super) struct Recurrent {
    symbols: usize,
    embedding: usize,
    hidden: usize,
    layers: usize,
    outputs: usize,
    layout: Layout,
}

/// The tensors of a layer, in their order.
#[derive(Clone, Copy)]
enum Part {
    InputWeight,
    RecurrentWeight,
    InputBias,
    RecurrentBias,
}

impl Recurrent {
    pub(super) fn new(symbols: usize, embedding: usize, hidden: usize, layers: usize, outputs: usize) -> Self {
        let mut layout = Layout { tensors: Vec::new() };
        let mut place = |name: String, shape: Vec<usize>| {
            let offset = layout.len();
            layout.tensors.push(TensorPlace { name, shape, offset });
        };
        place("embedding.weight".into(), vec![symbols, embedding]);
        for layer in 0..layers {
            let inputs = if layer == 0 { embedding } else { hidden };
            place(format!("lstm.weight_ih_l{layer}"), vec![4 * hidden, inputs]);
            place(format!("lstm.weight_hh_l{layer}"), vec![4 * hidden, hidden]);
            place(format!("lstm.bias_ih_l{layer}"), vec![4 * hidden]);
            place(format!("lstm.bias_hh_l{layer}"), vec![4 * hidden]);
        }
        place("output.weight".into(), vec![outputs, hidden]);
        place("output.bias".into(), vec![outputs]);
        Self { symbols, embedding, hidden, layers, outputs, layout }
    }

    fn embedding(&self) -> Range<usize> {
        self.layout.tensors[0].range()
    }

    fn part(&self, layer: usize, part: Part) -> Range<usize> {
        self.layout.tensors[1 + 4 * layer + part as usize].range()
    }

    /// Weight and bias of the dense layer.
    fn output(&self) -> (Range<usize>, Range<usize>) {
        let first = 1 + 4 * self.layers;
        (self.layout.tensors[first].range(), self.layout.tensors[first + 1].range())
    }

    /// Both biases of a layer, added up.
    fn add_biases<T: Real>(&self, params: &[T], layer: usize, out: &mut [T]) {
        add_scaled(out, T::ONE, &params[self.part(layer, Part::InputBias)]);
        add_scaled(out, T::ONE, &params[self.part(layer, Part::RecurrentBias)]);
    }

    /// Time steps that a layer processes before the next layer takes over.
    fn block(&self, rows: usize, steps: usize) -> usize {
        (ROWS_AT_ONCE / rows).clamp(1, steps)
    }

    /// Lays out weights and makes the table of symbols.
    fn prepare<T: Real>(&self, params: &[T], memory: &mut Memory<T>) {
        let (hidden, gates) = (self.hidden, 4 * self.hidden);
        let Memory { layers, table, .. } = memory;
        layers.resize_with(self.layers, LayerMemory::default);
        refill(table, self.symbols * gates, T::ZERO);
        for row in table.chunks_exact_mut(gates) {
            self.add_biases(params, 0, row);
        }
        let embedding = Matrix::new(&params[self.embedding()], self.symbols, self.embedding);
        let weight = Matrix::new(&params[self.part(0, Part::InputWeight)], gates, self.embedding);
        multiply_add(table, T::ONE, embedding, weight.transpose());
        for (l, layer) in layers.iter_mut().enumerate() {
            layer.recurrent.pack_transposed(&params[self.part(l, Part::RecurrentWeight)], hidden, gates);
            if l > 0 {
                layer.input.pack_transposed(&params[self.part(l, Part::InputWeight)], hidden, gates);
                refill(&mut layer.bias, gates, T::ZERO);
                self.add_biases(params, l, &mut layer.bias);
            }
        }
    }

    /// Takes all layers through some time steps, which are remembered from `slot` on.
    fn advance<T: Real>(&self, x: &[T], rows: usize, times: Range<usize>, slot: usize, memory: &mut Memory<T>) {
        let (hidden, gates) = (self.hidden, 4 * self.hidden);
        let steps = x.len() / rows;
        let Memory { layers, table, inputs, product, .. } = memory;
        for l in 0..self.layers {
            let (below, layer) = layers.split_at_mut(l);
            let layer = &mut layer[0];
            if let Some(below) = below.last() {
                let handed = (slot + 1) * rows * hidden..(slot + 1 + times.len()) * rows * hidden;
                layer.input.multiply(
                    &below.outputs[handed],
                    Some(&layer.bias),
                    &mut inputs[..times.len() * rows * gates],
                );
            }
            for (s, time) in times.clone().enumerate() {
                let (before, after) = layer.outputs.split_at_mut((slot + s + 1) * rows * hidden);
                let (cells_before, cells) = layer.cells.split_at_mut((slot + s + 1) * rows * hidden);
                if time == 0 {
                    product.fill(T::ZERO);
                } else {
                    layer.recurrent.multiply(&before[(slot + s) * rows * hidden..], None, product);
                }
                let cells_before = cells_before[(slot + s) * rows * hidden..].chunks_exact(hidden);
                let after = cells.chunks_exact_mut(hidden).zip(after.chunks_exact_mut(hidden));
                let opened = layer.gates[(slot + s) * rows * gates..].chunks_exact_mut(gates);
                let rows_of = product.chunks_exact(gates).zip(opened).zip(cells_before.zip(after));
                for (row, ((product, opened), (cells_before, (cells, outputs)))) in rows_of.enumerate() {
                    let input = match l {
                        0 => &table[symbol(x[row * steps + time]) * gates..][..gates],
                        _ => &inputs[(s * rows + row) * gates..][..gates],
                    };
                    cell::activate(input, product, opened);
                    cell::advance(opened, cells_before, cells, outputs);
                }
            }
        }
    }

    /// Lays out what the backward pass needs of the weights, which may then change.
    fn prepare_backward<T: Real>(&self, params: &[T], memory: &mut Memory<T>) {
        let (hidden, gates) = (self.hidden, 4 * self.hidden);
        for (l, layer) in memory.layers.iter_mut().enumerate() {
            layer.recurrent_back.pack(&params[self.part(l, Part::RecurrentWeight)], gates, hidden);
            if l > 0 {
                layer.input_back.pack(&params[self.part(l, Part::InputWeight)], gates, hidden);
            }
        }
        memory.kept.clear();
        memory.kept.extend_from_slice(&params[self.embedding()]);
        memory.kept.extend_from_slice(&params[self.part(0, Part::InputWeight)]);
        memory.kept.extend_from_slice(&params[self.output().0]);
    }

    /// Adds `scale` times the gradient to `sum`.
    fn add_gradient<T: Real>(
        &self,
        x: &[T],
        rows: usize,
        slopes: &[T],
        memory: &mut Memory<T>,
        scale: T,
        sum: &mut [T],
    ) {
        let (hidden, gates, steps) = (self.hidden, 4 * self.hidden, x.len() / rows);
        self.output_backward(rows, steps, slopes, memory, scale, sum);
        refill(&mut memory.table, self.symbols * gates, T::ZERO);
        let block = self.block(rows, steps);
        refill(&mut memory.handed, block * rows * hidden, T::ZERO);
        for begin in (0..steps).step_by(block).rev() {
            let times = begin..(begin + block).min(steps);
            for l in (0..self.layers).rev() {
                self.layer_backward(l, rows, times.clone(), memory);
                self.add_layer_gradient(l, rows, times.clone(), memory, scale, sum);
            }
            for time in times {
                for row in 0..rows {
                    let slopes = &memory.layers[0].gates[(time * rows + row) * gates..][..gates];
                    add_scaled(&mut memory.table[symbol(x[row * steps + time]) * gates..][..gates], T::ONE, slopes);
                }
            }
        }
        self.add_table_gradient(memory, scale, sum);
    }

    /// Through the dense layer: its gradient, and the slopes of the top layer's last outputs.
    fn output_backward<T: Real>(
        &self,
        rows: usize,
        steps: usize,
        slopes: &[T],
        memory: &mut Memory<T>,
        scale: T,
        sum: &mut [T],
    ) {
        let (hidden, (weight, bias)) = (self.hidden, self.output());
        for layer in &mut memory.layers {
            refill(&mut layer.slopes, rows * hidden, T::ZERO);
            refill(&mut layer.cell_slopes, rows * hidden, T::ZERO);
        }
        let top = &mut memory.layers[self.layers - 1];
        let kept = Matrix::new(&memory.kept[memory.kept.len() - weight.len()..], self.outputs, hidden);
        let slopes_of = Matrix::new(slopes, rows, self.outputs);
        multiply(&mut top.slopes, T::ONE, slopes_of, kept);
        let last = Matrix::new(&top.outputs[steps * rows * hidden..][..rows * hidden], rows, hidden);
        multiply_add(&mut sum[weight], scale, slopes_of.transpose(), last);
        slopes.chunks_exact(self.outputs).for_each(|slopes| add_scaled(&mut sum[bias.clone()], scale, slopes));
    }

    /// Takes one layer back through some time steps, and hands slopes to the layer below.
    fn layer_backward<T: Real>(&self, l: usize, rows: usize, times: Range<usize>, memory: &mut Memory<T>) {
        let (hidden, gates) = (self.hidden, 4 * self.hidden);
        let layer = &mut memory.layers[l];
        for time in times.clone().rev() {
            if l + 1 < self.layers {
                let handed = &memory.handed[(time - times.start) * rows * hidden..][..rows * hidden];
                add_scaled(&mut layer.slopes, T::ONE, handed);
            }
            let slopes_of_gates = &mut layer.gates[time * rows * gates..(time + 1) * rows * gates];
            let before = layer.cells[time * rows * hidden..].chunks_exact(hidden);
            let cells = layer.cells[(time + 1) * rows * hidden..].chunks_exact(hidden);
            let slopes = layer.slopes.chunks_exact(hidden).zip(layer.cell_slopes.chunks_exact_mut(hidden));
            let of_rows = slopes_of_gates.chunks_exact_mut(gates).zip(before.zip(cells)).zip(slopes);
            for ((gates, (before, cells)), (slopes, cell_slopes)) in of_rows {
                cell::backward(slopes, before, cells, cell_slopes, gates);
            }
            if time > 0 {
                layer.recurrent_back.multiply(slopes_of_gates, None, &mut layer.slopes);
            }
        }
        if l > 0 {
            let slopes_of_gates = &layer.gates[times.start * rows * gates..times.end * rows * gates];
            layer.input_back.multiply(slopes_of_gates, None, &mut memory.handed[..times.len() * rows * hidden]);
        }
    }

    /// Adds what some time steps say of one layer's weights.
    fn add_layer_gradient<T: Real>(
        &self,
        l: usize,
        rows: usize,
        times: Range<usize>,
        memory: &Memory<T>,
        scale: T,
        sum: &mut [T],
    ) {
        let (hidden, gates) = (self.hidden, 4 * self.hidden);
        let slopes = |times: &Range<usize>| {
            let slopes = &memory.layers[l].gates[times.start * rows * gates..times.end * rows * gates];
            Matrix::new(slopes, times.len() * rows, gates).transpose()
        };
        let outputs = |layer: usize, times: Range<usize>| {
            let outputs = &memory.layers[layer].outputs[times.start * rows * hidden..times.end * rows * hidden];
            Matrix::new(outputs, times.len() * rows, hidden)
        };
        // Before the first time step all outputs are 0.
        let later = times.start.max(1)..times.end;
        let weight = self.part(l, Part::RecurrentWeight);
        multiply_add(&mut sum[weight], scale, slopes(&later), outputs(l, later));
        if l > 0 {
            let weight = self.part(l, Part::InputWeight);
            multiply_add(&mut sum[weight], scale, slopes(&times), outputs(l - 1, times.start + 1..times.end + 1));
            for bias in [Part::InputBias, Part::RecurrentBias] {
                let slopes = &memory.layers[l].gates[times.start * rows * gates..times.end * rows * gates];
                let bias = &mut sum[self.part(l, bias)];
                slopes.chunks_exact(gates).for_each(|slopes| add_scaled(bias, scale, slopes));
            }
        }
    }

    /// What the slopes of the table say of the embedding and of the first layer's input weights and biases.
    fn add_table_gradient<T: Real>(&self, memory: &Memory<T>, scale: T, sum: &mut [T]) {
        let gates = 4 * self.hidden;
        let (embedding, weight) = (self.embedding(), self.part(0, Part::InputWeight));
        let (kept_embedding, kept) = memory.kept.split_at(embedding.len());
        let slopes = Matrix::new(&memory.table, self.symbols, gates);
        let kept_weight = Matrix::new(&kept[..weight.len()], gates, self.embedding);
        multiply_add(&mut sum[embedding], scale, slopes, kept_weight);
        let kept_embedding = Matrix::new(kept_embedding, self.symbols, self.embedding);
        multiply_add(&mut sum[weight], scale, slopes.transpose(), kept_embedding);
        for bias in [Part::InputBias, Part::RecurrentBias] {
            let bias = &mut sum[self.part(0, bias)];
            memory.table.chunks_exact(gates).for_each(|slopes| add_scaled(bias, scale, slopes));
        }
    }
}

impl Network for Recurrent {
    type Memory<T: Real> = Memory<T>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    /// As PyTorch does: the embedding normal, everything else uniform on ±1/√hidden.
    fn initialise(&self, rng: &mut Rng) -> Vec<f64> {
        let bound = 1.0 / (self.hidden as f64).sqrt();
        let embedding = self.embedding().len();
        let mut params: Vec<f64> = (0..embedding).map(|_| rng.sample(StandardNormal)).collect();
        params.extend((embedding..self.layout.len()).map(|_| rng.random_range(-bound..bound)));
        params
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn fault(&self, rows: &Shard) -> Option<String> {
        let Features::Symbols { columns, values } = &**rows.features() else {
            return Some("are no texts, want symbols by their numbers".into());
        };
        let begin = rows.rows().start * columns;
        let ours = &values[begin..rows.rows().end * columns];
        let place = ours.iter().position(|&symbol| usize::from(symbol) >= self.symbols)?;
        let (row, column) = (place / columns, place % columns);
        Some(format!(
            "have symbol {} (row {row}, place {column}, counted from 0), want 0 to {}",
            ours[place],
            self.symbols - 1
        ))
    }

    fn forward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        rows: usize,
        pass: Pass,
        memory: &mut Self::Memory<T>,
        out: &mut [T],
    ) {
        let hidden = self.hidden;
        let steps = x.len() / rows;
        let block = self.block(rows, steps);
        let remember = matches!(pass, Pass::Train(_));
        self.prepare(params, memory);
        memory.fit(hidden, rows, block, if remember { steps } else { block });
        for begin in (0..steps).step_by(block) {
            let times = begin..(begin + block).min(steps);
            if !remember && begin > 0 {
                for layer in &mut memory.layers {
                    layer.outputs.copy_within(block * rows * hidden.., 0);
                    layer.cells.copy_within(block * rows * hidden.., 0);
                }
            }
            self.advance(x, rows, times, if remember { begin } else { 0 }, memory);
        }
        let end = if remember { steps } else { (steps - 1) % block + 1 };
        let last = &memory.layers[self.layers - 1].outputs[end * rows * hidden..][..rows * hidden];
        let (weight, bias) = self.output();
        out.chunks_exact_mut(self.outputs).for_each(|out| out.copy_from_slice(&params[bias.clone()]));
        let weight = Matrix::new(&params[weight], self.outputs, hidden);
        multiply_add(out, T::ONE, Matrix::new(last, rows, hidden), weight.transpose());
    }

    fn backward<T: Real>(
        &self,
        params: &[T],
        x: &[T],
        rows: usize,
        slopes: &[T],
        memory: &mut Self::Memory<T>,
        gradient: &mut [T],
    ) {
        self.prepare_backward(params, memory);
        gradient.fill(T::ZERO);
        self.add_gradient(x, rows, slopes, memory, T::ONE, gradient);
    }

    /// Weights take their step while their gradient is summed up: the backward pass goes through those laid out before.
    fn descend<T: Real>(
        &self,
        step: T,
        params: &mut [T],
        x: &[T],
        rows: usize,
        slopes: &[T],
        memory: &mut Self::Memory<T>,
        _gradient: &mut [T],
    ) {
        self.prepare_backward(params, memory);
        self.add_gradient(x, rows, slopes, memory, -step, params);
    }
}

/// Buffers of one thread. Time steps lie one after the other, in each of them rows.
#[derive(Default)]
pub(super) struct Memory<T> {
    layers: Vec<LayerMemory<T>>,
    /// What each symbol puts into the gates of the first layer; in the backward pass the slopes of that.
    table: Vec<T>,
    /// What goes into the gates of an upper layer from below, for one block.
    inputs: Vec<T>,
    /// What goes into the gates from the step before.
    product: Vec<T>,
    /// Slopes of the outputs of a layer from the one above, for one block.
    handed: Vec<T>,
    /// Embedding, first input weight and last weight, as they were in the forward pass.
    kept: Vec<T>,
}

#[derive(Default)]
struct LayerMemory<T> {
    recurrent: Panels<T>,
    recurrent_back: Panels<T>,
    /// Of upper layers only, like all that is called input.
    input: Panels<T>,
    input_back: Panels<T>,
    bias: Vec<T>,
    /// At every time step, then their slopes.
    gates: Vec<T>,
    /// Before the first time step, and after each one.
    cells: Vec<T>,
    outputs: Vec<T>,
    /// Of the outputs and cells after the time step that is next in the backward pass.
    slopes: Vec<T>,
    cell_slopes: Vec<T>,
}

impl<T: Real> Memory<T> {
    /// Room for `slots` time steps of some rows, and zeros before the first.
    fn fit(&mut self, hidden: usize, rows: usize, block: usize, slots: usize) {
        self.product.resize(rows * 4 * hidden, T::ZERO);
        self.inputs.resize(block * rows * 4 * hidden, T::ZERO);
        for layer in &mut self.layers {
            layer.gates.resize(slots * rows * 4 * hidden, T::ZERO);
            for buffer in [&mut layer.cells, &mut layer.outputs] {
                buffer.resize((slots + 1) * rows * hidden, T::ZERO);
                buffer[..rows * hidden].fill(T::ZERO);
            }
        }
    }
}

/// The number of a symbol, which `fault` has seen to be one.
fn symbol<T: Real>(value: T) -> usize {
    value.to_f64() as usize
}

fn refill<T: Real>(buffer: &mut Vec<T>, length: usize, value: T) {
    buffer.clear();
    buffer.resize(length, value);
}
