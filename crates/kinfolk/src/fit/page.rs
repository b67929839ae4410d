//! The page of a fitted model: its content is chosen here, and drawn by the page's own script.

use super::Saved;
use super::coefficients::Coefficients;
use super::saved::MODEL;
use super::show;
use crate::clustering::{Plane, Points};
use crate::data::schema::BentColumn;
use crate::data::understood::Understood;
use crate::families::{Joining, LearnedClient, Reliability};
use crate::methods::Intervals;
use crate::num::dot;
use crate::report::html::{assemble, shortened};
use crate::report::table::Table;
use serde::Serialize;

const SCRIPT: &str = concat!(include_str!("page.js"), "\n", include_str!("families.js"));
/// Upper bound on the clients that are drawn or listed one by one.
const MOST_CLIENTS: usize = 400;
/// Upper bound on the terms whose coefficients are drawn.
pub(super) const MOST_TERMS: usize = 16;
/// Upper bound on the curves that are drawn, and the points of each.
const MOST_CURVES: usize = 8;
const CURVE_POINTS: usize = 41;

/// The page.
pub(super) fn page(saved: &Saved) -> String {
    Content::of(saved).page()
}

/// What a page of models of a target shows.
#[derive(Serialize)]
pub(super) struct Content<'a> {
    pub(super) version: &'a str,
    pub(super) target: &'a str,
    /// What errors are.
    pub(super) loss: &'static str,
    pub(super) client: &'a str,
    pub(super) count: usize,
    pub(super) rows: usize,
    pub(super) families: usize,
    /// What each family is called.
    pub(super) family_numbers: Vec<usize>,
    pub(super) sentences: &'a [String],
    pub(super) columns: Table,
    pub(super) table: Table,
    pub(super) errors: Table,
    pub(super) coverage: Option<f64>,
    pub(super) cloud: Option<Cloud>,
    pub(super) residuals: Option<Residuals<'a>>,
    /// Of classes: by the probability they were given, how often they came true, and of how many.
    pub(super) calibration: Vec<[f64; 3]>,
    pub(super) clients: Vec<Client<'a>>,
    pub(super) terms: Vec<Term>,
    pub(super) curves: Vec<Curve>,
    /// What a curve's height is.
    pub(super) effect: String,
    pub(super) remarks: Vec<&'a String>,
    pub(super) about: About,
    /// The file with all numbers.
    pub(super) numbers: &'static str,
}

/// What is said above pictures and tables.
#[derive(Serialize)]
pub(super) struct About {
    pub(super) terms: &'static str,
    pub(super) errors: &'static str,
    pub(super) gains: &'static str,
    /// How the errors of clients were found.
    pub(super) validated: &'static str,
}

#[derive(Serialize)]
pub(super) struct Client<'a> {
    pub(super) name: &'a str,
    pub(super) rows: usize,
    pub(super) family: usize,
    pub(super) sure: Option<f64>,
    pub(super) stability: Option<f64>,
    /// Of its personal model, in the two principal directions of all.
    pub(super) place: [Option<f64>; 2],
    pub(super) served: String,
    /// Errors of held-out rows: global, family, personal, alone, what serves it.
    pub(super) errors: Option<[Option<f64>; 5]>,
    pub(super) joining: &'static str,
    pub(super) gain: Option<f64>,
    pub(super) gain_error: Option<f64>,
}

/// A coefficient or an effect in every family, with its standard error where that is known, and everybody's.
#[derive(Serialize)]
pub(super) struct Term {
    pub(super) name: String,
    pub(super) families: Vec<[Option<f64>; 2]>,
    pub(super) global: Option<f64>,
}

/// What a column that bends adds to the prediction, beside what its mean adds.
#[derive(Serialize)]
pub(super) struct Curve {
    name: String,
    values: Vec<Option<f64>>,
    /// Of every family, at every value.
    families: Vec<Vec<Option<f64>>>,
}

/// How large residuals of held-out rows are, over their expected deviation.
#[derive(Serialize)]
pub(super) struct Residuals<'a> {
    pub(super) step: f64,
    pub(super) shares: &'a [f64],
    pub(super) reach: f64,
}

