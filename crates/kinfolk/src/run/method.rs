//! One method on one seed: its rounds, its evaluations, its end.

use super::models::{found_models, keep_models, write_models};
use super::seed::Above;
use super::*;
use crate::evaluate::{Context, Evaluation, Finding};
use crate::federation::Phase;
use crate::federation::engines::FederationState;
use crate::federation::faults;
use crate::federation::server::meter::{Meter, Traffic};
use crate::federation::transforms::Transforms;
use crate::methods::room::{MethodLedger, MissingRule, diverged, exploded, nobody_answered};
use crate::methods::{Outcome, Progress, Serving};
use crate::over::Over;
use crate::privacy::protection::Level;
use serde::{Deserialize, Serialize};
use std::time::Instant;

pub(super) struct MethodRun<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) entry: &'a MethodEntry,
    pub(super) seed: u64,
    pub(super) data: &'a SeedData,
    pub(super) options: &'a Options,
    pub(super) folder: Option<&'a Folder>,
    pub(super) findings: &'a [Box<dyn Finding>],
    pub(super) above: Above<'a>,
}

/// The progress of a method, which is recorded even if it fails.
#[derive(Serialize, Deserialize)]
struct Course {
    ledger: MethodLedger,
    rounds: Vec<RoundRecord>,
    round: usize,
    seconds: f64,
    /// Notes of having gone on from a checkpoint.
    resumed: Vec<String>,
    #[serde(skip)]
    traffic: Traffic,
    #[serde(skip)]
    notes: Vec<String>,
    /// What is said of the protection of rows.
    #[serde(skip)]
    protected: Vec<String>,
    #[serde(skip)]
    found: MethodRecord,
}

/// A checkpoint: the method's state, its clients' state, and its progress.
type Checkpoint = (Vec<u8>, FederationState, Course);

impl Course {
    fn new(rule: MissingRule) -> Self {
        Self {
            ledger: MethodLedger::new(rule),
            rounds: Vec::new(),
            round: 0,
            seconds: 0.0,
            resumed: Vec::new(),
            traffic: Traffic::default(),
            notes: Vec::new(),
            protected: Vec::new(),
            found: MethodRecord::default(),
        }
    }
}

struct OngoingMethod<'a> {
    run: &'a MethodRun<'a>,
    method: Box<dyn Method>,
    federation: Box<dyn Engine>,
    unseen: Option<Box<dyn Engine>>,
    attacked: Option<Box<dyn Engine>>,
    course: &'a mut Course,
    watch: &'a mut dyn Watch,
}

/// The outcome of a method when it was evaluated, and its clients' scores.
struct Assessment {
    outcome: Outcome,
    scored: Evaluation,
    unseen: Option<Evaluation>,
}

/// Estimated number of asks left: one per round, and one per evaluation.
pub(super) fn questions(method: &dyn Method, experiment: &Experiment) -> usize {
    let rounds = method.planned_rounds();
    rounds + rounds.div_ceil(experiment.top.evaluate_every.max(1))
}

