use super::*;
use crate::clustering::quality::adjusted_rand_index;
use crate::compute::threads;
use crate::data::{Client, DataShape, Features, Shard, Targets};
use crate::federation::engines::Engine;
use crate::federation::engines::local::LocalFederation;
use crate::methods::room::MethodLedger;
use rand::RngExt;

const CLIENTS: usize = 20;

/// Clients of so many families in turn. Rows of six numbers; their class is the sign of a sum of two of them, which two is what
/// sets a family apart.
fn clients(families: usize, seed: u64) -> Vec<Client> {
    let client = |client: usize| {
        let mut rng = Key::new(seed).number(client as u64).rng();
        let values: Vec<f64> = (0..40 * 6).map(|_| rng.random_range(-1.0..1.0)).collect();
        let family = client % families;
        let class = |row: &[f64]| u32::from(row[2 * family] - row[2 * family + 1] > 0.0);
        let classes = values.chunks_exact(6).map(class).collect();
        let train = Shard::new(Features::F64 { columns: 6, values }, Targets::Classes(classes)).unwrap();
        Client::new(client.to_string(), train)
    };
    (0..CLIENTS).map(client).collect()
}

struct Played {
    method: Networks,
    federation: LocalFederation,
    ledger: MethodLedger,
}

impl Played {
    fn begin(clients: &[Client], text: &str, workers: usize) -> Self {
        let kind = crate::models::kind("mlp").unwrap();
        let settings =
            Settings::check("model", kind.settings, toml::from_str("hidden = [8]").unwrap(), &mut Vec::new());
        let model: Arc<dyn Model> = Arc::from(kind.make(&settings, DataShape::numbers(6, 2)).unwrap());
        let text = format!("step = 0.5\nrounds = 30\n{text}");
        let mut faults = Vec::new();
        let settings = Settings::check("it", Training::SETTINGS, toml::from_str(&text).unwrap(), &mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        let rows: Vec<usize> = clients.iter().map(|client| client.train.len()).collect();
        let mut federation = LocalFederation::new(clients.to_vec(), threads(workers).unwrap());
        federation.set_model(model.clone()).unwrap();
        let setup = Setup {
            place: "method.auto".into(),
            settings: &settings,
            model,
            rows: &rows,
            curvature: None,
            truth: None,
            planted: None,
            groups: None,
            over: None,
            facts: Default::default(),
            seed: 0,
            key: Key::new(0),
        };
        let method = Networks::new(&setup, Training::of(&settings), None).unwrap();
        Self { method, federation, ledger: MethodLedger::new(MissingRule::Skip) }
    }

    /// So many rounds at most.
    fn play(mut self, rounds: usize) -> Self {
        for _ in 0..rounds {
            if self.ledger.run_round(&mut self.method, &mut self.federation).unwrap().finished {
                break;
            }
        }
        self
    }

    fn families(&self) -> Vec<usize> {
        self.method.state.current.families.each().iter().map(|family| family.unwrap()).collect()
    }
}

#[test]
fn planted_families_are_found_and_one_population_stays_one() {
    for families in [1, 2, 3] {
        let played = Played::begin(&clients(families, families as u64), "", 2).play(100);
        assert!(played.method.state.stage == Stage::Done);
        let outcome = played.method.outcome();
        assert_eq!(outcome.models.len(), families, "{:?}", outcome.notes);
        let truth: Vec<usize> = (0..CLIENTS).map(|client| client % families).collect();
        assert_eq!(adjusted_rand_index(&played.families(), &truth), 1.0);
        let wanted = if families > 1 { "Clients differ (p = 0.001)" } else { "No difference between clients is seen" };
        assert!(outcome.notes[0].starts_with(wanted), "{:?}", outcome.notes);
        assert!(outcome.notes.iter().any(|note| note.starts_with("Every client was asked ")), "{:?}", outcome.notes);
    }
}

#[test]
fn threads_and_a_resume_change_no_bit() {
    let clients = clients(3, 3);
    let straight = Played::begin(&clients, "batch = 8", 2).play(100);
    let (models, stamps) = (&straight.method.state.current.models, &straight.method.state.stamps);
    // In the search, with families on trial, and with all rows.
    for rounds in [2, 5, 22] {
        let first = Played::begin(&clients, "batch = 8", 1).play(rounds);
        let (saved, state) = (first.method.save().unwrap().unwrap(), first.federation.state().unwrap().unwrap());
        let mut second = Played { ledger: first.ledger, ..Played::begin(&clients, "batch = 8", 2) };
        second.method.restore(&saved).unwrap();
        second.federation.restore(state).unwrap();
        let second = second.play(100);
        assert_eq!((&second.method.state.current.models, &second.method.state.stamps), (models, stamps), "{rounds}");
        assert_eq!(second.method.outcome().notes, straight.method.outcome().notes);
        assert_eq!(second.federation.host().states(), straight.federation.host().states());
    }
}

#[test]
fn clients_with_hardly_any_rows_are_served_all_the_same() {
    let mut clients = clients(2, 2);
    clients[4].train = clients[4].train.part(0, 10);
    let played = Played::begin(&clients, "", 1).play(100);
    let outcome = played.method.outcome();
    assert_eq!(outcome.models.len(), 2);
    assert_eq!(played.families().len(), CLIENTS);
    // Nobody can hold rows out: one model, by plain averaging.
    clients.iter_mut().for_each(|client| client.train = client.train.part(0, client.train.len() / 4));
    let played = Played::begin(&clients, "", 1).play(100);
    assert_eq!((played.method.outcome().models.len(), played.method.state.trained), (1, 30));
}
