//! IFCA's settings.

use super::*;
use crate::methods::parts::averaging::Averaging;
use crate::methods::parts::training::Schedule;

choices! {
    /// Where the first models come from.
    pub enum StartBy {
        Random = "random",
        Farthest = "farthest",
        Odcl = "odcl",
        Given = "given",
        Oracle = "oracle",
        Planted = "planted",
    }
    /// What a sum of gradients is divided by.
    pub enum Divisor { Clients = "clients", Participants = "participants" }
}

settings! {
    /// The settings of the method `ifca`.
    pub struct IfcaSettings {
        /// how many clusters to look for; auto lets start = "odcl" find the number
        clusters: Auto<usize> [1..=1 << 20],
        /// step size, or several to try side by side; auto is safe on this data for a linear model, else 0.1 (adam 0.01)
        step: Auto<Vec<f64>> = "auto",
        /// what clients send: a model after local steps (option II), or a gradient (option I)
        averaging: Averaging = "models",
        /// what a client's model counts in the mean
        #[only_with(averaging = "models")]
        weight: Weight = "uniform",
        /// what a sum of gradients is divided by
        divisor: Divisor = "clients",
        /// random models, models of clients far apart, clusters of the clients' own models, the files in start_from;
        /// for experiments the minimisers of the true clusters or their planted parameters
        start: StartBy = "random",
        /// folder with cluster-0.safetensors and so on
        #[only_with(start = "given")]
        start_from: Option<String>,
        /// clients that look for start = "farthest" (default 16 a cluster)
        #[only_with(start = "farthest")]
        start_clients: Option<usize> [1..=1 << 20],
        /// steps a client trains for start = "farthest", and for "odcl" where the model has no exact minimiser
        #[only_with(start = "farthest" | "odcl")]
        start_steps: u32 [1..=1 << 20] = 50,
        /// strength of ½·ridge·‖θ‖² in the minimisers of start = "odcl" and "oracle" (default 0; with steps weight_decay)
        #[only_with(start = "oracle" | "odcl")]
        start_ridge: Option<f64> [0.0..=1e18],
        /// standard deviation of the noise on start = "oracle" or "planted"
        #[only_with(start = "oracle" | "planted")]
        start_noise: Option<f64> [0.0..=1e18],
        /// how far to move that start, or between which two distances, as shares of the least distance within it
        #[only_with(start = "oracle" | "planted")]
        start_distance: Option<Vec<f64>>,
        /// how many starts to run side by side
        #[only_with(start = "random" | "farthest" | "oracle" | "planted")]
        restarts: usize [1..=1 << 16] = 1,
        /// stop when no parameter vector moves by more than this, relatively
        tolerance: f64 [0.0..=1.0] = 0.0,
        /// layers averaged over everybody, such as "layer0"
        shared: Vec<String> = [],
        /// fresh rows for every choice and every step
        resample: bool = false,
        /// the rounds, and how clients train in them
        schedule: Schedule,
        /// how what they send becomes one model
        aggregating: Aggregating,
    }

    fn check(&self, check: &mut Check) {
        self.averaging.check(check);
        if self.start == StartBy::Given && self.start_from.is_none() {
            check.fault("start_from", "missing, want the folder for start = \"given\"");
        }
        if self.clusters == Auto::Auto && self.start != StartBy::Odcl {
            check.fault("clusters", "\"auto\" is for start = \"odcl\"");
        }
        let distances = self.start_distance.as_deref().unwrap_or_default();
        if !distances.is_empty() && self.clusters == Auto::Given(1) {
            check.fault_with_hint("start_distance", "one cluster has no distance to another", "use start_noise");
        }
        if distances.len() > 2 || !distances.is_sorted() {
            check.fault("start_distance", "want one number, or a smaller and a larger one");
        }
    }
}

impl MethodSettings for IfcaSettings {
    const NAME: &str = "ifca";
    const SUMMARY: &str = "choose the best of k models, train it, repeat";
    const PAPER: &str = "Ghosh, Chung, Yin, Ramchandran 2020";
    const HAS_CLUSTERS: bool = true;

    fn needs(&self) -> Needs {
        Needs { truth: matches!(self.start, StartBy::Oracle | StartBy::Planted), ..self.schedule.needs(&self.step) }
    }

