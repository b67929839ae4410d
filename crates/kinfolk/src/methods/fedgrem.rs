//! FedGrEM: a mixture inside every client, components alike across clients, weights of their own, and some clients that
//! are like nobody. (Tian, Weng, Feng: Towards the theory of unsupervised federated learning, 2024, algorithm 1.)
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
//! - It ends when nothing moves any more.

use super::mixtures::*;
use super::*;
use crate::aggregate::{Pull, pull};
use crate::federation::work::{Parts, StepMixture};
use crate::mixture::step::{Rule, Step};

choices! {
    /// How centres become common.
    pub(super) enum Central { Converged = "converged", TwoPasses = "two-passes", Mean = "mean", None = "none" }
    /// Whose scatter a client has.
    pub(super) enum Scatter { Own = "own", Common = "common" }
    /// What becomes of a client's weights.
    pub(super) enum Weights { Own = "own", Pulled = "pulled" }
}

settings! {
    pub(super) struct FedGrEmSettings {
        /// the step size C_η; 0.55 to 1.35 are good
        step: f64 [above 0.0] = 0.95,
        /// what the step is: over the weight a component began with, but never beyond its mean; the same without that
        /// bound; or as it is
        step_rule: StepRule = "capped",
        /// how centres become common: solved to the end, by the authors' two passes, by their mean, or not at all
        central: Central = "converged",
        /// how far the centre reaches, C; 4 to 5 with weak starts
        #[only_with(central = "converged" | "two-passes")]
        penalty: f64 [0.0..=1e18] = 2.0,
        /// λ before the first round
        #[only_with(central = "converged" | "two-passes")]
        first_penalty: f64 [0.0..=1e18] = 1.0,
        /// how much of λ remains in a round, κ
        #[only_with(central = "converged" | "two-passes")]
        memory: f64 [0.0..=0.999] = 0.1,
        /// with a tied covariance (or common noise): whether each client has that of its own fit, or all have the mean
        scatter: Scatter = "own",
        /// whether weights stay with their client, or are sent and pulled to a common centre too
        weights: Weights = "own",
        /// rows in a step (default all)
        batch: Option<u32> [1..=1 << 31],
        /// share of the clients asked in a round
        participation: f64 [above 0.0..=1.0] = 1.0,
        /// no row pulls at a centre by more than this length (default no limit)
        clip: Option<f64> [above 0.0],
        /// soft threshold on the coordinates of centres, for many columns of which few matter
        sparsity: f64 [0.0..=1e18] = 0.0,
        /// how often, before the first round, clients compare their fit with one from the common centres
        contests: usize [0..=1000] = 2,
        common: CommonOrder,
    }
}

impl MethodSettings for FedGrEmSettings {
    const NAME: &str = "fedgrem";
    const SUMMARY: &str = "mixtures with common components, weights of their own, and outlier clients";
    const PAPER: &str = "Tian, Weng, Feng 2024";
    const WANTS: Ability = Ability::SharedScatter;

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let workshop = Workshop::new(&setup, &self.common.fits, self.common.orders)?;
        if workshop.shape.scatter().is_empty() && self.scatter == Scatter::Common {
            return Err(Error::settings(format!("{}.scatter: the model says how rows scatter", workshop.place))
                .hint("leave it out, or set model.covariance = \"tied\" (model.noise = \"common\")"));
        }
        let send = if self.weights == Weights::Pulled { Parts::Whole } else { Parts::Centres };
        Ok(Box::new(FedGrEm {
            until: self.common.until,
            step: StepMixture {
                limit: self.clip,
                step: Step { rule: Rule::Ascend(self.step_rule.rate(self.step)), sparsity: self.sparsity, share: 1.0 },
                ..workshop.plain_step(Rule::Stay, send)
            },
            batch: self.batch,
            participation: self.participation,
            contests: self.contests,
            central: self.central,
            penalty: self.penalty,
            memory: self.memory,
            state: State {
                round: 0,
                standing: Standing::new(setup.rows.len()),
                penalty: self.first_penalty,
                sent: vec![Vec::new(); setup.rows.len()],
                positions: vec![Vec::new(); setup.rows.len()],
                centres: Vec::new(),
                weights: Vec::new(),
                knows_scatter: (0..setup.rows.len())
                    .map(|client| self.scatter == Scatter::Own && workshop.tells_scatter(client))
                    .collect(),
                lent: Vec::new(),
                distances: Vec::new(),
                converged: false,
                delivered: false,
            },
            workshop,
            scaling: None,
        }))
    }
}

