//! Stacks of dense layers with a loss on top: forward, backward, training, and the fast paths.
//!
//! Parameters lie layer by layer: weight (outputs × inputs, as PyTorch has it), then bias.
//! Losses are means over rows; a row's loss is never negative, which lets a choice stop early.
//!
//! Fast paths, each with the plain path as its test oracle:
//! - **Gram form.** With full-batch descent every change of the first weight is Qᵀ·X for some Q (rows × outputs).
//!   So train in the space of Q: the first layer's outputs are a·X·W₀ᵀ + (X·Xᵀ)·Q, where a carries weight decay.
//!   W = a·W₀ + Qᵀ·X is formed once at the end, and summed over clients without ever forming it for one.
//! - **Early exit.** A candidate whose partial loss exceeds the best total is out, exactly.
//! - **Stacking.** Without hidden layers all models of all jobs are rows of one product.

use super::{Choice, Job, Layout, Metric, Model, Precision, Reduced, Seat, TensorPlace, Worker};
use crate::data::{Client, DataShape, Features, Shard, Targets};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::{Amount, Optimiser, Plan, Portion, Sample, Score, Then, Weight};
use crate::linalg::{Matrix, Real, add_scaled, multiply, multiply_add};
use crate::rng::{Key, Rng};
use rand::RngExt;
use rand::seq::SliceRandom;

/// What the outputs mean and how they are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// One number; squared error without the ½.
    Squared,
    /// One number, the log odds of class 1.
    Logistic,
    /// A score for each class.
    Softmax,
}

/// A stack of dense layers with rectifiers in between.
#[derive(Debug, Clone)]
pub(super) struct Dense {
    /// Inputs, hidden widths, outputs.
    widths: Vec<usize>,
    bias: bool,
    output: Output,
    precision: Precision,
    initial: Initial,
    layout: Layout,
}

/// Where parameters begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Initial {
    /// Uniform on ±1/√inputs, weights and biases alike.
    Uniform,
    /// 0 or 1 with equal chance.
    Coins,
    /// 0.
    Zero,
}

impl Dense {
    pub(super) fn new(widths: Vec<usize>, bias: bool, output: Output, precision: Precision) -> Self {
        let mut tensors: Vec<TensorPlace> = Vec::new();
        let mut offset = 0;
        for (layer, pair) in widths.windows(2).enumerate() {
            let mut place = |part: &str, shape: Vec<usize>| {
                let tensor = TensorPlace { name: format!("layer{layer}.{part}"), shape, offset };
                offset = tensor.range().end;
                tensors.push(tensor);
            };
            place("weight", vec![pair[1], pair[0]]);
            if bias {
                place("bias", vec![pair[1]]);
            }
        }
        Self { widths, bias, output, precision, initial: Initial::Uniform, layout: Layout { tensors } }
    }

    pub(super) fn starting(self, initial: Initial) -> Self {
        Self { initial, ..self }
    }

    fn initialise(&self, rng: &mut Rng) -> Vec<f64> {
        let mut params = vec![0.0; self.layout.len()];
        match self.initial {
            Initial::Zero => return params,
            Initial::Coins => {
                params.iter_mut().for_each(|value| *value = f64::from(u8::from(rng.random::<bool>())));
                return params;
            }
            Initial::Uniform => {}
        }
        for layer in 0..self.layers() {
            let bound = 1.0 / (self.widths[layer] as f64).sqrt();
            let bias = self.bias_range(layer);
            for value in &mut params[self.weight_range(layer).start..bias.end] {
                *value = rng.random_range(-bound..bound);
            }
        }
        params
    }

    fn check(&self, client: &Client, wanted: DataShape) -> Result<()> {
        for (part, rows) in [("training", &client.train), ("test", &client.test)] {
            let fault = |message: String| Err(Error::data(format!("client {}: {part} rows {message}", client.id)));
            if rows.is_empty() {
                continue;
            }
            if matches!(**rows.features(), Features::Columns(_)) {
                return fault("are not encoded yet".into());
            }
            if rows.columns() != wanted.columns {
                return fault(format!("have {} columns, want {}", rows.columns(), wanted.columns));
            }
            match (self.output, &**rows.targets()) {
                (Output::Squared, Targets::Values(_)) => {}
                (Output::Squared, _) => return fault("have no numbers to predict".into()),
                (_, Targets::Classes(_)) => {
                    let classes = rows.classes().unwrap_or_default();
                    if let Some(class) = classes.iter().find(|&&class| class as usize >= wanted.classes) {
                        return fault(format!("have class {class}, want 0 to {}", wanted.classes - 1));
                    }
                }
                _ => return fault("have no classes to predict".into()),
            }
        }
        Ok(())
    }

    /// How many parameters the first weight has; everything above it begins there.
    fn first_weights(&self) -> usize {
        self.weight_range(0).end
    }

    fn layers(&self) -> usize {
        self.widths.len() - 1
    }

    fn weight_range(&self, layer: usize) -> std::ops::Range<usize> {
        self.layout.tensors[layer * (1 + usize::from(self.bias))].range()
    }

    fn bias_range(&self, layer: usize) -> std::ops::Range<usize> {
        let weight_end = self.weight_range(layer).end;
        weight_end..weight_end + if self.bias { self.widths[layer + 1] } else { 0 }
    }

    fn worker<'a, T: Real>(&'a self, models: &[&[f64]]) -> DenseWorker<'a, T> {
        let round = |model: &&[f64]| model.iter().map(|&value| T::of(value)).collect();
        DenseWorker {
            shape: self,
            given: models.len(),
            models: models.iter().map(round).collect(),
            hidden: vec![Vec::new(); self.layers()],
            slopes: vec![Vec::new(); self.layers()],
            input: Vec::new(),
            first: Vec::new(),
            candidate: Vec::new(),
            stack: Vec::new(),
            fast: true,
        }
    }
}

/// How a model finds its exact minimiser: rows as f64, one after the other, and the ridge.
pub(super) type Minimiser = fn(&Rows, f64) -> Result<Vec<f64>>;

/// Rows for an exact minimiser, with a column of ones behind them where there is an intercept.
pub(super) struct Rows {
    pub(super) x: Vec<f64>,
    pub(super) y: Vec<f64>,
    pub(super) columns: usize,
}

/// A stack of dense layers as a model.
pub(super) struct DenseModel {
    pub(super) dense: Dense,
    pub(super) wanted: DataShape,
    pub(super) minimiser: Option<Minimiser>,
}

impl Model for DenseModel {
    fn layout(&self) -> &Layout {
        &self.dense.layout
    }

    fn precision(&self) -> Precision {
        self.dense.precision
    }

