//! Each decision in a sentence.

use super::Findings;
use super::look::LEAST_CLIENTS;
use super::service::{Rung, Service};
use crate::families::Gain;
use crate::text::{counted, significant};
use crate::training::Amount;

fn listed(sizes: &[usize]) -> String {
    let words: Vec<String> = sizes.iter().map(usize::to_string).collect();
    match &words[..] {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => words.concat(),
    }
}

fn with_error(gain: &Gain) -> String {
    format!("{} ± {}", significant(gain.mean, 2), significant(gain.error, 2))
}

pub(super) fn of(findings: &Findings, sizes: &[usize], clients: usize) -> Vec<String> {
    let mut sentences: Vec<String> = difference(findings).into_iter().collect();
    sentences.push(families(findings, sizes, clients));
    sentences.extend(findings.events.iter().cloned());
    sentences.extend(training(findings));
    sentences.extend(findings.service.as_ref().map(|service| self::service(service, sizes.len())));
    sentences.push(format!("Every client was asked {} at most.", counted(findings.questions, "question")));
    sentences
}

fn difference(findings: &Findings) -> Option<String> {
    let p = findings.p?;
    let value = if p < 0.01 { format!("p = {p:.3}") } else { format!("p = {p:.2}") };
    Some(match p <= 0.05 {
        true => format!("Clients differ ({value}): each would change the common model in a way of its own."),
        false => format!("No difference between clients is seen ({value})."),
    })
}

fn families(findings: &Findings, sizes: &[usize], clients: usize) -> String {
    let looks = counted(findings.looks, "look");
    match (sizes.len(), findings.wanted, &findings.gain) {
        (1, Some(_), _) => "One family, as asked.".into(),
        (count, Some(_), _) => format!("{count} families, as asked, of {} clients.", listed(sizes)),
        (0 | 1, None, _) if clients < LEAST_CLIENTS => {
            format!("With only {}, no families are looked for.", counted(clients, "client"))
        }
        (0 | 1, None, Some(gain)) => format!(
            "No families are found in {looks}: what looked like some served clients no better (gain {}).",
            with_error(gain)
        ),
        (0 | 1, None, None) => match findings.p {
            Some(p) if p <= 0.05 => format!("No families are found in {looks}: clients seem to differ by degrees."),
            _ => format!("They are taken for one family, after {looks}."),
        },
        (count, None, gain) => {
            let gain = gain.as_ref().map_or(String::new(), |gain| {
                format!(": on held-out rows that lowers the mean loss by {}", with_error(gain))
            });
            format!("There are {count} families, of {} clients{gain}.", listed(sizes))
        }
    }
}

fn training(findings: &Findings) -> Option<String> {
    let (rounds, gain) = findings.ended.as_ref()?;
    let rounds = counted(*rounds, "round");
    Some(match gain {
        Some(gain) => format!(
            "The search ended after {rounds}: nobody changed family, and further rounds changed the held-out loss by no more than its \
             error (gain {}).",
            with_error(gain)
        ),
        None => format!("The search took all of its {rounds}; more of them may serve clients better."),
    })
}

fn name(rung: Rung, families: usize) -> String {
    let common = if families > 1 { "its family's model" } else { "the common model" };
    let long = |amount: Amount| match amount {
        Amount::Steps(steps) => counted(steps as usize, "step"),
        Amount::Epochs(epochs) => counted(epochs as usize, "epoch"),
    };
    match rung {
        Rung::Global => "everybody's model".into(),
        Rung::Family => common.into(),
        Rung::Personal(amount) => format!("{common}, fine-tuned on its own rows for {}", long(amount)),
        Rung::Alone(_) => "its own model alone".into(),
    }
}

fn service(service: &Service, families: usize) -> String {
    let mut sentence = format!("Every client is served by {}", name(service.default, families));
    if service.tried == 0 {
        sentence.push('.');
        return sentence;
    }
    let deviating = service.deviating(|_| true);
    if deviating > 0 {
        let alone = service.deviating(|rung| matches!(rung, Rung::Alone(_)));
        sentence.push_str(&format!(
            ", but for {deviating} that something else serves better, {alone} of them their own alone"
        ));
    }
    sentence.push_str(&format!(" (held-out loss {}", significant(service.loss, 3)));
    if let Some((rung, gain)) = &service.next {
        let rung = name(*rung, families);
        sentence.push_str(&match gain.mean >= 0.0 {
            true => format!("; next is {rung}, worse by {}", with_error(gain)),
            false => {
                let gain = Gain { mean: -gain.mean, ..*gain };
                format!("; {rung} would be better by {}, which is not clear enough", with_error(&gain))
            }
        });
    }
    let neutral = service.tried - service.helped - service.hurt;
    sentence.push_str(&format!(
        "). Joining helps {} of {}, hurts {}, and makes no visible difference for {neutral}.",
        service.helped,
        counted(service.tried, "client"),
        service.hurt
    ));
    sentence
}
