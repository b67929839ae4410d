//! What was found, in words and tables.

use super::Saved;
use super::coefficients::{Coefficients, Term};
use crate::error::{Error, Result};
use crate::families::{Joining, Reliability};
use crate::report::table::Table;
use crate::settings::nearest;
use serde::Serialize;

/// Terms that set a family apart, at most.
const TERMS: usize = 3;
/// Clients that are listed, at most.
pub(super) const LISTED: usize = 5;

/// The whole result, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown<'a> {
    /// The version of this layout.
    pub schema: u32,
    /// The column that is predicted.
    pub target: &'a str,
    /// How many clients took part.
    pub clients: usize,
    /// Each decision in a sentence.
    pub sentences: &'a [String],
    /// p-value of "all clients are alike"; absent where that cannot be told.
    pub difference_p: Option<f64>,
    /// The share of what the columns leave unexplained that lies between clients.
    pub between: f64,
    /// The families: clients, share, and coefficients with standard errors.
    pub families: Vec<ShownFamily>,
    /// The classes of the target, where it has some.
    pub classes: &'a [String],
    /// What errors are: mean squared errors or log losses.
    pub loss: &'static str,
    /// Cross-validated errors: global, family, personal, alone, served.
    pub errors: [f64; 5],
    /// The share of held-out rows inside their 90 % intervals.
    pub coverage: Option<f64>,
    /// Of classes: the share of held-out rows whose most probable class is theirs,
    pub accuracy: Option<f64>,
    /// with two classes, the area under the ROC curve,
    pub auc: Option<f64>,
    /// and how far probabilities are from how often they came true, on average.
    pub calibration_error: Option<f64>,
    /// Errors on rows kept for testing.
    pub tested: Option<&'a super::tested::Tested>,
    /// What moved since the fit before, where this goes on with it.
    pub changes: &'a [String],
    /// Clients that were added after the fit.
    pub added: Vec<&'a str>,
    /// What was read in an unusual way.
    pub remarks: &'a [String],
}

/// A family, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownFamily {
    /// Its number.
    pub family: usize,
    /// How many clients are most probably in it.
    pub clients: usize,
    /// Its share of the clients.
    pub share: f64,
    /// Term, value and standard error, in the table's units.
    pub coefficients: Vec<(String, f64, Option<f64>)>,
}

impl Saved {
    /// What errors are.
    pub(super) fn loss(&self) -> &'static str {
        if self.classes.is_empty() { "mean squared error" } else { "log loss" }
    }

    pub(super) fn coverage(&self) -> Option<f64> {
        self.model.intervals.as_ref().and_then(|intervals| intervals.coverage)
    }

    /// The whole result, for programs.
    pub fn shown(&self) -> Shown<'_> {
        let (learned, units) = (&self.model.learned, Coefficients::new(self));
        let square = self.model.target.deviation.powi(2);
        let reliability = self.model.reliability.as_ref();
        let families = learned.families.iter().map(|family| ShownFamily {
            family: family.number,
            clients: family.clients,
            share: family.share,
            coefficients: (units.terms(&family.centre, Some(&family.covariance)).into_iter())
                .map(|Term { name, value, error, .. }| (name, value, error))
                .collect(),
        });
        Shown {
            schema: 1,
            target: &self.target,
            clients: self.names.len(),
            sentences: &learned.sentences,
            difference_p: learned.difference.p,
            between: learned.difference.between,
            families: families.collect(),
            classes: &self.classes,
            loss: self.loss(),
            errors: learned.errors.map(|error| square * error),
            coverage: self.coverage(),
            accuracy: reliability.and_then(Reliability::accuracy),
            auc: reliability.filter(|_| self.classes.len() == 2).and_then(Reliability::auc),
            calibration_error: reliability.and_then(Reliability::calibration_error),
            tested: self.tested.as_ref(),
            changes: &self.changes,
            added: self.added(),
            remarks: &self.remarks,
        }
    }
}

