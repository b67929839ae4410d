//! Where downloaded datasets live: one folder per dataset under `KINFOLK_DATA`, or else under `kinfolk` in the platform's cache
//! folder.

use super::*;

#[cfg(feature = "download")]
use super::download::get_from;
use super::{pendigits, schools, shakespeare, writers};
use crate::settings::nearest;
use std::ffi::OsString;

/// A dataset that has a folder of its own.
#[derive(Debug, Clone, Copy)]
pub struct Dataset {
    /// Its name, and that of its folder.
    pub name: &'static str,
    /// A line for lists.
    pub summary: &'static str,
    /// URLs to try in turn; a file name is appended to them. Without one, users put the files there themselves.
    pub places: &'static [&'static str],
    /// The tar.gz that holds the files; without one each file is downloaded alone, as `.gz`.
    pub archive: Option<&'static str>,
    /// The files it consists of.
    pub files: &'static [Content],
}

/// One file of a dataset, uncompressed.
#[derive(Debug, Clone, Copy)]
pub struct Content {
    pub(crate) name: &'static str,
    /// Its size; 0 where copies differ.
    pub(crate) bytes: u64,
    /// Its SHA-256 digest in hexadecimal; empty where copies differ.
    #[cfg_attr(not(feature = "download"), expect(dead_code))]
    pub(crate) sha256: &'static str,
}

/// Called with the file, the bytes downloaded, and the total where it is known.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(&str, u64, Option<u64>);

/// Names of files in a message before it only counts them.
const NAMED: usize = 6;

pub(super) const fn content(name: &'static str, bytes: u64, sha256: &'static str) -> Content {
    Content { name, bytes, sha256 }
}

