//! Asks and answers as bytes.
//!
//! A message begins with the version of this layout. Work that this version does not know is an
//! `Unsupported` error, never a guess.

use super::client::host::State;
use super::fixed::{SumOrder, Summed};
use super::sealed::{SealedOrder, SealedSum};
use super::secure::{Card, Masked, Roster, Shares, Turn, Unmasking};
use super::work::PackedReply;
use super::*;
use crate::data::DataShape;
use crate::data::schema::{Description, FeaturesDescription, Schema, TargetDescription};
use crate::models::{self, Blueprint, Packed};
use crate::privacy::Hidden;
use crate::settings::{self, Setting, Settings};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

pub(crate) const VERSION: u16 = 16;

/// A message to a machine. It carries everything needed to answer it, so that each may be answered by another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SiteMessage {
    /// The data of the experiment.
    pub data: DataOrder,
    /// The run it belongs to.
    pub run: RunMark,
    /// The method that asks; clients' state is kept per method.
    pub label: String,
    /// How tables are encoded, once that is agreed.
    pub schema: Option<Schema>,
    /// The clients' model, once there is one.
    pub model: Option<ModelOrder>,
    /// What is wanted.
    pub request: Request,
}

/// Which run a message belongs to, and how far back the server may go in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunMark {
    /// Its name, under which machines keep what clients remember; a run that goes on has the same.
    pub name: String,
    /// A larger one every time that the run goes on: what clients did after the checkpoint counts for nothing then, nor does
    /// what comes late from a server that has ended.
    pub session: u64,
    /// The number of the last ask before the server's checkpoint; the largest number where there is none.
    pub checkpoint: u64,
}

impl RunMark {
    /// Of a run that begins, without a checkpoint.
    pub fn new(name: &str) -> Self {
        let now = nanoseconds();
        Self { name: format!("{name}-{:016x}", mark(now)), session: now, checkpoint: u64::MAX }
    }

    /// Of the same run when it goes on from a checkpoint.
    pub(crate) fn again(&self, checkpoint: u64) -> Self {
        // Clocks may be set back.
        Self { name: self.name.clone(), session: nanoseconds().max(self.session.saturating_add(1)), checkpoint }
    }
}

/// Since 1970.
fn nanoseconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// A number that no other process and no other call has. No result depends on it.
fn mark(now: u64) -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut digest = Sha256::new();
    let numbers = [now, u64::from(std::process::id()), CALLS.fetch_add(1, Ordering::Relaxed)];
    numbers.iter().for_each(|it| digest.update(it.to_le_bytes()));
    u64::from_le_bytes(std::array::from_fn(|place| digest.clone().finalize()[place]))
}

/// The data of an experiment. Each machine decides where its own rows are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataOrder {
    /// The source's name.
    pub source: String,
    /// Its settings, as TOML.
    pub settings: String,
    /// The seed.
    pub seed: u64,
}

/// How to build the clients' model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelOrder {
    /// The kind's name.
    pub kind: String,
    /// Its settings, as TOML.
    pub settings: String,
    /// The shape of the data.
    pub shape: DataShape,
}

impl ModelOrder {
    /// As it travels.
    pub fn of(blueprint: &Blueprint) -> Result<Self> {
        let settings = write_settings(&blueprint.settings)?;
        Ok(Self { kind: blueprint.kind.name.into(), settings, shape: blueprint.shape })
    }

    pub(crate) fn read(&self) -> Result<Blueprint> {
        let kind = models::kind(&self.kind)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("model {} is not known here", self.kind)))?;
        let settings = read_settings("model", kind.settings, &self.settings)?;
        Ok(Blueprint { kind, settings, shape: self.shape })
    }
}

pub(crate) fn write_settings(settings: &Settings) -> Result<String> {
    toml::to_string(&settings.to_table())
        .map_err(|error| Error::new(ErrorKind::Federation, format!("settings could not be written: {error}")))
}

/// Settings that arrived, checked again.
pub(crate) fn read_settings(place: &str, declared: &[Setting], text: &str) -> Result<Settings> {
    let table = toml::from_str(text)
        .map_err(|error| Error::new(ErrorKind::Unsupported, format!("{place}: settings could not be read: {error}")))?;
    let mut faults = Vec::new();
    let settings = Settings::check(place, declared, table, &mut faults);
    settings::finish(faults)?;
    Ok(settings)
}

