//! FedDrift (Jothimurugesan, Hsieh, Wang, Joshi, Gibbons: Federated learning under distributed concept drift, 2023). Clients whose rows
//! change over time: one that no model fits any more gets a model of its own, and models that turn out to be alike become one.
//!
//! ```text
//! 1  one model θ_1 for everybody
//! 2  for each time τ:
//! 3    L_ij ← mean loss of θ_i on the rows of time τ − 1 of the clients that θ_j had then
//! 4    while two models have max(L_ij − L_ii, L_ji − L_jj) ≤ δ: the two with the least become one, the mean of both
//! 5    each client i goes to the model with the least loss on its rows of time τ; if that is more than δ above what its model had on
//!      its rows of time τ − 1, it gets a new model, from random
//! 6    for each round of this time: each client trains each model on its rows of all times at which it had that model, and sends it;
//!      a model ← mean of what was sent for it
//! 7  in the end: lines 3 and 4 for the last time
//! ```
//!
//! Times are equal parts of a client's training rows in their order; the data source has as many (`data.times` for images), and a client's
//! test rows are of the last. Differences from the paper: the distance of two models that became one is computed anew by the larger of
//! the two before (as the paper's complete linkage does), and all times of a client count alike.

use super::*;
use crate::federation::work::Losses;
use crate::models::first_smallest;

settings! {
    /// The settings of the method `feddrift`.
    pub struct FedDriftSettings {
        /// parts of a client's rows in the order of time, as the data has them
        times: u32 [1..=1000],
        /// a loss that rises by more than this is a drift, δ
        rise: f64 [0.0..=1e18] = 0.5,
        /// most models at a time
        most: usize [1..=1000] = 20,
        /// how clients train; the rounds are divided among the times
        training: Training,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }

    fn check(&self, check: &mut Check) {
        if self.training.schedule.rounds < self.times as usize {
            check.fault("rounds", "fewer rounds than times");
        }
    }
}

impl MethodSettings for FedDriftSettings {
    const NAME: &str = "feddrift";
    const SUMMARY: &str = "clients over time: new models where the loss rises, models alike become one";
    const PAPER: &str = "Jothimurugesan et al. 2023";
    const PARTICULAR: bool = true;
    const HAS_CLUSTERS: bool = true;
    const WANTS: Ability = Ability::Rows;
    const WANTS_SINGLE: Option<&'static str> = Some("it decides by every client's own losses which model it has");

    fn needs(&self) -> Needs {
        self.training.needs()
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        vec![
            Disclosure::single::<Losses>(
                Phase::Train,
                2 * self.times as usize + 1,
                "which models suit it, and whether its rows have drifted",
            ),
            Disclosure::sums::<Train>(
                Phase::Train,
                self.training.schedule.rounds.saturating_mul(self.times as usize),
                "the mean of each model",
            ),
        ]
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let (clients, times) = (setup.rows.len(), self.times as usize);
        // A client without rows at some time does not answer then.
        if let Some(&rows) = setup.rows.iter().max().filter(|&&rows| rows < times) {
            let fault = format!("{}.times: got {times}, no client has more than {rows} rows", setup.place);
            return Err(Error::settings(fault));
        }
        setup.want_room_for_models("most", self.most)?;
        let state = State { models: vec![setup.common_start()?], of: vec![Vec::new(); clients], drifts: 0, merges: 0 };
        let start = setup.random_models(1)?.remove(0);
        let trainer = self.training.clone().trainer(&setup).aggregating(&self.aggregating);
        Ok(Box::new(FedDrift { start, trainer, settings: self, state }))
    }
}

struct FedDrift {
    settings: FedDriftSettings,
    trainer: Trainer,
    /// What new models begin at.
    start: Params,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    models: Vec<Params>,
    /// The model of every client at every time so far.
    of: Vec<Vec<usize>>,
    drifts: usize,
    merges: usize,
}