/// Weights scatter by at most half of what centres in units of their rows do.
const WEIGHT_DEVIATION: f64 = 0.5;
/// Steps of EM after which two beginnings are compared.
const CONTEST_STEPS: u32 = 30;
/// How exactly the central update is solved.
const CENTRAL_TOLERANCE: f64 = 1e-10;

struct FedGrEm {
    workshop: Workshop,
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
    /// The units in which centres are compared, once the scatter is known.
    scaling: Option<Scaling>,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    round: usize,
    standing: Standing,
    /// λ_t.
    penalty: f64,
    /// What each client sent last, centres in the common units and perhaps weights; empty for one that has none.
    sent: Vec<Vec<f64>>,
    /// v of every client: the same, after it was pulled.
    positions: Vec<Vec<f64>>,
    /// v̄ of every component, end to end, in the common units.
    centres: Vec<f64>,
    /// The common weights, where they are pulled.
    weights: Vec<f64>,
    /// Which clients have the common scatter already, or their own.
    knows_scatter: Vec<bool>,
    /// The ids of clients with too few rows to tell their scatter.
    lent: Vec<String>,
    /// Of every client and component: how far θ̃ was from v̄, over how far v̄ reached.
    distances: Vec<f64>,
    converged: bool,
    /// Whether clients have been handed their positions.
    delivered: bool,
}

impl FedGrEm {
    /// How rows scatter, in the form of the model: the same for everybody.
    fn common_scatter(&self) -> Vec<f64> {
        let shape = &self.workshop.shape;
        self.workshop.with_common_scatter(vec![0.0; shape.centres().end], &self.state.standing.scatter)[shape.scatter()]
            .to_vec()
    }

    /// The units in which centres are compared.
    fn scaling(&self) -> Scaling {
        Scaling::of(&self.workshop.shape, &self.common_scatter())
    }

    fn pulls_weights(&self) -> bool {
        self.step.send == Parts::Whole
    }

    /// How far the centre reaches for a client with so many rows: λ_t/√n.
    fn reach(&self, rows: f64) -> f64 {
        match self.central {
            Central::Mean => f64::INFINITY,
            Central::None => 0.0,
            Central::Converged | Central::TwoPasses => self.state.penalty / rows.sqrt(),
        }
    }

    /// Line 3, for one coordinate range of everybody's vectors. Moves `positions` and returns the common centre and how far
    /// everybody was from it, over its reach.
    fn pull_range(
        &self,
        members: &[usize],
        range: std::ops::Range<usize>,
        deviation: f64,
        start: Option<&[f64]>,
        positions: &mut [Vec<f64>],
    ) -> (Vec<f64>, Vec<f64>) {
        let points: Vec<f64> = members.iter().flat_map(|&client| &positions[client][range.clone()]).copied().collect();
        let counts: Vec<f64> = members.iter().map(|&client| self.workshop.rows[client]).collect();
        let reach: Vec<f64> = counts.iter().map(|&rows| deviation * self.reach(rows)).collect();
        let problem = Pull { points: &points, counts: &counts, reach: &reach };
        let centre = match self.central {
            Central::TwoPasses => problem.centre_in_two_passes(),
            _ => problem.centre(start, CENTRAL_TOLERANCE),
        };
        let apart = members.iter().zip(&reach).map(|(&client, &reach)| {
            let away = pull(&mut positions[client][range.clone()], &centre, reach);
            away / (deviation * self.state.penalty / self.workshop.rows[client].sqrt()).max(f64::MIN_POSITIVE)
        });
        let apart = apart.collect();
        (centre, apart)
    }

