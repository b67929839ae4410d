//! What a machine decides about its clients: where their rows are, which columns may be read, how few rows an answer may
//! be about, how much work a message may ask for. It is read from `[node]` in the machine's own file, and no message can
//! change it.

use super::policy::Policy;
use crate::data::{Client, DataShape};
use crate::error::{Error, Result};
use crate::settings::{Declared, Settings, finish, section, settings};
use std::path::{Path, PathBuf};

settings! {
    /// The keys of `[node]`.
    pub struct NodeSettings {
        /// what the server calls this machine (default: its host name)
        name: Option<String>,
        /// the file with this machine's rows, as data.path of a table
        table: Option<String>,
        /// the column that names the client; a table needs it
        client: Option<String>,
        /// the columns that may be read, the target's and the group's too; a table needs them
        columns: Vec<String> = [],
        /// those whose different cells may leave this machine, as categories, classes or groups; all others must be numbers
        words: Vec<String> = [],
        /// share of a client's rows kept for testing; data.test_fraction of an experiment must be the same
        test_fraction: f64 [0.0..=0.9] = 0.2,
        /// decides which rows these are, for all runs
        split_seed: u64 [0..=i64::MAX] = 0,
        /// instead of a table: [0, 3] is the first third of the public dataset that an experiment names
        partition: Option<Vec<usize>> [0..=1 << 31],
        /// no answer is about fewer rows of a client; clients that have fewer are not there
        minimum_rows: usize [1..=1 << 31] = 10,
        /// the folder of the clients' own models (default: kinfolk-models beside the table, else beside this file)
        models: Option<String>,
        /// the file with the secret by which other machines know this one in secure sums, made where it is missing (default:
        /// kinfolk-identity beside the folder of models)
        identity: Option<String>,
    }
}

settings! {
    /// The keys of `[node.limits]`: what one message may ask of a machine.
    #[derive(Copy, PartialEq)]
    pub struct Limits {
        /// bytes in a message, unpacked
        message_bytes: usize [1..=i64::MAX] = 1_073_741_824,
        /// clients of this machine
        clients: usize [1..=i64::MAX] = 100_000,
        /// orders in a message
        orders: usize [1..=i64::MAX] = 100_000,
        /// models in an ask
        models: usize [1..=i64::MAX] = 1_048_576,
        /// steps of one client in one order
        steps: usize [1..=i64::MAX] = 1_000_000,
        /// rows that a public dataset is made into
        rows: usize [1..=i64::MAX] = 2_000_000,
        /// numbers in memory at once, for rows, matrices and answers
        numbers: usize [1..=i64::MAX] = 268_435_456,
        /// rows looked at times parameters of the model, over all clients and orders of a message
        work: usize [1..=i64::MAX] = 10_000_000_000_000,
        /// folders of clients' own models; no further ones are made
        kept: usize [1..=i64::MAX] = 1000,
    }
}

/// A machine's own decisions.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name.
    pub name: Option<String>,
    /// Where its clients' rows are.
    pub rows: Rows,
    /// The fewest rows of a client that an answer may be about.
    pub minimum_rows: usize,
    /// The folder for clients' own models, if any.
    pub models: Option<PathBuf>,
    /// What one message may ask for.
    pub limits: Limits,
    /// What may leave at all, and how often.
    pub policy: Policy,
    /// The folder in which it is written what was told, where the policy wants to know.
    pub account: Option<PathBuf>,
    /// The file with the secret by which other machines know this one; without, it is another one in every run.
    pub identity: Option<PathBuf>,
}

/// Where the rows of a machine's clients are.
#[derive(Debug, Clone)]
pub enum Rows {
    /// In a table.
    Table(TableRows),
    /// In part `index` of `of` of the public dataset that the experiment names.
    Partition {
        /// Which part, from 0.
        index: usize,
        /// Number of parts.
        of: usize,
    },
    /// In part `index` of `of` of whatever data the experiment names: for processes of the run itself.
    Share {
        /// Which part, from 0.
        index: usize,
        /// Number of parts.
        of: usize,
    },
    /// With these clients; and the shape of their data.
    Given(Vec<Client>, DataShape),
}

