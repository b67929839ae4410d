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
//!   one ask, and with `clusters = "auto"` it finds their number too. Where `aggregate` is not the mean, models that are far from all
//!   others are set aside first.
//! - `start = "oracle"` and `start = "planted"`, for experiments: the minimisers of the true clusters, or their planted
//!   parameters, moved by noise or by a distance.
//! - `shared`: these layers are averaged over everybody, only the rest is kept per cluster.
//! - `resample`: fresh, disjoint rows for every choice and every step, as the paper's theory has it.
//! - `divisor = "participants"` divides by |M_t| in line 9 instead of by m.

pub(super) mod one_shot_ifca;
mod settings;
mod starts;
#[cfg(test)]
mod tests;

use super::room::{check_loss, diverged};
use super::*;
use crate::federation::work::{Choice, Choose};
use crate::federation::{Absence, Handle};
use crate::models::first_smallest;
use crate::num::{distance, norm};
use crate::training::Then;
pub use settings::{Divisor, IfcaSettings, StartBy};
use starts::Beginning;
use std::ops::Range;

struct Ifca {
    trainer: Trainer,
    gradients: bool,
    weight: Weight,
    by_participants: bool,
    beginning: Beginning,
    tolerance: f64,
    shared: Vec<Range<usize>>,
    resample: bool,
    model: Arc<dyn Model>,
    clients: usize,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    round: usize,
    lanes: Vec<Lane>,
    /// Notes and numbers about the start.
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
    choices: Assignment,
    /// How many clients are in each cluster.
    sizes: Vec<usize>,
    /// Mean loss of the chosen models, in the first round and before the last step.
    first_loss: Option<f64>,
    loss: Option<f64>,
    status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Status {
    Running,
    Settled,
    Diverged,
}

impl Lane {
    fn new(start: usize, step: f64, clients: usize) -> Self {
        let choices = Assignment::none(0, clients);
        let (models, sizes) = (Vec::new(), Vec::new());
        Self { step, start, models, choices, sizes, first_loss: None, loss: None, status: Status::Running }
    }

    /// Line 1.
    fn begin(&mut self, models: Vec<Params>) {
        self.choices = Assignment::none(models.len(), self.choices.each().len());
        self.models = models;
    }

    fn has_diverged(&self) -> bool {
        self.status == Status::Diverged
    }
}

impl Ifca {
    /// The plain algorithm; its first models come from elsewhere.
    fn from_models(setup: &Setup, trainer: Trainer, weight: Weight) -> Self {
        let clients = setup.rows.len();
        let lanes = vec![Lane::new(0, trainer.step, clients)];
        Self {
            trainer,
            gradients: false,
            weight,
            by_participants: false,
            beginning: Beginning::Given(Vec::new()),
            tolerance: 0.0,
            shared: Vec::new(),
            resample: false,
            model: setup.model.clone(),
            clients,
            state: State { round: 0, lanes, notes: Vec::new(), extra: BTreeMap::new() },
        }
    }

    fn trainer(&self, lane: &Lane) -> Trainer {
        Trainer { step: lane.step, ..self.trainer.clone() }
    }

    /// Number of clusters, once there is a start.
    fn clusters(&self) -> usize {
        self.state.lanes[0].models.len()
    }

    /// Lines 5 to 8 for a lane whose models begin at `first`.
    fn work(&self, first: usize, lane: &Lane) -> Choose {
        let round = self.state.round;
        let part = |index: usize| match self.resample {
            true => Portion::Part { index: index as u32, of: 2 * self.trainer.schedule.rounds as u32 },
            false => Portion::All,
        };
        let rows = part(2 * round + 1);
        let then = match self.gradients {
            true => Then::Gradient(Sample { on: rows, ..self.trainer.sample(round) }),
            false => {
                let plan = self.trainer(lane).plan(round);
                Then::Train(Plan { sample: Sample { on: rows, ..plan.sample }, ..plan })
            }
        };
        Choose { among: (first..first + self.clusters()).collect(), on: part(2 * round), then }
    }

    /// Lines 9 and 10.
    fn step(&self, lane: &Lane, asked: usize, order: Handle<Choice>, answers: &Answers, room: &Room) -> Vec<Params> {
        let mut models = lane.models.clone();
        let nothing = Arc::new(vec![0.0; models[0].len()]);
        let before = if self.gradients { vec![nothing; models.len()] } else { models.clone() };
        let sums = self.trainer.sums_by_choice(self.weight, &before, answers, order);
        // The shared layers are those of everybody's mean.
        let mut common = lane.models[0].clone();
        let is_shared = !self.shared.is_empty();
        if self.gradients {
            let answered = answers.of(order).answered();
            let divisor = match self.by_participants {
                true => (answered + room.unchanged(asked - answered)).max(1),
                false => self.clients,
            };
            let factor = self.trainer(lane).step_in(self.state.round) / divisor as f64;
            for (model, sum) in models.iter_mut().zip(&*sums) {
                add_scaled(Arc::make_mut(model).as_mut_slice(), -factor, &sum.total);
            }
            for sum in sums.iter().filter(|_| is_shared) {
                add_scaled(Arc::make_mut(&mut common).as_mut_slice(), -factor, &sum.total);
            }
        } else {
            let absent = |cluster: usize| absent_from(cluster, &lane.choices, answers);
            for (cluster, (model, sum)) in models.iter_mut().zip(&*sums).enumerate() {
                *model = mean_model(model, sum, room.unchanged(absent(cluster)));
            }
            let mut all = Sum::default();
            sums.iter().filter(|_| is_shared).for_each(|sum| all.merge(sum));
            common = mean_model(&common, &all, room.unchanged((0..self.clusters()).map(absent).sum()));
        }
        copy_layers(&self.shared, &common, &mut models);
        models
    }

