//! Clients made from labelled images, with clusters planted by an exact transform of the bytes or the labels.
//!
//! Training rows come from the training images: with `images = "disjoint"` no two clients share one (a single
//! permutation is cut up), with `"shared"` every cluster has its own permutation of all of them, so that the same image
//! can appear once in each cluster; with `"repeated"` a cluster begins a new permutation when less than a client's rows
//! are left of one, so that clients of a cluster may share images too, but no client has one twice. Pixels are stored once, as bytes; a client is a range of that storage.
//!
//! Test rows, and everything of unseen clients, come from the test images. Disjoint clients cut up one permutation of
//! them while they last. Otherwise the clients of each cluster take consecutive chunks in file order and begin again
//! when less than a chunk is left; clients that share a chunk share its storage. Seen and unseen clients are counted
//! separately there, because nobody trains on these rows. Where the classes of a client are uneven (`split`), its test
//! rows have the same class shares as its training rows, never the same image twice, so there may be fewer than asked.
//!
//! Kinds of clusters: `rotate` turns cluster j by j quarters counter-clockwise (two clusters: 0 and 180 degrees),
//! and more than four clusters by equal parts of a full turn, interpolated between pixels;
//! `invert` replaces v by 255 - v in the second, `swap-labels` renames class c to c + j (cyclic), and `label-groups`
//! gives each cluster a window of consecutive classes. The windows are spread evenly from the first class to the last
//! and a third wider than an even share, so two clusters of ten classes hold the first seven and the last seven; an
//! image of a class held by several clusters is dealt to them in turn when the images are disjoint.
//!
//! With `times` above 1 a client's training rows are so many parts in the order of time, and at each new time a share of the clients, `drift`,
//! moves on to the next cluster; true clusters and test rows are those of the end.
//!
//! With `deal` all images are dealt to the clients in another way (`deal.rs`).
//!
//! Pixels are numbers from 0 to 1, kept as bytes; with `pixels = "raw"` they are numbers from 0 to 255, kept in single
//! precision, four times as large.

use super::deal::{self, Deal, Dealing};
use super::split::{apportion, window};
use super::*;
use crate::memory::check_room;
use rand::seq::SliceRandom;

/// Square images with a label each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    channels: usize,
    pub(super) side: usize,
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

/// The images to train on and those to test on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pools {
    /// Images for training rows.
    pub train: Images,
    /// Images for test rows and unseen clients.
    pub test: Images,
    /// Number of labels.
    pub classes: usize,
}

choices! {
    /// Rows an unseen client chooses its cluster by.
    pub enum UnseenTrain { Own = "own", Test = "test" }
    /// Classes of a client.
    pub enum SplitKind { Equal = "equal", Balanced = "balanced", Dirichlet = "dirichlet" }
    /// Who owns an image.
    pub enum Owners { Disjoint = "disjoint", Shared = "shared", Repeated = "repeated" }
    /// The order of the clients.
    pub enum Arrange { Blocks = "blocks", Alternate = "alternate" }
    /// The numbers a pixel is read as.
    pub enum Pixels { Unit = "unit", Raw = "raw" }
    /// How the true clusters differ.
    pub enum Clusters {
        Rotate = "rotate",
        Invert = "invert",
        SwapLabels = "swap-labels",
        LabelGroups = "label-groups",
        None = "none",
    }
}

settings! {
    /// Augmentation of training images.
    pub struct Augmenting {
        /// mirror images from left to right in training, every other time; only models that see images do
        flip: bool = false,
        /// move images by up to so many pixels in training, in both directions; only models that see images do
        crop: usize [0..=1000] = 0,
    }
}

settings! {
    /// Settings of all image sources.
    pub struct ImageSettings {
        /// how many clients
        clients: usize [1..=10_000_000] = 100,
        /// training rows per client
        samples: usize [1..=100_000_000] = 100,
        /// test rows per client
        test_samples: usize [0..=100_000_000] = 100,
        /// further clients that are met only after training, made from the test images
        unseen_clients: usize [0..=10_000_000] = 0,
        /// rows an unseen client chooses its cluster by: rows of its own, or its very test rows
        unseen_train: UnseenTrain = "own",
        /// how the true clusters differ
        clusters: Clusters = "rotate",
        /// how many true clusters; left out: 4 for rotate, 2 for the other kinds
        true_clusters: Option<usize> [1..=256],
        /// classes of a client: as they come, the same number of each, or shares drawn from a Dirichlet distribution
        split: SplitKind = "equal",
        /// concentration of the Dirichlet split; small is uneven
        alpha: f64 [above 0.0] = 0.5,
        /// keep only these labels, renumbered from 0 in this order; empty keeps all
        classes: Vec<usize> [0..=255] = [],
        /// whether every image has one owner, or every cluster its own permutation of all images, or as many as it needs
        images: Owners = "disjoint",
        /// whether the clients of a cluster follow each other or the clusters take turns
        arrange: Arrange = "blocks",
        /// share of every client's training labels that is replaced by another class
        label_flips: f64 [0.0..=1.0] = 0.0,
        /// the numbers a pixel is read as: from 0 to 1, or from 0 to 255 as in the file
        pixels: Pixels = "unit",
        /// parts of a client's training rows in the order of time
        times: usize [1..=1000] = 1,
        /// share of the clients that move on to the next cluster at each new time
        drift: f64 [0.0..=1.0] = 0.3,
        /// how all images are dealt to the clients
        dealing: Dealing,
        /// augmentation of training images
        augmenting: Augmenting,
    }
}

pub(super) fn augment(settings: &Augmenting, side: usize) -> Result<Augment> {
    let crop = settings.crop;
    if crop >= side {
        let message = format!("data.crop: got {crop}, want less than the {side} pixels from side to side");
        return Err(Error::settings(message));
    }
    Ok(Augment { flip: settings.flip, crop })
}

