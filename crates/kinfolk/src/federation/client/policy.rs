//! What may leave a machine, whatever a server asks for: `[node.policy]` in the machine's own file.
//!
//! Four things are looked at, in this order: which kinds of work are done at all; whether answers of single clients may leave, or
//! only sums over several; whether noise hides clients, or their rows, as the budget of this machine wants it; how often anything may be told
//! about one client, and how much of the budget is left. What was told before is in the `Account`.

use super::account::{Account, suffice};
use crate::error::{Error, Result};
use crate::federation::secure::roster::{Wanted as WantedOfRoster, of_hex};
use crate::federation::secure::{Minimum, Seed};
use crate::federation::work::{Sends, Work};
use crate::privacy::Hidden;
use crate::privacy::accountant::Mechanism;
use crate::privacy::clients::ClientPrivacy;
use crate::settings::{Check, choices, settings, unknown_name};
use crate::text::counted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The words of `allow`.
const SINGLE: &str = "single";
const SUMS: &str = "sums";
const DESCRIPTIONS: &str = "descriptions";
const SCORES: &str = "scores";
const WORDS: &[&str] = &[SINGLE, SUMS, DESCRIPTIONS, SCORES];

/// What is released about clients with noise, and how often.
pub(super) type Spending = Vec<(String, Vec<(Mechanism, u64)>)>;

choices! {
    /// Whom the budget of differential privacy is about.
    pub enum Protects { Record = "record", Client = "client" }

    /// In which form alone sums may leave.
    pub enum Required { Nothing = "nothing", Secure = "secure" }
}

settings! {
    /// The keys of `[node.policy]`: what may leave a machine, whatever a server asks for.
    pub struct Policy {
        /// what may leave: single (what one client answers), sums (over several clients); beside these descriptions (what columns are like,
        /// also of few clients, and without noise) and scores (without noise)
        allow: Vec<String> = ["single", "sums"],
        /// secure: of sums, those alone that other machines are in too, and that the server sees in all (privacy.sums of an experiment)
        require: Required = "nothing",
        /// where sums alone may leave: the fewest clients that one is over, of this machine, or of all that are in a secure sum
        minimum_clients: usize [2..=1 << 31] = 3,
        /// the fewest machines in a secure sum
        minimum_machines: usize [2..=64] = 3,
        /// the identities of the machines with which this one takes part in secure sums (`kinfolk node --identity`; default: any)
        peers: Vec<String> = [],
        /// the kinds of work that are done (default all; `kinfolk list work`)
        work: Vec<String> = [],
        /// kinds of work that are not done
        refuse: Vec<String> = [],
        /// how often anything may be told about one client in one run
        disclosures_per_run: Option<u64> [0..=i64::MAX],
        /// the same over all runs there will ever be
        disclosures: Option<u64> [0..=i64::MAX],
        /// the budget of differential privacy: ε of all that is ever told of one row, or one client; what noise does not hide stays here then
        epsilon: Option<f64> [above 0.0..=1e6],
        /// δ of this budget
        delta: f64 [above 0.0..1.0] = 1e-5,
        /// whom this budget is about: every single row, or every client as a whole
        protects: Protects = "record",
        /// the folder in which is written what was told (default: kinfolk-account beside the folder of models)
        account: Option<String>,
    }

    fn check(&self, check: &mut Check) {
        for word in self.allow.iter().filter(|word| !WORDS.contains(&word.as_str())) {
            check.faults.push(unknown_name(&format!("{}.allow", check.place), word, WORDS));
        }
        if self.epsilon.is_none() {
            for name in check.changed(&["delta", "protects"]) {
                check.fault(name, "there is no budget without `epsilon`");
            }
        }
        for (key, names) in [("work", &self.work), ("refuse", &self.refuse)] {
            for name in names.iter().filter(|name| !Work::NAMES.contains(&name.as_str())) {
                check.faults.push(unknown_name(&format!("{}.{key}", check.place), name, Work::NAMES));
            }
        }
        if !self.allow.iter().any(|word| [SINGLE, SUMS].contains(&word.as_str())) {
            check.fault("allow", "nothing could leave, want single, sums or both");
        }
        if let Some(peer) = self.peers.iter().find(|peer| of_hex(peer).is_none()) {
            let message = format!("got \"{peer}\", want an identity of 64 hexadecimal digits");
            check.fault_with_hint("peers", &message, "`kinfolk node NODE.toml --identity` prints a machine's own");
        }
        if self.allows_single() && self.require == Required::Secure {
            let message = "secure sums are no protection where the same clients may be asked one by one";
            check.fault_with_hint("require", message, "say allow = [\"sums\"] too");
        }
        if !self.work.is_empty() && !self.refuse.is_empty() {
            check.fault("refuse", "what is not among the kinds of `work` is refused already, want one of the two keys");
        }
        if self.allows_single() && !check.changed(&["minimum_clients"]).is_empty() {
            check.fault_with_hint(
                "minimum_clients",
                "sums are no protection where the same clients may be asked one by one",
                "say allow = [\"sums\"] too",
            );
        }
    }
}

