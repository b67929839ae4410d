//! IFCA, the Iterative Federated Clustering Algorithm (Ghosh, Chung, Yin, Ramchandran: An efficient framework for
//! clustered federated learning, 2020). Alternates between "which cluster am I in" and a step for every cluster.
//!
//! ```text
//!  1  θ_1 … θ_k ← start
//!  2  for t = 0, 1, …, T − 1:
//!  3    M_t ← some of the m clients
//!  4    send θ_1 … θ_k to M_t
//!  5    each client i in M_t:
//!  6      ĵ ← argmin_j F_i(θ_j)                              ties to the smallest j
//!  7      option I:  send ĵ and g_i = ∇F_i(θ_ĵ)
//!  8      option II: send ĵ and θ̃_i = τ local steps from θ_ĵ
//!  9    option I:  θ_j ← θ_j − (γ/m) Σ_{i: ĵ_i = j} g_i
//! 10    option II: θ_j ← mean of the θ̃_i with ĵ_i = j         nobody: θ_j stays
//! ```
//!
//! Lines 4 to 8 are one order: the client chooses and goes on from its choice.
//!
//! Differences from the paper, all by setting:
//! - several starts and several step sizes run side by side in the same asks; the one with the smallest training
//!   loss at the beginning of the last round is the outcome. One that diverges is dropped, and with `tolerance` one that has settled stops.
//! - `start = "farthest"`: some clients train a little from one common model and try each other's models; models far
//!   apart in loss become the start. It costs two asks and does not depend on luck.
//! - `start = "odcl"`: the clusters that one-shot learning finds among the clients' own models become the start. It costs
//!   one ask, and with `clusters = "auto"` it finds their number too.
//! - `start = "oracle"` and `start = "planted"`, for experiments: the minimisers of the true clusters, or their planted
//!   parameters, moved by noise or by a distance.
//! - `shared`: these layers are averaged over everybody, only the rest is kept per cluster.
//! - `resample`: fresh, disjoint rows for every choice and every step, as the paper's theory has it.
//! - `divisor = "participants"` divides by |M_t| in line 9 instead of by m.

mod settings;
mod starts;
#[cfg(test)]
mod tests;

use super::room::{diverged, watch_loss};
use super::*;
use crate::federation::work::{Choice, Choose};
use crate::federation::{Absence, Answered};
use crate::linalg::distance;
use crate::training::Then;
pub(super) use settings::IfcaSettings;
use starts::Beginning;
use std::ops::Range;

pub(super) struct Ifca {
    training: Training,
    gradients: bool,
    weight: Weight,
    by_participants: bool,
    beginning: Beginning,
    tolerance: f64,
    shared: Vec<Range<usize>>,
    resample: bool,
    model: Arc<dyn Model>,
    clients: usize,
    key: Key,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    round: usize,
    lanes: Vec<Lane>,
    /// What there is to say about the start, in words and in numbers.
    notes: Vec<String>,
    extra: BTreeMap<String, f64>,
}

/// One start with one step size.
#[derive(Serialize, Deserialize)]
struct Lane {
    step: f64,
    start: usize,
    /// θ_1 … θ_k; empty before line 1.
    models: Vec<Params>,
    /// The cluster each client last chose.
    choices: Vec<Option<u32>>,
    /// Mean loss of the chosen models, in the first round and before the last step.
    first_loss: Option<f64>,
    loss: Option<f64>,
    going: Going,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Going {
    On,
    Settled { round: usize },
    Diverged { round: usize },
}

impl Ifca {
    /// The plain algorithm, whose first models somebody else will bring.
    pub(super) fn from_models(setup: &Setup, training: Training, step: f64, weight: Weight) -> Self {
        let clients = setup.rows.len();
        let lane = Lane::new(0, step, clients);
        Self {
            training,
            gradients: false,
            weight,
            by_participants: false,
            beginning: Beginning::Given(Vec::new()),
            tolerance: 0.0,
            shared: Vec::new(),
            resample: false,
            model: setup.model.clone(),
            clients,
            key: setup.key.clone(),
            state: State::new(vec![lane]),
        }
    }

