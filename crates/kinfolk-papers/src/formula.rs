//! How a cell is read off the record of a run: a formula over what the run found.
//!
//! `label.metric.mean` is a number of a method's repeat in summary.json, `label.settings.rounds` one of its settings, and
//! `label.clients.metric` and `label.rounds.round` are columns of clients.csv and rounds.csv. Operators stand between blanks,
//! since labels have hyphens; comparisons give 1 or 0. All is computed for every element of a column.

use kinfolk::record::summary::{mean, standard_deviation};
use kinfolk::record::{ClientRecord, Record, RoundRecord};
use kinfolk::{Error, Result};

/// A column; a single number is a column of one. What is absent stays so.
type Values = Vec<Option<f64>>;
type Operation = fn(&[Values]) -> Values;

#[derive(Clone)]
pub(crate) enum Formula {
    Number(f64),
    Summary { label: String, pointer: String },
    Clients { label: String, read: fn(&ClientRecord) -> Option<f64> },
    Rounds { label: String, read: fn(&RoundRecord) -> Option<f64> },
    Apply(Operation, Vec<Formula>),
}

/// Operators, from those that bind least.
const LEVELS: [&[&str]; 4] = [&["or"], &["<=", ">=", ">", "=="], &["+", "-"], &["*", "/"]];

/// Name, number of arguments (0: one or more), and what it does.
const OPERATIONS: [(&str, usize, Operation); 22] = [
    // The second where the first is absent.
    ("or", 2, |of| pairs(of, Option::or)),
    ("<=", 2, |of| both(of, |a, b| f64::from(a <= b))),
    (">=", 2, |of| both(of, |a, b| f64::from(a >= b))),
    (">", 2, |of| both(of, |a, b| f64::from(a > b))),
    ("==", 2, |of| both(of, |a, b| f64::from(a == b))),
    ("+", 2, |of| both(of, |a, b| a + b)),
    ("-", 2, |of| both(of, |a, b| a - b)),
    ("*", 2, |of| both(of, |a, b| a * b)),
    ("/", 2, |of| both(of, |a, b| a / b)),
    ("abs", 1, |of| of[0].iter().map(|value| value.map(f64::abs)).collect()),
    ("ln", 1, |of| of[0].iter().map(|value| value.map(f64::ln)).collect()),
    ("sqrt", 1, |of| of[0].iter().map(|value| value.map(f64::sqrt)).collect()),
    // The second where the first overflowed.
    ("finite", 2, |of| both(of, |a, b| if a.is_finite() { a } else { b })),
    // What is present in the first where the second holds, and the first of these.
    ("select", 2, |of| select(of).map(Some).collect()),
    ("first", 2, |of| vec![select(of).next()]),
    ("absent", 1, |of| vec![Some(f64::from(of[0].iter().all(Option::is_none)))]),
    ("mean", 0, |of| over(of, |all| Some(mean(all)))),
    ("deviation", 0, |of| over(of, standard_deviation)),
    ("quantile", 2, quantile),
    ("sum", 0, |of| over(of, |all| Some(all.iter().sum()))),
    ("min", 0, |of| over(of, |all| all.iter().copied().reduce(f64::min))),
    ("max", 0, |of| over(of, |all| all.iter().copied().reduce(f64::max))),
];

fn pairs(of: &[Values], with: impl Fn(Option<f64>, Option<f64>) -> Option<f64>) -> Values {
    let (a, b) = (&of[0], &of[1]);
    match (a.len(), b.len()) {
        (_, 1) => a.iter().map(|a| with(*a, b[0])).collect(),
        (1, _) => b.iter().map(|b| with(a[0], *b)).collect(),
        _ => a.iter().zip(b).map(|(a, b)| with(*a, *b)).collect(),
    }
}

fn both(of: &[Values], with: impl Fn(f64, f64) -> f64) -> Values {
    pairs(of, |a, b| Some(with(a?, b?)))
}

fn select(of: &[Values]) -> impl Iterator<Item = f64> {
    of[0].iter().zip(&of[1]).filter(|(_, holds)| **holds == Some(1.0)).filter_map(|(value, _)| *value)
}

/// One number of all; absent where one of them is, or there is none.
fn over(of: &[Values], reduce: impl Fn(&[f64]) -> Option<f64>) -> Values {
    let all: Option<Vec<f64>> = of.iter().flatten().copied().collect();
    vec![all.filter(|all| !all.is_empty()).and_then(|all| reduce(&all))]
}

