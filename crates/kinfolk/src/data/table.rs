//! Clients from a table: a file with a column that names the client of every row.
//!
//! Files are text with a delimiter, Parquet, or Arrow (`files/`). Whether a column holds numbers, words or dates is found from
//! its cells, where the file does not say it. Missing values are refused unless the settings say that they are filled in, or that
//! their rows are left out; rows without a target are left out then.
//!
//! Without a target rows are features only, and only mixtures can be fitted to them.
//!
//! With `task = "auto"` words are classes. Numbers are classes when they are whole, have at most 20 different values and
//! each value comes three times on average, as labels do; all others are a regression target. With `task = "words"`, words and numbers of
//! two values are classes.

use super::contamination::{Spoiling, contaminate};
use super::files::{Header, Input, MissingCells, Role, Source, Table, find_roles};
use super::split::{divide, draw_lots, hold_out, hold_out_last};
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
    pub enum Task { Auto = "auto", Regression = "regression", Classification = "classification", Words = "words" }
    /// What to do about small clients.
    pub enum Small { Error = "error", Drop = "drop" }
    /// What to do about missing values.
    pub enum Missing { Refuse = "refuse", Fill = "fill", Drop = "drop" }
}

settings! {
    /// Settings of a table.
    pub struct TableSettings {
        /// the file: csv, tsv, txt, also with .gz, or parquet, arrow, feather
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
        /// columns of numbers that are names, such as a district's
        words: Vec<String> = [],
        /// most kinds of words in a column; rarer ones are one kind together
        kinds: usize [1..=1 << 20] = 50,
        /// whether numbers may bend: each becomes a natural spline; for the method auto, which decides whether it pays
        curves: bool = false,
        /// leave out columns of words and dates, and mark no missing numbers: for mixtures
        numbers_only: bool = false,
        /// whether no column need be a feature: for the method auto, whose clients then differ in their means
        means_alone: bool = false,
        /// whether missing values are refused, or filled in: by the mean and a column that says where; words: a kind; or rows with one left out
        missing: Missing = "refuse",
        /// the column of the rows' weights, which `fit` counts them by; not a feature
        weight: Option<String>,
        /// what the target is
        task: Task = "auto",
        /// give every column of numbers mean 0 and deviation 1 over all clients
        standardise: bool = true,
        /// share of a client's rows kept for testing
        test_fraction: f64 [0.0..1.0] = 0.2,
        /// the column that says of every row whether it is for training (train) or testing (test); not a feature
        part: Option<String>,
        /// the column of the rows' times: the last rows of every client are kept for testing
        time: Option<String>,
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
        if self.part.is_some() && self.time.is_some() {
            check.fault_with_hint("part", "data.time divides the rows already", "leave one of them out");
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
    const SUMMARY: &str = "a file of rows with a column that names the client";

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

/// The clients of a table that need not be the file of the settings, without contamination.
#[cfg(feature = "parquet")]
pub(crate) fn build_from(input: Input, settings: &TableSettings, seed: u64) -> Result<Population> {
    build_of(input, settings, seed, None, |target| target)
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
    build_of(Input::from(&settings.path), settings, seed, only, make_target)
}

fn build_of(
    input: Input,
    settings: &TableSettings,
    seed: u64,
    only: Option<&[String]>,
    make_target: impl FnOnce(Column) -> Column,
) -> Result<Population> {
    let path = input.path();
    let missing = match settings.missing {
        Missing::Refuse => MissingCells::Refused("fill in all such cells with data.missing = \"fill\""),
        Missing::Fill | Missing::Drop => MissingCells::Kept,
    };
    let drop = |name: &str| format!("data.drop = [{name:?}]");
    let source = Source { input, header: Header::Always, drop, missing, known: None };
    let Some(read) = source.read(&|names| roles(path, names, only, settings)) else {
        let message = format!(
            "data.path: got {}, want a file that ends in .csv, .tsv, .txt, .parquet, .arrow or .feather",
            path.display()
        );
        return Err(Error::settings(message).hint("save a workbook as CSV"));
    };
    let (mut table, mut remarks) = read?;
    if table.lines.is_empty() {
        return Err(Error::data(format!("{}: no rows below the header", path.display())));
    }
    let mut take = |name: Option<&String>| name.and_then(|name| table.take(name));
    let words = |column: Option<Column>| match column.map(|column| column.values) {
        Some(Cells::Words(words)) => Some(words),
        _ => None,
    };
    let (ids, groups, truths, parts) = (
        words(take(Some(&settings.client))),
        words(take(settings.group.as_ref())),
        words(take(settings.truth.as_ref())),
        words(take(settings.part.as_ref())),
    );
    let target = take(settings.target.as_ref());
    let weights = take(settings.weight.as_ref());
    let Some(ids) = ids else {
        return Err(Error::data(format!("{}: no client column", path.display())));
    };
    let times = match &settings.time {
        Some(name) => Some(times(path, &mut table, name, settings.drop.contains(name))?),
        None => None,
    };
    if table.columns.is_empty() && settings.means_alone {
        table.columns.push(Column::none(table.lines.len()));
    }
    if table.columns.is_empty() {
        return Err(Error::data(format!("{}: no column is left as a feature", path.display()))
            .hint("want a column besides the client's and the target's"));
    }
    let weights = weights.map(|column| check_weights(path, &table.lines, column)).transpose()?;
    if let (Some(weights), Some(name)) = (&weights, &settings.weight) {
        let without = weights.iter().filter(|weight| **weight == 0.0).count();
        if without > 0 {
            remarks.push(format!("{} left out, with the weight 0 in column `{name}`", rows_are(without)));
        }
    }
    let is_test = parts.map(|parts| check_parts(path, &table.lines, &parts, settings.part.as_deref())).transpose()?;
    let has_target = target.as_ref().map(|target| present(&target.values));
    if let (Some(has_target), Some(name)) = (&has_target, &settings.target) {
        let without = has_target.iter().filter(|has_target| !**has_target).count();
        if without > 0 {
            remarks.push(format!("{} left out, without a value in column `{name}`", rows_are(without)));
        }
    }

    let mut is_whole = vec![true; table.lines.len()];
    if settings.missing == Missing::Drop {
        for column in &table.columns {
            is_whole.iter_mut().zip(present(&column.values)).for_each(|(whole, present)| *whole &= present);
        }
        let broken = is_whole.iter().filter(|whole| !**whole).count();
        if broken == is_whole.len() {
            return Err(Error::data(format!("{}: every row has a missing value", path.display()))
                .hint("fill them in with data.missing = \"fill\", or leave columns out with data.drop"));
        }
        if broken > 0 {
            remarks.push(format!("{} left out, with missing values", rows_are(broken)));
        }
    }

    let counts = |row: usize| {
        is_whole[row]
            && has_target.as_ref().is_none_or(|has_target| has_target[row])
            && weights.as_ref().is_none_or(|weights| weights[row] > 0.0)
    };
    let mut members = members(path, &ids, counts, settings, &mut remarks)?;
    if let Some(times) = &times {
        // Whoever cuts the rows of a client into folds finds them in the order of time.
        members.iter_mut().for_each(|member| member.rows.sort_by(|a, b| times[*a].total_cmp(&times[*b])));
    }
    if let Some(is_test) = &is_test {
        leave_out_untrained(path, &mut members, is_test, &mut remarks)?;
    }
    let key = key(seed);
    let share = settings.test_fraction;
    let order = divide(members.iter().map(|member| (member.id, &member.rows)), |id, rows| match (&is_test, &times) {
        (Some(is_test), _) => rows.iter().map(|row| is_test[*row]).collect(),
        (None, Some(times)) => hold_out_last(&rows.iter().map(|row| times[*row]).collect::<Vec<f64>>(), share),
        (None, None) => hold_out(rows.len(), share, &key.clone().word("test").word(id)),
    });
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
            Cells::Dates(times) => Cells::Dates(pick(times, &order.rows)),
        },
    });
    let features = Arc::new(Features::Columns(columns.collect()));
    // A usual training row has the weight 1.
    let weights = weights.map(|weights| pick(weights, &order.rows));
    let mean_weight = weights.as_ref().map(|weights| {
        let (sum, count) = order
            .train
            .iter()
            .flat_map(|rows| &weights[rows.clone()])
            .fold((0.0, 0), |(sum, count), weight| (sum + weight, count + 1));
        sum / f64::from(count)
    });
    let relative = |weights: Vec<f64>| weights.into_iter().map(|weight| weight / mean_weight.unwrap_or(1.0)).collect();
    let weights: Option<Arc<Vec<f64>>> = weights.map(|weights| Arc::new(relative(weights)));
    let shard =
        |rows: &Range<usize>| Shard::of(features.clone(), targets.clone(), rows.clone())?.weighted(weights.clone());
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
        remarks,
        notation: table.notation,
        mean_weight,
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
        ("part", settings.part.as_ref(), Role::Name),
        ("time", settings.time.as_ref(), Role::Value),
        ("weight", settings.weight.as_ref(), Role::Number),
        ("target", settings.target.as_ref(), Role::Value),
    ];
    let wanted = singles.into_iter().filter_map(|(setting, name, role)| Some((setting, name?, role)));
    // Times order the rows even where they are not to be a feature.
    let dropped = settings.drop.iter().filter(|name| Some(*name) != settings.time.as_ref());
    let wanted = wanted.chain(dropped.map(|name| ("drop", name, Role::Dropped)));
    let wanted = wanted.chain(settings.words.iter().map(|name| ("words", name, Role::Words)));
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