impl Images {
    /// Checks the sizes and the labels; `place` names the images in errors.
    pub fn new(
        place: &str,
        channels: usize,
        side: usize,
        pixels: Vec<u8>,
        labels: Vec<u8>,
        classes: usize,
    ) -> Result<Self> {
        let size = channels * side * side;
        if size == 0 || labels.is_empty() {
            return Err(Error::data(format!("{place}: no images")));
        }
        if pixels.len() != labels.len() * size {
            let found = pixels.len() / size;
            return Err(Error::data(format!("{place}: {found} images but {} labels", labels.len())));
        }
        if let Some((index, label)) = labels.iter().enumerate().find(|(_, label)| usize::from(**label) >= classes) {
            let message = format!("{place}: image {index} has label {label}, want 0 to {}", classes.saturating_sub(1));
            return Err(Error::data(message));
        }
        Ok(Self { channels, side, pixels, labels })
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The label of every image.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The pixels of one image, plane by plane, row by row.
    pub fn pixels(&self, index: usize) -> &[u8] {
        let size = self.columns();
        &self.pixels[index * size..][..size]
    }

    /// Number of pixels of an image, in all planes.
    pub(crate) fn columns(&self) -> usize {
        self.channels * self.side * self.side
    }

    /// The images of two pools as one.
    pub(super) fn joined(one: &Self, other: &Self) -> Self {
        let (pixels, labels) = ([&one.pixels[..], &other.pixels].concat(), [&one.labels[..], &other.labels].concat());
        Self { channels: one.channels, side: one.side, pixels, labels }
    }

    pub(super) fn form(&self, augment: Augment) -> Form {
        Form::Image { channels: self.channels, height: self.side, width: self.side, augment }
    }
}

impl Pools {
    /// Reads the four idx files of MNIST or one of its relatives, plain or gzipped.
    pub fn read_idx(folder: &Path) -> Result<Self> {
        let classes = 10;
        let read = |name: &str, dimensions| idx::read(&idx::plain_or_packed(folder, name), dimensions);
        let pool = |part: &str| {
            let images = read(&format!("{part}-images-idx3-ubyte"), 3)?;
            let labels = read(&format!("{part}-labels-idx1-ubyte"), 1)?;
            let place = format!("{} ({part})", folder.display());
            let (height, width) = (images.sizes[1], images.sizes[2]);
            if height != width {
                return Err(Error::data(format!("{place}: images of {height} x {width} pixels, want square ones")));
            }
            Images::new(&place, 1, width, images.values, labels.values, classes)
        };
        Ok(Self { train: pool("train")?, test: pool("t10k")?, classes })
    }
}

/// Makes the clients.
/// A part of the clients of these images: which rows they have is decided for all of them, but only theirs are stored.
pub fn build(pools: &Pools, settings: &Settings, seed: u64, part: Part) -> Result<Population> {
    build_from(pools, &ImageSettings::of(settings), seed, part)
}

fn build_from(pools: &Pools, settings: &ImageSettings, seed: u64, part: Part) -> Result<Population> {
    if settings.dealing.deal != Deal::No {
        return deal::build(pools, settings, seed, part);
    }
    let allocation = Allocation::new(pools, settings, seed)?;
    let seen = allocation.members(settings.clients, "");
    let unseen = allocation.members(settings.unseen_clients, "unseen-");
    let (train, counts) = allocation.training_rows(&pools.train, &seen)?;
    let (test, mut ranges) = allocation.test_rows(&pools.test, &seen, &counts, &unseen)?;
    let unseen_ranges = ranges.split_off(seen.len());

    let own = part.places(seen.len())?;
    let rows = own.start * settings.samples..own.end * settings.samples;
    let (features, mut classes) = allocation.store(&pools.train, &train[rows]);
    drop(train);
    let (seen, ranges) = (&seen[own.clone()], ranges.drain(own));
    allocation.flip(seen, &mut classes);
    let train = Shard::new(features, Targets::Classes(classes))?;
    let (features, classes) = allocation.store(&pools.test, &test);
    let test = Shard::new(features, Targets::Classes(classes))?;
    let shard = |all: &Shard, rows| Shard::of(all.features().clone(), all.targets().clone(), rows);
    let client = |member: &Member, train, test| Client {
        id: member.id.clone(),
        train,
        test,
        group: None,
        truth: settings.clusters.plants().then_some(member.cluster),
    };
    let clients = seen.iter().zip(ranges).enumerate().map(|(number, (member, rows))| {
        let train_rows = number * settings.samples..(number + 1) * settings.samples;
        Ok(client(member, shard(&train, train_rows)?, shard(&test, rows.test)?))
    });
    let unseen_clients = unseen
        .iter()
        .zip(unseen_ranges)
        .map(|(member, rows)| Ok(client(member, shard(&test, rows.train)?, shard(&test, rows.test)?)));
    Ok(Population {
        clients: clients.collect::<Result<_>>()?,
        unseen: unseen_clients.collect::<Result<_>>()?,
        true_clusters: settings.clusters.plants().then_some(allocation.clusters),
        shape: DataShape {
            columns: pools.train.columns(),
            classes: allocation.classes,
            form: pools.train.form(allocation.augment),
        },
        ..Population::default()
    })
}

impl Clusters {
    pub(super) fn plants(self) -> bool {
        self != Clusters::None
    }
}

/// A client to be made, and its number among those of its cluster.
pub(super) struct Member {
    pub(super) id: String,
    pub(super) cluster: usize,
    rank: usize,
}

/// An image and the cluster whose transform it goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    image: u32,
    cluster: u32,
}

/// Rows of the test storage.
struct TestRanges {
    train: Range<usize>,
    test: Range<usize>,
}

pub(super) struct Allocation<'a> {
    pub(super) settings: &'a ImageSettings,
    pub(super) clusters: usize,
    pub(super) augment: Augment,
    pub(super) classes: usize,
    /// The class of each label, where it is kept.
    class_of: [Option<u32>; 256],
    pub(super) key: Key,
}

impl<'a> Allocation<'a> {
    pub(super) fn new(pools: &Pools, settings: &'a ImageSettings, seed: u64) -> Result<Self> {
        let mut faults = Vec::new();
        let mut class_of = [None; 256];
        let mut kept = settings.classes.clone();
        if kept.is_empty() {
            kept = (0..pools.classes).collect();
        }
        for (class, label) in kept.iter().enumerate() {
            if *label >= pools.classes {
                let last = pools.classes - 1;
                faults.push(Error::settings(format!("data.classes: got {label}, want labels from 0 to {last}")));
            } else if class_of[*label].replace(class as u32).is_some() {
                faults.push(Error::settings(format!("data.classes: {label} stands there twice")));
            }
        }
        let classes = kept.len();
        if classes < 2 {
            faults.push(Error::settings("data.classes: got 1 label, want at least 2 to tell apart"));
        }
        let kind = settings.clusters;
        let (usual, most) = match kind {
            Clusters::Rotate => (4, 256),
            Clusters::Invert => (2, 2),
            Clusters::SwapLabels | Clusters::LabelGroups => (2, classes),
            Clusters::None => (1, 1),
        };
        let clusters = settings.true_clusters.unwrap_or(usual);
        if clusters > most {
            let message = format!("data.true_clusters: got {clusters}, want at most {most} with clusters = \"{kind}\"");
            faults.push(Error::settings(message));
        }
        let clients = settings.clients;
        if clients < clusters {
            let message = format!("data.clients: got {clients}, want at least {clusters}, one for each true cluster");
            faults.push(Error::settings(message));
        }
        let split = settings.split;
        if settings.images == Owners::Repeated && split != SplitKind::Equal {
            faults.push(Error::settings(format!(
                "data.images: got \"repeated\" with split = \"{split}\", want \"equal\""
            )));
        }
        for fault in faults_of_time(settings, clusters).into_iter().chain(faults_of_dealing(settings)) {
            faults.push(Error::settings(fault));
        }
        let augment = augment(&settings.augmenting, pools.train.side).map_err(|fault| faults.push(fault));
        finish(faults)?;
        // A list of rows that each name an image; the images themselves are there already.
        let rows = settings.samples + settings.test_samples;
        check_room("data", &[clients + settings.unseen_clients, rows], size_of::<Row>())
            .map_err(|error| error.hint("use fewer clients or samples"))?;
        let (augment, key) = (augment.unwrap_or_default(), Key::new(seed).word("images"));
        Ok(Self { settings, clusters, augment, classes, class_of, key })
    }

