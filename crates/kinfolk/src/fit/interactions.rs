//! Products of the two strongest columns with the others: whether they are in the model.
//!
//! Which columns are the strongest follows from the products of columns that clients have sent. Clients are asked once more, with the
//! products of columns behind their other features; all else is as it was, where these do not help. For classes the model
//! for everybody is sought again where they do.

use crate::data::schema::{Interacting, Schema};
use crate::error::Result;
use crate::families::Options;
use crate::federation::engines::Engine;
use crate::methods::room::{MethodLedger, Room};
use crate::methods::{Begun, Study};
use crate::run::seed::SeedData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Columns whose products with others are tried.
const STRONGEST: usize = 2;

/// Clients whose rows have the products that were chosen.
pub(super) struct Chosen {
    pub(super) schema: Schema,
    pub(super) engine: Box<dyn Engine>,
    pub(super) study: Study,
    pub(super) begun: Begun,
    /// The columns whose products they are.
    pub(super) names: Vec<String>,
}

/// Chooses among the products of the strongest columns; `None` where none is chosen.
pub(super) fn choose(
    data: &SeedData,
    study: &Study,
    begun: &Begun,
    options: &Options,
    ledger: &mut MethodLedger,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Chosen>> {
    let columns = data.schema.interacting();
    if columns.len() < 2 || !study.may_widen() {
        return Ok(None);
    }
    let features: Vec<_> = columns.iter().map(|column| column.features.clone()).collect();
    let strengths = study.strengths(begun, &features)?;
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by(|&a, &b| strengths[b].total_cmp(&strengths[a]));
    let strongest: Vec<&Interacting> = order.iter().take(STRONGEST).map(|&at| &columns[at]).collect();
    let places: Vec<usize> = strongest.iter().map(|column| column.column).collect();
    let wide = data.schema.with_interactions(&places);
    if wide.interactions.is_empty() {
        return Ok(None);
    }
    let (mut engine, wide_study) = widened(data, &wide, options, stop)?;
    let Some(found) = wide_study.begin_wider(&mut Room::new(&mut *engine, ledger), begun)? else { return Ok(None) };
    let (schema, left) = wide.with_groups(found.interactions());
    let (mut engine, study) = widened(data, &schema, options, stop)?;
    let begun = study.begin_chosen(&mut Room::new(&mut *engine, ledger), &found, &left)?;
    let names = found.interactions().iter().map(|&group| strongest[group].name.clone()).collect();
    Ok(Some(Chosen { schema, engine, study, begun, names }))
}

fn widened(
    data: &SeedData,
    schema: &Schema,
    options: &Options,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Engine>, Study)> {
    let (engine, model, facts) = data.widened("fit", schema, stop.clone())?;
    Ok((engine, Study::new(&*model, &facts, options.clone())?))
}

#[cfg(test)]
mod tests {
    use crate::data::TableSettings;
    use crate::fit::{FitSettings, Format, Saved, fit, predict};
    use crate::rng::Key;
    use crate::run::Unwatched;
    use rand::RngExt;
    use rand_distr::StandardNormal;
    use std::collections::HashMap;
    use std::path::Path;

    /// Ten clients with intercepts of their own, and as much of a product as is asked for.
    fn table(path: &Path, seed: u64, product: f64, is_class: bool) {
        let mut random = Key::new(seed).word("products").rng();
        let mut text = "client,a,b,kind,y\n".to_string();
        for row in 0..300 {
            let client = row % 10;
            let [a, b, noise]: [f64; 3] = std::array::from_fn(|_| random.sample(StandardNormal));
            let (a, b) = (5.0 + 2.0 * a, 1.0 + b);
            let kind = ["red", "green", "blue"][random.random_range(0..3)];
            let y = 0.2 * client as f64 + a - b + product * (a - 5.0) * (b - 1.0) + 0.5 * noise;
            let y = if is_class { ["low", "high"][usize::from(y > 5.0)].to_string() } else { format!("{y:.4}") };
            let a = if row % 40 == 7 { String::new() } else { format!("{a:.4}") };
            text += &format!("c{client},{a},{b:.4},{kind},{y}\n");
        }
        std::fs::write(path, text).unwrap();
    }

    fn fitted(path: &Path, additive: bool) -> Saved {
        let (client, target) = ("client".to_string(), Some("y".to_string()));
        let table = TableSettings { path: path.display().to_string(), client, target, ..TableSettings::default() };
        let settings = FitSettings { table, families: Some(1), straight: true, additive, ..FitSettings::default() };
        fit(settings, &crate::run::Options::default(), &mut Unwatched, &mut |_| {}).unwrap()
    }

    fn lines(text: &str) -> Vec<Vec<String>> {
        text.lines().skip(1).map(|line| line.split(',').map(str::to_string).collect()).collect()
    }

    #[test]
    fn a_product_is_found_and_predicted_as_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        table(&path, 1, 0.5, false);
        let (found, without) = (fitted(&path, false), fitted(&path, true));
        let (sentences, said) = (&found.model.learned.sentences, "products with other columns are in the model");
        assert!(sentences.iter().any(|sentence| sentence.contains(said)), "{sentences:?}");
        assert!(without.model.learned.interactions.is_empty() && without.columns.interactions.is_empty());
        let [error, error_without] = [&found, &without].map(|saved| saved.model.learned.errors[4]);
        assert!(error < 0.6 * error_without, "{error}, without {error_without}");

        // It goes on from its folder.
        found.write(folder.path()).unwrap();
        let found = Saved::read(folder.path()).unwrap();
        let mut own: HashMap<String, HashMap<String, f64>> = HashMap::new();
        for line in lines(&found.file("coefficients.csv").unwrap()).iter().filter(|line| line[0] == "served") {
            own.entry(line[1].clone()).or_default().insert(line[2].clone(), line[3].parse().unwrap());
        }
        let name = if own["c0"].contains_key("a*b") { "a*b" } else { "b*a" };
        let slope = own["c0"][name];
        assert!((slope - 0.5).abs() < 0.1, "{slope}");
        let mut predicted = Vec::new();
        predict(&found, &*path, Format::Csv, &mut predicted).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let rows = lines(&text);
        let known: Vec<f64> = rows.iter().filter_map(|row| row[1].parse().ok()).collect();
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        for (row, line) in rows.iter().zip(lines(&String::from_utf8(predicted).unwrap())) {
            let value = |term: &str| match term {
                "(intercept)" => 1.0,
                "a" => row[1].parse().unwrap_or(mean),
                "a=(missing)" => f64::from(u8::from(row[1].is_empty())),
                "b" => row[2].parse().unwrap(),
                kind => f64::from(u8::from(kind == format!("kind={}", row[3]))),
            };
            let of = |term: &str| term.split('*').map(value).product::<f64>();
            let wanted: f64 = own[&row[0]].iter().map(|(term, slope)| slope * of(term)).sum();
            let prediction: f64 = line[1].parse().unwrap();
            assert!((prediction - wanted).abs() < 1e-6 * wanted.abs().max(1.0), "{prediction}, by hand {wanted}");
        }
    }

    #[test]
    fn classes_may_depend_on_a_product() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        table(&path, 1, 2.0, true);
        let (found, without) = (fitted(&path, false), fitted(&path, true));
        assert!(!found.model.learned.interactions.is_empty());
        let [loss, loss_without] = [&found, &without].map(|saved| saved.model.learned.errors[4]);
        assert!(loss < 0.8 * loss_without, "{loss}, without {loss_without}");
    }

    #[test]
    fn where_there_is_no_product_hardly_any_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let is_taken = |seed: &u64| {
            table(&path, *seed, 0.0, false);
            !fitted(&path, false).model.learned.interactions.is_empty()
        };
        let taken = (0..20).filter(is_taken).count();
        assert!(taken <= 1, "in {taken} of 20");
    }
}
