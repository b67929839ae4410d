//! Files of the LEAF benchmark: JSON with `users`, `num_samples` and `user_data`, where every user has rows `x` and
//! targets `y`.
//!
//! A row of FEMNIST is 784 numbers, a row of Shakespeare a text of 80 characters whose class is the next character; rows
//! of numbers that fill a square are images. A folder with `train` and `test` is taken as LEAF divides it by sample, with
//! the same users in both; any other folder of files, or a single file, is divided here.
//!
//! Files are read twice, row by row: first the users and the number of classes, then the rows of the users that are
//! drawn. Only these are ever in memory.

use super::split::hold_out;
use super::*;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::fs::File;
use std::io::BufReader;

choices! {
    /// What the rows are.
    pub enum Content { Auto = "auto", Images = "images", Text = "text" }
}

settings! {
    /// Settings of the files.
    pub struct LeafSettings {
        /// a folder with train and test, a folder of files, or one file
        path: String,
        /// what the rows are: as they look, square images, or texts
        content: Content = "auto",
        /// how many clients, drawn from the seed; left out: all of them
        clients: Option<usize> [1..=10_000_000],
        /// fewest rows a client must have
        min_rows: usize [1..=i64::MAX] = 1,
        /// share of a user's rows kept for testing; not for a folder with train and test, which is divided already
        test_fraction: f64 [0.0..1.0] = 0.2,
        /// augmentation of training images
        augmenting: Augmenting,
    }
}

impl SourceSettings for LeafSettings {
    const NAME: &str = "leaf";
    const SUMMARY: &str = "JSON files of the LEAF benchmark, such as FEMNIST and Shakespeare";

    fn build(self, seed: u64) -> Result<Population> {
        let key = Key::new(seed).word("leaf");
        let (share, least) = (self.test_fraction, self.min_rows);
        let path = Path::new(&self.path);
        let (train, test) = match path.join("train") {
            folder if folder.is_dir() => (files(&folder)?, files(&path.join("test"))?),
            _ => (files(path)?, Vec::new()),
        };
        let (overview, test_overview) = (Overview::read(&train)?, Overview::read(&test)?);
        if !test.is_empty() {
            same_users(path, &overview, &test_overview)?;
        }
        let form = overview.form(&self)?;

        let rows = |user: &str| overview.rows[user] + test_overview.rows.get(user).unwrap_or(&0);
        let mut users: Vec<&str> =
            overview.rows.keys().map(String::as_str).filter(|user| rows(user) >= least).collect();
        if users.is_empty() {
            return Err(Error::settings(format!("data.min_rows: no user has {least} rows")));
        }
        let drawn = draw_clients(users.iter().copied(), self.clients, &key)?;
        keep(&mut users, drawn);
        let drawn = HashSet::from_iter(users);

        let width = overview.shape.width;
        let mut tests = shards(&test, &drawn, width, form)?;
        let client = |(id, shard): (String, Shard)| {
            let (train, test) = if test.is_empty() {
                let is_test = hold_out(shard.len(), share, &key.clone().word("test").word(&id));
                let part = |test| (0..shard.len()).filter(|row| is_test[*row] == test).collect::<Vec<_>>();
                (shard.pick(&part(false)), shard.pick(&part(true)))
            } else {
                let missing = || Error::data(format!("{}: user {id} is gone", path.display()));
                (shard, tests.remove(&id).ok_or_else(missing)?)
            };
            Ok(Client { id, train, test, group: None, truth: None })
        };
        Ok(Population {
            clients: shards(&train, &drawn, width, form)?.into_iter().map(client).collect::<Result<_>>()?,
            shape: DataShape { columns: width, classes: overview.classes.max(test_overview.classes) as usize, form },
            ..Population::default()
        })
    }
}

const MOST_CLASSES: u32 = 1 << 16;

/// The JSON files of a folder by name, or the one file.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let reading = |error| Error::io("reading", path, error);
    let entries = fs::read_dir(path).map_err(reading)?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry.map_err(reading)?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    match files.is_empty() {
        true => Err(Error::data(format!("{}: no .json files", path.display()))),
        false => Ok(files),
    }
}

