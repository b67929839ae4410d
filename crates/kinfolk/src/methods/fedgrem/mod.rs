//! FedGrEM: a mixture inside every client, with components that are similar across clients, weights of their own, and
//! outlier clients. (Tian, Weng, Feng: Towards the theory of unsupervised federated learning, 2024, algorithm 1.)
//!
//! ```text
//!  0  each client k: fit a mixture on its own, send its centres θ^(k); the server puts components into one order
//!  1  for t = 1..T:
//!  2      each client: posteriors γ at (w, θ), w_r ← mean γ_r, θ̃_r ← θ_r + η_r ∂Q/∂θ_r, send θ̃
//!  3      server, for each r: v, v̄ ← argmin Σ_k ( n_k/2 ‖v_k − θ̃_k‖² + √n_k λ_t ‖v_k − v̄‖ )
//!  4      θ^(k) ← v_k, sent back;   λ_{t+1} ← κ λ_t + C √(d + log K)
//! ```
//!
//! Only centres travel; weights and rows stay with their client, so the common model that is saved, and that clients met
//! later are scored with, has equal weights. How far a client's centres are from the common ones, in units of what the
//! centre reaches, is its outlier score.
//!
//! Differences from the paper:
//! - The step is η_r = min(C_η / w_r⁰, 1 / w_r), and for regressions shorter where features are alike: without that bound,
//!   components of odd clients overshoot for ever and shake everybody's centre. `step_rule = "relative"` is the paper's.
//! - With a `batch`, round t takes the share t^-0.6 of its step, and weights come from all rows in the end.
//! - Line 3 is solved to the end; `central = "two-passes"` is what the authors' code does.
//! - With a `tied` covariance each client has that of its own fit, or with `scatter = "common"` all have the mean of
//!   these, as those have whose rows are too few to tell theirs; distances and λ are in units of the mean. `covariance = "identity"` is the paper's.
//! - Components are ordered by assignments, not by looking through all permutations.
//! - Before the first round, a client whose rows are likelier under EM from the common centres begins there instead of at
//!   its own fit, which may have failed; twice, unless `contests` says otherwise.
//! - It ends when no centre moves any more.

mod settings;

use super::mixtures::*;
use super::parts::training::draw_participants;
use super::*;
use crate::aggregate::{Location, pull};
pub use settings::{Central, FedGrEmSettings, Scatter, Weights};
use std::cell::OnceCell;
use std::ops::Range;

struct FedGrEm {
    training: MixtureTraining,
    until: Until,
    step: StepMixture,
    batch: Option<u32>,
    participation: f64,
    contests: usize,
    central: Central,
    /// C.
    penalty: f64,
    /// κ.
    memory: f64,
    key: Key,
    /// That of the common scatter, once it is known.
    whitening: OnceCell<Arc<Whitening>>,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    rounds: Rounds,
    /// λ_t.
    penalty: f64,
    /// θ̃ of every client: its centres, whitened, and perhaps its weights; empty for one that has none.
    sent: Vec<Vec<f64>>,
    /// v of every client: the same, after it was pulled.
    positions: Vec<Vec<f64>>,
    /// v̄ of every component, end to end, whitened.
    centres: Vec<f64>,
    /// The common weights, where they are pulled.
    weights: Vec<f64>,
    /// Which clients have the common scatter already, or their own.
    knows_scatter: Vec<bool>,
    /// The ids of clients with too few rows to tell their scatter.
    few_rows: Vec<String>,
    /// Of every client and component: the distance of θ̃ from v̄, over how far v̄ reached.
    distances: Vec<f64>,
}

impl State {
    fn new(penalty: f64, knows_scatter: Vec<bool>) -> Self {
        let clients = knows_scatter.len();
        Self {
            rounds: Rounds::new(clients),
            penalty,
            sent: vec![Vec::new(); clients],
            positions: vec![Vec::new(); clients],
            knows_scatter,
            ..Self::default()
        }
    }
}

