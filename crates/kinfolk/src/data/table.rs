//! Clients from a table: a csv (or tsv) or parquet file with a column that names the client of every row.
//!
//! The types of text files are inferred: a column is numeric if every cell is a number, and categorical otherwise.
//! Parquet files have types; booleans are categories. Missing values are refused, because imputation is the user's
//! decision; so are dates and nested columns unless they are dropped.
//!
//! Without a target rows are features only, and only mixtures can be fitted to them.
//!
//! With `task = "auto"` words are classes. Numbers are classes when they are whole, have at most 20 different values and
//! each value comes three times on average, as labels do; all others are a regression target.

use super::columns::{Header, Role, Source, find_roles};
use super::contamination::{Spoiling, contaminate};
use super::split::{divide, draw_lots};
use super::{Cells, Client, Column, DataShape, Features, Lines, Population, Shard, SourceSettings, Targets, schema};
use crate::error::{Error, Result};
use crate::rng::Key;
use crate::settings::{Check, choices, finish, settings};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

choices! {
    /// What the target is.
    pub enum Task { Auto = "auto", Regression = "regression", Classification = "classification" }
    /// What to do about small clients.
    pub enum Small { Error = "error", Drop = "drop" }
}

settings! {
    /// Settings of a table.
    pub struct TableSettings {
        /// the csv, tsv or parquet file
        path: String,
        /// the column that names the client
        client: String,
        /// the column to be predicted; left out: rows are features only, for mixtures; classes only score mixtures of features
        target: Option<String>,
        /// the column of a known grouping of the clients; not a feature; an empty cell is no group
        group: Option<String>,
        /// the column of the true clusters, for scoring; not a feature
        truth: Option<String>,
        /// columns to leave out
        drop: Vec<String> = [],
        /// what the target is
        task: Task = "auto",
        /// give every column of numbers mean 0 and deviation 1 over all clients
        standardise: bool = true,
        /// share of a client's rows kept for testing
        test_fraction: f64 [0.0..1.0] = 0.2,
        /// fewest rows a client must have
        min_rows: usize [1..=i64::MAX] = 1,
        /// what to do about smaller clients
        small: Small = "error",
        /// share of clients met only after training
        unseen_clients: f64 [0.0..1.0] = 0.0,
        /// outliers among the clients
        spoiling: Spoiling,
    }

    fn check(&self, check: &mut Check) {
        if self.target.is_none() && self.task != Task::Auto {
            check.fault_with_hint("task", "the table has no target", "set data.target");
        }
    }
}

impl TableSettings {
    /// A table whose columns are known, with the defaults of all other settings.
    pub(super) fn new(path: &Path, client: &str, target: &str) -> Self {
        let (path, client, target) = (path.display().to_string(), client.into(), Some(target.into()));
        Self { path, client, target, ..Self::default() }
    }
}

impl SourceSettings for TableSettings {
    const NAME: &str = "table";
    const SUMMARY: &str = "a csv or parquet file with a column that names the client";

    fn build(self, seed: u64) -> Result<Population> {
        let mut population = build_with(&self, seed, None, |target| target)?;
        contaminate(&mut population, &self.spoiling, &key(seed))?;
        Ok(population)
    }
}

/// Upper bound on the number of different integers that look like classes.
const MOST_CLASSES: usize = 20;
/// Labels occur at least this often on average.
const ROWS_PER_CLASS: usize = 3;

/// The clients with these columns only, without contamination.
pub(crate) fn build_only(settings: &TableSettings, seed: u64, only: &[String]) -> Result<Population> {
    build_with(settings, seed, Some(only), |target| target)
}

pub(super) fn key(seed: u64) -> Key {
    Key::new(seed).word("table")
}

