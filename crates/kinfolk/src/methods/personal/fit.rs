//! The exact minimiser, by Newton's method on the centres.
//!
//! Told its cluster's centre, a client finds its own best model by itself, and answers with the quadratic by which its
//! smallest loss depends on the centre. The server adds these up, cluster by cluster, and knows better centres. For a
//! linear model the quadratics are exact: one round brings them, a second one the models. The server sees the quadratics as
//! sums only; what comes back singly is every client's loss and the distance of its model to the centre.

use super::super::*;
use super::complete::ask_everybody;
use super::{Families, Strengths};
use crate::federation::work::{Respond, Responded, ResponseParts};
use crate::hierarchy::centres::{Centres, Joint};
use crate::hierarchy::response::{Quadratic, Response};
use crate::linalg::{Spectrum, add_scaled, squared_distance};
use crate::methods::room::{diverged, mean_loss};
use crate::training::{Pull, Scale};

/// Values this close, relatively, are equal but for rounding.
const ROUNDING: f64 = 1e-13;
/// Rounds after which Newton's method is given up.
const MOST_ROUNDS: usize = 60;

/// What does not change between rounds with everybody.
pub struct Circle<'a> {
    pub families: &'a Families,
    pub scale: Scale,
    pub phase: Phase,
    /// Which rows count.
    pub on: Portion,
    /// Whether the model's quadratics are exact.
    pub exact: bool,
    /// Centres that move less than this, relatively, are found.
    pub settled: f64,
}

/// What everybody said, summed over each cluster.
pub struct Told {
    pub responses: Vec<Response>,
    pub slopes: Vec<Response>,
    /// Σ f_i(θ_i) + γ_i/2·‖θ_i − w_j‖².
    pub value: f64,
    /// Mean loss over the clients.
    pub loss: Option<f64>,
    /// The stamps of what clients keep, where they were to keep their models.
    pub stamps: Vec<(u32, u64)>,
}

impl Circle<'_> {
    /// Asks everybody at these centres, one for every cluster.
    pub fn consult(
        &self,
        centres: &[Params],
        strengths: &Strengths,
        (send, keep): (ResponseParts, bool),
        room: &mut Room,
    ) -> Result<Told> {
        let gather = Gather::Sum { by: By::All, weight: Weight::Uniform };
        let mut ask = Ask::new(self.phase, centres.to_vec(), gather);
        let mut orders = Vec::new();
        for (cluster, classes) in strengths.classes.iter().enumerate() {
            for class in classes {
                let pull = Pull { centre: cluster, strength: class.gamma };
                let respond = Respond { pull, on: self.on, send, keep, scale: self.scale };
                orders.push((cluster, class.gamma, ask.order(class.everybody(), respond)));
            }
        }
        let (answers, stamps) = ask_everybody(&ask, room)?;
        let width = centres.first().map_or(0, |centre| centre.len());
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
        Ok(Told { responses: unpack(0), slopes: unpack(1), value, loss, stamps })
    }
}

/// Newton's method on the centres, a round at a time.
#[derive(Serialize, Deserialize)]
pub struct Fit {
    /// The centres that were found best so far; and the global one.
    pub clusters: Vec<Params>,
    pub global: Params,
    /// Directions in which nobody has data.
    pub undetermined: usize,
    /// What is asked next.
    tried: Vec<Params>,
    tried_global: Params,
    /// Where Newton's step would lead.
    target: Option<(Vec<Params>, Params)>,
    share: f64,
    value: f64,
    rounds: usize,
    /// Whether the centres that are tried are already the answer.
    last: bool,
    pub stamps: Vec<u64>,
}

impl Fit {
    /// A fit that begins at one place.
    pub fn new(start: Params, families: &Families) -> Self {
        let clusters = vec![start.clone(); families.count()];
        Self {
            tried: clusters.clone(),
            tried_global: start.clone(),
            clusters,
            global: start,
            undetermined: 0,
            target: None,
            share: 1.0,
            value: f64::INFINITY,
            rounds: 0,
            last: false,
            stamps: vec![0; families.of.len()],
        }
    }

    /// The same from other centres.
    pub fn from(self, clusters: Vec<Params>) -> Self {
        Self { tried: clusters.clone(), clusters, ..self }
    }

    /// Whether Newton's method found no better centres, rather than the best ones.
    pub fn gave_up(&self) -> bool {
        self.rounds >= MOST_ROUNDS
    }