    fn is_shared(&self) -> bool {
        self.settings.images != Owners::Disjoint
    }

    fn unseen_choose_on_test(&self) -> bool {
        self.settings.unseen_train == UnseenTrain::Test
    }

    pub(super) fn members(&self, count: usize, prefix: &str) -> Vec<Member> {
        let mut sizes = vec![0; self.clusters];
        let member = |number: usize| {
            let cluster = if self.settings.arrange == Arrange::Blocks {
                block(number, count, self.clusters)
            } else {
                number % self.clusters
            };
            sizes[cluster] += 1;
            Member { id: format!("{prefix}{number}"), cluster, rank: sizes[cluster] - 1 }
        };
        (0..count).map(member).collect()
    }

    fn held(&self, cluster: usize) -> Range<usize> {
        if self.settings.clusters == Clusters::LabelGroups {
            window(self.classes, self.clusters, cluster)
        } else {
            0..self.classes
        }
    }

    pub(super) fn class(&self, images: &Images, image: u32) -> Option<usize> {
        self.class_of[usize::from(images.labels[image as usize])].map(|class| class as usize)
    }

    /// The images a cluster may hold, in file order.
    fn held_images(&self, images: &Images, cluster: usize) -> Vec<u32> {
        let held = self.held(cluster);
        let is_held = |image: &u32| self.class(images, *image).is_some_and(|class| held.contains(&class));
        (0..images.len() as u32).filter(is_held).collect()
    }

    /// The images in the order they are handed out: one deck for everybody, or one for each cluster.
    fn decks(&self, images: &Images, purpose: &str) -> Vec<Vec<u32>> {
        let key = self.key.clone().word(purpose);
        if self.is_shared() {
            let deck = |cluster| {
                let mut deck = self.held_images(images, cluster);
                deck.shuffle(&mut key.clone().number(cluster as u64).rng());
                deck
            };
            return (0..self.clusters).into_par_iter().map(deck).collect();
        }
        let mut all: Vec<u32> = (0..images.len() as u32).filter(|image| self.class(images, *image).is_some()).collect();
        all.shuffle(&mut key.rng());
        if self.settings.clusters != Clusters::LabelGroups {
            return vec![all];
        }
        let holders: Vec<Vec<usize>> = (0..self.classes)
            .map(|class| (0..self.clusters).filter(|cluster| self.held(*cluster).contains(&class)).collect())
            .collect();
        let mut decks = vec![Vec::new(); self.clusters];
        let mut dealt = vec![0; self.classes];
        for image in all {
            if let Some(class) = self.class(images, image) {
                decks[holders[class][dealt[class] % holders[class].len()]].push(image);
                dealt[class] += 1;
            }
        }
        decks
    }

    /// Appends permutations of a cluster's deck until there are rows for these clients; no client spans two of them.
    fn repeat(&self, cluster: usize, clients: usize, deck: &mut Vec<u32>) {
        let served = deck.len() / self.settings.samples;
        if served == 0 {
            return;
        }
        let key = self.key.clone().word("train").number(cluster as u64);
        let mut again = deck.clone();
        deck.truncate(served * self.settings.samples);
        for pass in 1..clients.div_ceil(served) {
            again.shuffle(&mut key.clone().number(pass as u64).rng());
            deck.extend_from_slice(&again[..served * self.settings.samples]);
        }
    }

    /// Every client's training rows, one client after the other, and how many it has of each class.
    fn training_rows(&self, images: &Images, seen: &[Member]) -> Result<(Vec<Row>, Vec<Vec<usize>>)> {
        let (mut decks, samples) = (self.decks(images, "train"), self.settings.samples);
        let several = decks.len() > 1;
        for (number, deck) in decks.iter_mut().enumerate() {
            let owners = seen.iter().filter(|member| !several || member.cluster == number).count();
            if self.settings.images == Owners::Repeated {
                self.repeat(number, owners, deck);
            }
            if owners * samples > deck.len() {
                let whose = if several { format!(" of cluster {number}") } else { String::new() };
                let (wanted, have) = (owners * samples, deck.len());
                let message = format!(
                    "data.samples: {owners} clients{whose} x {samples} rows are {wanted} images, but there are {have}"
                );
                return Err(Error::settings(message).hint(match self.settings.images {
                    Owners::Repeated => "fewer samples",
                    Owners::Shared => {
                        "fewer clients, fewer samples, or images = \"repeated\" to use images again in a cluster"
                    }
                    Owners::Disjoint => {
                        "fewer clients, fewer samples, or images = \"shared\" to use every image once in each cluster"
                    }
                }));
            }
        }
        let mut rows = Vec::with_capacity(seen.len() * samples);
        let mut counts = Vec::new();
        if self.settings.split == SplitKind::Equal {
            let mut taken = vec![0; decks.len()];
            for member in seen {
                let deck = deck_of(&decks, member);
                rows.extend(decks[deck][taken[deck]..][..samples].iter().map(|image| member.row(*image)));
                taken[deck] += samples;
            }
            self.drift(seen, &mut rows);
            return Ok((rows, counts));
        }
        let mut queues: Vec<Queues> = decks.iter().map(|deck| Queues::new(self, images, deck)).collect();
        for member in seen {
            let queue = &mut queues[deck_of(&decks, member)];
            let own = self.class_counts(member, samples, &queue.left())?;
            for (class, count) in own.iter().enumerate() {
                rows.extend(queue.take(class, *count).map(|image| member.row(image)));
            }
            counts.push(own);
        }
        self.drift(seen, &mut rows);
        Ok((rows, counts))
    }