    fn metrics(&self) -> &'static [Metric] {
        match self.dense.output {
            Output::Squared => &[Metric::SquaredError],
            Output::Logistic | Output::Softmax => &[Metric::Accuracy, Metric::LogLoss],
        }
    }

    fn curvature(&self, mean_square: f64) -> Option<f64> {
        let length = mean_square + f64::from(u8::from(self.dense.bias));
        let factor = match self.dense.output {
            Output::Squared => 2.0,
            Output::Logistic => 0.25,
            Output::Softmax => 0.5,
        };
        (self.dense.layers() == 1).then_some(factor * length)
    }

    fn initialise(&self, rng: &mut Rng) -> Vec<f64> {
        self.dense.initialise(rng)
    }

    fn check(&self, client: &Client) -> Result<()> {
        self.dense.check(client, self.wanted)
    }

    fn worker<'a>(&'a self, models: &[&[f64]]) -> Box<dyn Worker + 'a> {
        match self.dense.precision {
            Precision::F32 => Box::new(self.dense.worker::<f32>(models)),
            Precision::F64 => Box::new(self.dense.worker::<f64>(models)),
        }
    }

    fn minimise(&self, shard: &Shard, ridge: f64) -> Result<Vec<f64>> {
        let Some(minimiser) = self.minimiser else {
            return Err(
                Error::new(ErrorKind::Unsupported, "this model has no exact minimiser").hint("train it instead")
            );
        };
        let mut features = vec![0.0; shard.len() * shard.columns()];
        convert_into(shard, &mut features);
        let columns = shard.columns() + usize::from(self.dense.bias);
        let mut x = Vec::with_capacity(shard.len() * columns);
        for row in features.chunks_exact(shard.columns()) {
            x.extend_from_slice(row);
            x.extend(self.dense.bias.then_some(1.0));
        }
        let y = match Goal::of(shard) {
            Goal::Classes(classes) => classes.iter().map(|&class| f64::from(class)).collect(),
            Goal::Values(values) => values.to_vec(),
        };
        minimiser(&Rows { x, y, columns }, ridge)
    }
}

/// Computes with a stack of dense layers on one thread. All buffers are reused between clients.
pub(super) struct DenseWorker<'a, T> {
    shape: &'a Dense,
    /// Models of the ask; one more place behind them is for `load`.
    given: usize,
    models: Vec<Vec<T>>,
    /// Outputs of every layer, after the rectifier.
    hidden: Vec<Vec<T>>,
    /// Slopes of the mean loss with respect to every layer's outputs.
    slopes: Vec<Vec<T>>,
    /// Rows converted to T.
    input: Vec<T>,
    /// X·W₀ᵀ of the chosen model.
    first: Vec<T>,
    /// The same of a candidate.
    candidate: Vec<T>,
    /// The first weights of all models of the ask, one under the other.
    stack: Vec<T>,
    /// Whether fast paths are taken; tests compare with them off.
    fast: bool,
}

