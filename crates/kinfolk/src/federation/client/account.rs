//! What a machine has told about its clients, over all runs: kept in a folder of the machine's own, and written before an answer leaves.
//!
//! Sums are divided into groups: two clients are in one group if every sum that ever left was over both of them or over neither. All
//! that can be computed from such sums is about whole groups. So it is enough that no group is small, in whatever order and
//! about whatever models a server asks. It would not be enough that any two sums differ by several clients: with three at a time,
//! {1, 2, 3, x} and {4, 5, 6, x} differ from each other and from {1, …, 6} by four, five and five clients, and together tell x.

use super::policy::Spending;
use crate::disk::lock::Lock;
use crate::disk::write_atomically;
use crate::error::{Error, ErrorKind, Result};
use crate::federation::secure::Minimum;
use crate::privacy::accountant::Mechanism;
use crate::privacy::protection::composed;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// What a machine has told about its clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Account {
    /// How often anything was told about each client.
    #[serde(default)]
    disclosures: BTreeMap<String, u64>,
    /// The same in each run.
    #[serde(default)]
    runs: BTreeMap<String, BTreeMap<String, u64>>,
    /// The clients that were in sums, divided by which of them were in the same.
    #[serde(default)]
    groups: Vec<BTreeSet<String>>,
    /// The other machines that were in secure sums with them, and how many clients each has: a group may have such machines in it.
    #[serde(default)]
    machines: BTreeMap<String, u64>,
    /// What was told of each client with noise, and how often.
    #[serde(default)]
    spent: BTreeMap<String, Vec<(Mechanism, u64)>>,
}

impl Account {
    /// Whether no sum has left yet.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether a client was in a sum.
    pub(super) fn is_known(&self, client: &str) -> bool {
        self.groups.iter().any(|group| group.contains(client))
    }

    /// Divides the groups by a sum over these clients, and over other machines with so many clients each; how few of this machine would
    /// be in a group, if that is too small.
    pub(super) fn divide(
        &mut self,
        clients: &BTreeSet<&str>,
        others: &[(String, u64)],
        least: Minimum,
    ) -> Result<(), usize> {
        let mut groups = Vec::new();
        let clients: BTreeSet<&str> =
            clients.iter().copied().chain(others.iter().map(|(name, _)| name.as_str())).collect();
        let mut new: BTreeSet<String> = clients.iter().map(|client| client.to_string()).collect();
        let mut machines = self.machines.clone();
        machines.extend(others.iter().cloned());
        for group in &self.groups {
            let (inside, outside): (BTreeSet<String>, BTreeSet<String>) =
                group.iter().cloned().partition(|client| clients.contains(client.as_str()));
            new.retain(|client| !inside.contains(client));
            groups.extend([inside, outside]);
        }
        groups.push(new);
        groups.retain(|group| !group.is_empty());
        // Groups of other machines alone are theirs to look after.
        let own = |group: &BTreeSet<String>| group.iter().filter(|name| !machines.contains_key(*name)).count();
        let few = |group: &BTreeSet<String>| {
            let with = group.iter().filter_map(|name| machines.get(name).copied());
            (own(group), own(group) > 0 && !suffice(own(group), with, least))
        };
        match groups.iter().map(few).find(|(_, is_small)| *is_small) {
            Some((few, _)) => Err(few),
            None => {
                (self.groups, self.machines) = (groups, machines);
                Ok(())
            }
        }
    }

    /// Takes note of what was told with noise. Returns the largest ε of these clients in all at this δ.
    pub(super) fn spend(&mut self, spending: &Spending, delta: f64) -> f64 {
        let mut largest = 0.0f64;
        for (client, more) in spending {
            let spent = self.spent.entry(client.clone()).or_default();
            for (mechanism, times) in more {
                match spent.iter_mut().find(|(known, _)| known == mechanism) {
                    Some((_, before)) => *before = before.saturating_add(*times),
                    None => spent.push((*mechanism, *times)),
                }
            }
        }
        // Most clients have done the same.
        let mut known: BTreeMap<String, f64> = BTreeMap::new();
        for (client, _) in spending {
            let spent = &self.spent[client];
            let epsilon = known.entry(format!("{spent:?}")).or_insert_with(|| composed(spent.iter().copied(), delta));
            largest = largest.max(*epsilon);
        }
        largest
    }

