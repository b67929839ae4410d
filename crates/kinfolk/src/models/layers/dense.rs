//! A dense layer, with a rectifier where one is wanted.

use super::*;

#[derive(Debug, Clone)]
pub(super) struct Dense {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Outputs × inputs.
    pub(super) weight: Place,
    /// Empty where there is none.
    pub(super) bias: Place,
    pub(super) rectify: bool,
}

/// Outputs that are worked on together: their weights stay in the cache while they are multiplied.
const OUTPUTS_AT_ONCE: usize = 128;

/// A matrix with its columns as rows, one after the other.
fn transpose<T: Real>(values: &[T], columns: usize, out: &mut Vec<T>) {
    let rows = values.len() / columns;
    out.resize(values.len(), T::ZERO);
    for (r, row) in values.chunks_exact(columns).enumerate() {
        out[r..].iter_mut().step_by(rows).zip(row).for_each(|(out, &value)| *out = value);
    }
}

impl Dense {
    pub(super) fn forward<T: Real>(&self, params: &[T], x: &[T], memory: &mut Memory<T>) {
        let rows = x.len() / self.inputs;
        let Memory { out, kept, .. } = memory;
        kept.resize(rows * self.outputs, T::ZERO);
        let weights = params[self.weight.clone()].chunks(OUTPUTS_AT_ONCE * self.inputs);
        for (weight, out) in weights.zip(kept.chunks_mut(OUTPUTS_AT_ONCE * rows)) {
            let weight = Matrix::new(weight, weight.len() / self.inputs, self.inputs);
            multiply(out, T::ONE, weight, Matrix::new(x, rows, self.inputs).transpose());
        }
        transpose(kept, rows, out);
        for out in out.chunks_exact_mut(self.outputs) {
            add_scaled(out, T::ONE, &params[self.bias.clone()]);
            if self.rectify {
                out.iter_mut().for_each(|out| *out = if *out > T::ZERO { *out } else { T::ZERO });
            }
        }
    }

    /// Everything but the gradient of the weight, whose slopes are kept for [`Dense::gradient`] or [`Dense::descend`].
    pub(super) fn backward<T: Real>(&self, at: Backward<T>, memory: &mut Memory<T>, down: Option<&mut [T]>) {
        let Backward { params, slopes, gradient, .. } = at;
        let Memory { out, kept, slopes: own, .. } = memory;
        let through = |(&slope, &out): (&T, &T)| if self.rectify && out <= T::ZERO { T::ZERO } else { slope };
        own.clear();
        own.extend(slopes.iter().zip(&*out).map(through));
        if !self.bias.is_empty() {
            let bias = &mut gradient[self.bias.clone()];
            bias.fill(T::ZERO);
            own.chunks_exact(self.outputs).for_each(|slopes| add_scaled(bias, T::ONE, slopes));
        }
        transpose(own, self.outputs, kept);
        let Some(down) = down else { return };
        down.fill(T::ZERO);
        let rows = own.len() / self.outputs;
        let weights = params[self.weight.clone()].chunks(OUTPUTS_AT_ONCE * self.inputs);
        for (weight, slopes) in weights.zip(kept.chunks(OUTPUTS_AT_ONCE * rows)) {
            let count = slopes.len() / rows;
            let slopes = Matrix::new(slopes, count, rows).transpose();
            multiply_add(down, T::ONE, slopes, Matrix::new(weight, count, self.inputs));
        }
    }

    /// The weight's gradient.
    pub(super) fn gradient<T: Real>(&self, x: &[T], memory: &Memory<T>, gradient: &mut [T]) {
        let weight = &mut gradient[self.weight.clone()];
        weight.fill(T::ZERO);
        self.add_gradient(T::ONE, x, memory, weight);
    }

    /// The weight's gradient, straight into the weight.
    pub(super) fn descend<T: Real>(&self, step: T, x: &[T], memory: &Memory<T>, params: &mut [T]) {
        self.add_gradient(-step, x, memory, &mut params[self.weight.clone()]);
    }

    fn add_gradient<T: Real>(&self, scale: T, x: &[T], memory: &Memory<T>, out: &mut [T]) {
        let rows = x.len() / self.inputs;
        let slopes = memory.kept.chunks(OUTPUTS_AT_ONCE * rows);
        for (out, slopes) in out.chunks_mut(OUTPUTS_AT_ONCE * self.inputs).zip(slopes) {
            let slopes = Matrix::new(slopes, slopes.len() / rows, rows);
            multiply_add(out, scale, slopes, Matrix::new(x, rows, self.inputs));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layer, testing};
    use super::*;

    #[test]
    fn two_outputs_by_hand() {
        let layer = Dense { inputs: 2, outputs: 2, weight: 0..4, bias: 4..6, rectify: true };
        let params = [1.0, 2.0, -3.0, 4.0, 0.5, -10.0];
        let mut memory = Memory::default();
        layer.forward(&params, &[1.0, 1.0], &mut memory);
        assert_eq!(memory.out, [3.5, 0.0]);
        let (mut gradient, mut down, mut moved) = ([9.0; 6], [0.0; 2], params);
        let (work, slopes) = (&mut Work::default(), &[1.0, 1.0]);
        let at = Backward { params: &params, x: slopes, slopes, work, gradient: &mut gradient };
        layer.backward(at, &mut memory, Some(&mut down));
        layer.gradient(&[1.0, 1.0], &memory, &mut gradient);
        assert_eq!((gradient, down), ([1.0, 1.0, 0.0, 0.0, 1.0, 0.0], [1.0, 2.0]));
        layer.descend(0.5, &[1.0, 1.0], &memory, &mut moved);
        assert_eq!(moved, [0.5, 1.5, -3.0, 4.0, 0.5, -10.0]);
    }

    #[test]
    fn slopes_are_those_of_differences() {
        for rectify in [false, true] {
            for outputs in [3, OUTPUTS_AT_ONCE + 3] {
                let (weight, bias) = (0..5 * outputs, 5 * outputs..6 * outputs);
                let layer = Dense { inputs: 5, outputs, weight, bias, rectify };
                testing::assert_slopes(&Layer::Dense(layer), 5, 4);
            }
        }
    }
}