/// The files of MNIST and its relatives, by their digests.
const fn idx_files([train_images, train_labels, test_images, test_labels]: [&'static str; 4]) -> [Content; 4] {
    [
        content("train-images-idx3-ubyte", 47_040_016, train_images),
        content("train-labels-idx1-ubyte", 60_008, train_labels),
        content("t10k-images-idx3-ubyte", 7_840_016, test_images),
        content("t10k-labels-idx1-ubyte", 10_008, test_labels),
    ]
}

/// Every dataset that has a folder of its own.
pub static DATASETS: &[Dataset] = &[
    Dataset {
        name: "mnist",
        summary: "70 000 handwritten digits of 28x28 pixels, a download of 12 MB",
        places: &[
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ],
        archive: None,
        files: &idx_files([
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ]),
    },
    Dataset {
        name: "fashion-mnist",
        summary: "70 000 pieces of clothing of 28x28 pixels, a download of 31 MB",
        places: &["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"],
        archive: None,
        files: &idx_files([
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ]),
    },
    Dataset {
        name: "cifar-10",
        summary: "60 000 colour photographs of 32x32 pixels, a download of 170 MB",
        places: &["https://www.cs.toronto.edu/~kriz/"],
        archive: Some("cifar-10-binary.tar.gz"),
        files: &[
            content("data_batch_1.bin", 30_730_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            content("data_batch_2.bin", 30_730_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            content("data_batch_3.bin", 30_730_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            content("data_batch_4.bin", 30_730_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            content("data_batch_5.bin", 30_730_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            content("test_batch.bin", 30_730_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ],
    },
    Dataset {
        name: "mnist-writers",
        summary: "who wrote MNIST's digits, by QMNIST's labels, a download of 1 MB; the digits are mnist's",
        places: &["https://raw.githubusercontent.com/facebookresearch/qmnist/master/"],
        archive: None,
        files: &[
            content(writers::TRAIN, 1_920_012, "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5"),
            content(writers::TEST, 1_920_012, "92d0ccb8c25f9c6534270fb4be7e1d24a1c6d315edfc8a638bfbd31c70f362dd"),
        ],
    },
    Dataset {
        name: "shakespeare",
        summary: "37 plays as plain texts, such as Project Gutenberg has them",
        places: &[],
        archive: None,
        files: &shakespeare::FILES,
    },
    Dataset {
        name: "pendigits",
        summary: "10 992 digits written with a pen by 44 people",
        places: &[],
        archive: None,
        files: &[content(pendigits::FILE, 0, "")],
    },
    Dataset {
        name: "schools",
        summary: "7185 pupils of 160 schools, High School and Beyond",
        places: &[],
        archive: None,
        files: &[content(schools::FILE, 0, "")],
    },
];

impl Dataset {
    /// Whether each file may also be there as `.gz`, as it is downloaded.
    fn may_be_packed(&self) -> bool {
        !self.places.is_empty() && self.archive.is_none()
    }
}

pub(crate) fn dataset(name: &str) -> Result<&'static Dataset> {
    DATASETS.iter().find(|dataset| dataset.name == name).ok_or_else(|| {
        let names = || DATASETS.iter().map(|dataset| dataset.name);
        let unknown = Error::settings(format!("no dataset is called `{name}`"));
        match nearest(name, names()) {
            Some(near) => unknown.hint(format!("did you mean `{near}`?")),
            None => unknown.hint(format!("known datasets: {}", names().collect::<Vec<_>>().join(", "))),
        }
    })
}

/// The folder all datasets live under.
#[doc(hidden)]
pub fn folder() -> Result<PathBuf> {
    folder_by(|name| std::env::var_os(name))
}

fn folder_by(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || {
        if cfg!(windows) {
            set("LOCALAPPDATA")
        } else if cfg!(target_os = "macos") {
            set("HOME").map(|home| home.join("Library/Caches"))
        } else {
            set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))
        }
    };
    set("KINFOLK_DATA").or_else(|| cache().map(|cache| cache.join("kinfolk"))).ok_or_else(|| {
        Error::new(ErrorKind::Io, "no folder for datasets: the home folder is not known")
            .hint("set KINFOLK_DATA to the folder that holds them")
    })
}

/// The folder of one dataset, whether or not it exists.
pub fn path(name: &str) -> Result<PathBuf> {
    Ok(folder()?.join(dataset(name)?.name))
}

/// Whether all files of a dataset are present, by name and size.
pub fn is_present(name: &str) -> bool {
    dataset(name).and_then(|dataset| Ok(missing(dataset, &path(name)?).is_empty())).unwrap_or(false)
}

/// The folder of a dataset that is present; otherwise the error says how to get it.
pub fn find(name: &str) -> Result<PathBuf> {
    let folder = path(name)?;
    require(dataset(name)?, &folder)?;
    Ok(folder)
}

fn require(dataset: &Dataset, folder: &Path) -> Result<()> {
    let missing = missing(dataset, folder);
    if missing.is_empty() {
        return Ok(());
    }
    let (name, place) = (dataset.name, folder.display());
    let all = enumerate(&dataset.files.iter().map(|file| file.name).collect::<Vec<_>>());
    let hint = match dataset.may_be_packed() {
        _ if dataset.places.is_empty() => format!("no address to download it from is known: put {all} into {place}"),
        true => format!("run `kinfolk data get {name}`, or put {all}, plain or with .gz, into {place}"),
        false => format!("run `kinfolk data get {name}`, or put {all} into {place}"),
    };
    Err(Error::data(format!("dataset {name}: {place} does not have a complete {}", enumerate(&missing))).hint(hint))
}

fn enumerate(names: &[&str]) -> String {
    match names.split_at_checked(NAMED) {
        Some((first, more)) if more.len() > 1 => format!("{} and {} more", first.join(", "), more.len()),
        _ => names.join(", "),
    }
}

pub(super) fn missing(dataset: &Dataset, folder: &Path) -> Vec<&'static str> {
    let is_there = |file: &Content| {
        let sized = |found: fs::Metadata| found.is_file() && (found.len() == file.bytes || file.bytes == 0);
        let plain = fs::metadata(folder.join(file.name)).is_ok_and(sized);
        plain || dataset.may_be_packed() && packed(folder, file).is_file()
    };
    dataset.files.iter().filter(|file| !is_there(file)).map(|file| file.name).collect()
}

pub(super) fn packed(folder: &Path, file: &Content) -> PathBuf {
    folder.join(format!("{}.gz", file.name))
}

/// Downloads missing and broken files of a dataset, and returns its folder.
pub fn get(name: &str, progress: Progress) -> Result<PathBuf> {
    let (dataset, folder) = (dataset(name)?, path(name)?);
    if dataset.places.is_empty() {
        require(dataset, &folder)?;
        return Ok(folder);
    }
    get_from(dataset, dataset.places, &folder, progress)?;
    Ok(folder)
}

#[cfg(not(feature = "download"))]
fn get_from(dataset: &Dataset, _: &[&str], folder: &Path, _: Progress) -> Result<()> {
    require(dataset, folder)
        .map_err(|error| error.hint("this build downloads nothing: build with the feature `download`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Dataset = Dataset {
        name: "plain",
        summary: "",
        places: &["http://nowhere/"],
        archive: None,
        files: &[content("numbers", 1000, "")],
    };

    #[test]
    fn a_missing_dataset_says_how_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display();
        assert_eq!(
            require(&PLAIN, folder.path()).unwrap_err().to_string(),
            format!(
                "dataset plain: {place} does not have a complete numbers\n  hint: run `kinfolk data get plain`, or put \
                 numbers, plain or with .gz, into {place}"
            )
        );
        const BY_HAND: Dataset = Dataset { places: &[], files: &[content("table.csv", 0, "")], ..PLAIN };
        assert_eq!(
            require(&BY_HAND, folder.path()).unwrap_err().to_string(),
            format!(
                "dataset plain: {place} does not have a complete table.csv\n  hint: no address to download it from is \
                 known: put table.csv into {place}"
            )
        );
        assert_eq!(enumerate(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e, f, g");
        assert_eq!(enumerate(&["a", "b", "c", "d", "e", "f", "g", "h"]), "a, b, c, d, e, f and 2 more");
        fs::write(folder.path().join("table.csv"), "any copy will do").unwrap();
        assert_eq!(require(&BY_HAND, folder.path()), Ok(()));
        assert_eq!(
            dataset("mnits").unwrap_err().to_string(),
            "no dataset is called `mnits`\n  hint: did you mean `mnist`?"
        );
    }

    #[test]
    fn the_folder_follows_the_environment() {
        let with = |set: &'static [(&str, &str)]| {
            folder_by(move |name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
        };
        let own = with(&[("KINFOLK_DATA", "/data"), ("HOME", "/home/a"), ("LOCALAPPDATA", "/local")]);
        assert_eq!(own.unwrap(), Path::new("/data"));
        assert!(with(&[]).unwrap_err().to_string().contains("KINFOLK_DATA"));
        if cfg!(target_os = "linux") {
            let home = with(&[("KINFOLK_DATA", ""), ("HOME", "/home/a")]).unwrap();
            assert_eq!(home, Path::new("/home/a/.cache/kinfolk"));
            let cache = with(&[("XDG_CACHE_HOME", "/cache"), ("HOME", "/home/a")]).unwrap();
            assert_eq!(cache, Path::new("/cache/kinfolk"));
        }
    }
}
