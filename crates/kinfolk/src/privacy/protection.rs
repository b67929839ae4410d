//! What hides clients or their rows, as a user sets it, and what is said of it.

use super::accountant::{Accountant, Budget, Mechanism};
use super::clients::ClientPrivacy;
use super::noise::Source;
use super::rows::{Bounds, Exposure, RowPrivacy};
use crate::settings::{Check, choices, settings};
use crate::text::counted;
use serde::{Deserialize, Serialize};

choices! {
    /// Whose presence is hidden.
    pub enum Level { None = "none", Record = "record", Client = "client" }
    /// How data differ that nobody can tell apart.
    #[derive(Serialize, Deserialize)]
    pub enum Neighbours { AddOrRemove = "add-or-remove", Replace = "replace" }
    /// Where noise comes from.
    pub enum NoiseFrom { Seed = "seed", System = "system" }
}

settings! {
    /// Differential privacy, in `[privacy]`.
    pub struct Protection {
        /// whose presence is hidden behind noise: nobody's, that of every single row of a client, or that of every client
        level: Level = "none",
        /// the budget: ε of all that a method releases of one seed
        #[only_with(level = "record" | "client")]
        epsilon: Option<f64> [above 0.0..=1e6],
        /// δ of it: the chance of a worse case, well below one in the number of rows, or of clients
        delta: f64 [above 0.0..1.0] = 1e-5,
        /// the length to which the gradient of a row, or the update of a client, is cut
        clip: f64 [above 0.0..=1e18] = 1.0,
        /// the chance of each row to be in a step
        #[only_with(level = "record")]
        rate: f64 [above 0.0..=1.0] = 1.0,
        /// the loss at which a row counts as not fitted at all by a cluster's model, where rows have no classes; the largest of a client
        loss_cap: f64 [above 0.0..=1e18] = 1.0,
        /// the length to which a row, with a constant 1 for an intercept, is cut where clients answer with a minimiser (default: the root of
        /// the number of its columns, about what rows of standardised columns have)
        #[only_with(level = "record")]
        row_bound: Option<f64> [above 0.0..=1e18],
        /// the size to which targets are cut there, where these are numbers
        #[only_with(level = "record")]
        target_bound: f64 [above 0.0..=1e18] = 1.0,
        /// what cannot be told apart: data with one more or less, or with another one in its place
        neighbours: Neighbours = "add-or-remove",
        /// where noise comes from: the seed, for simulations that can be repeated and protect nobody, or the operating system
        noise: NoiseFrom = "seed",
        /// that what clients tell of a table's columns (means, extremes, words, classes) is public knowledge, and outside the budget
        public_schema: bool = false,
    }

    fn check(&self, check: &mut Check) {
        if self.level == Level::None {
            for name in check.changed(&["delta", "clip", "rate", "loss_cap", "neighbours", "noise", "public_schema"]) {
                check.fault_with_hint(name, "nothing is hidden with level = \"none\"", "set level = \"record\" or \"client\", or leave it out");
            }
            return;
        }
        if self.epsilon.is_none() {
            let hint = "at most 1 is strong, about 8 the most that still says something";
            check.fault_with_hint("epsilon", "missing, want the budget, a number above 0", hint);
        }
        if self.neighbours == Neighbours::Replace && self.rate < 1.0 {
            let why = "what samples add to the protection is known for one row more or less, not for another one";
            check.fault_with_hint("neighbours", why, "set rate = 1, or leave neighbours out");
        }
    }
}

impl Protection {
    /// The budget, where there is one.
    pub(crate) fn budget(&self) -> Option<Budget> {
        let epsilon = self.epsilon.filter(|_| self.level != Level::None)?;
        Some(Budget { epsilon, delta: self.delta })
    }

    fn source(&self, seed: u64) -> Source {
        match self.noise {
            NoiseFrom::Seed => Source::Seed(seed),
            NoiseFrom::System => Source::System,
        }
    }

    /// How clients that are in so many sums are protected; `None` where no noise is enough.
    pub(crate) fn of_clients(&self, most: Exposure, seed: u64) -> Option<ClientPrivacy> {
        let Self { clip, loss_cap, neighbours, .. } = *self;
        ClientPrivacy::within(self.budget()?, (clip, loss_cap), neighbours, most.sums, self.source(seed))
    }

    /// How the rows that a method uses so much are protected; `None` where nothing is hidden, or no noise is enough.
    pub(crate) fn of_rows(&self, most: Exposure, seed: u64) -> Option<RowPrivacy> {
        let Self { clip, rate, loss_cap, neighbours, .. } = *self;
        let bounds = Bounds { row: self.row_bound, target: self.target_bound };
        let privacy = RowPrivacy::within(self.budget()?, (clip, rate, loss_cap), neighbours, most, self.source(seed))?;
        Some(RowPrivacy { bounds, ..privacy })
    }
}