    /// Counts what is told, in a run if that is named: the most that was told about one of these clients, in the run and ever. An error
    /// where the run is new and there are so many `runs` already.
    pub(super) fn count(
        &mut self,
        run: Option<&str>,
        told: &BTreeMap<&str, u64>,
        runs: usize,
    ) -> Result<(u64, u64), usize> {
        let add = |counts: &mut BTreeMap<String, u64>| {
            let mut most = 0;
            for (client, times) in told {
                let count = counts.entry(client.to_string()).or_default();
                *count = count.saturating_add(*times);
                most = most.max(*count);
            }
            most
        };
        let in_run = match run.filter(|_| !told.is_empty()) {
            Some(run) if !self.runs.contains_key(run) && self.runs.len() >= runs => return Err(self.runs.len()),
            Some(run) => add(self.runs.entry(run.into()).or_default()),
            None => 0,
        };
        Ok((in_run, add(&mut self.disclosures)))
    }
}

/// Whether so many clients of this machine are enough for a sum: by themselves, or with those of other machines.
pub(super) fn suffice(own: usize, others: impl Iterator<Item = u64>, least: Minimum) -> bool {
    let (machines, clients) =
        others.fold((1, own as u64), |(machines, clients), of| (machines + 1, clients.saturating_add(of)));
    own >= least.clients || (clients >= least.clients as u64 && machines >= least.machines)
}

/// The folder of a machine's account: the account itself, and the last answers, as a question whose answer got lost is asked again.
#[derive(Debug, Clone)]
pub(super) struct Books {
    folder: PathBuf,
}

const FILE: &str = "account.json";
const ENDING: &str = "answer";
/// So many answers are kept.
const ANSWERS: usize = 16;
/// How long another process may have the account, and how often it is looked whether it still has.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

impl Books {
    pub(super) fn at(folder: &Path) -> Self {
        Self { folder: folder.into() }
    }