/// The clients of the file, with a target made from the column read.
pub(super) fn build_with(
    settings: &TableSettings,
    seed: u64,
    only: Option<&[String]>,
    make_target: impl FnOnce(Column) -> Column,
) -> Result<Population> {
    let path = Path::new(&settings.path);
    let source = Source { path, header: Header::Always, drop: |name| format!("data.drop = [{name:?}]") };
    let Some(table) = source.read(&|names| roles(path, names, only, settings)) else {
        let message = format!("data.path: got {}, want a file that ends in .csv, .tsv or .parquet", path.display());
        return Err(Error::settings(message));
    };
    let mut table = table?;
    if table.lines.is_empty() {
        return Err(Error::data(format!("{}: no rows below the header", path.display())));
    }
    let mut take = |name: Option<&String>| name.and_then(|name| table.take(name));
    let words = |column: Option<Column>| match column.map(|column| column.values) {
        Some(Cells::Words(words)) => Some(words),
        _ => None,
    };
    let (ids, groups, truths) = (
        words(take(Some(&settings.client))),
        words(take(settings.group.as_ref())),
        words(take(settings.truth.as_ref())),
    );
    let target = take(settings.target.as_ref());
    let Some(ids) = ids else {
        return Err(Error::data(format!("{}: no client column", path.display())));
    };
    if table.columns.is_empty() {
        return Err(Error::data(format!("{}: no column is left as a feature", path.display())));
    }

    let members = members(path, &ids, settings)?;
    let key = key(seed);
    let order = divide(members.iter().map(|member| (member.id, &member.rows)), settings.test_fraction, &key);
    let group = per_client(path, &table.lines, &members, groups.as_deref(), settings.group.as_deref())?;
    let truth = per_client(path, &table.lines, &members, truths.as_deref(), settings.truth.as_deref())?;
    let clusters = schema::sorted(truth.iter().flatten().map(|name| name.to_string()).collect());
    let number: HashMap<&str, usize> = clusters.iter().map(String::as_str).zip(0..).collect();

    let targets = match target {
        Some(target) => targets(path, &table.lines, make_target(target), settings.task)?,
        None => Targets::None,
    };
    let targets = Arc::new(match targets {
        Targets::Words(words) => Targets::Words(pick(words, &order.rows)),
        Targets::Values(values) => Targets::Values(pick(values, &order.rows)),
        other => other,
    });
    let columns = table.columns.into_iter().map(|column| Column {
        name: column.name,
        values: match column.values {
            Cells::Numbers(values) => Cells::Numbers(pick(values, &order.rows)),
            Cells::Words(words) => Cells::Words(pick(words, &order.rows)),
        },
    });
    let features = Arc::new(Features::Columns(columns.collect()));
    let shard = |rows: &Range<usize>| Shard::of(features.clone(), targets.clone(), rows.clone());
    let client = |index: usize| {
        Ok(Client {
            id: members[index].id.to_string(),
            train: shard(&order.train[index])?,
            test: shard(&order.test[index])?,
            group: group[index].filter(|name| !name.is_empty()).map(str::to_string),
            truth: truth[index].and_then(|name| number.get(name).copied()),
        })
    };
    let is_unseen = unseen(&members, settings.unseen_clients, &key);
    let (unseen, seen): (Vec<usize>, Vec<usize>) = (0..members.len()).partition(|index| is_unseen[*index]);
    let classes = match &*targets {
        Targets::Words(words) => {
            seen.iter().flat_map(|index| &words[order.train[*index].clone()]).collect::<BTreeSet<_>>().len()
        }
        _ => 0,
    };
    let shape = DataShape::numbers(features.columns(), classes);
    let clients = |part: &[usize]| part.iter().map(|index| client(*index)).collect::<Result<Vec<Client>>>();
    let lines = |rows: &Range<usize>| order.rows[rows.clone()].iter().map(|row| table.lines[*row]).collect();
    let lines_of = |index: &usize| Lines { train: lines(&order.train[*index]), test: lines(&order.test[*index]) };
    Ok(Population {
        clients: clients(&seen)?,
        unseen: clients(&unseen)?,
        true_clusters: (!clusters.is_empty()).then_some(clusters.len()),
        lines: seen.iter().map(lines_of).collect(),
        shape,
        ..Population::default()
    })
}