/// Line 4: which models become one, each pair as the one that stays and the one that goes, by their numbers.
fn merges(losses: &[Vec<f64>], most: f64) -> Vec<(usize, usize)> {
    let mut left: Vec<usize> = (0..losses.len()).collect();
    let apart = |i: usize, j: usize| (losses[i][j] - losses[j][j]).max(losses[j][i] - losses[i][i]);
    let mut distance: Vec<Vec<f64>> = left.iter().map(|&i| left.iter().map(|&j| apart(i, j)).collect()).collect();
    let mut merges = Vec::new();
    loop {
        let pairs = left.iter().flat_map(|&i| left.iter().filter(move |&&j| j > i).map(move |&j| (i, j)));
        let nearest = pairs.map(|(i, j)| (distance[i][j], i, j)).filter(|pair| pair.0 <= most);
        let Some((_, i, j)) = nearest.reduce(|best, other| if other.0 < best.0 { other } else { best }) else {
            return merges;
        };
        merges.push((i, j));
        left.retain(|&other| other != j);
        for &k in &left {
            let farther = distance[i][k].max(distance[j][k]);
            (distance[i][k], distance[k][i]) = (farther, farther);
        }
    }
}

impl FedDrift {
    fn part(&self, time: usize) -> Portion {
        Portion::Part { index: time as u32, of: self.settings.times }
    }

    /// The losses of all models on clients' rows of a time, for those that answer.
    fn losses(&self, time: usize, room: &mut Room) -> Result<Vec<Option<Vec<f64>>>> {
        let mut ask = Ask::new(Phase::Train, self.state.models.clone(), Gather::Each);
        let of = (0..self.state.models.len()).collect();
        let order = ask.order(Recipients::All, Losses { of, on: self.part(time) });
        let answers = room.ask_for_any(&ask)?;
        let mut losses = vec![None; self.state.of.len()];
        answers.of(order).each().for_each(|(client, told)| losses[client as usize] = Some(told));
        Ok(losses)
    }

    /// Lines 3 and 4 from clients' losses at a time; returns what each client's model had there.
    fn merge(&mut self, time: usize, told: &[Option<Vec<f64>>]) -> Vec<Option<f64>> {
        let count = self.state.models.len();
        let mut own = vec![None; told.len()];
        let (mut sums, mut members) = (vec![vec![0.0; count]; count], vec![0usize; count]);
        for (client, losses) in told.iter().enumerate() {
            let (Some(losses), Some(&model)) = (losses, self.state.of[client].get(time)) else { continue };
            own[client] = Some(losses[model]);
            members[model] += 1;
            losses.iter().enumerate().for_each(|(i, loss)| sums[i][model] += loss);
        }
        // A model that nobody has is alike to none.
        let mean = |i: usize, j: usize| if members[j] > 0 { sums[i][j] / members[j] as f64 } else { f64::NAN };
        let known: Vec<usize> = (0..count).filter(|&model| members[model] > 0).collect();
        let losses: Vec<Vec<f64>> = known.iter().map(|&i| known.iter().map(|&j| mean(i, j)).collect()).collect();
        let mut weights: Vec<f64> = members.iter().map(|&count| count as f64).collect();
        let mut becomes: Vec<usize> = (0..count).collect();
        for (stays, goes) in merges(&losses, self.settings.rise) {
            let (stays, goes) = (known[stays], known[goes]);
            let share = weights[goes] / (weights[stays] + weights[goes]);
            weights[stays] += weights[goes];
            let theirs = self.state.models[goes].clone();
            let mixed = self.state.models[stays].iter().zip(&*theirs).map(|(own, other)| own + share * (other - own));
            self.state.models[stays] = Arc::new(mixed.collect());
            becomes.iter_mut().filter(|model| **model == goes).for_each(|model| *model = stays);
            self.state.merges += 1;
        }
        self.rename(&becomes);
        own
    }

    /// Puts clients of all times under the names that models have now, and drops models that nobody has or had.
    fn rename(&mut self, becomes: &[usize]) {
        self.state.of.iter_mut().flatten().for_each(|model| *model = becomes[*model]);
        let used = |model: &usize| self.state.of.iter().flatten().any(|other| other == model);
        let kept: Vec<usize> = (0..self.state.models.len()).filter(used).collect();
        if kept.is_empty() {
            return;
        }
        let place = |model: usize| kept.iter().position(|&other| other == model).unwrap_or(0);
        self.state.of.iter_mut().flatten().for_each(|model| *model = place(*model));
        self.state.models = kept.iter().map(|&model| self.state.models[model].clone()).collect();
    }