fn same_users(path: &Path, train: &Overview, test: &Overview) -> Result<()> {
    for (part, users, other, others) in [("train", train, "test", test), ("test", test, "train", train)] {
        if let Some(user) = users.rows.keys().find(|user| !others.rows.contains_key(*user)) {
            let message = format!("{}: user {user} is in {part} but not in {other}", path.display());
            return Err(Error::data(message).hint("the files must be divided by sample: preprocess.sh -t sample"));
        }
    }
    if train.shape != test.shape {
        let (path, train, test) = (path.display(), train.shape, test.shape);
        return Err(Error::data(format!("{path}: rows of {train} in train, of {test} in test")));
    }
    Ok(())
}

/// The shape of a row: a number of characters, or of numbers.
#[derive(Default, Clone, Copy, PartialEq)]
struct RowShape {
    width: usize,
    text: bool,
}

impl fmt::Display for RowShape {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{} {}", self.width, if self.text { "characters" } else { "numbers" })
    }
}

#[derive(Default)]
struct Overview {
    rows: BTreeMap<String, usize>,
    shape: RowShape,
    classes: u32,
}

impl Overview {
    fn read(files: &[PathBuf]) -> Result<Self> {
        let mut overview = Self::default();
        for file in files {
            let before = overview.rows.len();
            read(file, &|_| Keep::Width, &mut |id, user| {
                let first = overview.rows.is_empty();
                if user.rows == 0 {
                    return Err("no rows".into());
                }
                if first {
                    overview.shape = user.shape;
                    overview.classes = if user.shape.text { letters::ALPHABET.len() as u32 } else { 0 };
                }
                if user.shape != overview.shape {
                    return Err(format!("rows of {}, want {} as before", user.shape, overview.shape));
                }
                overview.classes = user.classes.iter().fold(overview.classes, |most, class| most.max(class + 1));
                match overview.rows.insert(id, user.rows) {
                    Some(_) => Err("it is there twice".into()),
                    None => Ok(()),
                }
            })?;
            if overview.rows.len() == before {
                return Err(Error::data(format!("{}: no users", file.display())));
            }
        }
        Ok(overview)
    }

    fn form(&self, settings: &LeafSettings) -> Result<Form> {
        let RowShape { width, text } = self.shape;
        let side = width.isqrt();
        let (square, content) = (side * side == width && !text, settings.content);
        if content == Content::Text && !text || content == Content::Images && !square {
            let message = format!("data.content: got \"{content}\", but the rows are {}", self.shape);
            return Err(Error::settings(message));
        }
        if !square && (settings.augmenting.flip || settings.augmenting.crop > 0) {
            let message = format!("data: flip and crop are for square images, but the rows are {}", self.shape);
            return Err(Error::settings(message).hint("leave data.flip and data.crop out"));
        }
        Ok(match square {
            true => {
                let augment = images::augment(&settings.augmenting, side)?;
                Form::Image { channels: 1, height: side, width: side, augment }
            }
            false if text => Form::Text { symbols: letters::ALPHABET.len() },
            false => Form::Numbers,
        })
    }
}

fn shards(files: &[PathBuf], drawn: &HashSet<&str>, columns: usize, form: Form) -> Result<BTreeMap<String, Shard>> {
    let mut shards = BTreeMap::new();
    let keep = |user: &str| if drawn.contains(user) { Keep::Rows } else { Keep::Nothing };
    for file in files {
        read(file, &keep, &mut |id, user| {
            if !drawn.contains(id.as_str()) {
                return Ok(());
            }
            let features = match form {
                Form::Text { .. } => Features::Symbols { columns, values: user.symbols },
                _ => Features::F32 { columns, values: user.numbers },
            };
            let shard = Shard::new(features, Targets::Classes(user.classes)).map_err(|error| error.to_string())?;
            shards.insert(id, shard);
            Ok(())
        })?;
    }
    Ok(shards)
}

#[derive(Clone, Copy, PartialEq)]
enum Keep {
    Nothing,
    Width,
    Rows,
}

#[derive(Default)]
struct User {
    rows: usize,
    shape: RowShape,
    numbers: Vec<f32>,
    symbols: Vec<u8>,
    classes: Vec<u32>,
    letters: bool,
}

