//! Clients that misbehave, by seed and rate.
//!
//! Silence, lateness and garbage are drawn anew for every ask and client; who attacks is drawn once.
//! All draws come from the seed, never from the clock. Evaluation is spared: it measures, it does not take part.

use super::work::Reply;
use super::{Absence, Phase};
use crate::data::Client;
use crate::rng::{Key, Rng};
use crate::settings::{Declared, Setting, Settings, choices, settings};
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use std::collections::{BTreeMap, HashSet};

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
        /// what attackers do: turn their update round, or add large noise to it
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

/// What goes wrong, and with whom.
#[derive(Debug, Clone)]
pub struct Faults {
    rates: Rates,
    /// Who attacks.
    hostile: HashSet<String>,
    seed: u64,
}

/// What happens to a client in one ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It answers.
    Answers,
    /// Its answer is not there.
    Absent(Absence),
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::from_settings(&Settings::defaults(Rates::SETTINGS), 0)
    }

    /// From checked settings and the run's seed.
    pub fn from_settings(settings: &Settings, seed: u64) -> Self {
        Self { rates: Rates::of(settings), hostile: HashSet::new(), seed }
    }

    /// The same, with the attackers drawn from these clients: exactly their share of each true cluster, up to rounding.
    pub fn among(mut self, clients: &[Client]) -> Self {
        let mut families: BTreeMap<Option<usize>, Vec<(u64, &str)>> = BTreeMap::new();
        for client in clients {
            let lot = self.draws("attackers", 0, &client.id).random();
            families.entry(client.truth).or_default().push((lot, &client.id));
        }
        for lots in families.values_mut().filter(|_| self.rates.attack != Attack::None) {
            lots.sort_unstable();
            let count = (self.rates.attackers * lots.len() as f64).round() as usize;
            self.hostile.extend(lots.iter().take(count).map(|(_, id)| id.to_string()));
        }
        self
    }

    /// Whether answers may be altered, so that they have to be looked at one by one.
    pub fn alter_answers(&self) -> bool {
        self.rates.garbage > 0.0 || (self.rates.attack != Attack::None && self.rates.attackers > 0.0)
    }

    /// How many attackers there are, for the summary.
    pub(super) fn note(&self, clients: usize) -> Option<String> {
        let what = match self.rates.attack {
            Attack::None => return None,
            Attack::SignFlip => "turn their updates round",
            Attack::Noise => "add noise to their updates",
        };
        Some(format!("attackers: {} of {clients} clients {what}", self.hostile.len()))
    }

    fn draws(&self, purpose: &str, stamp: u64, client: &str) -> Rng {
        Key::new(self.seed).word("faults").word(purpose).number(stamp).word(client).rng()
    }

    /// What happens to this client in this ask.
    pub fn fate(&self, stamp: u64, client: &str) -> Fate {
        if self.rates.silent == 0.0 && self.rates.late == 0.0 {
            return Fate::Answers;
        }
        let mut rng = self.draws("absence", stamp, client);
        let (silent, late) = (rng.random::<f64>() < self.rates.silent, rng.random::<f64>() < self.rates.late);
        match (silent, late) {
            (true, _) => Fate::Absent(Absence::Silent),
            (false, true) => Fate::Absent(Absence::Late),
            (false, false) => Fate::Answers,
        }
    }

    /// Whether this client is an attacker.
    pub fn attacks(&self, client: &str) -> bool {
        self.hostile.contains(client)
    }

    /// What becomes of a reply on its way. `base` is the model an update is measured from; gradients have none.
    pub fn alter(&self, ask: (u64, Phase), client: &str, base: Option<&[f64]>, reply: &mut Reply) {
        let (stamp, phase) = ask;
        if phase == Phase::Evaluate {
            return;
        }
        let Some(vector) = &mut reply.vector else { return };
        if self.attacks(client) && (self.rates.attack_from == AttackFrom::Start || phase == Phase::Train) {
            let zero = vec![0.0; vector.len()];
            let base = base.unwrap_or(&zero);
            let mut rng = self.draws("attack", stamp, client);
            let mean_square =
                vector.iter().zip(base).map(|(v, b)| (v - b) * (v - b)).sum::<f64>() / vector.len() as f64;
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
        let mut rng = self.draws("garbage", stamp, client);
        if rng.random::<f64>() < self.rates.garbage {
            if rng.random::<bool>() {
                vector.pop();
            } else {
                let place = rng.random_range(0..vector.len());
                vector[place] = f64::NAN;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Features, Shard, Targets};

    fn faults(text: &str) -> Faults {
        let mut found = Vec::new();
        let settings = Settings::check("faults", Rates::SETTINGS, toml::from_str(text).unwrap(), &mut found);
        assert!(found.is_empty(), "{found:?}");
        Faults::from_settings(&settings, 1).among(&clients(&[("a", None)]))
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
        let mut found = Vec::new();
        let settings = "attack = \"noise\"\nattackers = 0.2\nattack_from = \"rounds\"";
        let settings = Settings::check("faults", Rates::SETTINGS, toml::from_str(settings).unwrap(), &mut found);
        let faults = Faults::from_settings(&settings, 1).among(&clients(&named));
        for cluster in 0..4 {
            let of = |i: &&usize| **i % 4 == cluster && faults.attacks(&names[**i]);
            assert_eq!((0..40).collect::<Vec<usize>>().iter().filter(of).count(), 2);
        }
        let hostile = (0..40).find(|&i| faults.attacks(&names[i])).unwrap();
        for (phase, attacked) in [(Phase::Start, false), (Phase::Train, true), (Phase::Evaluate, false)] {
            let mut altered = reply();
            faults.alter((0, phase), &names[hostile], None, &mut altered);
            assert_eq!(altered != reply(), attacked, "{phase:?}");
        }
    }

    fn reply() -> Reply {
        Reply { vector: Some(vec![3.0, 1.0]), ..Reply::default() }
    }

    #[test]
    fn a_flipped_update_points_away_from_its_base() {
        let faults = faults("attack = \"sign-flip\"\nattackers = 1.0");
        let mut altered = reply();
        faults.alter((0, Phase::Train), "a", None, &mut altered);
        assert_eq!(altered.vector.unwrap(), [-3.0, -1.0]);
        let mut altered = reply();
        faults.alter((0, Phase::Train), "a", Some(&[1.0, 1.0]), &mut altered);
        assert_eq!(altered.vector.unwrap(), [-1.0, 1.0]);
    }

    #[test]
    fn rates_are_kept_and_draws_repeat() {
        let faults = faults("silent = 0.2\nlate = 0.1\ngarbage = 0.3");
        let fates: Vec<Fate> = (0..2000).map(|stamp| faults.fate(stamp, "a")).collect();
        let share = |fate: Fate| fates.iter().filter(|&&f| f == fate).count() as f64 / 2000.0;
        assert!((share(Fate::Absent(Absence::Silent)) - 0.2).abs() < 0.03);
        assert!((share(Fate::Absent(Absence::Late)) - 0.08).abs() < 0.02);
        assert_eq!(faults.fate(7, "a"), fates[7]);
        let broken = |stamp| {
            let mut altered = reply();
            faults.alter((stamp, Phase::Train), "a", None, &mut altered);
            altered.vector.is_some_and(|v| v.len() != 2 || v.iter().any(|x| x.is_nan()))
        };
        let share = (0..2000).filter(|&stamp| broken(stamp)).count() as f64 / 2000.0;
        assert!((share - 0.3).abs() < 0.03);
    }
}