/// In what form the answers to an order would leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One by one.
    Single,
    /// Vectors in sums, and beside them what else single clients answer.
    OpenSums,
    /// In sums over clients of this machine, and nothing else.
    SealedSums,
    /// In such sums, masked: the server learns those over several machines.
    SecureSums,
}

/// What an answer to an order tells: about which clients of this machine, and in a secure sum with which other machines that have so
/// many clients each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Release {
    pub clients: Vec<String>,
    pub others: Vec<(String, u64)>,
    /// Whether it is no sum over them, and may be over few.
    pub is_description: bool,
}

/// An order to clients of this machine, as far as a policy is concerned.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub work: &'a Work,
    pub form: Form,
}

impl Policy {
    /// Whether what one client answers may leave.
    pub(crate) fn allows_single(&self) -> bool {
        self.allow.iter().any(|word| word == SINGLE)
    }

    /// Whether what columns are like may leave, though it be of few clients.
    pub(super) fn allows_descriptions(&self) -> bool {
        self.allow.iter().any(|word| word == DESCRIPTIONS)
    }

    fn minimum(&self) -> Minimum {
        Minimum { clients: self.minimum_clients, machines: self.minimum_machines }
    }

    /// What a roster of secure sums must be like, with the identities that are known.
    pub(super) fn check_roster<R>(&self, check: impl FnOnce(&WantedOfRoster) -> R) -> R {
        let known: BTreeSet<Seed> = self.peers.iter().filter_map(|peer| of_hex(peer)).collect();
        let known = Some(&known).filter(|known| !known.is_empty());
        check(&WantedOfRoster { minimum: self.minimum(), known })
    }

    /// Whether it has to be known what was told before.
    pub(super) fn counts(&self) -> bool {
        let limits = [self.disclosures, self.disclosures_per_run];
        !self.allows_single() || self.epsilon.is_some() || limits.iter().any(Option::is_some)
    }

    /// What a client's part in a sum costs of this machine's budget, where noise hides clients.
    pub(super) fn cost(&self, privacy: &ClientPrivacy) -> Mechanism {
        privacy.release(self.protects == Protects::Record)
    }

