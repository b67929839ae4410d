//! FedFomo (Zhang, Sapra, Fidler, Yeung, Alvarez: Personalized federated learning with first order model optimization, 2021). Every
//! client tries some of the other clients' models on rows it holds back, and moves towards those that are better than its own.
//!
//! ```text
//! θ_i ← random, common
//! for each round, each client i in M:
//!   N_i ← a few other clients, mostly those that have helped it, some at random
//!   ℓ_i(θ_j) ← loss of θ_j on its held-out rows, for j in N_i and its own model before, θ'_i
//!   w_ij ← ((ℓ_i(θ'_i) − ℓ_i(θ_j)) / ‖θ_j − θ'_i‖)₊, made to sum to at most 1
//!   θ_i ← θ'_i + Σ_j w_ij (θ_j − θ'_i)
//!   θ_i ← local steps on f_i over its other rows, kept and sent
//! ```
//!
//! Differences from the paper: clients send losses and the server mixes, which is the same arithmetic and keeps the other
//! clients' models in one place; the clients tried are the best so far by their mean weight, but for a share drawn at random,
//! where the paper lowers that share over the rounds. Unseen clients are served by the mean.

use super::parts::client_models::ClientModels;
use super::*;
use crate::federation::work::Losses;
use crate::num::distance;
use rand::RngExt;

settings! {
    /// The settings of the method `fedfomo`.
    pub struct FedFomoSettings {
        /// how many other clients' models a client tries in a round
        tried: usize [1..=1 << 20] = 5,
        /// share of them that is drawn at random
        explore: f64 [0.0..=1.0] = 0.3,
        /// one of so many parts of a client's rows is held out to try models on
        held_out: u32 [2..=1000] = 3,
        /// how clients train
        training: Training,
    }
}

impl MethodSettings for FedFomoSettings {
    const NAME: &str = "fedfomo";
    const SUMMARY: &str = "every client moves towards those models of others that are better on its own held-out rows";
    const PAPER: &str = "Zhang et al. 2021";
    const WANTS_SINGLE: Option<&'static str> = Some("it has clients try each other's models");

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::single::<Train>(Phase::Train, self.training.schedule.rounds, "models that others try"),
            Disclosure::single::<Losses>(
                Phase::Train,
                self.training.schedule.rounds,
                "which others' models help a client",
            ),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let clients = setup.rows.len();
        setup.want_room_for_models("tried", 2 * clients)?;
        setup.want_room_for_pairs(8)?;
        let state = State { clients: ClientModels::new(clients), helped: vec![0.0; clients * clients] };
        let start = setup.common_start()?;
        Ok(Box::new(FedFomo { start, trainer: self.training.clone().trainer(&setup), settings: self, state }))
    }
}

struct FedFomo {
    settings: FedFomoSettings,
    trainer: Trainer,
    start: Params,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// θ_i.
    clients: ClientModels,
    /// How much each client's model has helped each other so far: the sum of w_ij over the rounds, row-major.
    helped: Vec<f64>,
}

/// w_ij of the models tried, from their losses and their distances to the client's own.
fn weights(own: f64, tried: &[(f64, f64)]) -> Vec<f64> {
    let weight = |&(loss, far): &(f64, f64)| if far > 0.0 { ((own - loss) / far).max(0.0) } else { 0.0 };
    let weights: Vec<f64> =
        tried.iter().map(weight).map(|weight| if weight.is_finite() { weight } else { 0.0 }).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| if total > 0.0 { weight / total } else { 0.0 }).collect()
}

impl FedFomo {
    /// N_i.
    fn others(&self, client: u32, round: usize) -> Vec<u32> {
        let known = self.state.clients.known().map(|(other, _)| other).filter(|&other| other != client);
        let mut known: Vec<u32> = known.collect();
        let count = known.len();
        let key = self.trainer.key.clone().word("tried").number(round as u64).number(u64::from(client));
        let mut rng = key.rng();
        let random = (self.settings.explore * self.settings.tried as f64).round() as usize;
        let helped = |other: u32| self.state.helped[client as usize * self.state.clients.models.len() + other as usize];
        let mut tried = Vec::new();
        for place in 0..self.settings.tried.min(count) {
            let best = (0..known.len()).max_by(|&a, &b| helped(known[a]).total_cmp(&helped(known[b])));
            let all_alike = known.iter().all(|&other| helped(other) == helped(known[0]));
            let at_random = place < random || all_alike;
            let at = if at_random { rng.random_range(0..known.len()) } else { best.unwrap_or(0) };
            tried.push(known.swap_remove(at));
        }
        tried
    }

