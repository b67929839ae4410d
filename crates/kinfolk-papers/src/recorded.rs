//! Numbers measured before, with which a reproduction is compared: `expected.json` for full runs and `quick.json` for
//! cut-down ones, in the folder of every paper.

use super::{CellResult, ExperimentResult, Judge};
use kinfolk::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// What was measured for one paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    paper: String,
    /// The type of CPU, where every bit counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu: Option<String>,
    /// Cells have our number, its deviation and the number of repeats only.
    experiments: Vec<ExperimentResult>,
}

/// How close a number must come to the recorded one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Closeness {
    /// Within sampling error, and no worse where the cell says what is worse.
    Chance,
    /// Cut down, on the same type of CPU: the same seeds give the same numbers.
    SameBits,
    /// Cut down, on another type of CPU: rounding differs, and training drifts.
    OtherCpu,
}

/// Standard errors attributed to chance.
const ERRORS: f64 = 4.0;
/// Relative change allowed where no deviation is known: with the same seeds, and with others.
const SAME_SEEDS: f64 = 0.02;
const OTHER_SEEDS: f64 = 0.2;
/// Relative change allowed for cut-down runs: on the same type of CPU, and on another.
const ROUNDING: f64 = 1e-6;
const DRIFT: f64 = 0.1;

impl Recorded {
    pub(crate) fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::data(format!("recorded numbers: {error}")))
    }

    /// What has just been measured.
    pub fn of(paper: &str, results: &[ExperimentResult]) -> Self {
        let mut experiments = results.to_vec();
        for cell in experiments.iter_mut().flat_map(|experiment| &mut experiment.cells) {
            let CellResult { cell: name, ours, sd, repeats, .. } = std::mem::take(cell);
            *cell = CellResult { cell: name, ours, sd, repeats, ..CellResult::default() };
        }
        Self { paper: paper.to_string(), cpu: Some(cpu().to_string()), experiments }
    }

    /// The text of the file, one cell a line.
    pub fn to_json(&self) -> Result<String> {
        let mut experiments = Vec::new();
        for recorded in &self.experiments {
            let cells = recorded.cells.iter().map(json).collect::<Result<Vec<_>>>()?.join(",\n    ");
            let name = json(&recorded.experiment)?;
            experiments.push(format!("  {{\"experiment\": {name}, \"cells\": [\n    {cells}\n  ]}}"));
        }
        let (paper, cpu, experiments) = (json(&self.paper)?, json(&self.cpu)?, experiments.join(",\n"));
        Ok(format!("{{\n\"paper\": {paper},\n\"cpu\": {cpu},\n\"experiments\": [\n{experiments}\n]\n}}"))
    }

    pub(crate) fn find(&self, experiment: &str, cell: &str) -> Option<&CellResult> {
        let experiment = self.experiments.iter().find(|recorded| recorded.experiment == experiment)?;
        experiment.cells.iter().find(|recorded| recorded.cell == cell)
    }

    pub(crate) fn closeness(&self, quick: bool) -> Closeness {
        match (quick, self.cpu.as_deref()) {
            (false, _) => Closeness::Chance,
            (true, recorded) if recorded == Some(cpu()) => Closeness::SameBits,
            (true, _) => Closeness::OtherCpu,
        }
    }

    /// The names of all cells, each with its experiment's.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.experiments
            .iter()
            .flat_map(|experiment| experiment.cells.iter().map(|cell| (&*experiment.experiment, &*cell.cell)))
    }
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::new(ErrorKind::Io, format!("recorded numbers: {error}")))
}

impl Closeness {
    /// Whether a number agrees with the recorded one; `None` for cut-down runs with different numbers of repeats.
    pub(crate) fn holds(self, recorded: &CellResult, now: &CellResult, judge: Option<(Judge, f64)>) -> Option<bool> {
        let Some(before) = recorded.ours else { return Some(true) };
        if self != Closeness::Chance && now.repeats != recorded.repeats {
            return None;
        }
        let Some(ours) = now.ours else { return Some(false) };
        let rounding = ROUNDING * before.abs() + 1e-9;
        let tolerance = match (self, now.sd.into_iter().chain(recorded.sd).reduce(f64::max)) {
            (Closeness::SameBits, _) => rounding,
            (Closeness::OtherCpu, _) => DRIFT * before.abs() + rounding,
            (Closeness::Chance, Some(sd)) => {
                ERRORS * sd * (1.0 / now.repeats as f64 + 1.0 / recorded.repeats as f64).sqrt() + rounding
            }
            (Closeness::Chance, None) if now.repeats == recorded.repeats => SAME_SEEDS * before.abs() + rounding,
            (Closeness::Chance, None) => OTHER_SEEDS * before.abs() + rounding,
        };
        let (too_low, too_high) = (ours < before - tolerance, ours > before + tolerance);
        Some(match (self, judge) {
            (Closeness::Chance, Some((Judge::AtLeast, _))) => !too_low,
            (Closeness::Chance, Some((Judge::AtMost | Judge::AtMostReference, _))) => !too_high,
            _ => !too_low && !too_high,
        })
    }
}

/// The type of CPU, as far as rounding depends on it.
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

    fn cell(ours: impl Into<Option<f64>>, sd: Option<f64>, repeats: usize) -> CellResult {
        CellResult { ours: ours.into(), sd, repeats, ..CellResult::default() }
    }

    #[test]
    fn harm_well_below_the_papers_limit_is_seen() {
        // FedGrEM on pen digits: the paper's error is 9.62, ours was 4.43 ± 0.42 over 50 seeds.
        let recorded = cell(4.43, Some(0.42), 50);
        let holds =
            |ours: f64| Closeness::Chance.holds(&recorded, &cell(ours, Some(0.4), 50), Some((Judge::AtMost, 0.0)));
        // 4 · 0.42 · √(2/50) = 0.336.
        assert_eq!([4.0, 4.43, 4.76, 4.77, 9.0].map(holds), [true, true, true, false, false].map(Some));
        let better = cell(95.0, Some(0.1), 5);
        let holds = |ours: f64| Closeness::Chance.holds(&better, &cell(ours, None, 5), Some((Judge::AtLeast, 0.3)));
        assert_eq!([94.7, 94.8, 99.0].map(holds), [false, true, true].map(Some));
    }

    #[test]
    fn without_a_deviation_the_same_seeds_are_near_and_others_may_differ() {
        let holds = |now: CellResult| Closeness::Chance.holds(&cell(100.0, None, 1), &now, None);
        assert_eq!([97.9, 98.1, 102.1].map(|ours| holds(cell(ours, None, 1))), [false, true, false].map(Some));
        assert_eq!(holds(cell(85.0, None, 3)), Some(true));
        assert_eq!(holds(cell(None, None, 1)), Some(false));
    }

    #[test]
    fn a_cut_down_run_gives_the_same_numbers_again() {
        let recorded = cell(0.5, None, 2);
        let holds = |ours: f64, closeness: Closeness| {
            closeness.holds(&recorded, &cell(ours, None, 2), Some((Judge::AtLeast, 9.0)))
        };
        assert_eq!(holds(0.5 + 4e-7, Closeness::SameBits), Some(true));
        assert_eq!(holds(0.5 + 1e-6, Closeness::SameBits), Some(false));
        assert_eq!([holds(0.54, Closeness::OtherCpu), holds(0.56, Closeness::OtherCpu)], [Some(true), Some(false)]);
        assert_eq!(Closeness::SameBits.holds(&recorded, &cell(3.0, None, 5), None), None);
    }
}