    /// Line 5.
    fn assign(&mut self, time: usize, before: &[Option<f64>], room: &mut Room) -> Result<usize> {
        let told = self.losses(time, room)?;
        let mut switched = 0;
        for (client, losses) in told.iter().enumerate() {
            let last = self.state.of[client].last().copied();
            let model = match losses {
                // One that does not answer keeps its model.
                None => last.unwrap_or(0),
                Some(losses) => {
                    let best = first_smallest(losses.iter().copied());
                    let drifted = before[client].is_some_and(|before| best.loss > before + self.settings.rise);
                    if drifted && self.state.models.len() < self.settings.most {
                        self.state.drifts += 1;
                        self.state.models.push(self.start.clone());
                        self.state.models.len() - 1
                    } else {
                        best.position
                    }
                }
            };
            switched += usize::from(last.is_some_and(|last| last != model));
            self.state.of[client].push(model);
        }
        Ok(switched)
    }

    /// Line 6.
    fn train(&mut self, room: &mut Room) -> Result<Option<f64>> {
        let gather = self.trainer.gather(By::All, Weight::Uniform);
        let mut ask = Ask::new(Phase::Train, self.state.models.clone(), gather);
        let asked = self.trainer.participants(room.round(), room);
        let times = self.state.of.first().map_or(0, Vec::len);
        let mut orders = Vec::new();
        for model in 0..self.state.models.len() {
            for time in 0..times {
                let has = |client: &u32| self.state.of[*client as usize].get(time) == Some(&model);
                let clients = (0..self.state.of.len() as u32).filter(|client| asked.contains(*client)).filter(has);
                let clients: Vec<u32> = clients.collect();
                if clients.is_empty() {
                    continue;
                }
                let mut plan = self.trainer.with_draws(&format!("time {time}")).plan(room.round());
                plan.sample.on = self.part(time);
                orders.push((model, ask.order(Recipients::list(clients), Train::from_model(model, plan))));
            }
        }
        let answers = room.ask(&ask)?;
        let told = answers.losses(orders.iter().map(|(_, order)| order));
        let loss = room.check_loss(&told)?;
        let sums = self.trainer.sums(Weight::Uniform, &self.state.models, &answers, &orders);
        for (model, sum) in self.state.models.iter_mut().zip(&sums) {
            *model = mean_model(model, sum, 0);
        }
        Ok(loss)
    }

    fn clusters(&self) -> Assignment {
        let mut clusters = Assignment::none(self.state.models.len(), self.state.of.len());
        for (client, models) in (0u32..).zip(&self.state.of) {
            models.last().into_iter().for_each(|&model| {
                clusters.put(client, model);
            });
        }
        clusters
    }
}

impl Method for FedDrift {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let (rounds, times) = (self.trainer.schedule.rounds, self.settings.times as usize);
        let (time, finished) = (room.round() * times / rounds, self.trainer.is_last(room));
        let mut switched = 0;
        if self.state.of.iter().any(|models| models.len() <= time) {
            let before = match time.checked_sub(1) {
                Some(last) => {
                    let told = self.losses(last, room)?;
                    self.merge(last, &told)
                }
                None => vec![None; self.state.of.len()],
            };
            switched = self.assign(time, &before, room)?;
        }
        let loss = self.train(room)?;
        if finished {
            let told = self.losses(time, room)?;
            self.merge(time, &told);
        }
        Ok(Progress { loss, switched: Some(switched), sizes: self.clusters().sizes(), finished })
    }

    fn planned_rounds(&self) -> usize {
        self.trainer.schedule.rounds
    }

    fn outcome(&self) -> Outcome {
        let State { models, drifts, merges, .. } = &self.state;
        let mut outcome = Outcome::of_clusters(models.clone(), self.clusters());
        outcome.extra.extend([("drifts".into(), *drifts as f64), ("merges".into(), *merges as f64)]);
        outcome
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_alike_become_one_by_hand() {
        // Losses of model i on the rows of j: the first two are alike (0.1 and 0.2 more than their own), the third is not.
        let losses = [vec![1.0, 1.2, 3.0], vec![1.1, 1.0, 4.0], vec![2.0, 2.5, 0.5]];
        assert_eq!(merges(&losses, 0.1), []);
        assert_eq!(merges(&losses, 0.3), [(0, 1)]);
        // What became one is as far from the third as the farther of the two: 3.5.
        assert_eq!(merges(&losses, 3.0), [(0, 1)]);
        assert_eq!(merges(&losses, 3.5), [(0, 1), (0, 2)]);
    }
}
