//! PACFL (Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin: Efficient distribution similarity identification in clustered federated
//! learning via principal angles between client data subspaces, 2023). Clusters before any training, from the few directions in which
//! each client's rows lie.
//!
//! ```text
//! 1  each client i sends U_i, the first p right singular vectors of its rows
//! 2  distance of i and j ← the sum of the principal angles between U_i and U_j, in degrees, or the smallest
//! 3  clusters ← average linkage of the distances
//! 4  for each round: members train from the model of their cluster and send theirs; the cluster's ← mean of them
//! ```
//!
//! What line 1 sends are directions of raw rows, which a client may not want to show; a machine that protects its rows refuses more
//! directions than they can hide. Differences from the paper: the threshold can be left out, and is then the largest gap
//! between two joinings. A client that did not answer in line 1 is asked again, and goes to the cluster it is nearest to.

use super::parts::cluster_models::ClusterModels;
use super::parts::linkage::JoinUntil;
use super::room::nobody_answered;
use super::*;
use crate::federation::work::Subspace;
use crate::num::{Matrix, Spectrum, multiply};

choices! {
    /// What is made of the principal angles.
    pub enum Angles { Sum = "sum", Smallest = "smallest" }
}

settings! {
    /// The settings of the method `pacfl`.
    pub struct PacflSettings {
        /// number of directions that a client sends, p
        directions: u32 [1..=1000] = 3,
        /// how far two clients are apart: the sum of the angles between their directions, or the smallest
        angles: Angles = "sum",
        /// where joining ends
        until: JoinUntil,
        /// what a client's model counts in the mean
        weight: Weight = "rows",
        /// how clients train
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }
}

impl MethodSettings for PacflSettings {
    const NAME: &str = "pacfl";
    const WANTS_SINGLE: Option<&'static str> = Some("it clusters clients by the directions of their rows");
    const SUMMARY: &str = "clusters before training, from the directions in which clients' rows lie; averaging inside";
    const PAPER: &str = "Vahidian et al. 2023";
    const PARTICULAR: bool = true;
    const HAS_CLUSTERS: bool = true;
    const WANTS: Ability = Ability::Rows;

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::single::<Subspace>(Phase::Start, 1, "clusters of clients whose rows lie in similar directions"),
            Disclosure::sums::<Train>(
                Phase::Train,
                self.training.schedule.rounds,
                "the mean of models in each cluster",
            ),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        setup.want_room_for_pairs(16)?;
        setup.want_clients("clusters", self.until.clusters.unwrap_or(1))?;
        let clients = setup.rows.len();
        if setup.model.columns() == 0 {
            let fault = format!("{}: principal angles are between rows of numbers", setup.place);
            return Err(Error::settings(fault).hint("use a model of numbers or images, such as mlp or cnn"));
        }
        Ok(Box::new(Pacfl {
            start: setup.common_start()?,
            columns: setup.model.columns(),
            trainer: self.training.clone().trainer(&setup).aggregating(&self.aggregating),
            settings: self,
            state: State {
                clusters: ClusterModels::new(Assignment::none(0, clients), Vec::new()),
                subspaces: vec![Vec::new(); clients],
                joined_at: 0.0,
            },
        }))
    }
}

struct Pacfl {
    settings: PacflSettings,
    trainer: Trainer,
    start: Params,
    columns: usize,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    clusters: ClusterModels,
    /// U_i; empty for a client that has not answered.
    subspaces: Vec<Vec<f64>>,
    joined_at: f64,
}

impl Angles {
    /// The distance of two bases of `columns` numbers a vector, in degrees. A vector of zeros is at a right angle to all.
    fn between(self, one: &[f64], other: &[f64], columns: usize) -> f64 {
        let (rows, others) = (one.len() / columns, other.len() / columns);
        let mut products = vec![0.0; rows * others];
        multiply(&mut products, 1.0, Matrix::new(one, rows, columns), Matrix::new(other, others, columns).transpose());
        // The cosines of the angles are the singular values of the products.
        let mut squares = vec![0.0; rows * rows];
        let matrix = Matrix::new(&products, rows, others);
        multiply(&mut squares, 1.0, matrix, matrix.transpose());
        let found = Spectrum::new(&squares, rows);
        let angles = found.iter().flat_map(|spectrum| spectrum.descending().map(|(square, _)| square));
        let mut angles: Vec<f64> = angles.map(|square| square.sqrt().clamp(0.0, 1.0).acos().to_degrees()).collect();
        angles.resize(rows, 90.0);
        match self {
            Angles::Sum => angles.iter().sum(),
            Angles::Smallest => angles.first().copied().unwrap_or(90.0),
        }
    }
}

