//! What a model, perhaps trained on with some of a client's rows, predicts of its others.

use super::*;
use crate::training::Amount;

/// Residuals of numbers, or probabilities of classes, of held-out rows. These are told in two halves, so that what is learned of a client from
/// one can be tried on the other; no model leaves the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckPredictions {
    /// Models of the ask with their weights: predictions are blended by these.
    pub blend: Vec<(usize, f64)>,
    /// How long each is trained on.
    pub amount: Amount,
    /// How to train, and on which rows.
    pub plan: Plan,
    /// The rows that are predicted.
    pub held_out: Portion,
}

/// What was found of one half of the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckedHalf {
    /// How many rows have a target.
    pub rows: u32,
    /// The sum of their losses: squared residuals, or negative logarithms of probabilities.
    pub losses: f64,
    /// The sum of the losses' squares.
    pub squares: f64,
    /// Sizes of the residuals of numbers.
    pub residuals: Histogram,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checked {
    /// Two halves.
    pub halves: [CheckedHalf; 2],
    /// How often classes came true.
    pub reliability: Reliability,
}

impl Answer for Checked {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        let (rows, counts) = counts.split_at(counts.len().min(2));
        let bins = |half: usize| counts.get(half * Histogram::BINS..(half + 1) * Histogram::BINS);
        let number = |place: usize| numbers.get(place).copied().unwrap_or(f64::NAN);
        let half = |half: usize| CheckedHalf {
            rows: rows.get(half).copied().unwrap_or(0),
            losses: number(2 * half),
            squares: number(2 * half + 1),
            residuals: bins(half).map(|counts| Histogram::read(counts, &[])).unwrap_or_default(),
        };
        let reliability = counts.get(2 * Histogram::BINS..).unwrap_or(&[]);
        Self { halves: [half(0), half(1)], reliability: Reliability::read(reliability, &[]) }
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        counts.extend(self.halves.iter().map(|half| half.rows));
        for half in self.halves {
            numbers.extend([half.losses, half.squares]);
            half.residuals.write(counts, &mut Vec::new());
        }
        self.reliability.write(counts, &mut Vec::new());
    }
}

impl CheckPredictions {
    fn trains(&self) -> bool {
        !matches!(self.amount, Amount::Steps(0) | Amount::Epochs(0))
    }

    fn plan(&self) -> Plan {
        Plan { amount: self.amount, ..self.plan.clone() }
    }
}

impl Telling for CheckPredictions {
    const TELLS: Tells = Tells::numbers("sums of the losses of its held-out rows, and of their squares, in two halves")
        .with_counts("these rows counted by the size of their residuals or by their probabilities");
}

