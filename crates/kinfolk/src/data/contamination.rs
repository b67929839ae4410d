//! Outliers among the clients of real data: some are drawn from the seed, and their rows contaminated.
//!
//! Shuffled or permuted columns leave a client that looks like the others column by column and has none of their
//! structure; noise leaves one that is simply far away.

use super::synthetic::normal;
use super::*;
use rand::seq::SliceRandom;

choices! {
    /// How rows are spoiled.
    pub enum Contamination { Shuffle = "shuffle", Permute = "permute", Noise = "noise" }
}

settings! {
    /// Outliers among the clients.
    pub struct Spoiling {
        /// share of the clients whose rows are spoiled; for trying out methods
        outliers: f64 [0.0..1.0] = 0.0,
        /// how: every column shuffled over the client's rows, its columns in another order, or numbers far away
        contamination: Contamination = "shuffle",
    }
}

/// Distance of noise from the mean, in standard deviations.
const FAR: f64 = 3.0;

pub(super) fn contaminate(population: &mut Population, settings: &Spoiling, key: &Key) -> Result<()> {
    let clients = population.clients.len();
    let count = ((settings.outliers * clients as f64).round() as usize).min(clients - 1);
    if count == 0 {
        return Ok(());
    }
    let key = key.clone().word("contamination");
    let chosen = draw_lots(population.clients.iter().map(|client| client.id.as_str()), count, &key.clone().word("who"));
    let pooled = pooled(population)?;
    for (client, _) in population.clients.iter_mut().zip(&chosen).filter(|(_, chosen)| **chosen) {
        let mut table = numbers(&client.train)?;
        let tests = numbers(&client.test)?;
        table.iter_mut().zip(tests).for_each(|(column, more)| column.extend(more));
        let mut rng = key.clone().word("rows").word(&client.id).rng();
        match settings.contamination {
            Contamination::Shuffle => table.iter_mut().for_each(|column| column.shuffle(&mut rng)),
            Contamination::Permute => permute(&mut table, &mut rng),
            Contamination::Noise => replace(&mut table, &pooled, &mut rng),
        }
        let tests = table.iter_mut().map(|column| column.split_off(client.train.len())).collect();
        client.train = with_numbers(&client.train, table)?;
        client.test = with_numbers(&client.test, tests)?;
    }
    population.outliers = chosen;
    Ok(())
}

/// The numbers of a client's training rows and, below them, of its test rows: one list per column.
type Table = Vec<Vec<f64>>;

/// Another order of the columns; at least two change places.
fn permute(table: &mut Table, rng: &mut Rng) {
    let before: Vec<usize> = (0..table.len()).collect();
    let mut order = before.clone();
    while table.len() > 1 && order == before {
        order.shuffle(rng);
    }
    *table = order.iter().map(|&column| std::mem::take(&mut table[column])).collect();
}

/// Normal numbers with every column's own deviation, far from its mean, on either side.
fn replace(table: &mut Table, pooled: &[Moments], rng: &mut Rng) {
    for (column, moments) in table.iter_mut().zip(pooled) {
        let off = if rng.random() { FAR } else { -FAR };
        for value in column {
            *value = moments.mean + moments.deviation * (off + normal(rng));
        }
    }
}

/// Moments of every column over the training rows of all clients.
fn pooled(population: &Population) -> Result<Vec<Moments>> {
    let tables = population.clients.iter().map(|client| numbers(&client.train)).collect::<Result<Vec<Table>>>()?;
    let column = |column: usize| Moments::of(tables.iter().flat_map(|table| &table[column]).copied());
    Ok((0..population.clients[0].train.columns()).map(column).collect())
}

fn numbers(shard: &Shard) -> Result<Table> {
    let Features::Columns(columns) = &**shard.features() else {
        return Err(Error::settings("data.outliers: want a table, got rows without column names"));
    };
    let of = |column: &Column| match &column.values {
        Cells::Numbers(numbers) => Ok(numbers[shard.rows()].to_vec()),
        Cells::Words(_) | Cells::Dates(_) => {
            let name = &column.name;
            let what = if matches!(column.values, Cells::Words(_)) { "words" } else { "dates" };
            Err(Error::settings(format!("data.outliers: column `{name}` holds {what}, want numbers only"))
                .hint(format!("leave it out with data.drop = [{name:?}]")))
        }
    };
    columns.iter().map(of).collect()
}

