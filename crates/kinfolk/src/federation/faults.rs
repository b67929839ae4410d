//! Clients that misbehave, by seed and rate, as transforms of their answers.
//!
//! Silence, lateness and garbage are drawn anew for every ask and client; attackers are drawn once.
//! All draws come from the seed, never from the clock.

mod backdoor;
mod conspiracy;

use super::transforms::{Occasion, Passage, Told, Transform, Transforms};
use super::*;
use crate::data::{Client, Population, Shard};
use crate::num::add_scaled;
use crate::rng::{Key, Rng};
use crate::settings::{Declared, Setting, Settings, choices, settings};
use backdoor::Backdoor;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use std::collections::HashSet;

choices! {
    /// What an attacker does to its answers.
    pub enum Attack {
        None = "none",
        SignFlip = "sign-flip",
        Noise = "noise",
        LabelFlip = "label-flip",
        Backdoor = "backdoor",
        Alie = "alie",
        InnerProduct = "inner-product",
        MinMax = "min-max",
        MinSum = "min-sum",
        Mimic = "mimic",
        WrongSlot = "wrong-slot",
        Sybils = "sybils",
    }
    /// What attackers attack: also what a method does to find a start, only its rounds, or only the start.
    pub enum AttackFrom { Start = "start", Rounds = "rounds", StartOnly = "start-only" }
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
        /// what attackers do, each by itself or in a conspiracy that knows the others' answers
        attack: Attack = "none",
        /// share of the clients that attack, of each true cluster where those are known; always the same ones
        attackers: f64 [0.0..=1.0] = 0.0,
        /// all of them in this true cluster, as a share of it
        attackers_in: Option<usize> [0..=1 << 31],
        /// whether they also attack what a method does to find a start, only its rounds, or only the start
        attack_from: AttackFrom = "start",
        /// how strong: noise and Sybils in sizes of an update (default 10, 1), alie in deviations (1.5), inner-product in means (2),
        /// backdoor in shares of what would put the attackers' model in the place of a mean (1)
        #[only_with(attack = "noise" | "sybils" | "alie" | "inner-product" | "backdoor")]
        strength: Option<f64> [above 0.0],
        /// the class that images with the pattern are to be taken for
        #[only_with(attack = "backdoor")]
        target_class: usize [0..=1 << 31] = 0,
        /// pixels from side to side of the pattern, a bright square in the first corner (default: a quarter of the image's)
        #[only_with(attack = "backdoor")]
        pattern: Option<usize> [1..=1 << 16],
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
        let attackers = rates.attackers(seed, clients);
        list.push(Box::new(Attackers { attackers, rates: rates.clone(), seed }));
    }
    if rates.garbage > 0.0 {
        list.push(Box::new(Garbage { rate: rates.garbage, seed }));
    }
    Transforms(list)
}

/// Which of these clients attack.
pub fn attackers(settings: &Settings, seed: u64, clients: &[Client]) -> Vec<bool> {
    let rates = Rates::of(settings);
    let attackers = if rates.attack == Attack::None { HashSet::new() } else { rates.attackers(seed, clients) };
    clients.iter().map(|client| attackers.contains(&client.id)).collect()
}

/// Spoils the training rows of attackers that attack by their data. Refuses attackers in a true cluster that is not there. Returns the
/// clients on whose test rows the success of the attack is measured, where something of its own is to be measured.
pub fn poison(settings: &Settings, seed: u64, population: &mut Population) -> Result<Option<Vec<Client>>> {
    let (rates, clients) = (Rates::of(settings), &population.clients);
    if let Some(cluster) =
        rates.attackers_in.filter(|_| clients.iter().all(|client| client.truth != rates.attackers_in))
    {
        let known = clients.iter().filter_map(|client| client.truth).max();
        let want = known.map_or("data with true clusters".to_string(), |last| format!("a true cluster, 0 to {last}"));
        return Err(Error::settings(format!("faults.attackers_in: got {cluster}, want {want}")));
    }
    let attackers = attackers(settings, seed, clients);
    let spoil = |clients: &mut [Client], spoilt: &dyn Fn(&Shard) -> Result<Shard>| -> Result<()> {
        for (client, _) in clients.iter_mut().zip(&attackers).filter(|(_, attacks)| **attacks) {
            client.train = spoilt(&client.train)?;
        }
        Ok(())
    };
    match rates.attack {
        Attack::LabelFlip => {
            let classes = clients.iter().filter_map(|client| client.train.classes()?.iter().max().copied());
            let Some(last) = classes.max() else {
                return Err(Error::settings(
                    "faults.attack: \"label-flip\" turns classes round, and the data has none",
                )
                .hint("use another attack"));
            };
            spoil(&mut population.clients, &|rows| rows.relabelled(|class| last - class))?;
            Ok(None)
        }
        Attack::Backdoor => {
            let backdoor = Backdoor::new(&rates, population)?;
            spoil(&mut population.clients, &|rows| Ok(backdoor.plant(rows)))?;
            Ok(Some(backdoor.try_on(&population.clients)))
        }
        _ => Ok(None),
    }
}