/// The targets of some rows.
#[derive(Clone, Copy)]
enum Goal<'a> {
    Classes(&'a [u32]),
    Values(&'a [f64]),
}

impl<'a> Goal<'a> {
    /// A model's `check` has seen that these are there.
    fn of(rows: &'a Shard) -> Self {
        match rows.classes() {
            Some(classes) => Goal::Classes(classes),
            None => Goal::Values(rows.values().unwrap_or_default()),
        }
    }

    fn part(self, range: std::ops::Range<usize>) -> Self {
        match self {
            Goal::Classes(classes) => Goal::Classes(&classes[range]),
            Goal::Values(values) => Goal::Values(&values[range]),
        }
    }
}

/// The rows of a shard as T, converted into `buffer` unless they are stored as T.
fn convert<'b, T: Real>(rows: &'b Shard, buffer: &'b mut Vec<T>) -> &'b [T] {
    let columns = rows.columns();
    let range = rows.rows().start * columns..rows.rows().end * columns;
    if let Some(stored) = T::stored(rows.features()) {
        return &stored[range];
    }
    buffer.resize(range.len(), T::ZERO);
    convert_into(rows, buffer);
    buffer
}

fn convert_into<T: Real>(rows: &Shard, out: &mut [T]) {
    let columns = rows.columns();
    let range = rows.rows().start * columns..rows.rows().end * columns;
    match &**rows.features() {
        Features::Bytes { values, .. } => {
            let scale = T::ONE / T::of(255.0);
            for (o, &v) in out.iter_mut().zip(&values[range]) {
                *o = T::of(f64::from(v)) * scale;
            }
        }
        Features::F32 { values, .. } => out.iter_mut().zip(&values[range]).for_each(|(o, &v)| *o = T::of(f64::from(v))),
        Features::F64 { values, .. } => out.iter_mut().zip(&values[range]).for_each(|(o, &v)| *o = T::of(v)),
        Features::Columns(_) => unreachable!("a model's check refuses rows that are not encoded"),
    }
}

/// Rows that are looked at together when candidates compete: enough for the matrix product to be worth it,
/// few enough to give up early. A function of the number of rows alone, so that sums always run alike.
fn competing_rows(rows: usize) -> usize {
    rows.div_ceil(4).next_multiple_of(8).clamp(16, 64)
}

/// Loss and slope of one row: fills `slope` with the derivative of the row's loss times `scale`.
#[inline]
fn row_loss<T: Real>(output: Output, out: &[T], goal: Goal, row: usize, slope: Option<(&mut [T], T)>) -> T {
    match (output, goal) {
        (Output::Squared, Goal::Values(values)) => {
            let residual = out[0] - T::of(values[row]);
            if let Some((slope, scale)) = slope {
                slope[0] = (residual + residual) * scale;
            }
            residual * residual
        }
        (Output::Logistic, Goal::Classes(classes)) => {
            // log(1 + e^{-s}) with s = ±log odds, and its slope, without overflow either way.
            let sign = if classes[row] == 1 { T::ONE } else { -T::ONE };
            let s = sign * out[0];
            let e = if s > T::ZERO { (-s).exponential() } else { s.exponential() };
            let wrong = if s > T::ZERO { e / (T::ONE + e) } else { T::ONE / (T::ONE + e) };
            if let Some((slope, scale)) = slope {
                slope[0] = -sign * wrong * scale;
            }
            let loss = e.log_one_plus();
            if s > T::ZERO { loss } else { loss - s }
        }
        (Output::Softmax, Goal::Classes(classes)) => {
            let largest = out.iter().copied().fold(out[0], |a, b| if b > a { b } else { a });
            let class = classes[row] as usize;
            let mut total = T::ZERO;
            match slope {
                Some((slope, scale)) => {
                    for (s, &o) in slope.iter_mut().zip(out) {
                        *s = (o - largest).exponential();
                        total += *s;
                    }
                    let share = scale / total;
                    slope.iter_mut().for_each(|s| *s *= share);
                    slope[class] -= scale;
                }
                None => out.iter().for_each(|&o| total += (o - largest).exponential()),
            }
            // Rounding could make it the least bit negative, and early exit counts on it not being so.
            let loss = total.logarithm() + largest - out[class];
            if loss < T::ZERO { T::ZERO } else { loss }
        }
        _ => unreachable!("a model's check refuses targets it cannot predict"),
    }
}

impl<T: Real> DenseWorker<'_, T> {
    #[cfg(test)]
    pub(super) fn plain(mut self) -> Self {
        self.fast = false;
        self
    }

    /// Carries the first layer's products (without bias) through the rest of the stack, whose parameters are
    /// `upper`: everything above the first weight. Outputs end in `hidden`.
    fn forward_rest(&mut self, upper: &[T], first: &[T], rows: usize) {
        let shape = self.shape;
        let skip = shape.first_weights();
        for layer in 0..shape.layers() {
            let width = shape.widths[layer + 1];
            let (below, from_here) = self.hidden.split_at_mut(layer);
            let out = &mut from_here[0];
            out.resize(rows * width, T::ZERO);
            if layer == 0 {
                out.copy_from_slice(first);
            } else {
                let input = Matrix::new(&below[layer - 1], rows, shape.widths[layer]);
                let weight = shape.weight_range(layer);
                let weight = Matrix::new(&upper[weight.start - skip..weight.end - skip], width, shape.widths[layer]);
                multiply(out, T::ONE, input, weight.turn());
            }
            let bias = shape.bias_range(layer);
            let bias = &upper[bias.start - skip..bias.end - skip];
            let rectify = layer + 1 < shape.layers();
            for row in out.chunks_exact_mut(width) {
                if !bias.is_empty() {
                    add_scaled(row, T::ONE, bias);
                }
                if rectify {
                    row.iter_mut().for_each(|v| *v = if *v > T::ZERO { *v } else { T::ZERO });
                }
            }
        }
    }

    /// X·W₀ᵀ.
    fn first_layer(shape: &Dense, params: &[T], input: &[T], rows: usize, out: &mut [T]) {
        let weight = Matrix::new(&params[shape.weight_range(0)], shape.widths[1], shape.widths[0]);
        multiply(out, T::ONE, Matrix::new(input, rows, shape.widths[0]), weight.turn());
    }

    /// Sum of the losses of rows whose outputs lie in the last of `hidden`.
    fn output_loss(&self, goal: Goal, rows: usize) -> f64 {
        let width = self.shape.widths[self.shape.layers()];
        let out = &self.hidden[self.shape.layers() - 1];
        let mut total = 0.0;
        for (row, out) in out.chunks_exact(width).take(rows).enumerate() {
            total += row_loss(self.shape.output, out, goal, row, None).wide();
        }
        total
    }

    /// How many rows' largest output is their class.
    fn hits(&self, goal: Goal) -> u32 {
        let Goal::Classes(classes) = goal else { return 0 };
        let width = self.shape.widths[self.shape.layers()];
        let outputs = self.hidden[self.shape.layers() - 1].chunks_exact(width);
        let right = |(out, &class): (&[T], &u32)| match self.shape.output {
            Output::Logistic => (out[0] > T::ZERO) == (class == 1),
            _ => out.iter().enumerate().all(|(c, &o)| {
                c == class as usize || o < out[class as usize] || (o == out[class as usize] && c > class as usize)
            }),
        };
        outputs.zip(classes).filter(|pair| right(*pair)).count() as u32
    }

    /// Slopes of the mean loss down to the first layer's outputs, and gradients of everything above the first
    /// weight into `gradient`. Returns the mean loss.
    fn backward(&mut self, upper: &[T], goal: Goal, rows: usize, gradient: &mut [T]) -> f64 {
        let shape = self.shape;
        let last = shape.layers() - 1;
        let width = shape.widths[last + 1];
        let scale = T::ONE / T::of(rows as f64);
        let skip = shape.weight_range(0).end;
        let mut total = 0.0;
        self.slopes[last].resize(rows * width, T::ZERO);
        let outputs = self.hidden[last].chunks_exact(width).zip(self.slopes[last].chunks_exact_mut(width));
        for (row, (out, slope)) in outputs.enumerate() {
            total += row_loss(shape.output, out, goal, row, Some((slope, scale))).wide();
        }
        for layer in (0..=last).rev() {
            let width = shape.widths[layer + 1];
            let bias = shape.bias_range(layer);
            if !bias.is_empty() {
                let bias = &mut gradient[bias.start - skip..bias.end - skip];
                bias.fill(T::ZERO);
                self.slopes[layer].chunks_exact(width).for_each(|slope| add_scaled(bias, T::ONE, slope));
            }
            if layer == 0 {
                break;
            }
            let inputs = shape.widths[layer];
            let (below, from_here) = self.slopes.split_at_mut(layer);
            let slope = Matrix::new(&from_here[0], rows, width);
            let weight = shape.weight_range(layer);
            let weight = weight.start - skip..weight.end - skip;
            let input = &self.hidden[layer - 1];
            multiply(&mut gradient[weight.clone()], T::ONE, slope.turn(), Matrix::new(input, rows, inputs));
            let down = &mut below[layer - 1];
            down.resize(rows * inputs, T::ZERO);
            multiply(down, T::ONE, slope, Matrix::new(&upper[weight], width, inputs));
            for (d, &h) in down.iter_mut().zip(input) {
                *d = if h > T::ZERO { *d } else { T::ZERO };
            }
        }
        total / rows as f64
    }

    /// The candidate with the smallest loss on these rows, leaving its X·W₀ᵀ in `first`.
    fn compete(&mut self, among: &[usize], hint: usize, input: &[T], goal: Goal, rows: usize) -> Choice {
        let shape = self.shape;
        let (columns, width) = (shape.widths[0], shape.widths[1]);
        let chunk = competing_rows(rows);
        let hint = if hint < among.len() { hint } else { 0 };
        let mut best = Choice { position: usize::MAX, loss: f64::INFINITY };
        let others = (0..among.len()).filter(|&position| position != hint);
        for position in std::iter::once(hint).chain(others) {
            let params = std::mem::take(&mut self.models[among[position]]);
            let mut candidate = std::mem::take(&mut self.candidate);
            candidate.resize(rows * width, T::ZERO);
            let mut total = 0.0;
            let mut beaten = false;
            for begin in (0..rows).step_by(chunk) {
                let end = (begin + chunk).min(rows);
                let part = &mut candidate[begin * width..end * width];
                Self::first_layer(shape, &params, &input[begin * columns..end * columns], end - begin, part);
                self.forward_rest(&params[shape.first_weights()..], part, end - begin);
                total += self.output_loss(goal.part(begin..end), end - begin);
                if total.is_nan() {
                    total = f64::INFINITY;
                }
                beaten = total > best.loss || (total == best.loss && position > best.position);
                if beaten && self.fast {
                    break;
                }
            }
            if !beaten {
                best = Choice { position, loss: total };
                std::mem::swap(&mut self.first, &mut candidate);
            }
            self.candidate = candidate;
            self.models[among[position]] = params;
        }
        Choice { loss: best.loss / rows as f64, ..best }
    }

    /// Full-batch descent in the space of the rows: `self.first` holds X·W₀ᵀ, `upper` everything above the first
    /// weight. Leaves Q in `change` and returns the loss before the first step and the factor a of W₀.
    fn train_by_gram(
        &mut self,
        upper: &mut [T],
        gram: &[T],
        goal: Goal,
        plan: &Plan,
        change: &mut [T],
        scratch: &mut Scratch<T>,
    ) -> (f64, T) {
        let rows = change.len() / self.shape.widths[1];
        let (momentum, decay) = match plan.optimiser {
            Optimiser::Descent { momentum, weight_decay } => (T::of(momentum), T::of(weight_decay)),
            Optimiser::Adam { .. } => unreachable!("the Gram form is for descent"),
        };
        let step = T::of(plan.step);
        let plain = momentum == T::ZERO && decay == T::ZERO;
        let first = std::mem::take(&mut self.first);
        let mut current = std::mem::take(&mut self.candidate);
        current.clear();
        current.extend_from_slice(&first);
        scratch.begin(upper.len());
        scratch.velocity.clear();
        scratch.velocity.resize(if plain { 0 } else { change.len() }, T::ZERO);
        change.fill(T::ZERO);
        let (mut keep, mut keep_velocity) = (T::ONE, T::ZERO);
        let mut first_loss = f64::NAN;
        let steps = steps_of(plan, rows, rows);
        for t in 0..steps {
            if t > 0 {
                let width = self.shape.widths[1];
                multiply(&mut current, T::ONE, Matrix::new(gram, rows, rows), Matrix::new(change, rows, width));
                add_scaled(&mut current, keep, &first);
            }
            self.forward_rest(upper, &current, rows);
            let loss = self.backward(upper, goal, rows, &mut scratch.gradient);
            if t == 0 {
                first_loss = loss;
            }
            scratch.apply(plan, upper);
            if plain {
                add_scaled(change, -step, &self.slopes[0]);
            } else {
                for ((q, v), &slope) in change.iter_mut().zip(&mut scratch.velocity).zip(&self.slopes[0]) {
                    *v = momentum * *v + slope + decay * *q;
                    *q -= step * *v;
                }
                keep_velocity = momentum * keep_velocity + decay * keep;
                keep -= step * keep_velocity;
            }
        }
        self.first = first;
        self.candidate = current;
        (first_loss, keep)
    }

    /// Training step by step on the parameters themselves.
    fn train_plainly(&mut self, params: &mut [T], rows: &Shard, client: &str, plan: &Plan) -> f64 {
        let shape = self.shape;
        let columns = shape.widths[0];
        let skip = shape.first_weights();
        let mut stored = std::mem::take(&mut self.input);
        let input = convert(rows, &mut stored);
        let goal = Goal::of(rows);
        let mut batches = Batches::new(rows.len(), &plan.sample, client);
        let mut scratch = Scratch::default();
        scratch.begin(params.len());
        let fused = matches!(plan.optimiser, Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 });
        let mut gathered: Vec<T> = Vec::new();
        let mut first_loss = f64::NAN;
        let mut first = std::mem::take(&mut self.first);
        for t in 0..steps_of(plan, rows.len(), batches.size) {
            let batch = batches.next();
            let (x, batch_goal, count) = match &batch {
                None => (input, goal, rows.len()),
                Some(picked) => {
                    gathered.clear();
                    for &row in picked.iter() {
                        gathered.extend_from_slice(&input[row as usize * columns..(row as usize + 1) * columns]);
                    }
                    (&gathered[..], goal, picked.len())
                }
            };
            let picked_goal = batch.as_ref().map(|picked| PickedGoal::of(batch_goal, picked));
            let goal = picked_goal.as_ref().map_or(batch_goal, PickedGoal::goal);
            first.resize(count * shape.widths[1], T::ZERO);
            Self::first_layer(shape, params, x, count, &mut first);
            self.forward_rest(&params[skip..], &first, count);
            let loss = self.backward(&params[skip..], goal, count, &mut scratch.gradient[skip..]);
            if t == 0 {
                first_loss = loss;
            }
            let slope = Matrix::new(&self.slopes[0], count, shape.widths[1]).turn();
            let x = Matrix::new(x, count, columns);
            if fused {
                multiply_add(&mut params[..skip], T::of(-plan.step), slope, x);
                add_scaled(&mut params[skip..], T::of(-plan.step), &scratch.gradient[skip..]);
            } else {
                multiply(&mut scratch.gradient[..skip], T::ONE, slope, x);
                scratch.apply(plan, params);
            }
        }
        self.first = first;
        self.input = stored;
        first_loss
    }

    /// Whether training this client by its Gram matrix is exact and pays.
    fn gram_pays(&self, rows: usize, plan: &Plan) -> bool {
        self.fast
            && plan.sample.batch.is_none_or(|batch| batch as usize >= rows)
            && plan.sample.on == Portion::All
            && matches!(plan.optimiser, Optimiser::Descent { .. })
            && steps_of(plan, rows, rows) >= 2
            && rows <= self.shape.widths[0]
    }

    /// X·Xᵀ of a client's training rows, remembered where there is room.
    fn with_gram<R>(&mut self, seat: &Seat, input: &[T], then: impl FnOnce(&mut Self, &[T]) -> R) -> R {
        let rows = seat.client.train.len();
        let make = || {
            let x = Matrix::new(input, rows, self.shape.widths[0]);
            let mut gram = vec![T::ZERO; rows * rows];
            multiply(&mut gram, T::ONE, x, x.turn());
            gram
        };
        if !seat.may_prepare {
            let gram = make();
            return then(self, &gram);
        }
        let kept = seat.prepared.get_or_init(|| Box::new(make()));
        match kept.downcast_ref::<Vec<T>>() {
            Some(gram) => then(self, gram),
            None => then(self, &make()),
        }
    }

    /// Sums of trained models without forming any single one: Σ(a·W₀ + Qᵀ·X) over concatenated rows.
    fn reduce_by_gram(&mut self, job: &Job, plan: &Plan, seats: &[Seat], hints: Hints, weight: Weight) -> Reduced {
        const ROWS_AT_ONCE: usize = 256;
        let shape = self.shape;
        let (columns, width, skip) = (shape.widths[0], shape.widths[1], shape.first_weights());
        let mut reduced = Reduced::new(job.slots);
        let mut sums: Vec<Option<(Vec<T>, f64)>> = vec![None; job.slots];
        let mut scratch = Scratch::default();
        let (mut input, mut changes) = (Vec::new(), Vec::new());
        let mut waiting: Vec<(usize, usize)> = Vec::new();
        let mut upper: Vec<T> = Vec::new();
        let mut vector = Vec::new();

        let flush = |waiting: &mut Vec<(usize, usize)>,
                     input: &mut Vec<T>,
                     changes: &mut Vec<T>,
                     sums: &mut [Option<(Vec<T>, f64)>]| {
            let mut begin = 0;
            for run in waiting.chunk_by(|a, b| a.0 == b.0) {
                let end = begin + run.iter().map(|(_, rows)| rows).sum::<usize>();
                if let Some((sum, _)) = &mut sums[run[0].0] {
                    let q = Matrix::new(&changes[begin * width..end * width], end - begin, width);
                    let x = Matrix::new(&input[begin * columns..end * columns], end - begin, columns);
                    multiply_add(&mut sum[..skip], T::ONE, q.turn(), x);
                }
                begin = end;
            }
            waiting.clear();
            input.clear();
            changes.clear();
        };

        for (s, seat) in seats.iter().enumerate() {
            let rows = &seat.client.train;
            let hint = &mut hints.table[s * hints.jobs + hints.job];
            let client_weight = weight.of(rows.len());
            if !self.gram_pays(rows.len(), plan) {
                let choice = self.settle(job, *hint as usize, seat);
                *hint = choice.position as u32;
                vector.resize(shape.layout.len(), 0.0);
                let first_loss = self.train(job.among[choice.position], seat, plan, &mut vector);
                reduced.reply(choice.position, if job.among.len() == 1 { first_loss } else { choice.loss });
                reduced.add(job.slot(choice.position), client_weight, &vector);
                continue;
            }
            let before = input.len() / columns;
            if before > 0 && before + rows.len() > ROWS_AT_ONCE {
                flush(&mut waiting, &mut input, &mut changes, &mut sums);
            }
            let begin = input.len() / columns;
            input.resize((begin + rows.len()) * columns, T::ZERO);
            convert_into(rows, &mut input[begin * columns..]);
            let x = &input[begin * columns..];
            let goal = Goal::of(rows);
            let choice = self.first_products(job, *hint as usize, seat, x, goal);
            *hint = choice.position as u32;
            let model = job.among[choice.position];
            upper.clear();
            upper.extend_from_slice(&self.models[model][skip..]);
            changes.resize((begin + rows.len()) * width, T::ZERO);
            let change = &mut changes[begin * width..];
            let (first_loss, keep) = self.with_gram(seat, x, |worker, gram| {
                worker.train_by_gram(&mut upper, gram, goal, plan, change, &mut scratch)
            });
            if client_weight != 1.0 {
                change.iter_mut().for_each(|q| *q *= T::of(client_weight));
            }
            let slot = job.slot(choice.position);
            let (sum, kept) = sums[slot].get_or_insert_with(|| (vec![T::ZERO; shape.layout.len()], 0.0));
            add_scaled(&mut sum[skip..], T::of(client_weight), &upper);
            *kept += client_weight * keep.wide();
            reduced.sums[slot].weight += client_weight;
            reduced.sums[slot].count += 1;
            reduced.reply(choice.position, if job.among.len() == 1 { first_loss } else { choice.loss });
            waiting.push((slot, rows.len()));
        }
        flush(&mut waiting, &mut input, &mut changes, &mut sums);
        for (slot, sum) in sums.into_iter().enumerate() {
            let Some((sum, kept)) = sum else { continue };
            let model = &self.models[job.among[slot]];
            let total = &mut reduced.sums[slot].total;
            total.resize(sum.len(), 0.0);
            for (i, (total, value)) in total.iter_mut().zip(sum).enumerate() {
                *total += value.wide() + if i < skip { kept * model[i].wide() } else { 0.0 };
            }
        }
        reduced
    }

    /// The choice, leaving X·W₀ᵀ of the chosen model in `self.first`.
    fn first_products(&mut self, job: &Job, hint: usize, seat: &Seat, x: &[T], goal: Goal) -> Choice {
        let rows = seat.client.train.len();
        if job.among.len() > 1 && job.on == Portion::All {
            return self.compete(job.among, hint, x, goal, rows);
        }
        let choice = self.settle(job, hint, seat);
        let mut first = std::mem::take(&mut self.first);
        first.resize(rows * self.shape.widths[1], T::ZERO);
        Self::first_layer(self.shape, &self.models[job.among[choice.position]], x, rows, &mut first);
        self.first = first;
        choice
    }

    /// Choices and gradients of many jobs at once, for stacks without hidden layers: all models are rows of one
    /// product with the client's rows, all slopes rows of another.
    fn reduce_stacked(&mut self, jobs: &[Job], seats: &[Seat], weight: Weight) -> Vec<Reduced> {
        let shape = self.shape;
        let (columns, outputs, skip) = (shape.widths[0], shape.widths[1], shape.first_weights());
        if self.stack.is_empty() {
            self.stack = self.models[..self.given].iter().flat_map(|model| &model[..skip]).copied().collect();
        }
        let stacked = self.given * outputs;
        let mut reduced: Vec<Reduced> = jobs.iter().map(|job| Reduced::new(job.slots)).collect();
        let mut sums: Vec<Vec<Option<Vec<T>>>> = jobs.iter().map(|job| vec![None; job.slots]).collect();
        let mut products: Vec<T> = Vec::new();
        let mut slopes: Vec<T> = Vec::new();
        let mut gradients = vec![T::ZERO; jobs.len() * outputs * columns];
        let mut buffer = std::mem::take(&mut self.input);
        let mut wanted: Vec<T> = Vec::new();
        let mut row_out = vec![T::ZERO; outputs];
        let mut row_slope = vec![T::ZERO; outputs];
        for seat in seats {
            let shard = &seat.client.train;
            let rows = shard.len();
            let goal = Goal::of(shard);
            let x = convert(shard, &mut buffer);
            products.resize(stacked * rows, T::ZERO);
            let turned = Matrix::new(x, rows, columns).turn();
            multiply(&mut products, T::ONE, Matrix::new(&self.stack, stacked, columns), turned);
            for (line, products) in products.chunks_exact_mut(rows).enumerate() {
                if shape.bias {
                    let bias = self.models[line / outputs][skip + line % outputs];
                    products.iter_mut().for_each(|product| *product += bias);
                }
            }
            if let Goal::Values(values) = goal {
                wanted.clear();
                wanted.extend(values.iter().map(|&value| T::of(value)));
            }
            let scale = T::ONE / T::of(rows as f64);
            slopes.resize(jobs.len() * outputs * rows, T::ZERO);
            let client_weight = weight.of(rows);
            for (j, job) in jobs.iter().enumerate() {
                let lines = |model: usize| &products[model * outputs * rows..(model + 1) * outputs * rows];
                let loss = |model: usize, row_out: &mut [T]| match goal {
                    Goal::Values(_) => squared_distance(lines(model), &wanted),
                    Goal::Classes(_) => (0..rows)
                        .map(|row| {
                            row_out.iter_mut().enumerate().for_each(|(c, o)| *o = lines(model)[c * rows + row]);
                            row_loss(shape.output, row_out, goal, row, None).wide()
                        })
                        .sum(),
                };
                let choice = super::first_smallest(job.among.iter().map(|&model| loss(model, &mut row_out)));
                let chosen = lines(job.among[choice.position]);
                let slope = &mut slopes[j * outputs * rows..(j + 1) * outputs * rows];
                match goal {
                    Goal::Values(_) => {
                        let double = scale + scale;
                        for ((s, &product), &value) in slope.iter_mut().zip(chosen).zip(&wanted) {
                            *s = (product - value) * double;
                        }
                    }
                    Goal::Classes(_) => {
                        for row in 0..rows {
                            row_out.iter_mut().enumerate().for_each(|(c, o)| *o = chosen[c * rows + row]);
                            row_loss(shape.output, &row_out, goal, row, Some((&mut row_slope, scale)));
                            row_slope.iter().enumerate().for_each(|(c, &s)| slope[c * rows + row] = s);
                        }
                    }
                }
                reduced[j].reply(choice.position, choice.loss / rows as f64);
            }
            let lines = jobs.len() * outputs;
            multiply(&mut gradients, T::ONE, Matrix::new(&slopes, lines, rows), Matrix::new(x, rows, columns));
            for (j, job) in jobs.iter().enumerate() {
                let slot = job.slot(reduced[j].choices[reduced[j].choices.len() - 1] as usize);
                let sum = sums[j][slot].get_or_insert_with(|| vec![T::ZERO; shape.layout.len()]);
                let share = T::of(client_weight);
                add_scaled(&mut sum[..skip], share, &gradients[j * skip..(j + 1) * skip]);
                for (c, bias) in sum[skip..].iter_mut().enumerate() {
                    let slope = &slopes[(j * outputs + c) * rows..(j * outputs + c + 1) * rows];
                    *bias += share * slope.iter().fold(T::ZERO, |total, &s| total + s);
                }
                reduced[j].sums[slot].weight += client_weight;
                reduced[j].sums[slot].count += 1;
            }
        }
        self.input = buffer;
        for (reduced, sums) in reduced.iter_mut().zip(sums) {
            for (slot, sum) in sums.into_iter().enumerate() {
                reduced.sums[slot].total = sum.into_iter().flatten().map(T::wide).collect();
            }
        }
        reduced
    }

    fn stacks(&self, jobs: &[Job]) -> bool {
        let full = |then: &Then| matches!(then, Then::Gradient(Sample { on: Portion::All, batch: None, .. }));
        self.fast && self.shape.layers() == 1 && jobs.iter().all(|job| full(job.then) && job.on == Portion::All)
    }
}