/// The value below which this share lies, between two values in proportion.
fn quantile(of: &[Values]) -> Values {
    over(&of[1..], |all| {
        let mut sorted = all.to_vec();
        sorted.sort_by(f64::total_cmp);
        let place = of[0][0]? * (sorted.len() - 1) as f64;
        let (below, above) = (sorted.get(place.floor() as usize)?, sorted.get(place.ceil() as usize)?);
        Some(below + place.fract() * (above - below))
    })
}

impl Formula {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let spaced =
            ["(", ")", ","].iter().fold(text.to_string(), |text, mark| text.replace(mark, &format!(" {mark} ")));
        let mut parser = Parser { tokens: spaced.split_whitespace().rev().collect() };
        let parsed = parser.level(0).and_then(|formula| match parser.tokens.pop() {
            None => Ok(formula),
            Some(token) => Err(format!("{token} is too much")),
        });
        parsed.map_err(|fault| Error::data(format!("formula {text}: {fault}")))
    }

    /// The number; absent where something is that it needs.
    pub(crate) fn read(&self, record: &Record) -> Option<f64> {
        self.values(record).first().copied().flatten()
    }

    fn values(&self, record: &Record) -> Values {
        match self {
            Formula::Number(number) => vec![Some(*number)],
            Formula::Summary { label, pointer } => vec![summary(record, label, pointer)],
            Formula::Clients { label, read } => {
                record.clients.iter().filter(|client| client.label == *label).map(read).collect()
            }
            Formula::Rounds { label, read } => {
                record.rounds.iter().filter(|round| round.label == *label).map(read).collect()
            }
            Formula::Apply(operation, arguments) => {
                operation(&arguments.iter().map(|argument| argument.values(record)).collect::<Vec<_>>())
            }
        }
    }

    fn apply(name: &str, arguments: Vec<Self>) -> Result<Self, String> {
        let known = OPERATIONS.iter().find(|(known, ..)| *known == name);
        let (_, count, operation) = known.ok_or(format!("there is no {name}"))?;
        match *count == 0 || *count == arguments.len() {
            true => Ok(Formula::Apply(*operation, arguments)),
            false => Err(format!("{name} has {} arguments, want {count}", arguments.len())),
        }
    }

    fn column(name: &str) -> Result<Self, String> {
        let (label, path) = name.split_once('.').ok_or(format!("{name} is no label.column"))?;
        let label = label.to_string();
        Ok(match path {
            "clients.metric" => Formula::Clients { label, read: |client| client.metric },
            "clients.samples" => Formula::Clients { label, read: |client| Some(client.samples as f64) },
            "rounds.round" => Formula::Rounds { label, read: |round| Some(round.round as f64) },
            "rounds.normalised_mse" => Formula::Rounds { label, read: |round| round.normalised_mse },
            _ => Formula::Summary { label, pointer: format!("/{}", path.replace('.', "/")) },
        })
    }
}

fn summary(record: &Record, label: &str, pointer: &str) -> Option<f64> {
    let method = record.summary.methods.iter().find(|method| method.label == label)?;
    match pointer.strip_prefix("/settings") {
        Some(setting) => method.settings.pointer(setting)?.as_f64(),
        None => serde_json::to_value(method.repeats.first()?).ok()?.pointer(pointer)?.as_f64(),
    }
}

struct Parser<'a> {
    /// From the last to the first.
    tokens: Vec<&'a str>,
}

