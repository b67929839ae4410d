//! The exact minimiser, by Newton's method on the centres.
//!
//! Told its cluster's centre, a client finds its own best model by itself, and answers with the quadratic by which its
//! smallest loss depends on the centre. The server adds these up, cluster by cluster, and knows better centres. For a
//! linear model the quadratics are exact: one round brings them, a second one the models. The server sees the quadratics as
//! sums only; what comes back singly is every client's loss and the distance of its model to the centre.

use super::super::*;
use super::complete::ask_everybody;
use crate::federation::work::{Respond, Responded, ResponseParts};
use crate::hierarchy::centres::{Centres, Joint};
use crate::hierarchy::response::{Quadratic, Response};
use crate::methods::room::diverged;
use crate::num::{Spectrum, distance, norm, squared_distance};
use crate::training::Scale;

/// Rounds after which Newton's method is given up.
const MOST_ROUNDS: usize = 60;

/// A round in which every client responds to its cluster's centre.
pub struct ResponseRound<'a> {
    pub families: &'a Families,
    pub scale: Scale,
    pub phase: Phase,
    pub on: Portion,
    /// Whether the model's quadratics are exact.
    pub exact: bool,
    /// Relative move of the centres at which they are found.
    pub tolerance: f64,
}

/// The clients' responses, summed over each cluster.
pub struct Responses {
    pub responses: Vec<Response>,
    pub slopes: Vec<Response>,
    /// Σ f_i(θ_i) + γ_i/2·‖θ_i − w_j‖².
    pub value: f64,
    /// Mean loss over the clients.
    pub loss: Option<f64>,
    /// The stamps of what clients keep, where they were to keep their models.
    pub stamps: Vec<(u32, u64)>,
}

impl ResponseRound<'_> {
    /// Asks everybody at these centres, one for every cluster.
    pub fn run(
        &self,
        centres: &[Vec<f64>],
        strengths: &Strengths,
        (send, keep): (ResponseParts, bool),
        room: &mut Room,
    ) -> Result<Responses> {
        let gather = Gather::Sum { by: By::All, weight: Weight::Uniform };
        let mut ask = Ask::new(self.phase, centres.iter().cloned().map(Arc::new).collect(), gather);
        let mut orders = Vec::new();
        for (cluster, class) in strengths.each_class() {
            let pull = Pull { centre: cluster, strength: class.gamma };
            let respond = Respond { pull, on: self.on, send, keep, scale: self.scale };
            orders.push((cluster, class.gamma, ask.order(class.everybody(), respond)));
        }
        let (answers, stamps) = ask_everybody(&ask, room)?;
        let width = centres.first().map_or(0, Vec::len);
        let length = Response::packed_len(width);
        let mut sums = vec![vec![0.0; 2 * length]; self.families.count()];
        let (mut value, mut losses) = (0.0, Vec::new());
        for (cluster, gamma, order) in orders {
            let answer = answers.of(order);
            answer.sums.iter().for_each(|sum| add_scaled(&mut sums[cluster], 1.0, &sum.total));
            for ((_, Responded { loss, squared_distance }), &rows) in answer.each().zip(&answer.rows) {
                value += self.scale.of(rows as usize) * loss;
                // An infinite pull leaves no distance.
                value += if gamma.is_finite() { 0.5 * gamma * squared_distance } else { 0.0 };
                losses.push(loss);
            }
        }
        let loss = mean_loss(&losses);
        if loss.is_some_and(|loss| !loss.is_finite()) {
            return Err(diverged(0));
        }
        let unpack = |half: usize| {
            sums.iter().map(|sum| Response::unpack(&sum[half * length..(half + 1) * length], width)).collect()
        };
        Ok(Responses { responses: unpack(0), slopes: unpack(1), value, loss, stamps })
    }
}

/// Newton's steps, halved as long as they overshoot.
#[derive(Serialize, Deserialize)]
struct LineSearch {
    best: Centres,
    value: f64,
    /// Where Newton's step from the best centres leads, and the share of it that is tried.
    target: Centres,
    share: f64,
    tried: Centres,
}

impl LineSearch {
    fn new(clusters: Vec<Vec<f64>>, global: Vec<f64>) -> Self {
        let start = Centres { undetermined: vec![0; clusters.len()], clusters, global };
        Self { best: start.clone(), value: f64::INFINITY, target: start.clone(), share: 1.0, tried: start }
    }

    /// Takes the value at the centres tried; `target` minimises its quadratic. Returns whether they are the best yet.
    fn look(&mut self, value: f64, target: impl FnOnce() -> Result<Centres>) -> Result<bool> {
        /// Values this close, relatively, are equal but for rounding.
        const ROUNDING: f64 = 1e-13;
        let is_better = self.value.is_infinite() || value <= self.value + ROUNDING * self.value.abs();
        if is_better {
            let best = std::mem::replace(&mut self.tried, target()?);
            (self.best, self.value, self.share) = (best, value, 1.0);
            self.target.clone_from(&self.tried);
        } else {
            self.share *= 0.5;
        }
        let between = |from: &[f64], to: &[f64]| -> Vec<f64> {
            from.iter().zip(to).map(|(from, to)| from + self.share * (to - from)).collect()
        };
        let clusters = self.best.clusters.iter().zip(&self.target.clusters);
        self.tried.clusters = clusters.map(|(from, to)| between(from, to)).collect();
        self.tried.global = between(&self.best.global, &self.target.global);
        Ok(is_better)
    }

    /// Whether the next step is shorter than this, relative to the centres.
    fn has_settled(&self, tolerance: f64) -> bool {
        let is_near =
            |(from, to): (&Vec<f64>, &Vec<f64>)| distance(from, to) * self.share <= tolerance * (1.0 + norm(from));
        self.best.clusters.iter().zip(&self.target.clusters).all(is_near)
    }
}