    /// Puts every client's rows of earlier times into the clusters it was in then: it is now where its drift has ended.
    fn drift(&self, seen: &[Member], rows: &mut [Row]) {
        let ImageSettings { times, samples, drift, .. } = *self.settings;
        if times == 1 {
            return;
        }
        let moves = |member: &Member, time: usize| {
            let key = self.key.clone().word("drift").number(time as u64).word(&member.id);
            key.rng().random::<f64>() < drift
        };
        for (member, rows) in seen.iter().zip(rows.chunks_exact_mut(samples)) {
            let mut cluster = member.cluster;
            for (time, rows) in rows.chunks_exact_mut(samples / times).enumerate().rev() {
                rows.iter_mut().for_each(|row| row.cluster = cluster as u32);
                if moves(member, time) {
                    cluster = (cluster + self.clusters - 1) % self.clusters;
                }
            }
        }
    }

    /// Rows of each class a client gets; no class can give more than is left of it.
    fn class_counts(&self, member: &Member, rows: usize, left: &[usize]) -> Result<Vec<usize>> {
        let held = self.held(member.cluster);
        let mut counts = vec![0; self.classes];
        if self.settings.split == SplitKind::Dirichlet {
            let mut rng = self.key.clone().word("shares").word(&member.id).rng();
            let mut shares = dirichlet(self.settings.alpha, held.len(), &mut rng)?;
            let mut left = left[held.clone()].to_vec();
            for _ in 0..rows {
                shares.iter_mut().zip(&left).filter(|(_, left)| **left == 0).for_each(|(share, _)| *share = 0.0);
                let total: f64 = shares.iter().sum();
                let chosen = if total > 0.0 {
                    let mut point = rng.random::<f64>() * total;
                    let passed = shares.iter().position(|share| {
                        point -= share;
                        point < 0.0
                    });
                    passed.or_else(|| shares.iter().rposition(|share| *share > 0.0))
                } else {
                    // The client's classes are used up: it takes the one with most images left.
                    (0..left.len()).filter(|class| left[*class] > 0).max_by_key(|class| left[*class])
                };
                let Some(chosen) = chosen else { break };
                left[chosen] -= 1;
                counts[held.start + chosen] += 1;
            }
            return Ok(counts);
        }
        for (offset, class) in held.clone().enumerate() {
            // The remainder moves on from client to client, so that no class is favoured.
            let turn = (offset + held.len() - member.rank % held.len()) % held.len();
            counts[class] = rows / held.len() + usize::from(turn < rows % held.len());
            if counts[class] > left[class] {
                let message = format!(
                    "data.split: client {} wants {} images of class {class}, but {} are left",
                    member.id, counts[class], left[class]
                );
                return Err(Error::settings(message).hint("fewer clients, fewer samples, or split = \"equal\""));
            }
        }
        Ok(counts)
    }

    /// The distinct rows of the test storage, and which of them each seen and then each unseen client has.
    fn test_rows(
        &self,
        images: &Images,
        seen: &[Member],
        counts: &[Vec<usize>],
        unseen: &[Member],
    ) -> Result<(Vec<Row>, Vec<TestRanges>)> {
        let unseen_train = if self.unseen_choose_on_test() { 0 } else { self.settings.samples };
        let wishes = || {
            let first = seen.iter().map(|member| (member, 0));
            first.chain(unseen.iter().map(|member| (member, unseen_train)))
        };
        if self.settings.split != SplitKind::Equal {
            return self.test_rows_by_class(images, seen, counts, unseen);
        }
        let mut rows = Vec::new();
        let mut ranges = Vec::new();
        if !self.is_shared() {
            let decks = self.decks(images, "test");
            let mut wanted = vec![0; decks.len()];
            wishes().for_each(|(member, train)| wanted[deck_of(&decks, member)] += train + self.settings.test_samples);
            if wanted.iter().zip(&decks).all(|(wanted, deck)| *wanted <= deck.len()) {
                let mut taken = vec![0; decks.len()];
                for (number, (member, train)) in wishes().enumerate() {
                    let deck = deck_of(&decks, member);
                    let width = train + self.settings.test_samples;
                    let start = rows.len();
                    rows.extend(decks[deck][taken[deck]..][..width].iter().map(|image| member.row(*image)));
                    taken[deck] += width;
                    ranges.push(self.cut(start, train, width, number >= seen.len()));
                }
                return Ok((rows, ranges));
            }
        }
        let files: Vec<Vec<u32>> =
            (0..self.clusters).into_par_iter().map(|cluster| self.held_images(images, cluster)).collect();
        let mut starts = HashMap::new();
        for (number, (member, train)) in wishes().enumerate() {
            let file = &files[member.cluster];
            let width = train + self.settings.test_samples;
            if width > file.len() {
                let message = format!(
                    "data.test_samples: client {} wants {width} test images, but there are {}",
                    member.id,
                    file.len()
                );
                return Err(Error::settings(message).hint("fewer test_samples, or fewer samples with unseen clients"));
            }
            let chunk = member.rank % (file.len() / width.max(1)) * width;
            let start = *starts.entry((member.cluster, chunk, width)).or_insert_with(|| {
                rows.extend(file[chunk..chunk + width].iter().map(|image| member.row(*image)));
                rows.len() - width
            });
            ranges.push(self.cut(start, train, width, number >= seen.len()));
        }
        Ok((rows, ranges))
    }

    fn test_rows_by_class(
        &self,
        images: &Images,
        seen: &[Member],
        counts: &[Vec<usize>],
        unseen: &[Member],
    ) -> Result<(Vec<Row>, Vec<TestRanges>)> {
        let decks = match self.is_shared() {
            true => (0..self.clusters).map(|cluster| self.held_images(images, cluster)).collect(),
            false => self.decks(images, "test"),
        };
        let mut queues: Vec<Queues> = decks.iter().map(|deck| Queues::new(self, images, deck)).collect();
        let (mut rows, mut ranges) = (Vec::new(), Vec::new());
        for (number, member) in seen.iter().chain(unseen).enumerate() {
            let queue = &mut queues[deck_of(&decks, member)];
            let have = queue.sizes();
            let is_unseen = number >= seen.len();
            let nothing = vec![0; self.classes];
            let (train, test) = match is_unseen {
                false => (nothing, apportion(&counts[number], self.settings.test_samples)),
                true if self.unseen_choose_on_test() => {
                    (nothing, self.class_counts(member, self.settings.test_samples, &have)?)
                }
                true => {
                    let train = self.class_counts(member, self.settings.samples, &have)?;
                    let test = apportion(&train, self.settings.test_samples);
                    (train, test)
                }
            };
            let start = rows.len();
            let (mut train_rows, mut test_rows) = (Vec::new(), Vec::new());
            for class in 0..self.classes {
                // A class with too few images is divided between both parts rather than used twice.
                let (wanted, total) = (train[class] + test[class], have[class].min(train[class] + test[class]));
                let to_test = (total * test[class]).checked_div(wanted).unwrap_or(0);
                let taken: Vec<u32> = queue.take(class, total).collect();
                test_rows.extend_from_slice(&taken[..to_test]);
                train_rows.extend_from_slice(&taken[to_test..]);
            }
            rows.extend(train_rows.iter().chain(&test_rows).map(|image| member.row(*image)));
            ranges.push(self.cut(start, train_rows.len(), rows.len() - start, is_unseen));
        }
        Ok((rows, ranges))
    }

