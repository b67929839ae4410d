//! Each decision in a sentence.

use super::ladder::{Joining, Rung};
use super::learned::Learned;
use super::mixed::Covariance;
use super::search::{LEAST_CLIENTS, Stability};
use crate::text::counted;

/// A p-value as it is read.
fn p_value(p: f64) -> String {
    if p < 0.01 { format!("p = {p:.3}") } else { format!("p = {p:.2}") }
}

fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

pub(crate) fn of(learned: &Learned) -> Vec<String> {
    let mut sentences = vec![difference(learned), families(learned)];
    sentences.push(model(learned));
    sentences.extend(interactions(learned));
    sentences.push(service(learned));
    sentences
}

fn difference(learned: &Learned) -> String {
    let difference = &learned.difference;
    let share = percent(difference.between);
    match difference.p {
        None => {
            "Whether clients differ cannot be told: hardly any rows are left once each client has a model of its own."
                .into()
        }
        Some(p) if p <= 0.05 => {
            format!(
                "Clients differ ({}): {share} of the variance that a common model leaves unexplained lies between clients.",
                p_value(p)
            )
        }
        Some(p) => format!("No difference between clients is seen ({}).", p_value(p)),
    }
}

fn families(learned: &Learned) -> String {
    let (count, clients) = (learned.families.len(), learned.clients.len());
    if !learned.search.searched {
        return match count {
            1 => "One family, as asked.".into(),
            _ => format!("{count} families, as given."),
        };
    }
    if count > 1 {
        let sizes: Vec<String> = learned.families.iter().map(|family| family.clients.to_string()).collect();
        let mut sentence = format!("There are {count} families, of {} clients.", listed(&sizes));
        if let Some(stability) = &learned.search.stability {
            let Stability { agreement, compared, expected, .. } = stability;
            sentence.push_str(&format!(
                " When clients are resampled, the families found agree with these with an adjusted Rand index of {agreement:.2}"
            ));
            if compared < expected {
                sentence.push_str(&format!(", less than such families would ({expected:.2})"));
            }
            sentence.push('.');
        }
        return sentence;
    }
    if !learned.difference.found() {
        return "They are taken for one family.".into();
    }
    if clients < LEAST_CLIENTS {
        return format!("With only {}, families cannot be told from a continuum.", counted(clients, "client"));
    }
    "No families are found: clients seem to differ by degrees.".into()
}

fn model(learned: &Learned) -> String {
    let structure = match learned.covariance {
        Covariance::Intercept => "a variance for intercepts",
        Covariance::Scalar => "one variance for all coefficients",
        Covariance::InterceptSlopes => "a variance for intercepts and one for slopes",
        Covariance::Diagonal => "a variance for every column",
        Covariance::Full => "variances and covariances for all columns",
    };
    let curves = match (learned.curves.is_empty(), learned.random_curves) {
        (true, _) => "",
        (false, false) => ", with curves that all have in common",
        (false, true) => ", with curves of each client's own",
    };
    let on = if learned.families.len() > 1 { "their family" } else { "the centre of all clients" };
    format!("Personal models are shrunk towards {on}, with {structure}{curves}.")
}

fn interactions(learned: &Learned) -> Option<String> {
    let quoted: Vec<String> = learned.interactions.iter().map(|name| format!("`{name}`")).collect();
    let (acts, its) = if quoted.len() == 1 { ("acts", "its") } else { ("act", "their") };
    (!quoted.is_empty()).then(|| {
        let with = format!("{its} products with other columns are in the model, the same for everybody");
        format!("How {} {acts} depends on other columns: {with}.", listed(&quoted))
    })
}

fn service(learned: &Learned) -> String {
    let family = if learned.families.len() > 1 { "its family's" } else { "the centre of all clients" };
    let names = ["everybody's model", family, "its personal model", "its own alone"];
    let parts: Vec<String> = (names.iter().zip(learned.stack))
        .filter(|(_, weight)| *weight >= 0.005)
        .map(|(name, weight)| format!("{name} ({})", percent(weight)))
        .collect();
    let verdict = |wanted: Joining| learned.clients.iter().filter(|client| client.verdict() == Some(wanted)).count();
    let own = learned.clients.iter().filter(|client| client.own_choice().is_some()).count();
    let alone = learned.clients.iter().filter(|client| client.own_choice() == Some(Rung::Alone)).count();
    let mut sentence = match &parts[..] {
        [one] => format!("Every client is served by {one}"),
        _ => format!("Every client is served by a weighted average of {}", listed(&parts)),
    };
    if own > 0 {
        sentence.push_str(&format!(
            ", but for {own} that a single one of these serves better, {alone} of them their own alone"
        ));
    }
    let [.., alone, served] = learned.errors;
    if alone > 0.0 && served > 0.0 {
        let (less, word) =
            if served <= alone { (1.0 - served / alone, "below") } else { (served / alone - 1.0, "above") };
        let share = percent(less);
        sentence.push_str(&format!(
            ". Averaged over clients, the error is {share} {word} that of models fitted to each client alone"
        ));
    }
    let (all, helps, hurts) = (learned.clients.len(), verdict(Joining::Helps), verdict(Joining::Hurts));
    sentence.push_str(&match (helps, hurts) {
        (0, 0) => "; for no single client is it clear whether joining helps or hurts.".to_string(),
        (helps, 0) if helps == all => "; joining clearly helps every one.".to_string(),
        _ => format!("; of the {all} clients, joining clearly helps {helps} and clearly hurts {hurts}."),
    });
    sentence
}