/// Which cells have a value.
fn present(cells: &Cells) -> Vec<bool> {
    match cells {
        Cells::Numbers(values) | Cells::Dates(values) => values.iter().map(|value| !value.is_nan()).collect(),
        Cells::Words(words) => words.iter().map(|word| !word.is_empty()).collect(),
    }
}

/// The times of the rows. The column stays a feature unless it is dropped.
fn times(path: &Path, table: &mut Table, name: &str, dropped: bool) -> Result<Vec<f64>> {
    let place = table.columns.iter().position(|column| column.name == name);
    let times = match place.map(|place| &table.columns[place].values) {
        Some(Cells::Numbers(times) | Cells::Dates(times)) => times.clone(),
        _ => {
            let message = format!("{}: column `{name}` holds words, want times", path.display());
            return Err(Error::data(message).hint("write them as 2020-12-31, 2020-12-31 23:59, or numbers"));
        }
    };
    if let Some(row) = times.iter().position(|time| time.is_nan()) {
        let message = format!("{} row {}: column `{name}` has no value", path.display(), table.lines[row]);
        return Err(Error::data(message).hint("data.time needs one in every row: fill it in or delete the row"));
    }
    if dropped {
        table.take(name);
    }
    Ok(times)
}

fn check_weights(path: &Path, lines: &[u64], column: Column) -> Result<Vec<f64>> {
    let name = &column.name;
    let Cells::Numbers(weights) = column.values else {
        return Err(Error::data(format!("{}: column `{name}` holds no numbers, want weights", path.display())));
    };
    match weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
        None => Ok(weights),
        Some(row) => {
            let found = if weights[row].is_nan() { "no number".to_string() } else { weights[row].to_string() };
            let message = format!("{} row {}: column `{name}` holds {found}", path.display(), lines[row]);
            Err(Error::data(format!("{message}, want a weight of at least 0")).hint("mend it or delete the row"))
        }
    }
}