impl User {
    /// Checks the shape of a row of `x`.
    fn end_row(&mut self, width: usize, text: bool) -> Result<(), String> {
        let shape = RowShape { width, text };
        if width == 0 {
            return Err(format!("no {}", if text { "characters" } else { "numbers" }));
        }
        if self.shape.width == 0 {
            self.shape = shape;
        }
        if self.shape == shape { Ok(()) } else { Err(format!("{shape}, want {} as in the first row", self.shape)) }
    }
}

type Wants<'a> = &'a dyn Fn(&str) -> Keep;
type Found<'a> = &'a mut dyn FnMut(String, User) -> Result<(), String>;

fn read(path: &Path, wants: Wants, found: Found) -> Result<()> {
    let file = File::open(path).map_err(|error| Error::io("reading", path, error))?;
    let mut reader = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 20, file));
    let fault = |error: serde_json::Error| Error::data(format!("{}: {error}", path.display()));
    Document { wants, found }.deserialize(&mut reader).map_err(fault)?;
    reader.end().map_err(fault)
}

/// Declares a seed that is its own visitor.
macro_rules! seed {
    ($name:ident { $($field:ident: $type:ty),+ } -> $value:ty, $wanted:literal, $($visits:tt)*) => {
        struct $name<'a> {
            $($field: $type),+
        }

        impl<'de> DeserializeSeed<'de> for $name<'_> {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<$value, D::Error> {
                reader.deserialize_any(self)
            }
        }

        impl<'de> Visitor<'de> for $name<'_> {
            type Value = $value;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str($wanted)
            }

            $($visits)*
        }
    };
}

seed! { Document { wants: Wants<'a>, found: Found<'a> } -> (), "`users`, `num_samples` and `user_data`",
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut users, mut samples, mut rows) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "users" => users = Some(map.next_value::<Vec<String>>()?),
                "num_samples" => samples = Some(map.next_value::<Vec<usize>>()?),
                "user_data" => {
                    rows = Some(map.next_value_seed(UserData { wants: self.wants, found: &mut *self.found })?);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let missing = |key: &str| A::Error::custom(format!("`{key}` is missing"));
        let users = users.ok_or_else(|| missing("users"))?;
        let rows = rows.ok_or_else(|| missing("user_data"))?;
        let samples = samples.ok_or_else(|| missing("num_samples"))?;
        if samples.len() != users.len() {
            let (users, samples) = (users.len(), samples.len());
            return Err(A::Error::custom(format!("{users} `users` but {samples} `num_samples`")));
        }
        let mut listed = HashSet::new();
        if let Some(user) = users.iter().find(|user| !listed.insert(*user)) {
            return Err(A::Error::custom(format!("user {user} is twice in `users`")));
        }
        for (user, want) in users.iter().zip(samples) {
            match rows.get(user) {
                None => return Err(A::Error::custom(format!("user {user} is in `users` but not in `user_data`"))),
                Some(have) if *have != want => {
                    let message = format!("user {user} has {have} rows, but {want} by `num_samples`");
                    return Err(A::Error::custom(message));
                }
                Some(_) => {}
            }
        }
        match rows.keys().find(|user| !listed.contains(user)) {
            Some(user) => Err(A::Error::custom(format!("user {user} is in `user_data` but not in `users`"))),
            None => Ok(()),
        }
    }
}

seed! { UserData { wants: Wants<'a>, found: Found<'a> } -> BTreeMap<String, usize>, "a table of users",
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut rows = BTreeMap::new();
        while let Some(id) = map.next_key::<String>()? {
            let mut user = User::default();
            let at_user = |error: &dyn fmt::Display| A::Error::custom(format!("user {id}: {error}"));
            map.next_value_seed(OneUser { user: &mut user, keep: (self.wants)(&id) }).map_err(|error| at_user(&error))?;
            rows.insert(id.clone(), user.rows);
            (self.found)(id.clone(), user).map_err(|error| at_user(&error))?;
        }
        Ok(rows)
    }
}