/// Newton's method on the centres, a round at a time.
#[derive(Serialize, Deserialize)]
pub struct Fit {
    search: LineSearch,
    rounds: usize,
    /// Whether the centres that are tried are already the answer.
    last: bool,
    pub stamps: Vec<u64>,
}

/// How often clients respond where that is repeated until the centres come to rest.
fn most_responses(ability: Ability) -> usize {
    if ability == Ability::Quadratic { 1 } else { MOST_ROUNDS }
}

/// What clients tell for the exact minimiser, and then of the models they keep.
pub fn discloses_fit(ability: Ability, phase: Phase) -> Disclosure {
    Disclosure::sums::<Respond>(phase, 1 + most_responses(ability), "the centres of clusters, exactly")
}

/// What clients tell for one model for everybody.
pub fn discloses_pooled(ability: Ability, phase: Phase) -> Disclosure {
    Disclosure::sums::<Respond>(phase, most_responses(ability), "the model with the smallest loss over all rows")
}

impl Fit {
    /// A fit that begins with these centres of the clusters and this global one.
    pub fn new(clusters: Vec<Vec<f64>>, global: &[f64], clients: usize) -> Self {
        Self { search: LineSearch::new(clusters, global.to_vec()), rounds: 0, last: false, stamps: vec![0; clients] }
    }

    /// The best centres so far.
    pub fn centres(&self) -> &Centres {
        &self.search.best
    }

    /// Number of directions in which nobody has data.
    pub fn undetermined(&self) -> usize {
        self.search.target.undetermined.iter().copied().max().unwrap_or(0)
    }

    /// Whether Newton's method found no better centres, rather than the best ones.
    pub fn gave_up(&self) -> bool {
        self.rounds >= MOST_ROUNDS
    }

    pub fn round(&mut self, round: &ResponseRound, strengths: &Strengths, room: &mut Room) -> Result<Progress> {
        self.rounds += 1;
        // Nobody is pulled: every client's own minimiser, and no centre to speak of.
        let is_last = self.last || strengths.are_zero();
        let send = if is_last { ResponseParts::Nothing } else { ResponseParts::Response };
        let tried = &self.search.tried;
        let Responses { responses, value, loss, stamps, .. } =
            round.run(&tried.clusters, strengths, (send, true), room)?;
        stamps.iter().for_each(|&(client, stamp)| self.stamps[client as usize] = stamp);
        if is_last {
            self.search.best.clone_from(tried);
            return Ok(Progress::of(loss, true));
        }
        let value = value + cost_of_centres(tried, &strengths.lambda);
        let is_better = self.search.look(value, || centres_of(responses, &strengths.lambda, round.families))?;
        let found = self.search.has_settled(round.tolerance);
        self.last = round.exact || found || self.rounds >= MOST_ROUNDS;
        // Where the best centres were just asked at, the clients hold the models that belong to them.
        Ok(Progress::of(loss, found && is_better && !round.exact))
    }

    pub fn run_to_the_end(&mut self, round: &ResponseRound, strengths: &Strengths, room: &mut Room) -> Result<()> {
        while !self.round(round, strengths, room)?.finished {}
        Ok(())
    }
}

/// One model for everybody by Newton's method: the model, the clients' mean loss, and whether it was found.
pub fn pooled(round: &ResponseRound, start: &[f64], room: &mut Room) -> Result<(Params, Option<f64>, bool)> {
    let families = round.families;
    let strengths = Strengths::by_cluster(families, &vec![0.0; families.count()], f64::INFINITY, 1.0);
    let mut search = LineSearch::new(vec![start.to_vec(); families.count()], start.to_vec());
    for _ in 0..MOST_ROUNDS {
        let parts = (ResponseParts::Quadratic, false);
        let Responses { responses, value, loss, .. } = round.run(&search.tried.clusters, &strengths, parts, room)?;
        search.look(value, || centres_of(responses, &strengths.lambda, families))?;
        if round.exact {
            // The minimiser of a quadratic is known before anybody has looked at it.
            return Ok((Arc::new(search.target.global), None, true));
        }
        if search.has_settled(round.tolerance) {
            return Ok((Arc::new(search.best.global), loss, true));
        }
    }
    Ok((Arc::new(search.best.global), None, false))
}

/// The centres from what everybody said.
pub fn centres_of(responses: Vec<Response>, lambda: &[f64], families: &Families) -> Result<Centres> {
    // Along directions that show nowhere in the data, sums of many clients hold what rounding left. A weak tie between
    // clusters would take it for data.
    const ROUNDING_OF_SUMS: f64 = 1e-12;
    let without_rounding = |response: Response| {
        let mut cluster = response.into_quadratic();
        if let Some(shown) = Spectrum::above(&cluster.curvature, cluster.dimension(), ROUNDING_OF_SUMS)
            && shown.rank() < cluster.dimension()
        {
            cluster.curvature = shown.map(|value| value);
            cluster.moment = shown.apply(|_| 1.0, &cluster.moment);
        }
        cluster
    };
    let clusters: Vec<Quadratic> = responses.into_iter().map(without_rounding).collect();
    Joint::new(&clusters, lambda)?.centres(&families.sizes())
}

/// Σ λ_j/2·‖w_j − w̄‖².
fn cost_of_centres(centres: &Centres, lambda: &[f64]) -> f64 {
    let finite = centres.clusters.iter().zip(lambda).filter(|(_, lambda)| lambda.is_finite());
    finite.map(|(centre, lambda)| 0.5 * lambda * squared_distance(centre, &centres.global)).sum()
}