impl Kind for CheckPredictions {
    fn needs(&self) -> Needs<'_> {
        let models: Vec<usize> = self.blend.iter().map(|(model, _)| *model).chain(self.plan.centres()).collect();
        Needs::new(models, Capability::Descent).on(self.plan.sample.on).on(self.held_out)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(4).with_counts(2 + 2 * Histogram::BINS + Reliability::COUNTS)
    }

    fn cost(&self, load: &Load) -> Cost {
        let mut all = load.looks(self.blend.len() as f64, 4);
        if self.trains() {
            let cost = load.training(&self.plan());
            let times = self.blend.len() as f64;
            all.steps += times * cost.steps;
            all.work += times * cost.work;
            all.numbers = all.numbers.max(cost.numbers);
        }
        all
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let held_out = context.rows(self.held_out)?;
        context.guard.enough("half of the held-out rows", (held_out.len() / 2) as f64)?;
        let mut predicted: Vec<f64> = Vec::new();
        for &(from, weight) in &self.blend {
            let mut params = context.models[from].clone();
            if self.trains() {
                let plan = context.guard.plan(&self.plan())?;
                context.worker.train(from, &context.seat(), &plan, &mut params);
                context.worker.failure().map_or(Ok(()), Err)?;
            }
            let own = context.model().expectations(&params, &held_out)?;
            predicted.resize(own.len(), 0.0);
            predicted.iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
        }
        let mut found = Checked::default();
        let width = predicted.len() / held_out.len().max(1);
        for (row, predicted) in predicted.chunks_exact(width.max(1)).enumerate() {
            // Neighbours may be alike: they go to different halves.
            let half = &mut found.halves[row % 2];
            let value = held_out.values().map(|values| values[row]);
            let class = held_out.classes().map(|classes| classes[row] as usize).filter(|class| *class < width);
            let loss = match (value, class) {
                (Some(value), _) => {
                    half.residuals.add((value - predicted[0]).abs());
                    (value - predicted[0]).powi(2)
                }
                (None, Some(class)) => {
                    found.reliability.add(predicted, class);
                    -predicted[class].max(f64::MIN_POSITIVE).ln()
                }
                (None, None) => continue,
            };
            half.rows += 1;
            half.losses += loss;
            half.squares += loss * loss;
        }
        // Single rows must not show.
        if let Some(minimum) = context.guard.minimum() {
            found.halves.iter_mut().for_each(|half| half.residuals.coarsen(minimum as u64));
            found.reliability.coarsen(minimum as u64);
        }
        Ok(context.reply(found, None))
    }

    fn fault(&self) -> Option<&'static str> {
        if self.blend.is_empty() {
            return Some("has no model to work with");
        }
        self.blend.iter().any(|(_, weight)| !weight.is_finite()).then_some("has weights that are not finite")
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        let found = Checked::read(&reply.counts, &reply.numbers);
        let rows = found.halves.iter().map(|half| u64::from(half.rows)).sum::<u64>();
        (rows > u64::from(reply.rows)).then(|| format!("predictions of {rows} rows where there are {}", reply.rows))
    }

    fn loss(&self, _: &Reply) -> Option<f64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::threads;
    use crate::data::{Client, DataShape, Features, Shard, Targets};
    use crate::federation::engines::local::LocalFederation;
    use crate::federation::{Ask, Federation, Gather, Phase, Recipients};
    use crate::models::Model;
    use crate::settings::Settings;
    use std::sync::Arc;

    fn check(kind: &str, targets: Targets, models: Vec<Vec<f64>>, blend: Vec<(usize, f64)>) -> Checked {
        let kind = crate::models::kind(kind).unwrap();
        let settings =
            Settings::check("m", kind.settings, toml::from_str("intercept = false").unwrap(), &mut Vec::new());
        let classes = if matches!(targets, Targets::Classes(_)) { 2 } else { 0 };
        let model: Arc<dyn Model> = Arc::from(kind.make(&settings, DataShape::numbers(1, classes)).unwrap());
        let rows = Shard::new(Features::F64 { columns: 1, values: vec![1.0; 6] }, targets).unwrap();
        let mut federation = LocalFederation::new(vec![Client::new("it", rows)], threads(1).unwrap());
        federation.set_model(model).unwrap();
        let plan = Plan { sample: Sample { on: Portion::Earlier { of: 3 }, ..Sample::FULL }, ..Plan::steps(9, 0.25) };
        let held_out = Portion::Part { index: 2, of: 3 };
        let work = CheckPredictions { blend, amount: Amount::Steps(1), plan, held_out };
        let mut ask = Ask::new(Phase::Train, models.into_iter().map(Arc::new).collect(), Gather::Each);
        let order = ask.order(Recipients::All, work);
        federation.ask(&ask).unwrap().of(order).at(0)
    }

    /// One feature that is always 1: the model is a number θ. A step of ¼ with a curvature of 2 goes half of the way to the mean of the
    /// first four rows, which is 3: from 1 to 2, from 5 to 4; a blend of a quarter and three quarters predicts 3.5.
    #[test]
    fn residuals_of_a_blend_by_hand() {
        let targets = Targets::Values(vec![3.0, 3.0, 2.0, 4.0, 5.5, 3.25]);
        let found = check("linear", targets, vec![vec![1.0], vec![5.0]], vec![(0, 0.25), (1, 0.75)]);
        let [first, second] = &found.halves;
        assert_eq!((first.rows, first.losses, first.squares), (1, 4.0, 16.0));
        assert_eq!((second.rows, second.losses, second.squares), (1, 0.0625, 0.00390625));
        assert_eq!((first.residuals.total(), second.residuals.total()), (1, 1));
        assert!((1.9..2.1).contains(&first.residuals.quantile(0.5).unwrap()));
        let (mut counts, mut numbers) = (Vec::new(), Vec::new());
        found.clone().write(&mut counts, &mut numbers);
        assert_eq!(Checked::read(&counts, &numbers), found);
    }

    #[test]
    fn classes_have_log_losses() {
        let found = check("logistic", Targets::Classes(vec![0, 1, 0, 1, 1, 0]), vec![vec![0.0]], vec![(0, 1.0)]);
        // As many of either class: the model stays where both have the same probability.
        for half in &found.halves {
            assert!((half.losses - 2.0_f64.ln()).abs() < 1e-12, "{half:?}");
        }
        assert_eq!((found.reliability.rows, found.halves[0].residuals.total()), (2, 0));
    }
}