impl MethodRun<'_> {
    /// Runs the method to its end. A method that fails or panics loses only its own result.
    pub(super) fn to_the_end(&self, watch: &mut dyn Watch) -> Result<MethodRecord> {
        let mut course = Course::new(self.entry.needs().missing);
        let summary = match contained(|| self.begin(&mut course, watch)?.follow()) {
            Ok(summary) => summary,
            Err(error) if error.ends_run() => return Err(error),
            Err(error) => {
                course.found = MethodRecord { comparison: course.found.comparison, ..MethodRecord::default() };
                let status = if error.kind() == ErrorKind::Diverged { "diverged" } else { "failed" };
                let reason = Some(error.to_string());
                RepeatSummary { status: status.into(), reason, ..self.summary(&course, RepeatSummary::default()) }
            }
        };
        let record = MethodRecord { summary, rounds: course.rounds, ..course.found };
        if let Some(folder) = self.folder {
            folder.write(&folder.done(&self.entry.label, self.seed), &self.data.origin, &record)?;
            // No longer needed; a leftover would do no harm.
            let _ = std::fs::remove_file(folder.current(&self.entry.label, self.seed));
        }
        Ok(record)
    }

    /// Makes the method and its clients, and restores them from a checkpoint, if any.
    fn begin<'a>(&'a self, course: &'a mut Course, watch: &'a mut dyn Watch) -> Result<OngoingMethod<'a>> {
        let (data, label, stop) = (self.data, &self.entry.label, &self.options.stop);
        let mut method = data.method(self.entry, self.seed, Some(self.above))?;
        let faults = faults::transforms(&self.experiment.faults, self.seed, &data.population.clients);
        let mut federation = data.engine.afresh(label, faults, stop.clone())?;
        if let Some(hidden) = hidden::hidden(self.experiment, self.entry, self.seed)? {
            let hidden = federation.hide(hidden)?;
            let said = hidden::note(&hidden, self.experiment, self.entry, data);
            watch.doing(&said);
            course.protected = Some(said).into_iter().chain(hidden::note_together(self.experiment)?).collect();
        }
        let afresh = |engine: &dyn Engine| engine.afresh(label, Transforms::default(), stop.clone());
        let unseen = data.unseen.as_deref().map(afresh).transpose()?;
        let attacked = data.attacked.as_deref().map(afresh).transpose()?;
        let checkpoint = self.folder.map(|folder| folder.read(&folder.current(label, self.seed), &data.origin));
        let checkpoint: Option<Resumed<Checkpoint>> = checkpoint.transpose().map_err(Error::ending_the_run)?.flatten();
        if let Some(Resumed { value: (own, clients, before), note }) = checkpoint {
            method.restore(&own).map_err(Error::ending_the_run)?;
            federation.restore(clients).map_err(Error::ending_the_run)?;
            *course = before;
            course.resumed.extend(note);
        }
        watch.method(label, self.seed, course.round, method.planned_rounds());
        Ok(OngoingMethod { run: self, method, federation, unseen, attacked, course, watch })
    }

    /// Whether a later method goes on from this one.
    fn is_gone_on_from(&self) -> bool {
        self.experiment.methods.iter().any(|entry| entry.needs().over.as_ref() == Some(&self.entry.label))
    }

    fn client_records(&self) -> Vec<ClientRecord> {
        let groups = self.data.groups_for(self.entry, Some(self.above)).ok().flatten();
        let name =
            |place: usize| groups.as_ref().and_then(|groups| Some(groups.names[groups.of.each()[place]?].clone()));
        let clients = self.data.population.clients.iter().enumerate();
        clients
            .map(|(place, client)| ClientRecord {
                label: self.entry.label.clone(),
                seed: self.seed,
                client: client.id.clone(),
                true_cluster: client.truth,
                samples: self.data.rows[place],
                group: name(place),
                ..ClientRecord::default()
            })
            .collect()
    }

    fn summary(&self, course: &Course, found: RepeatSummary) -> RepeatSummary {
        let mut extra = stages(&course.rounds);
        extra.extend(found.extra);
        RepeatSummary {
            seed: self.seed,
            status: "done".into(),
            rounds: course.round,
            bytes_down: course.traffic.bytes_down,
            bytes_up: course.traffic.bytes_up,
            models_down: course.traffic.models_down,
            models_up: course.traffic.models_up,
            seconds: course.seconds,
            notes: course
                .resumed
                .iter()
                .chain(&course.protected)
                .chain(&course.notes)
                .cloned()
                .chain(found.notes)
                .collect(),
            extra,
            ..found
        }
    }
}