fn rows_are(count: usize) -> String {
    if count == 1 { "1 row is".into() } else { format!("{count} rows are") }
}

/// Which rows are for testing.
fn check_parts(path: &Path, lines: &[u64], parts: &[String], column: Option<&str>) -> Result<Vec<bool>> {
    let is_test = |(row, part): (usize, &String)| match part.to_lowercase().as_str() {
        "train" | "training" => Ok(false),
        "test" | "testing" => Ok(true),
        _ => {
            let (line, column) = (lines[row], column.unwrap_or_default());
            let message = format!("{} row {line}: column `{column}` holds `{part}`", path.display());
            Err(Error::data(format!("{message}, want `train` or `test`")))
        }
    };
    parts.iter().enumerate().map(is_test).collect()
}

/// The clients in the order of their first rows, without those that are too small, of the rows that have a target.
fn members<'a>(
    path: &Path,
    ids: &'a [String],
    counts: impl Fn(usize) -> bool,
    settings: &TableSettings,
    remarks: &mut Vec<String>,
) -> Result<Vec<Member<'a>>> {
    let mut places = HashMap::new();
    let mut members: Vec<Member> = Vec::new();
    for (row, id) in ids.iter().enumerate().filter(|(row, _)| counts(*row)) {
        let place = *places.entry(id.as_str()).or_insert(members.len());
        if place == members.len() {
            members.push(Member { id, rows: Vec::new() });
        }
        members[place].rows.push(row);
    }
    let least = settings.min_rows;
    let all = members.len();
    remarks.extend(alike(&members));
    if all == 0 {
        let target = settings.target.as_deref().unwrap_or_default();
        return Err(Error::data(format!("{}: no row has a value in column `{target}`", path.display())));
    }
    let small: Vec<String> = members
        .iter()
        .filter(|member| member.rows.len() < least)
        .map(|member| format!("{} ({})", member.id, member.rows.len()))
        .collect();
    if small.len() == all {
        return Err(Error::settings(format!("data.min_rows: none of the {all} clients has {least} rows")));
    }
    if !small.is_empty() {
        let some = some(&small);
        if settings.small == Small::Error {
            let message = format!("{}: clients with fewer than {least} rows: {some}", path.display());
            return Err(
                Error::data(message).hint("set data.small = \"drop\" to leave them out, or a smaller data.min_rows")
            );
        }
        remarks.push(format!("left out, with fewer than {least} rows: {some}"));
    }
    members.retain(|member| member.rows.len() >= least);
    Ok(members)
}