/// The families with their sizes and what sets them apart.
pub(super) fn families(saved: &Saved) -> Table {
    let learned = &saved.model.learned;
    let units = Coefficients::new(saved);
    let mut table = Table::new().words("family").numbers("clients").numbers("share %").words("what sets it apart");
    let global = units.terms(&learned.global, None);
    for family in &learned.families {
        let terms = units.terms(&family.centre, Some(&family.covariance));
        let mut apart: Vec<(f64, String)> = (terms.iter().zip(&global))
            .map(|(own, all)| {
                let error = own.error.unwrap_or(0.0);
                let distance = if error > 0.0 { (own.value - all.value).abs() / error } else { 0.0 };
                (distance, format!("{} {} ± {} (all: {})", own.name, short(own.value), short(error), short(all.value)))
            })
            .collect();
        apart.sort_by(|a, b| b.0.total_cmp(&a.0));
        let words: Vec<String> = if learned.families.len() == 1 {
            vec!["everybody".into()]
        } else {
            apart.into_iter().take(TERMS).filter(|(distance, _)| *distance > 2.0).map(|(_, text)| text).collect()
        };
        let share = format!("{:.1}", 100.0 * family.share);
        table.push([family.number.to_string(), family.clients.to_string(), share, words.join("; ")]);
    }
    table
}

/// A number in four digits, a tiny one in two.
pub(super) fn short(value: f64) -> String {
    const TINY: f64 = 1e-4;
    if value != 0.0 && value.abs() < TINY {
        return format!("{value:.1e}");
    }
    let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 6) };
    format!("{value:.*}", digits as usize)
}

#[cfg(test)]
#[test]
fn numbers_are_short_and_never_lost() {
    let texts = [0.0, 1.2e-9, -3.04e-5, 0.00012345, 0.5, 12.3456, 123456.7].map(short);
    assert_eq!(texts, ["0", "1.2e-9", "-3.0e-5", "0.000123", "0.5000", "12.35", "123457"]);
}

/// The result as text: what was decided, families, errors, and clients worth a look.
pub fn show(saved: &Saved) -> String {
    let learned = &saved.model.learned;
    let mut text = String::new();
    for sentence in &learned.sentences {
        text.push_str(sentence);
        text.push('\n');
    }
    text.push_str(&format!("\n{}\n", families(saved)));
    text.push_str(&format!("{}\n", errors(saved)));
    if let Some(coverage) = saved.coverage() {
        text.push_str(&format!("90 % intervals cover {:.1} % of held-out rows.\n", 100.0 * coverage));
    }
    text.push_str(&reliability_text(saved.model.reliability.as_ref(), saved.classes.len()));
    text.push_str(&worth_a_look(saved));
    for change in &saved.changes {
        text.push_str(&format!("since the last fit: {change}\n"));
    }
    let added = saved.added();
    if !added.is_empty() {
        text.push_str(&format!("added later: {}\n", listed(&added)));
    }
    for remark in &saved.remarks {
        text.push_str(&format!("note: {remark}\n"));
    }
    text
}

/// How good probabilities of classes are.
pub(super) fn reliability_text(found: Option<&Reliability>, classes: usize) -> String {
    let Some(found) = found else { return String::new() };
    let (Some(accuracy), Some(error)) = (found.accuracy(), found.calibration_error()) else { return String::new() };
    let auc = found.auc().filter(|_| classes == 2);
    let auc = auc.map_or(String::new(), |auc| format!(", the area under the ROC curve is {auc:.3}"));
    format!(
        "Of held-out rows the most probable class is right in {:.1} %{auc}; probabilities are off by {:.1} points on average.\n",
        100.0 * accuracy,
        100.0 * error
    )
}

/// Errors of the four models, of what serves clients, and of the mean.
pub(super) fn errors(saved: &Saved) -> Table {
    let learned = &saved.model.learned;
    let square = saved.model.target.deviation.powi(2);
    let mut table = Table::new().words(saved.loss()).numbers("cross-validated");
    if saved.tested.is_some() {
        table = table.numbers("test rows");
    }
    let tested = saved.tested.as_ref();
    let cell = |value: Option<f64>| value.map_or(String::new(), short);
    let rows = [
        (
            if saved.classes.is_empty() { "the mean" } else { "how often each class occurs" },
            None,
            tested.map(|tested| tested.mean),
        ),
        ("one model for everybody", Some(0), tested.map(|tested| tested.global)),
        (
            if learned.families.len() > 1 { "a model for every family" } else { "the centre of all clients" },
            Some(1),
            tested.map(|tested| tested.family),
        ),
        ("a personal model", Some(2), tested.map(|tested| tested.personal)),
        ("every client alone", Some(3), tested.map(|tested| tested.alone)),
        ("what serves each client", Some(4), tested.map(|tested| tested.served)),
    ];
    for (name, place, tested) in rows {
        let validated = place.map(|place: usize| square * learned.errors[place]);
        if validated.is_some() || tested.is_some() {
            table.push([name.to_string(), cell(validated), cell(tested)]);
        }
    }
    table
}

