//! Cluster oracle: the minimiser of the pooled loss of every true cluster. What all its clients' rows together can
//! give; nobody could run it on real clients.
//!
//! ```text
//! for each true cluster k: θ_k ← argmin Σ_{i in k} n_i F_i / Σ_{i in k} n_i
//! ```
//!
//! Rows stay where they are: every round asks the clients for gradients at one point a cluster, and the server does
//! L-BFGS on their sums. Losses compare only over the same clients: one whose answer is missing is asked again at the
//! same point, and after too many tries left out for good, the search beginning anew without it.

use super::room::{diverged, mean_loss};
use super::*;
use crate::descent::Descent;
use crate::federation::Answered;
use crate::federation::work::{Gradient, Loss};

settings! {
    pub(super) struct ClusterOracleSettings {
        /// rounds to run at most
        rounds: usize [1..=1 << 40] = 1000,
        /// how short a gradient must be in the end, as a share of the first one
        tolerance: f64 [above 0.0..1.0] = 1e-10,
        /// strength of ½·ridge·‖θ‖² added to every client's loss; where a client's classes separate, a small one is added anyway
        ridge: f64 [0.0..=1e18] = 0.0,
        /// a missing answer is asked for again, or ends the run
        missing: MissingRule ["skip", "fail"] = "skip",
    }
}

impl MethodSettings for ClusterOracleSettings {
    const NAME: &str = "cluster-oracle";
    const SUMMARY: &str = "the minimiser of the pooled loss of every true cluster";
    const PAPER: &str = "baseline";
    const HAS_CLUSTERS: bool = true;

    fn needs_truth(&self) -> bool {
        true
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let truth = setup.true_clusters()?.to_vec();
        let start = odcl::common_start(&setup)?.to_vec();
        Ok(Box::new(ClusterOracle {
            rounds: self.rounds,
            search: PooledSearch::new(&truth, start, self.ridge, self.tolerance),
            truth,
        }))
    }
}

struct ClusterOracle {
    rounds: usize,
    truth: Vec<usize>,
    search: PooledSearch,
}

/// How often a client is asked at one point before it is left out.
const TRIES: usize = 30;

/// The smallest pooled loss of every cluster, looked for by all of them at once.
#[derive(Serialize, Deserialize)]
pub(super) struct PooledSearch {
    ridge: f64,
    tolerance: f64,
    clusters: Vec<ClusterSearch>,
    left_out: usize,
}

/// One cluster's search, and what came so far from its next point.
#[derive(Serialize, Deserialize)]
struct ClusterSearch {
    descent: Descent,
    members: Vec<u32>,
    /// Members still to be heard at this point, and how often they were asked.
    unheard: Vec<u32>,
    tries: usize,
    gradients: Sum,
    /// Σ rows · loss.
    losses: f64,
}

impl ClusterSearch {
    /// Forgets what came, before the next point.
    fn begin_point(&mut self) {
        self.unheard.clone_from(&self.members);
        (self.tries, self.gradients, self.losses) = (0, Sum::default(), 0.0);
    }

    /// Takes answers from the point asked for; looks when everybody was heard. Returns how many are left out.
    fn take(&mut self, answer: &Answered<Loss>, ridge: f64) -> usize {
        self.unheard.retain(|client| answer.clients.binary_search(client).is_err());
        self.gradients.merge(&answer.sums[0]);
        self.losses +=
            answer.losses().iter().zip(&answer.rows).map(|(loss, &rows)| loss * f64::from(rows)).sum::<f64>();
        self.tries += 1;
        if self.unheard.is_empty() {
            let (point, weight) = (self.descent.wanted(), self.gradients.weight);
            let penalty = 0.5 * ridge * point.iter().map(|p| p * p).sum::<f64>();
            let slopes = self.gradients.total.iter().zip(&point).map(|(g, p)| g / weight + ridge * p);
            let gradient: Vec<f64> = slopes.collect();
            self.descent.look(self.losses / weight + penalty, &gradient);
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
    pub(super) fn new(truth: &[usize], start: Vec<f64>, ridge: f64, tolerance: f64) -> Self {
        let cluster = |cluster: usize| {
            let members: Vec<u32> =
                (0u32..).zip(truth).filter(|(_, k)| **k == cluster).map(|(client, _)| client).collect();
            let descent = Descent::new(start.clone());
            ClusterSearch {
                descent,
                unheard: members.clone(),
                members,
                tries: 0,
                gradients: Sum::default(),
                losses: 0.0,
            }
        };
        let count = truth.iter().max().map_or(0, |last| last + 1);
        Self { ridge, tolerance, clusters: (0..count).map(cluster).collect(), left_out: 0 }
    }

    /// Whether a cluster's gradient is not short enough yet and can still become shorter.
    fn goes_on(&self, cluster: &ClusterSearch) -> bool {
        !cluster.members.is_empty() && cluster.descent.steepness() > self.tolerance && !cluster.descent.is_stuck()
    }

    pub(super) fn is_finished(&self) -> bool {
        !self.clusters.iter().any(|cluster| self.goes_on(cluster))
    }

    /// One ask for gradients, of everybody who was not heard at the points now wanted. The losses that came.
    pub(super) fn advance(&mut self, phase: Phase, room: &mut Room) -> Result<Vec<f64>> {
        let going: Vec<usize> = (0..self.clusters.len()).filter(|&k| self.goes_on(&self.clusters[k])).collect();
        let wanted = |&cluster: &usize| Arc::new(self.clusters[cluster].descent.wanted());
        let gather = Gather::Sum { by: By::All, weight: Weight::Rows };
        let mut ask = Ask::new(phase, going.iter().map(wanted).collect(), gather);
        let order = |(model, &cluster): (usize, &usize)| {
            let unheard = Recipients::list(self.clusters[cluster].unheard.clone());
            ask.order(unheard, Gradient { of: model, sample: Sample::FULL })
        };
        let orders: Vec<_> = going.iter().enumerate().map(order).collect();
        // Where only those are asked again who gave no answer before, garbage of all of them is no divergence.
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
    pub(super) fn models(&self) -> Vec<Params> {
        self.clusters.iter().map(|cluster| Arc::new(cluster.descent.point().to_vec())).collect()
    }

    /// The steepest of the clusters' gradients, as a share of its first one.
    fn steepness(&self) -> f64 {
        self.clusters.iter().map(|cluster| cluster.descent.steepness()).fold(0.0, f64::max)
    }

    fn has_converged(&self) -> bool {
        self.steepness() <= self.tolerance
    }

    /// What a reader must know.
    pub(super) fn notes(&self) -> Vec<String> {
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

impl Method for ClusterOracle {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let losses = self.search.advance(Phase::Train, room)?;
        let sizes = sizes_of(self.search.clusters.len(), self.truth.iter().copied());
        let finished = self.search.is_finished() || room.round() + 1 >= self.rounds;
        Ok(Progress { loss: mean_loss(&losses), switched: Some(0), sizes, finished })
    }

    fn planned_rounds(&self) -> usize {
        self.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            models: self.search.models(),
            clustered: true,
            serving: Serving::Given(self.truth.iter().copied().map(Some).collect()),
            converged: self.search.has_converged(),
            notes: self.search.notes(),
            extra: BTreeMap::from([("steepness".into(), self.search.steepness())]),
            ..Outcome::default()
        }
    }

    keep_state!(search);
}
