//! MNIST by writer: a federation whose clusters nobody planted.
//!
//! QMNIST (Yadav and Bottou 2019) identified the writer of every digit. Its labels have a row for every image, in MNIST's
//! order: the class, the series of NIST's forms the digit was cut from, the writer, and more. The 60 000 training images
//! are by 539 writers, with 19 to 131 images each; they are the clients. The 10 000 test images are the first of QMNIST's
//! test rows and by 297 other people, with 8 to 130 images each; they can be met after training. The series is a client's
//! group: `hsf_0` are employees of the census bureau, `hsf_4` are pupils.

use super::split::{divide, hold_out};
use super::*;

pub(super) const TRAIN: &str = "qmnist-train-labels-idx2-int";
/// The labels of the test images, and of further ones.
pub(super) const TEST: &str = "qmnist-test-labels-idx2-int";

const CLASS: usize = 0;
const SERIES: usize = 1;
const WRITER: usize = 2;

settings! {
    /// Settings of the writers.
    pub struct WriterSettings {
        /// which clients are drawn
        drawing: Drawing,
        /// fewest rows a client must have
        min_rows: usize [1..=i64::MAX] = 1,
        /// how many writers of the test images are met after training, drawn from the seed
        unseen_clients: usize [0..=10_000_000] = 0,
        /// augmentation of training images
        augmenting: Augmenting,
    }
}

impl SourceSettings for WriterSettings {
    const NAME: &str = "mnist-writers";
    const SUMMARY: &str = "MNIST's digits by writer: 539 people, and 297 others to be met after training";

    fn build(self, seed: u64) -> Result<Population> {
        build_from(&cache::find("mnist")?, &cache::find("mnist-writers")?, &self, seed)
    }
}

fn build_from(images: &Path, labels: &Path, settings: &WriterSettings, seed: u64) -> Result<Population> {
    let key = Key::new(seed).word("writers");
    let (share, least) = (settings.drawing.test_fraction, settings.min_rows);
    let pools = Pools::read_idx(images)?;
    let augment = images::augment(&settings.augmenting, pools.train.side)?;
    let mut writers = read(labels, TRAIN, &pools.train, least)?;
    let drawn = draw_clients(writers.iter().map(|writer| writer.id.as_str()), settings.drawing.clients, &key)?;
    keep(&mut writers, drawn);

    let count = settings.unseen_clients;
    let mut others = if count > 0 { read(labels, TEST, &pools.test, least)? } else { Vec::new() };
    if count > others.len() {
        let have = others.len();
        return Err(Error::settings(format!("data.unseen_clients: got {count}, but there are {have}")));
    }
    let drawn = draw_lots(others.iter().map(|writer| writer.id.as_str()), count, &key.clone().word("unseen"));
    keep(&mut others, drawn);

    Ok(Population {
        clients: clients(&pools.train, &writers, share, &key)?,
        unseen: clients(&pools.test, &others, share, &key)?,
        shape: DataShape { columns: pools.train.columns(), classes: pools.classes, form: pools.train.form(augment) },
        ..Population::default()
    })
}

struct Writer {
    id: String,
    series: i32,
    images: Vec<usize>,
}

/// The writers of at least `least` of these images, by their numbers.
fn read(folder: &Path, name: &str, images: &Images, least: usize) -> Result<Vec<Writer>> {
    let path = idx::plain_or_packed(folder, name);
    let labels = idx::read_integers(&path, 2)?;
    let (rows, columns) = (labels.sizes[0], labels.sizes[1]);
    if columns <= WRITER || rows < images.len() {
        let (path, wanted) = (path.display(), images.len());
        let message = format!("{path}: {rows} rows of {columns} labels, want {wanted} of at least {}", WRITER + 1);
        return Err(Error::data(message));
    }
    let mut writers: BTreeMap<i32, Writer> = BTreeMap::new();
    for (image, row) in labels.values.chunks_exact(columns).take(images.len()).enumerate() {
        if row[CLASS] != i32::from(images.labels()[image]) {
            let (path, found, label) = (path.display(), row[CLASS], images.labels()[image]);
            return Err(Error::data(format!("{path}: row {image} is of class {found}, but the image is a {label}"))
                .hint("the images must be MNIST's own, in their order"));
        }
        let new = || Writer { id: row[WRITER].to_string(), series: row[SERIES], images: Vec::new() };
        writers.entry(row[WRITER]).or_insert_with(new).images.push(image);
    }
    let writers: Vec<Writer> = writers.into_values().filter(|writer| writer.images.len() >= least).collect();
    match writers.is_empty() {
        true => Err(Error::settings(format!("data.min_rows: no writer has {least} images"))),
        false => Ok(writers),
    }
}