    /// Line 1 with these models.
    pub(super) fn begin_at(&mut self, models: Vec<Params>) {
        self.state.lanes.iter_mut().for_each(|lane| lane.models.clone_from(&models));
    }
}

impl State {
    fn new(lanes: Vec<Lane>) -> Self {
        Self { round: 0, lanes, notes: Vec::new(), extra: BTreeMap::new() }
    }
}

impl Lane {
    fn new(start: usize, step: f64, clients: usize) -> Self {
        Self {
            step,
            start,
            models: Vec::new(),
            choices: vec![None; clients],
            first_loss: None,
            loss: None,
            going: Going::On,
        }
    }
}

impl Ifca {
    /// How many clusters there are, once there is a start.
    fn clusters(&self) -> usize {
        self.state.lanes[0].models.len()
    }

    /// Lines 5 to 8 for a lane whose models begin at `first`.
    fn work(&self, first: usize, step: f64) -> Choose {
        let round = self.state.round;
        let part = |index: usize| match self.resample {
            true => Portion::Part { index: index as u32, of: 2 * self.training.rounds as u32 },
            false => Portion::All,
        };
        let then = match self.gradients {
            true => Then::Gradient(Sample { on: part(2 * round + 1), ..self.training.sample(&self.key, round) }),
            false => {
                let mut plan = self.training.plan(&self.key, round, step);
                plan.sample.on = part(2 * round + 1);
                Then::Train(plan)
            }
        };
        Choose { among: (first..first + self.clusters()).collect(), on: part(2 * round), then }
    }

    /// Lines 9 and 10.
    fn step(&self, lane: &Lane, asked: usize, answer: &Answered<Choice>, missing: &[u32]) -> Vec<Params> {
        if self.gradients {
            let divisor = match (self.by_participants, self.training.missing) {
                (false, _) => self.clients,
                (true, MissingRule::Keep) => asked,
                (true, _) => answer.clients.len().max(1),
            };
            let factor = self.training.step_at(self.state.round, lane.step) / divisor as f64;
            let mut models = lane.models.clone();
            for (model, sum) in models.iter_mut().zip(&answer.sums) {
                let model = Arc::make_mut(model);
                model.iter_mut().zip(&sum.total).for_each(|(value, total)| *value -= factor * total);
            }
            for range in &self.shared {
                let mut common = lane.models[0][range.clone()].to_vec();
                for sum in answer.sums.iter().filter(|sum| sum.count > 0) {
                    crate::linalg::add_scaled(&mut common, -factor, &sum.total[range.clone()]);
                }
                models.iter_mut().for_each(|model| Arc::make_mut(model)[range.clone()].copy_from_slice(&common));
            }
            return models;
        }
        let absent = |cluster: usize| {
            missing.iter().filter(|&&client| lane.choices[client as usize] == Some(cluster as u32)).count()
        };
        let new = lane.models.iter().zip(&answer.sums).enumerate();
        let mut models: Vec<Params> = new.map(|(j, (old, sum))| self.training.mean(old, sum, absent(j))).collect();
        if !self.shared.is_empty() {
            let mut everybody = Sum::default();
            answer.sums.iter().for_each(|sum| everybody.merge(sum));
            let common = self.training.mean(&lane.models[0], &everybody, (0..self.clusters()).map(absent).sum());
            for range in &self.shared {
                models.iter_mut().for_each(|m| Arc::make_mut(m)[range.clone()].copy_from_slice(&common[range.clone()]));
            }
        }
        models
    }

    /// The lane with the smallest loss; before the first loss, the first.
    fn best(&self) -> usize {
        let alive = |lane: &Lane| !matches!(lane.going, Going::Diverged { .. });
        let loss = |lane: &Lane| if alive(lane) { lane.loss.unwrap_or(f64::MAX) } else { f64::INFINITY };
        crate::models::first_smallest(self.state.lanes.iter().map(loss)).position
    }