    /// Refuses what noise does not hide well enough for this machine's budget.
    pub(super) fn check_noise<'a>(
        &self,
        hidden: Option<&Hidden>,
        mut orders: impl Iterator<Item = Wanted<'a>>,
    ) -> Result<()> {
        if let Some(Hidden::Clients(_)) = hidden
            && let Some(Wanted { work, .. }) =
                orders.find(|wanted| !matches!(wanted.form, Form::SealedSums | Form::SecureSums))
        {
            return Err(Error::federation(format!("{}: clients are hidden in sums alone", work.name())));
        }
        let (is_enough, whom) = match (self.protects, hidden) {
            _ if self.epsilon.is_none() => return Ok(()),
            (Protects::Record, hidden) => (hidden.is_some(), "rows"),
            (Protects::Client, hidden) => (matches!(hidden, Some(Hidden::Clients(_))), "clients"),
        };
        let may_leave = |work: &Work| !tells(work) || (work.scores() && self.allow.iter().any(|word| word == SCORES));
        match orders.find(|wanted| !is_enough && !may_leave(wanted.work)) {
            Some(Wanted { work, .. }) => {
                refused(format!("{} without noise that hides single {whom}", work.name()), "epsilon")
            }
            None => Ok(()),
        }
    }

    /// Refuses to tell what columns are like, where there is a budget: noise does not hide it.
    pub(super) fn check_description(&self, is_telling: bool) -> Result<()> {
        match self.epsilon.is_some() && is_telling && !self.allows_descriptions() {
            true => refused(
                "what columns are like, which no noise hides: want `descriptions` in node.policy.allow".into(),
                "epsilon",
            ),
            false => Ok(()),
        }
    }

    /// Refuses kinds of work that are not done here, and answers in a form that may not leave.
    pub(super) fn check_forms<'a>(&self, mut orders: impl Iterator<Item = Wanted<'a>>) -> Result<()> {
        orders.try_for_each(|Wanted { work, form }| {
            let name = work.name();
            if self.refuse.iter().any(|refused| refused == name) {
                return refused(format!("{name} is not done on this machine"), "refuse");
            }
            if !self.work.is_empty() && !self.work.iter().any(|allowed| allowed == name) {
                return refused(format!("{name} is not among what is done on this machine"), "work");
            }
            let what = match form {
                _ if !tells(work) => return Ok(()),
                Form::Single | Form::OpenSums if self.allows_single() => return Ok(()),
                Form::Single => format!("{name} of single clients"),
                Form::SecureSums => return Ok(()),
                Form::SealedSums if self.require == Required::Nothing => return Ok(()),
                Form::SealedSums => {
                    return refused(
                        format!("{name} in sums that the server sees: secure ones alone leave this machine"),
                        "require",
                    );
                }
                Form::OpenSums => {
                    format!("{name} with a sum, and with losses, choices and lengths of single clients beside it")
                }
            };
            refused(format!("{what}: sums alone leave this machine"), "allow")
        })
    }

    /// What an account says after these answers of a run, each about some clients; an error where they may not leave because of what
    /// left before. There is an account for so many `runs` at most.
    pub(super) fn charge(
        &self,
        account: &Account,
        run: Option<&str>,
        (told, spent): (&[Release], &Spending),
        runs: usize,
    ) -> Result<Account> {
        let mut account = account.clone();
        let epsilon = account.spend(spent, self.delta);
        if let Some(most) = self.epsilon.filter(|most| epsilon > most * (1.0 + ROUNDING)) {
            let what = format!("ε = {epsilon:.3} at δ = {:e} over all runs: this machine allows {most}", self.delta);
            return refused(what, "epsilon");
        }
        let mut times: BTreeMap<&str, u64> = BTreeMap::new();
        for release in told.iter().filter(|release| !release.clients.is_empty()) {
            if !self.allows_single() && !release.is_description {
                self.check_sum(&mut account, release)?;
            }
            release.clients.iter().for_each(|client| *times.entry(client).or_default() += 1);
        }
        self.count(&mut account, run, &times, runs)?;
        Ok(account)
    }

    /// Refuses a sum over few clients, and one from which, with earlier ones, something about few clients follows.
    fn check_sum(&self, account: &mut Account, Release { clients, others, .. }: &Release) -> Result<()> {
        let (least, all) = (self.minimum_clients, counted(clients.len(), "client"));
        let what = if !suffice(clients.len(), others.iter().map(|(_, clients)| *clients), self.minimum()) {
            format!("a sum over {all}: this machine wants at least {least}")
        } else {
            match account.divide(&clients.iter().map(String::as_str).collect(), others, self.minimum()) {
                Ok(()) => return Ok(()),
                Err(few) => {
                    let few = counted(few, "client");
                    format!(
                        "a sum over {all}: with earlier ones it would tell about {few}, this machine wants at least {least}"
                    )
                }
            }
        };
        refused(what, "minimum_clients")
    }

    /// Refuses where about one client enough was told.
    fn count(&self, account: &mut Account, run: Option<&str>, told: &BTreeMap<&str, u64>, runs: usize) -> Result<()> {
        let counted = account.count(run.filter(|_| self.disclosures_per_run.is_some()), told, runs);
        let (in_run, in_all) = match counted {
            Ok(counted) => counted,
            Err(runs) => {
                let what = format!("a new run after {runs}: this machine keeps account of no more");
                return refused(what, "disclosures_per_run");
            }
        };
        let limits = [
            (in_run, self.disclosures_per_run, "disclosures_per_run", "in this run"),
            (in_all, self.disclosures, "disclosures", "over all runs"),
        ];
        for (found, most, key, over) in limits {
            if let Some(most) = most.filter(|most| found > *most) {
                let what = format!("disclosure {found} about one client {over}: this machine allows {most}");
                return refused(what, key);
            }
        }
        Ok(())
    }

    /// Which of these clients have to wait: those that came since sums left, until they are enough.
    pub(super) fn waiting<'a>(&self, account: &Account, clients: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
        if self.allows_single() || account.is_empty() {
            return BTreeSet::new();
        }
        let new: BTreeSet<&str> = clients.filter(|client| !account.is_known(client)).collect();
        if new.len() >= self.minimum_clients { BTreeSet::new() } else { new }
    }
}

/// An experiment with the same budget keeps it up to so much.
const ROUNDING: f64 = 1e-9;

/// Whether anything about a client's rows leaves with the answer to such work.
pub(super) fn tells(work: &Work) -> bool {
    let Sends { length, numbers, counts, .. } = work.sends(1);
    length + numbers + counts > 0
}

