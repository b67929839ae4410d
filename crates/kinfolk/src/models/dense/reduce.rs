//! Sums over a block of clients without forming single answers.

use super::{Choice, Choosing, DenseWorker, Reduced, Seat, Summing, Worker};
use super::{Goal, convert, convert_into, row_loss};
use crate::data::Shard;
use crate::models::first_smallest;
use crate::num::{Matrix, Real, add_scaled, multiply, multiply_add, squared_distance};
use crate::training::{Portion, Sample, Then};

impl<T: Real> DenseWorker<T> {
    /// Sums of trained models without forming any single one: Σ(a·W₀ + Qᵀ·X) over concatenated rows.
    pub(super) fn reduce_by_gram(
        &mut self,
        step: &Choosing,
        seats: &[Seat],
        hints: Hints,
        summing: Summing,
    ) -> Reduced {
        const ROWS_AT_ONCE: usize = 256;
        let Then::Train(plan) = &*step.then else { unreachable!("only steps of training come here") };
        let shape = self.shape.clone();
        let (columns, width, skip) = (shape.widths[0], shape.widths[1], shape.first_weights());
        let slots = summing.slots(step);
        let mut reduced = Reduced::new(slots);
        let mut sums: Vec<Option<(Vec<T>, f64)>> = vec![None; slots];
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
                    multiply_add(&mut sum[..skip], T::ONE, q.transpose(), x);
                }
                begin = end;
            }
            waiting.clear();
            input.clear();
            changes.clear();
        };

        for (s, seat) in seats.iter().enumerate() {
            let rows = &seat.client.train;
            let hint = &mut hints.table[s * hints.steps + hints.place];
            let client_weight = summing.weight.of(rows.len());
            if !self.gram_pays(rows.len(), plan) {
                let choice = self.choose_for(step, *hint as usize, seat);
                *hint = choice.position as u32;
                vector.resize(shape.layout.len(), 0.0);
                let first_loss = self.train(step.among[choice.position], seat, plan, &mut vector);
                reduced.reply(choice.position, if step.among.len() == 1 { first_loss } else { choice.loss });
                reduced.add(summing.slot(choice.position), client_weight, &vector);
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
            let choice = self.first_products(step, *hint as usize, seat, x, goal);
            *hint = choice.position as u32;
            let model = step.among[choice.position];
            upper.clear();
            upper.extend_from_slice(&self.plain.models[model][skip..]);
            changes.resize((begin + rows.len()) * width, T::ZERO);
            let change = &mut changes[begin * width..];
            let (first_loss, keep) =
                self.with_gram(seat, x, |worker, gram| worker.train_by_gram(&mut upper, gram, goal, plan, change));
            if client_weight != 1.0 {
                change.iter_mut().for_each(|q| *q *= T::of(client_weight));
            }
            let slot = summing.slot(choice.position);
            let (sum, kept) = sums[slot].get_or_insert_with(|| (vec![T::ZERO; shape.layout.len()], 0.0));
            add_scaled(&mut sum[skip..], T::of(client_weight), &upper);
            *kept += client_weight * keep.to_f64();
            reduced.sums[slot].weight += client_weight;
            reduced.sums[slot].count += 1;
            reduced.reply(choice.position, if step.among.len() == 1 { first_loss } else { choice.loss });
            waiting.push((slot, rows.len()));
        }
        flush(&mut waiting, &mut input, &mut changes, &mut sums);
        for (slot, sum) in sums.into_iter().enumerate() {
            let Some((sum, kept)) = sum else { continue };
            let model = &self.plain.models[step.among[slot]];
            let total = &mut reduced.sums[slot].total;
            total.resize(sum.len(), 0.0);
            for (i, (total, value)) in total.iter_mut().zip(sum).enumerate() {
                *total += value.to_f64() + if i < skip { kept * model[i].to_f64() } else { 0.0 };
            }
        }
        reduced
    }

    /// The choice, leaving X·W₀ᵀ of the chosen model in `self.first`.
    fn first_products(&mut self, step: &Choosing, hint: usize, seat: &Seat, x: &[T], goal: Goal) -> Choice {
        let rows = seat.client.train.len();
        if step.among.len() > 1 && step.on == Portion::All {
            return self.compete(step.among, hint, x, goal);
        }
        let choice = self.choose_for(step, hint, seat);
        let mut first = std::mem::take(&mut self.first);
        first.resize(rows * self.shape.widths[1], T::ZERO);
        self.shape.first_layer(&self.plain.models[step.among[choice.position]], x, rows, &mut first);
        self.first = first;
        choice
    }

    /// Choices and gradients of many steps at once, for stacks without hidden layers: all models are rows of one
    /// product with the client's rows, all slopes rows of another.
    pub(super) fn reduce_stacked(&mut self, steps: &[&Choosing], seats: &[Seat], summing: Summing) -> Vec<Reduced> {
        let shape = self.shape.clone();
        let (columns, outputs, skip) = (shape.widths[0], shape.widths[1], shape.first_weights());
        self.stack(&(0..self.plain.given).collect::<Vec<_>>());
        let mut reduced: Vec<Reduced> = steps.iter().map(|step| Reduced::new(summing.slots(step))).collect();
        let mut sums: Vec<Vec<Option<Vec<T>>>> = steps.iter().map(|step| vec![None; summing.slots(step)]).collect();
        let mut products: Vec<T> = Vec::new();
        let mut slopes: Vec<T> = Vec::new();
        let mut gradients = vec![T::ZERO; steps.len() * outputs * columns];
        let mut buffer = std::mem::take(&mut self.plain.input);
        let mut wanted: Vec<T> = Vec::new();
        let mut row_out = vec![T::ZERO; outputs];
        let mut row_slope = vec![T::ZERO; outputs];
        for seat in seats {
            let shard = &seat.client.train;
            let rows = shard.len();
            let goal = Goal::of(shard);
            let x = convert(shard, &mut buffer);
            self.stacked_products(x, rows, &mut products);
            if let Goal::Values(values) = goal {
                wanted.clear();
                wanted.extend(values.iter().map(|&value| T::of(value)));
            }
            let scale = T::ONE / T::of(rows as f64);
            slopes.resize(steps.len() * outputs * rows, T::ZERO);
            let client_weight = summing.weight.of(rows);
            for (j, step) in steps.iter().enumerate() {
                let lines = |model: usize| &products[model * outputs * rows..(model + 1) * outputs * rows];
                let losses = step.among.iter().map(|&model| self.line_loss(lines(model), goal, &wanted, &mut row_out));
                let choice = first_smallest(losses);
                let chosen = lines(step.among[choice.position]);
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
            let lines = steps.len() * outputs;
            multiply(&mut gradients, T::ONE, Matrix::new(&slopes, lines, rows), Matrix::new(x, rows, columns));
            for (j, (reduced, sums)) in reduced.iter_mut().zip(&mut sums).enumerate() {
                let slot = summing.slot(reduced.choices[reduced.choices.len() - 1] as usize);
                let sum = sums[slot].get_or_insert_with(|| vec![T::ZERO; shape.layout.len()]);
                let share = T::of(client_weight);
                add_scaled(&mut sum[..skip], share, &gradients[j * skip..(j + 1) * skip]);
                for (c, bias) in sum[skip..].iter_mut().enumerate() {
                    let slope = &slopes[(j * outputs + c) * rows..(j * outputs + c + 1) * rows];
                    *bias += share * slope.iter().fold(T::ZERO, |total, &s| total + s);
                }
                reduced.sums[slot].weight += client_weight;
                reduced.sums[slot].count += 1;
            }
        }
        self.plain.input = buffer;
        for (reduced, sums) in reduced.iter_mut().zip(sums) {
            for (slot, sum) in sums.into_iter().enumerate() {
                reduced.sums[slot].total = sum.into_iter().flatten().map(T::to_f64).collect();
            }
        }
        reduced
    }

    /// Puts the first weights of these models one under the other, unless they are already.
    fn stack(&mut self, of: &[usize]) {
        if self.stacked != of {
            let skip = self.shape.first_weights();
            self.stack.clear();
            of.iter().for_each(|&model| self.stack.extend_from_slice(&self.plain.models[model][..skip]));
            self.stacked = of.to_vec();
        }
    }

    /// The outputs of the stacked models for these rows, biases added, one row after another.
    fn stacked_products(&mut self, x: &[T], rows: usize, products: &mut Vec<T>) {
        const FEW_LINES: usize = 4;
        let (columns, outputs, skip) = (self.shape.widths[0], self.shape.widths[1], self.shape.first_weights());
        let stacked = self.stacked.len() * outputs;
        products.resize(stacked * rows, T::ZERO);
        if stacked <= FEW_LINES {
            // A product with so few lines would spend its time rearranging X.
            for (line, out) in self.stack.chunks_exact(columns).zip(products.chunks_exact_mut(rows)) {
                multiply(out, T::ONE, Matrix::new(x, rows, columns), Matrix::new(line, columns, 1));
            }
        } else {
            let turned = Matrix::new(x, rows, columns).transpose();
            multiply(products, T::ONE, Matrix::new(&self.stack, stacked, columns), turned);
        }
        if self.shape.bias {
            for (line, products) in products.chunks_exact_mut(rows).enumerate() {
                let bias = self.plain.models[self.stacked[line / outputs]][skip + line % outputs];
                products.iter_mut().for_each(|product| *product += bias);
            }
        }
    }

    /// Sum of the losses of rows whose outputs are these lines; `wanted` are the numbers to predict.
    fn line_loss(&self, lines: &[T], goal: Goal, wanted: &[T], row_out: &mut [T]) -> f64 {
        let rows = goal.len();
        match goal {
            Goal::Values(_) => squared_distance(lines, wanted).to_f64(),
            Goal::Classes(_) => (0..rows)
                .map(|row| {
                    row_out.iter_mut().enumerate().for_each(|(c, o)| *o = lines[c * rows + row]);
                    row_loss(self.shape.output, row_out, goal, row, None).to_f64()
                })
                .sum(),
        }
    }

    /// Whether the losses of these models are best found together.
    pub(super) fn stack_pays(&self, of: &[usize]) -> bool {
        self.fast && self.shape.layers() == 1 && of.len() > 1 && of.iter().all(|&model| model < self.plain.given)
    }

    /// The mean losses of some models without hidden layers, from one product for all of them.
    pub(super) fn stacked_losses(&mut self, of: &[usize], rows: &Shard) -> Vec<f64> {
        const ROWS_AT_ONCE: usize = 256;
        let (columns, outputs) = (self.shape.widths[0], self.shape.widths[1]);
        let mut buffer = std::mem::take(&mut self.plain.input);
        let mut products = std::mem::take(&mut self.candidate);
        self.stack(of);
        let x = convert(rows, &mut buffer);
        let mut row_out = vec![T::ZERO; outputs];
        let mut totals = vec![0.0; of.len()];
        let mut wanted: Vec<T> = Vec::new();
        for begin in (0..rows.len()).step_by(ROWS_AT_ONCE) {
            let end = (begin + ROWS_AT_ONCE).min(rows.len());
            let (count, goal) = (end - begin, Goal::of(rows).part(begin..end));
            self.stacked_products(&x[begin * columns..end * columns], count, &mut products);
            if let Goal::Values(values) = goal {
                wanted.clear();
                wanted.extend(values.iter().map(|&value| T::of(value)));
            }
            for (total, lines) in totals.iter_mut().zip(products.chunks_exact(outputs * count)) {
                *total += self.line_loss(lines, goal, &wanted, &mut row_out);
            }
        }
        self.plain.input = buffer;
        self.candidate = products;
        totals.iter().map(|total| total / rows.len() as f64).collect()
    }

    pub(super) fn stacks(&self, steps: &[&Choosing]) -> bool {
        let full = |then: &Then| matches!(then, Then::Gradient(Sample { on: Portion::All, batch: None, .. }));
        self.fast && self.shape.layers() == 1 && steps.iter().all(|step| full(&step.then) && step.on == Portion::All)
    }
}

/// Last time's choices of all seats and steps, and which step is meant.
pub(super) struct Hints<'h> {
    pub(super) table: &'h mut [u32],
    pub(super) steps: usize,
    pub(super) place: usize,
}