/// A note on clients whose names differ by case or blanks alone, and may be one client.
fn alike<'a>(members: &[Member<'a>]) -> Option<String> {
    let plain = |id: &str| id.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let mut first: HashMap<String, &'a str> = HashMap::new();
    let twin = |member: &Member<'a>| {
        let known = *first.entry(plain(member.id)).or_insert(member.id);
        (known != member.id).then(|| format!("`{known}` and `{}`", member.id))
    };
    let pairs: Vec<String> = members.iter().filter_map(twin).collect();
    (!pairs.is_empty())
        .then(|| format!("clients whose names differ by case or blanks alone are different ones: {}", some(&pairs)))
}

/// Leaves out clients all of whose rows are for testing.
fn leave_out_untrained(
    path: &Path,
    members: &mut Vec<Member>,
    is_test: &[bool],
    remarks: &mut Vec<String>,
) -> Result<()> {
    let (trained, untrained): (Vec<Member>, Vec<Member>) =
        std::mem::take(members).into_iter().partition(|member| member.rows.iter().any(|row| !is_test[*row]));
    if trained.is_empty() {
        return Err(Error::data(format!("{}: no row is for training", path.display())));
    }
    if !untrained.is_empty() {
        let names: Vec<&str> = untrained.iter().map(|member| member.id).collect();
        remarks.push(format!("left out, without rows for training: {}", some(&names)));
    }
    *members = trained;
    Ok(())
}

/// The first of some names, and how many more there are.
fn some<T: std::borrow::Borrow<str>>(names: &[T]) -> String {
    const NAMED: usize = 5;
    match names.split_at_checked(NAMED) {
        Some((first, more)) if !more.is_empty() => format!("{} and {} more", first.join(", "), more.len()),
        _ => names.join(", "),
    }
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
        (Cells::Dates(_), _) => {
            let message = format!("{}: column `{}` holds dates", path.display(), column.name);
            Err(Error::data(message + ", want a target of numbers or words").hint("name another column in data.target"))
        }
        (Cells::Numbers(values), Task::Regression) => Ok(Targets::Values(values)),
        (Cells::Numbers(values), Task::Classification) => Ok(named(values)),
        (Cells::Numbers(values), Task::Words) => {
            let mut different = BTreeSet::new();
            let two = values.iter().all(|value| {
                different.insert((value + 0.0).to_bits());
                different.len() <= 2
            });
            Ok(if two && different.len() == 2 { named(values) } else { Targets::Values(values) })
        }
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
mod tests;