/// What these releases together cost at this δ.
pub(crate) fn composed(releases: impl IntoIterator<Item = (Mechanism, u64)>, delta: f64) -> f64 {
    let mut accountant = Accountant::default();
    releases.into_iter().for_each(|(mechanism, times)| accountant.spend(mechanism, times));
    accountant.epsilon(delta)
}

/// What clients answer with where they do not train by steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    LeastSquares,
    Minimiser,
    Pulls,
}

impl Answered {
    /// The noise of each number over the longest possible answer, for one row and noise of 1: what one row adds, times the root of
    /// the parts of an answer.
    fn noise(self) -> f64 {
        match self {
            Answered::LeastSquares => 3f64.sqrt(),
            Answered::Minimiser => 2.0,
            Answered::Pulls => 2f64.sqrt(),
        }
    }

    /// How much of that noise is too much, for so many parameters. Squares of rows in all directions are shorter than in a single one.
    fn too_much(self, width: usize) -> f64 {
        if self == Answered::LeastSquares { 0.5 / width.max(1) as f64 } else { 1.0 }
    }

    fn in_words(self) -> &'static str {
        match self {
            Answered::LeastSquares => "sum of rows times targets",
            Answered::Minimiser => "minimiser",
            Answered::Pulls => "sum of the rows' pulls",
        }
    }
}

/// What a run says of the protection of a method's rows, for a model of so many parameters, with what its clients answer if they do,
/// and clients of these many rows.
pub(crate) fn said_of_rows(
    settings: &Protection,
    rows: &RowPrivacy,
    (width, answered): (usize, Answered),
    clients: &[usize],
) -> String {
    let spent = composed(rows.mechanisms(), settings.delta);
    let unit = match settings.neighbours {
        Neighbours::AddOrRemove => "one row more or less",
        Neighbours::Replace => "another row in one's place",
    };
    let draws = match rows.draws() {
        0 => String::new(),
        1 => " and 1 drawn choice".into(),
        draws => format!(" and {draws} drawn choices"),
    };
    let mut sorted = clients.to_vec();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(1).max(1) as f64;
    let (noise, too_much, signal) = match rows.most.answers {
        0 => (rows.noise / rows.rate, 1.0, "gradient"),
        _ => (rows.noise * answered.noise(), answered.too_much(width), answered.in_words()),
    };
    let alone = noise * (width as f64).sqrt() / median;
    let together = alone / (clients.len().max(1) as f64).sqrt();
    let advice = match (alone, together) {
        (_, together) if together > too_much => {
            ": more noise than signal even in the mean; take a larger epsilon, fewer steps, a smaller model, or more rows"
        }
        (alone, _) if alone > too_much && rows.most.answers == 1 => {
            ": a single client's answer is mostly noise; take more rows, a smaller model, or a larger epsilon"
        }
        (alone, _) if alone > too_much => {
            ": models of single clients learn next to nothing; share one among many, take fewer steps or a smaller model"
        }
        _ => "",
    };
    let (done, of) = match rows.most.answers {
        0 => (format!("{} noised steps{draws}", rows.most.steps), "the clip"),
        answers => (counted(answers as usize, "noised answer"), "what a row adds"),
    };
    format!(
        "differential privacy of rows: ε = {spent:.3} at δ = {:e}, for {unit} of a client; {done}, noise {:.3} \
         times {of}. {}. Scores are measured beside it. Noise over the longest possible {signal}: {alone:.3} for the median \
         client, {together:.3} for the mean of all{advice}",
        settings.delta,
        rows.noise,
        capitalised(rows.source.in_words()),
    )
}