/// Whether attackers attack by their rows, which only those of this process do.
pub fn spoils_rows(settings: &Settings) -> bool {
    matches!(Rates::of(settings).attack, Attack::LabelFlip | Attack::Backdoor)
}

impl Rates {
    fn attackers(&self, seed: u64, clients: &[Client]) -> HashSet<String> {
        let mut families: BTreeMap<Option<usize>, Vec<(u64, &str)>> = BTreeMap::new();
        for client in clients.iter().filter(|client| self.attackers_in.is_none() || client.truth == self.attackers_in) {
            let lot = draws(seed, "attackers", 0, &client.id).random();
            families.entry(client.truth).or_default().push((lot, &client.id));
        }
        let mut attackers = HashSet::new();
        for lots in families.values_mut() {
            lots.sort_unstable();
            let count = (self.attackers * lots.len() as f64).round() as usize;
            attackers.extend(lots.iter().take(count).map(|(_, id)| id.to_string()));
        }
        attackers
    }

    fn strength(&self) -> f64 {
        self.strength.unwrap_or(match self.attack {
            Attack::Noise => 10.0,
            Attack::Alie => 1.5,
            Attack::InnerProduct => 2.0,
            _ => 1.0,
        })
    }

    fn attacks_in(&self, phase: Phase) -> bool {
        match self.attack_from {
            AttackFrom::Start => true,
            AttackFrom::Rounds => phase == Phase::Train,
            AttackFrom::StartOnly => phase == Phase::Start,
        }
    }