impl OngoingMethod<'_> {
    /// Runs the rounds and evaluations, and writes the models.
    fn follow(mut self) -> Result<RepeatSummary> {
        let MethodRun { experiment, options, .. } = *self.run;
        let every = experiment.top.evaluate_every;
        let mut planned = questions(&*self.method, experiment);
        let mut saved = Instant::now();
        let evaluated = loop {
            let before = self.federation.meter().clone();
            let progress = self.round(&before)?;
            let now = questions(&*self.method, experiment);
            if now.abs_diff(planned) * 4 > planned {
                planned = now;
                self.watch.planned(&self.run.entry.label, planned, 1);
            }
            let stage = self.method.stage();
            if progress.finished || self.course.round.is_multiple_of(every) || stage.is_some() {
                let spent = self.spent(Phase::Evaluate, &before);
                let evaluated =
                    self.evaluate(RoundRecord { stage, sizes: progress.sizes, ..spent }, progress.finished)?;
                if progress.finished {
                    break evaluated;
                }
            }
            if saved.elapsed() >= options.checkpoint_every && self.save()? {
                saved = Instant::now();
            }
        };
        if self.federation.ledger().useful == 0 {
            return Err(nobody_answered());
        }
        self.conclude(evaluated)
    }

    /// Runs and records one round. `before` is the meter at its start.
    fn round(&mut self, before: &Meter) -> Result<Progress> {
        let began = Instant::now();
        let progress = self.course.ledger.run_round(&mut *self.method, &mut *self.federation);
        self.look_at_federation();
        let progress = progress?;
        self.course.round += 1;
        self.course.seconds += began.elapsed().as_secs_f64();
        let asked = |phase: Phase| self.federation.meter().of(phase).asks > before.of(phase).asks;
        // A round that only finds a start counts as a round too.
        let (start, train) = (asked(Phase::Start), asked(Phase::Train));
        if start && train {
            let start = self.spent(Phase::Start, before);
            self.course.rounds.push(RoundRecord { round: 0, ..start });
        }
        let trained = RoundRecord {
            // Where rows are hidden, clients tell no losses.
            loss: progress.loss.filter(|_| self.run.experiment.privacy.protection.level != Level::Record),
            switched: progress.switched,
            sizes: progress.sizes.clone(),
            ..self.spent(if start && !train { Phase::Start } else { Phase::Train }, before)
        };
        self.watch.round(&trained);
        self.course.rounds.push(trained);
        Ok(progress)
    }

    fn look_at_federation(&mut self) {
        (self.course.traffic, self.course.notes) = (self.federation.meter().total(), self.federation.notes());
    }

    fn spent(&self, phase: Phase, before: &Meter) -> RoundRecord {
        let traffic = self.federation.meter().of(phase).since(before.of(phase));
        RoundRecord {
            label: self.run.entry.label.clone(),
            seed: self.run.seed,
            round: self.course.round,
            phase: phase.name().to_string(),
            bytes_down: traffic.bytes_down,
            bytes_up: traffic.bytes_up,
            seconds: self.course.seconds,
            ..RoundRecord::default()
        }
    }

    /// Writes a checkpoint, if there is a folder for it and the clients' state is within reach.
    fn save(&mut self) -> Result<bool> {
        let MethodRun { entry, seed, data, folder: Some(folder), .. } = *self.run else { return Ok(false) };
        let Some(federation) = self.federation.state()? else { return Ok(false) };
        let Some(method) = self.method.save()? else { return Ok(false) };
        let checkpoint = (method, federation, &*self.course);
        let written = folder.write(&folder.current(&entry.label, seed), &data.origin, &checkpoint);
        written.map_err(Error::ending_the_run)?;
        self.federation.saved();
        Ok(true)
    }

    /// The `last` evaluation also compares the models on every client's rows.
    fn evaluate(&mut self, mut round: RoundRecord, last: bool) -> Result<Assessment> {
        let MethodRun { experiment, data, .. } = *self.run;
        let outcome = self.method.outcome();
        let (metric, assign_on) = (data.metric, experiment.top.assign_on);
        let outliers = &data.population.outliers;
        let scored = evaluate::seen(&outcome, &mut *self.federation, metric, assign_on, outliers, last)?;
        let unseen = match &mut self.unseen {
            Some(unseen) => evaluate::unseen(&outcome, &mut **unseen, metric, assign_on)?,
            None => None,
        };
        self.course.found = MethodRecord::default();
        self.course.found.numbers(outcome.extra.iter().map(|(name, value)| (name.as_str(), Some(*value))));
        let mut evaluated = Assessment { outcome, scored, unseen };
        self.find(&mut evaluated, |finding, context, found| finding.evaluate(context, &mut round, found))?;
        self.watch.round(&round);
        self.course.rounds.push(round);
        // A method sees the loss before a step; the effect of the step shows here.
        let first = self.course.rounds.iter().find_map(|round| round.loss);
        // Single clients may have arbitrarily bad models.
        let losses = evaluated.scored.clients.iter().filter_map(|served| served.loss);
        match median(losses).or(evaluated.scored.loss.filter(|_| self.federation.is_sealed())) {
            Some(loss) if exploded(first.unwrap_or(loss), loss) => Err(diverged(self.course.round - 1)),
            _ => Ok(evaluated),
        }
    }

    fn find(
        &mut self,
        evaluated: &mut Assessment,
        mut act: impl FnMut(&dyn Finding, &mut Context, &mut MethodRecord) -> Result<()>,
    ) -> Result<()> {
        let MethodRun { experiment, entry, seed, data, findings, .. } = *self.run;
        let attackers = faults::attackers(&experiment.faults, seed, &data.population.clients);
        let mut context = Context {
            label: &entry.label,
            seed,
            population: &data.population,
            attackers: &attackers,
            schema: &data.schema,
            model: &*data.model,
            metric: data.metric,
            outcome: &mut evaluated.outcome,
            scored: &evaluated.scored,
            unseen: evaluated.unseen.as_ref(),
            attacked: match &mut self.attacked {
                Some(attacked) => Some(&mut **attacked),
                None => None,
            },
            federation: &mut *self.federation,
            // Recording every row for every seed would be too much.
            with_rows: seed == experiment.seeds().start && experiment.top.save_models == SaveModels::All,
            doing: &mut |what| self.watch.doing(what),
        };
        findings.iter().try_for_each(|finding| act(&**finding, &mut context, &mut self.course.found))
    }

    fn conclude(mut self, mut evaluated: Assessment) -> Result<RepeatSummary> {
        self.course.found.clients = self.run.client_records();
        self.find(&mut evaluated, |finding, context, found| finding.conclude(context, found))?;
        let outcome = &evaluated.outcome;
        if let Some(folder) = self.run.folder {
            keep_models(self.run, outcome, &mut *self.federation)?;
            self.look_at_federation();
            write_models(self.run, &folder.path, outcome, &*self.federation)?;
        }
        if self.run.is_gone_on_from() {
            self.course.found.over = goes_on(outcome, &evaluated.scored);
        }
        if self.run.options.keep_models {
            self.course.found.models = Some(found_models(self.run, outcome, &evaluated.scored, &*self.federation));
        }
        self.federation.part()?;
        self.look_at_federation();
        let mut found = std::mem::take(&mut self.course.found.summary);
        found.notes.splice(0..0, self.run.data.auto_step_note(self.run.entry));
        let mut summary = self.run.summary(self.course, found);
        if !outcome.converged {
            summary.status = "not-converged".into();
        }
        let data = self.run.data;
        let first = data.column_notes().chain(data.notes.iter().cloned()).chain(self.course.ledger.note());
        summary.notes.splice(0..0, first.chain(outcome.notes.iter().cloned()));
        Ok(summary)
    }
}