seed! { OneUser { user: &'a mut User, keep: Keep } -> (), "`x` and `y`",
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let OneUser { user, keep } = self;
        let (mut x, mut y) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                // An ignored value has no size: only their number is kept.
                "x" | "y" if keep == Keep::Nothing => {
                    let count = Some(map.next_value::<Vec<IgnoredAny>>()?.len());
                    if key == "x" { x = count } else { y = count }
                }
                "x" => x = Some(map.next_value_seed(Columns { user: &mut *user, keep })?),
                "y" => y = Some(map.next_value_seed(Classes { user: &mut *user })?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        match (x, y) {
            (Some(x), Some(y)) if x == y => user.rows = x,
            (Some(x), Some(y)) => return Err(A::Error::custom(format!("{x} rows of `x` but {y} of `y`"))),
            (None, _) => return Err(A::Error::custom("`x` is missing")),
            (_, None) => return Err(A::Error::custom("`y` is missing")),
        }
        if user.letters != user.shape.text {
            let kind = |text| if text { "texts" } else { "numbers" };
            let (x, y) = (kind(user.shape.text), kind(user.letters));
            return Err(A::Error::custom(format!("`x` are {x}, but `y` are {y}")));
        }
        Ok(())
    }
}

/// Reads rows until there is none left, and returns their number.
fn count_rows<E: serde::de::Error>(key: &str, mut next: impl FnMut() -> Result<Option<()>, E>) -> Result<usize, E> {
    let mut count = 0;
    while next().map_err(|error| E::custom(format!("row {count} of `{key}`: {error}")))?.is_some() {
        count += 1;
    }
    Ok(count)
}

seed! { Columns { user: &'a mut User, keep: Keep } -> usize, "a list of rows",
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
        count_rows("x", || list.next_element_seed(Row { user: &mut *self.user, keep: self.keep }))
    }
}

seed! { Row { user: &'a mut User, keep: Keep } -> (), "a list of numbers or a text",
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut width = 0;
        while let Some(number) = list.next_element::<f64>()? {
            if !(number as f32).is_finite() {
                return Err(A::Error::custom(format!("{number} is too large")));
            }
            if self.keep == Keep::Rows {
                self.user.numbers.push(number as f32);
            }
            width += 1;
        }
        self.user.end_row(width, false).map_err(A::Error::custom)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if self.keep == Keep::Rows {
            self.user.symbols.extend(text.chars().map(letters::number));
        }
        self.user.end_row(text.chars().count(), true).map_err(E::custom)
    }
}

seed! { Classes { user: &'a mut User } -> usize, "a list of classes",
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
        count_rows("y", || list.next_element_seed(Class { user: &mut *self.user }))
    }
}

seed! { Class { user: &'a mut User } -> (), "the number of a class or one character",
    fn visit_u64<E: serde::de::Error>(self, class: u64) -> Result<(), E> {
        if class >= u64::from(MOST_CLASSES) {
            return Err(E::custom(format!("class {class}, want less than {MOST_CLASSES}")));
        }
        self.user.classes.push(class as u32);
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let mut letters = text.chars();
        let (Some(letter), None) = (letters.next(), letters.next()) else {
            return Err(E::custom(format!("{text:?}, want one character")));
        };
        self.user.classes.push(u32::from(letters::number(letter)));
        self.user.letters = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Augment;
    use crate::settings::Declared;

    /// Files by their names, read with these settings.
    fn make(files: &[(&str, &str)], text: &str, seed: u64) -> Result<Population, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let place = folder.path().display().to_string();
        let table = toml::from_str(&format!("path = \"{place}\"\n{text}")).unwrap();
        let settings = LeafSettings::from_table("data", table).map_err(|error| error.to_string())?;
        settings.build(seed).map_err(|error| error.to_string().replace(&place, "folder"))
    }

    fn numbers(shard: &Shard) -> Vec<f32> {
        let Features::F32 { columns, values } = &**shard.features() else { panic!() };
        values[shard.rows().start * columns..shard.rows().end * columns].to_vec()
    }

    const IMAGES: &str = r#"{"users": ["b", "a"], "num_samples": [1, 2], "hierarchies": [], "user_data": {
        "b": {"y": [3], "x": [[0, 0.5, 1.0, 0.25]]},
        "a": {"x": [[1, 0, 0, 0], [0, 1, 0, 0]], "y": [0, 7]}}}"#;
    const TEXT: &str = r#"{"users": ["HAMLET"], "num_samples": [2], "user_data": {
        "HAMLET": {"x": ["To be", "o b\u00e9\n"], "y": [",", " "]}}}"#;

    #[test]
    fn images_of_users() {
        let population = make(&[("all.json", IMAGES), ("notes.txt", "")], "test_fraction = 0\nflip = true", 1).unwrap();
        let told: Vec<_> = (population.clients.iter())
            .map(|user| (user.id.as_str(), numbers(&user.train), user.train.classes().unwrap(), user.test.len()))
            .collect();
        let a = vec![1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        assert_eq!(told, [("a", a, &[0, 7][..], 0), ("b", vec![0.0, 0.5, 1.0, 0.25], &[3][..], 0)]);
        let form = Form::Image { channels: 1, height: 2, width: 2, augment: Augment { flip: true, crop: 0 } };
        assert_eq!(population.shape, DataShape { columns: 4, classes: 8, form });
        // Whoever is left out, there are as many classes.
        let population = make(&[("all.json", IMAGES)], "clients = 1", 1).unwrap();
        assert_eq!((population.clients.len(), population.shape.classes), (1, 8));
        let population = make(&[("all.json", IMAGES)], "min_rows = 2\ntest_fraction = 0.5", 1).unwrap();
        assert_eq!((population.clients[0].train.len(), population.clients[0].test.len()), (1, 1));
        let three = IMAGES.replace(", 0.25", "").replace(", 0, 0]", ", 0]");
        assert_eq!(make(&[("all.json", &three)], "", 1).unwrap().shape.form, Form::Numbers);
    }

    #[test]
    fn texts_of_users() {
        let population = make(&[("one.json", TEXT)], "test_fraction = 0", 1).unwrap();
        let train = &population.clients[0].train;
        let Features::Symbols { columns: 5, values } = &**train.features() else { panic!() };
        // T is the 19th capital behind 25 other symbols; what is not in the alphabet is 79.
        assert_eq!(values, &[44, 67, 1, 54, 57, 67, 1, 54, 79, 0]);
        assert_eq!(train.classes().unwrap(), [8, 1]);
        assert_eq!(population.shape, DataShape { columns: 5, classes: 80, form: Form::Text { symbols: 80 } });
    }

    #[test]
    fn a_test_folder_is_used_as_it_is() {
        let test = IMAGES.replace("0.25", "0.75").replace("[0, 7]", "[9, 7]");
        let population = make(&[("train/one.json", IMAGES), ("test/two.json", &test)], "", 1).unwrap();
        assert_eq!((population.clients[0].train.len(), population.clients[0].test.len()), (2, 2));
        assert_eq!(numbers(&population.clients[1].test), [0.0, 0.5, 1.0, 0.75]);
        assert_eq!(population.shape.classes, 10);
        let test = test.replace("\"b\"", "\"c\"");
        assert_eq!(
            make(&[("train/one.json", IMAGES), ("test/two.json", &test)], "", 1).unwrap_err(),
            "folder: user b is in train but not in test\n  hint: the files must be divided by sample: preprocess.sh -t \
             sample"
        );
        let text = make(&[("train/one.json", IMAGES), ("test/notes.txt", "")], "", 1).unwrap_err();
        assert_eq!(text, "folder/test: no .json files");
    }

    #[test]
    fn fewer_users_are_some_of_all_however_they_are_ordered() {
        let file = |order: &[usize]| {
            let list =
                |each: &dyn Fn(usize) -> String| order.iter().map(|user| each(*user)).collect::<Vec<_>>().join(",");
            let (users, samples) = (list(&|user| format!("\"u{user}\"")), list(&|_| "3".into()));
            let data = list(&|user| format!("\"u{user}\": {{\"x\": [[{user}], [1], [2]], \"y\": [0, 1, 0]}}"));
            format!("{{\"user_data\": {{{data}}}, \"num_samples\": [{samples}], \"users\": [{users}]}}")
        };
        let up: Vec<usize> = (0..9).collect();
        let down: Vec<usize> = (0..9).rev().collect();
        let all = make(&[("all.json", &file(&up))], "", 2).unwrap();
        let some = make(&[("all.json", &file(&up))], "clients = 4", 2).unwrap();
        let turned = make(&[("a.json", &file(&down[..5])), ("b.json", &file(&down[5..]))], "clients = 4", 2).unwrap();
        assert_eq!((some.clients.len(), some.digest()), (4, turned.digest()));
        for user in &some.clients {
            let same = all.clients.iter().find(|other| other.id == user.id).unwrap();
            assert_eq!((numbers(&same.train), numbers(&same.test)), (numbers(&user.train), numbers(&user.test)));
        }
        assert_ne!(make(&[("all.json", &file(&up))], "clients = 4", 3).unwrap().digest(), some.digest());
    }

    #[test]
    fn faults_name_the_file_the_user_and_the_row() {
        let text = |from: &str, to: &str| {
            assert!(IMAGES.contains(from));
            let text = make(&[("all.json", &IMAGES.replace(from, to))], "", 1).unwrap_err();
            text.split(" at line").next().unwrap().to_string()
        };
        assert_eq!(
            text("[0, 1, 0, 0]", "[0, 1, 0]"),
            "folder/all.json: user a: row 1 of `x`: 3 numbers, want 4 numbers as in the first row"
        );
        assert_eq!(text("[0, 7]", "[0]"), "folder/all.json: user a: 2 rows of `x` but 1 of `y`");
        assert_eq!(text("[0, 1, 0, 0]", "[0, NaN, 0, 0]"), "folder/all.json: user a: row 1 of `x`: expected value");
        assert_eq!(
            text("0.25", "1e39"),
            "folder/all.json: user b: row 0 of `x`: 1000000000000000000000000000000000000000 is too large"
        );
        assert!(text("[3]", "[-3]").starts_with("folder/all.json: user b: row 0 of `y`: invalid type: integer `-3`"));
        assert_eq!(text("[3]", "[\"ab\"]"), "folder/all.json: user b: row 0 of `y`: \"ab\", want one character");
        assert_eq!(text("[3]", "[\"d\"]"), "folder/all.json: user b: `x` are numbers, but `y` are texts");
        assert_eq!(text("\"y\": [3], ", ""), "folder/all.json: user b: `y` is missing");
        assert_eq!(text("[\"b\", \"a\"]", "[\"b\"]"), "folder/all.json: 1 `users` but 2 `num_samples`");
        assert_eq!(
            text("[\"b\", \"a\"]", "[\"b\", \"c\"]"),
            "folder/all.json: user c is in `users` but not in `user_data`"
        );
        assert_eq!(text("[\"b\", \"a\"]", "[\"a\", \"a\"]"), "folder/all.json: user a is twice in `users`");
        assert_eq!(text("[1, 2]", "[1, 3]"), "folder/all.json: user a has 2 rows, but 3 by `num_samples`");
        assert!(text("0, 7]}}}", "0, 7]").starts_with("folder/all.json: "));
        assert_eq!(
            text("[[1, 0, 0, 0], [0, 1, 0, 0]]", "[[1], [0]]"),
            "folder/all.json: user a: rows of 1 numbers, want 4 numbers as before"
        );
    }

    #[test]
    fn settings_that_do_not_fit_the_files_are_refused() {
        let text = |settings: &str| make(&[("all.json", IMAGES)], settings, 1).unwrap_err();
        assert_eq!(text("content = \"text\""), "data.content: got \"text\", but the rows are 4 numbers");
        assert_eq!(text("clients = 3"), "data.clients: got 3, but there are 2");
        assert_eq!(text("min_rows = 3"), "data.min_rows: no user has 3 rows");
        assert_eq!(text("crop = 2"), "data.crop: got 2, want less than the 2 pixels from side to side");
        assert_eq!(
            make(&[("one.json", TEXT)], "content = \"images\"", 1).unwrap_err(),
            "data.content: got \"images\", but the rows are 5 characters"
        );
        let moved = "data: flip and crop are for square images, but the rows are";
        for settings in ["flip = true", "crop = 1"] {
            assert!(make(&[("one.json", TEXT)], settings, 1).unwrap_err().contains(&format!("{moved} 5 characters")));
            let three = IMAGES.replace(", 0.25", "").replace(", 0, 0]", ", 0]");
            assert!(make(&[("one.json", &three)], settings, 1).unwrap_err().contains(&format!("{moved} 3 numbers")));
        }
        let twice = make(&[("a.json", IMAGES), ("b.json", IMAGES)], "", 1).unwrap_err();
        assert!(twice.starts_with("folder/b.json: user b: it is there twice"), "{twice}");
        assert_eq!(make(&[("notes.txt", "")], "", 1).unwrap_err(), "folder: no .json files");
    }
}