    /// Lines 3 and 4: everybody's new position from what was sent last. Returns the longest move of any centre.
    fn pull_all(&mut self) -> f64 {
        let shape = self.workshop.shape;
        let width = shape.width();
        let members: Vec<usize> =
            (0..self.state.sent.len()).filter(|&client| !self.state.sent[client].is_empty()).collect();
        let size = width as f64 + (members.len() as f64).ln();
        self.state.penalty = self.memory * self.state.penalty + self.penalty * size.max(0.0).sqrt();
        let mut positions = self.state.sent.clone();
        let before = std::mem::take(&mut self.state.centres);
        let mut distances = vec![0.0; self.state.sent.len() * shape.components];
        let mut centres = Vec::with_capacity(shape.centres().end);
        for component in 0..shape.components {
            let range = component * width..(component + 1) * width;
            let start = (!before.is_empty()).then(|| &before[range.clone()]);
            let (centre, apart) = self.pull_range(&members, range, 1.0, start, &mut positions);
            members
                .iter()
                .zip(apart)
                .for_each(|(&client, apart)| distances[client * shape.components + component] = apart);
            centres.extend(centre);
        }
        // A fit brings centres alone; weights come with the first step.
        let weighted: Vec<usize> =
            members.iter().copied().filter(|&client| positions[client].len() == shape.len()).collect();
        if self.pulls_weights() && !weighted.is_empty() {
            let start = (!self.state.weights.is_empty()).then(|| self.state.weights.clone());
            let (weights, _) =
                self.pull_range(&weighted, shape.weights(), WEIGHT_DEVIATION, start.as_deref(), &mut positions);
            self.state.weights = weights;
        }
        let old = std::mem::replace(&mut self.state.positions, positions);
        let centres_of = |vector: &Vec<f64>| vector[..shape.centres().end.min(vector.len())].to_vec();
        let moves = old.iter().zip(&self.state.positions);
        let moved = moves.map(|(old, new)| longest_move(&centres_of(old), &centres_of(new), width)).fold(0.0, f64::max);
        let common = if before.is_empty() { f64::INFINITY } else { longest_move(&before, &centres, width) };
        self.state.centres = centres;
        self.state.distances = distances;
        moved.max(common)
    }

    /// The positions of some clients as models of an ask: everything they lack, in the units of the data.
    fn models(&self, clients: &[u32], scaling: &Scaling) -> (Vec<Params>, Vec<(u32, Option<usize>)>) {
        let centres = self.workshop.shape.centres().end;
        let scatter = self.common_scatter();
        let model = |client: u32| {
            let position = &self.state.positions[client as usize];
            let mut model = position[..centres].to_vec();
            scaling.restore(&mut model);
            if position.len() > centres {
                model.extend_from_slice(&position[centres..]);
            } else if !self.state.knows_scatter[client as usize] {
                model.extend_from_slice(&scatter);
            }
            Arc::new(model)
        };
        let models = clients.iter().map(|&client| model(client)).collect();
        (models, clients.iter().enumerate().map(|(place, &client)| (client, Some(place))).collect())
    }

    /// Has clients compare their fits with what EM makes of the common centres.
    fn contest(&mut self, scaling: &Scaling, room: &mut Room) -> Result<()> {
        let shape = self.workshop.shape;
        let penalty = self.state.penalty;
        self.state.penalty = self.last_penalty();
        self.pull_all();
        self.state.penalty = penalty;
        let mut common = std::mem::take(&mut self.state.centres);
        scaling.restore(&mut common);
        common.extend(self.common_scatter());
        let members: Vec<(u32, Option<usize>)> = self.members().map(|client| (client, Some(0))).collect();
        let step = StepMixture { steps: CONTEST_STEPS, ..self.workshop.plain_step(Rule::Contest, Parts::Centres) };
        let models = vec![Arc::new(common)];
        let (answers, _) =
            self.workshop.step(&mut self.state.standing, (models, &members), &step, Gather::Each, room)?;
        for order in &answers.orders {
            for (place, &client) in order.clients.iter().enumerate() {
                let mut fit = order.vector(place).to_vec();
                scaling.shrink(&mut fit[shape.centres()]);
                self.state.sent[client as usize] = fit;
            }
        }
        self.state.positions.clone_from(&self.state.sent);
        Ok(())
    }

    /// What λ comes to in the end.
    fn last_penalty(&self) -> f64 {
        let size = self.workshop.shape.width() as f64 + (self.members().count() as f64).ln();
        self.penalty * size.sqrt() / (1.0 - self.memory)
    }

    /// The clients whose positions are known.
    fn members(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.state.positions).filter(|(_, position)| !position.is_empty()).map(|(client, _)| client)
    }

    /// Those of them that take part in this round.
    fn participants(&self, round: usize, room: &Room) -> Vec<u32> {
        if self.participation >= 1.0 {
            return self.members().collect();
        }
        let all = room.clients().len();
        let count = ((self.participation * all as f64).round() as usize).clamp(1, all);
        let chosen = draw_clients(&self.workshop.key.clone().word("participation").number(round as u64), count, room);
        self.members().filter(|&client| chosen.contains(client)).collect()
    }

    fn is_random(&self) -> bool {
        self.batch.is_some() || self.participation < 1.0
    }
}

