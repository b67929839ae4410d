//! Next characters in Shakespeare's plays, one client for every speaking role of a play, such as `hamlet/horatio`.
//!
//! The roles come from the plain texts ([`plays`]). The speeches of a role are one text in symbols of LEAF's alphabet
//! ([`letters`]). A row is a window of `length` characters and the class is the character after it, as in LEAF; windows
//! begin every `stride` characters. The last part of a role's text is for testing, and no window reaches from one part
//! into the other. A client's group is its play.
//!
//! Of the 37 plays of the texts this was made for (4.85 MB; of *Cymbeline* acts III and IV are not in them), 1373 roles
//! speak 4.26 million characters (one of them a single character, which makes no row; `min_characters = 2` leaves 1372);
//! 630 of them speak at least 1000 characters each, and 4.03 million together. Slips of the pen and crowds (`ALL.`,
//! `PERACLES.`) make many of the small ones.

use super::cache::{Content, content};
use super::plays::Role;
use super::*;

/// The plays; poems are not among them.
pub(super) static FILES: [Content; 37] = {
    const fn play(name: &'static str) -> Content {
        content(name, 0, "")
    }
    [
        play("alls_well_that_ends_well_gut.txt"),
        play("antony_and_cleopatra_gut.txt"),
        play("as_you_like_it_gut.txt"),
        play("comedy_of_errors_gut.txt"),
        play("coriolanus_gut.txt"),
        play("cymbeline_gut.txt"),
        play("hamlet_gut.txt"),
        play("henry_iv_part_1_gut.txt"),
        play("henry_iv_part_2_gut.txt"),
        play("henry_v_gut.txt"),
        play("henry_vi_part_1_gut.txt"),
        play("henry_vi_part_2_gut.txt"),
        play("henry_vi_part_3_gut.txt"),
        play("henry_viii_gut.txt"),
        play("john_gut.txt"),
        play("julius_caesar_gut.txt"),
        play("lear_gut.txt"),
        play("loves_labours_lost_gut.txt"),
        play("macbeth_gut.txt"),
        play("measure_for_measure_gut.txt"),
        play("merchant_of_venice_gut.txt"),
        play("merry_wives_of_windsor_gut.txt"),
        play("midsummer_nights_dream_gut.txt"),
        play("much_ado_about_nothing_gut.txt"),
        play("othello_gut.txt"),
        play("pericles_gut.txt"),
        play("richard_ii_gut.txt"),
        play("richard_iii_gut.txt"),
        play("romeo_and_juliet_gut.txt"),
        play("taming_of_the_shrew_gut.txt"),
        play("tempest_gut.txt"),
        play("timon_of_athens_gut.txt"),
        play("tragedy_of_titus_andronicus_gut.txt"),
        play("troilus_and_cressida_gut.txt"),
        play("twelfth_night_gut.txt"),
        play("two_gentlemen_of_verona_gut.txt"),
        play("winters_tale_gut.txt"),
    ]
};

/// Most bytes that all rows together may have.
const MOST_BYTES: usize = 1 << 30;

settings! {
    /// Settings of the plays.
    pub struct PlaySettings {
        /// which clients are drawn
        drawing: Drawing,
        /// characters in a row
        length: usize [1..=100_000] = 80,
        /// characters from one row to the next
        stride: usize [1..=100_000] = 1,
        /// fewest characters a role must speak
        min_characters: usize [1..=i64::MAX] = 1000,
        /// most training rows per client, drawn from the seed; left out: all
        samples: Option<usize> [1..=100_000_000],
        /// most test rows per client, drawn from the seed; left out: all
        test_samples: Option<usize> [1..=100_000_000],
    }
}

impl SourceSettings for PlaySettings {
    const NAME: &str = "shakespeare";
    const SUMMARY: &str = "next characters in 37 plays, one client for every speaking role";

    fn build(self, seed: u64) -> Result<Population> {
        let folder = cache::find("shakespeare")?;
        let play = |file: &Content| {
            let path = folder.join(file.name);
            let bytes = fs::read(&path).map_err(|error| Error::io("reading", &path, error))?;
            let roles = plays::roles(&String::from_utf8_lossy(&bytes));
            if roles.is_empty() {
                return Err(Error::data(format!("{}: nobody speaks, want the plain text of a play", path.display())));
            }
            Ok((file.name.trim_end_matches("_gut.txt").replace('_', "-"), roles))
        };
        build_from(FILES.par_iter().map(play).collect::<Result<_>>()?, &self, seed)
    }
}

/// A role's text in symbols, and the starts of its windows.
struct Part {
    play: String,
    role: String,
    text: Vec<u8>,
    train: Vec<usize>,
    test: Vec<usize>,
}

