//! High School and Beyond: 7185 pupils of 160 schools with their scores in mathematics, a classic example of hierarchical
//! models. Schools are clients, and their sector (public or Catholic) is the known group.

use super::table::{self, TableSettings};
use super::*;

/// The file with the columns school, sector, minority, sex, ses, mean_ses and math_achievement.
pub(super) const FILE: &str = "high-school-and-beyond.csv";

choices! {
    /// The target.
    pub enum SchoolTarget { Score = "score", Pass = "pass" }
}

settings! {
    /// Settings of the schools.
    pub struct SchoolSettings {
        /// the score in mathematics, or whether it is at least the median of all pupils
        target: SchoolTarget = "score",
        /// columns to leave out
        drop: Vec<String> = [],
        /// give every column of numbers mean 0 and deviation 1 over all clients
        standardise: bool = true,
        /// share of a client's rows kept for testing
        test_fraction: f64 [0.0..1.0] = 0.2,
        /// share of clients met only after training
        unseen_clients: f64 [0.0..1.0] = 0.0,
    }
}

impl SourceSettings for SchoolSettings {
    const NAME: &str = "schools";
    const SUMMARY: &str = "7185 pupils of 160 public and Catholic schools, and how good they are at mathematics";

    fn build(self, seed: u64) -> Result<Population> {
        self.build_from(&cache::find("schools")?.join(FILE), seed)
    }
}

impl SchoolSettings {
    /// The schools of this file. The median that divides pass from fail is over all schools: it is part of the task.
    fn build_from(self, path: &Path, seed: u64) -> Result<Population> {
        let as_table = TableSettings {
            group: Some("sector".into()),
            drop: self.drop,
            test_fraction: self.test_fraction,
            unseen_clients: self.unseen_clients,
            ..TableSettings::new(path, "school", "math_achievement")
        };
        let pass = self.target == SchoolTarget::Pass;
        table::build_with(&as_table, seed, None, |score| if pass { passed(score) } else { score })
    }
}

/// Scores as `pass`, from the median on, and `fail`.
fn passed(column: Column) -> Column {
    let Cells::Numbers(scores) = column.values else { return column };
    let mut sorted = scores.clone();
    sorted.sort_by(f64::total_cmp);
    // The upper of two middle values divides as their mean does.
    let median = sorted[sorted.len() / 2];
    let word = |score: &f64| if *score >= median { "pass" } else { "fail" };
    Column { values: Cells::Words(scores.iter().map(|score| word(score).to_string()).collect()), ..column }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DataShape, Features, Targets};
    use crate::settings::Declared;

    fn make(text: &str) -> Result<Population> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let mut content = "school,sector,minority,sex,ses,mean_ses,math_achievement\n".to_string();
        for row in 0..12 {
            let (school, sector) = [(1224, "Public"), (1308, "Catholic"), (1288, "Public")][row % 3];
            let sex = ["Female", "Male"][row / 3 % 2];
            content += &format!("{school},{sector},No,{sex},{}.5,0.1,{row}.5\n", row / 2);
        }
        fs::write(&path, content).unwrap();
        let settings = SchoolSettings::from_table("data", toml::from_str(text).unwrap())?;
        settings.build_from(&path, 3)
    }

    #[test]
    fn schools_are_clients_in_sectors() {
        let population = make("test_fraction = 0.25").unwrap();
        let told: Vec<_> = (population.clients.iter())
            .map(|school| (school.id.as_str(), school.group.as_deref().unwrap(), school.train.len(), school.test.len()))
            .collect();
        assert_eq!(told, [("1224", "Public", 3, 1), ("1308", "Catholic", 3, 1), ("1288", "Public", 3, 1)]);
        assert_eq!(population.shape, DataShape::numbers(4, 0));
        let Features::Columns(columns) = &**population.clients[0].train.features() else { panic!() };
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["minority", "sex", "ses", "mean_ses"]);
        let population = make("drop = [\"mean_ses\", \"minority\"]").unwrap();
        assert_eq!(population.shape.columns, 2);
    }

    #[test]
    fn half_of_the_pupils_pass() {
        let population = make("target = \"pass\"\ntest_fraction = 0").unwrap();
        assert_eq!(population.shape.classes, 2);
        let Targets::Words(words) = &**population.clients[1].train.targets() else { panic!() };
        let of = |client: usize| words[population.clients[client].train.rows()].to_vec();
        // The second school's pupils are 1, 4, 7 and 10 of 0 to 11.
        assert_eq!(of(1), ["fail", "fail", "pass", "pass"]);
        assert_eq!(words.iter().filter(|word| *word == "pass").count(), 6);
    }

    #[test]
    fn foreign_columns_are_refused() {
        let refused = make("drop = [\"sess\"]").unwrap_err().to_string();
        assert!(refused.contains("has no column `sess`") && refused.contains("`ses`"), "{refused}");
    }
}
