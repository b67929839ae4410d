//! Clients that misbehave, by seed and rate, as transforms of their answers.
//!
//! Silence, lateness and garbage are drawn anew for every ask and client; attackers are drawn once.
//! All draws come from the seed, never from the clock.

use super::transforms::{Passage, Transform, Transforms};
use super::*;
use crate::data::Client;
use crate::rng::{Key, Rng};
use crate::settings::{Declared, Setting, Settings, choices, settings};
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use std::collections::HashSet;

choices! {
    /// What an attacker does to its answers.
    pub enum Attack { None = "none", SignFlip = "sign-flip", Noise = "noise" }
    /// What attackers attack: also what a method does to find a start, or only its rounds.
    pub enum AttackFrom { Start = "start", Rounds = "rounds" }
}

settings! {
    /// The keys of `[faults]`: what can go wrong, how often.
    pub struct Rates {
        /// chance that a client does not answer an ask
        silent: f64 [0.0..=1.0] = 0.0,
        /// chance that an answer misses the deadline
        late: f64 [0.0..=1.0] = 0.0,
        /// chance that an answer is of wrong length or not finite
        garbage: f64 [0.0..=1.0] = 0.0,
        /// what attackers do: flip the sign of their update, or add large noise to it
        attack: Attack = "none",
        /// share of the clients that attack, of each true cluster where those are known; always the same ones
        attackers: f64 [0.0..=1.0] = 0.0,
        /// whether they also attack what a method does to find a start, or only its rounds
        attack_from: AttackFrom = "start",
        /// size of the noise, as a multiple of the update's own size
        strength: f64 [above 0.0] = 10.0,
    }
}

/// The keys of `[faults]`.
pub const SETTINGS: &[Setting] = Rates::SETTINGS;

/// The faults that these settings ask for; attackers are exactly their share of each true cluster, up to rounding.
pub fn transforms(settings: &Settings, seed: u64, clients: &[Client]) -> Transforms {
    let rates = Rates::of(settings);
    let mut list: Vec<Box<dyn Transform>> = Vec::new();
    if rates.silent > 0.0 || rates.late > 0.0 {
        list.push(Box::new(Unreliable { silent: rates.silent, late: rates.late, seed }));
    }
    if rates.attack != Attack::None {
        let attackers = attackers(seed, rates.attackers, clients);
        list.push(Box::new(Attackers { attackers, rates: rates.clone(), seed }));
    }
    if rates.garbage > 0.0 {
        list.push(Box::new(Garbage { rate: rates.garbage, seed }));
    }
    Transforms(list)
}

fn attackers(seed: u64, share: f64, clients: &[Client]) -> HashSet<String> {
    let mut families: BTreeMap<Option<usize>, Vec<(u64, &str)>> = BTreeMap::new();
    for client in clients {
        let lot = draws(seed, "attackers", 0, &client.id).random();
        families.entry(client.truth).or_default().push((lot, &client.id));
    }
    let mut attackers = HashSet::new();
    for lots in families.values_mut() {
        lots.sort_unstable();
        let count = (share * lots.len() as f64).round() as usize;
        attackers.extend(lots.iter().take(count).map(|(_, id)| id.to_string()));
    }
    attackers
}

fn draws(seed: u64, purpose: &str, stamp: u64, client: &str) -> Rng {
    Key::new(seed).word("faults").word(purpose).number(stamp).word(client).rng()
}

/// Clients that do not answer, or too late.
struct Unreliable {
    silent: f64,
    late: f64,
    seed: u64,
}

impl Transform for Unreliable {
    fn withhold(&self, passage: &Passage) -> Option<Absence> {
        let mut rng = draws(self.seed, "absence", passage.stamp, passage.client);
        match (rng.random::<f64>() < self.silent, rng.random::<f64>() < self.late) {
            (true, _) => Some(Absence::Silent),
            (false, true) => Some(Absence::Late),
            (false, false) => None,
        }
    }

    fn alters(&self) -> bool {
        false
    }
}

/// Clients that always send wrong updates.
struct Attackers {
    attackers: HashSet<String>,
    rates: Rates,
    seed: u64,
}

impl Transform for Attackers {
    fn alter(&self, passage: &Passage, reply: &mut Reply) {
        let Some(vector) = &mut reply.vector else { return };
        let is_spared = self.rates.attack_from == AttackFrom::Rounds && passage.phase != Phase::Train;
        if is_spared || !self.attackers.contains(passage.client) {
            return;
        }
        let zero = vec![0.0; vector.len()];
        let base = passage.base.unwrap_or(&zero);
        let mut rng = draws(self.seed, "attack", passage.stamp, passage.client);
        let mean_square = vector.iter().zip(base).map(|(v, b)| (v - b) * (v - b)).sum::<f64>() / vector.len() as f64;
        for (value, &base) in vector.iter_mut().zip(base) {
            *value = match self.rates.attack {
                Attack::SignFlip => base - (*value - base),
                Attack::Noise => {
                    let noise: f64 = StandardNormal.sample(&mut rng);
                    *value + self.rates.strength * mean_square.sqrt() * noise
                }
                Attack::None => *value,
            };
        }
    }