    /// The models at which clients begin their local steps: those of others mixed in by what they are worth.
    fn mix(&mut self, asked: &Recipients, room: &mut Room) -> Result<Vec<Option<Params>>> {
        let models = self.state.clients.models.clone();
        let places: Vec<Option<usize>> = {
            let mut next = 0..;
            models.iter().map(|model| model.as_ref().and_then(|_| next.next())).collect()
        };
        let mut ask = Ask::new(Phase::Train, models.iter().flatten().cloned().collect(), Gather::Each);
        let mut orders = Vec::new();
        let on = Portion::Fold { index: 0, of: self.settings.held_out };
        for (client, _) in self.state.clients.known().filter(|(client, _)| asked.contains(*client)) {
            let tried = self.others(client, room.round());
            let of: Vec<usize> = [client].iter().chain(&tried).filter_map(|&other| places[other as usize]).collect();
            orders.push((client, tried, ask.order(Recipients::list(vec![client]), Losses { of, on })));
        }
        let mut mixed = models.clone();
        if orders.is_empty() {
            return Ok(mixed);
        }
        let answers = room.ask_for_any(&ask)?;
        for (client, tried, order) in orders {
            let own = models[client as usize].as_ref();
            let (Some((_, losses)), Some(own)) = (answers.of(order).each().next(), own) else { continue };
            let of = |other: &u32| models[*other as usize].as_ref();
            let far: Vec<f64> = tried.iter().filter_map(of).map(|other| distance(other, own)).collect();
            let weights = weights(losses[0], &losses[1..].iter().copied().zip(far).collect::<Vec<_>>());
            let mut model = own.to_vec();
            for (other, &weight) in tried.iter().zip(&weights).filter(|(_, weight)| **weight > 0.0) {
                let Some(theirs) = of(other) else { continue };
                model
                    .iter_mut()
                    .zip(&**theirs)
                    .zip(&**own)
                    .for_each(|((x, theirs), own)| *x += weight * (theirs - own));
                self.state.helped[client as usize * models.len() + *other as usize] += weight;
            }
            mixed[client as usize] = Some(Arc::new(model));
        }
        Ok(mixed)
    }
}

impl Method for FedFomo {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let asked = self.trainer.participants(room.round(), room);
        let mixed = self.mix(&asked, room)?;
        let mut plan = self.trainer.plan(room.round());
        plan.sample.on = Portion::Others { index: 0, of: self.settings.held_out };
        let mut ask = Ask::new(Phase::Train, vec![self.start.clone()], Gather::Each);
        let mut orders = Vec::new();
        for (client, model) in (0u32..).zip(mixed).filter(|(client, _)| asked.contains(*client)) {
            let from = model.map_or(0, |model| {
                ask.models.push(model);
                ask.models.len() - 1
            });
            let train = Train { from: Start::Model(from), plan: plan.clone(), keep: Keep::Also };
            orders.push(ask.order(Recipients::list(vec![client]), train));
        }
        let answers = room.ask(&ask)?;
        let loss = room.check_loss(&answers.losses(&orders))?;
        self.state.clients.take(&answers);
        Ok(Progress::of(loss, self.trainer.is_last(room)))
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let clients = &self.state.clients;
        Outcome {
            models: clients.mean().into_iter().collect(),
            serving: Serving::Own { stamps: clients.stamps.clone(), clusters: None },
            ..Outcome::default()
        }
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_and_nearer_models_weigh_more() {
        // Better by 2 at distance 4, better by 1 at distance 1, worse, and the same model.
        assert_eq!(weights(3.0, &[(1.0, 4.0), (2.0, 1.0), (5.0, 1.0), (3.0, 0.0)]), [1.0 / 3.0, 2.0 / 3.0, 0.0, 0.0]);
        assert_eq!(weights(1.0, &[(2.0, 1.0), (f64::NAN, 1.0)]), [0.0, 0.0]);
    }
}