/// Clients' own estimates in the direction in which they differ most, beside one normal cloud of the same mean and deviation.
#[derive(Serialize)]
pub(super) struct Cloud {
    /// Lower end of the first bin and width of all, in deviations from the mean.
    low: f64,
    width: f64,
    /// By bin, the clients of every family.
    bins: Vec<Vec<usize>>,
}

impl Cloud {
    const BINS: usize = 24;
    /// Farther out, a bin has no lower or upper end.
    const REACH: f64 = 3.0;
    const LEAST_CLIENTS: usize = 10;

    fn of(saved: &Saved) -> Option<Self> {
        let learned = &saved.model.learned;
        let (clients, families, columns) = (&learned.clients, learned.families.len(), learned.global.len());
        // Their own estimates may be kept where the clients are.
        if clients.len() < Self::LEAST_CLIENTS || clients.iter().any(|client| client.alone.len() != columns) {
            return None;
        }
        let values: Vec<f64> = if families > 1 {
            // Families are numbered by their size: the discriminant of the two largest, without correlations.
            let [one, two] = [0, 1].map(|family| &learned.families[family].centre);
            let within = |j: usize| {
                let square =
                    |client: &LearnedClient| (client.alone[j] - learned.families[client.family].centre[j]).powi(2);
                clients.iter().map(square).sum::<f64>() / clients.len() as f64
            };
            let weight = |j: usize| (two[j] - one[j]) / within(j).max(f64::MIN_POSITIVE);
            let weights: Vec<f64> = (0..columns).map(weight).collect();
            clients.iter().map(|client| dot(&client.alone, &weights)).collect()
        } else {
            let models: Vec<f64> = clients.iter().flat_map(|client| client.alone.iter().copied()).collect();
            let plane = Plane::of(Points::new(&models, columns).ok()?);
            clients.iter().map(|client| plane.project(&client.alone)[0]).collect()
        };
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        if !deviation.is_finite() || deviation == 0.0 {
            return None;
        }
        let width = 2.0 * Self::REACH / Self::BINS as f64;
        let mut bins = vec![vec![0; families]; Self::BINS];
        for (client, value) in clients.iter().zip(&values) {
            let bin = (((value - mean) / deviation + Self::REACH) / width).clamp(0.0, (Self::BINS - 1) as f64);
            bins[bin as usize][client.family] += 1;
        }
        Some(Self { low: -Self::REACH, width, bins })
    }
}

/// In ten steps of probability.
pub(super) fn calibration(reliability: Option<&Reliability>) -> Vec<[f64; 3]> {
    let Some(reliability) = reliability else { return Vec::new() };
    let (count, part) = (reliability.bins.len() as f64, reliability.bins.len().div_ceil(10));
    let step = |(place, bins): (usize, &[[u64; 2]])| {
        let sum = |of: &dyn Fn(usize, &[u64; 2]) -> f64| {
            bins.iter().enumerate().map(|(bin, counts)| of(place * part + bin, counts)).sum::<f64>()
        };
        let total = sum(&|_, counts| (counts[0] + counts[1]) as f64);
        let given = sum(&|bin, counts| (counts[0] + counts[1]) as f64 * (bin as f64 + 0.5) / count);
        (total > 0.0).then(|| [given / total, sum(&|_, counts| counts[1] as f64) / total, total])
    };
    reliability.bins.chunks(part).enumerate().filter_map(step).collect()
}

impl<'a> Content<'a> {
    fn of(saved: &'a Saved) -> Self {
        let learned = &saved.model.learned;
        let rows = learned.clients.iter().map(|client| client.rows).sum();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            target: &saved.target,
            loss: saved.loss(),
            client: &saved.client,
            count: saved.names.len(),
            rows,
            families: learned.families.len(),
            family_numbers: learned.families.iter().map(|family| family.number).collect(),
            sentences: &learned.sentences,
            columns: columns(&saved.understood),
            table: show::families(saved),
            errors: show::errors(saved),
            coverage: saved.coverage(),
            cloud: Cloud::of(saved),
            residuals: saved.model.intervals.as_ref().filter(|intervals| !intervals.residuals.is_empty()).map(
                |intervals| Residuals { step: Intervals::STEP, shares: &intervals.residuals, reach: intervals.reach },
            ),
            calibration: calibration(saved.model.reliability.as_ref()),
            clients: clients(saved),
            terms: terms(saved),
            curves: curves(saved),
            effect: match &saved.classes[..] {
                [_, second] => format!("log-odds of {second}"),
                _ => saved.target.clone(),
            },
            remarks: saved.changes.iter().chain(&saved.remarks).collect(),
            about: About {
                terms: "Coefficients in the table's units, with two standard errors to either side; each on its own scale.",
                errors: "Cross-validated: by models that were learned without the row.",
                gains: "Against a model of the client's own rows alone; above the line joining pays.",
                validated: "Cross-validated",
            },
            numbers: MODEL,
        }
    }

    pub(super) fn page(&self) -> String {
        assemble(self, SCRIPT)
    }
}