/// Last time's choices of all seats and jobs, and which job is meant.
struct Hints<'h> {
    table: &'h mut [u32],
    jobs: usize,
    job: usize,
}

/// Σ (a − b)² in lanes of fixed order.
fn squared_distance<T: Real>(a: &[T], b: &[T]) -> f64 {
    let mut lanes = [T::ZERO; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            let difference = a[lane] - b[lane];
            lanes[lane] += difference * difference;
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(&a, &b)| ((a - b) * (a - b)).wide());
    lanes.iter().map(|lane| lane.wide()).chain(rest).sum()
}

/// How many steps a plan means for so many rows in batches of this size.
fn steps_of(plan: &Plan, rows: usize, batch: usize) -> usize {
    match plan.amount {
        Amount::Steps(steps) => steps as usize,
        Amount::Epochs(epochs) => epochs as usize * rows.div_ceil(batch.max(1)),
    }
}

/// Gradient and moments of one training, reused from step to step.
#[derive(Default)]
struct Scratch<T> {
    gradient: Vec<T>,
    /// Velocity of descent, or Adam's first moment.
    first: Vec<T>,
    /// Adam's second moment.
    second: Vec<T>,
    /// The first weight's velocity in the Gram form.
    velocity: Vec<T>,
    steps: i32,
}