/// Clients between families, and clients for which joining hurts.
fn worth_a_look(saved: &Saved) -> String {
    let clients = &saved.model.learned.clients;
    let number = |client| saved.model.learned.number_of(client);
    let mut text = String::new();
    let mut border: Vec<(f64, usize)> =
        clients.iter().enumerate().map(|(place, client)| (client.responsibilities[client.family], place)).collect();
    border.sort_by(|a, b| a.0.total_cmp(&b.0));
    let border: Vec<String> = (border.into_iter().filter(|(sure, _)| *sure < 0.9).take(LISTED))
        .map(|(sure, place)| {
            format!("{} ({:.0} % in family {})", saved.names[place], 100.0 * sure, number(&clients[place]))
        })
        .collect();
    if !border.is_empty() {
        text.push_str(&format!("nearest the border: {}\n", border.join(", ")));
    }
    let hurt: Vec<&str> = (saved.names.iter().zip(clients))
        .filter(|(_, client)| client.verdict() == Some(Joining::Hurts))
        .map(|(name, _)| name.as_str())
        .collect();
    if !hurt.is_empty() {
        text.push_str(&format!("joining hurts: {}\n", listed(&hurt)));
    }
    text
}

/// The first names, and how many more there are.
pub(super) fn listed(names: &[&str]) -> String {
    let more = if names.len() > LISTED { format!(" and {} more", names.len() - LISTED) } else { String::new() };
    format!("{}{more}", names[..names.len().min(LISTED)].join(", "))
}

fn terms_table(terms: Vec<Term>) -> Table {
    let mut table = Table::new().words("term").numbers("value").numbers("standard error");
    for term in terms {
        table.push([term.name, short(term.value), term.error.map_or(String::new(), short)]);
    }
    table
}

/// One family: its members and its coefficients.
pub fn show_family(saved: &Saved, number: usize) -> Result<String> {
    let learned = &saved.model.learned;
    let family = learned.families.iter().find(|family| family.number == number).ok_or_else(|| {
        let numbers: Vec<String> = learned.families.iter().map(|family| family.number.to_string()).collect();
        Error::settings(format!("family: got {number}, want {}", numbers.join(" or ")))
    })?;
    let members = saved.names.iter().zip(&learned.clients).filter(|(_, client)| learned.number_of(client) == number);
    let members: Vec<&str> = members.map(|(name, _)| name.as_str()).collect();
    let terms = terms_table(Coefficients::new(saved).terms(&family.centre, Some(&family.covariance)));
    Ok(format!("family {number}: {} clients\n\n{terms}\nclients: {}\n", members.len(), members.join(", ")))
}

/// Somebody whom the model does not know.
pub(super) fn no_client(name: &str, names: &[String]) -> Error {
    let error = Error::settings(format!("client: the model has no client `{name}`"));
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean `{near}`? New clients: `assign`")),
        None => error.hint("`clients.csv` in the model's folder lists them; new clients: `assign`"),
    }
}

/// One client: its family, what serves it, and its coefficients.
pub fn show_client(saved: &Saved, name: &str) -> Result<String> {
    let place = saved.place(name).ok_or_else(|| no_client(name, &saved.names))?;
    let client = &saved.model.learned.clients[place];
    let terms = match client.is_elsewhere() {
        true => "its coefficients are on its machine\n".to_string(),
        false => {
            let predictor = saved.model.learned.predictor(client);
            let terms = Coefficients::new(saved).terms(&predictor.coefficients, Some(&predictor.covariance));
            terms_table(terms).to_string()
        }
    };
    let sure = 100.0 * client.responsibilities[client.family];
    let square = saved.model.target.deviation.powi(2);
    let joining = match &client.service {
        None => "added later: whether joining helps is not known".to_string(),
        Some(service) => {
            let (gain, error) = (short(square * service.joining.mean), short(square * service.joining.error));
            format!("joining {} (gain over its own model alone {gain} ± {error})", service.verdict().predicate())
        }
    };
    Ok(format!(
        "{name}: {} rows, family {} ({sure:.0} %), served by: {}\n{joining}\n\n{terms}",
        client.rows,
        saved.model.learned.number_of(client),
        saved.served_by(client),
    ))
}