impl Method for FedGrEm {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        if !self.fit(room)? {
            return Ok(self.state.rounds.skip_round(&self.until));
        }
        let (loss, complete) = self.ascend(room)?;
        let moved = self.update_centres();
        let finished = self.state.rounds.end_round(&self.until, moved, complete && !self.is_random());
        if finished {
            let models = self.models(self.members());
            self.state.rounds.deliver(&self.training, models, self.batch.is_some(), room)?;
        }
        Ok(Progress::of(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        self.until.rounds
    }

    fn outcome(&self) -> Outcome {
        let shape = self.training.shape;
        let State { rounds, sent, centres, weights, few_rows, distances, .. } = &self.state;
        let mut outcome = self.training.outcome(&rounds.fits, Vec::new(), rounds.converged || self.is_random());
        if !few_rows.is_empty() {
            let ids: Vec<&str> = few_rows.iter().map(String::as_str).collect();
            outcome.notes.push(format!(
                "{} with fewer rows than the {} that tell how they scatter, given the common scatter: {}",
                counted(ids.len(), "client"),
                shape.least_rows(),
                names(&ids)
            ));
        }
        if centres.is_empty() {
            outcome.mixture = Some(MixtureOutcome::default());
            return outcome;
        }
        let mut common = centres.clone();
        self.whitening().invert(&mut common);
        let mut model = self.training.with_common_scatter(common.clone(), &rounds.fits.scatter);
        if !weights.is_empty() {
            model[shape.weights()].copy_from_slice(weights);
        }
        outcome.models = vec![Arc::new(model)];
        let outlier_score = |distances: &[f64]| Apart {
            score: distances.iter().sum::<f64>() / shape.components as f64,
            components: distances.iter().filter(|distance| **distance > 1.0).count(),
        };
        // Without a reach there are no units to measure by.
        let measured = self.penalty > 0.0 && matches!(self.central, Central::Converged | Central::TwoPasses);
        let each = distances.chunks_exact(shape.components).zip(sent).filter(|_| measured);
        let apart = each.map(|(distances, sent)| (!sent.is_empty()).then(|| outlier_score(distances))).collect();
        outcome.mixture = Some(MixtureOutcome { common, apart, drafts: rounds.drafts(|| self.models(self.members())) });
        outcome
    }

    keep_state!();
}

impl FedGrEm {
    /// Line 0, for clients without a mixture. Returns whether anybody has one now.
    fn fit(&mut self, room: &mut Room) -> Result<bool> {
        let fits = &mut self.state.rounds.fits;
        let new: Vec<usize> = (0..fits.stamps.len()).filter(|&client| fits.stamps[client] == 0).collect();
        self.training.fit(fits, Parts::Shared, room)?;
        if fits.clients().next().is_none() {
            return Ok(false);
        }
        let whitening = self.whitening();
        for client in new {
            let mut fit = self.state.rounds.fits.centres[client].clone();
            whitening.apply(&mut fit);
            self.state.sent[client].clone_from(&fit);
            self.state.positions[client] = fit;
        }
        if self.state.centres.is_empty() {
            let few_rows = |(client, _): &(usize, _)| !self.training.tells_scatter(*client);
            let clients = room.clients().iter().enumerate();
            self.state.few_rows = clients.filter(few_rows).map(|(_, client)| client.id.clone()).collect();
            let contests = if self.central == Central::None { 0 } else { self.contests };
            (0..contests).try_for_each(|_| self.contest(room))?;
        }
        Ok(true)
    }