    /// One round. Returns the mean loss, and whether it was the last one.
    pub fn round(&mut self, circle: &Circle, strengths: &Strengths, room: &mut Room) -> Result<(Option<f64>, bool)> {
        self.rounds += 1;
        // Nobody is pulled: every client's own minimiser, and no centre to speak of.
        let alone = strengths.are_zero();
        let send = if self.last || alone { ResponseParts::Nothing } else { ResponseParts::Response };
        let told = circle.consult(&self.tried, strengths, (send, true), room)?;
        told.stamps.iter().for_each(|&(client, stamp)| self.stamps[client as usize] = stamp);
        let value = told.value + held_together(&self.tried, &self.tried_global, &strengths.lambda);
        if self.last || alone {
            (self.clusters, self.global) = (self.tried.clone(), self.tried_global.clone());
            return Ok((told.loss, true));
        }
        let better = self.target.is_none() || value <= self.value + ROUNDING * self.value.abs();
        if better {
            (self.clusters, self.global, self.value) = (self.tried.clone(), self.tried_global.clone(), value);
            let centres = centres_of(told.responses, &strengths.lambda, circle.families)?;
            self.undetermined = centres.undetermined.iter().copied().max().unwrap_or(0);
            self.target = Some(shared(centres));
            self.share = 1.0;
        } else {
            self.share *= 0.5;
        }
        let Some((target, target_global)) = &self.target else { return Ok((told.loss, true)) };
        let settled = |from: &Params, to: &Params| {
            let size = 1.0 + squared_distance(from, &vec![0.0; from.len()]).sqrt();
            squared_distance(from, to).sqrt() * self.share <= circle.settled * size
        };
        let found = self.clusters.iter().zip(target).all(|(from, to)| settled(from, to));
        let towards = |from: &Params, to: &Params| {
            Arc::new(from.iter().zip(to.iter()).map(|(from, to)| from + self.share * (to - from)).collect())
        };
        self.tried = self.clusters.iter().zip(target).map(|(from, to)| towards(from, to)).collect();
        self.tried_global = towards(&self.global, target_global);
        self.last = circle.exact || found || self.rounds >= MOST_ROUNDS;
        // Where the best centres were just asked at, the clients hold the models that belong to them.
        Ok((told.loss, found && better && !circle.exact))
    }

    /// All rounds at once.
    pub fn run_to_the_end(&mut self, circle: &Circle, strengths: &Strengths, room: &mut Room) -> Result<()> {
        while !self.round(circle, strengths, room)?.1 {}
        Ok(())
    }
}

/// One model for everybody: Newton's method on the sum of all losses, halved where it overshoots. Returns the model, the
/// clients' mean loss, and whether it was found.
pub fn pooled(circle: &Circle, start: Params, room: &mut Room) -> Result<(Params, Option<f64>, bool)> {
    let families = circle.families;
    let strengths = Strengths::new(families, vec![0.0; families.of.len()], vec![f64::INFINITY; families.count()], 1.0);
    let (mut best, mut value, mut target, mut share) = (start.clone(), f64::INFINITY, start.clone(), 1.0);
    let mut tried = start;
    for _ in 0..MOST_ROUNDS {
        let everywhere = vec![tried.clone(); families.count()];
        let told = circle.consult(&everywhere, &strengths, (ResponseParts::Quadratic, false), room)?;
        if told.value <= value + ROUNDING * value.abs() || value.is_infinite() {
            (best, value, share) = (tried, told.value, 1.0);
            target = Arc::new(centres_of(told.responses, &strengths.lambda, families)?.global);
        } else {
            share *= 0.5;
        }
        let size = 1.0 + squared_distance(&target, &vec![0.0; target.len()]).sqrt();
        if circle.exact || share * squared_distance(&best, &target).sqrt() <= circle.settled * size {
            // Of a quadratic the minimiser is known before anybody has looked at it.
            return Ok(if circle.exact { (target, None, true) } else { (best, told.loss, true) });
        }
        tried = Arc::new(best.iter().zip(target.iter()).map(|(from, to)| from + share * (to - from)).collect());
    }
    Ok((best, None, false))
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
    let counts: Vec<usize> = families.members.iter().map(Vec::len).collect();
    Joint::new(&clusters, lambda)?.centres(&counts)
}

pub fn shared(centres: Centres) -> (Vec<Params>, Params) {
    (centres.clusters.into_iter().map(Arc::new).collect(), Arc::new(centres.global))
}

/// Σ λ_j/2·‖w_j − w̄‖².
fn held_together(clusters: &[Params], global: &Params, lambda: &[f64]) -> f64 {
    let finite = clusters.iter().zip(lambda).filter(|(_, lambda)| lambda.is_finite());
    finite.map(|(centre, lambda)| 0.5 * lambda * squared_distance(centre, global)).sum()
}
