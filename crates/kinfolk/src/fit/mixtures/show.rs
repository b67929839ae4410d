//! What was found without a target, in words and tables.

use super::SavedMixture;
use super::units::components;
use crate::error::{Error, Result};
use crate::fit::show::{LISTED, no_client, short};
use crate::methods::ComponentClient;
use crate::report::table::Table;
use serde::Serialize;

/// Columns that set a component apart, at most, and how many deviations apart they are at least.
const COLUMNS: usize = 4;
const APART: f64 = 0.5;

/// The whole result, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownMixture<'a> {
    /// The version of this layout.
    pub schema: u32,
    /// `mixture`.
    pub kind: &'static str,
    /// How many clients took part.
    pub clients: usize,
    /// Each decision in a sentence.
    pub sentences: &'a [String],
    /// p-values of "all clients are alike", in how often components occur and in where they are; absent where that cannot be told.
    pub weights_p: Option<f64>,
    /// See `weights_p`.
    pub centres_p: Option<f64>,
    /// The columns that it is a mixture of.
    pub columns: Vec<String>,
    /// The components.
    pub components: Vec<ShownComponent>,
    /// The weights of the components in every family, and the share of clients that is in it.
    pub families: Vec<(f64, &'a [f64])>,
    /// The clients whose rows are unlike those of the others.
    pub outliers: Vec<&'a str>,
    /// Mean log densities of held-out rows: everybody's weights, family's, personal, alone, what serves clients.
    pub held_out: [Option<f64>; 5],
    /// The log density below which 1 % of held-out rows are.
    pub rare: f64,
    /// How often clients were asked.
    pub questions: usize,
    /// What was read in an unusual way.
    pub remarks: &'a [String],
}

/// A component, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownComponent {
    /// Counted from 1.
    pub component: usize,
    /// The share of rows.
    pub weight: f64,
    /// Of every column, in the table's units.
    pub means: Vec<f64>,
    /// Of every column, in the table's units.
    pub deviations: Vec<f64>,
}

impl SavedMixture {
    /// The whole result, for programs.
    pub fn shown(&self) -> ShownMixture<'_> {
        let model = &self.model;
        let component = |(place, own): (usize, super::units::Component)| ShownComponent {
            component: place + 1,
            weight: own.weight,
            means: own.means,
            deviations: own.deviations,
        };
        let held_out = [
            Some(model.held_out.everybody),
            Some(model.held_out.family),
            Some(model.held_out.personal),
            model.held_out.alone,
            Some(model.held_out.served),
        ];
        ShownMixture {
            schema: 1,
            kind: "mixture",
            clients: self.names.len(),
            sentences: &model.sentences,
            weights_p: model.weights_p,
            centres_p: model.centres_p,
            columns: self.features(),
            components: components(self).into_iter().enumerate().map(component).collect(),
            families: model
                .families
                .shares
                .iter()
                .copied()
                .zip(model.families.centres.iter().map(|own| &own[..]))
                .collect(),
            outliers: outliers(self).map(|(name, _)| name).collect(),
            held_out: held_out.map(|value| value.map(|value| value + model.log_units)),
            rare: model.rare + model.log_units,
            questions: model.questions,
            remarks: &self.remarks,
        }
    }

    /// The result as text.
    pub fn show(&self) -> String {
        let mut text = self.model.sentences.iter().map(|sentence| format!("{sentence}\n")).collect::<String>();
        text.push_str(&format!("\n{}\n", component_table(self)));
        if self.model.families.len() > 1 {
            text.push_str(&format!("{}\n", families(self)));
        }
        text.push_str(&format!("{}\n", held_out(self)));
        let mut named: Vec<(&str, &ComponentClient)> = outliers(self).collect();
        named.sort_by(|a, b| a.1.outlier_p.total_cmp(&b.1.outlier_p));
        if !named.is_empty() {
            let names: Vec<String> =
                named.iter().take(LISTED).map(|(name, own)| format!("{name} ({})", p_value(own.outlier_p))).collect();
            let more = if named.len() > LISTED { format!(" and {} more", named.len() - LISTED) } else { String::new() };
            text.push_str(&format!("outliers: {}{more}\n", names.join(", ")));
        }
        text.push_str(&format!("Clients were asked {} times.\n", self.model.questions));
        self.remarks.iter().for_each(|remark| text.push_str(&format!("note: {remark}\n")));
        text
    }

    /// One family: its members, and how often components occur in it.
    pub fn show_family(&self, number: usize) -> Result<String> {
        let families = &self.model.families;
        let place = number.checked_sub(1).filter(|place| *place < families.len());
        let place =
            place.ok_or_else(|| Error::settings(format!("family: got {number}, want 1 to {}", families.len())))?;
        let members = self
            .names
            .iter()
            .zip(&self.model.clients)
            .filter(|(_, client)| client.family == place && !client.is_outlier);
        let members: Vec<&str> = members.map(|(name, _)| name.as_str()).collect();
        let table = weights_table(self, "family %", &families.centres[place]);
        Ok(format!("family {number}: {} clients\n\n{table}\nclients: {}\n", members.len(), members.join(", ")))
    }

    /// One client: its family, what serves it, and how often components occur in it.
    pub fn show_client(&self, name: &str) -> Result<String> {
        let place = self.place(name).ok_or_else(|| no_client(name, &self.names))?;
        let client = &self.model.clients[place];
        let sure = 100.0 * client.responsibilities[client.family];
        let outlier = if client.is_outlier {
            format!("outlier: its rows are unlike those of the others ({})\n", p_value(client.outlier_p))
        } else {
            String::new()
        };
        let joining = client.joining.map_or(String::new(), |gain| {
            let verdict = joining(client);
            format!(
                "joining {verdict} (gain in log density over a mixture of its own {:.3} ± {:.3})\n",
                gain.mean, gain.error
            )
        });
        let family = if self.model.families.len() > 1 {
            format!(", family {} ({sure:.0} %)", client.family + 1)
        } else {
            String::new()
        };
        let table = weights_table(self, "client %", &client.served);
        Ok(format!(
            "{name}: {} rows{family}, served by: {}\n{outlier}{joining}\n{table}",
            client.rows,
            self.served_by(place)
        ))
    }
}