    /// Has clients compare their fits with what EM makes of the common centres.
    fn contest(&mut self, room: &mut Room) -> Result<()> {
        /// Steps of EM after which the two are compared.
        const STEPS: u32 = 30;
        let penalty = self.state.penalty;
        // What λ comes to in the end.
        self.state.penalty = self.penalty_step() / (1.0 - self.memory);
        self.update_centres();
        self.state.penalty = penalty;
        let mut common = std::mem::take(&mut self.state.centres);
        self.whitening().invert(&mut common);
        common.extend(self.common_scatter());
        let models = ClientModels::shared(common, self.members());
        let step = StepMixture { steps: STEPS, ..self.training.plain_step(Rule::Contest, Parts::Centres) };
        let (answers, _) = self.training.step(&mut self.state.rounds.fits, &models, &step, Gather::Each, room)?;
        self.receive(&answers);
        self.state.positions.clone_from(&self.state.sent);
        Ok(())
    }

    /// Line 2. Returns the mean loss, and whether everybody answered.
    fn ascend(&mut self, room: &mut Room) -> Result<(Option<f64>, bool)> {
        let round = self.state.rounds.done;
        let models = self.models(self.participants(round, room).into_iter());
        let seed = self.key.clone().word("batches").number(round as u64).seed();
        let sample = Sample { batch: self.batch, seed, ..Sample::FULL };
        // The fewer rows a step sees, the less it may decide alone: shares whose squares can be summed settle down.
        let share = if self.batch.is_some() { (round as f64 + 1.0).powf(-0.6) } else { 1.0 };
        let step = StepMixture { sample, step: Step { share, ..self.step.step }, ..self.step.clone() };
        let fits = &mut self.state.rounds.fits;
        let (answers, orders) = self.training.step(fits, &models, &step, Gather::Each, room)?;
        let loss = finite_loss(&answers.losses(&orders), room)?;
        self.receive(&answers);
        let answered = answers.orders.iter().flat_map(|order| &order.clients);
        answered.for_each(|&client| self.state.knows_scatter[client as usize] = true);
        Ok((loss, self.state.rounds.fits.is_complete(&answers)))
    }

    fn receive(&mut self, answers: &Answers) {
        let whitening = self.whitening();
        for order in &answers.orders {
            for (place, &client) in order.clients.iter().enumerate() {
                let mut sent = order.vector(place).to_vec();
                whitening.apply(&mut sent[self.training.shape.centres()]);
                self.state.sent[client as usize] = sent;
            }
        }
    }

    /// Lines 3 and 4, from what was sent last. Returns the longest move of any centre.
    fn update_centres(&mut self) -> f64 {
        /// Weights scatter by at most half of what whitened centres do.
        const WEIGHT_DEVIATION: f64 = 0.5;
        let shape = self.training.shape;
        let width = shape.width();
        let members: Vec<usize> = self.members().map(|client| client as usize).collect();
        self.state.penalty = self.memory * self.state.penalty + self.penalty_step();
        let mut positions = self.state.sent.clone();
        let before = std::mem::take(&mut self.state.centres);
        let mut distances = vec![0.0; positions.len() * shape.components];
        let mut centres = Vec::with_capacity(shape.centres().end);
        for component in 0..shape.components {
            let range = component * width..(component + 1) * width;
            let start = before.get(range.clone());
            let (centre, apart) = self.pull(&members, range, 1.0, start, &mut positions);
            for (&client, apart) in members.iter().zip(apart) {
                distances[client * shape.components + component] = apart;
            }
            centres.extend(centre);
        }
        // A fit brings centres alone; weights come with the first step.
        let weighted: Vec<usize> =
            members.iter().copied().filter(|&client| positions[client].len() == shape.len()).collect();
        if self.step.send == Parts::Whole && !weighted.is_empty() {
            let last = std::mem::take(&mut self.state.weights);
            let start = (!last.is_empty()).then_some(&last[..]);
            self.state.weights = self.pull(&weighted, shape.weights(), WEIGHT_DEVIATION, start, &mut positions).0;
        }
        let centres_of = |vector: &Vec<f64>| vector[..shape.centres().end.min(vector.len())].to_vec();
        let moves = self.state.positions.iter().zip(&positions);
        let moved = moves.map(|(old, new)| longest_move(&centres_of(old), &centres_of(new), width)).fold(0.0, f64::max);
        let common = if before.is_empty() { f64::INFINITY } else { longest_move(&before, &centres, width) };
        let state = &mut self.state;
        (state.positions, state.centres, state.distances) = (positions, centres, distances);
        moved.max(common)
    }