/// A request to a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// A roll call, with descriptions of the data.
    Hello {
        /// Whether descriptions have moments of the columns.
        moments: bool,
    },
    /// Work for some of the clients.
    Work {
        /// The digest of the clients' names, in the order in which orders number them.
        roll: String,
        /// The number of the ask; stamps what clients keep.
        stamp: u64,
        /// What it is for.
        phase: Phase,
        /// Models with their index in the ask.
        models: Vec<(u32, Arc<Packed>)>,
        /// Who does what.
        orders: Vec<SiteOrder>,
        /// What hides clients, or their rows, in the answers.
        hides: Option<Hidden>,
    },
    /// Save clients' own models on the machine's disk.
    Keep {
        /// The digest of the clients' names.
        roll: String,
        /// The experiment's name.
        run: String,
        /// The stamp of each client's model; 0 for none.
        stamps: Vec<u64>,
    },
    /// Hand over all that clients remember, for a checkpoint of the server's.
    Export {
        /// The digest of the clients' names.
        roll: String,
    },
    /// Have clients remember what they did at a checkpoint.
    Import {
        /// The digest of the clients' names.
        roll: String,
        /// What each of them remembers.
        states: Vec<Option<State>>,
        /// Saved by clients that are the user's own code.
        own: Vec<Option<Vec<u8>>>,
    },
    /// Write a fitted model that knows the machine's clients on the machine's disk: their models are made there.
    Settle {
        /// The digest of the clients' names.
        roll: String,
        /// What the fit is called.
        run: String,
        /// The model without clients' own ones, as text.
        model: String,
    },
    /// Make the keys of secure sums, and show them.
    Introduce,
    /// Take note of who takes part in secure sums.
    Meet(Roster),
    /// Work, of which the sums leave masked.
    Mask {
        /// The sum they are for.
        turn: Turn,
        /// The work, of which all orders are sealed.
        work: Box<Request>,
    },
    /// Help to open a sum.
    Unmask(Unmasking),
    /// Forget the keys of secure sums.
    Forget,
}

impl Request {
    /// The number of the ask, where it is about work.
    pub(crate) fn stamp(&self) -> Option<u64> {
        match self {
            Request::Work { stamp, .. } => Some(*stamp),
            Request::Mask { work, .. } => work.stamp(),
            _ => None,
        }
    }
}

/// An order to the clients of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SiteOrder {
    /// Its index in the ask.
    pub index: u32,
    /// Who does it, ascending; everybody where absent.
    pub to: Option<Vec<u32>>,
    /// What they do.
    pub work: Work,
    /// How their vectors are summed; without, they come one by one.
    pub sum: Option<SumOrder>,
    /// How all that they answer is summed, where nothing else is told; all orders of a message have it, or none.
    pub seal: Option<SealedOrder>,
}

/// A machine's reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SiteReply {
    /// The machine's clients.
    Roll(Roll),
    /// What the clients answered, one by one, and the sums of orders that have some, by their index in the ask.
    Replies(Vec<ClientReply>, Vec<(u32, Summed)>),
    /// Which of their models are saved.
    Kept(KeptModels),
    /// The sums of all that clients answered to each order of the message.
    Sealed(Vec<SealedSum>),
    /// What clients remember, and what is saved by those that are the user's own code.
    States(Vec<Option<State>>, Vec<Option<Vec<u8>>>),
    /// The keys of secure sums.
    Card(Card),
    /// The sums of a message, masked.
    Masked(Masked),
    /// What a sum is opened with.
    Shares(Shares),
    /// It is done, and nothing is to be said of it.
    Done,
}

/// Clients' own models on their machine's disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptModels {
    pub(crate) clients: u64,
    /// Where in the machine's folder of models; `None` for a machine that has no such folder.
    pub(crate) place: Option<String>,
}

/// The clients of a machine. What neighbours have in common travels once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PackedRoll", into = "PackedRoll")]
pub struct Roll {
    /// The machine's name.
    pub name: Option<String>,
    /// In the order in which they are numbered.
    pub members: Vec<Member>,
    /// Number of clients with too few rows to take part.
    pub left_out: u64,
    /// The shape of their data.
    pub shape: DataShape,
    /// Number of planted clusters, if any.
    pub true_clusters: Option<usize>,
}

/// One client of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its stable name.
    pub id: String,
    /// Its place among all clients, where the data has one.
    pub place: Option<u64>,
    /// The cluster it was planted in, for the evaluator.
    pub truth: Option<usize>,
    /// Whether it was planted as an outlier, for the evaluator.
    pub outlier: bool,
    /// Its description of its data.
    pub description: Description,
}

