//! Training of a mixture of supervised models on a client's rows: each row counts for a model as much as the model explains it.

use super::*;
use crate::models::Slopes;
use crate::num::add_scaled;

/// Finds how far each of the models explains each row, and trains every one on all rows, weighted so. Sent are the trained models, one
/// after the other, then for each the sums over the rows of every class of its weights, divided by the number of all rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainMixed {
    /// The models, of the ask.
    pub models: Vec<usize>,
    /// How much of each the client is so far.
    pub shares: Vec<f64>,
    /// The shares of the classes in each model's rows, model by model; where given, a row counts by p(y|x)/p(y) in place of p(y|x).
    pub classes: Vec<f64>,
    /// Number of classes.
    pub outputs: u32,
    /// How to train, by plain steps.
    pub plan: Plan,
}

/// What a client answers: the loss of the mixture, and how much of each model it is.
#[derive(Debug, Clone, PartialEq)]
pub struct MixedShares {
    /// The loss of the mixture before training.
    pub loss: f64,
    /// Shares that sum to 1.
    pub shares: Vec<f64>,
}

impl Answer for MixedShares {
    fn read(_: &[u32], numbers: &[f64]) -> Self {
        Self { loss: numbers[0], shares: numbers[1..].to_vec() }
    }

    fn write(self, _: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        numbers.push(self.loss);
        numbers.extend(self.shares);
    }
}

impl HasLoss for MixedShares {}

/// How far each model explains each row, by rows, and the mean of −ln Σ share·e^(−loss). `losses` are by models, then by rows; `extra` is
/// taken from a model's loss on a row.
pub(crate) fn responsibilities(
    losses: &[Vec<f64>],
    shares: &[f64],
    extra: impl Fn(usize, usize) -> f64,
) -> (Vec<f64>, f64) {
    let (count, rows) = (losses.len(), losses.first().map_or(0, Vec::len));
    let mut parts = Vec::with_capacity(count * rows);
    let mut total = 0.0;
    (0..rows).for_each(|row| {
        let log = |model: usize| shares[model].max(1e-300).ln() - losses[model][row] - extra(model, row);
        let largest = (0..count).map(log).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..count).map(|model| (log(model) - largest).exp()).sum();
        parts.extend((0..count).map(|model| (log(model) - largest).exp() / sum));
        total -= largest + sum.ln();
    });
    (parts, total / rows.max(1) as f64)
}

impl TrainMixed {
    fn classed(&self) -> usize {
        self.models.len() * self.outputs as usize
    }
}

impl Telling for TrainMixed {
    const TELLS: Tells = Tells::numbers("the loss of the mixture, and how much of each model it is")
        .with_vector("a model for each component after local steps, and the classes that each explains");
}

impl Kind for TrainMixed {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&self.models, Capability::Gradients).on(self.plan.sample.on)
    }

    fn sends(&self, width: usize) -> Sends {
        let (models, numbers) = (self.models.len(), 1 + self.models.len());
        let length = models * width + self.classed();
        Sends { content: Content::Statistics, length, models, ..Sends::numbers(numbers) }
    }

    fn cost(&self, load: &Load) -> Cost {
        let (one, count) = (load.training(&self.plan), self.models.len() as f64);
        let looks = load.looks(count, 0);
        Cost {
            steps: count * one.steps,
            work: count * one.work + looks.work,
            numbers: 2.0 * count * (one.numbers + load.rows),
        }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let plan = context.guard.plan(&self.plan)?;
        let (rows, width, count) = (&context.client().train, context.worker.width(), self.models.len());
        let losses: Vec<Vec<f64>> = self.models.iter().map(|&model| context.worker.row_losses(model, rows)).collect();
        let classes = rows.classes();
        let outputs = self.outputs as usize;
        let rarity = |model: usize, row: usize| {
            let class = classes.and_then(|classes| classes.get(row)).map_or(0, |&class| class as usize);
            let share = self.classes.get(model * outputs + class).filter(|_| class < outputs);
            share.map_or(0.0, |share| share.max(1e-9).ln())
        };
        let (parts, loss) = responsibilities(&losses, &self.shares, rarity);
        let mut shares = vec![0.0; count];
        parts.chunks_exact(count).for_each(|parts| add_scaled(&mut shares, 1.0 / rows.len() as f64, parts));
        let mut sent = Vec::with_capacity(count * width + self.classed());
        let seat = context.seat();
        let mut gradient = vec![0.0; width];
        for (place, &model) in self.models.iter().enumerate() {
            let weights: Vec<f64> = parts.iter().skip(place).step_by(count).copied().collect();
            let mut params = context.models[model].clone();
            let mut slopes = Slopes::new(context.worker, &seat, &plan);
            for _ in 0..slopes.steps() {
                slopes.next();
                slopes.weighted(&params, &weights, &mut gradient);
                add_scaled(&mut params, -plan.step, &gradient);
            }
            sent.extend(params);
        }
        context.worker.failure().map_or(Ok(()), Err)?;
        let begin = sent.len();
        sent.resize(begin + self.classed(), 0.0);
        for (row, &class) in
            classes.unwrap_or_default().iter().enumerate().filter(|(_, class)| (**class as usize) < outputs)
        {
            for model in 0..count {
                sent[begin + model * outputs + class as usize] += parts[row * count + model] / rows.len() as f64;
            }
        }
        Ok(context.reply(MixedShares { loss, shares }, Some(sent)))
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        let MixedShares { shares, .. } = MixedShares::read(&reply.counts, &reply.numbers);
        let sum: f64 = shares.iter().sum();
        let sound = shares.iter().all(|share| (0.0..=1.0 + 1e-9).contains(share)) && (sum - 1.0).abs() < 1e-6;
        (!sound).then(|| "shares of models that do not sum to 1".to_string())
    }

    fn loss(&self, reply: &Reply) -> Option<f64> {
        reply.numbers.first().copied()
    }

    fn fault(&self) -> Option<&'static str> {
        if self.models.is_empty() || self.shares.len() != self.models.len() {
            return Some("has no share for every model");
        }
        if !self.classes.is_empty() && self.classes.len() != self.classed() {
            return Some("has no share for every class");
        }
        let sound = self.plan.sample.on == Portion::All && self.plan.terms.is_empty();
        (!sound).then_some("trains on a portion of the rows, or with pulls")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_count_for_models_by_hand() {
        let ln = f64::ln;
        // Likelihoods ½ and ¼ of the first row, ⅛ and ⅜ of the second; shares ½ and ½.
        let losses = [vec![ln(2.0), ln(8.0)], vec![ln(4.0), ln(8.0 / 3.0)]];
        let (parts, loss) = responsibilities(&losses, &[0.5, 0.5], |_, _| 0.0);
        let wanted = [2.0 / 3.0, 1.0 / 3.0, 0.25, 0.75];
        assert!(parts.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-12), "{parts:?}");
        assert!((loss - (ln(8.0 / 3.0) + ln(4.0)) / 2.0).abs() < 1e-12);
        // A class of share ¼ in the first model's rows and ½ in the second's: the first explains it twice as well.
        let (parts, _) = responsibilities(&losses, &[0.5, 0.5], |model, _| [0.25, 0.5].map(f64::ln)[model]);
        assert!((parts[0] - 0.8).abs() < 1e-12 && (parts[2] - 0.4).abs() < 1e-12, "{parts:?}");
    }
}