/// Copies the images writer by writer, training images before test images.
fn clients(images: &Images, writers: &[Writer], share: f64, key: &Key) -> Result<Vec<Client>> {
    let divided = divide(writers.iter().map(|writer| (writer.id.as_str(), &writer.images)), |id, images| {
        hold_out(images.len(), share, &key.clone().word("test").word(id))
    });
    let values = divided.rows.iter().flat_map(|image| images.pixels(*image)).copied().collect();
    let features = Arc::new(Features::Bytes { columns: images.columns(), values });
    let classes = divided.rows.iter().map(|image| u32::from(images.labels()[*image])).collect();
    let targets = Arc::new(Targets::Classes(classes));
    let shard = |rows| Shard::of(features.clone(), targets.clone(), rows);
    let client = |(writer, (train, test)): (&Writer, (_, _))| {
        Ok(Client {
            id: writer.id.clone(),
            train: shard(train)?,
            test: shard(test)?,
            group: Some(format!("hsf_{}", writer.series)),
            truth: None,
        })
    };
    writers.iter().zip(divided.train.into_iter().zip(divided.test)).map(client).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::idx::tests::{bytes, gzip, integers};
    use crate::data::{Augment, Form};
    use crate::settings::Declared;

    /// Six training images by writers 20 and 3, of 2x2 pixels whose first is the image's place; three test images by
    /// writers 7 and 8, with one more row of labels than there are images.
    fn make(text: &str, seed: u64, first_class: i32) -> Result<Population> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: Vec<u8>| fs::write(folder.path().join(name), content).unwrap();
        let pixels = |count: u8| (0..count).flat_map(|image| [image, 9, 9, 9]).collect::<Vec<u8>>();
        write("train-images-idx3-ubyte", bytes(&[6, 2, 2], &pixels(6)));
        write("train-labels-idx1-ubyte", bytes(&[6], &[5, 0, 4, 1, 9, 2]));
        write("t10k-images-idx3-ubyte", bytes(&[3, 2, 2], &pixels(3)));
        write("t10k-labels-idx1-ubyte", bytes(&[3], &[7, 2, 1]));
        let rows = [[first_class, 4, 20, 0], [0, 0, 3, 0], [4, 4, 20, 0], [1, 4, 20, 0], [9, 0, 3, 0], [2, 4, 20, 0]];
        write(&format!("{TRAIN}.gz"), gzip(&integers(&[6, 4], rows.as_flattened())));
        let rows = [[7, 4, 8, 0], [2, 0, 7, 0], [1, 4, 8, 0], [3, 1, 9, 0]];
        write(TEST, integers(&[4, 4], rows.as_flattened()));
        let settings = WriterSettings::from_table("data", toml::from_str(text).unwrap())?;
        build_from(folder.path(), folder.path(), &settings, seed)
    }

    /// The places of a client's images, training and test, with their classes.
    fn rows(client: &Client) -> Vec<(u8, u32)> {
        let of = |shard: &Shard| {
            let Features::Bytes { columns: 4, values } = &**shard.features() else { panic!() };
            let places: Vec<u8> = shard.rows().map(|row| values[row * 4]).collect();
            places.into_iter().zip(shard.classes().unwrap().to_vec()).collect::<Vec<_>>()
        };
        [of(&client.train), of(&client.test)].concat()
    }

    #[test]
    fn writers_hold_the_images_they_wrote() {
        let population = make("test_fraction = 0.25\nunseen_clients = 2\ncrop = 1", 1, 5).unwrap();
        let told: Vec<_> = (population.clients.iter().chain(&population.unseen))
            .map(|writer| {
                let mut rows = rows(writer);
                rows.sort();
                (writer.id.as_str(), writer.group.as_deref().unwrap(), writer.train.len(), writer.test.len(), rows)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("3", "hsf_0", 1, 1, vec![(1, 0), (4, 9)]),
                ("20", "hsf_4", 3, 1, vec![(0, 5), (2, 4), (3, 1), (5, 2)]),
                ("7", "hsf_0", 1, 0, vec![(1, 2)]),
                ("8", "hsf_4", 1, 1, vec![(0, 7), (2, 1)]),
            ]
        );
        assert!(population.clients.iter().all(|writer| writer.truth.is_none()));
        let augment = Augment { flip: false, crop: 1 };
        let form = Form::Image { channels: 1, height: 2, width: 2, augment };
        assert_eq!(population.shape, DataShape { columns: 4, classes: 10, form });
    }

    #[test]
    fn fewer_writers_are_some_of_all_with_the_same_rows() {
        let all = make("", 1, 5).unwrap();
        let mut chosen = Vec::new();
        for seed in 0..20 {
            let some = make("clients = 1", seed, 5).unwrap();
            assert_eq!(some.clients.len(), 1);
            chosen.push(some.clients[0].id.clone());
            if seed == 1 {
                let same = all.clients.iter().find(|writer| writer.id == some.clients[0].id).unwrap();
                assert_eq!(rows(same), rows(&some.clients[0]));
            }
        }
        chosen.sort();
        chosen.dedup();
        assert_eq!(chosen, ["20", "3"]);
        assert_eq!(make("min_rows = 2", 1, 5).unwrap().clients.len(), 2);
        // No writer of the test images has three; that matters only where some are to be met.
        assert_eq!(make("min_rows = 3", 1, 5).unwrap().clients.len(), 1);
        let none = |settings: &str| make(settings, 1, 5).unwrap_err().to_string();
        assert_eq!(none("min_rows = 3\nunseen_clients = 1"), "data.min_rows: no writer has 3 images");
        assert_eq!(none("min_rows = 5"), "data.min_rows: no writer has 5 images");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let text = |settings: &str, class| make(settings, 1, class).unwrap_err().to_string();
        assert!(text("", 6).contains("row 0 is of class 6, but the image is a 5"));
        assert_eq!(text("clients = 3", 5), "data.clients: got 3, but there are 2");
        assert_eq!(text("unseen_clients = 3", 5), "data.unseen_clients: got 3, but there are 2");
        assert_eq!(text("test_fraction = 1.0", 5), "data.test_fraction: got 1.0, want a number from 0 to below 1");
    }
}