/// A roll column by column; of values that several clients in a row have, one, with their number.
#[derive(Serialize, Deserialize)]
struct PackedRoll {
    name: Option<String>,
    ids: Vec<String>,
    /// Each place without the number of the client, which is the same for clients that follow each other.
    places: Runs<Option<i64>>,
    truths: Runs<Option<usize>>,
    outliers: Runs<bool>,
    rows: Runs<usize>,
    groups: Runs<Option<String>>,
    features: Runs<FeaturesDescription>,
    targets: Runs<TargetDescription>,
    left_out: u64,
    shape: DataShape,
    true_clusters: Option<usize>,
}

type Runs<T> = Vec<(u32, T)>;

fn runs<T: PartialEq>(values: impl Iterator<Item = T>) -> Runs<T> {
    let mut runs: Runs<T> = Vec::new();
    for value in values {
        match runs.last_mut() {
            Some((count, last)) if *last == value => *count += 1,
            _ => runs.push((1, value)),
        }
    }
    runs
}

/// The values of so many clients.
fn unrolled<T: Clone>(runs: Runs<T>, clients: usize) -> std::result::Result<impl Iterator<Item = T>, String> {
    let found = runs.iter().map(|(count, _)| u64::from(*count)).sum::<u64>();
    if found != clients as u64 {
        return Err(format!("a roll of {clients} clients with {found} descriptions"));
    }
    Ok(runs.into_iter().flat_map(|(count, value)| std::iter::repeat_n(value, count as usize)))
}

impl From<Roll> for PackedRoll {
    fn from(Roll { name, members, left_out, shape, true_clusters }: Roll) -> Self {
        let place = |(number, member): (i64, &Member)| member.place.map(|place| (place as i64).wrapping_sub(number));
        let of = || members.iter();
        Self {
            name,
            places: runs((0..).zip(of()).map(place)),
            truths: runs(of().map(|member| member.truth)),
            outliers: runs(of().map(|member| member.outlier)),
            rows: runs(of().map(|member| member.description.rows)),
            groups: runs(of().map(|member| member.description.group.clone())),
            features: runs(of().map(|member| member.description.features.clone())),
            targets: runs(of().map(|member| member.description.target.clone())),
            ids: members.into_iter().map(|member| member.id).collect(),
            left_out,
            shape,
            true_clusters,
        }
    }
}

impl TryFrom<PackedRoll> for Roll {
    type Error = String;

    fn try_from(packed: PackedRoll) -> std::result::Result<Self, String> {
        let PackedRoll { name, ids, left_out, shape, true_clusters, .. } = packed;
        let all = ids.len();
        let (mut places, mut truths) = (unrolled(packed.places, all)?, unrolled(packed.truths, all)?);
        let (mut outliers, mut rows) = (unrolled(packed.outliers, all)?, unrolled(packed.rows, all)?);
        let (mut groups, mut features) = (unrolled(packed.groups, all)?, unrolled(packed.features, all)?);
        let mut targets = unrolled(packed.targets, all)?;
        let member = |(number, id): (i64, String)| {
            let place = places.next()?.map(|place| place.wrapping_add(number) as u64);
            let (rows, group) = (rows.next()?, groups.next()?);
            let description = Description { rows, group, features: features.next()?, target: targets.next()? };
            Some(Member { id, place, truth: truths.next()?, outlier: outliers.next()?, description })
        };
        let members = (0..).zip(ids).map_while(member).collect();
        Ok(Self { name, members, left_out, shape, true_clusters })
    }
}

/// One client's reply to one order, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientReply {
    /// The client's number on the machine.
    pub client: u32,
    /// The order's index in the ask.
    pub order: u32,
    /// The reply.
    pub reply: std::result::Result<PackedReply, String>,
}

/// The digest of clients' names in their order.
pub fn roll_of<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    ids.for_each(|id| digest.update([id.as_bytes(), &[0]].concat()));
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A message as bytes.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>> {
    postcard::to_extend(message, VERSION.to_le_bytes().to_vec())
        .map_err(|error| Error::new(ErrorKind::Federation, format!("a message could not be written: {error}")))
}