impl<T: Real> Scratch<T> {
    fn begin(&mut self, width: usize) {
        self.gradient.resize(width, T::ZERO);
        self.first.clear();
        self.second.clear();
        self.steps = 0;
    }

    /// One step of the plan's optimiser along `self.gradient`.
    fn apply(&mut self, plan: &Plan, params: &mut [T]) {
        let step = T::of(plan.step);
        self.steps += 1;
        match plan.optimiser {
            Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 } => add_scaled(params, -step, &self.gradient),
            Optimiser::Descent { momentum, weight_decay } => {
                self.first.resize(params.len(), T::ZERO);
                let (momentum, decay) = (T::of(momentum), T::of(weight_decay));
                for ((p, &g), v) in params.iter_mut().zip(&self.gradient).zip(&mut self.first) {
                    *v = momentum * *v + g + decay * *p;
                    *p -= step * *v;
                }
            }
            Optimiser::Adam { weight_decay } => {
                const FORGET_FIRST: f64 = 0.9;
                const FORGET_SECOND: f64 = 0.999;
                self.first.resize(params.len(), T::ZERO);
                self.second.resize(params.len(), T::ZERO);
                let (keep_first, keep_second) = (T::of(FORGET_FIRST), T::of(FORGET_SECOND));
                let root = (1.0 - FORGET_SECOND.powi(self.steps)).sqrt();
                let rate = T::of(plan.step * root / (1.0 - FORGET_FIRST.powi(self.steps)));
                let floor = T::of(1e-8 * root);
                let decay = T::of(weight_decay);
                let moments = self.first.iter_mut().zip(&mut self.second);
                for ((p, &g), (m, v)) in params.iter_mut().zip(&self.gradient).zip(moments) {
                    let g = g + decay * *p;
                    *m = keep_first * *m + (T::ONE - keep_first) * g;
                    *v = keep_second * *v + (T::ONE - keep_second) * g * g;
                    *p -= rate * *m / (v.root() + floor);
                }
            }
        }
    }
}

