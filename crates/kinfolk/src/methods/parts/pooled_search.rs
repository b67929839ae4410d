//! The minimiser of the pooled loss of every cluster, without moving a row.
//!
//! Every ask is for gradients at one point a cluster, and the server does L-BFGS on their sums. Losses compare only over the
//! same clients: one whose answer is missing is asked again at the same point, and after too many tries left out for good,
//! the search beginning anew without it.

use super::super::*;
use crate::descent::Descent;
use crate::federation::Answered;
use crate::federation::work::{Gradient, Loss};
use crate::methods::room::diverged;
use crate::num::sum_of_squares;

/// How often a client is asked at one point before it is left out.
const TRIES: usize = 30;

/// The search for the minimiser of every cluster's pooled loss.
#[derive(Serialize, Deserialize)]
pub struct PooledSearch {
    ridge: f64,
    tolerance: f64,
    clusters: Vec<ClusterSearch>,
    left_out: usize,
}

/// One cluster's search, and the answers so far at its next point.
#[derive(Default, Serialize, Deserialize)]
struct ClusterSearch {
    descent: Descent,
    members: Vec<u32>,
    /// Members that have not answered at this point, and how often they were asked.
    unheard: Vec<u32>,
    tries: usize,
    gradients: Sum,
    /// Σ rows · loss.
    losses: f64,
}

impl ClusterSearch {
    /// Forgets the answers, before the next point.
    fn begin_point(&mut self) {
        self.unheard.clone_from(&self.members);
        (self.tries, self.gradients, self.losses) = (0, Sum::default(), 0.0);
    }

    /// Takes answers at the point asked for, and moves on once all members have answered. Returns how many are left out.
    fn take(&mut self, answer: &Answered<Loss>, ridge: f64) -> usize {
        self.unheard.retain(|client| answer.clients.binary_search(client).is_err());
        self.gradients.merge(&answer.sums[0]);
        self.losses +=
            answer.losses().iter().zip(&answer.rows).map(|(loss, &rows)| loss * f64::from(rows)).sum::<f64>();
        self.tries += 1;
        if self.unheard.is_empty() {
            let (point, weight) = (self.descent.wanted(), self.gradients.weight);
            let penalty = 0.5 * ridge * sum_of_squares(&point);
            let slopes = self.gradients.total.iter().zip(&point).map(|(g, p)| g / weight + ridge * p);
            let gradient: Vec<f64> = slopes.collect();
            self.descent.report(self.losses / weight + penalty, &gradient);
            self.begin_point();
        } else if self.tries >= TRIES {
            let gone = self.unheard.len();
            self.members.retain(|client| self.unheard.binary_search(client).is_err());
            self.descent = Descent::new(self.descent.point().to_vec());
            self.begin_point();
            return gone;
        }
        0
    }
}

impl PooledSearch {
    pub fn new(clusters: &Assignment, start: &[f64], ridge: f64, tolerance: f64) -> Self {
        let search = |cluster: usize| {
            let mut search = ClusterSearch {
                descent: Descent::new(start.to_vec()),
                members: clusters.members(cluster),
                ..ClusterSearch::default()
            };
            search.begin_point();
            search
        };
        Self { ridge, tolerance, clusters: (0..clusters.clusters()).map(search).collect(), left_out: 0 }
    }

    /// Whether a cluster's gradient is not yet short enough and can still become shorter.
    fn goes_on(&self, cluster: &ClusterSearch) -> bool {
        !cluster.members.is_empty() && cluster.descent.steepness() > self.tolerance && !cluster.descent.is_stuck()
    }

    pub fn is_finished(&self) -> bool {
        !self.clusters.iter().any(|cluster| self.goes_on(cluster))
    }

    /// Asks for gradients the members that have not answered at the points now wanted. Returns their losses.
    pub fn advance(&mut self, phase: Phase, room: &mut Room) -> Result<Vec<f64>> {
        let going: Vec<usize> = (0..self.clusters.len()).filter(|&k| self.goes_on(&self.clusters[k])).collect();
        let wanted = |&cluster: &usize| Arc::new(self.clusters[cluster].descent.wanted());
        let gather = Gather::Sum { by: By::All, weight: Weight::Rows };
        let mut ask = Ask::new(phase, going.iter().map(wanted).collect(), gather);
        let order = |(model, &cluster): (usize, &usize)| {
            let unheard = Recipients::list(self.clusters[cluster].unheard.clone());
            ask.order(unheard, Gradient { of: model, sample: Sample::FULL })
        };
        let orders: Vec<_> = going.iter().enumerate().map(order).collect();
        // If only clients that gave no answer before are asked again, garbage from all of them is no divergence.
        let answers = match going.iter().all(|&k| self.clusters[k].tries == 0) {
            true => room.ask(&ask)?,
            false => room.ask_for_any(&ask)?,
        };
        for (&cluster, &order) in going.iter().zip(&orders) {
            let cluster = &mut self.clusters[cluster];
            self.left_out += cluster.take(&answers.of(order), self.ridge);
            if cluster.descent.has_diverged() {
                return Err(diverged(room.round()));
            }
        }
        Ok(answers.losses(&orders))
    }

    /// The best point of every cluster.
    pub fn models(&self) -> Vec<Params> {
        self.clusters.iter().map(|cluster| Arc::new(cluster.descent.point().to_vec())).collect()
    }

    /// The steepest of the clusters' gradients, as a share of its first one.
    pub fn steepness(&self) -> f64 {
        self.clusters.iter().map(|cluster| cluster.descent.steepness()).fold(0.0, f64::max)
    }

    pub fn has_converged(&self) -> bool {
        self.steepness() <= self.tolerance
    }

    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.left_out > 0 {
            notes.push(format!("left out, without a usable answer {TRIES} times in a row: {} clients", self.left_out));
        }
        if !self.has_converged() {
            let steepness = self.steepness();
            notes.push(format!("the search did not converge: the gradient is still {steepness:.1e} of the first one"));
        }
        notes
    }
}