    /// What was told so far.
    pub(super) fn read(&self) -> Result<Account> {
        let path = self.folder.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let message = format!("{}: not the account of what was told: {error}", path.display());
                let hint = "nothing leaves this machine until it is readable again; without the file all is as if nothing had been told";
                Error::new(ErrorKind::Io, message).hint(hint)
            }),
            Err(error) if error.kind() == NotFound => Ok(Account::default()),
            Err(error) => Err(Error::io("reading", &path, error)),
        }
    }

    /// The answer to this message, if that was given before.
    pub(super) fn answer_to(&self, message: &[u8]) -> Option<Vec<u8>> {
        std::fs::read(self.answer_file(message)).ok()
    }

    /// Writes what was told after an answer, and the answer. `charge` has the account as it is now.
    pub(super) fn settle(
        &self,
        message: &[u8],
        answer: &[u8],
        charge: impl FnOnce(&Account) -> Result<Account>,
    ) -> Result<()> {
        std::fs::create_dir_all(&self.folder).map_err(|error| Error::io("creating", &self.folder, error))?;
        let _lock = self.lock()?;
        let account = charge(&self.read()?)?;
        let bytes = serde_json::to_vec_pretty(&account)
            .map_err(|error| Error::new(ErrorKind::Io, format!("writing what was told: {error}")))?;
        self.forget_answers();
        write_atomically(&self.folder.join(FILE), &bytes)?;
        write_atomically(&self.answer_file(message), answer)
    }

    fn lock(&self) -> Result<Lock> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Lock::take(&self.folder) {
                Err(error) if error.kind().is_input() && Instant::now() < until => std::thread::sleep(BETWEEN_LOOKS),
                lock => return lock,
            }
        }
    }

    fn answer_file(&self, message: &[u8]) -> PathBuf {
        let digest: String = Sha256::digest(message).iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{digest}.{ENDING}"))
    }

    /// Removes the oldest answers.
    fn forget_answers(&self) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut answers: Vec<(SystemTime, PathBuf)> = entries
            .filter(|entry| entry.path().extension().is_some_and(|it| it == ENDING))
            .map(|entry| {
                let written = entry.metadata().and_then(|found| found.modified());
                (written.unwrap_or(SystemTime::UNIX_EPOCH), entry.path())
            })
            .collect();
        answers.sort();
        let surplus = (answers.len() + 1).saturating_sub(ANSWERS);
        // One that cannot be removed costs room, and nothing else.
        answers.into_iter().take(surplus).for_each(|(_, path)| drop(std::fs::remove_file(path)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Minimum = Minimum { clients: 3, machines: 3 };

    fn set<'a>(clients: &[&'a str]) -> BTreeSet<&'a str> {
        clients.iter().copied().collect()
    }

    #[test]
    fn nothing_about_few_clients_follows_from_sums() {
        let mut account = Account::default();
        let all = ["a", "b", "c", "d", "e", "f", "x"];
        assert_eq!(account.divide(&set(&all[..2]), &[], LEAST), Err(2));
        assert_eq!(account.divide(&set(&all), &[], LEAST), Ok(()));
        // All but one, and all but two.
        assert_eq!(account.divide(&set(&all[..6]), &[], LEAST), Err(1));
        assert_eq!(account.divide(&set(&all[..5]), &[], LEAST), Err(2));
        assert_eq!(account.divide(&set(&all[..4]), &[], LEAST), Ok(()), "four, and three others");
        assert_eq!(account.divide(&set(&all), &[], LEAST), Ok(()), "the same again");
        assert_eq!(account.divide(&set(&all[4..]), &[], LEAST), Ok(()), "the others");
        // One swapped for another.
        assert_eq!(account.divide(&set(&["a", "b", "c", "e"]), &[], LEAST), Err(1));
        assert_eq!(account.groups.len(), 2);
    }

    #[test]
    fn no_combination_of_three_sums_tells_one_client() {
        // Any two of them differ by four clients or more, and the first two less the third are twice x.
        let (one, other) = (set(&["1", "2", "3", "x"]), set(&["4", "5", "6", "x"]));
        let third = set(&["1", "2", "3", "4", "5", "6"]);
        let apart = |one: &BTreeSet<&str>, other: &BTreeSet<&str>| one.symmetric_difference(other).count();
        assert_eq!([apart(&one, &other), apart(&one, &third), apart(&other, &third)], [6, 4, 4]);
        let mut account = Account::default();
        assert_eq!(account.divide(&one, &[], LEAST), Ok(()));
        assert_eq!(account.divide(&other, &[], LEAST), Err(1), "x alone");
        assert_eq!(account.divide(&third, &[], LEAST), Err(1));
    }

    #[test]
    fn newcomers_are_a_group_of_their_own() {
        let mut account = Account::default();
        assert_eq!(account.divide(&set(&["a", "b", "c"]), &[], LEAST), Ok(()));
        assert_eq!(account.divide(&set(&["a", "b", "c", "d"]), &[], LEAST), Err(1));
        assert_eq!(account.divide(&set(&["a", "b", "c", "d", "e", "f"]), &[], LEAST), Ok(()));
        assert!(account.is_known("d") && !account.is_known("g"));
        // Somebody who left.
        assert_eq!(account.divide(&set(&["a", "b", "d", "e", "f"]), &[], LEAST), Err(2));
    }

    #[test]
    fn in_secure_sums_a_client_is_as_well_hidden_as_those_with_it() {
        let others =
            |names: &[&str]| -> Vec<(String, u64)> { names.iter().map(|name| (name.to_string(), 1)).collect() };
        let mut account = Account::default();
        // The only client of its machine, with those of two or three others.
        assert_eq!(account.divide(&set(&["x"]), &others(&["m1"]), LEAST), Err(1));
        assert_eq!(account.divide(&set(&["x"]), &others(&["m1", "m2", "m3"]), LEAST), Ok(()));
        assert_eq!(account.divide(&set(&["x"]), &others(&["m1", "m2", "m3"]), LEAST), Ok(()));
        // Without the third machine: that is its matter, and three are left.
        assert_eq!(account.divide(&set(&["x"]), &others(&["m1", "m2"]), LEAST), Ok(()));
        // With the third, and without the second: x and the first have been in the same sums alone.
        assert_eq!(account.divide(&set(&["x"]), &others(&["m1", "m3"]), LEAST), Err(1));
        assert_eq!(account.divide(&set(&["x"]), &[], LEAST), Err(1));
        // A second client, without the first.
        assert_eq!(account.divide(&set(&["y"]), &others(&["m1", "m2"]), LEAST), Err(1));
        let again: Account = serde_json::from_str(&serde_json::to_string(&account).unwrap()).unwrap();
        assert_eq!(again, account);
        // Three clients of one machine do not need others.
        let mut account = Account::default();
        assert_eq!(account.divide(&set(&["a", "b", "c"]), &others(&["m1", "m2"]), LEAST), Ok(()));
        assert_eq!(account.divide(&set(&["a", "b", "c"]), &[], LEAST), Ok(()));
    }

    #[test]
    fn what_is_told_is_counted_by_client_and_run() {
        let mut account = Account::default();
        let told = BTreeMap::from([("a", 2), ("b", 1)]);
        assert_eq!(account.count(Some("one"), &told, 2), Ok((2, 2)));
        assert_eq!(account.count(Some("one"), &told, 2), Ok((4, 4)));
        assert_eq!(account.count(Some("two"), &BTreeMap::from([("b", 1)]), 2), Ok((1, 3)));
        assert_eq!(account.count(Some("three"), &told, 2), Err(2));
        assert_eq!(account.count(None, &BTreeMap::new(), 0), Ok((0, 0)));
    }

    #[test]
    fn what_is_told_with_noise_adds_up_for_each_client() {
        let step = Mechanism::Gaussian { rate: 0.5, noise: 2.0 };
        let choice = Mechanism::Choice { epsilon: 0.1 };
        let spend = |account: &mut Account, steps: u64| {
            account.spend(&vec![("a".into(), vec![(step, steps), (choice, 1)]), ("b".into(), vec![(step, 1)])], 1e-5)
        };
        let mut account = Account::default();
        let first = spend(&mut account, 10);
        assert_eq!(first, composed([(step, 10), (choice, 1)], 1e-5), "that of the client with more");
        let mut again: Account = serde_json::from_str(&serde_json::to_string(&account).unwrap()).unwrap();
        assert_eq!(spend(&mut again, 20), composed([(step, 30), (choice, 2)], 1e-5));
        assert_eq!(again.spent["b"], [(step, 2)]);
    }

    #[test]
    fn books_outlast_the_process_and_a_refused_answer_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let books = Books::at(&folder.path().join("account"));
        assert_eq!(books.read().unwrap(), Account::default());
        let count = |account: &Account| {
            let mut account = account.clone();
            account.count(Some("run"), &BTreeMap::from([("a", 1)]), 9).unwrap();
            Ok(account)
        };
        for message in 0..20u8 {
            books.settle(&[message], &[message, 7], count).unwrap();
        }
        let again = Books::at(&folder.path().join("account"));
        assert_eq!(again.read().unwrap().disclosures["a"], 20);
        assert_eq!(again.answer_to(&[19]), Some(vec![19, 7]));
        assert_eq!(again.answer_to(&[20]), None);
        let files = std::fs::read_dir(folder.path().join("account")).unwrap().count();
        assert_eq!(files, 1 + ANSWERS, "the account and the last answers");
        let refused = again.settle(&[20], &[], |_| Err(Error::federation("enough")));
        assert!(refused.is_err() && again.answer_to(&[20]).is_none());
        assert_eq!(again.read().unwrap().disclosures["a"], 20);
        std::fs::write(folder.path().join("account").join(FILE), "{\"disclosures\":3}").unwrap();
        assert!(again.read().unwrap_err().to_string().contains("nothing leaves this machine"));
    }
}