    /// Line 3 for coordinates of this deviation. Moves `positions`; returns the centre, and distances over its reach.
    fn pull(
        &self,
        members: &[usize],
        range: Range<usize>,
        deviation: f64,
        start: Option<&[f64]>,
        positions: &mut [Vec<f64>],
    ) -> (Vec<f64>, Vec<f64>) {
        const TOLERANCE: f64 = 1e-10;
        let points: Vec<f64> = members.iter().flat_map(|&client| &positions[client][range.clone()]).copied().collect();
        let counts: Vec<f64> = members.iter().map(|&client| self.training.rows[client]).collect();
        let penalised: Vec<f64> = counts.iter().map(|rows| self.state.penalty / rows.sqrt()).collect();
        let reach = |penalised: &f64| match self.central {
            Central::Mean => f64::INFINITY,
            Central::None => 0.0,
            Central::Converged | Central::TwoPasses => deviation * penalised,
        };
        let reach: Vec<f64> = penalised.iter().map(reach).collect();
        let problem = Location { points: &points, counts: &counts, reach: &reach };
        let centre = match self.central {
            Central::TwoPasses => problem.centre_in_two_passes(),
            _ => problem.centre(start, TOLERANCE),
        };
        let apart = members.iter().zip(&reach).zip(&penalised).map(|((&client, &reach), penalised)| {
            let away = pull(&mut positions[client][range.clone()], &centre, reach);
            away / (deviation * penalised).max(f64::MIN_POSITIVE)
        });
        let apart = apart.collect();
        (centre, apart)
    }

    /// C √(d + log K).
    fn penalty_step(&self) -> f64 {
        let size = self.training.shape.width() as f64 + (self.members().count() as f64).ln();
        self.penalty * size.max(0.0).sqrt()
    }

    /// The positions of clients as models: everything they lack, in the units of the data.
    fn models(&self, clients: impl Iterator<Item = u32>) -> ClientModels {
        let centres = self.training.shape.centres().end;
        let (whitening, scatter) = (self.whitening(), self.common_scatter());
        ClientModels::one_each(clients.map(|client| {
            let position = &self.state.positions[client as usize];
            let mut model = position[..centres].to_vec();
            whitening.invert(&mut model);
            if position.len() > centres {
                model.extend_from_slice(&position[centres..]);
            } else if !self.state.knows_scatter[client as usize] {
                model.extend_from_slice(&scatter);
            }
            (client, model)
        }))
    }

    /// How rows scatter, in the form of the model: the same for everybody.
    fn common_scatter(&self) -> Vec<f64> {
        let shape = &self.training.shape;
        let zero = vec![0.0; shape.centres().end];
        self.training.with_common_scatter(zero, &self.state.rounds.fits.scatter)[shape.scatter()].to_vec()
    }

    /// That of the common scatter.
    fn whitening(&self) -> Arc<Whitening> {
        let new = || Arc::new(Whitening::new(&self.training.shape, &self.common_scatter()));
        self.whitening.get_or_init(new).clone()
    }

    /// The clients that have sent centres.
    fn members(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.state.sent).filter(|(_, sent)| !sent.is_empty()).map(|(client, _)| client)
    }

    /// Those of them that take part in this round.
    fn participants(&self, round: usize, room: &Room) -> Vec<u32> {
        let chosen = draw_participants(self.participation, &self.key, round, room);
        self.members().filter(|&client| chosen.contains(client)).collect()
    }

    fn is_random(&self) -> bool {
        self.batch.is_some() || self.participation < 1.0
    }
}