/// Batches without replacement, reshuffled every pass.
struct Batches {
    order: Vec<u32>,
    next: usize,
    size: usize,
    rng: Option<Rng>,
}

impl Batches {
    fn new(rows: usize, sample: &Sample, client: &str) -> Self {
        let size = sample.batch.map_or(rows, |batch| (batch as usize).min(rows)).max(1);
        let whole = size >= rows;
        let rng = (!whole).then(|| Key::new(sample.seed).word("batches").word(client).rng());
        let order = if whole { Vec::new() } else { (0..rows as u32).collect() };
        Self { next: order.len(), order, size, rng }
    }

    /// The rows of the next batch; `None` means all.
    fn next(&mut self) -> Option<&[u32]> {
        let rng = self.rng.as_mut()?;
        if self.next >= self.order.len() {
            self.order.shuffle(rng);
            self.next = 0;
        }
        let begin = self.next;
        self.next = (begin + self.size).min(self.order.len());
        Some(&self.order[begin..self.next])
    }
}

/// The targets of picked rows.
enum PickedGoal {
    Classes(Vec<u32>),
    Values(Vec<f64>),
}

impl PickedGoal {
    fn of(goal: Goal, picked: &[u32]) -> Self {
        match goal {
            Goal::Classes(classes) => PickedGoal::Classes(picked.iter().map(|&row| classes[row as usize]).collect()),
            Goal::Values(values) => PickedGoal::Values(picked.iter().map(|&row| values[row as usize]).collect()),
        }
    }

    fn goal(&self) -> Goal<'_> {
        match self {
            PickedGoal::Classes(classes) => Goal::Classes(classes),
            PickedGoal::Values(values) => Goal::Values(values),
        }
    }
}

