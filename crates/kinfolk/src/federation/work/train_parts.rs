//! Training of a model of which some parameters stay with the client.

use super::*;
use std::ops::Range;

/// The shared parameters come from a model of the ask and are sent; those at home are the client's own. The whole model is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainParts {
    /// The shared parameters: a model of the ask, without those at home.
    pub shared: usize,
    /// The parameters at home, ascending and apart.
    pub home: Vec<Range<usize>>,
    /// The stamp of the client's own model, which has them.
    pub stamp: u64,
    /// One training after another; none only puts the shared parameters in place.
    pub stages: Vec<TrainingStage>,
    /// Whether the shared parameters are sent.
    pub send: bool,
}

/// One of several trainings in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingStage {
    /// How to train.
    pub plan: Plan,
    /// What is trained.
    pub moves: Moves,
}

/// Which parameters are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moves {
    /// All of them.
    All,
    /// Those at home.
    Home,
    /// Those that are shared.
    Shared,
}

/// The ranges of `0..width` between these.
pub fn between(ranges: &[Range<usize>], width: usize) -> Vec<Range<usize>> {
    let starts = [0].into_iter().chain(ranges.iter().map(|range| range.end));
    let ends = ranges.iter().map(|range| range.start).chain([width]);
    starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| start..end).collect()
}

impl TrainParts {
    fn at_home(&self) -> usize {
        self.home.iter().map(|range| range.end.saturating_sub(range.start)).sum()
    }

    fn joined(&self, context: &ClientContext) -> Result<Vec<f64>> {
        let mut params = context.own_model(self.stamp)?;
        let mut shared = context.models[self.shared].iter();
        for range in between(&self.home, params.len()) {
            params[range].iter_mut().zip(&mut shared).for_each(|(own, shared)| *own = *shared);
        }
        Ok(params)
    }

    fn shared_of(&self, params: &[f64]) -> Vec<f64> {
        between(&self.home, params.len()).into_iter().flat_map(|range| params[range].iter().copied()).collect()
    }
}

impl Telling for TrainParts {
    const TELLS: Tells = Tells::numbers("its mean loss before the steps")
        .with_vector("the shared parameters of its model after local steps");
}

impl Kind for TrainParts {
    fn needs(&self) -> Needs<'_> {
        let needs = Needs::new(vec![self.shared], Capability::Descent).stamp(Some(self.stamp)).keeping(true);
        let needs = needs.without(self.at_home());
        self.stages.iter().fold(needs, |needs, stage| needs.on(stage.plan.sample.on))
    }

    fn sends(&self, width: usize) -> Sends {
        let shared = width.saturating_sub(self.at_home());
        Sends::numbers(1).model(Content::Trained, shared, self.send)
    }

    fn sends_vector(&self) -> bool {
        self.send
    }

    fn cost(&self, load: &Load) -> Cost {
        let mut all = load.looks(1.0, 1);
        for cost in self.stages.iter().map(|stage| load.training(&stage.plan)) {
            (all.steps, all.work, all.numbers) =
                (all.steps + cost.steps, all.work + cost.work, all.numbers.max(cost.numbers));
        }
        all
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        if self.home.last().is_some_and(|last| last.end > context.worker.width()) {
            return Err(Error::federation("parameters at home that the model does not have"));
        }
        if let Some(numbers) = context.numbers_of(context.stamp) {
            // This order has been carried out, and its answer got lost.
            let vector = self.send.then(|| context.own_model(context.stamp)).transpose()?;
            return Ok(context.reply(numbers, vector.map(|params| self.shared_of(&params))));
        }
        let mut params = self.joined(context)?;
        let mut first = None;
        for stage in &self.stages {
            let mut plan = context.guard.plan(&stage.plan)?;
            plan.terms.frozen = match stage.moves {
                Moves::All => Vec::new(),
                Moves::Home => between(&self.home, params.len()),
                Moves::Shared => self.home.clone(),
            };
            let from = context.worker.load(&params);
            let loss = context.worker.train(from, &context.seat(), &plan, &mut params);
            context.worker.failure().map_or(Ok(()), Err)?;
            first.get_or_insert(loss);
        }
        let loss = match first {
            Some(loss) => loss,
            None => {
                let own = context.worker.load(&params);
                context.worker.loss(own, &context.client().train)
            }
        };
        // At the precision of the state: a repeated order must get the same answer.
        context.model().precision().round(&mut params);
        let sent = self.send.then(|| self.shared_of(&params));
        context.keep(&[loss], params)?;
        Ok(context.reply(Loss(loss), sent))
    }

    fn base(&self, _: &Reply) -> Option<usize> {
        Some(self.shared)
    }

    fn fault(&self) -> Option<&'static str> {
        let apart = self.home.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let sound = apart && self.home.iter().all(|range| range.start < range.end);
        if self.stages.iter().any(|stage| !stage.plan.terms.pulls.is_empty()) {
            return Some("pulls at a model of which some parameters are at home");
        }
        (!sound).then_some("keeps parameters at home that are not in order")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_what_is_between_them() {
        assert_eq!(between(&[], 3), vec![0..3]);
        assert_eq!(between(&[0..2, 4..5], 7), vec![2..4, 5..7]);
        assert_eq!(between(&[0..1, 1..3], 3), vec![]);
    }
}
