//! One mixture for all rows of all clients, from the sums of their E-steps.

use super::*;
use crate::federation::work::Losses;
use crate::mixture::{Detail, Statistics, maximise, normalise};

/// Fits of single clients that are tried as a start, beside the mean of all.
const CANDIDATES: usize = 5;

/// EM, or gradient EM with a step, on everybody's rows.
pub(in crate::methods) struct Pooled {
    training: MixtureTraining,
    until: Until,
    /// The step of gradient EM; none for EM.
    step: Option<f64>,
    state: Common,
}

impl Pooled {
    pub(in crate::methods) fn ready(
        setup: &Setup,
        settings: CommonOrder,
        step: Option<f64>,
    ) -> Result<Box<dyn Method>> {
        let training = MixtureTraining::with_common_order(setup, &settings)?;
        Ok(Box::new(Self { training, until: settings.until, step, state: Common::new(setup.rows.len()) }))
    }

    /// The start under which all rows together are likeliest.
    fn begin(&mut self, room: &mut Room) -> Result<()> {
        self.training.fit(&mut self.state.rounds.fits, Parts::Shared, room)?;
        if let Some(start) = &self.training.start {
            self.state.params = start.to_vec();
            return Ok(());
        }
        let fits = &self.state.rounds.fits;
        let first = fits.centres.iter().filter(|centres| !centres.is_empty()).take(CANDIDATES);
        let single = first.map(|centres| self.training.with_common_scatter(centres.clone(), &fits.scatter));
        let Some(mean) = self.training.mean_fit(fits) else { return Ok(()) };
        let candidates: Vec<Params> = std::iter::once(mean).chain(single).map(Arc::new).collect();
        let mut ask = Ask::new(Phase::Start, candidates.clone(), Gather::Each);
        let order = ask.order(Recipients::All, Losses { of: (0..candidates.len()).collect(), on: Portion::All });
        let answers = room.ask_for_any(&ask)?;
        let order = answers.of(order);
        let mut totals = vec![0.0; candidates.len()];
        for ((_, losses), &rows) in order.each().zip(&order.rows) {
            add_scaled(&mut totals, f64::from(rows), &losses);
        }
        let best = crate::models::first_smallest(totals.into_iter()).position;
        self.state.params = candidates[best].to_vec();
        Ok(())
    }
}

impl Method for Pooled {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        if self.state.params.is_empty() {
            self.begin(room)?;
            if self.state.params.is_empty() {
                return Ok(self.state.rounds.skip_round(&self.until));
            }
        }
        let shape = self.training.shape;
        let detail = if self.step.is_some() { Detail::Gradient } else { Detail::Full };
        let step = StepMixture { model: Some(0), ..self.training.plain_step(Rule::Stay, Parts::Statistics(detail)) };
        let gather = Gather::Sum { by: By::All, weight: Weight::Uniform };
        let mut ask = Ask::new(Phase::Train, vec![Arc::new(self.state.params.clone())], gather);
        let order = ask.order(Recipients::All, step);
        let answers = room.ask(&ask)?;
        let loss = finite_loss(&answers.of(order).losses(), room)?;
        let before = self.state.params[shape.centres()].to_vec();
        if let Some(sum) = answers.of(order).sums.first().filter(|sum| sum.count > 0) {
            let statistics = Statistics::unpack(&shape, detail, &sum.total);
            match self.step {
                None => maximise(&shape, &statistics, &mut self.state.params),
                Some(step) => {
                    let (centres, rest) = self.state.params.split_at_mut(shape.centres().end);
                    add_scaled(centres, step / statistics.rows, &statistics.pulls);
                    let first = rest.len() - shape.components;
                    let weights = &mut rest[first..];
                    let members = statistics.members.iter().map(|members| members / statistics.rows);
                    weights.iter_mut().zip(members).for_each(|(weight, share)| *weight = share);
                    normalise(weights);
                }
            }
        }
        // Those that never fitted a mixture are asked for their rows all the same.
        let complete = answers.missing.is_empty();
        let Common { rounds, params } = &mut self.state;
        let moved = self.training.longest_move(&rounds.fits, &before, &params[shape.centres()]);
        Ok(Progress::of(loss, rounds.end_round(&self.until, moved, complete)))
    }

    fn planned_rounds(&self) -> usize {
        self.until.rounds
    }

    fn outcome(&self) -> Outcome {
        let mut notes = Vec::new();
        let rows: f64 = self.training.rows.iter().sum();
        let weights = self.state.params.get(self.training.shape.weights()).unwrap_or_default();
        if weights.iter().any(|weight| weight * rows < 0.5) {
            notes.push(format!("the mixture ended{EMPTY_COMPONENT}"));
        }
        Outcome { serving: Serving::Choose, notes, ..self.state.outcome(&self.training, Vec::new()) }
    }

    keep_state!();
}