    fn cut(&self, start: usize, train: usize, width: usize, unseen: bool) -> TestRanges {
        let test = start + train..start + width;
        let train = if unseen && self.unseen_choose_on_test() { test.clone() } else { start..start + train };
        TestRanges { train, test }
    }

    /// Copies the rows through their cluster's transform.
    pub(super) fn store(&self, images: &Images, rows: &[Row]) -> (Features, Vec<u32>) {
        let columns = images.columns();
        let transforms: Vec<Transform> =
            (0..self.clusters).map(|cluster| self.transform(cluster, images.channels, images.side)).collect();
        let copy = |row: &Row, into: &mut [u8]| {
            transforms[row.cluster as usize].apply(images.pixels(row.image as usize), into);
        };
        let features = if self.settings.pixels == Pixels::Raw {
            let mut values = vec![0.0; rows.len() * columns];
            values.par_chunks_exact_mut(columns).zip(rows).for_each_init(
                || vec![0; columns],
                |bytes, (into, row)| {
                    copy(row, bytes);
                    into.iter_mut().zip(bytes).for_each(|(into, byte)| *into = f32::from(*byte));
                },
            );
            Features::F32 { columns, values }
        } else {
            let mut values = vec![0; rows.len() * columns];
            values.par_chunks_exact_mut(columns).zip(rows).for_each(|(into, row)| copy(row, into));
            Features::Bytes { columns, values }
        };
        let class = |row: &Row| {
            let class = self.class(images, row.image).unwrap_or(0);
            let shift = if self.settings.clusters == Clusters::SwapLabels { row.cluster as usize } else { 0 };
            ((class + shift) % self.classes) as u32
        };
        (features, rows.par_iter().map(class).collect())
    }

    fn transform(&self, cluster: usize, channels: usize, side: usize) -> Transform {
        match self.settings.clusters {
            Clusters::Rotate if cluster > 0 => match self.clusters {
                2 => Transform::Move(quarter_turns(2, channels, side)),
                3 | 4 => Transform::Move(quarter_turns(cluster, channels, side)),
                many if (4 * cluster).is_multiple_of(many) => {
                    Transform::Move(quarter_turns(4 * cluster / many, channels, side))
                }
                many => Transform::Turn(turn(cluster as f64 / many as f64, channels, side)),
            },
            Clusters::Invert if cluster > 0 => Transform::Invert,
            _ => Transform::Keep,
        }
    }

    /// Replaces a share of every client's training labels by another class.
    fn flip(&self, seen: &[Member], classes: &mut [u32]) {
        let wrong = (self.settings.label_flips * self.settings.samples as f64).round() as usize;
        for (member, classes) in seen.iter().zip(classes.chunks_exact_mut(self.settings.samples)) {
            let mut rng = self.key.clone().word("flips").word(&member.id).rng();
            for row in index::sample(&mut rng, self.settings.samples, wrong) {
                classes[row] = (classes[row] + rng.random_range(1..self.classes as u32)) % self.classes as u32;
            }
        }
    }
}

impl Member {
    pub(super) fn row(&self, image: u32) -> Row {
        Row { image, cluster: self.cluster as u32 }
    }
}

fn deck_of(decks: &[Vec<u32>], member: &Member) -> usize {
    if decks.len() > 1 { member.cluster } else { 0 }
}

/// A deck by class, taken from the front, and again from the beginning at its end.
struct Queues {
    images: Vec<Vec<u32>>,
    taken: Vec<usize>,
}

impl Queues {
    fn new(allocation: &Allocation, images: &Images, deck: &[u32]) -> Self {
        let mut queues = vec![Vec::new(); allocation.classes];
        for image in deck {
            if let Some(class) = allocation.class(images, *image) {
                queues[class].push(*image);
            }
        }
        Self { taken: vec![0; queues.len()], images: queues }
    }

    fn sizes(&self) -> Vec<usize> {
        self.images.iter().map(Vec::len).collect()
    }

    fn left(&self) -> Vec<usize> {
        self.images.iter().zip(&self.taken).map(|(images, taken)| images.len().saturating_sub(*taken)).collect()
    }

    fn take(&mut self, class: usize, count: usize) -> impl Iterator<Item = u32> {
        let start = self.taken[class];
        self.taken[class] += count;
        self.images[class].iter().copied().cycle().skip(start % self.images[class].len().max(1)).take(count)
    }
}

enum Transform {
    Keep,
    Invert,
    /// The source of every value.
    Move(Vec<u32>),
    /// The sources of every value with their weights; what lies outside is 0.
    Turn(Vec<[(u32, f32); 4]>),
}

impl Transform {
    fn apply(&self, from: &[u8], into: &mut [u8]) {
        match self {
            Transform::Keep => into.copy_from_slice(from),
            Transform::Invert => into.iter_mut().zip(from).for_each(|(into, from)| *into = 255 - from),
            Transform::Move(places) => {
                into.iter_mut().zip(places).for_each(|(into, place)| *into = from[*place as usize]);
            }
            Transform::Turn(places) => {
                let mixed = |parts: &[(u32, f32); 4]| {
                    parts.iter().map(|(place, weight)| weight * f32::from(from[*place as usize])).sum::<f32>()
                };
                into.iter_mut().zip(places).for_each(|(into, parts)| *into = mixed(parts).round() as u8);
            }
        }
    }
}

/// The source of every pixel when each plane is turned counter-clockwise.
fn quarter_turns(quarters: usize, channels: usize, side: usize) -> Vec<u32> {
    let source = |place: usize| {
        let (plane, mut row, mut column) = (place / (side * side), place / side % side, place % side);
        for _ in 0..quarters {
            (row, column) = (column, side - 1 - row);
        }
        (plane * side * side + row * side + column) as u32
    };
    (0..channels * side * side).map(source).collect()
}

