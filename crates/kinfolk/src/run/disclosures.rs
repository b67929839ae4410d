//! What a run would have clients tell, from its settings alone: before anything is sent.

use crate::experiment::Experiment;
use crate::federation::Phase;
use crate::federation::disclosure::{Disclosure, Telling, Times, Told};
use crate::federation::work::{Evaluate, Respond, Tally, TypedWork};
use crate::methods::study_discloses;
use crate::models::Ability;
use crate::privacy::Disclosure as Sums;
use crate::privacy::accountant::Budget;
use crate::privacy::protection::{Level, Protection};
use crate::report::table::Table;
use serde::Serialize;

/// What a run would have clients tell, part by part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disclosures {
    /// The name of the run.
    pub name: String,
    /// For how many seeds all of it is told.
    pub seeds: u64,
    /// To whom.
    pub to: &'static str,
    /// What noise hides in it, where there is some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<String>,
    /// Its parts in the order in which they come.
    pub parts: Vec<Part>,
}

/// A part of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// What it is.
    pub part: String,
    /// What is told in it.
    pub tells: Vec<Row>,
}

/// One thing that is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The name of the kind of work, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<&'static str>,
    /// What, in words.
    pub what: String,
    /// Of whom: of each client, or in sums over several.
    pub of: &'static str,
    /// How often of one client.
    pub times: String,
    /// What it is needed for.
    pub purpose: String,
}

const SERVER: &str = "the server of the run, and nobody else";
const EACH: &str = "each client";
const SUMS: &str = "sums";
/// Where nothing else leaves.
const SEALED: &str = "sums over a machine's clients";
const SECURE: &str = "sums over all machines";
/// To whom these, and what follows where machines are missing.
const SERVER_IN_SUMS: &str = "the server of the run, and nobody else, which sees sums over machines alone (with three machines none may be \
                              missing; from four on more than two thirds have to be there)";
/// Vectors are summed, and what else is told comes one by one.
const MIXED: &str = "sums; losses and choices of each client";
const ONCE: &str = "once";

impl Row {
    fn new(what: &str, of: &'static str, times: impl Into<String>, purpose: &str) -> Self {
        Self { work: None, what: what.into(), of, times: times.into(), purpose: purpose.into() }
    }

    fn of_work<W: TypedWork + Telling>(told: Told, times: impl Into<String>, purpose: &str) -> Self {
        let disclosure = match told {
            Told::Single => Disclosure::single::<W>(Phase::Evaluate, 1, ""),
            Told::Sums => Disclosure::sums::<W>(Phase::Evaluate, 1, ""),
        };
        Self { times: times.into(), purpose: purpose.into(), ..Self::of(&disclosure) }
    }

    fn of(disclosure: &Disclosure) -> Self {
        let of = match disclosure.told {
            Told::Sums if !disclosure.is_vector_alone => MIXED,
            Told::Sums => SUMS,
            Told::Single => EACH,
        };
        let times = match disclosure.times {
            Times::AtMost(1) => ONCE.to_string(),
            Times::AtMost(times) => format!("up to {times} times"),
            Times::AsNeeded => "as often as it takes".into(),
        };
        let purpose = match disclosure.phase {
            Phase::Start => format!("{} (before the first round)", disclosure.purpose),
            _ => disclosure.purpose.into(),
        };
        Self { work: Some(disclosure.work), what: disclosure.tells.clone(), of, times, purpose }
    }
}

/// What machines tell when their roll is called.
fn roll_call(target: bool, words: bool, again: Option<&str>) -> Part {
    let mut tells = vec![Row::new(
        "its name, its number of rows, and its group where a column names groups",
        EACH,
        ONCE,
        "who takes part",
    )];
    if words {
        tells.push(Row::new(
            "of columns of numbers the mean, the deviation and bounds of the extremes; of dates which months, weekdays and hours occur; of columns that its machine lists as words every different cell",
            EACH,
            ONCE,
            "one encoding for everybody",
        ));
    }
    if target {
        tells.push(Row::new("the same of the target, and its classes", EACH, ONCE, "one encoding for everybody"));
    }
    tells.extend(
        again.map(|purpose| Row::new("the mean and the deviation of every encoded column", EACH, ONCE, purpose)),
    );
    Part { part: "before the first method".into(), tells }
}

/// What machines tell where models stay with clients.
fn end(what: &str) -> Part {
    Part { part: "at the end".into(), tells: vec![Row::new(what, SUMS, ONCE, "the notes of the summary")] }
}