/// The error of what may not leave; the server may hear it.
fn refused<T>(what: String, key: &str) -> Result<T> {
    Err(Error::federation(format!("{what} (node.policy.{key})")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::federation::work::{Choose, Receive};
    use crate::settings::Declared;
    use crate::training::{Portion, Then};

    fn policy(keys: &str) -> Policy {
        Policy::from_table("node.policy", toml::from_str(keys).unwrap()).unwrap()
    }

    fn names(clients: &[&str]) -> Release {
        Release { clients: clients.iter().map(|client| client.to_string()).collect(), ..Release::default() }
    }

    fn charged(policy: &Policy, account: &Account, clients: &[&str]) -> Result<Account> {
        policy.charge(account, Some("run"), (&[names(clients)], &Spending::new()), 9)
    }

    #[test]
    fn forms_are_those_that_are_allowed() {
        let choose: Work = Choose { among: vec![0], on: Portion::All, then: Then::Nothing }.into();
        let receive: Work = Receive { models: vec![0], keep: false }.into();
        let said = |keys: &str, work: &Work, form: Form| {
            let found = policy(keys).check_forms([Wanted { work, form }].into_iter());
            found.err().map_or_else(String::new, |error| error.told())
        };
        let (all, sums) = ("", "allow = [\"sums\"]");
        for form in [Form::Single, Form::OpenSums] {
            assert_eq!(said(all, &choose, form), "");
            assert_eq!(said(sums, &receive, form), "", "nothing is told");
        }
        assert!(said(sums, &choose, Form::Single).starts_with("choose of single clients: sums alone leave"));
        assert!(said(sums, &choose, Form::OpenSums).contains("losses, choices and lengths of single clients beside"));
        let secure = "allow = [\"sums\"]\nrequire = \"secure\"";
        for (keys, form) in [(sums, Form::SealedSums), (sums, Form::SecureSums), (secure, Form::SecureSums)] {
            assert_eq!(said(keys, &choose, form), "");
        }
        let wanted = "choose in sums that the server sees: secure ones alone leave this machine (node.policy.require)";
        assert_eq!(said(secure, &choose, Form::SealedSums), wanted);
    }

    #[test]
    fn a_server_that_adapts_its_orders_finds_no_way_round() {
        let sums = policy("allow = [\"sums\"]");
        let all = ["a", "b", "c", "d", "e", "f"];
        let refused = |account: &Account, clients: &[&str]| charged(&sums, account, clients).unwrap_err().told();
        let first = charged(&sums, &Account::default(), &all).unwrap();
        let said = refused(&first, &["a", "b"]);
        assert_eq!(said, "a sum over 2 clients: this machine wants at least 3 (node.policy.minimum_clients)");
        let said = refused(&first, &all[..5]);
        let wanted =
            "a sum over 5 clients: with earlier ones it would tell about 1 client, this machine wants at least 3";
        assert_eq!(said, format!("{wanted} (node.policy.minimum_clients)"));
        let halves = charged(&sums, &first, &all[..3]).unwrap();
        // One exchanged for another, in this order or in two of one message.
        assert!(refused(&halves, &["a", "b", "d"]).contains("it would tell about"));
        let both = [names(&["a", "b", "c"]), names(&["a", "b", "d"])];
        let two = sums.charge(&first, Some("run"), (&both, &Spending::new()), 9);
        assert!(two.unwrap_err().told().contains("with earlier ones"));
        // What is refused costs nothing, and what was told may be told again.
        charged(&sums, &halves, &all).unwrap();
        charged(&sums, &halves, &all[3..]).unwrap();
        // Where single answers may leave, sums are no secret.
        charged(&policy(""), &first, &["a", "b"]).unwrap();
    }

    #[test]
    fn a_single_client_is_in_sums_over_three_machines() {
        let policy = policy("allow = [\"sums\"]\nrequire = \"secure\"");
        let sum = |others: &[&str]| Release {
            clients: vec!["x".into()],
            others: others.iter().map(|name| (name.to_string(), 1)).collect(),
            is_description: false,
        };
        let charge =
            |release: Release| policy.charge(&Account::default(), Some("run"), (&[release], &Spending::new()), 9);
        charge(sum(&["north", "south"])).unwrap();
        let said = charge(sum(&["north"])).unwrap_err().told();
        assert_eq!(said, "a sum over 1 client: this machine wants at least 3 (node.policy.minimum_clients)");
        charge(Release { is_description: true, ..sum(&[]) }).unwrap();
    }

    #[test]
    fn newcomers_wait_for_each_other() {
        let sums = policy("allow = [\"sums\"]");
        let account = charged(&sums, &Account::default(), &["a", "b", "c"]).unwrap();
        let waiting = |clients: &[&'static str]| -> Vec<&str> {
            sums.waiting(&account, clients.iter().copied()).into_iter().collect()
        };
        assert_eq!(waiting(&["a", "b", "c", "d", "e"]), ["d", "e"]);
        assert!(waiting(&["a", "b", "c", "d", "e", "f"]).is_empty());
        assert!(sums.waiting(&Account::default(), ["x"].into_iter()).is_empty(), "no sum has left yet");
        assert!(policy("").waiting(&account, ["x"].into_iter()).is_empty());
    }
}