pub(super) fn outliers(saved: &SavedMixture) -> impl Iterator<Item = (&str, &ComponentClient)> {
    let clients = saved.names.iter().map(String::as_str).zip(&saved.model.clients);
    clients.filter(|(_, client)| client.is_outlier)
}

/// Whether joining pays, for one client.
pub(super) fn joining(client: &ComponentClient) -> &'static str {
    client.joining.map_or("", |gain| gain.verdict().word())
}

fn p_value(p: f64) -> String {
    if p < 1e-12 { "p < 1e-12".into() } else { format!("p = {p:.1e}") }
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// The components with their shares and what sets them apart.
pub(super) fn component_table(saved: &SavedMixture) -> Table {
    let names = saved.features();
    let mut table = Table::new().words("component").numbers("share %").words("what sets it apart: mean ± spread");
    for (number, own) in components(saved).iter().enumerate() {
        let mut places: Vec<usize> = (0..names.len()).collect();
        places.sort_by(|&a, &b| own.apart[b].abs().total_cmp(&own.apart[a].abs()));
        let few = names.len() <= COLUMNS;
        let told = places.iter().filter(|&&place| few || own.apart[place].abs() > APART).take(COLUMNS);
        let word = |place: &usize| {
            format!("{} {} ± {}", names[*place], short(own.means[*place]), short(own.deviations[*place]))
        };
        let words: Vec<String> = told.map(word).collect();
        let words = if words.is_empty() { "near the mean of all rows".to_string() } else { words.join("; ") };
        table.push([(number + 1).to_string(), percent(own.weight), words]);
    }
    table
}

/// The families with their sizes and how often components occur in them.
pub(super) fn families(saved: &SavedMixture) -> Table {
    let (families, clients) = (&saved.model.families, &saved.model.clients);
    let mut table = Table::new().words("family").numbers("clients").numbers("share %").words("components %");
    for (number, (share, centre)) in families.shares.iter().zip(&families.centres).enumerate() {
        let members = clients.iter().filter(|client| client.family == number && !client.is_outlier).count();
        let weights: Vec<String> =
            centre.iter().enumerate().map(|(place, weight)| format!("{}: {}", place + 1, percent(*weight))).collect();
        table.push([(number + 1).to_string(), members.to_string(), percent(*share), weights.join("; ")]);
    }
    table
}

/// Log densities of held-out rows.
pub(super) fn held_out(saved: &SavedMixture) -> Table {
    let mut table = Table::new().words("log density of held-out rows").numbers("mean");
    let found = &saved.model.held_out;
    let rows = [
        ("everybody's weights", Some(found.everybody)),
        ("its family's weights", Some(found.family)),
        ("its own weights, leaning on these", Some(found.personal)),
        ("a mixture of its own", found.alone),
        ("what serves each client", Some(found.served)),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            table.push([name.to_string(), format!("{:.4}", value + saved.model.log_units)]);
        }
    }
    table
}

fn weights_table(saved: &SavedMixture, title: &str, weights: &[f64]) -> Table {
    let all = &saved.model.params[saved.model.shape.weights()];
    let mut table = Table::new().words("component").numbers(title).numbers("everybody %");
    for (number, (own, all)) in weights.iter().zip(all).enumerate() {
        table.push([(number + 1).to_string(), percent(*own), percent(*all)]);
    }
    table
}
