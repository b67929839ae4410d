//! What was found, in words and tables.

use super::SavedNetworks;
use super::effects::Effect;
use super::saved::{FittedClient, NetworkTested};
use crate::error::{Error, Result};
use crate::families::Reliability;
use crate::fit::show::{listed, no_client, reliability_text, short};
use crate::report::table::Table;
use serde::Serialize;

/// Effects that set a family apart, at most.
const TERMS: usize = 3;
/// How far apart they are at least, beside how much effects differ between rows.
const APART: f64 = 0.25;
/// Probability of a gain above which joining helps, and below whose rest it hurts.
const SURE: f64 = 0.95;

/// The whole result, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownNetworks<'a> {
    /// The version of this layout.
    pub schema: u32,
    /// `network`.
    pub kind: &'static str,
    /// The column that is predicted.
    pub target: &'a str,
    /// How many clients took part.
    pub clients: usize,
    /// Widths of the hidden layers.
    pub hidden: &'a [usize],
    /// Each decision in a sentence.
    pub sentences: &'a [String],
    /// p-value of "all clients are alike"; absent where that was not looked at.
    pub difference_p: Option<f64>,
    /// The families: clients, share, and effects of columns.
    pub families: Vec<ShownNetworkFamily>,
    /// The classes of the target, where it has some.
    pub classes: &'a [String],
    /// What errors are: mean squared errors or log losses.
    pub loss: &'static str,
    /// Errors of held-out rows: global, family, personal, alone, served.
    pub errors: [Option<f64>; 5],
    /// The share of held-out rows inside their 90 % intervals.
    pub coverage: Option<f64>,
    /// Of classes: the share of held-out rows whose most probable class is theirs,
    pub accuracy: Option<f64>,
    /// with two classes, the area under the ROC curve,
    pub auc: Option<f64>,
    /// and how far probabilities are from how often they came true, on average.
    pub calibration_error: Option<f64>,
    /// Errors on rows kept for testing.
    pub tested: Option<&'a NetworkTested>,
    /// What moved since the fit before, where this goes on with it.
    pub changes: &'a [String],
    /// Clients that were added after the fit.
    pub added: Vec<&'a str>,
    /// What was read in an unusual way.
    pub remarks: &'a [String],
}

/// A family, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownNetworkFamily {
    /// Its number.
    pub family: usize,
    /// How many clients are in it.
    pub clients: usize,
    /// Its share of the clients.
    pub share: f64,
    /// Term, effect on the prediction (or on the probability of each class), and its spread over rows, in the table's units.
    pub effects: Vec<(String, Vec<f64>, Vec<f64>)>,
}

pub(super) fn loss(saved: &SavedNetworks) -> &'static str {
    if saved.classes.is_empty() { "mean squared error" } else { "log loss" }
}

pub(super) fn coverage(saved: &SavedNetworks) -> Option<f64> {
    saved.model.intervals.as_ref().and_then(|intervals| intervals.reach.coverage)
}

/// The outputs that are told, each with what its terms begin with: of two classes, the second tells the first.
pub(super) fn outputs(saved: &SavedNetworks) -> Vec<(usize, String)> {
    match &saved.classes[..] {
        [] => vec![(0, String::new())],
        [_, _] => vec![(1, String::new())],
        classes => classes.iter().enumerate().map(|(place, class)| (place, format!("{class}: "))).collect(),
    }
}

/// Whether joining pays, for one client.
pub(super) fn joining(client: &FittedClient) -> &'static str {
    match client.joining.map(|gain| gain.probability()) {
        Some(probability) if probability >= SURE => "helps",
        Some(probability) if probability <= 1.0 - SURE => "hurts",
        Some(_) => "neutral",
        None => "",
    }
}

fn added(saved: &SavedNetworks) -> Vec<&str> {
    let clients = saved.names.iter().zip(&saved.model.clients);
    clients.filter(|(_, client)| client.added).map(|(name, _)| name.as_str()).collect()
}

