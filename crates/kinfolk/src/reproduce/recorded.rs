//! Numbers that were measured before, beside which a reproduction is put: `expected.json` for full runs, `quick.json` for
//! cut-down ones, in the folder of every paper.

use super::{ExperimentResult, Judge};
use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// What was measured for one paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    paper: String,
    /// The type of CPU, where every bit counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu: Option<String>,
    experiments: Vec<RecordedExperiment>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RecordedExperiment {
    experiment: String,
    cells: Vec<RecordedCell>,
}

/// One number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedCell {
    cell: String,
    /// Absent where a repeat gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ours: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sd: Option<f64>,
    pub(super) repeats: usize,
}

/// How close a number must come to the recorded one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Closeness {
    /// Within what chance may do, and no worse where the cell says what is worse.
    Chance,
    /// Cut down, on the same type of CPU: the same seeds give the same numbers.
    SameBits,
    /// Cut down, on another: rounding differs, and what is trained on it drifts.
    OtherCpu,
}

/// Standard errors that chance may amount to.
const ERRORS: f64 = 4.0;
/// Shares of a number by which it may change where no deviation is known: with the same seeds, and with others.
const SAME_SEEDS: f64 = 0.02;
const OTHER_SEEDS: f64 = 0.2;
/// Shares for cut-down runs.
const ROUNDING: f64 = 1e-6;
const DRIFT: f64 = 0.1;

impl Recorded {
    /// Reads what a file holds.
    pub(super) fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::data(format!("recorded numbers: {error}")))
    }

    /// What has just been measured, as such a file.
    pub fn of(paper: &str, results: &[ExperimentResult]) -> Self {
        let cell = |cell: &super::CellResult| RecordedCell {
            cell: cell.cell.clone(),
            ours: cell.ours,
            sd: cell.sd,
            repeats: cell.repeats,
        };
        let experiment = |result: &ExperimentResult| RecordedExperiment {
            experiment: result.experiment.clone(),
            cells: result.cells.iter().map(cell).collect(),
        };
        let experiments = results.iter().map(experiment).collect();
        Self { paper: paper.to_string(), cpu: Some(cpu().to_string()), experiments }
    }

    /// The text of such a file, one cell a line.
    pub fn to_json(&self) -> Result<String> {
        let failed = |error| Error::new(ErrorKind::Io, format!("recorded numbers: {error}"));
        let experiment = |recorded: &RecordedExperiment| {
            let cells: Vec<String> =
                recorded.cells.iter().map(serde_json::to_string).collect::<std::result::Result<_, _>>()?;
            let name = serde_json::to_string(&recorded.experiment)?;
            Ok(format!("  {{\"experiment\": {name}, \"cells\": [\n    {}\n  ]}}", cells.join(",\n    ")))
        };
        let experiments: Vec<String> =
            self.experiments.iter().map(experiment).collect::<std::result::Result<_, _>>().map_err(failed)?;
        let [paper, cpu] = [serde_json::to_string(&self.paper), serde_json::to_string(&self.cpu)];
        let (paper, cpu) = (paper.map_err(failed)?, cpu.map_err(failed)?);
        let experiments = experiments.join(",\n");
        Ok(format!("{{\n\"paper\": {paper},\n\"cpu\": {cpu},\n\"experiments\": [\n{experiments}\n]\n}}"))
    }

    pub(super) fn find(&self, experiment: &str, cell: &str) -> Option<&RecordedCell> {
        let experiment = self.experiments.iter().find(|recorded| recorded.experiment == experiment)?;
        experiment.cells.iter().find(|recorded| recorded.cell == cell)
    }

    pub(super) fn closeness(&self, quick: bool) -> Closeness {
        match (quick, self.cpu.as_deref()) {
            (false, _) => Closeness::Chance,
            (true, recorded) if recorded == Some(cpu()) => Closeness::SameBits,
            (true, _) => Closeness::OtherCpu,
        }
    }

    /// The names of all cells, each beside its experiment.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.experiments
            .iter()
            .flat_map(|experiment| experiment.cells.iter().map(|cell| (&*experiment.experiment, &*cell.cell)))
    }
}