/// The roles of the columns. Where `only` some may be read, the others are dropped.
fn roles(path: &Path, names: &[String], only: Option<&[String]>, settings: &TableSettings) -> Result<Vec<Role>> {
    let mut faults = Vec::new();
    let singles = [
        ("client", Some(&settings.client), Role::Name),
        ("group", settings.group.as_ref(), Role::NameIfAny),
        ("truth", settings.truth.as_ref(), Role::Name),
        ("target", settings.target.as_ref(), Role::Value),
    ];
    let wanted = singles.into_iter().filter_map(|(setting, name, role)| Some((setting, name?, role)));
    let wanted = wanted.chain(settings.drop.iter().map(|name| ("drop", name, Role::Dropped)));
    let spell = |setting: &str| format!("data.{setting}");
    let roles = find_roles(path, names, wanted, (spell, "is"), &mut faults);
    for name in only.into_iter().flatten().filter(|name| !names.contains(name)) {
        faults.push(Error::settings(format!("node.columns: {} has no column `{name}`", path.display())));
    }
    finish(faults)?;
    let usual = |name: &String| match only {
        Some(only) if !only.contains(name) => Role::Dropped,
        _ => Role::Value,
    };
    Ok(roles.into_iter().zip(names).map(|(role, name)| role.unwrap_or_else(|| usual(name))).collect())
}

struct Member<'a> {
    id: &'a str,
    rows: Vec<usize>,
}

/// The clients in the order of their first rows, without those that are too small.
fn members<'a>(path: &Path, ids: &'a [String], settings: &TableSettings) -> Result<Vec<Member<'a>>> {
    let mut places = HashMap::new();
    let mut members: Vec<Member> = Vec::new();
    for (row, id) in ids.iter().enumerate() {
        let place = *places.entry(id.as_str()).or_insert(members.len());
        if place == members.len() {
            members.push(Member { id, rows: Vec::new() });
        }
        members[place].rows.push(row);
    }
    let least = settings.min_rows;
    let all = members.len();
    let small: Vec<String> = members
        .iter()
        .filter(|member| member.rows.len() < least)
        .map(|member| format!("{} ({})", member.id, member.rows.len()))
        .collect();
    if small.len() == all {
        return Err(Error::settings(format!("data.min_rows: none of the {all} clients has {least} rows")));
    }
    if !small.is_empty() && settings.small == Small::Error {
        let more = if small.len() > 5 { format!(" and {} more", small.len() - 5) } else { String::new() };
        let some = small[..small.len().min(5)].join(", ");
        return Err(Error::data(format!("{}: clients with fewer than {least} rows: {some}{more}", path.display()))
            .hint("set data.small = \"drop\" to leave them out, or a smaller data.min_rows"));
    }
    members.retain(|member| member.rows.len() >= least);
    Ok(members)
}

/// The value of a column for each client, which must be the same in all its rows.
fn per_client<'a>(
    path: &Path,
    lines: &[u64],
    members: &[Member],
    words: Option<&'a [String]>,
    column: Option<&str>,
) -> Result<Vec<Option<&'a str>>> {
    let Some(words) = words else {
        return Ok(vec![None; members.len()]);
    };
    let of = |member: &Member| {
        let first = &words[member.rows[0]];
        match member.rows.iter().find(|row| words[**row] != *first) {
            None => Ok(Some(first.as_str())),
            Some(row) => Err(Error::data(format!(
                "{} row {}: client {} has `{}` in column `{}`, but `{first}` in row {}",
                path.display(),
                lines[*row],
                member.id,
                words[*row],
                column.unwrap_or_default(),
                lines[member.rows[0]]
            ))),
        }
    };
    members.iter().map(of).collect()
}

/// Which clients are unseen; at least one is not.
fn unseen(members: &[Member], share: f64, key: &Key) -> Vec<bool> {
    let count = ((share * members.len() as f64).round() as usize).min(members.len() - 1);
    draw_lots(members.iter().map(|member| member.id), count, &key.clone().word("unseen"))
}

fn targets(path: &Path, lines: &[u64], column: Column, task: Task) -> Result<Targets> {
    let named = |values: Vec<f64>| {
        // Adding zero turns -0 into 0, which would be a class of its own.
        Targets::Words(values.into_iter().map(|value| (value + 0.0).to_string()).collect())
    };
    match (column.values, task) {
        (Cells::Words(words), Task::Regression) => {
            let number = |(row, word): (usize, &String)| match word.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(number),
                _ => {
                    let (place, name) = (path.display(), &column.name);
                    let message = format!("{place} row {}: column `{name}` is `{word}`, want a number", lines[row]);
                    Err(Error::data(message).hint("task = \"classification\" takes words"))
                }
            };
            Ok(Targets::Values(words.iter().enumerate().map(number).collect::<Result<_>>()?))
        }
        (Cells::Words(words), _) => Ok(Targets::Words(words)),
        (Cells::Numbers(values), Task::Regression) => Ok(Targets::Values(values)),
        (Cells::Numbers(values), Task::Classification) => Ok(named(values)),
        (Cells::Numbers(values), Task::Auto) => {
            Ok(if look_like_classes(&values) { named(values) } else { Targets::Values(values) })
        }
    }
}