    fn exposure(&self, pass: u64, _: Ability) -> Hidable {
        let one_lane = self.restarts == 1 && !matches!(&self.step, Auto::Given(steps) if steps.len() > 1);
        match self.start {
            _ if self.averaging == Averaging::Gradients => {
                Err("averaging = \"gradients\" sends gradients in which single rows are not cut to a length")
            }
            _ if self.resample => Err("resample = true uses parts of the rows"),
            _ if !one_lane => Err("several starts or steps would be compared by losses, which are not told"),
            StartBy::Random | StartBy::Given => {
                let training = self.schedule.exposure(pass)?;
                let choices = if self.clusters == Auto::Given(1) { 0 } else { self.schedule.rounds as u64 };
                Ok(Exposure { choices, ..training })
            }
            _ => Err("its start is found from the clients' rows; use start = \"random\" or \"given\""),
        }
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        let steps = self.step.clone().given().map_or(1, |steps| steps.len());
        let (lanes, what) = (steps.saturating_mul(self.restarts), "clusters, and where they begin");
        let mut all = match self.start {
            StartBy::Farthest => vec![
                Disclosure::single::<Train>(Phase::Start, self.restarts, what),
                Disclosure::single::<work::Losses>(Phase::Start, self.restarts, what),
            ],
            StartBy::Odcl if ability.solves_exactly() => {
                vec![Disclosure::single::<work::Minimise>(Phase::Start, 1, what)]
            }
            StartBy::Odcl => vec![Disclosure::single::<Train>(Phase::Start, 1, what)],
            StartBy::Oracle => vec![Disclosure::sums::<work::Gradient>(Phase::Start, 1, what).as_needed()],
            _ => Vec::new(),
        };
        let rounds = self.schedule.rounds.saturating_mul(lanes);
        all.push(Disclosure::sums::<Choose>(Phase::Train, rounds, "clusters, and the mean of models in each"));
        all
    }

    fn wants_single(&self) -> Option<&'static str> {
        match self.start {
            StartBy::Farthest => Some("start = \"farthest\" compares the models of single clients"),
            StartBy::Odcl => Some("start = \"odcl\" clusters the clients' own models"),
            StartBy::Oracle => Some("start = \"oracle\" weighs the losses of single clients by their rows"),
            _ if self.schedule.missing == MissingRule::Keep => {
                Some("missing = \"keep\" has to know which cluster a silent client was in")
            }
            _ if self.averaging == Averaging::Models && self.weight == Weight::Rows => {
                Some("weight = \"rows\" would tell who chose what, as everybody's number of rows is known")
            }
            StartBy::Random | StartBy::Given | StartBy::Planted => None,
        }
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        Ok(Box::new(self.make(setup)?))
    }
}

impl IfcaSettings {
    pub(super) fn make(self, setup: Setup) -> Result<Ifca> {
        let (clients, clusters) = (setup.rows.len(), self.clusters.given().unwrap_or(0));
        setup.want_clients("clusters", clusters)?;
        setup.want_room_for_models("clusters", clusters)?;
        if self.resample {
            self.want_rows(&setup)?;
        }
        let optimiser = self.schedule.optimising.optimiser();
        let steps = self.step.clone().given().unwrap_or_else(|| vec![auto_step(optimiser, setup.curvature)]);
        let trainer = Trainer {
            schedule: self.schedule.clone(),
            step: steps[0],
            aggregating: self.aggregating.clone(),
            key: setup.key.clone(),
        };
        let mut ifca = Ifca {
            gradients: self.averaging == Averaging::Gradients,
            by_participants: self.divisor == Divisor::Participants,
            beginning: Beginning::new(&self, &trainer, &setup)?,
            tolerance: self.tolerance,
            shared: self.shared_layers(&setup)?,
            resample: self.resample,
            ..Ifca::from_models(&setup, trainer, self.weight)
        };
        let lanes = (0..self.restarts).flat_map(|start| steps.iter().map(move |&step| Lane::new(start, step, clients)));
        ifca.state.lanes = lanes.collect();
        Ok(ifca)
    }

    /// Refuses clients with too few rows for fresh ones in every round.
    fn want_rows(&self, setup: &Setup) -> Result<()> {
        let (place, rounds) = (&setup.place, self.schedule.rounds);
        if !setup.model.divides_rows() {
            let message = format!("{place}.resample: clients of your own use all their rows at once");
            return Err(Error::new(ErrorKind::Unsupported, message).hint("leave resample out"));
        }
        let (fewest, wanted) = (setup.rows.iter().min().copied().unwrap_or(0), 2 * rounds);
        if fewest < wanted {
            let message = format!("{rounds} rounds need {wanted} rows a client, the smallest client has {fewest}");
            let fault = Error::settings(format!("{place}.resample: {message}"));
            return Err(fault.hint("run fewer rounds, or leave resample out"));
        }
        Ok(())
    }

    /// The parameters of the layers that are the same in all models.
    fn shared_layers(&self, setup: &Setup) -> Result<Vec<Range<usize>>> {
        let tensors = &setup.model.layout().tensors;
        let layers: Vec<&str> =
            tensors.iter().map(|tensor| tensor.name.split('.').next().unwrap_or_default()).collect();
        if let Some(unknown) = self.shared.iter().find(|layer| !layers.contains(&layer.as_str())) {
            return Err(unknown_name(&format!("{}.shared", setup.place), unknown, &layers));
        }
        let shared = tensors.iter().zip(&layers).filter(|(_, layer)| self.shared.iter().any(|name| name == *layer));
        Ok(shared.map(|(tensor, _)| tensor.range()).collect())
    }
}