/// A table, and which of its columns may be read.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRows {
    /// The file.
    pub path: PathBuf,
    /// The column that names the client.
    pub client: String,
    /// The other columns that may be read.
    pub columns: Vec<String>,
    /// Those whose distinct cells may leave the machine.
    pub words: Vec<String>,
    /// Share of a client's rows held out for testing.
    pub test_fraction: f64,
    /// Decides which rows these are. A server that chose it could infer single rows from the sums of several splits.
    pub split_seed: u64,
}

impl Limits {
    const NONE: Self = {
        const ANY: usize = usize::MAX;
        Self {
            message_bytes: ANY,
            clients: ANY,
            orders: ANY,
            models: ANY,
            steps: ANY,
            rows: ANY,
            numbers: ANY,
            work: ANY,
            kept: ANY,
        }
    };

    pub(super) fn check(what: &str, found: f64, key: &str, most: usize) -> Result<()> {
        match found <= most as f64 {
            true => Ok(()),
            false => {
                let message = format!("{what}: got {found:.0}, this machine allows {most} (node.limits.{key})");
                Err(Error::federation(message))
            }
        }
    }
}

impl Node {
    /// A machine with these rows and default limits.
    pub fn new(rows: Rows) -> Self {
        let minimum_rows = NodeSettings::of(&Settings::defaults(NodeSettings::SETTINGS)).minimum_rows;
        let (limits, policy) = (Limits::default(), Policy::default());
        Self { name: None, rows, minimum_rows, models: None, limits, policy, account: None, identity: None }
    }

    /// A process of the run itself, with its share of the clients. Nobody's rows need protection from it.
    pub fn share_of_run(index: usize, of: usize) -> Self {
        Self { limits: Limits::NONE, ..Self::new(Rows::Share { index, of }).with_minimum_rows(1) }
    }

    /// The same with another minimum number of rows.
    pub fn with_minimum_rows(mut self, minimum_rows: usize) -> Self {
        self.minimum_rows = minimum_rows;
        self
    }

    /// Whether it is a process of the run itself.
    pub(super) fn is_part_of_run(&self) -> bool {
        matches!(self.rows, Rows::Share { .. })
    }

    /// Reads a machine's file. Rows that are `given`, such as the user's own code, take precedence over its table. Paths are
    /// relative to the file's folder.
    pub fn read(path: &Path, given: Option<Rows>) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io("reading", path, error))?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("")), given).map_err(|error| error.at(path.display()))
    }

    fn parse(text: &str, place: &Path, given: Option<Rows>) -> Result<Self> {
        let mut file: toml::Table = toml::from_str(text)
            .map_err(|error| Error::settings(format!("not a file in TOML: {}", error.to_string().trim_end())))?;
        let node = match file.remove("node") {
            Some(toml::Value::Table(node)) => node,
            _ => return Err(Error::settings("node: missing, want a table [node]")),
        };
        let faults =
            file.keys().map(|key| Error::settings(format!("{key}: not known here, want [node] alone"))).collect();
        Self::of_keys(node, place, given, faults)
    }

    /// A machine by the keys of its table `[node]`. Paths are relative to this folder; further faults are reported with its own.
    pub fn of_keys(mut node: toml::Table, place: &Path, given: Option<Rows>, mut faults: Vec<Error>) -> Result<Self> {
        let limits = section("node.limits", node.remove("limits"), &mut faults);
        let policy = section("node.policy", node.remove("policy"), &mut faults);
        let settings = Settings::check("node", NodeSettings::SETTINGS, node, &mut faults);
        let limits = Settings::check("node.limits", Limits::SETTINGS, limits, &mut faults);
        let policy = Settings::check("node.policy", Policy::SETTINGS, policy, &mut faults);
        if faults.is_empty() {
            Policy::check_section("node.policy", &policy, &mut faults);
        }
        finish(faults)?;
        let (settings, limits, policy) = (NodeSettings::of(&settings), Limits::of(&limits), Policy::of(&policy));
        let rows = match (given, &settings.table, settings.partition.as_deref().unwrap_or_default()) {
            (Some(rows), ..) => rows,
            (None, Some(_), []) => Rows::Table(TableRows::of(&settings, place)?),
            (None, None, &[index, of]) if index < of => Rows::Partition { index, of },
            (None, None, []) => {
                return Err(Error::settings("node: does not say where the rows are, want table or partition"));
            }
            (None, None, found) => {
                let message =
                    format!("node.partition: got {found:?}, want a part and how many there are, as in [0, 3]");
                return Err(Error::settings(message));
            }
            (None, Some(_), _) => return Err(Error::settings("node: got table and partition, want one of them")),
        };
        let beside = match &rows {
            Rows::Table(table) => table.path.parent().unwrap_or(place),
            _ => place,
        };
        let models = match &settings.models {
            Some(models) => place.join(models),
            None => beside.join("kinfolk-models"),
        };
        let name = settings.name.or_else(host_name);
        let account = match &policy.account {
            Some(account) => place.join(account),
            None => models.with_file_name("kinfolk-account"),
        };
        let identity = match &settings.identity {
            Some(identity) => place.join(identity),
            None => models.with_file_name("kinfolk-identity"),
        };
        let (minimum_rows, models, account) = (settings.minimum_rows, Some(models), Some(account));
        Ok(Self { name, rows, minimum_rows, models, limits, policy, account, identity: Some(identity) })
    }
}

