//! The page of a fitted model: its content is chosen here, and drawn by the page's own script.

use super::Saved;
use super::coefficients::Coefficients;
use super::show;
use crate::clustering::{Plane, Points};
use crate::data::understood::Understood;
use crate::families::{Joining, LearnedClient};
use crate::methods::Intervals;
use crate::num::dot;
use crate::report::html::{assemble, shortened};
use crate::report::table::Table;
use serde::Serialize;

const SCRIPT: &str = concat!(include_str!("page.js"), "\n", include_str!("families.js"));
/// Upper bound on the clients that are drawn or listed one by one.
const MOST_CLIENTS: usize = 400;
/// Upper bound on the terms whose coefficients are drawn.
const MOST_TERMS: usize = 16;

/// The page.
pub(super) fn page(saved: &Saved) -> String {
    assemble(&Content::of(saved), SCRIPT)
}

#[derive(Serialize)]
struct Content<'a> {
    version: &'a str,
    target: &'a str,
    /// What errors are.
    loss: &'static str,
    client: &'a str,
    count: usize,
    rows: usize,
    families: usize,
    /// What each family is called.
    family_numbers: Vec<usize>,
    sentences: &'a [String],
    columns: Table,
    table: Table,
    errors: Table,
    coverage: Option<f64>,
    cloud: Option<Cloud>,
    residuals: Option<Residuals<'a>>,
    /// Of classes: by the probability they were given, how often they came true, and of how many.
    calibration: Vec<[f64; 3]>,
    clients: Vec<Client<'a>>,
    terms: Vec<Term>,
    remarks: Vec<&'a String>,
    /// The file with all numbers.
    numbers: &'static str,
}

#[derive(Serialize)]
struct Client<'a> {
    name: &'a str,
    rows: usize,
    family: usize,
    sure: Option<f64>,
    stability: Option<f64>,
    /// Of its personal model, in the two principal directions of all.
    place: [Option<f64>; 2],
    served: String,
    /// Cross-validated mean squared errors: global, family, personal, alone, what serves it.
    errors: Option<[Option<f64>; 5]>,
    joining: &'static str,
    gain: Option<f64>,
    gain_error: Option<f64>,
}

/// A coefficient of every family with its standard error, and everybody's.
#[derive(Serialize)]
struct Term {
    name: String,
    families: Vec<[Option<f64>; 2]>,
    global: Option<f64>,
}

/// How large residuals of held-out rows are, over their expected deviation.
#[derive(Serialize)]
struct Residuals<'a> {
    step: f64,
    shares: &'a [f64],
    reach: f64,
}

/// Clients' own estimates in the direction in which they differ most, beside one normal cloud of the same mean and deviation.
#[derive(Serialize)]
struct Cloud {
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
fn calibration(saved: &Saved) -> Vec<[f64; 3]> {
    let Some(reliability) = &saved.model.reliability else { return Vec::new() };
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
            calibration: calibration(saved),
            clients: clients(saved),
            terms: terms(saved),
            remarks: saved.changes.iter().chain(&saved.remarks).collect(),
            numbers: "model.json",
        }
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

/// All clients, or as many as can be told apart, evenly picked.
fn clients(saved: &Saved) -> Vec<Client<'_>> {
    let learned = &saved.model.learned;
    let square = saved.model.target.deviation.powi(2);
    let models: Vec<f64> = learned.clients.iter().flat_map(|client| client.personal.iter().copied()).collect();
    let plane = Points::new(&models, learned.global.len()).ok().filter(|_| !models.is_empty()).map(Plane::of);
    let count = saved.names.len();
    let picked = (0..count.min(MOST_CLIENTS)).map(|place| place * count / count.clamp(1, MOST_CLIENTS));
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
    picked.map(client).collect()
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
    // The intercept is where all columns are 0, which may be nowhere near the rows.
    let mut places: Vec<usize> = (1..global.len()).filter(|&place| apart(place) > 0.0).collect();
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