/// What was understood of the table's columns.
pub(super) fn columns(understood: &[Understood]) -> Table {
    let mut table =
        Table::new().words("column").words("what it is").numbers("kinds").numbers("missing").words("what is done");
    for column in understood {
        let kinds = column.kinds.map_or(String::new(), |kinds| kinds.to_string());
        let missing = if column.missing > 0 { column.missing.to_string() } else { String::new() };
        table.push([column.column.clone(), column.kind.name().to_string(), kinds, missing, column.done.clone()]);
    }
    table
}

/// The places of so many clients, or of as many as can be told apart, evenly picked.
pub(super) fn picked(count: usize) -> impl Iterator<Item = usize> {
    (0..count.min(MOST_CLIENTS)).map(move |place| place * count / count.clamp(1, MOST_CLIENTS))
}

fn clients(saved: &Saved) -> Vec<Client<'_>> {
    let learned = &saved.model.learned;
    let square = saved.model.target.deviation.powi(2);
    let models: Vec<f64> = learned.clients.iter().flat_map(|client| client.personal.iter().copied()).collect();
    let plane = Points::new(&models, learned.global.len()).ok().filter(|_| !models.is_empty()).map(Plane::of);
    let client = |place: usize| {
        let client = &learned.clients[place];
        let service = client.service.as_ref();
        let place_of = plane.as_ref().filter(|_| !client.is_elsewhere());
        let place_of = place_of.map_or([f64::NAN; 2], |plane| plane.project(&client.personal));
        let errors = service.and_then(|service| service.errors.zip(service.error));
        let errors = errors.map(|([global, family, personal, alone], served)| {
            [global, family, personal, alone, served].map(|error| shortened(square * error))
        });
        let joining = service.map(|service| service.joining);
        Client {
            name: &saved.names[place],
            rows: client.rows,
            family: client.family,
            sure: shortened(client.responsibilities[client.family]),
            stability: client.stability.and_then(shortened),
            place: place_of.map(shortened),
            served: saved.served_by(client),
            errors,
            joining: client.verdict().map_or("is not known: added later", Joining::predicate),
            gain: joining.and_then(|gain| shortened(square * gain.mean)),
            gain_error: joining.and_then(|gain| shortened(square * gain.error)),
        }
    };
    picked(saved.names.len()).map(client).collect()
}

/// The terms that differ most between families, in standard errors; with one family the largest ones.
fn terms(saved: &Saved) -> Vec<Term> {
    let learned = &saved.model.learned;
    let units = Coefficients::new(saved);
    let global = units.terms(&learned.global, None);
    let families: Vec<_> =
        learned.families.iter().map(|family| units.terms(&family.centre, Some(&family.covariance))).collect();
    let apart = |place: usize| {
        let distance = |family: &Vec<super::coefficients::Term>| {
            let term = &family[place];
            let from = if learned.families.len() > 1 { global[place].value } else { 0.0 };
            (term.value - from).abs() / term.error.unwrap_or(0.0).max(f64::MIN_POSITIVE)
        };
        families.iter().map(distance).filter(|distance| distance.is_finite()).fold(0.0, f64::max)
    };
    // The intercept is where all columns are 0, which may be nowhere near the rows; curves have pictures of their own.
    let bent = bent_columns(saved);
    let is_bent = |feature: usize| bent.iter().any(|it| (it.begin..it.begin + it.mean.len()).contains(&feature));
    let is_listed =
        |place: &usize| global[*place].column.is_some_and(|feature| !is_bent(feature)) && apart(*place) > 0.0;
    let mut places: Vec<usize> = (0..global.len()).filter(is_listed).collect();
    places.sort_by(|a, b| apart(*b).total_cmp(&apart(*a)));
    places.truncate(MOST_TERMS);
    let of = |family: &Vec<super::coefficients::Term>, place: usize| {
        [shortened(family[place].value), family[place].error.and_then(shortened)]
    };
    let term = |place: usize| Term {
        name: global[place].name.clone(),
        families: families.iter().map(|family| of(family, place)).collect(),
        global: shortened(global[place].value),
    };
    places.into_iter().map(term).collect()
}

