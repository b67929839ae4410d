//! Fine-tuning on some of a client's rows, judged on its others.

use super::*;
use crate::models::pulled::mean_loss;
use crate::training::Amount;

/// Losses on held-out rows of models that were trained on from models of the ask. Each loss is that of a part of these rows, so
/// that it is seen how sure it is; no model leaves the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FineTune {
    /// What is tried, each from its own beginning.
    pub trials: Vec<Trial>,
    /// How to train, and on which rows; the trials say how long.
    pub plan: Plan,
    /// The rows that judge.
    pub held_out: Portion,
    /// Number of parts of these rows.
    pub parts: u32,
}

/// A model and how long it is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// A model of the ask.
    pub from: usize,
    /// How long; nothing leaves it as it is.
    pub amount: Amount,
}

impl Trial {
    fn trains(&self) -> bool {
        !matches!(self.amount, Amount::Steps(0) | Amount::Epochs(0))
    }
}

impl FineTune {
    fn plan_of(&self, trial: &Trial) -> Plan {
        Plan { amount: trial.amount, ..self.plan.clone() }
    }
}

impl Telling for FineTune {
    const TELLS: Tells = Tells::numbers("losses on parts of its held-out rows after training on from models");
}

impl Kind for FineTune {
    fn needs(&self) -> Needs<'_> {
        let models: Vec<usize> = self.trials.iter().map(|trial| trial.from).chain(self.plan.centres()).collect();
        Needs::new(models, Capability::Descent).on(self.plan.sample.on).on(self.held_out)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(self.trials.len() * self.parts as usize)
    }

    fn cost(&self, load: &Load) -> Cost {
        let mut all = load.looks(self.trials.len() as f64, self.trials.len() * self.parts as usize);
        for trial in self.trials.iter().filter(|trial| trial.trains()) {
            let cost = load.training(&self.plan_of(trial));
            all.steps += cost.steps;
            all.work += cost.work;
            all.numbers = all.numbers.max(cost.numbers);
        }
        all
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let held_out = context.rows(self.held_out)?;
        let count = self.parts as usize;
        context.guard.enough("a part of the held-out rows", (held_out.len() / count) as f64)?;
        // Neighbours may be alike: they go to different parts.
        let part = |index: usize| held_out.pick(&(index..held_out.len()).step_by(count).collect::<Vec<_>>());
        let parts: Vec<_> = (0..count).map(part).collect();
        let mut losses = Vec::with_capacity(self.trials.len() * count);
        for trial in &self.trials {
            let mut params = context.models[trial.from].clone();
            if trial.trains() {
                let plan = context.guard.plan(&self.plan_of(trial))?;
                context.worker.train(trial.from, &context.seat(), &plan, &mut params);
                context.worker.failure().map_or(Ok(()), Err)?;
            }
            let mut of = |rows: &_| mean_loss(context.worker, &params, rows);
            let whole = of(&held_out);
            losses.extend(parts.iter().map(|rows| if rows.is_empty() { whole } else { of(rows) }));
        }
        context.worker.failure().map_or(Ok(()), Err)?;
        Ok(context.reply(losses, None))
    }

    fn fault(&self) -> Option<&'static str> {
        if self.parts == 0 {
            return Some("has no part of the rows to judge by");
        }
        self.trials.is_empty().then_some("has no model to work with")
    }

    fn loss(&self, reply: &Reply) -> Option<f64> {
        reply::best(&reply.numbers)
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

    /// One feature that is always 1: the model is a number θ, its loss on a row (θ − y)².
    #[test]
    fn losses_of_held_out_rows_by_hand() {
        let kind = crate::models::kind("linear").unwrap();
        let settings =
            Settings::check("m", kind.settings, toml::from_str("intercept = false").unwrap(), &mut Vec::new());
        let model: Arc<dyn Model> = Arc::from(kind.make(&settings, DataShape::numbers(1, 0)).unwrap());
        let features = Features::F64 { columns: 1, values: vec![1.0; 9] };
        let client = Client::new("it", Shard::new(features, Targets::Values(vec![3.0; 9])).unwrap());
        let mut federation = LocalFederation::new(vec![client], threads(1).unwrap());
        federation.set_model(model).unwrap();
        let trial = |from: usize, steps: u32| Trial { from, amount: Amount::Steps(steps) };
        let plan =
            Plan { sample: Sample { on: Portion::Others { index: 0, of: 3 }, ..Sample::FULL }, ..Plan::steps(9, 0.25) };
        let work = |parts: u32| FineTune {
            trials: vec![trial(0, 0), trial(1, 0), trial(1, 1), trial(1, 2)],
            plan: plan.clone(),
            held_out: Portion::Fold { index: 0, of: 3 },
            parts,
        };
        let models = vec![Arc::new(vec![3.0]), Arc::new(vec![1.0])];
        let mut ask = Ask::new(Phase::Train, models, Gather::Each);
        let (two, four) = (ask.order(Recipients::All, work(2)), ask.order(Recipients::All, work(4)));
        let answers = federation.ask(&ask).unwrap();
        // Steps of ¼ with a curvature of 2 go half of the way: θ is 1, 2, 2.5.
        let found = answers.of(two).at(0);
        let wanted = [0.0, 0.0, 4.0, 4.0, 1.0, 1.0, 0.25, 0.25];
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-12), "{found:?}");
        // Three rows have no fourth part: it is told the mean of all.
        assert_eq!(answers.of(four).at(0)[4..8], [4.0; 4]);
        let mut ask = Ask::new(Phase::Train, vec![Arc::new(vec![3.0]), Arc::new(vec![1.0])], Gather::Each);
        ask.order(Recipients::All, work(0));
        assert!(federation.ask(&ask).unwrap_err().to_string().contains("no part of the rows"));
    }
}