impl<T: Real> Worker for DenseWorker<'_, T> {
    fn load(&mut self, params: &[f64]) -> usize {
        self.models.truncate(self.given);
        self.models.push(params.iter().map(|&value| T::of(value)).collect());
        self.given
    }

    fn width(&self) -> usize {
        self.shape.layout.len()
    }

    fn loss(&mut self, model: usize, rows: &Shard) -> f64 {
        self.score(model, rows).loss / rows.len() as f64
    }

    fn score(&mut self, model: usize, rows: &Shard) -> Score {
        const ROWS_AT_ONCE: usize = 256;
        let shape = self.shape;
        let (columns, width) = (shape.widths[0], shape.widths[1]);
        let params = std::mem::take(&mut self.models[model]);
        let mut buffer = std::mem::take(&mut self.input);
        let mut first = std::mem::take(&mut self.candidate);
        let mut score = Score { rows: rows.len() as u32, ..Score::default() };
        let x = convert(rows, &mut buffer);
        for begin in (0..rows.len()).step_by(ROWS_AT_ONCE) {
            let end = (begin + ROWS_AT_ONCE).min(rows.len());
            let goal = Goal::of(rows).part(begin..end);
            first.resize((end - begin) * width, T::ZERO);
            Self::first_layer(shape, &params, &x[begin * columns..end * columns], end - begin, &mut first);
            self.forward_rest(&params[shape.first_weights()..], &first, end - begin);
            score.loss += self.output_loss(goal, end - begin);
            score.hits += self.hits(goal);
        }
        self.candidate = first;
        self.input = buffer;
        self.models[model] = params;
        score
    }

    fn gradient(&mut self, model: usize, seat: &Seat, sample: &Sample, out: &mut [f64]) -> f64 {
        // One plain step of size 1 from θ ends at θ − g; the gradient itself is what the step left in scratch.
        let shape = self.shape;
        let (columns, skip) = (shape.widths[0], shape.first_weights());
        let rows = seat.rows(sample.on);
        let mut batches = Batches::new(rows.len(), sample, &seat.client.id);
        let mut buffer = std::mem::take(&mut self.input);
        let all = convert(&rows, &mut buffer);
        let picked = batches.next();
        let gathered: Vec<T>;
        let picked_goal;
        let (x, goal, count) = match picked {
            None => (all, Goal::of(&rows), rows.len()),
            Some(picked) => {
                gathered = picked
                    .iter()
                    .flat_map(|&r| &all[r as usize * columns..(r as usize + 1) * columns])
                    .copied()
                    .collect();
                picked_goal = PickedGoal::of(Goal::of(&rows), picked);
                (&gathered[..], picked_goal.goal(), picked.len())
            }
        };
        let params = std::mem::take(&mut self.models[model]);
        let mut first = std::mem::take(&mut self.first);
        first.resize(count * shape.widths[1], T::ZERO);
        Self::first_layer(shape, &params, x, count, &mut first);
        self.forward_rest(&params[skip..], &first, count);
        let mut gradient = vec![T::ZERO; params.len()];
        let loss = self.backward(&params[skip..], goal, count, &mut gradient[skip..]);
        let slope = Matrix::new(&self.slopes[0], count, shape.widths[1]).turn();
        multiply(&mut gradient[..skip], T::ONE, slope, Matrix::new(x, count, columns));
        out.iter_mut().zip(&gradient).for_each(|(o, g)| *o = g.wide());
        self.first = first;
        self.models[model] = params;
        self.input = buffer;
        loss
    }

    fn train(&mut self, model: usize, seat: &Seat, plan: &Plan, out: &mut [f64]) -> f64 {
        let rows = seat.rows(plan.sample.on);
        let mut params = self.models[model].clone();
        let loss = if self.gram_pays(rows.len(), plan) {
            let shape = self.shape;
            let (columns, width, skip) = (shape.widths[0], shape.widths[1], shape.first_weights());
            let mut buffer = std::mem::take(&mut self.input);
            let x = convert(&rows, &mut buffer);
            self.first.resize(rows.len() * width, T::ZERO);
            Self::first_layer(shape, &params, x, rows.len(), &mut self.first);
            let mut change = vec![T::ZERO; rows.len() * width];
            let mut scratch = Scratch::default();
            let (weights, upper) = params.split_at_mut(skip);
            let (loss, keep) = self.with_gram(seat, x, |worker, gram| {
                worker.train_by_gram(upper, gram, Goal::of(&rows), plan, &mut change, &mut scratch)
            });
            weights.iter_mut().for_each(|w| *w *= keep);
            let q = Matrix::new(&change, rows.len(), width).turn();
            multiply_add(weights, T::ONE, q, Matrix::new(x, rows.len(), columns));
            self.input = buffer;
            loss
        } else {
            self.train_plainly(&mut params, &rows, &seat.client.id, plan)
        };
        out.iter_mut().zip(&params).for_each(|(o, p)| *o = p.wide());
        loss
    }

    fn choose(&mut self, among: &[usize], hint: usize, seat: &Seat, on: Portion) -> Choice {
        let rows = seat.rows(on);
        let mut buffer = std::mem::take(&mut self.input);
        let choice = self.compete(among, hint, convert(&rows, &mut buffer), Goal::of(&rows), rows.len());
        self.input = buffer;
        choice
    }

    fn reduce(&mut self, jobs: &[Job], seats: &[Seat], hints: &mut [u32], weight: Weight) -> Vec<Reduced> {
        if self.stacks(jobs) {
            return self.reduce_stacked(jobs, seats, weight);
        }
        let gram = |job: &Job| matches!(job.then, Then::Train(_)) && job.slots == job.among.len();
        if !(self.fast && jobs.iter().all(gram)) {
            return super::reduce_plainly(self, jobs, seats, hints, weight);
        }
        let reduce = |(j, job): (usize, &Job)| match job.then {
            Then::Train(plan) => {
                let hints = Hints { table: &mut *hints, jobs: jobs.len(), job: j };
                self.reduce_by_gram(job, plan, seats, hints, weight)
            }
            _ => unreachable!("only training jobs come here"),
        };
        jobs.iter().enumerate().map(reduce).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_distr::{Distribution, StandardNormal};
    use std::sync::OnceLock;

    const PLAIN: Optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 };
    const HEAVY: Optimiser = Optimiser::Descent { momentum: 0.9, weight_decay: 0.05 };

    fn rng(purpose: &str) -> Rng {
        Key::new(3).word(purpose).rng()
    }

    fn normals(purpose: &str, count: usize) -> Vec<f64> {
        StandardNormal.sample_iter(rng(purpose)).take(count).collect()
    }

    fn client(id: &str, rows: usize, columns: usize, output: Output) -> Client {
        let features = Features::F64 { columns, values: normals(id, rows * columns) };
        let mut draws = rng(&format!("targets of {id}"));
        let targets = match output {
            Output::Squared => Targets::Values(normals(&format!("values of {id}"), rows)),
            Output::Logistic => Targets::Classes((0..rows).map(|_| draws.random_range(0..2)).collect()),
            Output::Softmax => Targets::Classes((0..rows).map(|_| draws.random_range(0..3)).collect()),
        };
        let train = Shard::new(features, targets).unwrap();
        Client { id: id.into(), test: train.clone(), train, group: None, truth: None }
    }

    fn stacks() -> Vec<Dense> {
        let dense = |widths: &[usize], bias, output| Dense::new(widths.to_vec(), bias, output, Precision::F64);
        vec![
            dense(&[5, 1], false, Output::Squared),
            dense(&[5, 1], true, Output::Logistic),
            dense(&[5, 3], true, Output::Softmax),
            dense(&[5, 4, 3], true, Output::Softmax),
            dense(&[5, 4, 6, 1], true, Output::Squared),
        ]
    }

    fn models(dense: &Dense, count: usize) -> Vec<Vec<f64>> {
        (0..count).map(|model| dense.initialise(&mut rng(&format!("model {model}")))).collect()
    }

    fn views(models: &[Vec<f64>]) -> Vec<&[f64]> {
        models.iter().map(Vec::as_slice).collect()
    }

    struct Bench {
        clients: Vec<Client>,
        prepared: Vec<OnceLock<Box<dyn std::any::Any + Send + Sync>>>,
    }

    impl Bench {
        fn new(sizes: &[usize], output: Output) -> Self {
            let clients = sizes.iter().enumerate().map(|(i, &rows)| client(&format!("client {i}"), rows, 5, output));
            Self { clients: clients.collect(), prepared: sizes.iter().map(|_| OnceLock::new()).collect() }
        }

        fn seats(&self) -> Vec<Seat<'_>> {
            let seat = |(client, prepared)| Seat { client, prepared, may_prepare: true };
            self.clients.iter().zip(&self.prepared).map(seat).collect()
        }
    }

    fn plan(optimiser: Optimiser, steps: u32, batch: Option<u32>) -> Plan {
        Plan { sample: Sample { batch, ..Sample::FULL }, amount: Amount::Steps(steps), step: 0.1, optimiser }
    }

    fn close(a: &[f64], b: &[f64], tolerance: f64) {
        let size = b.iter().map(|v| v * v).sum::<f64>().sqrt().max(1e-300);
        let gap = crate::linalg::distance(a, b) / size;
        assert!(a.len() == b.len() && gap <= tolerance, "relative distance {gap}");
    }

    #[test]
    fn gradients_agree_with_finite_differences() {
        for dense in stacks() {
            let bench = Bench::new(&[7], dense.output);
            let seat = &bench.seats()[0];
            let params = models(&dense, 1).remove(0);
            let mut gradient = vec![0.0; params.len()];
            let loss = dense.worker::<f64>(&[&params]).gradient(0, seat, &Sample::FULL, &mut gradient);
            assert!((loss - dense.worker::<f64>(&[&params]).loss(0, &seat.client.train)).abs() < 1e-14);
            let numeric: Vec<f64> = (0..params.len())
                .map(|i| {
                    let shifted = |by: f64| {
                        let mut moved = params.clone();
                        moved[i] += by;
                        dense.worker::<f64>(&[&moved]).loss(0, &seat.client.train)
                    };
                    (shifted(1e-5) - shifted(-1e-5)) / 2e-5
                })
                .collect();
            close(&gradient, &numeric, 1e-8);
        }
    }

    #[test]
    fn losses_and_hits_by_hand() {
        let dense = Dense::new(vec![1, 2], false, Output::Softmax, Precision::F64);
        let rows =
            Shard::new(Features::F64 { columns: 1, values: vec![1.0, 2.0] }, Targets::Classes(vec![0, 1])).unwrap();
        let score = dense.worker::<f64>(&[&[1.0, 0.0]]).score(0, &rows);
        let loss = (1.0 + (-1f64).exp()).ln() + (1.0 + 2f64.exp()).ln();
        assert!((score.loss - loss).abs() < 1e-14);
        assert_eq!((score.hits, score.rows), (1, 2));
        let squared = Dense::new(vec![1, 1], false, Output::Squared, Precision::F64);
        let rows =
            Shard::new(Features::F64 { columns: 1, values: vec![1.0, 2.0] }, Targets::Values(vec![0.0, 1.0])).unwrap();
        assert_eq!(squared.worker::<f64>(&[&[3.0]]).score(0, &rows).loss, 9.0 + 25.0);
    }

    #[test]
    fn a_large_margin_neither_overflows_nor_goes_negative() {
        for out in [[-1e4f64], [1e4]] {
            let mut slope = [0.0f64];
            let loss = row_loss(Output::Logistic, &out, Goal::Classes(&[1]), 0, Some((&mut slope, 1.0)));
            assert!(loss >= 0.0 && loss.is_finite() && slope[0].is_finite());
        }
        let out = [1e4f64, -1e4, 0.0];
        assert_eq!(row_loss(Output::Softmax, &out, Goal::Classes(&[0]), 0, None), 0.0);
        assert_eq!(row_loss(Output::Softmax, &out, Goal::Classes(&[1]), 0, None), 2e4);
    }

    #[test]
    fn training_in_gram_form_is_training() {
        for dense in stacks() {
            let bench = Bench::new(&[4], dense.output);
            let seat = &bench.seats()[0];
            let params = models(&dense, 1);
            for optimiser in [PLAIN, HEAVY] {
                let plan = plan(optimiser, 6, None);
                let (mut fast, mut plain) = (vec![0.0; params[0].len()], vec![0.0; params[0].len()]);
                assert!(dense.worker::<f64>(&views(&params)).gram_pays(4, &plan));
                let fast_loss = dense.worker::<f64>(&views(&params)).train(0, seat, &plan, &mut fast);
                let plain_loss = dense.worker::<f64>(&views(&params)).plain().train(0, seat, &plan, &mut plain);
                close(&fast, &plain, 1e-13);
                assert!((fast_loss - plain_loss).abs() < 1e-13);
            }
        }
    }

    #[test]
    fn sums_while_computing_are_sums_of_answers() {
        let then = [
            Then::Gradient(Sample::FULL),
            Then::Train(plan(PLAIN, 5, None)),
            Then::Train(plan(HEAVY, 3, None)),
            Then::Train(plan(PLAIN, 3, Some(2))),
        ];
        for dense in stacks() {
            let bench = Bench::new(&[4, 3, 9, 2, 5, 4], dense.output);
            let seats = bench.seats();
            let params = models(&dense, 4);
            for then in &then {
                let among = [[0usize, 1], [2, 3]];
                let jobs: Vec<Job> =
                    among.iter().map(|among| Job { among, on: Portion::All, then, slots: 2 }).collect();
                for weight in [Weight::Uniform, Weight::Rows] {
                    let mut hints = vec![1; seats.len() * jobs.len()];
                    let fast = dense.worker::<f64>(&views(&params)).reduce(&jobs, &seats, &mut hints, weight);
                    let mut untouched = vec![0; seats.len() * jobs.len()];
                    let plain =
                        dense.worker::<f64>(&views(&params)).plain().reduce(&jobs, &seats, &mut untouched, weight);
                    for (fast, plain) in fast.iter().zip(&plain) {
                        assert_eq!(fast.choices, plain.choices);
                        close(&fast.losses, &plain.losses, 1e-13);
                        for (fast, plain) in fast.sums.iter().zip(&plain.sums) {
                            assert_eq!((fast.count, fast.weight), (plain.count, plain.weight));
                            close(&fast.total, &plain.total, 1e-12);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_choice_does_not_depend_on_where_it_looks_first() {
        let dense = Dense::new(vec![5, 4, 3], true, Output::Softmax, Precision::F32);
        let bench = Bench::new(&[90, 33, 200, 16], dense.output);
        let mut params = models(&dense, 4);
        params.push(params[1].clone()); // A tie, which must go to the first.
        params[3][0] = f64::NAN; // Never chosen.
        for seat in bench.seats() {
            let choices: Vec<Choice> = (0..5)
                .map(|hint| dense.worker::<f32>(&views(&params)).choose(&[0, 1, 2, 3, 4], hint, &seat, Portion::All))
                .collect();
            let plain = dense.worker::<f32>(&views(&params)).plain().choose(&[0, 1, 2, 3, 4], 0, &seat, Portion::All);
            assert!(choices.iter().all(|choice| *choice == plain), "{choices:?} {plain:?}");
            assert!(plain.position < 3);
        }
    }

    #[test]
    fn adam_takes_a_first_step_of_its_step_size() {
        let mut scratch = Scratch { gradient: vec![3.0, -0.5], ..Scratch::default() };
        let mut params = vec![1.0, 1.0];
        scratch.apply(&plan(Optimiser::Adam { weight_decay: 0.0 }, 1, None), &mut params);
        close(&params, &[0.9, 1.1], 1e-7);
        // Second step, by hand: m = 0.9·0.1·g + 0.1·g, v likewise; bias correction leaves g and g².
        scratch.apply(&plan(Optimiser::Adam { weight_decay: 0.0 }, 1, None), &mut params);
        close(&params, &[0.8, 1.2], 1e-7);
    }

    #[test]
    fn batches_see_every_row_once_a_pass() {
        let sample = Sample { batch: Some(3), ..Sample::FULL };
        let mut batches = Batches::new(8, &sample, "a");
        for _ in 0..2 {
            let mut seen: Vec<u32> = (0..3).flat_map(|_| batches.next().unwrap().to_vec()).collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
        }
        assert!(Batches::new(8, &Sample { batch: Some(8), ..Sample::FULL }, "a").next().is_none());
    }

    #[test]
    fn mini_batch_steps_by_hand() {
        // One weight, two rows with x = 1: whichever row comes first, θ moves by −0.1·2(θ − y) each time.
        let dense = Dense::new(vec![1, 1], false, Output::Squared, Precision::F64);
        let rows =
            Shard::new(Features::F64 { columns: 1, values: vec![1.0, 1.0] }, Targets::Values(vec![5.0, 5.0])).unwrap();
        let client = Client { id: "a".into(), test: rows.clone(), train: rows, group: None, truth: None };
        let prepared = OnceLock::new();
        let seat = Seat { client: &client, prepared: &prepared, may_prepare: true };
        let mut out = [0.0];
        let loss = dense.worker::<f64>(&[&[0.0]]).train(0, &seat, &plan(PLAIN, 2, Some(1)), &mut out);
        assert_eq!(loss, 25.0);
        assert!((out[0] - (1.0 + 0.8)).abs() < 1e-15);
    }
}
