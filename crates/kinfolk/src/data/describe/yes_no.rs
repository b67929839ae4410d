//! Yes and no, in their usual spellings.

/// Words that go together, those for no first. The same words in other cases are the same.
const SPELLINGS: [[&[&str]; 2]; 5] = [
    [&["no", "n", "0"], &["yes", "y", "1"]],
    [&["false", "f", "0"], &["true", "t", "1"]],
    [&["nein"], &["ja"]],
    [&["non"], &["oui"]],
    [&["off"], &["on"]],
];

/// Whether a word is the yes among words that go together; `None` of a word that is none of them.
fn side(spellings: &[&[&str]; 2], word: &str) -> Option<bool> {
    let word = word.to_lowercase();
    [false, true].into_iter().find(|&yes| spellings[usize::from(yes)].contains(&word.as_str()))
}

/// Reads the words of a column in which all are a yes or a no.
pub(crate) struct YesNo {
    spellings: Vec<&'static [&'static [&'static str]; 2]>,
}

impl YesNo {
    /// `None` where words are not of one kind of spelling, or all on one side.
    pub(crate) fn of<'a>(words: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let go_together = |spellings: &&[&[&str]; 2]| {
            let sides = words.clone().map(|word| side(spellings, word));
            let found: Option<Vec<bool>> = sides.collect();
            found.is_some_and(|found| found.contains(&true) && found.contains(&false))
        };
        let spellings: Vec<_> = SPELLINGS.iter().filter(go_together).collect();
        (!spellings.is_empty()).then_some(Self { spellings })
    }

    /// Whether a word is a yes; `None` where it is neither.
    pub(crate) fn is_yes(&self, word: &str) -> Option<bool> {
        self.spellings.iter().find_map(|spellings| side(spellings, word))
    }

    /// What stands for all spellings of yes, or of no: the longest, and of these the first by letters.
    pub(crate) fn name<'a>(&self, words: impl Iterator<Item = &'a str>, yes: bool) -> Option<&'a str> {
        let own = words.filter(|word| self.is_yes(word) == Some(yes));
        own.min_by_key(|word| (std::cmp::Reverse(word.len()), *word))
    }
}

/// Whether some words are spellings of the same answer.
pub(crate) fn repeats_an_answer<'a>(words: impl Iterator<Item = &'a str> + Clone) -> bool {
    let twice = |spellings: &[&[&str]; 2], yes: bool| {
        words.clone().filter(|word| side(spellings, word) == Some(yes)).count() > 1
    };
    SPELLINGS.iter().any(|spellings| twice(spellings, true) || twice(spellings, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_go_together_or_not() {
        let of = |words: &[&'static str]| YesNo::of(words.iter().copied());
        let mixed = ["yes", "Yes", "Y", "no", "No", "N"];
        let found = of(&mixed).unwrap();
        assert_eq!(
            ["YES", "y", "n", "maybe"].map(|word| found.is_yes(word)),
            [Some(true), Some(true), Some(false), None]
        );
        assert_eq!([false, true].map(|yes| found.name(mixed.into_iter(), yes)), [Some("No"), Some("Yes")]);
        assert!(of(&["true", "TRUE", "T", "1", "false"]).is_some_and(|found| found.is_yes("0") == Some(false)));
        // Zeros and ones go with either.
        assert!(
            of(&["0", "1"])
                .is_some_and(|found| found.is_yes("true") == Some(true) && found.is_yes("No") == Some(false))
        );
        for words in [&["yes", "no", "maybe"][..], &["yes", "Yes"], &["T", "F", "N"], &["yes", "false"], &[]] {
            assert!(of(words).is_none(), "{words:?}");
        }
        assert!(repeats_an_answer(["yes", "Yes", "maybe"].into_iter()));
        assert!(!repeats_an_answer(["yes", "no", "maybe"].into_iter()));
    }
}
