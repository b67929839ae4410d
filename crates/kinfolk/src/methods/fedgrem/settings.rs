//! FedGrEM's settings, and the method made from them.

use super::*;

choices! {
    /// How centres become common.
    pub enum Central { Converged = "converged", TwoPasses = "two-passes", Mean = "mean", None = "none" }
    /// Whose scatter a client has.
    pub enum Scatter { Own = "own", Common = "common" }
    /// What becomes of a client's weights.
    pub enum Weights { Own = "own", Pulled = "pulled" }
}

settings! {
    /// The settings of the method `fedgrem`.
    pub struct FedGrEmSettings {
        /// the step size C_η; 0.55 to 1.35 are good
        step: f64 [above 0.0] = 0.95,
        /// what the step is: over the weight a component began with, but never beyond its mean; the same without that
        /// bound; or as it is
        step_rule: StepRule = "capped",
        /// how centres become common: solved to the end, by the authors' two passes, by their mean, or not at all
        central: Central = "converged",
        /// how far the centre reaches, C; 4 to 5 with weak starts
        #[only_with(central = "converged" | "two-passes")]
        penalty: f64 [0.0..=1e18] = 2.0,
        /// λ before the first round
        #[only_with(central = "converged" | "two-passes")]
        first_penalty: f64 [0.0..=1e18] = 1.0,
        /// how much of λ remains in a round, κ
        #[only_with(central = "converged" | "two-passes")]
        memory: f64 [0.0..=0.999] = 0.1,
        /// with a tied covariance (or common noise): whether each client has that of its own fit, or all have the mean
        scatter: Scatter = "own",
        /// whether weights stay with their client, or are sent and pulled to a common centre too
        weights: Weights = "own",
        /// rows in a step (default all)
        batch: Option<u32> [1..=1 << 31],
        /// share of the clients asked in a round
        participation: f64 [above 0.0..=1.0] = 1.0,
        /// no row pulls at a centre by more than this length (default no limit)
        clip: Option<f64> [above 0.0],
        /// soft threshold on the coordinates of centres, for many columns of which few matter
        sparsity: f64 [0.0..=1e18] = 0.0,
        /// how often, before the first round, clients compare their fit with one from the common centres
        contests: usize [0..=1000] = 2,
        /// the rounds, and how components are put into one order for everybody
        common: CommonOrder,
    }
}

impl MethodSettings for FedGrEmSettings {
    const NAME: &str = "fedgrem";
    const SUMMARY: &str = "mixtures with common components, weights of their own, and outlier clients";
    const PAPER: &str = "Tian, Weng, Feng 2024";
    const WANTS: Ability = Ability::SharedScatter;
    const WANTS_SINGLE: Option<&'static str> = Some("it begins with the mixtures that single clients fit");

    fn exposure(&self, _: u64, _: Ability) -> Hidable {
        match self.clip {
            Some(_) => Err("clip cuts a row in every component by itself: leave it out, privacy.clip cuts rows"),
            None => self.common.exposure(),
        }
    }

    fn discloses(&self, _: Ability) -> Vec<Disclosure> {
        let mut all = self.common.discloses_start();
        let (rounds, what) = (self.common.until.rounds, "the centres of components");
        all.push(Disclosure::single::<StepMixture>(Phase::Train, rounds.saturating_add(self.contests), what));
        all.push(discloses_delivery());
        all
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let training = MixtureTraining::with_common_order(&setup, &self.common)?;
        if training.shape.scatter().is_empty() && self.scatter == Scatter::Common {
            return Err(Error::settings(format!("{}.scatter: the model says how rows scatter", setup.place))
                .hint("leave it out, or set model.covariance = \"tied\" (model.noise = \"common\")"));
        }
        let send = if self.weights == Weights::Pulled { Parts::Whole } else { Parts::Centres };
        let knows_scatter = |client| self.scatter == Scatter::Own && training.tells_scatter(client);
        let knows_scatter = (0..setup.rows.len()).map(knows_scatter).collect();
        Ok(Box::new(FedGrEm {
            until: self.common.until,
            step: StepMixture {
                limit: self.clip,
                step: Step { rule: Rule::Ascend(self.step_rule.rate(self.step)), sparsity: self.sparsity, share: 1.0 },
                ..training.plain_step(Rule::Stay, send)
            },
            batch: self.batch,
            participation: self.participation,
            // Where all begin with the same centres, none has a fit of its own to compare.
            contests: if training.start.is_some() { 0 } else { self.contests },
            central: self.central,
            penalty: self.penalty,
            memory: self.memory,
            state: State::new(self.first_penalty, knows_scatter),
            key: setup.key,
            whitening: OnceCell::new(),
            training,
        }))
    }
}
