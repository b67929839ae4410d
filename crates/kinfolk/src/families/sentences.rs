//! Each decision in a sentence.

use super::ladder::Rung;
use super::learned::Learned;
use super::mixed::Covariance;
use super::search::LEAST_CLIENTS;

/// A p-value as it is read.
fn p_value(p: f64) -> String {
    if p < 0.01 { format!("p = {p:.3}") } else { format!("p = {p:.2}") }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

pub(crate) fn of(learned: &Learned) -> Vec<String> {
    let mut sentences = vec![difference(learned), families(learned)];
    sentences.push(model(learned));
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
            format!("Clients differ ({}): {share} of what the columns leave unexplained lies between them.", p_value(p))
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
        let mut sentence = format!("There are {count} families, of {} clients.", sizes.join(", "));
        if let Some(stability) = &learned.search.stability {
            let firm = if stability.agreement >= stability.expected {
                "as stable as such families are"
            } else {
                "less stable than such families would be"
            };
            sentence.push_str(&format!(
                " Drawn anew, they agree with an adjusted Rand index of {:.2}, {firm} ({:.2} or more).",
                stability.agreement, stability.expected
            ));
        }
        return sentence;
    }
    if !learned.difference.found() {
        return "So there is one family.".into();
    }
    if clients < LEAST_CLIENTS {
        return format!("With {clients} clients, families cannot be told from a continuum.");
    }
    "There are no families: clients differ by degrees.".into()
}

fn model(learned: &Learned) -> String {
    let structure = match learned.covariance {
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
    format!("Personal models lean on their family with {structure}{curves}.")
}

fn service(learned: &Learned) -> String {
    let names = ["global", "family", "personal", "alone"];
    let parts: Vec<String> = (names.iter().zip(learned.stack))
        .filter(|(_, weight)| *weight >= 0.005)
        .map(|(name, weight)| format!("{name} {}", percent(weight)))
        .collect();
    let verdict = |wanted: &str| learned.clients.iter().filter(|client| client.service.verdict() == wanted).count();
    let own = learned.clients.iter().filter(|client| client.service.own_choice.is_some()).count();
    let alone = learned.clients.iter().filter(|client| client.service.own_choice == Some(Rung::Alone)).count();
    let mut sentence = format!("Clients are served by {}", parts.join(", "));
    if own > 0 {
        sentence.push_str(&format!("; {own} by one of these models alone, {alone} of them by their own"));
    }
    sentence.push_str(&format!(
        ". Joining helps {} of {} clients, hurts {}, and makes no difference that is seen for the others.",
        verdict("helps"),
        learned.clients.len(),
        verdict("hurts")
    ));
    sentence
}
