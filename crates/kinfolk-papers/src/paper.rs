//! A paper's folder, and the cases and cells that its `paper.toml` describes.
//!
//! An experiment has an experiment file and groups of cases, each a run with settings to change and cells to read off its
//! record. `each` lists tables of values, whose rows are combined: one case, or one cell, for every combination. Their
//! names in braces stand for them; `{case}` is the case's name.

use crate::formula::Formula;
use crate::scope::{Columns, Number, Scope};
use crate::{Average, Case, Cell, Judge, Paper, Recorded, Reproduction};
use kinfolk::settings::unknown_name;
use kinfolk::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The files of a paper.
pub(crate) struct Folder {
    pub(crate) name: &'static str,
    pub(crate) paper: &'static str,
    pub(crate) experiments: &'static [(&'static str, &'static str)],
    /// What we measured before, in full and cut down.
    pub(crate) recorded: [&'static str; 2],
}

macro_rules! folder {
    ($name:literal: $($file:literal)*) => {
        Folder {
            name: $name,
            paper: include_str!(concat!("../experiments/", $name, "/paper.toml")),
            experiments: &[$(($file, include_str!(concat!("../experiments/", $name, "/", $file)))),*],
            recorded: [
                include_str!(concat!("../experiments/", $name, "/expected.json")),
                include_str!(concat!("../experiments/", $name, "/quick.json")),
            ],
        }
    };
}

pub(crate) static FOLDERS: [Folder; 5] = [
    folder!("ifca": "e1.toml" "e2-1200x200.toml" "e3.toml"),
    folder!("odcl": "e1.toml" "e2.toml" "e3.toml" "e4.toml" "e5.toml" "e6.toml"),
    folder!("known-clusters": "e1.toml" "e2.toml" "e2-pass.toml" "e3.toml"),
    folder!("fedgrem": "e1-gaussian.toml" "e1-regression.toml" "e2.toml" "e3-pendigits.toml" "e3-pendigits-weak.toml"
        "e3-mnist.toml" "e3-fashion-mnist.toml"),
    folder!("sr-fca": "mnist.toml" "local-kmeans.toml" "attack.toml" "writers.toml" "shakespeare.toml"
        "cifar-rotated.toml" "cifar-label.toml"),
];

/// The paper of this name, in full or cut down.
pub fn paper(name: &str, quick: bool) -> Result<Paper> {
    let folder = FOLDERS.iter().find(|folder| folder.name == name);
    let names = || FOLDERS.iter().map(|folder| folder.name).collect::<Vec<_>>();
    folder.ok_or_else(|| unknown_name("reproduce", name, &names()))?.read(quick)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperFile {
    title: String,
    /// Lists of cells, by name.
    cells: BTreeMap<String, Vec<CellPattern>>,
    experiment: Vec<ExperimentPattern>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExperimentPattern {
    name: String,
    title: String,
    /// The experiment file that the cases change.
    file: String,
    case: Vec<CasePattern>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CasePattern {
    name: String,
    #[serde(default)]
    each: Vec<Columns>,
    /// Settings to change, as on the command line.
    #[serde(default)]
    set: Vec<String>,
    /// Further changes to try in turn, until every cell of a repeat is at its best.
    #[serde(default)]
    attempts: Vec<Vec<String>>,
    repeats: Number,
    #[serde(default)]
    long: bool,
    /// The name of the list.
    cells: String,
    #[serde(default)]
    quick: Quick,
}

/// How a case is cut down.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    /// In place of the others.
    each: Option<Vec<Columns>>,
    /// After the others.
    #[serde(default)]
    set: Vec<String>,
    /// One, unless it says otherwise.
    repeats: Option<u64>,
}

/// A cell, or cells that have `each` or `when` in common.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellPattern {
    #[serde(default)]
    each: Vec<Columns>,
    /// Only where this value is true.
    when: Option<String>,
    #[serde(default)]
    cells: Vec<CellPattern>,
    #[serde(default)]
    cell: String,
    #[serde(default)]
    read: String,
    paper: Option<Number>,
    reference: Option<Number>,
    judge: Option<Judge>,
    /// 0, unless it says otherwise; without a judgement where it is absent.
    tolerance: Option<Number>,
    /// `mean`, unless it says otherwise, or `median`.
    average: Option<String>,
    best: Option<f64>,
}

impl Folder {
    pub(crate) fn read(&self, quick: bool) -> Result<Paper> {
        let parse = || {
            let file: PaperFile = toml::from_str(self.paper).map_err(|error| Error::data(error.to_string()))?;
            let experiments = file.experiment.iter().map(|experiment| self.experiment(&file, experiment, quick));
            let experiments = experiments.collect::<Result<Vec<_>>>()?;
            let recorded = Recorded::read(self.recorded[usize::from(quick)])?;
            Ok(Paper { name: self.name, title: file.title, quick, experiments, recorded })
        };
        parse().map_err(|error: Error| error.at(format!("reproduce {}", self.name)))
    }

    fn experiment(&self, file: &PaperFile, pattern: &ExperimentPattern, quick: bool) -> Result<Reproduction> {
        let text = self.experiments.iter().find(|(name, _)| *name == pattern.file).map(|(_, text)| *text);
        let text = text.ok_or_else(|| Error::data(format!("no file {}", pattern.file)))?;
        let mut cases = Vec::new();
        for group in &pattern.case {
            let cells = file.cells.get(&group.cells).ok_or_else(|| Error::data(format!("no cells {}", group.cells)))?;
            for scope in Scope::default().each(group.quick.each.as_ref().filter(|_| quick).unwrap_or(&group.each))? {
                cases.push(group.case(&scope, cells, quick)?);
            }
        }
        Ok(Reproduction { name: pattern.name.clone(), title: pattern.title.clone(), text, cases })
    }
}

impl CasePattern {
    fn case(&self, scope: &Scope, patterns: &[CellPattern], quick: bool) -> Result<Case> {
        let name = scope.text(&self.name)?;
        let scope = scope.with("case", &name);
        let mut changes = scope.texts(&self.set)?;
        changes.extend(self.quick.set.iter().filter(|_| quick).cloned());
        let repeats = match quick {
            true => self.quick.repeats.unwrap_or(1),
            false => scope.number(&self.repeats)?.unwrap_or(1.0) as u64,
        };
        let attempts = if self.attempts.is_empty() { vec![Vec::new()] } else { self.attempts.clone() };
        let mut cells = Vec::new();
        for pattern in patterns {
            pattern.expand(&scope, quick, &mut cells)?;
        }
        Ok(Case { name, changes, attempts, repeats, long: self.long && !quick, cells })
    }
}

impl CellPattern {
    fn expand(&self, scope: &Scope, quick: bool, cells: &mut Vec<Cell>) -> Result<()> {
        if !self.when.as_ref().map_or(Ok(true), |named| scope.holds(named))? {
            return Ok(());
        }
        for scope in scope.each(&self.each)? {
            for pattern in &self.cells {
                pattern.expand(&scope, quick, cells)?;
            }
            if self.cells.is_empty() {
                cells.push(self.cell(&scope, quick)?);
            }
        }
        Ok(())
    }

    /// The cell; a cut-down one compares with no paper.
    fn cell(&self, scope: &Scope, quick: bool) -> Result<Cell> {
        let number = |number: &Option<Number>| match number {
            Some(number) if !quick => scope.number(number),
            _ => Ok(None),
        };
        let tolerance = if self.tolerance.is_none() { Some(0.0) } else { number(&self.tolerance)? };
        let mut name = scope.text(&self.cell)?;
        let average = match self.average.as_ref().map(|average| scope.text(average)).transpose()?.as_deref() {
            None | Some("mean") => Average::Mean,
            Some("median") => {
                name += ", median";
                Average::Median
            }
            Some(other) => return Err(unknown_name("average", other, &["mean", "median"])),
        };
        let (paper, reference) = (number(&self.paper)?, number(&self.reference)?);
        let read = Formula::parse(&scope.text(&self.read)?)?;
        Ok(Cell { name, paper, reference, judge: self.judge.zip(tolerance), average, read, best: self.best })
    }
}
