//! Names of model files and of their folders, which ids, labels and names of runs may not be: too long, of letters that a
//! file system does not know, or alike where it does not tell capitals from small letters.

use crate::disk::comma_separated;
use crate::error::Result;
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// The file beside the models that says which client's is which.
pub(crate) const CLIENT_FILES: &str = "clients.csv";

/// The most letters of an id in a name.
const LONGEST: usize = 64;

/// The names given so far, and whose they are.
#[derive(Default)]
pub(crate) struct ClientNames {
    taken: HashSet<String>,
    files: Vec<[String; 2]>,
}

/// A text in letters that every file system knows, as far as it may be long, and the digest of all of it.
fn known_and_digest(text: &str) -> (String, String) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let known = text.chars().take(LONGEST).map(|c| if plain(c) { c } else { '_' }).collect();
    (known, Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The digits of a digest that mark a name.
const MARK: usize = 16;

/// A text as the name of a folder: itself where it can be one, else with a digest behind it.
pub(crate) fn plain_name(text: &str) -> String {
    let (known, digest) = known_and_digest(text);
    if known == text && !text.is_empty() { known } else { format!("{known}-{}", &digest[..MARK]) }
}

impl ClientNames {
    /// The name of a client's model: `client-ID` where that is a name of its own, else with a digest of the id behind it.
    pub(crate) fn of(&mut self, id: &str) -> String {
        let (known, digest) = known_and_digest(id);
        let itself = (known == id).then(|| known.clone());
        // All of the digest only where some id looks like another one's name.
        let marked = [MARK, digest.len()].map(|length| format!("{known}-{}", &digest[..length]));
        let numbered = (2..).map(|number| format!("{known}-{digest}-{number}"));
        let mut names = itself.into_iter().chain(marked).chain(numbered).map(|name| format!("client-{name}"));
        let name = names.find(|name| self.taken.insert(name.to_lowercase())).unwrap_or(known);
        self.files.push([id.to_string(), format!("{name}.safetensors")]);
        name
    }

    /// The bytes of the file that says which client's model is in which file; `None` where no client has one.
    pub(crate) fn table(self) -> Result<Option<Vec<u8>>> {
        if self.files.is_empty() {
            return Ok(None);
        }
        comma_separated(CLIENT_FILES, ["client", "file"], self.files).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_odd_and_like_ids_get_names_of_their_own() {
        let mut names = ClientNames::default();
        let long = "x".repeat(300);
        let ids = ["a", "b-2_C", "a/b", "a:b", "A", "é", "", &long, &format!("{long}y"), "../../etc", "a_b", "a\nb"];
        let given: Vec<String> = ids.iter().map(|id| names.of(id)).collect();
        assert_eq!((&*given[0], &*given[1], &*given[10]), ("client-a", "client-b-2_C", "client-a_b"));
        let distinct: HashSet<String> = given.iter().map(|name| name.to_lowercase()).collect();
        assert_eq!(distinct.len(), ids.len(), "{given:?}");
        for name in &given {
            assert!(name.len() < 100 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{name}");
        }
        // A name depends on the id, not on who came before.
        assert_eq!(ClientNames::default().of("a/b"), given[2]);
        let table = String::from_utf8(names.table().unwrap().unwrap()).unwrap();
        assert!(table.starts_with("client,file\na,client-a.safetensors\n"), "{table}");
        assert!(ClientNames::default().table().unwrap().is_none());
    }

    #[test]
    fn no_name_leads_out_of_its_folder() {
        for text in ["..", ".", "", "a/../../b", "/etc", "x y"] {
            let name = plain_name(text);
            assert!(!name.contains(['/', '.', ' ']) && name.len() > MARK, "{text:?}: {name}");
        }
        assert_eq!(plain_name("fed-avg_2"), "fed-avg_2");
        assert_ne!(plain_name("a/b"), plain_name("a:b"));
    }

    #[test]
    fn an_id_that_looks_like_the_name_of_another_stays_apart() {
        let odd = ClientNames::default().of("a/b");
        let mut names = ClientNames::default();
        let lookalike = names.of(odd.strip_prefix("client-").unwrap());
        assert_eq!(lookalike, odd);
        assert_ne!(names.of("a/b"), lookalike);
    }
}