/// A message from bytes.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M> {
    let (version, body) = bytes.split_first_chunk::<2>().ok_or_else(|| {
        Error::new(ErrorKind::Federation, format!("a message of {} bytes has no version", bytes.len()))
    })?;
    let version = u16::from_le_bytes(*version);
    if version != VERSION {
        return Err(Error::new(ErrorKind::Unsupported, format!("message version {version}, want {VERSION}"))
            .hint("use the same version of kinfolk on both sides"));
    }
    postcard::from_bytes(body)
        .map_err(|error| Error::new(ErrorKind::Unsupported, format!("a message could not be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::federation::work::{Choose, Minimise, Train};
    use crate::models::Precision;
    use crate::training::{Amount, Course, Optimiser, Plan, Portion, Sample, Terms, Then};

    fn message() -> SiteMessage {
        asking(Choose { among: vec![1], on: Portion::All, then: Then::Nothing }.into())
    }

    fn asking(work: Work) -> SiteMessage {
        let kind = models::kind("linear").unwrap();
        let settings = Settings::check("model", kind.settings, toml::Table::new(), &mut Vec::new());
        let blueprint = Blueprint { kind, settings, shape: DataShape::numbers(2, 0) };
        let model = ModelOrder::of(&blueprint).unwrap();
        assert_eq!(model.read().unwrap().settings, blueprint.settings);
        SiteMessage {
            data: DataOrder { source: "linear".into(), settings: String::new(), seed: 1 },
            run: RunMark { name: "a run".into(), session: 1, checkpoint: 2 },
            label: "ifca".into(),
            schema: None,
            model: Some(model),
            request: Request::Work {
                roll: roll_of(["a", "b"].into_iter()),
                stamp: 3,
                phase: Phase::Train,
                models: vec![(1, Arc::new(Packed::pack(&[1.0, 0.1], Precision::F32)))],
                orders: vec![SiteOrder { index: 0, to: Some(vec![1]), work, sum: None, seal: None }],
                hides: None,
            },
        }
    }

    #[test]
    fn a_message_survives_the_wire() {
        let bytes = encode(&message()).unwrap();
        assert_eq!(decode::<SiteMessage>(&bytes).unwrap(), message());
        assert_eq!(Packed::pack(&[0.1], Precision::F32).unpack(), [f64::from(0.1f32)]);
        assert_eq!(Packed::pack(&[0.1], Precision::F64).unpack(), [0.1]);
    }

    fn member(id: String, place: Option<u64>, rows: usize) -> Member {
        let features = FeaturesDescription::Matrix { columns: 3, moments: Vec::new() };
        let description = Description { rows, group: None, features, target: TargetDescription::Classes(2) };
        Member { id, place, truth: Some(rows % 2), outlier: rows == 9, description }
    }

    #[test]
    fn a_roll_says_once_what_clients_have_in_common() {
        let roll = |members: Vec<Member>| {
            let (name, true_clusters) = (Some("here".into()), Some(2));
            Roll { name, members, left_out: 1, shape: DataShape::numbers(3, 2), true_clusters }
        };
        let rows = [5, 5, 9, 4, 4];
        for place in [|_| None, |number: u64| Some(70 + number), |number: u64| Some(u64::MAX - number * number)] {
            let members = (0..).zip(rows).map(|(number, rows)| member(number.to_string(), place(number), rows));
            let roll = roll(members.collect());
            assert_eq!(decode::<Roll>(&encode(&roll).unwrap()).unwrap(), roll);
        }
        let many = roll((0..10_000).map(|number| member(format!("{number:04}"), Some(number), 5)).collect());
        let bytes = encode(&many).unwrap();
        // A length and four letters each.
        assert!(bytes.len() < 5 * 10_000 + 100, "{}", bytes.len());
        let mut short = PackedRoll::from(many);
        short.ids.pop();
        let bytes = postcard::to_stdvec(&short).unwrap();
        assert!(postcard::from_bytes::<Roll>(&bytes).is_err());
    }

    #[test]
    fn names_that_run_together_are_told_apart() {
        assert_ne!(roll_of(["ab", "c"].into_iter()), roll_of(["a", "bc"].into_iter()));
    }

    #[test]
    fn a_plan_travels_with_its_course() {
        let course = Course { fading: true, averaged: true, tolerance: 1e-9 };
        let optimiser = Optimiser::Descent { momentum: 0.0, weight_decay: 0.1 };
        let plan = Plan {
            sample: Sample::FULL,
            amount: Amount::Steps(3),
            step: 0.5,
            optimiser,
            terms: Terms::default(),
            course,
        };
        let train = Train::from_model(1, plan).into();
        let minimise = Minimise { ridge: 0.1, keep: true }.into();
        for sent in [asking(train), asking(minimise)] {
            assert_eq!(decode::<SiteMessage>(&encode(&sent).unwrap()).unwrap(), sent);
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let mut bytes = encode(&message()).unwrap();
        assert_eq!(decode::<SiteMessage>(&bytes[..1]).unwrap_err().kind(), ErrorKind::Federation);
        assert_eq!(decode::<SiteMessage>(&bytes[..bytes.len() - 1]).unwrap_err().kind(), ErrorKind::Unsupported);
        bytes[0] = 99;
        let wanted = format!("message version 99, want {VERSION}");
        assert!(decode::<SiteMessage>(&bytes).unwrap_err().to_string().starts_with(&wanted));
    }
}
