//! Names of clients' model files, which clients' ids may not be: too long, of letters that a file system does not know, or
//! alike where it does not tell capitals from small letters.

use crate::error::Result;
use crate::report::files::comma_separated;
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// The file beside the models that says which client's is which.
pub(super) const CLIENT_FILES: &str = "clients.csv";

/// The most letters of an id in a name.
const LONGEST: usize = 64;

/// The names given so far, and whose they are.
#[derive(Default)]
pub(super) struct ClientNames {
    taken: HashSet<String>,
    files: Vec<[String; 2]>,
}

impl ClientNames {
    /// The name of a client's model: `client-ID` where that is a name of its own, else with a digest of the id behind it.
    pub(super) fn of(&mut self, id: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let known: String = id.chars().take(LONGEST).map(|c| if plain(c) { c } else { '_' }).collect();
        let digest: String = Sha256::digest(id).iter().map(|byte| format!("{byte:02x}")).collect();
        let itself = (known == id).then(|| known.clone());
        // All of the digest only where some id looks like another one's name.
        let marked = [16, digest.len()].map(|length| format!("{known}-{}", &digest[..length]));
        let numbered = (2..).map(|number| format!("{known}-{digest}-{number}"));
        let mut names = itself.into_iter().chain(marked).chain(numbered).map(|name| format!("client-{name}"));
        let name = names.find(|name| self.taken.insert(name.to_lowercase())).unwrap_or(known);
        self.files.push([id.to_string(), format!("{name}.safetensors")]);
        name
    }

    /// The bytes of the file that says which client's model is in which file; `None` where no client has one.
    pub(super) fn table(self) -> Result<Option<Vec<u8>>> {
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
    fn an_id_that_looks_like_the_name_of_another_stays_apart() {
        let odd = ClientNames::default().of("a/b");
        let mut names = ClientNames::default();
        let lookalike = names.of(odd.strip_prefix("client-").unwrap());
        assert_eq!(lookalike, odd);
        assert_ne!(names.of("a/b"), lookalike);
    }
}