fn with_numbers(shard: &Shard, table: Table) -> Result<Shard> {
    let own = shard.pick(&(0..shard.len()).collect::<Vec<_>>());
    let Features::Columns(columns) = &**own.features() else { return Ok(own) };
    let renewed = columns.iter().zip(table);
    let renewed =
        renewed.map(|(column, numbers)| Column { name: column.name.clone(), values: Cells::Numbers(numbers) });
    Shard::of(Arc::new(Features::Columns(renewed.collect())), own.targets().clone(), own.rows())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Client, DataShape, Targets};
    use crate::settings::{Declared, Settings};

    /// Ten clients of six rows, training and test rows in one storage; the second column is ten times the first.
    fn population() -> Population {
        let first: Vec<f64> = (0..60).map(f64::from).collect();
        let columns = [1.0, 10.0, -1.0].map(|factor| Column {
            name: format!("times {factor}"),
            values: Cells::Numbers(first.iter().map(|value| factor * value).collect()),
        });
        let features = Arc::new(Features::Columns(columns.into()));
        let targets = Arc::new(Targets::Values(first));
        let shard = |rows| Shard::of(features.clone(), targets.clone(), rows).unwrap();
        let client = |number: usize| Client {
            id: number.to_string(),
            train: shard(6 * number..6 * number + 4),
            test: shard(6 * number + 4..6 * number + 6),
            group: None,
            truth: None,
        };
        let shape = DataShape::numbers(3, 0);
        Population { clients: (0..10).map(client).collect(), shape, ..Population::default() }
    }

    fn spoiled(text: &str, seed: u64) -> Population {
        let mut faults = Vec::new();
        let settings = Settings::check("data", Spoiling::SETTINGS, toml::from_str(text).unwrap(), &mut faults);
        assert_eq!(faults, []);
        let mut population = population();
        contaminate(&mut population, &Spoiling::of(&settings), &Key::new(seed)).unwrap();
        population
    }

    /// Training and test rows of a client, column by column.
    fn all_numbers(population: &Population, client: usize) -> Table {
        let client = &population.clients[client];
        let parts = numbers(&client.train).unwrap().into_iter().zip(numbers(&client.test).unwrap());
        parts.map(|(train, test)| [train, test].concat()).collect()
    }

    fn sorted(mut values: Vec<f64>) -> Vec<f64> {
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn the_share_is_rounded_and_the_others_stay_as_they_are() {
        let clean = population();
        for (share, count) in [("0.04", 0), ("0.25", 3), ("0.34", 3), ("0.99", 9)] {
            for kind in ["shuffle", "permute", "noise"] {
                let found = spoiled(&format!("outliers = {share}\ncontamination = \"{kind}\""), 1);
                assert_eq!(found.outliers.iter().filter(|outlier| **outlier).count(), count);
                assert_eq!(found.outliers.len(), if count == 0 { 0 } else { 10 });
                for client in 0..10 {
                    let same = all_numbers(&found, client) == all_numbers(&clean, client);
                    assert_eq!(same, !found.outliers.get(client).copied().unwrap_or(false), "{kind} of {client}");
                    let (before, after) = (&clean.clients[client], &found.clients[client]);
                    assert_eq!(
                        (before.train.values(), before.test.values()),
                        (after.train.values(), after.test.values())
                    );
                }
            }
        }
        let chosen = |seed| spoiled("outliers = 0.5", seed).outliers;
        assert_eq!(chosen(1), chosen(1));
        assert_ne!(chosen(1), chosen(2));
    }

    #[test]
    fn shuffled_columns_keep_their_values_and_lose_each_other() {
        let (clean, found) = (population(), spoiled("outliers = 0.9", 3));
        for client in (0..10).filter(|client| found.outliers[*client]) {
            let (before, after) = (all_numbers(&clean, client), all_numbers(&found, client));
            let kept = before.iter().zip(&after).all(|(a, b)| sorted(a.clone()) == sorted(b.clone()));
            assert!(kept, "{before:?} {after:?}");
            assert!(after[0].iter().zip(&after[1]).any(|(one, ten)| 10.0 * one != *ten), "{after:?}");
        }
    }

    #[test]
    fn permuted_columns_change_places_and_rows_stay_together() {
        let (clean, found) = (population(), spoiled("outliers = 0.9\ncontamination = \"permute\"", 3));
        for client in (0..10).filter(|client| found.outliers[*client]) {
            let (before, mut after) = (all_numbers(&clean, client), all_numbers(&found, client));
            assert_ne!(before, after);
            after.sort_by(|a, b| a[1].abs().total_cmp(&b[1].abs()).then(b[1].total_cmp(&a[1])));
            let mut wanted = before.clone();
            wanted.sort_by(|a, b| a[1].abs().total_cmp(&b[1].abs()).then(b[1].total_cmp(&a[1])));
            assert_eq!(after, wanted);
        }
        let mut one = vec![vec![1.0, 2.0]];
        permute(&mut one, &mut Key::new(0).rng());
        assert_eq!(one, [[1.0, 2.0]], "a single column has no other order");
    }

    #[test]
    fn noise_lies_three_deviations_off() {
        let mut table = vec![vec![0.0; 4000]; 8];
        replace(&mut table, &[Moments { mean: 10.0, deviation: 2.0, ..Moments::NONE }; 8], &mut Key::new(4).rng());
        for column in &table {
            let mean = column.iter().sum::<f64>() / 4000.0;
            let deviation = (column.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 4000.0).sqrt();
            assert!(((mean - 10.0).abs() - 6.0).abs() < 0.15 && (deviation - 2.0).abs() < 0.1, "{mean} {deviation}");
        }
        assert!(table.iter().any(|column| column[0] > 10.0) && table.iter().any(|column| column[0] < 10.0));
        // 4 of every 6 numbers from 0 to 59 are trained on: their mean is 28.5.
        let pooled = pooled(&population()).unwrap();
        assert!((pooled[0].mean - 28.5).abs() < 1e-12);
        assert!((pooled[1].deviation - 10.0 * pooled[0].deviation).abs() < 1e-9);
    }

    #[test]
    fn words_are_refused() {
        let mut population = population();
        let words = Column { name: "sex".into(), values: Cells::Words(vec!["f".into(); 2]) };
        let shard = Shard::new(Features::Columns(vec![words]), Targets::None).unwrap();
        population.clients.iter_mut().for_each(|client| client.train = shard.clone());
        let settings = Spoiling::of(&Settings::defaults(Spoiling::SETTINGS));
        assert_eq!(contaminate(&mut population, &settings, &Key::new(0)), Ok(()));
        let given = toml::from_str("outliers = 0.5").unwrap();
        let settings = Spoiling::of(&Settings::check("data", Spoiling::SETTINGS, given, &mut Vec::new()));
        assert_eq!(
            contaminate(&mut population, &settings, &Key::new(0)).unwrap_err().to_string(),
            "data.outliers: column `sex` holds words, want numbers only\n  hint: leave it out with data.drop = [\"sex\"]"
        );
    }
}