fn build_from(plays: Vec<(String, Vec<Role>)>, settings: &PlaySettings, seed: u64) -> Result<Population> {
    let key = Key::new(seed).word("shakespeare");
    let (length, stride) = (settings.length, settings.stride);
    let (least, share) = (settings.min_characters, settings.drawing.test_fraction);
    let cut = |characters: usize| characters - (share * characters as f64).round() as usize;
    for (part, wanted, have) in [("training", true, cut(least)), ("testing", share > 0.0, least - cut(least))] {
        if wanted && have <= length {
            let message = format!(
                "data.min_characters: {least} characters leave {have} for {part}, want more than the {length} of a row"
            );
            return Err(Error::settings(message).hint("a larger data.min_characters or a smaller data.length"));
        }
    }

    let mut parts: Vec<Part> = Vec::new();
    for (play, roles) in plays {
        for Role { name, text } in roles {
            let text: Vec<u8> = text.chars().map(letters::number).collect();
            if text.len() >= least {
                parts.push(Part { play: play.clone(), role: name, text, train: Vec::new(), test: Vec::new() });
            }
        }
    }
    if parts.is_empty() {
        return Err(Error::settings(format!("data.min_characters: no role speaks {least} characters")));
    }
    let ids: Vec<String> = parts.iter().map(Part::id).collect();
    keep(&mut parts, draw_clients(ids.iter().map(String::as_str), settings.drawing.clients, &key)?);

    for part in &mut parts {
        let middle = cut(part.text.len());
        let drawn = |range: Range<usize>, purpose: &str, most: Option<usize>| {
            let windows = range.len().saturating_sub(length).div_ceil(stride);
            let key = key.clone().word(purpose).word(&part.id());
            some(windows, most.unwrap_or(windows), &key).map(|window| range.start + window * stride).collect()
        };
        let (train, test) = (
            drawn(0..middle, "samples", settings.samples),
            drawn(middle..part.text.len(), "test_samples", settings.test_samples),
        );
        (part.train, part.test) = (train, test);
    }
    let rows: usize = parts.iter().map(|part| part.train.len() + part.test.len()).sum();
    if rows.saturating_mul(length) > MOST_BYTES {
        let message =
            format!("data.stride: {rows} rows of {length} characters, want at most {} rows", MOST_BYTES / length);
        return Err(Error::settings(message).hint("a larger data.stride, fewer data.clients, or data.samples"));
    }

    Ok(Population {
        clients: parts.par_iter().map(|part| part.client(length)).collect::<Result<_>>()?,
        shape: DataShape {
            columns: length,
            classes: letters::ALPHABET.len(),
            form: Form::Text { symbols: letters::ALPHABET.len() },
        },
        ..Population::default()
    })
}

/// At most `most` of the numbers below `count`, drawn and in ascending order.
fn some(count: usize, most: usize, key: &Key) -> impl Iterator<Item = usize> {
    let mut chosen = match most < count {
        true => index::sample(&mut key.rng(), count, most).into_vec(),
        false => (0..count).collect(),
    };
    chosen.sort_unstable();
    chosen.into_iter()
}

impl Part {
    fn id(&self) -> String {
        format!("{}/{}", self.play, self.role)
    }