impl Parser<'_> {
    fn level(&mut self, level: usize) -> Result<Formula, String> {
        let Some(operators) = LEVELS.get(level) else { return self.atom() };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = self.tokens.pop_if(|token| operators.contains(token)) {
            left = Formula::apply(operator, vec![left, self.level(level + 1)?])?;
        }
        Ok(left)
    }

    fn atom(&mut self) -> Result<Formula, String> {
        let token = self.tokens.pop().ok_or("it ends too soon")?;
        if token == "(" {
            let inner = self.level(0)?;
            return self.expect(")").map(|()| inner);
        }
        if self.tokens.pop_if(|token| *token == "(").is_none() {
            return token.parse().map(Formula::Number).or_else(|_| Formula::column(token));
        }
        let mut arguments = vec![self.level(0)?];
        while self.tokens.pop_if(|token| *token == ",").is_some() {
            arguments.push(self.level(0)?);
        }
        self.expect(")")?;
        Formula::apply(token, arguments)
    }

    fn expect(&mut self, mark: &str) -> Result<(), String> {
        self.tokens.pop_if(|token| *token == mark).map(|_| ()).ok_or(format!("a {mark} is missing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinfolk::experiment::Experiment;
    use kinfolk::run::{Options, Unwatched, run};

    fn record() -> Record {
        const TEXT: &str = "[data]\nsource = \"linear\"\nclients = 4\nsamples = 8\ndimension = 2\n[model]\nkind = \"linear\"\n\
                            [[method]]\nname = \"fedavg\"\nrounds = 2\nstep = 0.1";
        let experiment = Experiment::parse("test", TEXT, &[]).unwrap();
        run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap()
    }

    #[test]
    fn formulas_by_hand() {
        let record = record();
        let read = |text: &str| Formula::parse(text).unwrap().read(&record);
        assert_eq!(read("8 - 2 * 3 - 1"), Some(1.0));
        assert_eq!(read("100 * (1 + 1) / 4"), Some(50.0));
        assert_eq!(read("abs(1 - 3) <= 2"), Some(1.0));
        assert_eq!(read("sqrt(9) > 3 or 7"), Some(0.0));
        assert_eq!(read("min(3, 2, 5) + max(1, 4) + sum(1, 2) + mean(1, 3)"), Some(11.0));
        assert_eq!(read("deviation(1, 3) * deviation(1, 3) - 2 <= 1e-9"), Some(1.0));
        assert_eq!(read("fedavg.rounds == fedavg.settings.rounds"), Some(1.0));
        let metric = record.summary.methods[0].repeats[0].metric.as_ref().unwrap();
        assert_eq!(read("100 * fedavg.metric.worst_decile"), metric.worst_decile.map(|worst| 100.0 * worst));
        assert_eq!(read("nobody.rounds + 1"), None);
        assert_eq!(read("nobody.rounds + 1 or 5"), Some(5.0));
        assert_eq!(read("min(1, nobody.rounds)"), None);
        assert_eq!(read("absent(nobody.rounds) + absent(fedavg.rounds)"), Some(1.0));
    }

    #[test]
    fn columns_are_compared_and_selected() {
        let mut record = record();
        for (client, (metric, samples)) in record.clients.iter_mut().zip([(4.0, 8), (1.0, 8), (3.0, 8), (2.0, 8)]) {
            (client.metric, client.samples) = (Some(metric), samples);
        }
        const COUNTED: &str = "select(finite(fedavg.clients.metric, 100), fedavg.clients.samples >= 5)";
        let read = |record: &Record, text: &str| Formula::parse(&text.replace("it", COUNTED)).unwrap().read(record);
        let quantiles = ["0", "0.25", "0.5", "1"].map(|share| read(&record, &format!("quantile({share}, it)")));
        assert_eq!(quantiles, [1.0, 1.75, 2.5, 4.0].map(Some));
        assert_eq!(read(&record, "mean(it <= 2)"), Some(0.5));
        record.clients[0].samples = 4;
        record.clients[1].metric = Some(f64::INFINITY);
        record.clients[2].metric = None;
        assert_eq!(read(&record, "sum(it)"), Some(102.0));
        assert_eq!(read(&record, "sum(it > 50)"), Some(1.0));
        assert_eq!(read(&record, "quantile(0.75, 7)"), Some(7.0));
        assert_eq!(read(&record, "mean(select(nobody.clients.metric, 1))"), None);
    }

    #[test]
    fn a_formula_that_cannot_be_read_says_why() {
        let fault = |text: &str| Formula::parse(text).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(fault("a.b +"), "formula a.b +: it ends too soon");
        assert_eq!(fault("(a.b"), "formula (a.b: a ) is missing");
        assert_eq!(fault("a.b c.d"), "formula a.b c.d: c.d is too much");
        assert_eq!(fault("cosine(a.b)"), "formula cosine(a.b): there is no cosine");
        assert_eq!(fault("abs(a.b, 1)"), "formula abs(a.b, 1): abs has 2 arguments, want 1");
        assert_eq!(fault("ab"), "formula ab: ab is no label.column");
    }
}
