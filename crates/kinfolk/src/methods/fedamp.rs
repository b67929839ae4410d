//! FedAMP, attentive message passing (Huang, Chu, Zhou, Wang, Liu, Pei, Zhang: Personalized cross-silo federated learning on non-IID
//! data, 2021). The server mixes for every client a model of all clients', the more of each the more alike they are; the client's
//! own model is pulled to the mixture.
//!
//! ```text
//! w_i ← random, common
//! for each round, each client i in M:
//!   ξ_ij ← α A'(‖w_i − w_j‖²) for j ≠ i, with A'(x) = e^(−x/σ)/σ;  ξ_ii ← 1 − Σ_j≠i ξ_ij       attention = "distance"
//!   ξ_ij ← (1 − ξ_ii) e^(s cos(w_i, w_j)) / Σ_h≠i e^(s cos(w_i, w_h)) for j ≠ i               attention = "cosine"
//!   u_i ← Σ_j ξ_ij w_j
//!   w_i ← local steps on f_i(w) + λ/2 ‖w − u_i‖² from w_i, kept and sent
//! ```
//!
//! With "cosine" it is the paper's HeurFedAMP. Differences from the paper: σ is by default the median of the squared distances, and α
//! the largest with which every ξ_ii is at least `own`, both anew in every round; the paper's α and σ are tuned by hand.
//! Unseen clients are served by the mean.

use super::parts::client_models::ClientModels;
use super::*;

choices! {
    /// What makes clients alike.
    pub enum Attention { Distance = "distance", Cosine = "cosine" }
}

settings! {
    /// The settings of the method `fedamp`.
    pub struct FedAmpSettings {
        /// what makes two clients alike: a short distance between their models, or a small angle (HeurFedAMP)
        attention: Attention = "distance",
        /// how strongly the mixture pulls at a client's model, λ
        pull: f64 [0.0..=1e18] = 0.1,
        /// least share of a client's own model in its mixture (with "cosine": its share), ξ_ii
        own: f64 [0.0..=1.0] = 0.5,
        /// how fast attention falls with the distance, σ (default: the median squared distance)
        #[only_with(attention = "distance")]
        width: Option<f64> [above 0.0],
        /// step of the server, α (default: as large as own allows)
        #[only_with(attention = "distance")]
        server_step: Option<f64> [above 0.0],
        /// how fast attention falls with the angle, s
        #[only_with(attention = "cosine")]
        sharpness: f64 [0.0..=1e6] = 25.0,
        /// how clients train
        training: Training,
    }
}

impl MethodSettings for FedAmpSettings {
    const NAME: &str = "fedamp";
    const SUMMARY: &str = "a model of every client's own, pulled to a mixture of those of clients alike";
    const PAPER: &str = "Huang et al. 2021";
    const WANTS_SINGLE: Option<&'static str> = Some("it mixes the clients' own models for each of them");

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![Disclosure::single::<Train>(
            Phase::Train,
            self.training.schedule.rounds,
            "mixtures of models that are alike",
        )]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let clients = setup.rows.len();
        setup.want_room_for_models("own", 2 * clients)?;
        setup.want_room_for_pairs(16)?;
        Ok(Box::new(FedAmp {
            start: setup.common_start()?,
            trainer: self.training.clone().trainer(&setup),
            settings: self,
            clients: ClientModels::new(clients),
        }))
    }
}

struct FedAmp {
    settings: FedAmpSettings,
    trainer: Trainer,
    start: Params,
    /// w_i.
    clients: ClientModels,
}

impl FedAmpSettings {
    /// ξ, row-major, from the squared distances or cosines between clients that are `known`.
    fn attention(&self, between: &[f64], known: &[bool]) -> Vec<f64> {
        let count = known.len();
        let others = |i: usize| (0..count).filter(move |&j| j != i && known[i] && known[j]);
        let mut shares = vec![0.0; count * count];
        match self.attention {
            Attention::Distance => {
                let pairs = (0..count).flat_map(|i| others(i).map(move |j| i * count + j));
                let usual = || median(pairs.map(|place| between[place])).unwrap_or(1.0).max(f64::MIN_POSITIVE);
                let width = self.width.unwrap_or_else(usual);
                for i in 0..count {
                    others(i).for_each(|j| shares[i * count + j] = (-between[i * count + j] / width).exp() / width);
                }
                let sums = shares.chunks_exact(count).map(|shares| shares.iter().sum::<f64>());
                let largest = sums.fold(0.0, f64::max);
                let bearable = if largest > 0.0 { (1.0 - self.own) / largest } else { 0.0 };
                let step = self.server_step.unwrap_or(bearable);
                shares.iter_mut().for_each(|share| *share *= step);
            }
            Attention::Cosine => {
                for i in 0..count {
                    let weight = |j: usize| (self.sharpness * (between[i * count + j] - 1.0)).exp();
                    let total: f64 = others(i).map(weight).sum();
                    others(i).for_each(|j| shares[i * count + j] = (1.0 - self.own) * weight(j) / total);
                }
            }
        }
        for i in 0..count {
            let given: f64 = shares[i * count..][..count].iter().sum();
            shares[i * count + i] = 1.0 - given;
        }
        shares
    }
}