impl Method for FedGrEm {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let round = self.state.round;
        let shape = self.workshop.shape;
        let standing = &mut self.state.standing;
        let new: Vec<usize> = (0..standing.stamps.len()).filter(|&client| standing.stamps[client] == 0).collect();
        self.workshop.fit(standing, Parts::Shared, room)?;
        if self.state.standing.fitted().next().is_none() {
            self.state.round += 1;
            return Ok(Progress::of(None, self.state.round >= self.until.rounds));
        }
        if self.state.centres.is_empty() {
            let few = |client: &usize| !self.workshop.tells_scatter(*client);
            let id = |client: usize| room.clients()[client].id.clone();
            self.state.lent = (0..self.state.sent.len()).filter(few).map(id).collect();
        }
        let scaling = self.scaling.take().unwrap_or_else(|| self.scaling());
        for client in new {
            let mut fit = self.state.standing.fits[client].clone();
            scaling.shrink(&mut fit);
            self.state.sent[client] = fit.clone();
            self.state.positions[client] = fit;
        }
        if self.state.centres.is_empty() && self.central != Central::None {
            for _ in 0..self.contests {
                self.contest(&scaling, room)?;
            }
        }
        let (models, asked) = self.models(&self.participants(round, room), &scaling);
        let seed = self.workshop.key.clone().word("batches").number(round as u64).seed();
        let sample = Sample { batch: self.batch, seed, ..Sample::FULL };
        // The fewer rows a step sees, the less it may decide alone: shares whose squares can be summed settle down.
        let share = if self.batch.is_some() { (round as f64 + 1.0).powf(-0.6) } else { 1.0 };
        let step = StepMixture { sample, step: Step { share, ..self.step.step }, ..self.step.clone() };
        let (answers, orders) =
            self.workshop.step(&mut self.state.standing, (models, &asked), &step, Gather::Each, room)?;
        let loss = finite_loss(&answers.losses(&orders), room)?;
        for order in &answers.orders {
            for (place, &client) in order.clients.iter().enumerate() {
                let mut sent = order.vector(place).to_vec();
                scaling.shrink(&mut sent[shape.centres()]);
                self.state.sent[client as usize] = sent;
                self.state.knows_scatter[client as usize] = true;
            }
        }
        let moved = self.pull_all();
        self.state.round += 1;
        let complete = self.state.standing.is_complete(&answers);
        self.state.converged = complete && moved <= self.until.tolerance && !self.is_random();
        let finished = self.state.converged || self.state.round >= self.until.rounds;
        if finished {
            let members: Vec<u32> = self.members().collect();
            let (models, asked) = self.models(&members, &scaling);
            let look = self.batch.is_some();
            self.workshop.deliver(&mut self.state.standing, (models, &asked), look, room)?;
            self.state.delivered = true;
        }
        self.scaling = Some(scaling);
        Ok(Progress::of(loss, finished))
    }

    fn planned_rounds(&self) -> usize {
        self.until.rounds
    }

    fn outcome(&self) -> Outcome {
        let shape = self.workshop.shape;
        let mut outcome =
            self.workshop.outcome(&self.state.standing, Vec::new(), self.state.converged || self.is_random());
        if !self.state.lent.is_empty() {
            let ids: Vec<&str> = self.state.lent.iter().map(String::as_str).collect();
            outcome.notes.push(format!(
                "{} with fewer rows than the {} that tell how they scatter, given the common scatter: {}",
                clients(ids.len()),
                shape.least_rows(),
                names(&ids)
            ));
        }
        if self.state.centres.is_empty() {
            outcome.mixture = Some(MixtureOutcome::default());
            return outcome;
        }
        let scaling = self.scaling();
        let mut common = self.state.centres.clone();
        scaling.restore(&mut common);
        let mut model = self.workshop.with_common_scatter(common.clone(), &self.state.standing.scatter);
        if !self.state.weights.is_empty() {
            model[shape.weights()].copy_from_slice(&self.state.weights);
        }
        outcome.models = vec![Arc::new(model)];
        let standing = |distances: &[f64]| {
            let apart = distances.iter().filter(|distance| **distance > 1.0).count();
            Apart { score: distances.iter().sum::<f64>() / shape.components as f64, components: apart }
        };
        let clients = self.state.distances.chunks_exact(shape.components).zip(&self.state.sent);
        // Without a reach there are no units to measure by.
        let measured = self.penalty > 0.0 && matches!(self.central, Central::Converged | Central::TwoPasses);
        let apart = clients.filter(|_| measured).map(|(it, sent)| (!sent.is_empty()).then(|| standing(it)));
        let mut drafts = Vec::new();
        if !self.state.delivered {
            let members: Vec<u32> = self.members().collect();
            drafts = vec![None; self.state.sent.len()];
            for (model, client) in self.models(&members, &scaling).0.into_iter().zip(members) {
                drafts[client as usize] = Some(model);
            }
        }
        outcome.mixture = Some(MixtureOutcome { common, apart: apart.collect(), drafts });
        outcome
    }

    keep_state!();
}