fn look_like_classes(values: &[f64]) -> bool {
    let mut different = BTreeSet::new();
    for value in values {
        if value.fract() != 0.0 {
            return false;
        }
        different.insert((value + 0.0).to_bits());
        if different.len() > MOST_CLASSES {
            return false;
        }
    }
    values.len() >= ROWS_PER_CLASS * different.len()
}

fn pick<T: Default>(mut values: Vec<T>, rows: &[usize]) -> Vec<T> {
    rows.iter().map(|row| std::mem::take(&mut values[*row])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Declared;
    use std::fs;
    use std::path::MAIN_SEPARATOR;
    use tempfile::TempDir;

    const SCHOOLS: &str = "school,sector,score,sex,ses\n\
        a,Public,1.5,f,1\nb,Catholic,2.5,m,2\na,Public,3.5,f,3\na,Public,4.5,m,4\nb,Catholic,5.5,f,5\na,Public,6.5,m,6\n";

    fn file(name: &str, content: &str) -> (TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let path = path.display().to_string();
        (folder, path)
    }

    fn make(path: &str, text: &str) -> Result<Population> {
        let given = toml::from_str(&format!("path = '{path}'\n{text}")).unwrap();
        TableSettings::from_table("data", given)?.build(2)
    }

    fn fault(content: &str, text: &str) -> String {
        let (folder, path) = file("t.csv", content);
        let text = make(&path, text).unwrap_err().to_string();
        text.replace(&format!("{}{MAIN_SEPARATOR}", folder.path().display()), "")
    }

    const USUAL: &str = "client = \"school\"\ntarget = \"score\"";

    #[test]
    fn rows_go_to_their_clients() {
        let (_folder, path) = file("t.csv", SCHOOLS);
        let text = format!("{USUAL}\ngroup = \"sector\"\ntest_fraction = 0.25");
        let population = make(&path, &text).unwrap();
        let clients = &population.clients;
        assert_eq!(clients.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(clients.iter().map(|c| (c.train.len(), c.test.len())).collect::<Vec<_>>(), [(3, 1), (1, 1)]);
        assert_eq!(clients[1].group.as_deref(), Some("Catholic"));
        assert_eq!(population.shape, DataShape::numbers(2, 0));
        let mut values = [clients[0].train.values().unwrap(), clients[0].test.values().unwrap()].concat();
        values.sort_by(f64::total_cmp);
        assert_eq!(values, [1.5, 3.5, 4.5, 6.5]);
        // A row stays together: ses is score - 0.5.
        let Features::Columns(columns) = &**clients[0].train.features() else { panic!() };
        assert_eq!(columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["sex", "ses"]);
        let Cells::Numbers(ses) = &columns[1].values else { panic!() };
        let Targets::Values(scores) = &**clients[0].train.targets() else { panic!() };
        assert!(ses.iter().zip(scores).all(|(ses, score)| ses + 0.5 == *score));
        let again = make(&path, &text).unwrap();
        assert_eq!(again.clients[0].test.values(), clients[0].test.values());
    }

    #[test]
    fn one_row_is_kept_for_training_and_no_fraction_means_no_test_rows() {
        let content = "c,y,x\na,1.5,1\nb,1.5,1\nb,2.5,1\n";
        let (_folder, path) = file("t.csv", content);
        let sizes = |text: &str| {
            let clients = make(&path, &format!("client = \"c\"\ntarget = \"y\"\n{text}")).unwrap().clients;
            clients.iter().map(|client| (client.train.len(), client.test.len())).collect::<Vec<_>>()
        };
        assert_eq!(sizes("test_fraction = 0.9"), [(1, 0), (1, 1)]);
        assert_eq!(sizes(""), [(1, 0), (1, 1)]);
        assert_eq!(sizes("test_fraction = 0"), [(1, 0), (2, 0)]);
    }

    #[test]
    fn truth_is_numbered_and_unseen_clients_are_set_apart() {
        let mut content = "id,planted,y,x\n".to_string();
        for row in 0..40 {
            let client = row % 10;
            content += &format!("{client},{},{row}.5,1\n", if client < 5 { 10 } else { 9 });
        }
        let (_folder, path) = file("t.csv", &content);
        let text = "client = \"id\"\ntarget = \"y\"\ntruth = \"planted\"\nunseen_clients = 0.3";
        let population = make(&path, text).unwrap();
        assert_eq!((population.clients.len(), population.unseen.len()), (7, 3));
        assert_eq!(population.true_clusters, Some(2));
        for client in population.clients.iter().chain(&population.unseen) {
            let low = client.id.parse::<usize>().unwrap() < 5;
            assert_eq!(client.truth, Some(usize::from(low)));
        }
    }

    #[test]
    fn the_task_follows_the_target() {
        assert!(look_like_classes(&[0.0, 1.0, -0.0, 1.0, 1.0, 0.0]));
        assert!(!look_like_classes(&[1.0, 2.0, 3.0, 4.0]));
        assert!(!look_like_classes(&[0.5, 0.5, 0.5, 0.5]));
        assert!(!look_like_classes(&(0..100).map(|i| f64::from(i % 21)).collect::<Vec<_>>()));
        let content = "c,y,x\na,1,1\na,0,1\na,1.0,1\na,0,1\na,1,1\na,0,1\n";
        let (_folder, path) = file("t.csv", content);
        let classes = |task: &str| {
            let text = format!("client = \"c\"\ntarget = \"y\"\ntask = \"{task}\"");
            make(&path, &text).unwrap().shape.classes
        };
        assert_eq!(["auto", "classification", "regression"].map(classes), [2, 2, 0]);
        assert_eq!(
            fault("c,y,x\na,1,1\na,high,1\n", "client = \"c\"\ntarget = \"y\"\ntask = \"regression\""),
            "t.csv row 3: column `y` is `high`, want a number\n  hint: task = \"classification\" takes words"
        );
    }

    #[test]
    fn faults_name_file_row_and_column() {
        let first = |content: &str, text: &str| fault(content, text).lines().next().unwrap().to_string();
        let usual = "client = \"c\"\ntarget = \"y\"";
        for missing in ["", "NA", "NaN", "null"] {
            let content = format!("c,y,x\na,1,2\na,2,{missing}\n");
            assert_eq!(first(&content, usual), "t.csv row 3: column `x` has no value");
        }
        assert_eq!(first("c,y,x\na,1,inf\n", usual), "t.csv row 2: column `x` is not finite");
        assert_eq!(first("c,y,x\na,1\n", usual), "t.csv row 2: 2 cells, want 3");
        assert_eq!(first("c,y,y\na,1,1\n", usual), "t.csv: two columns are called `y`");
        assert_eq!(first("c,y\na,1\n", usual), "t.csv: no column is left as a feature");
        assert_eq!(first("c,y,x\n", usual), "t.csv: no rows below the header");
        assert_eq!(
            first("c,y,x,g\na,1,1,p\na,1,1,q\n", &format!("{usual}\ngroup = \"g\"")),
            "t.csv row 3: client a has `q` in column `g`, but `p` in row 2"
        );
        // Lines count as they do in an editor: quoted breaks, empty lines, and those that end the Windows way.
        for content in ["c,y,x\n\"a\nb\",1,2\na,2,\n", "c,y,x\n\na,1,2\na,2,\n", "c,y,x\r\na,1,2\r\na,1,2\r\na,2,\r\n"]
        {
            assert_eq!(first(content, usual), "t.csv row 4: column `x` has no value");
            assert_eq!(first(&content.replace("2,", "2,inf"), usual), "t.csv row 4: column `x` is not finite");
            assert_eq!(first(&content.replace("a,2,", "a,2"), usual), "t.csv row 4: 2 cells, want 3");
        }
        assert_eq!(
            fault("c,y,x\na,1,2\n,1,2\n", usual),
            "t.csv row 3: column `c` has no value\n  hint: fill it in or delete the row"
        );
        assert!(make("nowhere.csv", usual).unwrap_err().to_string().starts_with("reading nowhere.csv: "));
        assert!(make("table.xls", usual).unwrap_err().to_string().contains("want a file that ends in .csv"));
    }

    #[test]
    fn faults_of_the_settings_come_together() {
        assert_eq!(
            fault(SCHOOLS, "client = \"shcool\"\ntarget = \"score\"\ngroup = \"score\"\ndrop = [\"zzzzzzzzzz\"]"),
            "3 faults\n- data.client: t.csv has no column `shcool`\n  hint: did you mean `school`?\n\
             - data.target: column `score` is data.group already\n\
             - data.drop: t.csv has no column `zzzzzzzzzz`\n  hint: its columns are school, sector, score, sex, ses"
        );
        assert_eq!(
            fault(SCHOOLS, &format!("{USUAL}\nunseen_clients = 1")),
            "data.unseen_clients: got 1, want a number from 0 to below 1"
        );
    }

    #[test]
    fn rows_may_be_features_only() {
        let (_folder, path) = file("t.csv", SCHOOLS);
        let population = make(&path, "client = \"school\"\ndrop = [\"sector\", \"sex\"]").unwrap();
        assert_eq!(population.shape, DataShape::numbers(2, 0));
        let clients = &population.clients;
        assert!(clients.iter().all(|client| **client.train.targets() == Targets::None));
        let descriptions: Vec<_> = clients.iter().map(|client| schema::describe(client, true)).collect();
        let coding = schema::Coding { standardise: false, constant: true };
        let agreed = schema::Schema::fix(&descriptions, coding).unwrap();
        assert_eq!(agreed.target, schema::TargetSchema::None);
        assert_eq!(agreed.feature_names(), ["score", "ses"]);
        let encoded = agreed.encode(&clients[1].train).unwrap();
        assert_eq!((encoded.len(), encoded.columns(), &**encoded.targets()), (1, 2, &Targets::None));
        assert_eq!(
            fault(SCHOOLS, "client = \"school\"\ntask = \"regression\""),
            "data.task: the table has no target\n  hint: set data.target"
        );
    }

    #[test]
    fn rows_know_their_lines_and_some_clients_are_spoiled() {
        let (_folder, path) = file("t.csv", SCHOOLS);
        let population = make(&path, &format!("{USUAL}\ntest_fraction = 0")).unwrap();
        let lines: Vec<_> = population.lines.iter().map(|lines| lines.train.as_slice()).collect();
        assert_eq!(lines, [&[2, 4, 5, 7][..], &[3, 6]]);
        let (_odd, odd) = file("t.csv", &SCHOOLS.replace('\n', "\r\n").replace("b,", "\r\nb,"));
        let odd = make(&odd, &format!("{USUAL}\ntest_fraction = 0")).unwrap();
        assert_eq!(odd.lines[0].train, [2, 5, 6, 9], "an empty line above every row of b");
        assert_eq!(odd.lines[1].train, [4, 8]);
        assert!(population.outliers.is_empty());
        let numbers = format!("{USUAL}\ndrop = [\"sex\", \"sector\"]\noutliers = 0.5");
        let spoiled = make(&path, &numbers).unwrap();
        assert_eq!(spoiled.outliers.iter().filter(|outlier| **outlier).count(), 1);
        assert!(fault(SCHOOLS, &format!("{USUAL}\noutliers = 0.5")).contains("column `sector` holds words"));
        assert!(
            fault(SCHOOLS, &format!("{USUAL}\noutliers = 1"))
                .contains("data.outliers: got 1, want a number from 0 to below 1")
        );
    }

    #[test]
    fn small_clients_are_named_or_dropped() {
        let text = format!("{USUAL}\nmin_rows = 3");
        assert_eq!(
            fault(SCHOOLS, &text),
            "t.csv: clients with fewer than 3 rows: b (2)\n  hint: set data.small = \"drop\" to leave them out, or a \
             smaller data.min_rows"
        );
        let (_folder, path) = file("t.csv", SCHOOLS);
        let population = make(&path, &format!("{text}\nsmall = \"drop\"")).unwrap();
        assert_eq!(population.clients.len(), 1);
        let text = format!("{USUAL}\nmin_rows = 9\nsmall = \"drop\"");
        assert_eq!(fault(SCHOOLS, &text), "data.min_rows: none of the 2 clients has 9 rows");
    }

    #[test]
    fn a_byte_order_mark_and_tabs_are_understood() {
        let (_folder, path) = file("t.tsv", &format!("\u{feff}{}", SCHOOLS.replace(',', "\t")));
        assert_eq!(make(&path, USUAL).unwrap().clients.len(), 2);
    }

    #[cfg(feature = "parquet")]
    mod parquet {
        use super::*;
        use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
        use ::parquet::file::writer::SerializedFileWriter;
        use ::parquet::schema::parser::parse_message_type;
        use rand::RngExt;
        use std::fs::File;

        #[test]
        fn malformed_parquet_files_are_faults_of_the_data_and_no_panics() {
            let scores: Vec<Option<f64>> = (0..40).map(|row| (row % 7 > 0).then(|| f64::from(row) * 0.5)).collect();
            let (_folder, path) = parquet_file(&scores);
            let sound = fs::read(&path).unwrap();
            let mut rng = Key::new(5).word("malformed").rng();
            for _ in 0..600 {
                let mut bytes = sound.clone();
                for _ in 0..rng.random_range(1..4) {
                    let place = rng.random_range(0..bytes.len());
                    bytes[place] =
                        if rng.random() { rng.random() } else { bytes[place] ^ (1 << rng.random_range(0..8)) };
                }
                fs::write(&path, bytes).unwrap();
                if let Err(error) = make(&path, USUAL) {
                    assert!(error.kind().is_input(), "{error}");
                }
            }
        }

        fn parquet_file(scores: &[Option<f64>]) -> (TempDir, String) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("t.parquet");
            let message = "message t { required int64 school; required binary sex (UTF8); optional double score; \
                required int32 day (DATE); }";
            let schema = Arc::new(parse_message_type(message).unwrap());
            let file = File::create(&path).unwrap();
            let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
            let mut group = writer.next_row_group().unwrap();
            let count = scores.len();
            let mut index = 0;
            while let Some(mut column) = group.next_column().unwrap() {
                match index {
                    0 => {
                        let ids: Vec<i64> = (0..count as i64).map(|row| row % 2 + 1).collect();
                        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
                    }
                    1 => {
                        let words: Vec<ByteArray> = (0..count).map(|row| ["f", "m"][row % 2].into()).collect();
                        column.typed::<ByteArrayType>().write_batch(&words, None, None).unwrap();
                    }
                    2 => {
                        let levels: Vec<i16> = scores.iter().map(|score| i16::from(score.is_some())).collect();
                        let values: Vec<f64> = scores.iter().flatten().copied().collect();
                        column.typed::<DoubleType>().write_batch(&values, Some(&levels), None).unwrap();
                    }
                    _ => {
                        let days = vec![18000; count];
                        column.typed::<Int32Type>().write_batch(&days, None, None).unwrap();
                    }
                }
                column.close().unwrap();
                index += 1;
            }
            group.close().unwrap();
            writer.close().unwrap();
            let path = path.display().to_string();
            (folder, path)
        }

        #[test]
        fn parquet_files_are_read_with_their_types() {
            let (_folder, path) = parquet_file(&[Some(0.5), Some(1.5), Some(2.5), Some(3.5)]);
            let population = make(&path, &format!("{USUAL}\ndrop = [\"day\"]\ntest_fraction = 0")).unwrap();
            assert_eq!(population.clients.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["1", "2"]);
            assert_eq!(population.clients[1].train.values(), Some(&[1.5, 3.5][..]));
            let text = make(&path, USUAL).unwrap_err().to_string();
            assert!(text.contains("row 1: column `day` holds 2019-04-14"), "{text}");
            let (_folder, path) = parquet_file(&[Some(0.5), None]);
            let text = make(&path, &format!("{USUAL}\ndrop = [\"day\"]")).unwrap_err().to_string();
            assert!(text.contains("t.parquet row 2: column `score` has no value"), "{text}");
        }
    }
}