impl FedAmp {
    /// u_i of every client that has sent a model.
    fn mixtures(&self) -> Vec<Option<Params>> {
        let models = &self.clients.models;
        let (count, known) = (models.len(), models.iter().map(Option::is_some).collect::<Vec<_>>());
        let mut between = self.clients.squared_distances();
        if self.settings.attention == Attention::Cosine {
            let squares: Vec<f64> = models.iter().map(|model| model.as_ref().map_or(0.0, |w| dot(w, w))).collect();
            for (place, between) in between.iter_mut().enumerate() {
                let (one, other) = (squares[place / count], squares[place % count]);
                let length = (one * other).sqrt();
                *between = if length > 0.0 { 0.5 * (one + other - *between) / length } else { 0.0 };
            }
        }
        let shares = self.settings.attention(&between, &known);
        let mix = |i: usize| {
            let own = models[i].as_ref()?;
            let mut mixture = vec![0.0; own.len()];
            for (j, model) in self.clients.known().filter(|(j, _)| shares[i * count + *j as usize] != 0.0) {
                add_scaled(&mut mixture, shares[i * count + j as usize], model);
            }
            Some(Arc::new(mixture))
        };
        (0..count).map(mix).collect()
    }
}

impl Method for FedAmp {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let asked = self.trainer.participants(room.round(), room);
        let plan = self.trainer.plan(room.round());
        let mut ask = Ask::new(Phase::Train, vec![self.start.clone()], Gather::Each);
        let mut orders = Vec::new();
        for (client, mixture) in (0u32..).zip(self.mixtures()).filter(|(client, _)| asked.contains(*client)) {
            let (mut plan, stamp) = (plan.clone(), self.clients.stamps[client as usize]);
            let centre = mixture.map_or(0, |mixture| {
                ask.models.push(mixture);
                ask.models.len() - 1
            });
            plan.terms.pulls.push(Pull { centre, strength: self.settings.pull });
            let from = if stamp > 0 { Start::Own { stamp } } else { Start::Model(centre) };
            orders.push(ask.order(Recipients::list(vec![client]), Train { from, plan, keep: Keep::Also }));
        }
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&answers.losses(&orders))?;
        self.clients.take(&answers);
        Ok(Progress::of(loss, self.trainer.is_last(room)))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            models: self.clients.mean().into_iter().collect(),
            serving: Serving::Own { stamps: self.clients.stamps.clone(), clusters: None },
            ..Outcome::default()
        }
    }

    keep_state!(clients);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_by_hand() {
        let distance = FedAmpSettings { width: Some(2.0), server_step: Some(0.5), ..FedAmpSettings::default() };
        // Squared distances 2 and 4 from the first of three clients; a fourth has sent nothing.
        let between = [
            0.0, 2.0, 4.0, 0.0, //
            2.0, 0.0, 2.0, 0.0, //
            4.0, 2.0, 0.0, 0.0, //
            0.0, 0.0, 0.0, 0.0,
        ];
        let known = [true, true, true, false];
        let found = distance.attention(&between, &known);
        let (near, far) = (0.25 * (-1f64).exp(), 0.25 * (-2f64).exp());
        assert_eq!(found[..4], [1.0 - (near + far), near, far, 0.0]);
        assert_eq!(found[12..], [0.0, 0.0, 0.0, 1.0]);
        // By default the client with the most attention for others keeps half of its own.
        let found = FedAmpSettings::default().attention(&between, &known);
        let own: Vec<f64> = (0..3).map(|i| found[i * 4 + i]).collect();
        assert!((own[1] - 0.5).abs() < 1e-15 && own[0] > 0.5 && own[2] > 0.5, "{own:?}");
        let cosine =
            FedAmpSettings { attention: Attention::Cosine, sharpness: 2.0, own: 0.2, ..FedAmpSettings::default() };
        let found = cosine.attention(&[1.0, 0.5, 0.0, 0.5, 1.0, 1.0, 0.0, 1.0, 1.0], &[true; 3]);
        let (near, far) = (1f64.exp(), 1.0);
        let wanted = [0.2, 0.8 * near / (near + far), 0.8 * far / (near + far)];
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-15), "{found:?}");
    }
}