    /// The lane with the smallest loss; before the first loss, the first.
    fn best(&self) -> usize {
        let loss = |lane: &Lane| if lane.has_diverged() { f64::INFINITY } else { lane.loss.unwrap_or(f64::MAX) };
        first_smallest(self.state.lanes.iter().map(loss)).position
    }
}

fn copy_layers(layers: &[Range<usize>], from: &[f64], to: &mut [Params]) {
    for layer in layers {
        to.iter_mut().for_each(|model| Arc::make_mut(model)[layer.clone()].copy_from_slice(&from[layer.clone()]));
    }
}

impl Method for Ifca {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let round = self.state.round;
        if round == 0 && self.state.lanes[0].models.is_empty() {
            self.begin(room)?;
        }
        let to = self.trainer.participants(round, room);
        let asked = to.among(self.clients).count();
        let going: Vec<usize> =
            (0..self.state.lanes.len()).filter(|&l| self.state.lanes[l].status == Status::Running).collect();
        let models = going.iter().flat_map(|&lane| self.state.lanes[lane].models.iter().cloned()).collect();
        let mut ask = Ask::new(Phase::Train, models, self.trainer.gather(By::Choice, self.weight));
        let order = |(place, &lane): (usize, &usize)| {
            ask.order(to.clone(), self.work(place * self.clusters(), &self.state.lanes[lane]))
        };
        let orders: Vec<_> = going.iter().enumerate().map(order).collect();
        let answers = room.ask(&ask)?;
        // If no answer to a lane can be used, its models have blown up.
        let garbage =
            answers.unusable() > 0 || answers.missing.iter().any(|missing| missing.reason == Absence::Garbage);

        let mut switched = vec![0; self.state.lanes.len()];
        for (&index, &order) in going.iter().zip(&orders) {
            let (lane, answer) = (&self.state.lanes[index], answers.of(order));
            let models = self.step(lane, asked, order, &answers, room);
            let change = |(old, new): (&Params, &Params)| distance(old, new) / norm(new).max(f64::MIN_POSITIVE);
            let moved = lane.models.iter().zip(&models).map(change);
            let settled = self.tolerance > 0.0 && answer.answered() > 0 && moved.fold(0.0, f64::max) <= self.tolerance;
            let finite = models.iter().all(|model| model.iter().all(|value| value.is_finite()));
            let lane = &mut self.state.lanes[index];
            for (client, Choice { place, .. }) in answer.each() {
                let last = lane.choices.put(client, place as usize);
                switched[index] += usize::from(last.is_some_and(|last| last != place as usize));
            }
            // Where only sums are told, who chose what is not known, only how many.
            lane.sizes = if room.is_sealed() {
                answer.slots.iter().map(|slot| slot.count).collect()
            } else {
                lane.choices.sizes()
            };
            match check_loss(&answer.losses(), &mut lane.first_loss, round) {
                Ok(loss) if finite && !(garbage && answer.answered() == 0) => {
                    lane.loss = loss.or(lane.loss);
                    lane.models = models;
                    if settled {
                        lane.status = Status::Settled;
                    }
                }
                _ => lane.status = Status::Diverged,
            }
        }
        if self.state.lanes.iter().all(Lane::has_diverged) {
            return Err(diverged(round));
        }
        self.state.round += 1;
        let best = self.best();
        let lane = &self.state.lanes[best];
        let nobody_left = self.state.lanes.iter().all(|lane| lane.status != Status::Running);
        Ok(Progress {
            loss: lane.loss,
            switched: (!room.is_sealed()).then_some(switched[best]),
            sizes: lane.sizes.clone(),
            finished: nobody_left || self.state.round >= self.trainer.schedule.rounds,
        })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let lane = &self.state.lanes[self.best()];
        let lanes = self.state.lanes.len();
        let (mut notes, mut extra) = (self.state.notes.clone(), self.state.extra.clone());
        if lanes > 1 {
            notes.push(format!("best of {lanes} starts and steps: start {} with step {}", lane.start + 1, lane.step));
            let diverged = self.state.lanes.iter().filter(|lane| lane.has_diverged()).count();
            if diverged > 0 {
                notes.push(format!("{diverged} of {lanes} starts and steps diverged and were dropped"));
            }
            extra.insert("best_step".into(), lane.step);
        }
        Outcome {
            models: lane.models.clone(),
            clustered: true,
            candidates: self.state.lanes.iter().filter(|_| lanes > 1).map(|lane| lane.models.clone()).collect(),
            converged: self.tolerance == 0.0 || lane.status == Status::Settled,
            notes,
            extra,
            ..Outcome::default()
        }
    }

    keep_state!();
}