impl Pacfl {
    /// Line 1, from those of the asked that have not answered yet; who answered now.
    fn learn_subspaces(&mut self, asked: &Recipients, room: &mut Room) -> Result<Vec<u32>> {
        let unknown = (0u32..).zip(&self.state.subspaces).filter(|(_, known)| known.is_empty());
        let unknown: Vec<u32> = unknown.map(|(client, _)| client).filter(|&client| asked.contains(client)).collect();
        if unknown.is_empty() {
            return Ok(Vec::new());
        }
        let mut ask = Ask::new(Phase::Start, Vec::new(), Gather::Each);
        let work = Subspace { directions: self.settings.directions, columns: self.columns as u32 };
        let order = ask.order(Recipients::list(unknown), work);
        let answers = room.ask_for_any(&ask)?;
        let answer = answers.of(order);
        let mut told = Vec::new();
        for (place, vector) in finite_vectors(&answer) {
            self.state.subspaces[answer.clients[place] as usize] = vector.to_vec();
            told.push(answer.clients[place]);
        }
        Ok(told)
    }

    fn between(&self, one: u32, other: u32) -> f64 {
        let of = |client: u32| &self.state.subspaces[client as usize];
        self.settings.angles.between(of(one), of(other), self.columns)
    }

    /// Lines 2 and 3.
    fn join(&mut self, who: &[u32]) {
        let pairs = (0..who.len()).flat_map(|i| (i + 1..who.len()).map(move |j| (i, j)));
        let distances = pairs.map(|(i, j)| self.between(who[i], who[j])).collect();
        let joined = self.settings.until.join(distances, who.len());
        self.state.joined_at = joined.distance;
        self.state.clusters = joined.clusters(who, self.state.subspaces.len(), &self.start);
    }

    /// The cluster whose clients are nearest on average.
    fn nearest(&self, client: u32) -> usize {
        let mean = |cluster: usize| {
            let members = self.state.clusters.clusters.members(cluster);
            let far = members.iter().map(|&other| self.between(client, other));
            far.sum::<f64>() / members.len().max(1) as f64
        };
        crate::models::first_smallest((0..self.state.clusters.models.len()).map(mean)).position
    }
}

impl Method for Pacfl {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        if self.state.clusters.models.is_empty() {
            let who = self.learn_subspaces(&Recipients::All, room)?;
            if who.is_empty() {
                return Err(nobody_answered());
            }
            self.join(&who);
        } else {
            let asked = self.trainer.participants(room.round(), room);
            for client in self.learn_subspaces(&asked, room)? {
                let cluster = self.nearest(client);
                self.state.clusters.clusters.put(client, cluster);
            }
        }
        let loss = self.state.clusters.train(&self.trainer, self.settings.weight, room, |_, _| {})?;
        Ok(self.state.clusters.progress(loss, self.trainer.is_last(room)))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let mut outcome = self.state.clusters.outcome();
        outcome.extra.insert("joined_at".into(), self.state.joined_at);
        outcome
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principal_angles_by_hand() {
        // The first two axes of space, and a plane turned by 60° around the first.
        let turn = 60f64.to_radians();
        let flat = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        let turned = [0.0, turn.cos(), turn.sin(), 1.0, 0.0, 0.0];
        assert!((Angles::Sum.between(&flat, &turned, 3) - 60.0).abs() < 1e-6);
        assert!(Angles::Smallest.between(&flat, &turned, 3).abs() < 1e-6);
        assert!((Angles::Sum.between(&flat, &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0], 3) - 180.0).abs() < 1e-6);
        assert!(Angles::Sum.between(&flat, &flat, 3).abs() < 1e-6);
    }
}