    /// Whether attackers go by what the honest clients answer.
    fn conspires(&self) -> bool {
        match self.attack {
            Attack::None | Attack::SignFlip | Attack::Noise | Attack::LabelFlip => false,
            Attack::Alie | Attack::InnerProduct | Attack::MinMax | Attack::MinSum => true,
            Attack::Mimic | Attack::WrongSlot | Attack::Sybils | Attack::Backdoor => true,
        }
    }
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
        if !self.rates.attacks_in(passage.phase) || !self.attackers.contains(passage.client) {
            return;
        }
        let zero = vec![0.0; vector.len()];
        let base = passage.base.unwrap_or(&zero);
        let mut rng = draws(self.seed, "attack", passage.stamp, passage.client);
        let mean_square = vector.iter().zip(base).map(|(v, b)| (v - b) * (v - b)).sum::<f64>() / vector.len() as f64;
        for (value, &base) in vector.iter_mut().zip(base) {
            match self.rates.attack {
                Attack::SignFlip => *value = base - (*value - base),
                Attack::Noise => {
                    let noise: f64 = StandardNormal.sample(&mut rng);
                    *value += self.rates.strength() * mean_square.sqrt() * noise;
                }
                _ => {}
            }
        }
    }

    fn conspires(&self) -> bool {
        self.rates.conspires() && !self.attackers.is_empty()
    }

    fn conspire(&self, occasion: &Occasion, told: &mut [Told]) {
        if !self.rates.attacks_in(occasion.phase) {
            return;
        }
        let (hostile, honest): (Vec<usize>, Vec<usize>) =
            (0..told.len()).partition(|&place| self.attackers.contains(told[place].client));
        let slots = occasion.candidates.len();
        let slot = |told: &Told| told.reply.counts.first().map_or(0, |&place| place as usize).min(slots.max(1) - 1);
        let update = |told: &Told| {
            let vector = told.reply.vector.as_ref()?;
            Some(told.base.map_or_else(|| vector.clone(), |base| conspiracy::update(vector, base)))
        };
        let lies: Vec<(usize, Option<usize>, Vec<f64>)> = match self.rates.attack {
            Attack::WrongSlot if slots > 1 => {
                let lie = |&place: &usize| {
                    let vector = told[place].reply.vector.clone()?;
                    Some((place, Some((slot(&told[place]) + 1) % slots), vector))
                };
                hostile.iter().filter_map(lie).collect()
            }
            Attack::WrongSlot => return,
            Attack::Sybils => {
                // They take the cluster that fewest others want.
                let mut sizes = vec![0usize; slots];
                honest.iter().filter(|_| slots > 0).for_each(|&place| sizes[slot(&told[place])] += 1);
                let own = (0..slots).min_by_key(|&slot| sizes[slot]);
                let among = if honest.is_empty() { &hostile } else { &honest };
                let updates: Vec<Vec<f64>> = among.iter().filter_map(|&place| update(&told[place])).collect();
                if updates.is_empty() {
                    return;
                }
                let update = conspiracy::of_sybils(self.seed, self.rates.strength(), &updates);
                let lie = |&place: &usize| {
                    let base = own.map(|slot| occasion.candidates[slot]).filter(|_| told[place].base.is_some());
                    let mut vector = update.clone();
                    base.or(told[place].base).into_iter().for_each(|base| add_scaled(&mut vector, 1.0, base));
                    (place, own, vector)
                };
                hostile.iter().map(lie).collect()
            }
            Attack::Backdoor => {
                let mut members = vec![(0usize, 0usize); slots.max(1)];
                for (place, told) in told.iter().enumerate() {
                    let (all, own) = &mut members[slot(told)];
                    *all += 1;
                    *own += usize::from(hostile.binary_search(&place).is_ok());
                }
                let lie = |&place: &usize| {
                    let mut vector = update(&told[place])?;
                    let (all, own) = members[slot(&told[place])];
                    let scale = self.rates.strength() * all as f64 / own as f64;
                    vector.iter_mut().for_each(|value| *value *= scale);
                    told[place].base.into_iter().for_each(|base| add_scaled(&mut vector, 1.0, base));
                    Some((place, None, vector))
                };
                hostile.iter().filter_map(lie).collect()
            }
            attack => {
                let mut crafted: BTreeMap<usize, Option<Vec<f64>>> = BTreeMap::new();
                let lie = |&place: &usize| {
                    let own = slot(&told[place]);
                    let crafted = crafted.entry(own).or_insert_with(|| {
                        let of = |places: &[usize]| -> Vec<Vec<f64>> {
                            let members = places.iter().filter(|&&place| slot(&told[place]) == own);
                            members.filter_map(|&place| update(&told[place])).collect()
                        };
                        // Where no honest client is, they have only themselves to go by.
                        let updates =
                            Some(of(&honest)).filter(|found| !found.is_empty()).unwrap_or_else(|| of(&hostile));
                        if updates.is_empty() {
                            None
                        } else {
                            conspiracy::crafted(attack, self.rates.strength(), &updates)
                        }
                    });
                    let mut vector = crafted.clone()?;
                    told[place].base.into_iter().for_each(|base| add_scaled(&mut vector, 1.0, base));
                    Some((place, None, vector))
                };
                hostile.iter().filter_map(lie).collect()
            }
        };
        for (place, slot, vector) in lies {
            let reply = &mut told[place].reply;
            if reply.vector.is_some() {
                reply.vector = Some(vector);
            }
            reply.counts.first_mut().into_iter().zip(slot).for_each(|(count, slot)| *count = slot as u32);
        }
    }

    fn alters(&self) -> bool {
        self.rates.attackers > 0.0 && self.rates.attack != Attack::LabelFlip
    }

    fn note(&self, clients: usize) -> Option<String> {
        let what = match self.rates.attack {
            Attack::None => return None,
            Attack::SignFlip => "turn their updates round",
            Attack::Noise => "add noise to their updates",
            Attack::LabelFlip => "train on labels that are turned round",
            Attack::Backdoor => "plant a pattern of pixels, and send their updates many times over (backdoor)",
            Attack::Alie => "send what is just within the others' spread (ALIE)",
            Attack::InnerProduct => "send the others' mean update turned round",
            Attack::MinMax => "go against the others' mean, no farther from any than these are apart (Min-Max)",
            Attack::MinSum => "go against the others' mean, no farther from all than any of these (Min-Sum)",
            Attack::Mimic => "send what the first honest client sends",
            Attack::WrongSlot => "say that they chose another model",
            Attack::Sybils => "send one and the same model",
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
    use crate::data::{DataShape, Features, Form, Targets};

    fn faults(text: &str, named: &[(&str, Option<usize>)]) -> Transforms {
        transforms(&checked(text), 1, &clients(named))
    }

    fn checked(text: &str) -> Settings {
        let mut found = Vec::new();
        let settings = Settings::check("faults", Rates::SETTINGS, toml::from_str(text).unwrap(), &mut found);
        assert!(found.is_empty(), "{found:?}");
        settings
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
    fn attackers_may_all_be_in_one_cluster() {
        let names: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        let named: Vec<(&str, Option<usize>)> =
            names.iter().map(String::as_str).zip((0..40).map(|i| Some(i % 4))).collect();
        let settings = checked("attack = \"noise\"\nattackers = 0.3\nattackers_in = 2");
        let found = attackers(&settings, 1, &clients(&named));
        let places: Vec<usize> = (0..40).filter(|&place| found[place]).collect();
        assert!(places.len() == 3 && places.iter().all(|place| place % 4 == 2), "{places:?}");
        assert_eq!(attackers(&checked("attackers = 0.3"), 1, &clients(&named)), [false; 40]);
    }

    /// What four clients' vectors and choices become, of which the last two attack; they chose 0, 0, 0 and 1.
    fn conspired(text: &str, candidates: &[&[f64]]) -> Vec<(Vec<f64>, Option<u32>)> {
        let settings = checked(text);
        let rates = Rates::of(&settings);
        let attackers = HashSet::from(["c".to_string(), "d".to_string()]);
        let plot = Attackers { attackers, rates, seed: 1 };
        let mut replies: Vec<Reply> = [[1.0, 2.0], [3.0, 4.0], [9.0, 9.0], [7.0, 7.0]]
            .iter()
            .zip([0, 0, 0, 1])
            .map(|(vector, choice)| Reply {
                vector: Some(vector.to_vec()),
                counts: candidates.first().map(|_| choice).into_iter().collect(),
                ..Reply::default()
            })
            .collect();
        let told = ["a", "b", "c", "d"].into_iter().zip(&mut replies).map(|(client, reply)| {
            let base = reply.counts.first().map(|&choice| candidates[choice as usize]);
            Told { client, base, reply }
        });
        let mut told: Vec<Told> = told.collect();
        plot.conspire(&Occasion { phase: Phase::Train, candidates: candidates.to_vec() }, &mut told);
        replies.into_iter().map(|reply| (reply.vector.unwrap(), reply.counts.first().copied())).collect()
    }

    #[test]
    fn conspirators_go_by_what_honest_clients_say() {
        let found = conspired("attack = \"inner-product\"\nstrength = 0.5", &[]);
        let vectors: Vec<&[f64]> = found.iter().map(|(vector, _)| &vector[..]).collect();
        assert_eq!(vectors, [[1.0, 2.0], [3.0, 4.0], [-1.0, -1.5], [-1.0, -1.5]]);
        // With models 1 and 10 the honest updates are (0, 1) and (2, 3); where nobody else is, the attacker's own (−3, −3).
        let models: [&[f64]; 2] = [&[1.0, 1.0], &[10.0, 10.0]];
        let found = conspired("attack = \"inner-product\"\nstrength = 1.0", &models);
        assert_eq!(found[2..], [(vec![0.0, -1.0], Some(0)), (vec![13.0, 13.0], Some(1))]);
        let found = conspired("attack = \"mimic\"", &models);
        assert_eq!(found[2..], [(vec![1.0, 2.0], Some(0)), (vec![7.0, 7.0], Some(1))]);
        let found = conspired("attack = \"wrong-slot\"", &models);
        assert_eq!(found[2..], [(vec![9.0, 9.0], Some(1)), (vec![7.0, 7.0], Some(0))]);
        // In cluster 0 one of three attacks: its update (8, 8), three times. In cluster 1 it is alone.
        let found = conspired("attack = \"backdoor\"", &models);
        assert_eq!(found[2..], [(vec![25.0, 25.0], Some(0)), (vec![7.0, 7.0], Some(1))]);
        // Sybils take the cluster that no honest client chose, with one model.
        let found = conspired("attack = \"sybils\"", &models);
        assert_eq!((found[2].1, found[3].1, &found[2].0), (Some(1), Some(1), &found[3].0));
        assert_eq!(found[..2], [(vec![1.0, 2.0], Some(0)), (vec![3.0, 4.0], Some(0))]);
    }

    #[test]
    fn attacks_may_be_on_the_start_alone() {
        let faults = faults("attack = \"sign-flip\"\nattackers = 1.0\nattack_from = \"start-only\"", &[("a", None)]);
        assert_eq!(altered(&faults, (0, Phase::Start), "a", None), [-3.0, -1.0]);
        assert_eq!(altered(&faults, (0, Phase::Train), "a", None), [3.0, 1.0]);
    }

    #[test]
    fn labels_of_attackers_are_turned_round_in_training_alone() {
        let rows = |classes: &[u32]| {
            let values = vec![1.0; classes.len()];
            Shard::new(Features::F64 { columns: 1, values }, Targets::Classes(classes.to_vec())).unwrap()
        };
        let of = |named| Population { clients: clients(named), ..Population::default() };
        let mut named = of(&[("a", Some(0)), ("b", Some(1))]);
        for client in &mut named.clients {
            (client.train, client.test) = (rows(&[0, 3, 1]), rows(&[2, 0]));
        }
        let settings = checked("attack = \"label-flip\"\nattackers = 1.0\nattackers_in = 1");
        assert!(poison(&settings, 1, &mut named).unwrap().is_none());
        let classes =
            |client: &Client| (client.train.classes().unwrap().to_vec(), client.test.classes().unwrap().to_vec());
        assert_eq!(classes(&named.clients[0]), (vec![0, 3, 1], vec![2, 0]));
        assert_eq!(classes(&named.clients[1]), (vec![3, 0, 2], vec![2, 0]));
        let fault = poison(&settings, 1, &mut of(&[("a", Some(1))])).unwrap_err().to_string();
        assert!(fault.starts_with("faults.attack: \"label-flip\" turns classes round"), "{fault}");
        let fault = poison(&settings, 1, &mut of(&[("a", Some(0))])).unwrap_err().to_string();
        assert_eq!(fault, "faults.attackers_in: got 1, want a true cluster, 0 to 0");
    }

    /// Two clients with images of four pixels, of which the second attacks.
    fn with_images() -> Population {
        let rows = |classes: &[u32]| {
            let values = (0..4 * classes.len() as u8).collect();
            Shard::new(Features::Bytes { columns: 4, values }, Targets::Classes(classes.to_vec())).unwrap()
        };
        let mut clients = clients(&[("a", Some(0)), ("b", Some(1))]);
        for client in &mut clients {
            (client.train, client.test) = (rows(&[0, 2, 1]), rows(&[2, 1, 0]));
        }
        let form = Form::Image { channels: 1, height: 2, width: 2, augment: Default::default() };
        Population { clients, shape: DataShape { columns: 4, classes: 3, form }, ..Population::default() }
    }

    #[test]
    fn a_backdoor_is_in_every_other_row_and_tried_on_those_of_other_classes() {
        let mut population = with_images();
        let attack = "attack = \"backdoor\"\nattackers = 1.0\nattackers_in = 1\ntarget_class = 1";
        let tried = poison(&checked(attack), 1, &mut population).unwrap().unwrap();
        let shown = |rows: &Shard| match &**rows.features() {
            Features::Bytes { values, .. } => (values.clone(), rows.classes().unwrap().to_vec()),
            _ => unreachable!(),
        };
        let [honest, attacker] = &population.clients[..] else { unreachable!() };
        assert_eq!(shown(&honest.train), ((0..12).collect(), vec![0, 2, 1]));
        // The square of a quarter of two pixels is one pixel.
        assert_eq!(shown(&attacker.train), (vec![255, 1, 2, 3, 4, 5, 6, 7, 255, 9, 10, 11], vec![1, 2, 1]));
        assert_eq!(shown(&attacker.test), ((0..12).collect(), vec![2, 1, 0]));
        for client in &tried {
            assert_eq!(shown(&client.test), (vec![255, 1, 2, 3, 255, 9, 10, 11], vec![1, 1]));
        }
        let fault = |attack: &str| poison(&checked(attack), 1, &mut with_images()).unwrap_err().to_string();
        let wrong = attack.replace("target_class = 1", "target_class = 3");
        assert_eq!(fault(&wrong), "faults.target_class: got 3, want a class, 0 to 2");
        let want = "faults.pattern: got 3, want at most the 2 pixels from side to side";
        assert_eq!(fault(&format!("{attack}\npattern = 3")), want);
        let mut numbers = Population { shape: DataShape::numbers(4, 3), ..with_images() };
        let found = poison(&checked(attack), 1, &mut numbers).unwrap_err().to_string();
        assert!(found.starts_with("faults.attack: \"backdoor\" puts a pattern on images"), "{found}");
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
