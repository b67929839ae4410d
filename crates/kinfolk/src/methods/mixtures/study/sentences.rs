//! Each decision in a sentence.

use super::components::MOST;
use super::{ComponentModel, HeldOut, LEVEL};
use crate::families::LEAST_CLIENTS;
use crate::text::counted;

fn p_value(p: f64) -> String {
    if p < 0.01 { format!("p = {p:.3}") } else { format!("p = {p:.2}") }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

pub(super) fn of(model: &ComponentModel) -> Vec<String> {
    vec![components(model), difference(model), families(model), service(model)]
}

fn components(model: &ComponentModel) -> String {
    let count = model.shape.components;
    let chosen = model.tried.iter().find(|tried| tried.chosen);
    let scatter = match chosen.is_some_and(|tried| tried.full) {
        true => "columns vary together inside them",
        false => "columns vary independently inside them",
    };
    if model.fixed {
        return format!("{} as asked; {scatter}.", counted(count, "component"));
    }
    if count == 1 {
        return "Rows form one cloud: held-out rows are no likelier with more components.".into();
    }
    let of = |components: usize| {
        let same = model.tried.iter().filter(|tried| tried.components == components);
        same.map(|tried| tried.held_out).fold(f64::NEG_INFINITY, f64::max)
    };
    let best = model.tried.iter().map(|tried| tried.held_out).fold(f64::NEG_INFINITY, f64::max);
    let own = chosen.map_or(best, |tried| tried.held_out);
    let error = chosen.map_or(0.0, |tried| tried.short_of_best.error);
    let most = if count == MOST { ", the most that are tried" } else { "" };
    let near = if own < best {
        format!(" ({:.3} ± {error:.3} short of the best, which is no surer)", best - own)
    } else {
        String::new()
    };
    format!(
        "Rows form {count} components{most}; {scatter}. Held-out rows have a log density of {:.3} on average{near}; with one component less it is {:.3}.",
        own + model.log_units,
        of(count - 1) + model.log_units
    )
}

fn difference(model: &ComponentModel) -> String {
    let between = percent(1.0 / (1.0 + model.families.strength));
    let differ = model.weights_p.is_some_and(|p| p <= LEVEL);
    let weights = match model.weights_p {
        None => "Whether clients differ in how often components occur cannot be told".to_string(),
        Some(p) if differ && model.families.len() == 1 => {
            format!(
                "Clients differ in how often components occur ({}): {between} of its variance lies between them",
                p_value(p)
            )
        }
        Some(p) if differ => format!("Clients differ in how often components occur ({})", p_value(p)),
        Some(p) => format!("No difference between clients in how often components occur is seen ({})", p_value(p)),
    };
    let centres = match model.centres_p {
        None => String::new(),
        Some(p) if p <= LEVEL => format!("; they differ in where components are ({})", p_value(p)),
        Some(p) if differ => format!("; no difference is seen in where components are ({})", p_value(p)),
        Some(p) => format!(", nor in where components are ({})", p_value(p)),
    };
    format!("{weights}{centres}.")
}

fn families(model: &ComponentModel) -> String {
    let outliers: Vec<&_> = model.clients.iter().filter(|client| client.is_outlier).collect();
    let apart = match outliers.len() {
        0 => " No client is an outlier.".to_string(),
        1 => " One client is an outlier: its rows are unlike those of the others.".to_string(),
        more => {
            let together = outliers.iter().filter(|client| client.shares_place).count();
            let together = match together {
                0 | 1 => String::new(),
                all if all == more => ", and in one place or several that they share".to_string(),
                some => format!(", those of {some} in one place or several that they share"),
            };
            format!(" {more} clients are outliers: their rows are unlike those of the others{together}.")
        }
    };
    let count = model.families.len();
    let clients = model.clients.len() - outliers.len();
    let found = if !model.searched {
        match count {
            1 => "One family, as asked.".to_string(),
            _ => format!("{count} families, as given."),
        }
    } else if count > 1 {
        let size =
            |family: usize| model.clients.iter().filter(|client| !client.is_outlier && client.family == family).count();
        let sizes: Vec<String> = (0..count).map(|family| size(family).to_string()).collect();
        format!("There are {count} families of clients, of {}.", listed(&sizes))
    } else if model.weights_p.is_none_or(|p| p > LEVEL) {
        "Clients are taken for one family.".to_string()
    } else if clients < LEAST_CLIENTS {
        format!("With only {}, families cannot be told from a continuum.", counted(clients, "client"))
    } else {
        "No families are found: clients seem to differ by degrees.".to_string()
    };
    format!("{found}{apart}")
}

fn service(model: &ComponentModel) -> String {
    let names = ["everybody's weights", "its family's weights", "its own weights, leaning on these"];
    let parts = names.iter().zip(model.stack).filter(|(_, share)| *share > 0.0);
    let parts: Vec<String> = parts.map(|(name, share)| format!("{name} ({})", percent(share))).collect();
    let mut sentence = match &parts[..] {
        [one] => format!("Every client is served by {}", one.trim_end_matches(" (100 %)")),
        _ => format!("Every client is served by a weighted average of {}", listed(&parts)),
    };
    let alone = model.clients.iter().filter(|client| client.alone.is_some()).count();
    if alone > 0 {
        sentence.push_str(&format!(", but for {alone} with a mixture of their own"));
    }
    let HeldOut { everybody, alone, served, .. } = model.held_out;
    let [served, everybody] = [served, everybody].map(|value| value + model.log_units);
    sentence.push_str(&format!(
        ". Held-out rows have a log density of {served:.3}, {everybody:.3} with everybody's weights"
    ));
    if let Some(own) = alone {
        sentence.push_str(&format!(", {:.3} with mixtures of the clients' own", own + model.log_units));
    }
    sentence.push('.');
    sentence
}