/// What noise hides in what methods are told.
fn noise(protection: &Protection) -> Option<String> {
    let Budget { epsilon, delta } = protection.budget()?;
    let (what, whom) = match protection.level {
        Level::Client => ("sums for methods have noise in them", "single clients"),
        _ => ("answers to methods have noise in them", "single rows"),
    };
    Some(format!(
        "{what}, which hides {whom}: ε = {epsilon} at δ = {delta:e} for each method and seed; roll call and evaluation have none"
    ))
}

const KEPT: &str = "how many models of clients are kept on the machine, and in which folder there; the models stay";

impl Disclosures {
    /// Those of an experiment.
    pub fn of(experiment: &Experiment) -> Self {
        let ability = (experiment.model_kind.ability)(&experiment.model);
        let top = &experiment.top;
        // What is read from a file has columns that are described.
        let is_table = experiment.source.settings.iter().any(|setting| setting.name == "path");
        let steps = experiment.methods.iter().any(|method| method.needs().auto_step.is_some());
        let again = steps.then_some("the step size, where step = \"auto\"");
        let mut parts = vec![roll_call(!ability.of_mixture(), is_table, again)];
        for method in &experiment.methods {
            let part = format!("method {}", method.label);
            let mut tells: Vec<Row> = (method.kind.discloses)(&method.settings, ability).iter().map(Row::of).collect();
            if tells.is_empty() {
                tells.push(Row::new("this method does not say", EACH, "unknown", "unknown"));
            }
            parts.push(Part { part, tells });
        }
        let often = format!("every {} rounds of a method, and after its last", top.evaluate_every);
        let mut tells = vec![Row::of_work::<Evaluate>(Told::Single, often, "clients.csv and the result table")];
        if ability.solves_exactly() && experiment.privacy.sums == Sums::Open {
            let beside = "what personal models in clusters are compared with: each client alone, and one model for all";
            let times = if ability == Ability::Quadratic { "once a method" } else { "up to 60 times a method" };
            tells.push(Row::of_work::<Respond>(Told::Sums, times, beside));
            tells.push(Row::of_work::<Evaluate>(Told::Single, "twice a method", beside));
        }
        if ability.of_mixture() {
            let what = "how components match classes, where the data has some";
            tells.push(Row::of_work::<Tally>(Told::Sums, "once a method", what));
        }
        parts.push(Part { part: "evaluation".into(), tells });
        let (of, to) = match experiment.privacy.sums {
            Sums::Open => (None, SERVER),
            Sums::Sealed => (Some(SEALED), SERVER),
            Sums::Secure => (Some(SECURE), SERVER_IN_SUMS),
        };
        // The roll is called in any case.
        let told = parts[1..].iter_mut().flat_map(|part| &mut part.tells);
        told.for_each(|row| row.of = of.unwrap_or(row.of));
        parts.push(end(KEPT));
        Self {
            name: experiment.name().into(),
            seeds: top.repeat,
            to,
            noise: noise(&experiment.privacy.protection),
            parts,
        }
    }

    /// Those of a fit over machines, which is of linear models.
    pub fn of_fit(name: &str) -> Self {
        let mut parts = vec![roll_call(true, true, None)];
        parts.push(Part { part: "the study".into(), tells: study_discloses().iter().map(Row::of).collect() });
        let scores =
            Row::of_work::<Evaluate>(Told::Single, "once for each model that may serve it", "errors on held-out rows");
        parts.push(Part { part: "evaluation".into(), tells: vec![scores] });
        parts.push(end("how many clients the model knows that was written there; their own models stay"));
        Self { name: name.into(), seeds: 1, to: SERVER, noise: None, parts }
    }

    /// As a table for every part.
    pub fn show(&self) -> String {
        let seeds = if self.seeds == 1 { String::new() } else { format!(", for each of {} seeds", self.seeds) };
        let mut text = format!("what clients on other machines would tell {}{seeds}:\n", self.to);
        text.extend(self.noise.iter().map(|noise| format!("{noise}\n")));
        for Part { part, tells } in &self.parts {
            let mut table = Table::new().words(part.as_str()).words("of").words("how often").words("needed for");
            for row in tells {
                table.push([row.what.as_str(), row.of, row.times.as_str(), row.purpose.as_str()]);
            }
            text += &format!("\n{table}");
        }
        text
    }
}
