//! Clients that misbehave, by seed and rate.
//!
//! Silence, lateness and garbage are drawn anew for every ask and client; who attacks is drawn once.
//! All draws come from the seed, never from the clock. Evaluation is spared: it measures, it does not take part.

use super::wire::Reply;
use super::{Absence, Work};
use crate::rng::{Key, Rng};
use crate::settings::{Default, Kind, Setting, Settings};
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};

/// What can go wrong, how often.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    silent: f64,
    late: f64,
    garbage: f64,
    attack: Attack,
    attackers: f64,
    strength: f64,
    seed: u64,
}

/// What an attacker does to its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attack {
    None,
    SignFlip,
    Noise,
}

/// The keys of `[faults]`.
pub const SETTINGS: &[Setting] = &[
    Setting::new("silent", Kind::Number(0.0, 1.0), Default::Is("0.0"), "chance that a client does not answer an ask"),
    Setting::new("late", Kind::Number(0.0, 1.0), Default::Is("0.0"), "chance that an answer misses the deadline"),
    Setting::new(
        "garbage",
        Kind::Number(0.0, 1.0),
        Default::Is("0.0"),
        "chance that an answer is of wrong length or not finite",
    ),
    Setting::new(
        "attack",
        Kind::OneOf(&["none", "sign-flip", "noise"]),
        Default::Is("\"none\""),
        "what attackers do: turn their update round, or add large noise to it",
    ),
    Setting::new(
        "attackers",
        Kind::Number(0.0, 1.0),
        Default::Is("0.0"),
        "share of clients that attack, always the same ones",
    ),
    Setting::new(
        "strength",
        Kind::Positive,
        Default::Is("10.0"),
        "size of the noise, as a multiple of the update's own size",
    ),
];

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
        Self { silent: 0.0, late: 0.0, garbage: 0.0, attack: Attack::None, attackers: 0.0, strength: 0.0, seed: 0 }
    }

    /// From checked settings and the run's seed.
    pub fn from_settings(settings: &Settings, seed: u64) -> Self {
        let attack = match settings.text("attack") {
            "sign-flip" => Attack::SignFlip,
            "noise" => Attack::Noise,
            _ => Attack::None,
        };
        Self {
            silent: settings.number("silent"),
            late: settings.number("late"),
            garbage: settings.number("garbage"),
            attack,
            attackers: settings.number("attackers"),
            strength: settings.number("strength"),
            seed,
        }
    }

    /// Whether answers may be altered, so that they have to be looked at one by one.
    pub fn alter_answers(&self) -> bool {
        self.garbage > 0.0 || (self.attack != Attack::None && self.attackers > 0.0)
    }

    fn draws(&self, purpose: &str, stamp: u64, client: &str) -> Rng {
        Key::new(self.seed).word("faults").word(purpose).number(stamp).word(client).rng()
    }

    /// What happens to this client in this ask.
    pub fn fate(&self, stamp: u64, client: &str) -> Fate {
        if self.silent == 0.0 && self.late == 0.0 {
            return Fate::Answers;
        }
        let mut rng = self.draws("absence", stamp, client);
        let (silent, late) = (rng.random::<f64>() < self.silent, rng.random::<f64>() < self.late);
        match (silent, late) {
            (true, _) => Fate::Absent(Absence::Silent),
            (false, true) => Fate::Absent(Absence::Late),
            (false, false) => Fate::Answers,
        }
    }

    /// Whether this client is an attacker.
    pub fn attacks(&self, client: &str) -> bool {
        self.attack != Attack::None && self.draws("attackers", 0, client).random::<f64>() < self.attackers
    }

    /// What becomes of a reply on its way. `base` is the model an update is measured from; gradients have none.
    pub fn alter(&self, stamp: u64, client: &str, work: &Work, base: Option<&[f64]>, reply: &mut Reply) {
        if !work.sends_vector() {
            return;
        }
        let Some(vector) = &mut reply.vector else { return };
        if self.attacks(client) {
            let zero = vec![0.0; vector.len()];
            let base = base.unwrap_or(&zero);
            let mut rng = self.draws("attack", stamp, client);
            let mean_square =
                vector.iter().zip(base).map(|(v, b)| (v - b) * (v - b)).sum::<f64>() / vector.len() as f64;
            for (value, &base) in vector.iter_mut().zip(base) {
                *value = match self.attack {
                    Attack::SignFlip => base - (*value - base),
                    Attack::Noise => {
                        let noise: f64 = StandardNormal.sample(&mut rng);
                        *value + self.strength * mean_square.sqrt() * noise
                    }
                    Attack::None => *value,
                };
            }
        }
        let mut rng = self.draws("garbage", stamp, client);
        if rng.random::<f64>() < self.garbage {
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
    use crate::federation::{Sample, Start};

    fn faults(text: &str) -> Faults {
        let mut found = Vec::new();
        let settings = Settings::check("faults", SETTINGS, toml::from_str(text).unwrap(), &mut found);
        assert!(found.is_empty(), "{found:?}");
        Faults::from_settings(&settings, 1)
    }

    fn reply() -> Reply {
        Reply { vector: Some(vec![3.0, 1.0]), ..Reply::default() }
    }

    #[test]
    fn a_flipped_update_points_away_from_its_base() {
        let faults = faults("attack = \"sign-flip\"\nattackers = 1.0");
        let gradient = Work::Gradient { of: 0, sample: Sample::FULL };
        let mut altered = reply();
        faults.alter(0, "a", &gradient, None, &mut altered);
        assert_eq!(altered.vector.unwrap(), [-3.0, -1.0]);
        let plan = crate::federation::Plan {
            sample: Sample::FULL,
            amount: crate::federation::Amount::Steps(1),
            step: 0.1,
            optimiser: crate::federation::Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 },
            course: crate::federation::Course::PLAIN,
        };
        let train = Work::Train { from: Start::Model(0), plan, keep: false };
        let mut altered = reply();
        faults.alter(0, "a", &train, Some(&[1.0, 1.0]), &mut altered);
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
        let gradient = Work::Gradient { of: 0, sample: Sample::FULL };
        let broken = |stamp| {
            let mut altered = reply();
            faults.alter(stamp, "a", &gradient, None, &mut altered);
            altered.vector.is_some_and(|v| v.len() != 2 || v.iter().any(|x| x.is_nan()))
        };
        let share = (0..2000).filter(|&stamp| broken(stamp)).count() as f64 / 2000.0;
        assert!((share - 0.3).abs() < 0.03);
    }
}