    fn sizes(&self, lane: &Lane) -> Vec<usize> {
        sizes_of(self.clusters(), lane.choices.iter().flatten().map(|&choice| choice as usize))
    }
}

impl Method for Ifca {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let round = self.state.round;
        if round == 0 && self.state.lanes[0].models.is_empty() {
            self.begin(room)?;
        }
        let to = self.training.participants(&self.key, round, room);
        let asked = to.among(self.clients).count();
        let going: Vec<usize> =
            (0..self.state.lanes.len()).filter(|&l| self.state.lanes[l].going == Going::On).collect();
        let models = going.iter().flat_map(|&lane| self.state.lanes[lane].models.iter().cloned()).collect();
        let mut ask = Ask::new(Phase::Train, models, Gather::Sum { by: By::Choice, weight: self.weight });
        let order = |(place, &lane): (usize, &usize)| {
            ask.order(to.clone(), self.work(place * self.clusters(), self.state.lanes[lane].step))
        };
        let orders: Vec<_> = going.iter().enumerate().map(order).collect();
        let answers = room.ask(&ask)?;
        let missing: Vec<u32> = answers.missing.iter().map(|missing| missing.client).collect();
        // Where no answer to a lane can be used, its models have blown up.
        let garbage = answers.missing.iter().any(|missing| missing.reason == Absence::Garbage);

        let mut switched = vec![0; self.state.lanes.len()];
        for (&index, &order) in going.iter().zip(&orders) {
            let (lane, answer) = (&self.state.lanes[index], answers.of(order));
            let models = self.step(lane, asked, &answer, &missing);
            let moved = lane.models.iter().zip(&models).map(|(old, new)| {
                let norm = new.iter().map(|value| value * value).sum::<f64>().sqrt();
                distance(old, new) / norm.max(f64::MIN_POSITIVE)
            });
            let settled =
                self.tolerance > 0.0 && !answer.clients.is_empty() && moved.fold(0.0, f64::max) <= self.tolerance;
            let finite = models.iter().all(|model| model.iter().all(|value| value.is_finite()));
            let lane = &mut self.state.lanes[index];
            for (client, Choice { place, .. }) in answer.each() {
                let last = lane.choices[client as usize].replace(place);
                switched[index] += usize::from(last.is_some_and(|last| last != place));
            }
            match watch_loss(&answer.losses(), &mut lane.first_loss, round) {
                Ok(loss) if finite && !(garbage && answer.clients.is_empty()) => {
                    lane.loss = loss.or(lane.loss);
                    lane.models = models;
                    if settled {
                        lane.going = Going::Settled { round: round + 1 };
                    }
                }
                _ => lane.going = Going::Diverged { round: round + 1 },
            }
        }
        if self.state.lanes.iter().all(|lane| matches!(lane.going, Going::Diverged { .. })) {
            return Err(diverged(round));
        }
        self.state.round += 1;
        let best = self.best();
        let lane = &self.state.lanes[best];
        let nobody_left = self.state.lanes.iter().all(|lane| lane.going != Going::On);
        Ok(Progress {
            loss: lane.loss,
            switched: Some(switched[best]),
            sizes: self.sizes(lane),
            finished: nobody_left || self.state.round >= self.training.rounds,
        })
    }

    fn planned_rounds(&self) -> usize {
        self.training.rounds
    }

    fn outcome(&self) -> Outcome {
        let best = self.best();
        let lane = &self.state.lanes[best];
        let mut notes = self.state.notes.clone();
        let lanes = self.state.lanes.len();
        let mut extra = self.state.extra.clone();
        if lanes > 1 {
            let diverged = self.state.lanes.iter().filter(|lane| matches!(lane.going, Going::Diverged { .. })).count();
            notes.push(format!("best of {lanes} starts and steps: start {} with step {}", lane.start + 1, lane.step));
            if diverged > 0 {
                notes.push(format!("{diverged} of {lanes} starts and steps diverged and were dropped"));
            }
            extra.insert("best_step".into(), lane.step);
        }
        let candidates =
            if lanes > 1 { self.state.lanes.iter().map(|lane| lane.models.clone()).collect() } else { Vec::new() };
        Outcome {
            models: lane.models.clone(),
            clustered: true,
            candidates,
            converged: self.tolerance == 0.0 || matches!(lane.going, Going::Settled { .. }),
            notes,
            extra,
            ..Outcome::default()
        }
    }

    keep_state!();
}