impl SavedNetworks {
    /// The whole result, for programs.
    pub fn shown(&self) -> ShownNetworks<'_> {
        let (model, unit) = (&self.model, self.unit());
        let reliability = model.reliability.as_ref();
        let effect = |own: &Effect| (own.term.clone(), own.mean.clone(), own.spread.clone());
        let families = model.families.iter().map(|family| ShownNetworkFamily {
            family: family.number,
            clients: family.clients,
            share: family.share,
            effects: family.effects.iter().map(effect).collect(),
        });
        ShownNetworks {
            schema: 1,
            kind: "network",
            target: &self.target,
            clients: self.names.len(),
            hidden: &model.hidden,
            sentences: &model.sentences,
            difference_p: model.p,
            families: families.collect(),
            classes: &self.classes,
            loss: loss(self),
            errors: model.errors.map(|error| error.map(|error| unit * error)),
            coverage: coverage(self),
            accuracy: reliability.and_then(Reliability::accuracy),
            auc: reliability.filter(|_| self.classes.len() == 2).and_then(Reliability::auc),
            calibration_error: reliability.and_then(Reliability::calibration_error),
            tested: self.tested.as_ref(),
            changes: &self.changes,
            added: added(self),
            remarks: &self.remarks,
        }
    }

    /// The result as text.
    pub fn show(&self) -> String {
        let mut text = self.model.sentences.iter().map(|sentence| format!("{sentence}\n")).collect::<String>();
        text.push_str(&format!("\n{}\n{}\n", families(self), errors(self)));
        if self.model.families.len() == 1 {
            text.push_str(&format!("{}\n", effects_table(self, &self.model.effects)));
        }
        if let Some(coverage) = coverage(self) {
            text.push_str(&format!("90 % intervals cover {:.1} % of held-out rows.\n", 100.0 * coverage));
        }
        text.push_str(&reliability_text(self.model.reliability.as_ref(), self.classes.len()));
        let clients = self.names.iter().zip(&self.model.clients);
        let hurt: Vec<&str> =
            clients.filter(|(_, client)| joining(client) == "hurts").map(|(name, _)| name.as_str()).collect();
        if !hurt.is_empty() {
            text.push_str(&format!("joining hurts: {}\n", listed(&hurt)));
        }
        self.changes.iter().for_each(|change| text.push_str(&format!("since the last fit: {change}\n")));
        let added = added(self);
        if !added.is_empty() {
            text.push_str(&format!("added later: {}\n", listed(&added)));
        }
        self.remarks.iter().for_each(|remark| text.push_str(&format!("note: {remark}\n")));
        text
    }

    /// One family: its members, and the effects of columns in it.
    pub fn show_family(&self, number: usize) -> Result<String> {
        let families = &self.model.families;
        let place = families.iter().position(|family| family.number == number).ok_or_else(|| {
            let numbers: Vec<String> = families.iter().map(|family| family.number.to_string()).collect();
            Error::settings(format!("family: got {number}, want {}", numbers.join(" or ")))
        })?;
        let members = self.names.iter().zip(&self.model.clients).filter(|(_, client)| client.family == place);
        let members: Vec<&str> = members.map(|(name, _)| name.as_str()).collect();
        let table = effects_table(self, &families[place].effects);
        Ok(format!("family {number}: {} clients\n\n{table}\nclients: {}\n", members.len(), members.join(", ")))
    }

    /// One client: its family, what serves it, and how well that does.
    pub fn show_client(&self, name: &str) -> Result<String> {
        let place = self.place(name).ok_or_else(|| no_client(name, &self.names))?;
        let client = &self.model.clients[place];
        let unit = self.unit();
        let joined = match &client.joining {
            Some(gain) => {
                let (mean, error) = (short(unit * gain.mean), short(unit * gain.error));
                format!("joining {} (gain over a network of its own alone {mean} ± {error})", joining(client))
            }
            None if client.added => "added later: whether joining helps is not known".to_string(),
            None => "it has too few rows to tell whether joining helps".to_string(),
        };
        let table = client.errors.map_or(String::new(), |errors| {
            let mut table = Table::new().words(loss(self)).numbers("held out");
            for (name, error) in RUNGS.iter().zip(errors) {
                error.into_iter().for_each(|error| table.push([name.to_string(), short(unit * error)]));
            }
            format!("\n{table}")
        });
        let family = self.model.families[client.family].number;
        let served = self.served_by(client);
        Ok(format!("{name}: {} rows, family {family}, served by: {served}\n{joined}\n{table}", client.rows))
    }
}

const RUNGS: [&str; 5] = [
    "one network for everybody",
    "a network for every family",
    "the family's, fine-tuned",
    "every client alone",
    "what serves each client",
];

/// The families with their sizes and what sets them apart.
pub(super) fn families(saved: &SavedNetworks) -> Table {
    let (global, families) = (&saved.model.effects, &saved.model.families);
    let mut table = Table::new().words("family").numbers("clients").numbers("share %").words("what sets it apart");
    for family in families {
        let mut apart: Vec<(f64, String)> = Vec::new();
        for (own, all) in family.effects.iter().zip(global) {
            for (output, prefix) in outputs(saved) {
                let (mine, theirs) = (own.mean[output], all.mean[output]);
                let size = own.spread[output].max(all.spread[output]).max(theirs.abs()).max(f64::MIN_POSITIVE);
                let text = format!("{prefix}{} {} (all: {})", own.term, short(mine), short(theirs));
                apart.push(((mine - theirs).abs() / size, text));
            }
        }
        apart.sort_by(|a, b| b.0.total_cmp(&a.0));
        let words: Vec<String> = match families.len() {
            1 => vec!["everybody".into()],
            _ => apart.into_iter().take(TERMS).filter(|(apart, _)| *apart > APART).map(|(_, text)| text).collect(),
        };
        let words = if words.is_empty() { vec!["how columns act on each other".to_string()] } else { words };
        let share = format!("{:.1}", 100.0 * family.share);
        table.push([family.number.to_string(), family.clients.to_string(), share, words.join("; ")]);
    }
    table
}

/// Errors of what may serve clients, and of what does.
pub(super) fn errors(saved: &SavedNetworks) -> Table {
    let unit = saved.unit();
    let mut table = Table::new().words(loss(saved)).numbers("held out");
    if saved.tested.is_some() {
        table = table.numbers("test rows");
    }
    let tested = |place: usize| {
        let tested = saved.tested.as_ref()?;
        [Some(tested.global), Some(tested.family), None, None, Some(tested.served)][place]
    };
    let cell = |value: Option<f64>| value.map_or(String::new(), short);
    for (place, (name, error)) in RUNGS.iter().zip(saved.model.errors).enumerate() {
        let held_out = error.map(|error| unit * error);
        if held_out.is_some() || tested(place).is_some() {
            table.push([name.to_string(), cell(held_out), cell(tested(place))]);
        }
    }
    table
}

fn effects_table(saved: &SavedNetworks, effects: &[Effect]) -> Table {
    let mut table = Table::new().words("term").numbers("effect").numbers("spread over rows");
    for effect in effects {
        for (output, prefix) in outputs(saved) {
            let numbers = [effect.mean[output], effect.spread[output]].map(short);
            table.push([format!("{prefix}{}", effect.term)].into_iter().chain(numbers));
        }
    }
    table
}