/// The sources of every pixel when each plane is turned counter-clockwise by this part of a full turn, between four pixels each.
fn turn(part: f64, channels: usize, side: usize) -> Vec<[(u32, f32); 4]> {
    let (sin, cos) = (std::f64::consts::TAU * part).sin_cos();
    let middle = (side as f64 - 1.0) / 2.0;
    let source = |place: usize| {
        let (plane, row, column) = (place / (side * side), place / side % side, place % side);
        // Downwards and to the right of the middle; where the pixel was before it was turned.
        let (down, right) = (row as f64 - middle, column as f64 - middle);
        let (down, right) = (middle + down * cos + right * sin, middle + right * cos - down * sin);
        let (top, left) = (down.floor(), right.floor());
        [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)].map(|(below, beside)| {
            let (row, column) = (top + below, left + beside);
            let weight = (1.0 - (down - row).abs()) * (1.0 - (right - column).abs());
            let inside = (0.0..side as f64).contains(&row) && (0.0..side as f64).contains(&column);
            match inside {
                true => ((plane * side * side) as u32 + row as u32 * side as u32 + column as u32, weight as f32),
                false => (0, 0.0),
            }
        })
    };
    (0..channels * side * side).map(source).collect()
}

/// What is wrong with clients over time.
fn faults_of_time(settings: &ImageSettings, clusters: usize) -> Option<String> {
    let ImageSettings { times, samples, clusters: kind, .. } = settings;
    if *times == 1 {
        return None;
    }
    if clusters < 2 || *kind == Clusters::LabelGroups {
        return Some(format!(
            "data.times: got {times} with clusters = \"{kind}\", want clusters that clients can move between: rotate, invert or swap-labels"
        ));
    }
    (!samples.is_multiple_of(*times))
        .then(|| format!("data.times: got {times}, want a number that divides the {samples} samples of a client"))
}