/// What a later method may go on from.
fn goes_on(outcome: &Outcome, scored: &Evaluation) -> Option<Over> {
    let models = outcome.models.clone();
    let clusters = match &outcome.serving {
        Serving::Given(given) => Some(given.clone()),
        Serving::Own { clusters, .. } => clusters.clone(),
        Serving::Choose | Serving::Mixed { .. } => Some(scored.clients.iter().map(|served| served.cluster).collect()),
    };
    match clusters.filter(|_| outcome.clustered) {
        Some(clusters) if clusters.clusters() <= models.len() => Some(Over { clusters: Some(clusters), models }),
        None if models.len() == 1 => Some(Over { clusters: None, models }),
        _ => None,
    }
}

fn stages(rounds: &[RoundRecord]) -> BTreeMap<String, serde_json::Value> {
    let mut numbers = BTreeMap::new();
    for (round, stage) in rounds.iter().filter_map(|round| Some((round, round.stage.as_ref()?))) {
        let clusters = (!round.sizes.is_empty()).then_some(round.sizes.len() as f64);
        let found = [("metric", round.metric), ("misclustering", round.misclustering), ("clusters", clusters)];
        for (name, value) in found {
            let number = value.and_then(serde_json::Number::from_f64);
            numbers.extend(number.map(|number| (format!("{name}_after_{stage}"), number.into())));
        }
    }
    numbers
}
