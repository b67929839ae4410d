//! Networks of the user's own: forward and backward in double precision, behind the one trainer.

use super::trainer::rows::Output;
use super::trainer::{Network, NetworkModel, Pass};
use super::*;
use crate::num::Real;

/// A network of one's own. Its gradient is all that it must know of training: batches, optimisers, pulls, choices among
/// models, scores and predictions are the trainer's.
///
/// Its loss follows from the data: where a row's target is a number it has one output, and the loss is the squared error;
/// where it is a class it has a score for each class, and the loss is that of softmax.
pub trait OwnNetwork: Sized + Send + Sync + 'static {
    /// Its name in `model.kind`.
    const NAME: &'static str = "network";
    /// One line for people.
    const SUMMARY: &'static str = "a network of one's own";
    /// Its settings.
    const SETTINGS: &'static [Setting] = &[];
    /// The kind of model, for [`Draft::model`](crate::experiment::Draft::model) and
    /// [`Registry::with_model`](crate::experiment::Registry::with_model).
    const MODEL: &'static ModelKind = &ModelKind {
        name: Self::NAME,
        summary: Self::SUMMARY,
        needs_target: true,
        reads: Reads::Numbers,
        row_gradients: false,
        settings: Self::SETTINGS,
        check: |_, _, _| {},
        ability: |_| Ability::Rows,
        build: |settings, shape| build(Self::build(settings, shape)?, shape),
    };

    /// The network for rows of this shape.
    fn build(settings: &Settings, shape: DataShape) -> Result<Self>;

    /// The tensors that its parameters are.
    fn layout(&self) -> Layout;

    /// Random initial parameters: without a better idea, uniform on ±1/√inputs, of which a tensor has as many as the product of all
    /// its sizes but the first.
    fn initialise(&self, rng: &mut Rng) -> Vec<f64> {
        let mut drawn = Vec::new();
        for tensor in &self.layout().tensors {
            let inputs: usize = tensor.shape.iter().skip(1).product();
            let most = 1.0 / (inputs.max(1) as f64).sqrt();
            drawn.extend((0..tensor.range().len()).map(|_| rng.random_range(-most..=most)));
        }
        drawn
    }

    /// The outputs of some rows. What it leaves in `memory` is there for `backward`.
    fn forward(&self, parameters: &[f64], rows: &[f64], memory: &mut Vec<f64>, outputs: &mut [f64]);

    /// The gradient of a loss, of which `slopes` is the gradient in the outputs of the `forward` before. `gradient` holds zeros.
    fn backward(&self, parameters: &[f64], rows: &[f64], memory: &[f64], slopes: &[f64], gradient: &mut [f64]);
}

impl Layout {
    /// Tensors by name and shape, one behind the other.
    pub fn of<const COUNT: usize>(tensors: [(&str, &[usize]); COUNT]) -> Self {
        let mut layout = Self { tensors: Vec::with_capacity(COUNT) };
        for (name, shape) in tensors {
            layout.tensors.push(TensorPlace { name: name.to_string(), shape: shape.to_vec(), offset: layout.len() });
        }
        layout
    }
}

fn build<N: OwnNetwork>(network: N, shape: DataShape) -> Result<Box<dyn Model>> {
    let layout = network.layout();
    let (drawn, wanted) = (network.initialise(&mut Key::new(0).rng()).len(), layout.len());
    if drawn != wanted || wanted == 0 {
        let message = format!("model: {} begins with {drawn} numbers, its layout has {wanted}", N::NAME);
        return Err(Error::new(ErrorKind::Shape, message));
    }
    Ok(Box::new(NetworkModel::new(Adapted { network, layout, classes: shape.classes }, shape, Precision::F64)))
}

/// A network of the user's own as the trainer wants it.
struct Adapted<N> {
    network: N,
    layout: Layout,
    classes: usize,
}

/// What the trainer hands over, in double precision, and the network's own memory.
#[derive(Default)]
struct Doubles {
    parameters: Vec<f64>,
    rows: Vec<f64>,
    own: Vec<f64>,
    given: Vec<f64>,
    found: Vec<f64>,
}

fn copy<T: Real>(from: &[T], to: &mut Vec<f64>) {
    to.clear();
    to.extend(from.iter().map(|value| value.to_f64()));
}

fn zeros(count: usize, to: &mut Vec<f64>) {
    to.clear();
    to.resize(count, 0.0);
}

fn copy_back<T: Real>(from: &[f64], to: &mut [T]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of(*from));
}

impl<N: OwnNetwork> Network for Adapted<N> {
    type Memory<T: Real> = Doubles;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initialise(&self, rng: &mut Rng) -> Vec<f64> {
        self.network.initialise(rng)
    }

    fn outputs(&self) -> usize {
        self.classes.max(1)
    }

    fn output(&self) -> Output {
        if self.classes == 0 { Output::Squared } else { Output::Softmax }
    }

    fn forward<T: Real>(&self, params: &[T], x: &[T], _: usize, _: Pass, memory: &mut Doubles, out: &mut [T]) {
        copy(params, &mut memory.parameters);
        copy(x, &mut memory.rows);
        zeros(out.len(), &mut memory.found);
        self.network.forward(&memory.parameters, &memory.rows, &mut memory.own, &mut memory.found);
        copy_back(&memory.found, out);
    }

    fn backward<T: Real>(&self, _: &[T], _: &[T], _: usize, slopes: &[T], memory: &mut Doubles, gradient: &mut [T]) {
        // Parameters and rows are those of the forward pass before.
        copy(slopes, &mut memory.given);
        zeros(gradient.len(), &mut memory.found);
        let Doubles { parameters, rows, own, given, found } = memory;
        self.network.backward(parameters, rows, own, given, found);
        copy_back(found, gradient);
    }
}