    fn client(&self, length: usize) -> Result<Client> {
        let starts = || self.train.iter().chain(&self.test);
        let values = starts().flat_map(|start| &self.text[*start..][..length]).copied().collect();
        let features = Features::Symbols { columns: length, values };
        let targets = Targets::Classes(starts().map(|start| u32::from(self.text[start + length])).collect());
        let client = Client::divided(self.id(), features, targets, self.train.len())?;
        Ok(Client { group: Some(self.play.clone()), ..client })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Shard;
    use crate::settings::Declared;

    fn make(roles: &[(&str, &str)], text: &str, seed: u64) -> Result<Population> {
        let role = |(name, text): &(&str, &str)| Role { name: name.to_string(), text: text.to_string() };
        let settings = PlaySettings::from_table("data", toml::from_str(text).unwrap())?;
        build_from(vec![("hamlet".into(), roles.iter().map(role).collect())], &settings, seed)
    }

    /// The windows of a shard and the character behind each.
    fn windows(shard: &Shard) -> Vec<(String, char)> {
        let letter = |number: u8| char::from(letters::ALPHABET[usize::from(number)]);
        let Features::Symbols { columns, values } = &**shard.features() else { panic!() };
        let window = |row: usize| values[row * columns..][..*columns].iter().map(|number| letter(*number)).collect();
        let next = shard.classes().unwrap().iter().map(|class| letter(*class as u8));
        shard.rows().map(window).zip(next).collect()
    }

    fn told(windows: &[(String, char)]) -> Vec<(&str, char)> {
        windows.iter().map(|(window, next)| (window.as_str(), *next)).collect()
    }

    #[test]
    fn windows_and_what_comes_next() {
        let roles = [("ghost", "Mark me. List!"), ("boy", "Ay?")];
        let population = make(&roles, "length = 3\nmin_characters = 10\ntest_fraction = 0.4", 1).unwrap();
        assert_eq!(population.clients.len(), 1);
        let ghost = &population.clients[0];
        assert_eq!((ghost.id.as_str(), ghost.group.as_deref(), ghost.truth), ("hamlet/ghost", Some("hamlet"), None));
        // 0.4 of 14 characters are 6: `Mark me.` and ` List!`.
        let train = [("Mar", 'k'), ("ark", ' '), ("rk ", 'm'), ("k m", 'e'), (" me", '.')];
        assert_eq!(told(&windows(&ghost.train)), train);
        assert_eq!(told(&windows(&ghost.test)), [(" Li", 's'), ("Lis", 't'), ("ist", '!')]);
        let form = Form::Text { symbols: 80 };
        assert_eq!(population.shape, DataShape { columns: 3, classes: 80, form });

        let settings = "length = 3\nmin_characters = 10\ntest_fraction = 0.4\nstride = 2";
        let ghost = &make(&roles, settings, 1).unwrap().clients[0];
        assert_eq!(told(&windows(&ghost.train)), [("Mar", 'k'), ("rk ", 'm'), (" me", '.')]);
        assert_eq!(told(&windows(&ghost.test)), [(" Li", 's'), ("ist", '!')]);
        let ghost = &make(&roles, "length = 3\nmin_characters = 14\ntest_fraction = 0", 1).unwrap().clients[0];
        assert_eq!((ghost.train.len(), ghost.test.len()), (11, 0));
    }

    #[test]
    fn some_rows_are_drawn_in_order() {
        let text: String = ('a'..='z').cycle().take(300).collect();
        let of = |more: &str, seed| {
            let population =
                make(&[("fool", &text)], &format!("length = 5\nmin_characters = 50\n{more}"), seed).unwrap();
            windows(&population.clients[0].train)
        };
        let (all, some) = (of("", 1), of("samples = 7", 1));
        assert_eq!((all.len(), some.len()), (235, 7));
        let mut rest = all.iter();
        assert!(some.iter().all(|window| rest.any(|other| other == window)), "in the order of the text");
        assert_eq!(some, of("samples = 7", 1));
        assert_ne!(some, of("samples = 7", 2));
        assert_eq!(all, of("samples = 1000", 1));
    }

    #[test]
    fn fewer_roles_are_some_of_all_with_the_same_rows_on_any_number_of_threads() {
        let names: Vec<String> = (0..12).map(|name| format!("lord-{name}")).collect();
        let texts: Vec<String> = (0..12).map(|role| format!("word{role} ").repeat(20)).collect();
        let mut roles: Vec<(&str, &str)> =
            names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
        let settings = "length = 5\nmin_characters = 50\nsamples = 9";
        let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let all = pool(1).install(|| make(&roles, settings, 4)).unwrap();
        assert_eq!(pool(3).install(|| make(&roles, settings, 4)).unwrap().digest(), all.digest());
        let some = make(&roles, &format!("{settings}\nclients = 5"), 4).unwrap();
        assert_eq!(some.clients.len(), 5);
        for client in &some.clients {
            let same = all.clients.iter().find(|other| other.id == client.id).unwrap();
            assert_eq!(windows(&same.train), windows(&client.train));
        }
        roles.reverse();
        let turned = make(&roles, &format!("{settings}\nclients = 5"), 4).unwrap();
        let mut ids: Vec<&str> = turned.clients.iter().map(|client| client.id.as_str()).collect();
        ids.reverse();
        assert_eq!(ids, some.clients.iter().map(|client| client.id.as_str()).collect::<Vec<_>>());
    }

    #[test]
    fn settings_that_leave_no_rows_or_too_many_are_refused() {
        let long = "so ".repeat(7000);
        let text = |settings: &str| make(&[("fool", &long)], settings, 1).unwrap_err().to_string();
        assert_eq!(
            text("min_characters = 400"),
            "data.min_characters: 400 characters leave 80 for testing, want more than the 80 of a row\n  hint: a larger \
             data.min_characters or a smaller data.length"
        );
        let huge =
            make(&[("fool", &"so ".repeat(25_000))], "min_characters = 60000\ntest_fraction = 0\nlength = 50000", 1);
        assert_eq!(
            huge.unwrap_err().to_string(),
            "data.stride: 25000 rows of 50000 characters, want at most 21474 rows\n  hint: a larger data.stride, fewer \
             data.clients, or data.samples"
        );
        assert!(text("min_characters = 80\ntest_fraction = 0").contains("leave 80 for training"));
        assert_eq!(text("min_characters = 30000"), "data.min_characters: no role speaks 30000 characters");
        assert_eq!(text("clients = 2"), "data.clients: got 2, but there are 1");
    }
}