    fn alters(&self) -> bool {
        self.rates.attackers > 0.0
    }

    fn note(&self, clients: usize) -> Option<String> {
        let what = match self.rates.attack {
            Attack::None => return None,
            Attack::SignFlip => "turn their updates round",
            Attack::Noise => "add noise to their updates",
        };
        Some(format!("attackers: {} of {clients} clients {what}", self.attackers.len()))
    }
}

/// Vectors of the wrong length, or with a number that is not finite.
struct Garbage {
    rate: f64,
    seed: u64,
}

impl Transform for Garbage {
    fn alter(&self, passage: &Passage, reply: &mut Reply) {
        let Some(vector) = &mut reply.vector else { return };
        let mut rng = draws(self.seed, "garbage", passage.stamp, passage.client);
        if rng.random::<f64>() >= self.rate {
            return;
        }
        if rng.random::<bool>() {
            vector.pop();
        } else {
            let place = rng.random_range(0..vector.len());
            vector[place] = f64::NAN;
        }
    }

    fn alters(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Features, Shard, Targets};

    fn faults(text: &str, named: &[(&str, Option<usize>)]) -> Transforms {
        let mut found = Vec::new();
        let settings = Settings::check("faults", Rates::SETTINGS, toml::from_str(text).unwrap(), &mut found);
        assert!(found.is_empty(), "{found:?}");
        transforms(&settings, 1, &clients(named))
    }

    /// What becomes of a reply.
    fn altered(faults: &Transforms, (stamp, phase): (u64, Phase), client: &str, base: Option<&[f64]>) -> Vec<f64> {
        let mut reply = Reply { vector: Some(vec![3.0, 1.0]), ..Reply::default() };
        faults.alter(&Passage { stamp, phase, client, base }, &mut reply);
        reply.vector.unwrap()
    }

    fn clients(named: &[(&str, Option<usize>)]) -> Vec<Client> {
        let rows = || Shard::new(Features::F64 { columns: 1, values: vec![1.0] }, Targets::Values(vec![1.0])).unwrap();
        let client = |&(id, truth): &(&str, Option<usize>)| Client {
            id: id.into(),
            train: rows(),
            test: rows(),
            group: None,
            truth,
        };
        named.iter().map(client).collect()
    }

    #[test]
    fn every_true_cluster_has_its_share_of_attackers() {
        let names: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        let named: Vec<(&str, Option<usize>)> =
            names.iter().map(String::as_str).zip((0..40).map(|i| Some(i % 4))).collect();
        let faults = faults("attack = \"noise\"\nattackers = 0.2\nattack_from = \"rounds\"", &named);
        let is_altered = |phase, i: usize| altered(&faults, (0, phase), &names[i], None) != [3.0, 1.0];
        for cluster in 0..4 {
            assert_eq!((cluster..40).step_by(4).filter(|&i| is_altered(Phase::Train, i)).count(), 2);
        }
        assert!((0..40).all(|i| !is_altered(Phase::Start, i) && !is_altered(Phase::Evaluate, i)));
    }

    #[test]
    fn a_flipped_update_points_away_from_its_base() {
        let faults = faults("attack = \"sign-flip\"\nattackers = 1.0", &[("a", None)]);
        assert_eq!(altered(&faults, (0, Phase::Train), "a", None), [-3.0, -1.0]);
        assert_eq!(altered(&faults, (0, Phase::Train), "a", Some(&[1.0, 1.0])), [-1.0, 1.0]);
    }

    #[test]
    fn rates_are_kept_and_draws_repeat() {
        let faults = faults("silent = 0.2\nlate = 0.1\ngarbage = 0.3", &[("a", None)]);
        let absence = |stamp| faults.withhold(&Passage { stamp, phase: Phase::Train, client: "a", base: None });
        let absences: Vec<Option<Absence>> = (0..2000).map(absence).collect();
        let share = |why| absences.iter().filter(|&&found| found == Some(why)).count() as f64 / 2000.0;
        assert!((share(Absence::Silent) - 0.2).abs() < 0.03);
        assert!((share(Absence::Late) - 0.08).abs() < 0.02);
        assert_eq!(absence(7), absences[7]);
        let broken = |stamp| {
            let vector = altered(&faults, (stamp, Phase::Train), "a", None);
            vector.len() != 2 || vector.iter().any(|value| value.is_nan())
        };
        let share = (0..2000).filter(|&stamp| broken(stamp)).count() as f64 / 2000.0;
        assert!((share - 0.3).abs() < 0.03);
    }
}
