//! Training on a client's rows.

use super::*;
use crate::models::Step;

/// Training from one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Train {
    /// Where it begins.
    pub from: Start,
    /// How to train.
    pub plan: Plan,
    /// Whether the result becomes the client's own model.
    pub keep: Keep,
}

/// Where training begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Start {
    /// From a model of the ask.
    Model(usize),
    /// From the client's own model with this stamp.
    Own {
        /// The stamp the client's state must carry.
        stamp: u64,
    },
    /// From a random model of the client's own, drawn from this seed and its id.
    Fresh {
        /// The seed.
        seed: u64,
    },
}

impl Start {
    pub(super) fn model(&self) -> Option<usize> {
        match self {
            Start::Model(model) => Some(*model),
            Start::Own { .. } | Start::Fresh { .. } => None,
        }
    }

    pub(super) fn stamp(&self) -> Option<u64> {
        match self {
            Start::Own { stamp } => Some(*stamp),
            Start::Model(_) | Start::Fresh { .. } => None,
        }
    }
}

/// Whether a client keeps what it has trained as its own model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// No, it is only sent.
    No,
    /// It is kept and not sent.
    Instead,
    /// It is kept and sent.
    Also,
}

impl Train {
    /// From a model of the ask; the result is sent.
    pub fn from_model(model: usize, plan: Plan) -> Self {
        Self { from: Start::Model(model), plan, keep: Keep::No }
    }
}

impl Telling for Train {
    const TELLS: Tells = Tells::numbers("its mean loss before the steps").with_vector("its model after local steps");
}

impl Kind for Train {
    fn needs(&self) -> Needs<'_> {
        let models: Vec<usize> = self.from.model().into_iter().chain(self.plan.centres()).collect();
        Needs::new(models, Capability::Descent)
            .on(self.plan.sample.on)
            .stamp(self.from.stamp())
            .keeping(self.keep != Keep::No)
    }

    fn sends(&self, width: usize) -> Sends {
        Sends::numbers(1).model(Content::Trained, width, self.keep != Keep::Instead)
    }

    fn cost(&self, load: &Load) -> Cost {
        load.training(&self.plan)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let plan = context.guard.plan(&self.plan)?;
        if let (true, Some(numbers)) = (self.keep != Keep::No, context.numbers_of(context.stamp)) {
            // This order has been carried out, and its answer got lost.
            let sent = self.keep == Keep::Also;
            let vector = sent.then(|| context.own_model(context.stamp)).transpose()?;
            return Ok(context.reply(numbers, vector));
        }
        let model = match self.from {
            Start::Model(model) => model,
            Start::Own { stamp } => context.worker.load(&context.own_model(stamp)?),
            Start::Fresh { seed } => {
                let key = Key::new(seed).word("fresh").word(&context.client().id);
                context.worker.load(&context.model().initialise(&mut key.rng())?)
            }
        };
        let mut vector = vec![0.0; context.worker.width()];
        let loss = context.worker.train(model, &context.seat(), &plan, &mut vector);
        // A failed training must leave the client's state alone.
        context.worker.failure().map_or(Ok(()), Err)?;
        context.keep_or_send(self.keep, loss, vector)
    }

    fn hides_rows(&self) -> bool {
        self.plan.sample.on == Portion::All
    }

    fn base(&self, _: &Reply) -> Option<usize> {
        self.from.model()
    }

    fn step(&self) -> Option<Step<'_>> {
        let Start::Model(model) = &self.from else { return None };
        let then = Cow::Owned(Then::Train(self.plan.clone()));
        let among = std::slice::from_ref(model);
        (self.keep == Keep::No).then_some(Step::Choose(Choosing { among, on: Portion::All, then }))
    }
}