/// What is wrong with settings beside `deal`.
fn faults_of_dealing(settings: &ImageSettings) -> Option<String> {
    let Dealing { deal, noise, .. } = settings.dealing;
    if deal == Deal::No {
        return (noise > 0.0).then(|| "data.noise: want it with deal, which gives every client rows of its own".into());
    }
    let without = [
        ("unseen_clients", settings.unseen_clients > 0),
        ("times", settings.times > 1),
        ("label_flips", settings.label_flips > 0.0),
        ("clusters = \"label-groups\"", settings.clusters == Clusters::LabelGroups),
        ("clusters other than \"none\"", deal == Deal::Groups && settings.clusters.plants()),
    ];
    let found = without.iter().find(|(_, given)| *given);
    found.map(|(name, _)| format!("data.deal: got \"{deal}\" with {name}, want one of the two"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::idx::tests::{bytes, gzip};
    use std::collections::HashSet;

    /// Images of 2x2 pixels; pixel 0 is the image's number and tells where a row came from.
    fn pools(train: u8, test: u8, classes: u8) -> Pools {
        let images = |count: u8| {
            let pixels = (0..count).flat_map(|number| [number, 100, 101, 102]).collect();
            let labels = (0..count).map(|number| number % classes).collect();
            Images::new("test", 1, 2, pixels, labels, usize::from(classes)).unwrap()
        };
        Pools { train: images(train), test: images(test), classes: usize::from(classes) }
    }

    fn make(pools: &Pools, text: &str) -> Result<Population> {
        let settings = ImageSettings::from_table("data", toml::from_str(text).unwrap())?;
        build_from(pools, &settings, 3, Part::ALL)
    }

    fn pixels(shard: &Shard) -> Vec<&[u8]> {
        match &**shard.features() {
            Features::Bytes { columns, values } => {
                shard.rows().map(|row| &values[row * columns..][..*columns]).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn numbers(shard: &Shard) -> Vec<u8> {
        pixels(shard).into_iter().map(|row| row[0]).collect()
    }

    #[test]
    fn quarter_turns_are_counter_clockwise_in_every_plane() {
        // 1 2      2 4      4 3
        // 3 4  ->  1 3  ->  2 1
        let turn = |quarters, from: &[u8], channels| {
            let mut into = vec![0; from.len()];
            Transform::Move(quarter_turns(quarters, channels, 2)).apply(from, &mut into);
            into
        };
        assert_eq!(turn(1, &[1, 2, 3, 4], 1), [2, 4, 1, 3]);
        assert_eq!(turn(2, &[1, 2, 3, 4], 1), [4, 3, 2, 1]);
        assert_eq!(turn(3, &[1, 2, 3, 4, 5, 6, 7, 8], 2), [3, 1, 4, 2, 7, 5, 8, 6]);
        assert_eq!(turn(4, &[1, 2, 3, 4], 1), [1, 2, 3, 4]);
    }

    #[test]
    fn two_rotations_are_half_a_turn_apart() {
        let population =
            make(&pools(8, 8, 2), "clients = 4\nsamples = 2\ntest_samples = 2\ntrue_clusters = 2").unwrap();
        assert_eq!(population.true_clusters, Some(2));
        assert_eq!((population.shape.columns, population.shape.classes), (4, 2));
        let truths: Vec<_> = population.clients.iter().map(|client| client.truth).collect();
        assert_eq!(truths, [Some(0), Some(0), Some(1), Some(1)]);
        assert!(pixels(&population.clients[1].train).iter().all(|row| row[1..] == [100, 101, 102]));
        for part in [&population.clients[2].train, &population.clients[2].test] {
            for (row, class) in pixels(part).iter().zip(part.classes().unwrap()) {
                assert_eq!(row[..3], [102, 101, 100]);
                assert_eq!(u32::from(row[3]) % 2, *class);
            }
        }
    }

    #[test]
    fn disjoint_clients_own_every_image_once() {
        let text = "clients = 4\nsamples = 2\ntest_samples = 2\nclusters = \"none\"";
        let population = make(&pools(8, 8, 2), text).unwrap();
        for part in [|client: &Client| client.train.clone(), |client: &Client| client.test.clone()] {
            let mut all: Vec<u8> = population.clients.iter().flat_map(|client| numbers(&part(client))).collect();
            all.sort();
            assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7]);
        }
        assert_eq!((population.true_clusters, population.clients[0].truth), (None, None));
        let again = make(&pools(8, 8, 2), text).unwrap();
        assert_eq!(numbers(&again.clients[1].train), numbers(&population.clients[1].train));
    }

    #[test]
    fn shared_images_appear_once_in_every_cluster_and_test_chunks_follow_the_file() {
        let text = "clients = 4\nsamples = 4\ntest_samples = 2\nclusters = \"invert\"\nimages = \"shared\"
            arrange = \"alternate\"\nunseen_clients = 8\nunseen_train = \"test\"";
        let population = make(&pools(8, 6, 2), text).unwrap();
        let cluster = |truth| population.clients.iter().filter(move |client| client.truth == Some(truth));
        let mut upright: Vec<u8> = cluster(0).flat_map(|client| numbers(&client.train)).collect();
        let mut inverted: Vec<u8> = cluster(1).flat_map(|client| numbers(&client.train)).map(|v| 255 - v).collect();
        assert_ne!(upright, inverted);
        upright.sort();
        inverted.sort();
        assert_eq!(upright, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(inverted, upright);

        let tests: Vec<Vec<u8>> = population.unseen.iter().map(|client| numbers(&client.test)).collect();
        assert_eq!(tests[0], [0, 1]);
        assert_eq!(tests[1], [255, 254]);
        assert_eq!(tests[4], [4, 5]);
        // Three chunks of two: the fourth client of a cluster has the first again, in the same storage.
        assert_eq!(population.unseen[6].test.rows(), population.unseen[0].test.rows());
        assert_eq!(population.unseen[0].train.rows(), population.unseen[0].test.rows());
        assert_eq!(population.clients[0].test.rows(), population.unseen[0].test.rows());
        assert_eq!(population.clients[0].test.features().rows(), 12);
    }

    #[test]
    fn unseen_clients_have_rows_of_their_own() {
        let text = "clients = 2\nsamples = 2\ntest_samples = 1\nclusters = \"invert\"\nunseen_clients = 2";
        let population = make(&pools(8, 8, 2), text).unwrap();
        let mut all: Vec<u8> = Vec::new();
        for client in population.clients.iter().chain(&population.unseen) {
            let upright = |v: u8| if client.truth == Some(1) { 255 - v } else { v };
            all.extend(numbers(&client.test).into_iter().map(upright));
            if client.id.starts_with("unseen") {
                assert_eq!((client.train.len(), client.test.len()), (2, 1));
                all.extend(numbers(&client.train).into_iter().map(upright));
            }
        }
        assert_eq!(all.len(), 8);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 8);
    }

    #[test]
    fn label_groups_and_swapped_labels() {
        let text = "clients = 2\nsamples = 3\ntest_samples = 3\nclusters = \"label-groups\"";
        let population = make(&pools(12, 12, 3), text).unwrap();
        let classes = |client: usize| population.clients[client].train.classes().unwrap().to_vec();
        assert!(classes(0).iter().all(|class| *class < 2) && classes(1).iter().all(|class| *class > 0));

        let text = "clients = 3\nsamples = 4\ntest_samples = 2\nclusters = \"swap-labels\"\ntrue_clusters = 3";
        let population = make(&pools(12, 12, 3), text).unwrap();
        for client in &population.clients {
            for (number, class) in numbers(&client.train).iter().zip(client.train.classes().unwrap()) {
                assert_eq!((u32::from(*number) + client.truth.unwrap() as u32) % 3, *class);
            }
        }
    }

    #[test]
    fn kept_classes_are_renumbered() {
        let text = "clients = 2\nsamples = 4\ntest_samples = 2\nclusters = \"none\"\nclasses = [2, 0]";
        let population = make(&pools(12, 12, 3), text).unwrap();
        assert_eq!(population.shape.classes, 2);
        for client in &population.clients {
            for (number, class) in numbers(&client.train).iter().zip(client.train.classes().unwrap()) {
                assert_eq!(*class, if number % 3 == 2 { 0 } else { 1 });
                assert_ne!(number % 3, 1);
            }
        }
    }

    #[test]
    fn balanced_clients_have_the_same_number_of_each_class() {
        let text = "clients = 3\nsamples = 4\ntest_samples = 2\nclusters = \"none\"\nsplit = \"balanced\"";
        let population = make(&pools(12, 12, 2), text).unwrap();
        for client in &population.clients {
            assert_eq!(client.train.classes().unwrap(), [0, 0, 1, 1]);
            assert_eq!(client.test.classes().unwrap(), [0, 1]);
        }
        let text = make(&pools(12, 12, 2), &text.replace("= 4", "= 5")).unwrap_err().to_string();
        assert!(text.contains("3 clients x 5 rows are 15 images, but there are 12"), "{text}");
    }

    #[test]
    fn dirichlet_clients_are_uneven_and_tested_alike() {
        let text = "clients = 10\nsamples = 10\ntest_samples = 5\nclusters = \"none\"\nsplit = \"dirichlet\"
            alpha = 0.05\nunseen_clients = 2";
        let population = make(&pools(100, 100, 2), text).unwrap();
        let mut all: Vec<u8> = population.clients.iter().flat_map(|client| numbers(&client.train)).collect();
        all.sort();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        let share = |shard: &Shard| {
            let classes = shard.classes().unwrap();
            classes.iter().sum::<u32>() as f64 / classes.len() as f64
        };
        let pure = population.clients.iter().filter(|client| [0.0, 1.0].contains(&share(&client.train)));
        assert!(pure.count() >= 5);
        for client in population.clients.iter().chain(&population.unseen) {
            assert!((share(&client.train) - share(&client.test)).abs() <= 0.1);
            assert_eq!((client.train.len(), client.test.len()), (10, 5));
        }
    }

    #[test]
    fn flips_change_the_share_asked_for_and_no_test_label() {
        let text = "clients = 2\nsamples = 10\ntest_samples = 5\nclusters = \"none\"\nlabel_flips = 0.2";
        let population = make(&pools(30, 30, 3), text).unwrap();
        for client in &population.clients {
            let wrong = |shard: &Shard| {
                let pairs = numbers(shard).into_iter().zip(shard.classes().unwrap().to_vec());
                pairs.filter(|(number, class)| u32::from(*number) % 3 != *class).count()
            };
            assert_eq!((wrong(&client.train), wrong(&client.test)), (2, 0));
        }
    }

    #[test]
    fn raw_pixels_are_the_bytes_as_numbers() {
        let text = "clients = 2\nsamples = 4\ntest_samples = 4\nclusters = \"invert\"";
        let (unit, raw) = (
            make(&pools(8, 8, 2), text).unwrap(),
            make(&pools(8, 8, 2), &format!("{text}\npixels = \"raw\"")).unwrap(),
        );
        for (unit, raw) in unit.clients.iter().zip(&raw.clients) {
            for (unit, raw) in [(&unit.train, &raw.train), (&unit.test, &raw.test)] {
                let Features::F32 { columns: 4, values } = &**raw.features() else { panic!() };
                let bytes: Vec<f32> = pixels(unit).concat().into_iter().map(f32::from).collect();
                assert_eq!(values[raw.rows().start * 4..raw.rows().end * 4], bytes);
                assert_eq!(raw.classes(), unit.classes());
            }
        }
        // The second cluster is inverted: 255 - 100, 255 - 101, 255 - 102.
        let Features::F32 { values, .. } = &**raw.clients[1].train.features() else { panic!() };
        assert_eq!(values[values.len() - 3..], [155.0, 154.0, 153.0]);
    }

    #[test]
    fn what_training_may_do_to_images_is_in_their_form() {
        let text = "clients = 2\nsamples = 2\ntest_samples = 2\nclusters = \"none\"";
        let form = |more: &str| make(&pools(8, 8, 2), &format!("{text}\n{more}")).map(|made| made.shape.form);
        let image = |flip, crop| Form::Image { channels: 1, height: 2, width: 2, augment: Augment { flip, crop } };
        assert_eq!(form("").unwrap(), image(false, 0));
        assert_eq!(form("flip = true\ncrop = 1").unwrap(), image(true, 1));
        assert_eq!(
            form("crop = 2").unwrap_err().to_string(),
            "data.crop: got 2, want less than the 2 pixels from side to side"
        );
    }

    #[test]
    fn label_groups_may_need_more_images_than_there_are_when_clusters_share_them() {
        // Two clusters of two of three classes: each may hold 8 of 12 images, though 16 are held in all.
        let text = "clients = 4\nsamples = 4\ntest_samples = 2\nclusters = \"label-groups\"\narrange = \"alternate\"";
        let population = make(&pools(12, 12, 3), &format!("{text}\nimages = \"shared\"")).unwrap();
        for cluster in 0..2 {
            let members = || population.clients.iter().filter(|client| client.truth == Some(cluster));
            let mut held: Vec<u8> = members().flat_map(|client| numbers(&client.train)).collect();
            held.sort();
            let wanted: Vec<u8> = (0..12).filter(|image| usize::from(image % 3) != 2 * (1 - cluster)).collect();
            assert_eq!(held, wanted);
        }
        assert!(make(&pools(12, 12, 3), text).unwrap_err().to_string().contains("images = \"shared\""));
    }

    #[test]
    fn clusters_with_too_few_images_may_use_them_again_but_no_client_does() {
        // 8 images and 3 a client: two clients a permutation, so the third begins a new one.
        let text = "clients = 10\nsamples = 3\ntest_samples = 2\nclusters = \"invert\"\nimages =";
        let refused = make(&pools(8, 8, 2), &format!("{text} \"shared\"")).unwrap_err().to_string();
        assert!(refused.contains("5 clients of cluster 0 x 3 rows are 15 images, but there are 8"), "{refused}");
        assert!(refused.contains("images = \"repeated\""), "{refused}");
        let population = make(&pools(8, 8, 2), &format!("{text} \"repeated\"")).unwrap();
        let distinct = |clients: &[Client]| {
            let all: Vec<u8> = clients.iter().flat_map(|client| numbers(&client.train)).collect();
            all.iter().collect::<HashSet<_>>().len()
        };
        for cluster in population.clients.chunks(5) {
            assert_eq!(cluster.iter().map(|client| distinct(std::slice::from_ref(client))).collect::<Vec<_>>(), [3; 5]);
            assert_eq!([distinct(&cluster[..2]), distinct(&cluster[2..4])], [6, 6]);
            assert!(distinct(cluster) <= 8);
            assert_ne!(numbers(&cluster[0].train), numbers(&cluster[2].train));
        }
        // While they last they are dealt as when they are shared.
        let few = text.replace("= 10", "= 4");
        let (shared, repeated) = (format!("{few} \"shared\""), format!("{few} \"repeated\""));
        assert_eq!(
            make(&pools(8, 8, 2), &shared).unwrap().digest(),
            make(&pools(8, 8, 2), &repeated).unwrap().digest()
        );
        let refused = make(&pools(8, 8, 2), &format!("{repeated}\nsplit = \"balanced\"")).unwrap_err().to_string();
        assert_eq!(refused, "data.images: got \"repeated\" with split = \"balanced\", want \"equal\"");
        let refused = make(&pools(8, 8, 2), &repeated.replace("samples = 3", "samples = 9")).unwrap_err().to_string();
        assert!(refused.contains("2 clients of cluster 0 x 9 rows are 18 images, but there are 8"), "{refused}");
    }

    #[test]
    fn settings_that_do_not_fit_the_images_are_refused() {
        let text = |text: &str| make(&pools(8, 4, 2), text).unwrap_err().to_string();
        assert_eq!(
            text("clients = 2\nsamples = 5\nclusters = \"none\""),
            "data.samples: 2 clients x 5 rows are 10 images, but there are 8\n  hint: fewer clients, fewer samples, or \
             images = \"shared\" to use every image once in each cluster"
        );
        assert_eq!(
            text("clients = 2\nsamples = 1\ntest_samples = 5\nclusters = \"none\"").lines().next(),
            Some("data.test_samples: client 0 wants 5 test images, but there are 4")
        );
        assert_eq!(
            text("clients = 2\nclusters = \"invert\"\ntrue_clusters = 3\nclasses = [0, 0, 7]"),
            "4 faults\n- data.classes: 0 stands there twice\n- data.classes: got 7, want labels from 0 to 1\n\
             - data.true_clusters: got 3, want at most 2 with clusters = \"invert\"\n\
             - data.clients: got 2, want at least 3, one for each true cluster"
        );
    }

    #[test]
    fn idx_files_become_pools() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: Vec<u8>| fs::write(folder.path().join(name), content).unwrap();
        write("train-images-idx3-ubyte", bytes(&[2, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8]));
        write("train-labels-idx1-ubyte", bytes(&[2], &[9, 0]));
        write("t10k-images-idx3-ubyte.gz", gzip(&bytes(&[1, 2, 2], &[9, 9, 9, 9])));
        write("t10k-labels-idx1-ubyte.gz", gzip(&bytes(&[1], &[3])));
        let pools = Pools::read_idx(folder.path()).unwrap();
        assert_eq!((pools.train.pixels(1), pools.train.labels()), (&[5, 6, 7, 8][..], &[9, 0][..]));
        assert_eq!(pools.test.labels(), [3]);
        write("train-labels-idx1-ubyte", bytes(&[3], &[9, 0, 1]));
        let text = Pools::read_idx(folder.path()).unwrap_err().to_string();
        assert!(text.ends_with("(train): 2 images but 3 labels"), "{text}");
    }
}