/// The columns that enter some family's model as a curve.
fn bent_columns(saved: &Saved) -> Vec<BentColumn> {
    let families = &saved.model.learned.families;
    let is_bent = |column: &BentColumn| {
        let bends = column.begin + 1..column.begin + column.mean.len();
        families.iter().any(|family| family.centre[bends.clone()].iter().any(|slope| *slope != 0.0))
    };
    saved.columns.bent_columns(CURVE_POINTS).into_iter().filter(is_bent).collect()
}

/// The curves, those that reach farthest first.
fn curves(saved: &Saved) -> Vec<Curve> {
    let learned = &saved.model.learned;
    let deviation = saved.model.target.deviation;
    let mut curves = Vec::new();
    for column in bent_columns(saved) {
        let of = |centre: &[f64]| -> Vec<f64> {
            let slopes = &centre[column.begin..][..column.mean.len()];
            let level = dot(slopes, &column.mean);
            column.features.iter().map(|features| deviation * (dot(slopes, features) - level)).collect()
        };
        let families: Vec<Vec<f64>> = learned.families.iter().map(|family| of(&family.centre)).collect();
        let reach = families.iter().flatten().fold(0.0, |most: f64, value| most.max(value.abs()));
        let short = |values: &[f64]| values.iter().map(|value| shortened(*value)).collect();
        let families = families.iter().map(|values| short(values)).collect();
        curves.push((reach, Curve { values: short(&column.values), name: column.name, families }));
    }
    curves.sort_by(|a, b| b.0.total_cmp(&a.0));
    curves.into_iter().take(MOST_CURVES).map(|(_, curve)| curve).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{FitSettings, fit, predict_batches};
    use super::*;
    use crate::data::TableSettings;
    use crate::rng::Key;
    use crate::run::{Options, Unwatched};
    use rand::RngExt;

    #[test]
    fn curves_are_as_high_as_predictions_differ() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Key::new(3).rng();
        let mut text = "shop,x,y\n".to_string();
        for row in 0..600 {
            let x: f64 = random.random_range(-3.0..3.0);
            text += &format!("s{},{x},{}\n", row % 12, x * x + 0.3 * random.random::<f64>());
        }
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, text).unwrap();
        let table = TableSettings {
            path: path.display().to_string(),
            client: "shop".into(),
            target: Some("y".into()),
            ..TableSettings::default()
        };
        let settings = FitSettings { table, quick: true, ..FitSettings::default() };
        let saved = fit(settings, &Options::default(), &mut Unwatched, &mut |_| {}).unwrap();
        let [curve] = &curves(&saved)[..] else { panic!("want one curve") };
        assert!(terms(&saved).is_empty(), "x has its picture");
        let [first, last] = [0, CURVE_POINTS / 2].map(|place| curve.values[place].unwrap());
        let new = folder.path().join("new.csv");
        // Of a client that nobody knows, the centre is predicted.
        std::fs::write(&new, format!("shop,x\nunknown,{first}\nunknown,{last}\n")).unwrap();
        let mut predicted = Vec::new();
        predict_batches(&saved, new.as_path(), &mut |rows| {
            predicted.extend(rows.values);
            Ok(())
        })
        .unwrap();
        let [one, .., two, _, _] = predicted[..] else { panic!("want two rows of three values") };
        let heights = [0, CURVE_POINTS / 2].map(|place| curve.families[0][place].unwrap());
        assert!((one - two - (heights[0] - heights[1])).abs() < 1e-3 * heights[0].abs());
        assert!(heights[0] > 3.0, "the parabola is seen: {heights:?}");
    }
}
