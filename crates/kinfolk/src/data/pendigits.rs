//! Pen-Based Recognition of Handwritten Digits: 44 people wrote about 250 digits each on a tablet. A digit is 8 points
//! along the trace of the pen, 16 numbers from 0 to 100. Writers are clients, and the digits are classes.

use super::contamination::{Spoiling, contaminate};
use super::table::{self, TableSettings, Task};
use super::*;

/// The file with the columns f0 to f15, digit and writer.
pub(super) const FILE: &str = "pendigits_writer.csv";

settings! {
    /// Settings of the pen digits.
    pub struct PenDigitSettings {
        /// use only the first so many writers
        clients: Option<usize> [1..=44],
        /// share of a client's rows kept for testing
        test_fraction: f64 [0.0..1.0] = 0.2,
        /// give every column of numbers mean 0 and deviation 1 over all clients
        standardise: bool = false,
        /// outliers among the clients
        spoiling: Spoiling,
    }
}

impl SourceSettings for PenDigitSettings {
    const NAME: &str = "pendigits";
    const SUMMARY: &str = "10 992 digits written with a pen by 44 people, as 8 points each";

    fn build(self, seed: u64) -> Result<Population> {
        self.build_from(&cache::find("pendigits")?.join(FILE), seed)
    }
}

impl PenDigitSettings {
    /// The writers of this file, by their numbers.
    fn build_from(&self, path: &Path, seed: u64) -> Result<Population> {
        let as_table = TableSettings {
            task: Task::Classification,
            test_fraction: self.test_fraction,
            ..TableSettings::new(path, "writer", "digit")
        };
        let mut population = table::build_with(&as_table, seed, None, |digit| digit)?;
        let mut writers: Vec<_> = population.clients.into_iter().zip(population.lines).collect();
        writers.sort_by_key(|(writer, _)| writer.id.parse().unwrap_or(u64::MAX));
        writers.truncate(self.clients.unwrap_or(usize::MAX));
        (population.clients, population.lines) = writers.into_iter().unzip();
        contaminate(&mut population, &self.spoiling, &table::key(seed))?;
        Ok(population)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Cells, DataShape, Features, Targets};
    use crate::settings::Declared;

    fn make(text: &str, seed: u64) -> Result<Population> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let names: Vec<String> = (0..16).map(|column| format!("f{column}")).collect();
        let mut content = format!("{},digit,writer\n", names.join(","));
        for row in 0..60 {
            let points: Vec<String> = (0..16).map(|column| (row * column % 101).to_string()).collect();
            content += &format!("{},{},{}\n", points.join(","), row % 10, [11, 2, 1][row % 3]);
        }
        fs::write(&path, content).unwrap();
        let settings = PenDigitSettings::from_table("data", toml::from_str(text).unwrap())?;
        settings.build_from(&path, seed)
    }

    #[test]
    fn writers_are_clients_by_their_numbers() {
        let population = make("", 1).unwrap();
        let told: Vec<_> = (population.clients.iter())
            .map(|writer| (writer.id.as_str(), writer.train.len(), writer.test.len()))
            .collect();
        assert_eq!(told, [("1", 16, 4), ("2", 16, 4), ("11", 16, 4)]);
        assert_eq!(population.shape, DataShape::numbers(16, 10));
        for (writer, lines) in population.clients.iter().zip(&population.lines) {
            for (shard, lines) in [(&writer.train, &lines.train), (&writer.test, &lines.test)] {
                let Features::Columns(columns) = &**shard.features() else { panic!() };
                let Cells::Numbers(second) = &columns[1].values else { panic!() };
                let Targets::Words(digits) = &**shard.targets() else { panic!() };
                // Line 2 is row 0, whose second column is its number.
                assert_eq!(lines.len(), shard.len());
                for (place, line) in shard.rows().zip(lines) {
                    assert_eq!((second[place], &digits[place]), ((line - 2) as f64, &((line - 2) % 10).to_string()));
                }
            }
        }
        assert_ne!(make("", 2).unwrap().lines, population.lines, "another seed splits in another way");
        assert_eq!(make("", 1).unwrap().lines, population.lines);
    }

    #[test]
    fn some_writers_are_left_out_and_some_spoiled() {
        let population = make("clients = 2\noutliers = 0.5", 1).unwrap();
        assert_eq!((population.clients.len(), population.lines.len(), population.clients[1].id.as_str()), (2, 2, "2"));
        assert_eq!(population.outliers.iter().filter(|outlier| **outlier).count(), 1);
        let refused = make("outliers = 1.0", 1).unwrap_err().to_string();
        assert_eq!(refused, "data.outliers: got 1.0, want a number from 0 to below 1");
    }
}