/// What a run says of the protection of so many clients, for a model of so many parameters and a method with so many clusters.
pub(crate) fn said_of_clients(
    settings: &Protection,
    clients: &ClientPrivacy,
    (width, count): (usize, usize),
    clusters: usize,
) -> String {
    let spent = composed(clients.mechanisms(), settings.delta);
    let unit = match settings.neighbours {
        Neighbours::AddOrRemove => "one client more or less",
        Neighbours::Replace => "another client in one's place",
    };
    let members = count as f64 / clusters.max(1) as f64;
    let ratio = clients.noise * clients.sensitivity() * (width as f64).sqrt() / members / clients.clip;
    let least = (2.0 * clients.count_deviation()).max(1.0);
    let advice = if ratio > 1.0 {
        ": more noise than signal; take more clients, a smaller model, fewer rounds, or a larger epsilon"
    } else if members < least {
        ": clusters of equal size would not stand out of the noise; take more clients, fewer clusters, or fewer rounds"
    } else if ratio > 0.3 {
        ": slow; more clients, a smaller model, or fewer rounds help"
    } else {
        ""
    };
    format!(
        "differential privacy of clients: ε = {spent:.3} at δ = {:e}, for {unit}; {} sums, noise {:.3} times what one client adds. \
         {}. Scores are measured beside it. A cluster of fewer than {least:.1} clients counts as empty. Noise over the longest possible \
         mean update of a cluster of {members:.0}: {ratio:.3}{advice}",
        settings.delta,
        clients.releases,
        clients.noise,
        capitalised(clients.source.in_words()),
    )
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Declared, Settings};

    fn faults(text: &str) -> Vec<String> {
        match Protection::from_table("privacy", toml::from_str(text).unwrap()) {
            Ok(_) => Vec::new(),
            Err(fault) => vec![fault.to_string()],
        }
    }

    #[test]
    fn combinations_are_checked() {
        assert!(faults("").is_empty() && faults("level = \"record\"\nepsilon = 2").is_empty());
        assert!(faults("level = \"record\"")[0].contains("privacy.epsilon: missing"));
        assert!(faults("clip = 2.0")[0].contains("nothing is hidden"));
        assert!(faults("epsilon = 2.0")[0].contains("is for level"));
        let both = "level = \"record\"\nepsilon = 2\nneighbours = \"replace\"\nrate = 0.1";
        assert!(faults(both)[0].contains("privacy.neighbours"));
        assert_eq!(Settings::defaults(Protection::SETTINGS).get("level").and_then(toml::Value::as_str), Some("none"));
    }

    #[test]
    fn replacing_a_row_takes_twice_the_noise() {
        let protection =
            |neighbours| Protection { level: Level::Record, epsilon: Some(3.0), neighbours, ..Protection::default() };
        let most = Exposure { steps: 40, ..Exposure::default() };
        let one = protection(Neighbours::AddOrRemove).of_rows(most, 0).unwrap();
        let other = protection(Neighbours::Replace).of_rows(most, 0).unwrap();
        assert!((other.noise / one.noise - 2.0).abs() < 1e-5, "{} {}", one.noise, other.noise);
        assert_eq!(protection(Neighbours::Replace).of_rows(most, 0).unwrap().neighbours, Neighbours::Replace);
    }

    #[test]
    fn what_is_said_by_hand() {
        let settings = Protection { level: Level::Record, epsilon: Some(1.0), ..Protection::default() };
        let rows =
            RowPrivacy { noise: 5.0, ..settings.of_rows(Exposure { steps: 1, ..Exposure::default() }, 0).unwrap() };
        let of_steps = (16, Answered::Minimiser);
        let said = said_of_rows(&settings, &rows, of_steps, &[100, 400, 200]);
        // 5·√16/200, and over √3 of it.
        assert!(said.contains("0.100 for the median client, 0.058 for the mean of all"), "{said}");
        assert!(said.contains("1 noised steps, noise 5.000 times the clip. Noise from the seed"), "{said}");
        // The specification's: ε = 8, 300 rounds, 4 clusters of 1200, 159 010 parameters; and 50 of them. The clip is what one adds.
        let settings = Protection { level: Level::Client, epsilon: Some(8.0), ..Protection::default() };
        let clients = settings.of_clients(Exposure { sums: 300, ..Exposure::default() }, 0).unwrap();
        let said = said_of_clients(&settings, &clients, (159_010, 4800), 4);
        assert!(said.contains("more noise than signal"), "{said}");
        let said = said_of_clients(&settings, &clients, (50, 4800), 4);
        assert!(!said.contains("help") && !said.contains("stand out"), "{said}");
        assert!(
            said_of_rows(&settings, &rows, (16_000_000, Answered::Pulls), &[100]).contains("more noise than signal")
        );
        // 5·√3·√16/1000 is above 1/32; with logistic regression 5·2·√16/1000 is enough.
        let rows = RowPrivacy { most: Exposure { answers: 1, ..Exposure::default() }, ..rows };
        let said = said_of_rows(&settings, &rows, (16, Answered::LeastSquares), &[1000; 9]);
        assert!(said.contains("1 noised answer, noise 5.000 times what a row adds"), "{said}");
        assert!(
            said.contains("targets: 0.035 for the median client, 0.012") && said.contains("mostly noise"),
            "{said}"
        );
        assert!(
            said_of_rows(&settings, &rows, (16, Answered::Minimiser), &[1000]).ends_with("0.040 for the mean of all")
        );
    }
}