impl RecordedCell {
    /// Whether a number over so many repeats is what this one lets expect; `None` where that cannot be said, as a cut-down
    /// run with another number of repeats is another run.
    pub(super) fn holds(
        &self,
        judge: Judge,
        (ours, sd, repeats): (Option<f64>, Option<f64>, usize),
        closeness: Closeness,
    ) -> Option<bool> {
        let Some(recorded) = self.ours else { return Some(true) };
        if closeness != Closeness::Chance && repeats != self.repeats {
            return None;
        }
        let Some(ours) = ours else { return Some(false) };
        let rounding = ROUNDING * recorded.abs() + 1e-9;
        let tolerance = match (closeness, sd.into_iter().chain(self.sd).reduce(f64::max)) {
            (Closeness::SameBits, _) => rounding,
            (Closeness::OtherCpu, _) => DRIFT * recorded.abs() + rounding,
            (Closeness::Chance, Some(sd)) => {
                ERRORS * sd * (1.0 / repeats as f64 + 1.0 / self.repeats as f64).sqrt() + rounding
            }
            (Closeness::Chance, None) if repeats == self.repeats => SAME_SEEDS * recorded.abs() + rounding,
            (Closeness::Chance, None) => OTHER_SEEDS * recorded.abs() + rounding,
        };
        let (too_low, too_high) = (ours < recorded - tolerance, ours > recorded + tolerance);
        Some(match (closeness, judge) {
            (Closeness::Chance, Judge::AtLeast(_)) => !too_low,
            (Closeness::Chance, Judge::AtMost(_) | Judge::AtMostReference(_)) => !too_high,
            _ => !too_low && !too_high,
        })
    }
}

/// The type of CPU as far as it decides how numbers are rounded.
pub fn cpu() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "x86-64 with AVX-512";
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return "x86-64 with AVX2";
        }
    }
    std::env::consts::ARCH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(ours: f64, sd: Option<f64>, repeats: usize) -> RecordedCell {
        RecordedCell { cell: "a".into(), ours: Some(ours), sd, repeats }
    }

    #[test]
    fn harm_well_below_the_papers_limit_is_seen() {
        // FedGrEM on pen digits: the paper's error is 9.62, ours was 4.43 ± 0.42 over 50 seeds.
        let cell = recorded(4.43, Some(0.42), 50);
        let holds = |ours: f64| cell.holds(Judge::AtMost(0.0), (Some(ours), Some(0.4), 50), Closeness::Chance);
        // 4 · 0.42 · √(2/50) = 0.336.
        assert_eq!([4.0, 4.43, 4.76, 4.77, 9.0].map(holds), [true, true, true, false, false].map(Some));
        let better = recorded(95.0, Some(0.1), 5);
        let holds = |ours: f64| better.holds(Judge::AtLeast(0.3), (Some(ours), None, 5), Closeness::Chance);
        assert_eq!([94.7, 94.8, 99.0].map(holds), [false, true, true].map(Some));
    }

    #[test]
    fn without_a_deviation_the_same_seeds_are_near_and_others_may_differ() {
        let cell = recorded(100.0, None, 1);
        let holds = |ours: f64, repeats| cell.holds(Judge::Shown, (Some(ours), None, repeats), Closeness::Chance);
        assert_eq!([97.9, 98.1, 102.1].map(|ours| holds(ours, 1)), [false, true, false].map(Some));
        assert_eq!(holds(85.0, 3), Some(true));
        assert_eq!(cell.holds(Judge::Shown, (None, None, 1), Closeness::Chance), Some(false));
    }

    #[test]
    fn a_cut_down_run_gives_the_same_numbers_again() {
        let cell = recorded(0.5, None, 2);
        let holds = |ours: f64, closeness| cell.holds(Judge::AtLeast(9.0), (Some(ours), None, 2), closeness);
        assert_eq!(holds(0.5 + 4e-7, Closeness::SameBits), Some(true));
        assert_eq!(holds(0.5 + 1e-6, Closeness::SameBits), Some(false));
        assert_eq!([holds(0.54, Closeness::OtherCpu), holds(0.56, Closeness::OtherCpu)], [Some(true), Some(false)]);
        assert_eq!(cell.holds(Judge::Shown, (Some(3.0), None, 5), Closeness::SameBits), None);
    }
}