impl TableRows {
    fn of(settings: &NodeSettings, place: &Path) -> Result<Self> {
        let mut faults = Vec::new();
        let (columns, words) = (settings.columns.clone(), settings.words.clone());
        if settings.client.is_none() {
            faults.push(Error::settings("node.client: missing, want the column that names the client"));
        }
        if columns.is_empty() {
            faults.push(Error::settings("node.columns: missing, want the columns that may be read"));
        }
        let client = settings.client.clone().unwrap_or_default();
        if columns.contains(&client) {
            faults.push(Error::settings(format!("node.columns: got `{client}`, which names the client")));
        }
        for word in words.iter().filter(|word| !columns.contains(word)) {
            faults.push(Error::settings(format!("node.words: got `{word}`, want one of node.columns")));
        }
        finish(faults)?;
        Ok(Self {
            path: place.join(settings.table.as_deref().unwrap_or_default()),
            client,
            columns,
            words,
            test_fraction: settings.test_fraction,
            split_seed: settings.split_seed,
        })
    }
}

fn host_name() -> Option<String> {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = told.or_else(|| std::env::var("HOSTNAME").ok())?.trim().to_string();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Node> {
        Node::parse(text, Path::new("/etc/kinfolk"), None)
    }

    #[test]
    fn a_table_needs_its_client_column_and_its_columns_from_the_machine() {
        let fault = read("[node]\ntable = \"a.csv\"\nwords = [\"sex\"]").unwrap_err().to_string();
        for wanted in ["node.client: missing", "node.columns: missing", "node.words: got `sex`"] {
            assert!(fault.contains(wanted), "{fault}");
        }
        let text = "[node]\nname = \"north\"\ntable = \"data/a.csv\"\nclient = \"school\"\n\
                    columns = [\"sex\", \"score\"]\nwords = [\"sex\"]\n[node.limits]\nsteps = 5";
        let node = read(text).unwrap();
        let Rows::Table(table) = &node.rows else { panic!("{node:?}") };
        assert_eq!(table.path, Path::new("/etc/kinfolk/data/a.csv"));
        assert_eq!((table.client.as_str(), table.test_fraction, table.split_seed), ("school", 0.2, 0));
        assert_eq!((node.minimum_rows, node.limits.steps, node.limits.orders), (10, 5, 100_000));
        assert_eq!(node.models.as_deref(), Some(Path::new("/etc/kinfolk/data/kinfolk-models")));
    }

    #[test]
    fn a_file_that_says_nothing_useful_is_refused() {
        for (text, wanted) in [
            ("", "node: missing"),
            ("[node]\n", "want table or partition"),
            ("[node]\npartition = [3, 3]", "node.partition: got [3, 3]"),
            ("[node]\npartition = [0, 3]\ntable = \"a.csv\"", "got table and partition"),
            ("[node]\npartition = [0, 3]\n[privacy]\nepsilon = 1", "privacy: not known here"),
            ("[node]\npartition = [0, 3]\nminimum_row = 3", "node: unknown key `minimum_row`"),
            ("[node]\npartition = [0, 3]\nminimum_rows = 0", "node.minimum_rows: got 0"),
            ("[node", "not a file in TOML"),
        ] {
            let fault = read(text).unwrap_err().to_string();
            assert!(fault.contains(wanted), "{fault}");
        }
        let given = Some(Rows::Partition { index: 0, of: 1 });
        assert!(Node::parse("[node]\n", Path::new(""), given).is_ok());
    }
}
